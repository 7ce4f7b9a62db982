//! Notice, preemption, the owner, reservations and what fits before them.

use proptest::{prelude::*, test_runner::TestCaseError};
use souk_protocol::{Announcement, Bid, Terms, Tier};

use super::*;

const SECOND: u64 = 1_000;

fn tier(tier: Tier, notice: u64) -> Terms {
    Terms { tier, preemptible: tier == Tier::Bronze, notice: Millis(notice), ..terms() }
}

/// A stall that serves all tiers.
fn stall() -> Stall {
    let mut stall = Stall::new();
    let all = Policy { tiers: Tier::ALL.to_vec(), stranger_limit: Credits(1_000_000), ..policy() };
    stall.handle(Event::Policy(Box::new(all)));
    stall
}

impl Stall {
    fn award_on_terms(&mut self, number: u8, slots: u32, terms: Terms, tasks: &[u32]) -> Vec<Output> {
        let award = Award { terms, ..self.award_doc(LeaseId([number; 16]), slots) };
        let out = self.message(self.award_message(&award, tasks));
        self.renters_side(award.lease);
        out
    }

    fn lease_on_terms(&mut self, number: u8, slots: u32, terms: Terms, tasks: &[u32]) -> LeaseId {
        let out = self.award_on_terms(number, slots, terms, tasks);
        assert_eq!(code(&out), None, "{out:?}");
        let id = LeaseId([number; 16]);
        self.said(&out);
        for task in tasks {
            let out = self.runs_now(id, *task);
            self.said(&out);
        }
        id
    }

    fn runs_now(&mut self, lease: LeaseId, task: u32) -> Vec<Output> {
        let attempt = AttemptId { lease, task, replica: 0, number: 1 };
        self.handle(Event::Running { attempt, state: RunState::Running })
    }

    /// Calls for bids on terms; the bid, or the reason why there is none.
    fn asks(&mut self, terms: Terms, slots: u32, start_in: Option<u64>) -> Result<Verified<Bid>, Decline> {
        // Each call is one of its own: the same again would be answered with the same bid, which may be used up.
        static ROUND: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let wall = at(self.now).wall;
        let call = Announcement {
            round: ROUND.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
            terms,
            slots,
            start_at: start_in.map(|ms| Timestamp(wall.0 + ms)),
            issued: wall,
            closes: Timestamp(wall.0 + 500),
            ..crate::testing::announcement(&self.renter)
        };
        let out = self.message(Message::Announce(Signed::sign(&call, &self.renter).unwrap().into_signed()));
        let bid = out.iter().find_map(|output| match output {
            Output::Send { message: Message::Bid(bid), .. } => Some(bid.verify(&self.renter).unwrap()),
            _ => None,
        });
        bid.ok_or_else(|| decline(&out).expect("a decline").clone())
    }

    /// Awards on a bid for a start so long from now.
    fn takes(&mut self, number: u8, bid: &Verified<Bid>, terms: Terms, start_in: u64) -> Vec<Output> {
        let wall = at(self.now).wall;
        let award = Award {
            basis: Basis::Bid { bid: bid.hash(), table: Hash([0; 32]) },
            rate: bid.rate,
            slots: bid.slots,
            terms,
            start: Timestamp(wall.0 + start_in),
            ..self.award_doc(LeaseId([number; 16]), 1)
        };
        let out = self.message(self.award_message(&award, &[]));
        self.renters_side(award.lease);
        out
    }

    /// The renter keeps saying that it is there.
    fn passes(&mut self, ms: u64) -> Vec<Output> {
        let mut out = Vec::new();
        let mut left = ms;
        while left > 0 {
            let step = left.min(10_000);
            out.extend(self.pass(step));
            left -= step;
            for lease in self.channels.keys().copied().collect::<Vec<_>>() {
                out.extend(self.heartbeat(lease));
            }
            let now = Millis(self.now);
            assert_eq!(invariant::no_reservation_delayed(&self.trader.provider, now), Ok(()));
        }
        out
    }
}

fn opened(out: &[Output]) -> Vec<u8> {
    let lease = |output: &Output| match output {
        Output::OpenLease(lease) => Some(lease.lease.0[0]),
        _ => None,
    };
    out.iter().filter_map(lease).collect()
}

