//! A provider under test, with a hand-made renter at the other end.

use std::{collections::BTreeMap, sync::Arc};

use souk_protocol::{
    ACCEPT_WITHIN_MS, AttemptEnd, Basis, Billed, Bytes, Control, Decline, DeclineCode, Hash, JobId, LogEnd, Message,
    Offer, Rate, Receipt, Signed, Signer, TaskResult, Text, Voucher, WorkLimits,
};

use super::*;
use crate::{
    Event, LeaseAccount, Notice, Output, Token, Trader,
    channel::{Channel, Heard},
    invariant,
    testing::{NETWORK, TestKeys, at, policy, settings, slot, terms},
};

mod bidding;
mod crash;
mod ending;
mod hours;
mod preempting;
mod property;
mod working;

const JOB: JobId = JobId([5; 32]);
const RATE: Rate = Rate(300_000);

/// The provider and what a renter knows of it.
struct Stall {
    trader: Trader,
    renter: TestKeys,
    now: u64,
    boot: u64,
    journal: Vec<Record>,
    /// While the disk is slow: what waits for it.
    slow: Option<Vec<Token>>,
    channels: BTreeMap<LeaseId, Channel>,
    accounts: BTreeMap<LeaseId, LeaseAccount>,
    offer: Option<Verified<Offer>>,
}

impl Stall {
    fn new() -> Self {
        let mut stall = Self {
            trader: Trader::new(settings(1), Arc::new(TestKeys::new(1))),
            renter: TestKeys::new(2),
            now: 0,
            boot: 1,
            journal: Vec::new(),
            slow: None,
            channels: BTreeMap::new(),
            accounts: BTreeMap::new(),
            offer: None,
        };
        stall.handle(Event::Recovered);
        stall.handle(Event::Policy(Box::new(policy())));
        stall
    }

    fn id(&self) -> NodeId {
        self.trader.id()
    }

    fn renter_id(&self) -> NodeId {
        self.renter.id()
    }

    /// What comes of an event, with the disk's answers in it; records go to the journal.
    fn handle(&mut self, event: Event) -> Vec<Output> {
        let mut out = Vec::new();
        let mut todo: Vec<Output> = self.trader.handle(event, at(self.now));
        todo.reverse();
        while let Some(output) = todo.pop() {
            match output {
                Output::Persist { record, token } => {
                    self.journal.push(record);
                    match &mut self.slow {
                        Some(waiting) => waiting.push(token),
                        None => {
                            todo.extend(self.trader.handle(Event::Persisted(token), at(self.now)).into_iter().rev())
                        }
                    }
                }
                Output::Offer(offer) => {
                    self.offer = Some(offer.clone());
                    out.push(Output::Offer(offer));
                }
                other => out.push(other),
            }
        }
        assert_eq!(invariant::no_oversell(&self.trader.provider), Ok(()));
        assert_eq!(invariant::exposure_within_limits(&self.trader.books), Ok(()));
        assert_eq!(self.trader.books.verify(), Vec::<String>::new());
        out
    }

    /// The disk answers at last.
    fn sync(&mut self) -> Vec<Output> {
        let waiting = self.slow.take().unwrap_or_default();
        waiting.into_iter().flat_map(|token| self.handle(Event::Persisted(token))).collect()
    }

    fn message(&mut self, message: Message) -> Vec<Output> {
        let from = self.renter_id();
        self.handle(Event::Message { from, message })
    }

    /// Lets time pass with all timers in it.
    fn pass(&mut self, ms: u64) -> Vec<Output> {
        let end = self.now + ms;
        let mut out = Vec::new();
        let mut rounds = 0;
        while let Some(due) = self.trader.wake_at().filter(|due| due.0 <= end) {
            self.now = self.now.max(due.0);
            out.extend(self.handle(Event::Wake));
            rounds += 1;
            assert!(rounds < 200_000, "a timer is never satisfied");
        }
        self.now = end;
        out
    }

