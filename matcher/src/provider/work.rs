//! Tasks on a lease: taken, queued, started, stopped, delivered.

use souk_protocol::{
    AttemptEnd, AttemptId, Award, Checkpoint, Control, Credits, LeaseEnd, List, Millis, RunState, Sample, TaskResult,
    Work,
};

use super::{
    end,
    lease::{Attempt, Lease, Phase},
    preempt,
};
use crate::{
    books::Blocked,
    context::Context,
    event::{Outcome, Output},
    record::Record,
};

/// How often tasks that wait for credit are looked at again: another renter's work may have made room.
pub(super) const CREDIT_RETRY: Millis = Millis(1_000);
/// Attempts of a lease that may end unbilled. Each costs a record of the journal, and an honest renter stops long
/// before.
const MAX_UNBILLED: u32 = 20_000;

/// Whether a task keeps to what its lease grants.
pub(super) fn fits(award: &Award, work: &Work) -> Result<(), String> {
    let (limits, terms, need) = (&work.limits, &award.terms, &award.requirement);
    let at_most = |what: &str, asked: u64, granted: u64| {
        if asked <= granted { Ok(()) } else { Err(format!("{what} {asked} is over the lease's {granted}")) }
    };
    if work.attempt.lease != award.lease {
        return Err("the task names another lease".to_owned());
    }
    if work.attempt.number == 0 || work.attempt.task >= work.count {
        return Err(format!("attempt {} is none of {} tasks", work.attempt, work.count));
    }
    if limits.timeout.is_zero() {
        return Err("a timeout above zero is needed".to_owned());
    }
    at_most("timeout in ms", limits.timeout.0, terms.timeout.0)?;
    at_most("stop_grace in ms", limits.stop_grace.0, terms.stop_grace.0)?;
    at_most("memory", limits.memory.0, need.memory.0)?;
    at_most("disk", limits.disk.0, need.disk.0)?;
    at_most("stdout", limits.stdout.0, terms.stdout.0)
}

/// The renter hands out a task.
pub(super) fn task(lease: &mut Lease, work: Work, cx: &mut Context<'_>) {
    let (id, job) = (work.attempt, work.job);
    if lease.knows(&id) {
        // Heard before, or an earlier attempt of the task: the answer is on its way or will be.
        if let Some(Attempt::Delivered { result, .. }) = lease.attempts.get(&id) {
            let body = Control::Result(result.signed().clone());
            lease.tell(body, cx);
        }
        return;
    }
    if let Err(error) = fits(&lease.award, &work) {
        cx.blame(lease.renter(), format_args!("task {id}: {error}"));
        if id.lease == lease.id() {
            refuse(lease, id, job, AttemptEnd::InputFailed, &error, cx);
        }
        return;
    }
    let outstanding = lease.attempts.len().saturating_add(lease.queue.len());
    let reason = if !matches!(lease.phase, Phase::Open) {
        "the lease is ending"
    } else if lease.queue.len() >= lease.queue_limit() {
        "too many tasks wait on this lease"
    } else if lease.account.billed().len().saturating_add(outstanding) >= souk_protocol::MAX_BILLED {
        "the lease has as many attempts as a receipt can list"
    } else {
        lease.see(&id);
        lease.queue.push_back(work);
        return;
    };
    refuse(lease, id, job, AttemptEnd::Preempted, reason, cx);
}

/// Answers a task that is not run with a result that says so.
fn refuse(
    lease: &mut Lease,
    id: AttemptId,
    job: souk_protocol::JobId,
    end: AttemptEnd,
    reason: &str,
    cx: &mut Context<'_>,
) {
    if matches!(lease.phase, Phase::Drafted { .. }) {
        return; // the account is signed, nothing can be added
    }
    if lease.unbilled >= MAX_UNBILLED {
        cx.blame(
            lease.renter(),
            format_args!("more than {MAX_UNBILLED} tasks on lease {} came to nothing", id.lease.short()),
        );
        return;
    }
    let result = lease.blank(id, job, end, reason, cx.now.wall);
    deliver(lease, &result, cx);
}

/// Starts waiting tasks while slots and the renter's credit allow it.
pub(super) fn fill(lease: &mut Lease, cx: &mut Context<'_>) {
    if !matches!(lease.phase, Phase::Open) || !lease.has_free_slot() || lease.queue.is_empty() {
        lease.blocked = None;
    }
    while matches!(lease.phase, Phase::Open) && lease.has_free_slot() && !lease.queue.is_empty() {
        let step = lease.award.rate.charge(lease.award.terms.timeout).unwrap_or(Credits::MAX);
        cx.books.age(cx.now.wall);
        if let Err(blocked) = cx.books.may_start(&lease.renter(), step) {
            wait_for_credit(lease, &blocked, cx);
            return;
        }
        if let Some(work) = lease.queue.pop_front() {
            lease.blocked = None;
            cx.out.push(Output::Run { renter: lease.renter(), work: work.clone() });
            started(lease, &work, cx);
        }
    }
}

