//! A hand-made provider at the other end: what an honest one would never say.

use souk_protocol::{
    Accepted, Announcement, Award, Bid, Control, Key, LeaseFrame, Message, Receipt, Signed, Signer, TaskResult,
    Timestamp,
};

use super::*;
use crate::{
    channel::{Channel, Heard},
    testing::NETWORK,
};

/// The renter, and the provider's side of what was said.
struct Stall {
    trader: Trader,
    key: Key,
    now: u64,
    sent: Vec<Message>,
    out: Vec<Output>,
    channel: Option<Channel>,
    award: Option<Verified<Award>>,
    work: Vec<Work>,
    calls: Vec<Signed<Announcement>>,
}

impl Stall {
    fn new() -> Self {
        let key = Key::from_seed(&[50; 32]);
        let mut stall = Self {
            trader: Trader::new(settings(1), Arc::new(TestKeys::new(10))),
            now: 1_000,
            sent: Vec::new(),
            out: Vec::new(),
            channel: None,
            award: None,
            work: Vec::new(),
            calls: Vec::new(),
            key,
        };
        stall.handle(Event::Recovered);
        stall.handle(Event::Offer(stall.offer(1)));
        stall
    }

    fn offer(&self, sequence: u64) -> Verified<souk_protocol::Offer> {
        let policy = priced(200_000, 0);
        let offer = souk_protocol::Offer {
            provider: self.key.id(),
            network: NETWORK,
            sequence,
            issued: at(self.now).wall,
            expires: Timestamp(at(self.now).wall.0 + 600_000),
            name: policy.name.clone(),
            region: policy.region.clone(),
            total: policy.total,
            free: policy.total,
            gpus: Default::default(),
            runtimes: vec![souk_protocol::Runtime::Wasm].try_into().unwrap(),
            isolation: vec![souk_protocol::Isolation::W0].try_into().unwrap(),
            tiers: vec![souk_protocol::Tier::Bronze].try_into().unwrap(),
            ask: Some(policy.ask),
            max_duration: policy.max_duration,
            stranger_limit: policy.stranger_limit,
            strangers_limit: policy.strangers_limit,
            addresses: Default::default(),
        };
        Signed::sign(&offer, &self.key).unwrap()
    }

    fn handle(&mut self, event: Event) {
        let mut todo = vec![event];
        while let Some(event) = todo.pop() {
            for output in self.trader.handle(event, at(self.now)) {
                match output {
                    Output::Persist { token, .. } => todo.push(Event::Persisted(token)),
                    Output::Send { message, .. } => self.sent(message),
                    other => self.out.push(other),
                }
            }
        }
        for job in self.trader.renter.jobs() {
            assert_eq!(invariant::job(job), Ok(()));
        }
    }

    fn sent(&mut self, message: Message) {
        match &message {
            Message::Award { award, work, .. } => {
                let award = award.verify(&souk_protocol::Strict).unwrap();
                self.channel = Some(Channel::new(award.lease, 1));
                self.award = Some(award);
                self.work = work.to_vec();
            }
            Message::Announce(call) => self.calls.push(call.clone()),
            Message::Lease(frame) => {
                if let Some(channel) = &mut self.channel
                    && let Heard::New(Control::Task(work)) = channel.handle(frame.clone(), Millis(self.now))
                {
                    self.work.push(work);
                }
            }
            _ => {}
        }
        self.sent.push(message);
    }

    fn message(&mut self, message: Message) {
        let from = self.key.id();
        self.handle(Event::Message { from, message });
    }

    fn tell(&mut self, body: Control) -> LeaseFrame {
        let frame = self.channel.as_mut().unwrap().send(body, Millis(self.now)).unwrap();
        self.message(Message::Lease(frame.clone()));
        frame
    }

