//! What can be believed: hardware, telemetry, receipts.
//!
//! A signature proves who said something and that it was not changed since. It never proves that it is true. What
//! stands behind each statement of this crate:
//!
//! | statement | kind | what stands behind it |
//! |---|---|---|
//! | two keys agreed on an account ([`verify_receipt`]) | proof | both signed the same bytes; every document it rests on is there, signed and fits |
//! | the account follows from prices and run times | proof | sums and hashes, computed anew |
//! | an attempt ran for so long, with this exit code and output | evidence | the provider's signed word, which the renter accepted by paying |
//! | a run used so much processor, memory, power ([`Chain`], [`verify_telemetry`]) | evidence | the provider's word of that time: it cannot change or drop samples afterwards, but may have invented them |
//! | a machine has these parts ([`Inventory`], [`HardwareAttestation`]) | evidence | the word of the node and of its driver; both are in its owner's hands |
//! | it is the machine it was before ([`Inventory::fingerprint`]) | evidence | the same; a change is a reason to ask, no change is no proof |
//! | a key belongs to a person or company | nothing | |
//! | the result is right | nothing | only running it again tells |
//!
//! So a lie about hardware or telemetry is not found here. It is made attributable: it stays signed by who told it.
//!
//! ```
//! use souk_attest::{Chain, Reading, verify_checkpoints};
//! use souk_protocol::{AttemptId, Checkpoint, Key, LeaseId, List, Millis, Signed, Signer, Timestamp};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let provider = Key::from_seed(&[7; 32]);
//! let attempt = AttemptId { lease: LeaseId([1; 16]), task: 0, replica: 0, number: 1 };
//!
//! // The provider measures, links and signs.
//! let mut chain = Chain::new(&attempt);
//! let mut samples = Vec::new();
//! for second in 1..=3 {
//!     let reading = Reading { cpu_time: Millis(990 * second), ..Reading::default() };
//!     samples.push(chain.push(Timestamp(1_000 * second), reading));
//! }
//! let sign = |samples: &[_]| {
//!     let samples = List::try_from(samples.to_vec()).unwrap();
//!     Signed::sign(&Checkpoint { attempt, provider: provider.id(), samples }, &provider)
//! };
//! let checkpoints = [sign(&samples[..2])?, sign(&samples[2..])?];
//!
//! // The renter follows the chain to the sample that the result will name.
//! assert_eq!(verify_checkpoints(&attempt, &checkpoints)?, chain.head());
//!
//! // What was measured cannot be improved later: the next sample is linked to what it was.
//! samples[1].cpu_time = Millis(2_000);
//! let improved = [sign(&samples[..2])?, sign(&samples[2..])?];
//! let error = verify_checkpoints(&attempt, &improved).unwrap_err();
//! assert_eq!(error.to_string(), "checkpoint 1: sample 2 is not linked to the one before");
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

mod chain;

mod known;

mod driver;
mod inventory;

mod hardware;

mod receipt;

pub use chain::{Chain, ChainError, Follower, Reading, TelemetryError, verify_checkpoints, verify_telemetry};
pub use driver::{DriverProblem, GpuDriver};
pub use hardware::HardwareAttestation;
pub use inventory::{Gpu, Inventory, UnusableGpu};
pub use receipt::{ReceiptError, VerifiedReceipt, verify_receipt};
