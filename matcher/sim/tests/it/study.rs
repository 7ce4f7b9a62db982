//! Studies of policies over one demand.

use std::{env, path::PathBuf};

use souk_sim::study::{Market, StudyPlan, Trace};

/// A study of seconds.
fn small() -> StudyPlan {
    StudyPlan {
        jobs: 200,
        gpus: 16,
        loads: vec![1_100_000],
        seeds: 2,
        instances: 4,
        market: Market { renters: 6, ..Market::default() },
        ..StudyPlan::default()
    }
}

#[test]
fn a_study_compares_all_policies_keeps_every_promise_and_gives_the_same_bytes_again() {
    let study = small().run().unwrap();
    let [at] = study.loads.as_slice() else { panic!("{study}") };
    let names: Vec<_> = at.policies.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["souk", "fifo", "random", "cheapest", "fixed-price", "easy", "easy-known"]);
    for (name, figures) in &at.policies {
        assert_eq!(figures.len(), 2, "{name}");
        assert!(figures.iter().all(|figures| figures.violations == 0), "{name}: {study}");
        assert!(figures.iter().all(|figures| figures.utilisation > 100_000 && figures.filled > 0), "{name}: {study}");
    }
    let mean = |policy: &str| at.estimate(policy, |figures| figures.utilisation).unwrap().mean;
    assert!(mean("souk") > mean("fifo"), "{study}");
    assert!(study.efficiency.iter().all(|efficiency| efficiency.share <= 1_000_000), "{study}");
    assert!(study.efficiency[0].share > 500_000, "{study}");
    assert!(study.label.starts_with("simulated (seeds 1-2, synthetic"), "{study}");
    assert_eq!(study.to_string(), small().run().unwrap().to_string());
}

/// The whole study, by hand: `SOUK_TRACES=FOLDER cargo test --release -p souk-sim --test it whole -- --ignored --nocapture`,
/// without the folder on the synthetic demand. `SOUK_STUDY=seeds,jobs,gpus,pace` makes it smaller or larger.
#[test]
#[ignore = "takes many minutes"]
fn the_whole_study() {
    let folder = env::var("SOUK_TRACES").ok().map(PathBuf::from);
    let trace = folder.map(|folder| Trace { folder, other_runtimes: false, spot_fleet: false });
    let mut plan = StudyPlan { trace, ..StudyPlan::default() };
    let numbers = env::var("SOUK_STUDY").unwrap_or_default();
    let numbers: Vec<u64> = numbers.split(',').filter_map(|number| number.parse().ok()).collect();
    if let [seeds, jobs, gpus, pace] = numbers.as_slice() {
        (plan.seeds, plan.gpus, plan.market.pace) = (*seeds, *gpus, *pace);
        plan.jobs = usize::try_from(*jobs).unwrap();
    }
    let study = plan.run().unwrap();
    eprintln!("{study}");
    assert!(study.aims().last().is_some_and(|aim| aim.met == Some(true)), "{study}");
}
