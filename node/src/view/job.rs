//! Jobs: lists, a job with its attempts, why it is where it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use souk_matcher::{JobState, Reason, TaskState};
use souk_protocol::{Credits, JobId, JobSpec, LeaseId, NodeId, Rate, Timestamp};

use super::Big;

/// Body of `POST /v1/jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The job. Its files must be in the store already (`PUT /v1/blobs/{hash}`).
    pub spec: JobSpec,
    /// 32 hexadecimal digits chosen by the client: a repeated submission is the same job.
    pub nonce: String,
}

/// Answer of `POST /v1/jobs`: the job is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its id.
    pub id: JobId,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Number of tasks.
    pub tasks: u32,
    /// Tasks whose result counts.
    pub done: u32,
    /// Tasks without an attempt left.
    pub failed: u32,
    /// Tasks with an attempt under way.
    pub running: u32,
    /// What is owed for it.
    pub cost: Credits,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it reached its end state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<Timestamp>,
}

/// A job with all its attempts: `job get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Why, if it failed, expired or waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Its tasks, by index.
    pub tasks: Vec<Task>,
    /// What is owed for it.
    pub cost: Credits,
    /// Most it may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<Credits>,
    /// Its leases, oldest first.
    pub leases: Vec<JobLease>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it reached its end state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<Timestamp>,
    /// Labels of the job file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub labels: BTreeMap<String, String>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its index.
    pub index: u32,
    /// Where it is in its life.
    pub state: TaskState,
    /// Values of its placeholders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, String>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

/// An attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Who runs it.
    pub provider: NodeId,
    /// Under which lease.
    pub lease: LeaseId,
    /// Its number at this task, from 1.
    pub attempt: u32,
    /// Replica of the task, 0 for the first.
    #[serde(default)]
    pub replica: u16,
    /// `fetching`, `running`, or how it ended: `done`, `failed`, `preempted`, `timed-out`, `out-of-memory`,
    /// `input-failed`, `cancelled`, `lost`, `provider-fault`. `unknown` while its provider is silent.
    pub state: String,
    /// The exit code, if the program ended by itself.
    pub exit_code: Option<u32>,
    /// When the program started, by the provider's clock.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Run time billed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_ms: Option<Big>,
    /// Whether it is owed for.
    #[serde(default)]
    pub billed: bool,
    /// What happened, unless it is done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// A lease of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLease {
    /// Its id.
    pub lease: LeaseId,
    /// Who provides it.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots.
    pub slots: u32,
    /// `open`, or why it ended: `completed`, `expired`, ..
    pub state: String,
    /// Which side ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_by: Option<String>,
    /// What is owed on it.
    pub total: Credits,
    /// Whether both sides signed its receipt.
    pub receipt: bool,
}

/// Why a job is where it is: `job why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub id: JobId,
    /// Where it is in its life; `lost` for a job of another node on which this one bid in vain.
    pub state: String,
    /// The reasons, weightiest first.
    pub because: Vec<Reason>,
}
