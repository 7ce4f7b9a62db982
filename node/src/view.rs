//! Every JSON value of the API, and so of `--json`: what INTERFACE calls the JSON shapes.
//!
//! The API serialises these and the client reads them, so the two cannot disagree. Money is text with its unit,
//! integers that may pass 2^53 are decimal text ([`Big`]), times are RFC 3339 in UTC. Fields are only ever added.

mod event;
mod job;
mod market;
mod node;
mod owner;
mod result;
mod wallet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::{
    event::{Auction, BidView, DeclineView, JobEvent, JobEventKind, LogPart},
    job::{Attempt, Job, JobLease, JobSummary, SubmitRequest, Submitted, Task, Why},
    market::{Estimate, NearMiss, OfferView, Offers, Plan, PlanRequest},
    node::{Draining, LeaseSummary, Network, NodeWhy, Peer, Ping, Status},
    owner::{ComponentPrice, Day, Earnings, NodePrice, PowerCost, PriceRecord, PriceSuggestion, ProposedPrice},
    result::{Cost, LeaseCost, OutputEntry, OutputFolder, OutputKind, ReceiptSummary, TaskOutputs},
    wallet::{Account, PeerAmount, Verification, VerifyFailure, Wallet, WalletEntry},
};

/// A 64-bit integer, decimal text in JSON: other readers would round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Big(pub u64);

impl Serialize for Big {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Big {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The one error object: on stderr under `--json`, and in the body of an API error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// It.
    pub error: ErrorView,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorView {
    /// Machine-readable, `no_offers`.
    pub code: String,
    /// The exit code it means to the command line.
    pub exit: u8,
    /// What failed, with the value.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// What came closest.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nearest: Vec<String>,
}

#[cfg(test)]
mod tests {
    use souk_matcher::TaskState;
    use souk_protocol::{JobId, Timestamp};

    use super::*;

    #[test]
    fn big_integers_are_text() {
        assert_eq!(serde_json::to_string(&Big(u64::MAX)).unwrap(), "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<Big>("\"7\"").unwrap(), Big(7));
        assert!(serde_json::from_str::<Big>("7").is_err());
    }

    #[test]
    fn an_event_is_one_flat_object_and_reads_back() {
        let event = JobEvent {
            seq: Big(9),
            at: Timestamp(0),
            job: JobId([1; 32]),
            what: JobEventKind::Task { index: 3, state: TaskState::Done },
        };
        let text = serde_json::to_string(&event).unwrap();
        let id = JobId([1; 32]).to_string();
        assert_eq!(
            text,
            format!(
                "{{\"seq\":\"9\",\"at\":\"1970-01-01T00:00:00Z\",\"job\":\"{id}\",\"kind\":\"task\",\"index\":3,\"state\":\"done\"}}"
            )
        );
        assert_eq!(serde_json::from_str::<JobEvent>(&text).unwrap(), event);
    }

    #[test]
    fn an_error_is_one_object_under_one_key() {
        let body = ErrorBody {
            error: ErrorView {
                code: "no_offers".to_owned(),
                exit: 4,
                message: "no offer matches".to_owned(),
                hint: None,
                nearest: vec![],
            },
        };
        let text = serde_json::to_string(&body).unwrap();
        assert_eq!(text, "{\"error\":{\"code\":\"no_offers\",\"exit\":4,\"message\":\"no offer matches\"}}");
        assert_eq!(serde_json::from_str::<ErrorBody>(&text).unwrap(), body);
    }
}