    fn accept(&mut self) {
        let award = self.award.clone().unwrap();
        let accepted = Accepted {
            lease: award.lease,
            award: award.hash(),
            provider: award.provider,
            renter: award.renter,
            at: at(self.now).wall,
        };
        let signed = Signed::sign(&accepted, &self.key).unwrap().into_signed();
        self.tell(Control::Accepted(signed));
    }

    fn result(&self, work: &Work, end: AttemptEnd, run: u64) -> TaskResult {
        let award = self.award.as_ref().unwrap();
        TaskResult {
            attempt: work.attempt,
            job: work.job,
            provider: award.provider,
            renter: award.renter,
            end,
            exit_code: Some(0),
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

    fn deliver(&mut self, result: &TaskResult) {
        let signed = Signed::sign(result, &self.key).unwrap().into_signed();
        self.tell(Control::Result(signed));
    }

    fn submit(&mut self, spec: JobSpec) {
        self.handle(Event::Submit { job: JOB, spec: Arc::new(spec) });
    }

    fn job(&self) -> &Job {
        self.trader.renter.job(&JOB).unwrap()
    }

    fn blames(&self) -> Vec<&str> {
        let blames = self.out.iter().filter_map(|output| match output {
            Output::Blame { fault, .. } => Some(fault.as_str()),
            _ => None,
        });
        blames.collect()
    }

    /// Answers to results, in order.
    fn answers(&self) -> Vec<String> {
        let answers = self.sent.iter().filter_map(|message| match message {
            Message::Lease(LeaseFrame { body: Control::Done { run, voucher, .. }, .. }) => {
                Some(format!("done {} for {}", run, voucher.peek().unwrap().total.0))
            }
            Message::Lease(LeaseFrame { body: Control::Refused { reason, .. }, .. }) => {
                Some(format!("refused: {reason}"))
            }
            _ => None,
        });
        let mut answers: Vec<_> = answers.collect();
        answers.dedup(); // said again until acknowledged
        answers
    }
}

#[test]
fn run_time_is_capped_by_the_timeout_and_by_the_renters_own_clock() {
    let mut stall = Stall::new();
    stall.submit(spec(2));
    stall.accept();
    let (first, second) = (stall.work[0].clone(), stall.work[1].clone());
    stall.now += 5_000;
    stall.deliver(&stall.result(&first, AttemptEnd::Done, 3_600_000));
    stall.now += 100_000;
    stall.handle(Event::Wake);
    stall.deliver(&stall.result(&second, AttemptEnd::Done, 3_600_000));
    // 5 s by its own clock; then a minute by the timeout: 65 s at 0.2 CR an hour.
    assert_eq!(stall.answers(), ["done 5s for 278", "done 1m for 3612"]);
}

#[test]
fn a_result_is_answered_once_however_often_it_comes() {
    let mut stall = Stall::new();
    stall.submit(spec(1));
    stall.accept();
    let work = stall.work[0].clone();
    stall.now += 1_000;
    let result = stall.result(&work, AttemptEnd::Done, 700);
    for _ in 0..3 {
        stall.deliver(&result);
    }
    // Another result for the same attempt does not change it.
    stall.deliver(&stall.result(&work, AttemptEnd::Failed, 900));
    assert_eq!(stall.answers(), ["done 700ms for 39"]);
    assert_eq!(stall.job().cost(), Credits(39));
}

#[test]
fn what_was_never_handed_out_is_refused() {
    let mut stall = Stall::new();
    stall.submit(spec(1));
    stall.accept();
    let mut result = stall.result(&stall.work[0].clone(), AttemptEnd::Done, 700);
    result.attempt.number = 9;
    stall.deliver(&result);
    result.attempt.task = 700;
    stall.deliver(&result);
    assert_eq!(stall.answers(), ["refused: no such attempt is under way"]);
    assert_eq!(stall.job().done(), 0);
}

#[test]
fn a_result_by_another_key_or_for_another_job_is_blamed() {
    let mut stall = Stall::new();
    stall.submit(spec(1));
    stall.accept();
    let result = stall.result(&stall.work[0].clone(), AttemptEnd::Done, 700);
    let other = Signed::sign(&result, &Key::from_seed(&[51; 32])).unwrap().into_signed();
    stall.tell(Control::Result(other));
    let foreign = TaskResult { job: JobId([1; 32]), ..result };
    stall.deliver(&foreign);
    let blames = stall.blames();
    assert_eq!(blames.len(), 2, "{blames:?}");
    assert!(blames[0].contains("no party to it"), "{blames:?}");
    assert!(blames[1].contains("not of it"), "{blames:?}");
    assert!(stall.answers().is_empty());
}

#[test]
fn a_receipt_that_differs_is_not_signed() {
    let mut stall = Stall::new();
    stall.submit(spec(1));
    stall.accept();
    let work = stall.work[0].clone();
    stall.now += 1_000;
    let result = stall.result(&work, AttemptEnd::Done, 700);
    stall.deliver(&result);
    let award = stall.award.clone().unwrap();
    let view = stall.trader.renter.lease(&award.lease).unwrap();
    let accepted = &stall.trader.renter.leases[&award.lease].accepted.clone().unwrap();
    let draft = Receipt {
        lease: award.lease,
        renter: award.renter,
        provider: award.provider,
        award: award.hash(),
        accepted: accepted.hash(),
        rate: award.rate,
        end: LeaseEnd::Completed,
        ended_by: Party::Renter,
        opened: accepted.at,
        closed: accepted.at,
        billed: view.billed.clone().try_into().unwrap(),
        unbilled: 0,
        run: view.run,
        total: view.total.saturating_add(Credits(1)),
        voucher: stall.trader.renter.leases[&award.lease].voucher.as_ref().map(Verified::hash),
        remark: Text::default(),
    };
    let signed = |draft: &Receipt, key: &Key| Signed::sign(draft, key).unwrap().into_signed();
    let dear = signed(&draft, &stall.key);
    stall.tell(Control::Receipt(dear));
    assert!(stall.blames()[0].ends_with("differs in total"), "{:?}", stall.blames());
    assert_eq!(stall.trader.renter.receipt(&award.lease), None);
    // The true one is signed, again with the same bytes when it is repeated.
    let right = Receipt { total: view.total, ..draft };
    let right = signed(&right, &stall.key);
    stall.tell(Control::Receipt(right.clone()));
    assert_eq!(stall.trader.renter.receipt(&award.lease), Some(right.peek().unwrap()));
    let file = stall.trader.renter.receipt_file(&award.lease).unwrap();
    assert_eq!(file.renter.hash(), right.hash());
}

#[test]
fn the_first_bid_counts_and_a_contradicting_one_is_blamed() {
    let mut stall = Stall::new();
    let mut job = spec(1);
    job.market.mode = Mode::Auction;
    // A second provider that stays silent keeps the auction open.
    let other = Key::from_seed(&[60; 32]);
    let offer = souk_protocol::Offer { provider: other.id(), ..stall.offer(1).into_document() };
    stall.handle(Event::Offer(Signed::sign(&offer, &other).unwrap()));
    stall.submit(job);
    let call = stall.calls[0].clone();
    let bid = |rate: u64, key: &Key, provider: NodeId, renter: NodeId| {
        let bid = Bid {
            announcement: call.hash(),
            renter,
            provider,
            rate: Rate(rate),
            slots: 1,
            issued: at(1_000).wall,
            valid_until: at(60_000).wall,
        };
        Signed::sign(&bid, key).unwrap().into_signed()
    };
    let (me, renter) = (stall.key.id(), stall.trader.id());
    for rate in [500, 500, 400] {
        let signed = bid(rate, &stall.key, me, renter);
        stall.message(Message::Bid(signed));
    }
    assert_eq!(stall.blames(), ["two different bids on one announcement"]);
    stall.now += 270;
    stall.handle(Event::Wake);
    assert_eq!(stall.award.as_ref().unwrap().rate, Rate(500));
    // A late bid of the other one is not read.
    let late = bid(1, &other, other.id(), renter);
    let from = other.id();
    stall.handle(Event::Message { from, message: Message::Bid(late) });
    assert_eq!(stall.job().reports()[0].bids.len(), 1);
    assert_eq!(stall.job().reports()[0].silent, 1);
}

#[test]
fn any_order_of_arrival_gives_the_same_account() {
    // Case M9: results, progress and repeats in any order; the channel sorts what is numbered, the account is a set.
    let mut totals = std::collections::BTreeSet::new();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut stall = Stall::new();
        stall.submit(spec(3));
        stall.accept();
        let work = stall.work.clone();
        stall.now += 2_000;
        let frames: Vec<_> = (0..3)
            .map(|task| {
                let result = stall.result(&work[task], AttemptEnd::Done, 400 + task as u64);
                let signed = Signed::sign(&result, &stall.key).unwrap().into_signed();
                stall.channel.as_mut().unwrap().send(Control::Result(signed), Millis(stall.now)).unwrap()
            })
            .collect();
        for round in 0..3 {
            for index in order {
                if round != 1 || index != 0 {
                    stall.message(Message::Lease(frames[index].clone()));
                }
            }
        }
        assert_eq!(stall.job().done(), 3);
        totals.insert(stall.job().cost());
        assert_eq!(stall.answers().len(), 3);
    }
    assert_eq!(totals.len(), 1);
}

#[test]
fn a_frame_of_somebody_else_is_blamed() {
    let mut stall = Stall::new();
    stall.submit(spec(1));
    let lease = stall.award.as_ref().unwrap().lease;
    let stranger = Key::from_seed(&[99; 32]).id();
    let frame = Channel::new(lease, 1).say(Control::Heartbeat);
    stall.handle(Event::Message { from: stranger, message: Message::Lease(frame) });
    assert!(stall.blames()[0].contains("no party"), "{:?}", stall.blames());
}

#[test]
fn only_the_newest_offer_of_a_provider_counts() {
    let mut stall = Stall::new();
    let newer = stall.offer(5);
    stall.handle(Event::Offer(newer.clone()));
    stall.handle(Event::Offer(stall.offer(3)));
    let offers: Vec<_> = stall.trader.renter.offers(at(stall.now).wall).map(Verified::hash).collect();
    assert_eq!(offers, [newer.hash()]);
    stall.now += 600_001;
    assert_eq!(stall.trader.renter.offers(at(stall.now).wall).count(), 0);
}

#[test]
fn a_job_whose_only_hope_always_declines_gives_up_after_the_patience() {
    let mut stall = Stall::new();
    let mut job = spec(1);
    job.market.mode = Mode::Ask;
    stall.submit(job);
    let start = stall.now;
    let mut awards = 0;
    while !stall.job().state().is_final() {
        if let Some(award) = stall.award.take() {
            awards += 1;
            let code = souk_protocol::DeclineCode::Expired;
            let decline = souk_protocol::Decline { subject: award.hash(), code, nearest: Text::default() };
            stall.message(Message::Decline(decline));
        }
        stall.now = stall.trader.wake_at().unwrap().0.max(stall.now);
        stall.handle(Event::Wake);
        assert!(stall.now - start < 60_000, "it never gives up");
    }
    assert_eq!(stall.job().state(), JobState::Expired);
    assert_eq!(stall.now - start, 30_000);
    // Asked again with growing waits, not in a rush.
    assert!((5..=12).contains(&awards), "{awards}");
    let why = stall.job().why();
    assert_eq!((why[0].code.as_str(), why.last().unwrap().code.as_str()), ("no-offers", "expired"));
    assert_eq!(why.last().unwrap().count, awards);
}
