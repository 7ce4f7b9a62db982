//! What goes into a [`Trader`](crate::Trader) and what comes out of it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use souk_protocol::{
    AttemptEnd, AttemptId, Bytes, Capacity, Credits, Discharge, Hash, Isolation, JobId, JobSpec, LeaseEnd, LeaseId,
    List, LogEnd, Message, Millis, NetworkId, NodeId, Offer, Params, Party, PriceList, Rate, Receipt, Requirement,
    RunState, Runtime, Sample, TaskResult, Text, Tier, Timestamp, Verified, Work,
};

use crate::{
    calendar::{AtWindowEnd, Calendar},
    price::Pricing,
    record::Record,
};

/// The time, twice: what documents say, and what silence is counted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The wall clock, which may jump. Goes into documents.
    pub wall: Timestamp,
    /// A clock that never jumps, from an arbitrary origin of this run of the node. All waiting is counted on it.
    pub mono: Millis,
}

/// Ties an [`Output::Persist`] to its [`Event::Persisted`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What does not change while a node runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The network.
    pub network: NetworkId,
    /// Its rules.
    pub params: Params,
    /// Whether unrated peers may serve every tier.
    pub open: bool,
    /// This run of the node: higher than any before. Control channels number from 1 with each.
    pub boot: u64,
    /// Randomness, fresh for each run.
    pub seed: [u8; 32],
    /// How much of what is over stays in memory.
    pub keep: Keep,
}

/// How much of what is over stays in memory, so that repeats get their stored answer and users their results. Older
/// things are in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Jobs.
    pub jobs: usize,
    /// Closed leases, on each side.
    pub leases: usize,
    /// Results with them, on each side, over all.
    pub results: usize,
}

impl Default for Keep {
    /// What a node has room for: 16,384 results are about 16 MB.
    fn default() -> Self {
        Self { jobs: 4_096, leases: 4_096, results: 16_384 }
    }
}

/// What the owner sells and on which terms. Replaced as a whole by [`Event::Policy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Name of the node, for people.
    pub name: Text<63>,
    /// ISO code of the place.
    pub region: Text<16>,
    /// Everything on sale. All zero: this node sells nothing.
    pub total: Capacity,
    /// What can be executed.
    pub runtimes: Vec<Runtime>,
    /// Isolation classes the self-test has shown.
    pub isolation: Vec<Isolation>,
    /// Tiers served.
    pub tiers: Vec<Tier>,
    /// Never less than this.
    pub floor: PriceList,
    /// Accepted at once, and the starting point of bids.
    pub ask: PriceList,
    /// Whether the ask stands in the offer, or the node only bids.
    pub standing: bool,
    /// How prices move.
    pub pricing: Pricing,
    /// When work may be started.
    pub calendar: Calendar,
    /// What happens to work that runs when a window ends.
    pub at_window_end: AtWindowEnd,
    /// Longest attempt accepted.
    pub max_duration: Millis,
    /// Longest warning before preemption that is granted: the owner waits so long for its own machine.
    pub notice: Millis,
    /// Most a stranger may owe.
    pub stranger_limit: Credits,
    /// Most all strangers together may owe.
    pub strangers_limit: Credits,
    /// Whether it is for this node's own jobs alone: others are told nothing and sold nothing.
    pub own_only: bool,
    /// Renters never worked for.
    pub deny: Vec<NodeId>,
    /// Where this node can be dialled.
    pub addresses: Vec<Text<256>>,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// All records of the journal have been applied; resume leases and jobs.
    Recovered,
    /// The record of this token is durable.
    Persisted(Token),
    /// The time asked for by [`Trader::wake_at`](crate::Trader::wake_at) has come.
    Wake,
    /// A peer said something. Signatures are checked by the trader.
    Message {
        /// Who is at the other end of the connection.
        from: NodeId,
        /// What it said.
        message: Message,
    },
    /// A connection to this peer is there (again).
    PeerUp(NodeId),
    /// The last connection to this peer is gone. Means nothing but that: unknown is not dead.
    PeerDown(NodeId),
    /// Messages to this peer were dropped unsent.
    SendFailed(NodeId),
    /// Measured round trip to a peer, 95th percentile.
    Rtt {
        /// To whom.
        peer: NodeId,
        /// How long, rounded up.
        p95: Millis,
    },
    /// A live offer was heard of.
    Offer(Verified<Offer>),

    // Renter
    /// A job is submitted. A known id is no error and starts nothing.
    Submit {
        /// Its id.
        job: JobId,
        /// What it is.
        spec: Arc<JobSpec>,
    },
    /// The user wants no more of a job.
    Cancel {
        /// Which.
        job: JobId,
    },
    /// Outputs and logs of an attempt are held, durable and verified, as its result says.
    Held {
        /// Which.
        attempt: AttemptId,
    },
    /// Outputs or logs could not be had.
    NotHeld {
        /// Which.
        attempt: AttemptId,
        /// Why.
        reason: String,
    },

    // Provider
    /// The owner's terms, at start and when they change.
    Policy(Box<Policy>),
    /// An attempt fetches or runs now.
    Running {
        /// Which.
        attempt: AttemptId,
        /// What it does.
        state: RunState,
    },
    /// An attempt has ended; its logs and outputs are durable.
    Ended {
        /// Which.
        attempt: AttemptId,
        /// What came of it.
        outcome: Outcome,
    },
    /// Measurements of a running attempt, already linked.
    Samples {
        /// Which.
        attempt: AttemptId,
        /// The samples since the last event.
        samples: List<Sample, 64>,
    },
    /// Stop selling: leases end as their attempts do, no new ones.
    Drain,
    /// The owner wants its machine, now: preemptible work is stopped after the notice it was promised, other work but
    /// gold ends as its attempts do, and nothing is sold until [`Event::Resume`]. Durable.
    Pause,
    /// The owner sells again.
    Resume,

    // Books
    /// The owner's own limit for a peer, in place of the stranger's.
    Trust {
        /// Whom.
        peer: NodeId,
        /// How much it may owe.
        limit: Credits,
    },
    /// A discharge, signed by this node or by a creditor.
    Discharge(Verified<Discharge>),
}

