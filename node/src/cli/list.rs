//! `souk ps`, `souk job list`: jobs in a table.

use std::time::Duration;

use clap::Args;

use super::{
    Context,
    error::{CliError, Exit},
    session::Session,
    table::{Table, ago},
};
use crate::view::JobSummary;

/// Between two looks of `-w`.
const STEP: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Args)]
pub(crate) struct PsArgs {
    /// Jobs at their end, too.
    #[arg(short, long)]
    all: bool,
    /// Print the list again whenever it changes.
    #[arg(short, long)]
    watch: bool,
}

pub(crate) async fn ps(context: &Context, args: &PsArgs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let path = if args.all { "/v1/jobs?all=1" } else { "/v1/jobs" };
    let mut last: Option<Vec<JobSummary>> = None;
    loop {
        let jobs: Vec<JobSummary> = session.client.get(path).await?;
        if last.as_ref() != Some(&jobs) {
            if args.watch && context.printer.is_structured() {
                context.printer.item(&jobs)?;
            } else {
                show(context, &jobs)?;
            }
        }
        if !args.watch {
            return Ok(Exit::DONE);
        }
        last = Some(jobs);
        tokio::time::sleep(STEP).await;
    }
}

fn show(context: &Context, jobs: &[JobSummary]) -> Result<(), CliError> {
    context.printer.list(
        jobs,
        "no jobs",
        |job| job.id.to_string(),
        |jobs| {
            let mut table =
                Table::new(&["JOB", "NAME", "STATE", "TASKS", ">COST", ">AGE", "+RUNNING", "+FAILED", "+SUBMITTED"]);
            for job in jobs {
                table.row([
                    job.id.short(),
                    job.name.clone(),
                    job.state.word().to_owned(),
                    format!("{}/{}", job.done, job.tasks),
                    job.cost.short(),
                    ago(job.submitted),
                    job.running.to_string(),
                    job.failed.to_string(),
                    job.submitted.to_string(),
                ]);
            }
            table
        },
    )
}
