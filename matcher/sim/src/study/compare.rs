//! The simple policies on the lists that a scenario makes: what `souk sim run` prints beside the market.

use souk_protocol::{Millis, Rate};

use super::{
    demand::{ANYTHING, Demand, Fleet, LeftOut, Machine, MilliGpu, Request},
    policy::{Cheapest, Easy, Fifo, FixedPrice, Policy, Random, best_price, play},
    story::Story,
};
use crate::{
    outcome::{End, JobOutcome, MachineOutcome, Outcome},
    plan::{self, Plan},
    time::Micros,
};

/// Names of the policies that can be compared with `souk`.
pub const NAMES: [&str; 6] = ["fifo", "random", "cheapest", "fixed-price", "easy", "easy-known"];

/// The policy of that name, if there is one. `fixed-price` takes the price that earns most.
#[must_use]
pub fn named(name: &str, seed: u64, demand: &Demand, fleet: &Fleet) -> Option<Box<dyn Policy>> {
    Some(match name {
        "fifo" => Box::new(Fifo),
        "random" => Box::new(Random::new(seed)),
        "cheapest" => Box::new(Cheapest),
        "fixed-price" => Box::new(FixedPrice(best_price(demand, fleet))),
        "easy" => Box::new(Easy::default()),
        "easy-known" => Box::new(Easy { knows_runs: true }),
        _ => return None,
    })
}

/// What becomes of a plan under the policy of that name. Processors are what is counted, memory and disk are taken to
/// be enough; machines are there all the time, and all of them deliver. `None` if there is no such policy.
#[must_use]
pub fn outcome(name: &str, seed: u64, plan: &Plan) -> Option<Outcome> {
    let fleet = Fleet { source: "plan".to_owned(), machines: plan.machines.iter().map(machine).collect() };
    let mut tasks: Vec<_> = plan.jobs.iter().enumerate().flat_map(|(number, job)| requests(number, job)).collect();
    tasks.sort_by_key(|(_, request)| request.at);
    let (jobs, requests): (Vec<_>, Vec<_>) = tasks.into_iter().unzip();
    let demand = Demand { source: "plan".to_owned(), requests, left_out: LeftOut::default() };
    let story = play(&demand, &fleet, named(name, seed, &demand, &fleet)?.as_mut());
    Some(gathered(plan, &jobs, &story))
}

fn machine(machine: &plan::Machine) -> Machine {
    Machine { model: String::new(), gpu: MilliGpu(machine.total.cpu.0), floor: machine.floor.cpu, ask: machine.ask.cpu }
}

/// A request for each task of a job.
fn requests(number: usize, job: &plan::PlannedJob) -> Vec<(usize, Request)> {
    let cores = job.need.cpu.0;
    let worth = job.max_rate.map_or(ANYTHING, |rate| {
        // By the core, for comparison with the asks.
        let by_core = u128::from(rate.0) * u128::from(MilliGpu::ONE.0);
        by_core.checked_div(u128::from(cores)).map_or(ANYTHING, |rate| Rate(u64::try_from(rate).unwrap_or(u64::MAX)))
    });
    let request = |run: &Micros| Request {
        at: job.at.to_millis(),
        tier: job.tier,
        gpu: MilliGpu(cores),
        run: run.to_millis(),
        limit: job.limit,
        worth,
        patience: job.start_within,
    };
    job.runs.iter().map(|run| (number, request(run))).collect()
}

/// What became of tasks as what became of their jobs.
fn gathered(plan: &Plan, jobs: &[usize], story: &Story) -> Outcome {
    let mut outcome = Outcome {
        policy: story.policy.clone(),
        jobs: vec![JobOutcome::default(); plan.jobs.len()],
        machines: vec![MachineOutcome::default(); plan.machines.len()],
        ..Outcome::default()
    };
    let moment = |at: Millis| Micros::from(at);
    for (number, fate) in jobs.iter().zip(&story.fates) {
        let Some(job) = outcome.jobs.get_mut(*number) else { continue };
        let (Some(start), Some(end)) = (fate.start, fate.end) else { continue };
        job.started = Some(job.started.map_or(moment(start), |first| first.min(moment(start))));
        job.ended = job.ended.max(Some(moment(end)));
        job.done += 1;
        job.attempts += 1;
        job.cost.0 += fate.paid.0;
        outcome.took = outcome.took.max(moment(end));
        if let Some(machine) = fate.machine.and_then(|machine| outcome.machines.get_mut(machine)) {
            machine.income.0 += fate.paid.0;
        }
    }
    for stay in &story.stays {
        if let Some(machine) = outcome.machines.get_mut(stay.machine) {
            let held = stay.gpu.0.saturating_mul(stay.to.0.saturating_sub(stay.from.0));
            machine.busy = machine.busy.saturating_add(held);
            machine.useful = machine.useful.saturating_add(held);
        }
    }
    for (job, planned) in outcome.jobs.iter_mut().zip(&plan.jobs) {
        let all = planned.runs.len() == job.done as usize;
        job.end = match (all, job.done, planned.start_within) {
            (true, ..) => End::Succeeded,
            (false, 0, Some(_)) => End::Expired,
            _ => End::Open,
        };
        if !all {
            job.ended = None;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use souk_protocol::{Bytes, Capacity, Credits, MilliCpu, PriceList, Tier};

    use super::*;
    use crate::plan::{Conduct, PlannedJob};

    fn size(cores: u64) -> Capacity {
        Capacity { cpu: MilliCpu(cores * 1_000), memory: Bytes(1), disk: Bytes(1) }
    }

    fn machine(cores: u64, ask: u64) -> plan::Machine {
        let price = |rate| PriceList { cpu: Rate(rate), memory_gb: Rate(0) };
        plan::Machine {
            total: size(cores),
            ask: price(ask),
            floor: price(ask / 2),
            standing: true,
            tiers: vec![Tier::Bronze],
            region: 0,
            owner_home: Vec::new(),
            conduct: Conduct::Honest,
        }
    }

    #[test]
    fn a_plan_is_played_task_by_task_and_summed_by_job() {
        let run = |seconds: u64| Micros::millis(seconds * 1_000);
        let mut poor = PlannedJob::plain(0, run(2), size(1), vec![run(5)]);
        (poor.max_rate, poor.start_within) = (Some(Rate(1)), Some(Millis(9_000)));
        let plan = Plan {
            machines: vec![machine(2, 3_600), machine(1, 7_200)],
            jobs: vec![PlannedJob::plain(0, run(1), size(1), vec![run(10), run(20), run(30), run(5)]), poor],
        };
        let outcome = outcome("fifo", 1, &plan).unwrap();
        let [job, poor] = outcome.jobs.as_slice() else { panic!("{outcome:?}") };
        // Two on the first machine, the third on the second, the last when the first of all is done.
        assert_eq!((job.started, job.ended, job.done), (Some(run(1)), Some(run(31)), 4));
        assert_eq!(job.cost, Credits(10 + 20 + 5 + 60));
        assert_eq!((job.end, poor.end, poor.done), (End::Succeeded, End::Expired, 0));
        let machines: Vec<_> = outcome.machines.iter().map(|machine| (machine.income.0, machine.busy)).collect();
        assert_eq!(machines, [(35, 35_000_000), (60, 30_000_000)]);
    }

    #[test]
    fn every_name_is_a_policy_and_no_other() {
        let plan = Plan { machines: vec![machine(1, 1)], jobs: Vec::new() };
        assert!(NAMES.iter().all(|name| outcome(name, 1, &plan).is_some_and(|outcome| outcome.policy == *name)));
        assert!(outcome("best", 1, &plan).is_none());
    }
}
