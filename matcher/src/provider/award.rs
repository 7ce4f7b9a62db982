//! Announcements and awards: from a call for bids to a lease.

use std::collections::{BTreeMap, VecDeque};

use souk_protocol::{
    ACCEPT_WITHIN_MS, Accepted, Announcement, Award, Basis, Bid, Control, Credits, DeclineCode, Hash, Message, Millis,
    NodeId, Signed, Timestamp, Verified, Work,
};

use super::{MAX_LEASES, Provider, SIDE, lease::Lease, pending, preempt, work};
use crate::{
    context::Context,
    desk::{Asked, BID_BEYOND, MAX_BIDS, OwnBid, Refusal, Wanted},
    event::{Notice, Output, Reason},
    record::Record,
    schedule::OPEN_ENDED,
};

/// Bids whose answer is kept, so that a repeated announcement gets the same one: as many as awards may rest on.
const MAX_CALLS: usize = MAX_BIDS;
/// Declined awards whose answer is kept, so that a repeated award is not judged anew. An award is repeated within its
/// two seconds or never.
const MAX_ANSWERS: usize = 1_024;

/// Declines of awards, and bids by their announcement.
#[derive(Debug, Default)]
pub(super) struct Answers {
    declined: BTreeMap<Hash, Refusal>,
    order: VecDeque<Hash>,
    bids: BTreeMap<Hash, Signed<Bid>>,
    calls: VecDeque<Hash>,
}

impl Answers {
    fn keep(&mut self, award: Hash, refusal: Refusal) {
        if self.declined.insert(award, refusal).is_none() {
            self.order.push_back(award);
        }
        if self.order.len() > MAX_ANSWERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.declined.remove(&oldest);
        }
    }

    /// What was answered to a call, if it was a bid.
    pub(super) fn bid(&self, call: &Hash) -> Option<&Signed<Bid>> {
        self.bids.get(call)
    }

    fn keep_bid(&mut self, call: Hash, bid: Signed<Bid>) {
        if self.bids.insert(call, bid).is_none() {
            self.calls.push_back(call);
        }
        if self.calls.len() > MAX_CALLS
            && let Some(oldest) = self.calls.pop_front()
        {
            self.bids.remove(&oldest);
        }
    }
}

/// How far a peer's clock is from this one.
fn skew(issued: Timestamp, now: Timestamp) -> Millis {
    Millis(issued.0.abs_diff(now.0))
}

pub(super) fn announcement(provider: &mut Provider, call: &Verified<Announcement>, cx: &mut Context<'_>) {
    // Heard before: the same bid again, for two different ones would be two words given.
    if let Some(bid) = provider.answers.bids.get(&call.hash()).cloned() {
        return cx.send(call.renter, Message::Bid(bid));
    }
    match bid(provider, call, cx) {
        Ok(bid) => {
            provider.answers.keep_bid(call.hash(), bid.clone());
            cx.send(call.renter, Message::Bid(bid));
        }
        Err(refusal) => decline(provider, call.renter, call.hash(), &refusal, cx),
    }
}

