//! First announced, first served: nobody overtakes.

use super::{Hall, Placement, Policy};

/// The job that has waited longest takes the first machine with room for it, at that machine's ask; until there is
/// one, everybody waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fifo;

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement> {
        // Whom no machine's owner would ever serve at what it pays is no head of the line.
        let can_be_served = |number: &&usize| {
            hall.request(**number).is_some_and(|request| {
                hall.machines()
                    .any(|(_, machine, _)| machine.gpu >= request.gpu && Hall::agree(request, machine, machine.ask))
            })
        };
        let request = *hall.waiting.iter().find(can_be_served)?;
        let head = hall.request(request)?;
        let (machine, rate) = hall
            .machines()
            .find(|(_, machine, free)| *free >= head.gpu && Hall::agree(head, machine, machine.ask))
            .map(|(number, machine, _)| (number, machine.ask))?;
        Some(Placement { request, machine, rate })
    }
}
