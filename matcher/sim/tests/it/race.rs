//! Fifty renters that want nine tenths of all there is, in the same instant and for minutes on end.

use std::sync::Arc;

use souk_protocol::{Bytes, Capacity, MilliCpu, Mode, PriceList, Rate, Tier};
use souk_sim::{Conduct, Machine, Micros, Plan, PlannedJob, Report, Scenario, Workload, run};

const RENTERS: usize = 50;
/// Twenty machines of eight cores.
const MACHINES: usize = 20;
const CORES: usize = 8;
/// Nine tenths of their cores.
const WANTED: usize = MACHINES * CORES * 9 / 10;
const SEEDS: std::ops::Range<u64> = 0..8;

fn size(cores: usize) -> Capacity {
    let cores = cores as u64;
    Capacity { cpu: MilliCpu(cores * 1_000), memory: Bytes(cores * 1_000_000_000), disk: Bytes(cores * 1_000_000_000) }
}

/// Machines at prices up to a third apart, or all at one price.
fn machines(one_price: bool) -> Vec<Machine> {
    let machine = |number: usize| {
        let ask = if one_price { 300_000 } else { 300_000 + 5_000 * number as u64 };
        Machine {
            total: size(CORES),
            ask: PriceList { cpu: Rate(ask), memory_gb: Rate(0) },
            floor: PriceList { cpu: Rate(ask / 2), memory_gb: Rate(0) },
            standing: true,
            tiers: vec![Tier::Bronze],
            region: 0,
            owner_home: Vec::new(),
            conduct: Conduct::Honest,
        }
    };
    (0..MACHINES).map(machine).collect()
}

fn market(name: &str, plan: Plan) -> Scenario {
    let mut scenario = Scenario::smoke();
    scenario.name = name.to_owned();
    (scenario.renters, scenario.providers, scenario.nodes) = (RENTERS, MACHINES, RENTERS + MACHINES);
    scenario.workload = Workload::Plan(Arc::new(plan));
    scenario.duration = Micros::millis(900_000);
    scenario
}

/// Everybody submits at the very same moment; together they want nine tenths of all cores at once, for twenty seconds.
fn at_once(mode: Mode, one_price: bool) -> Scenario {
    let job = |renter: usize| {
        let tasks = WANTED / RENTERS + usize::from(renter < WANTED % RENTERS);
        let runs = vec![Micros::millis(20_000); tasks];
        PlannedJob { mode, ..PlannedJob::plain(renter, Micros::millis(10_000), size(1), runs) }
    };
    market("race", Plan { machines: machines(one_price), jobs: (0..RENTERS).map(job).collect() })
}

/// Each renter submits its next job as the last one should end: nine tenths of all cores are in use for two minutes.
fn for_minutes(mode: Mode, one_price: bool) -> Scenario {
    let mut jobs = Vec::new();
    for renter in 0..RENTERS {
        let tasks = WANTED / RENTERS + usize::from(renter < WANTED % RENTERS);
        for turn in 0..12 {
            // Not in step with each other.
            let at = 10_000 + turn * 10_500 + (renter as u64 * 211) % 10_500;
            let runs = vec![Micros::millis(10_000); tasks];
            jobs.push(PlannedJob { mode, ..PlannedJob::plain(renter, Micros::millis(at), size(1), runs) });
        }
    }
    let mut plan = Plan { machines: machines(one_price), jobs };
    plan.sort();
    market("crowd", plan)
}

/// Runs all seeds: awards and those refused, in all. Every job is placed, or the invariants would say so.
fn race(scenario: &Scenario) -> (u64, u64) {
    let (mut awards, mut refused) = (0, 0);
    for seed in SEEDS {
        let report: Report = run(seed, scenario);
        assert!(report.holds(), "{report}");
        let jobs = scenario.workload.jobs();
        assert_eq!(report.jobs.get("succeeded"), Some(&jobs), "{report}");
        awards += report.awards;
        refused += report.refused;
        eprintln!(
            "{} seed {seed}: {} of {} awards refused, {} auctions, at rest after {}",
            scenario.name, report.refused, report.awards, report.auctions, report.took
        );
    }
    (awards, refused)
}

/// At most five of a hundred awards are refused, and all jobs come to their slots.
fn at_most_one_in_twenty((awards, refused): (u64, u64)) {
    assert!(refused * 20 <= awards, "{refused} of {awards} awards were refused");
}

#[test]
fn fifty_renters_at_the_same_instant_are_told_by_bids_who_has_room() {
    for one_price in [false, true] {
        at_most_one_in_twenty(race(&at_once(Mode::Auction, one_price)));
    }
}

#[test]
fn fifty_renters_in_a_market_that_stays_nine_tenths_full_seldom_meet_by_auction() {
    for one_price in [false, true] {
        at_most_one_in_twenty(race(&for_minutes(Mode::Auction, one_price)));
    }
}

/// What users get who say nothing: asks where there is room, bids where others are.
#[test]
fn fifty_renters_in_a_market_that_stays_nine_tenths_full_seldom_meet_by_default() {
    for one_price in [false, true] {
        at_most_one_in_twenty(race(&for_minutes(Mode::Auto, one_price)));
    }
}

/// An ask saves a round trip and asks nobody first, so in the very same instant many of fifty are refused; but hardly one
/// of them twice, for whoever was refused asks for bids.
#[test]
fn fifty_renters_at_the_same_instant_are_refused_no_more_than_once_each_by_default() {
    for one_price in [false, true] {
        let (_, refused) = race(&at_once(Mode::Auto, one_price));
        let renters = RENTERS as u64 * (SEEDS.end - SEEDS.start);
        assert!(refused <= renters, "{refused} refusals of {renters} renters");
    }
}
