//! The order of those who will do: by what they cost in the end, in integers, the same whoever computes it.

use souk_protocol::{Credits, Hash, JobId, Millis, NodeId, Ppm, Rate, Tier};

/// Reliability that is assumed of a peer without a record.
pub const UNKNOWN_RELIABILITY: Ppm = Ppm(900_000);
/// Round trip that is assumed where none was measured.
pub const UNKNOWN_RTT: Millis = Millis(250);
/// Parts of a whole.
const MILLION: u128 = 1_000_000;
/// Milliseconds of an hour, by which rates are told.
const HOUR_MS: u128 = 3_600_000;

/// What the rank of a candidate depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub provider: NodeId,
    /// Its bid or offer.
    pub document: Hash,
    /// Price of a slot.
    pub rate: Rate,
    /// Slots it has.
    pub slots: u32,
    /// Its reliability, if there is a record.
    pub reliability: Option<Ppm>,
    /// Measured round trip, if there is one.
    pub rtt: Option<Millis>,
}

/// What a failure costs the renter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// As declared.
    Declared(Credits),
    /// Tenths of the attempt's own price, by tier.
    Tenths(u32),
}

impl Loss {
    /// The declared loss, or the default of the tier: 5, 2 or 0.5 times the price.
    #[must_use]
    pub const fn of(declared: Option<Credits>, tier: Tier) -> Self {
        match (declared, tier) {
            (Some(loss), _) => Self::Declared(loss),
            (None, Tier::Gold) => Self::Tenths(50),
            (None, Tier::Silver) => Self::Tenths(20),
            (None, Tier::Bronze) => Self::Tenths(5),
        }
    }
}

/// Effective cost of one attempt: an exact integer, in parts of a micro-credit so small that nothing is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Cost(u128);

impl Cost {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than any sum.
    pub const MAX: Self = Self(u128::MAX);

    /// So many parts; 3.6 * 10^12 of them are a micro-credit.
    #[must_use]
    pub const fn from_parts(parts: u128) -> Self {
        Self(parts)
    }

    /// Whole micro-credits.
    #[must_use]
    pub const fn of(credits: Credits) -> Self {
        // 2^64 * 3.6 * 10^12 is below 2^106.
        Self((credits.0 as u128).saturating_mul(MILLION).saturating_mul(HOUR_MS))
    }

    /// Its parts.
    #[must_use]
    pub const fn parts(self) -> u128 {
        self.0
    }

    /// This and `other`; at most [`Self::MAX`].
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// What is left after `other`; at least nothing.
    #[must_use]
    pub const fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// So often; at most [`Self::MAX`].
    #[must_use]
    pub const fn times(self, count: u32) -> Self {
        Self(self.0.saturating_mul(count as u128))
    }

    /// In whole micro-credits, rounded up.
    #[must_use]
    pub fn credits(self) -> Credits {
        let whole = self.0.div_ceil(MILLION.saturating_mul(HOUR_MS));
        Credits(u64::try_from(whole).unwrap_or(u64::MAX))
    }

    /// By how much it is above `best`, in millionths of that, rounded down; a hundred times as much at most.
    #[must_use]
    pub fn over(self, best: Self) -> Ppm {
        const MOST: u128 = 100 * MILLION;
        let more = self.0.saturating_sub(best.0);
        // Multiplied first where that fits, so that small differences show.
        let share = more.checked_mul(MILLION).map_or_else(
            || more.checked_div(best.0.checked_div(MILLION).unwrap_or(1)),
            |scaled| scaled.checked_div(best.0),
        );
        let share = share.unwrap_or(if more == 0 { 0 } else { MOST });
        Ppm(u32::try_from(share.min(MOST)).unwrap_or(u32::MAX))
    }
}

/// Price for `duration`, plus the expected loss, plus the time a slot idles on the way to the renter and back.
#[must_use]
pub fn cost(candidate: &Candidate, duration: Millis, loss: Loss) -> Cost {
    effective(candidate.rate, candidate.reliability, candidate.rtt, duration, loss)
}

/// [`cost`] of what only its parts are known of.
#[must_use]
pub fn effective(rate: Rate, reliability: Option<Ppm>, rtt: Option<Millis>, duration: Millis, loss: Loss) -> Cost {
    let quick = quick(rate, reliability, rtt, duration, loss);
    quick.unwrap_or_else(|| exact(rate, reliability, rtt, duration, loss))
}

