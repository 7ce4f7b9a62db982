//! Fifty nodes, everything that can go wrong, a thousand times.

use std::{
    collections::BTreeMap,
    env,
    ops::Range,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Instant,
};

use souk_sim::{Report, Scenario, run, run_traced};

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.parse().ok()
}

/// `SOUK_SIM_SEED=n` runs that seed alone, `SOUK_SIM_TRACE=1` tells all that happens in it, `SOUK_SIM_SEEDS=from..to`
/// runs others than the test's own.
fn seeds(default: Range<u64>) -> Range<u64> {
    if let Some(seed) = number("SOUK_SIM_SEED") {
        return seed..seed + 1;
    }
    let range = env::var("SOUK_SIM_SEEDS").ok();
    let range = range.as_deref().and_then(|text| text.split_once(".."));
    range.map_or(default, |(from, to)| from.parse().unwrap()..to.parse().unwrap())
}

/// Runs all seeds on all processors. Answers the reports that do not hold and sums of all.
fn run_all(scenario: &Scenario, seeds: Range<u64>) -> (Vec<Report>, BTreeMap<&'static str, u64>) {
    let next = AtomicU64::new(seeds.start);
    let (bad, sums) = (Mutex::new(Vec::new()), Mutex::new(BTreeMap::new()));
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if !seeds.contains(&seed) {
                return;
            }
            let report = one(seed, scenario);
            let mut sums = sums.lock().unwrap();
            let job = |state: &str| report.jobs.get(state).copied().unwrap_or(0) as u64;
            for (name, value) in [
                ("seeds", 1),
                ("events", report.events),
                ("messages", report.messages),
                ("crashes", report.crashes),
                ("attempts", report.attempts),
                ("auctions", report.auctions),
                ("discharges", report.discharges),
                ("reservations", report.reservations),
                ("preemptions", report.preemptions),
                ("tasks done", report.tasks_done as u64),
                ("leases", report.leases as u64),
                ("receipts", report.receipts as u64),
                ("jobs succeeded", job("succeeded")),
                ("jobs failed", job("failed")),
                ("jobs cancelled", job("cancelled")),
                ("jobs expired", job("expired")),
                ("checks", report.checks),
                ("virtual s", report.took.0 / 1_000_000),
            ] {
                *sums.entry(name).or_insert(0) += value;
            }
            drop(sums);
            if !report.holds() {
                bad.lock().unwrap().push(report);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(worker);
        }
    });
    let mut bad = bad.into_inner().unwrap();
    bad.sort_by_key(|report: &Report| report.seed);
    (bad, sums.into_inner().unwrap())
}

fn one(seed: u64, scenario: &Scenario) -> Report {
    if env::var_os("SOUK_SIM_TRACE").is_some() {
        run_traced(seed, scenario, &mut |line| eprintln!("{line}"))
    } else {
        run(seed, scenario)
    }
}

/// Runs a scenario with all seeds and tells how to run again what does not hold. Answers the sums.
fn all_hold(scenario: &Scenario, default: Range<u64>) -> BTreeMap<&'static str, u64> {
    let started = Instant::now();
    let (bad, sums) = run_all(scenario, seeds(default));
    eprintln!("{}: {sums:?} in {:?}", scenario.name, started.elapsed());
    for report in bad.iter().take(20) {
        eprintln!(
            "{report}  again: SOUK_SIM_SEED={} SOUK_SIM_TRACE=1 cargo test --release -p souk-sim {} -- --nocapture",
            report.seed, scenario.name
        );
    }
    let kinds = bad.iter().filter_map(|report| report.violations.first()).fold(BTreeMap::new(), |mut kinds, first| {
        *kinds.entry(first.invariant.name()).or_insert(0) += 1;
        kinds
    });
    assert!(bad.is_empty(), "{} of {} seeds do not hold: {kinds:?}", bad.len(), sums.get("seeds").unwrap_or(&0));
    sums
}

/// The faults were there, and the market lived with them.
fn at_least(sums: &BTreeMap<&'static str, u64>, least: &[(&str, u64)]) {
    for (name, least) in least {
        assert!(sums.get(name).is_some_and(|value| value >= least), "{name}, at least {least}: {sums:?}");
    }
}

#[test]
fn a_thousand_troubled_markets_of_fifty_nodes_keep_every_invariant() {
    let sums = all_hold(&Scenario::market(), 0..1_000);
    if sums.get("seeds") == Some(&1_000) {
        at_least(
            &sums,
            &[
                ("crashes", 8_000),
                ("tasks done", 60_000),
                ("jobs succeeded", 5_000),
                ("jobs cancelled", 300),
                ("jobs failed", 300),
                ("jobs expired", 100),
                ("receipts", 10_000),
            ],
        );
        assert!(sums.get("leases") > sums.get("receipts"), "no lease was ever left: {sums:?}");
    }
}

#[test]
fn a_storm_of_crashes_loss_and_cuts_keeps_every_invariant() {
    let sums = all_hold(&Scenario::storm(), 0..300);
    if sums.get("seeds") == Some(&300) {
        at_least(&sums, &[("crashes", 10_000), ("tasks done", 5_000), ("jobs succeeded", 800), ("receipts", 1_500)]);
    }
}

#[test]
fn a_thrifty_market_stays_within_budgets_and_credit() {
    let sums = all_hold(&Scenario::thrifty(), 0..200);
    if sums.get("seeds") == Some(&200) {
        at_least(&sums, &[("discharges", 1_000), ("tasks done", 5_000), ("receipts", 1_000)]);
    }
}

#[test]
fn a_crooked_market_keeps_every_invariant_for_the_honest() {
    let sums = all_hold(&Scenario::crooked(), 0..200);
    if sums.get("seeds") == Some(&200) {
        at_least(&sums, &[("tasks done", 5_000), ("jobs succeeded", 1_000), ("receipts", 1_000)]);
        assert!(sums.get("leases") > sums.get("receipts"), "nobody was cheated: {sums:?}");
    }
}

#[test]
fn a_market_of_all_tiers_keeps_every_promise_of_capacity() {
    let sums = all_hold(&Scenario::tiered(), 0..240);
    if sums.get("seeds") == Some(&240) {
        at_least(
            &sums,
            &[("tasks done", 10_000), ("jobs succeeded", 1_500), ("reservations", 300), ("preemptions", 100)],
        );
    }
}
