//! The market in a box: a seeded discrete-event simulator that drives the rules of `souk-matcher`, the very ones that
//! nodes run, through everything that can go wrong.
//!
//! Time is virtual, signatures are a table, the network loses, repeats and reorders, disks lag behind, nodes are
//! killed between any two steps and come back with what was durable. A ledger gathers facts from outside and asks
//! the [`invariant`]s about each of them. One seed is one exact run.
//!
//! ```text
//!  workload ─ jobs ─┐                    ┌─ disk: Persist ... Persisted, or lost in a crash
//!  faults ─ crash, ─┼─> World ─ Event ─> Trader ─ Output ─┼─ network: Send ... Message, late, twice or never
//!  cut, disconnect ─┘     │              └─ executor: Run ... Ended; collector: Collect ... Held
//!                         └─> Ledger ─> invariants ─> Report { violations, digest }
//! ```
//!
//! ```
//! let report = souk_sim::run(1, &souk_sim::Scenario::smoke());
//! assert!(report.holds(), "{report}");
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

mod queue;
mod random;
mod time;

mod churn;
mod faults;
mod figures;
mod file;
mod library;
mod outcome;
mod plan;
mod region;
mod scenario;
mod workload;

mod credit;
mod discovery;
mod disk;
mod executor;
mod keys;
mod network;
mod node;
mod packet;

mod deed;
mod facts;
mod rest;
mod tally;
mod trace;
mod trial;
mod world;

pub mod invariant;
mod ledger;
mod page;
mod report;
pub mod study;

pub use churn::Churn;
pub use figures::{Figures, quantile, waits};
pub use file::{Jobs, MAX_NODES, MAX_SCENARIO_FILE, MAX_TASKS, Machines, Owners, ScenarioFile};
pub use invariant::Invariant;
pub use keys::Table;
pub use ledger::Violation;
pub use library::{Entry, LIBRARY, find};
pub use outcome::{End, JobOutcome, LeaseOutcome, MachineOutcome, Moment, Outcome};
pub use page::html;
pub use plan::{Conduct, Machine, Plan, PlannedJob};
pub use random::MILLION;
pub use region::Regions;
pub use report::Report;
pub use scenario::{
    Broken, CutSide, Discovery, Engine, Faults, Latency, Mixed, PlannedCut, RecordKind, Scenario, Workload,
};
pub use time::Micros;
pub use trial::{Invariants, Point, PolicyResult, Trial, trial};
pub use world::Progress;

/// Runs a scenario. The same seed gives the same report, to the bit.
#[must_use]
pub fn run(seed: u64, scenario: &Scenario) -> Report {
    world::World::new(seed, scenario, None).run()
}

/// Like [`run`], and tells `trace` everything that happens, a line each.
pub fn run_traced(seed: u64, scenario: &Scenario, trace: &mut dyn FnMut(&str)) -> Report {
    world::World::new(seed, scenario, Some(trace)).run()
}

/// Like [`run`], and tells `watcher` every so often how far it is.
pub fn run_watched(seed: u64, scenario: &Scenario, watcher: &mut dyn FnMut(Progress)) -> Report {
    let mut world = world::World::new(seed, scenario, None);
    world.watcher = Some(watcher);
    world.run()
}
