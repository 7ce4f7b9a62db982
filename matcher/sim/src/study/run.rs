//! A whole study: every policy on the same demand, at several loads, over several seeds, with what was aimed at.

use std::{
    fmt,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use serde::Serialize;
use souk_protocol::Millis;

use super::{
    compare,
    demand::{Demand, Fleet, LONGEST, Values},
    measure::{Estimate, Figures},
    policy::{Instance, optimum, play},
    souk::{Market, souk},
    synthetic,
    table::percent,
    trace_file,
};
use crate::random::MILLION;

/// Jobs of a small instance: few enough to find the optimum by looking at everything.
const SMALL: usize = 9;
/// Of the synthetic demand so many times the jobs of a window are made, for windows to lie in.
const SYNTHETIC_TIMES: usize = 2;

/// Where a trace lies and what of it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The folder with the files.
    pub folder: PathBuf,
    /// Run times of the other cluster in place of the trace's own.
    pub other_runtimes: bool,
    /// The fleet of the cluster with spot work in place of the trace's own.
    pub spot_fleet: bool,
}

/// What is studied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StudyPlan {
    /// A trace; `None` for the synthetic generator.
    pub trace: Option<Trace>,
    /// Jobs of a run: so many in a row, from a place that depends on the seed.
    pub jobs: usize,
    /// GPUs of the fleet, about.
    pub gpus: u64,
    /// Offered loads, in millionths of the capacity.
    pub loads: Vec<u64>,
    /// The first seed.
    pub first_seed: u64,
    /// How many. Ten make bounds worth printing.
    pub seeds: u64,
    /// Small instances on which policies are compared with the optimum.
    pub instances: u64,
    /// What GPU hours cost and are worth.
    pub values: Values,
    /// How the market is set up.
    pub market: Market,
    /// The policies beside `souk`, by name.
    pub policies: Vec<String>,
}

impl Default for StudyPlan {
    /// Two days on 32 GPUs, or so, ten times.
    fn default() -> Self {
        Self {
            trace: None,
            jobs: 2_000,
            gpus: 32,
            loads: vec![700_000, 900_000, 1_100_000],
            first_seed: 1,
            seeds: 10,
            instances: 100,
            values: Values::default(),
            market: Market::default(),
            policies: compare::NAMES.iter().map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// Figures of all policies at one load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AtLoad {
    /// The load, in millionths.
    pub load: u64,
    /// Time between the first arrival and the last, on average.
    pub span: Millis,
    /// By policy, `souk` first: its name and the figures of each seed.
    pub policies: Vec<(String, Vec<Figures>)>,
}

/// How near a policy comes to the best that could be done with small instances.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Efficiency {
    /// The policy.
    pub policy: String,
    /// Welfare over that of the optimum, in millionths, over all instances.
    pub share: u64,
    /// Instances in which it came within 5 % of the optimum.
    pub near: u64,
}

/// What was hoped for, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Aim {
    /// Of what.
    pub what: String,
    /// As it was set.
    pub aim: &'static str,
    /// What was reached, for people.
    pub reached: String,
    /// Whether that is the aim; `None` where nothing was set.
    pub met: Option<bool>,
}

/// What must never happen and did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// At this load, in millionths.
    pub load: u64,
    /// In the run of this seed.
    pub seed: u64,
    /// The invariant, and who or what broke it.
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "broken at load {} %, seed {}: {}", percent(self.load), self.seed, self.what)
    }
}

/// What came of a study.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Study {
    /// What was simulated and how, in a line: never shown without.
    pub label: String,
    /// Remarks on the demand and the model.
    pub notes: Vec<String>,
    /// By load.
    pub loads: Vec<AtLoad>,
    /// On small instances.
    pub efficiency: Vec<Efficiency>,
    /// How many of them.
    pub instances: u64,
    /// Invariants of the market that did not hold.
    pub broken: Vec<Broken>,
}

/// The demand that windows are cut from, and the machines that fleets are sampled from.
struct Source {
    demand: Demand,
    nodes: Vec<(String, u64)>,
    fleet: String,
}

