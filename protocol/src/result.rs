//! What came of an attempt: a signed result and the manifest of its outputs.

use serde::{Deserialize, Serialize};

use crate::{
    bounded::{List, Text},
    id::{AttemptId, Hash, JobId, NodeId},
    signed::Document,
    units::{Bytes, Millis, Timestamp},
};

/// Largest encoded [`Manifest`], in bytes.
pub const MAX_MANIFEST: usize = 8 * 1024 * 1024;
/// Most entries of a [`Manifest`].
pub const MAX_ENTRIES: usize = 20_000;

crate::terms::words! {
    /// How an attempt ended.
    AttemptEnd {
        /// Exit code 0.
        Done = "done",
        /// Another exit code, or a trap.
        Failed = "failed",
        /// The provider needed its machine.
        Preempted = "preempted",
        /// The run time was used up.
        TimedOut = "timed-out",
        /// The memory was used up.
        OutOfMemory = "out-of-memory",
        /// An input or the module was missing or unusable; nothing ran.
        InputFailed = "input-failed",
        /// The renter cancelled it.
        Cancelled = "cancelled",
        /// The provider restarted or fell silent.
        Lost = "lost",
        /// The provider's own failure.
        ProviderFault = "provider-fault",
    }
}

impl AttemptEnd {
    /// Whether the renter owes for an attempt with this end.
    #[must_use]
    pub const fn is_billed(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::TimedOut | Self::OutOfMemory | Self::Cancelled)
    }
}

/// The provider's signed account of one attempt. The first journaled Done of a task and replica wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Of which job.
    pub job: JobId,
    /// Who ran it.
    pub provider: NodeId,
    /// For whom.
    pub renter: NodeId,
    /// How it ended.
    pub end: AttemptEnd,
    /// The exit code, if the program ended by itself.
    pub exit_code: Option<u32>,
    /// What happened, for people; empty when done.
    pub reason: Text<500>,
    /// Run time, without fetching and compiling.
    pub run: Millis,
    /// When the program started, by the provider's clock.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// Standard output.
    pub stdout: LogEnd,
    /// Standard error.
    pub stderr: LogEnd,
    /// Hash of the [`Manifest`] of the outputs.
    pub manifest: Hash,
    /// Length of the manifest, in bytes.
    pub manifest_len: u64,
    /// Sum of the output files' lengths.
    pub output: Bytes,
    /// Number of output files.
    pub files: u32,
    /// Hash of the last telemetry sample of the attempt, if samples were taken.
    pub telemetry: Option<Hash>,
}

/// A finished log: what is there, exact to the byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEnd {
    /// Bytes kept.
    pub len: u64,
    /// BLAKE3 of the bytes kept.
    pub hash: Hash,
    /// Bytes written by the program; more than `len` if the log was cut.
    pub written: u64,
}

impl LogEnd {
    /// An empty log.
    #[must_use]
    pub fn empty() -> Self {
        Self { len: 0, hash: Hash::of(&[]), written: 0 }
    }

    /// Whether bytes beyond the cap were dropped.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.written > self.len
    }
}

impl Document for TaskResult {
    const DOMAIN: &'static str = "souk/1/task-result";
    const MAX_LEN: usize = 2 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.provider
    }
}

/// The outputs of an attempt in canonical order: strictly ascending by path. Never an opaque archive.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Manifest {
    /// The entries.
    pub entries: List<Entry, MAX_ENTRIES>,
}

/// A file, folder or link among the outputs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the guest's root without a leading slash: `out/result.json`.
    pub path: Text<1_024>,
    /// What it is.
    pub kind: EntryKind,
}

/// What an [`Entry`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File {
        /// BLAKE3 of its content.
        hash: Hash,
        /// Length, in bytes.
        len: u64,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A relative link that stays inside the outputs.
    Link {
        /// Where it points, relative to its own folder.
        target: Text<1_024>,
    },
    /// Something that was there and is not brought home: a FIFO, a device, a link out of the tree.
    Skipped {
        /// Why.
        reason: Text<100>,
    },
}

impl Manifest {
    /// Whether the entries are strictly ascending, relative and free of `.` and `..`.
    #[must_use]
    pub fn is_canonical(&self) -> bool {
        let ascending = self.entries.windows(2).all(|pair| match pair {
            [a, b] => a.path < b.path,
            _ => false,
        });
        ascending && self.entries.iter().all(|entry| is_plain_path(&entry.path))
    }
}

/// Whether `path` is relative and each of its parts is an ordinary name.
#[must_use]
pub fn is_plain_path(path: &str) -> bool {
    !path.is_empty() && !path.contains('\0') && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(paths: &[&str]) -> Manifest {
        let entries = paths
            .iter()
            .map(|path| Entry { path: Text::try_from(*path).unwrap(), kind: EntryKind::Folder })
            .collect::<Vec<_>>();
        Manifest { entries: List::try_from(entries).unwrap() }
    }

    #[test]
    fn a_manifest_out_of_order_or_with_an_escape_is_not_canonical() {
        assert!(manifest(&["out", "out/a", "out/b"]).is_canonical());
        assert!(manifest(&[]).is_canonical());
        assert!(!manifest(&["out/b", "out/a"]).is_canonical());
        assert!(!manifest(&["out/a", "out/a"]).is_canonical());
        for path in ["../x", "/abs", "a/../b", "a//b", "", "."] {
            assert!(!manifest(&[path]).is_canonical(), "{path}");
        }
    }

    #[test]
    fn only_ends_that_are_the_renters_doing_are_billed() {
        let billed: Vec<_> = AttemptEnd::ALL.iter().filter(|end| end.is_billed()).map(|end| end.word()).collect();
        assert_eq!(billed, ["done", "failed", "timed-out", "out-of-memory", "cancelled"]);
    }
}
