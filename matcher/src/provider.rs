//! The work of this node for others: bids, leases, attempts, results, receipts.
//!
//! ```text
//! award ──> Open ── tasks, results, vouchers ──> Ending ── all settled ──> Drafted ── renter signs ──> closed
//!             │ silence for the grace               │ no answer                │ silence for the retention
//!             └─────────────────────────────────────┴──────────────────────────┴──────────> one-sided close
//! ```

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{
    Announcement, AttemptId, Award, Balance, Capacity, Credits, JobId, LeaseEnd, LeaseFrame, LeaseId, List, Lost,
    Millis, NodeId, Party, ReceiptFile, RunState, Sample, Tally, TaskResult, Timestamp, Verified, Work,
};

use crate::{
    books::Books,
    context::{Context, Keys},
    desk::Desk,
    event::{Keep, LeaseView, Outcome, Policy, Reason},
    record::Record,
    trader::ReplayError,
};

mod award;
mod closed;
mod end;
mod hours;
mod lease;
mod offer;
mod outbid;
mod pending;
mod preempt;
mod replay;
mod time;
mod work;

use award::Answers;
use closed::Closed;
use lease::{Attempt, Lease, Phase};
use offer::Offers;
pub use outbid::Outbid;
use outbid::Outbids;
use pending::Pending;

/// Leases that are not closed. Open ones are bounded by capacity; the others wait for a renter that may come back.
pub const MAX_LEASES: usize = 4_096;

/// The provider's side of this node.
#[derive(Debug, Default)]
pub struct Provider {
    desk: Desk,
    leases: BTreeMap<LeaseId, Lease>,
    closed: Closed,
    answers: Answers,
    offers: Offers,
    outbids: Outbids,
    /// Bids that may be awarded at any moment.
    pending: Pending,
    draining: bool,
    /// The owner uses its machine itself.
    paused: bool,
    /// The journal is replayed; before that nothing is decided.
    recovered: bool,
    /// The schedule of a replayed journal is still to be made: that takes the clock and the owner's terms.
    unplanned: bool,
    /// Somebody for whom others had to go has gone before.
    replan: bool,
    /// Leases that have not begun.
    waiting: BTreeSet<LeaseId>,
    /// Leases accepted so far.
    accepted: u64,
}

/// How a lease of this node as provider stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseState {
    /// It takes tasks.
    Open,
    /// Its slots are promised from a later time on.
    Waiting,
    /// The renter has been silent for longer than the network's `unknown_after`, or not been heard since a restart.
    Unknown,
    /// No new tasks; what runs ends, what is delivered is settled.
    Ending(LeaseEnd),
    /// The receipt waits for the renter's signature.
    Drafted(LeaseEnd),
    /// The renter was silent for longer than the grace; results are kept until the retention ends.
    Lapsed,
}

/// A lease of this node as provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderLease {
    /// Parties, slots, rate.
    pub lease: LeaseView,
    /// How it stands.
    pub state: LeaseState,
    /// Since when it has been.
    pub opened: Timestamp,
    /// Attempts under way.
    pub running: Vec<AttemptId>,
    /// Tasks that wait for a slot.
    pub queued: usize,
    /// Results that wait for the renter's answer.
    pub unsettled: usize,
    /// Attempts that are owed for.
    pub billed: usize,
    /// What is owed by voucher.
    pub total: Credits,
}

/// What is on sale, taken and free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CapacityView {
    /// On sale.
    pub total: Capacity,
    /// Held by leases.
    pub used: Capacity,
    /// The rest.
    pub free: Capacity,
}

/// What a peer brought in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Earned {
    /// Who.
    pub peer: NodeId,
    /// By vouchers, ever.
    pub vouchered: Credits,
    /// Delivered and not vouchered.
    pub claimed: Credits,
    /// After discharges and opposite debts.
    pub balance: Balance,
}

impl Provider {
    /// Sells nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No leases yet; of those that are over, so much will be kept.
    pub(crate) fn keeping(keep: Keep) -> Self {
        Self { closed: Closed::keeping(keep), ..Self::default() }
    }

    pub(crate) fn apply(&mut self, record: &Record, keys: &dyn Keys) -> Result<(), ReplayError> {
        replay::apply(self, record, keys)
    }

    pub(crate) fn recovered(&mut self, cx: &mut Context<'_>) {
        time::recovered(self, cx);
    }

    pub(crate) fn wake(&mut self, cx: &mut Context<'_>) {
        time::wake(self, cx);
    }

    pub(crate) fn wake_at(&self) -> Option<Millis> {
        time::wake_at(self)
    }

    pub(crate) fn peer_up(&mut self, peer: NodeId, cx: &mut Context<'_>) {
        time::peer_up(self, peer, cx);
    }

    /// A connection that is gone means nothing but that: silence alone is counted.
    #[expect(clippy::unused_self, reason = "the trader tells every part")]
    pub(crate) fn peer_down(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}

