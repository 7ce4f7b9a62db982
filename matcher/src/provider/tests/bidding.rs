use souk_protocol::{Announcement, Bid, Lost, Ppm, Tally};

use super::*;

pub(super) fn call(stall: &Stall) -> Announcement {
    Announcement {
        renter: stall.renter_id(),
        network: NETWORK,
        job: JOB,
        round: 0,
        requirement: slot(),
        terms: terms(),
        slots: 8,
        tasks: 100,
        data: Bytes(1_000),
        max_rate: None,
        start_at: None,
        start_within: None,
        issued: at(stall.now).wall,
        closes: Timestamp(at(stall.now).wall.0 + 500),
    }
}

pub(super) fn announce(stall: &mut Stall, call: &Announcement) -> Vec<Output> {
    let signed = Signed::sign(call, &stall.renter).unwrap().into_signed();
    stall.message(Message::Announce(signed))
}

pub(super) fn bid(stall: &Stall, out: &[Output]) -> Verified<Bid> {
    let bid = out.iter().find_map(|output| match output {
        Output::Send { message: Message::Bid(bid), .. } => Some(bid.verify(&stall.renter).unwrap()),
        _ => None,
    });
    bid.unwrap_or_else(|| panic!("no bid in {out:?}"))
}

fn award_on(stall: &Stall, bid: &Verified<Bid>, number: u8) -> Award {
    let table = Hash([0; 32]);
    Award {
        basis: Basis::Bid { bid: bid.hash(), table },
        rate: bid.rate,
        slots: bid.slots,
        ..stall.award_doc(LeaseId([number; 16]), 1)
    }
}

#[test]
fn an_announcement_is_answered_with_a_price_that_holds_nothing() {
    let mut stall = Stall::new();
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let bid = bid(&stall, &out);
    assert_eq!((bid.rate, bid.slots), (RATE, 4));
    assert_eq!(bid.valid_until.0, call.closes.0 + 2_000);
    assert_eq!(stall.trader.provider.capacity().free.cpu.0, 4_000);
    let award = award_on(&stall, &bid, 1);
    let out = stall.message(stall.award_message(&award, &[0, 1, 2, 3]));
    assert_eq!(runs(&out), [0, 1, 2, 3]);
    assert_eq!(stall.trader.provider.capacity().free.cpu.0, 0);
}

/// Case M3: a bid that became a lease is used up; another award cannot rest on it.
#[test]
fn a_bid_becomes_one_lease_and_no_more() {
    let mut stall = Stall::new();
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let bid = bid(&stall, &out);
    let first = Award { slots: 1, ..award_on(&stall, &bid, 1) };
    assert_eq!(code(&stall.message(stall.award_message(&first, &[0]))), None);
    let second = Award { slots: 1, ..award_on(&stall, &bid, 2) };
    assert_eq!(code(&stall.message(stall.award_message(&second, &[1]))), Some(DeclineCode::Unknown));
    // The first one said again is no second one.
    assert_eq!(code(&stall.message(stall.award_message(&first, &[0]))), None);
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 1_000);
}

/// Case M21: a bid that lost, or landed when nobody waited for it any more, holds no slot, no credit and no place.
#[test]
fn a_bid_that_comes_to_nothing_holds_nothing() {
    let mut stall = Stall::new();
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let lost = bid(&stall, &out);
    assert_eq!(stall.trader.provider.capacity().used, Capacity::default());
    assert_eq!(stall.trader.books.exposure(&stall.renter_id()), Credits(0));
    assert_eq!(stall.trader.books.room(&stall.renter_id()), policy().stranger_limit);
    // Every slot it named can be had by another way.
    stall.lease(1, 4, &[0, 1, 2, 3]);
    let late = award_on(&stall, &lost, 2);
    assert_eq!(code(&stall.message(stall.award_message(&late, &[4]))), Some(DeclineCode::NoCapacity));
    // When its time is over, nothing of it is left.
    stall.now = 3_000;
    stall.end(LeaseId([1; 16]));
    for task in 0..4 {
        let result = stall.ends(LeaseId([1; 16]), task, AttemptEnd::Cancelled, 10);
        stall.refuses(result.attempt);
    }
    let late = award_on(&stall, &lost, 3);
    assert_eq!(code(&stall.message(stall.award_message(&late, &[4]))), Some(DeclineCode::Expired));
    let again = Announcement { round: 1, issued: at(stall.now).wall, closes: at(stall.now + 500).wall, ..call };
    let out = announce(&mut stall, &again);
    assert!(stall.trader.provider.desk.bid(&bid(&stall, &out).hash()).is_some());
    assert_eq!(stall.trader.provider.desk.bid(&lost.hash()), None);
    assert_eq!(stall.trader.provider.capacity().used, Capacity::default());
}

