//! What always holds. Each rule is a function, so that tests and the simulator ask the same questions.

mod job;

pub use job::{attempts_numbered, budget_held, job, no_task_lost, one_done_per_task};
