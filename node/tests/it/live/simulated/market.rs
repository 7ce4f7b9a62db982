//! What is run: machines, jobs, and in which order their users want them.

use souk_protocol::{Bytes, Capacity, MilliCpu, Millis, Mode, PriceList, Rate, Tier};
use souk_sim::{Conduct, Machine, Micros, PlannedJob};

/// Nodes that have jobs.
pub(super) const RENTERS: usize = 2;
/// What each provider sells: slots for two tasks. However many cores this machine has, it has one.
pub(super) const SOLD: MilliCpu = MilliCpu(1_000);
const SLOTS: u32 = 2;
/// What a task gets.
const NEED: Capacity = Capacity { cpu: MilliCpu(500), memory: Bytes(16_000_000), disk: Bytes(1_000_000) };
/// Longer than any test.
const ENDLESS: u64 = 3_600_000;

/// Machines and jobs. All of a round's jobs are over, and all machines free, before the next round begins.
pub(super) struct Market {
    pub(super) machines: Vec<Machine>,
    pub(super) rounds: Vec<Vec<Wish>>,
}

/// A job, but for the moments at which it is submitted and cancelled.
pub(super) struct Wish {
    pub(super) name: &'static str,
    pub(super) job: PlannedJob,
    /// Whether its user cancels it once all others of its round are over.
    pub(super) is_cancelled: bool,
    /// Whether the rules alone say who gets it.
    pub(super) is_foretold: bool,
}

impl Wish {
    /// Run time of all its tasks, as far as they may run.
    pub(super) fn run_ms(&self) -> u64 {
        self.job.runs.iter().map(|run| run.to_millis().min(self.job.limit).0).sum()
    }
}

impl Market {
    pub(super) fn new(providers: usize) -> Self {
        let all = SLOTS * u32::try_from(providers).unwrap();
        let wish = |name, job| Wish { name, job, is_cancelled: false, is_foretold: true };
        let slot = |provider| Rate(ask(provider).cpu.0 / 2);
        // Takes the two cheapest machines and keeps them.
        let hold = PlannedJob { limit: Millis(120_000), ..job(0, 2 * SLOTS, ENDLESS, Mode::Ask) };
        let hold = Wish { is_cancelled: true, ..wish("hold", hold) };
        // So this one gets the next two.
        let beside = wish("beside", job(1, 2 * SLOTS, 500, Mode::Ask));
        let late = wish("late", PlannedJob { limit: Millis(1_000), ..job(1, 1, ENDLESS, Mode::Ask) });
        // Pays less than anybody asks.
        let within = Some(Millis(1_000));
        let poor = PlannedJob { max_rate: Some(Rate(1_000)), start_within: within, ..job(0, 1, 500, Mode::Ask) };
        // Pays enough for the cheapest alone, which bids what it asks.
        let cap = Rate((slot(0).0 + slot(1).0) / 2);
        let bid = PlannedJob { max_rate: Some(cap), ..job(1, SLOTS, 500, Mode::Auction) };
        // Twice as many tasks as the market has slots: each goes to whoever is free first.
        let wave = Wish { is_foretold: false, ..wish("wave", job(0, 2 * all, 300, Mode::Auto)) };
        Self {
            machines: (0..providers).map(machine).collect(),
            rounds: vec![vec![hold, beside], vec![late, wish("poor", poor)], vec![wish("bid", bid)], vec![wave]],
        }
    }

    pub(super) fn wishes(&self) -> impl Iterator<Item = &Wish> {
        self.rounds.iter().flatten()
    }
}

/// Prices so far apart that they alone decide who is cheaper.
fn ask(provider: usize) -> PriceList {
    PriceList { cpu: Rate(72_000 * (5 + provider as u64)), memory_gb: Rate(0) }
}

fn machine(provider: usize) -> Machine {
    let ask = ask(provider);
    Machine {
        total: Capacity { cpu: SOLD, memory: Bytes(4_000_000_000), disk: Bytes(4_000_000_000) },
        ask,
        floor: PriceList { cpu: Rate(ask.cpu.0 / 2), ..ask },
        standing: true,
        tiers: Tier::ALL.to_vec(),
        region: 0,
        owner_home: Vec::new(),
        conduct: Conduct::Honest,
    }
}

/// A job of so many tasks, all at once.
fn job(renter: usize, tasks: u32, run_ms: u64, mode: Mode) -> PlannedJob {
    let limit = Millis(30_000);
    let runs = vec![Micros::millis(run_ms); tasks as usize];
    PlannedJob { limit, mode, ..PlannedJob::plain(renter, Micros(0), NEED, runs) }
}