/// [`exact`] where all factors fit into 64 bits, as they do for money that exists: very many are ranked at once.
fn quick(rate: Rate, reliability: Option<Ppm>, rtt: Option<Millis>, duration: Millis, loss: Loss) -> Option<Cost> {
    let price = rate.0.checked_mul(duration.0)?;
    let sure = price.checked_add(rate.0.checked_mul(rtt.unwrap_or(UNKNOWN_RTT).0)?)?;
    let loss = match loss {
        Loss::Declared(credits) => credits.0.checked_mul(3_600_000)?,
        Loss::Tenths(tenths) => price.checked_mul(u64::from(tenths))? / 10,
    };
    let failing = 1_000_000u32.saturating_sub(reliability.unwrap_or(UNKNOWN_RELIABILITY).0);
    let lost = u128::from(failing).checked_mul(u128::from(loss))?;
    u128::from(sure).checked_mul(MILLION)?.checked_add(lost).map(Cost)
}

fn exact(rate: Rate, reliability: Option<Ppm>, rtt: Option<Millis>, duration: Millis, loss: Loss) -> Cost {
    let rate = u128::from(rate.0);
    let price = rate.saturating_mul(u128::from(duration.0));
    let idle = rate.saturating_mul(u128::from(rtt.unwrap_or(UNKNOWN_RTT).0));
    let reliability = reliability.unwrap_or(UNKNOWN_RELIABILITY);
    let failing = MILLION.saturating_sub(u128::from(reliability.0));
    let loss = match loss {
        Loss::Declared(credits) => u128::from(credits.0).saturating_mul(HOUR_MS),
        Loss::Tenths(tenths) => price.saturating_mul(u128::from(tenths)) / 10,
    };
    let sure = price.saturating_add(idle).saturating_mul(MILLION);
    Cost(sure.saturating_add(failing.saturating_mul(loss)))
}

/// A provider's reliability for preemptible work: less the chance that it is interrupted within `timeout`, by the
/// `interruptions` in a million hours that its offer states. Unchanged, and perhaps unknown, if it states none.
#[must_use]
pub fn uninterrupted(reliability: Option<Ppm>, interruptions: u32, timeout: Millis) -> Option<Ppm> {
    if interruptions == 0 {
        return reliability;
    }
    let expected = u128::from(interruptions).saturating_mul(u128::from(timeout.0)).checked_div(HOUR_MS).unwrap_or(0);
    let stays = MILLION.saturating_sub(expected);
    let kept = u128::from(reliability.unwrap_or(UNKNOWN_RELIABILITY).0).saturating_mul(stays);
    u32::try_from(kept.checked_div(MILLION).unwrap_or(0)).ok().map(Ppm)
}

/// Breaks ties: nobody knows it before the table is closed, so nobody can grind a bid to win them.
#[must_use]
pub fn tie(root: &Hash, provider: &NodeId) -> Hash {
    let mut both = [0; 64];
    let (head, tail) = both.split_at_mut(32);
    head.copy_from_slice(&root.0);
    tail.copy_from_slice(&provider.0);
    Hash(*blake3::hash(&both).as_bytes())
}

/// A root for one job alone: what many jobs compare by the same documents does not lead them all to the same one.
#[must_use]
pub fn seeded(root: &Hash, job: &JobId) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&root.0);
    hasher.update(&job.0);
    Hash(*hasher.finalize().as_bytes())
}

/// The root that stands for a set of bids or offers: over their hashes in ascending order, each once.
#[must_use]
pub fn root(documents: impl IntoIterator<Item = Hash>) -> Hash {
    let sorted: std::collections::BTreeSet<Hash> = documents.into_iter().collect();
    let sorted: Vec<Hash> = sorted.into_iter().collect();
    souk_protocol::merkle::root(&sorted)
}

