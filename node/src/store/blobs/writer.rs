//! Blobs that are being written.

use std::{
    fs::{self, File},
    io::Write as _,
    path::PathBuf,
};

use blake3::{Hash, Hasher};
use tokio::task::JoinHandle;

use super::{BlobError, Blobs, CHUNK, Durability, Pin, TEMPORARY};
use crate::store::{
    disk::{self, at, private},
    scan::to_u64,
};

/// A temporary file that becomes a blob or nothing. Its methods may wait for the disk.
#[derive(Debug)]
pub(super) struct Draft {
    blobs: Blobs,
    path: PathBuf,
    file: File,
    hasher: Hasher,
    length: u64,
    limit: u64,
}

impl Blobs {
    /// Makes room for `limit` bytes and opens a temporary file.
    pub(super) fn draft(&self, limit: u64) -> Result<Draft, BlobError> {
        let mut doomed = Vec::new();
        {
            let mut shelf = self.shelf();
            let evicted = shelf.reserve(limit).map_err(|room| BlobError::BudgetFull {
                needed: limit,
                held: room.held,
                budget: room.budget,
            })?;
            for hash in evicted {
                // Only moved while the map is locked: removing a large file takes its time.
                let grave = self.0.dir.join(TEMPORARY).join(hash.to_hex().as_str());
                match fs::rename(self.path(&hash), &grave) {
                    Ok(()) => doomed.push(grave),
                    Err(error) => {
                        tracing::warn!(%error, %hash, "an evicted blob stays on the disk")
                    }
                }
            }
        }
        for grave in doomed {
            if let Err(error) = disk::remove_if_there(&grave) {
                tracing::warn!(%error, "an evicted blob stays on the disk until the next start");
            }
        }
        let open = || {
            let name = getrandom::u64().map_err(|_| std::io::Error::other("no randomness"))?;
            let path = self.0.dir.join(TEMPORARY).join(format!("{name:016x}"));
            Ok((private().write(true).read(true).create_new(true).open(&path)?, path))
        };
        match open() {
            Ok((file, path)) => Ok(Draft { blobs: self.clone(), path, file, hasher: Hasher::new(), length: 0, limit }),
            Err(error) => {
                self.shelf().release(limit);
                Err(at("create a file in", self.0.dir.join(TEMPORARY))(error).into())
            }
        }
    }
}

impl Draft {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), BlobError> {
        let length = self.length.saturating_add(to_u64(bytes.len()));
        if length > self.limit {
            return Err(BlobError::TooLong { limit: self.limit });
        }
        self.file.write_all(bytes).map_err(at("write", &self.path))?;
        self.hasher.update(bytes);
        self.length = length;
        Ok(())
    }

    /// Shares the extents of `source` if the file system can, and hashes the copy, which no longer changes.
    pub(super) fn clone_from(&mut self, source: &File) -> Result<bool, BlobError> {
        if rustix::fs::ioctl_ficlone(&self.file, source).is_err() {
            return Ok(false);
        }
        let length = self.file.metadata().map_err(at("examine", &self.path))?.len();
        if length > self.limit {
            return Err(BlobError::TooLong { limit: self.limit });
        }
        let mut buffer = vec![0; CHUNK];
        let mut copy = File::open(&self.path).map_err(at("open", &self.path))?;
        loop {
            let count = std::io::Read::read(&mut copy, &mut buffer).map_err(at("read", &self.path))?;
            if count == 0 {
                break;
            }
            self.hasher.update(buffer.get(..count).unwrap_or_default());
        }
        self.length = length;
        Ok(true)
    }

    /// Checks the content against what was promised and gives it its name.
    pub(super) fn finish(
        self,
        expected: Option<Hash>,
        length: Option<u64>,
        durability: Durability,
    ) -> Result<Pin, BlobError> {
        if let Some(expected) = length
            && expected != self.length
        {
            return Err(BlobError::WrongLength { expected, found: self.length });
        }
        let found = self.hasher.finalize();
        if let Some(expected) = expected
            && expected != found
        {
            return Err(BlobError::WrongHash { expected, found });
        }
        if let Some(pin) = self.blobs.already(&found, durability)? {
            return Ok(pin);
        }
        let target = self.blobs.path(&found);
        if let Some(folder) = target.parent() {
            disk::create_dir(folder)?;
        }
        if durability == Durability::Durable {
            self.file.sync_all().map_err(at("sync", &self.path))?;
        }
        let pinned = {
            let mut shelf = self.blobs.shelf();
            fs::rename(&self.path, &target).map_err(at("rename into place", &target))?;
            shelf.insert(found, self.length);
            shelf.pin(&found)
        };
        debug_assert!(pinned, "what was just inserted can be pinned");
        let pin = Pin { blobs: self.blobs.clone(), hash: found };
        if durability == Durability::Durable {
            self.blobs.sync_folders(&target)?;
        }
        Ok(pin)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        self.blobs.shelf().release(self.limit);
        // After a finished draft there is nothing left under this name; otherwise the start empties the folder.
        let _ = disk::remove_if_there(&self.path);
    }
}

