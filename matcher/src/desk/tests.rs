use proptest::prelude::*;
use souk_protocol::{Bytes, Isolation, List, MilliCpu, Text, Tier};

use super::*;
use crate::testing::{policy, slot, terms};

fn desk() -> Desk {
    let mut desk = Desk::default();
    desk.set_policy(policy());
    desk
}

const RENTER: NodeId = NodeId([2; 32]);
const PLENTY: Credits = Credits(u64::MAX);

/// So many slots, at once.
fn now(slots: u32) -> Asked<'static> {
    Asked { slots, now: Millis(0), start_at: None, within: None, trusted: true, standings: &[] }
}

/// Places and takes at once, as an award does.
fn take(desk: &mut Desk, lease: LeaseId, slots: u32) -> Result<(), Refusal> {
    let (need, terms) = (slot(), terms());
    let wanted = Wanted { renter: RENTER, requirement: &need, terms: &terms };
    let place = desk.place(&wanted, &now(slots))?;
    desk.take(lease, &need, slots, &place)
}

fn refusal(change: impl FnOnce(&mut Policy, &mut Requirement, &mut Terms)) -> (DeclineCode, String) {
    let (mut policy, mut need, mut terms) = (policy(), slot(), terms());
    change(&mut policy, &mut need, &mut terms);
    let mut desk = Desk::default();
    desk.set_policy(policy);
    let refusal = desk.check(&Wanted { renter: RENTER, requirement: &need, terms: &terms }).unwrap_err();
    (refusal.code, refusal.nearest)
}

#[test]
fn a_slot_that_fits_is_counted_and_priced() {
    let (need, terms) = (slot(), terms());
    let wanted = Wanted { renter: RENTER, requirement: &need, terms: &terms };
    let quote = |slots| Ok(Quote { rate: Rate(300_000), slots, ready_in: Millis(0) });
    assert_eq!(desk().check(&wanted), Ok(()));
    assert_eq!(desk().quote(&wanted, &now(9), None, PLENTY), quote(4));
    assert_eq!(desk().quote(&wanted, &now(2), Some(Rate(999_999)), PLENTY), quote(2));
}

#[test]
fn a_cap_between_floor_and_ask_is_met_and_one_below_the_floor_is_not() {
    let (need, terms) = (slot(), terms());
    let wanted = Wanted { renter: RENTER, requirement: &need, terms: &terms };
    let at = |cap| desk().quote(&wanted, &now(1), Some(Rate(cap)), PLENTY).map(|quote| quote.rate.0);
    assert_eq!(at(200_000), Ok(200_000));
    assert_eq!(at(150_000), Ok(150_000));
    let refusal = at(149_999).unwrap_err();
    assert_eq!(refusal.code, DeclineCode::Price);
    assert_eq!(refusal.nearest, "at least 0.150000 CR/h, you pay at most 0.149999 CR/h");
}

#[test]
fn an_ask_below_the_floor_is_raised_to_it_part_by_part() {
    let mut policy = policy();
    policy.ask = PriceList { cpu: Rate(10), memory_gb: Rate(100_000) };
    let mut desk = Desk::default();
    desk.set_policy(policy);
    assert_eq!(desk.asks(), Some(PriceList { cpu: Rate(100_000), memory_gb: Rate(100_000) }));
}

#[test]
fn a_bid_is_for_no_more_slots_than_the_renter_may_owe_for() {
    let (need, terms) = (slot(), terms());
    let wanted = Wanted { renter: RENTER, requirement: &need, terms: &terms };
    // A minute at 0.30 CR an hour is 0.005 CR.
    assert_eq!(desk().quote(&wanted, &now(4), None, Credits(14_999)).map(|quote| quote.slots), Ok(2));
    let refusal = desk().quote(&wanted, &now(4), None, Credits(4_999)).unwrap_err();
    assert_eq!(refusal.code, DeclineCode::NoCredit);
    assert_eq!(refusal.nearest, "you may owe 0.004999 CR more, one attempt of up to 1m costs 0.005000 CR");
}

