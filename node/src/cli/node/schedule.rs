//! `souk node schedule`: when this machine is for sale, by its file alone.

use clap::{Args, Subcommand};
use serde::Serialize;
use souk_matcher::calendar::{Calendar, HORIZON_DAYS, NEVER};
use souk_protocol::{Millis, Timestamp};

use super::super::{
    Context,
    error::{CliError, Exit},
    start,
    table::Table,
};
use crate::{clock::wall, config::Availability};

/// How moments are shown in tables.
const LOCAL: &str = "%a %Y-%m-%d %H:%M";
/// How moments are shown in JSON, beside UTC.
const EXACT: &str = "%Y-%m-%dT%H:%M:%S%:z";

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ScheduleCommand {
    /// Show the windows to come, in local time, with clock changes.
    Show(ShowArgs),
    /// Say whether the node is open at a time, and why.
    Check(CheckArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// How far to look ahead.
    #[arg(long, value_name = "DUR", default_value = "7d")]
    next: Millis,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CheckArgs {
    /// The time: RFC 3339 (2026-12-24T22:00:00Z), or local time of the node's zone ("2026-12-24 22:00"). Now if left
    /// out.
    #[arg(value_name = "TIME")]
    at: Option<String>,
}

#[derive(Serialize)]
struct Shown {
    timezone: String,
    always_open: bool,
    open: bool,
    at_window_end: String,
    notice: Millis,
    from: Timestamp,
    to: Timestamp,
    spans: Vec<ShownSpan>,
    clock_changes: Vec<Change>,
}

#[derive(Serialize)]
struct ShownSpan {
    from: Timestamp,
    to: Timestamp,
    local_from: String,
    local_to: String,
    length: Millis,
}

#[derive(Serialize)]
struct Change {
    at: Timestamp,
    local: String,
    /// Seconds by which the clock goes forward; less than zero: back.
    seconds: i32,
}

#[derive(Serialize)]
struct Checked {
    at: Timestamp,
    local: String,
    timezone: String,
    open: bool,
    why: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens: Option<Timestamp>,
}

pub(crate) fn run(context: &Context, command: &ScheduleCommand) -> Result<Exit, CliError> {
    let availability = start::config(context)?.availability;
    match command {
        ScheduleCommand::Show(args) => show(context, &availability, wall(), args.next),
        ScheduleCommand::Check(args) => check(context, &availability.calendar, args.at.as_deref()),
    }
}

fn show(context: &Context, availability: &Availability, from: Timestamp, next: Millis) -> Result<Exit, CliError> {
    let longest = Millis::from_hours(24).0.saturating_mul(HORIZON_DAYS.unsigned_abs());
    if next.is_zero() || next.0 > longest {
        return Err(CliError::usage(format!("--next {next}: more than nothing and at most {HORIZON_DAYS}d is shown")));
    }
    let (calendar, to) = (&availability.calendar, from.saturating_add(next));
    let zone = calendar.zone();
    let local = |at: Timestamp| zone.local(at, EXACT).unwrap_or_else(|| at.to_string());
    let changes = zone.changes(from, to);
    let shown = Shown {
        timezone: zone.name().to_owned(),
        always_open: calendar.is_always_open(),
        open: calendar.is_open(from),
        at_window_end: availability.at_window_end.to_string(),
        notice: availability.notice,
        from,
        to,
        spans: calendar
            .spans(from, to)
            .into_iter()
            .map(|span| ShownSpan {
                from: span.from,
                to: span.to,
                local_from: local(span.from),
                local_to: local(span.to),
                length: span.to.saturating_since(span.from),
            })
            .collect(),
        clock_changes: changes.into_iter().map(|(at, seconds)| Change { at, local: local(at), seconds }).collect(),
    };
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&shown)?;
        return Ok(Exit::DONE);
    }
    printer.line(now(calendar, from))?;
    if shown.always_open {
        return Ok(Exit::DONE);
    }
    let mut table = Table::new(&["FROM", "TO", ">LENGTH", "NOTE"]);
    for span in &shown.spans {
        let text = |at: Timestamp| zone.local(at, LOCAL).unwrap_or_else(|| at.to_string());
        let mut notes = Vec::new();
        if span.from == from {
            notes.push("open now".to_owned());
        }
        if span.to == to {
            notes.push("goes on".to_owned());
        }
        let inside = |change: &&Change| span.from <= change.at && change.at <= span.to;
        notes.extend(shown.clock_changes.iter().filter(inside).map(|change| {
            let way = if change.seconds < 0 { "back" } else { "forward" };
            let length = Millis::from_secs(u64::from(change.seconds.unsigned_abs()));
            format!("clocks go {way} {length} to {}", zone.local(change.at, "%H:%M on %a").unwrap_or_default())
        }));
        table.row([text(span.from), text(span.to), minutes(span.length), notes.join("; ")]);
    }
    printer.table(&table)?;
    let end = &shown.at_window_end;
    printer
        .talk(format_args!("times of {zone}; at the end of a window: {end}, after a notice of up to {}", shown.notice));
    Ok(Exit::DONE)
}

/// A length without what is less than a minute.
fn minutes(length: Millis) -> String {
    let whole = Millis(length.0.saturating_sub(length.0 % 60_000));
    if whole.is_zero() { "<1m".to_owned() } else { whole.to_string() }
}

/// One line on how it stands at a moment.
fn now(calendar: &Calendar, at: Timestamp) -> String {
    let zone = calendar.zone();
    match calendar.open_until(at) {
        Some(NEVER) => format!("open, no end within {HORIZON_DAYS} days: {}", calendar.why(at)),
        Some(end) => format!("open until {}: {}", zone.show(end), calendar.why(at)),
        None => {
            let opens = calendar.next_open(at).map_or_else(
                || format!("does not open within {HORIZON_DAYS} days"),
                |next| format!("opens {}", zone.show(next)),
            );
            format!("closed, {opens}: {}", calendar.why(at))
        }
    }
}

fn check(context: &Context, calendar: &Calendar, at: Option<&str>) -> Result<Exit, CliError> {
    let zone = calendar.zone();
    let at = match at {
        None => wall(),
        Some(text) => text.parse().ok().or_else(|| zone.parse_local(text)).ok_or_else(|| {
            CliError::usage(format!("{text:?} is no time"))
                .hint(format!("e.g. 2026-12-24T22:00:00Z, or \"2026-12-24 22:00\" for local time of {zone}"))
        })?,
    };
    let until = calendar.open_until(at);
    let checked = Checked {
        at,
        local: zone.local(at, EXACT).unwrap_or_else(|| at.to_string()),
        timezone: zone.name().to_owned(),
        open: until.is_some(),
        why: calendar.why(at).to_string(),
        until: until.filter(|end| *end != NEVER),
        opens: if until.is_none() { calendar.next_open(at) } else { None },
    };
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&checked)?;
    } else {
        printer.line(format_args!("{}: {}", zone.show(at), now(calendar, at)))?;
    }
    Ok(Exit::DONE)
}
