//! Silence, restarts and timers. Unknown is not dead: a lease ends by a signed end or a passed grace, nothing else.

use souk_protocol::{AttemptEnd, Control, LeaseEnd, LeaseFrame, LeaseId, Millis, NodeId, Text};

use super::{
    Provider, end, hours,
    lease::{Attempt, Lease, Phase},
    preempt, work,
};
use crate::{
    channel::{ACK_WITHIN, Channel, HEARTBEAT, Heard},
    context::Context,
    event::{Output, Settings},
};

/// Heartbeats begin so long before a lease does.
const LEAD: Millis = Millis(15_000);

/// How long the renter's silence is waited for: the network's grace, or the offline window it was granted.
fn grace(lease: &Lease, settings: &Settings) -> Millis {
    settings.params.lease_grace.max(lease.award.terms.offline)
}

/// When the renter has been silent for too long. Before a lease begins there is nothing to say.
fn silence_ends(lease: &Lease, settings: &Settings) -> Millis {
    lease.heard.max(lease.begins.unwrap_or(Millis::ZERO)).saturating_add(grace(lease, settings))
}

/// When something has to be said, if only a heartbeat.
fn beat_at(lease: &Lease) -> Millis {
    let beat = lease.said.saturating_add(HEARTBEAT);
    lease.begins.map_or(beat, |begins| beat.max(begins.saturating_sub(LEAD)))
}

/// Takes a frame of the renter; the message in it, if there is a new one.
pub(super) fn hear(lease: &mut Lease, frame: LeaseFrame, cx: &mut Context<'_>) -> Option<Control> {
    let now = cx.now.mono;
    lease.heard = now;
    let was_settled = lease.channel.is_settled();
    let heard = lease.channel.handle(frame, now);
    if lease.channel.is_settled() && !was_settled {
        lease.acked = now;
    }
    if lease.lapsed.take().is_some() {
        back(lease, cx);
    }
    let body = match heard {
        Heard::New(body) => {
            if lease.ack_at.is_none() {
                lease.ack_at = Some(now.saturating_add(ACK_WITHIN));
            }
            Some(body)
        }
        Heard::Alive(body) => Some(body),
        Heard::Again => {
            lease.say(Control::Heartbeat, cx);
            None
        }
        Heard::Restarted(body) => {
            lease.repeat(cx);
            lease.say(Control::Heartbeat, cx);
            (body != Control::Resume).then_some(body)
        }
    };
    if lease.behind && lease.channel.is_settled() {
        lease.repeat(cx);
    }
    body
}

/// The renter is there again after the grace: it gets what is left, and time to answer.
fn back(lease: &mut Lease, cx: &mut Context<'_>) {
    match &mut lease.phase {
        Phase::Ending { end, since, .. } => {
            *since = cx.now.mono;
            let body =
                Control::End { end: *end, reason: Text::clipped("the renter was silent for longer than the grace") };
            lease.tell(body, cx);
        }
        Phase::Drafted { since, .. } => *since = cx.now.mono,
        Phase::Open => {}
    }
    lease.resend(cx);
}

/// All records are applied: attempts that ran are lost, leases go on.
pub(super) fn recovered(provider: &mut Provider, cx: &mut Context<'_>) {
    let now = cx.now.mono;
    provider.closed.restart(cx);
    provider.recovered = true;
    provider.unplanned = true;
    let ids: Vec<_> = provider.leases.keys().copied().collect();
    for id in ids {
        let Some(lease) = provider.leases.get_mut(&id) else { continue };
        lease.channel = Channel::resumed(id, cx.provider_boot(&lease.renter()));
        (lease.heard, lease.said, lease.acked) = (now, now, now);
        for attempt in lease.attempts.values_mut() {
            if let Attempt::Delivered { at, .. } = attempt {
                *at = now;
            }
        }
        match &mut lease.phase {
            Phase::Open if lease.begins.is_some() => {
                lease.begins = Some(preempt::moment(lease.award.start, cx));
            }
            Phase::Open => {
                lease.slots_open = true;
                cx.out.push(Output::OpenLease(lease.view()));
            }
            Phase::Ending { since, .. } | Phase::Drafted { since, .. } => *since = now,
        }
        lease.say(Control::Resume, cx);
        // Whether it arrived before the restart is not known.
        let accepted = Control::Accepted(lease.accepted.signed().clone());
        lease.tell(accepted, cx);
        lease.repeat(cx);
        let lost: Vec<_> = lease
            .attempts
            .iter()
            .filter_map(|(id, attempt)| match attempt {
                Attempt::Running { job, .. } => Some((*id, *job)),
                Attempt::Delivered { .. } => None,
            })
            .collect();
        for (attempt, job) in lost {
            let result = lease.blank(attempt, job, AttemptEnd::Lost, "the provider restarted", cx.now.wall);
            work::deliver(lease, &result, cx);
        }
        provider.after(&id, cx);
    }
    preempt::shrink(provider, cx);
    provider.look(cx);
    if provider.desk.is_shut() {
        hours::shut(provider, cx);
    }
    provider.refresh(cx);
}