impl StudyPlan {
    /// Runs it, on all processors.
    ///
    /// # Errors
    /// If a trace cannot be used.
    pub fn run(&self) -> Result<Study, trace_file::TraceError> {
        let source = self.source()?;
        let seeds: Vec<u64> = (self.first_seed..self.first_seed.saturating_add(self.seeds)).collect();
        let runs: Vec<_> = self.loads.iter().flat_map(|load| seeds.iter().map(move |seed| (*load, *seed))).collect();
        let mut results = on_all_processors(&runs, |(load, seed)| self.once(&source, *load, *seed)).into_iter();
        let mut names = vec!["souk".to_owned()];
        names.extend(self.policies.iter().cloned());
        let mut left_out = source.demand.left_out;
        let (mut loads, mut broken) = (Vec::new(), Vec::new());
        for load in &self.loads {
            let mut policies: Vec<_> = names.iter().map(|name| (name.clone(), Vec::new())).collect();
            let mut span = 0;
            for (seed, run) in seeds.iter().zip(results.by_ref()) {
                span += run.span.0;
                broken.extend(run.broken.into_iter().map(|what| Broken { load: *load, seed: *seed, what }));
                left_out.too_wide = left_out.too_wide.max(run.too_wide);
                for ((_, figures), of) in policies.iter_mut().zip(run.figures) {
                    figures.push(of);
                }
            }
            let span = Millis(span.checked_div(seeds.len() as u64).unwrap_or(0));
            loads.push(AtLoad { load: *load, span, policies });
        }
        let mut notes = self.notes(&source);
        if self.trace.is_some() {
            notes.push(format!(
                "left out of the trace: {} rows without times, {} without GPU, {} from before its last 30 days, up to {} of \
                 a window too wide for the fleet; {} run times cut to {} h",
                left_out.without_times,
                left_out.without_gpu,
                left_out.early,
                left_out.too_wide,
                left_out.cut,
                LONGEST.0 / 3_600_000
            ));
        }
        let label = format!(
            "simulated (seeds {}-{}, {})",
            self.first_seed,
            self.first_seed.saturating_add(self.seeds).saturating_sub(1),
            source.demand.source
        );
        Ok(Study { label, notes, loads, efficiency: self.small(), instances: self.instances, broken })
    }

    fn source(&self) -> Result<Source, trace_file::TraceError> {
        let Some(trace) = &self.trace else {
            return Ok(Source {
                demand: synthetic::demand(self.first_seed, self.jobs * SYNTHETIC_TIMES, &self.values),
                nodes: synthetic::nodes(),
                fleet: "the mix of a large GPU cluster".to_owned(),
            });
        };
        let mut demand = trace_file::pods(&trace.folder, self.first_seed, &self.values)?;
        if trace.other_runtimes {
            demand = demand.with_runtimes(self.first_seed, &trace_file::runtimes(&trace.folder)?);
        }
        let (nodes, fleet) = if trace.spot_fleet {
            (trace_file::spot_nodes(&trace.folder)?, trace_file::SPOT_NODES)
        } else {
            (trace_file::nodes(&trace.folder)?, trace_file::NODES)
        };
        Ok(Source { demand, nodes, fleet: format!("the mix of {fleet}") })
    }

    fn notes(&self, source: &Source) -> Vec<String> {
        let credits = |(low, high): (souk_protocol::Rate, souk_protocol::Rate)| {
            format!(
                "{}.{:02}-{}.{:02}",
                low.0 / 1_000_000,
                low.0 / 10_000 % 100,
                high.0 / 1_000_000,
                high.0 / 10_000 % 100
            )
        };
        let values = &self.values;
        vec![
            format!(
                "{} jobs in a row a run, arrivals scaled to the load; fleet of about {} GPUs with {}",
                self.jobs, self.gpus, source.fleet
            ),
            "a share of a GPU is sold as the desk's processors, 1 GPU = 1,000 milli: desks do not sell devices yet, and \
             shares of one machine are not tied to one of its GPUs"
                .to_owned(),
            format!(
                "assumed, CR a GPU hour: floors {}, asks {}-{} % above; most that renters pay: gold {}, silver {}, bronze {}",
                credits(values.floor),
                values.margin.0,
                values.margin.1,
                credits(values.gold),
                credits(values.silver),
                credits(values.bronze)
            ),
            format!(
                "souk: {} renters, {} s of the demand in one of the market (waits of the protocol weigh that much more), \
                 every other gold job reserved {} min ahead, bronze preempted with 30 s of notice and begun again from \
                 nothing; the other policies see everything at once, preempt nobody and pay nothing for messages",
                self.market.renters,
                self.market.pace,
                self.market.ahead.0 / 60_000
            ),
            "fixed-price: the one price that takes most of this demand; its first job that fits is served".to_owned(),
        ]
    }