fn bid(provider: &mut Provider, call: &Verified<Announcement>, cx: &mut Context<'_>) -> Result<Signed<Bid>, Refusal> {
    provider.desk.admit(call.renter, cx.now.mono)?;
    if call.network != cx.settings.network {
        return Err(Refusal::new(DeclineCode::Unknown, "an announcement of another network"));
    }
    same_time(call.renter, call.issued, cx)?;
    let allowed = cx.settings.params.clock_skew;
    if call.closes.0.saturating_add(allowed.0) < cx.now.wall.0 {
        return Err(Refusal::new(DeclineCode::Expired, format!("the auction closed at {}", call.closes)));
    }
    let window = Millis(call.closes.0.saturating_sub(call.issued.0));
    if window > cx.settings.params.bid_window_max {
        let most = cx.settings.params.bid_window_max;
        return Err(Refusal::new(DeclineCode::Terms, format!("an auction is open for at most {most}")));
    }
    selling(provider, &call.renter, cx)?;
    if call.slots == 0 {
        return Err(Refusal::new(DeclineCode::Terms, "at least one slot has to be wanted"));
    }
    let wanted = Wanted { renter: call.renter, requirement: &call.requirement, terms: &call.terms };
    cx.books.age(cx.now.wall);
    let standings = preempt::standings(provider, cx.now.mono);
    let asked = Asked {
        slots: call.slots,
        now: cx.now.mono,
        start_at: call.start_at.map(|at| preempt::moment(at, cx)),
        within: call.start_within,
        trusted: may_reserve(&call.renter, cx),
        standings: &standings,
    };
    let start = call.start_at.unwrap_or(cx.now.wall);
    provider.desk.fits_hours(&call.terms, start)?;
    let quote = provider.desk.quote(&wanted, &asked, call.max_rate, cx.books.room(&call.renter));
    if let (Err(Refusal { code: DeclineCode::Price, .. }), Some(cap)) = (&quote, call.max_rate) {
        provider.desk.refuse_cap(&call.requirement, cap);
    }
    let quote = quote?;
    provider.desk.fits_hours(&call.terms, start.saturating_add(quote.ready_in))?;
    // What is to be had at once may be bid to others at this moment; what is made room for later is in nobody's way.
    let at_once = call.start_at.is_none() && quote.ready_in.is_zero();
    let mut slots = quote.slots;
    if at_once {
        let (total, free) = (provider.desk.total(), provider.desk.free());
        let room = provider.pending.room((&call.renter, &call.job), (total, free), &call.requirement, cx.now.mono);
        slots = slots.min(room);
    }
    if slots == 0 {
        let nearest = format!("all that is free is bid to others; ask again in {}", pending::PENDING_FOR);
        return Err(Refusal::new(DeclineCode::NoCapacity, nearest));
    }
    // Nobody gets a word that outlives the owner's hours.
    let valid_until = call.closes.min(provider.desk.open_until()).saturating_add(BID_BEYOND);
    let bid = Bid {
        announcement: call.hash(),
        renter: call.renter,
        provider: cx.me(),
        rate: quote.rate,
        slots,
        ready_in: quote.ready_in,
        issued: cx.now.wall,
        valid_until,
    };
    let unfit = || Refusal::new(DeclineCode::Terms, "the bid does not fit its document");
    let signed = cx.sign(&bid).ok_or_else(unfit)?;
    let own = OwnBid {
        renter: call.renter,
        job: call.job,
        requirement: call.requirement.clone(),
        terms: call.terms,
        rate: quote.rate,
        slots,
        ready_in: quote.ready_in,
        start_at: call.start_at,
        valid_until,
    };
    if !provider.desk.remember_bid(signed.hash(), own, cx.now.wall) {
        return Err(Refusal::new(DeclineCode::Busy, "too many bids are open"));
    }
    if at_once {
        let amount = pending::amount(&call.requirement, slots);
        provider.pending.promise(signed.hash(), call.renter, call.job, amount, cx.now.mono);
    }
    Ok(signed.into_signed())
}

fn same_time(renter: NodeId, issued: Timestamp, cx: &mut Context<'_>) -> Result<(), Refusal> {
    let skew = skew(issued, cx.now.wall);
    let allowed = cx.settings.params.clock_skew;
    if skew > allowed {
        cx.notify(Notice::ClockSkew { peer: renter, skew });
        return Err(Refusal::new(
            DeclineCode::ClockSkew,
            format!("clocks differ by {skew}, at most {allowed} is allowed"),
        ));
    }
    Ok(())
}

/// Whether a renter may reserve the whole machine ahead: in an open network everybody, else those the owner trusts.
fn may_reserve(renter: &NodeId, cx: &Context<'_>) -> bool {
    cx.settings.open || cx.books.trusted(renter).is_some()
}

fn selling(provider: &Provider, renter: &NodeId, cx: &Context<'_>) -> Result<(), Refusal> {
    if *renter != cx.me() && provider.desk.policy().is_some_and(|policy| policy.own_only) {
        return Err(Refusal::new(DeclineCode::Closed, "the node works for itself alone"));
    }
    if provider.draining {
        return Err(Refusal::new(DeclineCode::Closed, "the node is stopping"));
    }
    if provider.paused {
        return Err(Refusal::new(DeclineCode::Closed, "the owner uses the machine"));
    }
    provider.desk.is_open(cx.now)?;
    if provider.leases.len() >= MAX_LEASES {
        return Err(Refusal::new(DeclineCode::NoCapacity, format!("at most {MAX_LEASES} leases are kept")));
    }
    Ok(())
}

fn decline(provider: &mut Provider, renter: NodeId, subject: Hash, refusal: &Refusal, cx: &mut Context<'_>) {
    provider.desk.count(refusal);
    cx.decline(renter, subject, refusal.code, &refusal.nearest);
    let nearest = (!refusal.nearest.is_empty()).then(|| refusal.nearest.clone());
    let reason =
        Reason { code: refusal.code.word().to_owned(), text: "did not bid or accept".to_owned(), count: 1, nearest };
    cx.notify(Notice::Declined { renter, reason });
}

