//! A lease on the provider's side.

use std::collections::{BTreeMap, VecDeque};

use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Award, Billed, Control, Hash, JobId, LeaseEnd, LeaseId, List, LogEnd, Millis,
    NodeId, Party, Receipt, Signed, TaskResult, Text, Timestamp, Verified, Voucher, Work,
};

use crate::{
    account::{AccountError, LeaseAccount},
    channel::Channel,
    context::Context,
    event::{LeaseView, Output},
};

/// Tasks that may wait on a lease beside those that run, at least: enough to hide the way to the renter and back.
const MIN_QUEUE: usize = 16;
/// And at most: a task may be 160 kB.
const MAX_QUEUE: usize = 256;

/// A signed agreement and the work under it.
#[derive(Debug, Clone)]
pub(super) struct Lease {
    pub(super) award: Verified<Award>,
    pub(super) accepted: Verified<Accepted>,
    pub(super) channel: Channel,
    pub(super) account: LeaseAccount,
    /// Attempts that run or whose result is not settled.
    pub(super) attempts: BTreeMap<AttemptId, Attempt>,
    /// Tasks that wait for a slot.
    pub(super) queue: VecDeque<Work>,
    /// By task and replica: the highest attempt number seen.
    pub(super) numbers: BTreeMap<(u32, u16), u32>,
    /// Results of the billed attempts, in their order.
    pub(super) results: Vec<Signed<TaskResult>>,
    pub(super) voucher: Option<Verified<Voucher>>,
    pub(super) unbilled: u32,
    pub(super) phase: Phase,
    /// When the renter was last heard, on the monotonic clock.
    pub(super) heard: Millis,
    /// When this side last said something.
    pub(super) said: Millis,
    /// When an acknowledgement is due.
    pub(super) ack_at: Option<Millis>,
    /// Since when the renter's silence is longer than the grace.
    pub(super) lapsed: Option<Millis>,
    /// When the renter last acknowledged everything.
    pub(super) acked: Millis,
    /// Since when tasks wait for credit.
    pub(super) blocked: Option<Millis>,
    /// When that was looked at last.
    pub(super) looked: Millis,
    /// When it next needs attention.
    pub(super) due: Option<Millis>,
    /// Its place in the order in which leases were accepted.
    pub(super) order: u64,
    /// Whether the executor holds slots for it.
    pub(super) slots_open: bool,
    /// When its slots become its own, on the monotonic clock; none once they are.
    pub(super) begins: Option<Millis>,
    /// When slots that were reserved for it became its own: a renter that does not come then has broken its word.
    pub(super) reserved: Option<Millis>,
    /// It has to be gone by then.
    pub(super) vacate: Option<Millis>,
    /// Because the owner's hours are over then.
    pub(super) for_owner: bool,
    /// Whether something durable could not be said because too much is unacknowledged.
    pub(super) behind: bool,
    pub(super) remark: Text<500>,
}

/// Why an attempt cannot be settled so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsettled {
    #[error("attempt {0} has no result that waits to be settled")]
    NotDelivered(AttemptId),
    #[error("attempt {attempt} claims {} ms, {} are billed", claimed.0, run.0)]
    NotClaimed { attempt: AttemptId, run: Millis, claimed: Millis },
    #[error(transparent)]
    Account(#[from] AccountError),
}

/// An attempt that is not settled.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "most attempts of a busy lease are delivered ones")]
pub(super) enum Attempt {
    /// It was given to the executor.
    Running {
        /// Of which job.
        job: JobId,
        /// Whether it was told to stop.
        stopping: bool,
        /// Since when the program runs, on the monotonic clock; none while it fetches.
        since: Option<Millis>,
    },
    /// Its result is journaled.
    Delivered {
        /// What came of it.
        result: Verified<TaskResult>,
        /// When, on the monotonic clock.
        at: Millis,
    },
}

/// Where a lease stands.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a drafted receipt is the last state of every lease")]
pub(super) enum Phase {
    /// Tasks are taken.
    Open,
    /// No new tasks; what runs ends, what is delivered is settled.
    Ending { end: LeaseEnd, by: Party, since: Millis },
    /// The receipt is signed by this side.
    Drafted { receipt: Verified<Receipt>, since: Millis },
}

