//! The market under the simulator: a quiet one, a thousand troubled ones, and some with a rule broken on purpose.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr, reason = "tests may")]

mod broken;
mod market;
mod plan;
mod race;
mod scale;
mod smoke;
mod study;
