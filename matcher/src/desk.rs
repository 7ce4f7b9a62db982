//! The bidding desk: can I, may I, do I want to, and at what price.
//!
//! Nothing is held for a bid. Capacity is taken at the award and by checked arithmetic alone, so that
//! `0 <= used <= total` whatever arrives in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{
    Bytes, Capacity, Credits, DeclineCode, Hash, JobId, LeaseId, MilliCpu, Millis, NodeId, Pay, PriceList, Rate,
    Requirement, Terms, Timestamp,
};

use crate::event::{Policy, Reason};

mod fit;
mod throttle;

use throttle::Throttle;

/// Own bids remembered for the awards that rest on them. Beyond it no new ones are made: the oldest is at most some
/// seconds old, so so many bids are a flood.
pub const MAX_BIDS: usize = 4_096;
/// Own live offers remembered for awards by their asks: one each two seconds for the ten minutes of an offer's life.
pub const MAX_OFFERS: usize = 512;
/// A bid is valid for so long beyond the end of its auction.
pub const BID_BEYOND: Millis = Millis(2_000);
/// Longest time that results are kept for a renter: disk space that earns nothing.
pub const MAX_RETENTION: Millis = Millis(30 * 24 * 3_600_000);
/// Longest time a renter may be away while its slots stay taken.
pub const MAX_OFFLINE: Millis = Millis(7 * 24 * 3_600_000);

/// Why there is no bid or no acceptance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub code: DeclineCode,
    /// What would have been enough.
    pub nearest: String,
}

impl Refusal {
    pub(crate) fn new(code: DeclineCode, nearest: impl Into<String>) -> Self {
        Self { code, nearest: nearest.into() }
    }
}

/// What a renter wants.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Who.
    pub renter: NodeId,
    /// What a slot must have.
    pub requirement: &'a Requirement,
    /// On which terms.
    pub terms: &'a Terms,
}

/// A bid of this node that an award may rest on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnBid {
    /// To whom.
    pub renter: NodeId,
    /// For which job.
    pub job: JobId,
    /// For what.
    pub requirement: Requirement,
    /// On which terms.
    pub terms: Terms,
    /// At which price.
    pub rate: Rate,
    /// For how many slots.
    pub slots: u32,
    /// Until when.
    pub valid_until: Timestamp,
}

/// A price and how many slots of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// Of one slot.
    pub rate: Rate,
    /// Slots that could start at once.
    pub slots: u32,
}

/// What the desk sells, what is taken, and what it has promised.
#[derive(Debug, Default)]
pub struct Desk {
    policy: Option<Policy>,
    used: Capacity,
    taken: BTreeMap<LeaseId, Capacity>,
    bids: BTreeMap<Hash, OwnBid>,
    bid_ends: BTreeSet<(Timestamp, Hash)>,
    offers: BTreeMap<Hash, (PriceList, Timestamp)>,
    throttle: Throttle,
    declined: BTreeMap<DeclineCode, (u64, String)>,
}

