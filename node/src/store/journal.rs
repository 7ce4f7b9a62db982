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
    frame::{MAX_ONCE_KEY, MAX_ONCE_KEYS, MAX_PAYLOAD},
    index::{Document, MAX_DOCUMENT, MAX_DOCUMENT_KEY},
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
/// Most documents that one entry may change; a record concerns few things.
pub const MAX_DOCUMENTS: usize = 64;

/// Where a record stands in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// 1, 2, 3 .. over the life of the home.
    pub sequence: u64,
    /// Number of the segment file, from 1.
    pub segment: u32,
    /// Byte at which the frame starts in it.
    pub offset: u64,
}

impl Position {
    /// Bytes of [`Position::to_bytes`].
    pub const BYTES: usize = 20;

    /// A fixed form for documents that point into the journal; sorts like the position.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = self.sequence.to_be_bytes().into_iter();
        let fields = fields
            .chain(self.segment.to_be_bytes())
            .chain(self.offset.to_be_bytes());
        for (slot, byte) in bytes.iter_mut().zip(fields) {
            *slot = byte;
        }
        bytes
    }

    /// The inverse of [`Position::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (sequence, rest) = bytes
            .split_first_chunk()
            .map_or(([0; 8], &[][..]), |(a, b)| (*a, b));
        let (segment, rest) = rest
            .split_first_chunk()
            .map_or(([0; 4], &[][..]), |(a, b)| (*a, b));
        let offset = rest.first_chunk().copied().unwrap_or_default();
        Self {
            sequence: u64::from_be_bytes(sequence),
            segment: u32::from_be_bytes(segment),
            offset: u64::from_be_bytes(offset),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "record {} (segment {}, byte {})",
            self.sequence, self.segment, self.offset
        )
    }
}

/// The end of the chain: the last record and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last record.
    pub position: Position,
    /// Its BLAKE3, which covers the hash before it and so the whole journal.
    pub hash: [u8; 32],
}

/// Something this node says once: under one key only one digest is ever written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OnceKey {
    /// The family of keys (award, acceptance, result, voucher ..).
    pub kind: u8,
    /// The key within it, at most [`MAX_ONCE_KEY`] bytes.
    pub key: Vec<u8>,
    /// BLAKE3 of what is said.
    pub digest: [u8; 32],
}

/// What is to be recorded. The store does not look into the payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// What the payload is.
    pub kind: u16,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
    /// What the record says once; at most [`MAX_ONCE_KEYS`].
    pub once: Vec<OnceKey>,
    /// Values derived from the record for the index; at most [`MAX_DOCUMENTS`]. They are not journaled: the
    /// replay callback derives the same ones again when the index is rebuilt.
    pub documents: Vec<Document>,
}

impl Entry {
    /// An entry that neither signs nor indexes anything.
    #[must_use]
    pub fn new(kind: u16, payload: Vec<u8>) -> Self {
        Self {
            kind,
            payload,
            ..Self::default()
        }
    }

    /// Adds something the record says once.
    #[must_use]
    pub fn once(mut self, kind: u8, key: impl Into<Vec<u8>>, digest: [u8; 32]) -> Self {
        self.once.push(OnceKey {
            kind,
            key: key.into(),
            digest,
        });
        self
    }

    /// Adds a change of the index.
    #[must_use]
    pub fn document(mut self, document: Document) -> Self {
        self.documents.push(document);
        self
    }

    fn check(&self) -> Result<usize, JournalError> {
        let within = |what, length, limit| {
            if length > limit {
                Err(JournalError::TooLarge {
                    what,
                    length,
                    limit,
                })
            } else {
                Ok(())
            }
        };
        within("payload", self.payload.len(), MAX_PAYLOAD)?;
        within("number of sign-once keys", self.once.len(), MAX_ONCE_KEYS)?;
        within("number of documents", self.documents.len(), MAX_DOCUMENTS)?;
        let mut bytes = self.payload.len();
        for once in &self.once {
            within("sign-once key", once.key.len(), MAX_ONCE_KEY)?;
            bytes = bytes.saturating_add(once.key.len());
        }
        for document in &self.documents {
            let value = document.value.as_ref().map_or(0, Vec::len);
            within("document key", document.key.len(), MAX_DOCUMENT_KEY)?;
            within("document", value, MAX_DOCUMENT)?;
            bytes = bytes
                .saturating_add(document.key.len())
                .saturating_add(value);
        }
        Ok(bytes)
    }
}