/// What came of an attempt, as the executor saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub end: AttemptEnd,
    /// The exit code, if the program ended by itself.
    pub exit_code: Option<u32>,
    /// What happened, for people.
    pub reason: Text<500>,
    /// Run time.
    pub run: Millis,
    /// When the program started; the time of the end if it never did.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Standard output.
    pub stdout: LogEnd,
    /// Standard error.
    pub stderr: LogEnd,
    /// Hash of the manifest, which is held as a blob.
    pub manifest: Hash,
    /// Its length, in bytes.
    pub manifest_len: u64,
    /// Sum of the output files' lengths.
    pub output: Bytes,
    /// Number of output files.
    pub files: u32,
    /// Hash of the last telemetry sample.
    pub telemetry: Option<Hash>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Make this durable, in this order, then say [`Event::Persisted`].
    Persist {
        /// What.
        record: Record,
        /// For the answer.
        token: Token,
    },
    /// Tell a peer. May be lost; the trader repeats what matters.
    Send {
        /// Whom.
        to: NodeId,
        /// What.
        message: Message,
    },
    /// Tell the network of this offer of ours.
    Offer(Verified<Offer>),
    /// A peer sent what no honest peer sends.
    Blame {
        /// Who.
        peer: NodeId,
        /// What.
        fault: String,
    },

    // Provider
    /// Get slots ready for a lease.
    OpenLease(LeaseView),
    /// Fetch what is missing from the renter, then run. Answer with [`Event::Running`] and [`Event::Ended`].
    Run {
        /// For whom.
        renter: NodeId,
        /// What.
        work: Work,
    },
    /// Stop an attempt; [`Event::Ended`] follows with this end unless it ended by itself.
    Stop {
        /// Which.
        attempt: AttemptId,
        /// Why.
        end: AttemptEnd,
        /// Time to stop by itself.
        grace: Millis,
    },
    /// The lease is over: free its slots. Logs and outputs of its results are kept until [`Output::Forget`].
    CloseLease {
        /// Which.
        lease: LeaseId,
    },
    /// Logs and outputs of this lease's results are needed no more.
    Forget {
        /// Which.
        lease: LeaseId,
    },

    // Renter
    /// An award is out: this peer may fetch the job's module and inputs, and sends logs. Said again after a restart for
    /// each open lease.
    Serve {
        /// The lease, known by its award.
        lease: LeaseView,
        /// Whose data may be fetched.
        spec: Arc<JobSpec>,
    },
    /// Get outputs and logs as the result says. Answer with [`Event::Held`] or [`Event::NotHeld`].
    Collect {
        /// From whom.
        provider: NodeId,
        /// What came of the attempt.
        result: Verified<TaskResult>,
    },
    /// Do not collect this attempt any more.
    Abandon {
        /// Which.
        attempt: AttemptId,
    },
    /// Something a user may want to see.
    Notify(Notice),
}