    /// Whatever matters is repeated by its own timer; repeating at once would only fail again.
    #[expect(clippy::unused_self, reason = "the trader tells every part")]
    pub(crate) fn send_failed(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}

    pub(crate) fn policy(&mut self, policy: Policy, cx: &mut Context<'_>) {
        cx.books.limit(policy.stranger_limit, policy.strangers_limit);
        let moved = self
            .desk
            .policy()
            .is_some_and(|old| old.calendar != policy.calendar || old.at_window_end != policy.at_window_end);
        self.desk.set_policy(policy);
        if self.desk.look(cx.now) && self.desk.is_shut() {
            hours::shut(self, cx);
        }
        if moved && self.recovered {
            preempt::plan_anew(self, cx);
        }
        preempt::shrink(self, cx);
        self.tell_offer(cx);
    }

    pub(crate) fn announce(&mut self, announcement: Verified<Announcement>, cx: &mut Context<'_>) {
        self.look(cx);
        award::announcement(self, &announcement, cx);
    }

    pub(crate) fn award(&mut self, award: Verified<Award>, work: Vec<Work>, cx: &mut Context<'_>) {
        self.look(cx);
        award::award(self, award, work, cx);
    }

    pub(crate) fn lost(&mut self, lost: &Lost, tally: &Tally, cx: &mut Context<'_>) {
        outbid::lost(self, lost, tally, cx);
    }

    pub(crate) fn frame(&mut self, from: NodeId, frame: LeaseFrame, cx: &mut Context<'_>) {
        self.look(cx);
        let id = frame.lease;
        if let Some(lease) = self.leases.get_mut(&id) {
            if lease.renter() == from {
                if let Some(body) = time::hear(lease, frame, cx) {
                    self.control(id, body, cx);
                }
                self.after(&id, cx);
            } else {
                cx.blame(from, format_args!("a frame of lease {}, to which it is no party", id.short()));
            }
        } else {
            self.closed.frame(from, frame, cx);
        }
        self.refresh(cx);
    }

    pub(crate) fn knows(&self, lease: &LeaseId) -> bool {
        self.leases.contains_key(lease) || self.closed.has(lease)
    }