fn told(said: &[Control]) -> Vec<String> {
    let text = |body: &Control| match body {
        Control::Notice { stop_in } => Some(format!("notice {stop_in}")),
        Control::End { end, .. } => Some(format!("end {end}")),
        Control::Result(result) => Some(format!("result {}", result.peek().unwrap().end)),
        Control::Accepted(_) => Some("accepted".to_owned()),
        _ => None,
    };
    said.iter().filter_map(text).collect()
}

#[test]
fn silver_takes_the_slots_of_bronze_after_its_notice() {
    let mut stall = stall();
    let bronze = stall.lease_on_terms(1, 4, tier(Tier::Bronze, 20 * SECOND), &[0, 1, 2, 3]);
    let silver = tier(Tier::Silver, 0);
    let bid = stall.asks(silver, 2, None).unwrap();
    // The notice, the time to stop, and what an award may take on its way.
    assert_eq!((bid.slots, bid.ready_in), (2, Millis(20_000 + 500 + 4_000)));
    let out = stall.takes(2, &bid, silver, 24_500);
    assert_eq!(told(&stall.said(&out)), ["notice 24s", "notice 24s", "end preempted", "accepted"]);
    assert_eq!((opened(&out).len(), stops(&out).len()), (0, 0));
    assert_eq!(stall.view(LeaseId([2; 16])).unwrap().state, LeaseState::Waiting);
    let out = stall.passes(23_999);
    assert_eq!(stops(&out), []);
    let out = stall.pass(1);
    let stopped = AttemptEnd::Preempted;
    assert_eq!(stops(&out), [(0, stopped), (1, stopped), (2, stopped), (3, stopped)]);
    for task in 0..4 {
        let result = stall.ends(bronze, task, AttemptEnd::Preempted, 23_900);
        assert!(!result.end.is_billed());
        stall.refuses(result.attempt);
    }
    assert_eq!(opened(&stall.pass(499)).len(), 0);
    assert_eq!(opened(&stall.pass(1)), [2]);
    let task = stall.work(LeaseId([2; 16]), 0);
    let out = stall.say(LeaseId([2; 16]), Control::Task(task));
    assert_eq!(runs(&out), [0]);
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 2_000);
}

#[test]
fn what_ends_within_its_notice_is_owed_for() {
    let mut stall = stall();
    let bronze = stall.lease_on_terms(1, 4, tier(Tier::Bronze, 20 * SECOND), &[0]);
    let silver = tier(Tier::Silver, 0);
    let bid = stall.asks(silver, 1, None).unwrap();
    let out = stall.takes(2, &bid, silver, bid.ready_in.0);
    stall.said(&out);
    stall.passes(5_000);
    let result = stall.ends(bronze, 0, AttemptEnd::Done, 5_000);
    let out = stall.pays(&result);
    let (receipt, _) = stall.signs(bronze, &out);
    // 5 s at 0.3 CR an hour.
    assert_eq!((receipt.end, receipt.total), (LeaseEnd::Preempted, Credits(417)));
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 0);
    assert_eq!(stall.trader.provider.desk().interruptions(), 0);
}

#[test]
fn a_lease_that_takes_no_more_tasks_gets_its_notice_when_it_has_to_go_sooner() {
    let mut stall = stall();
    let bronze = stall.lease_on_terms(1, 4, tier(Tier::Bronze, 20 * SECOND), &[]);
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 2, Some(300 * SECOND)).unwrap();
    let out = stall.takes(2, &bid, gold, 300 * SECOND);
    assert_eq!(told(&stall.said(&out)), ["accepted"]);
    stall.passes(235_000);
    let task = stall.work(bronze, 0);
    stall.say(bronze, Control::Task(task));
    stall.runs_now(bronze, 0);
    // A quarter of the timeout, the notice and the time to stop before the reservation it takes no more. What runs is
    // over by then.
    let out = stall.passes(29_500);
    assert_eq!(told(&stall.said(&out)), ["end expired"]);
    // Somebody else wants room at once.
    let silver = tier(Tier::Silver, 0);
    let bid = stall.asks(silver, 2, None).unwrap();
    assert_eq!(bid.ready_in, Millis(20_000 + 500 + 4_000));
    let out = stall.takes(3, &bid, silver, bid.ready_in.0);
    assert_eq!(told(&stall.said(&out)), ["notice 24s", "notice 24s", "accepted"]);
    assert_eq!(stops(&stall.passes(23_999)), []);
    assert_eq!(stops(&stall.pass(1)), [(0, AttemptEnd::Preempted)]);
}

