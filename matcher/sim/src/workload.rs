//! Who wants what, who sells what, and what each attempt will come to.

use std::{collections::BTreeMap, sync::Arc};

use souk_matcher::Policy;
use souk_protocol::{
    Array, AttemptEnd, AttemptId, Bytes, Capacity, Credits, Hash, Isolation, JobId, JobSpec, List, Local, Market,
    MilliCpu, Millis, Mode, Module, NodeId, Pay, PriceList, Rate, Requirement, Retry, RetryOn, Runtime, Sla, Terms,
    Text, Tier, Timestamp, Verify,
};

use crate::{
    plan::{Conduct, Machine, PlannedJob},
    random::Dice,
    scenario::{Mixed, Scenario, Workload},
    time::Micros,
};

/// The wall clock at the start of each run.
pub(crate) const EPOCH: Timestamp = Timestamp(1_800_000_000_000);
/// How long results wait in simulated jobs: short, so that dead leases come to rest within a run.
const RETENTION: Millis = Millis(60_000);
/// Time a planned task takes to fetch and compile.
const PLANNED_FETCH: Micros = Micros::millis(30);
/// How much of its work a lowballer lets fail, in millionths.
const LOWBALLER_FAILS: u32 = 500_000;

/// A job that will be submitted.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
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
pub(crate) fn jobs(seed: u64, scenario: &Scenario, ids: &[NodeId]) -> Vec<Submission> {
    let mut dice = Dice::new(seed, "jobs");
    match &scenario.workload {
        Workload::Mixed(mixed) => {
            let job = |number| job(&mut dice, scenario, mixed, ids, number);
            let mut jobs: Vec<_> = (0..mixed.jobs).filter_map(job).collect();
            jobs.sort_by_key(|job| job.at);
            jobs
        }
        Workload::Plan(plan) => {
            let job = |(number, job)| submission(&mut dice, ids, number, job);
            plan.jobs.iter().enumerate().filter_map(job).collect()
        }
    }
}

fn submission(dice: &mut Dice, ids: &[NodeId], number: usize, planned: &PlannedJob) -> Option<Submission> {
    let spec = planned_spec(planned, number);
    let job = JobId::new(ids.get(planned.renter)?, &spec.hash().ok()?, &dice.bytes());
    let (renter, at, cancel_at) = (planned.renter, planned.at, planned.cancel_at);
    Some(Submission { renter, at, job, spec: Arc::new(spec), cancel_at })
}

/// The job file that this job would have.
fn planned_spec(planned: &PlannedJob, number: usize) -> JobSpec {
    let mut hash = [0; 32];
    let (head, _) = hash.split_at_mut(8);
    head.copy_from_slice(&(number as u64).to_le_bytes());
    JobSpec {
        name: Text::clipped(&format!("job-{number}")),
        labels: BTreeMap::new(),
        module: Module {
            hash: Hash(hash),
            len: 100_000,
            name: Text::clipped("task.wasm"),
            entry: Text::clipped("_start"),
        },
        args: Vec::new(),
        env: Vec::new(),
        inputs: Vec::new(),
        outputs: vec![souk_protocol::Output { path: "/out".to_owned(), to: String::new() }],
        requirement: Requirement {
            runtime: Runtime::Wasm,
            isolation: Isolation::W0,
            cpu: planned.need.cpu,
            memory: planned.need.memory,
            disk: planned.need.disk,
            gpu: None,
            regions: List::default(),
        },
        terms: Terms {
            tier: planned.tier,
            preemptible: planned.tier == Tier::Bronze,
            notice: planned.notice,
            ..terms(planned.limit)
        },
        market: Market {
            max_rate: planned.max_rate,
            budget: planned.budget,
            mode: planned.mode,
            local: Local::Never,
            allow: Vec::new(),
            deny: Vec::new(),
        },
        sla: Sla {
            start_within: planned.start_within,
            start_at: planned.start_at.map(|at| Timestamp(EPOCH.0 + at.to_millis().0)),
            deadline: None,
            reliability: None,
            latency: None,
            loss: None,
        },
        retry: Retry {
            attempts: planned.attempts.max(1),
            on: vec![RetryOn::NoCapacity, RetryOn::Preempted, RetryOn::Lost, RetryOn::ProviderFault],
        },
        array: Array {
            tasks: vec![BTreeMap::new(); planned.runs.len()],
            max_parallel: planned.parallel.max(1),
            max_failures: 0,
        },
    }
}

