//! The owner's hours at the door: bids, awards, starts, running work, offers.

use souk_protocol::Announcement;

use super::{
    bidding::{announce, bid, call},
    *,
};
use crate::{
    calendar::{AtWindowEnd, Calendar, Days, Minute, Window, Zone},
    price::{Power, Pricing, Strategy},
};

/// The hours are over three minutes after the clock of the tests starts.
const END: u64 = 180_000;

/// A window of every day from the start of the tests' clock to three minutes later.
fn hours(at_window_end: AtWindowEnd) -> Policy {
    let start = at(0).wall;
    let minute = |ms: u64| (start.0 + ms) / 60_000 % 1_440;
    let minute = |ms| Minute::new(u16::try_from(minute(ms)).unwrap()).unwrap();
    let window = Window::new(Days::ALL, minute(0), minute(END)).unwrap();
    let calendar = Calendar::new(Zone::utc(), vec![window], Vec::new()).unwrap();
    Policy { calendar, at_window_end, ..policy() }
}

fn stall(at_window_end: AtWindowEnd) -> Stall {
    let mut stall = Stall::new();
    stall.handle(Event::Policy(Box::new(hours(at_window_end))));
    stall
}

/// Time passes, with a word of the renter now and then.
fn pass(stall: &mut Stall, lease: LeaseId, ms: u64) -> Vec<Output> {
    let (end, mut out) = (stall.now + ms, Vec::new());
    while stall.now < end {
        out.extend(stall.pass(10_000.min(end - stall.now)));
        if stall.view(lease).is_some() {
            out.extend(stall.heartbeat(lease));
        }
    }
    out
}

fn offers(out: &[Output]) -> Vec<Verified<Offer>> {
    let offer = |output: &Output| if let Output::Offer(offer) = output { Some(offer.clone()) } else { None };
    out.iter().filter_map(offer).collect()
}

#[test]
fn outside_of_the_hours_nothing_is_bid_awarded_or_offered_and_the_refusal_says_when_it_opens() {
    let mut stall = stall(AtWindowEnd::Finish);
    let open = stall.offer.clone().unwrap();
    assert_eq!(open.expires, at(END).wall, "an offer ends with the hours");
    let by_ask = stall.award_doc(LeaseId([1; 16]), 1);
    let out = stall.pass(END);
    let closed = offers(&out).pop().unwrap();
    assert_eq!((closed.total, closed.free, closed.ask), (Capacity::default(), Capacity::default(), None));
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let refusal = decline(&out).unwrap();
    assert_eq!(refusal.code, DeclineCode::Closed);
    assert_eq!(refusal.nearest.to_string(), "opens at Mon 2026-03-02 00:00 UTC");
    let award = Award {
        issued: at(stall.now).wall,
        start: at(stall.now).wall,
        accept_by: at(stall.now + 2_000).wall,
        ..by_ask
    };
    let out = stall.message(stall.award_message(&award, &[0]));
    assert_eq!((code(&out), runs(&out).len()), (Some(DeclineCode::Closed), 0));
    // The next day it opens by itself.
    let out = stall.pass(24 * 3_600_000 - END);
    assert_eq!(offers(&out).pop().unwrap().total, policy().total);
    let call = super::bidding::call(&stall);
    let out = announce(&mut stall, &call);
    assert_eq!(bid(&stall, &out).slots, 4);
}

#[test]
fn a_bid_is_valid_for_at_most_two_seconds_beyond_the_hours() {
    let mut stall = stall(AtWindowEnd::Finish);
    stall.pass(END - 100);
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    let bid = bid(&stall, &out);
    assert_eq!(bid.valid_until, at(END + 2_000).wall);
}

