//! A task and the attempts at it.

use std::sync::Arc;

use souk_protocol::{AttemptEnd, AttemptId, JobSpec, Millis, NodeId, Rate, TaskResult, Timestamp};

use crate::{event::TaskState, record::Verdict};

/// Attempts of a task that never started, beyond those that `retry` allows: a provider that was just ending its lease is
/// nobody's fault, one that always is must not go on for ever.
pub(super) const MAX_UNSTARTED: u32 = 16;

/// A task of a job.
#[derive(Debug, Clone, Default)]
pub struct Task {
    pub(super) attempts: Vec<Attempt>,
    pub(super) outcome: Option<TaskState>,
}

/// What an attempt is doing, or how it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptState {
    /// Handed out; inputs are fetched.
    Fetching,
    /// The program runs.
    Running,
    /// It has ended; its outputs are being brought home.
    Collecting(AttemptEnd),
    /// It has ended, and what it counts for is journaled.
    Ended(AttemptEnd),
}

impl AttemptState {
    /// The word people read. What is being brought home is still running to them.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Fetching => "fetching",
            Self::Running | Self::Collecting(_) => "running",
            Self::Ended(end) => end.word(),
        }
    }
}

impl std::fmt::Display for AttemptState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}

/// One execution of a task.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Which.
    pub id: AttemptId,
    /// By whom.
    pub provider: NodeId,
    /// Price of its slot.
    pub rate: Rate,
    /// What it is doing.
    pub state: AttemptState,
    /// When it was handed out.
    pub handed: Timestamp,
    /// The exit code, if the program ended by itself.
    pub exit_code: Option<u32>,
    /// When the program started, by the provider's clock.
    pub started: Option<Timestamp>,
    /// When it ended, by the provider's clock; for a lost one, when it was given up.
    pub ended: Option<Timestamp>,
    /// Why it ended so; empty when done.
    pub reason: String,
    /// Run time that is owed for, if it is.
    pub billed: Option<Millis>,
    /// What it counts for, once it gave a result.
    pub verdict: Option<Verdict>,
    /// The provider's account of it.
    pub result: Option<Arc<TaskResult>>,
}

impl Attempt {
    /// Whether it is under way.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, AttemptState::Ended(_))
    }

    /// Whether it counts against the attempts that `retry` allows: what a provider sent back unstarted does not.
    const fn counts(&self) -> bool {
        let unstarted = matches!(self.state, AttemptState::Ended(AttemptEnd::Preempted)) && self.started.is_none();
        !unstarted
    }
}

impl Task {
    /// Its attempts, in the order of their numbers.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// Its state.
    #[must_use]
    pub fn state(&self) -> TaskState {
        match self.outcome {
            Some(outcome) => outcome,
            None if self.open().next().is_some() => TaskState::Running,
            None => TaskState::Queued,
        }
    }

    /// The attempt whose result counts.
    #[must_use]
    pub fn winner(&self) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.verdict == Some(Verdict::Done))
    }

    /// Attempts under way.
    pub fn open(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().filter(|attempt| attempt.is_open())
    }

    pub(crate) fn is_final(&self) -> bool {
        self.outcome.is_some()
    }

    pub(crate) fn find(&self, id: &AttemptId) -> Option<&Attempt> {
        self.attempts.iter().find(|attempt| attempt.id == *id)
    }

    pub(super) fn find_mut(&mut self, id: &AttemptId) -> Option<&mut Attempt> {
        self.attempts.iter_mut().find(|attempt| attempt.id == *id)
    }

    pub(super) fn next_number(&self) -> u32 {
        self.attempts.last().map_or(1, |attempt| attempt.id.number.saturating_add(1))
    }

    /// Whether `retry` leaves room for another attempt.
    pub(super) fn may_try(&self, spec: &JobSpec) -> bool {
        let counted = self.attempts.iter().filter(|attempt| attempt.counts()).count();
        let all = spec.retry.attempts.saturating_add(MAX_UNSTARTED);
        u32::try_from(counted).unwrap_or(u32::MAX) < spec.retry.attempts.max(1)
            && u32::try_from(self.attempts.len()).unwrap_or(u32::MAX) < all
    }
}
