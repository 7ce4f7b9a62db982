//! The jobs of this node: slots sought, tasks handed out, results judged, vouchers and receipts signed.
//!
//! ```text
//! award ──> Awarded ── Accepted ──> Open ── tasks, results, vouchers ──> Ending ── receipt ──> Closed
//!              │ decline, no answer    │ silence for the grace             │ silence for the retention
//!              └──> Void               └── attempts lost ──────────────────┴──> one-sided close
//! ```

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use souk_protocol::{
    AttemptEnd, AttemptId, Hash, JobId, JobSpec, LeaseEnd, LeaseId, Millis, Mode, NodeId, Offer, Party, RetryOn, Tier,
    Timestamp, Verified, Verify,
};

use crate::{
    auction::{Auction, Table},
    context::{Context, Keys},
    event::{JobState, Keep, Notice, Reason, TaskState},
    job::Job,
    record::Record,
    trader::ReplayError,
};

mod assign;
mod bidding;
mod fold;
mod frames;
mod known;
mod lease;
mod own;
mod place;
mod results;
mod search;
mod straggle;
mod time;
mod views;
mod work;

use known::{Offers, Records, Rtts};
use lease::{Lease, Phase};
pub use views::{LeaseAccountView, Plan, PlannedOffer, RenterLeaseState};
pub use work::{WorkError, work};

/// How long nothing may match before a job that has not started is given up.
const PATIENCE: Millis = Millis(30_000);
/// The same for a job that has started: its providers may come back.
const STALLED: Millis = Millis(600_000);
/// First wait before slots are sought again.
const BACKOFF_FIRST: Millis = Millis(200);
/// Longest.
const BACKOFF_MAX: Millis = Millis(5_000);
/// How long after an award that came too late for the slots `mode = "auto"` holds auctions: asks are for a market with
/// room, where they save a round trip.
const RACED: Millis = Millis(60_000);
/// How long a provider that broke a promise is passed over by the same job, or one that stumbles comes second.
const AVOID: Millis = Millis(30_000);

/// The renter's side of this node.
#[derive(Debug, Default)]
pub struct Renter {
    jobs: BTreeMap<JobId, Job>,
    /// Jobs that are not over.
    live: BTreeSet<JobId>,
    /// Jobs that are, in the order they ended.
    ended: VecDeque<JobId>,
    placing: BTreeMap<JobId, Placing>,
    /// Open auctions by the hash of their call.
    auctions: BTreeMap<Hash, JobId>,
    leases: BTreeMap<LeaseId, Lease>,
    /// Leases and awards that need attention.
    live_leases: BTreeSet<LeaseId>,
    by_job: BTreeMap<JobId, BTreeSet<LeaseId>>,
    closed: VecDeque<LeaseId>,
    /// Results kept with closed leases.
    results: usize,
    with_results: VecDeque<(LeaseId, usize)>,
    offers: Offers,
    rtts: Rtts,
    records: Records,
    keep: Keep,
    /// Until then others are known to want the same slots, and bids say better than asks which are still to be had. Not
    /// durable.
    raced_until: Option<Millis>,
}

/// How slots are sought for a job. Not durable: after a restart the search begins anew.
#[derive(Debug, Default)]
struct Placing {
    auction: Option<Auction>,
    table: Option<Table>,
    round: u32,
    /// Nothing is sought before, whatever offers come: after a restart.
    quiet_until: Option<Millis>,
    /// Nothing is sought before.
    retry_at: Option<Millis>,
    backoff: Millis,
    /// Providers that declined an award or did not answer it since the last wait.
    refused: BTreeSet<NodeId>,
    /// Providers that broke a promise, and until when they are passed over.
    avoid: BTreeMap<NodeId, Millis>,
    /// Providers that lost a task more than once in restarts of their own and said so, and until when others are
    /// preferred. They are honest and there: if nobody else would do, they do.
    stumbled: BTreeMap<NodeId, Millis>,
    /// Providers that declined for a reason that waiting does not change. They may be asked again, but a job whose hope
    /// they are has none.
    hopeless: BTreeSet<NodeId>,
    /// Since when nothing matches.
    nothing_since: Option<Millis>,
    /// Whether somebody would do, had it room.
    full: bool,
    /// When the slots of the open table were asked for, if not at once.
    start_at: Option<Timestamp>,
    /// Given up if nothing has started by then.
    start_by: Option<Millis>,
    /// Given up then.
    deadline: Option<Millis>,
}

