//! Covers of small instances by branch and bound: proven to be the cheapest, budget and all.

use super::problem::{Fill, Problem};
use crate::rank::Cost;

/// Candidates up to which it is tried.
const MAX_PARTS: usize = 20;
/// Slots up to which it is tried.
const MAX_SLOTS: u32 = 256;
/// Choices looked at before it is given up: some milliseconds.
const MAX_NODES: u32 = 20_000;

/// Whether it is worth trying.
pub(super) fn is_small(problem: &Problem) -> bool {
    problem.parts.len() <= MAX_PARTS && problem.wanted <= MAX_SLOTS
}

struct Search<'a> {
    problem: &'a Problem,
    order: Vec<(Cost, usize)>,
    /// By place in the order: slots of this and all later candidates.
    supply: Vec<u64>,
    best: Fill,
    nodes: u32,
}

/// Makes `best` the best cover. Whether that is proven.
pub(super) fn search(problem: &Problem, best: &mut Fill) -> bool {
    let order = problem.order(|_| Cost::ZERO);
    let mut supply: Vec<u64> = Vec::with_capacity(order.len());
    let mut sum = 0u64;
    for (_, index) in order.iter().rev() {
        sum = sum.saturating_add(problem.part(*index).map_or(0, |part| u64::from(part.usable)));
        supply.push(sum);
    }
    supply.reverse();
    let mut search = Search { problem, order, supply, best: best.clone(), nodes: 0 };
    let mut empty = Fill::empty(problem, true);
    search.look(0, &mut empty);
    *best = search.best;
    search.nodes < MAX_NODES
}

impl Search<'_> {
    /// Every choice for the candidates from `place` on that may be better than the best.
    fn look(&mut self, place: usize, fill: &mut Fill) {
        if self.nodes >= MAX_NODES {
            return;
        }
        self.nodes = self.nodes.saturating_add(1);
        if fill.is_better(&self.best) {
            self.best = fill.clone();
        }
        let Some((_, index)) = self.order.get(place).copied() else { return };
        if fill.left == 0 || self.hope(place, fill) >= (self.best.left, self.best.cost) {
            return;
        }
        let Some(part) = self.problem.part(index).copied() else { return };
        let most = fill.can_take(self.problem, index, &part);
        for slots in (0..=most).rev() {
            fill.take(index, &part, slots);
            self.look(place.saturating_add(1), fill);
            fill.put_back(index, &part, slots);
        }
    }

    /// The best that can come of it: the rest filled by the cheapest, whatever caps and budget say.
    fn hope(&self, place: usize, fill: &Fill) -> (u32, Cost) {
        let supply = self.supply.get(place).copied().unwrap_or(0);
        let (mut left, mut cost) = (fill.left, fill.cost);
        for (each, index) in self.order.iter().skip(place) {
            let Some(part) = self.problem.part(*index).filter(|_| left > 0) else { break };
            let slots = part.usable.min(left);
            left = left.saturating_sub(slots);
            cost = cost.plus(each.times(slots));
        }
        let short = u64::from(fill.left).saturating_sub(supply);
        (u32::try_from(short).unwrap_or(u32::MAX), cost)
    }
}
