//! The command line.
//!
//! stdout carries the result and nothing else; talk, progress and warnings go to stderr. With `--json` stdout is one
//! JSON value (or one a line for streams) and stderr carries nothing but, on an error, one error object.

mod args;
mod attest;
mod config;
mod demo;
mod error;
mod init;
mod job;
mod key;
mod list;
mod logs;
mod network;
mod node;
mod outputs;
mod peers;
mod plan;
mod printer;
mod run;
mod session;
mod signal;
mod sim;
mod start;
mod status;
mod store;
mod table;
mod validate;
mod wallet;

#[cfg(test)]
mod tests;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory as _, Parser, Subcommand};

use self::{
    args::Shared,
    error::{CliError, Exit},
    printer::Printer,
};
use crate::home::Home;

/// A peer-to-peer market for computing: sell idle machines, buy computing by the second.
#[derive(Debug, Parser)]
#[command(
    name = "souk",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = "Exit codes:\n  \
        0 done              5 budget or balance         100 job failed\n  \
        1 internal          6 node unreachable          101 job not finished\n  \
        2 usage, bad file   7 --timeout passed          103 job cancelled\n  \
        3 not found         8 declined at a prompt      104 SLA missed\n  \
        4 no offers         9 verification failed       130, 143 SIGINT, SIGTERM"
)]
struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a market of real processes on this machine, and a job on it; leaves nothing behind.
    Demo(demo::DemoArgs),
    /// Write a config file and a key; never overwrites.
    Init(init::InitArgs),
    /// Run the node in the foreground until SIGINT or SIGTERM.
    Up,
    /// Show this node: peers, roles, leases, jobs, balance, warnings.
    Status,
    /// Submit a job and follow it.
    Run(run::RunArgs),
    /// Show matching offers, estimate and near misses; spends nothing.
    Plan(plan::PlanArgs),
    /// List jobs.
    Ps(list::PsArgs),
    /// Print the log of a task.
    Logs(logs::LogsArgs),
    /// Cancel jobs.
    Cancel(job::CancelArgs),
    /// Everything about jobs.
    #[command(subcommand)]
    Job(job::JobCommand),
    /// List live offers.
    Offers(plan::OffersArgs),
    /// Run and examine this node.
    #[command(subcommand)]
    Node(node::NodeCommand),
    /// Make, join or show a network.
    #[command(subcommand)]
    Network(network::NetworkCommand),
    /// List peers, or explain one.
    Peers(peers::PeersArgs),
    /// Measure round trips to a peer.
    Ping(peers::PingArgs),
    /// What is owed, by whom to whom.
    #[command(subcommand)]
    Wallet(wallet::WalletCommand),
    /// Show and verify receipts.
    #[command(subcommand)]
    Attest(attest::AttestCommand),
    /// Check the store.
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// The market at scale, simulated on this machine.
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// The node's key.
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// The node file.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Print a completion script.
    Completion {
        /// For which shell.
        shell: clap_complete::Shell,
    },
    /// Print the version.
    Version,
}

/// What commands work with.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) home: Home,
    pub(crate) printer: Printer,
    pub(crate) shared: Shared,
}

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    let json = args::wants_json(&words);
    let cli = match args::command(&words, Cli::command()).and_then(|matches| args::from_matches::<Cli>(&matches)) {
        Ok(cli) => cli,
        Err(error) => return args::report(&error, json),
    };
    let printer = Printer::new(&cli.shared);
    let json = printer.is_json();
    match execute(cli, printer) {
        Ok(Exit(code)) => ExitCode::from(code),
        Err(error) => error.report(json),
    }
}

fn execute(cli: Cli, printer: Printer) -> Result<Exit, CliError> {
    match cli.command {
        // These need no home.
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "souk", &mut script);
            printer.bytes(&script)?;
            return Ok(Exit::DONE);
        }
        Command::Version => return version(&printer),
        Command::Sim(command) => return sim::run(&printer, &command),
        _ => {}
    }
    let home = Home::new(cli.shared.home.as_deref())?;
    let context = Context { home, printer, shared: cli.shared };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::internal(format!("cannot start the runtime: {error}")))?;
    let done = runtime.block_on(limited(&context, cli.command));
    // Blocking reads of stdin or of slow disks must not hold the exit.
    runtime.shutdown_background();
    done
}

/// Runs a command within `--timeout`, and until a signal where the command has no use for signals of its own.
async fn limited(context: &Context, command: Command) -> Result<Exit, CliError> {
    let own_signals = match &command {
        Command::Run(_) | Command::Up | Command::Node(node::NodeCommand::Run) => true,
        Command::Logs(logs) | Command::Job(job::JobCommand::Logs(logs)) => logs.follow,
        Command::Job(job::JobCommand::Run(_)) => true,
        _ => false,
    };
    // These have something orderly to do when the time is up: they say what goes on, or stop the node.
    let own_end = matches!(
        &command,
        Command::Run(_) | Command::Job(job::JobCommand::Run(_)) | Command::Up | Command::Node(node::NodeCommand::Run)
    );
    let work = dispatch(context, command);
    let work = async {
        if own_signals {
            return work.await;
        }
        tokio::select! {
            done = work => done,
            signal = signal::any() => Err(signal.error()),
        }
    };
    match context.shared.timeout {
        Some(_) if own_end => work.await,
        None => work.await,
        Some(limit) => tokio::time::timeout(limit.to_std(), work).await.unwrap_or(Err(CliError::Timeout { limit })),
    }
}

async fn dispatch(context: &Context, command: Command) -> Result<Exit, CliError> {
    match command {
        Command::Demo(args) => demo::run(context, &args).await,
        Command::Init(args) => init::run(context, &args),
        Command::Up => node::up(context).await,
        Command::Status => status::run(context).await,
        Command::Run(args) => run::run(context, args).await,
        Command::Plan(args) => plan::plan(context, args).await,
        Command::Ps(args) => list::ps(context, &args).await,
        Command::Logs(args) => logs::run(context, &args).await,
        Command::Cancel(args) => job::cancel(context, &args).await,
        Command::Job(command) => job::run(context, command).await,
        Command::Offers(args) => plan::offers(context, &args).await,
        Command::Node(command) => node::run(context, command).await,
        Command::Network(command) => network::run(context, command).await,
        Command::Peers(args) => peers::run(context, args).await,
        Command::Ping(args) => peers::ping(context, &args).await,
        Command::Wallet(command) => wallet::run(context, command).await,
        Command::Attest(command) => attest::run(context, command).await,
        Command::Store(command) => store::run(context, command).await,
        Command::Key(command) => key::run(context, &command),
        Command::Config(command) => config::run(context, &command),
        Command::Completion { .. } | Command::Sim(_) | Command::Version => Ok(Exit::DONE),
    }
}

#[derive(serde::Serialize)]
struct Version {
    version: &'static str,
    wire: u16,
}

fn version(printer: &Printer) -> Result<Exit, CliError> {
    let version = Version { version: env!("CARGO_PKG_VERSION"), wire: souk_protocol::VERSION };
    if printer.is_structured() {
        printer.value(&version)?;
    } else {
        printer.line(format_args!("souk {} (wire format {})", version.version, version.wire))?;
    }
    Ok(Exit::DONE)
}