#[test]
fn with_stop_work_is_taken_only_if_it_is_gone_by_the_end() {
    let mut stall = stall(AtWindowEnd::Stop);
    // Firm work of a minute needs its timeout, its grace and time to fetch: 70.5 s.
    let firm = |stall: &Stall| {
        let mut call = call(stall);
        (call.terms.tier, call.terms.preemptible) = (souk_protocol::Tier::Silver, false);
        call
    };
    stall.pass(END - 70_500);
    let call = firm(&stall);
    let out = announce(&mut stall, &call);
    assert_eq!(bid(&stall, &out).slots, 4);
    stall.pass(1);
    let call = firm(&stall);
    let out = announce(&mut stall, &call);
    let refusal = decline(&out).unwrap();
    assert_eq!(refusal.code, DeclineCode::Duration);
    assert_eq!(refusal.nearest.to_string(), "at most 1m10s499ms more until Sun 2026-03-01 00:03 UTC, asked 1m10s500ms");
    // What may be stopped is worth it while a quarter of its timeout and its notice are left.
    let call = super::bidding::call(&stall);
    let out = announce(&mut stall, &call);
    assert_eq!(bid(&stall, &out).slots, 4);
    stall.pass(55_000);
    let call = super::bidding::call(&stall);
    let out = announce(&mut stall, &call);
    assert_eq!(code(&out), Some(DeclineCode::Duration));
}

#[test]
fn with_finish_what_runs_ends_by_itself_and_what_waits_goes_back() {
    let mut stall = stall(AtWindowEnd::Finish);
    let lease = stall.lease(1, 1, &[0]);
    stall.say(lease, Control::Task(stall.work(lease, 1)));
    let out = pass(&mut stall, lease, END);
    assert_eq!((stops(&out).len(), runs(&out).len()), (0, 0));
    let said = stall.said(&out);
    assert!(said.iter().any(|body| matches!(body, Control::End { end: LeaseEnd::Expired, .. })), "{said:?}");
    let back = said.iter().find_map(|body| match body {
        Control::Result(result) => Some(result.verify(&stall.renter).unwrap()),
        _ => None,
    });
    let back = back.unwrap();
    assert_eq!((back.attempt.task, back.end, back.run), (1, AttemptEnd::Preempted, Millis(0)));
    let done = stall.ends(lease, 0, AttemptEnd::Done, 50_000);
    assert_eq!(done.run, Millis(50_000));
}

#[test]
fn with_stop_what_runs_is_told_in_time_and_stopped_before_the_end() {
    let mut stall = stall(AtWindowEnd::Stop);
    let lease = stall.lease(1, 1, &[0]);
    let attempt = AttemptId { lease, task: 0, replica: 0, number: 1 };
    stall.handle(Event::Running { attempt, state: RunState::Running });
    assert_eq!(stall.view(lease).unwrap().running, [attempt]);
    let before = pass(&mut stall, lease, END - 15_500);
    let said = stall.said(&before);
    assert!(said.iter().any(|body| matches!(body, Control::End { .. })), "{said:?}");
    assert_eq!(stops(&before), []);
    let out = pass(&mut stall, lease, 15_000);
    assert_eq!(stops(&out), [(0, AttemptEnd::Preempted)], "half a second before the end, for its grace");
}

#[test]
fn hours_that_the_owner_shortens_leave_work_its_notice() {
    let mut stall = Stall::new();
    let id = LeaseId([1; 16]);
    let mut award = stall.award_doc(id, 1);
    award.terms.notice = Millis(30_000);
    let out = stall.message(stall.award_message(&award, &[0]));
    stall.renters_side(id);
    stall.said(&out);
    let attempt = AttemptId { lease: id, task: 0, replica: 0, number: 1 };
    let out = stall.handle(Event::Running { attempt, state: RunState::Running });
    stall.said(&out);
    stall.pass(1_000);
    let shut = Policy {
        calendar: Calendar::new(Zone::utc(), Vec::new(), vec!["2026-03-01".parse().unwrap()]).unwrap(),
        at_window_end: AtWindowEnd::Stop,
        ..policy()
    };
    let out = stall.handle(Event::Policy(Box::new(shut)));
    assert_eq!(stops(&out), []);
    let said = stall.said(&out);
    assert!(said.contains(&Control::Notice { stop_in: Millis(30_000) }), "{said:?}");
    assert_eq!(offers(&out).pop().unwrap().total, Capacity::default());
    let out = pass(&mut stall, id, 29_999);
    assert_eq!(stops(&out), []);
    let out = pass(&mut stall, id, 1);
    assert_eq!(stops(&out), [(0, AttemptEnd::Preempted)]);
}

