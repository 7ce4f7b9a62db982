//! The provider's state as a fold of its records.

use souk_protocol::{Accepted, Award, Millis, Receipt, Signed, TaskResult, VerifyError, Voucher};

use super::{
    Provider, end,
    lease::{Attempt, Lease, Phase},
};
use crate::{context::Keys, record::Record, schedule::OPEN_ENDED, trader::ReplayError};

pub(super) fn apply(provider: &mut Provider, record: &Record, keys: &dyn Keys) -> Result<(), ReplayError> {
    match record {
        Record::Accepted { award, accepted } => opened(provider, award, accepted, keys),
        Record::Started { attempt, job } => {
            let lease = lease(provider, &attempt.lease)?;
            if lease.knows(attempt) {
                return Err(wrong(format_args!("attempt {attempt} started twice")));
            }
            lease.see(attempt);
            lease.begins = None; // it has begun
            lease.attempts.insert(*attempt, Attempt::Running { job: *job, stopping: false, since: None });
            provider.desk.begin(&attempt.lease);
            Ok(())
        }
        Record::Selling { paused } => {
            provider.paused = *paused;
            Ok(())
        }
        Record::Delivered { result } => delivered(provider, result, keys),
        Record::Ended { lease: id, end, by } => {
            lease(provider, id)?.phase = Phase::Ending { end: *end, by: *by, since: Millis::ZERO };
            free(provider, id);
            Ok(())
        }
        Record::Settled { attempt, run, voucher } => {
            let voucher = match voucher {
                Some(voucher) => Some(verify::<Voucher>("voucher", voucher, keys)?),
                None => None,
            };
            let lease = lease(provider, &attempt.lease)?;
            lease.settled(attempt, *run, voucher).map_err(wrong)
        }
        Record::Receipt { provider: draft, renter } if draft.signer() == keys.id() => {
            receipt(provider, draft, renter.as_ref(), keys)
        }
        Record::Close(close) if close.signer() == keys.id() => {
            let close = verify("close", close, keys)?;
            // The renter's side writes the same record.
            if provider.leases.contains_key(&close.lease) {
                provider.settle_receipt(&close.lease, None);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn wrong(error: impl std::fmt::Display) -> ReplayError {
    ReplayError(error.to_string())
}

fn verify<T: souk_protocol::Document>(
    what: &str,
    signed: &Signed<T>,
    keys: &dyn Keys,
) -> Result<souk_protocol::Verified<T>, ReplayError> {
    signed.verify(keys).map_err(|error: VerifyError| wrong(format_args!("{what}: {error}")))
}

fn lease<'a>(provider: &'a mut Provider, id: &souk_protocol::LeaseId) -> Result<&'a mut Lease, ReplayError> {
    provider.leases.get_mut(id).ok_or_else(|| wrong(format_args!("lease {} is not open", id.short())))
}

fn opened(
    provider: &mut Provider,
    award: &Signed<Award>,
    accepted: &Signed<Accepted>,
    keys: &dyn Keys,
) -> Result<(), ReplayError> {
    let award = verify("award", award, keys)?;
    let accepted = verify("acceptance", accepted, keys)?;
    let fits = accepted.award == award.hash() && accepted.lease == award.lease && award.provider == keys.id();
    if !fits || accepted.signer() != award.provider {
        return Err(wrong("an acceptance that is not of its award"));
    }
    if provider.knows(&award.lease) {
        return Err(wrong(format_args!("lease {} was accepted twice", award.lease.short())));
    }
    // Boot and times come with the event that ends the replay.
    let later = award.start > award.issued;
    let held = if later {
        let booked = provider.desk.book(award.lease, &award.requirement, award.slots, OPEN_ENDED, OPEN_ENDED);
        booked.map(|_| ())
    } else {
        provider.desk.hold(award.lease, &award.requirement, award.slots)
    };
    held.map_err(|refusal| wrong(refusal.nearest))?;
    let mut lease = Lease::new(award, accepted, 0, Millis::ZERO);
    lease.begins = later.then_some(OPEN_ENDED);
    if later {
        provider.waiting.insert(lease.id());
    }
    provider.insert(lease);
    Ok(())
}

fn delivered(provider: &mut Provider, result: &Signed<TaskResult>, keys: &dyn Keys) -> Result<(), ReplayError> {
    let result = verify("result", result, keys)?;
    let lease = lease(provider, &result.attempt.lease)?;
    if result.signer() != lease.award.provider || result.renter != lease.award.renter {
        return Err(wrong("a result of another node"));
    }
    let fresh = match lease.attempts.get(&result.attempt) {
        Some(Attempt::Running { .. }) => true,
        Some(Attempt::Delivered { .. }) => false,
        None => !lease.knows(&result.attempt),
    };
    if !fresh {
        return Err(wrong(format_args!("attempt {} was delivered twice", result.attempt)));
    }
    let (id, terms) = (result.attempt.lease, lease.award.terms);
    provider.desk.observe(&terms, result.end, result.run);
    let lease = self::lease(provider, &id)?;
    lease.delivered(result, Millis::ZERO);
    free(provider, &id);
    Ok(())
}

/// The slots of an ending lease are free once nothing runs.
fn free(provider: &mut Provider, id: &souk_protocol::LeaseId) {
    let ending = |lease: &Lease| matches!(lease.phase, Phase::Ending { .. }) && lease.running() == 0;
    if provider.leases.get(id).is_some_and(ending) {
        provider.desk.release(id);
    }
}

fn receipt(
    provider: &mut Provider,
    draft: &Signed<Receipt>,
    renter: Option<&Signed<Receipt>>,
    keys: &dyn Keys,
) -> Result<(), ReplayError> {
    let draft = verify("receipt", draft, keys)?;
    let id = draft.lease;
    if renter.is_some_and(|renter| renter.signer() == keys.id()) && provider.closed.has(&id) {
        return Ok(()); // of a lease with itself this node has written it as the renter, too
    }
    let lease = lease(provider, &id)?;
    match renter {
        None => {
            if draft.total != lease.account.total() || draft.award != lease.award.hash() {
                return Err(wrong(format_args!("the receipt of lease {} is not its account", id.short())));
            }
            end::replayed(lease, draft);
            provider.desk.release(&id);
        }
        Some(renter) => {
            let renter = verify("receipt", renter, keys)?;
            if renter.hash() != draft.hash() || renter.signer() != lease.renter() {
                return Err(wrong(format_args!("the renter's receipt of lease {} differs", id.short())));
            }
            provider.settle_receipt(&id, Some(renter.into_signed()));
        }
    }
    Ok(())
}
