//! A lower bound of what a cover costs, and better covers on the way: caps are relaxed to prices of their domains.
//!
//! For any prices of the capped domains, the cheapest slots at cost plus price, less what the caps are worth at these
//! prices, cost no more than the best cover (Lagrangian relaxation). The prices are raised where the cheapest slots break
//! a cap and lowered where they do not (subgradient with Polyak's step), and each order they give is tried as a cover.

use super::problem::{Fill, Problem};
use crate::rank::Cost;

/// Price rounds for a small instance.
const MAX_ROUNDS: usize = 64;
/// Candidates priced and sorted in all rounds together: about two milliseconds.
const MAX_PRICED: usize = 24_000;
/// Rounds without a better bound after which the step is halved.
const PATIENCE: u32 = 4;

/// Raises the bound and improves `best`, which takes all the slots it says are wanted. The bound holds for covers of as
/// many slots as `best` has.
pub(super) fn relax(problem: &Problem, best: &mut Fill) -> Cost {
    let slots = problem.wanted.saturating_sub(best.left);
    let mut prices = vec![Cost::ZERO; problem.rooms.len()];
    let mut bound = Cost::ZERO;
    let (mut halvings, mut idle) = (0u32, 0u32);
    let rounds = MAX_PRICED.checked_div(problem.parts.len()).unwrap_or(0).clamp(4, MAX_ROUNDS);
    for _ in 0..rounds {
        let order = problem.order(|part| {
            part.full().filter_map(|domain| prices.get(domain)).fold(Cost::ZERO, |sum, price| sum.plus(*price))
        });
        let (value, used) = cheapest(problem, &order, slots);
        let worth = prices.iter().zip(&problem.rooms).fold(Cost::ZERO, |sum, (price, cap)| sum.plus(price.times(*cap)));
        let value = value.less(worth);
        if value > bound {
            (bound, idle) = (value, 0);
        } else {
            idle = idle.saturating_add(1);
            if idle >= PATIENCE {
                (halvings, idle) = (halvings.saturating_add(1), 0);
            }
        }
        let fill = Fill::of(problem, order.iter().map(|(_, index)| *index), false);
        if fill.is_better(best) && fill.left == best.left {
            *best = fill;
        }
        if bound >= best.cost || !step(problem, &mut prices, &used, best.cost.less(value), halvings) {
            break;
        }
    }
    bound.min(best.cost)
}

/// The cost of the cheapest slots whatever the caps, and how many of each domain they are.
fn cheapest(problem: &Problem, order: &[(Cost, usize)], slots: u32) -> (Cost, Vec<u64>) {
    let mut used = vec![0u64; problem.rooms.len()];
    let (mut left, mut value) = (slots, Cost::ZERO);
    for (cost, index) in order {
        if left == 0 || problem.beyond.is_some_and(|beyond| beyond < *cost) {
            break;
        }
        let Some(part) = problem.part(*index) else { continue };
        let taken = part.usable.min(left);
        left = left.saturating_sub(taken);
        value = value.plus(cost.times(taken));
        for domain in part.full() {
            if let Some(used) = used.get_mut(domain) {
                *used = used.saturating_add(u64::from(taken));
            }
        }
    }
    // What is not among the candidates costs at least so much, and is free of caps at best.
    (value.plus(problem.beyond.unwrap_or(Cost::ZERO).times(left)), used)
}

/// Moves the prices along the broken and the slack caps. Whether any can move.
fn step(problem: &Problem, prices: &mut [Cost], used: &[u64], gap: Cost, halvings: u32) -> bool {
    let slacks = || prices.iter().zip(used.iter().zip(&problem.rooms));
    let moved = slacks().filter(|(price, (used, cap))| **used > u64::from(**cap) || **price > Cost::ZERO);
    let square = moved.fold(0u128, |sum, (_, (used, cap))| {
        let off = u128::from(used.abs_diff(u64::from(*cap)));
        sum.saturating_add(off.saturating_mul(off))
    });
    let whole = gap.parts().checked_div(square).unwrap_or(0);
    let size = whole.checked_shr(halvings).unwrap_or(0);
    if size == 0 {
        return false;
    }
    for (price, (used, cap)) in prices.iter_mut().zip(used.iter().zip(&problem.rooms)) {
        let off = Cost::from_parts(size.saturating_mul(u128::from(used.abs_diff(u64::from(*cap)))));
        *price = if *used > u64::from(*cap) { price.plus(off) } else { price.less(off) };
    }
    true
}
