//! What a provider says on a lease.

use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Close, Control, JobId, LeaseEnd, LeaseFrame, LeaseId, Millis, NodeId, Party,
    Receipt, RunState, Signed, TaskResult, Timestamp,
};

use super::{
    Renter, fold,
    lease::{Lease, Phase},
    work,
};
use crate::{
    channel::{Channel, Heard},
    context::Context,
    event::{Notice, Output},
    record::Record,
};

impl Renter {
    pub(crate) fn knows(&self, lease: &LeaseId) -> bool {
        self.leases.contains_key(lease)
    }

    pub(crate) fn frame(&mut self, from: NodeId, frame: LeaseFrame, cx: &mut Context<'_>) {
        let (id, numbered) = (frame.lease, frame.number != 0);
        let Some(lease) = self.leases.get_mut(&id) else { return };
        if lease.provider() != from {
            return cx.blame(from, format_args!("a frame of lease {}, to which it is no party", id.short()));
        }
        let now = cx.now.mono;
        lease.heard = now;
        let was_unknown = std::mem::take(&mut lease.unknown);
        let (body, restarted) = match lease.channel.handle(frame, now) {
            Heard::New(body) => (Some(body), false),
            Heard::Alive(body) => (Some(body), false),
            Heard::Again => {
                if matches!(lease.phase, Phase::Closed { .. }) {
                    lease.resend(cx); // it has no timers: what was said last got lost
                }
                (None, false)
            }
            Heard::Restarted(body) => (Some(body), true),
        };
        if numbered || restarted {
            lease.owe_ack(now);
        }
        if restarted {
            self.repeat(&id, cx);
        } else {
            lease.say_answers(cx);
        }
        if was_unknown {
            self.heard_again(&id, cx);
        }
        if let Some(body) = body {
            self.control(&id, body, numbered, cx);
        }
    }

    /// Says what is durable and may be unanswered, to a provider that starts anew or after a restart of this node.
    pub(super) fn repeat(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        if matches!(lease.phase, Phase::Awarded(_) | Phase::Void(_)) {
            return;
        }
        lease.repeat_answers(cx);
        let under_way: Vec<_> = lease
            .open
            .iter()
            .filter(|(_, open)| open.result.is_none())
            .map(|(attempt, open)| (*attempt, open.cancelled))
            .collect();
        match &lease.phase {
            Phase::Ending { end, by: Party::Renter, .. } => {
                let end = *end;
                lease.tell(Control::End { end, reason: souk_protocol::Text::clipped("") }, cx);
                return;
            }
            Phase::Closed { receipt: Some((_, ours)), .. } => {
                let body = Control::Receipt(ours.clone());
                lease.tell(body, cx);
                return;
            }
            _ => {}
        }
        let Some(spec) = self.jobs.get(&lease.job()).map(|job| std::sync::Arc::clone(job.spec())) else { return };
        let job = lease.job();
        for (attempt, cancelled) in under_way {
            let body = if cancelled {
                Some(Control::Cancel { attempt })
            } else {
                work::work(&job, &spec, attempt).ok().map(Control::Task)
            };
            if let Some(body) = body {
                lease.tell(body, cx);
            }
        }
    }

    /// A provider that was silent is there again: its tasks need no second attempt, unless one has begun.
    fn heard_again(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let job_id = lease.job();
        if let Some(placing) = self.placing.get_mut(&job_id) {
            placing.avoid.remove(&lease.provider()); // for its silence, which is over
        }
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let mut late = Vec::new();
        for (attempt, open) in &lease.open {
            if open.result.is_some() {
                continue;
            }
            if job.task(attempt.task).is_none_or(crate::job::Task::is_final) {
                late.push(*attempt);
            } else {
                job.trust_again(attempt.task);
            }
        }
        for attempt in late {
            self.cancel_attempt(&attempt, cx);
        }
        self.pump(&job_id, cx);
    }

    /// Tells the provider to stop an attempt, once.
    pub(super) fn cancel_attempt(&mut self, attempt: &AttemptId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(&attempt.lease) else { return };
        if let Some(open) = lease.open.get_mut(attempt)
            && !std::mem::replace(&mut open.cancelled, true)
        {
            lease.tell(Control::Cancel { attempt: *attempt }, cx);
        }
    }