#[test]
fn an_outcome_that_does_not_count_the_bid_is_a_lie() {
    type Change = fn(&mut Lost);
    let others: Vec<Hash> = (1..=8).map(|n| Hash([n * 16; 32])).collect();
    let told = |change: Change| {
        let mut stall = Stall::new();
        let call = call(&stall);
        let out = announce(&mut stall, &call);
        let own = bid(&stall, &out).hash();
        let mut all = others.clone();
        all.push(own);
        all.sort();
        let index = all.iter().position(|hash| *hash == own).unwrap();
        let tally = Tally {
            announcement: Signed::sign(&call, &stall.renter).unwrap().hash(),
            renter: stall.renter_id(),
            table: souk_protocol::merkle::root(&all),
            bids: 9,
            at: at(stall.now).wall,
        };
        let path = souk_protocol::merkle::path(&all, index).unwrap();
        let mut lost = Lost {
            tally: Signed::sign(&tally, &stall.renter).unwrap().into_signed(),
            bid: own,
            index: u32::try_from(index).unwrap(),
            path: List::try_from(path).unwrap(),
            rank: 4,
            over: Ppm(123_000),
        };
        change(&mut lost);
        let out = stall.message(Message::Lost(lost));
        let blamed = out.iter().any(|output| matches!(output, Output::Blame { .. }));
        (blamed, stall.trader.provider.outbid(&JOB).map(crate::Outbid::text))
    };
    assert_eq!(told(|_| {}), (false, Some("lost: rank 4 of 9, 12 % over".to_owned())));
    assert_eq!(told(|lost| lost.index += 1), (true, None));
    assert_eq!(told(|lost| lost.bid = Hash([16; 32])), (true, None));
    assert_eq!(told(|lost| lost.path = List::default()), (true, None));
}

#[test]
fn an_award_that_is_not_what_was_bid_for_is_declined() {
    type Change = fn(&mut Award);
    let changes: [(Change, DeclineCode); 5] = [
        (|award| award.rate = Rate(1), DeclineCode::Unknown),
        (|award| award.slots = 5, DeclineCode::Unknown),
        (|award| award.requirement.memory = Bytes(5), DeclineCode::Unknown),
        (|award| award.basis = Basis::Bid { bid: Hash([9; 32]), table: Hash([0; 32]) }, DeclineCode::Unknown),
        (|award| award.slots = 0, DeclineCode::Terms),
    ];
    for (number, (change, expected)) in (1u8..).zip(changes) {
        let mut stall = Stall::new();
        let call = call(&stall);
        let out = announce(&mut stall, &call);
        let mut award = award_on(&stall, &bid(&stall, &out), number);
        change(&mut award);
        let out = stall.message(stall.award_message(&award, &[0]));
        assert_eq!(code(&out), Some(expected), "case {number}");
        assert_eq!(runs(&out), Vec::<u32>::new());
    }
}

#[test]
fn a_bid_ends_two_seconds_beyond_its_auction() {
    for (at, expected) in [(2_500, None), (2_501, Some(DeclineCode::Expired))] {
        let mut stall = Stall::new();
        let call = call(&stall);
        let out = announce(&mut stall, &call);
        let bid = bid(&stall, &out);
        stall.now = at;
        let award = award_on(&stall, &bid, 1);
        assert_eq!(code(&stall.message(stall.award_message(&award, &[]))), expected, "at {at}");
    }
}

#[test]
fn a_call_that_cannot_be_met_is_declined_with_the_nearest_miss_and_counted() {
    let mut stall = Stall::new();
    stall.lease(1, 2, &[]);
    let mut call = call(&stall);
    call.requirement.cpu = souk_protocol::MilliCpu(3_000);
    let out = announce(&mut stall, &call);
    let decline = decline(&out).unwrap().clone();
    assert_eq!(decline.to_string(), "no-capacity: free 2 of 4 cores, asked 3");
    let why = stall.trader.provider.why();
    assert_eq!((why[0].code.as_str(), why[0].count), ("no-capacity", 1));
    assert!(out.iter().any(|output| matches!(output, Output::Notify(Notice::Declined { .. }))));
}

