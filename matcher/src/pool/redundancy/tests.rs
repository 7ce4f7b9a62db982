use proptest::prelude::*;
use souk_protocol::NodeId;

use super::*;
use crate::pool::Domains;

const ROOT: Hash = Hash([7; 32]);

fn member(n: u8, cost: u64, reliability: u32, domains: Domains) -> Member {
    Member {
        provider: NodeId([n; 32]),
        document: Hash([n; 32]),
        cost: Cost::from_parts(u128::from(cost)),
        reliability: Ppm(reliability),
        domains,
    }
}

/// The reference instance; costs in tenths.
fn five() -> Vec<Member> {
    let bids = [(10, 900_000), (6, 800_000), (5, 700_000), (3, 500_000), (20, 990_000)];
    (1u8..).zip(bids).map(|(n, (cost, reliability))| member(n, cost, reliability, Domains::default())).collect()
}

fn promise(survives: u32) -> Promise {
    Promise { survives: Ppm(survives), shock: Chance::NEVER, apart: Caps::default() }
}

fn cost_at(survives: u32) -> Option<u128> {
    replicas(&five(), &promise(survives), &ROOT).map(|chosen| chosen.cost.parts())
}

#[test]
fn the_reference_instance_has_its_known_optima() {
    assert_eq!(cost_at(900_000), Some(9)); // exactly on the boundary
    assert_eq!(cost_at(950_000), Some(13));
    assert_eq!(cost_at(990_000), Some(19));
    assert_eq!(cost_at(995_000), Some(23));
    assert_eq!(cost_at(1_000_000), None);
    let chosen = replicas(&five(), &promise(900_000), &ROOT).unwrap();
    assert_eq!((chosen.members, chosen.failing, chosen.is_optimal), (vec![1, 3], Chance::of(Ppm(100_000)), true));
}

#[test]
fn nothing_is_bought_for_a_promise_of_nothing() {
    let chosen = replicas(&five(), &promise(0), &ROOT).unwrap();
    assert_eq!((chosen.members, chosen.cost), (vec![], Cost::ZERO));
}

#[test]
fn a_shock_counts_for_all_and_no_pool_outdoes_it() {
    let shock = Chance::of(Ppm(10_000));
    // 0.01 + 0.99 x 0.1 is above a tenth: what does without the shock does not with it.
    let chosen = replicas(&five(), &Promise { shock, ..promise(900_000) }, &ROOT).unwrap();
    assert_eq!((chosen.members, chosen.cost.parts()), (vec![1, 2], 11));
    assert_eq!(chosen.failing, Chance::of(Ppm(69_400))); // 0.01 + 0.99 x 0.06
    assert_eq!(replicas(&five(), &Promise { shock, ..promise(990_001) }, &ROOT), None);
}

#[test]
fn two_of_one_owner_or_block_are_one() {
    let at = |owner, block| Domains { owner: Domain::new(owner), block: Domain::new(block), region: Domain::new(0) };
    let all = [
        member(1, 1, 900_000, at(1, 1)),
        member(2, 1, 900_000, at(1, 2)),
        member(3, 1, 900_000, at(2, 1)),
        member(4, 5, 900_000, at(3, 3)),
    ];
    let cost = |apart| {
        let promise = Promise { apart, ..promise(990_000) };
        replicas(&all, &promise, &ROOT).map(|chosen| (chosen.cost.parts(), chosen.members.contains(&3)))
    };
    assert_eq!(cost(Caps::default()), Some((2, false)));
    assert_eq!(cost(Caps::APART), Some((2, false))); // the second and the third share nothing
    assert_eq!(cost(Caps { region: Some(1), ..Caps::default() }), None);
    let without = replicas(&all[..2], &Promise { apart: Caps::APART, ..promise(990_000) }, &ROOT);
    assert_eq!(without, None);
}

/// Tries every set.
fn brute(all: &[Member], promise: &Promise) -> Option<Cost> {
    let most = Chance::of(promise.survives).not();
    (0u32..1 << all.len())
        .filter_map(|set| {
            let members: Vec<_> = (0..all.len()).filter(|n| set >> n & 1 == 1).map(|n| &all[n]).collect();
            let apart = promise.apart.all().iter().enumerate().all(|(kind, cap)| {
                let mut domains: Vec<_> = members.iter().map(|member| member.domains.all()[kind]).collect();
                domains.retain(|domain| *domain != Domain::NONE);
                let count = domains.len();
                domains.sort();
                domains.dedup();
                cap.is_none() || domains.len() == count
            });
            // In any order: rounding up must not decide it, so chances are those of whole percents here.
            let failing = members.iter().fold(Chance::CERTAIN, |chance, member| chance.and_up(member.failing()));
            let cost = members.iter().fold(Cost::ZERO, |sum, member| sum.plus(member.cost));
            (apart && failing.shocked(promise.shock) <= most).then_some(cost)
        })
        .min()
}

fn instance() -> impl Strategy<Value = (Vec<Member>, Promise)> {
    let one = (1u64..60, 30u32..100, 0u32..5, 0u32..4);
    (proptest::collection::vec(one, 1..11), 0usize..4, any::<bool>()).prop_map(|(bids, goal, apart)| {
        let members = (1u8..).zip(bids).map(|(n, (cost, percent, owner, block))| {
            let domains = Domains { owner: Domain::new(owner), block: Domain::new(block), region: Domain::NONE };
            member(n, cost, percent * 10_000, domains)
        });
        let apart = if apart { Caps::APART } else { Caps::default() };
        (members.collect(), Promise { apart, ..promise([900_000, 950_000, 990_000, 999_000][goal]) })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_set_is_cheaper((all, promise) in instance()) {
        let chosen = replicas(&all, &promise, &ROOT);
        prop_assert_eq!(chosen.as_ref().map(|chosen| chosen.cost), brute(&all, &promise));
        prop_assert!(chosen.is_none_or(|chosen| chosen.is_optimal));
    }

    #[test]
    fn the_order_of_arrival_does_not_matter((all, promise) in instance(), seed in any::<u64>()) {
        let mut order: Vec<usize> = (0..all.len()).collect();
        for i in 0..order.len() {
            let other = (seed as usize).wrapping_mul(i + 1) % order.len();
            order.swap(i, other);
        }
        let shuffled: Vec<_> = order.iter().map(|index| all[*index]).collect();
        let names = |all: &[Member], chosen: Option<Chosen>| chosen.map(|chosen| {
            let mut names: Vec<_> = chosen.members.iter().map(|index| all[*index].provider).collect();
            names.sort();
            (names, chosen.cost, chosen.failing)
        });
        prop_assert_eq!(
            names(&all, replicas(&all, &promise, &ROOT)),
            names(&shuffled, replicas(&shuffled, &promise, &ROOT))
        );
    }
}

#[test]
fn a_hundred_candidates_are_searched_exactly() {
    let all: Vec<_> = (0u8..128)
        .map(|n| member(n, 10 + u64::from(n) * 37 % 101, 500_000 + u32::from(n) * 7_919 % 480_000, Domains::default()))
        .collect();
    let chosen = replicas(&all, &promise(999_999), &ROOT).unwrap();
    assert!(chosen.is_optimal);
    assert!(chosen.failing <= Chance::of(Ppm(1)));
}
