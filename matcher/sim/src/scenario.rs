//! What is simulated: how many nodes, which jobs, which faults.

use std::sync::Arc;

use souk_protocol::{Credits, Millis, Params};

use crate::{churn::Churn, plan::Plan, region::Regions, time::Micros};

/// A market and its misfortunes. With a seed it is one exact run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name, for people.
    pub name: String,
    /// Nodes in all.
    pub nodes: usize,
    /// The first so many of them have jobs.
    pub renters: usize,
    /// The last so many of them sell. Both kinds may overlap.
    pub providers: usize,
    /// Who wants what and who sells what.
    pub workload: Workload,
    /// How long messages take.
    pub latency: Latency,
    /// How offers become known.
    pub discovery: Discovery,
    /// How much is looked at.
    pub engine: Engine,
    /// Rules of the network.
    pub params: Params,
    /// Most a provider lets a stranger owe. Discharges come every so often, so that a market can go on.
    pub stranger_limit: Credits,
    /// How often a provider discharges what one renter owes it.
    pub discharge_every: Option<Micros>,
    /// What goes wrong.
    pub faults: Faults,
    /// Providers that leave and come back.
    pub churn: Option<Churn>,
    /// Cuts through the network at planned times.
    pub cuts: Vec<PlannedCut>,
    /// No fault begins after this.
    pub faults_until: Micros,
    /// By then everything must have come to rest.
    pub duration: Micros,
    /// A rule broken on purpose, to show that the invariants see it.
    pub broken: Option<Broken>,
}

/// How long messages take.
#[derive(Debug, Clone)]
pub enum Latency {
    /// Every pair of nodes is near or far for good, whatever other pairs are.
    Scattered,
    /// By the regions of the nodes; some cannot be dialled.
    Regions(Arc<Regions>),
}

/// How offers become known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discovery {
    /// Every node hears of every offer, and asks others for what it missed.
    Gossip,
    /// Every renter hears the offers of a bounded sample of providers, as if it followed some shards of the topic.
    Sample {
        /// How many.
        known: usize,
    },
}

/// How much is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Every message and record goes through its bytes, journals are kept, replayed at the end and hashed into the digest.
    Exact,
    /// Messages and records are passed on as they are, journals are kept only of nodes that will be killed, and leases that
    /// both sides have closed are checked and forgotten: for many nodes.
    Light,
}

/// A cut at a planned time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCut {
    /// When.
    pub at: Micros,
    /// For how long.
    pub length: Micros,
    /// What is cut off.
    pub side: CutSide,
    /// Whether messages into it still arrive.
    pub one_way: bool,
}

/// What a cut separates from the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CutSide {
    /// A region, by its number.
    Region(usize),
    /// So many nodes, in millionths of all, thrown anew for each seed.
    Share(u32),
}

/// Where jobs and machines come from.
#[derive(Debug, Clone)]
pub enum Workload {
    /// Jobs and machines of all kinds, thrown anew for each seed: what the rules are tried with.
    Mixed(Mixed),
    /// These, and no others.
    Plan(Arc<Plan>),
}

impl Workload {
    /// Jobs in all.
    #[must_use]
    pub fn jobs(&self) -> usize {
        match self {
            Self::Mixed(mixed) => mixed.jobs,
            Self::Plan(plan) => plan.jobs.len(),
        }
    }

    /// All jobs have been submitted by then.
    #[must_use]
    pub fn submit_until(&self) -> Micros {
        match self {
            Self::Mixed(mixed) => mixed.submit_until,
            Self::Plan(plan) => plan.jobs.iter().map(|job| job.at).max().unwrap_or_default(),
        }
    }
}

/// Bounds of jobs that are thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixed {
    /// Jobs in all.
    pub jobs: usize,
    /// Most tasks of one job.
    pub max_tasks: u64,
    /// Longest run of an ordinary task.
    pub longest_task: Micros,
    /// Tasks that fail, run out of time or memory or lack an input, in millionths.
    pub bad_tasks: u32,
    /// Jobs that are cancelled at some time, in millionths.
    pub cancelled: u32,
    /// Jobs with a budget, in millionths.
    pub budgeted: u32,
    /// Jobs of silver and gold, in millionths; half of the gold ones are reserved ahead. Bronze has a notice then.
    pub tiered: u32,
    /// Jobs are submitted until then.
    pub submit_until: Micros,
}

