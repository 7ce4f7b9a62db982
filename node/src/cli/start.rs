//! Starting a node: for `souk up`, and inside a command that needs one for as long as it runs.

use std::{net::SocketAddr, sync::Arc};

use souk_protocol::NetworkFile;
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{Context, error::CliError};
use crate::{
    api::{self, ApiConfig},
    config::{self, Config, Machine},
    home::{self, Home},
    identity::Identity,
    net::NetError,
    node::{Node, NodeConfig, StartError},
    store::{HomeLock, LockError, StoreConfig, StoreError},
};

/// Runners kept ready by a node that sells.
const RUNNERS_AHEAD: usize = 2;

/// Reads and judges the node file; without one, the defaults.
pub(crate) fn config(context: &Context) -> Result<Config, CliError> {
    let path = context.home.config_file();
    let folder = context.home.config_dir();
    let text = match home::read_text(&path, home::MAX_TEXT) {
        Err(error) if error.is_missing() => "version = 1\n".to_owned(),
        text => text?,
    };
    Config::parse(&text, folder).map_err(|problems| CliError::Invalid { file: path.display().to_string(), problems })
}

/// Reads the network file of this home, and checks `--network`.
pub(crate) fn network(context: &Context, config: &Config) -> Result<NetworkFile, CliError> {
    let path = &config.network_file;
    let text = match home::read_text(path, home::MAX_TEXT) {
        Err(error) if error.is_missing() => {
            let flag = context.home.flag();
            return Err(CliError::not_found(format!(
                "this home belongs to no network: there is no {}",
                path.display()
            ))
            .hint(format!("souk network new{flag} --name lab makes one, souk network join{flag} FILE joins one")));
        }
        text => text?,
    };
    let file = NetworkFile::parse(&text).map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
    match &context.shared.network {
        Some(name) if *name != file.name => {
            let message = format!("this home belongs to the network {:?}, not {name:?}", file.name);
            Err(CliError::usage(message).hint("choose another home with --home"))
        }
        _ => Ok(file),
    }
}

/// How a node is to be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `souk up`: sells as its file says, answers on the API's address.
    Foreground,
    /// Inside another command: buys only, on any free port, known to nobody else.
    Inside,
}

/// A node that runs in this process, with its API.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) node: Arc<Node>,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    home: Home,
    /// What it was started with, or what has been read since.
    config: Config,
    mode: Mode,
    stop: CancellationToken,
    api: JoinHandle<std::io::Result<()>>,
}

/// Starts a node of this home.
pub(crate) async fn start(context: &Context, mode: Mode) -> Result<Running, CliError> {
    let config = config(context)?;
    let network = network(context, &config)?;
    let refused: Vec<String> =
        config.missing.iter().filter(|missing| missing.refused).map(ToString::to_string).collect();
    if mode == Mode::Foreground && !refused.is_empty() {
        let file = context.home.config_file();
        let message =
            format!("{} asks for what this version can't do yet:\n  {}", file.display(), refused.join("\n  "));
        return Err(CliError::usage(message).hint("take the fields out; souk config validate shows them all"));
    }
    context.home.create()?;
    let (identity, _) = Identity::load_or_create(&context.home.key_file())?;
    // Another node of this home is the better answer than its port, which is taken for the same reason.
    drop(HomeLock::acquire_readonly(context.home.data_dir()).map_err(CliError::unreachable)?);
    // Before the store is opened: a taken port is the cheaper thing to find out.
    let wanted = if mode == Mode::Foreground { config.api } else { SocketAddr::from(([127, 0, 0, 1], 0)) };
    let listener = TcpListener::bind(wanted).await.map_err(|error| taken("api.listen", &wanted.to_string(), &error))?;
    let address = listener.local_addr().map_err(CliError::internal)?;
    let machine = Machine::measure(context.home.data_dir());
    let policy = match mode {
        Mode::Foreground => config::policy(&config, &machine, &network.params.credit),
        Mode::Inside => None,
    };
    let program =
        std::env::current_exe().map_err(|error| CliError::internal(format!("cannot find this program: {error}")))?;
    let listen = config.listen.iter().map(|address| {
        // A node inside a command dials; a port of its own, so that it never stands in the way of `souk up`.
        let port = if mode == Mode::Inside { 0 } else { address.port };
        config::Listen { port, ..*address }.to_string()
    });
    let node = Node::start(NodeConfig {
        data: context.home.data_dir().to_owned(),
        secret: identity.seed(),
        network,
        listen: listen.collect(),
        external: config.external.clone(),
        lan: config.is_lan(),
        runners_ahead: if policy.is_some() { RUNNERS_AHEAD } else { 0 },
        policy,
        runner: (program, vec!["runner".to_owned()]),
        store: StoreConfig::default(),
    })
    .await
    .map_err(|error| start_error(error, &config))?;
    let node = Arc::new(node);
    let token = context.home.token()?;
    let stop = CancellationToken::new();
    let mut warnings: Vec<String> = config.missing.iter().map(ToString::to_string).collect();
    warnings.extend(node.report().warnings.iter().map(ToString::to_string));
    let api_config = ApiConfig {
        token: token.clone(),
        name: config.name.clone(),
        roles: if mode == Mode::Inside { vec!["renter".to_owned()] } else { config.role.words() },
        warnings,
        started: crate::clock::wall(),
    };
    let api = tokio::spawn(api::serve(Arc::clone(&node), api_config, listener, stop.clone()));
    // A second process on this home talks to this node, inside a command or not.
    context.home.announce_api(address)?;
    Ok(Running { node, address, token, home: context.home.clone(), config, mode, stop, api })
}