/// A connection to the renter is there: what waits goes out at once.
pub(super) fn peer_up(provider: &mut Provider, peer: NodeId, cx: &mut Context<'_>) {
    for lease in provider.leases.values_mut().filter(|lease| lease.renter() == peer) {
        lease.say(Control::Resume, cx);
        lease.resend(cx);
        lease.due = due(lease, cx.settings);
    }
}

/// When something is due.
pub(super) fn wake_at(provider: &Provider) -> Option<Millis> {
    let leases = provider.leases.values().filter_map(|lease| lease.due);
    let offer = provider.offers.due(&provider.desk, provider.is_closed());
    leases.chain(offer).chain(provider.desk.look_at()).min()
}

/// When this lease next needs attention.
pub(super) fn due(lease: &Lease, settings: &Settings) -> Option<Millis> {
    if let Some(lapsed) = lease.lapsed {
        return Some(lapsed.saturating_add(lease.award.terms.retention));
    }
    let short = settings.params.lease_grace;
    [
        Some(silence_ends(lease, settings)),
        Some(beat_at(lease)),
        lease.begins.filter(|_| matches!(lease.phase, Phase::Open)),
        preempt::due(lease),
        preempt::no_show_at(lease, short),
        lease.ack_at,
        lease.channel.resend_at(),
        lease.blocked.map(|_| lease.looked.saturating_add(work::CREDIT_RETRY)),
        end::unpaid_at(lease, short),
        end::give_up_at(lease, short),
    ]
    .into_iter()
    .flatten()
    .min()
}

pub(super) fn wake(provider: &mut Provider, cx: &mut Context<'_>) {
    provider.look(cx);
    let now = cx.now.mono;
    let ready = |lease: &Lease| lease.due.is_some_and(|due| due <= now);
    let ids: Vec<_> = provider.leases.iter().filter(|(_, lease)| ready(lease)).map(|(id, _)| *id).collect();
    for id in ids {
        tick(provider, &id, cx);
    }
    provider.refresh(cx);
}

fn tick(provider: &mut Provider, id: &LeaseId, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id) else { return };
    let (now, short) = (cx.now.mono, cx.settings.params.lease_grace);
    let passed = |at: Option<Millis>| at.is_some_and(|at| at <= now);
    if let Some(lapsed) = lease.lapsed {
        if passed(Some(lapsed.saturating_add(lease.award.terms.retention))) {
            return end::close(provider, id, cx);
        }
        return provider.after(id, cx);
    }
    if passed(Some(silence_ends(lease, cx.settings))) {
        lapse(lease, cx);
        return provider.after(id, cx);
    }
    preempt::step(lease, cx);
    if passed(preempt::no_show_at(lease, short)) {
        end::by_provider(lease, LeaseEnd::RenterFault, "no task came for the slots reserved", None, cx);
    }
    if passed(lease.channel.resend_at()) {
        lease.resend(cx);
    }
    if passed(end::unpaid_at(lease, short)) {
        let reason = "no voucher came for delivered work";
        end::by_provider(lease, LeaseEnd::Unpaid, reason, Some(AttemptEnd::Preempted), cx);
    }
    if passed(end::give_up_at(lease, short)) {
        return end::give_up(provider, id, cx);
    }
    if passed(lease.ack_at) || passed(Some(beat_at(lease))) {
        lease.say(Control::Heartbeat, cx);
    }
    provider.after(id, cx);
}

/// The renter was silent for longer than the grace: its work stops, its results are kept.
fn lapse(lease: &mut Lease, cx: &mut Context<'_>) {
    end::by_provider(
        lease,
        LeaseEnd::Unreachable,
        "the renter was silent for longer than the grace",
        Some(AttemptEnd::Lost),
        cx,
    );
    lease.lapsed = Some(cx.now.mono);
}
