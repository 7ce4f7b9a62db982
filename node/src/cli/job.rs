//! `souk job`: everything about jobs.

use clap::{Args, Subcommand};
use futures::StreamExt as _;
use serde::Serialize;
use souk_matcher::{JobState, Reason, TaskState};
use souk_protocol::JobId;

use super::{
    Context,
    error::{CliError, Exit},
    list, logs, outputs, plan, run,
    session::Session,
    table::{Table, ago, count, or_dash},
    validate,
};
use crate::view::{Cost, Job, ReceiptSummary, Why};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum JobCommand {
    /// Check a job file; all errors at once, with line, value and remedy.
    Validate(validate::ValidateArgs),
    /// Show matching offers, estimate and near misses; spends nothing.
    Plan(plan::PlanArgs),
    /// Submit a job and follow it.
    Run(run::RunArgs),
    /// List jobs.
    List(list::PsArgs),
    /// Show a job with its tasks and attempts.
    Get(OneJob),
    /// Say why a job is where it is.
    Why(OneJob),
    /// Print what happens to a job, until its end.
    Events(EventsArgs),
    /// Print the log of a task.
    Logs(logs::LogsArgs),
    /// Wait until jobs are at their end; exit code of the first that did not succeed.
    Wait(ManyJobs),
    /// List outputs of a job, or write them into a folder.
    Outputs(outputs::OutputsArgs),
    /// Show what a job costs, lease by lease.
    Cost(OneJob),
    /// List receipts of a job, or export them.
    Receipts(outputs::ReceiptsArgs),
    /// Cancel jobs.
    Cancel(CancelArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OneJob {
    /// Id of the job, or its first characters (4 or more).
    job: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ManyJobs {
    /// Ids of jobs, or their first characters.
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CancelArgs {
    /// Ids of jobs, or their first characters.
    #[arg(required = true, value_name = "JOB")]
    jobs: Vec<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct EventsArgs {
    /// Id of the job, or its first characters.
    job: String,
    /// Only events after this number.
    #[arg(long, value_name = "SEQ", default_value_t = 0)]
    from: u64,
    /// With log chunks (base64 in JSON).
    #[arg(long)]
    logs: bool,
}

pub(crate) async fn run(context: &Context, command: JobCommand) -> Result<Exit, CliError> {
    match command {
        JobCommand::Validate(args) => validate::run(context, &args),
        JobCommand::Plan(args) => plan::plan(context, args).await,
        JobCommand::Run(args) => run::run(context, args).await,
        JobCommand::List(args) => list::ps(context, &args).await,
        JobCommand::Get(args) => get(context, &args).await,
        JobCommand::Why(args) => why(context, &args).await,
        JobCommand::Events(args) => events(context, &args).await,
        JobCommand::Logs(args) => logs::run(context, &args).await,
        JobCommand::Wait(args) => wait(context, &args).await,
        JobCommand::Outputs(args) => outputs::run(context, &args).await,
        JobCommand::Cost(args) => cost(context, &args).await,
        JobCommand::Receipts(args) => outputs::receipts(context, &args).await,
        JobCommand::Cancel(args) => cancel(context, &args).await,
    }
}

/// An id of the user as part of a path of the API.
pub(crate) fn segment(id: &str) -> Result<&str, CliError> {
    let is_id = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_id {
        Ok(id)
    } else {
        Err(CliError::usage(format!("{id:?} is no id: letters a-z and digits 2-7 are expected")))
    }
}

pub(crate) const fn task_state(state: TaskState) -> &'static str {
    match state {
        TaskState::Queued => "queued",
        TaskState::Running => "running",
        TaskState::Done => "done",
        TaskState::Failed => "failed",
        TaskState::Cancelled => "cancelled",
    }
}

/// A reason on one line: `3 no-capacity: everything is taken (nearest: free 2 of 3 cores)`.
pub(crate) fn reason(reason: &Reason) -> String {
    let nearest = reason.nearest.as_ref().map_or_else(String::new, |nearest| format!(" (nearest: {nearest})"));
    super::table::clean(&format!("{} {}: {}{nearest}", reason.count, reason.code, reason.text))
}

async fn get(context: &Context, args: &OneJob) -> Result<Exit, CliError> {
    let id = segment(&args.job)?;
    let session = Session::daemon(context).await?;
    let job: Job = session.client.get(&format!("/v1/jobs/{id}")).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&job)?;
        return Ok(Exit::DONE);
    }
    if printer.is_name() {
        printer.line(job.id)?;
        return Ok(Exit::DONE);
    }
    printer.line(format_args!("job      {}", job.id))?;
    printer.line(format_args!("name     {}", job.name))?;
    let because = job.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    printer.line(format_args!("state    {}{because}", job.state.word()))?;
    let budget = job.budget.map_or_else(String::new, |budget| format!(" of at most {budget}"));
    printer.line(format_args!("cost     {}{budget}", job.cost))?;
    printer.line(format_args!("age      {}", ago(job.submitted)))?;
    let mut table =
        Table::new(&["TASK", "STATE", "ATTEMPT", "PROVIDER", "ENDED AS", ">EXIT", ">RUN", "REASON", "+LEASE"]);
    for task in &job.tasks {
        let name = task.index.to_string();
        if task.attempts.is_empty() {
            let dash = || "-".to_owned();
            table.row([
                name.clone(),
                task_state(task.state).to_owned(),
                dash(),
                dash(),
                dash(),
                dash(),
                dash(),
                String::new(),
                dash(),
            ]);
        }
        for attempt in &task.attempts {
            table.row([
                name.clone(),
                task_state(task.state).to_owned(),
                attempt.attempt.to_string(),
                attempt.provider.short(),
                attempt.state.clone(),
                or_dash(attempt.exit_code),
                attempt.run_ms.map_or_else(|| "-".to_owned(), |ms| souk_protocol::Millis(ms.0).to_string()),
                attempt.reason.clone().unwrap_or_default(),
                attempt.lease.to_string(),
            ]);
        }
    }
    printer.line("")?;
    printer.table(&table)?;
    Ok(Exit::DONE)
}

async fn why(context: &Context, args: &OneJob) -> Result<Exit, CliError> {
    let id = segment(&args.job)?;
    let session = Session::daemon(context).await?;
    let why: Why = session.client.get(&format!("/v1/jobs/{id}/why")).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&why)?;
        return Ok(Exit::DONE);
    }
    printer.line(format_args!("{} is {}", why.id.short(), why.state))?;
    for because in &why.because {
        printer.line(format_args!("  {}", reason(because)))?;
    }
    if why.because.is_empty() {
        printer.talk("nothing stands in its way");
    }
    Ok(Exit::DONE)
}

