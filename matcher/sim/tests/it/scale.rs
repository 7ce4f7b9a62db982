//! The scenarios of the library, smaller than they are, and as large as they are on demand.

use std::{env, sync::Arc, time::Instant};

use souk_sim::{Report, ScenarioFile, find, run, run_traced};

fn report(name: &str, nodes: usize, seed: u64) -> Report {
    let file = ScenarioFile::parse(find(name).unwrap().text).unwrap().with_nodes(nodes).unwrap();
    let scenario = file.scenario(Arc::new(file.plan(seed)));
    match env::var("SOUK_SIM_TRACE") {
        Ok(word) => run_traced(seed, &scenario, &mut |line| {
            if line.contains(&word) {
                eprintln!("{line}");
            }
        }),
        Err(_) => run(seed, &scenario),
    }
}

/// `SOUK_SIM_SCENARIO=scale-100k SOUK_SIM_NODES=100000` runs that one alone; `SOUK_SIM_TRACE=word` tells what happens in
/// lines with that word.
#[test]
#[ignore = "takes minutes: run it by hand"]
fn a_scenario_of_the_library_as_large_as_asked_for() {
    let name = env::var("SOUK_SIM_SCENARIO").unwrap_or_else(|_| "scale-100k".to_owned());
    let number = |name: &str| env::var(name).ok().and_then(|number| number.parse().ok());
    let nodes = number("SOUK_SIM_NODES").unwrap_or(100_000);
    let started = Instant::now();
    let report = report(&name, nodes, number("SOUK_SIM_SEED").unwrap_or(1) as u64);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or_default().to_owned();
    eprintln!("{report}{:?} {peak}", started.elapsed());
    assert!(report.holds());
}