#[test]
fn bronze_does_not_preempt_and_silver_is_not_preempted_by_silver() {
    let mut stall = stall();
    stall.lease_on_terms(1, 4, tier(Tier::Bronze, 0), &[0, 1, 2, 3]);
    let decline = stall.asks(tier(Tier::Bronze, 0), 1, None).unwrap_err();
    assert_eq!(decline.to_string(), "no-capacity: free 0 of 4 cores, asked 1");
    let mut stall = self::stall();
    stall.lease_on_terms(1, 4, tier(Tier::Silver, 0), &[0, 1, 2, 3]);
    assert_eq!(stall.asks(tier(Tier::Silver, 0), 1, None).unwrap_err().code, DeclineCode::NoCapacity);
    // Gold waits until silver has ended by itself, or takes silver that allows it.
    let bid = stall.asks(tier(Tier::Gold, 0), 1, None).unwrap();
    assert_eq!(bid.ready_in, Millis(60_000 + 500 + 4_000));
    let mut stall = self::stall();
    stall.lease_on_terms(1, 4, Terms { preemptible: true, ..tier(Tier::Silver, 30 * SECOND) }, &[0, 1, 2, 3]);
    assert_eq!(stall.asks(tier(Tier::Gold, 0), 1, None).unwrap().ready_in, Millis(30_000 + 500 + 4_000));
}

#[test]
fn who_loses_the_least_work_goes() {
    let mut stall = stall();
    stall.lease_on_terms(1, 2, tier(Tier::Bronze, 0), &[0, 1]);
    stall.passes(10_000);
    stall.lease_on_terms(2, 2, tier(Tier::Bronze, 0), &[2, 3]);
    stall.passes(10_000);
    let silver = tier(Tier::Silver, 0);
    let bid = stall.asks(silver, 1, None).unwrap();
    let out = stall.takes(3, &bid, silver, bid.ready_in.0);
    assert_eq!(told(&stall.said(&out)), ["notice 4s", "notice 4s", "end preempted", "accepted"]);
    assert_eq!(stall.view(LeaseId([1; 16])).unwrap().state, LeaseState::Open);
    assert_eq!(stall.view(LeaseId([2; 16])).unwrap().state, LeaseState::Ending(LeaseEnd::Preempted));
}

#[test]
fn a_notice_longer_than_the_owner_grants_is_declined() {
    let mut stall = stall();
    let decline = stall.asks(tier(Tier::Bronze, 601 * SECOND), 1, None).unwrap_err();
    assert_eq!(decline.to_string(), "terms: gives notice of at most 10m, asked 10m1s");
}

#[test]
fn the_owner_gives_notice_to_bronze_lets_silver_end_and_leaves_gold() {
    let mut stall = stall();
    let bronze = stall.lease_on_terms(1, 1, tier(Tier::Bronze, 30 * SECOND), &[0]);
    let silver = stall.lease_on_terms(2, 1, tier(Tier::Silver, 0), &[1]);
    let gold = stall.lease_on_terms(3, 1, tier(Tier::Gold, 0), &[2]);
    let out = stall.handle(Event::Pause);
    assert_eq!(told(&stall.said(&out)), ["notice 30s", "notice 30s", "end preempted", "end preempted"]);
    assert!(stall.trader.provider.is_paused());
    assert_eq!(stall.asks(tier(Tier::Bronze, 0), 1, None).unwrap_err().code, DeclineCode::Closed);
    assert_eq!(stall.offer.as_ref().unwrap().total.cpu.0, 0);
    let out = stall.passes(30_000);
    assert_eq!(stops(&out), [(0, AttemptEnd::Preempted)]);
    stall.ends(bronze, 0, AttemptEnd::Preempted, 30_000);
    let task = stall.work(gold, 3);
    let result = stall.ends(gold, 2, AttemptEnd::Done, 20_000);
    stall.pays(&result);
    assert_eq!(runs(&stall.say(gold, Control::Task(task))), [3]);
    stall.ends(silver, 1, AttemptEnd::Done, 30_000);
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 1_000);
    // The owner's word holds over a restart, and he can take it back.
    stall.crash(stall.journal.len());
    assert!(stall.trader.provider.is_paused());
    stall.handle(Event::Resume);
    assert!(stall.asks(tier(Tier::Bronze, 0), 1, None).is_ok());
}