impl Desk {
    /// The owner's terms from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = Some(policy);
    }

    /// The owner's terms, if they are known.
    #[must_use]
    pub const fn policy(&self) -> Option<&Policy> {
        self.policy.as_ref()
    }

    /// Everything on sale.
    #[must_use]
    pub fn total(&self) -> Capacity {
        self.policy.as_ref().map_or_else(Capacity::default, |policy| policy.total)
    }

    /// What leases hold.
    #[must_use]
    pub const fn used(&self) -> Capacity {
        self.used
    }

    /// What can still be leased. Nothing while leases hold more than a total that the owner has lowered since.
    #[must_use]
    pub fn free(&self) -> Capacity {
        let total = self.total();
        Capacity {
            cpu: total.cpu.saturating_sub(self.used.cpu),
            memory: total.memory.saturating_sub(self.used.memory),
            disk: total.disk.saturating_sub(self.used.disk),
        }
    }

    /// The prices it accepts at once: the ask, nowhere under the floor.
    #[must_use]
    pub fn asks(&self) -> Option<PriceList> {
        self.policy.as_ref().map(|policy| PriceList {
            cpu: policy.ask.cpu.max(policy.floor.cpu),
            memory_gb: policy.ask.memory_gb.max(policy.floor.memory_gb),
        })
    }

    /// Whether `wanted` is something this node does at all, and how many slots of it are free now.
    ///
    /// # Errors
    /// Why not, with what would have been enough. No capacity is one of the reasons.
    pub fn check(&self, wanted: &Wanted<'_>) -> Result<u32, Refusal> {
        let Some(policy) = self.policy.as_ref().filter(|policy| policy.total != Capacity::default()) else {
            return Err(Refusal::new(DeclineCode::Closed, "nothing is on sale here"));
        };
        fit::policy(policy, wanted)?;
        terms(wanted.terms)?;
        fit::capacity(&policy.total, &self.free(), wanted.requirement)
    }

    /// The price of a slot, and how many could start at once.
    ///
    /// # Errors
    /// Why there is none.
    pub fn quote(
        &self,
        wanted: &Wanted<'_>,
        slots: u32,
        max_rate: Option<Rate>,
        room: Credits,
    ) -> Result<Quote, Refusal> {
        let free = self.check(wanted)?;
        let rate = self.price(wanted.requirement, max_rate)?;
        let Some(step) = rate.charge(wanted.terms.timeout) else {
            return Err(Refusal::new(DeclineCode::Price, "the price of one attempt does not fit an amount"));
        };
        let lendable = room.0.checked_div(step.0).unwrap_or(u64::from(u32::MAX));
        if lendable == 0 {
            let nearest =
                format!("you may owe {room} more, one attempt of up to {} costs {step}", wanted.terms.timeout);
            return Err(Refusal::new(DeclineCode::NoCredit, nearest));
        }
        let slots = free.min(slots).min(u32::try_from(lendable).unwrap_or(u32::MAX));
        Ok(Quote { rate, slots })
    }

    fn price(&self, need: &Requirement, max_rate: Option<Rate>) -> Result<Rate, Refusal> {
        let fits = |list: Option<PriceList>| {
            let no_fit = || Refusal::new(DeclineCode::Price, "the price of so large a slot does not fit an amount");
            list.and_then(|list| list.rate(need)).ok_or_else(no_fit)
        };
        let ask = fits(self.asks())?;
        let floor = fits(self.policy.as_ref().map(|policy| policy.floor))?;
        match max_rate {
            Some(cap) if cap < floor => {
                Err(Refusal::new(DeclineCode::Price, format!("at least {floor}, you pay at most {cap}")))
            }
            Some(cap) => Ok(ask.min(cap)),
            None => Ok(ask),
        }
    }

    /// Takes `slots` times `need` for a lease. A lease takes once.
    ///
    /// # Errors
    /// If it is not free; nothing is taken then.
    pub fn take(&mut self, lease: LeaseId, need: &Requirement, slots: u32) -> Result<(), Refusal> {
        if self.taken.contains_key(&lease) {
            return Ok(());
        }
        let total = self.total();
        let free = self.free();
        if fit::capacity(&total, &free, need)? < slots {
            return Err(Refusal::new(DeclineCode::NoCapacity, fit::nearest(&total, &free, need, slots)));
        }
        self.hold(lease, need, slots)
    }

    /// Takes without asking the policy: what a journaled lease holds, whatever is on sale now.
    ///
    /// # Errors
    /// If the amounts do not fit.
    pub fn hold(&mut self, lease: LeaseId, need: &Requirement, slots: u32) -> Result<(), Refusal> {
        if self.taken.contains_key(&lease) {
            return Ok(());
        }
        let grant = times(need, slots);
        let sum = grant.and_then(|grant| plus(self.used, grant));
        let (Some(grant), Some(sum)) = (grant, sum) else {
            return Err(Refusal::new(DeclineCode::TooLarge, format!("{slots} slots do not fit an amount")));
        };
        self.used = sum;
        self.taken.insert(lease, grant);
        Ok(())
    }

    /// Gives back what a lease holds. Whether it held anything.
    pub fn release(&mut self, lease: &LeaseId) -> bool {
        let Some(grant) = self.taken.remove(lease) else { return false };
        // A lease gives back exactly what it took, so this never saturates.
        self.used = Capacity {
            cpu: self.used.cpu.saturating_sub(grant.cpu),
            memory: self.used.memory.saturating_sub(grant.memory),
            disk: self.used.disk.saturating_sub(grant.disk),
        };
        true
    }

    /// What each lease holds.
    pub fn taken(&self) -> impl Iterator<Item = (&LeaseId, &Capacity)> {
        self.taken.iter()
    }

    /// Remembers an own bid. Whether there is room for it.
    pub fn remember_bid(&mut self, hash: Hash, bid: OwnBid, now: Timestamp) -> bool {
        while let Some((end, old)) = self.bid_ends.first().copied() {
            if end >= now {
                break;
            }
            self.bid_ends.pop_first();
            self.bids.remove(&old);
        }
        if self.bids.len() >= MAX_BIDS && !self.bids.contains_key(&hash) {
            return false;
        }
        self.bid_ends.insert((bid.valid_until, hash));
        self.bids.insert(hash, bid);
        true
    }

    /// Forgets an own bid: it has become a lease, so no other award can rest on it and it counts no more.
    pub fn close_bid(&mut self, hash: &Hash) {
        if let Some(bid) = self.bids.remove(hash) {
            self.bid_ends.remove(&(bid.valid_until, *hash));
        }
    }

    /// An own bid, valid or not, as long as it is remembered.
    #[must_use]
    pub fn bid(&self, hash: &Hash) -> Option<&OwnBid> {
        self.bids.get(hash)
    }

    /// Remembers the asks of an own offer until it expires.
    pub fn remember_offer(&mut self, hash: Hash, asks: PriceList, expires: Timestamp, now: Timestamp) {
        self.offers.retain(|_, (_, end)| *end >= now);
        if self.offers.len() >= MAX_OFFERS
            && let Some(oldest) = self.offers.iter().min_by_key(|(_, (_, end))| *end).map(|(hash, _)| *hash)
        {
            self.offers.remove(&oldest);
        }
        self.offers.insert(hash, (asks, expires));
    }

    /// The asks of an own offer and its end.
    #[must_use]
    pub fn offer(&self, hash: &Hash) -> Option<(PriceList, Timestamp)> {
        self.offers.get(hash).copied()
    }

    /// One more request of a renter.
    ///
    /// # Errors
    /// If it asks too often.
    pub fn admit(&mut self, renter: NodeId, now: Millis) -> Result<(), Refusal> {
        self.throttle.admit(renter, now)
    }

    /// Counts a refusal for [`why`](Self::why).
    pub fn count(&mut self, refusal: &Refusal) {
        let (count, nearest) = self.declined.entry(refusal.code).or_default();
        *count = count.saturating_add(1);
        nearest.clone_from(&refusal.nearest);
    }

    /// Why this node did not bid or accept, most frequent first; the nearest miss is the latest one.
    #[must_use]
    pub fn why(&self) -> Vec<Reason> {
        let mut reasons: Vec<Reason> = self
            .declined
            .iter()
            .map(|(code, (count, nearest))| Reason {
                code: code.word().to_owned(),
                text: says(*code).to_owned(),
                count: *count,
                nearest: (!nearest.is_empty()).then(|| nearest.clone()),
            })
            .collect();
        reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
        reasons
    }
}

