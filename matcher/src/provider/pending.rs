//! Bids that may be awarded at any moment.
//!
//! A bid holds nothing: an award by ask, or on an older bid, takes what it finds. But to bid the same free slots to
//! everybody who asks in the same instant is to be awarded them many times over and to refuse all but one. So for as long
//! as an award may reasonably take to come, what was bid to one is not bid to another. Whoever calls and never awards can
//! keep half of a machine from being bid for, and nothing from being sold.

use std::collections::BTreeMap;

use souk_protocol::{Capacity, Hash, JobId, Millis, NodeId, Requirement};

use crate::schedule::less;

/// How long a bid counts as about to be awarded: a renter waits for bidders at a quarter of a second, and its award takes
/// as long as its call did.
pub(super) const PENDING_FOR: Millis = Millis(500);

/// What was bid and may be awarded.
#[derive(Debug, Default)]
pub(super) struct Pending {
    bids: BTreeMap<Hash, Promise>,
}

#[derive(Debug)]
struct Promise {
    renter: NodeId,
    job: JobId,
    amount: Capacity,
    until: Millis,
}

impl Pending {
    /// How many slots can be bid to `renter` for `job`, of what is free. Its earlier bid on the same job counts no more.
    pub(super) fn room(
        &mut self,
        (renter, job): (&NodeId, &JobId),
        (total, free): (Capacity, Capacity),
        need: &Requirement,
        now: Millis,
    ) -> u32 {
        self.bids.retain(|_, bid| bid.until > now && !(bid.renter == *renter && bid.job == *job));
        let mut by_renter: BTreeMap<NodeId, Capacity> = BTreeMap::new();
        for bid in self.bids.values() {
            let sum = by_renter.entry(bid.renter).or_default();
            *sum = plus(*sum, bid.amount);
        }
        let half = total.map(|amount| amount >> 1);
        let kept = |(other, amount): (&NodeId, &Capacity)| match other == renter {
            true => *amount,
            false => amount.zip(half, u64::min),
        };
        let pending = by_renter.iter().map(kept).fold(Capacity::default(), plus);
        less(free, pending).slots(need)
    }

    /// A bid is made.
    pub(super) fn promise(&mut self, bid: Hash, renter: NodeId, job: JobId, amount: Capacity, now: Millis) {
        self.bids.insert(bid, Promise { renter, job, amount, until: now.saturating_add(PENDING_FOR) });
    }

    /// A bid was awarded: what it was for is taken now, or not to be had.
    pub(super) fn settle(&mut self, bid: &Hash) {
        self.bids.remove(bid);
    }
}

fn plus(a: Capacity, b: Capacity) -> Capacity {
    a.zip(b, u64::saturating_add)
}

/// What so many slots are, as far as it fits an amount.
pub(super) fn amount(need: &Requirement, slots: u32) -> Capacity {
    let slot = Capacity { cpu: need.cpu, memory: need.memory, disk: need.disk };
    slot.map(|amount| amount.saturating_mul(u64::from(slots)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{policy, slot};

    const JOBS: [JobId; 2] = [JobId([1; 32]), JobId([2; 32])];

    fn node(n: u8) -> NodeId {
        NodeId([n; 32])
    }

    /// Four cores, all of them free.
    fn room(pending: &mut Pending, renter: u8, job: usize, now: u64) -> u32 {
        let total = policy().total;
        pending.room((&node(renter), &JOBS[job]), (total, total), &slot(), Millis(now))
    }

    #[test]
    fn what_was_bid_to_one_is_not_bid_to_another_for_half_a_second() {
        let mut pending = Pending::default();
        assert_eq!(room(&mut pending, 1, 0, 0), 4);
        pending.promise(Hash([1; 32]), node(1), JOBS[0], amount(&slot(), 2), Millis(0));
        assert_eq!((room(&mut pending, 2, 0, 499), room(&mut pending, 1, 1, 499)), (2, 2));
        pending.promise(Hash([2; 32]), node(2), JOBS[0], amount(&slot(), 2), Millis(0));
        assert_eq!(room(&mut pending, 3, 0, 499), 0);
        assert_eq!(room(&mut pending, 3, 0, 500), 4);
    }

    #[test]
    fn an_awarded_bid_and_an_earlier_one_of_the_same_job_make_room() {
        let mut pending = Pending::default();
        pending.promise(Hash([1; 32]), node(1), JOBS[0], amount(&slot(), 2), Millis(0));
        pending.promise(Hash([2; 32]), node(2), JOBS[0], amount(&slot(), 1), Millis(0));
        assert_eq!(room(&mut pending, 3, 0, 1), 1);
        pending.settle(&Hash([2; 32]));
        assert_eq!(room(&mut pending, 3, 0, 1), 2);
        assert_eq!(room(&mut pending, 1, 0, 1), 4);
    }

    #[test]
    fn one_renter_keeps_no_more_than_half_from_others() {
        let mut pending = Pending::default();
        pending.promise(Hash([1; 32]), node(1), JOBS[0], amount(&slot(), 4), Millis(0));
        pending.promise(Hash([2; 32]), node(1), JOBS[1], amount(&slot(), 4), Millis(0));
        assert_eq!(room(&mut pending, 2, 0, 1), 2);
        // To itself it is not bid twice.
        assert_eq!(pending.room((&node(1), &JobId([3; 32])), (policy().total, policy().total), &slot(), Millis(1)), 0);
    }
}
