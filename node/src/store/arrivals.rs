//! When the bytes of a log arrived at this node: marks of (offset, time) in a small file beside it.
//!
//! Marks are of use to people and nothing is signed over them, so they are not synced: after a power cut the last ones
//! may be missing, and their bytes then count as arrived with those before.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
};

use souk_protocol::Timestamp;
use tracing::debug;

use super::disk::{self, at, private};

/// Most marks of a log (128 KiB beside it). When they are used up every second one is dropped and the next ones are set
/// half as often: times of a long log get coarser, its file does not grow.
const MAX_MARKS: usize = 8_192;
/// Bytes of a mark on disk: offset and time in milliseconds since 1970, little-endian.
const MARK_BYTES: usize = 16;

/// Bytes from an offset on, up to the next mark, arrived at this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Where they start.
    offset: u64,
    /// When, by this node's clock.
    at: Timestamp,
}

impl Mark {
    fn to_bytes(self) -> [u8; MARK_BYTES] {
        let mut bytes = [0; MARK_BYTES];
        let (offset, at) = bytes.split_at_mut(MARK_BYTES / 2);
        offset.copy_from_slice(&self.offset.to_le_bytes());
        at.copy_from_slice(&self.at.0.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; MARK_BYTES]) -> Option<Self> {
        let number = |part: Option<&[u8]>| Some(u64::from_le_bytes(part?.try_into().ok()?));
        let offset = number(bytes.get(..MARK_BYTES / 2))?;
        Some(Self { offset, at: Timestamp(number(bytes.get(MARK_BYTES / 2..))?) })
    }
}

/// The marks of one log.
#[derive(Debug)]
pub(super) struct Arrivals {
    path: PathBuf,
    marks: Vec<Mark>,
    /// Marks that are on disk.
    saved: usize,
    /// Least time between two marks in milliseconds.
    step: u64,
    file: Option<File>,
}

impl Arrivals {
    /// The marks beside the log at `log`, which has `length` bytes. What is damaged is left out: a time is never worth
    /// a log.
    pub(super) fn open(log: &Path, length: u64) -> Self {
        let mut name = log.as_os_str().to_owned();
        name.push(".times");
        let path = PathBuf::from(name);
        let bytes = fs::read(&path).unwrap_or_default();
        let marks = sound(&bytes, length);
        let whole = marks.len().saturating_mul(MARK_BYTES) == bytes.len();
        let saved = marks.len();
        let mut arrivals = Self { path, marks, saved, step: 1, file: None };
        if !whole {
            arrivals.rewrite();
        }
        arrivals
    }

    /// Notes that the bytes from `offset` on arrive now. A clock that was set back stands still here.
    pub(super) fn note(&mut self, offset: u64, now: Timestamp) {
        if let Some(last) = self.marks.last()
            && (offset <= last.offset || now.0 < last.at.0.saturating_add(self.step))
        {
            return;
        }
        if self.marks.len() >= MAX_MARKS {
            let mut kept = 0usize;
            self.marks.retain(|_| {
                kept = kept.wrapping_add(1);
                kept % 2 == 1
            });
            let span = match (self.marks.first(), self.marks.last()) {
                (Some(first), Some(last)) => last.at.0.saturating_sub(first.at.0),
                _ => 0,
            };
            // As far apart as those that are kept, on average: the next time is as far away as this one was.
            self.step = self.step.saturating_mul(2).max(span / (MAX_MARKS as u64 / 2));
            self.saved = usize::MAX;
        }
        self.marks.push(Mark { offset, at: now });
    }

    /// Writes what was noted.
    pub(super) fn save(&mut self) {
        if self.saved == self.marks.len() {
            return;
        }
        let Some(new) = self.marks.get(self.saved..) else {
            self.rewrite();
            return;
        };
        let bytes: Vec<u8> = new.iter().flat_map(|mark| mark.to_bytes()).collect();
        let file = match self.file.take() {
            Some(file) => Ok(file),
            None => private().append(true).create(true).open(&self.path),
        };
        match file.and_then(|mut file| file.write_all(&bytes).map(|()| file)) {
            Ok(file) => self.file = Some(file),
            // A full disk costs the log's times, not the log. What was written in part is cut off by the next start.
            Err(error) => debug!(path = %self.path.display(), %error, "times of a log stay unwritten"),
        }
        self.saved = self.marks.len();
    }

