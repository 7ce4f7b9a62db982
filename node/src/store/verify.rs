//! Checking a home while no node uses it, without changing anything in it.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use blake3::Hash;

use super::{
    Head, HomeLock, Index, JournalDamage, OnceKey, Position, StoreError, TornTail,
    blobs::{hash_file, walk},
    disk::{self, at},
    index::OpenError,
    opening::{Layout, read_format},
    scan::{self, Record, ScanError},
};

/// Most findings of one sort that a report lists; more are only counted by the sort's total.
const MAX_LISTED: usize = 100;
/// Page cache of the index's copy (16 MiB).
const CACHE_BYTES: u64 = 16 << 20;

/// What to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyOptions {
    /// Also read every blob and compare its hash, which takes as long as reading them all.
    pub blobs: bool,
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// Records in the journal, as far as it is whole.
    pub records: u64,
    /// Its files.
    pub segments: u32,
    /// Its valid bytes.
    pub bytes: u64,
    /// Its end.
    pub head: Option<Head>,
    /// An unfinished write at its end; harmless, the next start cuts it.
    pub torn: Option<TornTail>,
    /// What is wrong with it.
    pub damage: Option<JournalDamage>,
    /// Different keys that were signed once.
    pub once_keys: u64,
    /// Records that sign something else under a key that was used before, at most 100.
    pub contradictions: Vec<(Position, OnceKey)>,
    /// The index.
    pub index: IndexVerdict,
    /// The blobs, if they were asked for.
    pub blobs: Option<BlobsVerdict>,
}

/// The state of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IndexVerdict {
    /// There is none; the next start builds it.
    Missing,
    /// It is whole and stands at the journal's end.
    Current {
        /// Rows in it.
        rows: u64,
    },
    /// It is whole and lacks the last records; the next start adds them.
    Behind {
        /// The last record in it, 0 for none.
        at: u64,
    },
    /// It is damaged or of another journal; the next start rebuilds it.
    Damaged {
        /// What is wrong.
        reason: String,
    },
    /// It has seen a record that the journal does not have: acknowledged records are lost.
    Ahead {
        /// The last record in it.
        at: u64,
    },
    /// The journal is damaged, so nothing can be said.
    Unknown,
}

/// The state of the blobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlobsVerdict {
    /// Blobs that were read.
    pub checked: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blobs whose content is not what their name says.
    pub bad_count: u64,
    /// Some of those, at most 100.
    pub bad: Vec<PathBuf>,
}

impl Report {
    /// Whether nothing is wrong: what the next start repairs without loss is right.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.damage.is_none()
            && self.contradictions.is_empty()
            && !matches!(self.index, IndexVerdict::Ahead { .. })
            && self.blobs.as_ref().is_none_or(|blobs| blobs.bad_count == 0)
    }
}

/// Checks a home. Blocks on the disk.
///
/// # Errors
/// [`StoreError`] if it is no home, is in use, or cannot be read; damage is part of the report.
pub fn verify(home: &Path, options: VerifyOptions) -> Result<Report, StoreError> {
    let layout = Layout::of(home);
    let has_journal = layout.journal.is_dir();
    let known = read_format(home, &layout.format)?;
    if !has_journal {
        return Err(if known {
            StoreError::MissingJournal { dir: layout.journal }
        } else {
            StoreError::Foreign { path: layout.format }
        });
    }
    let _lock = HomeLock::acquire_readonly(home)?;
    let index = open_copy(&layout.index)?;
    let mut report = check_journal(&layout.journal, index)?;
    if options.blobs {
        report.blobs = Some(check_blobs(&layout.blobs)?);
    }
    Ok(report)
}

/// A copy of the index (sled writes to whatever it opens) and the folder it lies in.
type Copied = Option<(Result<Index, String>, tempfile::TempDir)>;

fn open_copy(dir: &Path) -> Result<Copied, StoreError> {
    if !dir.is_dir() {
        return Ok(None);
    }
    let copy = tempfile::tempdir().map_err(at("create a folder in", std::env::temp_dir()))?;
    let target = copy.path().join("db");
    copy_dir(dir, &target)?;
    let index = match Index::open(&target, CACHE_BYTES, None) {
        Ok(index) => Ok(index),
        Err(OpenError::Full) => {
            return Err(StoreError::StorageFull { home: std::env::temp_dir() });
        }
        Err(OpenError::Damaged(reason)) => Err(reason),
    };
    Ok(Some((index, copy)))
}

/// Copies the plain files of a folder and of the folders in it (sled has one level).
fn copy_dir(from: &Path, to: &Path) -> Result<(), disk::DiskError> {
    disk::create_dir(to)?;
    for entry in fs::read_dir(from).map_err(at("read", from))?.flatten() {
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(at("examine", &source))?;
        if kind.is_dir() {
            copy_dir(&source, &target)?;
        } else if kind.is_file() {
            fs::copy(&source, &target).map_err(at("copy", &source))?;
        }
    }
    Ok(())
}

