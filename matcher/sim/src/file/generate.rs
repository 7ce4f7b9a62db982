//! Machines and jobs of a scenario file, thrown from a seed.

use souk_protocol::{Bytes, Capacity, MilliCpu, Millis, Mode, PriceList, Rate, Tier};

use super::{Jobs, Machines, Owners, ScenarioFile};
use crate::{
    plan::{Conduct, Machine, Plan, PlannedJob},
    random::Dice,
    time::Micros,
};

/// Most tasks of one job, in means: the tail of the geometric distribution is cut.
const MOST_TASKS: u64 = 8;
/// Attempts of a task, and of one that others may stop.
const ATTEMPTS: u32 = 3;
const BRONZE_ATTEMPTS: u32 = 30;
/// A gigabyte of memory costs this part of a core.
const MEMORY_PART: u64 = 20;
/// What an overseller claims, in thousandths of what it has.
const OVERSELLS: u32 = 3_000;

pub(super) fn plan(file: &ScenarioFile, seed: u64) -> Plan {
    let mut dice = Dice::new(seed, "machines");
    let machines = (0..file.providers).map(|_| machine(&mut dice, file)).collect();
    let mut dice = Dice::new(seed, "planned jobs");
    let mut plan = Plan { machines, jobs: jobs(&mut dice, file) };
    plan.sort();
    plan
}

fn machine(dice: &mut Dice, file: &ScenarioFile) -> Machine {
    let Machines { cores, memory, ask, spread, floor, standing, lowballers, oversellers, owners } = &file.machines;
    let parts: Vec<u64> = cores.iter().map(|(_, parts)| *parts).collect();
    let cores = cores.get(dice.weighted(&parts)).map_or(1, |(cores, _)| *cores);
    let mut rate = dice.log_normal(ask.0, *spread).max(1);
    let conduct = if dice.chance(lowballers.0) {
        rate = (rate / 3).max(1);
        Conduct::Lowballer
    } else if dice.chance(oversellers.0) {
        Conduct::Oversells { thousandths: OVERSELLS }
    } else {
        Conduct::Honest
    };
    let price = |rate: u64| PriceList { cpu: Rate(rate), memory_gb: Rate(rate / MEMORY_PART) };
    Machine {
        total: size(MilliCpu(cores.saturating_mul(1_000)), *memory),
        ask: price(rate),
        floor: price(floor.of(rate)),
        standing: dice.chance(standing.0),
        tiers: vec![Tier::Gold, Tier::Silver, Tier::Bronze],
        region: file.regions.throw(dice),
        owner_home: owners.map(|owners| home(dice, &owners, file.duration)).unwrap_or_default(),
        conduct,
    }
}

/// A machine or slot: memory in proportion to its cores, and as much disk.
fn size(cpu: MilliCpu, memory: Bytes) -> Capacity {
    let memory = Bytes(memory.0.saturating_mul(cpu.0) / 1_000);
    Capacity { cpu, memory, disk: memory }
}

fn home(dice: &mut Dice, owners: &Owners, end: Millis) -> Vec<(Micros, Micros)> {
    if !dice.chance(owners.share.0) {
        return Vec::new();
    }
    let (mut out, mut at) = (Vec::new(), Micros(0));
    loop {
        let from = at + dice.exponential(Micros::from(owners.away));
        let until = from + dice.exponential(Micros::from(owners.home)).max(Micros::millis(1));
        if from >= Micros::from(end) {
            return out;
        }
        out.push((from, until));
        at = until;
    }
}

fn jobs(dice: &mut Dice, file: &ScenarioFile) -> Vec<PlannedJob> {
    let mut jobs = Vec::new();
    let mut left = file.jobs.tasks;
    while left > 0 {
        let job = job(dice, file, left);
        left = left.saturating_sub(job.runs.len() as u64);
        jobs.push(job);
    }
    jobs
}

fn job(dice: &mut Dice, file: &ScenarioFile, left: u64) -> PlannedJob {
    let Jobs {
        per_job, over, run, spread, bounds, estimates, cores, memory, tiers, worth, patience, cancelled, ..
    } = &file.jobs;
    let mean = Micros(per_job.saturating_mul(1_000));
    let tasks = (dice.exponential(mean).0 / 1_000 + 1).min(per_job.saturating_mul(MOST_TASKS)).clamp(1, left);
    // Tasks of one job are alike: a job has its median, its tasks vary little around it.
    let median = dice.log_normal(run.0, *spread);
    let runs: Vec<Micros> = (0..tasks)
        .map(|_| Micros::millis(dice.log_normal(median, 200).clamp(bounds.0.0, bounds.1.0.max(bounds.0.0))))
        .collect();
    let parts: Vec<u64> = cores.iter().map(|(_, parts)| *parts).collect();
    let cpu = cores.get(dice.weighted(&parts)).map_or(MilliCpu(1_000), |(cores, _)| *cores);
    let parts: Vec<u64> = tiers.iter().map(|(_, parts)| *parts).collect();
    let tier = tiers.get(dice.weighted(&parts)).map_or(Tier::Bronze, |(tier, _)| *tier);
    let estimate = dice.pick(estimates).copied().unwrap_or(2).max(1);
    let longest = runs.iter().max().copied().unwrap_or_default().to_millis().0;
    let at = dice.span(Micros::millis(500), Micros::from(*over));
    let renter = usize::try_from(dice.below(file.renters as u64)).unwrap_or(0);
    let need = size(cpu, *memory);
    let most = worth.map(|(median, spread)| {
        let core = u128::from(dice.log_normal(file.machines.ask.0, spread)) * u128::from(median) / 1_000;
        let gigabytes = u128::from(need.memory.0) / 1_000_000_000;
        let parts = u128::from(cpu.0) + 1_000 * gigabytes / u128::from(MEMORY_PART);
        Rate(u64::try_from(core * parts / 1_000).unwrap_or(u64::MAX))
    });
    PlannedJob {
        tier,
        // Whoever may be stopped for others does not give up for it.
        attempts: if tier == Tier::Bronze { BRONZE_ATTEMPTS } else { ATTEMPTS },
        // A time limit has room for what the machine adds to a run.
        limit: Millis(longest.saturating_mul(estimate).saturating_add(1_000)),
        mode: if tier == Tier::Gold { Mode::Auction } else { Mode::Auto },
        max_rate: most,
        start_within: *patience,
        cancel_at: dice.chance(cancelled.0).then(|| at + dice.span(Micros(0), Micros::millis(longest.max(1)))),
        ..PlannedJob::plain(renter, at, need, runs)
    }
}