async fn events(context: &Context, args: &EventsArgs) -> Result<Exit, CliError> {
    let id = segment(&args.job)?;
    let session = Session::daemon(context).await?;
    let mut events = session.client.events(id, args.from, args.logs).await?;
    while let Some(event) = events.next().await {
        let event = event?;
        if context.printer.is_structured() {
            context.printer.item(&event)?;
        } else {
            context.printer.line(format_args!(
                "{:>6}  {}  {}",
                event.seq.0,
                event.at,
                super::run::event_text(&event.what)
            ))?;
        }
    }
    Ok(Exit::DONE)
}

async fn cost(context: &Context, args: &OneJob) -> Result<Exit, CliError> {
    let id = segment(&args.job)?;
    let session = Session::daemon(context).await?;
    let cost: Cost = session.client.get(&format!("/v1/jobs/{id}/cost")).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&cost)?;
        return Ok(Exit::DONE);
    }
    if printer.is_name() {
        printer.line(cost.total)?;
        return Ok(Exit::DONE);
    }
    let budget = cost.budget.map_or_else(String::new, |budget| format!(" of at most {budget}"));
    printer.line(format_args!("total     {}{budget}", cost.total))?;
    printer.line(format_args!("reserved  {}", cost.reserved))?;
    let mut table = Table::new(&["LEASE", "PROVIDER", ">CR/h", ">RUN", ">BILLED", ">UNBILLED", ">TOTAL"]);
    for lease in &cost.leases {
        table.row([
            lease.lease.short(),
            lease.provider.short(),
            lease.rate.to_string().trim_end_matches(" CR/h").to_owned(),
            souk_protocol::Millis(lease.run_ms.0).to_string(),
            lease.billed.to_string(),
            lease.unbilled.to_string(),
            lease.total.to_string(),
        ]);
    }
    if !cost.leases.is_empty() {
        printer.line("")?;
        printer.table(&table)?;
    }
    Ok(Exit::DONE)
}

async fn wait(context: &Context, args: &ManyJobs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let mut first: Option<CliError> = None;
    for id in &args.jobs {
        let path = format!("/v1/jobs/{}", segment(id)?);
        loop {
            let job: Job = session.client.get(&path).await?;
            if job.state.is_final() {
                show_end(context, &job)?;
                let why: Why = session.client.get(&format!("{path}/why")).await?;
                if let Some(error) = end_error(&job, &why.because) {
                    first.get_or_insert(error);
                }
                break;
            }
            // The stream ends with the job; one that breaks is asked for again.
            let mut events = session.client.events(&job.id.to_string(), 0, false).await?;
            while let Some(Ok(_)) = events.next().await {}
        }
    }
    first.map_or(Ok(Exit::DONE), Err)
}

