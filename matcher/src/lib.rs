//! Who gets the job, and at what price: the rules of the market as machines without I/O.
//!
//! A [`Trader`] holds both roles of a node, renter and provider, and its books. Everything that happens to the node
//! comes in as an [`Event`]; everything it does goes out as an [`Output`]. Clock, randomness, disk and network are
//! inputs, durability is an output, so the simulator, the tests and the node drive the very same rules.
//!
//! ```text
//!                  Event, Now                      Vec<Output>
//!  network ──────────────┐   ┌──────────┐   ┌───── Send, Offer
//!  executor ─────────────┼──>│  Trader  │──>┼───── Run, Stop, OpenLease, CloseLease
//!  journal (Persisted) ──┤   │          │   ├───── Persist (a send that depends on it follows Persisted)
//!  API, clock (Wake) ────┘   └──────────┘   └───── Collect, Notify, Blame
//!                              renter, provider, books
//! ```
//!
//! State that must survive is a fold of [`Record`]s: [`Trader::apply`] replays them after a restart, then
//! [`Event::Recovered`] sets the machine going again.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::float_arithmetic
    )
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

mod context;
mod event;
mod record;
mod trader;

pub mod calendar;
pub mod price;

mod account;
mod books;
mod channel;
mod transfer;

mod desk;
mod local;
mod provider;

pub mod auction;
pub mod filter;
mod job;
pub mod pool;
pub mod rank;
mod renter;
pub mod schedule;

pub mod invariant;

#[cfg(test)]
extern crate self as souk_matcher; // `testing` is a part of two test crates
#[cfg(test)]
mod testing;

pub use account::{AccountError, LeaseAccount};
pub use books::{
    Blocked, Books, HistoryEntry, HistoryKind, HourSum, LeaseSum, MAX_CLOSED, MAX_DISCHARGES, MAX_HISTORY, MAX_HOURS,
    Totals, Worth, core_time,
};
pub use channel::{Channel, Heard};
pub use context::Keys;
pub use desk::{
    Asked, BID_BEYOND, Board, Claim, Desk, FETCH_SLACK, MAX_AHEAD, MAX_BIDS, MAX_OFFERS, MAX_OFFLINE, MAX_RETENTION,
    OwnBid, Place, Quote, Refusal, STRANGERS_PART, Standing, Wanted, may_stop, reach,
};
pub use event::{
    AuctionReport, Event, JobState, Keep, LeaseView, Notice, Now, Outcome, Output, Policy, Reason, Settings, TaskState,
    Token,
};
pub use filter::{Demand, Known, Miss, eligible};
pub use job::{Attempt, AttemptState, Job, Task};
pub use provider::{CapacityView, Earned, LeaseState, MAX_LEASES, Outbid, Provider, ProviderLease};
pub use record::{MAX_RECORD, OnceKey, Record, Verdict};
pub use renter::{LeaseAccountView, Plan, PlannedOffer, Renter, RenterLeaseState, WorkError, work};
pub use trader::{ReplayError, Trader};
