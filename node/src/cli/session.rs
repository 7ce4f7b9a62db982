//! A node to talk to: the running one of this home, or one inside this process for as long as the command runs.

use super::{
    Context,
    error::CliError,
    start::{self, Mode, Running},
};
use crate::client::{Client, ClientError};

/// What a command does without a running node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// It fails with exit code 3.
    Daemon,
    /// It starts one inside this process, and says so.
    AnyNode,
}

/// A node that answers.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    own: Option<Running>,
}

impl Session {
    /// Finds or starts a node.
    pub(crate) async fn open(context: &Context, needs: Needs) -> Result<Self, CliError> {
        if let Some(client) = running(context).await? {
            return Ok(Self { client, own: None });
        }
        if needs == Needs::Daemon {
            return Err(not_running(context));
        }
        let own = start::start(context, Mode::Inside).await?;
        context.printer.talk("no node runs in this home: one runs inside this command, for as long as it does");
        let client = Client::new(own.address, own.token.clone())?;
        let session = Self { client, own: Some(own) };
        session.settle(context).await;
        Ok(session)
    }

    /// The running node, or exit code 3.
    pub(crate) async fn daemon(context: &Context) -> Result<Self, CliError> {
        Self::open(context, Needs::Daemon).await
    }

    /// Whether the node ends with this command.
    pub(crate) fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// Ends the node if it is this command's own.
    pub(crate) async fn close(self) {
        if let Some(own) = self.own {
            own.stop().await;
        }
    }

    /// Waits until a node that has just started has heard the offers of its bootstrap peers.
    async fn settle(&self, context: &Context) {
        /// A bootstrap peer that has not answered by then is down; what it knows comes later or never.
        const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
        /// How often to look.
        const STEP: std::time::Duration = std::time::Duration::from_millis(50);
        /// Offers come within this time after the first peer.
        const OFFERS: std::time::Duration = std::time::Duration::from_millis(500);
        let Some(own) = &self.own else { return };
        if own.node.network().bootstrap.is_empty() {
            context.printer.warn("the network file names no bootstrap peer, so nobody can be reached");
            return;
        }
        let started = tokio::time::Instant::now();
        let mut met = None;
        while started.elapsed() < PATIENCE {
            let Ok(status) = self.client.get::<crate::view::Status>("/v1/status").await else { return };
            if status.peers > 0 && met.is_none() {
                met = Some(tokio::time::Instant::now());
            }
            if status.offers > 0 || met.is_some_and(|met| met.elapsed() >= OFFERS) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        context.printer.warn("no bootstrap peer has answered yet");
    }
}

/// A client of the node that runs in this home, if one does.
pub(crate) async fn running(context: &Context) -> Result<Option<Client>, CliError> {
    let Some(address) = context.home.api_address()? else { return Ok(None) };
    let token = match context.home.known_token() {
        Err(error) if error.is_missing() => return Ok(None),
        token => token?,
    };
    let client = Client::new(address, token)?;
    // A node that crashed leaves its address behind; another program may have the port by now.
    match client.get::<crate::view::Status>("/v1/status").await {
        Ok(status) => {
            check_network(context, &status)?;
            Ok(Some(client))
        }
        Err(ClientError::Refused { .. } | ClientError::Shape { .. }) => Ok(None),
        Err(ClientError::Api(view)) if view.code == "unauthorized" || view.code == "api" => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn check_network(context: &Context, status: &crate::view::Status) -> Result<(), CliError> {
    match &context.shared.network {
        Some(name) if *name != status.network => {
            let message = format!("the node of this home belongs to the network {:?}, not {name:?}", status.network);
            Err(CliError::usage(message).hint("choose another home with --home"))
        }
        _ => Ok(()),
    }
}

fn not_running(context: &Context) -> CliError {
    CliError::NotRunning { hint: format!("start it: souk up{}", context.home.flag()) }
}
