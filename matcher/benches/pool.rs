//! Choosing a pool of 256 slots out of 100,000 and 1,000,000 bids: `cargo bench -p souk-matcher`.
//!
//! Prints the median and the 99th percentile of whole runs (filter, rank, caps, cover) on one core, beside sorting all
//! bids in the same run, and what it takes to verify the signatures of those that were chosen. No figure is asserted.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(clippy::unwrap_used, reason = "a benchmark may fail loudly")]

use std::{
    collections::BTreeMap,
    hint::black_box,
    time::{Duration, Instant},
};

use souk_matcher::{
    pool::{Bar, Caps, Domain, Domains, Goal, Row, Rows, Want, select},
    rank::{self, Candidate, Cost, Loss},
};
use souk_protocol::{Bid, Hash, Key, Millis, NodeId, Ppm, Rate, Signed, Signer, Strict, Timestamp};

/// Slots of the pool.
const WANTED: u32 = 256;
/// When all of it happens.
const NOW: Timestamp = Timestamp(1_772_323_200_000);

/// Numbers that look random, the same each time.
struct Lcg(u64);

impl Lcg {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// How the bids of a market look.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    /// Different prices.
    rates: u64,
    /// Whether an address block may lie in several regions, and an owner in several blocks.
    crossing: bool,
    caps: Caps,
}

const CAPS: Caps = Caps { owner: Some(4), block: Some(8), region: Some(64) };
const SHAPES: [Shape; 4] = [
    Shape { name: "caps within each other", rates: 1_000_000, crossing: false, caps: CAPS },
    Shape { name: "caps that cross", rates: 1_000_000, crossing: true, caps: CAPS },
    Shape { name: "100 different prices", rates: 100, crossing: false, caps: CAPS },
    Shape { name: "one price", rates: 1, crossing: false, caps: CAPS },
];

fn row(n: u32, provider: NodeId, shape: Shape, random: &mut Lcg) -> Row {
    let known = random.below(2) == 0;
    let owner = n / 3;
    let block = if shape.crossing { random.below(4_096) as u32 } else { owner % 4_096 };
    let region = if shape.crossing { random.below(12) as u32 } else { block % 12 };
    Row {
        provider,
        document: Hash::of(&provider.0),
        rate: Rate(500_000 + random.below(shape.rates)),
        slots: random.below(5) as u32,
        valid_until: Timestamp(NOW.0 - 1_000 + random.below(60_000)),
        reliability: known.then(|| Ppm(900_000 + random.below(100_000) as u32)),
        rtt: known.then(|| Millis(random.below(400))),
        traits: random.below(16) | 1,
        domains: Domains { owner: Domain::new(owner), block: Domain::new(block), region: Domain::new(region) },
    }
}

fn want(caps: Caps) -> Want {
    Want {
        bar: Bar { traits: 1, max_rate: Rate(1_400_000), ..Bar::open(NOW) },
        goal: Goal { wanted: WANTED, most: usize::MAX, caps, budget: None },
        duration: Millis(600_000),
        loss: Loss::Tenths(20),
        setup: Cost::ZERO,
        root: Hash([7; 32]),
    }
}

/// Sorts everything, then takes the cheapest first under the caps.
fn naive(rows: &[Row], want: &Want) -> u32 {
    let will_do = |row: &&Row| {
        row.rate <= want.bar.max_rate && row.slots > 0 && row.valid_until >= want.bar.now && row.traits & 1 == 1
    };
    let candidates = rows.iter().filter(will_do).map(|row| Candidate {
        provider: row.provider,
        document: row.document,
        rate: row.rate,
        slots: row.slots,
        reliability: row.reliability,
        rtt: row.rtt,
    });
    let domains: BTreeMap<NodeId, Domains> = rows.iter().map(|row| (row.provider, row.domains)).collect();
    let ranked = rank::rank(candidates.collect(), &want.root, want.duration, want.loss);
    let (mut left, mut used) = (want.goal.wanted, BTreeMap::new());
    for candidate in ranked {
        let kinds = || domains[&candidate.provider].all().into_iter().zip(want.goal.caps.all()).enumerate();
        let room = kinds().filter_map(|(kind, (domain, cap))| Some(cap? - used.get(&(kind, domain)).unwrap_or(&0)));
        let slots = room.min().unwrap_or(u32::MAX).min(candidate.slots).min(left);
        for (kind, (domain, _)) in kinds() {
            *used.entry((kind, domain)).or_insert(0) += slots;
        }
        left -= slots;
        if left == 0 {
            break;
        }
    }
    want.goal.wanted - left
}