#[test]
fn each_refusal_has_its_code_and_the_nearest_miss() {
    let cases = [
        (refusal(|p, _, _| p.total = Capacity::default()), DeclineCode::Closed, "nothing is on sale here"),
        (refusal(|p, _, _| p.deny = vec![RENTER]), DeclineCode::Denied, ""),
        (refusal(|_, n, _| n.runtime = souk_protocol::Runtime::Oci), DeclineCode::Runtime, "runs wasm, asked oci"),
        (refusal(|_, n, _| n.isolation = Isolation::C1), DeclineCode::Isolation, "has W0, asked C1"),
        (refusal(|_, _, t| t.tier = Tier::Gold), DeclineCode::Tier, "serves bronze, silver, asked gold"),
        (refusal(|_, _, t| t.timeout = Millis(7_200_000)), DeclineCode::Duration, "at most 1h, asked 2h"),
        (refusal(|_, n, _| n.cpu = MilliCpu(5_000)), DeclineCode::TooLarge, "free 4 of 4 cores, asked 5"),
        (
            refusal(|_, n, _| n.memory = Bytes(9_000_000_000)),
            DeclineCode::TooLarge,
            "free 8GB of 8GB memory, asked 9GB",
        ),
        (
            refusal(|_, n, _| n.regions = List::try_from(vec![Text::clipped("FR")]).unwrap()),
            DeclineCode::Region,
            "in DE, asked FR",
        ),
        (refusal(|_, _, t| t.pay = Pay::Metered), DeclineCode::Terms, "pay = \"delivered\" is what this node sells"),
    ];
    for ((code, nearest), expected, text) in cases {
        assert_eq!((code, nearest.as_str()), (expected, text));
    }
}

#[test]
fn a_part_of_a_region_lies_in_it() {
    let mut policy = policy();
    policy.region = Text::clipped("DE-BY");
    let mut need = slot();
    let terms = terms();
    for (region, fits) in [("DE", true), ("DE-BY", true), ("DE-B", false), ("FR", false)] {
        need.regions = List::try_from(vec![Text::clipped(region)]).unwrap();
        let wanted = Wanted { renter: RENTER, requirement: &need, terms: &terms };
        assert_eq!(fit::policy(&policy, &wanted).is_ok(), fits, "{region}");
    }
}

#[test]
fn capacity_is_taken_once_and_given_back_once() {
    let mut desk = desk();
    let lease = |n| LeaseId([n; 16]);
    assert_eq!(take(&mut desk, lease(1), 3), Ok(()));
    let place = Place { from: Millis(0), until: OPEN_ENDED, cuts: Vec::new() };
    assert_eq!(desk.take(lease(1), &slot(), 3, &place), Ok(()));
    assert_eq!(desk.used().cpu, MilliCpu(3_000));
    let refusal = take(&mut desk, lease(2), 2).unwrap_err();
    assert_eq!((refusal.code, refusal.nearest.as_str()), (DeclineCode::NoCapacity, "free 1 of 4 cores, asked 2"));
    assert!(desk.release(&lease(1)));
    assert!(!desk.release(&lease(1)));
    assert!(!desk.release(&lease(2)));
    assert_eq!(desk.used(), Capacity::default());
}

/// Case S4: a total lowered below what is leased leaves nothing free, and no underflow.
#[test]
fn a_total_lowered_below_what_is_leased_leaves_nothing_free() {
    let mut desk = desk();
    take(&mut desk, LeaseId([1; 16]), 3).unwrap();
    let mut less = policy();
    less.total.cpu = MilliCpu(1_000);
    desk.set_policy(less);
    assert_eq!(desk.free().cpu, MilliCpu(0));
    assert_eq!(take(&mut desk, LeaseId([2; 16]), 1).unwrap_err().code, DeclineCode::NoCapacity);
    desk.release(&LeaseId([1; 16]));
    assert_eq!(take(&mut desk, LeaseId([2; 16]), 1), Ok(()));
}

#[test]
fn a_slot_count_that_overflows_is_refused() {
    let mut desk = desk();
    let mut need = slot();
    need.cpu = MilliCpu(u64::MAX);
    assert_eq!(desk.hold(LeaseId([1; 16]), &need, 2).unwrap_err().code, DeclineCode::TooLarge);
    assert_eq!(desk.used(), Capacity::default());
}

