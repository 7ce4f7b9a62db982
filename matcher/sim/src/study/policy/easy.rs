//! EASY backfill with a perfect central view: an upper reference for what any market could make of a fleet.

use souk_protocol::Millis;

use super::{Hall, MilliGpu, Placement, Policy, Request};

/// The job that has waited longest has a reservation on the machine that will be free for it first; others may start
/// before it as long as they do not delay that.
#[derive(Debug, Clone, Copy, Default)]
pub struct Easy {
    /// Whether run times are known rather than estimated by their owners.
    pub knows_runs: bool,
}

/// Where and when the head of the line will start, and what will be left there beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reservation {
    machine: usize,
    at: Millis,
    spare: MilliGpu,
}

impl Easy {
    const fn takes(self, request: &Request) -> Millis {
        if self.knows_runs { request.run } else { request.limit }
    }

    /// When `machine` will have room for `gpu`, if all that runs takes as long as is known, and what is left then.
    fn room_at(self, hall: &Hall<'_>, machine: usize, mut free: MilliGpu, gpu: MilliGpu) -> Option<(Millis, MilliGpu)> {
        let mut ends: Vec<_> = hall
            .running(machine)
            .map(|(request, since)| (since.saturating_add(self.takes(request)).max(hall.now), request.gpu))
            .collect();
        ends.sort_unstable();
        let mut at = hall.now;
        let mut ends = ends.into_iter().peekable();
        while free < gpu {
            let (end, freed) = ends.next()?;
            at = end;
            free.0 += freed.0;
        }
        // What ends in the same moment counts, too.
        while let Some((_, freed)) = ends.next_if(|(end, _)| *end == at) {
            free.0 += freed.0;
        }
        Some((at, MilliGpu(free.0 - gpu.0)))
    }
}

impl Policy for Easy {
    fn name(&self) -> &'static str {
        if self.knows_runs { "easy-known" } else { "easy" }
    }

    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement> {
        let mut reservation: Option<Reservation> = None;
        for number in &hall.waiting {
            let request = hall.request(*number)?;
            let agreed = || {
                hall.machines()
                    .filter(|(_, machine, _)| machine.gpu >= request.gpu && Hall::agree(request, machine, machine.ask))
            };
            let harmless = |machine: usize| {
                reservation.is_none_or(|held| {
                    held.machine != machine
                        || hall.now.saturating_add(self.takes(request)) <= held.at
                        || request.gpu <= held.spare
                })
            };
            // The fullest machine that has room: what is free elsewhere stays in one piece.
            let room = agreed().filter(|(machine, _, free)| *free >= request.gpu && harmless(*machine));
            if let Some((machine, on, _)) = room.min_by_key(|(machine, _, free)| (*free, *machine)) {
                return Some(Placement { request: *number, machine, rate: on.ask });
            }
            if reservation.is_none() {
                reservation = agreed()
                    .filter_map(|(machine, _, free)| {
                        let (at, spare) = self.room_at(hall, machine, free, request.gpu)?;
                        Some(Reservation { machine, at, spare })
                    })
                    .min_by_key(|held| (held.at, held.machine));
            }
        }
        None
    }
}
