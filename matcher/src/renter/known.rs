//! What this node knows of providers: their offers, the way to them, and how they kept their promises.

use std::collections::BTreeMap;

use souk_protocol::{AttemptEnd, Millis, NodeId, Offer, Ppm, Timestamp, Verified};

use crate::record::Verdict;

/// Offers kept. More providers than one renter can compare; beyond it a new one replaces the one that ends first.
const MAX_OFFERS: usize = 20_000;
/// Peers whose round trip is kept. Beyond it new ones are not.
const MAX_RTTS: usize = 20_000;
/// Peers whose record is kept. Beyond it new ones are not.
const MAX_RECORDS: usize = 20_000;
/// Outcomes before a record says something.
const ENOUGH: u64 = 10;

/// Live offers: of each provider the newest.
#[derive(Debug, Default)]
pub(super) struct Offers {
    by_provider: BTreeMap<NodeId, Verified<Offer>>,
}

impl Offers {
    /// Takes an offer. Whether it is news.
    pub(super) fn insert(&mut self, offer: Verified<Offer>, now: Timestamp) -> bool {
        if offer.expires <= now {
            return false;
        }
        if let Some(known) = self.by_provider.get(&offer.provider) {
            if known.sequence >= offer.sequence {
                return false;
            }
        } else if self.by_provider.len() >= MAX_OFFERS {
            self.expire(now);
            if self.by_provider.len() >= MAX_OFFERS {
                let first = self.by_provider.values().min_by_key(|known| known.expires).map(|known| known.provider);
                first.map(|first| self.by_provider.remove(&first));
            }
        }
        self.by_provider.insert(offer.provider, offer);
        true
    }

    pub(super) fn expire(&mut self, now: Timestamp) {
        self.by_provider.retain(|_, offer| offer.expires > now);
    }

    pub(super) fn get(&self, provider: &NodeId) -> Option<&Verified<Offer>> {
        self.by_provider.get(provider)
    }

    pub(super) fn live(&self, now: Timestamp) -> impl Iterator<Item = &Verified<Offer>> {
        self.by_provider.values().filter(move |offer| offer.expires > now)
    }
}

/// Measured round trips.
#[derive(Debug, Default)]
pub(super) struct Rtts(BTreeMap<NodeId, Millis>);

impl Rtts {
    pub(super) fn set(&mut self, peer: NodeId, p95: Millis) {
        if self.0.len() < MAX_RTTS || self.0.contains_key(&peer) {
            self.0.insert(peer, p95);
        }
    }

    pub(super) fn get(&self, peer: &NodeId) -> Option<Millis> {
        self.0.get(peer).copied()
    }
}

/// How providers kept their promises to this node: a fold of its own records.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Records(BTreeMap<NodeId, (u64, u64)>);

impl Records {
    /// An attempt ended. Only what is the provider's doing counts.
    pub(super) fn count(&mut self, provider: NodeId, end: AttemptEnd, verdict: Verdict) {
        let kept = match (verdict, end) {
            (Verdict::Done | Verdict::Billed, _) => true,
            (Verdict::Unbilled, AttemptEnd::Lost | AttemptEnd::ProviderFault) => false,
            // Preempted with notice, a missing input, a race lost: no promise was broken.
            (Verdict::Unbilled, _) => return,
        };
        if self.0.len() >= MAX_RECORDS && !self.0.contains_key(&provider) {
            return;
        }
        let (good, bad) = self.0.entry(provider).or_default();
        let count = if kept { good } else { bad };
        *count = count.saturating_add(1);
    }

    /// Share of promises kept, once there are enough: with nine good ones and a bad one assumed before.
    pub(super) fn reliability(&self, provider: &NodeId) -> Option<Ppm> {
        let (good, bad) = self.0.get(provider).copied()?;
        let all = good.saturating_add(bad);
        if all < ENOUGH {
            return None;
        }
        let share = u128::from(good.saturating_add(9)).saturating_mul(1_000_000);
        let share = share.checked_div(u128::from(all.saturating_add(10))).unwrap_or(0);
        u32::try_from(share).ok().map(Ppm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_needs_ten_outcomes_and_counts_only_the_providers_doing() {
        let (peer, mut records) = (NodeId([1; 32]), Records::default());
        for _ in 0..9 {
            records.count(peer, AttemptEnd::Done, Verdict::Done);
        }
        records.count(peer, AttemptEnd::InputFailed, Verdict::Unbilled);
        records.count(peer, AttemptEnd::Preempted, Verdict::Unbilled);
        assert_eq!(records.reliability(&peer), None);
        // The program failed, the provider did not.
        records.count(peer, AttemptEnd::Failed, Verdict::Billed);
        assert_eq!(records.reliability(&peer), Some(Ppm(950_000)));
        for _ in 0..10 {
            records.count(peer, AttemptEnd::Lost, Verdict::Unbilled);
        }
        assert_eq!(records.reliability(&peer), Some(Ppm(633_333)));
    }
}