impl Lease {
    pub(super) fn new(award: Verified<Award>, accepted: Verified<Accepted>, boot: u64, now: Millis) -> Self {
        Self {
            channel: Channel::new(award.lease, boot),
            account: LeaseAccount::new(award.rate),
            attempts: BTreeMap::new(),
            queue: VecDeque::new(),
            numbers: BTreeMap::new(),
            results: Vec::new(),
            voucher: None,
            unbilled: 0,
            phase: Phase::Open,
            heard: now,
            said: now,
            ack_at: None,
            lapsed: None,
            acked: now,
            blocked: None,
            looked: now,
            due: None,
            order: 0,
            slots_open: false,
            begins: None,
            reserved: None,
            vacate: None,
            for_owner: false,
            behind: false,
            remark: Text::default(),
            award,
            accepted,
        }
    }

    pub(super) fn id(&self) -> LeaseId {
        self.award.lease
    }

    pub(super) fn renter(&self) -> NodeId {
        self.award.renter
    }

    pub(super) fn view(&self) -> LeaseView {
        LeaseView {
            lease: self.award.lease,
            peer: self.award.renter,
            job: self.award.job,
            slots: self.award.slots,
            requirement: self.award.requirement.clone(),
            rate: self.award.rate,
        }
    }

    pub(super) fn running(&self) -> usize {
        self.attempts.values().filter(|attempt| matches!(attempt, Attempt::Running { .. })).count()
    }

    pub(super) fn has_free_slot(&self) -> bool {
        self.begins.is_none() && self.running() < usize::try_from(self.award.slots).unwrap_or(usize::MAX)
    }

    pub(super) fn queue_limit(&self) -> usize {
        usize::try_from(self.award.slots).unwrap_or(MAX_QUEUE).clamp(MIN_QUEUE, MAX_QUEUE)
    }

    /// Results that the renter owes for if it accepts them.
    pub(super) fn claims(&self) -> impl Iterator<Item = (&Verified<TaskResult>, Millis)> {
        self.attempts.values().filter_map(|attempt| match attempt {
            Attempt::Delivered { result, at } if result.end.is_billed() => Some((result, *at)),
            _ => None,
        })
    }

    /// Takes a journaled result.
    pub(super) fn delivered(&mut self, result: Verified<TaskResult>, at: Millis) {
        let attempt = result.attempt;
        self.see(&attempt);
        if matches!(result.end, AttemptEnd::Failed | AttemptEnd::ProviderFault) {
            let code = result.exit_code.map_or_else(String::new, |code| format!("exit code {code}: "));
            self.remark = Text::clipped(&format!("task {}: {code}{}", attempt.task, result.reason));
        }
        self.attempts.insert(attempt, Attempt::Delivered { result, at });
    }

    /// Takes the renter's answer to a result. What was not delivered or is settled cannot be settled.
    pub(super) fn settled(
        &mut self,
        attempt: &AttemptId,
        run: Millis,
        voucher: Option<Verified<Voucher>>,
    ) -> Result<(), Unsettled> {
        let Some(Attempt::Delivered { result, .. }) = self.attempts.get(attempt) else {
            return Err(Unsettled::NotDelivered(*attempt));
        };
        match voucher {
            Some(voucher) => {
                if !result.end.is_billed() || run > result.run {
                    return Err(Unsettled::NotClaimed { attempt: *attempt, run, claimed: result.run });
                }
                let item = Billed { attempt: *attempt, result: result.hash(), run };
                self.account.bill_by(item, &voucher)?;
                self.results.push(result.signed().clone());
                self.voucher = Some(voucher);
            }
            None => self.unbilled = self.unbilled.saturating_add(1),
        }
        self.attempts.remove(attempt);
        Ok(())
    }

    /// Whether this attempt or a later one of the same task was seen.
    pub(super) fn knows(&self, attempt: &AttemptId) -> bool {
        self.numbers.get(&(attempt.task, attempt.replica)).is_some_and(|number| *number >= attempt.number)
    }

