//! Files named by the BLAKE3 of their content: inputs, modules, outputs.
//!
//! A blob appears under its name only after every byte was written and hashed, by a rename. Blobs are never
//! mapped into memory. A budget bounds their sum; when it is full, blobs that nobody has pinned go, the
//! longest unused first. The methods named `*_blocking` and [`Blobs::open`] may wait for the disk; the
//! others hand the work to the blocking pool.

mod error;
mod shelf;
mod writer;

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use blake3::Hash;

use self::shelf::Shelf;
pub use self::{error::BlobError, writer::BlobWriter};
use super::{
    disk::{self, DiskError, at},
    lock::HomeLock,
    scan::to_u64,
};

/// Bytes that are read, hashed and written at once.
const CHUNK: usize = 256 << 10;
/// Folder of unfinished blobs; emptied at the start.
const TEMPORARY: &str = "tmp";

/// Whether a blob must survive a power cut when the call returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It can be fetched or made again.
    Cached,
    /// File and name are synced: what a Result signs must be on disk before it.
    Durable,
}

/// A blob opened for reading. It stays readable even if it is removed meanwhile.
#[derive(Debug)]
pub struct BlobFile {
    /// At its first byte.
    pub file: File,
    /// Bytes in it.
    pub length: u64,
}

/// Handle on the blobs; clones share it.
#[derive(Debug, Clone)]
pub struct Blobs(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    /// Which blobs there are. Locked for map operations only, never while a file is read or written, except
    /// that evicted files are unlinked under it, so that no name reappears in between.
    shelf: Mutex<Shelf>,
    _lock: Option<Arc<HomeLock>>,
}

/// Keeps a blob from being evicted or removed.
#[derive(Debug)]
#[must_use = "the blob is pinned only as long as this lives"]
pub struct Pin {
    blobs: Blobs,
    hash: Hash,
}

impl Pin {
    /// The pinned blob.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its file, which stays as long as the pin.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.blobs.path(&self.hash)
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        self.blobs.shelf().pin(&self.hash);
        Self { blobs: self.blobs.clone(), hash: self.hash }
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.blobs.shelf().unpin(&self.hash);
    }
}

