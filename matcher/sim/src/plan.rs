//! What a market is given: machines and jobs as plain lists. Every policy that is compared gets the same ones.
//!
//! Where the lists come from is no concern of the engine: a generator, a trace or a test fills them.

use souk_protocol::{Capacity, Credits, Millis, Mode, PriceList, Rate, Tier};

use crate::time::Micros;

/// Machines and jobs of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is for sale. The first is that of the first providing node: node `nodes - machines.len()`.
    pub machines: Vec<Machine>,
    /// What is wanted, in the order of submission.
    pub jobs: Vec<PlannedJob>,
}

impl Plan {
    /// Sorts the jobs by the time of their submission; those of one moment keep their order.
    pub fn sort(&mut self) {
        self.jobs.sort_by_key(|job| job.at);
    }

    /// Tasks of all jobs.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.jobs.iter().map(|job| job.runs.len() as u64).sum()
    }
}

/// One provider's machine and terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Everything on sale. A trace's GPUs are sold as processors: a whole one is 1,000 milli.
    pub total: Capacity,
    /// Accepted at once, and the starting point of bids.
    pub ask: PriceList,
    /// Never less than this.
    pub floor: PriceList,
    /// Whether the ask stands in the offer, or the node only bids.
    pub standing: bool,
    /// Tiers served.
    pub tiers: Vec<Tier>,
    /// Number of its region in the scenario's network.
    pub region: usize,
    /// When the owner wants the machine back, from and until; in order, without overlaps.
    pub owner_home: Vec<(Micros, Micros)>,
    /// How it keeps its promises.
    pub conduct: Conduct,
}

/// How a provider keeps its promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conduct {
    /// As well as it can.
    #[default]
    Honest,
    /// Asks little, then lets half of what it was awarded fail.
    Lowballer,
    /// Sells more than it has: what does not fit into the machine fails.
    Oversells {
        /// What it claims, in thousandths of what it has.
        thousandths: u32,
    },
}

/// One job as it is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedJob {
    /// Number of the renter: below the scenario's `renters`.
    pub renter: usize,
    /// When its user submits it.
    pub at: Micros,
    /// The tier it asks for.
    pub tier: Tier,
    /// What a slot must have.
    pub need: Capacity,
    /// How long each task runs on any machine.
    pub runs: Vec<Micros>,
    /// The longest an attempt may run, as the renter states it: its estimate.
    pub limit: Millis,
    /// Tasks that may run at once, at least 1.
    pub parallel: u32,
    /// Attempts a task may have, at least 1.
    pub attempts: u32,
    /// How slots are bought.
    pub mode: Mode,
    /// Most that is paid for a slot.
    pub max_rate: Option<Rate>,
    /// Most that is paid for the job.
    pub budget: Option<Credits>,
    /// How long before it is stopped for others it is told, if its tier can be.
    pub notice: Millis,
    /// When its slots are wanted, if not at once: reserved until then.
    pub start_at: Option<Micros>,
    /// Given up if nothing has started so long after submission.
    pub start_within: Option<Millis>,
    /// When its user has enough of it, if ever.
    pub cancel_at: Option<Micros>,
}

impl PlannedJob {
    /// A bronze job without limits but its tasks: `mode = auto`, all tasks at once, three attempts, a time limit of twice
    /// the longest task.
    #[must_use]
    pub fn plain(renter: usize, at: Micros, need: Capacity, runs: Vec<Micros>) -> Self {
        let longest = runs.iter().max().copied().unwrap_or_default();
        let limit = Millis(longest.to_millis().0.saturating_mul(2).max(1));
        let parallel = u32::try_from(runs.len()).unwrap_or(u32::MAX).max(1);
        Self {
            renter,
            at,
            tier: Tier::Bronze,
            need,
            runs,
            limit,
            parallel,
            attempts: 3,
            mode: Mode::Auto,
            max_rate: None,
            budget: None,
            notice: Millis(0),
            start_at: None,
            start_within: None,
            cancel_at: None,
        }
    }
}
