//! Whole lives of jobs between real traders in memory: by ask, by auction, through crashes of either side.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic")]
#![allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "tests may panic")]

mod market;
#[path = "../../src/testing.rs"]
#[expect(dead_code, reason = "the tests beside the code need more of it")]
mod testing;

use market::{Market, policy, spec};
use proptest::prelude::*;
use souk_matcher::{JobState, TaskState};
use souk_protocol::{JobId, LeaseEnd, Mode, Party};

/// Both sides have the same receipt, complete with all documents.
fn receipts_match(market: &Market, provider: usize, expected: usize) {
    let of = |node: usize, party| {
        let receipts = market.nodes[node].receipts.iter().filter(move |(side, _)| *side == party);
        receipts.map(|(_, receipt)| receipt.clone()).collect::<Vec<_>>()
    };
    let id = market.nodes[provider].trader.id();
    let mut renters: Vec<_> = of(0, Party::Renter).into_iter().filter(|receipt| receipt.provider == id).collect();
    let mut providers = of(provider, Party::Provider);
    renters.sort_by_key(|receipt| receipt.lease);
    providers.sort_by_key(|receipt| receipt.lease);
    assert_eq!(renters, providers);
    assert_eq!(renters.len(), expected);
    for receipt in &renters {
        let renters = market.nodes[0].trader.renter.receipt_file(&receipt.lease).expect("the renter's file");
        let providers =
            market.nodes[provider].trader.provider.receipt_file(&receipt.lease).expect("the provider's file");
        assert_eq!(renters, providers);
        assert_eq!(renters.results.len(), receipt.billed.len());
        assert!(market.forgotten.contains(&receipt.lease));
    }
}

fn all_done(market: &Market, job: JobId) {
    let job = market.nodes[0].trader.renter.job(&job).unwrap();
    assert_eq!(job.state(), JobState::Succeeded);
    assert!(job.tasks().iter().all(|task| task.state() == TaskState::Done));
}

#[test]
fn a_job_by_standing_ask_ends_in_receipts_on_both_sides() {
    let mut market = Market::new(vec![policy(2, 360_000)]);
    let submitted = market.now;
    let job = market.submit(spec(1, Mode::Auto));
    assert_eq!(market.until_done(job, 10_000), JobState::Succeeded);
    // One way, the run, its sync, the way back, the fetch, and the verdict at once.
    assert_eq!(market.now - submitted, 5 + 100 + 2 + 5 + 10);
    market.until(1_000);
    receipts_match(&market, 1, 1);
    let receipt = &market.nodes[0].receipts[0].1;
    // 100 ms at 0.36 CR an hour are 10 micro-credits.
    assert_eq!((receipt.total.0, receipt.run.0, receipt.end), (10, 100, LeaseEnd::Completed));
    market.check(true);
    all_done(&market, job);
}

#[test]
fn a_job_by_auction_goes_to_the_cheaper_of_two() {
    let mut market = Market::new(vec![policy(2, 720_000), policy(2, 360_000)]);
    let job = market.submit(spec(1, Mode::Auction));
    assert_eq!(market.until_done(job, 10_000), JobState::Succeeded);
    market.until(2_000);
    receipts_match(&market, 1, 0);
    receipts_match(&market, 2, 1);
    market.check(true);
    all_done(&market, job);
}

#[test]
fn many_tasks_share_the_leases_of_two_providers() {
    let mut market = Market::new(vec![policy(2, 360_000), policy(2, 400_000)]);
    let job = market.submit(spec(40, Mode::Auto));
    assert_eq!(market.until_done(job, 60_000), JobState::Succeeded);
    market.until(market.now + 2_000);
    market.check(true);
    all_done(&market, job);
    let total: u64 = market.nodes[0].receipts.iter().map(|(_, receipt)| receipt.billed.len() as u64).sum();
    assert_eq!(total, 40);
    assert_eq!(market.executed.len(), 40);
    let spent = market.nodes[0].trader.books.totals().spent;
    assert_eq!(market.nodes[0].trader.renter.job(&job).unwrap().cost(), spent);
}