/// Time this thread has had a processor, where the kernel tells (Linux); in steps of a few milliseconds.
fn processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().next()?.parse().ok()?))
}

/// How long the runs took.
struct Times {
    p50: Duration,
    p99: Duration,
    /// Time on the processor, the mean of all runs: other programs on the machine do not count in it.
    processor: Duration,
}

fn timed(runs: u32, mut run: impl FnMut()) -> Times {
    run(); // warm
    let before = processor();
    let mut times: Vec<_> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    let mean = times.iter().sum::<Duration>() / runs;
    let processor = processor().zip(before).map_or(mean, |(after, before)| (after - before) / runs);
    times.sort();
    let at = |share: usize| times[(times.len() * share).div_ceil(100) - 1];
    Times { p50: at(50), p99: at(99), processor }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1_000.0
}

fn measure(count: u32, runs: u32, ids: &[NodeId]) {
    println!("\n{count} bids, a pool of {WANTED} slots, {runs} runs; milliseconds");
    println!("{:<24} {:>7} {:>7} {:>15} {:>9} {:>8}", "", "p50", "p99", "processor mean", "sort all", "ratio");
    for shape in SHAPES {
        let mut random = Lcg(u64::from(count));
        let all: Vec<_> = (0..count).map(|n| row(n, ids[n as usize], shape, &mut random)).collect();
        let mut rows = Rows::with_capacity(all.len());
        all.iter().for_each(|row| rows.push(row));
        let want = want(shape.caps);
        let selection = select(&rows, &want, |_| true);
        assert_eq!(selection.cover.slots, WANTED);
        let quick = timed(runs, || {
            black_box(select(black_box(&rows), &want, |_| true));
        });
        let slow = timed((runs / 40).max(3), || {
            black_box(naive(black_box(&all), &want));
        });
        println!(
            "{:<24} {:>7.2} {:>7.2} {:>15.2} {:>9.1} {:>7.1}x  gap {}",
            shape.name,
            ms(quick.p50),
            ms(quick.p99),
            ms(quick.processor),
            ms(slow.processor),
            ms(slow.processor) / ms(quick.processor),
            selection.cover.gap_ppm().map_or_else(|| "unknown".to_owned(), |ppm| format!("{:.3} %", ppm as f64 / 1e4)),
        );
    }
}

/// What real signatures add: those of the finalists, and of all for comparison.
fn verify(count: u32) {
    let keys: Vec<_> = (0..count)
        .map(|n| {
            let mut seed = [0; 32];
            seed[..4].copy_from_slice(&n.to_be_bytes());
            Key::from_seed(&seed)
        })
        .collect();
    let mut random = Lcg(9);
    let (mut rows, mut bids) = (Rows::with_capacity(keys.len()), Vec::new());
    for (n, key) in (0..).zip(&keys) {
        let row = row(n, key.id(), SHAPES[0], &mut random);
        let bid = Bid {
            announcement: Hash([1; 32]),
            renter: NodeId([2; 32]),
            provider: row.provider,
            rate: row.rate,
            slots: row.slots,
            ready_in: Millis::ZERO,
            issued: NOW,
            valid_until: row.valid_until,
        };
        bids.push(Signed::sign(&bid, key).unwrap().into_signed());
        rows.push(&row);
    }
    let want = want(CAPS);
    let check = |place: usize| {
        let row = rows.row(place).unwrap();
        bids[place]
            .verify(&Strict)
            .is_ok_and(|bid| bid.provider == row.provider && bid.rate == row.rate && bid.slots == row.slots)
    };
    let finalists = select(&rows, &want, check).checked;
    let whole = timed(200, || {
        black_box(select(&rows, &want, check));
    });
    let bare = timed(200, || {
        black_box(select(&rows, &want, |_| true));
    });
    let (whole, bare) = (ms(whole.processor), ms(bare.processor));
    let each = (whole - bare) / finalists as f64;
    println!(
        "\n{count} signed bids, {finalists} finalists verified: {whole:.2} ms of processor, {bare:.2} ms of them to choose;"
    );
    println!("{:.0} us a signature, so all of them would take {:.0} ms", each * 1e3, each * f64::from(count));
}

fn main() {
    let mut random = Lcg(1);
    let ids: Vec<_> = (0..1_000_000u32)
        .map(|n| {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            id[4..12].copy_from_slice(&random.below(u64::MAX).to_be_bytes());
            NodeId(id)
        })
        .collect();
    measure(100_000, 200, &ids);
    measure(1_000_000, 30, &ids);
    verify(20_000);
}
