//! The log of one stream (stdout, stderr) of one attempt: a file that only grows, read by byte offset.
//!
//! The provider's spool is written by whatever drains the runner; the renter's is filled from the provider's
//! by offset and may be continued after a break or a restart. Followers watch the length. At the end the
//! length and the BLAKE3 of every byte are known, and a Result signs them.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use blake3::{Hash, Hasher};
use souk_protocol::Timestamp;
use tokio::sync::watch;

use super::{
    arrivals::Arrivals,
    disk::{self, DiskError, at, private},
    scan::to_u64,
};

/// Most bytes of one read (1 MiB): a follower pages on.
const MAX_READ: u64 = 1 << 20;
/// Longest name of an attempt or stream in bytes: two ids in hex and a number.
const MAX_NAME: usize = 200;

/// Why a spool did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// A name could leave the folder.
    #[error("{0:?} is not a name of a spool; use letters, digits, '-', '_' and '.', at most {MAX_NAME}")]
    Name(String),
    /// The spool has ended; its length and hash may have been signed.
    #[error("the log ended at {length} bytes")]
    Closed {
        /// Its final length.
        length: u64,
    },
    /// Bytes are missing between what is here and what came.
    #[error("bytes from {offset} on came, but the log has only {length}")]
    Gap {
        /// Where they start.
        offset: u64,
        /// What is here.
        length: u64,
    },
    /// The end came at another length than what is here.
    #[error("the log should end at {expected} bytes, but has {length}")]
    Length {
        /// What the end says.
        expected: u64,
        /// What is here.
        length: u64,
    },
    /// A file operation failed; see [`DiskError::is_full`].
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The blocking pool is gone: the node shuts down.
    #[error("the node is shutting down")]
    Stopped,
}

/// What followers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolState {
    /// Bytes that can be read.
    pub length: u64,
    /// The end, once it is known.
    pub closed: Option<Closed>,
}

/// The end of a spool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    /// Bytes in it.
    pub length: u64,
    /// BLAKE3 of all of them.
    pub hash: Hash,
}

/// What became of appended bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Bytes in the spool now.
    pub length: u64,
    /// Bytes that the cap cut off, 0 as long as there is room.
    pub dropped: u64,
}

/// Both logs of one attempt; clones share them.
#[derive(Debug, Clone)]
pub struct AttemptLogs {
    /// Standard output.
    pub stdout: Spool,
    /// Standard error.
    pub stderr: Spool,
}

impl AttemptLogs {
    /// Both as [`Spool::open_blocking`] opens them.
    ///
    /// # Errors
    /// As [`Spool::open_blocking`].
    pub async fn open(dir: &Path, attempt: &str, cap: u64, timed: bool) -> Result<Self, SpoolError> {
        let (dir, attempt) = (dir.to_owned(), attempt.to_owned());
        let open = move |stream| Spool::open_blocking(&dir, &attempt, stream, cap, timed);
        // One turn on the pool: a task's first output waits for it.
        on_pool(move || Ok(Self { stdout: open("stdout")?, stderr: open("stderr")? })).await
    }
}

/// Handle on a spool; clones share it.
#[derive(Debug, Clone)]
pub struct Spool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Made with the first byte: most logs of errors have none.
    file: OnceLock<File>,
    cap: u64,
    /// Locked on blocking threads while a piece is written, so that pieces follow each other whole.
    tail: Mutex<Tail>,
    state: watch::Sender<SpoolState>,
    /// When bytes arrived, where somebody wants to know. Locked for map operations and one small write, after `tail`.
    arrivals: Option<Mutex<Arrivals>>,
}

#[derive(Debug)]
struct Tail {
    hasher: Hasher,
    length: u64,
}