impl Blobs {
    /// Lists the blobs in `dir` and removes unfinished ones. Blocks on the disk.
    ///
    /// # Errors
    /// [`BlobError::Disk`].
    pub fn open(dir: &Path, budget: u64, lock: Option<Arc<HomeLock>>) -> Result<Self, BlobError> {
        let temporary = dir.join(TEMPORARY);
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(at("empty", &temporary))?;
        }
        disk::create_dir(&temporary)?;
        let mut found = Vec::new();
        walk(dir, &mut |hash, meta| {
            let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((used, hash, meta.len()));
        })?;
        found.sort_unstable_by_key(|(used, ..)| *used);
        let mut shelf = Shelf::new(budget);
        for (_, hash, length) in found {
            shelf.insert(hash, length);
        }
        Ok(Self(Arc::new(Inner { dir: dir.to_owned(), shelf: Mutex::new(shelf), _lock: lock })))
    }

    /// Where a blob lies (or would lie). Read it only under a [`Pin`], and never write to it.
    #[must_use]
    pub fn path(&self, hash: &Hash) -> PathBuf {
        blob_path(&self.0.dir, hash)
    }

    /// Whether a blob is there.
    #[must_use]
    pub fn has(&self, hash: &Hash) -> bool {
        self.shelf().length(hash).is_some()
    }

    /// Length of a blob in bytes.
    #[must_use]
    pub fn len(&self, hash: &Hash) -> Option<u64> {
        self.shelf().length(hash)
    }

    /// Whether there are no blobs at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shelf().count() == 0
    }

    /// Number of blobs and their bytes.
    #[must_use]
    pub fn usage(&self) -> (usize, u64) {
        let shelf = self.shelf();
        (shelf.count(), shelf.bytes())
    }

    /// Pins a blob that is there, and counts as a use.
    #[must_use]
    pub fn pin(&self, hash: &Hash) -> Option<Pin> {
        self.shelf().pin(hash).then(|| Pin { blobs: self.clone(), hash: *hash })
    }

    /// Stores bytes; returns their hash, pinned.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn put_bytes(&self, bytes: impl Into<Vec<u8>>, durability: Durability) -> Result<Pin, BlobError> {
        let bytes = bytes.into();
        self.on_pool(move |blobs| blobs.put_bytes_blocking(&bytes, durability)).await
    }

    /// [`Blobs::put_bytes`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`BlobError`].
    pub fn put_bytes_blocking(&self, bytes: &[u8], durability: Durability) -> Result<Pin, BlobError> {
        let hash = blake3::hash(bytes);
        if let Some(pin) = self.already(&hash, durability)? {
            return Ok(pin);
        }
        let mut draft = self.draft(to_u64(bytes.len()))?;
        draft.write(bytes)?;
        draft.finish(Some(hash), None, durability)
    }

    /// Stores a copy of a file (shared extents where the file system can), at most `limit` bytes; returns its
    /// hash, pinned. The file may change meanwhile: what was read is what is stored.
    ///
    /// # Errors
    /// [`BlobError`].
    pub async fn put_file(&self, path: &Path, limit: u64, durability: Durability) -> Result<Pin, BlobError> {
        let path = path.to_owned();
        self.on_pool(move |blobs| blobs.put_file_blocking(&path, limit, durability)).await
    }

    /// [`Blobs::put_file`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`BlobError`].
    pub fn put_file_blocking(&self, path: &Path, limit: u64, durability: Durability) -> Result<Pin, BlobError> {
        let source = File::open(path).map_err(at("open", path))?;
        self.put_open_file_blocking(source, path, limit, durability)
    }

    /// As [`Blobs::put_file_blocking`] for a file that the caller has opened (safely, beneath a stranger's
    /// folder); `path` is only named in errors.
    ///
    /// # Errors
    /// [`BlobError`].
    pub fn put_open_file_blocking(
        &self,
        mut source: File,
        path: &Path,
        limit: u64,
        durability: Durability,
    ) -> Result<Pin, BlobError> {
        let meta = source.metadata().map_err(at("examine", path))?;
        if !meta.is_file() {
            let error = io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file");
            return Err(at("store", path)(error).into());
        }
        if meta.len() > limit {
            return Err(BlobError::TooLong { limit });
        }
        let mut draft = self.draft(meta.len())?;
        if draft.clone_from(&source)? {
            return draft.finish(None, None, durability);
        }
        let mut buffer = vec![0; CHUNK];
        loop {
            let count = source.read(&mut buffer).map_err(at("read", path))?;
            if count == 0 {
                return draft.finish(None, None, durability);
            }
            draft.write(buffer.get(..count).unwrap_or_default())?;
        }
    }

    /// A blob written piece by piece. `limit` bytes are reserved in the budget until it ends.
    ///
    /// # Errors
    /// [`BlobError::BudgetFull`] and [`BlobError::Disk`].
    pub async fn writer(&self, limit: u64) -> Result<BlobWriter, BlobError> {
        let draft = self.on_pool(move |blobs| blobs.draft(limit)).await?;
        Ok(BlobWriter::new(draft))
    }

    /// Opens a blob for reading, and counts as a use.
    ///
    /// # Errors
    /// [`BlobError::Missing`].
    pub async fn open_blob(&self, hash: &Hash) -> Result<BlobFile, BlobError> {
        let hash = *hash;
        self.on_pool(move |blobs| blobs.open_blob_blocking(&hash)).await
    }

    /// [`Blobs::open_blob`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`BlobError::Missing`].
    pub fn open_blob_blocking(&self, hash: &Hash) -> Result<BlobFile, BlobError> {
        let length = {
            let mut shelf = self.shelf();
            shelf.touch(hash);
            shelf.length(hash).ok_or(BlobError::Missing(*hash))?
        };
        let path = self.path(hash);
        match File::open(&path) {
            Ok(file) => {
                // Keeps the order of use across restarts; failing to is harmless.
                let _ = file.set_modified(SystemTime::now());
                Ok(BlobFile { file, length })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.shelf().forget(hash);
                Err(BlobError::Missing(*hash))
            }
            Err(error) => Err(at("open", &path)(error).into()),
        }
    }

    /// Reads a blob whole and checks it; `limit` bounds the memory.
    ///
    /// # Errors
    /// [`BlobError`]; a damaged blob is removed.
    pub async fn read(&self, hash: &Hash, limit: u64) -> Result<Vec<u8>, BlobError> {
        let hash = *hash;
        self.on_pool(move |blobs| blobs.read_blocking(&hash, limit)).await
    }

    /// [`Blobs::read`] for threads that may wait for the disk.
    ///
    /// # Errors
    /// [`BlobError`]; a damaged blob is removed.
    pub fn read_blocking(&self, hash: &Hash, limit: u64) -> Result<Vec<u8>, BlobError> {
        let BlobFile { file, length } = self.open_blob_blocking(hash)?;
        if length > limit {
            return Err(BlobError::TooLong { limit });
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.take(length.saturating_add(1)).read_to_end(&mut bytes).map_err(at("read", self.path(hash)))?;
        if blake3::hash(&bytes) != *hash {
            self.drop_damaged(hash)?;
            return Err(BlobError::Damaged(*hash));
        }
        Ok(bytes)
    }

    /// Reads a blob through and compares its hash, for content that matters more than the time this takes.
    ///
    /// # Errors
    /// [`BlobError::Damaged`] (the blob was removed) or [`BlobError::Missing`].
    pub async fn check(&self, hash: &Hash) -> Result<(), BlobError> {
        let hash = *hash;
        self.on_pool(move |blobs| {
            let BlobFile { file, .. } = blobs.open_blob_blocking(&hash)?;
            if hash_file(file).map_err(at("read", blobs.path(&hash)))? != hash {
                blobs.drop_damaged(&hash)?;
                return Err(BlobError::Damaged(hash));
            }
            Ok(())
        })
        .await
    }

    /// Removes a blob that nobody has pinned. `false`: it was not there.
    ///
    /// # Errors
    /// [`BlobError::Pinned`], [`BlobError::Disk`].
    pub async fn remove(&self, hash: &Hash) -> Result<bool, BlobError> {
        let hash = *hash;
        self.on_pool(move |blobs| {
            let mut shelf = blobs.shelf();
            if shelf.pinned(&hash) {
                return Err(BlobError::Pinned(hash));
            }
            shelf.forget(&hash);
            Ok(disk::remove_if_there(&blobs.path(&hash))?)
        })
        .await
    }

    fn drop_damaged(&self, hash: &Hash) -> Result<(), BlobError> {
        let mut shelf = self.shelf();
        shelf.forget(hash);
        disk::remove_if_there(&self.path(hash))?;
        Ok(())
    }

    /// The blob, if it is there already, made as durable as asked.
    fn already(&self, hash: &Hash, durability: Durability) -> Result<Option<Pin>, BlobError> {
        let Some(pin) = self.pin(hash) else {
            return Ok(None);
        };
        if durability == Durability::Durable {
            let path = self.path(hash);
            match File::open(&path) {
                Ok(file) => file.sync_all().map_err(at("sync", &path))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.shelf().forget(hash);
                    return Ok(None);
                }
                Err(error) => return Err(at("open", &path)(error).into()),
            }
            self.sync_folders(&path)?;
        }
        Ok(Some(pin))
    }

    /// Syncs the folders that lead to a blob.
    fn sync_folders(&self, path: &Path) -> Result<(), DiskError> {
        for folder in path.ancestors().skip(1).take(2) {
            disk::sync_dir(folder)?;
        }
        Ok(())
    }

    async fn on_pool<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, BlobError> + Send + 'static,
    ) -> Result<T, BlobError> {
        let blobs = self.clone();
        tokio::task::spawn_blocking(move || work(&blobs)).await.unwrap_or(Err(BlobError::Stopped))
    }

    /// The map is consistent after each operation, so a poisoned lock is fine.
    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.0.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `aa/<hex>` under the blobs' folder. 256 folders are soon there, so that a blob seldom needs a new one: each costs a
