//! The owner's hours: leases go when they end.

use souk_protocol::{LeaseEnd, Millis};

use super::{
    Provider, end,
    lease::{Lease, Phase},
    preempt,
};
use crate::{context::Context, desk::may_stop};

/// Why a lease ends at the end of a window.
pub(super) const OVER: &str = "the provider's hours are over";

/// The desk has closed. Leases that have to be gone by the end of a window went before it; those left are told now, and
/// stopped after the notice they were promised: the owner has changed its hours. Reservations that have not begun stay.
pub(super) fn shut(provider: &mut Provider, cx: &mut Context<'_>) {
    if !provider.recovered {
        return;
    }
    let finish = provider.desk.lets_finish();
    let ids: Vec<_> = provider.leases.keys().copied().collect();
    for id in ids {
        let Some(lease) = provider.leases.get_mut(&id) else { continue };
        if !matches!(lease.phase, Phase::Open) || lease.begins.is_some() {
            continue;
        }
        if !finish && may_stop(&lease.award.terms) && lease.running() > 0 {
            preempt::give_notice(provider, &id, OVER, cx);
        } else {
            end::by_provider(lease, LeaseEnd::Expired, OVER, None, cx);
            provider.after(&id, cx);
        }
    }
}

/// When a lease has to be gone for the owner: at the end of the window, but never before its notice is over.
pub(super) fn leave_by(lease: &Lease, over: Millis, now: Millis) -> Millis {
    let terms = &lease.award.terms;
    if may_stop(terms) && lease.running() > 0 {
        over.max(now.saturating_add(terms.notice).saturating_add(terms.stop_grace))
    } else {
        over
    }
}