    fn work(&self, lease: LeaseId, task: u32) -> Work {
        Work {
            attempt: AttemptId { lease, task, replica: 0, number: 1 },
            job: JOB,
            count: 10_000,
            module: Hash([1; 32]),
            module_len: 1_000,
            argv0: Text::clipped("tool"),
            entry: Text::clipped("_start"),
            args: List::default(),
            env: List::default(),
            inputs: List::default(),
            outputs: List::default(),
            limits: WorkLimits {
                timeout: Millis(60_000),
                stop_grace: Millis(500),
                memory: Bytes(1_000_000_000),
                stdout: Bytes(1_000_000),
                disk: Bytes(1_000_000_000),
            },
        }
    }

    fn award_doc(&self, lease: LeaseId, slots: u32) -> Award {
        Award {
            lease,
            network: NETWORK,
            renter: self.renter_id(),
            provider: self.id(),
            job: JOB,
            basis: Basis::Ask { offer: self.offer.as_ref().expect("an offer").hash() },
            requirement: slot(),
            terms: terms(),
            rate: RATE,
            slots,
            start: at(self.now).wall,
            issued: at(self.now).wall,
            accept_by: Timestamp(at(self.now).wall.0 + ACCEPT_WITHIN_MS),
        }
    }

    fn award_message(&self, award: &Award, tasks: &[u32]) -> Message {
        let work = tasks.iter().map(|task| self.work(award.lease, *task)).collect::<Vec<_>>();
        Message::Award {
            award: Signed::sign(award, &self.renter).unwrap().into_signed(),
            work: List::try_from(work).unwrap(),
            files: List::default(),
        }
    }

    /// Awards by ask and takes the acceptance.
    fn lease(&mut self, number: u8, slots: u32, tasks: &[u32]) -> LeaseId {
        let id = LeaseId([number; 16]);
        let message = self.award_message(&self.award_doc(id, slots), tasks);
        let out = self.message(message);
        self.renters_side(id);
        let said = self.said(&out);
        assert!(matches!(said[..], [Control::Accepted(_)]), "{out:?}");
        id
    }

    fn renters_side(&mut self, id: LeaseId) {
        self.channels.insert(id, Channel::new(id, 70 + self.boot));
        self.accounts.insert(id, LeaseAccount::new(RATE));
    }

    /// What the renter understands of some outputs, heartbeats left out.
    fn said(&mut self, out: &[Output]) -> Vec<Control> {
        let mut said = Vec::new();
        for output in out {
            let Output::Send { message: Message::Lease(frame), .. } = output else { continue };
            let now = Millis(self.now);
            let Some(channel) = self.channels.get_mut(&frame.lease) else { continue };
            match channel.handle(frame.clone(), now) {
                Heard::New(body) | Heard::Alive(body) | Heard::Restarted(body) => {
                    if body != Control::Heartbeat {
                        said.push(body);
                    }
                }
                Heard::Again => {}
            }
        }
        said
    }

    /// The renter says something; what it hears in return.
    fn say(&mut self, lease: LeaseId, body: Control) -> Vec<Output> {
        let now = Millis(self.now);
        let frame = self.channels.get_mut(&lease).unwrap().send(body, now).unwrap();
        self.message(Message::Lease(frame))
    }

    fn heartbeat(&mut self, lease: LeaseId) -> Vec<Output> {
        let frame = self.channels[&lease].say(Control::Heartbeat);
        self.message(Message::Lease(frame))
    }

    fn outcome(&self, end: AttemptEnd, run: u64) -> Outcome {
        Outcome {
            end,
            exit_code: (end == AttemptEnd::Done).then_some(0),
            reason: Text::default(),
            run: Millis(run),
            started: at(self.now).wall,
            ended: at(self.now).wall,
            stdout: LogEnd::empty(),
            stderr: LogEnd::empty(),
            manifest: Hash::of(&[]),
            manifest_len: 0,
            output: Bytes(0),
            files: 0,
            telemetry: None,
        }
    }

    /// An attempt ends; the result the renter hears.
    fn ends(&mut self, lease: LeaseId, task: u32, end: AttemptEnd, run: u64) -> Verified<TaskResult> {
        let attempt = AttemptId { lease, task, replica: 0, number: 1 };
        let outcome = self.outcome(end, run);
        let out = self.handle(Event::Ended { attempt, outcome });
        let said = self.said(&out);
        let result = said.into_iter().find_map(|body| match body {
            Control::Result(result) => Some(result.verify(&self.renter).unwrap()),
            _ => None,
        });
        result.expect("a result")
    }

