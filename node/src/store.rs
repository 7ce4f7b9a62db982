//! The durable store of one home folder.
//!
//! ```text
//! <home>/store     names the format and its version
//! <home>/lock      held by the one node that uses this home
//! <home>/journal/  the truth: append-only, hash-chained, synced before anybody hears of a record
//! <home>/db/       the index (sled): derived from the journal, rebuilt whenever it differs
//! <home>/blobs/    files named by their BLAKE3
//! <home>/spool/    logs of attempts, by byte offset, and when their bytes arrived
//! <home>/ballast   space to give up when the disk is full
//! ```
//!
//! A record's life: [`Journal::append`] queues it; the writer thread checks what it signs against the
//! sign-once table, writes its frame, syncs, applies it to the [`Index`], and only then resolves the append.
//! A start replays all frames to the caller, whose state is a fold of them.

mod arrivals;
mod blobs;
mod disk;
mod entry;
mod frame;
mod index;
mod journal;
mod lock;
mod opening;
mod scan;
mod spool;
mod verify;
mod writer;

#[cfg(test)]
mod tests;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::{
    blobs::{BlobError, BlobFile, BlobWriter, Blobs, Durability, Pin},
    disk::DiskError,
    entry::{Entry, Head, MAX_DOCUMENTS, OnceKey, Position, Stored},
    frame::{FRAME_VERSION, MAX_ONCE_KEY, MAX_ONCE_KEYS, MAX_PAYLOAD},
    index::{Document, Index, IndexError, MAX_DOCUMENT, MAX_DOCUMENT_KEY, MAX_SCAN, Row},
    journal::{Journal, JournalError, MAX_GROUP, MAX_GROUP_BYTES, MAX_QUEUED, Pending},
    lock::{HomeLock, LockError},
    scan::{JournalDamage, TornTail},
    spool::{Appended, AttemptLogs, Closed, Spool, SpoolError, SpoolState},
    verify::{BlobsVerdict, IndexVerdict, Report, VerifyOptions, verify},
};
pub(crate) use self::{disk::write_atomically, spool::log_path};
/// The version of the folder's layout.
pub const FORMAT_VERSION: u32 = 1;

/// How a home is kept.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// Bytes after which the journal starts another file. 16 MiB by default, at most 64 MiB is sensible: a
    /// start reads one file at a time into memory.
    pub segment_bytes: u64,
    /// Bytes held back for a full disk, 64 MiB by default; 0 for none.
    pub ballast_bytes: u64,
    /// Bytes that blobs may take, 16 GiB by default; unpinned ones make room, the longest unused first.
    pub blob_budget_bytes: u64,
    /// Bytes of sled's page cache, 4 MiB by default: it keeps some more than it is told.
    pub index_cache_bytes: u64,
    /// Go on although the journal ends before a record that the index has seen, which means that
    /// acknowledged records are lost. Off by default: this node could contradict what it signed.
    pub accept_lost_tail: bool,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            ballast_bytes: 64 << 20,
            blob_budget_bytes: 16 << 30,
            index_cache_bytes: 4 << 20,
            accept_lost_tail: false,
        }
    }
}

/// What a replay callback may answer instead of accepting a record.
pub type ReplayError = Box<dyn std::error::Error + Send + Sync>;

/// A record, given to the replay callback.
#[derive(Debug)]
pub struct Replayed<'a> {
    /// Where it stands.
    pub position: Position,
    /// What the payload is.
    pub kind: u16,
    /// As it was appended.
    pub payload: &'a [u8],
    /// Whether the index contains this record already; documents are then ignored.
    pub indexed: bool,
    documents: Vec<Document>,
}

impl Replayed<'_> {
    /// Gives a document that derives from this record, the same as [`Entry::documents`] had.
    pub fn document(&mut self, document: Document) {
        if !self.indexed {
            self.documents.push(document);
        }
    }
}

/// Why a home cannot be opened. Nothing in it has been changed, save that a torn tail may have been cut and a
/// damaged index set aside.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another node uses it, or it cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// A newer souk wrote it.
    #[error("the home {} has store version {found}, but this souk reads {FORMAT_VERSION}; use a newer souk", home.display())]
    Newer {
        /// The home folder.
        home: PathBuf,
        /// The version found.
        found: u32,
    },
    /// The format file does not say what it should.
    #[error("{} does not name a souk store; restore it from a backup or choose another home with --home", path.display())]
    Foreign {
        /// The format file.
        path: PathBuf,
    },
    /// The home was used before but its journal is gone. No empty one is put in its place.
    #[error("the journal of this home is missing: {}; restore it from a backup or choose another home with --home", dir.display())]
    MissingJournal {
        /// Where it should be.
        dir: PathBuf,
    },
    /// The journal is damaged.
    #[error(transparent)]
    Damage(#[from] JournalDamage),
    /// The journal ends before a record that the index has seen durable.
    #[error(
        "the journal {} ends at record {ends}, but record {seen} had been acknowledged: records are lost; \
         restore the journal from a backup, or set store.accept_lost_tail to go on without them",
        dir.display()
    )]
    AcknowledgedLost {
        /// The journal's folder.
        dir: PathBuf,
        /// The last record found.
        ends: u64,
        /// The last record known.
        seen: u64,
    },
    /// The replay callback refused a record.
    #[error("{position} of the journal cannot be replayed: {source}")]
    Replay {
        /// The record.
        position: Position,
        /// What the callback said.
        #[source]
        source: ReplayError,
    },
    /// The index failed while it was rebuilt.
    #[error("the index {} cannot be rebuilt: {reason}", dir.display())]
    Index {
        /// The index's folder.
        dir: PathBuf,
        /// What failed.
        reason: String,
    },
    /// The disk is full, even without the ballast.
    #[error("no space left to open the store in {}; free some space on this disk", home.display())]
    StorageFull {
        /// The home folder.
        home: PathBuf,
    },
    /// The home lies on a read-only mount.
    #[error("the home {} is read-only; mount it writable or choose another home with --home", home.display())]
    ReadOnly {
        /// The home folder.
        home: PathBuf,
    },
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Blobs could not be listed.
    #[error(transparent)]
    Blobs(#[from] BlobError),
}

