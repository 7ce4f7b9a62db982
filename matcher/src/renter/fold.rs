//! The renter's state as a fold of its records. Replay and the live machine change it through the same functions.

use std::sync::Arc;

use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Award, Close, Document, JobId, JobSpec, LeaseEnd, Millis, Party, Receipt, Signed,
    TaskResult, Timestamp, Verified, Voucher,
};

use super::{
    Renter,
    lease::{Lease, Open, Phase},
};
use crate::{
    context::Keys,
    event::{JobState, Reason},
    job::{Closing, Job},
    record::{Record, Verdict},
    trader::ReplayError,
};

fn wrong(error: impl std::fmt::Display) -> ReplayError {
    ReplayError(error.to_string())
}

fn verify<T: Document>(what: &str, signed: &Signed<T>, keys: &dyn Keys) -> Result<Verified<T>, ReplayError> {
    signed.verify(keys).map_err(|error| wrong(format_args!("{what}: {error}")))
}

pub(super) fn apply(renter: &mut Renter, record: &Record, keys: &dyn Keys) -> Result<(), ReplayError> {
    match record {
        Record::Job { job, spec, at } => {
            job_submitted(renter, *job, Arc::clone(spec), *at);
            Ok(())
        }
        Record::JobEnded { job, state, because, at } => {
            job_ended(renter, job, *state, because.clone(), *at);
            Ok(())
        }
        Record::Lease { award, accepted } => {
            let award = verify("award", award, keys)?;
            let accepted = verify("acceptance", accepted, keys)?;
            if renter.leases.contains_key(&award.lease) {
                return Err(wrong(format_args!("lease {} was made twice", award.lease.short())));
            }
            // Boot and times come with the event that ends the replay.
            let lease = Lease::new(award, Phase::Open, 0, Millis::ZERO);
            let id = lease.id();
            renter.leases.insert(id, lease);
            leased(renter, &id, accepted)
        }
        Record::Attempt { job, attempt, at } => handed_out(renter, job, *attempt, *at, Millis::ZERO),
        Record::Result { job, result, verdict, run, voucher } => {
            let result = verify("result", result, keys)?;
            let voucher = match voucher {
                Some(voucher) => Some(verify::<Voucher>("voucher", voucher, keys)?),
                None => None,
            };
            resulted(renter, job, result, *verdict, *run, voucher, "").map(|_| ())
        }
        Record::Lost { job, attempt, end, reason, at } => lost(renter, job, attempt, *end, reason, *at).map(|_| ()),
        Record::Receipt { provider, renter: Some(ours) } if ours.signer() == keys.id() => {
            let draft = verify::<Receipt>("receipt", provider, keys)?;
            let ours = verify("receipt", ours, keys)?;
            receipt(renter, draft, ours)
        }
        Record::Close(close) if close.signer() == keys.id() => {
            let close = verify::<Close>("close", close, keys)?;
            // The provider's side writes the same record.
            if renter.leases.contains_key(&close.lease) {
                closed(renter, &close);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

pub(super) fn job_submitted(renter: &mut Renter, id: JobId, spec: Arc<JobSpec>, at: Timestamp) {
    renter.jobs.entry(id).or_insert_with(|| {
        renter.live.insert(id);
        Job::new(id, spec, at)
    });
}

pub(super) fn job_ended(renter: &mut Renter, id: &JobId, state: JobState, because: Vec<Reason>, at: Timestamp) {
    if let Some(job) = renter.jobs.get_mut(id) {
        job.end(state, because, at);
        renter.live.remove(id);
        renter.ended.push_back(*id);
    }
}

/// An award in `leases` was accepted.
pub(super) fn leased(
    renter: &mut Renter,
    id: &souk_protocol::LeaseId,
    accepted: Verified<Accepted>,
) -> Result<(), ReplayError> {
    let Some(lease) = renter.leases.get_mut(id) else { return Err(wrong("no such award")) };
    fits(&lease.award, &accepted).map_err(wrong)?;
    lease.accepted = Some(accepted);
    lease.phase = Phase::Open;
    let job = lease.job();
    renter.attend(*id, job);
    if let Some(job) = renter.jobs.get_mut(&job) {
        job.add_lease(*id);
    }
    Ok(())
}

/// Whether an acceptance is of this award.
pub(super) fn fits(award: &Verified<Award>, accepted: &Verified<Accepted>) -> Result<(), &'static str> {
    let same = accepted.award == award.hash()
        && accepted.lease == award.lease
        && accepted.renter == award.renter
        && accepted.signer() == award.provider
        && award.signer() == award.renter;
    if same { Ok(()) } else { Err("an acceptance that is not of its award") }
}

pub(super) fn handed_out(
    renter: &mut Renter,
    job: &JobId,
    attempt: AttemptId,
    at: Timestamp,
    due: Millis,
) -> Result<(), ReplayError> {
    let lease = renter.leases.get_mut(&attempt.lease);
    let lease = lease.ok_or_else(|| wrong(format_args!("attempt {attempt} is of no lease")))?;
    let owner = renter.jobs.get_mut(job).filter(|_| lease.award.job == *job);
    let owner = owner.ok_or_else(|| wrong(format_args!("attempt {attempt} is of no job")))?;
    owner.open_attempt(attempt, lease.award.provider, lease.award.rate, at).map_err(wrong)?;
    lease.open.insert(attempt, Open { sent: None, due, result: None, cancelled: false });
    Ok(())
}

/// A result was judged. Whether its task's state changed.
pub(super) fn resulted(
    renter: &mut Renter,
    job: &JobId,
    result: Verified<TaskResult>,
    verdict: Verdict,
    run: Millis,
    voucher: Option<Verified<Voucher>>,
    reason: &str,
) -> Result<bool, ReplayError> {
    let attempt = result.attempt;
    let lease = renter.leases.get_mut(&attempt.lease);
    let lease = lease.ok_or_else(|| wrong(format_args!("a result of attempt {attempt}, which is of no lease")))?;
    if result.signer() != lease.award.provider || result.renter != lease.award.renter || result.job != *job {
        return Err(wrong(format_args!("a result of attempt {attempt} by or for somebody else")));
    }
    if voucher.is_some() != matches!(verdict, Verdict::Done | Verdict::Billed) || lease.has_answered(&attempt) {
        return Err(wrong(format_args!("attempt {attempt} was judged twice or without its voucher")));
    }
    let more = lease.answer(&result, run, voucher, reason).map_err(wrong)?;
    let provider = lease.award.provider;
    renter.records.count(provider, result.end, verdict);
    let Some(job) = renter.jobs.get_mut(job) else { return Ok(false) };
    job.owe(more);
    let text = if reason.is_empty() { result.reason.to_string() } else { reason.to_owned() };
    let closing = Closing {
        end: result.end,
        verdict: Some(verdict),
        run,
        reason: text,
        at: result.ended,
        result: Some(Arc::new(result.into_document())),
    };
    job.close_attempt(&attempt, closing).map_err(wrong)
}

/// An attempt was given up. Whether its task's state changed.
pub(super) fn lost(
    renter: &mut Renter,
    job: &JobId,
    attempt: &AttemptId,
    end: AttemptEnd,
    reason: &str,
    at: Timestamp,
) -> Result<bool, ReplayError> {
    if let Some(lease) = renter.leases.get_mut(&attempt.lease) {
        lease.open.remove(attempt);
        renter.records.count(lease.award.provider, end, Verdict::Unbilled);
    }
    let Some(job) = renter.jobs.get_mut(job) else { return Ok(false) };
    let closing = Closing { end, verdict: None, run: Millis::ZERO, reason: reason.to_owned(), at, result: None };
    job.close_attempt(attempt, closing).map_err(wrong)
}

pub(super) fn receipt(
    renter: &mut Renter,
    draft: Verified<Receipt>,
    ours: Verified<Receipt>,
) -> Result<(), ReplayError> {
    let Some(lease) = renter.leases.get_mut(&draft.lease) else {
        return Err(wrong(format_args!("a receipt of lease {}, which is unknown", draft.lease.short())));
    };
    if draft.hash() != ours.hash() || draft.signer() != lease.award.provider {
        return Err(wrong(format_args!("two receipts of lease {}", draft.lease.short())));
    }
    lease.check(&draft).map_err(|what| wrong(format_args!("the receipt of lease {}: {what}", draft.lease.short())))?;
    let (end, by, id) = (draft.end, draft.ended_by, draft.lease);
    let receipt = Some((draft.into_signed(), ours.into_signed()));
    let again = matches!(lease.phase, Phase::Closed { .. });
    lease.phase = Phase::Closed { end, by, receipt };
    lease.shrink();
    let results = lease.results.len();
    if !again {
        renter.retire(id, results);
    }
    Ok(())
}

pub(super) fn closed(renter: &mut Renter, close: &Close) {
    let Some(lease) = renter.leases.get_mut(&close.lease) else { return };
    if matches!(lease.phase, Phase::Closed { .. }) {
        return;
    }
    let by = match close.end {
        LeaseEnd::Completed | LeaseEnd::CancelledByRenter => Party::Renter,
        _ => Party::Provider,
    };
    lease.phase = Phase::Closed { end: close.end, by, receipt: None };
    lease.shrink();
    let (id, results) = (close.lease, lease.results.len());
    renter.retire(id, results);
}