#[test]
fn a_late_award_is_refused_and_so_is_one_from_a_wrong_clock() {
    let mut stall = Stall::new();
    let mut award = stall.award_doc(LeaseId([1; 16]), 1);
    stall.now = ACCEPT_WITHIN_MS + 1;
    let out = stall.message(stall.award_message(&award, &[0]));
    let late = decline(&out).unwrap();
    assert_eq!((late.code, &*late.nearest), (DeclineCode::Expired, "the award ended 1ms ago"));

    award = stall.award_doc(LeaseId([2; 16]), 1);
    award.issued = Timestamp(award.issued.0 + 2_001);
    award.accept_by = Timestamp(award.issued.0 + 2_000);
    let out = stall.message(stall.award_message(&award, &[0]));
    assert_eq!(code(&out), Some(DeclineCode::ClockSkew));
    let skew = Notice::ClockSkew { peer: stall.renter_id(), skew: Millis(2_001) };
    assert!(out.contains(&Output::Notify(skew)));

    award = stall.award_doc(LeaseId([3; 16]), 1);
    award.accept_by = Timestamp(award.issued.0 + ACCEPT_WITHIN_MS + 1);
    assert_eq!(code(&stall.message(stall.award_message(&award, &[0]))), Some(DeclineCode::Terms));
}

#[test]
fn an_ask_that_has_been_replaced_is_honoured_until_it_expires() {
    let mut stall = Stall::new();
    let old = stall.offer.clone().unwrap();
    let mut dearer = policy();
    dearer.ask.cpu = Rate(900_000);
    let out = stall.handle(Event::Policy(Box::new(dearer)));
    let new = out.iter().find_map(|output| match output {
        Output::Offer(offer) => Some(offer.clone()),
        _ => None,
    });
    assert!(new.unwrap().sequence > old.sequence);
    let mut award = stall.award_doc(LeaseId([1; 16]), 1);
    award.basis = Basis::Ask { offer: old.hash() };
    assert_eq!(code(&stall.message(stall.award_message(&award, &[]))), None);
    stall.now = 10 * 60 * 1_000 + 1;
    let mut award = stall.award_doc(LeaseId([2; 16]), 1);
    award.basis = Basis::Ask { offer: old.hash() };
    assert_eq!(code(&stall.message(stall.award_message(&award, &[]))), Some(DeclineCode::Expired));
}

#[test]
fn a_repeated_award_gets_its_stored_answer_and_takes_nothing_twice() {
    let mut stall = Stall::new();
    let award = stall.award_doc(LeaseId([1; 16]), 3);
    let first = stall.message(stall.award_message(&award, &[0]));
    let again = stall.message(stall.award_message(&award, &[0]));
    assert_eq!((runs(&first), runs(&again)), (vec![0], vec![]));
    let answer = |out: &[Output]| {
        out.iter().find_map(|output| match output {
            Output::Send { message: Message::Lease(frame), .. } => match &frame.body {
                Control::Accepted(accepted) => Some(accepted.hash()),
                _ => None,
            },
            _ => None,
        })
    };
    assert!(answer(&first).is_some());
    assert_eq!(answer(&first), answer(&again));
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 3_000);

    let mut other = award.clone();
    other.slots = 1;
    let out = stall.message(stall.award_message(&other, &[0]));
    assert!(blamed(&out).unwrap().starts_with("two awards of lease"));

    // A declined one is not judged anew, though there would be room by then.
    let large = stall.award_doc(LeaseId([2; 16]), 2);
    assert_eq!(code(&stall.message(stall.award_message(&large, &[]))), Some(DeclineCode::NoCapacity));
    stall.renters_side(LeaseId([1; 16]));
    stall.say(LeaseId([1; 16]), Control::End { end: LeaseEnd::CancelledByRenter, reason: Text::default() });
    stall.handle(Event::Ended {
        attempt: AttemptId { lease: LeaseId([1; 16]), task: 0, replica: 0, number: 1 },
        outcome: stall.outcome(AttemptEnd::Cancelled, 5),
    });
    assert_eq!(stall.trader.provider.capacity().free.cpu.0, 4_000);
    assert_eq!(code(&stall.message(stall.award_message(&large, &[]))), Some(DeclineCode::NoCapacity));
}

