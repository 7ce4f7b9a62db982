//! A quiet market, in which everything can be foretold.

use souk_sim::{Micros, Mixed, Scenario, Workload, run};

#[test]
fn a_quiet_market_runs_every_task_once_and_settles_every_lease() {
    let scenario = Scenario::smoke();
    for seed in 0..20 {
        let report = run(seed, &scenario);
        assert!(report.holds(), "{report}");
        assert_eq!(report.submitted, scenario.workload.jobs());
        assert_eq!(report.jobs.get("succeeded"), Some(&scenario.workload.jobs()), "{report}");
        // Nothing goes wrong, so no task is run twice and no lease is left.
        assert_eq!(report.attempts, report.tasks_done as u64, "{report}");
        assert_eq!(report.receipts, report.leases, "{report}");
        assert!(report.leases >= scenario.workload.jobs(), "{report}");
        assert_eq!(report.crashes, 0);
        assert!(report.spent.0 > 0);
        assert!(report.took < Micros::millis(120_000), "{report}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_to_the_bit_and_another_seed_another() {
    let mut scenario = Scenario::market();
    scenario.workload = Workload::Mixed(Mixed { jobs: 4, ..Mixed::MARKET });
    let (a, b, c) = (run(5, &scenario), run(5, &scenario), run(6, &scenario));
    assert_eq!(a.digest, b.digest);
    assert_eq!((a.events, a.messages, a.took), (b.events, b.messages, b.took));
    assert_ne!(a.digest, c.digest);
}

#[test]
fn a_trace_tells_what_happens_without_changing_it() {
    let scenario = Scenario::smoke();
    let mut lines = Vec::new();
    let report = souk_sim::run_traced(1, &scenario, &mut |line| lines.push(line.to_owned()));
    assert_eq!(report.digest, run(1, &scenario).digest);
    let count = |what: &str| lines.iter().filter(|line| line.contains(what)).count();
    assert_eq!(count(" writes result ") - count(" Billed "), report.tasks_done);
    assert_eq!(count(" runs "), report.tasks_done);
    assert_eq!(count(" writes accepted "), report.leases);
}