    fn control(&mut self, id: &LeaseId, body: Control, numbered: bool, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let (provider, closed) = (lease.provider(), matches!(lease.phase, Phase::Closed { .. }));
        match body {
            // Telemetry is kept by the driver, which sees the message too; the market's rules do not depend on it.
            Control::Heartbeat | Control::Telemetry(_) | Control::Show { .. } => {}
            Control::Resume => {
                lease.resend(cx);
                if !closed {
                    lease.say(Control::Heartbeat, cx);
                }
            }
            Control::Accepted(accepted) => self.accepted(id, &accepted, cx),
            Control::Progress { attempt, state, at } => self.progress(id, attempt, state, at, cx),
            Control::Result(result) => self.result(id, &result, cx),
            Control::End { end, reason } => {
                // Unnumbered: the provider has closed the lease and keeps nothing but this answer.
                if numbered {
                    self.ended_by_provider(id, end, &reason, cx)
                } else {
                    self.closed_by_provider(id, end, cx)
                }
            }
            Control::Receipt(draft) => self.drafted(id, &draft, cx),
            Control::Notice { stop_in } => self.noticed(id, stop_in, cx),
            Control::Unknown => self.unknown_there(id, cx),
            Control::Task(_) | Control::Done { .. } | Control::Refused { .. } | Control::Cancel { .. } => {
                cx.blame(provider, "said what only a renter says");
            }
        }
    }

    /// The provider accepts an award.
    fn accepted(&mut self, id: &LeaseId, signed: &Signed<Accepted>, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let void = match lease.phase {
            Phase::Awarded(_) => false,
            Phase::Void(_) => true,
            _ => return, // heard before
        };
        let provider = lease.provider();
        let accepted = match cx.verify(signed) {
            Ok(accepted) => accepted,
            Err(error) => return cx.blame(provider, format_args!("acceptance: {error}")),
        };
        if let Err(what) = fold::fits(&lease.award, &accepted) {
            return cx.blame(provider, what);
        }
        let skew = souk_protocol::Millis(accepted.at.0.abs_diff(cx.now.wall.0));
        if skew > cx.settings.params.clock_skew.saturating_add(cx.now.mono.saturating_sub(lease.sent)) {
            cx.notify(Notice::ClockSkew { peer: provider, skew });
        }
        let promised = std::mem::take(&mut lease.promised);
        let (job_id, sent, view) = (lease.job(), lease.sent, lease.view());
        let record = Record::Lease { award: lease.award.signed().clone(), accepted: signed.clone() };
        if fold::leased(self, id, accepted).is_err() {
            return;
        }
        cx.persist(record, Vec::new());
        cx.notify(Notice::Leased { side: Party::Renter, lease: view });
        if void || !self.live.contains(&job_id) {
            self.end_lease(id, LeaseEnd::CancelledByRenter, "the award was void", cx);
            return;
        }
        if let Some(placing) = self.placing.get_mut(&job_id) {
            placing.matched();
        }
        let waits = self.leases.get(id).filter(|lease| lease.begins.is_some()).map(|lease| lease.award.start);
        if let Some((start, job)) = waits.zip(self.jobs.get_mut(&job_id)) {
            job.hint(super::reason(
                "reserved",
                "leases whose slots are promised for later",
                1,
                Some(start.to_string()),
            ));
        }
        for attempt in promised {
            let Some(job) = self.jobs.get_mut(&job_id) else { continue };
            job.unpromise(attempt.task);
            let fits = job.next_attempt(*id, attempt.task) == attempt
                && job.task(attempt.task).is_some_and(|task| !task.is_final());
            if fits {
                self.hand_out(&job_id, attempt, Some(sent), cx);
            } else if let Some(lease) = self.leases.get_mut(id) {
                lease.tell(Control::Cancel { attempt }, cx);
            }
        }
        self.pump(&job_id, cx);
    }

    /// Journals that an attempt is under way.
    pub(super) fn hand_out(
        &mut self,
        job: &JobId,
        attempt: AttemptId,
        sent: Option<souk_protocol::Millis>,
        cx: &mut Context<'_>,
    ) -> bool {
        let due = self.due(&attempt.lease, cx);
        let Some(before) = self.jobs.get(job).and_then(|job| super::task_state(job, attempt.task)) else {
            return false;
        };
        if fold::handed_out(self, job, attempt, cx.now.wall, due).is_err() {
            return false;
        }
        let Some(lease) = self.leases.get_mut(&attempt.lease) else { return false };
        if let Some(open) = lease.open.get_mut(&attempt) {
            open.sent = sent;
        }
        let provider = lease.provider();
        cx.persist(Record::Attempt { job: *job, attempt, at: cx.now.wall }, Vec::new());
        cx.notify(Notice::Attempt { job: *job, attempt, provider });
        if before != crate::event::TaskState::Running {
            let state = crate::event::TaskState::Running;
            cx.notify(Notice::Task { job: *job, index: attempt.task, state });
        }
        true
    }

