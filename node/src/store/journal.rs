//! The append-only truth of a node.
//!
//! A [`Journal`] is a cloneable handle on one writer thread. An append resolves once its record is on disk
//! (`fdatasync` returned), in the order in which appends were queued. While the disk is busy, further
//! records gather and share the next sync; when it is idle, a record is synced at once.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError, mpsc, oneshot, watch};

use super::{
    disk::Ballast,
    entry::{Entry, Position, Stored},
    scan::{self, JournalDamage},
    writer::{Command, Writer},
};

/// Appends that wait for the writer at most; then callers wait in line (or get
/// [`JournalError::QueueFull`]). Many syncs' worth, little memory.
pub const MAX_QUEUED: usize = 1024;
/// Kibibytes of payload that wait for the writer at most (32 MiB): a slow disk must not fill the memory.
const MAX_QUEUED_KIB: u32 = 32 << 10;
/// Most records of one atomic group.
pub const MAX_GROUP: usize = 1024;
/// Most bytes of one atomic group: it shares a segment and one write.
pub const MAX_GROUP_BYTES: usize = 8 << 20;
/// Why a record was not written. Unless said otherwise, nothing of it (nor of its group) is on disk.
#[derive(Debug, Clone, thiserror::Error)]
pub enum JournalError {
    /// Something else was already signed under this key.
    #[error(
        "refusing to sign twice: key {} of kind {kind} already stands for {}, not for {}",
        hex(key),
        hex(recorded),
        hex(offered)
    )]
    Contradiction {
        /// The family of keys.
        kind: u8,
        /// The key.
        key: Vec<u8>,
        /// The digest in the journal.
        recorded: [u8; 32],
        /// The digest that was refused.
        offered: [u8; 32],
    },
    /// A part of the entry exceeds its limit.
    #[error("{what} of {length} exceeds the journal's limit of {limit}")]
    TooLarge {
        /// The part.
        what: &'static str,
        /// Its size or number.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// The disk cannot keep up; only from [`Journal::try_append`].
    #[error("the journal's queue is full: the disk is too slow; try again later")]
    QueueFull,
    /// There is no room on the disk. Later appends work again once there is.
    #[error("no space left for the journal in {}; free some space on this disk", dir.display())]
    StorageFull {
        /// The journal's folder.
        dir: PathBuf,
    },
    /// The sign-once table cannot be read, so nothing may be signed. A restart rebuilds it.
    #[error("the sign-once table is unavailable ({reason}); restart the node to rebuild it from the journal")]
    OnceUnavailable {
        /// What is wrong with the index.
        reason: String,
    },
    /// A write or a sync failed, so nobody knows what is on disk: the node must stop and start again.
    /// The refused record may or may not be found there.
    #[error("the journal failed and accepts nothing more ({reason}); check the disk and restart the node")]
    Failed {
        /// What failed first.
        reason: String,
    },
    /// A record could not be read back.
    #[error("{position} cannot be read: {reason}")]
    Unreadable {
        /// The record asked for.
        position: Position,
        /// What is wrong.
        reason: String,
    },
    /// The store was closed.
    #[error("the journal is closed")]
    Closed,
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// An append under way. Resolves when the record is durable; dropping it does not take the record back.
#[must_use = "the record is durable only once this resolves"]
#[derive(Debug)]
pub struct Pending {
    reply: oneshot::Receiver<Result<Vec<Position>, JournalError>>,
    fatal: Arc<OnceLock<String>>,
}

impl Pending {
    /// Waits until all records of the append are durable.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn all(self) -> Result<Vec<Position>, JournalError> {
        match self.reply.await {
            Ok(result) => result,
            Err(_) => Err(gone(&self.fatal)),
        }
    }

    /// Waits as [`Pending::all`] and returns where the first record stands.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn first(self) -> Result<Position, JournalError> {
        let positions = self.all().await?;
        // A group is never empty, so there is a first one.
        positions.first().copied().ok_or(JournalError::Closed)
    }
}

fn gone(fatal: &OnceLock<String>) -> JournalError {
    match fatal.get() {
        Some(reason) => JournalError::Failed { reason: reason.clone() },
        None => JournalError::Closed,
    }
}

/// Handle on the journal; clones share one writer.
#[derive(Clone)]
pub struct Journal {
    dir: Arc<PathBuf>,
    commands: mpsc::Sender<Command>,
    memory: Arc<Semaphore>,
    fatal: Arc<OnceLock<String>>,
    ballast: Arc<Ballast>,
    /// Closed when the writer's thread has ended and let go of the home.
    running: watch::Receiver<()>,
    #[cfg(test)]
    pub(super) hooks: Arc<super::writer::Hooks>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("dir", &self.dir).field("fatal", &self.fatal.get()).finish()
    }
}