/// Running work may turn out cheaper than its timeout, claims may be vouchered, strangers may make room: then waiting
/// helps, up to the grace. Otherwise the renter is told at once, so that it goes elsewhere.
fn wait_for_credit(lease: &mut Lease, blocked: &Blocked, cx: &mut Context<'_>) {
    lease.looked = cx.now.mono;
    let since = *lease.blocked.get_or_insert(cx.now.mono);
    let may_change = match blocked {
        Blocked::Strangers { .. } | Blocked::Unvouchered { .. } => true,
        Blocked::Peer { .. } => cx.books.is_in_flight(&lease.renter()),
        Blocked::WrittenOff { .. } => false,
    };
    let waited = cx.now.mono.saturating_sub(since);
    if !may_change || waited >= cx.settings.params.lease_grace {
        let reason = format!("no-credit: {blocked}");
        // That all strangers together owe too much is not this one's fault.
        let end =
            if matches!(blocked, Blocked::Strangers { .. }) { LeaseEnd::Preempted } else { LeaseEnd::RenterFault };
        end::by_provider(lease, end, &reason, None, cx);
    }
}

/// An attempt was given to the executor.
pub(super) fn started(lease: &mut Lease, work: &Work, cx: &mut Context<'_>) {
    lease.see(&work.attempt);
    lease.attempts.insert(work.attempt, Attempt::Running { job: work.job, stopping: false, since: None });
    cx.persist(Record::Started { attempt: work.attempt, job: work.job }, Vec::new());
}

/// The executor says what an attempt does.
pub(super) fn running(lease: &mut Lease, attempt: AttemptId, state: RunState, cx: &mut Context<'_>) {
    let Some(Attempt::Running { since, .. }) = lease.attempts.get_mut(&attempt) else { return };
    if state == RunState::Running {
        since.get_or_insert(cx.now.mono);
        if preempt::is_too_late(lease, cx.now.mono) {
            // Fetching took longer than the gap has room for: nothing has run yet, so nothing is lost.
            return stop(lease, attempt, AttemptEnd::Preempted, cx);
        }
        preempt::warn(lease, cx);
    }
    let at = cx.now.wall;
    lease.tell(Control::Progress { attempt, state, at }, cx);
}

/// The executor's measurements.
pub(super) fn samples(lease: &mut Lease, attempt: AttemptId, samples: List<Sample, 64>, cx: &mut Context<'_>) {
    if !matches!(lease.attempts.get(&attempt), Some(Attempt::Running { .. })) {
        return;
    }
    let checkpoint = Checkpoint { attempt, provider: cx.me(), samples };
    if let Some(signed) = cx.sign(&checkpoint) {
        lease.tell(Control::Telemetry(signed.into_signed()), cx);
    }
}

/// The executor is done with an attempt.
pub(super) fn ended(lease: &mut Lease, attempt: AttemptId, outcome: Outcome, cx: &mut Context<'_>) {
    let Some(Attempt::Running { job, .. }) = lease.attempts.get(&attempt) else { return };
    let result = TaskResult {
        attempt,
        job: *job,
        provider: lease.award.provider,
        renter: lease.award.renter,
        end: outcome.end,
        exit_code: outcome.exit_code,
        reason: outcome.reason,
        // More than the timeout is never owed.
        run: Millis(outcome.run.0.min(lease.award.terms.timeout.0)),
        started: outcome.started,
        ended: outcome.ended,
        stdout: outcome.stdout,
        stderr: outcome.stderr,
        manifest: outcome.manifest,
        manifest_len: outcome.manifest_len,
        output: outcome.output,
        files: outcome.files,
        telemetry: outcome.telemetry,
    };
    deliver(lease, &result, cx);
}

/// Journals a result and says it once it is durable.
pub(super) fn deliver(lease: &mut Lease, result: &TaskResult, cx: &mut Context<'_>) {
    let Some(signed) = cx.sign(result) else { return };
    let then = lease.framed(Control::Result(signed.signed().clone()), cx.now.mono);
    let record = Record::Delivered { result: signed.signed().clone() };
    lease.delivered(signed, cx.now.mono);
    cx.persist(record, then);
}

/// The renter wants an attempt stopped.
pub(super) fn cancel(lease: &mut Lease, attempt: AttemptId, cx: &mut Context<'_>) {
    if let Some(at) = lease.queue.iter().position(|work| work.attempt == attempt)
        && let Some(work) = lease.queue.remove(at)
    {
        let result = lease.blank(attempt, work.job, AttemptEnd::Cancelled, "cancelled before it started", cx.now.wall);
        deliver(lease, &result, cx);
        return;
    }
    stop(lease, attempt, AttemptEnd::Cancelled, cx);
}

/// Tells the executor to stop an attempt, once.
pub(super) fn stop(lease: &mut Lease, attempt: AttemptId, end: AttemptEnd, cx: &mut Context<'_>) {
    if let Some(Attempt::Running { stopping, .. }) = lease.attempts.get_mut(&attempt)
        && !*stopping
    {
        *stopping = true;
        cx.out.push(Output::Stop { attempt, end, grace: lease.award.terms.stop_grace });
    }
}

/// Stops all that runs and answers all that waits.
pub(super) fn stop_all(
    lease: &mut Lease,
    running: Option<AttemptEnd>,
    waiting: AttemptEnd,
    reason: &str,
    cx: &mut Context<'_>,
) {
    for work in std::mem::take(&mut lease.queue) {
        let result = lease.blank(work.attempt, work.job, waiting, reason, cx.now.wall);
        deliver(lease, &result, cx);
    }
    if let Some(end) = running {
        let ids: Vec<_> = lease.attempts.keys().copied().collect();
        for id in ids {
            stop(lease, id, end, cx);
        }
    }
}