/// Tables of the node file that hold from the moment they are read again; all else needs a restart.
const RELOADED: [&str; 4] = ["pricing.", "availability.", "workloads.", "offer."];

impl Running {
    /// Reads the node file again and sells by it from now on. The fields that differ and need a restart.
    ///
    /// # Errors
    /// If the file is not valid or asks for what this version can't do; nothing has changed then.
    pub(crate) async fn reload(&mut self, context: &Context) -> Result<Vec<String>, CliError> {
        let config = config(context)?;
        if let Some(missing) = config.missing.iter().find(|missing| missing.refused) {
            return Err(CliError::usage(missing.to_string()));
        }
        let value = |config: &Config, path: &str| {
            config.settings.iter().find(|setting| setting.path == path).map(|setting| setting.value.clone())
        };
        let paths = config.settings.iter().chain(&self.config.settings).map(|setting| setting.path.clone());
        let restart: std::collections::BTreeSet<String> = paths
            .filter(|path| !RELOADED.iter().any(|table| path.starts_with(table)))
            .filter(|path| value(&config, path) != value(&self.config, path))
            .collect();
        // The role and the name stay those it was started with.
        let sells = Config { role: self.config.role, name: self.config.name.clone(), ..config.clone() };
        let machine = Machine::measure(context.home.data_dir());
        if let Some(policy) = config::policy(&sells, &machine, &self.node.network().params.credit) {
            self.node.set_policy(policy).await;
        }
        self.config = Config { settings: self.config.settings.clone(), ..sells };
        Ok(restart.into_iter().collect())
    }

    /// Stops the API, then the node.
    pub(crate) async fn stop(self) {
        self.home.withdraw_api();
        self.stop.cancel();
        // Its handlers hold the node.
        let _ = self.api.await;
        // A handler may be a moment behind; the node's own shutdown needs it alone.
        let mut node = self.node;
        for _ in 0..100 {
            match Arc::try_unwrap(node) {
                Ok(node) => return node.shutdown().await,
                Err(shared) => node = shared,
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        tracing::warn!(mode = ?self.mode, "something still uses the node; it ends with the process");
    }
}

fn taken(field: &str, address: &str, error: &std::io::Error) -> CliError {
    let message = match error.kind() {
        std::io::ErrorKind::AddrInUse => format!("{field}: {address} is taken by another program"),
        _ => format!("{field}: cannot listen on {address}: {error}"),
    };
    CliError::unreachable(message).hint("stop that program, or choose another port in souk.toml")
}

fn start_error(error: StartError, config: &Config) -> CliError {
    match error {
        StartError::Store(StoreError::Lock(error @ LockError::Locked { .. })) => CliError::unreachable(error),
        StartError::Net(NetError::Listen { value: address, why }) => {
            let message = if why.contains("in use") || why.contains("os error 98") {
                format!("network.listen: {address} is taken by another program")
            } else {
                format!("network.listen: cannot listen on {address}: {why}")
            };
            CliError::unreachable(message).hint("stop that program, or choose other ports in souk.toml")
        }
        StartError::Net(error) => {
            let lan = if config.is_lan() { "" } else { "; private addresses need profile = \"lan\" in souk.toml" };
            CliError::usage(format!("the network does not start: {error}{lan}"))
        }
        StartError::Sandbox(error) => {
            CliError::internal(format!("this machine cannot isolate work, so it sells nothing: {error}"))
                .hint("souk node doctor says more")
        }
        error => CliError::internal(error),
    }
}