/// A record read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What the payload is.
    pub kind: u16,
    /// As it was appended.
    pub payload: Vec<u8>,
}

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
    #[error(
        "the sign-once table is unavailable ({reason}); restart the node to rebuild it from the journal"
    )]
    OnceUnavailable {
        /// What is wrong with the index.
        reason: String,
    },
    /// A write or a sync failed, so nobody knows what is on disk: the node must stop and start again.
    /// The refused record may or may not be found there.
    #[error(
        "the journal failed and accepts nothing more ({reason}); check the disk and restart the node"
    )]
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
        Some(reason) => JournalError::Failed {
            reason: reason.clone(),
        },
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
        f.debug_struct("Journal")
            .field("dir", &self.dir)
            .field("fatal", &self.fatal.get())
            .finish()
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
        std::thread::Builder::new()
            .name("souk-journal".to_owned())
            .spawn(move || {
                if catch_unwind(AssertUnwindSafe(|| writer.run(queue))).is_err() {
                    // Callers learn of a bug as of a broken disk: nobody knows what was written.
                    thread_fatal.get_or_init(|| "the writer panicked".to_owned());
                }
                drop(alive);
            })?;
        Ok(Self {
            dir: Arc::new(dir),
            commands,
            memory: Arc::new(Semaphore::new(
                usize::try_from(MAX_QUEUED_KIB).unwrap_or(usize::MAX),
            )),
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
        let memory = Arc::clone(&self.memory)
            .acquire_many_owned(cost)
            .await
            .map_err(|_| gone(&self.fatal))?;
        let slot = self
            .commands
            .reserve()
            .await
            .map_err(|_| gone(&self.fatal))?;
        Ok(self.send(entries, memory, slot))
    }

    /// Puts a group of entries in the queue at once, for callers that must not wait.
    ///
    /// # Errors
    /// [`JournalError::QueueFull`] if it has no room; otherwise as [`Journal::queue`].
    pub fn try_append(&self, entries: Vec<Entry>) -> Result<Pending, JournalError> {
        let cost = cost(&entries)?;
        let memory = Arc::clone(&self.memory)
            .try_acquire_many_owned(cost)
            .map_err(|error| match error {
                TryAcquireError::NoPermits => JournalError::QueueFull,
                TryAcquireError::Closed => gone(&self.fatal),
            })?;
        let slot = self.commands.try_reserve().map_err(|error| match error {
            mpsc::error::TrySendError::Full(()) => JournalError::QueueFull,
            mpsc::error::TrySendError::Closed(()) => gone(&self.fatal),
        })?;
        Ok(self.send(entries, memory, slot))
    }

    fn send(
        &self,
        entries: Vec<Entry>,
        memory: OwnedSemaphorePermit,
        slot: mpsc::Permit<'_, Command>,
    ) -> Pending {
        let (reply, receiver) = oneshot::channel();
        slot.send(Command::Append {
            entries,
            memory,
            reply,
        });
        Pending {
            reply: receiver,
            fatal: Arc::clone(&self.fatal),
        }
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
        self.fatal.get().map(|reason| JournalError::Failed {
            reason: reason.clone(),
        })
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
        return Err(JournalError::TooLarge {
            what: "number of records in a group",
            length,
            limit: MAX_GROUP,
        });
    }
    let mut bytes: usize = 0;
    for entry in entries {
        bytes = bytes.saturating_add(entry.check()?);
    }
    if bytes > MAX_GROUP_BYTES {
        return Err(JournalError::TooLarge {
            what: "group",
            length: bytes,
            limit: MAX_GROUP_BYTES,
        });
    }
    let kib = bytes.div_ceil(1024).saturating_add(1);
    Ok(u32::try_from(kib)
        .unwrap_or(MAX_QUEUED_KIB)
        .min(MAX_QUEUED_KIB))
}