#[test]
fn an_owner_who_sells_less_takes_back_what_is_leased() {
    let mut stall = stall();
    stall.lease_on_terms(1, 2, tier(Tier::Bronze, 5 * SECOND), &[0, 1]);
    stall.lease_on_terms(2, 2, tier(Tier::Gold, 0), &[2, 3]);
    let mut less = policy();
    less.total.cpu.0 = 3_000;
    let out = stall.trader.handle(Event::Policy(Box::new(less)), at(stall.now));
    let ended: Vec<_> = out
        .iter()
        .filter_map(|output| match output {
            Output::Notify(Notice::LeaseEnded { lease, end, .. }) => Some((lease.0[0], *end)),
            Output::Notify(Notice::Preempting { lease, stop_in, .. }) => {
                assert_eq!((lease.0[0], *stop_in), (1, Millis(5_000)));
                None
            }
            _ => None,
        })
        .collect();
    assert_eq!(ended, [(1, LeaseEnd::Preempted)]);
}

#[test]
fn gold_is_reserved_and_only_what_fits_before_it_is_sold() {
    let mut stall = stall();
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 4, Some(300 * SECOND)).unwrap();
    assert_eq!((bid.slots, bid.ready_in), (4, Millis(0)));
    let out = stall.takes(1, &bid, gold, 300 * SECOND);
    assert_eq!(told(&stall.said(&out)), ["accepted"]);
    // A minute, the time to stop and the time to fetch fit before it.
    let silver = stall.lease_on_terms(2, 2, tier(Tier::Silver, 0), &[0, 1]);
    let long = Terms { timeout: Millis(295 * SECOND), ..tier(Tier::Silver, 0) };
    let out = stall.award_on_terms(3, 1, long, &[]);
    assert_eq!(decline(&out).unwrap().to_string(), "no-capacity: free for 5m, then reserved");
    // Preemptible work may be longer, if its notice fits.
    let bronze = Terms { timeout: Millis(600 * SECOND), ..tier(Tier::Bronze, 60 * SECOND) };
    let bronze = stall.lease_on_terms(4, 1, bronze, &[5]);
    let hopeless = Terms { timeout: Millis(1_000 * SECOND), ..tier(Tier::Bronze, 60 * SECOND) };
    assert_eq!(code(&stall.award_on_terms(5, 1, hopeless, &[])), Some(DeclineCode::NoCapacity));
    // 300 - (150 + 60 + 0.5) s: bronze is told.
    let mut told_at = Vec::new();
    for second in 1..300 {
        let out = stall.passes(SECOND);
        for line in told(&stall.said(&out)) {
            told_at.push((second, line));
        }
        if second == 30 {
            for task in [0, 1] {
                let result = stall.ends(silver, task, AttemptEnd::Done, 30_000);
                stall.pays(&result);
            }
        }
        if second == 250 {
            assert_eq!(stops(&out), [(5, AttemptEnd::Preempted)][..0]);
        }
        if !stops(&out).is_empty() {
            assert_eq!((second, stops(&out)), (299, vec![]));
        }
    }
    assert_eq!(
        told_at,
        [
            (90, "notice 3m30s".to_owned()),
            (90, "notice 3m30s".to_owned()),
            (90, "end preempted".to_owned()),
            (230, "end expired".to_owned()),
        ]
    );
    let out = stall.passes(500);
    assert_eq!(stops(&out), [(5, AttemptEnd::Preempted)]);
    stall.ends(bronze, 5, AttemptEnd::Preempted, 299_500);
    assert_eq!(opened(&stall.pass(500)), [1]);
    assert_eq!(stall.trader.provider.capacity().free.cpu.0, 0);
}

#[test]
fn a_reservation_that_is_given_back_lets_others_stay() {
    let mut stall = stall();
    let bronze = stall.lease_on_terms(1, 4, tier(Tier::Bronze, 5 * SECOND), &[0]);
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 4, Some(300 * SECOND)).unwrap();
    let out = stall.takes(2, &bid, gold, 300 * SECOND);
    stall.said(&out);
    let until = |stall: &Stall| stall.trader.provider.desk().schedule().get(&bronze).unwrap().until;
    assert_eq!(until(&stall), Millis(300 * SECOND));
    stall.end(LeaseId([2; 16]));
    assert_eq!(until(&stall), crate::schedule::OPEN_ENDED);
    stall.passes(50_000);
    let result = stall.ends(bronze, 0, AttemptEnd::Done, 50_000);
    stall.pays(&result);
    stall.passes(300_000);
    assert_eq!(stall.view(bronze).unwrap().state, LeaseState::Open);
}