impl Journal {
    /// Starts the writer thread.
    pub(super) fn start(dir: PathBuf, writer: Writer) -> std::io::Result<Self> {
        let (commands, queue) = mpsc::channel(MAX_QUEUED);
        let fatal = writer.fatal();
        let ballast = writer.ballast();
        #[cfg(test)]
        let hooks = writer.hooks();
        let (alive, running) = watch::channel(());
        let thread_fatal = Arc::clone(&fatal);
        std::thread::Builder::new().name("souk-journal".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| writer.run(queue))).is_err() {
                // Callers learn of a bug as of a broken disk: nobody knows what was written.
                thread_fatal.get_or_init(|| "the writer panicked".to_owned());
            }
            drop(alive);
        })?;
        Ok(Self {
            dir: Arc::new(dir),
            commands,
            memory: Arc::new(Semaphore::new(usize::try_from(MAX_QUEUED_KIB).unwrap_or(usize::MAX))),
            fatal,
            ballast,
            running,
            #[cfg(test)]
            hooks,
        })
    }

    /// Records one entry.
    ///
    /// Appends are written in the order in which they were first polled. Not cancel safe in one sense: once
    /// queued, the record is written even if this future is dropped.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn append(&self, entry: Entry) -> Result<Position, JournalError> {
        let pending = self.queue(vec![entry]).await?;
        pending.first().await
    }

    /// Records several entries, all or none of them, also across a crash. Empty groups succeed.
    ///
    /// # Errors
    /// See [`JournalError`].
    pub async fn append_all(&self, entries: Vec<Entry>) -> Result<Vec<Position>, JournalError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        self.queue(entries).await?.all().await
    }

    /// Waits for room in the queue and puts a group in; the group's place in the order is then fixed.
    ///
    /// # Errors
    /// What can be said before writing; see [`JournalError`].
    pub async fn queue(&self, entries: Vec<Entry>) -> Result<Pending, JournalError> {
        let cost = cost(&entries)?;
        let memory = Arc::clone(&self.memory).acquire_many_owned(cost).await.map_err(|_| gone(&self.fatal))?;
        let slot = self.commands.reserve().await.map_err(|_| gone(&self.fatal))?;
        Ok(self.send(entries, memory, slot))
    }

    /// Puts a group of entries in the queue at once, for callers that must not wait.
    ///
    /// # Errors
    /// [`JournalError::QueueFull`] if it has no room; otherwise as [`Journal::queue`].
    pub fn try_append(&self, entries: Vec<Entry>) -> Result<Pending, JournalError> {
        let cost = cost(&entries)?;
        let memory = Arc::clone(&self.memory).try_acquire_many_owned(cost).map_err(|error| match error {
            TryAcquireError::NoPermits => JournalError::QueueFull,
            TryAcquireError::Closed => gone(&self.fatal),
        })?;
        let slot = self.commands.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => JournalError::QueueFull,
            mpsc::error::TrySendError::Closed(()) => gone(&self.fatal),
        })?;
        Ok(self.send(entries, memory, slot))
    }

    fn send(&self, entries: Vec<Entry>, memory: OwnedSemaphorePermit, slot: mpsc::Permit<'_, Command>) -> Pending {
        let (reply, receiver) = oneshot::channel();
        slot.send(Command::Append { entries, memory, reply });
        Pending { reply: receiver, fatal: Arc::clone(&self.fatal) }
    }

    /// Reads a record back and checks its hash.
    ///
    /// # Errors
    /// [`JournalError::Unreadable`] if there is no whole record at that place.
    pub async fn read(&self, position: Position) -> Result<Stored, JournalError> {
        let dir = Arc::clone(&self.dir);
        let read = tokio::task::spawn_blocking(move || scan::read_at(&dir, position)).await;
        let unreadable = |reason| JournalError::Unreadable { position, reason };
        match read {
            Ok(Ok((kind, payload, _))) => Ok(Stored { kind, payload }),
            Ok(Err(damage)) => Err(unreadable(JournalDamage::to_string(&damage))),
            Err(error) => Err(unreadable(error.to_string())),
        }
    }

    /// Why the journal accepts nothing more, once a write or a sync has failed.
    #[must_use]
    pub fn failure(&self) -> Option<JournalError> {
        self.fatal.get().map(|reason| JournalError::Failed { reason: reason.clone() })
    }

    /// Resolves when the writer has ended: the journal failed or was closed. The node exits on the first.
    pub async fn ended(&self) -> JournalError {
        let mut running = self.running.clone();
        while running.changed().await.is_ok() {}
        gone(&self.fatal)
    }

    pub(super) fn gave_up_ballast(&self) -> bool {
        self.ballast.given_up()
    }

    /// Writes what is queued, ends the writer and waits for it. Other handles get [`JournalError::Closed`].
    pub(super) async fn close(&self) {
        // A writer that has failed is ending by itself.
        let _ = self.commands.send(Command::Close).await;
        self.ended().await;
    }
}

/// Kibibytes that a group takes in the queue, after its limits were checked.
fn cost(entries: &[Entry]) -> Result<u32, JournalError> {
    if entries.len() > MAX_GROUP {
        let length = entries.len();
        return Err(JournalError::TooLarge { what: "number of records in a group", length, limit: MAX_GROUP });
    }
    let mut bytes: usize = 0;
    for entry in entries {
        bytes = bytes.saturating_add(entry.check()?);
    }
    if bytes > MAX_GROUP_BYTES {
        return Err(JournalError::TooLarge { what: "group", length: bytes, limit: MAX_GROUP_BYTES });
    }
    let kib = bytes.div_ceil(1024).saturating_add(1);
    Ok(u32::try_from(kib).unwrap_or(MAX_QUEUED_KIB).min(MAX_QUEUED_KIB))
}
