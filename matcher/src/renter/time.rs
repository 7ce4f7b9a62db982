//! Silence, restarts and timers. Unknown is not dead: a lease ends by a signed end or a passed grace, nothing else.

use souk_protocol::{ACCEPT_WITHIN_MS, AttemptEnd, JobId, LeaseEnd, LeaseId, Millis, NodeId, Party};

use super::{
    Placing, Renter,
    lease::{Lease, Phase},
    reason,
};
use crate::{
    channel::Channel,
    context::Context,
    event::{JobState, Output},
};

/// After a restart providers may hold awards that this node forgot. They show them before new ones are made.
const SHOWING: Millis = Millis(ACCEPT_WITHIN_MS);
/// How many graces a provider that is there may take to draft its receipt.
const DRAFT_GRACES: u64 = 10;

impl Renter {
    /// All records are applied: leases go on, jobs seek what they lack.
    pub(crate) fn recovered(&mut self, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        let (boot, live): (u64, Vec<LeaseId>) = (cx.settings.boot, self.live_leases.iter().copied().collect());
        for (id, lease) in &mut self.leases {
            lease.channel = Channel::resumed(*id, boot);
        }
        for id in live {
            let due = self.due(&id, cx);
            let Some(lease) = self.leases.get_mut(&id) else { continue };
            lease.heard = now;
            lease.count_down(cx.now);
            lease.patience = patience(cx.settings);
            for open in lease.open.values_mut() {
                open.due = due;
            }
            let view = lease.view();
            lease.say(souk_protocol::Control::Resume, cx);
            if let Some(job) = self.jobs.get(&view.job) {
                cx.out.push(Output::Serve { lease: view, spec: std::sync::Arc::clone(job.spec()) });
            }
            self.repeat(&id, cx);
        }
        let jobs: Vec<JobId> = self.live.iter().copied().collect();
        for id in &jobs {
            if let Some(job) = self.jobs.get(id) {
                let mut placing = Placing::new(job, cx.now);
                let shown = now.saturating_add(SHOWING);
                placing.quiet_until = Some(placing.quiet_until.map_or(shown, |until| until.max(shown)));
                self.placing.insert(*id, placing);
            }
        }
        // Also jobs that are over: their leases may not know it yet.
        let with_leases = self.by_job.keys().copied().collect::<Vec<_>>();
        for id in jobs.into_iter().chain(with_leases) {
            self.pump(&id, cx);
        }
    }

    pub(crate) fn peer_up(&mut self, peer: NodeId, cx: &mut Context<'_>) {
        for id in &self.live_leases {
            if let Some(lease) = self.leases.get_mut(id)
                && lease.provider() == peer
                && matches!(lease.phase, Phase::Open | Phase::Ending { .. })
            {
                lease.say(souk_protocol::Control::Resume, cx);
                lease.resend(cx);
            }
        }
    }