impl Placing {
    fn new(job: &Job, now: crate::event::Now) -> Self {
        let left = |at: Timestamp| at.saturating_since(now.wall);
        let sla = &job.spec().sla;
        // A wall clock that was set back since the job was submitted does not make it wait any longer than it said.
        let start = |within: Millis| match sla.start_at {
            Some(at) => left(at.saturating_add(within)),
            None => left(job.submitted().saturating_add(within)).min(within),
        };
        // What cannot be reserved is sought when it is to start.
        let waits = sla.start_at.filter(|_| !reserves(job.spec()));
        Self {
            backoff: BACKOFF_FIRST,
            quiet_until: waits.map(|at| now.mono.saturating_add(left(at))),
            start_by: sla.start_within.map(|within| now.mono.saturating_add(start(within))),
            deadline: sla.deadline.map(|at| now.mono.saturating_add(left(at))),
            ..Self::default()
        }
    }

    /// Waits before the next search, longer each time.
    fn wait(&mut self, now: Millis) {
        self.retry_at = Some(now.saturating_add(self.backoff));
        self.backoff = Millis(self.backoff.0.saturating_mul(2).min(BACKOFF_MAX.0));
    }

    /// The wait is over: whoever refused is asked again.
    fn try_again(&mut self, now: Millis) {
        self.retry_at = None;
        self.refused.clear();
        self.avoid.retain(|_, until| *until > now);
        self.stumbled.retain(|_, until| *until > now);
    }

    /// Somebody matched.
    fn matched(&mut self) {
        self.nothing_since = None;
        self.hopeless.clear();
        self.backoff = BACKOFF_FIRST;
    }

    fn passes_over(&self, provider: &NodeId, now: Millis) -> bool {
        self.refused.contains(provider) || self.avoid.get(provider).is_some_and(|until| *until > now)
    }

    /// Whether others are preferred to this provider.
    fn is_second_choice(&self, provider: &NodeId, now: Millis) -> bool {
        self.stumbled.get(provider).is_some_and(|until| *until > now)
    }
}

impl Renter {
    /// No jobs yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// No jobs yet; of what is over, so much will be kept.
    pub(crate) fn keeping(keep: Keep) -> Self {
        Self { keep, ..Self::default() }
    }

    pub(crate) fn apply(&mut self, record: &Record, keys: &dyn Keys) -> Result<(), ReplayError> {
        fold::apply(self, record, keys)
    }

    /// A round trip was measured.
    pub(crate) fn rtt(&mut self, peer: NodeId, p95: Millis) {
        self.rtts.set(peer, p95);
    }

    pub(crate) fn offer(&mut self, offer: Verified<Offer>, cx: &mut Context<'_>) {
        let provider = offer.provider;
        if offer.network != cx.settings.network || provider == cx.me() || !self.offers.insert(offer, cx.now.wall) {
            return;
        }
        // A job that waits for slots looks again at once if this is what it waits for.
        let waits = |placing: &Placing| placing.retry_at.is_some() && !placing.hopeless.contains(&provider);
        let waiting: Vec<_> = self.placing.iter().filter(|(_, placing)| waits(placing)).map(|(id, _)| *id).collect();
        for id in waiting {
            if self.has_room_for(&id, &provider, cx) {
                if let Some(placing) = self.placing.get_mut(&id) {
                    placing.retry_at = None;
                    placing.refused.remove(&provider);
                }
                self.pump(&id, cx);
            }
        }
    }

    /// This node has more room for its own work than before.
    pub(crate) fn local_room(&mut self, cx: &mut Context<'_>) {
        let me = cx.me();
        let waiting: Vec<_> =
            self.placing.iter().filter(|(_, placing)| placing.retry_at.is_some()).map(|(id, _)| *id).collect();
        for id in waiting {
            if self.local_slots(&id, cx).is_none_or(|slots| slots.is_err()) {
                continue;
            }
            if let Some(placing) = self.placing.get_mut(&id) {
                placing.retry_at = None;
                placing.refused.remove(&me);
            }
            self.pump(&id, cx);
        }
    }

    pub(crate) fn submit(&mut self, id: JobId, spec: Arc<JobSpec>, cx: &mut Context<'_>) {
        if self.jobs.contains_key(&id) {
            return;
        }
        let record = Record::Job { job: id, spec: Arc::clone(&spec), at: cx.now.wall };
        fold::job_submitted(self, id, spec, cx.now.wall);
        let notice = Notice::Job { job: id, state: JobState::Bidding, because: Vec::new() };
        cx.persist(record, vec![crate::event::Output::Notify(notice)]);
        let Some(job) = self.jobs.get(&id) else { return };
        if let Some(reason) = not_available(job.spec()) {
            return self.finish(&id, JobState::Failed, vec![reason], cx);
        }
        self.placing.insert(id, Placing::new(job, cx.now));
        self.pump(&id, cx);
    }