#[test]
fn a_restart_outside_of_the_hours_starts_nothing() {
    let mut stall = stall(AtWindowEnd::Stop);
    let lease = stall.lease(1, 1, &[0]);
    stall.now = END + 10_000;
    let cut = stall.journal.len();
    stall.journal.truncate(cut);
    let mut trader = Trader::new(settings(2), Arc::new(TestKeys::new(1)));
    for record in &stall.journal {
        trader.apply(record).unwrap();
    }
    stall.trader = trader;
    stall.handle(Event::Recovered);
    let out = stall.handle(Event::Policy(Box::new(hours(AtWindowEnd::Stop))));
    assert_eq!(runs(&out), Vec::<u32>::new());
    assert!(matches!(stall.view(lease).unwrap().state, LeaseState::Ending(LeaseEnd::Expired)));
}

#[test]
fn stepping_through_the_hours_of_a_week_wakes_a_few_thousand_times() {
    let mut stall = stall(AtWindowEnd::Finish);
    let mut wakes = 0;
    let end = 7 * 24 * 3_600_000;
    while let Some(due) = stall.trader.wake_at().filter(|due| due.0 <= end) {
        stall.now = stall.now.max(due.0);
        stall.handle(Event::Wake);
        wakes += 1;
        assert!(wakes < 12_000, "a busy loop at {}", stall.now);
    }
    assert!(wakes > 10_000, "once a minute, for the wall clock may jump: {wakes}");
}

#[test]
fn an_adaptive_ask_falls_while_the_machine_is_idle_and_is_told_again() {
    let mut stall = Stall::new();
    let pricing = Pricing { strategy: Strategy::Adaptive, ..Pricing::default() };
    stall.handle(Event::Policy(Box::new(Policy { pricing: pricing.clone(), ..policy() })));
    let told = |stall: &Stall| stall.offer.as_ref().unwrap().ask.unwrap();
    // On its way to 0.7 of the ask, five percent a minute.
    assert_eq!(told(&stall).cpu, Rate(190_000));
    let out = stall.pass(60_000);
    assert_eq!((offers(&out).len(), told(&stall).cpu), (1, Rate(180_500)));
    // Half the machine in use: up to the ask itself.
    let mut award = stall.award_doc(LeaseId([1; 16]), 2);
    award.rate = told(&stall).rate(&slot()).unwrap();
    let message = stall.award_message(&award, &[0, 1]);
    let out = stall.message(message);
    assert_eq!(runs(&out), [0, 1]);
    stall.renters_side(award.lease);
    stall.said(&out);
    pass(&mut stall, award.lease, 60_000);
    assert_eq!(stall.trader.provider.desk().asks().unwrap().cpu, Rate(189_525));
    pass(&mut stall, award.lease, 70_000);
    assert_eq!(stall.trader.provider.desk().asks().unwrap().cpu, Rate(199_002));
    assert_eq!(told(&stall).cpu, Rate(199_002));
    let record = stall.trader.provider.desk().record();
    assert_eq!((record.asks, record.bids), (1, 0));
}

#[test]
fn bids_know_the_power_cost_and_the_record_of_what_came_of_them() {
    let mut stall = Stall::new();
    let power = Power {
        price: souk_protocol::PowerPrice(500_000),
        per_core: Some(souk_protocol::MilliWatts(400_000)),
        never_below: true,
    };
    let pricing = Pricing { power: Some(power), ..Pricing::default() };
    stall.handle(Event::Policy(Box::new(Policy { pricing, ..policy() })));
    // 0.2 CR/h of power for a core, 0.05 of floor for the memory.
    let poor = Announcement { max_rate: Some(Rate(200_000)), ..call(&stall) };
    let out = announce(&mut stall, &poor);
    let refusal = decline(&out).unwrap();
    assert_eq!(
        (refusal.code, refusal.nearest.to_string().as_str()),
        (DeclineCode::Price, "at least 0.250000 CR/h, you pay at most 0.200000 CR/h")
    );
    let call = call(&stall);
    let out = announce(&mut stall, &call);
    assert_eq!(bid(&stall, &out).rate, RATE);
    stall.pass(3_000);
    let again = Announcement { round: 1, ..super::bidding::call(&stall) };
    announce(&mut stall, &again);
    let record = *stall.trader.provider.desk().record();
    assert_eq!((record.bids, record.won, record.lost, record.under_floor), (2, 0, 1, 1));
    assert_eq!(record.best_refused, Some(souk_protocol::Ppm(800_000)));
}
