//! Results: brought home, judged, answered with a voucher or a refusal.

use souk_protocol::{
    AttemptEnd, AttemptId, Billed, Bytes, Control, Credits, JobId, LeaseId, Millis, NodeId, TaskResult, Text, Verified,
};

use super::{AVOID, Renter, fold, lease::Phase};
use crate::{
    context::Context,
    event::{Notice, Output},
    job::{Attempt, AttemptState, Task},
    record::{Record, Verdict},
    transfer,
};

impl Renter {
    /// When an attempt handed out now is given up if no result comes: its inputs may be fetched at the slowest rate there
    /// is, and it may take all its time and be slow to stop.
    pub(super) fn due(&self, lease: &LeaseId, cx: &Context<'_>) -> Millis {
        let Some(lease) = self.leases.get(lease) else { return cx.now.mono };
        let data = self.jobs.get(&lease.job()).map_or(Bytes::ZERO, |job| job.spec().data_len());
        let fetch = transfer::allowance(cx.settings.params.lease_grace, data.0);
        cx.now.mono.saturating_add(fetch).saturating_add(lease.longest_run())
    }

    /// A verified result on a lease of this node.
    pub(super) fn heard_result(&mut self, result: Verified<TaskResult>, cx: &mut Context<'_>) {
        let attempt = result.attempt;
        let Some(lease) = self.leases.get(&attempt.lease) else { return };
        if lease.has_answered(&attempt) {
            return; // its answer is said until it is acknowledged
        }
        match lease.phase {
            Phase::Open | Phase::Ending { .. } => {}
            Phase::Closed { .. } => return self.refuse(&attempt, "the lease is closed", cx),
            Phase::Awarded(_) | Phase::Void(_) => return,
        }
        if !lease.open.contains_key(&attempt) && !self.take_up(&attempt, cx) {
            return self.refuse(&attempt, "no such attempt is under way", cx);
        }
        let job_id = result.job;
        let Some(lease) = self.leases.get_mut(&attempt.lease) else { return };
        let Some(open) = lease.open.get_mut(&attempt) else { return };
        if open.result.is_some() {
            return;
        }
        open.result = Some((result.clone(), cx.now.mono));
        let provider = lease.provider();
        match result.end {
            AttemptEnd::Preempted | AttemptEnd::ProviderFault => {
                // It cannot or will not go on now; nothing more is given to it on this lease.
                lease.tainted = true;
                self.avoid(&job_id, provider, cx.now.mono);
            }
            AttemptEnd::Lost => self.stumbled(&job_id, &attempt, provider, cx.now.mono),
            _ => {}
        }
        let Some(job) = self.jobs.get_mut(&job_id) else { return self.judge_for_ended_job(&attempt, cx) };
        if job.state().is_final() {
            return self.judge_for_ended_job(&attempt, cx);
        }
        if job.task(attempt.task).is_none_or(Task::is_final) {
            self.judge(&attempt, Verdict::Unbilled, "another attempt was first", cx);
        } else if !result.end.is_billed() {
            self.judge(&attempt, Verdict::Unbilled, "", cx);
        } else if result.stdout.len == 0 && result.stderr.len == 0 && result.manifest_len == 0 {
            self.judge_held(&attempt, cx); // there is nothing to bring home
        } else {
            job.collecting(&attempt, result.end);
            let provider = result.provider;
            cx.out.push(Output::Collect { provider, result });
        }
        self.pump(&job_id, cx);
    }

