//! One price for everybody.

use souk_protocol::{Millis, Rate};

use super::{Hall, Placement, Policy};
use crate::study::demand::{Demand, Fleet};

/// One price for a GPU hour in the whole network. Renters to whom it is too high do not come, owners to whom it is too
/// low do not sell; of the others the first that fits is served, on the first machine with room. There are no tiers: gold
/// pays what bronze pays.
#[derive(Debug, Clone, Copy)]
pub struct FixedPrice(pub Rate);

impl Policy for FixedPrice {
    fn name(&self) -> &'static str {
        "fixed-price"
    }

    fn next(&mut self, hall: &Hall<'_>) -> Option<Placement> {
        hall.waiting.iter().find_map(|number| {
            let request = hall.request(*number)?;
            let (machine, ..) = hall
                .machines()
                .find(|(_, machine, free)| *free >= request.gpu && Hall::agree(request, machine, self.0))?;
            Some(Placement { request: *number, machine, rate: self.0 })
        })
    }
}

/// The price at which a network that knew everybody's floor and worth would take most: price times the GPU time that is
/// both wanted and sold at it. The lowest of several.
#[must_use]
pub fn best_price(demand: &Demand, fleet: &Fleet) -> Rate {
    let span = demand.span();
    let takings = |rate: Rate| {
        let wanted: u128 =
            demand.requests.iter().filter(|request| request.worth >= rate).map(super::Request::work).sum();
        let sold = |span: Millis| {
            let machines = fleet.machines.iter().filter(|machine| machine.floor <= rate);
            machines.map(|machine| u128::from(machine.gpu.0) * u128::from(span.0)).sum::<u128>()
        };
        u128::from(rate.0) * wanted.min(sold(span))
    };
    let floors = fleet.machines.iter().map(|machine| machine.floor);
    let mut prices: Vec<_> = demand.requests.iter().map(|request| request.worth).chain(floors).collect();
    prices.sort_unstable();
    prices.dedup();
    prices.into_iter().rev().max_by_key(|rate| takings(*rate)).unwrap_or_default()
}
