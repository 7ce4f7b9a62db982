//! `souk run`: submit a job and follow it to its end.

mod end;
mod follow;
mod overrides;
mod progress;
mod text;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use clap::Args;
use souk_protocol::{JobFile, job_file};
use tokio::time::Instant;

pub(crate) use self::{end::tell_detached, overrides::JobArgs, text::event_text};
use super::{
    Context,
    error::{CliError, Exit},
    session::{Needs, Session},
    signal::Signals,
};
use crate::{
    submit::{self, Resolved, SubmitError},
    view::{Plan, PlanRequest, SubmitRequest, Submitted},
};

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    job: JobArgs,
    /// Print the id and return; the job goes on in the running node.
    #[arg(short, long)]
    detach: bool,
    /// Return the exit code of the task (of a job with one task).
    #[arg(long, conflicts_with = "detach")]
    passthrough: bool,
    /// Ctrl-C cancels the job instead of detaching from it.
    #[arg(long)]
    cancel_on_interrupt: bool,
}

/// A job file that this version can run, and where its relative paths start.
#[derive(Debug)]
pub(crate) struct Prepared {
    file: JobFile,
    folder: PathBuf,
    name: String,
}

impl Prepared {
    /// Reads the job file, or makes one of the flags; prints warnings; refuses what is not built yet.
    pub(crate) fn read(context: &Context, args: &JobArgs) -> Result<Self, CliError> {
        let (parsed, name, folder) = args.job()?;
        let late = parsed.file.check_at(crate::clock::wall());
        if !late.is_empty() {
            return Err(CliError::Invalid { file: name, problems: late });
        }
        let missing: Vec<String> = job_file::not_available(&parsed.file).iter().map(ToString::to_string).collect();
        if !missing.is_empty() {
            return Err(CliError::usage(format!("{name}: {}", missing.join("; "))).hint("leave these fields out"));
        }
        for warning in &parsed.warnings {
            context.printer.warn(warning.in_file(&name));
        }
        Ok(Self { file: parsed.file, folder, name })
    }

    /// Turns local paths into hashes.
    pub(crate) async fn resolve(&self, session: &Session) -> Result<Resolved, CliError> {
        let mut blobs = BTreeMap::new();
        for hash in submit::blobs_named(&self.file) {
            if let Some(len) = session.client.blob_len(&hash).await? {
                blobs.insert(hash, len);
            }
        }
        let (file, folder) = (self.file.clone(), self.folder.clone());
        let resolved = tokio::task::spawn_blocking(move || submit::resolve(&file, &folder, &blobs));
        resolved.await.map_err(CliError::internal)?.map_err(|error| submit_error(&self.name, &error))
    }
}

fn submit_error(name: &str, error: &SubmitError) -> CliError {
    let message = format!("{name}: {error}");
    match error {
        SubmitError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            CliError::usage(message).hint("relative paths start at the folder of the job file")
        }
        _ => CliError::usage(message),
    }
}

/// The current folder, for paths given as flags.
pub(crate) fn here() -> Result<PathBuf, CliError> {
    std::env::current_dir().map_err(|error| CliError::usage(format!("the current folder is gone: {error}")))
}

/// The folder of a file, absolute.
pub(crate) fn folder_of(path: &Path) -> Result<PathBuf, CliError> {
    if path == Path::new("-") {
        return here();
    }
    let path = std::path::absolute(path).map_err(|error| CliError::usage(format!("{}: {error}", path.display())))?;
    Ok(path.parent().unwrap_or_else(|| Path::new("/")).to_owned())
}

pub(crate) async fn run(context: &Context, args: RunArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::new().map_err(CliError::internal)?;
    let deadline = context.shared.timeout.map(|limit| (Instant::now() + limit.to_std(), limit));
    let prepared = Prepared::read(context, &args.job)?;
    let needs = if args.detach { Needs::Daemon } else { Needs::AnyNode };
    let until_submitted = async {
        let session = Session::open(context, needs).await?;
        match submit(context, &session, &prepared).await {
            Ok((id, resolved)) => Ok((session, id, resolved)),
            Err(error) => {
                session.close().await;
                Err(error)
            }
        }
    };
    let submitted = tokio::select! {
        submitted = until_submitted => submitted,
        signal = signals.next() => Err(signal.error()),
        limit = passed(deadline) => Err(CliError::Timeout { limit }),
    };
    let (session, submitted, resolved) = submitted?;
    if args.detach {
        if context.printer.is_structured() {
            context.printer.value(&submitted)?;
        } else {
            context.printer.line(submitted.id)?;
        }
        return Ok(Exit::DONE);
    }
    let follow = follow::Follow {
        context,
        session: &session,
        job: submitted.id,
        tasks: resolved.spec.task_count(),
        cancels: args.cancel_on_interrupt || session.is_own(),
        deadline,
    };
    let ended = follow.run(&mut signals).await;
    let done = match ended {
        Ok(()) => end::finish(context, &session, submitted.id, args.passthrough).await,
        Err(error) => Err(error),
    };
    session.close().await;
    done
}

/// Resolves when the deadline has passed; never without one.
pub(crate) async fn passed(deadline: Option<(Instant, souk_protocol::Millis)>) -> souk_protocol::Millis {
    match deadline {
        Some((at, limit)) => {
            tokio::time::sleep_until(at).await;
            limit
        }
        None => std::future::pending().await,
    }
}

/// Asks where nothing bounds the price, gives the node what it lacks, and submits.
async fn submit(context: &Context, session: &Session, prepared: &Prepared) -> Result<(Submitted, Resolved), CliError> {
    let resolved = prepared.resolve(session).await?;
    let market = &resolved.spec.market;
    if market.max_rate.is_none() && market.budget.is_none() {
        let plan: Plan = session.client.post("/v1/plan", &PlanRequest { spec: resolved.spec.clone() }).await?;
        let worst = plan.estimate.map_or_else(
            || "no offer is known, so nobody can say what it will cost".to_owned(),
            |estimate| format!("at worst it costs {}", estimate.high),
        );
        context.printer.confirm(&format!("The job has neither max_price nor budget; {worst}. Go on?")).await?;
    }
    progress::upload(context, session, &resolved.files).await?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| CliError::internal(format!("no randomness: {error}")))?;
    let request = SubmitRequest { spec: resolved.spec.clone(), nonce: data_encoding::HEXLOWER.encode(&nonce) };
    let submitted: Submitted = session.client.post("/v1/jobs", &request).await?;
    Ok((submitted, resolved))
}
