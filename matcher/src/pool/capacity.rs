//! Pools of which so many members have to survive: the tail of a sum of unlike coins, in fixed point.

use souk_protocol::{Hash, Ppm};

use super::{
    chance::Chance,
    member::{Chosen, Member, by_worth},
};
use crate::rank::Cost;

/// Candidates up to which every set is looked at, as far as it may be the best.
const MAX_EXACT: usize = 20;
/// Sets looked at before the search is cut short and says so: some tens of milliseconds.
const MAX_SETS: u32 = 200_000;
/// Rounds of improvement; each makes the pool cheaper.
const MAX_ROUNDS: usize = 64;

/// The chance that at least `least` of independent events happen, rounded down.
/// `P'(k) = P(k) (1 - r) + P(k-1) r`, the recurrence of the Poisson-binomial distribution.
#[must_use]
pub fn tail(chances: &[Chance], least: usize) -> Chance {
    let empty = Counts::new(least);
    chances.iter().fold(empty, |counts, chance| counts.with(*chance)).tail()
}

/// By number of survivors, how likely it is; the last place is `least` or more.
#[derive(Debug, Clone)]
struct Counts(Vec<Chance>);

impl Counts {
    fn new(least: usize) -> Self {
        let mut counts = vec![Chance::NEVER; least.saturating_add(1)];
        if let Some(none) = counts.first_mut() {
            *none = Chance::CERTAIN;
        }
        Self(counts)
    }

    fn with(&self, chance: Chance) -> Self {
        let mut counts = Vec::with_capacity(self.0.len());
        let last = self.0.len().saturating_sub(1);
        let mut before = Chance::NEVER;
        for (number, now) in self.0.iter().enumerate() {
            // Enough stays enough, whatever becomes of one more.
            let stays = if number == last { *now } else { now.and_down(chance.not()) };
            counts.push(stays.or(before.and_down(chance)));
            before = *now;
        }
        Self(counts)
    }

    fn tail(&self) -> Chance {
        self.0.last().copied().unwrap_or_default()
    }
}

/// What a pool of capacity promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    /// So many members survive at least.
    pub least: usize,
    /// How likely.
    pub survives: Ppm,
    /// Chance of a shock that takes all of them at once.
    pub shock: Chance,
}

struct Search<'a> {
    members: Vec<&'a Member>,
    quorum: Quorum,
    sets: u32,
    best: Option<(Cost, Vec<usize>)>,
}

/// The cheapest set that keeps the promise, if there is one: proven for up to 20 candidates, otherwise found by best
/// value, drops and swaps. Independent of the order of the candidates.
#[must_use]
pub fn quorum(candidates: &[Member], quorum: &Quorum, root: &Hash) -> Option<Chosen> {
    let order = by_worth(candidates, root);
    let members: Vec<&Member> = order.iter().filter_map(|index| candidates.get(*index)).collect();
    let mut search = Search { members, quorum: *quorum, sets: 0, best: None };
    search.greedy();
    let is_exact = search.members.len() <= MAX_EXACT;
    if is_exact {
        search.look(0, &mut Vec::new(), Cost::ZERO, &Counts::new(quorum.least));
    }
    let is_optimal = is_exact && search.sets < MAX_SETS;
    let (cost, places) = search.best.take()?;
    let failing = search.survives(&places).not();
    let mut members: Vec<usize> = places.iter().filter_map(|place| order.get(*place).copied()).collect();
    members.sort_unstable();
    Some(Chosen { members, cost, failing, is_optimal })
}

impl Search<'_> {
    fn chance(&self, place: usize) -> Chance {
        self.members.get(place).map_or(Chance::NEVER, |member| member.failing().not())
    }

    fn cost(&self, places: &[usize]) -> Cost {
        let costs = places.iter().filter_map(|place| self.members.get(*place));
        costs.fold(Cost::ZERO, |sum, member| sum.plus(member.cost))
    }

    fn survives(&self, places: &[usize]) -> Chance {
        let chances: Vec<_> = places.iter().map(|place| self.chance(*place)).collect();
        tail(&chances, self.quorum.least).and_down(self.quorum.shock.not())
    }

    fn will_do(&self, places: &[usize]) -> bool {
        self.survives(places) >= Chance::of(self.quorum.survives)
    }

    fn offer(&mut self, cost: Cost, places: &[usize]) {
        let better = self.best.as_ref().is_none_or(|(known, set)| (cost, places) < (*known, set.as_slice()));
        if better {
            self.best = Some((cost, places.to_vec()));
        }
    }

    /// By value until it will do; then drops and swaps while they help.
    fn greedy(&mut self) {
        let mut set = Vec::new();
        for place in 0..self.members.len() {
            if self.will_do(&set) {
                break;
            }
            set.push(place);
        }
        if !self.will_do(&set) {
            return;
        }
        for _ in 0..MAX_ROUNDS {
            let cost = self.cost(&set);
            let better = self.neighbours(&set).filter(|next| self.cost(next) < cost && self.will_do(next));
            let Some(next) = better.min_by(|a, b| (self.cost(a), a).cmp(&(self.cost(b), b))) else { break };
            set = next;
        }
        self.offer(self.cost(&set), &set);
    }

    /// The set without one, and with another in its place.
    fn neighbours<'a>(&'a self, set: &'a [usize]) -> impl Iterator<Item = Vec<usize>> + 'a {
        set.iter().flat_map(move |out| {
            let rest: Vec<usize> = set.iter().copied().filter(|place| place != out).collect();
            let with = rest.clone();
            let others = (0..self.members.len()).filter(|place| !set.contains(place));
            let swapped = others.map(move |place| {
                let mut next = with.clone();
                next.push(place);
                next.sort_unstable();
                next
            });
            std::iter::once(rest).chain(swapped)
        })
    }

    /// Every set of the members from `place` on that may be cheaper than the best.
    fn look(&mut self, place: usize, set: &mut Vec<usize>, cost: Cost, counts: &Counts) {
        if self.sets >= MAX_SETS || self.best.as_ref().is_some_and(|(known, _)| cost > *known) {
            return;
        }
        self.sets = self.sets.saturating_add(1);
        let goal = Chance::of(self.quorum.survives);
        let enough = |counts: &Counts, shock: Chance| counts.tail().and_down(shock.not()) >= goal;
        if enough(counts, self.quorum.shock) {
            return self.offer(cost, set);
        }
        let all = (place..self.members.len()).fold(counts.clone(), |counts, place| counts.with(self.chance(place)));
        let Some(member) = self.members.get(place).copied() else { return };
        if !enough(&all, self.quorum.shock) {
            return; // not even with all that are left
        }
        set.push(place);
        self.look(place.saturating_add(1), set, cost.plus(member.cost), &counts.with(member.failing().not()));
        set.pop();
        self.look(place.saturating_add(1), set, cost, counts);
    }
}

#[cfg(test)]
mod tests;
