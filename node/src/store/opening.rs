//! The steps of opening a home: lock, format, ballast, index, replay, writer.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use super::{
    Blobs, Document, FORMAT_VERSION, Head, HomeLock, Index, IndexError, IndexState, Journal, OnceKey, OpenReport,
    ReplayError, Replayed, Store, StoreConfig, StoreError, Warning,
    disk::{self, Ballast},
    index::{self, Applied, OpenError},
    scan::{self, Record, ScanError, Scanned},
    writer::Writer,
};

/// The line that marks a home's format, before the version.
const FORMAT: &str = "souk store ";
/// Records that a replay applies to the index at once.
const REPLAY_BATCH: usize = 256;
/// Free space under which the ballast is given up before sled opens, since sled cannot open a full disk.
const OPEN_NEEDS_BYTES: u64 = 16 << 20;

/// What the replay callback is.
type Callback<'a> = &'a mut dyn FnMut(&mut Replayed<'_>) -> Result<(), ReplayError>;

/// Where the parts of a home lie.
pub(super) struct Layout {
    pub(super) format: PathBuf,
    pub(super) journal: PathBuf,
    pub(super) index: PathBuf,
    pub(super) blobs: PathBuf,
    pub(super) spool: PathBuf,
    ballast: PathBuf,
}

impl Layout {
    pub(super) fn of(home: &Path) -> Self {
        Self {
            format: home.join("store"),
            journal: home.join("journal"),
            index: home.join("db"),
            blobs: home.join("blobs"),
            spool: home.join("spool"),
            ballast: home.join("ballast"),
        }
    }
}

/// A home that is locked and whose format is known.
pub(super) struct Opening {
    home: PathBuf,
    layout: Layout,
    config: StoreConfig,
    lock: Arc<HomeLock>,
    created: bool,
    warnings: Vec<Warning>,
}

/// The index before the replay.
struct FoundIndex {
    index: Index,
    /// The record up to which it is right.
    head: Option<Head>,
    rebuild: Option<(String, Option<PathBuf>)>,
}

/// Why a replay stopped at a record.
enum Refused {
    Callback(ReplayError),
    Index(IndexError),
}

impl Opening {
    pub(super) fn new(home: &Path, config: StoreConfig) -> Result<Self, StoreError> {
        disk::create_dir(home)?;
        let lock = Arc::new(HomeLock::acquire(home)?);
        let mut opening = Self {
            home: home.to_owned(),
            layout: Layout::of(home),
            config,
            lock,
            created: false,
            warnings: Vec::new(),
        };
        opening.settle_format()?;
        Ok(opening)
    }

    /// Reads or writes the format file; only a new home may lack a journal.
    fn settle_format(&mut self) -> Result<(), StoreError> {
        let journal = &self.layout.journal;
        let has_journal = scan::last_segment(journal)? > 0;
        let known = read_format(&self.home, &self.layout.format)?;
        if !has_journal {
            if known || self.layout.index.exists() {
                return Err(StoreError::MissingJournal { dir: journal.clone() });
            }
            self.created = true;
            disk::create_dir(journal)?;
            let first = scan::segment_path(journal, 1);
            disk::private()
                .write(true)
                .create_new(true)
                .open(&first)
                .and_then(|file| file.sync_all())
                .map_err(disk::at("create", &first))?;
            disk::sync_dir(journal)?;
        }
        if !known {
            if has_journal {
                self.warnings.push(Warning::FormatRestored);
            }
            let text = format!("{FORMAT}{FORMAT_VERSION}\n");
            disk::write_atomically(&self.layout.format, text.as_bytes())?;
        }
        Ok(())
    }

    pub(super) fn run(mut self, callback: Callback<'_>) -> Result<(Store, OpenReport), StoreError> {
        let ballast = self.settle_ballast()?;
        let found = self.open_index(&ballast)?;
        let (scanned, applied) = self.replay(&found, callback)?;
        let records = scanned.head.map_or(0, |head| head.position.sequence);
        self.warnings.extend(scanned.torn.clone().map(Warning::TailCut));
        let index_state = match found.rebuild {
            Some((reason, set_aside)) => IndexState::Rebuilt { reason, set_aside },
            None if applied > 0 => IndexState::CaughtUp { records: applied },
            None => IndexState::Current,
        };
        let Self { home, layout, config, lock, created, warnings } = self;
        disk::create_dir(&layout.spool)?;
        let blobs = Blobs::open(&layout.blobs, config.blob_budget_bytes, Some(Arc::clone(&lock)))?;
        disk::sync_dir(&home)?;
        let writer =
            Writer::open(layout.journal.clone(), &scanned, found.index.clone(), ballast, config.segment_bytes)?;
        let journal =
            Journal::start(layout.journal, writer).map_err(disk::at("start the journal's thread for", &home))?;
        let report =
            OpenReport { created, records, head: scanned.head, index: index_state, warnings, elapsed: Duration::ZERO };
        Ok((Store { home, journal, index: found.index, blobs, lock }, report))
    }

    fn settle_ballast(&mut self) -> Result<Arc<Ballast>, StoreError> {
        let bytes = self.config.ballast_bytes;
        let ballast = Ballast::new(self.layout.ballast.clone(), bytes);
        if disk::free_bytes(&self.home)? < OPEN_NEEDS_BYTES {
            ballast.release();
        }
        if !ballast.fill()? {
            self.warnings.push(Warning::NoBallast { bytes });
        }
        Ok(Arc::new(ballast))
    }

    /// Opens the index and settles whether it can be caught up or must be rebuilt.
    fn open_index(&mut self, ballast: &Ballast) -> Result<FoundIndex, StoreError> {
        let dir = self.layout.index.clone();
        let existed = dir.exists();
        let mut opened = self.try_index();
        if matches!(opened, Err(OpenError::Full)) && ballast.release() {
            opened = self.try_index();
        }
        let index = match opened {
            Ok(index) => index,
            Err(OpenError::Full) => {
                return Err(StoreError::StorageFull { home: self.home.clone() });
            }
            Err(OpenError::Damaged(reason)) => return self.fresh_index(reason),
        };
        let Some(head) = index.head() else {
            let lacks = !existed && scan::last_segment(&self.layout.journal)? > 0 && !self.created;
            let rebuild = lacks.then(|| ("it was missing".to_owned(), None));
            return Ok(FoundIndex { index, head: None, rebuild });
        };
        if scan::holds(&self.layout.journal, &head) {
            return Ok(FoundIndex { index, head: Some(head), rebuild: None });
        }
        // Either the journal is damaged, or it lost its end, or the two do not belong together.
        let scanned =
            scan::scan(&self.layout.journal, &mut |_| Ok::<(), ReplayError>(())).map_err(|error| match error {
                ScanError::Damage(damage) => StoreError::Damage(damage),
                ScanError::Refused(position, source) => StoreError::Replay { position, source },
            })?;
        let ends = scanned.head.map_or(0, |head| head.position.sequence);
        let seen = head.position.sequence;
        if ends < seen {
            if !self.config.accept_lost_tail {
                let dir = self.layout.journal.clone();
                return Err(StoreError::AcknowledgedLost { dir, ends, seen });
            }
            self.warnings.push(Warning::LostTail { ends, seen });
        }
        drop(index);
        self.fresh_index(format!("it does not belong to this journal (record {seen} differs)"))
    }

    fn try_index(&self) -> Result<Index, OpenError> {
        Index::open(&self.layout.index, self.config.index_cache_bytes, Some(Arc::clone(&self.lock)))
    }

    fn fresh_index(&self, reason: String) -> Result<FoundIndex, StoreError> {
        let set_aside = index::set_aside(&self.layout.index)?;
        match self.try_index() {
            Ok(index) => Ok(FoundIndex { index, head: None, rebuild: Some((reason, set_aside)) }),
            Err(OpenError::Full) => Err(StoreError::StorageFull { home: self.home.clone() }),
            Err(OpenError::Damaged(reason)) => Err(StoreError::Index { dir: self.layout.index.clone(), reason }),
        }
    }

    /// Gives every record to the callback and those that the index lacks to the index. Returns how many
    /// those were.
    fn replay(&mut self, found: &FoundIndex, callback: Callback<'_>) -> Result<(Scanned, u64), StoreError> {
        let known = found.head.map_or(0, |head| head.position.sequence);
        let mut filler =
            Filler { index: &found.index, pending: Applied::default(), records: 0, contradictions: Vec::new() };
        let scanned = scan::scan(&self.layout.journal, &mut |record: Record<'_>| {
            let Record { position, hash, kind, once, payload } = record;
            let indexed = position.sequence <= known;
            let mut replayed = Replayed { position, kind, payload, indexed, documents: Vec::new() };
            callback(&mut replayed).map_err(Refused::Callback)?;
            if indexed {
                return Ok(());
            }
            filler.add(Head { position, hash }, once, replayed.documents).map_err(Refused::Index)
        });
        let index_failed = |dir: PathBuf, error: &IndexError| StoreError::Index { dir, reason: error.to_string() };
        let dir = self.layout.index.clone();
        let scanned = match scanned {
            Ok(scanned) => scanned,
            Err(ScanError::Damage(damage)) => return Err(damage.into()),
            Err(ScanError::Refused(position, Refused::Callback(source))) => {
                return Err(StoreError::Replay { position, source });
            }
            Err(ScanError::Refused(_, Refused::Index(error))) => {
                return Err(index_failed(dir, &error));
            }
        };
        filler.finish().map_err(|error| index_failed(dir, &error))?;
        self.warnings.extend(filler.contradictions.drain(..).map(Warning::Contradiction));
        Ok((scanned, filler.records))
    }
}

