use proptest::prelude::*;
use souk_protocol::{NodeId, Ppm, Rate, Timestamp};

use super::*;
use crate::{
    pool::{Caps, Domain, Domains, Row},
    rank::Candidate,
};

const ROOT: Hash = Hash([7; 32]);

/// Numbers that look random, the same each time.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

fn row(n: u32, random: &mut Lcg, rates: u64) -> Row {
    let mut id = [0; 32];
    id[..4].copy_from_slice(&n.to_be_bytes());
    let known = random.below(2) == 0;
    Row {
        provider: NodeId(id),
        document: Hash(id),
        rate: Rate(1_000 + random.below(rates)),
        slots: random.below(4) as u32,
        valid_until: Timestamp(50 + random.below(100)),
        reliability: known.then(|| Ppm(800_000 + 1_000 * random.below(200) as u32)),
        rtt: known.then(|| Millis(random.below(300))),
        traits: random.below(8),
        domains: Domains {
            owner: Domain::new(n / 3),
            block: Domain::new(random.below(40) as u32),
            region: Domain::new(random.below(5) as u32),
        },
    }
}

fn want(wanted: u32, caps: Caps) -> Want {
    let bar = Bar { traits: 1, rtt: Some(Millis(200)), ..Bar::open(Timestamp(80)) };
    Want {
        bar,
        goal: Goal { wanted, most: usize::MAX, caps, budget: None },
        duration: Millis(3_600_000),
        loss: Loss::Tenths(5),
        setup: Cost::ZERO,
        root: ROOT,
    }
}

fn rows(all: &[Row]) -> Rows {
    let mut rows = Rows::with_capacity(all.len());
    all.iter().for_each(|row| rows.push(row));
    rows
}

/// The same by sorting everything and taking one slot after the other.
fn naive(all: &[Row], want: &Want) -> Vec<(NodeId, u32)> {
    let passes = |row: &&Row| {
        row.rate <= want.bar.max_rate
            && row.slots > 0
            && row.valid_until >= want.bar.now
            && row.traits & want.bar.traits == want.bar.traits
            && want.bar.reliability.is_none_or(|least| row.reliability.is_some_and(|share| share >= least))
            && want.bar.rtt.is_none_or(|most| row.rtt.is_some_and(|rtt| rtt <= most))
    };
    let candidates = all.iter().filter(passes).map(|row| Candidate {
        provider: row.provider,
        document: row.document,
        rate: row.rate,
        slots: row.slots,
        reliability: row.reliability,
        rtt: row.rtt,
    });
    let ranked = rank::rank(candidates.collect(), &want.root, want.duration, want.loss);
    let (mut left, mut used, mut chosen) = (want.goal.wanted, std::collections::BTreeMap::new(), Vec::new());
    for candidate in ranked {
        let row = all.iter().find(|row| row.provider == candidate.provider).unwrap();
        let domains = || row.domains.all().into_iter().zip(want.goal.caps.all()).enumerate();
        let room = domains().filter_map(|(kind, (domain, cap))| Some(cap? - used.get(&(kind, domain)).unwrap_or(&0)));
        let slots = room.min().unwrap_or(u32::MAX).min(row.slots).min(left);
        for (kind, (domain, _)) in domains() {
            *used.entry((kind, domain)).or_insert(0) += slots;
        }
        left -= slots;
        if slots > 0 {
            chosen.push((row.provider, slots));
        }
    }
    chosen.sort();
    chosen
}

fn chosen(all: &[Row], selection: &Selection) -> Vec<(NodeId, u32)> {
    let mut chosen: Vec<_> =
        selection.cover.shares.iter().map(|(place, slots)| (all[*place].provider, *slots)).collect();
    chosen.sort();
    chosen
}

#[test]
fn the_pool_is_that_of_sorting_everything() {
    for (seed, rates) in (0..12).map(|seed| (seed, [3, 50, 100_000][seed as usize % 3])) {
        let mut random = Lcg(seed);
        let all: Vec<_> = (0..4_000).map(|n| row(n, &mut random, rates)).collect();
        // One kind of cap: taking the cheapest first is the optimum, and both do.
        for caps in
            [Caps::default(), Caps { region: Some(30), ..Caps::default() }, Caps { owner: Some(2), ..Caps::default() }]
        {
            let want = want(100, caps);
            let selection = select(&rows(&all), &want, |_| true);
            assert_eq!(chosen(&all, &selection), naive(&all, &want), "seed {seed}, {caps:?}");
            assert!(selection.cover.is_optimal() && selection.cover.slots == 100);
            assert_eq!(selection.checked, selection.cover.shares.len());
        }
    }
}

