//! The cheapest set of providers that covers the slots wanted, under caps and budget.

use souk_protocol::Credits;

use super::{
    bound, exact,
    improve::improve,
    problem::{Fill, Goal, Item, Problem, is_nested},
};
use crate::rank::Cost;

/// Steps by which a price comes to weigh more than a cost, each four times the one before, when money is short.
const PRICE_STEPS: u32 = 10;

/// A set of providers, and how good it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cover {
    /// The place of each provider among the candidates, ascending, and how many slots of it.
    pub shares: Vec<(usize, u32)>,
    /// Slots in all; fewer than wanted if there are no more or no more can be paid.
    pub slots: u32,
    /// What they cost.
    pub cost: Cost,
    /// What the budget must hold for them.
    pub price: Credits,
    /// No cover of as many slots costs less; `None` if money or the number of providers cut it short.
    pub bound: Option<Cost>,
}

impl Cover {
    /// Whether it is proven to be the cheapest.
    #[must_use]
    pub fn is_optimal(&self) -> bool {
        self.bound == Some(self.cost)
    }

    /// How far it may be above the cheapest, in millionths of that, rounded up.
    #[must_use]
    pub fn gap_ppm(&self) -> Option<u64> {
        let bound = self.bound?;
        let over = self.cost.less(bound).parts().saturating_mul(1_000_000);
        if over == 0 {
            return Some(0);
        }
        let whole = bound.parts();
        let ppm = over.checked_div(whole)?.saturating_add(u128::from(!over.is_multiple_of(whole)));
        Some(u64::try_from(ppm).unwrap_or(u64::MAX))
    }
}

/// The cheapest cover by `items`, best first; equal ones are taken in their order. Proven for small instances and where
/// the caps that bind lie within each other, otherwise with a bound.
#[must_use]
pub fn cover(items: &[Item], goal: &Goal) -> Cover {
    cover_of(items, goal, None)
}

/// As [`cover`], where candidates that cost at least `beyond` a slot were left out.
pub(super) fn cover_of(items: &[Item], goal: &Goal, beyond: Option<Cost>) -> Cover {
    let problem = Problem::new(items, goal, beyond);
    let plain = problem.order(|_| Cost::ZERO);
    let mut best = Fill::of(&problem, plain.iter().map(|(_, index)| *index), false);
    let is_cut = best.is_cut;
    if best.left > 0 && is_cut {
        wider(&problem, &plain, &mut best);
    }
    let mut bound = (!is_cut).then(|| first_come(&problem, &plain, &best)).flatten();
    let is_small = beyond.is_none() && exact::is_small(&problem);
    if bound.is_none() && best.price(&problem) <= problem.budget {
        if is_small && exact::search(&problem, &mut best) {
            bound = Some(best.cost);
        } else {
            let least = bound::relax(&problem, &mut best);
            improve(&problem, &mut best);
            // A set that was cut short was not compared with those that have more slots.
            bound = (best.left == 0 || !is_cut).then(|| least.min(best.cost));
        }
    }
    if best.price(&problem) > problem.budget {
        let left = best.left;
        best = within_budget(&problem);
        if is_small && exact::search(&problem, &mut best) {
            bound = Some(best.cost);
        } else {
            bound = bound.filter(|_| best.left == left);
        }
    }
    finish(&problem, &best, bound)
}

/// The bound of a set filled in the order of cost, if that is known to be the best.
fn first_come(problem: &Problem, order: &[(Cost, usize)], fill: &Fill) -> Option<Cost> {
    if problem.has_setup() {
        return None;
    }
    let last = fill.members().filter_map(|(index, _)| problem.part(index)).map(|part| part.cost).max();
    let seen = order.iter().take_while(|(cost, _)| last.is_some_and(|last| *cost <= last) || fill.left > 0);
    is_nested(seen.filter_map(|(_, index)| problem.part(*index)), &fill.blocked).then_some(fill.cost)
}

/// Too few providers may be taken for the cheapest to do: those with so many slots or more come first.
fn wider(problem: &Problem, order: &[(Cost, usize)], best: &mut Fill) {
    let mut least = 2u32;
    while least <= problem.wanted && best.left > 0 {
        let is_large = |index: &usize| problem.part(*index).is_some_and(|part| part.usable >= least);
        let indices = || order.iter().map(|(_, index)| *index);
        let fill = Fill::of(problem, indices().filter(is_large).chain(indices()), false);
        if fill.is_better(best) {
            *best = fill;
        }
        least = least.saturating_mul(2);
    }
}

/// The budget is too small for the cheapest: the lower price counts more and more, and at last alone.
fn within_budget(problem: &Problem) -> Fill {
    let by_price = || {
        let mut order: Vec<_> = problem.parts.iter().enumerate().map(|(index, part)| (part.price, index)).collect();
        order.sort_unstable();
        Fill::of(problem, order.into_iter().map(|(_, index)| index), true)
    };
    for step in 0..PRICE_STEPS {
        let weight = 1u32.checked_shl(step.saturating_mul(2)).unwrap_or(u32::MAX);
        let order = problem.order(|part| Cost::of(Credits(part.price)).times(weight));
        let fill = Fill::of(problem, order.into_iter().map(|(_, index)| index), false);
        if fill.left == 0 && fill.price(problem) <= problem.budget {
            return fill;
        }
    }
    by_price()
}

fn finish(problem: &Problem, best: &Fill, bound: Option<Cost>) -> Cover {
    Cover {
        shares: best.members().collect(),
        slots: problem.wanted.saturating_sub(best.left),
        cost: best.cost,
        price: Credits(best.price(problem)),
        bound,
    }
}

#[cfg(test)]
mod tests;
