//! The best that could be made of a small instance, found by looking at everything that could still be best.

use souk_protocol::Millis;

use super::{Demand, Fleet, Hall, MilliGpu, Request};
use crate::{
    random::Dice,
    study::{demand::LeftOut, demand::Values, story::Story, synthetic},
};

/// Some jobs that all come at once and wait for nothing, and some machines: who gets one of them?
#[derive(Debug, Clone)]
pub struct Instance {
    /// The jobs.
    pub demand: Demand,
    /// The machines.
    pub fleet: Fleet,
}

impl Instance {
    /// A random one with about half again as much asked for as there is.
    #[must_use]
    pub fn random(seed: u64, jobs: usize, values: &Values) -> Self {
        let mut demand = synthetic::demand(seed, jobs, values);
        let mut dice = Dice::new(seed, "instance");
        for request in &mut demand.requests {
            (request.at, request.patience) = (Millis(0), Some(Millis(0)));
            request.gpu = MilliGpu(request.gpu.0.min(2_000));
        }
        demand.left_out = LeftOut::default();
        let all: u64 = demand.requests.iter().map(|request| request.gpu.0).sum();
        let mut nodes = Vec::new();
        let mut have = 0;
        while have * 1_500 < all || nodes.is_empty() {
            let gpus = dice.between(1, 2);
            have += gpus;
            nodes.push(("any".to_owned(), gpus));
        }
        let fleet = Fleet::sampled(seed, "random", &nodes, have, values);
        Self { demand, fleet }
    }
}

impl Story {
    /// What the jobs that were done were worth to their renters above what they cost the owners, in micro-credits.
    #[must_use]
    pub fn welfare(&self, demand: &Demand, fleet: &Fleet) -> u64 {
        let done = self.fates.iter().zip(&demand.requests).filter(|(fate, _)| fate.end.is_some());
        done.filter_map(|(fate, request)| Some(gain(request, fleet.machines.get(fate.machine?)?))).sum()
    }
}

fn gain(request: &Request, machine: &super::Machine) -> u64 {
    let worth = request.gpu.charge(request.worth, request.run);
    worth.0.saturating_sub(request.gpu.charge(machine.floor, request.run).0)
}

/// The largest welfare of any assignment of jobs to machines that holds them.
#[must_use]
pub fn optimum(instance: &Instance) -> u64 {
    let machines = &instance.fleet.machines;
    let gains = |request: &Request| {
        let gain = |machine| {
            let agree = Hall::agree(request, machine, machine.floor);
            if agree { gain(request, machine) } else { 0 }
        };
        (request.gpu, machines.iter().map(gain).collect::<Vec<_>>())
    };
    let mut jobs: Vec<_> = instance.demand.requests.iter().map(gains).collect();
    let best = |gains: &[u64]| gains.iter().copied().max().unwrap_or(0);
    jobs.sort_by_key(|(_, gains)| std::cmp::Reverse(best(gains)));
    // What all from here on could bring at most, had each its best machine to itself.
    let mut bounds = vec![0; jobs.len() + 1];
    for number in (0..jobs.len()).rev() {
        let of = jobs.get(number).map_or(0, |(_, gains)| best(gains));
        let after = bounds.get(number + 1).copied().unwrap_or(0);
        if let Some(bound) = bounds.get_mut(number) {
            *bound = after + of;
        }
    }
    let mut free: Vec<_> = machines.iter().map(|machine| machine.gpu).collect();
    let mut found = 0;
    branch(&jobs, &bounds, &mut free, 0, &mut found);
    found
}

fn branch(jobs: &[(MilliGpu, Vec<u64>)], bounds: &[u64], free: &mut [MilliGpu], sum: u64, found: &mut u64) {
    *found = sum.max(*found);
    let Some(((gpu, gains), rest)) = jobs.split_first() else { return };
    let after = bounds.get(1..).unwrap_or_default();
    if sum + bounds.first().copied().unwrap_or(0) <= *found {
        return;
    }
    for (machine, gain) in gains.iter().enumerate() {
        let Some(room) = free.get(machine).copied().filter(|room| *gain > 0 && room >= gpu) else { continue };
        set(free, machine, MilliGpu(room.0 - gpu.0));
        branch(rest, after, free, sum + gain, found);
        set(free, machine, room);
    }
    branch(rest, after, free, sum, found);
}

fn set(free: &mut [MilliGpu], machine: usize, to: MilliGpu) {
    if let Some(free) = free.get_mut(machine) {
        *free = to;
    }
}
