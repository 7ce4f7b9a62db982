//! The cheapest cover as a problem in small numbers: candidates, capped domains, and a set that is being filled.

use std::collections::BTreeMap;

use souk_protocol::Credits;

use super::domain::{Caps, Domain, Domains};
use crate::rank::Cost;

/// A candidate for a cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// What a slot costs.
    pub cost: Cost,
    /// What it costs once to take any: an award, the job's data on their way.
    pub setup: Cost,
    /// What the budget must hold for a slot.
    pub price: Credits,
    /// Slots it has.
    pub slots: u32,
    /// Whose, and where.
    pub domains: Domains,
}

/// What a cover must keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goal {
    /// Slots to find.
    pub wanted: u32,
    /// Most providers.
    pub most: usize,
    /// Most slots of one owner, block and region.
    pub caps: Caps,
    /// What the prices of all slots may sum to.
    pub budget: Option<Credits>,
}

/// An item with its domains renumbered densely; those that can never be full are left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) cost: Cost,
    pub(super) setup: Cost,
    pub(super) price: u64,
    /// Slots that could be taken at all.
    pub(super) usable: u32,
    pub(super) domains: [Option<usize>; 3],
}

impl Part {
    /// Cost of each of `slots` slots if they are all that is taken, rounded down.
    pub(super) fn each(&self, slots: u32) -> Cost {
        if self.setup == Cost::ZERO {
            return self.cost; // without a division
        }
        let share = self.setup.parts().checked_div(u128::from(slots)).unwrap_or(u128::MAX);
        self.cost.plus(Cost::from_parts(share))
    }

    pub(super) fn full(&self) -> impl Iterator<Item = usize> + '_ {
        self.domains.iter().flatten().copied()
    }
}

/// Candidates, best first, and the room of each capped domain.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) parts: Vec<Part>,
    pub(super) rooms: Vec<u32>,
    pub(super) wanted: u32,
    pub(super) most: usize,
    pub(super) budget: u64,
    /// The least a slot costs that is not among the candidates, if there are any.
    pub(super) beyond: Option<Cost>,
}

impl Problem {
    pub(super) fn new(items: &[Item], goal: &Goal, beyond: Option<Cost>) -> Self {
        let capped = |item: &Item| {
            let [(owner, most), (block, of_block), (region, of_region)] = zip(item.domains.all(), goal.caps.all());
            let known =
                |kind, domain, cap: Option<u32>| cap.filter(|_| domain != Domain::NONE).map(|cap| (kind, domain, cap));
            [known(0usize, owner, most), known(1, block, of_block), known(2, region, of_region)]
        };
        let usable = |item: &Item| {
            let caps = capped(item);
            caps.iter().flatten().fold(item.slots.min(goal.wanted), |slots, (_, _, cap)| slots.min(*cap))
        };
        let key = |kind: usize, domain: Domain| (kind, domain.number());
        let mut supply: Vec<_> = items
            .iter()
            .flat_map(|item| {
                let usable = u64::from(usable(item));
                let known = capped(item).into_iter().flatten();
                known.map(move |(kind, domain, cap)| (key(kind, domain), cap, usable))
            })
            .collect();
        supply.sort_unstable();
        // Those that could be filled, in the order of their keys.
        let scarce: Vec<_> = supply
            .chunk_by(|a, b| a.0 == b.0)
            .filter_map(|same| {
                let (key, cap, _) = same.first()?;
                let sum = same.iter().fold(0u64, |sum, (.., usable)| sum.saturating_add(*usable));
                (sum > u64::from(*cap)).then_some((*key, *cap))
            })
            .collect();
        let parts = items.iter().map(|item| {
            let domains = capped(item).map(|capped| {
                let (kind, domain, _) = capped?;
                scarce.binary_search_by_key(&key(kind, domain), |(key, _)| *key).ok()
            });
            Part { cost: item.cost, setup: item.setup, price: item.price.0, usable: usable(item), domains }
        });
        let rooms = scarce.iter().map(|(_, cap)| *cap).collect();
        let parts = parts.collect();
        let budget = goal.budget.map_or(u64::MAX, |budget| budget.0);
        Self { parts, rooms, wanted: goal.wanted, most: goal.most, budget, beyond }
    }

    pub(super) fn part(&self, index: usize) -> Option<&Part> {
        self.parts.get(index)
    }

    pub(super) fn has_setup(&self) -> bool {
        self.parts.iter().any(|part| part.setup > Cost::ZERO)
    }

    /// Candidates by what a slot costs if as many are taken as can be, plus `extra`; equal ones as they came.
    pub(super) fn order(&self, extra: impl Fn(&Part) -> Cost) -> Vec<(Cost, usize)> {
        let parts = self.parts.iter().enumerate().filter(|(_, part)| part.usable > 0);
        let mut order: Vec<_> = parts.map(|(index, part)| (part.each(part.usable).plus(extra(part)), index)).collect();
        order.sort_unstable();
        order
    }
}

const fn zip<A: Copy, B: Copy>([a, b, c]: [A; 3], [x, y, z]: [B; 3]) -> [(A, B); 3] {
    [(a, x), (b, y), (c, z)]
}

/// A set that is being filled.
#[derive(Debug, Clone)]
pub(super) struct Fill {
    /// Slots by candidate.
    pub(super) taken: Vec<u32>,
    rooms: Vec<u32>,
    pub(super) left: u32,
    purse: u64,
    pub(super) members: usize,
    pub(super) cost: Cost,
    /// Domains that kept a candidate out, wholly or in part.
    pub(super) blocked: Vec<bool>,
    /// Whether the budget or the number of providers did.
    pub(super) is_cut: bool,
}

