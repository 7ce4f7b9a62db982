//! What came of the market, and how two of them compare.

use std::{collections::BTreeMap, fmt::Write as _};

use souk_protocol::Rate;

use super::market::{Market, RENTERS, Wish};

/// What came of a market.
#[derive(Debug)]
pub(super) struct Came {
    /// By job.
    pub(super) jobs: Vec<Job>,
    /// What each provider is owed, in millionths of a credit.
    pub(super) earned: Vec<u64>,
    /// Messages that arrived, by node, renters first.
    pub(super) heard: Vec<u64>,
}

/// What came of a job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) end: String,
    pub(super) done: u64,
    pub(super) attempts: u64,
    pub(super) leases: Vec<Lease>,
    /// What its renter says it costs.
    pub(super) cost: u64,
    /// From submission to the first task's start.
    pub(super) wait_ms: Option<u64>,
    /// From submission to the end.
    pub(super) whole_ms: u64,
}

/// What came of a lease.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) provider: usize,
    pub(super) rate: Rate,
    /// Attempts owed for, their run time and what is owed.
    pub(super) billed: u64,
    pub(super) run_ms: u64,
    pub(super) paid: u64,
    /// Whether both sides signed its receipt.
    pub(super) receipt: bool,
}

impl Job {
    fn run_ms(&self) -> u64 {
        self.leases.iter().map(|lease| lease.run_ms).sum()
    }

    fn billed(&self) -> u64 {
        self.leases.iter().map(|lease| lease.billed).sum()
    }

    /// Who was paid for how many attempts at which price of a slot.
    fn placed(&self) -> BTreeMap<(usize, Rate), u64> {
        let mut placed = BTreeMap::new();
        for lease in self.leases.iter().filter(|lease| lease.billed > 0) {
            *placed.entry((lease.provider, lease.rate)).or_default() += lease.billed;
        }
        placed
    }
}

impl Came {
    /// What must hold of each of the two by itself.
    fn assert_sound(&self) {
        for job in &self.jobs {
            assert!(job.leases.iter().all(|lease| lease.receipt), "{job:?}");
            for lease in &job.leases {
                let charge = lease.rate.charge(souk_protocol::Millis(lease.run_ms)).unwrap();
                assert_eq!(charge.0, lease.paid, "{lease:?}");
            }
            assert_eq!(job.leases.iter().map(|lease| lease.paid).sum::<u64>(), job.cost, "{job:?}");
        }
        let mut earned = vec![0; self.earned.len()];
        for lease in self.jobs.iter().flat_map(|job| &job.leases) {
            earned[lease.provider] += lease.paid;
        }
        assert_eq!(earned, self.earned);
    }

    /// Messages that arrived at a renter and at a provider, in the mean.
    fn messages(&self) -> [f64; 2] {
        let (renters, providers) = self.heard.split_at(RENTERS);
        [renters, providers].map(|heard| heard.iter().sum::<u64>() as f64 / heard.len() as f64)
    }
}

/// What the rules determine is the same.
pub(super) fn assert_equal(market: &Market, real: &Came, simulated: &Came) {
    real.assert_sound();
    simulated.assert_sound();
    for ((wish, real), simulated) in market.wishes().zip(&real.jobs).zip(&simulated.jobs) {
        let facts = |job: &Job| (job.end.clone(), job.done, job.billed());
        assert_eq!(facts(real), facts(simulated), "{}: {real:?}, {simulated:?}", wish.name);
        if !wish.is_cancelled {
            // A real task sleeps as long as it is told or longer.
            let planned = if real.billed() > 0 { wish.run_ms() } else { 0 };
            assert!(simulated.run_ms() == planned && real.run_ms() >= planned, "{planned}: {real:?}, {simulated:?}");
        }
        if wish.is_foretold {
            assert_eq!(
                (real.attempts, real.placed()),
                (simulated.attempts, simulated.placed()),
                "{}: {real:?}, {simulated:?}",
                wish.name
            );
        }
    }
}

/// What the machine decides is of the same order, however busy it is with other things.
pub(super) fn assert_near(real: &Came, simulated: &Came) {
    let near = |what: &str, real: f64, simulated: f64, factor: f64| {
        let ratio = real / simulated;
        assert!(ratio < factor && ratio > 1.0 / factor, "{what}: {real} really, {simulated} simulated");
    };
    for (real, simulated) in real.jobs.iter().zip(&simulated.jobs) {
        if let (Some(waited), Some(wait)) = (real.wait_ms, simulated.wait_ms) {
            near("wait", waited as f64 + 1.0, wait as f64 + 1.0, 300.0);
        }
        near("makespan", real.whole_ms as f64, simulated.whole_ms as f64, 20.0);
        near("run time", real.run_ms() as f64 + 1.0, simulated.run_ms() as f64 + 1.0, 5.0);
    }
    for (real, simulated) in real.messages().into_iter().zip(simulated.messages()) {
        near("messages a node", real, simulated, 3.0);
    }
}

/// Both side by side: real, simulated, and by how much the real one is more.
pub(super) fn table(market: &Market, real: &Came, simulated: &Came) -> String {
    let nodes = real.heard.len();
    let mut text = format!("{nodes} nodes: really, simulated, difference\n");
    let _ = writeln!(
        text,
        "{:8} {:10} {:>7} {:>6} | {:^21} | {:^21} | {:^21} | {:^21}",
        "job", "end", "done", "leases", "wait until start, ms", "makespan, ms", "run time billed, ms", "cost, µCR"
    );
    for ((Wish { name, job: planned, .. }, real), simulated) in market.wishes().zip(&real.jobs).zip(&simulated.jobs) {
        let columns = [
            (real.wait_ms.unwrap_or(0), simulated.wait_ms.unwrap_or(0)),
            (real.whole_ms, simulated.whole_ms),
            (real.run_ms(), simulated.run_ms()),
            (real.cost, simulated.cost),
        ];
        let columns = columns.map(|(real, simulated)| both(real as f64, simulated as f64, 0));
        let done = format!("{}/{}", real.done, planned.runs.len());
        let leases = format!("{}/{}", real.leases.len(), simulated.leases.len());
        let _ = writeln!(text, "{name:8} {:10} {done:>7} {leases:>6} | {}", real.end, columns.join(" | "));
    }
    for (side, (real, simulated)) in
        ["renter", "provider"].into_iter().zip(real.messages().into_iter().zip(simulated.messages()))
    {
        let _ = writeln!(text, "messages a {side:8} {}", both(real, simulated, 1));
    }
    let all = |came: &Came| came.heard.iter().sum::<u64>() as f64 / nodes as f64;
    let _ = writeln!(text, "messages a node     {}", both(all(real), all(simulated), 1));
    let cost = |came: &Came| came.earned.iter().sum::<u64>() as f64;
    let _ = writeln!(text, "cost of all, µCR    {}", both(cost(real), cost(simulated), 0));
    text
}

fn both(real: f64, simulated: f64, places: usize) -> String {
    let more = if simulated > 0.0 { format!("{:+.0}%", (real / simulated - 1.0) * 100.0) } else { String::new() };
    format!("{real:>7.places$} {simulated:>6.places$} {more:>6}")
}
