//! The derived index: the sign-once table and the node's documents, in sled.
//!
//! Nothing here is truth. The index knows the record up to which it was built and a sum over its rows; a
//! start compares both and rebuilds from the journal where they differ, because sled can lose rows without
//! an error. Only the journal's writer moves the index's head, after the record is durable.

mod open;
mod tables;

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

pub(super) use self::open::{OpenError, set_aside};
use self::tables::{DocumentsTable, KEY_START, OnceTable, State, StateTable, Table};
use super::{
    entry::{Head, OnceKey},
    lock::HomeLock,
};

/// Longest document in bytes (64 KiB): sled turns larger values into files that it never frees.
pub const MAX_DOCUMENT: usize = 64 << 10;
/// Longest key of a document in bytes.
pub const MAX_DOCUMENT_KEY: usize = 512;
/// Most rows of one scan; a caller pages on with the last key.
pub const MAX_SCAN: usize = 4096;
/// Most bytes of one scan (8 MiB); it then ends early, and the caller pages on.
const MAX_SCAN_BYTES: usize = 8 << 20;

/// A value that the node derived from a record, to be found by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// What it is; the node numbers its kinds.
    pub kind: u8,
    /// At most [`MAX_DOCUMENT_KEY`] bytes; scans follow their order.
    pub key: Vec<u8>,
    /// At most [`MAX_DOCUMENT`] bytes; `None` removes it.
    pub value: Option<Vec<u8>>,
}

impl Document {
    /// A document to be written.
    #[must_use]
    pub fn put(kind: u8, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { kind, key: key.into(), value: Some(value.into()) }
    }

    /// A document to be removed.
    #[must_use]
    pub fn remove(kind: u8, key: impl Into<Vec<u8>>) -> Self {
        Self { kind, key: key.into(), value: None }
    }
}

/// Why the index did not answer. It stays so until a restart, which rebuilds it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum IndexError {
    /// sled failed or panicked.
    #[error("the index is damaged ({0}); restart the node to rebuild it from the journal")]
    Damaged(String),
    /// A document exceeds a limit.
    #[error("{what} of {length} bytes exceeds the index's limit of {limit}")]
    TooLarge {
        /// Key or value.
        what: &'static str,
        /// Its length.
        length: usize,
        /// The limit.
        limit: usize,
    },
}

/// Changes that belong together.
#[derive(Debug, Default)]
pub(super) struct Applied {
    /// The last record they come from; `None` leaves the head as it is.
    pub(super) head: Option<Head>,
    pub(super) once: Vec<OnceKey>,
    pub(super) documents: Vec<Document>,
}

/// Key and value of a document.
pub type Row = (Vec<u8>, Vec<u8>);

/// Handle on the index; clones share it.
#[derive(Clone)]
pub struct Index(Arc<Inner>);

struct Inner {
    db: sled::Db,
    /// The same file that sled writes: its `flush` is not an fsync.
    data: File,
    state: Mutex<State>,
    broken: OnceLock<String>,
    /// The home stays locked as long as anything of it is open.
    _lock: Option<Arc<HomeLock>>,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index").field("head", &self.head()).field("broken", &self.0.broken).finish()
    }
}

/// Renders what a panic said.
fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic".to_owned())
}

