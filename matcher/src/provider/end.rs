//! Vouchers, the end of a lease and its receipt.

use souk_protocol::{
    AttemptEnd, AttemptId, Close, Control, LeaseEnd, LeaseId, Message, Millis, Party, Receipt, Signed, Text, Verified,
    Voucher,
};

use super::{
    Provider, SIDE, closed,
    lease::{Attempt, Lease, Phase},
    work,
};
use crate::{
    context::Context,
    event::{Notice, Output},
    record::Record,
    transfer::allowance,
};

impl Provider {
    /// A message of the renter, in its turn.
    pub(super) fn control(&mut self, id: LeaseId, body: Control, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        match body {
            Control::Heartbeat => {}
            Control::Resume => {
                lease.resend(cx);
                lease.say(Control::Heartbeat, cx);
            }
            Control::Task(task) => work::task(lease, task, cx),
            Control::Done { attempt, run, voucher } => done(lease, attempt, run, &voucher, cx),
            Control::Refused { attempt, reason: _ } => refused(lease, attempt, cx),
            Control::Cancel { attempt } => work::cancel(lease, attempt, cx),
            Control::End { end, reason: _ } => by_renter(lease, end, cx),
            Control::Receipt(receipt) => self.signed_by_renter(&id, &receipt, cx),
            Control::Unknown => {
                let show =
                    Control::Show { award: lease.award.signed().clone(), accepted: lease.accepted.signed().clone() };
                cx.send_frame_in_order(lease.renter(), lease.channel.say(show));
            }
            Control::Accepted(_)
            | Control::Progress { .. }
            | Control::Result(_)
            | Control::Telemetry(_)
            | Control::Notice { .. }
            | Control::Show { .. } => cx.blame(lease.renter(), "said what only a provider says"),
        }
    }

    /// The renter's signature under the receipt: the same bytes, or it is none.
    fn signed_by_renter(&mut self, id: &LeaseId, receipt: &Signed<Receipt>, cx: &mut Context<'_>) {
        let Some(lease) = self.leases.get_mut(id) else { return };
        let renter = lease.renter();
        let Phase::Drafted { receipt: draft, .. } = &lease.phase else {
            return cx.blame(renter, format_args!("a receipt of lease {} before its draft", id.short()));
        };
        match cx.verify(receipt) {
            Ok(signed) if signed.signer() == renter && signed.hash() == draft.hash() => {
                let record =
                    Record::Receipt { provider: draft.signed().clone(), renter: Some(signed.signed().clone()) };
                // The acknowledgement too waits until it is durable, for the renter then forgets.
                let ack = Output::Send { to: renter, message: Message::Lease(lease.channel.say(Control::Heartbeat)) };
                let notice = Notice::Receipt { side: SIDE, receipt: signed.clone().into_document() };
                cx.persist(record, vec![ack, Output::Notify(notice), Output::Forget { lease: *id }]);
                self.settle_receipt(id, Some(signed.into_signed()));
            }
            Ok(_) => cx.blame(renter, format_args!("a receipt of lease {} that differs from the draft", id.short())),
            Err(error) => cx.blame(renter, format_args!("receipt: {error}")),
        }
    }

    /// Moves a lease to the closed ones.
    pub(super) fn settle_receipt(&mut self, id: &LeaseId, renter: Option<Signed<Receipt>>) {
        self.desk.release(id);
        if let Some(lease) = self.leases.remove(id) {
            self.closed.insert(closed::End::of(lease, renter));
        }
    }
}