    /// A provider says itself that it lost an attempt, in a restart of its own or while nothing was heard of this node. It
    /// is there again and its lease goes on; if it was the same task the time before, others come first.
    fn stumbled(&mut self, job_id: &JobId, attempt: &AttemptId, provider: NodeId, now: Millis) {
        let task = self.jobs.get(job_id).and_then(|job| job.task(attempt.task));
        let lost = |other: &Attempt| {
            let ended = other.state == AttemptState::Ended(AttemptEnd::Lost);
            other.id != *attempt && other.provider == provider && ended && other.verdict.is_some()
        };
        if !task.is_some_and(|task| task.attempts().iter().any(lost)) {
            return;
        }
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            lease.tainted = true;
        }
        if let Some(placing) = self.placing.get_mut(job_id) {
            placing.stumbled.insert(provider, now.saturating_add(AVOID));
        }
    }

    /// A result of an attempt that is not under way as far as this node knows: one given up before, or one forgotten in a
    /// restart. It is taken up if its task still wants a result and the budget has room. Whether it was.
    fn take_up(&mut self, attempt: &AttemptId, cx: &mut Context<'_>) -> bool {
        let Some(lease) = self.leases.get(&attempt.lease) else { return false };
        let (job_id, step) = (lease.job(), lease.step());
        let promised = self.promised(&job_id);
        let Some(job) = self.jobs.get(&job_id) else { return false };
        let wanted = !job.state().is_final() && job.task(attempt.task).is_some_and(|task| !task.is_final());
        if !wanted || job.budget_left(promised).is_some_and(|left| left < step) {
            return false;
        }
        let given_up = job.find(attempt).is_some_and(|known| !known.is_open() && known.verdict.is_none());
        if given_up {
            let due = self.due(&attempt.lease, cx);
            let open = super::lease::Open { sent: None, due, result: None, cancelled: false };
            if let Some(lease) = self.leases.get_mut(&attempt.lease) {
                lease.open.insert(*attempt, open);
            }
            return true;
        }
        let forgotten = job.next_attempt(attempt.lease, attempt.task) == *attempt && job.is_queued(attempt.task);
        forgotten && self.hand_out(&job_id, *attempt, None, cx)
    }

    /// Says that a result does not count, without a record: nothing here knows the attempt.
    fn refuse(&mut self, attempt: &AttemptId, text: &str, cx: &mut Context<'_>) {
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            lease.tell(Control::Refused { attempt: *attempt, reason: Text::clipped(text) }, cx);
        }
    }

    pub(crate) fn held(&mut self, attempt: AttemptId, cx: &mut Context<'_>) {
        self.judge_held(&attempt, cx);
        self.pump_of(&attempt, cx);
    }

    pub(crate) fn not_held(&mut self, attempt: AttemptId, reason: &str, cx: &mut Context<'_>) {
        let text = format!("its outputs could not be had: {reason}");
        self.judge(&attempt, Verdict::Unbilled, &text, cx);
        self.pump_of(&attempt, cx);
    }

    fn pump_of(&mut self, attempt: &AttemptId, cx: &mut Context<'_>) {
        if let Some(job) = self.leases.get(&attempt.lease).map(super::Lease::job) {
            self.pump(&job, cx);
        }
    }

    fn result_of(&self, attempt: &AttemptId) -> Option<&Verified<TaskResult>> {
        let (result, _) = self.leases.get(&attempt.lease)?.open.get(attempt)?.result.as_ref()?;
        Some(result)
    }

    /// What a result counts for whose outputs are held.
    fn judge_held(&mut self, attempt: &AttemptId, cx: &mut Context<'_>) {
        let Some(result) = self.result_of(attempt) else { return };
        let verdict = if result.end == AttemptEnd::Done { Verdict::Done } else { Verdict::Billed };
        let job_id = result.job;
        let Some(job) = self.jobs.get(&job_id) else { return };
        if job.state().is_final() {
            self.judge_for_ended_job(attempt, cx);
        } else if job.task(attempt.task).is_none_or(Task::is_final) {
            self.judge(attempt, Verdict::Unbilled, "another attempt was first", cx);
        } else if verdict != Verdict::Done && !job.find(attempt).is_some_and(Attempt::is_open) {
            self.judge(attempt, Verdict::Unbilled, "it came after the attempt was given up", cx);
        } else if self.is_affordable(&job_id, attempt) {
            self.judge(attempt, verdict, "", cx);
        } else {
            self.judge(attempt, Verdict::Unbilled, "it came late, and the budget has no room for it", cx);
        }
    }

    /// The budget was set aside for an attempt under way; for one given up it may be gone.
    fn is_affordable(&self, job_id: &JobId, attempt: &AttemptId) -> bool {
        let Some(job) = self.jobs.get(job_id) else { return false };
        if job.find(attempt).is_some_and(Attempt::is_open) {
            return true;
        }
        let step = self.leases.get(&attempt.lease).map_or(Credits::MAX, super::Lease::step);
        job.budget_left(self.promised(job_id)).is_none_or(|left| left >= step)
    }

    /// A result for a job that is over: what ran until it was stopped is owed for, whatever came of it.
    pub(super) fn judge_for_ended_job(&mut self, attempt: &AttemptId, cx: &mut Context<'_>) {
        let Some(result) = self.result_of(attempt) else { return };
        let job = self.jobs.get(&result.job);
        let won = job.and_then(|job| job.task(attempt.task)).is_some_and(|task| task.winner().is_some());
        let open = job.and_then(|job| job.find(attempt)).is_some_and(Attempt::is_open);
        if won {
            self.judge(attempt, Verdict::Unbilled, "another attempt was first", cx);
        } else if result.end.is_billed() && open {
            self.judge(attempt, Verdict::Billed, "the job was over", cx);
        } else {
            self.judge(attempt, Verdict::Unbilled, "", cx);
        }
    }

    /// Judges a result: account, voucher, record, answer.
    pub(super) fn judge(&mut self, attempt: &AttemptId, verdict: Verdict, text: &str, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get(&attempt.lease) else { return };
        let Some(open) = lease.open.get(attempt) else { return };
        let Some((result, at)) = open.result.clone() else { return };
        let billed = matches!(verdict, Verdict::Done | Verdict::Billed);
        let elapsed = open.sent.map_or(Millis::MAX, |sent| at.saturating_sub(sent));
        let (job_id, terms) = (lease.job(), lease.award.terms);
        let run = if billed { result.run.min(terms.timeout).min(elapsed) } else { Millis::ZERO };
        let mut voucher = None;
        if billed {
            let item = Billed { attempt: *attempt, result: result.hash(), run };
            let next = lease.account.next_voucher(&item, attempt.lease, cx.me(), lease.provider(), cx.now.wall);
            voucher = next.ok().and_then(|next| cx.sign(&next));
            if voucher.is_none() {
                // An account that overflows or is full was refused its task; a document of fixed size is always signed.
                return self.judge(attempt, Verdict::Unbilled, "the account of the lease is full", cx);
            }
        }
        let record = Record::Result {
            job: job_id,
            result: result.signed().clone(),
            verdict,
            run,
            voucher: voucher.as_ref().map(|voucher| voucher.signed().clone()),
        };
        let (end, exit_code) = (result.end, result.exit_code);
        let why = if text.is_empty() { result.reason.to_string() } else { text.to_owned() };
        let Ok(changed) = fold::resulted(self, &job_id, result, verdict, run, voucher, text) else { return };
        let mut then = Vec::new();
        if let Some(lease) = self.leases.get_mut(&attempt.lease) {
            then.extend(lease.framed_answer(cx.now.mono));
        }
        let notice = Notice::AttemptEnded { job: job_id, attempt: *attempt, end, exit_code, reason: why, billed };
        then.push(Output::Notify(notice));
        then.extend(self.task_notice(&job_id, attempt.task, changed));
        cx.persist(record, then);
        if verdict == Verdict::Done {
            self.stop_others(&job_id, attempt.task, cx);
        }
    }

    /// A task is done: its other attempts are stopped.
    fn stop_others(&mut self, job_id: &JobId, task: u32, cx: &mut Context<'_>) {
        let others: Vec<_> = self
            .jobs
            .get(job_id)
            .and_then(|job| job.task(task))
            .into_iter()
            .flat_map(Task::open)
            .map(|other| other.id)
            .collect();
        for other in others {
            if self.result_of(&other).is_some() {
                cx.out.push(Output::Abandon { attempt: other });
                self.judge(&other, Verdict::Unbilled, "another attempt was first", cx);
            } else {
                self.cancel_attempt(&other, cx);
            }
        }
    }

    /// What is out for a job with awards that were not answered.
    pub(super) fn promised(&self, job_id: &JobId) -> Credits {
        let leases = self.by_job.get(job_id).into_iter().flatten().filter_map(|id| self.leases.get(id));
        leases.fold(Credits::ZERO, |sum, lease| {
            let count = u64::try_from(lease.promised.len()).unwrap_or(u64::MAX);
            sum.saturating_add(lease.step().checked_mul(count).unwrap_or(Credits::MAX))
        })
    }
}