pub(super) fn award(provider: &mut Provider, award: Verified<Award>, work: Vec<Work>, cx: &mut Context<'_>) {
    let (renter, hash) = (award.renter, award.hash());
    if let Some(lease) = provider.leases.get_mut(&award.lease) {
        if lease.award.hash() == hash {
            lease.resend(cx); // the stored answer, if it has not arrived
        } else {
            cx.blame(renter, format_args!("two awards of lease {}", award.lease.short()));
            cx.decline(renter, hash, DeclineCode::Unknown, "this lease id is taken");
        }
        return;
    }
    if provider.closed.award(&award, cx) {
        return;
    }
    if let Some(refusal) = provider.answers.declined.get(&hash).cloned() {
        cx.decline(renter, hash, refusal.code, &refusal.nearest);
        return;
    }
    if let Basis::Bid { bid, table: _ } = award.basis {
        provider.pending.settle(&bid);
    }
    if let Err(refusal) = accept(provider, award, work, cx) {
        decline(provider, renter, hash, &refusal, cx);
        provider.answers.keep(hash, refusal);
    }
}

fn accept(
    provider: &mut Provider,
    award: Verified<Award>,
    work: Vec<Work>,
    cx: &mut Context<'_>,
) -> Result<(), Refusal> {
    provider.desk.admit(award.renter, cx.now.mono)?;
    if cx.now.wall > award.accept_by {
        let late = Millis(cx.now.wall.0.saturating_sub(award.accept_by.0));
        return Err(Refusal::new(DeclineCode::Expired, format!("the award ended {late} ago")));
    }
    same_time(award.renter, award.issued, cx)?;
    if award.accept_by.0.saturating_sub(award.issued.0) > ACCEPT_WITHIN_MS {
        return Err(Refusal::new(DeclineCode::Terms, format!("an award stands for at most {ACCEPT_WITHIN_MS} ms")));
    }
    selling(provider, &award.renter, cx)?;
    basis(provider, &award, cx)?;
    let wanted = Wanted { renter: award.renter, requirement: &award.requirement, terms: &award.terms };
    provider.desk.check(&wanted)?;
    let start = if award.start > award.issued { award.start } else { cx.now.wall };
    provider.desk.fits_hours(&award.terms, start)?;
    first_tasks(&award, &work)?;
    let step = award.rate.charge(award.terms.timeout);
    let tasks = u64::try_from(work.len()).unwrap_or(u64::MAX).max(1);
    let Some(extra) = step.and_then(|step| step.checked_mul(tasks)) else {
        return Err(Refusal::new(DeclineCode::Price, "the price of one attempt does not fit an amount"));
    };
    lend(&award, extra, cx)?;
    let unfit = || Refusal::new(DeclineCode::Terms, "the acceptance does not fit its document");
    let accepted = Accepted {
        lease: award.lease,
        award: award.hash(),
        provider: award.provider,
        renter: award.renter,
        at: cx.now.wall,
    };
    let accepted = cx.sign(&accepted).ok_or_else(unfit)?;
    let start_at = (award.start > award.issued).then(|| preempt::moment(award.start, cx));
    // Nobody makes room for what starts now.
    let standings = start_at.map_or_else(Vec::new, |_| preempt::standings(provider, cx.now.mono));
    let asked =
        Asked { slots: award.slots, now: cx.now.mono, start_at, within: None, trusted: true, standings: &standings };
    let mut place = provider.desk.place(&wanted, &asked)?;
    let basis = award.basis;
    let boot = cx.provider_boot(&award.renter);
    if start_at.is_some() {
        provider.desk.book(award.lease, &award.requirement, award.slots, place.from, place.until)?;
        preempt::cut(provider, &place, cx);
        wait(provider, Lease::new(award, accepted, boot, cx.now.mono), work, place.from, cx);
    } else {
        place.until = place.until.min(provider.desk.leave_by(cx.now));
        provider.desk.take(award.lease, &award.requirement, award.slots, &place)?;
        open(provider, Lease::new(award, accepted, boot, cx.now.mono), work, place.until, cx);
    }
    match basis {
        Basis::Bid { bid, .. } => {
            provider.desk.won();
            provider.desk.close_bid(&bid);
        }
        Basis::Ask { .. } => provider.desk.ask_taken(),
    }
    Ok(())
}

/// The lease is agreed, its slots become its own later.
fn wait(provider: &mut Provider, mut lease: Lease, work: Vec<Work>, from: Millis, cx: &mut Context<'_>) {
    lease.begins = Some(from);
    answer(&mut lease, cx);
    for work in work {
        work::task(&mut lease, work, cx);
    }
    provider.waiting.insert(lease.id());
    enter(provider, lease, cx);
}