impl Index {
    /// The last record that the index contains.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        self.state().head
    }

    /// Rows in all tables.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.state().rows.count()
    }

    /// The document under a key.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub async fn get(&self, kind: u8, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        let key = key.to_vec();
        self.on_pool(move |index| index.get_blocking(kind, &key)).await
    }

    /// Up to `limit` (at most [`MAX_SCAN`]) documents of a kind whose keys start with `prefix` and follow
    /// `after`, in the order of their keys. Fewer than `limit` may come before the end if they are large:
    /// only an empty answer is the end.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub async fn scan(
        &self,
        kind: u8,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, IndexError> {
        let (prefix, after) = (prefix.to_vec(), after.map(<[u8]>::to_vec));
        self.on_pool(move |index| index.scan_blocking(kind, &prefix, after.as_deref(), limit)).await
    }

    /// The digest that was signed under a key, if any.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub async fn once(&self, kind: u8, key: &[u8]) -> Result<Option<[u8; 32]>, IndexError> {
        let key = key.to_vec();
        self.on_pool(move |index| index.once_blocking(kind, &key)).await
    }

    /// Writes documents outside of a record, all or none. They are lost when the index is rebuilt unless the
    /// replay callback derives them too; prefer [`Entry::documents`](super::Entry).
    ///
    /// # Errors
    /// [`IndexError`].
    pub async fn put(&self, documents: Vec<Document>) -> Result<(), IndexError> {
        for document in &documents {
            let value = document.value.as_ref().map_or(0, Vec::len);
            for (what, length, limit) in
                [("document key", document.key.len(), MAX_DOCUMENT_KEY), ("document", value, MAX_DOCUMENT)]
            {
                if length > limit {
                    return Err(IndexError::TooLarge { what, length, limit });
                }
            }
        }
        let applied = Applied { documents, ..Applied::default() };
        self.on_pool(move |index| index.apply_blocking(applied).map(|_| ())).await
    }

    /// [`Index::get`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub fn get_blocking(&self, kind: u8, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        self.guarded(|db| Ok(db.get(DocumentsTable::key(kind, key))?.map(|value| value.to_vec())))
    }

    /// [`Index::scan`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub fn scan_blocking(
        &self,
        kind: u8,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Row>, IndexError> {
        let limit = limit.min(MAX_SCAN);
        let prefix = DocumentsTable::key(kind, prefix);
        let start = match after {
            // The least key behind `after`.
            Some(after) => {
                let mut key = DocumentsTable::key(kind, after);
                key.push(0);
                key.max(prefix.clone())
            }
            None => prefix.clone(),
        };
        self.guarded(|db| {
            let mut rows = Vec::new();
            let mut bytes = 0_usize;
            for row in db.range(start.clone()..) {
                let (key, value) = row?;
                if !key.starts_with(&prefix) || rows.len() >= limit || bytes > MAX_SCAN_BYTES {
                    break;
                }
                bytes = bytes.saturating_add(key.len()).saturating_add(value.len());
                rows.push((key.get(KEY_START..).unwrap_or_default().to_vec(), value.to_vec()));
            }
            Ok(rows)
        })
    }

    /// [`Index::once`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`IndexError::Damaged`].
    pub fn once_blocking(&self, kind: u8, key: &[u8]) -> Result<Option<[u8; 32]>, IndexError> {
        let found = self.guarded(|db| db.get(OnceTable::key(kind, key)))?;
        match found {
            None => Ok(None),
            Some(value) => match <[u8; 32]>::try_from(value.as_ref()) {
                Ok(digest) => Ok(Some(digest)),
                Err(_) => Err(self.break_down("a digest has the wrong length".to_owned())),
            },
        }
    }

    /// Applies changes, all or none, and returns the sign-once keys among them that contradict the table
    /// (whose first digest stays).
    pub(super) fn apply_blocking(&self, applied: Applied) -> Result<Vec<OnceKey>, IndexError> {
        let mut state = self.state();
        let before = *state;
        let (changes, contradictions) = self.guarded(|db| {
            let mut changes: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
            let mut contradictions = Vec::new();
            for once in &applied.once {
                let key = OnceTable::key(once.kind, &once.key);
                let recorded = match changes.get(&key) {
                    Some(recorded) => recorded.clone(),
                    None => db.get(&key)?.map(|value| value.to_vec()),
                };
                match recorded {
                    None => {
                        changes.insert(key, Some(once.digest.to_vec()));
                    }
                    Some(recorded) if recorded != once.digest => contradictions.push(once.clone()),
                    Some(_) => {}
                }
            }
            for document in &applied.documents {
                changes.insert(DocumentsTable::key(document.kind, &document.key), document.value.clone());
            }
            Ok((changes, contradictions))
        })?;
        let after = self.guarded(|db| {
            let mut next = State { head: applied.head.or(before.head), ..before };
            let mut batch = sled::Batch::default();
            for (key, value) in &changes {
                if let Some(old) = db.get(key)? {
                    next.rows.subtract(key, &old);
                }
                match value {
                    Some(value) => {
                        next.rows.add(key, value);
                        batch.insert(key.as_slice(), value.as_slice());
                    }
                    None => batch.remove(key.as_slice()),
                }
            }
            batch.insert(StateTable::key(0, b""), next.encode());
            db.apply_batch(batch)?;
            Ok(next)
        })?;
        *state = after;
        Ok(contradictions)
    }

    /// Makes everything applied so far durable.
    pub(super) fn commit_blocking(&self) -> Result<(), IndexError> {
        self.guarded(|db| {
            db.flush()?;
            self.0.data.sync_data()?;
            Ok(())
        })
    }

    /// Breaks the index, as damage met at run time would.
    #[cfg(test)]
    pub(super) fn break_for_test(&self) {
        self.break_down("broken by a test".to_owned());
    }

    async fn on_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, IndexError> + Send + 'static,
    ) -> Result<T, IndexError> {
        let index = self.clone();
        tokio::task::spawn_blocking(move || work(&index))
            .await
            .unwrap_or_else(|error| Err(IndexError::Damaged(error.to_string())))
    }

    /// Runs a sled operation; an error or a panic breaks the index for good.
    fn guarded<T>(&self, work: impl FnOnce(&sled::Db) -> sled::Result<T>) -> Result<T, IndexError> {
        if let Some(reason) = self.0.broken.get() {
            return Err(IndexError::Damaged(reason.clone()));
        }
        match catch_unwind(AssertUnwindSafe(|| work(&self.0.db))) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.break_down(error.to_string())),
            Err(panic) => Err(self.break_down(panic_text(&*panic))),
        }
    }

    fn break_down(&self, reason: String) -> IndexError {
        IndexError::Damaged(self.0.broken.get_or_init(|| reason).clone())
    }

    /// Held only for operations on blocking threads; the state is replaced whole, so a poisoned one is fine.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
