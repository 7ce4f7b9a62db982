//! Studies of policies: the same demand and the same fleet under souk's rules and under simpler ones.
//!
//! ```text
//!  a trace by path ─┐                         ┌─ fifo, random, cheapest, fixed price, EASY: a perfect central view
//!                   ├─> Demand, Fleet ─ load ─┤                                        ─> Story ─> Figures ─> Study
//!  the generator ───┘                         └─ souk: nodes, messages, the machines of `souk-matcher`
//! ```
//!
//! GPUs are what is scarce here. Desks do not sell them yet, so a share of one is sold as the desk's processors: one GPU
//! is 1,000 milli. Reports say so.

mod fixed;

mod demand;
mod synthetic;
mod trace_file;

mod story;

mod policy;
mod souk;

mod compare;
mod measure;

mod page;
mod run;
mod table;

pub use compare::{NAMES, named, outcome};
pub use demand::{ANYTHING, Demand, Fleet, LeftOut, Machine, MilliGpu, Request, Values};
pub use measure::{Estimate, Figures, TIERS, TierFigures};
pub use policy::{
    Cheapest, Easy, Fifo, FixedPrice, Hall, Instance, Placement, Policy, Random, best_price, optimum, play,
};
pub use run::{Aim, AtLoad, Broken, Efficiency, Study, StudyPlan, Trace};
pub use souk::{Market, souk};
pub use story::{Fate, Stay, Story};
pub use synthetic::{demand as synthetic_demand, nodes as synthetic_nodes};
pub use trace_file::{TraceError, nodes, pods, runtimes, spot_nodes};
