//! The thread that owns the journal's last segment.
//!
//! Conversation partners: [`Journal`](super::Journal) handles (commands in, one reply each) and the index
//! (what is durable is applied to it before the reply). States: running; failed, after the first error that
//! leaves unknown what is on disk; closed.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::{
    disk::{self, Ballast, at, private, sync_dir},
    entry::{Entry, Head, OnceKey, Position},
    frame::{self, Link},
    index::{Applied, Index},
    journal::JournalError,
    scan::{Scanned, segment_path, to_u64},
};
use crate::ablation;

/// Records that share a sync at most: the first of them should not wait for a long write.
const MAX_BATCH: usize = 64;

type Reply = oneshot::Sender<Result<Vec<Position>, JournalError>>;

/// Free bytes under which the ballast is given up (8 MiB).
const LOW_WATER: u64 = 8 << 20;
/// Free bytes that are left to sled (3 MiB: a few of its 512 KiB segments).
const RESERVE: u64 = 3 << 20;

/// Digests by family and key.
type Signed = HashMap<(u8, Vec<u8>), [u8; 32]>;

/// What handles ask of the writer.
#[derive(Debug)]
pub(super) enum Command {
    Append {
        entries: Vec<Entry>,
        /// The entry's share of the queue's memory, returned when it has been written.
        memory: OwnedSemaphorePermit,
        reply: Reply,
    },
    /// Write what is queued, then end.
    Close,
}

/// A group that is encoded but not yet durable.
#[derive(Debug)]
struct Accepted {
    positions: Vec<Position>,
    reply: Reply,
    _memory: OwnedSemaphorePermit,
}

/// Frames that share the next write and sync.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    accepted: Vec<Accepted>,
    records: usize,
    applied: Applied,
    /// What the batch itself signs, which is not in the table yet.
    once: Signed,
    /// The end of the chain after this batch.
    head: Option<Head>,
}

/// See the module's description.
#[derive(Debug)]
pub(super) struct Writer {
    dir: PathBuf,
    index: Index,
    ballast: Arc<Ballast>,
    segment_bytes: u64,
    file: File,
    segment: u32,
    length: u64,
    head: Option<Head>,
    fatal: Arc<OnceLock<String>>,
    #[cfg(test)]
    hooks: Arc<Hooks>,
}

/// What tests do to the disk.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct Hooks {
    /// Makes syncs fail, as a broken disk would.
    pub(super) fail_sync: std::sync::atomic::AtomicBool,
    /// Syncs that have begun.
    pub(super) syncs: std::sync::atomic::AtomicU32,
    /// A sync waits for this, as for a slow disk.
    pub(super) gate: std::sync::Mutex<()>,
}

impl Writer {
    /// Cuts a torn tail and opens the last segment for writing. Creates the first one in an empty folder.
    pub(super) fn open(
        dir: PathBuf,
        scanned: &Scanned,
        index: Index,
        ballast: Arc<Ballast>,
        segment_bytes: u64,
    ) -> Result<Self, disk::DiskError> {
        let segment = scanned.last_segment.max(1);
        let path = segment_path(&dir, segment);
        let file =
            private().read(true).write(true).create(true).truncate(false).open(&path).map_err(at("open", &path))?;
        if scanned.torn.is_some() {
            file.set_len(scanned.last_length)
                .and_then(|()| file.sync_all())
                .map_err(at("cut the torn end of", &path))?;
        }
        sync_dir(&dir)?;
        Ok(Self {
            dir,
            index,
            ballast,
            segment_bytes,
            file,
            segment,
            length: scanned.last_length,
            head: scanned.head,
            fatal: Arc::default(),
            #[cfg(test)]
            hooks: Arc::default(),
        })
    }

    pub(super) fn fatal(&self) -> Arc<OnceLock<String>> {
        Arc::clone(&self.fatal)
    }

    pub(super) fn ballast(&self) -> Arc<Ballast> {
        Arc::clone(&self.ballast)
    }

    #[cfg(test)]
    pub(super) fn hooks(&self) -> Arc<Hooks> {
        Arc::clone(&self.hooks)
    }