fn show_end(context: &Context, job: &Job) -> Result<(), CliError> {
    let printer = &context.printer;
    if printer.is_structured() {
        return printer.item(job);
    }
    if printer.is_name() {
        return printer.line(job.id);
    }
    printer.line(format_args!("{}  {}  {}", job.id.short(), job.state.word(), job.cost.short()))
}

/// What the end of a job means to the exit code; `None` for success.
pub(crate) fn end_error(job: &Job, because: &[Reason]) -> Option<CliError> {
    let nearest: Vec<String> = because.iter().map(reason).collect();
    let has = |codes: &[&str]| because.iter().any(|reason| codes.contains(&reason.code.as_str()));
    let short = job.id.short();
    let done = job.tasks.iter().filter(|task| task.state == TaskState::Done).count();
    let failed = job.tasks.iter().filter(|task| task.state == TaskState::Failed).count();
    let started = job.tasks.iter().any(|task| !task.attempts.is_empty());
    let of = format!("{done} of {} done, {} failed", count(job.tasks.len() as u64, "task"), failed);
    let ended = |exit: u8, code: &'static str, message: String| CliError::Job {
        exit,
        code,
        message,
        hint: Some(format!("souk job get {short}; souk logs {short}")),
        nearest: nearest.clone(),
    };
    // Interruptions are the provider's or the network's doing; a program that failed is not.
    let interrupted = |task: &crate::view::Task| {
        let last = task.attempts.last().map(|attempt| attempt.state.as_str());
        task.state == TaskState::Failed && matches!(last, Some("lost" | "preempted" | "provider-fault"))
    };
    match job.state {
        JobState::Succeeded => None,
        JobState::Cancelled => Some(ended(103, "job_cancelled", format!("job {short} was cancelled: {of}"))),
        _ if has(&["budget", "no-budget"]) => Some(CliError::Budget {
            message: format!("the budget of job {short} does not suffice: {of}"),
            hint: nearest.first().cloned(),
        }),
        JobState::Failed | JobState::Expired if !started => {
            Some(CliError::NoOffers { message: format!("nobody took job {short}"), nearest: nearest.clone() })
        }
        JobState::Expired => Some(ended(104, "sla_missed", format!("job {short} missed its deadline: {of}"))),
        JobState::Failed
            if failed > 0 && job.tasks.iter().filter(|task| task.state == TaskState::Failed).all(interrupted) =>
        {
            Some(ended(104, "interrupted", format!("the attempts of job {short} are used up by interruptions: {of}")))
        }
        JobState::Failed => Some(ended(100, "job_failed", format!("job {short} failed: {of}"))),
        JobState::Bidding | JobState::Placing | JobState::Running | JobState::Verifying => {
            Some(ended(101, "not_finished", format!("job {short} is still {}: {of}", job.state.word())))
        }
    }
}

#[derive(Serialize)]
struct Cancelled {
    id: JobId,
    state: JobState,
}

pub(crate) async fn cancel(context: &Context, args: &CancelArgs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let mut cancelled = Vec::new();
    for id in &args.jobs {
        let job: Job = session.client.post(&format!("/v1/jobs/{}/cancel", segment(id)?), &()).await?;
        cancelled.push(Cancelled { id: job.id, state: job.state });
    }
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&cancelled)?;
    } else {
        for job in &cancelled {
            let text = match job.state {
                JobState::Cancelled => "cancelled",
                state if state.is_final() => "was at its end already",
                _ => "is being cancelled",
            };
            if printer.is_name() {
                printer.line(job.id)?
            } else {
                printer.line(format_args!("{} {text}", job.id.short()))?
            }
        }
    }
    Ok(Exit::DONE)
}

/// The head of a receipt list, shared by `job receipts` and `attest show`.
pub(crate) fn receipt_table(receipts: &[ReceiptSummary]) -> Table {
    let mut table =
        Table::new(&["LEASE", "PROVIDER", "END", "BY", ">BILLED", ">UNBILLED", ">TOTAL", "SIGNED", "+RATE", "+CLOSED"]);
    for receipt in receipts {
        table.row([
            receipt.lease.short(),
            receipt.provider.short(),
            receipt.end.clone().unwrap_or_else(|| "open".to_owned()),
            receipt.ended_by.clone().unwrap_or_default(),
            receipt.billed.to_string(),
            receipt.unbilled.to_string(),
            receipt.total.to_string(),
            if receipt.complete { "both" } else { "not yet" }.to_owned(),
            receipt.rate.to_string(),
            receipt.closed.map(|at| at.to_string()).unwrap_or_default(),
        ]);
    }
    table
}
