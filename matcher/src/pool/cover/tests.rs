use proptest::prelude::*;

use super::*;
use crate::pool::{Caps, Domain, Domains};

fn item(cost: u64, slots: u32, owner: u32, block: u32, region: u32) -> Item {
    let domains = Domains { owner: Domain::new(owner), block: Domain::new(block), region: Domain::new(region) };
    let cost = Cost::from_parts(u128::from(cost));
    Item { cost, setup: Cost::ZERO, price: Credits(1), slots, domains }
}

fn goal(wanted: u32) -> Goal {
    Goal { wanted, most: usize::MAX, caps: Caps::default(), budget: None }
}

#[test]
fn a_cover_takes_part_of_the_last_provider_and_skips_full_ones() {
    let items = [item(1, 2, 0, 0, 0), item(2, 0, 1, 0, 0), item(3, 8, 2, 0, 0)];
    let cover = cover(&items, &goal(5));
    assert_eq!(cover.shares, [(0, 2), (2, 3)]);
    assert_eq!((cover.slots, cover.cost.parts(), cover.price), (5, 11, Credits(5)));
    assert!(cover.is_optimal() && cover.gap_ppm() == Some(0));
}

#[test]
fn caps_spread_a_pool() {
    let items = [item(1, 4, 0, 0, 0), item(2, 4, 0, 1, 0), item(3, 4, 1, 0, 0), item(4, 4, 2, 2, 1)];
    let of = |caps| cover(&items, &Goal { caps, ..goal(6) }).shares;
    assert_eq!(of(Caps::default()), [(0, 4), (1, 2)]);
    assert_eq!(of(Caps { owner: Some(4), ..Caps::default() }), [(0, 4), (2, 2)]);
    assert_eq!(of(Caps { owner: Some(4), block: Some(4), region: None }), [(0, 4), (3, 2)]);
    let short = cover(&items, &Goal { caps: Caps { region: Some(2), ..Caps::default() }, ..goal(6) });
    assert_eq!((short.slots, short.shares), (4, vec![(0, 2), (3, 2)]));
}

#[test]
fn a_cheaper_pool_than_the_cheapest_first_is_found() {
    // The first bars both others by its owner and its block; without it two cheap ones fit.
    let items = [item(10, 1, 0, 0, 9), item(11, 1, 0, 1, 8), item(11, 1, 1, 0, 7), item(50, 1, 2, 2, 6)];
    let caps = Caps { owner: Some(1), block: Some(1), region: None };
    let found = cover(&items, &Goal { caps, ..goal(2) });
    assert_eq!((found.cost.parts(), found.is_optimal()), (22, true));
    // The same among many: by exchange and relaxation, with a bound.
    let mut many = items.to_vec();
    many.extend((0..40).map(|n| item(60, 1, 10 + n, 10 + n, 0)));
    let found = cover(&many, &Goal { caps, ..goal(2) });
    assert_eq!(found.cost.parts(), 22);
    assert!(found.bound.is_some_and(|bound| bound <= found.cost));
}

#[test]
fn a_setup_makes_few_large_providers_cheaper() {
    let once = |item: Item| Item { setup: Cost::from_parts(10), ..item };
    let items = [once(item(1, 1, 0, 0, 0)), once(item(1, 1, 1, 1, 0)), once(item(3, 2, 2, 2, 0))];
    let found = cover(&items, &goal(2));
    assert_eq!((found.shares.as_slice(), found.cost.parts()), ([(2, 2)].as_slice(), 16));
}

#[test]
fn the_number_of_providers_is_kept_and_the_larger_ones_help() {
    let items: Vec<_> =
        (0..30).map(|n| item(1, 1, n, n, 0)).chain([item(5, 6, 90, 90, 0), item(6, 6, 91, 91, 0)]).collect();
    let found = cover(&items, &Goal { most: 2, ..goal(12) });
    assert_eq!((found.slots, found.cost.parts()), (12, 66));
    let short = cover(&items, &Goal { most: 3, ..goal(40) });
    assert_eq!((short.slots, short.bound), (13, None));
}

#[test]
fn the_budget_is_never_exceeded_and_buys_as_many_as_it_can() {
    // Reliable ones cost less in the end and more at once.
    let priced = |cost, price, slots| Item { price: Credits(price), ..item(cost, slots, 0, 0, 0) };
    let items: Vec<_> = (0..30).flat_map(|_| [priced(10, 100, 1), priced(20, 50, 1)]).collect();
    let within = |budget| {
        let found = cover(&items, &Goal { budget: Some(Credits(budget)), ..goal(10) });
        assert!(found.price.0 <= budget, "{found:?}");
        (found.slots, found.cost.parts())
    };
    assert_eq!(within(1_000), (10, 100));
    assert_eq!(within(500), (10, 200));
    assert_eq!(within(499), (9, 180));
    assert_eq!(within(49), (0, 0));
    // Few candidates are searched exactly: five of each.
    let few: Vec<_> = (0..6).flat_map(|_| [priced(10, 100, 1), priced(20, 50, 1)]).collect();
    let found = cover(&few, &Goal { budget: Some(Credits(750)), ..goal(10) });
    assert_eq!((found.slots, found.cost.parts(), found.is_optimal()), (10, 150, true));
}