    /// Serves commands until the journal is closed or failed.
    pub(super) fn run(mut self, mut queue: mpsc::Receiver<Command>) {
        let mut closing = false;
        while !closing && self.fatal.get().is_none() {
            let Some(first) = queue.blocking_recv() else {
                break;
            };
            // No fixed wait: an idle disk serves the first record at once; while it syncs, others gather
            // here, which is all the grouping that a busy disk needs.
            let mut batch = Batch::default();
            let mut next = Some(first);
            while let Some(command) = next.take() {
                match command {
                    Command::Append { entries, memory, reply } => {
                        self.accept(&mut batch, entries, memory, reply);
                    }
                    Command::Close => {
                        queue.close();
                        closing = true;
                    }
                }
                if batch.records < MAX_BATCH {
                    next = queue.try_recv().ok();
                }
            }
            self.write(batch);
        }
        queue.close();
        // What was queued behind a failure is refused by name.
        while let Ok(command) = queue.try_recv() {
            if let Command::Append { entries, memory, reply } = command {
                if self.fatal.get().is_some() {
                    self.refuse(reply);
                } else {
                    let mut batch = Batch::default();
                    self.accept(&mut batch, entries, memory, reply);
                    self.write(batch);
                }
            }
        }
        if let Err(error) = self.index.commit_blocking() {
            // The journal holds everything; the next start catches up or rebuilds.
            tracing::warn!(%error, "the index could not be written out");
        }
    }

    fn refuse(&self, reply: Reply) {
        let reason = self.fatal.get().cloned().unwrap_or_default();
        // A caller that went away is normal.
        let _ = reply.send(Err(JournalError::Failed { reason }));
    }

    /// Checks a group against the sign-once table and adds it to the batch.
    fn accept(&mut self, batch: &mut Batch, entries: Vec<Entry>, memory: OwnedSemaphorePermit, reply: Reply) {
        if self.fatal.get().is_some() {
            return self.refuse(reply);
        }
        let signs = match self.check_once(&batch.once, &entries) {
            Ok(signs) => signs,
            Err(error) => {
                let _ = reply.send(Err(error));
                return;
            }
        };
        let upper_bound = entries.iter().fold(0_u64, |sum, entry| {
            let once: usize = entry.once.iter().map(|once| once.key.len().saturating_add(35)).sum();
            sum.saturating_add(to_u64(entry.payload.len().saturating_add(once).saturating_add(100)))
        });
        let written = self.length.saturating_add(to_u64(batch.bytes.len()));
        if written > 0 && written.saturating_add(upper_bound) > self.segment_bytes {
            // A group never crosses segments, and a segment is durable before the next one exists.
            self.write(std::mem::take(batch));
            if let Err(error) = self.rotate() {
                let _ = reply.send(Err(error));
                return;
            }
        }
        batch.once.extend(signs);
        let durable = self.head.map_or(0, |head| head.position.sequence);
        let mut remaining = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        let mut positions = Vec::with_capacity(entries.len());
        for entry in entries {
            remaining = remaining.saturating_sub(1);
            let last = batch.head.or(self.head);
            let (sequence, previous) = last.map_or((0, [0; 32]), |head| (head.position.sequence, head.hash));
            let sequence = sequence.saturating_add(1);
            let offset = self.length.saturating_add(to_u64(batch.bytes.len()));
            let position = Position { sequence, segment: self.segment, offset };
            let link = Link { sequence, durable, remaining, previous };
            let hash = frame::encode(&mut batch.bytes, entry.kind, link, &entry.once, &entry.payload);
            batch.head = Some(Head { position, hash });
            batch.records = batch.records.saturating_add(1);
            batch.applied.once.extend(entry.once);
            batch.applied.documents.extend(entry.documents);
            positions.push(position);
        }
        batch.accepted.push(Accepted { positions, reply, _memory: memory });
    }

    /// What the group signs, if it contradicts neither the table nor the batch nor itself.
    fn check_once(&self, batch: &Signed, entries: &[Entry]) -> Result<Signed, JournalError> {
        let mut signs = Signed::new();
        for OnceKey { kind, key, digest } in entries.iter().flat_map(|entry| &entry.once) {
            let id = (*kind, key.clone());
            let recorded = match signs.get(&id).or_else(|| batch.get(&id)) {
                Some(recorded) => Some(*recorded),
                None => self
                    .index
                    .once_blocking(*kind, key)
                    .map_err(|error| JournalError::OnceUnavailable { reason: error.to_string() })?,
            };
            match recorded {
                Some(recorded) if recorded != *digest => {
                    let key = key.clone();
                    return Err(JournalError::Contradiction { kind: *kind, key, recorded, offered: *digest });
                }
                _ => signs.insert(id, *digest),
            };
        }
        Ok(signs)
    }