#[test]
fn reserved_slots_that_nobody_uses_are_sold_again_and_the_renter_is_to_blame() {
    let mut stall = stall();
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 4, Some(100 * SECOND)).unwrap();
    stall.takes(1, &bid, gold, 100 * SECOND);
    let out = stall.passes(100_000);
    assert_eq!(opened(&out), [1]);
    let out = stall.passes(60_000);
    assert!(told(&stall.said(&out)).contains(&"end renter-fault".to_owned()), "{out:?}");
    assert_eq!(stall.trader.provider.capacity().free.cpu.0, 4_000);
}

#[test]
fn before_its_start_a_lease_says_nothing_and_waits_for_nothing() {
    let mut stall = stall();
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 1, Some(3_600 * SECOND)).unwrap();
    let out = stall.takes(1, &bid, gold, 3_600 * SECOND);
    stall.said(&out);
    stall.heartbeat(LeaseId([1; 16]));
    let out = stall.pass(3_580 * SECOND);
    let frames = out.iter().filter(|output| matches!(output, Output::Send { message: Message::Lease(_), .. }));
    assert_eq!(frames.count(), 0);
    assert_eq!(stall.view(LeaseId([1; 16])).unwrap().state, LeaseState::Waiting);
    let out = stall.pass(20 * SECOND);
    assert_eq!(opened(&out), [1]);
}

#[test]
fn promises_hold_over_a_restart() {
    let mut stall = stall();
    stall.lease_on_terms(1, 2, tier(Tier::Bronze, 20 * SECOND), &[0, 1]);
    stall.lease_on_terms(2, 2, tier(Tier::Silver, 0), &[2]);
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 4, Some(400 * SECOND)).unwrap();
    stall.takes(3, &bid, gold, 400 * SECOND);
    let before: Vec<_> = schedule(&stall);
    stall.passes(10_000);
    stall.crash(stall.journal.len());
    let all = Policy { tiers: Tier::ALL.to_vec(), ..policy() };
    stall.handle(Event::Policy(Box::new(all)));
    // Who has to make room is decided anew: nothing runs any more.
    assert_eq!(schedule(&stall).len(), before.len());
    assert_eq!(schedule(&stall)[2], before[2]);
    for lease in [1, 2, 3] {
        stall.renters_side(LeaseId([lease; 16]));
    }
    let out = stall.passes(390_000);
    assert_eq!(opened(&out), [3]);
}

/// Found by the property below: the schedule of a restart promised five cores of four.
#[test]
fn a_reservation_that_began_before_a_restart_still_makes_room_for_a_later_one() {
    let mut stall = stall();
    let short = |tier| Terms { timeout: Millis(5 * SECOND), ..self::tier(tier, 0) };
    stall.lease_on_terms(1, 3, short(Tier::Bronze), &[]);
    stall.lease_on_terms(2, 1, short(Tier::Bronze), &[]);
    let bid = stall.asks(short(Tier::Silver), 3, None).unwrap();
    assert_eq!(code(&stall.takes(3, &bid, short(Tier::Silver), bid.ready_in.0)), None);
    assert_eq!(opened(&stall.passes(bid.ready_in.0)), [3]);
    let start = stall.now + 16 * SECOND;
    let bid = stall.asks(short(Tier::Gold), 2, Some(16 * SECOND)).unwrap();
    assert_eq!(code(&stall.takes(4, &bid, short(Tier::Gold), 16 * SECOND)), None);
    let before = schedule(&stall);
    assert_eq!(before[1..], [(3, 3_000, start), (4, 2_000, u64::MAX)]);
    stall.crash(stall.journal.len());
    let all = Policy { tiers: Tier::ALL.to_vec(), stranger_limit: Credits(1_000_000), ..policy() };
    stall.handle(Event::Policy(Box::new(all)));
    let now = Millis(stall.now);
    assert_eq!(invariant::no_reservation_delayed(&stall.trader.provider, now), Ok(()));
    assert_eq!(schedule(&stall)[1..], before[1..]);
}

fn schedule(stall: &Stall) -> Vec<(u8, u64, u64)> {
    let holds = stall.trader.provider.desk().schedule().holds();
    holds.map(|(lease, hold)| (lease.0[0], hold.amount.cpu.0, hold.until.0)).collect()
}