    pub(super) fn see(&mut self, attempt: &AttemptId) {
        let number = self.numbers.entry((attempt.task, attempt.replica)).or_default();
        *number = (*number).max(attempt.number);
    }

    /// A numbered frame for an output list that waits for the disk.
    pub(super) fn framed(&mut self, body: Control, now: Millis) -> Vec<Output> {
        self.said = now;
        self.ack_at = None;
        match self.channel.send(body, now) {
            Some(frame) => {
                vec![Output::Send { to: self.renter(), message: souk_protocol::Message::Lease(frame) }]
            }
            None => {
                self.behind = true;
                Vec::new()
            }
        }
    }

    /// Says something that is repeated until acknowledged.
    pub(super) fn tell(&mut self, body: Control, cx: &mut Context<'_>) {
        self.said = cx.now.mono;
        self.ack_at = None;
        match self.channel.send(body, cx.now.mono) {
            Some(frame) => cx.send_frame(self.renter(), frame),
            None => self.behind = true,
        }
    }

    /// Says something that is not repeated.
    pub(super) fn say(&mut self, body: Control, cx: &mut Context<'_>) {
        self.said = cx.now.mono;
        self.ack_at = None;
        cx.send_frame(self.renter(), self.channel.say(body));
    }

    /// Says once more what is not acknowledged.
    pub(super) fn resend(&mut self, cx: &mut Context<'_>) {
        for frame in self.channel.resend(cx.now.mono) {
            self.said = cx.now.mono;
            self.ack_at = None;
            cx.send_frame(self.renter(), frame);
        }
    }

    /// Says what is durable and unanswered, for a peer that starts anew.
    pub(super) fn repeat(&mut self, cx: &mut Context<'_>) {
        self.behind = false;
        let results: Vec<_> = self
            .attempts
            .values()
            .filter_map(|attempt| match attempt {
                Attempt::Delivered { result, .. } => Some(result.signed().clone()),
                Attempt::Running { .. } => None,
            })
            .collect();
        for result in results {
            self.tell(Control::Result(result), cx);
        }
        match &self.phase {
            Phase::Ending { end, by: Party::Provider, .. } => {
                let body = Control::End { end: *end, reason: Text::clipped("") };
                self.tell(body, cx);
            }
            Phase::Drafted { receipt, .. } => {
                let body = Control::Receipt(receipt.signed().clone());
                self.tell(body, cx);
            }
            Phase::Open | Phase::Ending { .. } => {}
        }
    }

    /// A result of an attempt of which nothing ran.
    pub(super) fn blank(
        &self,
        attempt: AttemptId,
        job: JobId,
        end: AttemptEnd,
        reason: &str,
        at: Timestamp,
    ) -> TaskResult {
        TaskResult {
            attempt,
            job,
            provider: self.award.provider,
            renter: self.award.renter,
            end,
            exit_code: None,
            reason: Text::clipped(reason),
            run: Millis::ZERO,
            started: at,
            ended: at,
            stdout: LogEnd::empty(),
            stderr: LogEnd::empty(),
            manifest: Hash::of(&[]),
            manifest_len: 0,
            output: souk_protocol::Bytes::ZERO,
            files: 0,
            telemetry: None,
        }
    }

    /// The receipt by this side's books.
    pub(super) fn draft(&self, end: LeaseEnd, by: Party, closed: Timestamp) -> Option<Receipt> {
        Some(Receipt {
            lease: self.award.lease,
            renter: self.award.renter,
            provider: self.award.provider,
            award: self.award.hash(),
            accepted: self.accepted.hash(),
            rate: self.award.rate,
            end,
            ended_by: by,
            opened: self.accepted.at,
            closed: closed.max(self.accepted.at),
            billed: List::try_from(self.account.billed().to_vec()).ok()?,
            unbilled: self.unbilled,
            run: self.account.run(),
            total: self.account.total(),
            voucher: self.voucher.as_ref().map(Verified::hash),
            remark: self.remark.clone(),
        })
    }
}
