//! Room for those who were promised it: leases that wait for their start, and leases that have to be gone by then.
//!
//! A lease that has to be gone by a moment (`vacate`) goes through these steps:
//!
//! ```text
//! takes tasks ── vacate - reach ──> takes none: Notice, End ── vacate - stop_grace ──> what may be stopped is ── vacate
//! ```
//!
//! Preemption is the same with the moment as near as the notice allows. What runs without being preemptible is never
//! stopped: such a lease is cut only where its attempts have ended by themselves. After a restart nothing runs, so a
//! notice that was given is kept by the journaled end of its lease, and the schedule is made anew.

use souk_protocol::{AttemptEnd, AttemptId, Control, LeaseEnd, LeaseId, Millis, Timestamp};

use super::{
    Provider, SIDE, end, hours,
    lease::{Attempt, Lease, Phase},
    time, work,
};
use crate::{
    context::Context,
    desk::{Board, Claim, FETCH_SLACK, Place, Standing, may_stop, reach},
    event::{Notice, Output},
    schedule::OPEN_ENDED,
};

/// A lease whose slots are not free though its start has come looks again after so long, at the latest.
const BEGIN_RETRY: Millis = Millis(250);

/// A moment of the wall clock on the monotonic one; now, if it has passed.
pub(super) fn moment(at: Timestamp, cx: &Context<'_>) -> Millis {
    cx.now.mono.saturating_add(at.saturating_since(cx.now.wall))
}

/// All leases that hold slots, as far as making room is concerned.
pub(super) fn standings(provider: &Provider, now: Millis) -> Vec<Standing> {
    let holding = provider.leases.values().filter(|lease| lease.begins.is_none());
    holding.map(|lease| standing(lease, now)).collect()
}

fn standing(lease: &Lease, now: Millis) -> Standing {
    let terms = &lease.award.terms;
    let rate = u128::from(lease.award.rate.0);
    let ran = |since: Millis| rate.saturating_mul(u128::from(now.saturating_sub(since).0));
    let lost = lease.attempts.values().fold(0u128, |sum, attempt| match attempt {
        Attempt::Running { since: Some(since), stopping: false, .. } => sum.saturating_add(ran(*since)),
        _ => sum,
    });
    Standing {
        lease: lease.id(),
        tier: terms.tier,
        quiet: quiet(lease, now),
        noticed: may_stop(terms).then(|| now.saturating_add(terms.notice).saturating_add(terms.stop_grace)),
        lost,
    }
}

/// When all that runs on a lease has ended by itself.
fn quiet(lease: &Lease, now: Millis) -> Millis {
    let terms = &lease.award.terms;
    let whole = terms.timeout.saturating_add(terms.stop_grace);
    let ends = lease.attempts.values().filter_map(|attempt| match attempt {
        Attempt::Running { stopping: true, .. } => Some(now.saturating_add(terms.stop_grace)),
        Attempt::Running { since: Some(since), .. } => Some(since.saturating_add(whole)),
        Attempt::Running { since: None, .. } => Some(now.saturating_add(FETCH_SLACK).saturating_add(whole)),
        Attempt::Delivered { .. } => None,
    });
    ends.max().unwrap_or(now).max(now)
}

/// Whether a program that starts now runs longer than its lease has slots, and cannot be given its notice.
pub(super) fn is_too_late(lease: &Lease, now: Millis) -> bool {
    let terms = &lease.award.terms;
    lease.vacate.is_some_and(|vacate| {
        let whole = now.saturating_add(terms.timeout).saturating_add(terms.stop_grace);
        let noticed = now.saturating_add(terms.notice).saturating_add(terms.stop_grace);
        whole > vacate && !(may_stop(terms) && noticed <= vacate)
    })
}

/// Makes leases end in time for somebody else.
pub(super) fn cut(provider: &mut Provider, place: &Place, cx: &mut Context<'_>) {
    for id in &place.cuts {
        provider.desk.end_by(id, place.from);
        if let Some(lease) = provider.leases.get_mut(id) {
            lease.vacate = Some(lease.vacate.map_or(place.from, |at| at.min(place.from)));
        }
        leave(provider, id, cx);
    }
}

