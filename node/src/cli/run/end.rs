//! The end of a followed job: outputs, summary, exit code.

use std::time::Duration;

use serde::Serialize;
use souk_matcher::TaskState;
use souk_protocol::{JobId, Rate};

use crate::{
    cli::{
        Context,
        error::{CliError, Exit},
        job, outputs,
        session::Session,
        table::count,
    },
    outputs::Written,
    view::{Job, TaskOutputs, Why},
};

/// Longest wait for the receipts of a job whose node ends with the command.
const RECEIPTS: Duration = Duration::from_secs(5);
/// Between two looks at them.
const STEP: Duration = Duration::from_millis(50);

#[derive(Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    job: &'a Job,
    outputs: &'a Written,
}

/// Brings the outputs home, sums up, and finds the exit code.
pub(super) async fn finish(
    context: &Context,
    session: &Session,
    id: JobId,
    passthrough: bool,
) -> Result<Exit, CliError> {
    let path = format!("/v1/jobs/{id}");
    let mut job: Job = session.client.get(&path).await?;
    let tasks: Vec<TaskOutputs> = session.client.get(&format!("{path}/outputs")).await?;
    let written = outputs::write(session, &tasks, None).await?;
    if session.is_own() {
        job = settled(session, &path, job).await?;
    }
    let why: Why = session.client.get(&format!("{path}/why")).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&Ended { job: &job, outputs: &written })?;
    } else {
        if written.files > 0 || !written.skipped.is_empty() {
            outputs::say(context, &written);
        }
        printer.talk(summary(&job));
    }
    if passthrough && let Some(code) = own_code(&job) {
        return Ok(Exit(code));
    }
    job::end_error(&job, &why.because).map_or(Ok(Exit::DONE), Err)
}

/// Waits for the receipts: when the node is gone they cannot come.
async fn settled(session: &Session, path: &str, mut job: Job) -> Result<Job, CliError> {
    let started = tokio::time::Instant::now();
    while job.leases.iter().any(|lease| !lease.receipt) && started.elapsed() < RECEIPTS {
        tokio::time::sleep(STEP).await;
        job = session.client.get(path).await?;
    }
    Ok(job)
}

fn summary(job: &Job) -> String {
    let done = job.tasks.iter().filter(|task| task.state == TaskState::Done).count() as u64;
    let attempts: usize = job.tasks.iter().map(|task| task.attempts.len()).sum();
    let tasks = job.tasks.len() as u64;
    let of = if done == tasks { count(tasks, "task") } else { format!("{done} of {}", count(tasks, "task")) };
    let again =
        if attempts as u64 > tasks { format!(" in {}", count(attempts as u64, "attempt")) } else { String::new() };
    let took =
        job.ended.map_or_else(String::new, |ended| format!(", {}", duration(ended.saturating_since(job.submitted))));
    format!("job {} {}: {of} done{again}{took}, cost {}", job.id.short(), job.state.word(), job.cost.short())
}

/// Two digits are enough for a summary.
fn duration(took: souk_protocol::Millis) -> String {
    match took.0 {
        ms @ 0..1_000 => format!("{ms}ms"),
        ms @ 1_000..60_000 => format!("{}.{}s", ms / 1_000, ms % 1_000 / 100),
        ms => souk_protocol::Millis(ms / 1_000 * 1_000).to_string(),
    }
}

/// The exit code of the only task, if its program ended by itself.
fn own_code(job: &Job) -> Option<u8> {
    let [task] = job.tasks.as_slice() else { return None };
    let code = task.attempts.last()?.exit_code?;
    u8::try_from(code & 0xff).ok()
}

/// One line about a job that goes on without its watcher: what, at what cost, and how to stop it.
pub(crate) fn tell_detached(context: &Context, job: &Job) {
    let rate = job
        .leases
        .iter()
        .filter(|lease| lease.state == "open")
        .fold(Rate(0), |sum, lease| sum.saturating_add(Rate(lease.rate.0.saturating_mul(lease.slots.into()))));
    let done = job.tasks.iter().filter(|task| task.state == TaskState::Done).count();
    let cost = if rate.is_zero() { "nothing yet".to_owned() } else { format!("up to {}", rate.short()) };
    let short = job.id.short();
    context.printer.talk(format_args!(
        "\ndetached: job {short} goes on ({}, {done}/{} done) and costs {cost}; souk cancel {short} stops it",
        job.state.word(),
        job.tasks.len()
    ));
}
