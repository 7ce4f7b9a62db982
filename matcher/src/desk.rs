//! The bidding desk: can I, may I, do I want to, and at what price.
//!
//! Nothing is held for a bid. Capacity is taken at the award and by checked arithmetic alone, so that
//! `0 <= used <= total` whatever arrives in whatever order. What is taken later stands in the schedule from the award on,
//! and whatever is taken after that has to fit beside it.

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{
    AttemptEnd, Capacity, Credits, DeclineCode, Hash, JobId, LeaseId, Millis, NodeId, Pay, PriceList, Rate,
    Requirement, Terms, Tier, Timestamp,
};

use crate::{
    event::{Now, Policy, Reason},
    schedule::{self, Hold, OPEN_ENDED, Schedule, less, plus, times, within},
};

mod fit;
mod hours;
mod plan;
mod throttle;

use hours::Hours;
pub use plan::{Board, Claim, FETCH_SLACK, Standing, may_stop, reach};
use throttle::Throttle;

/// Own bids remembered for the awards that rest on them. Beyond it no new ones are made: the oldest is at most some
/// seconds old, so so many bids are a flood.
pub const MAX_BIDS: usize = 4_096;
/// Own live offers remembered for awards by their asks: one each two seconds for the ten minutes of an offer's life.
pub const MAX_OFFERS: usize = 512;
/// A bid is valid for so long beyond the end of its auction.
pub const BID_BEYOND: Millis = Millis(2_000);
const HOUR: Millis = Millis(3_600_000);
/// An award may be so long on its way, clocks included: whoever makes room for it gets its whole notice all the same.
const AWARD_SLACK: Millis = Millis(4_000);
/// Longest time that results are kept for a renter: disk space that earns nothing.
pub const MAX_RETENTION: Millis = Millis(30 * 24 * 3_600_000);
/// How far ahead slots can be reserved.
pub const MAX_AHEAD: Millis = Millis(30 * 24 * 3_600_000);
/// Strangers may reserve this part of the machine and no more: a reservation costs them nothing until it begins.
pub const STRANGERS_PART: u64 = 4;
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
    /// How long after the award they are ready.
    pub ready_in: Millis,
    /// When they were asked for, if not at once.
    pub start_at: Option<Timestamp>,
    /// Until when.
    pub valid_until: Timestamp,
}

/// A price and how many slots of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quote {
    /// Of one slot.
    pub rate: Rate,
    /// How many.
    pub slots: u32,
    /// How long after an award they are ready: zero if they are free.
    pub ready_in: Millis,
}

/// When slots are wanted, and who could make room for them.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// How many.
    pub slots: u32,
    /// The time, on the monotonic clock.
    pub now: Millis,
    /// When they are wanted on the same clock, if not at once.
    pub start_at: Option<Millis>,
    /// How long they may take to be ready, if that is bounded.
    pub within: Option<Millis>,
    /// Whether the renter may reserve more than a stranger.
    pub trusted: bool,
    /// The leases there are.
    pub standings: &'a [Standing],
}

/// Where a lease finds its slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// From when on, on the monotonic clock.
    pub from: Millis,
    /// Up to when.
    pub until: Millis,
    /// Leases that have to be gone by `from`.
    pub cuts: Vec<LeaseId>,
}

/// What the desk sells, what is taken, and what it has promised.
#[derive(Debug, Default)]
pub struct Desk {
    policy: Option<Policy>,
    used: Capacity,
    taken: BTreeMap<LeaseId, Capacity>,
    schedule: Schedule,
    bids: BTreeMap<Hash, OwnBid>,
    bid_ends: BTreeSet<(Timestamp, Hash)>,
    offers: BTreeMap<Hash, (PriceList, Timestamp)>,
    throttle: Throttle,
    declined: BTreeMap<DeclineCode, (u64, String)>,
    interrupted: Interrupted,
    hours: Hours,
}

/// What preemption did to work that allows it.
#[derive(Debug, Clone, Copy, Default)]
struct Interrupted {
    times: u64,
    run: Millis,
}

