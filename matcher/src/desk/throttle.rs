//! How often a renter may ask: a token bucket each.

use std::collections::BTreeMap;

use souk_protocol::{DeclineCode, Millis, NodeId};

use super::Refusal;

/// Requests at once. An honest renter sends one announcement an auction and one award a lease.
pub(super) const BURST: u64 = 1_024;
/// Requests a second in the long run: about a twentieth of a core, and more jobs a second than a renter of single tasks has.
pub(super) const PER_SECOND: u64 = 256;
/// Renters remembered. A full bucket is forgotten first; if none is full, newcomers are refused for a moment.
pub(super) const MAX_RENTERS: usize = 4_096;

/// A request costs so many thousandths, of which [`PER_SECOND`] come in each millisecond.
const COST: u64 = 1_000;
const FULL: u64 = BURST * COST;

#[derive(Debug, Clone, Copy)]
struct Bucket {
    thousandths: u64,
    at: Millis,
}

impl Bucket {
    fn filled(self, now: Millis) -> u64 {
        let elapsed = now.saturating_sub(self.at).0;
        self.thousandths.saturating_add(elapsed.saturating_mul(PER_SECOND)).min(FULL)
    }
}

#[derive(Debug, Default)]
pub(super) struct Throttle {
    buckets: BTreeMap<NodeId, Bucket>,
}

impl Throttle {
    pub(super) fn admit(&mut self, renter: NodeId, now: Millis) -> Result<(), Refusal> {
        if self.buckets.len() >= MAX_RENTERS && !self.buckets.contains_key(&renter) {
            self.buckets.retain(|_, bucket| bucket.filled(now) < FULL);
            if self.buckets.len() >= MAX_RENTERS {
                return Err(Refusal::new(DeclineCode::Busy, "too many renters ask at once"));
            }
        }
        let bucket = self.buckets.entry(renter).or_insert(Bucket { thousandths: FULL, at: now });
        let filled = bucket.filled(now);
        let left = filled.checked_sub(COST);
        *bucket = Bucket { thousandths: left.unwrap_or(filled), at: now };
        if left.is_none() {
            return Err(Refusal::new(DeclineCode::Busy, format!("at most {PER_SECOND} requests a second")));
        }
        Ok(())
    }
}