/// Case M3: the bound is exact, and bids that have ended or became leases do not count against it.
#[test]
fn bids_are_bounded_and_closed_ones_make_room() {
    let mut desk = desk();
    let bid = |until| OwnBid {
        renter: RENTER,
        job: JobId([1; 32]),
        requirement: slot(),
        terms: terms(),
        rate: Rate(1),
        slots: 1,
        ready_in: Millis(0),
        start_at: None,
        valid_until: Timestamp(until),
    };
    let hash = |n: usize| Hash::of(&n.to_le_bytes());
    for n in 0..MAX_BIDS {
        assert!(desk.remember_bid(hash(n), bid(100), Timestamp(50)), "bid {n} of {MAX_BIDS}");
    }
    assert!(!desk.remember_bid(hash(MAX_BIDS), bid(100), Timestamp(100)));
    // The same bid again is no other one.
    assert!(desk.remember_bid(hash(0), bid(100), Timestamp(100)));
    // One that became a lease makes room for one more, and for no second.
    desk.close_bid(&hash(7));
    desk.close_bid(&hash(7));
    assert!(desk.remember_bid(hash(MAX_BIDS), bid(100), Timestamp(100)));
    assert!(!desk.remember_bid(hash(MAX_BIDS + 1), bid(100), Timestamp(100)));
    // All of them have ended.
    assert!(desk.remember_bid(hash(MAX_BIDS + 1), bid(200), Timestamp(101)));
    assert_eq!((desk.bids.len(), desk.bid_ends.len()), (1, 1));
}

#[test]
fn a_renter_that_asks_too_often_is_told_and_another_is_not_hindered() {
    let mut desk = desk();
    let asked = |desk: &mut Desk, renter, at| desk.admit(NodeId([renter; 32]), Millis(at)).is_ok();
    let admitted = (0..2_000).filter(|_| asked(&mut desk, 1, 0)).count();
    assert_eq!(admitted, 1_024);
    assert!(asked(&mut desk, 2, 0));
    let later = (0..2_000).filter(|_| asked(&mut desk, 1, 1_000)).count();
    assert_eq!(later, 256);
}

#[test]
fn the_throttle_remembers_a_bounded_number_of_renters() {
    let mut throttle = Throttle::default();
    let renter = |n: usize| NodeId(Hash::of(&n.to_le_bytes()).0);
    for n in 0..throttle::MAX_RENTERS {
        assert!(throttle.admit(renter(n), Millis(0)).is_ok());
    }
    assert_eq!(throttle.admit(renter(99_999), Millis(0)).unwrap_err().code, DeclineCode::Busy);
    assert!(throttle.admit(renter(99_999), Millis(100)).is_ok());
}

#[test]
fn why_counts_refusals_and_shows_the_latest_miss() {
    let mut desk = desk();
    for n in 0..3 {
        desk.count(&Refusal::new(DeclineCode::NoCapacity, format!("free {n} of 4 cores, asked 4")));
    }
    desk.count(&Refusal::new(DeclineCode::Price, ""));
    let why = desk.why();
    assert_eq!((why[0].code.as_str(), why[0].count), ("no-capacity", 3));
    assert_eq!(why[0].nearest.as_deref(), Some("free 2 of 4 cores, asked 4"));
    assert_eq!((why[1].code.as_str(), why[1].nearest.as_deref()), ("price", None));
}

proptest! {
    /// Nothing is sold twice, whatever is taken and given back in whatever order.
    #[test]
    fn used_is_the_sum_of_what_leases_hold_and_never_over_the_total(
        steps in proptest::collection::vec((0..6u8, 0..6u32, any::<bool>()), 0..60),
    ) {
        let mut desk = desk();
        for (lease, slots, takes) in steps {
            let id = LeaseId([lease; 16]);
            if takes {
                let free = desk.free();
                let was = desk.taken().any(|(taken, _)| *taken == id);
                let took = take(&mut desk, id, slots).is_ok();
                prop_assert_eq!(took, free.slots(&slot()) >= slots);
                prop_assert_eq!(desk.taken().any(|(taken, _)| *taken == id), was || took);
            } else {
                desk.release(&id);
            }
            let held: u64 = desk.taken().map(|(_, taken)| taken.cpu.0).sum();
            prop_assert_eq!(held, desk.used().cpu.0);
            prop_assert!(desk.used().cpu <= desk.total().cpu);
        }
    }
}