    fn voucher(&mut self, result: &TaskResult, hash: Hash, run: u64) -> Control {
        let (lease, renter, provider) = (result.attempt.lease, self.renter_id(), self.id());
        let account = self.accounts.get_mut(&lease).unwrap();
        account.bill(Billed { attempt: result.attempt, result: hash, run: Millis(run) }).unwrap();
        let voucher: Voucher = account.voucher(lease, renter, provider, at(self.now).wall);
        let voucher = Signed::sign(&voucher, &self.renter).unwrap().into_signed();
        Control::Done { attempt: result.attempt, run: Millis(run), voucher }
    }

    /// The renter takes a result and pays what it claims.
    fn pays(&mut self, result: &Verified<TaskResult>) -> Vec<Output> {
        let done = self.voucher(result, result.hash(), result.run.0);
        self.say(result.attempt.lease, done)
    }

    fn refuses(&mut self, attempt: AttemptId) -> Vec<Output> {
        self.say(attempt.lease, Control::Refused { attempt, reason: Text::clipped("not wanted") })
    }

    /// The renter signs the draft it heard.
    fn signs(&mut self, lease: LeaseId, out: &[Output]) -> (Receipt, Vec<Output>) {
        let draft = self.said(out).into_iter().find_map(|body| match body {
            Control::Receipt(draft) => Some(draft),
            _ => None,
        });
        let draft = draft.expect("a draft").verify(&self.renter).unwrap();
        assert_eq!(draft.signer(), self.id());
        let signed = Signed::sign(&*draft, &self.renter).unwrap().into_signed();
        let out = self.say(lease, Control::Receipt(signed));
        (draft.into_document(), out)
    }

    fn end(&mut self, lease: LeaseId) -> Vec<Output> {
        self.say(lease, Control::End { end: LeaseEnd::Completed, reason: Text::default() })
    }

    /// The process dies and comes back with what `cut` records of the journal say.
    fn crash(&mut self, cut: usize) -> Vec<Output> {
        self.journal.truncate(cut);
        self.slow = None;
        self.boot += 1;
        let mut trader = Trader::new(settings(self.boot), Arc::new(TestKeys::new(1)));
        for record in &self.journal {
            trader.apply(record).unwrap();
        }
        self.trader = trader;
        let mut out = self.handle(Event::Recovered);
        out.extend(self.handle(Event::Policy(Box::new(policy()))));
        out
    }

    fn view(&self, lease: LeaseId) -> Option<ProviderLease> {
        let leases = self.trader.provider.leases(Millis(self.now), Millis(15_000));
        leases.into_iter().find(|view| view.lease.lease == lease)
    }
}

fn decline(out: &[Output]) -> Option<&Decline> {
    out.iter().find_map(|output| match output {
        Output::Send { message: Message::Decline(decline), .. } => Some(decline),
        _ => None,
    })
}

fn code(out: &[Output]) -> Option<DeclineCode> {
    decline(out).map(|decline| decline.code)
}

fn runs(out: &[Output]) -> Vec<u32> {
    let task = |output: &Output| match output {
        Output::Run { work, .. } => Some(work.attempt.task),
        _ => None,
    };
    out.iter().filter_map(task).collect()
}

fn stops(out: &[Output]) -> Vec<(u32, AttemptEnd)> {
    let stop = |output: &Output| match output {
        Output::Stop { attempt, end, .. } => Some((attempt.task, *end)),
        _ => None,
    };
    out.iter().filter_map(stop).collect()
}

fn blamed(out: &[Output]) -> Option<&str> {
    out.iter().find_map(|output| match output {
        Output::Blame { fault, .. } => Some(fault.as_str()),
        _ => None,
    })
}

fn receipts(out: &[Output]) -> usize {
    out.iter().filter(|output| matches!(output, Output::Notify(Notice::Receipt { .. }))).count()
}
