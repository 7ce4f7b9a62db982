//! Studies of policies: the same demand and the same fleet under souk's rules and under simpler ones.

mod fixed;

mod demand;
mod synthetic;
mod trace_file;

mod story;

mod measure;
mod policy;

pub use demand::{Demand, Fleet, LeftOut, Machine, MilliGpu, Request, Values};
pub use measure::{Estimate, Figures, TIERS, TierFigures};
pub use policy::{
    Cheapest, Easy, Fifo, FixedPrice, Hall, Instance, Placement, Policy, Random, best_price, optimum, play,
};
pub use story::{Fate, Stay, Story};
pub use synthetic::{demand as synthetic_demand, nodes as synthetic_nodes};
pub use trace_file::{TraceError, nodes, pods, runtimes, spot_nodes};
