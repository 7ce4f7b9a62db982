//! A lease on the renter's side.

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{
    Accepted, AttemptId, Award, Billed, Control, Credits, Hash, JobId, LeaseEnd, LeaseId, List, MAX_BILLED, Message,
    Millis, NodeId, Party, Receipt, ReceiptFile, Signed, TaskResult, Text, Verified, Voucher,
};

use crate::{
    account::{AccountError, LeaseAccount},
    channel::{ACK_WITHIN, Channel, HEARTBEAT},
    context::Context,
    event::{LeaseView, Now, Output},
};

/// Heartbeats begin so long before a lease does.
const LEAD: Millis = Millis(15_000);

/// An award, and what became of it.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) award: Verified<Award>,
    pub(super) accepted: Option<Verified<Accepted>>,
    pub(super) phase: Phase,
    pub(super) channel: Channel,
    pub(super) account: LeaseAccount,
    /// Attempts under way.
    pub(super) open: BTreeMap<AttemptId, Open>,
    /// Tasks that went out with the award, until it is answered.
    pub(super) promised: Vec<AttemptId>,
    /// When the award went out, on the monotonic clock.
    pub(super) sent: Millis,
    /// Answers to results, in the order they were given.
    pub(super) answers: Vec<Answer>,
    answered: BTreeSet<AttemptId>,
    /// How many of the answers were said to this run of the provider.
    said_answers: usize,
    /// Results of the billed attempts, in their order.
    pub(super) results: Vec<Signed<TaskResult>>,
    pub(super) voucher: Option<Verified<Voucher>>,
    /// Whether the provider has been silent for so long that nothing is known of it.
    pub(super) unknown: bool,
    /// Whether it gets no more tasks.
    pub(super) tainted: bool,
    /// Whether its provider has given notice of preemption.
    pub(super) noticed: bool,
    /// Whether credit beyond what the offer states was granted.
    pub(super) trusted: bool,
    pub(super) heard: Millis,
    /// When its slots are there, on the monotonic clock; none once they are.
    pub(super) begins: Option<Millis>,
    /// Silences after which it is unknown, and given up.
    pub(super) patience: (Millis, Millis),
    said: Millis,
    ack_at: Option<Millis>,
}

/// Where a lease stands.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "most leases are closed ones")]
pub(super) enum Phase {
    /// The award is out, until then.
    Awarded(Millis),
    /// It was not accepted in time; forgotten then.
    Void(Millis),
    /// Accepted.
    Open,
    /// No new tasks.
    Ending { end: LeaseEnd, by: Party, since: Millis },
    /// Over.
    Closed { end: LeaseEnd, by: Party, receipt: Option<(Signed<Receipt>, Signed<Receipt>)> },
}

/// An attempt under way.
#[derive(Debug, Clone)]
pub(super) struct Open {
    /// When it was handed out; unknown after a restart.
    pub(super) sent: Option<Millis>,
    /// When it is given up if nothing is heard of it.
    pub(super) due: Millis,
    /// The result whose outputs are being brought home, and when it came.
    pub(super) result: Option<(Verified<TaskResult>, Millis)>,
    /// Whether the provider was told to stop it.
    pub(super) cancelled: bool,
}

/// What was said to a result.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Done { attempt: AttemptId, run: Millis, voucher: Signed<Voucher> },
    Refused { attempt: AttemptId, reason: Text<200> },
}

impl Answer {
    fn body(&self) -> Control {
        match self.clone() {
            Self::Done { attempt, run, voucher } => Control::Done { attempt, run, voucher },
            Self::Refused { attempt, reason } => Control::Refused { attempt, reason },
        }
    }
}

impl Lease {
    pub(super) fn new(award: Verified<Award>, phase: Phase, boot: u64, now: Millis) -> Self {
        Self {
            channel: Channel::new(award.lease, boot),
            account: LeaseAccount::new(award.rate),
            accepted: None,
            phase,
            open: BTreeMap::new(),
            promised: Vec::new(),
            sent: now,
            answers: Vec::new(),
            answered: BTreeSet::new(),
            said_answers: 0,
            results: Vec::new(),
            voucher: None,
            unknown: false,
            tainted: false,
            noticed: false,
            trusted: false,
            heard: now,
            begins: (award.start > award.issued).then_some(Millis::MAX),
            patience: (Millis::MAX, Millis::MAX),
            said: now,
            ack_at: None,
            award,
        }
    }

    pub(super) fn id(&self) -> LeaseId {
        self.award.lease
    }

