//! Which providers serve one job together: the micro-pool.
//!
//! ```text
//! bids or asks ── Rows ── bar ── short list ── cover ── check of the finalists ── awards
//! ```
//!
//! - [`select()`] finds the cheapest set that covers the slots of a job under caps of owners, address blocks and regions and
//!   under a budget, out of a few bids or a million; [`cover()`] is its core.
//! - [`replicas`] finds the cheapest set of which one member survives, [`quorum`] one of which so many do.
//!
//! All of it is integer arithmetic in a total order, so that whoever has the same table finds the same pool. Sets are paid
//! as they bid.

mod bound;
mod capacity;
mod chance;
mod cover;
mod domain;
mod exact;
mod improve;
mod member;
mod problem;
mod redundancy;
mod rows;
mod select;

pub use capacity::{Quorum, quorum, tail};
pub use chance::Chance;
pub use cover::{Cover, cover};
pub use domain::{Block, Caps, Domain, Domains, Numbers};
pub use member::{Chosen, Member};
pub use problem::{Goal, Item};
pub use redundancy::{Promise, replicas};
pub use rows::{Bar, Row, Rows};
pub use select::{Selection, Want, select};

/// Slots still to be found: as many as there are tasks to run at once, less those held.
#[must_use]
pub fn wanted(max_parallel: u32, open_tasks: u32, held: u32) -> u32 {
    max_parallel.max(1).min(open_tasks).saturating_sub(held)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_wanted_follow_the_tasks_left_and_the_limit() {
        assert_eq!(wanted(4, 64, 0), 4);
        assert_eq!(wanted(4, 3, 1), 2);
        assert_eq!(wanted(4, 2, 4), 0);
        assert_eq!(wanted(0, 5, 0), 1);
    }
}