/// The cheapest cover by trying everything: more slots first.
fn brute(items: &[Item], goal: &Goal) -> (u32, Cost) {
    fn look(items: &[Item], goal: &Goal, at: usize, taken: &mut Vec<u32>, best: &mut (u32, Cost)) {
        let Some(item) = items.get(at) else {
            let mut cost = Cost::ZERO;
            let mut price = 0;
            let mut used = std::collections::BTreeMap::new();
            for (item, slots) in items.iter().zip(taken.iter()).filter(|(_, slots)| **slots > 0) {
                cost = cost.plus(item.cost.times(*slots)).plus(item.setup);
                price += item.price.0 * u64::from(*slots);
                for (kind, domain) in item.domains.all().into_iter().enumerate() {
                    *used.entry((kind, domain)).or_insert(0) += slots;
                }
            }
            let slots: u32 = taken.iter().sum();
            let kept = used.iter().all(|((kind, _), slots)| goal.caps.all()[*kind].is_none_or(|cap| *slots <= cap));
            let members = taken.iter().filter(|slots| **slots > 0).count();
            let paid = goal.budget.is_none_or(|budget| price <= budget.0);
            if kept && paid && members <= goal.most && slots <= goal.wanted {
                let (most, least) = *best;
                if slots > most || (slots == most && cost < least) {
                    *best = (slots, cost);
                }
            }
            return;
        };
        for slots in 0..=item.slots.min(goal.wanted) {
            taken.push(slots);
            look(items, goal, at + 1, taken, best);
            taken.pop();
        }
    }
    let mut best = (0, Cost::ZERO);
    look(items, goal, 0, &mut Vec::new(), &mut best);
    best
}

fn instance() -> impl Strategy<Value = (Vec<Item>, Goal)> {
    let one = (1u64..30, 0u64..20, 1u64..9, 0u32..3, 0u32..3, 0u32..3, 0u32..2);
    let limits = (1u32..7, 1usize..5, proptest::option::of(1u32..4), proptest::option::of(1u32..5));
    let with = (proptest::option::of(1u64..30), any::<bool>());
    (proptest::collection::vec(one, 1..8), limits, with).prop_map(
        |(bids, (wanted, most, owner, block), (budget, setup))| {
            let mut items: Vec<_> = bids
                .iter()
                .map(|(cost, once, price, slots, owner, block, region)| Item {
                    setup: Cost::from_parts(if setup { u128::from(*once) } else { 0 }),
                    price: Credits(*price),
                    ..item(*cost, *slots, *owner, *block, *region)
                })
                .collect();
            items.sort_by_key(|item| item.cost);
            let caps = Caps { owner, block, region: None };
            (items, Goal { wanted, most, caps, budget: budget.map(Credits) })
        },
    )
}

fn keeps(items: &[Item], goal: &Goal, cover: &Cover) -> Result<(), TestCaseError> {
    let mut used = std::collections::BTreeMap::new();
    let mut cost = Cost::ZERO;
    for (index, slots) in &cover.shares {
        let item = &items[*index];
        prop_assert!(*slots > 0 && *slots <= item.slots);
        cost = cost.plus(item.cost.times(*slots)).plus(item.setup);
        for (kind, domain) in item.domains.all().into_iter().enumerate() {
            *used.entry((kind, domain)).or_insert(0) += slots;
        }
    }
    for ((kind, _), slots) in used {
        prop_assert!(goal.caps.all()[kind].is_none_or(|cap| slots <= cap));
    }
    prop_assert_eq!(cost, cover.cost);
    prop_assert!(cover.slots <= goal.wanted && cover.shares.len() <= goal.most);
    prop_assert!(goal.budget.is_none_or(|budget| cover.price <= budget));
    prop_assert!(cover.bound.is_none_or(|bound| bound <= cover.cost));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn small_covers_are_the_cheapest_there_are((items, goal) in instance()) {
        let found = cover(&items, &goal);
        keeps(&items, &goal, &found)?;
        prop_assert_eq!((found.slots, found.cost), brute(&items, &goal));
        prop_assert!(found.is_optimal());
    }

    #[test]
    fn large_covers_keep_their_limits_and_their_bound(
        bids in proptest::collection::vec((1u64..40, 0u32..4, 0u32..9, 0u32..6, 0u32..3), 21..80),
        setup in 0u64..20, wanted in 1u32..40, owner in 1u32..6, block in 1u32..9, budget in proptest::option::of(1u64..60),
    ) {
        let mut items: Vec<_> = bids.iter().map(|(cost, slots, owner, block, region)| Item {
            setup: Cost::from_parts(u128::from(setup)),
            ..item(*cost, *slots, *owner, *block, *region)
        }).collect();
        items.sort_by_key(|item| item.cost);
        let caps = Caps { owner: Some(owner), block: Some(block), region: Some(20) };
        let goal = Goal { wanted, most: 12, caps, budget: budget.map(Credits) };
        keeps(&items, &goal, &cover(&items, &goal))?;
    }
}