/// Applies replayed records to the index in batches.
struct Filler<'a> {
    index: &'a Index,
    pending: Applied,
    records: u64,
    contradictions: Vec<OnceKey>,
}

impl Filler<'_> {
    fn add(&mut self, head: Head, once: Vec<OnceKey>, documents: Vec<Document>) -> Result<(), IndexError> {
        self.pending.head = Some(head);
        self.pending.once.extend(once);
        self.pending.documents.extend(documents);
        self.records = self.records.saturating_add(1);
        if self.records.is_multiple_of(u64::try_from(REPLAY_BATCH).unwrap_or(1)) {
            self.apply()?;
        }
        Ok(())
    }

    fn apply(&mut self) -> Result<(), IndexError> {
        let pending = std::mem::take(&mut self.pending);
        if pending.head.is_some() {
            self.contradictions.extend(self.index.apply_blocking(pending)?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), IndexError> {
        self.apply()?;
        if self.records > 0 {
            self.index.commit_blocking()?;
        }
        Ok(())
    }
}

/// Whether the format file is there; anything but this version's text in it is an error.
pub(super) fn read_format(home: &Path, path: &Path) -> Result<bool, StoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(disk::at("read", path)(error).into()),
    };
    let version = std::str::from_utf8(&text)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT))
        .and_then(|text| text.strip_suffix('\n'))
        .and_then(|text| text.parse::<u32>().ok());
    match version {
        Some(FORMAT_VERSION) => Ok(true),
        Some(found) if found > FORMAT_VERSION => Err(StoreError::Newer { home: home.to_owned(), found }),
        _ => Err(StoreError::Foreign { path: path.to_owned() }),
    }
}