#[test]
fn a_program_that_starts_too_late_is_sent_back_before_it_has_run() {
    let mut stall = stall();
    let gold = tier(Tier::Gold, 0);
    let bid = stall.asks(gold, 4, Some(80 * SECOND)).unwrap();
    stall.takes(1, &bid, gold, 80 * SECOND);
    let out = stall.award_on_terms(2, 1, tier(Tier::Silver, 0), &[0]);
    assert_eq!(runs(&out), [0]);
    stall.passes(25_000); // it fetches
    let out = stall.runs_now(LeaseId([2; 16]), 0);
    assert_eq!(stops(&out), [(0, AttemptEnd::Preempted)]);
}

#[test]
fn interruptions_are_counted_by_the_hours_of_work() {
    let mut desk = crate::desk::Desk::default();
    let bronze = tier(Tier::Bronze, 0);
    desk.observe(&bronze, AttemptEnd::Preempted, Millis(600_000));
    // One, in what counts as an hour.
    assert_eq!(desk.interruptions(), 1_000_000);
    desk.observe(&bronze, AttemptEnd::Done, Millis(3 * 3_600_000 + 3_000_000));
    assert_eq!(desk.interruptions(), 250_000);
    desk.observe(&tier(Tier::Silver, 0), AttemptEnd::Preempted, Millis(1));
    desk.observe(&bronze, AttemptEnd::Preempted, Millis(0));
    assert_eq!(desk.interruptions(), 250_000);
}

#[derive(Debug, Clone)]
enum Step {
    Take { tier: usize, slots: u32, ahead: Option<u64>, notice: u64, timeout: u64 },
    Ends { lease: u8 },
    Gives { lease: u8 },
    Pass { ms: u64 },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..3usize, 1..5u32, proptest::option::of(1..300u64), 0..40u64, 5..200u64).prop_map(
            |(tier, slots, ahead, notice, timeout)| Step::Take {
                tier,
                slots,
                ahead: ahead.map(|s| s * SECOND),
                notice: notice * SECOND,
                timeout: timeout * SECOND,
            }
        ),
        3 => (0..40u8).prop_map(|lease| Step::Ends { lease }),
        1 => (0..40u8).prop_map(|lease| Step::Gives { lease }),
        4 => (1..90u64).prop_map(|s| Step::Pass { ms: s * 700 }),
        1 => Just(Step::Restart),
    ]
}

/// What the machine and the renter know.
#[derive(Default)]
struct Facts {
    /// By lease: its terms, and the start it was promised until it begins.
    leases: BTreeMap<LeaseId, (Terms, Option<u64>)>,
    /// When what runs has used up its timeout.
    ends: BTreeMap<AttemptId, u64>,
    /// When the renter was told first that work on a lease will be stopped.
    notices: BTreeMap<LeaseId, u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is sold, ended, given back and restarted: no reservation begins later than it was promised, nothing is
    /// oversold at any moment, and what must not be stopped is not.
    #[test]
    fn no_interleaving_delays_a_reservation(steps in proptest::collection::vec(step(), 1..40)) {
        let mut stall = stall();
        let mut facts = Facts::default();
        for (number, step) in (1u8..).zip(steps) {
            let out = match step {
                Step::Take { tier: index, slots, ahead, notice, timeout } => {
                    let terms = Terms { timeout: Millis(timeout), ..tier(Tier::ALL[index], notice) };
                    let ahead = ahead.filter(|_| terms.tier == Tier::Gold);
                    let Ok(bid) = stall.asks(terms, slots, ahead) else { continue };
                    let start = ahead.unwrap_or(bid.ready_in.0);
                    let out = stall.takes(number, &bid, terms, start);
                    prop_assert_eq!(code(&out), None, "{:?} {:?}", bid, out);
                    let promised = (start > 0).then_some(stall.now + start);
                    facts.leases.insert(LeaseId([number; 16]), (terms, promised));
                    out
                }
                Step::Ends { lease } => end_all(&mut stall, LeaseId([lease; 16])),
                Step::Gives { lease } => {
                    let id = LeaseId([lease; 16]);
                    if stall.view(id).is_none() {
                        continue;
                    }
                    stall.end(id)
                }
                Step::Pass { ms } => {
                    live(&mut stall, ms, &mut facts)?;
                    continue;
                }
                Step::Restart => {
                    facts.ends.clear();
                    let mut out = stall.crash(stall.journal.len());
                    let all = Policy { tiers: Tier::ALL.to_vec(), stranger_limit: Credits(1_000_000), ..policy() };
                    out.extend(stall.handle(Event::Policy(Box::new(all))));
                    for lease in stall.channels.keys().copied().collect::<Vec<_>>() {
                        stall.channels.insert(lease, Channel::new(lease, 70 + stall.boot));
                    }
                    out
                }
            };
            obey(&mut stall, &out, &mut facts)?;
            let now = Millis(stall.now);
            prop_assert_eq!(invariant::no_reservation_delayed(&stall.trader.provider, now), Ok(()));
        }
        live(&mut stall, 400_000, &mut facts)?;
    }
}