fn check_journal(dir: &Path, copied: Copied) -> Result<Report, StoreError> {
    let mut records = 0_u64;
    let mut head = None;
    let mut once_table: HashMap<[u8; 32], [u8; 32]> = HashMap::new();
    let mut contradictions = Vec::new();
    let mut not_indexed = None;
    let index = copied.as_ref().map(|(index, _)| index);
    let indexed_head = index.and_then(|index| index.as_ref().ok()).and_then(Index::head);
    let mut met_indexed_head = false;
    let scanned = scan::scan(dir, &mut |record: Record<'_>| {
        records = records.saturating_add(1);
        let here = Head { position: record.position, hash: record.hash };
        head = Some(here);
        for once in record.once {
            // The table's key is hashed, so that memory is bounded by the number of keys.
            let key = once_id(&once);
            let first = *once_table.entry(key).or_insert(once.digest);
            if let Some(Ok(index)) = index
                && indexed_head.is_some_and(|head| record.position.sequence <= head.position.sequence)
                && not_indexed.is_none()
                && !matches!(index.once_blocking(once.kind, &once.key), Ok(Some(digest)) if digest == first)
            {
                not_indexed = Some(record.position);
            }
            if first != once.digest && contradictions.len() < MAX_LISTED {
                contradictions.push((record.position, once));
            }
        }
        met_indexed_head |= indexed_head == Some(here);
        Ok::<(), std::convert::Infallible>(())
    });
    let mut report = Report {
        records,
        segments: 0,
        bytes: 0,
        head,
        torn: None,
        damage: None,
        once_keys: scan::to_u64(once_table.len()),
        contradictions,
        index: IndexVerdict::Unknown,
        blobs: None,
    };
    match scanned {
        Ok(scanned) => {
            report.segments = scanned.segments;
            report.bytes = scanned.bytes;
            report.torn = scanned.torn;
            let ends = head.map_or(0, |head| head.position.sequence);
            report.index = match (index, indexed_head, not_indexed) {
                (None, ..) => IndexVerdict::Missing,
                (Some(Err(reason)), ..) => IndexVerdict::Damaged { reason: reason.clone() },
                (Some(Ok(index)), None, _) if ends == 0 => IndexVerdict::Current { rows: index.rows() },
                (Some(Ok(_)), None, _) => IndexVerdict::Behind { at: 0 },
                (Some(Ok(_)), Some(seen), _) if seen.position.sequence > ends => {
                    IndexVerdict::Ahead { at: seen.position.sequence }
                }
                (Some(Ok(_)), Some(seen), _) if !met_indexed_head => {
                    let at = seen.position.sequence;
                    IndexVerdict::Damaged { reason: format!("its record {at} is not the journal's") }
                }
                (Some(Ok(_)), Some(_), Some(position)) => {
                    IndexVerdict::Damaged { reason: format!("its sign-once table lacks what {position} signs") }
                }
                (Some(Ok(_)), Some(seen), None) if seen.position.sequence < ends => {
                    IndexVerdict::Behind { at: seen.position.sequence }
                }
                (Some(Ok(index)), Some(_), None) => IndexVerdict::Current { rows: index.rows() },
            };
        }
        Err(ScanError::Damage(JournalDamage::Disk(error))) => return Err(error.into()),
        Err(ScanError::Damage(damage)) => report.damage = Some(damage),
        Err(ScanError::Refused(_, impossible)) => match impossible {},
    }
    Ok(report)
}

/// A fixed-size name of a sign-once key.
fn once_id(once: &OnceKey) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[once.kind]);
    hasher.update(&once.key);
    *hasher.finalize().as_bytes()
}

fn check_blobs(dir: &Path) -> Result<BlobsVerdict, StoreError> {
    let mut hashes: Vec<(Hash, u64)> = Vec::new();
    walk(dir, &mut |hash, meta| hashes.push((hash, meta.len())))?;
    let mut verdict = BlobsVerdict::default();
    for (hash, length) in hashes {
        let path = super::blobs::blob_path(dir, &hash);
        let found = fs::File::open(&path).and_then(hash_file);
        verdict.checked = verdict.checked.saturating_add(1);
        verdict.bytes = verdict.bytes.saturating_add(length);
        // An unreadable blob is as bad as a wrong one; the disk's words are the same in both cases: fetch it.
        if !found.is_ok_and(|found| found == hash) {
            verdict.bad_count = verdict.bad_count.saturating_add(1);
            if verdict.bad.len() < MAX_LISTED {
                verdict.bad.push(path);
            }
        }
    }
    Ok(verdict)
}
