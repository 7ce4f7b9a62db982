//! By lot.

use super::{Hall, Placement, Policy};
use crate::random::Dice;

/// Any waiting job that could start, on any machine with room for it, at that machine's ask.
#[derive(Debug)]
pub struct Random(Dice);

impl Random {
    /// The lots of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Dice::new(seed, "policy random"))
    }
}

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement> {
        let machines: Vec<_> = hall.machines().collect();
        let fits = |number: usize| {
            let request = hall.request(number)?;
            let has_room = |(_, machine, free): &&(usize, &super::Machine, super::MilliGpu)| {
                *free >= request.gpu && Hall::agree(request, machine, machine.ask)
            };
            let fits: Vec<_> = machines.iter().filter(has_room).collect();
            (!fits.is_empty()).then_some((number, fits))
        };
        let mut feasible: Vec<_> = hall.waiting.iter().filter_map(|number| fits(*number)).collect();
        let chosen = usize::try_from(self.0.below(feasible.len() as u64)).unwrap_or(0);
        if feasible.is_empty() {
            return None;
        }
        let (request, machines) = feasible.swap_remove(chosen);
        let (machine, on, _) = self.0.pick(&machines)?;
        Some(Placement { request, machine: *machine, rate: on.ask })
    }
}
