//! What `souk demo --json` says.

use serde::Serialize;
use souk_matcher::JobState;
use souk_protocol::{Credits, JobId, NodeId, Rate};

use crate::view::Auction;

/// The result: the shape of the interface.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    pub(super) nodes: u32,
    pub(super) job: JobReport,
    pub(super) auction: AuctionReport,
    pub(super) timing_ms: Timing,
    pub(super) cost: Credits,
    pub(super) receipts: Receipts,
    pub(super) failover: Option<Failover>,
    /// Where the outputs are; none if nothing was kept.
    pub(super) outputs: Option<String>,
    pub(super) providers: Vec<Earned>,
}

#[derive(Debug, Serialize)]
pub(super) struct JobReport {
    pub(super) id: JobId,
    pub(super) name: String,
    pub(super) state: JobState,
    pub(super) tasks: usize,
    pub(super) succeeded: usize,
    pub(super) attempts: usize,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct AuctionReport {
    pub(super) invited: u32,
    pub(super) bids: usize,
    pub(super) declines: usize,
    pub(super) rate: Option<Rate>,
    pub(super) window_ms: u64,
}

#[derive(Debug, Default, Clone, Copy, Serialize)]
pub(super) struct Timing {
    pub(super) submit_to_bids: Option<u64>,
    pub(super) submit_to_award: Option<u64>,
    pub(super) submit_to_first_output: Option<u64>,
    pub(super) total: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Receipts {
    pub(super) total: usize,
    pub(super) verified: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Failover {
    pub(super) killed: NodeId,
    /// Attempts that went to others because of it.
    pub(super) reassigned: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Earned {
    pub(super) provider: NodeId,
    pub(super) name: String,
    pub(super) earned: Credits,
}

impl AuctionReport {
    pub(super) fn of(auction: &Auction) -> Self {
        Self {
            invited: auction.invited,
            bids: auction.bids.len(),
            declines: auction.declines.len(),
            rate: auction.bids.iter().filter(|bid| bid.won).map(|bid| bid.rate).max(),
            window_ms: auction.window_ms,
        }
    }
}