impl Spool {
    /// The spool of a stream. An existing one is read through for its hash and goes on where it ended. A `timed` one keeps,
    /// in a file of its own, when its bytes arrived. For threads that may wait for the disk.
    ///
    /// # Errors
    /// [`SpoolError::Name`], [`SpoolError::Disk`].
    pub fn open_blocking(dir: &Path, attempt: &str, stream: &str, cap: u64, timed: bool) -> Result<Self, SpoolError> {
        let path = log_path(dir, checked(attempt)?, checked(stream)?);
        let mut hasher = Hasher::new();
        let mut length = 0_u64;
        let file = OnceLock::new();
        match private().read(true).append(true).open(&path) {
            Ok(mut found) => {
                let mut buffer = vec![0; 64 << 10];
                loop {
                    let count = found.read(&mut buffer).map_err(at("read the log", &path))?;
                    if count == 0 {
                        break;
                    }
                    hasher.update(buffer.get(..count).unwrap_or_default());
                    length = length.saturating_add(to_u64(count));
                }
                let _ = file.set(found);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at("open the log", &path)(error).into()),
        }
        let (state, _) = watch::channel(SpoolState { length, closed: None });
        let tail = Mutex::new(Tail { hasher, length });
        let arrivals = timed.then(|| Mutex::new(Arrivals::open(&path, length)));
        Ok(Self(Arc::new(Inner { path, file, cap, tail, state, arrivals })))
    }

    /// The file; there is none while the log is empty.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Length and end as of now.
    #[must_use]
    pub fn state(&self) -> SpoolState {
        *self.0.state.borrow()
    }

    /// When the byte at `offset` arrived, if this spool keeps that, and where the next bytes with a time of their own
    /// start.
    #[must_use]
    pub fn arrived(&self, offset: u64) -> (Option<Timestamp>, Option<u64>) {
        self.arrivals().map_or((None, None), |arrivals| arrivals.of(offset))
    }

    /// Where the first byte stands that is known to have arrived at `since` or later; the end if none has.
    #[must_use]
    pub fn offset_since(&self, since: Timestamp) -> u64 {
        let length = self.state().length;
        self.arrivals().and_then(|arrivals| arrivals.since(since)).unwrap_or(length).min(length)
    }