/// Terms this node cannot keep, whatever its policy.
fn terms(terms: &Terms) -> Result<(), Refusal> {
    if terms.pay != Pay::Delivered {
        return Err(Refusal::new(DeclineCode::Terms, "pay = \"delivered\" is what this node sells"));
    }
    if terms.timeout.is_zero() {
        return Err(Refusal::new(DeclineCode::Terms, "a timeout above zero is needed"));
    }
    if terms.retention > MAX_RETENTION {
        return Err(Refusal::new(DeclineCode::Terms, format!("results are kept for at most {MAX_RETENTION}")));
    }
    if terms.offline > MAX_OFFLINE {
        return Err(Refusal::new(DeclineCode::Terms, format!("a renter may be away for at most {MAX_OFFLINE}")));
    }
    Ok(())
}

fn times(need: &Requirement, slots: u32) -> Option<Capacity> {
    let slots = u64::from(slots);
    Some(Capacity {
        cpu: MilliCpu(need.cpu.0.checked_mul(slots)?),
        memory: Bytes(need.memory.0.checked_mul(slots)?),
        disk: Bytes(need.disk.0.checked_mul(slots)?),
    })
}

fn plus(a: Capacity, b: Capacity) -> Option<Capacity> {
    Some(Capacity {
        cpu: a.cpu.checked_add(b.cpu)?,
        memory: a.memory.checked_add(b.memory)?,
        disk: a.disk.checked_add(b.disk)?,
    })
}

const fn says(code: DeclineCode) -> &'static str {
    match code {
        DeclineCode::NoCapacity => "everything that fits was taken",
        DeclineCode::TooLarge => "the slot asked for is larger than what is on sale",
        DeclineCode::Runtime => "this kind of work is not run here",
        DeclineCode::Isolation => "stronger isolation was asked for than there is",
        DeclineCode::Region => "another place was asked for",
        DeclineCode::Tier => "this tier is not served",
        DeclineCode::Price => "the price cap is under the floor",
        DeclineCode::NoCredit => "the renter would owe too much",
        DeclineCode::Duration => "attempts could last longer than is accepted",
        DeclineCode::Denied => "the renter is on the deny list",
        DeclineCode::ClockSkew => "the renter's clock is off",
        DeclineCode::Expired => "it came too late",
        DeclineCode::Unknown => "it refers to a bid or ask that is not known",
        DeclineCode::Terms => "terms that are not kept here",
        DeclineCode::Closed => "this node is not selling",
        DeclineCode::Busy => "too many requests",
    }
}

#[cfg(test)]
mod tests;
