//! What became of each job and each machine under some policy.

use souk_protocol::{Credits, Millis};

use super::demand::MilliGpu;

/// A stretch of time that a job spends on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// Number of the request.
    pub request: usize,
    /// Number of the machine.
    pub machine: usize,
    /// What it takes of it.
    pub gpu: MilliGpu,
    /// From.
    pub from: Millis,
    /// To.
    pub to: Millis,
    /// Whether its result counts. What was preempted or lost is waste.
    pub is_useful: bool,
}

/// What became of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fate {
    /// When it first started.
    pub start: Option<Millis>,
    /// When it was done.
    pub end: Option<Millis>,
    /// Where.
    pub machine: Option<usize>,
    /// What its renter paid.
    pub paid: Credits,
    /// How often it had to make room.
    pub preempted: u32,
}

/// What became of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    /// The policy.
    pub policy: String,
    /// By request.
    pub fates: Vec<Fate>,
    /// Everything that ran.
    pub stays: Vec<Stay>,
    /// Awards that were declined, because somebody was faster. None where one authority places all.
    pub conflicts: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Nodes that sent and received them, none where there are no nodes.
    pub nodes: u64,
    /// What must never happen and did: for instance a reservation that was delayed.
    pub violations: Vec<String>,
}

impl Story {
    pub(super) fn new(policy: &str, requests: usize) -> Self {
        Self {
            policy: policy.to_owned(),
            fates: vec![Fate::default(); requests],
            stays: Vec::new(),
            conflicts: 0,
            messages: 0,
            nodes: 0,
            violations: Vec::new(),
        }
    }
}