    fn rewrite(&mut self) {
        let bytes: Vec<u8> = self.marks.iter().flat_map(|mark| mark.to_bytes()).collect();
        self.file = None;
        let temporary = self.path.with_extension("times-new");
        let written = private()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&temporary)
            .and_then(|mut file| file.write_all(&bytes))
            .and_then(|()| fs::rename(&temporary, &self.path))
            .map_err(at("rewrite", &self.path));
        if let Err(error) = written {
            debug!(%error, "times of a log stay as they were");
            // A file of which nobody knows what is in it is worse than none.
            let _ = disk::remove_if_there(&self.path);
        }
        self.saved = self.marks.len();
    }

    /// When the byte at `offset` arrived, if that is known, and where the next bytes with a time of their own start.
    pub(super) fn of(&self, offset: u64) -> (Option<Timestamp>, Option<u64>) {
        let next = self.marks.partition_point(|mark| mark.offset <= offset);
        let known = next.checked_sub(1).and_then(|last| self.marks.get(last)).map(|mark| mark.at);
        (known, self.marks.get(next).map(|mark| mark.offset))
    }

    /// Where the first byte stands that arrived at `since` or later.
    pub(super) fn since(&self, since: Timestamp) -> Option<u64> {
        self.marks.get(self.marks.partition_point(|mark| mark.at < since)).map(|mark| mark.offset)
    }
}

/// The marks in a file, up to the first that makes no sense.
fn sound(bytes: &[u8], length: u64) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::new();
    let (chunks, _) = bytes.as_chunks::<MARK_BYTES>();
    for mark in chunks.iter().map_while(Mark::from_bytes).take(MAX_MARKS) {
        let follows = marks.last().is_none_or(|last| mark.offset > last.offset && mark.at > last.at);
        if mark.offset >= length || !follows {
            break;
        }
        marks.push(mark);
    }
    marks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn log(folder: &tempfile::TempDir) -> PathBuf {
        folder.path().join("stdout")
    }

    fn noted(log: &Path, marks: impl IntoIterator<Item = (u64, u64)>) -> Arrivals {
        let mut arrivals = Arrivals::open(log, 0);
        for (offset, at) in marks {
            arrivals.note(offset, Timestamp(at));
            arrivals.save();
        }
        arrivals
    }

    #[test]
    fn bytes_have_the_time_of_the_mark_before_them_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let arrivals =
            noted(&log(&folder), [(0, 1_000), (10, 1_000), (20, 2_000), (20, 3_000), (30, 1_500), (40, 4_000)]);
        for arrivals in [arrivals, Arrivals::open(&log(&folder), 50)] {
            assert_eq!(arrivals.of(0), (Some(Timestamp(1_000)), Some(20)));
            assert_eq!(arrivals.of(19), (Some(Timestamp(1_000)), Some(20)));
            assert_eq!(arrivals.of(39), (Some(Timestamp(2_000)), Some(40)), "a clock set back stands still");
            assert_eq!(arrivals.of(99), (Some(Timestamp(4_000)), None));
            assert_eq!(arrivals.since(Timestamp(0)), Some(0));
            assert_eq!(arrivals.since(Timestamp(1_001)), Some(20));
            assert_eq!(arrivals.since(Timestamp(4_000)), Some(40));
            assert_eq!(arrivals.since(Timestamp(4_001)), None);
        }
    }

    #[test]
    fn a_long_log_gets_coarser_times_and_no_longer_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(&folder);
        let count = MAX_MARKS as u64 * 10;
        let mut arrivals = Arrivals::open(&path, 0);
        for number in 0..count {
            arrivals.note(number * 7, Timestamp(number * 3));
            arrivals.save();
        }
        assert!(arrivals.marks.len() <= MAX_MARKS);
        let on_disk = fs::metadata(folder.path().join("stdout.times")).unwrap().len();
        assert_eq!(on_disk, (arrivals.marks.len() * MARK_BYTES) as u64);
        assert_eq!(Arrivals::open(&path, count * 7).marks, arrivals.marks);
        // Each byte is known to about 1/4096 of the whole time.
        for number in (0..count).step_by(101) {
            let (known, _) = arrivals.of(number * 7);
            let late = number * 3 - known.unwrap().0;
            assert!(late <= count * 3 / 2_048, "{number}: {late} ms");
        }
    }

    #[test]
    fn a_damaged_file_loses_times_and_not_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = log(&folder);
        noted(&path, [(0, 1_000), (10, 2_000), (20, 3_000)]);
        let times = folder.path().join("stdout.times");
        let mut bytes = fs::read(&times).unwrap();
        bytes.truncate(40);
        fs::write(&times, &bytes).unwrap();
        assert_eq!(Arrivals::open(&path, 30).marks.len(), 2);
        assert_eq!(fs::read(&times).unwrap().len(), 32, "what is left is whole");
        assert_eq!(Arrivals::open(&path, 5).marks.len(), 1, "beyond the log there are no times");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_as_marks_in_order(bytes in proptest::collection::vec(any::<u8>(), 0..256), length: u64) {
            let marks = sound(&bytes, length);
            prop_assert!(marks.windows(2).all(|pair| pair[0].offset < pair[1].offset && pair[0].at < pair[1].at));
            prop_assert!(marks.iter().all(|mark| mark.offset < length));
        }
    }
}