/// How the index was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexState {
    /// It contained every record.
    Current,
    /// It lacked the last records, as after a crash.
    CaughtUp {
        /// Records that were applied.
        records: u64,
    },
    /// It was built anew from the whole journal.
    Rebuilt {
        /// What was wrong with it.
        reason: String,
        /// Where the old one lies now.
        set_aside: Option<PathBuf>,
    },
}

/// Something found at the start that an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// A write cut by a crash was removed; nothing acknowledged was in it.
    TailCut(TornTail),
    /// There is no room for the ballast.
    NoBallast {
        /// Bytes it should have.
        bytes: u64,
    },
    /// Acknowledged records are lost, and the configuration says to go on.
    LostTail {
        /// The last record found.
        ends: u64,
        /// The last record known.
        seen: u64,
    },
    /// Two records of the journal contradict each other.
    Contradiction(OnceKey),
    /// The format file was missing and has been written again.
    FormatRestored,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TailCut(TornTail { segment, offset, bytes }) => {
                write!(f, "cut {bytes} bytes of an unfinished write from {} at byte {offset}", segment.display())
            }
            Self::NoBallast { bytes } => {
                write!(f, "no room for a ballast of {bytes} bytes; free some space on this disk")
            }
            Self::LostTail { ends, seen } => {
                write!(f, "the journal ends at record {ends}, records up to {seen} are lost")
            }
            Self::Contradiction(OnceKey { kind, key, .. }) => write!(
                f,
                "the journal contradicts itself under key {} of kind {kind}",
                data_encoding::HEXLOWER.encode(key)
            ),
            Self::FormatRestored => write!(f, "the home's format file was missing; wrote it again"),
        }
    }
}

/// What opening a store found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the home was new.
    pub created: bool,
    /// Records that were replayed.
    pub records: u64,
    /// The end of the journal.
    pub head: Option<Head>,
    /// How the index was found.
    pub index: IndexState,
    /// What an operator should know.
    pub warnings: Vec<Warning>,
    /// How long it took.
    pub elapsed: Duration,
}

/// The store of one home. Its parts are cloneable handles; the home is unlocked when all are gone.
#[derive(Debug, Clone)]
pub struct Store {
    home: PathBuf,
    journal: Journal,
    index: Index,
    blobs: Blobs,
    lock: Arc<HomeLock>,
}

impl Store {
    /// Opens the store in `home`, creating it if the folder is empty or missing, and replays the journal.
    ///
    /// Blocks on the disk: call it before the runtime starts or on a blocking thread.
    ///
    /// # Errors
    /// [`StoreError`]; damage is never skipped.
    pub fn open(
        home: &Path,
        config: StoreConfig,
        replay: &mut dyn FnMut(&mut Replayed<'_>) -> Result<(), ReplayError>,
    ) -> Result<(Self, OpenReport), StoreError> {
        let started = Instant::now();
        let result = opening::Opening::new(home, config).and_then(|opening| opening.run(replay));
        let (store, mut report) = result.map_err(|error| by_cause(error, home))?;
        report.elapsed = started.elapsed();
        Ok((store, report))
    }

    /// The truth.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What is derived from it.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Files by their BLAKE3.
    #[must_use]
    pub fn blobs(&self) -> &Blobs {
        &self.blobs
    }

    /// The home folder.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Folder of the logs; see [`Spool`].
    #[must_use]
    pub fn spool_dir(&self) -> PathBuf {
        self.home.join("spool")
    }

    /// Opens (or creates) both logs of `attempt`, at most `cap` bytes long each; `timed` ones keep, in files of their
    /// own, when their bytes arrived.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub async fn logs(&self, attempt: &str, cap: u64, timed: bool) -> Result<AttemptLogs, SpoolError> {
        AttemptLogs::open(&self.spool_dir(), attempt, cap, timed).await
    }

    /// Whether the disk ran so full that the ballast was given up. It is restored at the next start.
    #[must_use]
    pub fn gave_up_ballast(&self) -> bool {
        self.journal.gave_up_ballast()
    }

    /// Writes what is queued and ends the writer. Later appends get [`JournalError::Closed`].
    pub async fn close(self) {
        self.journal.close().await;
        let Self { journal, index, blobs, lock, .. } = self;
        // Closing sled waits for its last writes.
        let closed = tokio::task::spawn_blocking(move || drop((journal, index, blobs, lock))).await;
        if let Err(error) = closed {
            tracing::warn!(%error, "the index did not close cleanly; the next start checks it");
        }
    }
}

/// Prefers the cause that a person can act on to the operation that met it.
fn by_cause(error: StoreError, home: &Path) -> StoreError {
    let (StoreError::Disk(disk)
    | StoreError::Lock(LockError::Disk(disk))
    | StoreError::Damage(JournalDamage::Disk(disk))
    | StoreError::Blobs(BlobError::Disk(disk))) = &error
    else {
        return error;
    };
    if disk.is_full() {
        StoreError::StorageFull { home: home.to_owned() }
    } else if disk.source.kind() == io::ErrorKind::ReadOnlyFilesystem {
        StoreError::ReadOnly { home: home.to_owned() }
    } else {
        error
    }
}
