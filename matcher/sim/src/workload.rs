//! Who wants what, who sells what, and what each attempt will come to.

use std::{collections::BTreeMap, sync::Arc};

use souk_matcher::Policy;
use souk_protocol::{
    Array, AttemptEnd, AttemptId, Bytes, Capacity, Credits, Hash, Isolation, JobId, JobSpec, List, Local, Market,
    MilliCpu, Millis, Mode, Module, NodeId, Pay, PriceList, Rate, Requirement, Retry, RetryOn, Runtime, Sla, Terms,
    Text, Tier, Timestamp, Verify,
};

use crate::{random::Dice, scenario::Scenario, time::Micros};

/// The wall clock at the start of each run.
pub(crate) const EPOCH: Timestamp = Timestamp(1_800_000_000_000);
/// How long results wait in simulated jobs: short, so that dead leases come to rest within a run.
const RETENTION: Millis = Millis(60_000);

/// A job that will be submitted.
#[derive(Debug, Clone)]
pub(crate) struct PlannedJob {
    /// Number of the renter's node.
    pub(crate) renter: usize,
    /// When its user first submits it.
    pub(crate) at: Micros,
    /// Its id.
    pub(crate) job: JobId,
    /// What it is.
    pub(crate) spec: Arc<JobSpec>,
    /// When its user has enough of it, if ever.
    pub(crate) cancel_at: Option<Micros>,
}

/// What an attempt will come to if nothing comes in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fate {
    /// Time to fetch and compile.
    pub(crate) fetch: Micros,
    /// Run time it would take without a limit.
    pub(crate) run: Micros,
    /// How it ends.
    pub(crate) end: AttemptEnd,
    /// Whether it leaves logs and outputs.
    pub(crate) leaves_outputs: bool,
}

/// All jobs of a run, in the order of their submission.
#[must_use]
pub(crate) fn jobs(seed: u64, scenario: &Scenario, ids: &[NodeId]) -> Vec<PlannedJob> {
    let mut dice = Dice::new(seed, "jobs");
    let mut planned: Vec<_> = (0..scenario.jobs).filter_map(|number| job(&mut dice, scenario, ids, number)).collect();
    planned.sort_by_key(|job| job.at);
    planned
}

fn job(dice: &mut Dice, scenario: &Scenario, ids: &[NodeId], number: usize) -> Option<PlannedJob> {
    let renter = number.checked_rem(scenario.renters)?;
    let at = dice.span(Micros::millis(100), scenario.submit_until);
    let spec = spec(dice, scenario, at, number);
    let job = JobId::new(ids.get(renter)?, &spec.hash().ok()?, &dice.bytes());
    let cancel_at = dice.chance(scenario.cancelled).then(|| at + dice.span(Micros(0), Micros::millis(20_000)));
    Some(PlannedJob { renter, at, job, spec: Arc::new(spec), cancel_at })
}

fn spec(dice: &mut Dice, scenario: &Scenario, at: Micros, number: usize) -> JobSpec {
    let with_faults = scenario.faults != crate::scenario::Faults::NONE;
    let tasks = tasks(dice, scenario.max_tasks);
    let mode = *dice.pick(&[Mode::Auto, Mode::Auction, Mode::Ask]).unwrap_or(&Mode::Auto);
    let timeout = Millis(scenario.longest_task.to_millis().0.saturating_mul(2));
    let budget = dice.chance(scenario.budgeted).then(|| Credits(dice.between(2_000, 60_000)));
    let limits = with_faults && dice.chance(500_000);
    let sla = Sla {
        start_within: limits.then(|| Millis(dice.between(30_000, 90_000))),
        deadline: limits.then(|| Timestamp(EPOCH.0 + at.to_millis().0 + dice.between(60_000, 240_000))),
        reliability: None,
        latency: None,
        loss: None,
    };
    let on = if with_faults && dice.chance(400_000) {
        RetryOn::ALL.to_vec()
    } else {
        vec![RetryOn::NoCapacity, RetryOn::Preempted, RetryOn::Lost, RetryOn::ProviderFault]
    };
    let max_parallel = u32::try_from(dice.between(1, tasks.min(40))).unwrap_or(1);
    JobSpec {
        name: Text::clipped(&format!("job-{number}")),
        labels: BTreeMap::new(),
        module: Module {
            hash: Hash(dice.bytes()),
            len: 100_000,
            name: Text::clipped("task.wasm"),
            entry: Text::clipped("_start"),
        },
        args: vec!["--task={index}".to_owned()],
        env: Vec::new(),
        inputs: Vec::new(),
        outputs: vec![souk_protocol::Output { path: "/out".to_owned(), to: String::new() }],
        requirement: requirement(dice),
        terms: terms(timeout),
        market: Market {
            max_rate: (with_faults && dice.chance(200_000)).then(|| Rate(dice.between(60_000, 900_000))),
            budget,
            mode,
            local: Local::Never,
            allow: Vec::new(),
            deny: Vec::new(),
        },
        sla,
        retry: Retry { attempts: if with_faults { u32::try_from(dice.between(1, 6)).unwrap_or(1) } else { 3 }, on },
        array: Array {
            tasks: (0..tasks).map(|index| BTreeMap::from([("index".to_owned(), index.to_string())])).collect(),
            max_parallel,
            max_failures: if dice.chance(500_000) { u32::MAX } else { u32::try_from(dice.below(5)).unwrap_or(0) },
        },
    }
}

