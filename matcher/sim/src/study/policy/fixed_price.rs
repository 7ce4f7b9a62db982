//! One price for everybody.

use std::collections::BTreeSet;

use souk_protocol::Rate;

use super::{Hall, Placement, Policy};
use crate::study::{
    demand::{ANYTHING, Demand, Fleet},
    measure::TIERS,
};

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
/// both wanted and sold at it; the lowest of several. Within a tier all jobs are taken to be worth more or less alike
/// whatever their length, so that a few long ones do not make the price.
#[must_use]
pub fn best_price(demand: &Demand, fleet: &Fleet) -> Rate {
    let curves: Vec<_> = TIERS
        .into_iter()
        .map(|tier| {
            let jobs = || demand.requests.iter().filter(|request| request.tier == tier);
            let mut worths: Vec<_> = jobs().map(|request| request.worth).collect();
            worths.sort_unstable();
            (worths, jobs().map(super::Request::work).sum::<u128>())
        })
        .collect();
    let wanted = |rate: Rate| -> u128 {
        let willing = |worths: &[Rate]| worths.len() - worths.partition_point(|worth| *worth < rate);
        let of = |(worths, work): &(Vec<Rate>, u128)| {
            (work * willing(worths) as u128).checked_div(worths.len() as u128).unwrap_or(0)
        };
        curves.iter().map(of).sum()
    };
    // Where all come at once, capacity lasts as long as the longest of them.
    let longest = demand.requests.iter().map(|request| request.run).max().unwrap_or_default();
    let span = u128::from(demand.span().max(longest).0);
    let sold = |rate: Rate| -> u128 {
        let machines = fleet.machines.iter().filter(|machine| machine.floor <= rate);
        machines.map(|machine| u128::from(machine.gpu.0) * span).sum()
    };
    let asks = fleet.machines.iter().map(|machine| machine.ask);
    let worths = demand.requests.iter().map(|request| request.worth).filter(|worth| *worth != ANYTHING);
    let prices: BTreeSet<_> = worths.chain(asks).collect();
    let takings = |rate: &Rate| u128::from(rate.0) * wanted(*rate).min(sold(*rate));
    prices.into_iter().rev().max_by_key(takings).unwrap_or_default()
}