#[test]
fn caps_that_cross_cost_no_more_than_the_cheapest_first() {
    for seed in 0..12 {
        let mut random = Lcg(seed);
        let all: Vec<_> = (0..2_000).map(|n| row(n, &mut random, 100_000)).collect();
        let want = want(64, Caps { owner: Some(2), block: Some(3), region: Some(20) });
        let selection = select(&rows(&all), &want, |_| true);
        let cost = |row: &Row| rank::effective(row.rate, row.reliability, row.rtt, want.duration, want.loss);
        let by = |provider: &NodeId| cost(all.iter().find(|row| row.provider == *provider).unwrap());
        let first =
            naive(&all, &want).iter().fold(Cost::ZERO, |sum, (provider, slots)| sum.plus(by(provider).times(*slots)));
        assert_eq!(selection.cover.slots, 64);
        assert!(selection.cover.cost <= first);
        assert!(selection.cover.gap_ppm().unwrap() < 20_000, "{:?}", selection.cover.gap_ppm());
    }
}

#[test]
fn only_those_that_would_be_chosen_are_checked_and_forgers_are_left_out() {
    let mut random = Lcg(1);
    let all: Vec<_> = (0..3_000).map(|n| row(n, &mut random, 1_000)).collect();
    let want = want(50, Caps::default());
    let honest = |row: &Row| !row.provider.0[3].is_multiple_of(3);
    let mut asked = Vec::new();
    let selection = select(&rows(&all), &want, |place| {
        asked.push(place);
        honest(&all[place])
    });
    let good: Vec<_> = all.iter().copied().filter(honest).collect();
    assert_eq!(chosen(&all, &selection), naive(&good, &want));
    let count = asked.len();
    asked.sort();
    asked.dedup();
    assert_eq!((asked.len(), selection.checked), (count, count)); // nobody twice
    assert!(count < 120, "{count}");
    assert!(selection.refused.iter().all(|place| !honest(&all[*place])));
}

#[test]
fn a_short_list_grows_until_it_is_enough() {
    // The cheap ones all have one owner.
    let mut random = Lcg(3);
    let mut all: Vec<_> = (0..2_000).map(|n| row(n, &mut random, 10)).collect();
    for row in &mut all {
        row.domains.owner = Domain::new(0);
        row.traits = 1;
        (row.slots, row.rtt, row.valid_until) = (1, Some(Millis(1)), Timestamp(100));
    }
    for (n, row) in (1..).zip(all.iter_mut().take(10)) {
        row.rate = Rate(1_000_000 + u64::from(n));
        row.domains.owner = Domain::new(n);
    }
    let want = want(11, Caps { owner: Some(1), ..Caps::default() });
    let selection = select(&rows(&all), &want, |_| true);
    assert_eq!(chosen(&all, &selection), naive(&all, &want));
    assert_eq!((selection.cover.slots, selection.passed), (11, 2_000));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn the_order_of_arrival_does_not_matter(
        seed in any::<u64>(), rates in 1u64..6, setup in 0u64..2, caps in any::<bool>(), budget in proptest::option::of(1u64..90_000)
    ) {
        let mut random = Lcg(seed);
        let all: Vec<_> = (0..900).map(|n| row(n, &mut random, rates)).collect();
        let caps = if caps { Caps { owner: Some(2), block: Some(3), region: Some(9) } } else { Caps::default() };
        let mut want = want(40, caps);
        want.setup = Cost::of(Credits(setup * 100));
        want.goal.budget = budget.map(Credits);
        let mut turned = all.clone();
        for i in (1..turned.len()).rev() {
            let other = random.below(i as u64 + 1) as usize;
            turned.swap(i, other);
        }
        let (one, two) = (select(&rows(&all), &want, |_| true), select(&rows(&turned), &want, |_| true));
        prop_assert_eq!(chosen(&all, &one), chosen(&turned, &two));
        prop_assert_eq!((one.cover.cost, one.cover.bound, one.passed), (two.cover.cost, two.cover.bound, two.passed));
        prop_assert!(budget.is_none_or(|budget| one.cover.price.0 <= budget));
    }
}
