//! By price alone.

use super::{Hall, Placement, Policy};

/// In the order of their arrival, each job that fits somewhere takes the machine with the lowest ask that has room for
/// it. Whoever fits nowhere waits without holding up others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cheapest;

impl Policy for Cheapest {
    fn name(&self) -> &'static str {
        "cheapest"
    }

    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement> {
        hall.waiting.iter().find_map(|number| {
            let request = hall.request(*number)?;
            let room = hall
                .machines()
                .filter(|(_, machine, free)| *free >= request.gpu && Hall::agree(request, machine, machine.ask));
            let (machine, on, _) = room.min_by_key(|(number, machine, _)| (machine.ask, *number))?;
            Some(Placement { request: *number, machine, rate: on.ask })
        })
    }
}
