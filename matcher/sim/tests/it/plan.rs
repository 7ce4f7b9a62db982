//! Machines and jobs as plain lists, in which everything can be foretold.

use std::sync::Arc;

use souk_protocol::{Bytes, Capacity, MilliCpu, PriceList, Rate, Tier};
use souk_sim::{Conduct, Machine, Micros, Plan, PlannedJob, Scenario, Workload, run};

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
}
