//! The scenarios of the library, smaller than they are, and as large as they are on demand.

use std::{env, sync::Arc, time::Instant};

use souk_sim::{Report, ScenarioFile, Trial, find, html, run, run_traced, trial};

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

#[test]
fn a_small_version_of_the_largest_scenario_holds_and_gives_the_same_bytes_again() {
    let file = ScenarioFile::parse(find("scale-100k").unwrap().text).unwrap().with_nodes(1_000).unwrap();
    let mut told = 0;
    let (first, report) = trial(&file, 7, &mut |progress| {
        assert!(progress.tasks_done >= told);
        told = progress.tasks_done;
    });
    assert!(report.holds(), "{report}");
    assert_eq!((first.nodes, first.tasks), (1_000, 10_000));
    assert!(told > 9_000, "{told}");
    let souk = &first.policies["souk"];
    assert!(souk.figures.fill_rate > 980_000 && souk.figures.tasks_done > 9_900, "{:?}", souk.figures);
    assert!(first.departures > 50 && first.connections.1 > 0, "{first:?}");
    let (again, _) = trial(&file, 7, &mut |_| {});
    let bytes = |trial: &Trial| serde_json::to_vec(trial).unwrap();
    assert_eq!(bytes(&first), bytes(&again));
    assert_eq!(html(std::slice::from_ref(&first)), html(&[again]));
    let (other, _) = trial(&file, 8, &mut |_| {});
    assert_ne!(first.digest, other.digest);
    assert!(html(&[first]).contains("simulated (seed 7, model: 1000 nodes in 4 regions"));
}

#[test]
fn every_scenario_of_the_library_holds_when_it_is_small() {
    for (name, nodes) in [("calm", 30), ("crowded", 16), ("partition", 30), ("owners-return", 30)] {
        let file = ScenarioFile::parse(find(name).unwrap().text).unwrap().with_nodes(nodes).unwrap();
        let (trial, report) = trial(&file, 1, &mut |_| {});
        assert!(report.holds(), "{report}");
        let figures = trial.policies["souk"].figures;
        // The crowded one has more work than machines.
        let least = if name == "crowded" { 300_000 } else { 500_000 };
        assert!(figures.fill_rate > least, "{name}: {figures:?}");
    }
}