impl Desk {
    /// The owner's terms from now on.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = Some(policy);
        self.hours.forget();
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
        less(self.total(), self.used)
    }

    /// Who holds what and when, those that have not begun included.
    #[must_use]
    pub const fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Whether `wanted` is something this node does at all.
    ///
    /// # Errors
    /// Why not, with what would have been enough.
    pub fn check(&self, wanted: &Wanted<'_>) -> Result<(), Refusal> {
        let Some(policy) = self.policy.as_ref().filter(|policy| policy.total != Capacity::default()) else {
            return Err(Refusal::new(DeclineCode::Closed, "nothing is on sale here"));
        };
        fit::policy(policy, wanted)?;
        terms(wanted.terms)?;
        if may_stop(wanted.terms) && wanted.terms.notice > policy.notice {
            let nearest = format!("gives notice of at most {}, asked {}", policy.notice, wanted.terms.notice);
            return Err(Refusal::new(DeclineCode::Terms, nearest));
        }
        fit::size(&policy.total, wanted.requirement)
    }

    /// How many slots of what is wanted are free at this moment, within the owner's hours.
    ///
    /// # Errors
    /// Why there are none.
    pub fn free_now(&self, wanted: &Wanted<'_>, now: Now) -> Result<u32, Refusal> {
        self.check(wanted)?;
        self.fits_hours(wanted.terms, now.wall)?;
        let total = self.total();
        let board = Board { total: &total, schedule: &self.schedule, standings: &[] };
        let free = board.free_slots(wanted.requirement, wanted.terms, now.mono);
        match free.min(self.free().slots(wanted.requirement)) {
            0 => Err(plan::no_room(&board, now.mono, wanted.requirement, 1)),
            slots => Ok(slots),
        }
    }

    /// How many slots there are, and how long they take to be ready.
    fn slots(&self, wanted: &Wanted<'_>, asked: &Asked<'_>) -> Result<(u32, Millis), Refusal> {
        let (need, terms, total) = (wanted.requirement, wanted.terms, self.total());
        let board = Board { total: &total, schedule: &self.schedule, standings: asked.standings };
        let claim = Claim::Tier(terms.tier);
        if let Some(at) = asked.start_at {
            let least = self.reservable(terms, asked)?.slots(need).min(asked.slots);
            let slots = board.slots(need, least, at, claim);
            return if slots > 0 { Ok((slots, Millis::ZERO)) } else { Err(plan::no_room(&board, at, need, 1)) };
        }
        let free = board.free_slots(need, terms, asked.now).min(self.free().slots(need));
        if free > 0 {
            return Ok((free, Millis::ZERO));
        }
        // Whoever takes slots from others waits for the notice those are given.
        let by = asked.now.saturating_add(asked.within.unwrap_or(MAX_AHEAD).min(MAX_AHEAD));
        let slots = board.slots(need, asked.slots, by, claim);
        let ready = times(need, slots).filter(|_| slots > 0);
        let ready = ready.and_then(|amount| board.soonest(&amount, asked.now, by, claim));
        let ready_in = ready.map(|at| at.saturating_sub(asked.now).saturating_add(AWARD_SLACK));
        ready_in
            .filter(|ready_in| asked.within.is_none_or(|within| *ready_in <= within))
            .map(|ready_in| (slots, ready_in))
            .ok_or_else(|| plan::no_room(&board, asked.now, need, 1))
    }

    /// What may still be reserved ahead.
    fn reservable(&self, terms: &Terms, asked: &Asked<'_>) -> Result<Capacity, Refusal> {
        let ahead = asked.start_at.unwrap_or(asked.now).saturating_sub(asked.now);
        if ahead > MAX_AHEAD {
            return Err(Refusal::new(DeclineCode::Terms, format!("slots are reserved at most {MAX_AHEAD} ahead")));
        }
        if terms.tier != Tier::Gold {
            return Err(Refusal::new(DeclineCode::Terms, "only gold is reserved: leave start_at out"));
        }
        let total = self.total();
        if asked.trusted {
            return Ok(total);
        }
        let most = total.map(|amount| amount.checked_div(STRANGERS_PART).unwrap_or(0));
        let ahead = self.schedule.holds().filter(|(lease, _)| !self.taken.contains_key(lease));
        let taken = ahead.fold(Capacity::default(), |sum, (_, hold)| plus(sum, hold.amount).unwrap_or(most));
        Ok(less(most, taken))
    }

    /// The price of a slot, how many there are and when.
    ///
    /// # Errors
    /// Why there is none.
    pub fn quote(
        &self,
        wanted: &Wanted<'_>,
        asked: &Asked<'_>,
        max_rate: Option<Rate>,
        room: Credits,
    ) -> Result<Quote, Refusal> {
        self.check(wanted)?;
        let (free, ready_in) = self.slots(wanted, asked)?;
        let rate = self.price(wanted, max_rate)?;
        let Some(step) = rate.charge(wanted.terms.timeout) else {
            return Err(Refusal::new(DeclineCode::Price, "the price of one attempt does not fit an amount"));
        };
        let lendable = room.0.checked_div(step.0).unwrap_or(u64::from(u32::MAX));
        if lendable == 0 {
            let nearest =
                format!("you may owe {room} more, one attempt of up to {} costs {step}", wanted.terms.timeout);
            return Err(Refusal::new(DeclineCode::NoCredit, nearest));
        }
        let slots = free.min(asked.slots).min(u32::try_from(lendable).unwrap_or(u32::MAX));
        Ok(Quote { rate, slots, ready_in })
    }

    fn price(&self, wanted: &Wanted<'_>, max_rate: Option<Rate>) -> Result<Rate, Refusal> {
        let need = wanted.requirement;
        let fits = |list: Option<PriceList>| {
            let no_fit = || Refusal::new(DeclineCode::Price, "the price of so large a slot does not fit an amount");
            list.and_then(|list| list.rate(need)).ok_or_else(no_fit)
        };
        let ask = fits(self.asks_for(wanted.terms.timeout))?;
        let floor = fits(self.floor())?;
        match max_rate {
            Some(cap) if cap < floor => {
                Err(Refusal::new(DeclineCode::Price, format!("at least {floor}, you pay at most {cap}")))
            }
            Some(cap) => Ok(ask.min(cap)),
            None => Ok(ask),
        }
    }

    /// Where a lease of so many slots would find them: at once, or from `start_at` on.
    ///
    /// # Errors
    /// If it would not.
    pub fn place(&self, wanted: &Wanted<'_>, asked: &Asked<'_>) -> Result<Place, Refusal> {
        let (need, slots, total) = (wanted.requirement, asked.slots, self.total());
        let board = Board { total: &total, schedule: &self.schedule, standings: asked.standings };
        let at = asked.start_at.unwrap_or(asked.now);
        let none = |_| plan::no_room(&board, at, need, slots);
        let too_large = || Refusal::new(DeclineCode::TooLarge, format!("{slots} slots do not fit an amount"));
        let amount = times(need, slots).ok_or_else(too_large)?;
        if let Some(from) = asked.start_at {
            let cuts = board.make_room(&amount, from, Claim::Tier(wanted.terms.tier)).map_err(none)?;
            return Ok(Place { from, until: OPEN_ENDED, cuts });
        }
        let free = self.free();
        if !within(&amount, &free) {
            return Err(Refusal::new(DeclineCode::NoCapacity, fit::nearest(&total, &free, need, slots)));
        }
        let until = board.gap(&amount, wanted.terms, asked.now).map_err(none)?;
        Ok(Place { from: asked.now, until, cuts: Vec::new() })
    }

    /// Takes `slots` times `need` for a lease, at once. A lease takes once.
    ///
    /// # Errors
    /// If it is not free; nothing is taken then.
    pub fn take(&mut self, lease: LeaseId, need: &Requirement, slots: u32, place: &Place) -> Result<(), Refusal> {
        self.book(lease, need, slots, place.from, place.until)?;
        if self.begin(&lease) {
            return Ok(());
        }
        self.schedule.remove(&lease);
        let total = self.total();
        Err(Refusal::new(DeclineCode::NoCapacity, fit::nearest(&total, &self.free(), need, slots)))
    }

    /// Promises `slots` times `need` to a lease that begins later. The leases that have to make room are cut by the
    /// caller.
    ///
    /// # Errors
    /// If the amounts do not fit a number.
    pub fn book(
        &mut self,
        lease: LeaseId,
        need: &Requirement,
        slots: u32,
        from: Millis,
        until: Millis,
    ) -> Result<Capacity, Refusal> {
        let too_large = || Refusal::new(DeclineCode::TooLarge, format!("{slots} slots do not fit an amount"));
        let amount = times(need, slots).ok_or_else(too_large)?;
        self.schedule.insert(lease, Hold { amount, from, until }).map_err(|schedule::TooMuch| too_large())?;
        Ok(amount)
    }

    /// What was promised to a lease is its own from now on. Whether it is there: whoever had to make room may be late.
    pub fn begin(&mut self, lease: &LeaseId) -> bool {
        if self.taken.contains_key(lease) {
            return true;
        }
        let Some(amount) = self.schedule.get(lease).map(|hold| hold.amount) else { return false };
        // While a journal is replayed the owner's terms are not known: what had begun had room.
        let sum = plus(self.used, amount).filter(|sum| self.policy.is_none() || within(sum, &self.total()));
        let Some(sum) = sum else { return false };
        self.used = sum;
        self.taken.insert(*lease, amount);
        true
    }

    /// Whether what was promised to a lease is its own.
    #[must_use]
    pub fn holds(&self, lease: &LeaseId) -> bool {
        self.taken.contains_key(lease)
    }

    /// Until when a lease fits beside all others.
    #[must_use]
    pub fn stays_until(&self, lease: &LeaseId, total: &Capacity, now: Millis) -> Millis {
        let mut others = self.schedule.clone();
        let Some(hold) = others.remove(lease) else { return now };
        others.fits_until(total, &hold.amount, now).unwrap_or(now)
    }

    /// A lease that had to be gone may stay until then.
    pub fn stay(&mut self, lease: &LeaseId, until: Millis) {
        self.schedule.open_end(lease);
        self.schedule.end_by(lease, until);
    }

    /// Forgets who holds what when, for [`book`](Self::book) to say it anew.
    pub fn clear_schedule(&mut self) {
        self.schedule = Schedule::default();
    }

    /// A lease has to be gone by `until`.
    pub fn end_by(&mut self, lease: &LeaseId, until: Millis) {
        self.schedule.end_by(lease, until);
    }

    /// Takes without asking the policy: what a journaled lease holds, whatever is on sale now.
    ///
    /// # Errors
    /// If the amounts do not fit.
    pub fn hold(&mut self, lease: LeaseId, need: &Requirement, slots: u32) -> Result<(), Refusal> {
        if self.taken.contains_key(&lease) {
            return Ok(());
        }
        let grant = self.book(lease, need, slots, Millis::ZERO, OPEN_ENDED)?;
        // Less than the sum of the schedule, which fits.
        self.used = plus(self.used, grant).unwrap_or(self.used);
        self.taken.insert(lease, grant);
        Ok(())
    }

    /// Gives back what a lease holds. Whether it held anything.
    pub fn release(&mut self, lease: &LeaseId) -> bool {
        let booked = self.schedule.remove(lease).is_some();
        let Some(grant) = self.taken.remove(lease) else { return booked };
        // A lease gives back exactly what it took, so this never saturates.
        self.used = less(self.used, grant);
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
            self.hours.run_out();
        }
        if self.bids.len() >= MAX_BIDS && !self.bids.contains_key(&hash) {
            return false;
        }
        self.hours.bid();
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

    /// Takes note of an attempt that ended, for [`interruptions`](Self::interruptions).
    pub fn observe(&mut self, terms: &Terms, end: AttemptEnd, run: Millis) {
        if may_stop(terms) && !run.is_zero() {
            let times = u64::from(end == AttemptEnd::Preempted);
            self.interrupted.times = self.interrupted.times.saturating_add(times);
            self.interrupted.run = self.interrupted.run.saturating_add(run);
        }
    }

    /// Preemptions in a million hours of preemptible work. Less than an hour of work counts as one.
    #[must_use]
    pub fn interruptions(&self) -> u32 {
        let times = u128::from(self.interrupted.times).saturating_mul(1_000_000).saturating_mul(HOUR.0.into());
        let rate = times.checked_div(self.interrupted.run.max(HOUR).0.into()).unwrap_or(0);
        u32::try_from(rate).unwrap_or(u32::MAX)
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