    pub(crate) fn cancel(&mut self, id: JobId, cx: &mut Context<'_>) {
        if self.live.contains(&id) {
            let reason = reason("cancelled", "the user cancelled it", 1, None);
            self.finish(&id, JobState::Cancelled, vec![reason], cx);
        }
    }

    /// A job is over: its awards are void, its leases end, what is under way is stopped and settled.
    fn finish(&mut self, id: &JobId, state: JobState, because: Vec<Reason>, cx: &mut Context<'_>) {
        if !self.live.contains(id) {
            return;
        }
        let at = cx.now.wall;
        let record = Record::JobEnded { job: *id, state, because: because.clone(), at };
        fold::job_ended(self, id, state, because.clone(), at);
        if let Some(auction) = self.placing.remove(id).and_then(|placing| placing.auction) {
            self.auctions.remove(&auction.call().hash());
        }
        let notice = Notice::Job { job: *id, state, because };
        cx.persist(record, vec![crate::event::Output::Notify(notice)]);
        self.pump(id, cx);
        self.forget_jobs();
    }

    fn forget_jobs(&mut self) {
        while self.ended.len() > self.keep.jobs {
            let Some(oldest) = self.ended.pop_front() else { break };
            if self.by_job.get(&oldest).is_some_and(|leases| !leases.is_empty()) {
                self.ended.push_back(oldest); // its leases are not settled yet
                break;
            }
            self.by_job.remove(&oldest);
            self.jobs.remove(&oldest);
        }
    }

    /// Takes a job as far as it will go now.
    fn pump(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let Some(job) = self.jobs.get(id) else { return self.wind_up(id, cx) };
        if let Some((state, because)) = job.outcome() {
            return self.finish(id, state, because, cx);
        }
        if job.state().is_final() {
            return self.wind_up(id, cx);
        }
        self.assign(id, cx);
        self.seek(id, cx);
        self.release(id, cx);
        self.show_state(id, cx);
    }

    /// Ends what is left of the leases of a job that is over.
    fn wind_up(&mut self, id: &JobId, cx: &mut Context<'_>) {
        for lease_id in self.leases_of(id) {
            let Some(lease) = self.leases.get(&lease_id) else { continue };
            match lease.phase {
                Phase::Awarded(_) => self.void(&lease_id, cx),
                Phase::Open | Phase::Ending { .. } => {
                    let held: Vec<_> =
                        lease.open.iter().filter(|(_, open)| open.result.is_some()).map(|(id, _)| *id).collect();
                    for attempt in held {
                        cx.out.push(crate::event::Output::Abandon { attempt });
                        self.judge_for_ended_job(&attempt, cx);
                    }
                    let idle = self.leases.get(&lease_id).is_some_and(Lease::is_idle);
                    let (end, text) = if idle {
                        (LeaseEnd::Completed, "no more work")
                    } else {
                        (LeaseEnd::CancelledByRenter, "the job is over")
                    };
                    self.end_lease(&lease_id, end, text, cx);
                }
                Phase::Void(_) | Phase::Closed { .. } => {}
            }
        }
    }

    /// Ends a lease on this side, once.
    fn end_lease(&mut self, id: &LeaseId, end: LeaseEnd, text: &str, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        if !matches!(lease.phase, Phase::Open) {
            return;
        }
        lease.phase = Phase::Ending { end, by: Party::Renter, since: cx.now.mono };
        lease.tell(souk_protocol::Control::End { end, reason: souk_protocol::Text::clipped(text) }, cx);
        cx.notify(Notice::LeaseEnded { side: Party::Renter, lease: *id, end, by: Party::Renter });
    }

    /// Ends leases that no queued task can use.
    fn release(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let Some(job) = self.jobs.get(id) else { return };
        let nothing_waits = job.first_queued().is_none();
        for lease_id in self.leases_of(id) {
            let Some(lease) = self.leases.get(&lease_id) else { continue };
            if !matches!(lease.phase, Phase::Open) || !lease.is_idle() || lease.unknown {
                continue;
            }
            if nothing_waits || lease.tainted || lease.is_full() || !self.may_use(&lease_id, cx) {
                self.end_lease(&lease_id, LeaseEnd::Completed, "no more work", cx);
            }
        }
    }

    /// Says what state a job is in, if it changed.
    fn show_state(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let awarded = self
            .leases_of(id)
            .iter()
            .any(|lease| self.leases.get(lease).is_some_and(|lease| matches!(lease.phase, Phase::Awarded(_))));
        let Some(job) = self.jobs.get_mut(id) else { return };
        if job.state().is_final() {
            return;
        }
        let state = if job.is_verifying() {
            JobState::Verifying
        } else if job.running() > 0 {
            JobState::Running
        } else if awarded || job.has_started() {
            JobState::Placing
        } else {
            JobState::Bidding
        };
        if state != job.state() {
            job.state = state;
            cx.notify(Notice::Job { job: *id, state, because: Vec::new() });
        }
    }

