//! The wire format held to its bytes: golden vectors of every document, and what hostile bytes may do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs, reason = "tests may panic")]

mod golden;
mod hostile;
mod samples;