/// The renter accepts a result and owes for it.
fn done(lease: &mut Lease, attempt: AttemptId, run: Millis, voucher: &Signed<Voucher>, cx: &mut Context<'_>) {
    if lease.account.has(&attempt) {
        return; // heard before
    }
    let renter = lease.renter();
    let verified = match cx.verify(voucher) {
        Ok(voucher) => voucher,
        Err(error) => return cx.blame(renter, format_args!("voucher: {error}")),
    };
    let ours = verified.signer() == renter && verified.provider == cx.me() && verified.lease == lease.id();
    if !ours {
        return cx.blame(renter, format_args!("a voucher for somebody else on lease {}", lease.id().short()));
    }
    match lease.settled(&attempt, run, Some(verified)) {
        Ok(()) => cx.persist(Record::Settled { attempt, run, voucher: Some(voucher.clone()) }, Vec::new()),
        // The claim stays: what differs is not accepted.
        Err(error) => cx.blame(renter, format_args!("voucher of lease {}: {error}", lease.id().short())),
    }
}

/// The renter does not accept a result.
fn refused(lease: &mut Lease, attempt: AttemptId, cx: &mut Context<'_>) {
    if let Some(at) = lease.queue.iter().position(|work| work.attempt == attempt) {
        lease.queue.remove(at);
    } else if matches!(lease.attempts.get(&attempt), Some(Attempt::Running { .. })) {
        work::stop(lease, attempt, AttemptEnd::Cancelled, cx);
    } else {
        unbilled(lease, attempt, cx);
    }
}

/// Settles a result that is not owed for.
fn unbilled(lease: &mut Lease, attempt: AttemptId, cx: &mut Context<'_>) {
    if lease.settled(&attempt, Millis::ZERO, None).is_ok() {
        cx.persist(Record::Settled { attempt, run: Millis::ZERO, voucher: None }, Vec::new());
    }
}

fn by_renter(lease: &mut Lease, end: LeaseEnd, cx: &mut Context<'_>) {
    if !matches!(lease.phase, Phase::Open) {
        return; // this side was first, or it is heard again
    }
    enter(lease, end, Party::Renter, cx);
    let cancelled = AttemptEnd::Cancelled;
    work::stop_all(lease, Some(cancelled), cancelled, "the renter ended the lease", cx);
}

/// This side ends an open lease. What runs is stopped with `stop`, or runs to its end.
pub(super) fn by_provider(
    lease: &mut Lease,
    end: LeaseEnd,
    reason: &str,
    stop: Option<AttemptEnd>,
    cx: &mut Context<'_>,
) {
    if !matches!(lease.phase, Phase::Open) {
        return;
    }
    enter(lease, end, Party::Provider, cx);
    lease.tell(Control::End { end, reason: Text::clipped(reason) }, cx);
    let waiting = stop.unwrap_or(AttemptEnd::Preempted);
    work::stop_all(lease, stop, waiting, reason, cx);
}

fn enter(lease: &mut Lease, end: LeaseEnd, by: Party, cx: &mut Context<'_>) {
    lease.phase = Phase::Ending { end, by, since: cx.now.mono };
    lease.blocked = None;
    cx.persist(Record::Ended { lease: lease.id(), end, by }, Vec::new());
    cx.notify(Notice::LeaseEnded { side: SIDE, lease: lease.id(), end, by });
}

/// Takes a lease one step further to its end, if it can be.
pub(super) fn advance(provider: &mut Provider, id: &LeaseId, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id) else { return };
    let Phase::Ending { end, by, .. } = lease.phase else { return };
    if lease.running() == 0 {
        let waited = lease.begins.take().is_some();
        provider.desk.release(id);
        if std::mem::take(&mut lease.slots_open) {
            cx.out.push(Output::CloseLease { lease: *id });
        }
        if waited {
            provider.waiting.remove(id);
            provider.replan = true;
        }
    }
    let Some(lease) = provider.leases.get_mut(id) else { return };
    let (idle, owed) = (lease.running() == 0, lease.claims().next().is_some() || !lease.account.billed().is_empty());
    if lease.lapsed.is_some() && idle && !owed {
        return close(provider, id, cx); // nobody is there to sign that nothing is owed
    }
    if !lease.attempts.is_empty() {
        return;
    }
    let receipt = lease.draft(end, by, cx.now.wall).and_then(|receipt| cx.sign(&receipt));
    if let Some(receipt) = receipt {
        let then = lease.framed(Control::Receipt(receipt.signed().clone()), cx.now.mono);
        let record = Record::Receipt { provider: receipt.signed().clone(), renter: None };
        lease.phase = Phase::Drafted { receipt, since: cx.now.mono };
        cx.persist(record, then);
    }
}

