//! Opening an index, which may be damaged in any way, and setting it aside.

use std::{
    fs::File,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, mpsc},
    time::{Duration, Instant},
};

use super::{
    Applied, Index, Inner, panic_text,
    tables::{RowSum, State, StateTable, Table as _},
};
use crate::store::{disk, lock::HomeLock};

/// Longest that opening and checking the index may take. A rebuild is correct at any time and this is far
/// beyond what a sound index of a million rows needs, so a hang inside sled ends here.
const OPEN_LIMIT: Duration = Duration::from_secs(60);
/// How long another handle of the same files (just being dropped) is waited for.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);
/// Damaged indexes that are kept for a look; older ones are removed.
const MAX_BAD_KEPT: usize = 3;

/// Why an index could not be opened as it is.
#[derive(Debug)]
pub(in crate::store) enum OpenError {
    /// sled cannot open anything on a full disk, so this says nothing about the index.
    Full,
    Damaged(String),
}

impl Index {
    /// Opens the index in `dir` and checks every row. Runs on a thread of its own, since sled may panic or
    /// hang on damaged files.
    pub(in crate::store) fn open(dir: &Path, cache_bytes: u64, lock: Option<Arc<HomeLock>>) -> Result<Self, OpenError> {
        let (done, opened) = mpsc::sync_channel(1);
        let path = dir.to_owned();
        std::thread::Builder::new()
            .name("souk-index-open".to_owned())
            .spawn(move || {
                let result = catch_unwind(AssertUnwindSafe(|| open(&path, cache_bytes, lock)));
                let result = result.unwrap_or_else(|panic| Err(OpenError::Damaged(panic_text(&*panic))));
                // The opener may have given up on us.
                let _ = done.send(result);
            })
            .map_err(|error| OpenError::Damaged(error.to_string()))?;
        match opened.recv_timeout(OPEN_LIMIT) {
            Ok(result) => result,
            Err(_) => Err(OpenError::Damaged(format!("no answer within {} s", OPEN_LIMIT.as_secs()))),
        }
    }
}

fn open(dir: &Path, cache_bytes: u64, lock: Option<Arc<HomeLock>>) -> Result<Index, OpenError> {
    let config = sled::Config::new()
        .path(dir)
        .cache_capacity(cache_bytes)
        .mode(sled::Mode::LowSpace)
        .use_compression(false)
        // The background thread does a real fsync; without it there is none at all.
        .flush_every_ms(Some(500));
    let fresh = !dir.exists();
    let started = Instant::now();
    let db = loop {
        match config.open() {
            Ok(db) => break db,
            Err(sled::Error::Io(error)) if disk::is_full(&error) => return Err(OpenError::Full),
            Err(error) => {
                let held = error.to_string().contains("acquire lock");
                if !held || started.elapsed() > LOCK_PATIENCE {
                    return Err(OpenError::Damaged(error.to_string()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    let damaged = |error: sled::Error| OpenError::Damaged(error.to_string());
    let data = File::open(dir.join("db")).map_err(|error| OpenError::Damaged(error.to_string()))?;
    let state_key = StateTable::key(0, b"");
    let mut stored = None;
    let mut rows = RowSum::default();
    for row in db.iter() {
        let (key, value) = row.map_err(damaged)?;
        if key == state_key {
            stored = Some(
                State::decode(&value)
                    .ok_or_else(|| OpenError::Damaged("its state is unreadable or of another layout".to_owned()))?,
            );
        } else {
            rows.add(&key, &value);
        }
    }
    let state = match stored {
        Some(state) => state,
        None if fresh => State::default(),
        // sled opens what it cannot read at all as an empty database.
        None => return Err(OpenError::Damaged("its state is missing".to_owned())),
    };
    if state.rows != rows {
        let (expected, found) = (state.rows.count(), rows.count());
        return Err(OpenError::Damaged(format!(
            "its rows do not add up: {expected} were written, {found} are there, or some differ"
        )));
    }
    let inner = Inner { db, data, state: Mutex::new(state), broken: OnceLock::new(), _lock: lock };
    let index = Index(Arc::new(inner));
    if fresh {
        // From now on an index without a state is a damaged one.
        let first = index.apply_blocking(Applied::default()).and_then(|_| index.commit_blocking());
        first.map_err(|error| OpenError::Damaged(error.to_string()))?;
    }
    Ok(index)
}

/// Moves a damaged index out of the way, to `db.bad-<n>`, and removes the oldest ones.
pub(in crate::store) fn set_aside(dir: &Path) -> Result<Option<PathBuf>, disk::DiskError> {
    if !dir.exists() {
        return Ok(None);
    }
    let parent = dir.parent().unwrap_or(Path::new("."));
    let mut bad = Vec::new();
    for entry in std::fs::read_dir(parent).map_err(disk::at("read", parent))?.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("db.bad-")?.parse::<u32>().ok());
        bad.extend(number);
    }
    bad.sort_unstable();
    let next = bad.last().copied().unwrap_or(0).saturating_add(1);
    for old in bad.iter().rev().skip(MAX_BAD_KEPT.saturating_sub(1)) {
        let path = parent.join(format!("db.bad-{old}"));
        std::fs::remove_dir_all(&path).map_err(disk::at("remove", &path))?;
    }
    let target = parent.join(format!("db.bad-{next}"));
    std::fs::rename(dir, &target).map_err(disk::at("set aside the damaged index", dir))?;
    disk::sync_dir(parent)?;
    Ok(Some(target))
}
