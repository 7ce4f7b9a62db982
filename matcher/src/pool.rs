//! Which providers serve one job with how many slots.
//!
//! The slots of a job are alike and each costs what its provider's slot costs, so taking the cheapest first is the
//! cheapest cover there is; a property test compares it with trying everything.

use souk_protocol::NodeId;

use crate::rank::Candidate;

/// Slots still to be found: as many as there are tasks to run at once, less those held.
#[must_use]
pub fn wanted(max_parallel: u32, open_tasks: u32, held: u32) -> u32 {
    max_parallel.max(1).min(open_tasks).saturating_sub(held)
}

/// A provider's part of a cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its place among the candidates.
    pub index: usize,
    /// Who.
    pub provider: NodeId,
    /// How many slots of it.
    pub slots: u32,
}

/// The cheapest cover of `wanted` slots by `ranked` candidates, best first, at most `most` of them. It may fall short.
#[must_use]
pub fn cover(ranked: &[Candidate], wanted: u32, most: usize) -> Vec<Share> {
    let mut left = wanted;
    let mut shares = Vec::new();
    for (index, candidate) in ranked.iter().enumerate() {
        if left == 0 || shares.len() >= most {
            break;
        }
        let slots = candidate.slots.min(left);
        if slots > 0 {
            left = left.saturating_sub(slots);
            shares.push(Share { index, provider: candidate.provider, slots });
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use souk_protocol::{Hash, Rate};

    use super::*;

    fn candidate(n: u8, rate: u64, slots: u32) -> Candidate {
        Candidate {
            provider: NodeId([n; 32]),
            document: Hash([n; 32]),
            rate: Rate(rate),
            slots,
            reliability: None,
            rtt: None,
        }
    }

    #[test]
    fn the_slots_wanted_follow_the_tasks_left_and_the_limit() {
        assert_eq!(wanted(4, 64, 0), 4);
        assert_eq!(wanted(4, 3, 1), 2);
        assert_eq!(wanted(4, 2, 4), 0);
        assert_eq!(wanted(0, 5, 0), 1);
    }

    #[test]
    fn a_cover_takes_part_of_the_last_provider_and_skips_full_ones() {
        let ranked = [candidate(1, 1, 2), candidate(2, 2, 0), candidate(3, 3, 8)];
        let shares: Vec<_> = cover(&ranked, 5, 16).iter().map(|share| (share.index, share.slots)).collect();
        assert_eq!(shares, [(0, 2), (2, 3)]);
        assert_eq!(cover(&ranked, 5, 1).len(), 1);
    }

    proptest! {
        #[test]
        fn no_cover_is_cheaper(bids in proptest::collection::vec((1u64..50, 0u32..4), 1..6), wanted in 1u32..8) {
            let mut ranked: Vec<_> = (0u8..).zip(&bids).map(|(n, (rate, slots))| candidate(n, *rate, *slots)).collect();
            ranked.sort_by_key(|c| c.rate);
            let shares = cover(&ranked, wanted, 16);
            let got: u32 = shares.iter().map(|share| share.slots).sum();
            let cost: u64 = shares.iter().map(|share| ranked[share.index].rate.0 * u64::from(share.slots)).sum();
            // Every way to take as many slots, one by one.
            let mut best = vec![Some(0u64)];
            best.resize(wanted as usize + 1, None);
            for c in &ranked {
                for _ in 0..c.slots {
                    for n in (1..=wanted as usize).rev() {
                        if let Some(before) = best[n - 1] {
                            best[n] = Some(best[n].map_or(before + c.rate.0, |now: u64| now.min(before + c.rate.0)));
                        }
                    }
                }
            }
            prop_assert_eq!(got, wanted.min(bids.iter().map(|(_, slots)| slots).sum()));
            prop_assert_eq!(Some(cost), best[got as usize]);
        }
    }
}
