//! Pools of which one member has to survive: the cheapest set whose members all fail seldom enough.
//!
//! Exact search by Pareto labels: of all sets of the candidates looked at so far, those are kept that no other beats in
//! both cost and chance of failure. Chances are integers rounded up, so that everybody finds the same set.

use std::collections::BTreeMap;

use souk_protocol::{Hash, Ppm};

use super::{
    chance::Chance,
    domain::{Caps, Domain},
    member::{Chosen, Member, by_worth},
};
use crate::rank::Cost;

/// Labels kept at once. Without shared domains a search needs a few dozen; beyond this it is cut short and says so.
const MAX_LABELS: usize = 1_024;

/// What a pool of replicas promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Promise {
    /// How likely one survives at least.
    pub survives: Ppm,
    /// Chance of a shock that takes all of them at once.
    pub shock: Chance,
    /// Which domains two members may not share: those with a cap.
    pub apart: Caps,
}

impl Promise {
    /// The most that all may fail by themselves; `None` if the shock alone breaks the promise.
    fn most(&self) -> Option<Chance> {
        Chance::of(self.survives).not().without_shock(self.shock)
    }
}

/// A capped domain (its kind and its number) and the place of the last candidate in it.
type Shared = ((usize, Domain), usize);

/// A set under search.
#[derive(Debug, Clone)]
struct Label {
    cost: Cost,
    failing: Chance,
    /// Places in the order of the search.
    members: Vec<usize>,
    /// Domains of its members that candidates to come share.
    used: Vec<Shared>,
}

/// The cheapest set that keeps the promise, if there is one. Independent of the order of the candidates.
#[must_use]
pub fn replicas(candidates: &[Member], promise: &Promise, root: &Hash) -> Option<Chosen> {
    let most = promise.most()?;
    let order = by_worth(candidates, root);
    let sorted: Vec<&Member> = order.iter().filter_map(|index| candidates.get(*index)).collect();
    let shared = shared(&sorted, &promise.apart);
    let greedy = greedy(&sorted, &shared, most);
    let bound = greedy.as_ref().map_or(Cost::MAX, |label| label.cost);
    let mut whole = true;
    let mut labels = vec![Label { cost: Cost::ZERO, failing: Chance::CERTAIN, members: Vec::new(), used: Vec::new() }];
    for (place, member) in sorted.iter().enumerate() {
        let domains = shared.get(place).map(Vec::as_slice).unwrap_or_default();
        let longer: Vec<_> = labels
            .iter()
            .filter(|label| label.failing > most && domains.iter().all(|domain| !label.used.contains(domain)))
            .map(|label| label.with(place, member, domains))
            .filter(|label| label.cost <= bound)
            .collect();
        labels.extend(longer);
        for label in &mut labels {
            // What nobody shares any more no longer tells labels apart.
            label.used.retain(|(_, last)| *last > place);
        }
        whole &= keep_best(&mut labels, most);
    }
    let best = labels.into_iter().filter(|label| label.failing <= most).chain(greedy);
    let best = best.min_by(|a, b| a.key().cmp(&b.key()))?;
    let mut members: Vec<usize> = best.members.iter().filter_map(|place| order.get(*place).copied()).collect();
    members.sort_unstable();
    let failing = best.failing.shocked(promise.shock);
    Some(Chosen { members, cost: best.cost, failing, is_optimal: whole })
}

impl Label {
    fn with(&self, place: usize, member: &Member, domains: &[Shared]) -> Self {
        let mut longer = self.clone();
        longer.cost = longer.cost.plus(member.cost);
        longer.failing = longer.failing.and_up(member.failing());
        longer.members.push(place);
        longer.used.extend_from_slice(domains);
        longer.used.sort_unstable();
        longer
    }

    fn key(&self) -> (Cost, Chance, usize, &[usize]) {
        (self.cost, self.failing, self.members.len(), &self.members)
    }

    fn beats(&self, other: &Self) -> bool {
        self.cost <= other.cost
            && self.failing <= other.failing
            && self.used.iter().all(|domain| other.used.contains(domain))
    }
}

/// By candidate, the capped domains that others share, each with the place of its last use.
fn shared(sorted: &[&Member], apart: &Caps) -> Vec<Vec<Shared>> {
    let domains = |member: &Member| {
        let kinds = member.domains.all().into_iter().zip(apart.all()).enumerate();
        kinds.filter_map(|(kind, (domain, cap))| (cap.is_some() && domain != Domain::NONE).then_some((kind, domain)))
    };
    let mut uses: BTreeMap<(usize, Domain), (usize, usize)> = BTreeMap::new();
    for (place, member) in sorted.iter().enumerate() {
        for domain in domains(member) {
            let (count, last) = uses.entry(domain).or_default();
            *count = count.saturating_add(1);
            *last = place;
        }
    }
    let of = |member: &&Member| {
        let known = domains(member).filter_map(|domain| Some((domain, *uses.get(&domain)?)));
        known.filter(|(_, (count, _))| *count > 1).map(|(domain, (_, last))| (domain, last)).collect()
    };
    sorted.iter().map(of).collect()
}

/// Best value first, and the cheapest single member that completes the set at any point.
fn greedy(sorted: &[&Member], shared: &[Vec<Shared>], most: Chance) -> Option<Label> {
    let mut set = Label { cost: Cost::ZERO, failing: Chance::CERTAIN, members: Vec::new(), used: Vec::new() };
    if set.failing <= most {
        return Some(set);
    }
    let mut best: Option<Label> = None;
    for (place, member) in sorted.iter().enumerate() {
        let domains = shared.get(place).map(Vec::as_slice).unwrap_or_default();
        if domains.iter().any(|domain| set.used.contains(domain)) {
            continue;
        }
        let longer = set.with(place, member, domains);
        if longer.failing > most {
            set = longer;
        } else if best.as_ref().is_none_or(|known| longer.key() < known.key()) {
            best = Some(longer);
        }
    }
    best
}

/// Drops what others beat, and what costs more than the first that will do. Whether all that matters was kept.
fn keep_best(labels: &mut Vec<Label>, most: Chance) -> bool {
    labels.sort_by(|a, b| a.key().cmp(&b.key()));
    let mut kept: Vec<Label> = Vec::with_capacity(labels.len());
    let mut first_done: Option<Cost> = None;
    for label in labels.drain(..) {
        if first_done.is_some_and(|cost| label.cost >= cost) || kept.iter().any(|known| known.beats(&label)) {
            continue;
        }
        if label.failing <= most {
            first_done = Some(label.cost);
        }
        kept.push(label);
    }
    let whole = kept.len() <= MAX_LABELS;
    if !whole {
        kept.sort_by(|a, b| (a.failing, a.key()).cmp(&(b.failing, b.key())));
        kept.truncate(MAX_LABELS);
    }
    *labels = kept;
    whole
}

#[cfg(test)]
mod tests;
