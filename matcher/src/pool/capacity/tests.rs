use proptest::prelude::*;
use souk_protocol::NodeId;

use super::*;
use crate::pool::Domains;

const ROOT: Hash = Hash([7; 32]);

fn chances(ppm: &[u32]) -> Vec<Chance> {
    ppm.iter().map(|ppm| Chance::of(Ppm(*ppm))).collect()
}

#[test]
fn the_tail_is_exact_where_its_digits_fit() {
    let digits = |parts: u128| Chance::from_parts(parts).unwrap();
    assert_eq!(tail(&chances(&[900_000, 800_000, 700_000]), 2), digits(902_000_000_000_000_000));
    assert_eq!(tail(&chances(&[950_000; 5]), 4), digits(977_407_500_000_000_000));
    assert_eq!(tail(&chances(&[950_000; 5]), 0), Chance::CERTAIN);
    assert_eq!(tail(&chances(&[950_000; 2]), 3), Chance::NEVER);
}

fn members(bids: &[(u64, u32)]) -> Vec<Member> {
    let one = |(n, (cost, percent)): (u8, &(u64, u32))| Member {
        provider: NodeId([n; 32]),
        document: Hash([n; 32]),
        cost: Cost::from_parts(u128::from(*cost)),
        reliability: Ppm(percent * 10_000),
        domains: Domains::default(),
    };
    (1u8..).zip(bids).map(one).collect()
}

fn brute(all: &[Member], goal: &Quorum) -> Option<Cost> {
    let sets = (0u32..1 << all.len()).filter_map(|set| {
        let members: Vec<_> = (0..all.len()).filter(|n| set >> n & 1 == 1).map(|n| &all[n]).collect();
        let chances: Vec<_> = members.iter().map(|member| member.failing().not()).collect();
        let will_do = tail(&chances, goal.least).and_down(goal.shock.not()) >= Chance::of(goal.survives);
        will_do.then(|| members.iter().fold(Cost::ZERO, |sum, member| sum.plus(member.cost)))
    });
    sets.min()
}

#[test]
fn a_shock_makes_some_promises_impossible() {
    let all = members(&[(1, 99), (1, 99), (1, 99)]);
    let goal = Quorum { least: 2, survives: Ppm(990_000), shock: Chance::NEVER };
    assert_eq!(quorum(&all, &goal, &ROOT).unwrap().members, [0, 1, 2]);
    assert_eq!(quorum(&all, &Quorum { shock: Chance::of(Ppm(20_000)), ..goal }, &ROOT), None);
}

#[test]
fn a_large_instance_is_near_the_bound_of_its_cheapest() {
    // Twins in all but cost: the cheapest are the optimum, and the search by value finds them.
    let bids: Vec<_> = (0..60u64).map(|n| (10 + n, 90)).collect();
    let goal = Quorum { least: 8, survives: Ppm(950_000), shock: Chance::NEVER };
    let chosen = quorum(&members(&bids), &goal, &ROOT).unwrap();
    assert!(!chosen.is_optimal);
    assert_eq!(chosen.members, (0..chosen.members.len()).collect::<Vec<_>>());
    let nine = tail(&chances(&[900_000; 10]), 8);
    assert!(nine < Chance::of(Ppm(950_000)) && chosen.members.len() == 11);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn no_set_is_cheaper(
        bids in proptest::collection::vec((1u64..60, 50u32..100), 1..10), least in 1usize..4, goal in 700u32..999
    ) {
        let goal = Quorum { least, survives: Ppm(goal * 1_000), shock: Chance::NEVER };
        let all = members(&bids);
        let chosen = quorum(&all, &goal, &ROOT);
        prop_assert_eq!(chosen.as_ref().map(|chosen| chosen.cost), brute(&all, &goal));
        let mut turned = all.clone();
        turned.reverse();
        let again = quorum(&turned, &goal, &ROOT);
        let mirrored = again.map(|again| {
            let mut members: Vec<_> = again.members.iter().map(|index| all.len() - 1 - index).collect();
            members.sort();
            members
        });
        prop_assert_eq!(chosen.map(|chosen| chosen.members), mirrored);
    }
}
