//! `souk up` and `souk node`: running a node and looking at it.

use clap::Subcommand;
use serde::Serialize;
use souk_attest::{GpuDriver, Inventory};
use souk_protocol::{Bytes, NodeId};
use tokio::time::Instant;

use super::{
    Context,
    error::{CliError, Exit},
    session::{self, Session},
    signal::{Hangups, Signals},
    start::{self, Mode},
};
use crate::{
    config::Machine,
    home,
    identity::Identity,
    view::{Draining, NodeWhy, Status},
};

mod earnings;
mod price;
mod schedule;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NodeCommand {
    /// The same as souk up.
    Run,
    /// The same as souk status.
    Status,
    /// Check that this machine and this home can run a node; exit code 1 if something fails.
    Doctor,
    /// Say why this node bids or does not.
    Why,
    /// Take the machine back: preemptible work is stopped after its notice, other work ends by itself, nothing is sold.
    Pause,
    /// Sell again after a pause.
    Resume,
    /// Sell no more; leases end as their work does.
    Drain,
    /// Show when this machine is for sale, by souk.toml; needs no running node.
    #[command(subcommand)]
    Schedule(schedule::ScheduleCommand),
    /// Show the price of the moment and why, or what would earn more.
    #[command(subcommand)]
    Price(price::PriceCommand),
    /// Show what came in by day, how full the machine was, and what was missed.
    Earnings(earnings::EarningsArgs),
}

pub(crate) async fn run(context: &Context, command: NodeCommand) -> Result<Exit, CliError> {
    match command {
        NodeCommand::Run => up(context).await,
        NodeCommand::Status => super::status::run(context).await,
        NodeCommand::Doctor => doctor(context).await,
        NodeCommand::Why => why(context).await,
        NodeCommand::Pause => tell(context, "/v1/pause", "paused").await,
        NodeCommand::Resume => tell(context, "/v1/resume", "selling again").await,
        NodeCommand::Drain => tell(context, "/v1/drain", "draining").await,
        NodeCommand::Schedule(command) => schedule::run(context, &command),
        NodeCommand::Price(command) => price::run(context, command).await,
        NodeCommand::Earnings(args) => earnings::run(context, &args).await,
    }
}

#[derive(Serialize)]
struct Up {
    node: NodeId,
    network: String,
    listen: Vec<String>,
    api: String,
    pid: u32,
}

/// Runs until SIGINT, SIGTERM or the end of `--timeout`; exit code 0 (7 after the time) after a clean stop.
pub(crate) async fn up(context: &Context) -> Result<Exit, CliError> {
    let printer = &context.printer;
    if !printer.is_json() {
        let default = if printer.is_verbose() { "souk_node=debug" } else { "souk_node=info" };
        let filter = tracing_subscriber::EnvFilter::try_from_env("SOUK_LOG")
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
        // Another subscriber can only be one of a test, which then has the logs.
        let _ =
            tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).try_init();
    }
    let mut signals = Signals::new().map_err(CliError::internal)?;
    let mut hangups = Hangups::new().map_err(CliError::internal)?;
    let deadline = context.shared.timeout.map(|limit| (Instant::now() + limit.to_std(), limit));
    // The store's lock says the same; the API's port, which is tried first, would only be called taken.
    if let Some(client) = session::running(context).await? {
        let status: Status = client.get("/v1/status").await?;
        let message = format!("a node of this home runs already, as process {}", status.pid);
        return Err(CliError::unreachable(message).hint("souk status shows it; another node needs another --home"));
    }
    let mut running = start::start(context, Mode::Foreground).await?;
    let client = crate::client::Client::new(running.address, running.token.clone())?;
    let listen = client.get::<Status>("/v1/status").await.map(|status| status.listen).unwrap_or_default();
    let up = Up {
        node: running.node.id(),
        network: running.node.network().name.clone(),
        listen,
        api: running.address.to_string(),
        pid: std::process::id(),
    };
    if printer.is_structured() {
        printer.item(&up)?;
    } else {
        printer.talk(format_args!(
            "node {} is up in network {} on {}, API on {}",
            up.node,
            up.network,
            up.listen.first().map_or("no address", String::as_str),
            up.api
        ));
    }
    let failed = {
        let node = std::sync::Arc::clone(&running.node);
        async move { node.failed().await }
    };
    let mut failed = std::pin::pin!(failed);
    let outcome = loop {
        tokio::select! {
            _ = signals.next() => break Ok(Exit::DONE),
            () = hangups.next() => reload(context, &mut running).await,
            limit = super::run::passed(deadline) => break Err(CliError::Timeout { limit }),
            () = &mut failed => break Err(CliError::internal("the journal failed, so the node promises nothing more and stops; is the disk full?")),
        }
    };
    printer.talk("stopping");
    tokio::select! {
        () = running.stop() => outcome,
        // Whoever asks twice does not want to wait.
        signal = signals.next() => Err(signal.error()),
    }
}