/// Lets time pass; the machine obeys each order at once.
fn live(stall: &mut Stall, ms: u64, facts: &mut Facts) -> Result<(), TestCaseError> {
    let end = stall.now + ms;
    let mut rounds = 0;
    while stall.now < end {
        let due = stall.trader.wake_at().map_or(end, |due| due.0);
        let over = facts.ends.values().copied().min().unwrap_or(end);
        stall.now = due.min(over).min(stall.now + 5_000).clamp(stall.now, end);
        let over: Vec<_> = facts.ends.iter().filter(|(_, at)| **at <= stall.now).map(|(id, _)| *id).collect();
        for attempt in over {
            facts.ends.remove(&attempt);
            let outcome = stall.outcome(AttemptEnd::TimedOut, 1_000);
            let out = stall.handle(Event::Ended { attempt, outcome });
            obey(stall, &out, facts)?;
        }
        let out = stall.handle(Event::Wake);
        obey(stall, &out, facts)?;
        for lease in stall.channels.keys().copied().collect::<Vec<_>>() {
            let out = stall.heartbeat(lease);
            obey(stall, &out, facts)?;
        }
        rounds += 1;
        prop_assert!(rounds < 20_000, "a timer is never satisfied");
    }
    Ok(())
}

fn obey(stall: &mut Stall, out: &[Output], facts: &mut Facts) -> Result<(), TestCaseError> {
    let mut todo: Vec<Output> = out.to_vec();
    while let Some(output) = todo.pop() {
        match output {
            Output::OpenLease(lease) => {
                let Some((terms, promised)) = facts.leases.get_mut(&lease.lease) else { continue };
                if let Some(start) = promised.take() {
                    prop_assert_eq!(stall.now, start, "lease {} is late", lease.lease.0[0]);
                }
                // The renter has work for all its slots.
                let timeout = terms.timeout;
                for task in 0..lease.slots {
                    let mut work = stall.work(lease.lease, task);
                    work.attempt.number = u32::try_from(stall.now).unwrap_or(0) + 1;
                    work.limits.timeout = timeout;
                    todo.extend(stall.say(lease.lease, Control::Task(work)));
                }
            }
            Output::Run { work, .. } => {
                let attempt = work.attempt;
                facts.ends.insert(attempt, stall.now + work.limits.timeout.0);
                todo.extend(stall.handle(Event::Running { attempt, state: RunState::Running }));
            }
            Output::Stop { attempt, end, .. } => {
                let (terms, _) = facts.leases[&attempt.lease];
                if end == AttemptEnd::Preempted {
                    prop_assert!(crate::desk::may_stop(&terms), "{attempt} is stopped");
                    let given = facts.notices.get(&attempt.lease).map(|noticed| stall.now - noticed);
                    prop_assert!(given >= Some(terms.notice.0), "{attempt} is stopped {given:?} ms after its notice");
                }
                facts.ends.remove(&attempt);
                let outcome = stall.outcome(end, 1_000);
                todo.extend(stall.handle(Event::Ended { attempt, outcome }));
            }
            Output::Send { message: Message::Lease(frame), .. } => {
                if let Control::Notice { .. } = frame.body {
                    facts.notices.entry(frame.lease).or_insert(stall.now);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn end_all(stall: &mut Stall, lease: LeaseId) -> Vec<Output> {
    let running = stall.view(lease).map(|view| view.running).unwrap_or_default();
    let mut out = Vec::new();
    for attempt in running {
        let outcome = stall.outcome(AttemptEnd::Done, 1_000);
        out.extend(stall.handle(Event::Ended { attempt, outcome }));
        let refused = Control::Refused { attempt, reason: Text::default() };
        out.extend(stall.say(lease, refused));
    }
    out
}
