//! The `souk` program from outside: what people and scripts see of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic")]

mod attest;
mod config;
mod error;
mod help;
mod home;
mod init;
mod job;
mod json;
mod live;
mod market;
mod output;
mod owner;
mod receipt;
mod sim;