/// Reads the node file again. A bad one changes nothing.
async fn reload(context: &Context, running: &mut start::Running) {
    let printer = &context.printer;
    match running.reload(context).await {
        Ok(restart) if restart.is_empty() => printer.talk("the node file was read again and holds from now on"),
        Ok(restart) => printer.warn(format_args!(
            "the node file was read again and holds from now on, but for what needs a restart: {}",
            restart.join(", ")
        )),
        Err(error) => {
            let view = error.view();
            let problems: Vec<String> = view.nearest.iter().map(|problem| format!("\n  {problem}")).collect();
            let problems = problems.concat();
            printer.warn(format_args!(
                "the node file was not taken over, nothing has changed: {}{problems}",
                view.message
            ));
        }
    }
}

/// Tells the running node what its owner wants.
async fn tell(context: &Context, path: &str, done: &str) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let answer: Draining = session.client.post(path, &()).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&answer)?;
    } else {
        printer.line(format!("{done}; {} leases are open", answer.leases))?;
    }
    Ok(Exit::DONE)
}

async fn why(context: &Context) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let why: NodeWhy = session.client.get("/v1/node/why").await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&why)?;
        return Ok(Exit::DONE);
    }
    printer.line(if why.selling { "this node takes work" } else { "this node takes no work" })?;
    for because in &why.because {
        printer.line(format_args!("  {}", super::job::reason(because)))?;
    }
    Ok(Exit::DONE)
}

/// One check: what was found, what is needed, and what to do.
#[derive(Debug, Serialize)]
struct Check {
    id: &'static str,
    status: &'static str,
    actual: String,
    required: String,
    purpose: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Serialize)]
struct Diagnosis {
    healthy: bool,
    checks: Vec<Check>,
}

/// Least memory and disk with which a provider is of use.
const LEAST_MEMORY: Bytes = Bytes(512_000_000);
const LEAST_DISK: Bytes = Bytes(1_000_000_000);

async fn doctor(context: &Context) -> Result<Exit, CliError> {
    let machine = Machine::measure(context.home.data_dir());
    let mut checks = vec![
        check(
            "kernel",
            true,
            rustix::system::uname().release().to_string_lossy().into_owned(),
            "Linux",
            "sandboxing",
            None,
        ),
        check("processors", machine.cpu.0 >= 1_000, format!("{} cores", machine.cpu), "1 core", "running work", None),
        check(
            "memory",
            machine.memory >= LEAST_MEMORY,
            machine.memory.short(),
            "512 MB",
            "running work",
            Some("sell from a machine with more memory".to_owned()),
        ),
        check(
            "disk",
            machine.disk >= LEAST_DISK,
            format!("{} free", machine.disk.short()),
            "1 GB free",
            "inputs, outputs and the journal",
            Some(format!("make room at {}", context.home.data_dir().display())),
        ),
    ];
    checks.push(sandbox(&context.home).await);
    checks.push(gpus().await);
    checks.push(config_check(context));
    checks.push(key_check(context));
    checks.push(network_check(context));
    checks.push(node_check(context).await);
    let healthy = checks.iter().all(|check| check.status != "fail");
    let diagnosis = Diagnosis { healthy, checks };
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&diagnosis)?;
    } else {
        for check in &diagnosis.checks {
            let remedy = check.remedy.as_ref().map_or_else(String::new, |remedy| format!("; {remedy}"));
            printer.line(format_args!("{:<5} {:<11} {}{remedy}", check.status, check.id, check.actual))?;
        }
    }
    if healthy {
        return Ok(Exit::DONE);
    }
    let failed: Vec<&str> =
        diagnosis.checks.iter().filter(|check| check.status == "fail").map(|check| check.id).collect();
    Err(CliError::internal(format!("this machine or home is not fit: {}", failed.join(", "))))
}

fn check(
    id: &'static str,
    ok: bool,
    actual: impl Into<String>,
    required: impl Into<String>,
    purpose: &'static str,
    remedy: Option<String>,
) -> Check {
    let status = if ok { "pass" } else { "fail" };
    Check { id, status, actual: actual.into(), required: required.into(), purpose, remedy: remedy.filter(|_| !ok) }
}

/// Something that is no fault, but worth knowing.
fn info(id: &'static str, actual: impl Into<String>, purpose: &'static str, remedy: String) -> Check {
    let remedy = Some(remedy).filter(|text| !text.is_empty());
    Check { id, status: "info", actual: actual.into(), required: String::new(), purpose, remedy }
}