/// What a background write gives back.
type Flushing = JoinHandle<Result<(Box<Draft>, Vec<u8>), BlobError>>;

#[derive(Debug)]
enum State {
    Idle(Box<Draft>, Vec<u8>),
    Flushing(Flushing),
    Failed,
}

/// A blob written piece by piece from async code. While one piece is hashed and written on the blocking pool,
/// the next one gathers. Dropping it removes what was written.
#[derive(Debug)]
pub struct BlobWriter {
    state: State,
    buffer: Vec<u8>,
    length: u64,
    limit: u64,
}

impl BlobWriter {
    pub(super) fn new(draft: Draft) -> Self {
        let limit = draft.limit;
        Self { state: State::Idle(Box::new(draft), Vec::new()), buffer: Vec::new(), length: 0, limit }
    }

    /// Bytes given so far.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Adds bytes. Not cancel safe: if it is dropped in the middle, drop the writer too.
    ///
    /// # Errors
    /// [`BlobError::TooLong`] as soon as the limit is passed, [`BlobError::Disk`] of this or the piece before.
    pub async fn write(&mut self, mut bytes: &[u8]) -> Result<(), BlobError> {
        let length = self.length.saturating_add(to_u64(bytes.len()));
        if length > self.limit {
            return Err(BlobError::TooLong { limit: self.limit });
        }
        self.length = length;
        while !bytes.is_empty() {
            let room = CHUNK.saturating_sub(self.buffer.len()).min(bytes.len());
            let (now, later) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
            self.buffer.extend_from_slice(now);
            bytes = later;
            if self.buffer.len() >= CHUNK {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Checks the content against what was promised, gives it its name, and returns it pinned.
    ///
    /// # Errors
    /// [`BlobError::WrongHash`], [`BlobError::WrongLength`], [`BlobError::Disk`]; nothing is then stored.
    pub async fn finish(
        mut self,
        expected: Option<Hash>,
        length: Option<u64>,
        durability: Durability,
    ) -> Result<Pin, BlobError> {
        let (mut draft, _) = self.settle().await?;
        let rest = std::mem::take(&mut self.buffer);
        let finished = tokio::task::spawn_blocking(move || {
            draft.write(&rest)?;
            draft.finish(expected, length, durability)
        });
        finished.await.unwrap_or(Err(BlobError::Stopped))
    }

    /// Hands the buffer to the pool, after the piece before it.
    async fn flush(&mut self) -> Result<(), BlobError> {
        let (mut draft, spare) = self.settle().await?;
        let piece = std::mem::replace(&mut self.buffer, spare);
        self.state = State::Flushing(tokio::task::spawn_blocking(move || {
            draft.write(&piece)?;
            let mut spare = piece;
            spare.clear();
            Ok((draft, spare))
        }));
        Ok(())
    }

    /// Waits for the piece on its way.
    async fn settle(&mut self) -> Result<(Box<Draft>, Vec<u8>), BlobError> {
        match std::mem::replace(&mut self.state, State::Failed) {
            State::Idle(draft, spare) => Ok((draft, spare)),
            State::Flushing(flushing) => flushing.await.unwrap_or(Err(BlobError::Stopped)),
            State::Failed => Err(BlobError::Stopped),
        }
    }
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        if let State::Idle(draft, _) = std::mem::replace(&mut self.state, State::Failed)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            // Removing the unfinished file may wait for the disk.
            drop(runtime.spawn_blocking(move || drop(draft)));
        }
    }
}