/// The run starts at once; the signed acceptance follows its sync.
fn open(provider: &mut Provider, mut lease: Lease, work: Vec<Work>, until: Millis, cx: &mut Context<'_>) {
    lease.vacate = Some(until).filter(|until| *until < OPEN_ENDED);
    lease.for_owner = until == provider.desk.leave_by(cx.now);
    lease.slots_open = true;
    cx.out.push(Output::OpenLease(lease.view()));
    let renter = lease.renter();
    cx.out.extend(work.iter().map(|work| Output::Run { renter, work: work.clone() }));
    answer(&mut lease, cx);
    for work in work {
        work::started(&mut lease, &work, cx);
    }
    enter(provider, lease, cx);
}

/// Writes down what is agreed, and says so once that is durable.
fn answer(lease: &mut Lease, cx: &mut Context<'_>) {
    let (award, accepted) = (lease.award.signed().clone(), lease.accepted.signed().clone());
    let mut then = lease.framed(Control::Accepted(accepted.clone()), cx.now.mono);
    then.push(Output::Notify(Notice::Leased { side: SIDE, lease: lease.view() }));
    cx.persist(Record::Accepted { award, accepted }, then);
}

fn enter(provider: &mut Provider, lease: Lease, cx: &mut Context<'_>) {
    let id = lease.id();
    provider.insert(lease);
    provider.after(&id, cx);
    provider.refresh(cx);
}

fn basis(provider: &Provider, award: &Award, cx: &Context<'_>) -> Result<(), Refusal> {
    let unknown = |nearest: &str| Err(Refusal::new(DeclineCode::Unknown, nearest));
    if award.slots == 0 {
        return Err(Refusal::new(DeclineCode::Terms, "a lease has at least one slot"));
    }
    if award.renter == cx.me() {
        return match award.rate.is_zero() {
            true => Ok(()), // a node owes itself nothing
            false => Err(Refusal::new(DeclineCode::Price, "work for this node itself is free")),
        };
    }
    match award.basis {
        Basis::Bid { bid, table: _ } => {
            let Some(own) = provider.desk.bid(&bid) else { return unknown("the bid is not known here") };
            let same = own.renter == award.renter
                && own.job == award.job
                && own.requirement == award.requirement
                && own.terms == award.terms
                && own.rate == award.rate;
            if !same {
                return unknown("the award is not what was bid for");
            }
            if award.slots > own.slots {
                return unknown(&format!("the bid was for {} slots, asked {}", own.slots, award.slots));
            }
            let start = own.start_at.unwrap_or(award.issued.saturating_add(own.ready_in));
            if award.start != start {
                return unknown(&format!("the bid was for a start at {start}, asked {}", award.start));
            }
            if own.valid_until < cx.now.wall {
                return Err(Refusal::new(DeclineCode::Expired, format!("the bid was valid until {}", own.valid_until)));
            }
        }
        Basis::Ask { offer } => {
            let Some((asks, expires)) = provider.desk.offer(&offer) else {
                return unknown("the offer is not known here");
            };
            if award.start > award.issued {
                return Err(Refusal::new(DeclineCode::Terms, "a standing ask is for slots that are free now"));
            }
            if expires < cx.now.wall {
                return Err(Refusal::new(DeclineCode::Expired, format!("the offer ended at {expires}")));
            }
            if asks.rate(&award.requirement) != Some(award.rate) {
                return Err(Refusal::new(DeclineCode::Price, "the rate is not the one asked for in the offer"));
            }
        }
    }
    Ok(())
}

fn first_tasks(award: &Award, tasks: &[Work]) -> Result<(), Refusal> {
    if tasks.len() > usize::try_from(award.slots).unwrap_or(usize::MAX) {
        let nearest = format!("{} tasks for {} slots", tasks.len(), award.slots);
        return Err(Refusal::new(DeclineCode::Terms, nearest));
    }
    let mut seen = std::collections::BTreeSet::new();
    for task in tasks {
        work::fits(award, task).map_err(|error| Refusal::new(DeclineCode::Terms, error))?;
        if !seen.insert((task.attempt.task, task.attempt.replica)) {
            return Err(Refusal::new(DeclineCode::Terms, format!("task {} comes twice", task.attempt.task)));
        }
    }
    Ok(())
}

fn lend(award: &Award, extra: Credits, cx: &mut Context<'_>) -> Result<(), Refusal> {
    if award.renter == cx.me() {
        return Ok(());
    }
    cx.books.age(cx.now.wall);
    let blocked = cx.books.may_start(&award.renter, extra);
    blocked.map_err(|blocked| Refusal::new(DeclineCode::NoCredit, blocked.to_string()))
}