/// Starts a runner, which confines itself as it would for a stranger's work.
async fn sandbox(home: &home::Home) -> Check {
    let purpose = "isolating strangers' work";
    let started = async {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let scratch = tempfile::tempdir().map_err(|error| error.to_string())?;
        let pool = souk_sandbox::Pool::new(souk_sandbox::PoolConfig {
            program,
            args: vec!["runner".to_owned()],
            ahead: 1,
            scratch: scratch.path().to_owned(),
            cache_dir: scratch.path().join("modules"),
            secret: [0; 32],
        });
        pool.warm().await.map_err(|error| error.to_string())
    };
    match started.await {
        Ok(_) => check("sandbox", true, "a runner starts and confines itself", "landlock, seccomp", purpose, None),
        Err(why) => check(
            "sandbox",
            false,
            why,
            "landlock, seccomp",
            purpose,
            Some(format!("a renter needs none; souk init{} --role renter", home.flag())),
        ),
    }
}

/// Looks for GPUs; none is normal. A driver that hangs is given up.
async fn gpus() -> Check {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);
    let purpose = "selling GPUs, which is not available yet";
    let looked = tokio::task::spawn_blocking(|| {
        GpuDriver::load().map(|driver| Inventory::measure(driver.as_ref())).map_err(|problem| problem.to_string())
    });
    match tokio::time::timeout(PATIENCE, looked).await {
        Ok(Ok(Ok(found))) => {
            let names: Vec<&str> = found.gpus.iter().map(|gpu| &*gpu.name).collect();
            let unusable: Vec<String> = found.unusable.iter().map(ToString::to_string).collect();
            let actual = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Check {
                remedy: Some(unusable.join("; ")).filter(|text| !text.is_empty()),
                ..info("gpus", actual, purpose, String::new())
            }
        }
        Ok(Ok(Err(problem))) => info("gpus", problem, purpose, String::new()),
        _ => info("gpus", "the driver does not answer", purpose, "restart the machine".to_owned()),
    }
}

fn config_check(context: &Context) -> Check {
    let (file, purpose) = (context.home.config_file(), "settings of the owner");
    if !file.exists() {
        return info(
            "config",
            format!("{} is not there, defaults hold", file.display()),
            purpose,
            format!("souk init{}", context.home.flag()),
        );
    }
    match start::config(context) {
        Ok(config) => {
            let refused: Vec<String> =
                config.missing.iter().filter(|missing| missing.refused).map(|missing| missing.path.clone()).collect();
            let actual = if refused.is_empty() {
                "valid".to_owned()
            } else {
                format!("not available yet: {}", refused.join(", "))
            };
            check(
                "config",
                refused.is_empty(),
                actual,
                "valid",
                purpose,
                Some("souk config validate says more".to_owned()),
            )
        }
        Err(error) => check(
            "config",
            false,
            error.view().message,
            "valid",
            purpose,
            Some("souk config validate says more".to_owned()),
        ),
    }
}

fn key_check(context: &Context) -> Check {
    let (file, purpose) = (context.home.key_file(), "who this node is");
    match Identity::load(&file) {
        Ok(identity) => check("key", true, identity.id().short(), "readable by its owner only", purpose, None),
        Err(crate::identity::IdentityError::Home(error)) if error.is_missing() => {
            info("key", "there is none yet", purpose, format!("souk init{} makes it", context.home.flag()))
        }
        Err(error) => check("key", false, error.to_string(), "readable by its owner only", purpose, None),
    }
}

fn network_check(context: &Context) -> Check {
    let purpose = "peers to trade with";
    match start::config(context).and_then(|config| start::network(context, &config)) {
        Ok(file) => {
            check("network", true, format!("{} ({})", file.name, file.id().short()), "a network file", purpose, None)
        }
        Err(error @ CliError::NotFound { .. }) => {
            let view = error.view();
            info("network", "none joined yet", purpose, view.hint.unwrap_or_default())
        }
        Err(error) => check("network", false, error.view().message, "a network file", purpose, None),
    }
}

async fn node_check(context: &Context) -> Check {
    let purpose = "commands that need a node";
    let hint = format!("souk up{}", context.home.flag());
    let status =
        async { Session::daemon(context).await?.client.get::<Status>("/v1/status").await.map_err(CliError::from) };
    match status.await {
        Ok(status) => check("node", true, format!("runs as process {}", status.pid), "runs", purpose, None),
        Err(CliError::NotRunning { .. }) => info("node", "does not run", purpose, hint),
        Err(error) => check("node", false, error.view().message, "answers", purpose, Some(hint)),
    }
}