    /// Follows length and end.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<SpoolState> {
        self.0.state.subscribe()
    }

    /// Adds bytes at the end, as far as the cap allows, and tells the followers.
    ///
    /// # Errors
    /// [`SpoolError::Closed`], [`SpoolError::Disk`] (what was written before a failure stays).
    pub async fn append(&self, bytes: impl Into<Vec<u8>>) -> Result<Appended, SpoolError> {
        let (spool, bytes) = (self.clone(), bytes.into());
        on_pool(move || spool.append_blocking(&bytes)).await
    }

    /// [`Spool::append`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// As [`Spool::append`].
    pub fn append_blocking(&self, bytes: &[u8]) -> Result<Appended, SpoolError> {
        let mut tail = self.tail();
        self.write(&mut tail, bytes)
    }

    /// Adds bytes that a peer says start at `offset`; what is here already is skipped.
    ///
    /// # Errors
    /// [`SpoolError::Gap`] if bytes before them are missing; otherwise as [`Spool::append`].
    pub async fn append_at(&self, offset: u64, bytes: impl Into<Vec<u8>>) -> Result<Appended, SpoolError> {
        let (spool, bytes) = (self.clone(), bytes.into());
        on_pool(move || {
            let mut tail = spool.tail();
            let Some(known) = tail.length.checked_sub(offset) else {
                return Err(SpoolError::Gap { offset, length: tail.length });
            };
            let known = usize::try_from(known).unwrap_or(usize::MAX);
            match bytes.get(known..) {
                Some(new) if !new.is_empty() => spool.write(&mut tail, new),
                _ => Ok(Appended { length: tail.length, dropped: 0 }),
            }
        })
        .await
    }

    /// Up to 1 MiB (and `limit`) of the bytes from `offset` on; empty at the end.
    ///
    /// # Errors
    /// [`SpoolError::Disk`].
    pub async fn read(&self, offset: u64, limit: u64) -> Result<Vec<u8>, SpoolError> {
        let spool = self.clone();
        on_pool(move || spool.read_blocking(offset, limit)).await
    }

    /// [`Spool::read`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// As [`Spool::read`].
    pub fn read_blocking(&self, offset: u64, limit: u64) -> Result<Vec<u8>, SpoolError> {
        let available = self.state().length.saturating_sub(offset).min(limit).min(MAX_READ);
        let mut bytes = vec![0; usize::try_from(available).unwrap_or(0)];
        if !bytes.is_empty() {
            self.file()?.read_exact_at(&mut bytes, offset).map_err(at("read the log", &self.0.path))?;
        }
        Ok(bytes)
    }

    /// Ends the spool and syncs it, so that its length and hash may be signed. Ending it again is fine.
    ///
    /// # Errors
    /// [`SpoolError::Length`] if `expected` is given and differs: the spool then stays open.
    pub async fn close(&self, expected: Option<u64>) -> Result<Closed, SpoolError> {
        let spool = self.clone();
        on_pool(move || {
            let tail = spool.tail();
            if let Some(expected) = expected
                && expected != tail.length
            {
                return Err(SpoolError::Length { expected, length: tail.length });
            }
            if let Some(closed) = spool.state().closed {
                return Ok(closed);
            }
            spool.sync_file()?;
            let closed = Closed { length: tail.length, hash: tail.hasher.finalize() };
            spool.0.state.send_replace(SpoolState { length: tail.length, closed: Some(closed) });
            Ok(closed)
        })
        .await
    }

    /// Makes what is there durable.
    ///
    /// # Errors
    /// [`SpoolError::Disk`].
    pub async fn sync(&self) -> Result<(), SpoolError> {
        let spool = self.clone();
        on_pool(move || spool.sync_file()).await
    }

    fn sync_file(&self) -> Result<(), SpoolError> {
        let Some(file) = self.0.file.get() else { return Ok(()) };
        file.sync_data().map_err(at("sync the log", &self.0.path))?;
        self.0.path.parent().map_or(Ok(()), |folder| Ok(disk::sync_dir(folder)?))
    }

    /// The file, made if there is none.
    fn file(&self) -> Result<&File, DiskError> {
        if let Some(file) = self.0.file.get() {
            return Ok(file);
        }
        if let Some(folder) = self.0.path.parent() {
            disk::create_dir(folder)?;
        }
        let made = private().read(true).append(true).create(true).open(&self.0.path);
        let made = made.map_err(at("create the log", &self.0.path))?;
        Ok(self.0.file.get_or_init(|| made))
    }

    fn write(&self, tail: &mut Tail, bytes: &[u8]) -> Result<Appended, SpoolError> {
        if let Some(closed) = self.state().closed {
            return Err(SpoolError::Closed { length: closed.length });
        }
        let room = usize::try_from(self.0.cap.saturating_sub(tail.length)).unwrap_or(usize::MAX);
        let mut kept = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        let dropped = to_u64(bytes.len().saturating_sub(kept.len()));
        if kept.is_empty() {
            return Ok(Appended { length: tail.length, dropped });
        }
        let mut file = self.file()?;
        let mut failed = None;
        if let Some(mut arrivals) = self.arrivals() {
            // Before followers see the bytes; on disk after them, so that no mark is ahead of its log.
            arrivals.note(tail.length, crate::clock::wall());
        }
        // Not `write_all`: after a full disk the length must still say what is in the file.
        while !kept.is_empty() {
            match file.write(kept) {
                Ok(count) => {
                    let (written, rest) = kept.split_at_checked(count).unwrap_or((kept, &[]));
                    tail.hasher.update(written);
                    tail.length = tail.length.saturating_add(to_u64(written.len()));
                    kept = rest;
                    if count == 0 {
                        failed = Some(io::Error::from(io::ErrorKind::WriteZero));
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        self.0.state.send_replace(SpoolState { length: tail.length, closed: None });
        if let Some(mut arrivals) = self.arrivals() {
            arrivals.save();
        }
        match failed {
            Some(error) => Err(at("write the log", &self.0.path)(error).into()),
            None => Ok(Appended { length: tail.length, dropped }),
        }
    }

    fn arrivals(&self) -> Option<MutexGuard<'_, Arrivals>> {
        Some(self.0.arrivals.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The tail is consistent after each step, so a poisoned lock is fine.
    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.0.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the log `stream` of `attempt` lies.
pub(crate) fn log_path(dir: &Path, attempt: &str, stream: &str) -> PathBuf {
    dir.join(format!("{attempt}.{stream}"))
}

fn checked(name: &str) -> Result<&str, SpoolError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let fits = !name.is_empty() && name.len() <= MAX_NAME && !name.starts_with('.');
    if fits && name.bytes().all(plain) { Ok(name) } else { Err(SpoolError::Name(name.to_owned())) }
}

async fn on_pool<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SpoolError> + Send + 'static,
) -> Result<T, SpoolError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(SpoolError::Stopped))
}
