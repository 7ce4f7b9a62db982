//! A pool out of very many bids: filter, rank as far as it takes, choose, and verify only those that are chosen.
//!
//! Nothing is sorted that cannot be chosen: the cheapest few times as many as are wanted are split off first, and only
//! among those that cost the same the lot decides. The short list is the beginning of the whole order, so the result is
//! that of sorting everything, and does not depend on the order of arrival.

use std::collections::BTreeSet;

use souk_protocol::{Credits, Hash, Millis};

use super::{
    cover::{Cover, cover_of},
    problem::{Goal, Item},
    rows::{Bar, Rows},
};
use crate::rank::{self, Cost, Loss};

/// Candidates on the first short list, for each slot wanted.
const LISTED: usize = 4;
/// Fewest on it.
const MIN_LISTED: usize = 256;

/// What is sought.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// What every provider must meet.
    pub bar: Bar,
    /// How many slots, under which caps and budget.
    pub goal: Goal,
    /// How long a slot is paid for at most.
    pub duration: Millis,
    /// What a failure costs.
    pub loss: Loss,
    /// What it costs once to take any slot of a provider.
    pub setup: Cost,
    /// Breaks ties, with the provider's id.
    pub root: Hash,
}

/// A pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The cover; its places are those of the rows.
    pub cover: Cover,
    /// The short list it was chosen from, best first: places of rows.
    pub ranked: Vec<usize>,
    /// Rows that meet the bar.
    pub passed: usize,
    /// Rows that were looked at closely.
    pub checked: usize,
    /// Rows that would have been chosen and were not what they said.
    pub refused: Vec<usize>,
}

/// A row that passed: what a slot costs, and its place, in one number. Half as much memory as both apart, and one
/// comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    /// `None` for a cost that no money in the world pays: 2^96 parts are 22 billion CR.
    fn new(cost: Cost, place: u32) -> Option<Self> {
        let parts = cost.parts();
        (parts >> 96 == 0).then_some(Self(parts << 32 | u128::from(place)))
    }

    const fn cost(self) -> Cost {
        Cost::from_parts(self.0 >> 32)
    }

    fn place(self) -> usize {
        usize::try_from(self.0 & u128::from(u32::MAX)).unwrap_or(usize::MAX)
    }
}

/// Chooses a pool. `check` is asked once for each row that would be chosen, and only for those: whether its signature is
/// good and it holds what the row says. A row that fails is left out and the choice made anew.
pub fn select(rows: &Rows, want: &Want, mut check: impl FnMut(usize) -> bool) -> Selection {
    let (mut good, mut bad) = (BTreeSet::new(), BTreeSet::new());
    let wanted = usize::try_from(want.goal.wanted).unwrap_or(usize::MAX);
    let mut length = wanted.saturating_mul(LISTED).max(MIN_LISTED);
    loop {
        let (mut keys, passed) = cheapest(rows, want, length.saturating_add(1));
        let (mut list, beyond) = short_list(rows, &mut keys, length, &want.root);
        let is_all = list.len() >= passed;
        list.retain(|place| !bad.contains(place));
        let cover = choose(rows, want, &list, beyond);
        if cover.slots < want.goal.wanted && !is_all {
            length = length.saturating_mul(4);
            continue;
        }
        let mut honest = true;
        for (place, _) in &cover.shares {
            if good.contains(place) {
                continue;
            }
            if check(*place) {
                good.insert(*place);
            } else {
                bad.insert(*place);
                honest = false;
            }
        }
        if honest {
            let checked = good.len().saturating_add(bad.len());
            return Selection { cover, ranked: list, passed, checked, refused: bad.into_iter().collect() };
        }
    }
}

/// The cheapest `count` rows that meet the bar, and all that cost as much as the last of them; and how many meet it.
fn cheapest(rows: &Rows, want: &Want, count: usize) -> (Vec<Key>, usize) {
    let room = count.saturating_mul(2);
    let mut keys: Vec<Key> = Vec::with_capacity(room.min(rows.len()));
    let (mut passed, mut limit, mut thin_at) = (0usize, Cost::MAX, room);
    for (place, rate, share, rtt) in rows.passing(&want.bar) {
        let cost = rank::effective(rate, share, rtt, want.duration, want.loss);
        let Some(key) = Key::new(cost, place) else { continue };
        passed = passed.saturating_add(1);
        if cost > limit {
            continue;
        }
        keys.push(key);
        if keys.len() >= thin_at {
            let (_, last, _) = keys.select_nth_unstable(count.saturating_sub(1));
            limit = last.cost();
            keys.retain(|key| key.cost() <= limit);
            // Many may cost the same; they are not looked through at every step.
            thin_at = keys.len().saturating_mul(2).max(room);
        }
    }
    (keys, passed)
}

/// The first `length` of the whole order, best first, and what the next one costs, if there is one.
fn short_list(rows: &Rows, keys: &mut [Key], length: usize, root: &Hash) -> (Vec<usize>, Option<Cost>) {
    let mut list: Vec<Key>;
    let mut beyond = None;
    if length < keys.len() {
        let (first, next, rest) = keys.select_nth_unstable(length);
        let boundary = next.cost();
        beyond = Some(boundary);
        let is_tied = first.iter().any(|key| key.cost() == boundary);
        if is_tied {
            // Places decided the split among equals, and those come from the order of arrival: the lot decides.
            list = first.iter().copied().filter(|key| key.cost() < boundary).collect();
            let equals = first.iter().chain([&*next]).chain(rest.iter()).filter(|key| key.cost() == boundary);
            let mut drawn: Vec<_> = equals.map(|key| (lot(rows, key.place(), root), *key)).collect();
            let missing = length.saturating_sub(list.len());
            if missing < drawn.len() {
                drawn.select_nth_unstable(missing);
                drawn.truncate(missing);
            }
            list.extend(drawn.into_iter().map(|(_, key)| key));
        } else {
            list = first.to_vec();
        }
    } else {
        list = keys.to_vec();
    }
    list.sort_unstable();
    let mut sorted = Vec::with_capacity(list.len());
    for equals in list.chunk_by(|a, b| a.cost() == b.cost()) {
        if let [key] = equals {
            sorted.push(key.place());
        } else {
            let mut drawn: Vec<_> = equals.iter().map(|key| (lot(rows, key.place(), root), key.place())).collect();
            drawn.sort_unstable();
            sorted.extend(drawn.into_iter().map(|(_, place)| place));
        }
    }
    (sorted, beyond)
}

/// Where the lot puts a row among its equals.
fn lot(rows: &Rows, place: usize, root: &Hash) -> (Hash, Hash) {
    rows.row(place).map_or((Hash([0; 32]), Hash([0; 32])), |row| (rank::tie(root, &row.provider), row.document))
}

fn choose(rows: &Rows, want: &Want, list: &[usize], beyond: Option<Cost>) -> Cover {
    let mut items = Vec::with_capacity(list.len());
    for row in list.iter().filter_map(|place| rows.row(*place)) {
        items.push(Item {
            cost: rank::effective(row.rate, row.reliability, row.rtt, want.duration, want.loss),
            setup: want.setup,
            price: row.rate.charge(want.duration).unwrap_or(Credits::MAX),
            slots: row.slots,
            domains: row.domains,
        });
    }
    let mut cover = cover_of(&items, &want.goal, beyond);
    for share in &mut cover.shares {
        share.0 = list.get(share.0).copied().unwrap_or(usize::MAX);
    }
    cover
}

#[cfg(test)]
mod tests;