/// Takes a lease that has to be gone as far as it is now time to.
fn leave(provider: &mut Provider, id: &LeaseId, cx: &mut Context<'_>) {
    if let Some(lease) = provider.leases.get_mut(id) {
        step(lease, cx);
        provider.after(id, cx);
    }
}

/// When a lease that has to be gone needs attention.
pub(super) fn due(lease: &Lease) -> Option<Millis> {
    let vacate = lease.vacate?;
    match lease.phase {
        Phase::Open => Some(vacate.saturating_sub(reach(&lease.award.terms))),
        Phase::Ending { .. } => stoppable(lease).next().map(|_| vacate.saturating_sub(lease.award.terms.stop_grace)),
        Phase::Drafted { .. } => None,
    }
}

/// What runs and is to be stopped when time is up. What fetches has done nothing yet.
fn stoppable(lease: &Lease) -> impl Iterator<Item = AttemptId> {
    let may = may_stop(&lease.award.terms);
    lease.attempts.iter().filter_map(move |(id, attempt)| match attempt {
        Attempt::Running { stopping: false, since, .. } if may || since.is_none() => Some(*id),
        _ => None,
    })
}

/// Takes no more tasks once they would not fit, and stops what runs when its notice is over.
pub(super) fn step(lease: &mut Lease, cx: &mut Context<'_>) {
    let Some(vacate) = lease.vacate else { return };
    let now = cx.now.mono;
    if matches!(lease.phase, Phase::Open) && due(lease).is_some_and(|at| at <= now) {
        let reason = if lease.for_owner { hours::OVER } else { "the slots are promised to somebody else" };
        close(lease, reason, cx);
    }
    let over = vacate.saturating_sub(lease.award.terms.stop_grace) <= now;
    if over && matches!(lease.phase, Phase::Ending { .. }) {
        let left: Vec<_> = stoppable(lease).collect();
        for attempt in left {
            work::stop(lease, attempt, AttemptEnd::Preempted, cx);
        }
    }
}

/// Takes no more tasks; says when what runs will be stopped, if it will.
fn close(lease: &mut Lease, reason: &str, cx: &mut Context<'_>) {
    let preempts = lease.vacate.is_some_and(|vacate| quiet(lease, cx.now.mono) > vacate);
    if preempts {
        notice(lease, cx);
    }
    let end = if preempts { LeaseEnd::Preempted } else { LeaseEnd::Expired };
    end::by_provider(lease, end, reason, None, cx);
}

/// Gives notice of what will be stopped.
pub(super) fn notice(lease: &mut Lease, cx: &mut Context<'_>) {
    let Some(vacate) = lease.vacate else { return };
    let stop_in = vacate.saturating_sub(lease.award.terms.stop_grace).saturating_sub(cx.now.mono);
    // At once, for the time counts from now; and again in its turn, behind what waits for the disk, in case it is lost.
    lease.say(Control::Notice { stop_in }, cx);
    lease.tell(Control::Notice { stop_in }, cx);
    cx.notify(Notice::Preempting { side: SIDE, lease: lease.id(), stop_in });
}

/// A program starts: whether it will have to be stopped is known only now if fetching took long.
pub(super) fn warn(lease: &mut Lease, cx: &mut Context<'_>) {
    let terms = lease.award.terms;
    let whole = cx.now.mono.saturating_add(terms.timeout).saturating_add(terms.stop_grace);
    if matches!(lease.phase, Phase::Ending { .. }) && lease.vacate.is_some_and(|vacate| whole > vacate) {
        notice(lease, cx);
    }
}

/// The owner takes the whole machine: what may be stopped gets its notice, what may not ends by itself, gold goes on.
pub(super) fn reclaim(provider: &mut Provider, cx: &mut Context<'_>) {
    let ids: Vec<_> = provider.leases.keys().copied().collect();
    for id in ids {
        if provider.leases.get(&id).is_some_and(|lease| Claim::Owner.precedes(lease.award.terms.tier)) {
            dismiss(provider, &id, "the owner wants the machine", cx);
        }
    }
}

