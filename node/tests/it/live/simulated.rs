//! Where real nodes and the simulator overlap they must say the same: one workload, run by both.

use std::sync::Arc;

use souk_protocol::{Bytes, Capacity, MilliCpu, PriceList, Rate, Tier};
use souk_sim::{Conduct, Engine, Machine, Micros, Plan, PlannedJob, Scenario, Workload, run};

use super::{
    lab::{Lab, attempts, micro, path, tasks, text},
    module,
};

/// Tasks of the workload.
const TASKS: u64 = 12;
/// Cores that each provider sells, and so many tasks run at once: one lease has room for all.
const CORES: u64 = 2;

/// What came of the workload.
#[derive(Debug, PartialEq, Eq)]
struct Came {
    tasks_done: u64,
    attempts: u64,
    leases: u64,
    cost: u64,
}

/// The same on real nodes: what came of it, the rate of a slot and the run time that was billed, in milliseconds.
fn real(lab: &Lab) -> (Came, u64, u64) {
    module::busy(&lab.renter.home, 100);
    let file = lab.renter.home.write(
        "job.toml",
        format!(
            "version = 1\nname = \"both\"\n[runtime]\nwasm = \"./busy.wasm\"\nargs = [\"{{A}}{{B}}\"]\n[resources]\ncpu = \"1..\"\n\
             memory = \"16MB..\"\n[market]\nmode = \"ask\"\nmax_price = \"0.05 CR/h\"\n[limits]\ntimeout = \"30s\"\n\
             [array]\nmatrix = {{ B = [\"0\", \"1\", \"2\", \"3\"], A = [\"x\", \"y\", \"z\"] }}\nmax_parallel = {CORES}\n"
        ),
    );
    let ran = lab.renter.home.run(&["run", "-f", path(&file), "--json", "--timeout", "90s"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let job = ran.json();
    let cost = lab.renter.json(&["job", "cost", text(&job["id"])]);
    let leases = cost["leases"].as_array().unwrap();
    let rate = text(&leases[0]["rate"]).parse::<Rate>().unwrap().0;
    let run: u64 = leases.iter().map(|lease| text(&lease["run_ms"]).parse::<u64>().unwrap()).sum();
    let came = Came {
        tasks_done: tasks(&job, "done") as u64,
        attempts: attempts(&job).values().sum::<usize>() as u64,
        leases: leases.len() as u64,
        cost: micro(&job["cost"]),
    };
    (came, rate, run)
}

/// The same simulated, with the price and the run time that the real one had.
fn simulated(providers: usize, rate: u64, run_ms: u64) -> (Came, f64) {
    let size = |cores: u64| {
        let bytes = Bytes(cores * 1_000_000_000);
        Capacity { cpu: MilliCpu(cores * 1_000), memory: bytes, disk: bytes }
    };
    let price = |rate| PriceList { cpu: Rate(rate), memory_gb: Rate(0) };
    let machine = Machine {
        total: size(CORES),
        ask: price(rate),
        floor: price(rate / 2),
        standing: true,
        tiers: vec![Tier::Bronze, Tier::Silver],
        region: 0,
        owner_home: Vec::new(),
        conduct: Conduct::Honest,
    };
    // What is billed is the sum over a lease, so only the sum of the runs matters.
    let each = run_ms / TASKS;
    let run_of = |task| Micros::millis(each + if task == 0 { run_ms % TASKS } else { 0 });
    let mut job = PlannedJob::plain(0, Micros::millis(5_000), size(1), (0..TASKS).map(run_of).collect());
    job.parallel = CORES as u32;
    let mut scenario = Scenario::smoke();
    (scenario.nodes, scenario.renters, scenario.providers) = (providers + 1, 1, providers);
    scenario.engine = Engine::Exact;
    scenario.workload = Workload::Plan(Arc::new(Plan { machines: vec![machine; providers], jobs: vec![job] }));
    let report = run(1, &scenario);
    assert!(report.holds(), "{report}");
    let came = Came {
        tasks_done: report.tasks_done as u64,
        attempts: report.attempts,
        leases: report.leases as u64,
        cost: report.spent.0,
    };
    (came, report.messages as f64 / TASKS as f64)
}

fn compared(providers: usize) {
    let lab = Lab::new(providers);
    let (real, rate, run_ms) = real(&lab);
    let (simulated, messages) = simulated(providers, rate, run_ms);
    #[allow(clippy::print_stderr, reason = "the difference is what this test is for")]
    {
        eprintln!(
            "{} nodes, {TASKS} tasks: real {real:?}, simulated {simulated:?}, {messages:.1} messages a task simulated, \
             cost differs by {} millionths of a credit",
            providers + 1,
            real.cost.abs_diff(simulated.cost)
        );
    }
    assert_eq!(real, simulated);
}

#[test]
fn ten_real_nodes_and_ten_simulated_ones_come_to_the_same() {
    compared(9);
}

#[test]
#[ignore = "fifty processes want more than two cores: run it by hand"]
fn fifty_real_nodes_and_fifty_simulated_ones_come_to_the_same() {
    compared(49);
}
