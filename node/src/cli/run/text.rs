//! What happens to a job, in words.

use souk_protocol::Bytes;

use crate::{
    cli::{
        job,
        table::{clean, count},
    },
    view::{Auction, JobEventKind},
};

/// An event on one line.
pub(crate) fn event_text(event: &JobEventKind) -> String {
    let text = match event {
        JobEventKind::State { state, because } => {
            let because: Vec<String> = because.iter().map(job::reason).collect();
            let because = if because.is_empty() { String::new() } else { format!(": {}", because.join("; ")) };
            format!("job is {}{because}", state.word())
        }
        JobEventKind::Auction(auction) => auction_text(auction),
        JobEventKind::Leased { lease, provider, rate, slots } => {
            format!("lease {} with {}: {} at {}", lease.short(), provider.short(), count(*slots, "slot"), rate.short())
        }
        JobEventKind::LeaseEnded { lease, end, by } => format!("lease {} ended by the {by}: {end}", lease.short()),
        JobEventKind::Attempt { index, attempt, provider, .. } => {
            format!("task {index}: attempt {attempt} goes to {}", provider.short())
        }
        JobEventKind::Progress { index, attempt, state } => format!("task {index}: attempt {attempt} is {state}"),
        JobEventKind::AttemptEnded { index, attempt, end, exit_code, reason, billed } => {
            let code = exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
            let reason = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            let billed = if *billed { "" } else { ", not billed" };
            format!("task {index}: attempt {attempt} ended {end}{code}{reason}{billed}")
        }
        JobEventKind::Task { index, state } => format!("task {index} is {state:?}").to_lowercase(),
        JobEventKind::Receipt { lease, total } => format!("receipt of lease {}: {total}", lease.short()),
        JobEventKind::Log { index, attempt, stream, offset, data } => {
            let len = Bytes(data.len() as u64 / 4 * 3).short();
            format!("task {index}: attempt {attempt} wrote about {len} to {stream} at {}", offset.0)
        }
        JobEventKind::Gap { missed } => format!("{} events were missed", missed.0),
    };
    clean(&text)
}

/// `bidding 3 bids, best 0.21 CR/h`, without the first word.
pub(crate) fn auction_text(auction: &Auction) -> String {
    let kind = if auction.by_ask { "ask" } else { "bid" };
    let best = auction.bids.first().map_or_else(String::new, |best| format!(", best {}", best.rate.short()));
    let declines = match auction.declines.len() as u64 {
        0 => String::new(),
        declined => {
            let first = auction.declines.first().map_or("", |decline| decline.reason.as_str());
            format!(", {} ({first})", count(declined, "decline"))
        }
    };
    let silent = if auction.silent > 0 { format!(", {} silent", auction.silent) } else { String::new() };
    format!("{}{best}{declines}{silent}", count(auction.bids.len() as u64, kind))
}