/// A lease in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseView {
    /// Which.
    pub lease: LeaseId,
    /// The other side.
    pub peer: NodeId,
    /// The job it was made for.
    pub job: JobId,
    /// Slots.
    pub slots: u32,
    /// What one slot has.
    pub requirement: Requirement,
    /// Price of one slot.
    pub rate: Rate,
}

/// State of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Offers and bids are being compared.
    Bidding,
    /// Awards are out, or slots are sought again.
    Placing,
    /// At least one task has started.
    Running,
    /// All tasks have run; results are being checked.
    Verifying,
    /// All tasks are done.
    Succeeded,
    /// Too many tasks failed.
    Failed,
    /// The user cancelled it.
    Cancelled,
    /// Its deadline or start limit passed.
    Expired,
}

impl JobState {
    /// Whether nothing more will happen.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired)
    }

    /// The word that people read.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bidding => "bidding",
            Self::Placing => "placing",
            Self::Running => "running",
            Self::Verifying => "verifying",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
        }
    }
}

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskState {
    /// Waits for a slot.
    Queued,
    /// An attempt is under way.
    Running,
    /// Its result counts.
    Done,
    /// No attempt is left.
    Failed,
    /// The job was cancelled.
    Cancelled,
}

impl TaskState {
    /// Whether nothing more will happen.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// Why something is not so, with the nearest miss: a line of `souk job why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// Machine-readable, `no-capacity`.
    pub code: String,
    /// For people.
    pub text: String,
    /// How many providers, tasks or times.
    pub count: u64,
    /// What came closest, for people.
    pub nearest: Option<String>,
}

/// How an auction or a choice of asks went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuctionReport {
    /// Round, from 0.
    pub round: u32,
    /// Whether standing asks were taken without an auction.
    pub by_ask: bool,
    /// Providers invited, or asks considered.
    pub invited: u32,
    /// Bids, best first: provider, rate, slots, whether it won.
    pub bids: Vec<(NodeId, Rate, u32, bool)>,
    /// Providers that declined, with the reason.
    pub declines: Vec<(NodeId, String)>,
    /// Providers that did not answer in time.
    pub silent: u32,
    /// How long it was open.
    pub window: Millis,
}

/// Something a user may want to see, in the order it happened. Not durable: what is, is in the records.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// A job changed its state. The first one, to `Bidding`, says that the job is durable.
    Job {
        /// Which.
        job: JobId,
        /// The state now.
        state: JobState,
        /// Why, where there is something to say.
        because: Vec<Reason>,
    },
    /// Bids were compared.
    Auction {
        /// For which job.
        job: JobId,
        /// How it went.
        report: AuctionReport,
    },
    /// A lease began (as renter or as provider).
    Leased {
        /// This node's side.
        side: Party,
        /// Which.
        lease: LeaseView,
    },
    /// A lease ended.
    LeaseEnded {
        /// This node's side.
        side: Party,
        /// Which.
        lease: LeaseId,
        /// Why.
        end: LeaseEnd,
        /// Who ended it.
        by: Party,
    },
    /// An attempt was handed out (renter).
    Attempt {
        /// Of which job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// To whom.
        provider: NodeId,
    },
    /// An attempt fetches or runs (renter).
    Progress {
        /// Of which job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// What it does.
        state: RunState,
    },
    /// An attempt ended (renter); the verdict is durable.
    AttemptEnded {
        /// Of which job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// How.
        end: AttemptEnd,
        /// The exit code, if there was one.
        exit_code: Option<u32>,
        /// Why.
        reason: String,
        /// Whether it is owed for.
        billed: bool,
    },
    /// A task's state changed (renter).
    Task {
        /// Of which job.
        job: JobId,
        /// Which.
        index: u32,
        /// The state now.
        state: TaskState,
    },
    /// A receipt is complete and durable on this side.
    Receipt {
        /// This node's side.
        side: Party,
        /// What both signed.
        receipt: Receipt,
    },
    /// This node did not bid, or did not accept an award (provider).
    Declined {
        /// The renter.
        renter: NodeId,
        /// Why.
        reason: Reason,
    },
    /// The provider will stop what runs on a lease (renter), or this node will (provider).
    Preempting {
        /// This node's side.
        side: Party,
        /// Which.
        lease: LeaseId,
        /// What still runs then is stopped.
        stop_in: Millis,
    },
    /// A peer's clock is off by more than the network allows.
    ClockSkew {
        /// Whose.
        peer: NodeId,
        /// By how much.
        skew: Millis,
    },
}
