//! A node that works for itself: both ends of a lease in one trader.
//!
//! Its own capacity is a provider like any other, at rate zero. Award, acceptance, tasks, results and receipt pass through
//! the same machines and the same journal; only the way is shorter, since [`Trader`](crate::Trader) hears what it says to
//! itself at once. Two things have to be told apart: the ends of such a lease, which are of one node, and its money,
//! which is none (the books leave it out).

use souk_protocol::{DeclineCode, JobSpec, LeaseFrame, Local, NodeId, Rate, Requirement, Terms};

use crate::{
    desk::{Desk, Refusal, Wanted},
    event::Now,
    renter::PlannedOffer,
};

/// Set in the boot number of the provider's end of a lease with oneself. Boots are milliseconds since 1970, so it is free.
const PROVIDERS_END: u64 = 1 << 63;

/// The boot number of the provider's end.
pub(crate) const fn boot(boot: u64) -> u64 {
    boot | PROVIDERS_END
}

/// Whether the provider's end of a lease with oneself says this.
pub(crate) const fn is_of_provider(frame: &LeaseFrame) -> bool {
    frame.boot & PROVIDERS_END != 0
}

/// Slots that are free here for this work.
///
/// # Errors
/// Why there are none.
pub(crate) fn slots(
    me: NodeId,
    desk: &Desk,
    requirement: &Requirement,
    terms: &Terms,
    now: Now,
) -> Result<u32, Refusal> {
    desk.free_now(&Wanted { renter: me, requirement, terms }, now)
}

/// The own capacity as a line of a plan, if `spec` may run on it and it would do, now or once something is free.
pub(crate) fn planned(me: NodeId, desk: &Desk, spec: &JobSpec, now: Now) -> Option<PlannedOffer> {
    if spec.market.local == Local::Never {
        return None;
    }
    let slots = match slots(me, desk, &spec.requirement, &spec.terms, now) {
        Ok(slots) => slots,
        Err(refusal) if refusal.code == DeclineCode::NoCapacity => 0,
        Err(_) => return None,
    };
    let policy = desk.policy()?;
    Some(PlannedOffer {
        provider: me,
        name: policy.name.to_string(),
        rate: Some(Rate::ZERO),
        tier: spec.terms.tier,
        region: policy.region.to_string(),
        rtt: None,
        reliability: None,
        now: slots > 0,
        slots,
    })
}
