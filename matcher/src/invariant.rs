//! What always holds. Each rule is a function, so that tests and the simulator ask the same questions.

mod ahead;
mod job;
mod sold;

pub use ahead::no_reservation_delayed;
pub use job::{attempts_numbered, budget_held, job, no_task_lost, one_done_per_task};
pub use sold::{books_agree, exposure_within_limits, no_oversell, vouchers_monotone};