#[test]
fn a_task_that_can_only_wait_gets_its_slot_when_one_is_free() {
    let mut market = Market::new(vec![policy(1, 360_000)]);
    market.run = 3_000;
    let first = market.submit(spec(1, Mode::Auto));
    let mut other = spec(1, Mode::Auto);
    other.args.push("other".to_owned());
    let second = market.submit(other);
    assert_eq!(market.until_done(first, 60_000), JobState::Succeeded);
    assert_eq!(market.until_done(second, 120_000), JobState::Succeeded);
    market.until(market.now + 2_000);
    market.check(true);
}

/// Case of a provider that dies at any moment and comes back soon.
#[test]
fn a_provider_may_crash_at_any_moment() {
    for at in (1..=160).step_by(3) {
        let mut market = Market::new(vec![policy(2, 360_000)]);
        let job = market.submit(spec(3, Mode::Auto));
        market.until(50 + at);
        market.crash(1);
        market.until(market.now + 700);
        market.restart(1);
        assert_eq!(market.until_done(job, 600_000), JobState::Succeeded, "crash at {at}");
        market.until(market.now + 700_000);
        market.check(false);
        all_done(&market, job);
        assert_eq!(
            market.nodes[1].trader.provider.leases(market.now.into_millis(), 15_000.into_millis()),
            [],
            "crash at {at}"
        );
        assert_eq!(market.nodes[1].trader.provider.capacity().used, souk_protocol::Capacity::default());
        let (paid, earned) =
            (market.nodes[0].trader.books.totals().spent, market.nodes[1].trader.books.totals().earned);
        assert_eq!(paid, earned, "crash at {at}");
    }
}

/// The only provider restarts in the middle of a job: its lost attempts are handed to it again on the lease it has, as
/// soon as it says so.
#[test]
fn a_sole_provider_that_restarts_does_not_stall_its_job() {
    for mode in [Mode::Ask, Mode::Auto, Mode::Auction] {
        let mut market = Market::new(vec![policy(2, 360_000)]);
        market.run = 2_000;
        let job = market.submit(spec(4, mode));
        market.until(1_000);
        assert_eq!(market.executed.len(), 2);
        market.crash(1);
        market.until(2_000);
        market.restart(1);
        assert_eq!(market.until_done(job, 60_000), JobState::Succeeded);
        // Two rounds of two tasks, two seconds each, and what the messages and the disk take.
        assert!(market.now - 2_000 < 2 * 2_000 + 100, "{mode:?}: {} ms", market.now - 2_000);
        assert_eq!(market.executed.len(), 6);
        market.until(market.now + 10_000);
        receipts_match(&market, 1, 1);
        assert_eq!(market.nodes[0].receipts[0].1.billed.len(), 4);
        assert_eq!(market.nodes[0].receipts[0].1.unbilled, 2);
        market.check(false);
        all_done(&market, job);
    }
}

/// Case of a renter that dies at any moment and comes back soon.
#[test]
fn a_renter_may_crash_at_any_moment() {
    for at in (1..=160).step_by(3) {
        let mut market = Market::new(vec![policy(2, 360_000)]);
        let job = market.submit(spec(3, Mode::Auto));
        market.until(50 + at);
        market.crash(0);
        market.until(market.now + 700);
        market.restart(0);
        if market.state(job).is_none() {
            assert!(at <= 2, "a durable job is not lost");
            continue;
        }
        assert_eq!(market.until_done(job, 600_000), JobState::Succeeded, "crash at {at}");
        market.until(market.now + 700_000);
        market.check(false);
        all_done(&market, job);
        assert_eq!(
            market.nodes[1].trader.provider.leases(market.now.into_millis(), 15_000.into_millis()),
            [],
            "crash at {at}"
        );
        let (paid, earned) =
            (market.nodes[0].trader.books.totals().spent, market.nodes[1].trader.books.totals().earned);
        assert_eq!(paid, earned, "crash at {at}");
    }
}

/// Both die, one after the other.
#[test]
fn both_sides_may_crash() {
    for (first, second) in [(20, 30), (60, 5), (110, 8), (118, 4), (125, 20), (130, 2)] {
        for order in [[0, 1], [1, 0]] {
            let mut market = Market::new(vec![policy(2, 360_000)]);
            let job = market.submit(spec(3, Mode::Auto));
            market.until(50 + first);
            market.crash(order[0]);
            market.until(market.now + second);
            market.crash(order[1]);
            market.until(market.now + 500);
            market.restart(order[0]);
            market.until(market.now + 100);
            market.restart(order[1]);
            assert_eq!(market.until_done(job, 600_000), JobState::Succeeded, "crashes at {first} and {second}");
            market.until(market.now + 700_000);
            market.check(false);
            all_done(&market, job);
        }
    }
}

