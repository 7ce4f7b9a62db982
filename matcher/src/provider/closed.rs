//! Leases that are over: kept for a while so that what is repeated gets its stored answer.

use std::collections::{BTreeMap, VecDeque};

use souk_protocol::{
    Accepted, Award, Control, LeaseEnd, LeaseFrame, LeaseId, List, NodeId, Receipt, ReceiptFile, Signed, TaskResult,
    Text, Verified, Voucher,
};

use super::lease::{Lease, Phase};
use crate::{
    channel::{Channel, Heard},
    context::Context,
    event::Keep,
};

/// Leases that are over.
#[derive(Debug, Default)]
pub(super) struct Closed {
    leases: BTreeMap<LeaseId, End>,
    order: VecDeque<LeaseId>,
    with_results: VecDeque<LeaseId>,
    results: usize,
    keep: Keep,
}

/// What is left of a lease.
#[derive(Debug)]
pub(super) struct End {
    award: Verified<Award>,
    accepted: Verified<Accepted>,
    channel: Channel,
    results: Vec<Signed<TaskResult>>,
    voucher: Option<Signed<Voucher>>,
    end: LeaseEnd,
    /// Both signatures, or none of a lease that was closed by this side alone.
    receipt: Option<(Signed<Receipt>, Signed<Receipt>)>,
}

impl End {
    pub(super) fn of(lease: Lease, renter: Option<Signed<Receipt>>) -> Self {
        let (end, receipt) = match lease.phase {
            Phase::Drafted { receipt, .. } => (receipt.end, renter.map(|renter| (receipt.into_signed(), renter))),
            Phase::Ending { end, .. } => (end, None),
            Phase::Open => (LeaseEnd::Unreachable, None),
        };
        Self {
            award: lease.award,
            accepted: lease.accepted,
            channel: lease.channel,
            results: if receipt.is_some() { lease.results } else { Vec::new() },
            voucher: lease.voucher.map(Verified::into_signed),
            end,
            receipt,
        }
    }
}

impl Closed {
    /// None yet; so much will be kept of them.
    pub(super) fn keeping(keep: Keep) -> Self {
        Self { keep, ..Self::default() }
    }

    pub(super) fn has(&self, lease: &LeaseId) -> bool {
        self.leases.contains_key(lease)
    }

    pub(super) fn insert(&mut self, mut end: End) {
        end.channel.shrink();
        end.results.shrink_to_fit();
        let id = end.award.lease;
        if !end.results.is_empty() {
            self.results = self.results.saturating_add(end.results.len());
            self.with_results.push_back(id);
        }
        self.leases.insert(id, end);
        self.order.push_back(id);
        while self.results > self.keep.results {
            let Some(oldest) = self.with_results.pop_front() else { break };
            if let Some(end) = self.leases.get_mut(&oldest) {
                self.results = self.results.saturating_sub(end.results.len());
                end.results = Vec::new();
            }
        }
        if self.order.len() > self.keep.leases
            && let Some(oldest) = self.order.pop_front()
            && let Some(end) = self.leases.remove(&oldest)
        {
            self.results = self.results.saturating_sub(end.results.len());
        }
    }

    /// After a restart: channels of the new run.
    pub(super) fn restart(&mut self, cx: &Context<'_>) {
        for (id, end) in &mut self.leases {
            end.channel = Channel::resumed(*id, cx.provider_boot(&end.award.renter));
        }
    }

    /// Answers a repeated award of a lease that is over. Whether there is such a lease.
    pub(super) fn award(&mut self, award: &Verified<Award>, cx: &mut Context<'_>) -> bool {
        let Some(end) = self.leases.get(&award.lease) else { return false };
        let answer = end.answer();
        cx.send_frame(award.renter, end.channel.say(answer));
        true
    }

    /// A frame of a lease that is over: acknowledged, and answered with how it ended if it asks.
    pub(super) fn frame(&mut self, from: NodeId, frame: LeaseFrame, cx: &mut Context<'_>) {
        let id = frame.lease;
        let Some(end) = self.leases.get_mut(&id) else { return };
        if end.award.renter != from {
            return cx.blame(from, format_args!("a frame of lease {}, to which it is no party", id.short()));
        }
        let answer = match end.channel.handle(frame, cx.now.mono) {
            Heard::Alive(Control::Unknown) | Heard::Restarted(Control::Unknown) => {
                Control::Show { award: end.award.signed().clone(), accepted: end.accepted.signed().clone() }
            }
            Heard::New(Control::Receipt(_)) | Heard::Again => Control::Heartbeat,
            Heard::Alive(Control::Resume) | Heard::New(_) | Heard::Restarted(_) => end.answer(),
            // Answers are unnumbered, and an answer is not answered: two closed sides would talk for ever.
            Heard::Alive(_) => return,
        };
        cx.send_frame(from, end.channel.say(answer));
    }

    pub(super) fn receipt_file(&self, lease: &LeaseId) -> Option<ReceiptFile> {
        let end = self.leases.get(lease)?;
        let (provider, renter) = end.receipt.clone()?;
        let billed = provider.peek().ok()?.billed.len();
        if billed != end.results.len() {
            return None; // dropped for newer ones
        }
        Some(ReceiptFile {
            award: end.award.signed().clone(),
            accepted: end.accepted.signed().clone(),
            results: List::try_from(end.results.clone()).ok()?,
            voucher: end.voucher.clone(),
            provider,
            renter,
        })
    }
}

impl End {
    fn answer(&self) -> Control {
        match &self.receipt {
            Some((provider, _)) => Control::Receipt(provider.clone()),
            None => Control::End { end: self.end, reason: Text::clipped("the lease was closed") },
        }
    }
}
