//! Machines and jobs as plain lists, in which everything can be foretold.

use std::sync::Arc;

use souk_protocol::{Bytes, Capacity, Credits, MilliCpu, Millis, PriceList, Rate, Tier};
use souk_sim::{
    Conduct, End, Engine, LeaseOutcome, Machine, Micros, Plan, PlannedJob, Report, Scenario, Workload, run,
};

fn size(cores: u64) -> Capacity {
    Capacity { cpu: MilliCpu(cores * 1_000), memory: Bytes(cores * 1_000_000_000), disk: Bytes(cores * 1_000_000_000) }
}

fn machine(cores: u64, ask: u64) -> Machine {
    Machine {
        total: size(cores),
        ask: PriceList { cpu: Rate(ask), memory_gb: Rate(0) },
        floor: PriceList { cpu: Rate(ask / 2), memory_gb: Rate(0) },
        standing: true,
        tiers: vec![Tier::Bronze],
        region: 0,
        owner_home: Vec::new(),
        conduct: Conduct::Honest,
    }
}

fn scenario(plan: Plan) -> Scenario {
    let mut scenario = Scenario::smoke();
    (scenario.renters, scenario.providers) = (1, plan.machines.len());
    scenario.nodes = 1 + plan.machines.len();
    scenario.workload = Workload::Plan(Arc::new(plan));
    scenario
}

#[test]
fn a_planned_job_runs_as_long_as_planned_on_the_cheapest_machine_that_has_room() {
    let runs = vec![Micros::millis(1_000), Micros::millis(2_000), Micros::millis(3_000)];
    let job = PlannedJob::plain(0, Micros::millis(5_000), size(1), runs);
    let plan = Plan { machines: vec![machine(2, 360_000), machine(4, 180_000)], jobs: vec![job] };
    let report = run(1, &scenario(plan));
    assert!(report.holds(), "{report}");
    assert_eq!(report.jobs.get("succeeded"), Some(&1), "{report}");
    assert_eq!((report.tasks_done, report.attempts, report.leases), (3, 3, 1), "{report}");
    // Six seconds of one core at 180,000 millionths of a credit an hour.
    assert_eq!(report.spent.0, 300, "{report}");
    let outcome = report.outcome.unwrap();
    let [job] = outcome.jobs[..] else { panic!("{outcome:?}") };
    assert_eq!((job.end, job.done, job.attempts, job.preempted), (End::Succeeded, 3, 3, 0));
    assert_eq!(job.cost.0, 300);
    let incomes = outcome.machines.iter().map(|machine| (machine.income.0, machine.busy, machine.useful));
    // All on the cheaper one: six seconds of a thousand thousandths.
    assert_eq!(incomes.collect::<Vec<_>>(), [(0, 0, 0), (300, 6_000_000, 6_000_000)]);
    let (rate, run, paid) = (Rate(180_000), Millis(6_000), Credits(300));
    assert_eq!(outcome.leases, [LeaseOutcome { job: 0, machine: 1, rate, billed: 3, run, paid, receipt: true }]);
    assert_eq!((outcome.awards, outcome.refused), (1, 0));
    assert!(outcome.timeline.iter().all(|moment| moment.offered == 6_000));
    assert_eq!(outcome.timeline.iter().map(|moment| moment.running).max(), Some(3));
}

#[test]
fn a_planned_run_beyond_its_limit_is_stopped_there_and_paid_that_far() {
    let mut job = PlannedJob::plain(0, Micros::millis(5_000), size(1), vec![Micros::millis(5_000)]);
    job.limit = Millis(1_000);
    let report = run(1, &scenario(Plan { machines: vec![machine(2, 360_000)], jobs: vec![job] }));
    assert!(report.holds(), "{report}");
    let outcome = report.outcome.unwrap();
    assert_eq!((outcome.jobs[0].end, outcome.jobs[0].done, outcome.jobs[0].attempts), (End::Failed, 0, 1));
    assert_eq!((outcome.leases[0].run, outcome.leases[0].paid), (Millis(1_000), Credits(100)));
}

#[test]
fn what_is_cancelled_runs_no_longer_and_is_paid_that_far() {
    let mut job = PlannedJob::plain(0, Micros::millis(5_000), size(1), vec![Micros::millis(60_000); 4]);
    job.cancel_at = Some(Micros::millis(10_000));
    let report = run(1, &scenario(Plan { machines: vec![machine(4, 360_000)], jobs: vec![job] }));
    assert!(report.holds(), "{report}");
    let outcome = report.outcome.unwrap();
    assert_eq!((outcome.jobs[0].end, outcome.leases[0].billed), (End::Cancelled, 4));
    // Within the time of a few messages, not after a part of the second of grace.
    let each = outcome.leases[0].run.0 / 4;
    assert!((4_800..5_100).contains(&each), "{each} ms");
}

#[test]
fn the_light_engine_comes_to_the_same_as_the_exact_one() {
    let jobs = (0..6).map(|number| {
        let runs = (1..=8).map(|task| Micros::millis(task * 700)).collect();
        PlannedJob::plain(0, Micros::millis(1_000 + number * 900), size(1), runs)
    });
    let plan = Plan { machines: vec![machine(2, 360_000), machine(4, 180_000)], jobs: jobs.collect() };
    let mut scenario = scenario(plan);
    let exact = run(1, &scenario);
    scenario.engine = Engine::Light;
    let light = run(1, &scenario);
    assert!(exact.holds() && light.holds(), "{exact}{light}");
    let facts = |report: &Report| {
        let outcome = report.outcome.clone().unwrap();
        let jobs: Vec<_> = outcome.jobs.iter().map(|job| (job.end, job.done, job.attempts)).collect();
        (jobs, report.tasks_done, report.leases, report.receipts, report.jobs.clone())
    };
    assert_eq!(facts(&exact), facts(&light));
    assert_eq!(exact.tasks_done, 48);
}
