//! Measurements during a run, linked by hash and signed from time to time.

use serde::{Deserialize, Serialize};

use crate::{
    bounded::List,
    id::{AttemptId, Hash, NodeId},
    signed::Document,
    units::{Bytes, MilliCpu, Millis, Timestamp},
};

/// Most samples in one checkpoint.
pub const MAX_SAMPLES: usize = 64;

/// One measurement. What could not be measured is absent, never zero.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Hash of the sample before, or of the attempt for the first ([`first_link`]).
    pub previous: Hash,
    /// Number in the chain, from 0.
    pub number: u32,
    /// When, by the provider's clock.
    pub at: Timestamp,
    /// Processor time used since the start.
    pub cpu_time: Millis,
    /// Processors in use over the last interval.
    pub cpu: Option<MilliCpu>,
    /// Memory in use.
    pub memory: Option<Bytes>,
    /// Fuel burnt since the start, where the run counts it.
    pub fuel: Option<u64>,
    /// GPUs of the lease.
    pub gpus: List<GpuSample, 16>,
}

/// One GPU at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuSample {
    /// Index in the provider's inventory.
    pub index: u16,
    /// Share of time busy, in parts per million.
    pub busy_ppm: Option<u32>,
    /// Memory in use.
    pub memory: Option<Bytes>,
    /// Power, in milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature, in degrees Celsius.
    pub temperature_c: Option<i16>,
}

impl Sample {
    /// The sample's hash, to which the next is linked.
    #[must_use]
    pub fn hash(&self) -> Hash {
        // A sample's lists are bounded, so it always fits.
        let bytes = crate::codec::encode(self, 8 * 1024).unwrap_or_default();
        Hash(blake3::derive_key("souk/1/sample", &bytes))
    }
}

/// What the first sample of an attempt is linked to.
#[must_use]
pub fn first_link(attempt: &AttemptId) -> Hash {
    let bytes = crate::codec::encode(attempt, 64).unwrap_or_default();
    Hash(blake3::derive_key("souk/1/sample-chain", &bytes))
}

/// A signed stretch of an attempt's chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Whose run.
    pub attempt: AttemptId,
    /// Who measured.
    pub provider: NodeId,
    /// The samples since the checkpoint before.
    pub samples: List<Sample, MAX_SAMPLES>,
}

impl Document for Checkpoint {
    const DOMAIN: &'static str = "souk/1/telemetry-checkpoint";
    const MAX_LEN: usize = 96 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.provider
    }
}
