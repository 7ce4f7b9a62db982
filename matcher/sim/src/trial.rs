//! One seed of a scenario file: the market and what it is compared with, as the result that is printed and kept.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    figures::{Figures, quantile, waits},
    file::ScenarioFile,
    outcome::{End, Moment, Outcome},
    plan::Plan,
    report::Report,
    study,
    world::Progress,
};

/// What one seed came to. The same seed gives the same result, to the byte; how long it took is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// What was simulated and how, in a line. Never shown without.
    pub label: String,
    /// The seed.
    pub seed: u64,
    /// The scenario.
    pub scenario: String,
    /// What it shows.
    pub about: String,
    /// Nodes.
    pub nodes: u64,
    /// Jobs.
    pub jobs: u64,
    /// Their tasks.
    pub tasks: u64,
    /// Virtual time that the market took, in seconds.
    pub virtual_s: u64,
    /// By policy.
    pub policies: BTreeMap<String, PolicyResult>,
    /// What was checked in the market.
    pub invariants: Invariants,
    /// Things that happened in the market.
    pub events: u64,
    /// Messages that arrived, by hundredths of the nodes: the least, .., the most.
    pub messages_per_node: Vec<u64>,
    /// Messages that arrived, over all nodes.
    pub messages: u64,
    /// Connections made, and those of them that needed a relay.
    pub connections: (u64, u64),
    /// Times a node went away.
    pub departures: u64,
    /// A hash of all that was said and written, and when.
    pub digest: String,
}

impl Trial {
    /// What each policy came to: the market first, then the others by name.
    #[must_use]
    pub fn ordered(&self) -> Vec<(&str, &PolicyResult)> {
        let mut all: Vec<_> = self.policies.iter().map(|(name, result)| (name.as_str(), result)).collect();
        all.sort_by_key(|(name, _)| (*name != "souk", *name));
        all
    }
}

/// Invariants of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invariants {
    /// How often one was asked.
    pub checked: u64,
    /// How often one did not hold.
    pub violated: u64,
    /// The first of these.
    pub first: Option<String>,
}

/// What one policy came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyResult {
    /// The figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Waits in milliseconds, by hundredths of the jobs that started.
    pub waits_ms: Vec<u64>,
    /// Costs in millionths of a credit, by hundredths of the jobs that succeeded.
    pub costs: Vec<u64>,
    /// Incomes in millionths of a credit, by hundredths of the providers.
    pub incomes: Vec<u64>,
    /// The market over time.
    pub timeline: Vec<Point>,
}

/// A moment of a timeline: seconds, and thousandths of cores or tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// When.
    pub s: u64,
    /// Thousandths of cores on sale.
    pub offered: u64,
    /// Thousandths of cores that are busy.
    pub busy: u64,
    /// Tasks that wait.
    pub waiting: u64,
}

/// Runs one seed. `watcher` hears how far the market is. Answers the result and the market's own report.
pub fn trial(file: &ScenarioFile, seed: u64, watcher: &mut dyn FnMut(Progress)) -> (Trial, Report) {
    let plan = Arc::new(file.plan(seed));
    let mut report = crate::run_watched(seed, &file.scenario(Arc::clone(&plan)), watcher);
    let outcome = report.outcome.take().unwrap_or_default();
    let mut policies = BTreeMap::from([(outcome.policy.clone(), PolicyResult::of(&plan, &outcome))]);
    for name in file.policies.iter().filter(|name| **name != outcome.policy) {
        if let Some(outcome) = study::outcome(name, seed, &plan) {
            policies.insert(name.clone(), PolicyResult::of(&plan, &outcome));
        }
    }
    let mut heard: Vec<u64> = report.heard.iter().map(|heard| u64::from(*heard)).collect();
    heard.sort_unstable();
    let trial = Trial {
        label: format!(
            "simulated (seed {seed}, model: {} nodes in {} regions, log-normal latency, {}% behind NAT, {})",
            file.nodes,
            file.regions.codes.len(),
            file.regions.nat.0 / 10_000,
            file.churn.map_or_else(|| "no churn".to_owned(), |churn| format!("mean stay {}", churn.stay)),
        ),
        seed,
        scenario: file.name.clone(),
        about: file.about.clone(),
        nodes: file.nodes as u64,
        jobs: plan.jobs.len() as u64,
        tasks: plan.tasks(),
        virtual_s: report.took.0 / 1_000_000,
        policies,
        invariants: Invariants {
            checked: report.checks,
            violated: report.violations.len() as u64,
            first: report
                .violations
                .first()
                .map(|first| format!("{} at {}: {}", first.invariant, first.at, first.detail)),
        },
        events: report.events,
        messages_per_node: hundredths(&heard),
        messages: report.messages,
        connections: report.connections,
        departures: report.crashes,
        digest: report.digest.to_string(),
    };
    (trial, report)
}

impl PolicyResult {
    fn of(plan: &Plan, outcome: &Outcome) -> Self {
        let sorted = |values: Vec<u64>| {
            let mut values = values;
            values.sort_unstable();
            hundredths(&values)
        };
        let succeeded = outcome.jobs.iter().filter(|job| job.end == End::Succeeded);
        let point = |moment: &Moment| Point {
            s: moment.at.0 / 1_000_000,
            offered: moment.offered,
            busy: moment.busy,
            waiting: moment.waiting,
        };
        Self {
            figures: Figures::of(plan, outcome),
            waits_ms: hundredths(&waits(plan, outcome)),
            costs: sorted(succeeded.map(|job| job.cost.0).collect()),
            incomes: sorted(outcome.machines.iter().map(|machine| machine.income.0).collect()),
            timeline: outcome.timeline.iter().map(point).collect(),
        }
    }
}

/// The least of sorted values, the one above a hundredth of them, .., the greatest.
fn hundredths(sorted: &[u64]) -> Vec<u64> {
    if sorted.is_empty() { Vec::new() } else { (0..=100).map(|part| quantile(sorted, part * 10)).collect() }
}
