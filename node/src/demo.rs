//! A market of real processes on this machine: for `souk demo`.
//!
//! Every node is this program, started as `souk up` in a home of its own below one temporary folder, listening on
//! loopback only. Dropping the [`Town`] ends them and removes the folder.

mod job;

use std::{
    io,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use souk_protocol::{NetworkFile, NetworkFileError, NodeId, Params, Rate};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

pub use job::DemoJob;

use crate::{
    client::{Client, ClientError},
    home::{Home, HomeError},
    identity::{Identity, IdentityError},
    net,
    view::Status,
};

/// Most providers of a demo: each is a process, and this is one machine.
pub const MAX_PROVIDERS: u32 = 16;
/// Longest wait for a node to answer.
const UP: Duration = Duration::from_secs(60);
/// Longest wait for a node to end by itself.
const DOWN: Duration = Duration::from_secs(10);
/// How often a condition is looked at.
const STEP: Duration = Duration::from_millis(20);
/// What the cheapest provider asks for a core, and what each next one asks more, in micro-credits an hour.
const ASK: (u64, u64) = (6_000, 2_000);

/// A demo could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// A file or process of it.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried.
        action: String,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// A home of it.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// A key of it.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Its network file.
    #[error(transparent)]
    Network(#[from] NetworkFileError),
    /// A node of it does not answer as it should.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A node ended at once.
    #[error("{name} ended at its start ({status}): {log}")]
    Ended {
        /// Which.
        name: String,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// Something did not happen in time.
    #[error("{what} within {} s", limit.as_secs())]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> DemoError {
    move |source| DemoError::Io { action: action.into(), source }
}

/// A node of the demo.
#[derive(Debug)]
pub struct Resident {
    /// `provider-2`.
    pub name: String,
    /// Its key.
    pub id: NodeId,
    /// Its home.
    pub home: Home,
    /// Its folder.
    pub folder: PathBuf,
    /// What it asks for a core, if it sells.
    pub ask: Option<Rate>,
    /// Speaks to it.
    pub client: Client,
    /// None once it is left to itself.
    process: Option<Child>,
}

impl Resident {
    /// Its process id, while it runs.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// Kills it without warning, as a power cut would, and waits until it is gone.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(&mut self) -> Result<(), DemoError> {
        match &mut self.process {
            Some(process) => process.kill().await.map_err(io_error(format!("kill {}", self.name))),
            None => Ok(()),
        }
    }
}

/// All nodes of the demo: a bootstrap node, providers, a renter.
#[derive(Debug)]
pub struct Town {
    /// The node that the others find each other by.
    pub bootstrap: Resident,
    /// Who sells, cheapest first.
    pub providers: Vec<Resident>,
    /// Who buys.
    pub renter: Resident,
    folder: Option<TempDir>,
}

/// What a node is to be.
struct Role<'a> {
    name: String,
    role: &'a str,
    port: u16,
    ask: Option<Rate>,
}

impl Town {
    /// Starts all nodes and waits until the renter knows every provider's offer.
    ///
    /// # Errors
    /// [`DemoError`]; nothing is left behind.
    pub async fn start(program: &Path, providers: u32) -> Result<Self, DemoError> {
        let folder = tempfile::Builder::new().prefix("souk-demo-").tempdir().map_err(io_error("make a folder"))?;
        let port = free_port()?;
        let role = Role { name: "bootstrap".to_owned(), role: "renter", port, ask: None };
        let (home, identity) = settle(folder.path(), &role)?;
        let network = network(&identity, port)?.to_toml()?;
        let bootstrap = up(program, folder.path(), &network, role, home, identity).await?;
        let mut residents = Vec::new();
        for n in 0..providers {
            let ask = Rate(ASK.0.saturating_add(ASK.1.saturating_mul(u64::from(n))));
            let role =
                Role { name: format!("provider-{}", n.saturating_add(1)), role: "provider", port: 0, ask: Some(ask) };
            let (home, identity) = settle(folder.path(), &role)?;
            residents.push(up(program, folder.path(), &network, role, home, identity));
        }
        let role = Role { name: "renter".to_owned(), role: "renter", port: 0, ask: None };
        let (home, identity) = settle(folder.path(), &role)?;
        // Together: they do not wait for each other.
        let (providers, renter) = futures::future::try_join(
            futures::future::try_join_all(residents),
            up(program, folder.path(), &network, role, home, identity),
        )
        .await?;
        let town = Self { bootstrap, providers, renter, folder: Some(folder) };
        town.meet().await?;
        Ok(town)
    }

    /// Waits until the renter is connected to every provider and knows its offer.
    async fn meet(&self) -> Result<(), DemoError> {
        let wanted = self.providers.len();
        let started = Instant::now();
        loop {
            let status: Status = self.renter.client.get("/v1/status").await?;
            if usize::try_from(status.offers).unwrap_or(usize::MAX) >= wanted {
                return Ok(());
            }
            if started.elapsed() > UP {
                let what = format!("the renter knows {} of {wanted} offers, expected all", status.offers);
                return Err(DemoError::Late { what, limit: UP });
            }
            sleep(STEP).await;
        }
    }

