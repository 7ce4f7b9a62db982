//! Simpler rules than souk's, played over the same demand and fleet with a perfect central view: what the market is
//! measured against.

mod cheapest;
mod easy;
mod fifo;
mod fixed_price;
mod optimum;
mod random;

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{Millis, Rate};

use super::{
    demand::{Demand, Fleet, Machine, MilliGpu, Request},
    story::{Fate, Stay, Story},
};

pub use cheapest::Cheapest;
pub use easy::Easy;
pub use fifo::Fifo;
pub use fixed_price::{FixedPrice, best_price};
pub use optimum::{Instance, optimum};
pub use random::Random;

/// A rule that says what starts next.
pub trait Policy {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// What starts now; `None` if nothing more does until something changes.
    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement>;
}

/// A job, where it starts and at which rate for a GPU hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Number of the request.
    pub request: usize,
    /// Number of the machine.
    pub machine: usize,
    /// Rate for a GPU hour.
    pub rate: Rate,
}

/// All that a policy sees.
#[derive(Debug)]
pub struct Hall<'a> {
    /// The moment.
    pub now: Millis,
    /// Jobs that have arrived and not started, by number, which is the order of their arrival.
    pub waiting: BTreeSet<usize>,
    requests: &'a [Request],
    floors: Vec<Floor<'a>>,
}

/// A machine with what runs on it.
#[derive(Debug)]
struct Floor<'a> {
    machine: &'a Machine,
    free: MilliGpu,
    running: BTreeMap<usize, Millis>,
}

impl<'a> Hall<'a> {
    /// A job by its number.
    #[must_use]
    pub fn request(&self, number: usize) -> Option<&'a Request> {
        self.requests.get(number)
    }

    /// The machines with what is free on each, in their order.
    pub fn machines(&self) -> impl Iterator<Item = (usize, &'a Machine, MilliGpu)> {
        self.floors.iter().enumerate().map(|(number, floor)| (number, floor.machine, floor.free))
    }

    /// The jobs on a machine, each with the moment it started.
    pub fn running(&self, machine: usize) -> impl Iterator<Item = (&'a Request, Millis)> {
        let running = self.floors.get(machine).map(|floor| &floor.running);
        running.into_iter().flatten().filter_map(|(number, since)| Some((self.requests.get(*number)?, *since)))
    }

    /// Whether renter and owner would both agree to this rate.
    #[must_use]
    pub fn agree(request: &Request, machine: &Machine, rate: Rate) -> bool {
        machine.floor <= rate && rate <= request.worth
    }
}

/// What happens to a job, in the order in which it is looked at within one moment: whoever goes makes room first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    Ends { machine: usize },
    Arrives,
    Leaves,
}

/// Plays `demand` on `fleet` by the rule of `policy`, until nobody waits who could still start.
pub fn play(demand: &Demand, fleet: &Fleet, policy: &mut dyn Policy) -> Story {
    let floors =
        fleet.machines.iter().map(|machine| Floor { machine, free: machine.gpu, running: BTreeMap::new() }).collect();
    let mut hall = Hall { now: Millis(0), waiting: BTreeSet::new(), requests: &demand.requests, floors };
    let mut story = Story::new(policy.name(), demand.requests.len());
    let mut turns: BTreeSet<(Millis, Turn, usize)> = BTreeSet::new();
    for (number, request) in demand.requests.iter().enumerate() {
        turns.insert((request.at, Turn::Arrives, number));
        if let Some(patience) = request.patience {
            turns.insert((request.at.saturating_add(patience), Turn::Leaves, number));
        }
    }
    while let Some((at, turn, number)) = turns.pop_first() {
        let Some(request) = demand.requests.get(number) else { continue };
        hall.now = at;
        match turn {
            Turn::Ends { machine } => {
                if let Some(floor) = hall.floors.get_mut(machine) {
                    floor.running.remove(&number);
                    floor.free.0 += request.gpu.0;
                }
            }
            Turn::Arrives => {
                hall.waiting.insert(number);
            }
            Turn::Leaves => {
                hall.waiting.remove(&number);
            }
        }
        // All who end or arrive in one moment do so before anybody starts; and those who would leave may start before.
        let more = |next: Turn| next != Turn::Leaves || turn == Turn::Leaves;
        if turns.first().is_some_and(|(then, next, _)| *then == at && more(*next)) {
            continue;
        }
        while let Some(placement) = policy.next(&hall) {
            let Some(end) = start(&mut hall, &mut story, placement) else { break };
            turns.insert((end, Turn::Ends { machine: placement.machine }, placement.request));
        }
    }
    story
}

/// Starts a job, if it waits and there is room for it. Answers its end.
fn start(hall: &mut Hall<'_>, story: &mut Story, placement: Placement) -> Option<Millis> {
    let request = hall.requests.get(placement.request)?;
    let floor = hall.floors.get_mut(placement.machine)?;
    if floor.free < request.gpu || !hall.waiting.remove(&placement.request) {
        return None;
    }
    floor.free.0 -= request.gpu.0;
    floor.running.insert(placement.request, hall.now);
    let end = hall.now.saturating_add(request.run);
    story.stays.push(Stay {
        request: placement.request,
        machine: placement.machine,
        gpu: request.gpu,
        from: hall.now,
        to: end,
        is_useful: true,
    });
    if let Some(fate) = story.fates.get_mut(placement.request) {
        let paid = request.gpu.charge(placement.rate, request.run);
        *fate = Fate { start: Some(hall.now), end: Some(end), machine: Some(placement.machine), paid, preempted: 0 };
    }
    Some(end)
}

#[cfg(test)]
mod tests;