    fn progress(&mut self, id: &LeaseId, attempt: AttemptId, state: RunState, at: Timestamp, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let (job_id, run) = (lease.job(), lease.longest_run());
        let Some(open) = lease.open.get_mut(&attempt) else { return }; // it is over or was never handed out
        if state == RunState::Running {
            // What was set aside for fetching is not needed any more.
            let grace = cx.settings.params.lease_grace;
            open.due = open.due.min(cx.now.mono.saturating_add(run).saturating_add(grace));
        }
        if let Some(job) = self.jobs.get_mut(&job_id) {
            job.progress(&attempt, state, at);
            cx.notify(Notice::Progress { job: job_id, attempt, state });
        }
    }

    /// The provider ends a lease: what runs there ends or is stopped, and results follow.
    fn ended_by_provider(&mut self, id: &LeaseId, end: LeaseEnd, text: &str, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let (job_id, provider) = (lease.job(), lease.provider());
        match lease.phase {
            Phase::Open => {}
            Phase::Awarded(_) => return self.void(id, cx),
            _ => return,
        }
        lease.phase = Phase::Ending { end, by: Party::Provider, since: cx.now.mono };
        cx.notify(Notice::LeaseEnded { side: Party::Renter, lease: *id, end, by: Party::Provider });
        // If it was this node that was not heard of, it kept its promise.
        if end != LeaseEnd::Unreachable {
            self.avoid(&job_id, provider, cx.now.mono);
        }
        if let Some(job) = self.jobs.get_mut(&job_id) {
            let nearest = (!text.is_empty()).then(|| text.to_owned());
            job.hint(super::reason("lease-ended", format!("leases that providers ended as {end}"), 1, nearest));
        }
        self.pump(&job_id, cx);
    }

    /// The provider will stop what runs on a lease. It gets nothing more; a second attempt begins once the first has
    /// ended, for it may still be done in time.
    fn noticed(&mut self, id: &LeaseId, stop_in: Millis, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        if std::mem::replace(&mut lease.noticed, true) {
            return; // it is said twice
        }
        lease.tainted = true;
        let job = lease.job();
        cx.notify(Notice::Preempting { side: Party::Renter, lease: *id, stop_in });
        if let Some(job) = self.jobs.get_mut(&job) {
            let text = "leases that providers gave notice of";
            job.hint(super::reason("notice", text, 1, Some(format!("what runs is stopped in {stop_in}"))));
        }
    }

    /// The provider has closed a lease and forgotten its attempts.
    fn closed_by_provider(&mut self, id: &LeaseId, end: LeaseEnd, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(id) else { return };
        if matches!(lease.phase, Phase::Open | Phase::Ending { .. }) {
            self.lose_all(id, "the provider closed the lease", cx);
            self.close(id, end, cx);
        } else if matches!(lease.phase, Phase::Awarded(_)) {
            self.void(id, cx);
        }
    }

    /// The provider knows nothing of a lease.
    fn unknown_there(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(id) else { return };
        match lease.phase {
            Phase::Awarded(_) => self.void(id, cx),
            Phase::Open | Phase::Ending { .. } => {
                self.lose_all(id, "the provider has forgotten the lease", cx);
                self.close(id, LeaseEnd::ProviderFault, cx);
            }
            Phase::Void(_) | Phase::Closed { .. } => {}
        }
    }

    /// Gives up all attempts of a lease whose result has not come.
    pub(super) fn lose_all(&mut self, id: &LeaseId, text: &str, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        lease.tainted = true; // what is queued again must not go to it again
        let job = lease.job();
        let left: Vec<_> = lease.open.keys().copied().collect();
        for attempt in left {
            self.lose(&attempt, AttemptEnd::Lost, text, cx);
        }
        self.pump(&job, cx);
    }

    /// The one-sided end of a lease that the provider left.
    pub(super) fn close(&mut self, id: &LeaseId, end: LeaseEnd, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(id) else { return };
        if matches!(lease.phase, Phase::Closed { .. }) {
            return;
        }
        let told = matches!(lease.phase, Phase::Ending { .. });
        let job = lease.job();
        let statement = Close {
            lease: *id,
            by: cx.me(),
            other: lease.provider(),
            end,
            vouchered: lease.account.total(),
            claimed: souk_protocol::Credits::ZERO,
            at: cx.now.wall,
        };
        let Some(signed) = cx.sign(&statement) else { return };
        fold::closed(self, &signed);
        cx.persist(Record::Close(signed.into_signed()), Vec::new());
        if !told {
            cx.notify(Notice::LeaseEnded { side: Party::Renter, lease: *id, end, by: Party::Provider });
        }
        self.pump(&job, cx);
    }