fn job(dice: &mut Dice, scenario: &Scenario, mixed: &Mixed, ids: &[NodeId], number: usize) -> Option<Submission> {
    let renter = number.checked_rem(scenario.renters)?;
    let at = dice.span(Micros::millis(100), mixed.submit_until);
    let spec = spec(dice, scenario, mixed, at, number);
    let job = JobId::new(ids.get(renter)?, &spec.hash().ok()?, &dice.bytes());
    let cancel_at = dice.chance(mixed.cancelled).then(|| at + dice.span(Micros(0), Micros::millis(20_000)));
    Some(Submission { renter, at, job, spec: Arc::new(spec), cancel_at })
}

fn spec(dice: &mut Dice, scenario: &Scenario, mixed: &Mixed, at: Micros, number: usize) -> JobSpec {
    let with_faults = scenario.faults != crate::scenario::Faults::NONE;
    let tasks = tasks(dice, mixed.max_tasks);
    let mode = *dice.pick(&[Mode::Auto, Mode::Auction, Mode::Ask]).unwrap_or(&Mode::Auto);
    let timeout = Millis(mixed.longest_task.to_millis().0.saturating_mul(2));
    let budget = dice.chance(mixed.budgeted).then(|| Credits(dice.between(2_000, 60_000)));
    let limits = with_faults && dice.chance(500_000);
    let (terms, start_at) =
        if mixed.tiered > 0 { tiered(dice, mixed, at, terms(timeout)) } else { (terms(timeout), None) };
    let sla = Sla {
        start_within: limits.then(|| Millis(dice.between(30_000, 90_000))),
        start_at,
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
        terms,
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

/// The terms of a job among those of all tiers, and when it is to start if that is set.
fn tiered(dice: &mut Dice, mixed: &Mixed, at: Micros, plain: Terms) -> (Terms, Option<Timestamp>) {
    if !dice.chance(mixed.tiered) {
        return (Terms { notice: Millis(dice.between(0, 12_000)), ..plain }, None);
    }
    let tier = *dice.pick(&[Tier::Silver, Tier::Silver, Tier::Gold]).unwrap_or(&Tier::Silver);
    let preemptible = tier == Tier::Silver && dice.chance(200_000);
    let ahead = (tier == Tier::Gold && dice.chance(500_000)).then(|| dice.between(2_000, 60_000));
    let start = ahead.map(|ahead| Timestamp(EPOCH.0 + at.to_millis().0 + ahead));
    (Terms { tier, preemptible, notice: Millis(dice.between(0, 20_000)), ..plain }, start)
}

/// Whether there are jobs of all tiers.
const fn mixed_tiers(scenario: &Scenario) -> bool {
    matches!(&scenario.workload, Workload::Mixed(mixed) if mixed.tiered > 0)
}

/// What a provider sells. `variant` 0 is what it starts with, others are later changes of mind.
#[must_use]
pub(crate) fn policy(seed: u64, scenario: &Scenario, node: usize, variant: u64) -> Policy {
    let first_provider = scenario.nodes.saturating_sub(scenario.providers);
    if matches!(scenario.workload, Workload::Plan(_)) {
        return planned_policy(scenario, node, machine(scenario, node));
    }
    let mut dice = Dice::new(seed, &format!("policy {node}"));
    let cores = if node >= first_provider { dice.between(1, 8) * 2 } else { 0 };
    let gigabytes = cores * dice.between(1, 4);
    let mut price = Dice::new(seed, &format!("price {node} {variant}"));
    let ask = PriceList { cpu: Rate(price.between(50_000, 600_000)), memory_gb: Rate(price.between(1_000, 20_000)) };
    Policy {
        total: Capacity {
            cpu: MilliCpu(cores * 1_000),
            memory: Bytes(gigabytes * 1_000_000_000),
            disk: Bytes(cores * 1_000_000_000),
        },
        tiers: if mixed_tiers(scenario) { Tier::ALL.to_vec() } else { vec![Tier::Bronze, Tier::Silver] },
        floor: PriceList { cpu: Rate(ask.cpu.0 / 2), memory_gb: Rate(ask.memory_gb.0 / 2) },
        ask,
        // Where nothing goes wrong, nobody may look for asks in vain.
        standing: dice.chance(700_000) || scenario.faults == crate::scenario::Faults::NONE,
        max_duration: Millis(24 * 3_600_000),
        ..nothing_for_sale(scenario, node)
    }
}

/// The machine of a node, where machines are planned.
#[must_use]
pub(crate) fn machine(scenario: &Scenario, node: usize) -> Option<&Machine> {
    let Workload::Plan(plan) = &scenario.workload else { return None };
    plan.machines.get(node.checked_sub(scenario.nodes.saturating_sub(plan.machines.len()))?)
}

/// Whether a machine lets an attempt fail that is about to start there, beside those that run.
#[must_use]
pub(crate) fn fails(
    seed: u64,
    scenario: &Scenario,
    node: usize,
    attempt: &AttemptId,
    cores: u64,
    busy: &[(u64, Millis)],
) -> bool {
    let Some(machine) = machine(scenario, node) else { return false };
    match machine.conduct {
        Conduct::Honest => false,
        Conduct::Lowballer => Dice::new(seed, &format!("lowballer {attempt}")).chance(LOWBALLER_FAILS),
        Conduct::Oversells { .. } => {
            busy.iter().fold(cores, |sum, (cores, _)| sum.saturating_add(*cores)) > machine.total.cpu.0
        }
    }
}

/// What a machine's owner says it has.
fn claimed(machine: &Machine) -> Capacity {
    let Conduct::Oversells { thousandths } = machine.conduct else { return machine.total };
    machine.total.map(|amount| amount.saturating_mul(u64::from(thousandths)) / 1_000)
}

fn planned_policy(scenario: &Scenario, node: usize, machine: Option<&Machine>) -> Policy {
    let nothing = nothing_for_sale(scenario, node);
    let Some(machine) = machine else { return nothing };
    let Machine { floor, ask, standing, .. } = *machine;
    Policy { total: claimed(machine), tiers: machine.tiers.clone(), floor, ask, standing, ..nothing }
}

/// The terms that all owners have in common.
fn nothing_for_sale(scenario: &Scenario, node: usize) -> Policy {
    let free = PriceList { cpu: Rate(0), memory_gb: Rate(0) };
    Policy {
        name: Text::clipped(&format!("node-{node}")),
        region: Text::clipped("DE"),
        total: Capacity::default(),
        runtimes: vec![Runtime::Wasm],
        isolation: vec![Isolation::W0],
        tiers: Vec::new(),
        floor: free,
        ask: free,
        standing: false,
        pricing: souk_matcher::price::Pricing::default(),
        calendar: souk_matcher::calendar::Calendar::default(),
        at_window_end: souk_matcher::calendar::AtWindowEnd::default(),
        max_duration: Millis(30 * 24 * 3_600_000),
        notice: Millis(600_000),
        stranger_limit: scenario.stranger_limit,
        strangers_limit: scenario.params.credit.strangers,
        own_only: false,
        deny: Vec::new(),
        addresses: Vec::new(),
    }
}

/// What an attempt will come to: the same for the same attempt in each run of a seed.
#[must_use]
pub(crate) fn fate(seed: u64, scenario: &Scenario, job: &JobId, number: Option<usize>, attempt: &AttemptId) -> Fate {
    match &scenario.workload {
        Workload::Mixed(mixed) => mixed_fate(seed, mixed, job, attempt),
        Workload::Plan(plan) => {
            let planned = number.and_then(|number| plan.jobs.get(number));
            let run = planned.and_then(|job| job.runs.get(attempt.task as usize)).copied().unwrap_or_default();
            let in_time = planned.is_none_or(|job| run <= Micros::from(job.limit));
            let end = if in_time { AttemptEnd::Done } else { AttemptEnd::TimedOut };
            Fate { fetch: PLANNED_FETCH, run, end, leaves_outputs: true }
        }
    }
}

fn mixed_fate(seed: u64, mixed: &Mixed, job: &JobId, attempt: &AttemptId) -> Fate {
    let AttemptId { task, replica, number, .. } = attempt;
    let mut dice = Dice::new(seed, &format!("fate {job} {task} {replica} {number}"));
    let run = dice.span(Micros::millis(20), mixed.longest_task);
    let fetch = dice.span(Micros(500), Micros::millis(300));
    let end = if dice.chance(mixed.bad_tasks) {
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
        assert_eq!(planned.len(), Mixed::MARKET.jobs);
        for (a, b) in planned.iter().zip(jobs(3, &scenario, &ids)) {
            assert_eq!((a.job, a.at, a.renter), (b.job, b.at, b.renter));
            assert!(a.renter < scenario.renters && a.at <= Mixed::MARKET.submit_until);
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