/// The owner has no more work for a lease: what may be stopped gets its notice, what may not ends by itself.
fn dismiss(provider: &mut Provider, id: &LeaseId, reason: &str, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id).filter(|lease| matches!(lease.phase, Phase::Open)) else { return };
    if may_stop(&lease.award.terms) {
        give_notice(provider, id, reason, cx);
    } else {
        end::by_provider(lease, LeaseEnd::Preempted, reason, None, cx);
        provider.after(id, cx);
    }
}

/// A lease has to be gone as soon as its terms allow.
pub(super) fn give_notice(provider: &mut Provider, id: &LeaseId, reason: &str, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id) else { return };
    let terms = &lease.award.terms;
    let at = cx.now.mono.saturating_add(terms.notice).saturating_add(terms.stop_grace);
    lease.vacate = Some(lease.vacate.map_or(at, |vacate| vacate.min(at)));
    provider.desk.end_by(id, at);
    if lease.running() > 0 {
        notice(lease, cx);
    }
    end::by_provider(lease, LeaseEnd::Preempted, reason, None, cx);
    provider.after(id, cx);
}

/// The owner sells less than is leased: enough leases go, as soon as their terms allow.
pub(super) fn shrink(provider: &mut Provider, cx: &mut Context<'_>) {
    let known = provider.recovered && provider.desk.policy().is_some();
    if !known {
        return;
    }
    if std::mem::take(&mut provider.unplanned) {
        plan_anew(provider, cx);
    }
    let total = provider.desk.total();
    if crate::schedule::within(&provider.desk.used(), &total) {
        return;
    }
    let now = cx.now.mono;
    let standings = standings(provider, now);
    let board = Board { total: &total, schedule: provider.desk.schedule(), standings: &standings };
    // Those that are gone within the owner's notice cost nothing; if that is not enough, all that may go.
    let soon = now.saturating_add(provider.desk.policy().map_or(Millis::ZERO, |policy| policy.notice));
    let nothing = souk_protocol::Capacity::default();
    let goes = board.make_room(&nothing, soon, Claim::Owner).unwrap_or_else(|_| {
        standings.iter().filter(|standing| Claim::Owner.precedes(standing.tier)).map(|s| s.lease).collect()
    });
    for id in goes {
        dismiss(provider, &id, "the owner sells less than before", cx);
    }
}

/// The schedule of a replayed journal. Nothing runs after a restart, so whatever has begun can make room for whoever was
/// promised it: first stand those who wait, then the others, firm ones before those that were first to be cut.
pub(super) fn plan_anew(provider: &mut Provider, cx: &mut Context<'_>) {
    let now = cx.now.mono;
    let mut order: Vec<_> = provider
        .leases
        .values()
        .map(|lease| (lease.begins.is_none(), std::cmp::Reverse(lease.award.terms.tier), lease.order, lease.id()))
        .collect();
    order.sort_unstable();
    let total = provider.desk.total();
    let over = provider.desk.leave_by(cx.now);
    provider.desk.clear_schedule();
    // What does not fit beside those who wait goes at once: nothing runs on it, so nobody needs a warning.
    let unfit = if provider.waiting.is_empty() { OPEN_ENDED } else { now };
    for (_, _, _, id) in &order {
        let Some(lease) = provider.leases.get_mut(id) else { continue };
        let (need, slots) = (&lease.award.requirement, lease.award.slots);
        let holds = provider.desk.holds(id) || lease.begins.is_some();
        let Some(amount) = crate::schedule::times(need, slots).filter(|_| holds) else { continue };
        let open = matches!(lease.phase, Phase::Open);
        let (from, until) = match lease.begins {
            Some(from) => (from, OPEN_ENDED),
            None if open => {
                let until = provider.desk.schedule().fits_until(&total, &amount, now).unwrap_or(unfit);
                let over = hours::leave_by(lease, over, now);
                let until = until.min(over);
                lease.for_owner = until == over;
                lease.vacate = Some(until).filter(|until| *until < OPEN_ENDED);
                (Millis::ZERO, until)
            }
            None => (Millis::ZERO, lease.vacate.unwrap_or(OPEN_ENDED)),
        };
        // The sum of all holds was a number before.
        let _ = provider.desk.book(*id, need, slots, from, until);
    }
    for (_, _, _, id) in &order {
        if provider.leases.get(id).is_some_and(|lease| lease.vacate.is_some()) {
            leave(provider, id, cx);
        }
    }
    begin_waiting(provider, cx);
    for lease in provider.leases.values_mut() {
        lease.due = time::due(lease, cx.settings);
    }
}

