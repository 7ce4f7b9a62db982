//! What a provider needs to run one task: the only place where arguments, environment and data are named.

use serde::{Deserialize, Serialize};

use crate::{
    bounded::{List, Text},
    id::{AttemptId, Hash, JobId},
    units::{Bytes, Millis},
};

/// Largest encoded [`Work`], in bytes.
pub const MAX_WORK: usize = 160 * 1024;

/// One attempt at one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Of which job.
    pub job: JobId,
    /// Number of tasks of the job.
    pub count: u32,
    /// The module's BLAKE3.
    pub module: Hash,
    /// The module's length, in bytes.
    pub module_len: u64,
    /// argv\[0\].
    pub argv0: Text<255>,
    /// The export to call.
    pub entry: Text<255>,
    /// What follows argv\[0\].
    pub args: List<Text<131_072>, 1_024>,
    /// Environment; names and values.
    pub env: List<(Text<255>, Text<131_072>), 1_024>,
    /// Files to lay out, each with its guest path.
    pub inputs: List<InputBlob, 1_024>,
    /// Guest folders whose content is the result.
    pub outputs: List<Text<1_024>, 16>,
    /// What the attempt may use.
    pub limits: WorkLimits,
}

/// A file the guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputBlob {
    /// Absolute guest path.
    pub target: Text<1_024>,
    /// Its BLAKE3.
    pub hash: Hash,
    /// Its length, in bytes.
    pub len: u64,
}

/// What one attempt may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkLimits {
    /// Longest run time; fetching and compiling are not counted.
    pub timeout: Millis,
    /// Time to stop before it is killed.
    pub stop_grace: Millis,
    /// Memory of the guest.
    pub memory: Bytes,
    /// Bytes kept of each of stdout and stderr.
    pub stdout: Bytes,
    /// Bytes of outputs.
    pub disk: Bytes,
}
