//! The sandbox against real child processes: what a stranger's module can and cannot do.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests may panic, and print what they measured"
)]

mod bench;
mod components;
mod ends;
mod files;
mod guests;
mod modules;
mod output;
mod processes;