/// Sorts best first. A total order: it does not depend on the order of arrival.
#[must_use]
pub fn rank(candidates: Vec<Candidate>, root: &Hash, duration: Millis, loss: Loss) -> Vec<Candidate> {
    let mut keyed: Vec<_> = candidates
        .into_iter()
        .map(|candidate| {
            let key = (cost(&candidate, duration, loss), tie(root, &candidate.provider), candidate.document);
            (key, candidate)
        })
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, candidate)| candidate).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(n: u8, rate: u64) -> Candidate {
        Candidate {
            provider: NodeId([n; 32]),
            document: Hash([n; 32]),
            rate: Rate(rate),
            slots: 1,
            reliability: None,
            rtt: Some(Millis(0)),
        }
    }

    #[test]
    fn the_cost_is_price_plus_expected_loss_plus_idle_time() {
        let hour = Millis(3_600_000);
        // 1 CR, plus 0.1 x 2 x 1 CR.
        assert_eq!(cost(&candidate(1, 1_000_000), hour, Loss::of(None, Tier::Silver)).credits(), Credits(1_200_000));
        // plus 0.1 x 3 CR.
        let loss = Loss::of(Some(Credits(3_000_000)), Tier::Bronze);
        assert_eq!(cost(&candidate(1, 1_000_000), hour, loss).credits(), Credits(1_300_000));
        // Reliable: no loss. A slot that idles for 36 s costs a hundredth.
        let far = Candidate { reliability: Some(Ppm(1_000_000)), rtt: Some(Millis(36_000)), ..candidate(1, 1_000_000) };
        assert_eq!(cost(&far, hour, loss).credits(), Credits(1_010_000));
    }

    #[test]
    fn a_provider_that_interrupts_is_as_much_less_reliable() {
        let at = |reliability, rate, hours: u64| {
            uninterrupted(reliability, rate, Millis(hours * 3_600_000)).map(|ppm| ppm.0)
        };
        assert_eq!(at(None, 0, 6), None);
        // A tenth of an interruption an hour: within six hours it comes with 60 %.
        assert_eq!(at(Some(Ppm(1_000_000)), 100_000, 6), Some(400_000));
        assert_eq!(at(None, 100_000, 1), Some(810_000));
        assert_eq!(at(Some(Ppm(990_000)), 500_000, 6), Some(0));
    }

    #[test]
    fn a_reliable_provider_may_cost_more() {
        let safe = Candidate { reliability: Some(Ppm(990_000)), ..candidate(1, 130) };
        let cheap = Candidate { reliability: Some(Ppm(500_000)), ..candidate(2, 100) };
        let order = rank(vec![cheap.clone(), safe.clone()], &Hash([0; 32]), Millis(3_600_000), Loss::Tenths(50));
        assert_eq!(order, [safe, cheap]);
    }

    #[test]
    fn the_quick_way_gives_the_exact_cost() {
        let known = [(None, None), (Some(Ppm(0)), Some(Millis(0))), (Some(Ppm(987_654)), Some(Millis(123)))];
        for (reliability, rtt) in known {
            for rate in [0, 1, 7, 123_457, 1_000_000_007, u64::MAX] {
                for duration in [0, 1, 999, 600_000, u64::MAX] {
                    for loss in [Loss::Tenths(0), Loss::Tenths(7), Loss::Tenths(50), Loss::Declared(Credits(12_345))] {
                        let (rate, duration) = (Rate(rate), Millis(duration));
                        let all = exact(rate, reliability, rtt, duration, loss);
                        assert_eq!(effective(rate, reliability, rtt, duration, loss), all);
                    }
                }
            }
        }
        assert!(quick(Rate(1_000_000_007), None, None, Millis(600_000), Loss::Tenths(50)).is_some());
    }

    #[test]
    fn costs_beyond_the_number_range_saturate() {
        let worst = Candidate { reliability: Some(Ppm(0)), ..candidate(1, u64::MAX) };
        assert_eq!(
            cost(&worst, Millis(u64::MAX), Loss::Declared(Credits::MAX)).credits(),
            Credits(94_525_000_000_000_000_000_u128.min(u128::from(u64::MAX)) as u64)
        );
    }

    proptest! {
        #[test]
        fn the_order_of_arrival_does_not_matter(rates in proptest::collection::vec(1u64..4, 1..12), seed in any::<u64>()) {
            let all: Vec<_> = (0u8..).zip(&rates).map(|(n, rate)| candidate(n, *rate)).collect();
            let mut shuffled = all.clone();
            let len = shuffled.len();
            for i in 0..len {
                shuffled.swap(i, (seed as usize).wrapping_mul(i + 1) % len);
            }
            let top = root(all.iter().map(|c| c.document));
            prop_assert_eq!(root(shuffled.iter().map(|c| c.document)), top);
            let loss = Loss::Tenths(5);
            prop_assert_eq!(rank(all, &top, Millis(1_000), loss), rank(shuffled, &top, Millis(1_000), loss));
        }
    }

    #[test]
    fn equals_share_the_load() {
        let wins = (0..64u8).filter(|n| {
            let order = rank(vec![candidate(1, 5), candidate(2, 5)], &Hash([*n; 32]), Millis(1), Loss::Tenths(5));
            order[0].provider == NodeId([1; 32])
        });
        let wins = wins.count();
        assert!((16..=48).contains(&wins), "{wins} of 64");
    }
}
