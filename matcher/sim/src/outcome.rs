//! What came of a plan under one policy: facts by job and by machine, from which all figures are computed.

use souk_protocol::{Credits, Millis, Rate};

use crate::time::Micros;

/// What came of a [`Plan`](crate::Plan) under one policy. The lists are aligned with the plan's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Name of the policy: `souk`, `fifo`, ..
    pub policy: String,
    /// By job.
    pub jobs: Vec<JobOutcome>,
    /// By machine.
    pub machines: Vec<MachineOutcome>,
    /// Leases that both sides agreed on. The light engine, which forgets them, lists none, and neither do policies that
    /// know no leases.
    pub leases: Vec<LeaseOutcome>,
    /// Messages that arrived. None where the policy needs no network.
    pub messages: u64,
    /// Awards sent.
    pub awards: u64,
    /// Awards that were declined or not answered: conflicts.
    pub refused: u64,
    /// The market at regular moments.
    pub timeline: Vec<Moment>,
    /// When everything was over.
    pub took: Micros,
}

/// What came of one job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobOutcome {
    /// When its first task began to run.
    pub started: Option<Micros>,
    /// When it ended.
    pub ended: Option<Micros>,
    /// How it ended.
    pub end: End,
    /// Tasks that are done.
    pub done: u32,
    /// Attempts that machines began.
    pub attempts: u32,
    /// Attempts that were cut short for somebody else.
    pub preempted: u32,
    /// What the renter owes for it.
    pub cost: Credits,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum End {
    /// It did not, or was never submitted.
    #[default]
    Open,
    /// Enough of its tasks are done.
    Succeeded,
    /// Too many of its tasks failed.
    Failed,
    /// Its user had enough of it.
    Cancelled,
    /// It found no machine in time.
    Expired,
}

/// What came of one machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MachineOutcome {
    /// What its provider is owed.
    pub income: Credits,
    /// Processor time that attempts held while they ran, in thousandths of a core times milliseconds.
    pub busy: u64,
    /// The part of it whose result was paid for.
    pub useful: u64,
}

/// What came of one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseOutcome {
    /// Number of the job in the plan.
    pub job: usize,
    /// Number of the machine in the plan.
    pub machine: usize,
    /// Price of a slot.
    pub rate: Rate,
    /// Attempts owed for.
    pub billed: u32,
    /// Run time billed.
    pub run: Millis,
    /// What the renter owes for them.
    pub paid: Credits,
    /// Whether both sides signed its receipt.
    pub receipt: bool,
}

/// The market at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Micros,
    /// Thousandths of cores that are on sale and there.
    pub offered: u64,
    /// Thousandths of cores that attempts run on.
    pub busy: u64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks of submitted jobs that neither run nor are over.
    pub waiting: u64,
}