/// wait for the disk of its own.
pub(super) fn blob_path(dir: &Path, hash: &Hash) -> PathBuf {
    let hex = hash.to_hex();
    let (first, _) = hex.as_str().split_at_checked(2).unwrap_or_default();
    dir.join(first).join(hex.as_str())
}

/// Calls `found` for each blob under `dir`; files that are not named like one are left alone.
pub(super) fn walk(dir: &Path, found: &mut dyn FnMut(Hash, fs::Metadata)) -> Result<(), DiskError> {
    let list = |path: &Path| -> Result<Vec<fs::DirEntry>, DiskError> {
        match fs::read_dir(path) {
            Ok(entries) => entries.collect::<Result<_, _>>().map_err(at("read", path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(at("read", path)(error)),
        }
    };
    let is_ours = |entry: &fs::DirEntry| entry.file_name().len() == 2 && entry.path().is_dir();
    for folder in list(dir)?.into_iter().filter(is_ours) {
        for entry in list(&folder.path())? {
            let name = entry.file_name();
            let hash = name.to_str().and_then(|name| Hash::from_hex(name).ok());
            if let (Some(hash), Ok(meta)) = (hash, entry.metadata()) {
                found(hash, meta);
            }
        }
    }
    Ok(())
}

/// BLAKE3 of the rest of a file, read in pieces (never mapped: a file may shrink meanwhile).
pub(super) fn hash_file(mut file: File) -> io::Result<Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(buffer.get(..count).unwrap_or_default());
    }
}