#[test]
fn lost_messages_are_made_good() {
    for (lossy, seed) in (1..=40).map(|seed| (5 + seed % 4 * 10, seed)) {
        let mut market = Market::new(vec![policy(2, 360_000)]);
        (market.lossy, market.dice) = (lossy, seed * 7_919);
        let job = market.submit(spec(6, Mode::Auto));
        assert_eq!(market.until_done(job, 600_000), JobState::Succeeded, "{lossy} % lost, seed {seed}");
        market.lossy = 0;
        market.until(market.now + 700_000);
        market.check(true);
        all_done(&market, job);
        let open = market.nodes[1].trader.provider.leases(market.now.into_millis(), 15_000.into_millis());
        assert_eq!(open, [], "{lossy} % lost, seed {seed}");
    }
}

#[test]
fn a_provider_that_never_comes_back_is_replaced() {
    let mut market = Market::new(vec![policy(4, 360_000), policy(4, 400_000)]);
    market.run = 5_000;
    let job = market.submit(spec(3, Mode::Auto));
    market.until(2_000);
    let busy = if market.executed.is_empty() { 2 } else { 1 };
    market.crash(busy);
    assert_eq!(market.until_done(job, 300_000), JobState::Succeeded);
    all_done(&market, job);
    market.until(market.now + 100_000);
    market.check(false);
}

#[test]
fn a_cancelled_job_stops_and_settles() {
    let mut market = Market::new(vec![policy(2, 360_000)]);
    market.run = 30_000;
    let job = market.submit(spec(2, Mode::Auto));
    market.until(5_000);
    market.handle(0, souk_matcher::Event::Cancel { job });
    assert_eq!(market.state(job), Some(JobState::Cancelled));
    market.until(8_000);
    receipts_match(&market, 1, 1);
    let receipt = &market.nodes[0].receipts[0].1;
    // Run time to the stop is owed for.
    assert_eq!(receipt.billed.len(), 2);
    assert!(receipt.run.0 > 9_000 && receipt.run.0 < 11_000, "{}", receipt.run.0);
    market.check(true);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever dies when, and whatever is lost: the job ends, no task is paid twice, no slot is sold twice, the books
    /// never contradict each other, and everything is given back in the end.
    #[test]
    fn crashes_and_losses_at_random_moments_do_no_harm(
        faults in proptest::collection::vec((0..3usize, 1..4_000u64, 1..3_000u64), 0..5),
        (lossy, dice) in (0..25u64, any::<u64>()),
        (tasks, run, auction) in (1..8usize, 20..3_000u64, any::<bool>()),
    ) {
        let mut market = Market::new(vec![policy(2, 360_000), policy(2, 400_000)]);
        (market.lossy, market.dice, market.run) = (lossy, dice, run);
        let mut spec = spec(tasks, if auction { Mode::Auction } else { Mode::Auto });
        spec.retry.attempts = 20;
        let job = market.submit(spec);
        market.until(market.now + 3); // the job is durable
        for (node, after, down) in faults {
            market.until(market.now + after);
            market.crash(node);
            market.until(market.now + down);
            market.restart(node);
        }
        market.lossy = 0;
        prop_assert_eq!(market.until_done(job, 2_000_000), JobState::Succeeded);
        all_done(&market, job);
        market.until(market.now + 2 * 3_700_000);
        market.check(false);
        for node in &market.nodes[1..] {
            let open = node.trader.provider.leases(market.now.into_millis(), 15_000.into_millis());
            prop_assert_eq!(open, vec![]);
            prop_assert_eq!(node.trader.provider.capacity().used, souk_protocol::Capacity::default());
        }
        let spent = market.nodes[0].trader.books.totals().spent;
        let earned: u64 = market.nodes[1..].iter().map(|node| node.trader.books.totals().earned.0).sum();
        prop_assert_eq!(spent.0, earned);
        prop_assert_eq!(market.nodes[0].trader.renter.job(&job).unwrap().cost(), spent);
    }
}

/// Milliseconds, for short.
trait IntoMillis {
    fn into_millis(self) -> souk_protocol::Millis;
}

impl IntoMillis for u64 {
    fn into_millis(self) -> souk_protocol::Millis {
        souk_protocol::Millis(self)
    }
}
