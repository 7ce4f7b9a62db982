//! A provider's offer: capacity, policy and the price at which it accepts work at once.

use serde::{Deserialize, Serialize};

use crate::{
    bounded::{List, Text},
    gpu::GpuIdentity,
    id::{Hash, NetworkId, NodeId},
    money::{Credits, Rate},
    signed::Document,
    terms::{Isolation, Requirement, Runtime, Tier},
    units::{Bytes, MilliCpu, Millis, Timestamp},
};

/// How long an offer lives. Refreshed at half of it.
pub const OFFER_LIFE: Millis = Millis(10 * 60 * 1_000);

/// A signed, expiring statement of what a provider sells. Its hash stands for its standing ask in an award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// The provider.
    pub provider: NodeId,
    /// The network it is made in.
    pub network: NetworkId,
    /// Rises with each offer of this provider; of two, the higher counts.
    pub sequence: u64,
    /// When it was made.
    pub issued: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// Name of the node, for people.
    pub name: Text<63>,
    /// ISO code of the place.
    pub region: Text<16>,
    /// All it sells.
    pub total: Capacity,
    /// What was free when the offer was made.
    pub free: Capacity,
    /// GPUs, each kind with its count.
    pub gpus: List<GpuOffer, 32>,
    /// What it can execute.
    pub runtimes: List<Runtime, 8>,
    /// Isolation classes its self-test has shown today.
    pub isolation: List<Isolation, 8>,
    /// Tiers it serves.
    pub tiers: List<Tier, 3>,
    /// Standing ask; none if it only bids.
    pub ask: Option<PriceList>,
    /// Longest attempt it accepts.
    pub max_duration: Millis,
    /// Longest warning before preemption that it grants.
    pub notice: Millis,
    /// Preemptions in a million hours of preemptible work, as it has measured them.
    pub interruptions: u32,
    /// Most a stranger may owe it.
    pub stranger_limit: Credits,
    /// Most all strangers together may owe it.
    pub strangers_limit: Credits,
    /// Where it can be dialled.
    pub addresses: List<Text<256>, 8>,
}

/// An amount of each divisible resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Processors, in thousandths of a core.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
    /// Scratch space.
    pub disk: Bytes,
}

impl Capacity {
    /// How many grants of `need` fit in here.
    #[must_use]
    pub fn slots(&self, need: &Requirement) -> u32 {
        let fit = |have: u64, want: u64| have.checked_div(want).unwrap_or(u64::from(u32::MAX));
        let slots =
            fit(self.cpu.0, need.cpu.0).min(fit(self.memory.0, need.memory.0)).min(fit(self.disk.0, need.disk.0));
        u32::try_from(slots).unwrap_or(u32::MAX)
    }

    /// Each amount by itself, in its own unit.
    #[must_use]
    pub fn map(self, each: impl Fn(u64) -> u64) -> Self {
        Self { cpu: MilliCpu(each(self.cpu.0)), memory: Bytes(each(self.memory.0)), disk: Bytes(each(self.disk.0)) }
    }

    /// Each amount with its counterpart in `other`, in its own unit.
    #[must_use]
    pub fn zip(self, other: Self, each: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            cpu: MilliCpu(each(self.cpu.0, other.cpu.0)),
            memory: Bytes(each(self.memory.0, other.memory.0)),
            disk: Bytes(each(self.disk.0, other.disk.0)),
        }
    }
}

/// GPUs of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuOffer {
    /// Which.
    pub gpu: GpuIdentity,
    /// How many.
    pub count: u16,
}

/// Rates by component, each an hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceList {
    /// A whole core.
    pub cpu: Rate,
    /// 10^9 bytes of memory.
    pub memory_gb: Rate,
}

impl PriceList {
    /// The rate of one slot: the sum of component rate times grant, rounded up. `None` on overflow.
    #[must_use]
    pub fn rate(&self, need: &Requirement) -> Option<Rate> {
        let part = |rate: Rate, amount: u64, unit: u128| {
            u64::try_from(u128::from(rate.0).checked_mul(u128::from(amount))?.div_ceil(unit)).ok()
        };
        let cpu = part(self.cpu, need.cpu.0, 1_000)?;
        let memory = part(self.memory_gb, need.memory.0, 1_000_000_000)?;
        cpu.checked_add(memory).map(Rate)
    }
}

impl Document for Offer {
    const DOMAIN: &'static str = "souk/1/offer";
    const MAX_LEN: usize = 16 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.provider
    }
}

/// One line of a digest of live offers: enough to see what is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferDigest {
    /// Whose.
    pub provider: NodeId,
    /// Its sequence.
    pub sequence: u64,
    /// Its hash.
    pub hash: Hash,
}