/// Somebody for whom others had to go has gone before: those that have not been told yet may stay as long as they fit.
pub(super) fn let_stay(provider: &mut Provider, cx: &Context<'_>) {
    let total = provider.desk.total();
    for (id, lease) in &mut provider.leases {
        let Some(vacate) = lease.vacate.filter(|_| matches!(lease.phase, Phase::Open)) else { continue };
        let until = provider.desk.stays_until(id, &total, cx.now.mono);
        if until > vacate {
            provider.desk.stay(id, until);
            lease.vacate = Some(until).filter(|until| *until < OPEN_ENDED);
            lease.due = time::due(lease, cx.settings);
        }
    }
}

/// Leases whose start has come begin, as soon as their slots are free.
pub(super) fn begin_waiting(provider: &mut Provider, cx: &mut Context<'_>) {
    if provider.waiting.is_empty() || !provider.is_planned() {
        return;
    }
    let now = cx.now.mono;
    for id in provider.waiting.clone() {
        let Some(lease) = provider.leases.get_mut(&id) else {
            provider.waiting.remove(&id);
            continue;
        };
        let Some(begins) = lease.begins else {
            provider.waiting.remove(&id);
            continue;
        };
        // Tried at every chance from the promised time on; the next time of its own is for when there is none.
        let promised = provider.desk.schedule().get(&id).map_or(begins, |hold| hold.from.min(begins));
        if !matches!(lease.phase, Phase::Open) || promised > now {
            continue;
        }
        if provider.desk.begin(&id) {
            provider.waiting.remove(&id);
            lease.begins = None;
            lease.reserved = Some(now);
            let over = provider.desk.leave_by(cx.now);
            if over < lease.vacate.unwrap_or(OPEN_ENDED) {
                lease.vacate = Some(over);
                lease.for_owner = true;
                provider.desk.end_by(&id, over);
            }
            // Silence counts from now on: before there was nothing to say.
            lease.heard = lease.heard.max(now);
            lease.slots_open = true;
            cx.out.push(Output::OpenLease(lease.view()));
            work::fill(lease, cx);
        } else {
            lease.begins = Some(now.saturating_add(BEGIN_RETRY));
            if now.saturating_sub(promised) >= cx.settings.params.lease_grace {
                end::by_provider(lease, LeaseEnd::ProviderFault, "the slots promised for now are not free", None, cx);
                end::advance(provider, &id, cx);
            }
        }
        if let Some(lease) = provider.leases.get_mut(&id) {
            lease.due = time::due(lease, cx.settings);
        }
    }
}

/// When a renter that does not use what it reserved has had its time.
pub(super) fn no_show_at(lease: &Lease, grace: Millis) -> Option<Millis> {
    let idle = matches!(lease.phase, Phase::Open) && lease.numbers.is_empty();
    lease.reserved.filter(|_| idle).map(|at| at.saturating_add(grace))
}

/// A lease on which something runs that neither ends by itself nor may be stopped before its slots are somebody else's.
pub(super) fn outstays(lease: &Lease, now: Millis) -> Option<(LeaseId, Millis)> {
    let vacate = lease.vacate.filter(|vacate| *vacate > now)?;
    let terms = &lease.award.terms;
    let whole = terms.timeout.saturating_add(terms.stop_grace);
    let stays = lease.attempts.values().any(|attempt| match attempt {
        // What fetches is sent back unstarted.
        Attempt::Running { since: Some(since), stopping: false, .. } => {
            since.saturating_add(whole) > vacate && !may_stop(terms)
        }
        _ => false,
    });
    stays.then(|| (lease.id(), vacate))
}