/// What goes wrong, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Messages lost on a good connection, in millionths.
    pub loss: u32,
    /// Messages that arrive twice, the second time perhaps much later.
    pub duplicated: u32,
    /// Messages that may overtake others.
    pub reordered: u32,
    /// Kills of a node, in all.
    pub crashes: usize,
    /// Shortest and longest time a killed node is away.
    pub away: (Micros, Micros),
    /// Cuts through the network, some of them one-way.
    pub cuts: usize,
    /// Longest cut.
    pub longest_cut: Micros,
    /// Connections that break.
    pub disconnects: usize,
    /// Longest time a sync of the disk takes.
    pub slowest_sync: Micros,
    /// Outputs that cannot be collected though they should be there, in millionths.
    pub uncollectable: u32,
    /// How far an ordinary clock is off, at most.
    pub skew: Millis,
    /// Nodes whose clock is off by more than the network allows.
    pub bad_clocks: usize,
    /// Providers that drain for a while.
    pub drains: usize,
    /// Owners that come home: they take their machine, and give it back later.
    pub owners: usize,
    /// Changes of a provider's terms. Each time it also trusts some renter with ten times the stranger's limit.
    pub policies: usize,
    /// Wall clocks that jump by up to an hour, for good.
    pub jumps: usize,
    /// Messages that a liar repeats, as its own, to somebody, in millionths. The last node is the liar.
    pub lies: u32,
    /// Renters, from the first on, that take results and never say a word of payment.
    pub deadbeats: usize,
    /// Providers, from the last on, that take tasks and never deliver.
    pub silent: usize,
}

impl Mixed {
    /// Jobs of all kinds, within a minute.
    pub const MARKET: Self = Self {
        jobs: 18,
        max_tasks: 200,
        longest_task: Micros::millis(6_000),
        bad_tasks: 60_000,
        cancelled: 120_000,
        budgeted: 300_000,
        tiered: 0,
        submit_until: Micros::millis(60_000),
    };
}

impl Faults {
    /// Nothing goes wrong: good disks, good clocks, a network that only takes its time.
    pub const NONE: Self = Self {
        loss: 0,
        duplicated: 0,
        reordered: 0,
        crashes: 0,
        away: (Micros(0), Micros(0)),
        cuts: 0,
        longest_cut: Micros(0),
        disconnects: 0,
        slowest_sync: Micros::millis(5),
        uncollectable: 0,
        skew: Millis(0),
        bad_clocks: 0,
        drains: 0,
        owners: 0,
        policies: 0,
        jumps: 0,
        lies: 0,
        deadbeats: 0,
        silent: 0,
    };
}

/// A rule broken on purpose: what an invariant is worth shows when it is violated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// What waits for the disk is said at once.
    SpeaksBeforeJournal,
    /// The disk loses the newest records that it had acknowledged when the node is killed.
    LyingDisk {
        /// How many.
        records: usize,
    },
    /// A replay leaves out records of one kind.
    ReplaySkips(RecordKind),
    /// The executor claims twice the time that a task ran.
    Overclaims,
    /// The owner promises twice the machine.
    Oversells,
    /// The rules see a budget ten times the user's.
    BlindToBudget,
    /// The rules see a credit limit a thousand times the owner's.
    BlindToCredit,
    /// Timers never fire.
    Deaf,
    /// Outputs are said to be held that are not.
    SaysHeld,
}

/// Kinds of records, for [`Broken::ReplaySkips`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// Acceptances of a provider.
    Accepted,
    /// Verdicts of a renter.
    Result,
    /// Results of a provider.
    Delivered,
    /// Vouchers at a provider.
    Settled,
    /// Leases of a renter.
    Lease,
    /// Ends of jobs.
    JobEnded,
}

impl Scenario {
    /// A quiet little market in which everything can be foretold.
    #[must_use]
    pub fn smoke() -> Self {
        Self {
            name: "smoke".to_owned(),
            nodes: 6,
            renters: 2,
            providers: 4,
            workload: Workload::Mixed(Mixed {
                jobs: 4,
                max_tasks: 20,
                longest_task: Micros::millis(2_000),
                bad_tasks: 0,
                cancelled: 0,
                budgeted: 0,
                tiered: 0,
                submit_until: Micros::millis(5_000),
            }),
            latency: Latency::Scattered,
            discovery: Discovery::Gossip,
            engine: Engine::Exact,
            params: params(),
            stranger_limit: Credits::from_credits(1),
            discharge_every: None,
            faults: Faults::NONE,
            churn: None,
            cuts: Vec::new(),
            faults_until: Micros(0),
            duration: Micros::millis(300_000),
            broken: None,
        }
    }