    /// Gives an attempt up: nothing that comes of it is owed for, unless its task has no other result.
    fn lose(&mut self, attempt: &AttemptId, end: AttemptEnd, text: &str, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(&attempt.lease) else { return };
        let (id, provider) = (lease.job(), lease.provider());
        if lease.open.get(attempt).is_some_and(|open| open.result.is_some()) {
            cx.out.push(crate::event::Output::Abandon { attempt: *attempt });
        }
        let at = cx.now.wall;
        let record = Record::Lost { job: id, attempt: *attempt, end, reason: text.to_owned(), at };
        let Ok(changed) = fold::lost(self, &id, attempt, end, text, at) else { return };
        let notice = Notice::AttemptEnded {
            job: id,
            attempt: *attempt,
            end,
            exit_code: None,
            reason: text.to_owned(),
            billed: false,
        };
        let mut then = vec![crate::event::Output::Notify(notice)];
        then.extend(self.task_notice(&id, attempt.task, changed));
        cx.persist(record, then);
        self.avoid(&id, provider, cx.now.mono);
    }

    fn avoid(&mut self, id: &JobId, provider: NodeId, now: Millis) {
        if let Some(placing) = self.placing.get_mut(id) {
            placing.avoid.insert(provider, now.saturating_add(AVOID));
        }
    }

    fn task_notice(&self, id: &JobId, index: u32, changed: bool) -> Option<crate::event::Output> {
        let state = self.jobs.get(id)?.task(index)?.state();
        changed.then_some(crate::event::Output::Notify(Notice::Task { job: *id, index, state }))
    }

    fn leases_of(&self, id: &JobId) -> Vec<LeaseId> {
        self.by_job.get(id).map(|leases| leases.iter().copied().collect()).unwrap_or_default()
    }

    /// Keeps an award or a lease among those that need attention.
    fn attend(&mut self, id: LeaseId, job: JobId) {
        self.live_leases.insert(id);
        self.by_job.entry(job).or_default().insert(id);
    }

    fn leave(&mut self, id: &LeaseId) {
        self.live_leases.remove(id);
        if let Some(job) = self.leases.get(id).map(Lease::job)
            && let Some(leases) = self.by_job.get_mut(&job)
        {
            leases.remove(id);
            if leases.is_empty() {
                self.by_job.remove(&job);
            }
        }
    }

    /// A lease is closed: it is kept for a while, so that what is repeated gets its stored answer.
    fn retire(&mut self, id: LeaseId, results: usize) {
        self.leave(&id);
        self.closed.push_back(id);
        self.results = self.results.saturating_add(results);
        self.with_results.push_back((id, results));
        while self.results > self.keep.results {
            let Some((oldest, count)) = self.with_results.pop_front() else { break };
            self.results = self.results.saturating_sub(count);
            if let Some(lease) = self.leases.get_mut(&oldest) {
                lease.results = Vec::new();
            }
        }
        if self.closed.len() > self.keep.leases
            && let Some(oldest) = self.closed.pop_front()
        {
            self.leases.remove(&oldest);
        }
    }
}

/// A line of `souk job why`.
fn reason(code: &str, text: impl Into<String>, count: u64, nearest: Option<String>) -> Reason {
    Reason { code: code.to_owned(), text: text.into(), count, nearest }
}

/// What a spec asks for that this version cannot do: refused, never ignored.
fn not_available(spec: &JobSpec) -> Option<Reason> {
    let what = match spec.terms.verify {
        Verify::None | Verify::Telemetry => None,
        Verify::Spot(_) | Verify::Replicate(_) => Some(format!("sla.verify = {}", spec.terms.verify)),
    };
    let what = what.or_else(|| spec.array.tasks.is_empty().then(|| "a job without tasks".to_owned()));
    what.map(|what| reason("not-available", format!("not available yet: {what}"), 1, None))
}

/// Whether slots are reserved ahead: gold by bid. A standing ask is for slots that are free now.
fn reserves(spec: &JobSpec) -> bool {
    spec.sla.start_at.is_some() && spec.terms.tier == Tier::Gold && spec.market.mode != Mode::Ask
}

/// Whether the spec wants a second attempt at what was lost.
fn retries_lost(spec: &JobSpec) -> bool {
    spec.retry.on.contains(&RetryOn::Lost)
}

/// The state of a task that has one.
fn task_state(job: &Job, index: u32) -> Option<TaskState> {
    job.task(index).map(crate::job::Task::state)
}

#[cfg(test)]
mod tests;
