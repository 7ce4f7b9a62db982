//! The job spec: a job file whose local paths have become hashes. It stays with the renter; providers see
//! [`Work`](crate::work::Work) for single tasks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    bounded::Text,
    codec::{self, CodecError},
    id::Hash,
    money::{Credits, Rate},
    terms::{Local, Mode, Requirement, Terms},
    units::{Bytes, Millis, Ppm, Timestamp},
};

/// Most tasks of one job.
pub const MAX_TASKS: u32 = 10_000;
/// Largest encoded spec, in bytes.
pub const MAX_SPEC: usize = 4 * 1024 * 1024;
/// Most files among the inputs of one job.
pub const MAX_INPUT_FILES: usize = 10_000;

/// A resolved job. Texts may hold placeholders; [`Array::tasks`] has their values per task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Name, for people.
    pub name: Text<63>,
    /// Labels, for people.
    pub labels: BTreeMap<String, String>,
    /// The program.
    pub module: Module,
    /// What follows argv\[0\].
    pub args: Vec<String>,
    /// Environment of each task.
    pub env: Vec<(String, String)>,
    /// Files laid out before a task starts.
    pub inputs: Vec<Input>,
    /// Guest folders brought home.
    pub outputs: Vec<Output>,
    /// What one slot must have.
    pub requirement: Requirement,
    /// On which terms.
    pub terms: Terms,
    /// How much and where.
    pub market: Market,
    /// When and how reliable.
    pub sla: Sla,
    /// What is tried again.
    pub retry: Retry,
    /// The tasks.
    pub array: Array,
}

/// A wasm module by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its BLAKE3.
    pub hash: Hash,
    /// Its length, in bytes.
    pub len: u64,
    /// argv\[0\]: the file's name.
    pub name: Text<255>,
    /// The export to call.
    pub entry: Text<255>,
}

/// One `[[inputs]]` entry. Source and target may hold placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Where the guest sees it.
    pub target: String,
    /// By value of the expanded source: the files found there. One key if the source has no placeholder.
    pub sources: BTreeMap<String, Vec<InputFile>>,
    /// The source as written.
    pub source: String,
}

/// A file below an input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Path below the target; empty if the target is the file itself.
    pub path: String,
    /// Its BLAKE3.
    pub hash: Hash,
    /// Its length, in bytes.
    pub len: u64,
}

/// One `[[outputs]]` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Guest folder.
    pub path: String,
    /// Folder on the renter's machine, absolute; may hold placeholders. Empty: kept in the store only.
    pub to: String,
}

/// Price and choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Market {
    /// Most a slot may cost, if bounded.
    pub max_rate: Option<Rate>,
    /// Most the whole job may cost, if bounded.
    pub budget: Option<Credits>,
    /// How providers are found.
    pub mode: Mode,
    /// Use of the own node.
    pub local: Local,
    /// If not empty, the only providers.
    pub allow: Vec<crate::id::NodeId>,
    /// Never these.
    pub deny: Vec<crate::id::NodeId>,
}

/// Service level wished for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sla {
    /// Give up if nothing has started within this time of the submission, or of `start_at`.
    pub start_within: Option<Millis>,
    /// Start then and not before; gold slots are reserved for it.
    pub start_at: Option<Timestamp>,
    /// Give up at this time.
    pub deadline: Option<Timestamp>,
    /// Least reliability, in parts per million.
    pub reliability: Option<Ppm>,
    /// Largest measured round trip.
    pub latency: Option<Millis>,
    /// What a failure costs the renter.
    pub loss: Option<Credits>,
}

/// Which ends of an attempt lead to another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts of a task in all.
    pub attempts: u32,
    /// On which ends.
    pub on: Vec<RetryOn>,
}

crate::terms::words! {
    /// An end of an attempt that may be tried again.
    RetryOn {
        /// No provider had room.
        NoCapacity = "no-capacity",
        /// The provider needed its machine.
        Preempted = "preempted",
        /// The provider fell silent or restarted.
        Lost = "lost",
        /// The provider's own failure.
        ProviderFault = "provider-fault",
        /// The task ended with a non-zero exit code; billed again.
        Failed = "failed",
        /// The task ran into its timeout; billed again.
        TimedOut = "timed-out",
        /// The task ran out of memory; billed again.
        OutOfMemory = "out-of-memory",
    }
}

/// The tasks of a job and how many run at once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// Placeholder values of each task, by index. One empty map for a single task.
    pub tasks: Vec<BTreeMap<String, String>>,
    /// Most tasks at once.
    pub max_parallel: u32,
    /// The job fails when more tasks than this have failed. [`u32::MAX`]: every task is tried, and the job then fails if
    /// one has failed.
    pub max_failures: u32,
}

impl JobSpec {
    /// Number of tasks.
    #[must_use]
    pub fn task_count(&self) -> u32 {
        u32::try_from(self.array.tasks.len()).unwrap_or(u32::MAX)
    }

    /// The spec's hash, part of the job id.
    ///
    /// # Errors
    /// If the spec is larger than [`MAX_SPEC`].
    pub fn hash(&self) -> Result<Hash, CodecError> {
        Ok(Hash(blake3::derive_key("souk/1/job-spec", &codec::encode(self, MAX_SPEC)?)))
    }

    /// The longest a single attempt can be billed for at `rate`.
    #[must_use]
    pub fn step_cost(&self, rate: Rate) -> Option<Credits> {
        rate.charge(self.terms.timeout)
    }

    /// Bytes of all distinct input files and the module.
    #[must_use]
    pub fn data_len(&self) -> Bytes {
        let files = self.inputs.iter().flat_map(|i| i.sources.values().flatten()).map(|f| f.len);
        Bytes(files.fold(self.module.len, u64::saturating_add))
    }
}
