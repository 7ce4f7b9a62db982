//! Offers and plans.

use serde::{Deserialize, Serialize};
use souk_protocol::{Credits, JobSpec, NodeId, Rate, Timestamp};

/// Body of `POST /v1/plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The job. Its files need not be in the store.
    pub spec: JobSpec,
}

/// `plan` and `offers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The request in words, as it was resolved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request: Option<String>,
    /// Offers that match, best first, at most as many as were asked for.
    pub offers: Vec<OfferView>,
    /// Offers that match.
    pub matched: u32,
    /// Live offers known.
    pub seen: u32,
    /// What the job may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimate: Option<Estimate>,
    /// Why others do not match, most frequent first.
    pub near_misses: Vec<NearMiss>,
}

/// Answer of `GET /v1/offers`: a [`Plan`] without a request and an estimate.
pub type Offers = Plan;

/// An offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferView {
    /// Whose.
    pub provider: NodeId,
    /// The node's name, for people.
    #[serde(default)]
    pub name: String,
    /// Its GPUs in short; none for a machine without.
    pub gpu: Option<String>,
    /// ISO code of the place.
    pub region: String,
    /// Firmest tier it serves that fits.
    pub tier: String,
    /// Price of one slot of the request, or of a core and 1 GB of memory where there is no request; none if it only
    /// bids.
    pub rate: Option<Rate>,
    /// This node's estimate of it keeping its promises, `0.991`; none without a record.
    pub reliability: Option<String>,
    /// Measured round trip, in milliseconds, rounded up.
    pub rtt_ms: Option<u64>,
    /// `now`, or when it could start.
    pub start: String,
    /// Large inputs it holds, `2/3`; none if nothing was asked.
    pub data_held: Option<String>,
    /// Slots of the request that are free.
    #[serde(default)]
    pub slots: u32,
    /// Processors on sale.
    #[serde(default)]
    pub cpu: String,
    /// Memory on sale.
    #[serde(default)]
    pub memory: String,
    /// When the offer ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    /// Whether it is this node itself, which works for its own jobs free.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub local: bool,
}

/// What a job may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// If each task takes as long as the shortest guess.
    pub low: Credits,
    /// If each attempt of each task runs to its timeout at the dearest matching rate.
    pub high: Credits,
    /// The most it can cost: the budget, or max_price times every attempt's timeout. None: nothing bounds it.
    pub cap: Option<Credits>,
}

/// Why offers do not match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearMiss {
    /// What they fail, `disk >= 500GB`.
    pub reason: String,
    /// How many fail only that.
    pub count: u32,
    /// The closest of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nearest: Option<String>,
}