    /// Writes and syncs a batch, applies it to the index, and replies.
    fn write(&mut self, batch: Batch) {
        if batch.accepted.is_empty() {
            return;
        }
        if let Err(error) = self.make_durable(&batch.bytes) {
            for accepted in batch.accepted {
                let _ = accepted.reply.send(Err(error.clone()));
            }
            return;
        }
        self.length = self.length.saturating_add(to_u64(batch.bytes.len()));
        self.head = batch.head;
        let applied = Applied { head: batch.head, ..batch.applied };
        if let Err(error) = self.index.apply_blocking(applied) {
            // The records are safe. The index refuses further use, so nothing is signed on a stale table.
            tracing::error!(%error, "the index failed; restart the node to rebuild it from the journal");
        }
        for accepted in batch.accepted {
            let _ = accepted.reply.send(Ok(accepted.positions));
        }
    }

    fn make_durable(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        self.keep_room(to_u64(bytes.len()))?;
        let mut result = self.file.write_all_at(bytes, self.length);
        if result.as_ref().is_err_and(disk::is_full) && self.ballast.release() {
            tracing::warn!("the disk is full: gave up the ballast to go on writing the journal");
            result = self.file.write_all_at(bytes, self.length);
        }
        if let Err(error) = result {
            // Part of the batch may be in the file. Take it back, so that the next one follows the last
            // acknowledged record; if even that fails, nobody knows the file's end.
            let cut = self.file.set_len(self.length);
            return match cut {
                Ok(()) if disk::is_full(&error) => Err(JournalError::StorageFull { dir: self.dir.clone() }),
                _ => Err(self.fail(format!("writing segment {}: {error}", self.segment))),
            };
        }
        if let Err(error) = self.sync() {
            // Never retried: after a failed fsync the kernel may have dropped the dirty pages, and a second
            // one would succeed without them.
            return Err(self.fail(format!("syncing segment {}: {error}", self.segment)));
        }
        Ok(())
    }

    /// Gives up the ballast before the disk is full, and refuses to write where sled would be left without
    /// room: once sled has failed to write, it works again only after a restart.
    fn keep_room(&self, bytes: u64) -> Result<(), JournalError> {
        // Where the file system does not say, the write itself will.
        let free = || disk::free_bytes(&self.dir).unwrap_or(u64::MAX);
        if free() >= LOW_WATER.saturating_add(bytes) {
            return Ok(());
        }
        if self.ballast.release() {
            tracing::warn!("the disk is nearly full: gave up the ballast to go on writing the journal");
        }
        if free() < RESERVE.saturating_add(bytes) {
            return Err(JournalError::StorageFull { dir: self.dir.clone() });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        #[cfg(test)]
        {
            use std::sync::atomic::Ordering;
            self.hooks.syncs.fetch_add(1, Ordering::SeqCst);
            drop(self.hooks.gate.lock());
            if self.hooks.fail_sync.load(Ordering::SeqCst) {
                return Err(io::Error::from(rustix::io::Errno::IO));
            }
        }
        if ablation::leaves_out(ablation::Step::Journal) {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn fail(&self, reason: String) -> JournalError {
        let reason = self.fatal.get_or_init(|| reason).clone();
        tracing::error!(%reason, "the journal failed");
        JournalError::Failed { reason }
    }

    /// Starts the next segment.
    fn rotate(&mut self) -> Result<(), JournalError> {
        if let Some(reason) = self.fatal.get() {
            return Err(JournalError::Failed { reason: reason.clone() });
        }
        let segment = self.segment.saturating_add(1);
        let path = segment_path(&self.dir, segment);
        let open = || private().read(true).write(true).create_new(true).open(&path);
        let mut file = open();
        if file.as_ref().is_err_and(disk::is_full) && self.ballast.release() {
            file = open();
        }
        let file = match file {
            Ok(file) => file,
            Err(error) if disk::is_full(&error) => {
                return Err(JournalError::StorageFull { dir: self.dir.clone() });
            }
            Err(error) => return Err(self.fail(format!("creating {}: {error}", path.display()))),
        };
        if let Err(error) = sync_dir(&self.dir) {
            return Err(self.fail(error.to_string()));
        }
        self.file = file;
        self.segment = segment;
        self.length = 0;
        Ok(())
    }
}
