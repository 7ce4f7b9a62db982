//! Scenarios as files: what a researcher writes, names and shares.

use std::sync::Arc;

use souk_protocol::{Bytes, Credits, MilliCpu, Millis, Params, Ppm, Rate, Tier, job_file::Problem};

use crate::{
    churn::Churn,
    plan::Plan,
    random::MILLION,
    region::Regions,
    scenario::{Discovery, Engine, Faults, Latency, PlannedCut, Scenario, Workload},
    study::StudyPlan,
    time::Micros,
};

mod generate;
mod read;
mod reader;
mod study;

/// Largest scenario file, in bytes.
pub const MAX_SCENARIO_FILE: usize = 64 * 1024;
/// Most nodes of a run: what one machine can hold.
pub const MAX_NODES: usize = 1_000_000;
/// Most tasks of a run.
pub const MAX_TASKS: u64 = 20_000_000;

/// A scenario as its file says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScenarioFile {
    /// Its name.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// Longest virtual time of a run.
    pub duration: Millis,
    /// How many seeds make a result.
    pub seeds: u32,
    /// Policies compared on the same machines and jobs; `souk` is the market itself.
    pub policies: Vec<String>,
    /// Nodes in all.
    pub nodes: usize,
    /// Those that have jobs: the first.
    pub renters: usize,
    /// Those that sell: the last.
    pub providers: usize,
    /// Where nodes are.
    pub regions: Regions,
    /// Offers that a renter hears of, at most; a bounded sample that is refreshed.
    pub known: usize,
    /// Most a provider lets a stranger owe.
    pub stranger_limit: Credits,
    /// What is for sale.
    pub machines: Machines,
    /// What is wanted.
    pub jobs: Jobs,
    /// What goes wrong with messages, in millionths: lost, repeated, overtaking.
    pub messages: (Ppm, Ppm, Ppm),
    /// Nodes that leave and come back.
    pub churn: Option<Churn>,
    /// Cuts through the network.
    pub cuts: Vec<PlannedCut>,
    /// A study of policies, in place of the machines and jobs.
    pub study: Option<StudyPlan>,
}

/// What is for sale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machines {
    /// Sizes in cores, and how many parts of the providers have each.
    pub cores: Vec<(u64, u64)>,
    /// Memory for each core.
    pub memory: Bytes,
    /// Median price of a core.
    pub ask: Rate,
    /// Spread of prices: the sigma of a log-normal distribution, in thousandths.
    pub spread: u32,
    /// The floor, as a share of the ask.
    pub floor: Ppm,
    /// Share of providers whose ask stands in their offers.
    pub standing: Ppm,
    /// Share of providers that ask a third and let half of their work fail.
    pub lowballers: Ppm,
    /// Share of providers that sell three times what they have.
    pub oversellers: Ppm,
    /// Machines whose owners come home.
    pub owners: Option<Owners>,
}

/// Owners who want their machines back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owners {
    /// Share of the providers.
    pub share: Ppm,
    /// Mean time between two returns.
    pub away: Millis,
    /// Mean time at the machine.
    pub home: Millis,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jobs {
    /// Tasks in all.
    pub tasks: u64,
    /// Mean number of tasks of a job.
    pub per_job: u64,
    /// Jobs are submitted until then.
    pub over: Millis,
    /// Median run time of a task.
    pub run: Millis,
    /// Spread of run times: the sigma of a log-normal distribution, in thousandths.
    pub spread: u32,
    /// Shortest and longest run time.
    pub bounds: (Millis, Millis),
    /// Time limits as multiples of the longest task of the job, each as likely as any other.
    pub estimates: Vec<u64>,
    /// Cores of a slot, and how many parts of the jobs ask for each.
    pub cores: Vec<(MilliCpu, u64)>,
    /// Memory for each core.
    pub memory: Bytes,
    /// Tiers, and how many parts of the jobs ask for each.
    pub tiers: Vec<(Tier, u64)>,
    /// Most that is paid for a core, as a multiple of the median ask in thousandths; median and spread.
    pub worth: Option<(u32, u32)>,
    /// A job that has not started after so long is given up.
    pub patience: Option<Millis>,
    /// Share of jobs that are cancelled.
    pub cancelled: Ppm,
}

impl ScenarioFile {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// All that is wrong with it, in the order of the lines.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        read::read(text)
    }

    /// The same market with another number of nodes: renters, providers and tasks in proportion.
    ///
    /// # Errors
    /// If there would be too few or too many.
    pub fn with_nodes(mut self, nodes: usize) -> Result<Self, String> {
        if !(2..=MAX_NODES).contains(&nodes) {
            return Err(format!("{nodes} nodes: from 2 to {MAX_NODES} are possible"));
        }
        let scaled = |part: usize| {
            let scaled = (part as u128 * nodes as u128).div_ceil(self.nodes.max(1) as u128);
            usize::try_from(scaled).unwrap_or(usize::MAX).clamp(1, nodes)
        };
        let tasks = u128::from(self.jobs.tasks) * nodes as u128 / self.nodes.max(1) as u128;
        (self.renters, self.providers) = (scaled(self.renters), scaled(self.providers));
        self.jobs.tasks = u64::try_from(tasks).unwrap_or(u64::MAX).clamp(1, MAX_TASKS);
        self.nodes = nodes;
        Ok(self)
    }

    /// Machines and jobs of a seed.
    #[must_use]
    pub fn plan(&self, seed: u64) -> Plan {
        generate::plan(self, seed)
    }

    /// The market of a seed, ready to run. `plan` is what [`plan`](Self::plan) gives, or a trace.
    #[must_use]
    pub fn scenario(&self, plan: Arc<Plan>) -> Scenario {
        let mut params = Params::default();
        params.credit.stranger = self.stranger_limit;
        params.credit.strangers = Credits(self.stranger_limit.0.saturating_mul(10_000));
        let (loss, duplicated, reordered) = self.messages;
        Scenario {
            name: self.name.clone(),
            nodes: self.nodes,
            renters: self.renters,
            providers: self.providers,
            workload: Workload::Plan(plan),
            latency: Latency::Regions(Arc::new(self.regions.clone())),
            discovery: Discovery::Sample { known: self.known },
            engine: Engine::Light,
            params,
            stranger_limit: self.stranger_limit,
            discharge_every: None,
            faults: Faults {
                loss: loss.0.min(MILLION),
                duplicated: duplicated.0,
                reordered: reordered.0,
                ..Faults::NONE
            },
            churn: self.churn,
            cuts: self.cuts.clone(),
            // Whoever is away then comes back, so that what is open can be closed.
            faults_until: Micros(Micros::from(self.duration).0 / 10 * 9),
            duration: Micros::from(self.duration),
            broken: None,
        }
    }
}