    /// A connection that is gone means nothing but that: silence alone is counted.
    #[expect(clippy::unused_self, reason = "the trader tells every part")]
    pub(crate) fn peer_down(&mut self, _peer: NodeId, _cx: &mut Context<'_>) {}

    /// When something is due.
    pub(crate) fn wake_at(&self) -> Option<Millis> {
        let leases = self.live_leases.iter().filter_map(|id| self.leases.get(id)).filter_map(Lease::due);
        let jobs = self.placing.iter().filter_map(|(id, placing)| {
            [placing.due(), self.start_ends(id), self.patience_ends(id), self.straggles_at(id)]
                .into_iter()
                .flatten()
                .min()
        });
        leases.chain(jobs).min()
    }

    /// When a job that has not started is given up.
    fn start_ends(&self, id: &JobId) -> Option<Millis> {
        let started = self.jobs.get(id)?.has_started();
        self.placing.get(id)?.start_by.filter(|_| !started)
    }

    pub(crate) fn wake(&mut self, cx: &mut Context<'_>) {
        let leases: Vec<LeaseId> = self.live_leases.iter().copied().collect();
        for id in leases {
            self.tick(&id, cx);
        }
        let jobs: Vec<JobId> = self.placing.keys().copied().collect();
        for id in jobs {
            self.tick_job(&id, cx);
        }
    }

    fn tick_job(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        let passed = |at: Option<Millis>| at.is_some_and(|at| at <= now);
        let Some(placing) = self.placing.get(id) else { return };
        let (deadline, retry) = (placing.deadline, placing.retry_at);
        let hints = self.jobs.get(id).map(|job| job.hints.clone()).unwrap_or_default();
        if passed(deadline) {
            let late = reason("deadline", "the deadline has passed", 1, None);
            return self.finish(id, JobState::Expired, [vec![late], hints].concat(), cx);
        }
        if passed(self.start_ends(id)) {
            let late = reason("start-within", "nothing started within the time given", 1, None);
            // What stood in the way comes first if nothing matched at all.
            let nothing = hints.iter().any(|hint| matches!(hint.code.as_str(), "no-offers" | "no-bids"));
            let because = if nothing { [hints, vec![late]].concat() } else { [vec![late], hints].concat() };
            return self.finish(id, JobState::Expired, because, cx);
        }
        if passed(self.patience_ends(id)) {
            return self.finish(id, JobState::Expired, hints, cx);
        }
        self.close_auction(id, cx);
        if self.double(id, cx) {
            self.pump(id, cx);
        }
        if passed(retry) {
            if let Some(placing) = self.placing.get_mut(id) {
                placing.try_again(now);
            }
            self.pump(id, cx);
        }
    }

    fn tick(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let (now, params) = (cx.now.mono, cx.settings.params);
        let Some(lease) = self.leases.get_mut(id) else { return };
        match lease.phase {
            Phase::Awarded(until) => {
                if until <= now {
                    self.void(id, cx);
                }
                return;
            }
            Phase::Void(until) => {
                if until <= now {
                    self.leave(id);
                    self.leases.remove(id);
                }
                return;
            }
            Phase::Closed { .. } => return,
            Phase::Open | Phase::Ending { .. } => {}
        }
        if lease.channel.resend_at().is_some_and(|at| at <= now) {
            lease.resend(cx);
        }
        if lease.begins.is_some_and(|at| at <= now) {
            lease.begins = None;
            lease.heard = lease.heard.max(now); // silence counts from now on
            let job = lease.job();
            self.pump(&job, cx);
        }
        let Some(lease) = self.leases.get_mut(id) else { return };
        if lease.speak_at() <= now {
            lease.say(souk_protocol::Control::Heartbeat, cx);
        }
        let silence = now.saturating_sub(lease.silent_since());
        if silence >= params.unknown_after && !lease.unknown {
            self.doubt(id, cx);
        }
        if silence >= params.lease_grace {
            self.give_up(id, cx);
        }
        self.overdue(id, cx);
        self.draft_overdue(id, params.lease_grace, cx);
    }

    /// A provider is silent: its tasks may get a second attempt elsewhere.
    fn doubt(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.unknown = true;
        let job_id = lease.job();
        if let Some(job) = self.jobs.get_mut(&job_id)
            && super::retries_lost(job.spec())
        {
            for (attempt, _) in lease.open.iter().filter(|(_, open)| open.result.is_none()) {
                job.doubt(attempt.task);
            }
        }
        self.pump(&job_id, cx);
    }

    /// A provider was silent for longer than the grace: its attempts are lost, and nothing new goes to it. What it
    /// delivered before may still come until the retention ends, as long as it could count.
    fn give_up(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        let Some(lease) = self.leases.get_mut(id) else { return };
        let (job_id, retention) = (lease.job(), lease.award.terms.retention);
        // Not there at the start that was promised.
        let absent = lease.award.start > lease.award.issued && lease.answers.is_empty();
        lease.tainted = true;
        let lost: Vec<_> = lease.open.iter().filter(|(_, open)| open.result.is_none()).map(|(id, _)| *id).collect();
        for attempt in &lost {
            self.lose(attempt, AttemptEnd::Lost, "the provider was silent for longer than the grace", cx);
        }
        let end = if absent { LeaseEnd::ProviderFault } else { LeaseEnd::Unreachable };
        self.end_lease(id, end, "silent for longer than the grace", cx);
        let Some(lease) = self.leases.get(id) else { return };
        let collecting = !lease.open.is_empty();
        let silence = now.saturating_sub(lease.heard);
        let may_count = self.live.contains(&job_id) && self.has_given_up(&job_id, id);
        if !collecting && (!may_count || silence >= retention) {
            self.close(id, end, cx);
        }
        if !lost.is_empty() {
            self.pump(&job_id, cx);
        }
    }

    /// Whether an attempt of this lease was given up whose task has no result yet.
    fn has_given_up(&self, job: &JobId, lease: &LeaseId) -> bool {
        let tasks = self.jobs.get(job).into_iter().flat_map(|job| job.tasks());
        let open = tasks.filter(|task| !task.is_final());
        open.flat_map(|task| task.attempts())
            .any(|attempt| attempt.id.lease == *lease && !attempt.is_open() && attempt.verdict.is_none())
    }

    /// Attempts of which nothing came, though the provider is there.
    fn overdue(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        let Some(lease) = self.leases.get_mut(id) else { return };
        let late: Vec<_> =
            lease.open.iter().filter(|(_, open)| open.result.is_none() && open.due <= now).map(|(id, _)| *id).collect();
        if late.is_empty() {
            return;
        }
        lease.tainted = true;
        let job = lease.job();
        for attempt in late {
            self.cancel_attempt(&attempt, cx);
            self.lose(&attempt, AttemptEnd::Lost, "no result came in the time it may take", cx);
        }
        self.pump(&job, cx);
    }

    /// A provider that is there and drafts no receipt.
    fn draft_overdue(&mut self, id: &LeaseId, grace: Millis, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(id) else { return };
        let Phase::Ending { end, since, .. } = lease.phase else { return };
        let patience = Millis(grace.0.saturating_mul(DRAFT_GRACES));
        if lease.is_idle()
            && cx.now.mono.saturating_sub(since) >= patience
            && cx.now.mono.saturating_sub(lease.heard) < grace
        {
            self.close(id, end, cx);
        }
    }
}

/// Silences after which a lease is unknown, and given up.
pub(super) const fn patience(settings: &crate::event::Settings) -> (Millis, Millis) {
    (settings.params.unknown_after, settings.params.lease_grace)
}

impl Lease {
    /// When it needs attention.
    fn due(&self) -> Option<Millis> {
        match self.phase {
            Phase::Awarded(until) | Phase::Void(until) => return Some(until),
            Phase::Closed { .. } => return None,
            Phase::Open | Phase::Ending { .. } => {}
        }
        let attempts = self.open.values().filter(|open| open.result.is_none()).map(|open| open.due).min();
        let (unknown, grace) = self.patience;
        let since = self.silent_since();
        let doubt = (!self.unknown).then(|| since.saturating_add(unknown));
        let end = matches!(self.phase, Phase::Open).then(|| since.saturating_add(grace));
        [self.channel.resend_at(), Some(self.speak_at()), attempts, doubt, end, self.begins].into_iter().flatten().min()
    }

    /// Which side ended it, if one did.
    pub(super) const fn ended_by(&self) -> Option<(LeaseEnd, Party)> {
        match self.phase {
            Phase::Ending { end, by, .. } | Phase::Closed { end, by, .. } => Some((end, by)),
            _ => None,
        }
    }
}