    pub(super) fn job(&self) -> JobId {
        self.award.job
    }

    pub(super) fn provider(&self) -> NodeId {
        self.award.provider
    }

    pub(super) fn view(&self) -> LeaseView {
        LeaseView {
            lease: self.award.lease,
            peer: self.award.provider,
            job: self.award.job,
            slots: self.award.slots,
            requirement: self.award.requirement.clone(),
            rate: self.award.rate,
        }
    }

    /// The most one attempt on it can be charged for.
    pub(super) fn step(&self) -> Credits {
        self.award.rate.charge(self.award.terms.timeout).unwrap_or(Credits::MAX)
    }

    /// The longest time an attempt on it may run until it has stopped.
    pub(super) fn longest_run(&self) -> Millis {
        self.award.terms.timeout.saturating_add(self.award.terms.stop_grace)
    }

    /// What its attempts under way, handed out or promised, may come to.
    pub(super) fn at_risk(&self) -> Credits {
        let count = self.open.len().saturating_add(self.promised.len());
        self.step().checked_mul(u64::try_from(count).unwrap_or(u64::MAX)).unwrap_or(Credits::MAX)
    }

    pub(super) const fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Closed { .. } | Phase::Void(_))
    }

    /// Whether it takes tasks.
    pub(super) const fn is_usable(&self) -> bool {
        matches!(self.phase, Phase::Open) && !self.tainted && !self.unknown
    }

    /// Counts the time until its slots are there.
    pub(super) fn count_down(&mut self, now: Now) {
        let left = self.award.start.saturating_since(now.wall);
        let waits = self.begins.is_some() && !left.is_zero();
        self.begins = waits.then(|| now.mono.saturating_add(left));
    }

    /// Since when silence counts. Before its slots are there nothing has to be said.
    pub(super) fn silent_since(&self) -> Millis {
        self.heard.max(self.begins.unwrap_or(Millis::ZERO))
    }

    /// Attempts that hold a slot: those whose result has not come.
    pub(super) fn busy(&self) -> usize {
        self.open.values().filter(|open| open.result.is_none()).count()
    }

    /// Slots for further tasks.
    pub(super) fn free(&self) -> usize {
        if !self.is_usable() || self.begins.is_some() {
            return 0;
        }
        let slots = usize::try_from(self.award.slots).unwrap_or(usize::MAX);
        // A receipt lists so many attempts and no more.
        let listed = MAX_BILLED.saturating_sub(self.account.billed().len()).saturating_sub(self.open.len());
        slots.saturating_sub(self.busy()).min(listed)
    }

    /// Whether the receipt has no room for another attempt.
    pub(super) fn is_full(&self) -> bool {
        self.account.billed().len().saturating_add(self.open.len()) >= MAX_BILLED
    }

    pub(super) fn has_answered(&self, attempt: &AttemptId) -> bool {
        self.answered.contains(attempt)
    }

    /// Takes a journaled answer: the account, if it is owed for, and what the provider is told.
    pub(super) fn answer(
        &mut self,
        result: &Verified<TaskResult>,
        run: Millis,
        voucher: Option<Verified<Voucher>>,
        reason: &str,
    ) -> Result<Credits, AccountError> {
        let attempt = result.attempt;
        let before = self.account.total();
        let answer = match voucher {
            Some(voucher) => {
                self.account.bill_by(Billed { attempt, result: result.hash(), run }, &voucher)?;
                self.results.push(result.signed().clone());
                let signed = voucher.signed().clone();
                self.voucher = Some(voucher);
                Answer::Done { attempt, run, voucher: signed }
            }
            None => Answer::Refused { attempt, reason: Text::clipped(reason) },
        };
        self.open.remove(&attempt);
        self.answered.insert(attempt);
        self.answers.push(answer);
        Ok(self.account.total().saturating_sub(before))
    }

    /// The newest answer as a frame for what waits for the disk; later, if older ones have to be said before it.
    pub(super) fn framed_answer(&mut self, now: Millis) -> Vec<Output> {
        let provider = self.provider();
        if self.said_answers.saturating_add(1) != self.answers.len() {
            return Vec::new();
        }
        let Some(frame) = self.answers.last().and_then(|answer| self.channel.send(answer.body(), now)) else {
            return Vec::new();
        };
        self.said_answers = self.answers.len();
        self.spoke(now);
        vec![Output::Send { to: provider, message: Message::Lease(frame) }]
    }

    /// A numbered frame for what waits for the disk.
    pub(super) fn framed(&mut self, body: Control, now: Millis) -> Vec<Output> {
        let provider = self.provider();
        let frame = self.channel.send(body, now);
        self.spoke(now);
        frame.map(|frame| Output::Send { to: provider, message: Message::Lease(frame) }).into_iter().collect()
    }

    fn spoke(&mut self, now: Millis) {
        self.said = now;
        self.ack_at = None;
    }

    /// Says something that is repeated until acknowledged. Whether there was room for it.
    pub(super) fn tell(&mut self, body: Control, cx: &mut Context<'_>) -> bool {
        let Some(frame) = self.channel.send(body, cx.now.mono) else { return false };
        self.spoke(cx.now.mono);
        cx.send_frame(self.provider(), frame);
        true
    }

    /// Says something that is not repeated.
    pub(super) fn say(&mut self, body: Control, cx: &mut Context<'_>) {
        self.spoke(cx.now.mono);
        cx.send_frame(self.provider(), self.channel.say(body));
    }

    /// Says once more what is not acknowledged.
    pub(super) fn resend(&mut self, cx: &mut Context<'_>) {
        for frame in self.channel.resend(cx.now.mono) {
            self.spoke(cx.now.mono);
            cx.send_frame(self.provider(), frame);
        }
    }

    /// Says the answers that were not said yet, in their order: vouchers build on each other.
    pub(super) fn say_answers(&mut self, cx: &mut Context<'_>) {
        while let Some(answer) = self.answers.get(self.said_answers) {
            let body = answer.body();
            if !self.tell(body, cx) {
                break; // the rest follows when there is room
            }
            self.said_answers = self.said_answers.saturating_add(1);
        }
    }

    /// Forgets that answers were said: the provider starts anew.
    pub(super) fn repeat_answers(&mut self, cx: &mut Context<'_>) {
        self.said_answers = 0;
        self.say_answers(cx);
    }

    /// A message came and wants to be acknowledged.
    pub(super) fn owe_ack(&mut self, now: Millis) {
        self.ack_at.get_or_insert(now.saturating_add(ACK_WITHIN));
    }

    /// When something has to be said, if only a heartbeat.
    pub(super) fn speak_at(&self) -> Millis {
        let beat = self.said.saturating_add(HEARTBEAT);
        let beat = self.begins.map_or(beat, |begins| beat.max(begins.saturating_sub(LEAD)));
        self.ack_at.map_or(beat, |at| at.min(beat))
    }

    /// Whether nothing may come on it that could still count.
    pub(super) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.promised.is_empty()
    }

    /// Whether the provider's draft is what this side's account says.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn check(&self, draft: &Receipt) -> Result<(), &'static str> {
        let same = [
            (draft.lease == self.award.lease, "lease"),
            (draft.renter == self.award.renter, "renter"),
            (draft.provider == self.award.provider, "provider"),
            (draft.award == self.award.hash(), "award"),
            (self.accepted.as_ref().map(Verified::hash) == Some(draft.accepted), "accepted"),
            (self.accepted.as_ref().map(|accepted| accepted.at) == Some(draft.opened), "opened"),
            (draft.rate == self.award.rate, "rate"),
            (*draft.billed == *self.account.billed(), "billed"),
            (draft.run == self.account.run(), "run"),
            (draft.total == self.account.total(), "total"),
            (draft.voucher == self.voucher.as_ref().map(Verified::hash), "voucher"),
        ];
        same.iter().find(|(same, _)| !same).map_or(Ok(()), |(_, what)| Err(what))
    }

    pub(super) fn receipt_file(&self) -> Option<ReceiptFile> {
        let Phase::Closed { receipt: Some((provider, renter)), .. } = &self.phase else { return None };
        if self.results.len() != self.account.billed().len() {
            return None; // dropped for newer ones
        }
        Some(ReceiptFile {
            award: self.award.signed().clone(),
            accepted: self.accepted.as_ref()?.signed().clone(),
            results: List::try_from(self.results.clone()).ok()?,
            voucher: self.voucher.as_ref().map(|voucher| voucher.signed().clone()),
            provider: provider.clone(),
            renter: renter.clone(),
        })
    }

    /// Drops what only an open lease needs.
    pub(super) fn shrink(&mut self) {
        self.answers = Vec::new();
        self.said_answers = 0;
        self.channel.shrink();
    }

    pub(super) fn award_hash(&self) -> Hash {
        self.award.hash()
    }
}