/// Most jobs are small, a few are as large as the scenario allows.
fn tasks(dice: &mut Dice, max: u64) -> u64 {
    let cap = *dice.pick(&[1, 4, 10, 20, 20, 40, max]).unwrap_or(&1);
    dice.between(1, cap.clamp(1, max.max(1)))
}

fn requirement(dice: &mut Dice) -> Requirement {
    Requirement {
        runtime: Runtime::Wasm,
        isolation: Isolation::W0,
        cpu: MilliCpu(*dice.pick(&[500, 1_000, 1_000, 2_000]).unwrap_or(&1_000)),
        memory: Bytes(*dice.pick(&[256_000_000, 512_000_000, 2_000_000_000]).unwrap_or(&256_000_000)),
        disk: Bytes(100_000_000),
        gpu: None,
        regions: List::default(),
    }
}

fn terms(timeout: Millis) -> Terms {
    Terms {
        tier: Tier::Bronze,
        pay: Pay::Delivered,
        preemptible: true,
        notice: Millis(0),
        timeout,
        stop_grace: Millis(1_000),
        stdout: Bytes(1_000_000),
        offline: Millis(0),
        retention: RETENTION,
        verify: Verify::None,
    }
}

/// What a provider sells. `variant` 0 is what it starts with, others are later changes of mind.
#[must_use]
pub(crate) fn policy(seed: u64, scenario: &Scenario, node: usize, variant: u64) -> Policy {
    let first_provider = scenario.nodes.saturating_sub(scenario.providers);
    let mut dice = Dice::new(seed, &format!("policy {node}"));
    let cores = if node >= first_provider { dice.between(1, 8) * 2 } else { 0 };
    let gigabytes = cores * dice.between(1, 4);
    let mut price = Dice::new(seed, &format!("price {node} {variant}"));
    let ask = PriceList { cpu: Rate(price.between(50_000, 600_000)), memory_gb: Rate(price.between(1_000, 20_000)) };
    Policy {
        name: Text::clipped(&format!("node-{node}")),
        region: Text::clipped("DE"),
        total: Capacity {
            cpu: MilliCpu(cores * 1_000),
            memory: Bytes(gigabytes * 1_000_000_000),
            disk: Bytes(cores * 1_000_000_000),
        },
        runtimes: vec![Runtime::Wasm],
        isolation: vec![Isolation::W0],
        tiers: vec![Tier::Bronze, Tier::Silver],
        floor: PriceList { cpu: Rate(ask.cpu.0 / 2), memory_gb: Rate(ask.memory_gb.0 / 2) },
        ask,
        // Where nothing goes wrong, nobody may look for asks in vain.
        standing: dice.chance(700_000) || scenario.faults == crate::scenario::Faults::NONE,
        max_duration: Millis(24 * 3_600_000),
        stranger_limit: scenario.stranger_limit,
        strangers_limit: scenario.params.credit.strangers,
        deny: Vec::new(),
        addresses: Vec::new(),
    }
}

/// What an attempt will come to: the same for the same attempt in each run of a seed.
#[must_use]
pub(crate) fn fate(seed: u64, scenario: &Scenario, job: &JobId, attempt: &AttemptId) -> Fate {
    let AttemptId { task, replica, number, .. } = attempt;
    let mut dice = Dice::new(seed, &format!("fate {job} {task} {replica} {number}"));
    let run = dice.span(Micros::millis(20), scenario.longest_task);
    let fetch = dice.span(Micros(500), Micros::millis(300));
    let end = if dice.chance(scenario.bad_tasks) {
        *dice
            .pick(&[
                AttemptEnd::Failed,
                AttemptEnd::TimedOut,
                AttemptEnd::OutOfMemory,
                AttemptEnd::InputFailed,
                AttemptEnd::ProviderFault,
            ])
            .unwrap_or(&AttemptEnd::Failed)
    } else {
        AttemptEnd::Done
    };
    Fate { fetch, run, end, leaves_outputs: dice.chance(700_000) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Table;

    #[test]
    fn the_same_seed_plans_the_same_jobs_within_the_bounds_of_the_scenario() {
        let scenario = Scenario::market();
        let (_, ids) = Table::new(3, scenario.nodes);
        let planned = jobs(3, &scenario, &ids);
        assert_eq!(planned.len(), scenario.jobs);
        for (a, b) in planned.iter().zip(jobs(3, &scenario, &ids)) {
            assert_eq!((a.job, a.at, a.renter), (b.job, b.at, b.renter));
            assert!(a.renter < scenario.renters && a.at <= scenario.submit_until);
            assert!((1..=200).contains(&a.spec.task_count()));
            assert!(a.spec.array.max_parallel <= a.spec.task_count());
        }
    }

    #[test]
    fn only_providers_sell_and_a_change_of_terms_keeps_the_machine() {
        let scenario = Scenario::market();
        assert_eq!(policy(1, &scenario, 0, 0).total, Capacity::default());
        let (before, after) = (policy(1, &scenario, 49, 0), policy(1, &scenario, 49, 1));
        assert!(before.total.cpu.0 >= 2_000);
        assert_eq!(before.total, after.total);
        assert_ne!(before.ask, after.ask);
    }
}