/// The one-sided end of a lease that the renter left.
pub(super) fn close(provider: &mut Provider, id: &LeaseId, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id) else { return };
    let unpaid = lease.claims().next().is_some();
    let end = match &lease.phase {
        _ if unpaid => LeaseEnd::Unpaid,
        Phase::Ending { end, .. } => *end,
        Phase::Drafted { receipt, .. } => receipt.end,
        Phase::Open => LeaseEnd::Unreachable,
    };
    let claimed = cx.books.lease(id, Party::Provider).map(|sum| sum.worth.claimed).unwrap_or_default();
    let statement = Close {
        lease: *id,
        by: cx.me(),
        other: lease.renter(),
        end,
        vouchered: lease.account.total(),
        claimed,
        at: cx.now.wall,
    };
    let Some(signed) = cx.sign(&statement) else { return };
    if std::mem::take(&mut lease.slots_open) {
        cx.out.push(Output::CloseLease { lease: *id });
    }
    cx.persist(Record::Close(signed.into_signed()), vec![Output::Forget { lease: *id }]);
    provider.settle_receipt(id, None);
}

/// When this lease is given up as unpaid, if nothing else is heard.
pub(super) fn unpaid_at(lease: &Lease, grace: Millis) -> Option<Millis> {
    if !matches!(lease.phase, Phase::Open) || lease.lapsed.is_some() {
        return None;
    }
    // A renter that is heard but acknowledges nothing is waited for twice as long. It does not hear this side, and gives
    // the lease up after the grace itself; or it is one that holds slots and says no word of payment.
    let grace = if lease.channel.is_settled() { grace } else { grace.saturating_add(grace) };
    let first =
        lease.claims().map(|(result, at)| at.max(lease.acked).saturating_add(allowance(grace, result.output.0)));
    first.min()
}

/// When an ending lease waits no longer for answers to its results, or a draft for its signature.
pub(super) fn give_up_at(lease: &Lease, grace: Millis) -> Option<Millis> {
    if lease.lapsed.is_some() {
        return None;
    }
    match &lease.phase {
        Phase::Ending { since, .. } if lease.running() == 0 => {
            let last = lease.attempts.values().filter_map(|attempt| match attempt {
                Attempt::Delivered { result, at } => {
                    Some((*at).max(*since).saturating_add(allowance(grace, result.output.0)))
                }
                Attempt::Running { .. } => None,
            });
            last.max()
        }
        // A renter that is there and does not sign. One that is not may come back until the retention ends.
        Phase::Drafted { since, .. } if lease.heard > *since => Some(since.saturating_add(grace)),
        _ => None,
    }
}

/// The renter is there but does not answer: what is not owed is settled, what is owed is closed as unpaid.
pub(super) fn give_up(provider: &mut Provider, id: &LeaseId, cx: &mut Context<'_>) {
    let Some(lease) = provider.leases.get_mut(id) else { return };
    if lease.claims().next().is_some() || matches!(lease.phase, Phase::Drafted { .. }) {
        return close(provider, id, cx);
    }
    let left: Vec<_> = lease.attempts.keys().copied().collect();
    for attempt in left {
        unbilled(lease, attempt, cx);
    }
    advance(provider, id, cx);
}

/// The hash-checked receipt of a draft, for a replayed record.
pub(super) fn replayed(lease: &mut Lease, receipt: Verified<Receipt>) {
    lease.phase = Phase::Drafted { receipt, since: Millis::ZERO };
}