#[test]
fn first_tasks_that_do_not_fit_the_award_are_declined() {
    let changes: [fn(&mut Work); 5] = [
        |work| work.limits.timeout = Millis(60_001),
        |work| work.limits.memory = Bytes(1_000_000_001),
        |work| work.attempt.lease = LeaseId([8; 16]),
        |work| work.attempt.number = 0,
        |work| work.attempt.task = 10_000,
    ];
    for change in changes {
        let mut stall = Stall::new();
        let award = stall.award_doc(LeaseId([1; 16]), 1);
        let mut work = stall.work(award.lease, 0);
        change(&mut work);
        let message = Message::Award {
            award: Signed::sign(&award, &stall.renter).unwrap().into_signed(),
            work: List::try_from(vec![work]).unwrap(),
            files: List::default(),
        };
        let out = stall.message(message);
        assert_eq!(code(&out), Some(DeclineCode::Terms));
        assert_eq!(stall.trader.provider.capacity().used.cpu.0, 0);
    }
}

#[test]
fn a_renter_that_would_owe_too_much_is_declined() {
    let mut stall = Stall::new();
    let mut tight = policy();
    tight.stranger_limit = Credits(9_999);
    stall.handle(Event::Policy(Box::new(tight)));
    let award = stall.award_doc(LeaseId([1; 16]), 2);
    let out = stall.message(stall.award_message(&award, &[0, 1]));
    let decline = decline(&out).unwrap();
    assert_eq!(decline.code, DeclineCode::NoCredit);
    assert!(decline.nearest.contains("of at most 0.009999 CR (credit.stranger)"), "{}", decline.nearest);
    let award = stall.award_doc(LeaseId([2; 16]), 2);
    assert_eq!(code(&stall.message(stall.award_message(&award, &[0]))), None);
}

#[test]
fn offers_follow_the_free_capacity_but_not_too_fast() {
    let mut stall = Stall::new();
    let first = stall.offer.clone().unwrap();
    assert_eq!((first.free.cpu.0, first.expires.0 - first.issued.0), (4_000, 600_000));
    stall.lease(1, 3, &[]);
    assert_eq!(stall.offer.clone().unwrap().hash(), first.hash());
    stall.pass(2_000);
    assert_eq!(stall.offer.clone().unwrap().free.cpu.0, 1_000);
    // With nothing new, one each five minutes.
    let mut quiet = Stall::new();
    let offers = |out: &[Output]| out.iter().filter(|output| matches!(output, Output::Offer(_))).count();
    assert_eq!(offers(&quiet.pass(899_999)), 2);
    assert_eq!(offers(&quiet.pass(1)), 1);
}

#[test]
fn a_node_that_sells_nothing_makes_no_offer_and_no_bid() {
    let mut trader = Trader::new(settings(1), Arc::new(TestKeys::new(1)));
    let mut nothing = policy();
    nothing.total = Capacity::default();
    assert_eq!(trader.handle(Event::Policy(Box::new(nothing)), at(0)), []);
    assert_eq!(trader.wake_at(), None);
    let stall = Stall::new();
    let call = Signed::sign(&call(&stall), &stall.renter).unwrap().into_signed();
    let out = trader.handle(Event::Message { from: stall.renter_id(), message: Message::Announce(call) }, at(0));
    assert_eq!(code(&out), Some(DeclineCode::Closed));
}

#[test]
fn too_many_announcements_of_one_renter_are_declined_as_busy() {
    let mut stall = Stall::new();
    let mut call = call(&stall);
    let mut asks = |stall: &mut Stall| {
        call.round += 1;
        code(&announce(stall, &call)) == Some(DeclineCode::Busy)
    };
    assert_eq!((0..1_030).filter(|_| asks(&mut stall)).count(), 6);
}

#[test]
fn a_repeated_announcement_gets_the_same_bid() {
    let mut stall = Stall::new();
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let first = bid(&stall, &out);
    stall.lease(1, 3, &[]);
    let out = announce(&mut stall, &call);
    assert_eq!(bid(&stall, &out).hash(), first.hash());
}
