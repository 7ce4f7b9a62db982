//! `souk node earnings`: what came in by day, and what was missed.

use clap::Args;

use super::super::{
    Context,
    error::{CliError, Exit},
    job::reason,
    session::Session,
    table::Table,
};
use crate::view::Earnings;

#[derive(Debug, Clone, Args)]
pub(crate) struct EarningsArgs {
    /// How many days, today included.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=31))]
    days: u32,
}

pub(crate) async fn run(context: &Context, args: &EarningsArgs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let earnings: Earnings = session.client.get(&format!("/v1/node/earnings?days={}", args.days)).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&earnings)?;
        return Ok(Exit::DONE);
    }
    let mut table = Table::new(&["DAY", ">EARNED", ">TASKS", ">LOST", ">OPEN", ">SOLD", ">FILL"]);
    for day in &earnings.days {
        table.row([
            day.day.clone(),
            day.earned.short(),
            day.billed.to_string(),
            day.unbilled.to_string(),
            hours(day.open.0),
            hours(day.sold.0),
            day.fill.map_or_else(|| "-".to_owned(), |fill| format!("{}%", fill.0 / 10_000)),
        ]);
    }
    printer.table(&table)?;
    printer.line(format_args!(
        "{} in {} days of {}",
        earnings.earned.short(),
        earnings.days.len(),
        earnings.timezone
    ))?;
    for missed in &earnings.missed {
        printer.line(format_args!("missed {}", reason(missed)))?;
    }
    printer.talk("SOLD is core time; FILL is of what is on sale today; missed work is counted since the node started");
    Ok(Exit::DONE)
}

/// Hours with one place.
fn hours(ms: u64) -> String {
    let tenths = ms / 360_000;
    format!("{}.{}h", tenths / 10, tenths % 10)
}
