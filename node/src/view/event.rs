//! What happens to a job, and parts of its logs.

use serde::{Deserialize, Serialize};
use souk_matcher::{JobState, Reason, TaskState};
use souk_protocol::{Credits, JobId, LeaseId, NodeId, Rate, Timestamp};

use super::Big;

/// Something that happened to a job: one line of `job events`, one message of the event stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent {
    /// Rises with each event of this run of the node; give it as `from` to go on after a break.
    pub seq: Big,
    /// When.
    pub at: Timestamp,
    /// Of which job.
    pub job: JobId,
    /// What.
    #[serde(flatten)]
    pub what: JobEventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum JobEventKind {
    /// The job changed its state. The stream starts with the state it has, and ends after an end state.
    State {
        /// The state now.
        state: JobState,
        /// Why, where there is something to say.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        because: Vec<Reason>,
    },
    /// Bids or asks were compared.
    Auction(Auction),
    /// A lease began.
    Leased {
        /// Its id.
        lease: LeaseId,
        /// With whom.
        provider: NodeId,
        /// Price of one slot.
        rate: Rate,
        /// Slots.
        slots: u32,
    },
    /// A lease ended.
    LeaseEnded {
        /// Its id.
        lease: LeaseId,
        /// Why: `completed`, `expired`, ..
        end: String,
        /// `renter` or `provider`.
        by: String,
    },
    /// An attempt was handed out.
    Attempt {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// Under which lease.
        lease: LeaseId,
        /// To whom.
        provider: NodeId,
    },
    /// An attempt goes on.
    Progress {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// `fetching` or `running`.
        state: String,
    },
    /// An attempt ended; the verdict is durable.
    AttemptEnded {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// How: `done`, `failed`, ..
        end: String,
        /// The exit code, if there was one.
        exit_code: Option<u32>,
        /// Why, unless it is done.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
        /// Whether it is owed for.
        billed: bool,
    },
    /// A task changed its state.
    Task {
        /// Which.
        index: u32,
        /// The state now.
        state: TaskState,
    },
    /// A receipt is complete.
    Receipt {
        /// Of which lease.
        lease: LeaseId,
        /// What is owed on it.
        total: Credits,
    },
    /// Bytes of a log; only where the stream was asked for with `logs=1`.
    Log {
        /// Of which task.
        index: u32,
        /// Of which attempt.
        attempt: u32,
        /// `stdout` or `stderr`.
        stream: String,
        /// Offset of the first byte.
        offset: Big,
        /// The bytes, base64.
        data: String,
    },
    /// Events were dropped because this reader was too slow: ask for the job's state again.
    Gap {
        /// How many, at least.
        missed: Big,
    },
}

/// A part of a log: one line of `GET /v1/jobs/{id}/logs?parts=1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Whose log it is: the attempt's number.
    pub attempt: u32,
    /// Where the part starts.
    pub offset: Big,
    /// When it arrived at this node; not known of logs from before that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Its bytes in base64; none in the last line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Whether the log is complete: the last line says so, and only it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end: bool,
}

/// How an auction or a choice of asks went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auction {
    /// Round, from 0.
    pub round: u32,
    /// Whether standing asks were taken without an auction.
    pub by_ask: bool,
    /// Providers invited, or asks considered.
    pub invited: u32,
    /// Bids, best first.
    pub bids: Vec<BidView>,
    /// Providers that declined.
    pub declines: Vec<DeclineView>,
    /// Providers that did not answer in time.
    pub silent: u32,
    /// How long it was open, in milliseconds.
    pub window_ms: u64,
}

/// A bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidView {
    /// Who.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots.
    pub slots: u32,
    /// Whether it was awarded.
    pub won: bool,
}

/// A provider that did not bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclineView {
    /// Who.
    pub provider: NodeId,
    /// Code and nearest miss.
    pub reason: String,
}