    /// The folder that everything is in.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(TempDir::path)
    }

    /// All nodes.
    pub fn residents(&mut self) -> impl Iterator<Item = &mut Resident> {
        [&mut self.bootstrap, &mut self.renter].into_iter().chain(&mut self.providers)
    }

    /// Asks every node to end and removes the folder. A node that does not end in time is killed.
    pub async fn stop(mut self) {
        let mut nodes: Vec<&mut Resident> = self.residents().collect();
        for node in &mut nodes {
            if let Some(pid) =
                node.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw)
            {
                // One that is gone already needs no signal.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
        }
        for node in nodes {
            if let Some(process) = &mut node.process
                && timeout(DOWN, process.wait()).await.is_err()
            {
                // It is killed when the town is dropped, a moment from now.
                tracing::warn!(node = node.name, "does not end by itself");
            }
        }
    }

    /// Leaves all nodes running and the folder where it is; returns it.
    #[must_use]
    pub fn keep(mut self) -> PathBuf {
        let folder = self.folder.take().map(TempDir::keep).unwrap_or_default();
        for node in self.residents() {
            // Forgotten, not dropped: a dropped process is killed.
            std::mem::forget(node.process.take());
        }
        folder
    }
}

impl Drop for Town {
    /// However the demo ends, its processes end before their folder goes.
    fn drop(&mut self) {
        let until = std::time::Instant::now() + Duration::from_secs(5);
        for node in self.residents() {
            let Some(process) = &mut node.process else { continue };
            // One that has ended needs no kill.
            let _ = process.start_kill();
            while matches!(process.try_wait(), Ok(None)) && std::time::Instant::now() < until {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A port that is free for both transports now.
fn free_port() -> Result<u16, DemoError> {
    for _ in 0..64 {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(io_error("find a free port"))?;
        let port = tcp.local_addr().map_err(io_error("find a free port"))?.port();
        if UdpSocket::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    Err(DemoError::Late { what: "no port is free for both TCP and UDP".to_owned(), limit: Duration::ZERO })
}

fn network(bootstrap: &Identity, port: u16) -> Result<NetworkFile, DemoError> {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| DemoError::Io {
        action: "draw a nonce".to_owned(),
        source: io::Error::other(error.to_string()),
    })?;
    let peer = net::peer_text(&bootstrap.id());
    Ok(NetworkFile {
        name: "demo".to_owned(),
        nonce,
        open: true,
        bootstrap: vec![
            format!("/ip4/127.0.0.1/udp/{port}/quic-v1/p2p/{peer}"),
            format!("/ip4/127.0.0.1/tcp/{port}/p2p/{peer}"),
        ],
        keys: vec![format!("ed25519:{}", bootstrap.id())],
        threshold: 1,
        params: Params::default(),
    })
}

/// Writes a node's home.
fn settle(town: &Path, role: &Role<'_>) -> Result<(Home, Identity), DemoError> {
    let home = Home::new(Some(&town.join(&role.name)))?;
    home.create()?;
    let (identity, _) = Identity::load_or_create(&home.key_file())?;
    let Role { name, role, port, ask } = role;
    let mut text = format!(
        "version = 1\n[node]\nname = \"{name}\"\nrole = \"{role}\"\nprofile = \"lan\"\n\
         [network]\nlisten = [\"/ip4/127.0.0.1/udp/{port}/quic-v1\", \"/ip4/127.0.0.1/tcp/{port}\"]\n\
         [api]\nlisten = \"127.0.0.1:0\"\n"
    );
    if let Some(ask) = ask {
        let floor = Rate(ask.0 / 2);
        text.push_str(&format!(
            "[offer]\nreserve = {{ cpu = 0, memory = \"1GB\", disk = \"1GB\" }}\n\
             [pricing]\nfloor = {{ cpu = \"{floor}\", memory_gb = \"0.0001 CR/h\" }}\n\
             ask = {{ cpu = \"{ask}\", memory_gb = \"0.0002 CR/h\" }}\n"
        ));
    }
    crate::home::write_new(&home.config_file(), text.as_bytes())?;
    Ok((home, identity))
}

/// Starts a node and waits until it answers.
async fn up(
    program: &Path,
    town: &Path,
    network: &str,
    role: Role<'_>,
    home: Home,
    identity: Identity,
) -> Result<Resident, DemoError> {
    let Role { name, ask, .. } = role;
    crate::home::write_new(&home.network_file(), network.as_bytes())?;
    let folder = town.join(&name);
    let log = folder.join("log");
    let to = std::fs::File::create(&log).map_err(io_error(format!("write {}", log.display())))?;
    let again = to.try_clone().map_err(io_error("write a log"))?;
    let mut process = Command::new(program)
        .arg("--home")
        .arg(&folder)
        .arg("up")
        .stdin(Stdio::null())
        .stdout(to)
        .stderr(again)
        // Ctrl-C at the demo is the demo's to pass on, in its order.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(io_error(format!("start {name}")))?;
    let started = Instant::now();
    loop {
        if let Some(status) = process.try_wait().map_err(io_error(format!("watch {name}")))? {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let from = log.len().saturating_sub(2_000);
            let log = log.get(from..).unwrap_or(&log).trim().to_owned();
            return Err(DemoError::Ended { name, status, log });
        }
        if let (Some(address), Ok(token)) = (home.api_address()?, home.known_token()) {
            let client = Client::new(address, token)?;
            if client.get::<Status>("/v1/status").await.is_ok() {
                return Ok(Resident { name, id: identity.id(), home, folder, ask, client, process: Some(process) });
            }
        }
        if started.elapsed() > UP {
            return Err(DemoError::Late { what: format!("{name} does not answer"), limit: UP });
        }
        sleep(STEP).await;
    }
}