    pub(crate) fn running(&mut self, attempt: AttemptId, state: RunState, cx: &mut Context<'_>) {
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            work::running(lease, attempt, state, cx);
            lease.due = time::due(lease, cx.settings);
        }
    }

    pub(crate) fn ended(&mut self, attempt: AttemptId, outcome: Outcome, cx: &mut Context<'_>) {
        self.look(cx);
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            if matches!(lease.attempts.get(&attempt), Some(Attempt::Running { .. })) {
                self.desk.observe(&lease.award.terms, outcome.end, outcome.run);
            }
            work::ended(lease, attempt, outcome, cx);
            self.after(&attempt.lease, cx);
            self.refresh(cx);
        }
    }

    pub(crate) fn samples(&mut self, attempt: AttemptId, samples: List<Sample, 64>, cx: &mut Context<'_>) {
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            work::samples(lease, attempt, samples, cx);
            lease.due = time::due(lease, cx.settings);
        }
    }

    pub(crate) fn drain(&mut self, cx: &mut Context<'_>) {
        self.draining = true;
        let ids: Vec<_> = self.leases.keys().copied().collect();
        for id in ids {
            if let Some(lease) = self.leases.get_mut(&id) {
                end::by_provider(lease, LeaseEnd::Preempted, "the node is stopping", None, cx);
                self.after(&id, cx);
            }
        }
        self.tell_offer(cx);
    }

    pub(crate) fn pause(&mut self, paused: bool, cx: &mut Context<'_>) {
        if self.paused == paused {
            return;
        }
        self.paused = paused;
        cx.persist(Record::Selling { paused }, Vec::new());
        if paused {
            preempt::reclaim(self, cx);
        }
        self.tell_offer(cx);
    }

    fn insert(&mut self, mut lease: Lease) {
        self.accepted = self.accepted.saturating_add(1);
        lease.order = self.accepted;
        self.leases.insert(lease.id(), lease);
    }

    /// Whether nothing is sold now.
    const fn is_closed(&self) -> bool {
        self.draining || self.paused || self.desk.is_shut()
    }

    /// Follows the owner's hours and the price of the moment.
    fn look(&mut self, cx: &mut Context<'_>) {
        if self.desk.look(cx.now) {
            if self.desk.is_shut() {
                hours::shut(self, cx);
            }
            self.tell_offer(cx);
        }
    }

    /// Tells the network what is on sale, now.
    fn tell_offer(&mut self, cx: &mut Context<'_>) {
        let closed = self.is_closed();
        self.offers.announce(&mut self.desk, closed, cx);
    }

    /// Tells it if that is due.
    fn refresh(&mut self, cx: &mut Context<'_>) {
        let closed = self.is_closed();
        self.offers.refresh(&mut self.desk, closed, cx);
    }

    /// Starts what may start on a lease, and ends it as far as it has come to its end.
    fn after(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        work::fill(lease, cx);
        end::advance(self, id, cx);
        preempt::begin_waiting(self, cx);
        if std::mem::take(&mut self.replan) {
            preempt::let_stay(self, cx);
        }
        if let Some(lease) = self.leases.get_mut(id) {
            lease.due = time::due(lease, cx.settings);
        }
    }

    /// The desk: what is sold on which terms, and why it did not bid.
    #[must_use]
    pub const fn desk(&self) -> &Desk {
        &self.desk
    }

    /// Whether it has stopped selling.
    #[must_use]
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether the owner uses its machine itself.
    #[must_use]
    pub const fn is_paused(&self) -> bool {
        self.paused
    }

    /// Whether the schedule of a replayed journal has been made.
    pub(crate) const fn is_planned(&self) -> bool {
        self.recovered && !self.unplanned
    }

    /// A lease that will not be gone when it has to be, though nobody is late.
    pub(crate) fn outstays(&self, now: Millis) -> Option<(LeaseId, Millis)> {
        self.leases.values().find_map(|lease| preempt::outstays(lease, now))
    }

    /// What is on sale, taken and free.
    #[must_use]
    pub fn capacity(&self) -> CapacityView {
        CapacityView { total: self.desk.total(), used: self.desk.used(), free: self.desk.free() }
    }

    /// Leases that are not closed, as they stand at `now` on the monotonic clock.
    #[must_use]
    pub fn leases(&self, now: Millis, unknown_after: Millis) -> Vec<ProviderLease> {
        self.leases.values().map(|lease| view(lease, now, unknown_after)).collect()
    }

    /// Results that wait for the renter's answer: their outputs and logs must be there for it, also after a restart.
    #[must_use]
    pub fn delivered(&self) -> Vec<TaskResult> {
        let attempts = self.leases.values().flat_map(|lease| lease.attempts.values());
        attempts
            .filter_map(|attempt| match attempt {
                Attempt::Delivered { result, .. } => Some(TaskResult::clone(result)),
                Attempt::Running { .. } => None,
            })
            .collect()
    }

    /// Why this node did not bid or accept, most frequent first.
    #[must_use]
    pub fn why(&self) -> Vec<Reason> {
        self.desk.why().into_iter().chain(self.outbids.why()).collect()
    }

    /// What came of this node's bid on a job, if it did not win.
    #[must_use]
    pub fn outbid(&self, job: &JobId) -> Option<&Outbid> {
        self.outbids.get(job)
    }

    /// Jobs on which this node bid in vain, the newest few.
    pub fn outbids(&self) -> impl Iterator<Item = (&JobId, &Outbid)> {
        self.outbids.iter()
    }

    /// What each peer brought in, by the books.
    #[must_use]
    pub fn earned(&self, books: &Books) -> Vec<Earned> {
        books
            .peers()
            .map(|peer| Earned {
                peer,
                vouchered: books.earned(&peer),
                claimed: books.claimed(&peer),
                balance: books.balance(&peer),
            })
            .filter(|earned| !earned.vouchered.is_zero() || !earned.claimed.is_zero())
            .collect()
    }

    /// All documents of a lease whose receipt both sides signed, while they are kept.
    #[must_use]
    pub fn receipt_file(&self, lease: &LeaseId) -> Option<ReceiptFile> {
        self.closed.receipt_file(lease)
    }
}

fn view(lease: &Lease, now: Millis, unknown_after: Millis) -> ProviderLease {
    let state = match &lease.phase {
        _ if lease.lapsed.is_some() => LeaseState::Lapsed,
        Phase::Ending { end, .. } => LeaseState::Ending(*end),
        Phase::Drafted { receipt, .. } => LeaseState::Drafted(receipt.end),
        Phase::Open if lease.begins.is_some() => LeaseState::Waiting,
        Phase::Open if now.saturating_sub(lease.heard) >= unknown_after => LeaseState::Unknown,
        Phase::Open => LeaseState::Open,
    };
    let running = |(id, attempt): (&AttemptId, &Attempt)| matches!(attempt, Attempt::Running { .. }).then_some(*id);
    let running: Vec<_> = lease.attempts.iter().filter_map(running).collect();
    ProviderLease {
        lease: lease.view(),
        state,
        opened: lease.accepted.at,
        queued: lease.queue.len(),
        unsettled: lease.attempts.len().saturating_sub(running.len()),
        running,
        billed: lease.account.billed().len(),
        total: lease.account.total(),
    }
}

/// This node's side in what concerns its leases as provider.
const SIDE: Party = Party::Provider;

#[cfg(test)]
mod tests;
