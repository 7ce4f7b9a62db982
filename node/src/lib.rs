//! The souk node: everything of the market that touches network and disk, and the command line.
//!
//! The modules are in the order of a job's life; the rules themselves are in `souk-matcher`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

pub mod net;
pub mod store;
pub mod view;
