//! A hand-made provider at the other end: what an honest one would never say.

use souk_protocol::{
    Accepted, Announcement, Award, Bid, Control, Key, LeaseFrame, Message, Receipt, Signed, Signer, TaskResult,
    Timestamp,
};

use super::*;
use crate::{
    channel::{Channel, Heard},
    testing::{NETWORK, permutations},
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
    /// What the provider said with a number.
    told: Vec<LeaseFrame>,
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
            told: Vec::new(),
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
            notice: policy.notice,
            interruptions: 0,
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
        self.told.push(frame.clone());
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

/// Lets time pass with a heartbeat of the provider every five seconds, until its attempt is given up; when that was.
fn until_given_up(stall: &mut Stall, limit: u64) -> u64 {
    let (start, mut beat) = (stall.now, stall.now);
    while stall.job().running() > 0 {
        assert!(stall.now - start < limit, "an attempt that gives nothing is waited for longer than {limit} ms");
        let wake = stall.trader.wake_at().unwrap().0.max(stall.now);
        if beat <= wake {
            stall.now = beat;
            let frame = stall.channel.as_ref().unwrap().say(Control::Heartbeat);
            stall.message(Message::Lease(frame));
            beat += 5_000;
        } else {
            stall.now = wake;
            stall.handle(Event::Wake);
        }
    }
    stall.now - start
}

#[test]
fn an_acknowledged_attempt_that_gives_nothing_is_given_up_after_its_timeout_and_the_time_to_fetch_its_inputs() {
    // A minute, half a second to stop, a minute's grace, and its data at 256 kB a second.
    for (module, allowed) in [(1_000, 60_000 + 500 + 60_000 + 4), (25_600_000, 60_000 + 500 + 60_000 + 100_000)] {
        let mut stall = Stall::new();
        let mut job = spec(1);
        job.module.len = module;
        stall.submit(job);
        stall.accept();
        assert_eq!(until_given_up(&mut stall, 600_000), allowed);
        let attempt = &stall.job().tasks()[0].attempts()[0];
        assert_eq!(attempt.state, AttemptState::Ended(AttemptEnd::Lost));
        assert_eq!(attempt.reason, "no result came in the time it may take");
    }
}

#[test]
fn once_it_runs_nothing_more_is_set_aside_for_fetching() {
    let mut stall = Stall::new();
    let mut job = spec(1);
    job.module.len = 25_600_000;
    stall.submit(job);
    stall.accept();
    let attempt = stall.work[0].attempt;
    stall.now += 2_000;
    for state in [RunState::Fetching, RunState::Running] {
        stall.tell(Control::Progress { attempt, state, at: at(stall.now).wall });
    }
    // To say so again does not give it more time.
    assert_eq!(until_given_up(&mut stall, 600_000), 60_000 + 500 + 60_000);
    let mut stall = Stall::new();
    stall.submit(spec(1));
    stall.accept();
    let attempt = stall.work[0].attempt;
    stall.tell(Control::Progress { attempt, state: RunState::Running, at: at(stall.now).wall });
    stall.now += 50_000;
    stall.tell(Control::Progress { attempt, state: RunState::Running, at: at(stall.now).wall });
    assert_eq!(until_given_up(&mut stall, 600_000), 120_500 - 50_000);
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
    let lease = stall.award.as_ref().unwrap().lease;
    let right = stall.draft();
    let draft = Receipt { total: right.total.saturating_add(Credits(1)), ..right.clone() };
    let signed = |draft: &Receipt, key: &Key| Signed::sign(draft, key).unwrap().into_signed();
    let dear = signed(&draft, &stall.key);
    stall.tell(Control::Receipt(dear));
    assert!(stall.blames()[0].ends_with("differs in total"), "{:?}", stall.blames());
    assert_eq!(stall.trader.renter.receipt(&lease), None);
    // The true one is signed, again with the same bytes when it is repeated.
    let right = signed(&right, &stall.key);
    stall.tell(Control::Receipt(right.clone()));
    assert_eq!(stall.trader.renter.receipt(&lease), Some(right.peek().unwrap()));
    let file = stall.trader.renter.receipt_file(&lease).unwrap();
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
            ready_in: Millis::ZERO,
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

impl Stall {
    /// The receipt as this side's books have it.
    fn draft(&self) -> Receipt {
        let award = self.award.clone().unwrap();
        let view = self.trader.renter.lease(&award.lease).unwrap();
        let lease = &self.trader.renter.leases[&award.lease];
        let accepted = lease.accepted.clone().unwrap();
        Receipt {
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
            total: view.total,
            voucher: lease.voucher.as_ref().map(Verified::hash),
            remark: Text::default(),
        }
    }

    /// A job of two tasks, awarded, and a while later.
    fn awarded() -> Self {
        let mut stall = Self::new();
        stall.submit(spec(2));
        stall.now += 2_000;
        stall
    }
}

/// Case M9: acceptance, progress, results and the draft of the receipt, in every order and each repeated until all are
/// through: one state, whatever came first.
#[test]
fn every_order_of_arrival_leaves_the_renter_in_the_same_state() {
    let mut straight = Stall::awarded();
    straight.accept();
    let work = straight.work.clone();
    let (attempt, at) = (work[0].attempt, at(straight.now).wall);
    straight.tell(Control::Progress { attempt, state: RunState::Running, at });
    for (work, run) in work.iter().zip([400, 401]) {
        straight.deliver(&straight.result(work, AttemptEnd::Done, run));
    }
    let draft = Signed::sign(&straight.draft(), &straight.key).unwrap().into_signed();
    straight.tell(Control::Receipt(draft.clone()));
    let frames: Vec<_> = straight.told.clone();
    assert_eq!(frames.len(), 5);
    assert_eq!((straight.job().state(), straight.job().cost()), (JobState::Succeeded, Credits(45)));
    let orders = permutations(frames.len());
    assert_eq!(orders.len(), 120);
    for order in orders {
        let mut stall = Stall::awarded();
        for _ in 0..frames.len() {
            for index in &order {
                stall.message(Message::Lease(frames[*index].clone()));
            }
        }
        assert_eq!(stall.trader.renter.digest(), straight.trader.renter.digest(), "{order:?}");
        assert_eq!(stall.trader.books.totals(), straight.trader.books.totals(), "{order:?}");
        assert_eq!(stall.blames(), Vec::<&str>::new(), "{order:?}");
        let file = stall.trader.renter.receipt_file(&draft.peek().unwrap().lease).unwrap();
        assert_eq!((file.provider.hash(), file.results.len()), (draft.hash(), 2), "{order:?}");
    }
}

/// Case M21: a bid that lands when its auction is closed, or its job over, is not read and leaves nothing behind.
#[test]
fn a_bid_that_lands_too_late_changes_nothing() {
    for cancelled in [false, true] {
        let mut stall = Stall::new();
        let mut job = spec(1);
        job.market.mode = Mode::Auction;
        stall.submit(job);
        let call = stall.calls[0].clone();
        if cancelled {
            stall.handle(Event::Cancel { job: JOB });
        } else {
            stall.now += 270; // an unknown round trip, and some thinking
            stall.handle(Event::Wake);
        }
        assert!(stall.trader.renter.auctions.is_empty());
        let (before, said) = (stall.trader.renter.digest(), stall.sent.len());
        let bid = Bid {
            announcement: call.hash(),
            renter: stall.trader.id(),
            provider: stall.key.id(),
            rate: Rate(1),
            slots: 1,
            ready_in: Millis::ZERO,
            issued: at(stall.now).wall,
            valid_until: at(60_000).wall,
        };
        stall.message(Message::Bid(Signed::sign(&bid, &stall.key).unwrap().into_signed()));
        assert_eq!(stall.trader.renter.digest(), before);
        assert_eq!((stall.sent.len(), stall.blames()), (said, vec![]));
        assert_eq!(stall.trader.renter.live_leases.len(), 0);
        assert!(stall.award.is_none() && stall.trader.renter.auctions.is_empty());
        let auctions = stall.trader.renter.placing.values().filter(|placing| placing.auction.is_some());
        assert_eq!(auctions.count(), 0);
    }
}

/// Case S9: a bid older than the announcement it answers is stale, whatever it says about its validity.
#[test]
fn a_bid_older_than_its_announcement_wins_nothing_and_is_named_stale() {
    for (age, wins) in [(2_000, true), (2_001, false)] {
        let mut stall = Stall::new();
        stall.now += 5_000;
        let mut job = spec(1);
        job.market.mode = Mode::Auction;
        stall.submit(job);
        let bid = Bid {
            announcement: stall.calls[0].hash(),
            renter: stall.trader.id(),
            provider: stall.key.id(),
            rate: Rate(500),
            slots: 1,
            ready_in: Millis::ZERO,
            issued: at(stall.now - age).wall,
            valid_until: at(60_000).wall,
        };
        stall.message(Message::Bid(Signed::sign(&bid, &stall.key).unwrap().into_signed()));
        assert_eq!(stall.award.is_some(), wins, "{age}");
        let stale = stall.job().why().into_iter().find(|reason| reason.code == "stale");
        assert_eq!(stale.and_then(|reason| reason.nearest).as_deref(), (!wins).then_some("made 2s1ms before it"));
    }
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
