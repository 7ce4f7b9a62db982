//! Exchanges that make a cover cheaper: a member goes, alone or with some of the dearest slots, and what is cheapest then
//! comes in.

use super::problem::{Fill, Problem};
use crate::rank::Cost;

/// Candidates looked at in all exchanges together: about a millisecond.
const MAX_LOOKS: usize = 60_000;

/// Exchanges while that helps and there is time.
pub(super) fn improve(problem: &Problem, best: &mut Fill) {
    let mut by_cost: Vec<usize> = (0..problem.parts.len()).collect();
    by_cost.sort_by_key(|index| problem.part(*index).map(|part| part.cost));
    let mut looks = 0usize;
    while let Some(better) = exchange(problem, best, &by_cost, &mut looks) {
        *best = better;
    }
}

/// The first exchange that helps, dearest members first.
fn exchange(problem: &Problem, best: &Fill, by_cost: &[usize], looks: &mut usize) -> Option<Fill> {
    let mut members: Vec<_> =
        best.members().filter_map(|(index, slots)| Some((problem.part(index)?.each(slots), index, slots))).collect();
    members.sort_unstable_by(|a, b| b.cmp(a));
    let dearest = members.first().map(|(_, index, _)| *index);
    for (_, out, slots) in &members {
        for with in [None, dearest.filter(|index| index != out)] {
            if *looks >= MAX_LOOKS {
                return None;
            }
            let mut next = best.clone();
            next.put_back(*out, problem.part(*out)?, *slots);
            if let Some(with) = with {
                next.put_back(with, problem.part(with)?, next.has(with).min(*slots));
            }
            refill(problem, &mut next, by_cost, looks);
            if next.left == best.left && next.cost < best.cost {
                return Some(next);
            }
        }
    }
    None
}

/// Fills up with what is cheapest a slot, setup included.
fn refill(problem: &Problem, fill: &mut Fill, by_cost: &[usize], looks: &mut usize) {
    while fill.left > 0 {
        let mut best: Option<(Cost, usize, u32)> = None;
        for index in by_cost {
            let Some(part) = problem.part(*index) else { continue };
            if best.is_some_and(|(each, ..)| part.cost >= each) {
                break; // the rest cost more even without their setup
            }
            *looks = looks.saturating_add(1);
            let slots = fill.can_take(problem, *index, part);
            if slots == 0 {
                continue;
            }
            let each = if fill.has(*index) > 0 { part.cost } else { part.each(slots) };
            if best.is_none_or(|(known, ..)| each < known) {
                best = Some((each, *index, slots));
            }
        }
        let Some((_, index, slots)) = best else { return };
        let Some(part) = problem.part(index) else { return };
        fill.take(index, part, slots);
    }
}
