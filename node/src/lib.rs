//! The souk node: everything of the market that touches network and disk, and the command line.
//!
//! The modules are in the order of a job's life; the rules themselves are in `souk-matcher`.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

// What a person starts with.
pub mod cli;
pub mod config;
pub mod demo;
pub mod home;
pub mod identity;
pub mod submit;

// How the command line and a node talk.
pub mod api;
pub mod client;
pub mod outputs;
pub mod view;

// The node: market in the middle, its hands around it.
mod ablation;
pub mod clock;
pub mod collector;
pub mod data;
pub mod executor;
pub mod frame;
mod keys;
pub mod market;
pub mod node;
pub mod offers;
mod partners;
mod telemetry;

// Where it stands: network and disk.
pub mod net;
pub mod store;