    /// Fifty nodes and everything that can go wrong.
    #[must_use]
    pub fn market() -> Self {
        Self {
            name: "market".to_owned(),
            nodes: 50,
            renters: 12,
            providers: 40,
            workload: Workload::Mixed(Mixed::MARKET),
            latency: Latency::Scattered,
            discovery: Discovery::Gossip,
            engine: Engine::Exact,
            params: params(),
            stranger_limit: Credits(50_000),
            discharge_every: Some(Micros::millis(20_000)),
            faults: Faults {
                loss: 15_000,
                duplicated: 20_000,
                reordered: 100_000,
                crashes: 14,
                away: (Micros::millis(150), Micros::millis(80_000)),
                cuts: 4,
                longest_cut: Micros::millis(90_000),
                disconnects: 30,
                slowest_sync: Micros::millis(120),
                uncollectable: 10_000,
                skew: Millis(700),
                bad_clocks: 2,
                drains: 1,
                policies: 3,
                jumps: 1,
                ..Faults::NONE
            },
            churn: None,
            cuts: Vec::new(),
            faults_until: Micros::millis(100_000),
            duration: Micros::millis(1_800_000),
            broken: None,
        }
    }

    /// A few nodes that are killed, cut off and confused all the time.
    #[must_use]
    pub fn storm() -> Self {
        let market = Self::market();
        Self {
            name: "storm".to_owned(),
            nodes: 12,
            renters: 4,
            providers: 10,
            workload: Workload::Mixed(Mixed { jobs: 10, max_tasks: 60, cancelled: 200_000, ..Mixed::MARKET }),
            faults: Faults {
                loss: 80_000,
                duplicated: 100_000,
                reordered: 400_000,
                crashes: 60,
                away: (Micros::millis(50), Micros::millis(40_000)),
                cuts: 8,
                longest_cut: Micros::millis(30_000),
                disconnects: 120,
                slowest_sync: Micros::millis(1_500),
                uncollectable: 50_000,
                bad_clocks: 1,
                ..market.faults
            },
            ..market
        }
    }

    /// A market where nobody lends much and nobody spends much.
    #[must_use]
    pub fn thrifty() -> Self {
        let market = Self::market();
        Self {
            name: "thrifty".to_owned(),
            nodes: 16,
            renters: 8,
            providers: 10,
            workload: Workload::Mixed(Mixed { jobs: 16, max_tasks: 60, budgeted: 800_000, ..Mixed::MARKET }),
            stranger_limit: Credits(5_000),
            discharge_every: Some(Micros::millis(5_000)),
            faults: Faults { crashes: 12, cuts: 2, disconnects: 20, ..market.faults },
            ..market
        }
    }

    /// A market with a liar, renters that do not pay and providers that do not deliver.
    #[must_use]
    pub fn crooked() -> Self {
        let market = Self::market();
        Self {
            name: "crooked".to_owned(),
            nodes: 20,
            renters: 6,
            providers: 14,
            workload: Workload::Mixed(Mixed { jobs: 12, max_tasks: 60, ..Mixed::MARKET }),
            stranger_limit: Credits(20_000),
            faults: Faults { crashes: 4, cuts: 1, lies: 100_000, deadbeats: 1, silent: 2, jumps: 2, ..market.faults },
            // An attempt of which nothing is heard, though its provider is there, is given up after ten minutes.
            duration: Micros::millis(30_000_000),
            ..market
        }
    }

    /// Few machines, and all tiers want them: reservations, preemption, owners that come home.
    #[must_use]
    pub fn tiered() -> Self {
        let market = Self::market();
        Self {
            name: "tiered".to_owned(),
            nodes: 12,
            renters: 6,
            providers: 6,
            workload: Workload::Mixed(Mixed { jobs: 24, max_tasks: 40, tiered: 600_000, ..Mixed::MARKET }),
            stranger_limit: Credits::from_credits(1),
            // A reservation is kept by the wall clock, so none may jump.
            faults: Faults { crashes: 3, cuts: 1, disconnects: 10, drains: 0, jumps: 0, owners: 4, ..market.faults },
            ..market
        }
    }

    /// The node that repeats, as its own, what it hears.
    #[must_use]
    pub fn liar(&self) -> Option<usize> {
        (self.faults.lies > 0).then(|| self.nodes.saturating_sub(1))
    }

    /// Whether this node never says a word of payment.
    #[must_use]
    pub const fn is_deadbeat(&self, node: usize) -> bool {
        node < self.faults.deadbeats
    }

    /// Whether this node never delivers.
    #[must_use]
    pub fn is_silent(&self, node: usize) -> bool {
        let last = self.liar().unwrap_or(self.nodes);
        node < last && node + self.faults.silent >= last
    }
}

/// The rules of the simulated network: as shipped, but for a limit for all strangers that lets them all in.
fn params() -> Params {
    let mut params = Params::default();
    params.credit.strangers = Credits::from_credits(100);
    params.credit.stranger = Credits::from_credits(1);
    params
}