    /// The provider's draft of the receipt.
    fn drafted(&mut self, id: &LeaseId, signed: &Signed<Receipt>, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let (job, provider) = (lease.job(), lease.provider());
        match &lease.phase {
            Phase::Closed { receipt: Some((draft, ours)), .. } => {
                if draft.hash() == signed.hash() && lease.channel.is_settled() {
                    let body = Control::Receipt(ours.clone());
                    lease.tell(body, cx);
                }
                return;
            }
            Phase::Awarded(_) | Phase::Void(_) => return,
            Phase::Open | Phase::Ending { .. } | Phase::Closed { receipt: None, .. } => {}
        }
        let draft = match cx.verify(signed) {
            Ok(draft) if draft.signer() == provider => draft,
            Ok(_) => return cx.blame(provider, format_args!("a draft of lease {} that it did not sign", id.short())),
            Err(error) => return cx.blame(provider, format_args!("receipt: {error}")),
        };
        if let Err(what) = lease.check(&draft) {
            return cx.blame(provider, format_args!("the receipt of lease {} differs in {what}", id.short()));
        }
        // What the provider gave up before its draft is in no account.
        let told = !matches!(lease.phase, Phase::Open);
        let left: Vec<_> = lease.open.keys().copied().collect();
        for attempt in left {
            self.lose(&attempt, AttemptEnd::Lost, "the provider closed its account without it", cx);
        }
        let Some(lease) = self.leases.get_mut(id) else { return };
        let Some(ours) = cx.sign(&*draft) else { return };
        let then_frames = lease.framed(Control::Receipt(ours.signed().clone()), cx.now.mono);
        let record = Record::Receipt { provider: signed.clone(), renter: Some(ours.signed().clone()) };
        let document = draft.clone().into_document();
        let (end, by) = (draft.end, draft.ended_by);
        if fold::receipt(self, draft, ours).is_err() {
            return;
        }
        let mut then = then_frames;
        then.push(Output::Notify(Notice::Receipt { side: Party::Renter, receipt: document }));
        if !told {
            cx.notify(Notice::LeaseEnded { side: Party::Renter, lease: *id, end, by });
        }
        cx.persist(record, then);
        self.pump(&job, cx);
    }

    /// A provider shows an award that this node forgot in a restart.
    pub(crate) fn shown(&mut self, from: NodeId, frame: LeaseFrame, cx: &mut Context<'_>) {
        let Control::Show { award, accepted } = &frame.body else { return };
        let (award, accepted) = match (cx.verify(award), cx.verify(accepted)) {
            (Ok(award), Ok(accepted)) => (award, accepted),
            (Err(error), _) | (_, Err(error)) => return cx.blame(from, format_args!("shown lease: {error}")),
        };
        let id = award.lease;
        let ours = award.signer() == cx.me() && award.provider == from && id == frame.lease;
        if !ours || award.network != cx.settings.network || fold::fits(&award, &accepted).is_err() {
            return cx.blame(from, "showed a lease that is not one of this node with it");
        }
        let job_id = award.job;
        let mut lease = Lease::new(award, Phase::Awarded(cx.now.mono), cx.settings.boot, cx.now.mono);
        let record = Record::Lease { award: lease.award.signed().clone(), accepted: accepted.signed().clone() };
        let (view, step) = (lease.view(), lease.step());
        lease.patience = super::time::patience(cx.settings);
        lease.count_down(cx.now);
        lease.channel = Channel::resumed(id, cx.settings.boot);
        lease.channel.handle(frame, cx.now.mono);
        self.leases.insert(id, lease);
        if fold::leased(self, &id, accepted).is_err() {
            self.leases.remove(&id);
            return;
        }
        let spec = self.jobs.get(&job_id).map(|job| std::sync::Arc::clone(job.spec()));
        if let Some(spec) = spec {
            cx.out.push(Output::Serve { lease: view.clone(), spec });
        }
        cx.persist(record, Vec::new());
        cx.notify(Notice::Leased { side: Party::Renter, lease: view });
        let promised = self.promised(&job_id);
        let affordable = self
            .jobs
            .get(&job_id)
            .is_some_and(|job| !job.state().is_final() && job.budget_left(promised).is_none_or(|left| left >= step));
        if affordable {
            self.pump(&job_id, cx);
        } else {
            self.end_lease(&id, LeaseEnd::CancelledByRenter, "the award was forgotten", cx);
        }
    }

    /// A result, believed only as far as it is signed.
    fn result(&mut self, id: &LeaseId, signed: &Signed<TaskResult>, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(id) else { return };
        let (provider, job) = (lease.provider(), lease.job());
        match cx.verify(signed) {
            Ok(result) => {
                let fits = result.signer() == provider
                    && result.renter == cx.me()
                    && result.attempt.lease == *id
                    && result.job == job;
                if fits {
                    self.heard_result(result, cx);
                } else {
                    cx.blame(provider, format_args!("a result on lease {} that is not of it", id.short()));
                }
            }
            Err(error) => cx.blame(provider, format_args!("result: {error}")),
        }
    }
}
