//! One task as a runner is given it, and how it ended.

use bytes::Bytes;

use crate::{
    error::ModuleError,
    limits::{AttemptName, MAX_ARGUMENT_BYTES},
};

/// What a runner is to run: an entry of the module it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The exported function, of type `() -> ()`. `_start` by default; for any other, an exported `_initialize`
    /// is called first. A component is run by its `wasi:cli/run`: with `_start` and nothing else.
    pub entry: String,
    /// `argv[0]`: the module's name.
    pub argv0: String,
    /// The arguments after it.
    pub args: Vec<String>,
    /// The whole environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// The folders of this attempt.
    pub attempt: AttemptName,
    /// Whether the guest gets `/out`.
    pub output: bool,
    /// Whether the guest gets `/ckpt`.
    pub checkpoint: bool,
}

impl Task {
    /// A task with the usual entry and `/out`, without arguments, environment or `/ckpt`.
    pub fn new(attempt: AttemptName) -> Self {
        Task {
            entry: "_start".to_owned(),
            argv0: "main.wasm".to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            attempt,
            output: true,
            checkpoint: false,
        }
    }

    /// Whether arguments and environment can be handed to a program at all.
    pub(crate) fn check(&self) -> Result<(), String> {
        let strings =
            self.args.iter().chain([&self.argv0]).chain(self.env.iter().flat_map(|(name, value)| [name, value]));
        let mut bytes = 0usize;
        for string in strings {
            if string.contains('\0') {
                return Err(format!("argument or environment {string:?} contains a NUL"));
            }
            // Each string costs a terminator and a pointer of the guest, too.
            bytes = bytes.saturating_add(string.len()).saturating_add(8);
        }
        if let Some((name, _)) = self.env.iter().find(|(name, _)| name.is_empty() || name.contains('=')) {
            return Err(format!("environment name {name:?} is empty or contains '='"));
        }
        if bytes > MAX_ARGUMENT_BYTES {
            return Err(format!(
                "arguments and environment have {bytes} bytes, the limit is {MAX_ARGUMENT_BYTES}; use an input file"
            ));
        }
        if self.entry.len() > 1024 {
            return Err("the entry's name is longer than 1024 bytes".to_owned());
        }
        Ok(())
    }
}

/// One of the guest's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes a guest wrote, in the order it wrote them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// Where to.
    pub stream: Stream,
    /// What: never empty, never more than 64 KiB at once.
    pub bytes: Bytes,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The guest exited, with exactly this code; an entry that just returns exits with 0.
    Exited {
        /// All 32 bits of it.
        code: u32,
    },
    /// The guest trapped: unreachable code, an access out of bounds, a stack overflow, ...
    Trapped {
        /// What trapped, and in which functions as far as they have names.
        reason: String,
    },
    /// The wall limit passed; the runner was killed.
    TimedOut {
        /// The limit, in milliseconds.
        limit_ms: u64,
    },
    /// The guest was refused memory and did not survive it.
    OutOfMemory {
        /// The limit, in bytes.
        limit: u64,
    },
    /// The files of the attempt passed their limit.
    OutputLimit {
        /// Bytes found, at least; 0 when a single file reached the limit and the kernel stopped it.
        bytes: u64,
        /// Files and folders found, at least.
        files: u32,
        /// The limit on bytes.
        limit_bytes: u64,
        /// The limit on files and folders.
        limit_files: u32,
    },
    /// The run was killed from outside, by a [`KillHandle`](crate::KillHandle).
    Killed,
    /// The order could not be carried out as given; nothing of the guest ran.
    InputFailed {
        /// Why.
        reason: InputFault,
    },
    /// Our side failed. The guest is not to blame and nothing is billed.
    RunnerFault {
        /// Why.
        reason: String,
    },
}

/// What was wrong with an order.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputFault {
    /// The module does not fit the task or its limits.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// Arguments or environment cannot be passed on.
    #[error("{0}")]
    Task(String),
}

/// A run, measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub end: End,
    /// Milliseconds from the order to the end, rounded down, at most the wall limit: what is billed.
    pub run_ms: u64,
    /// The same in microseconds, not cut: for measurements.
    pub run_us: u64,
    /// Fuel used, if the run was deterministic and ended by itself.
    pub fuel: Option<u64>,
    /// Bytes the guest wrote to standard output, delivered or not. For a killed run that was over its limit it
    /// is a lower bound, by less than 1 MiB plus one write.
    pub stdout_len: u64,
    /// The same for standard error.
    pub stderr_len: u64,
    /// Whether standard output was cut at its limit.
    pub stdout_truncated: bool,
    /// Whether standard error was cut at its limit.
    pub stderr_truncated: bool,
    /// The most linear memory the guest had, in bytes. 0 when it was killed.
    pub memory_peak: u64,
    /// Whether the guest was ever refused memory.
    pub memory_refused: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::new(AttemptName::new("a").unwrap())
    }

    #[test]
    fn strings_a_program_cannot_have_are_refused() {
        assert_eq!(task().check(), Ok(()));
        let nul = Task { args: vec!["a\0b".into()], ..task() };
        assert!(nul.check().unwrap_err().contains("NUL"));
        let named = |name: &str| Task { env: vec![(name.into(), "v".into())], ..task() };
        assert!(named("").check().is_err());
        assert!(named("A=B").check().is_err());
        assert_eq!(named("A").check(), Ok(()));
    }

    #[test]
    fn arguments_are_bounded_in_sum() {
        let long = |len: usize| Task { argv0: String::new(), args: vec!["x".repeat(len)], ..task() };
        assert_eq!(long(MAX_ARGUMENT_BYTES - 16).check(), Ok(()));
        assert!(long(MAX_ARGUMENT_BYTES - 15).check().unwrap_err().contains("262145"));
    }
}