    /// All policies on the demand of one seed at one load.
    fn once(&self, source: &Source, load: u64, seed: u64) -> Once {
        let fleet = Fleet::sampled(seed, &source.fleet, &source.nodes, self.gpus, &self.values);
        let demand = source.demand.window(seed, self.jobs).jittered(seed).scaled(&fleet, load);
        let story = souk(seed, &demand, &fleet, &self.market);
        let mut figures = vec![Figures::of(&demand, &fleet, &story)];
        for name in &self.policies {
            let policy = compare::named(name, seed, &demand, &fleet);
            let story = policy.map(|mut policy| play(&demand, &fleet, policy.as_mut()));
            figures.extend(story.map(|story| Figures::of(&demand, &fleet, &story)));
        }
        Once { span: demand.span(), too_wide: demand.left_out.too_wide, figures, broken: story.violations }
    }

    /// All policies on small instances.
    fn small(&self) -> Vec<Efficiency> {
        let seeds: Vec<u64> = (0..self.instances).map(|number| self.first_seed.saturating_add(number)).collect();
        // In an instance nobody waits: it has the pace of the protocol.
        let market = Market { pace: 1, renters: SMALL, ahead: Millis(0) };
        let results = on_all_processors(&seeds, |seed| {
            let instance = Instance::random(*seed, SMALL, &self.values);
            let (demand, fleet) = (&instance.demand, &instance.fleet);
            let mut all = vec![optimum(&instance), souk(*seed, demand, fleet, &market).welfare(demand, fleet)];
            for name in &self.policies {
                let policy = compare::named(name, *seed, demand, fleet);
                all.extend(policy.map(|mut policy| play(demand, fleet, policy.as_mut()).welfare(demand, fleet)));
            }
            all
        });
        let names = std::iter::once("souk").chain(self.policies.iter().map(String::as_str));
        let of = |(number, name): (usize, &str)| {
            let pairs = || results.iter().filter_map(|all| Some((*all.get(number + 1)?, *all.first()?)));
            let (got, could) =
                pairs().fold((0, 0), |(a, b), (got, could)| (a + u128::from(got), b + u128::from(could)));
            let share = (got * u128::from(MILLION)).checked_div(could).unwrap_or(0);
            let near = pairs().filter(|(got, could)| u128::from(*got) * 20 >= u128::from(*could) * 19).count() as u64;
            Efficiency { policy: name.to_owned(), share: u64::try_from(share).unwrap_or(u64::MAX), near }
        };
        names.enumerate().map(of).collect()
    }
}

struct Once {
    span: Millis,
    too_wide: usize,
    figures: Vec<Figures>,
    broken: Vec<String>,
}

impl AtLoad {
    /// The mean over the seeds of a policy's figure, with its bounds; nothing if the policy was not run.
    #[must_use]
    pub fn estimate(&self, policy: &str, figure: impl Fn(&Figures) -> u64) -> Option<Estimate> {
        let (_, figures) = self.policies.iter().find(|(name, _)| name == policy)?;
        Some(Estimate::of(&figures.iter().map(figure).collect::<Vec<_>>()))
    }
}

/// Does `work` with each item, on all processors. The answers are in the order of the items.
fn on_all_processors<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let worker = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            done.push((number, work(item)));
        }
    };
    let mut all: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let finished = workers.into_iter().map(thread::ScopedJoinHandle::join);
        finished.flat_map(|answers| answers.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, answer)| answer).collect()
}