impl Fill {
    pub(super) fn empty(problem: &Problem, with_budget: bool) -> Self {
        Self {
            taken: vec![0; problem.parts.len()],
            rooms: problem.rooms.clone(),
            left: problem.wanted,
            purse: if with_budget { problem.budget } else { u64::MAX },
            members: 0,
            cost: Cost::ZERO,
            blocked: vec![false; problem.rooms.len()],
            is_cut: false,
        }
    }

    /// Takes as many as can be in this order.
    pub(super) fn of(problem: &Problem, order: impl IntoIterator<Item = usize>, with_budget: bool) -> Self {
        let mut fill = Self::empty(problem, with_budget);
        for index in order {
            if fill.left == 0 {
                break;
            }
            let Some(part) = problem.part(index) else { continue };
            let slots = fill.can_take(problem, index, part);
            let hoped = part.usable.min(fill.left);
            if slots < hoped {
                fill.note(problem, part, hoped, slots);
            }
            fill.take(index, part, slots);
        }
        fill
    }

    fn note(&mut self, problem: &Problem, part: &Part, hoped: u32, slots: u32) {
        let money = self.purse.checked_div(part.price).filter(|_| self.purse != u64::MAX).unwrap_or(u64::MAX);
        self.is_cut |= money < u64::from(hoped) || self.members >= problem.most;
        if self.is_cut {
            return;
        }
        for domain in part.full() {
            if self.room(domain) <= slots
                && let Some(blocked) = self.blocked.get_mut(domain)
            {
                *blocked = true;
            }
        }
    }

    fn room(&self, domain: usize) -> u32 {
        self.rooms.get(domain).copied().unwrap_or(0)
    }

    pub(super) fn has(&self, index: usize) -> u32 {
        self.taken.get(index).copied().unwrap_or(0)
    }

    /// How many more slots of a candidate the set can take.
    pub(super) fn can_take(&self, problem: &Problem, index: usize, part: &Part) -> u32 {
        let has = self.has(index);
        if has == 0 && self.members >= problem.most {
            return 0;
        }
        let slots = part.usable.saturating_sub(has).min(self.left);
        let slots = part.full().fold(slots, |slots, domain| slots.min(self.room(domain)));
        if self.purse == u64::MAX || slots == 0 {
            return slots;
        }
        let money = self.purse.checked_div(part.price).unwrap_or(u64::MAX);
        slots.min(u32::try_from(money).unwrap_or(u32::MAX))
    }

    pub(super) fn take(&mut self, index: usize, part: &Part, slots: u32) {
        let Some(taken) = self.taken.get_mut(index).filter(|_| slots > 0) else { return };
        if *taken == 0 {
            self.members = self.members.saturating_add(1);
            self.cost = self.cost.plus(part.setup);
        }
        *taken = taken.saturating_add(slots);
        self.cost = self.cost.plus(part.cost.times(slots));
        self.left = self.left.saturating_sub(slots);
        if self.purse != u64::MAX {
            self.purse = self.purse.saturating_sub(part.price.saturating_mul(u64::from(slots)));
        }
        for domain in part.full() {
            if let Some(room) = self.rooms.get_mut(domain) {
                *room = room.saturating_sub(slots);
            }
        }
    }

    pub(super) fn put_back(&mut self, index: usize, part: &Part, slots: u32) {
        let Some(taken) = self.taken.get_mut(index).filter(|taken| **taken >= slots && slots > 0) else { return };
        *taken = taken.saturating_sub(slots);
        self.cost = self.cost.less(part.cost.times(slots));
        if *taken == 0 {
            self.members = self.members.saturating_sub(1);
            self.cost = self.cost.less(part.setup);
        }
        self.left = self.left.saturating_add(slots);
        if self.purse != u64::MAX {
            self.purse = self.purse.saturating_add(part.price.saturating_mul(u64::from(slots)));
        }
        for domain in part.full() {
            if let Some(room) = self.rooms.get_mut(domain) {
                *room = room.saturating_add(slots);
            }
        }
    }

    /// What its slots may cost the budget.
    pub(super) fn price(&self, problem: &Problem) -> u64 {
        let taken = self.taken.iter().zip(&problem.parts);
        taken.fold(0, |sum: u64, (slots, part)| sum.saturating_add(part.price.saturating_mul(u64::from(*slots))))
    }

    /// More slots are better; of as many, the cheaper.
    pub(super) fn is_better(&self, other: &Self) -> bool {
        (self.left, self.cost) < (other.left, other.cost)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        self.taken.iter().copied().enumerate().filter(|(_, slots)| *slots > 0)
    }
}

/// Whether the capped domains that kept a candidate out lie within each other or apart, as far as these candidates go.
/// Then taking the cheapest first is the cheapest there is: the sets that keep to nested caps are a matroid.
pub(super) fn is_nested<'a>(parts: impl Iterator<Item = &'a Part>, blocked: &[bool]) -> bool {
    let mut sizes: BTreeMap<usize, u32> = BTreeMap::new();
    let mut common: BTreeMap<(usize, usize), u32> = BTreeMap::new();
    let more = |count: &mut u32| *count = count.saturating_add(1);
    for part in parts {
        let domains: Vec<usize> = part.full().filter(|domain| blocked.get(*domain).copied().unwrap_or(false)).collect();
        for (place, domain) in domains.iter().enumerate() {
            more(sizes.entry(*domain).or_default());
            for other in domains.iter().skip(place.saturating_add(1)) {
                more(common.entry((*domain, *other)).or_default());
            }
        }
    }
    common.iter().all(|((a, b), both)| sizes.get(a).min(sizes.get(b)) == Some(both))
}
