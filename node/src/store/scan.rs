//! Reading a journal from its first frame to its last, and telling a torn tail from damage.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    disk::{DiskError, at},
    entry::{Head, OnceKey, Position},
    frame::{self, FRAME_VERSION, FrameError, MAGIC},
};

/// Digits of a segment's number in its file name.
const NAME_DIGITS: usize = 8;

/// Damage to a journal. It is never skipped: what stands behind it may be owed to somebody.
#[derive(Debug, thiserror::Error)]
pub enum JournalDamage {
    /// A frame that had been acknowledged cannot be read any more.
    #[error(
        "the journal is damaged: segment {} at byte {offset} (record {sequence}): {reason}; restore this file from a backup",
        segment.display()
    )]
    BadFrame {
        /// The segment file.
        segment: PathBuf,
        /// Where the frame starts in it.
        offset: u64,
        /// The number of the record that is missing.
        sequence: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// A segment file is missing between others, or the first one is.
    #[error("the journal is damaged: segment {} is missing; restore it from a backup", path.display())]
    MissingSegment {
        /// The file that should be there.
        path: PathBuf,
    },
    /// Written by a newer version of souk.
    #[error(
        "segment {} at byte {offset} has frame version {found}, but this souk reads up to {supported}; use a newer souk",
        segment.display()
    )]
    NewerVersion {
        /// The segment file.
        segment: PathBuf,
        /// Where the frame starts in it.
        offset: u64,
        /// The version found.
        found: u16,
        /// The newest version this build reads.
        supported: u16,
    },
    /// A segment cannot be read.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

/// Bytes at the end of the last segment that never became a whole, acknowledged record: the write was cut
/// by a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The segment file.
    pub segment: PathBuf,
    /// Length that is left once the tail is cut.
    pub offset: u64,
    /// Bytes beyond it.
    pub bytes: u64,
}

/// One record, handed out in order.
#[derive(Debug)]
pub(super) struct Record<'a> {
    pub(super) position: Position,
    pub(super) hash: [u8; 32],
    pub(super) kind: u16,
    pub(super) once: Vec<OnceKey>,
    pub(super) payload: &'a [u8],
}

/// What a whole pass over a journal found.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Scanned {
    /// The last record, if there is one.
    pub(super) head: Option<Head>,
    /// Segment files.
    pub(super) segments: u32,
    /// Number of the last segment, from 1.
    pub(super) last_segment: u32,
    /// Valid bytes in the last segment.
    pub(super) last_length: u64,
    /// Valid bytes in all segments.
    pub(super) bytes: u64,
    /// What stands behind the valid bytes.
    pub(super) torn: Option<TornTail>,
}

/// Why a pass ended early.
#[derive(Debug)]
pub(super) enum ScanError<E> {
    Damage(JournalDamage),
    /// The consumer refused a record.
    Refused(Position, E),
}

impl<E> From<JournalDamage> for ScanError<E> {
    fn from(damage: JournalDamage) -> Self {
        Self::Damage(damage)
    }
}

/// The file of segment `number`.
pub(super) fn segment_path(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:0NAME_DIGITS$}.seg"))
}

/// The number of the last segment, 0 if there is none; gaps are damage.
pub(super) fn last_segment(dir: &Path) -> Result<u32, JournalDamage> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(at("read", dir)(error).into()),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| at("read", dir)(error))?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_suffix(".seg"))
            .and_then(|stem| (stem.len() == NAME_DIGITS).then(|| stem.parse::<u32>().ok()).flatten());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    let mut expected = 1_u32;
    for number in numbers {
        if number != expected {
            return Err(JournalDamage::MissingSegment { path: segment_path(dir, expected) });
        }
        expected = expected.saturating_add(1);
    }
    Ok(expected.saturating_sub(1))
}

/// Reads every record in order. Groups are handed out whole or not at all.
pub(super) fn scan<E>(
    dir: &Path,
    consume: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Scanned, ScanError<E>> {
    let mut scanned = Scanned { last_segment: last_segment(dir)?, ..Scanned::default() };
    for number in 1..=scanned.last_segment {
        // A segment is at most its configured size plus one group: it fits in memory, one at a time.
        let path = segment_path(dir, number);
        let bytes = fs::read(&path).map_err(|error| JournalDamage::from(at("read", &path)(error)))?;
        let valid = scan_segment(number, &bytes, &mut scanned.head, consume)?;
        scanned.segments = number;
        scanned.last_length = to_u64(valid.length);
        scanned.bytes = scanned.bytes.saturating_add(scanned.last_length);
        if let Some(error) = valid.stopped {
            let next = scanned.head.map_or(0, |head| head.position.sequence).saturating_add(1);
            let rest = bytes.get(valid.length..).unwrap_or_default();
            let is_last = number == scanned.last_segment;
            let bad = bytes.get(valid.bad_offset..).unwrap_or_default();
            if !is_last || !error.may_be_torn(bad) || holds_proof_of(rest, next) {
                return Err(bad_frame(path, valid.bad_offset, next, &error).into());
            }
            scanned.torn = Some(TornTail { segment: path, offset: scanned.last_length, bytes: to_u64(rest.len()) });
        }
    }
    Ok(scanned)
}

/// How far a segment is whole.
struct Valid {
    /// Bytes up to the end of the last whole group.
    length: usize,
    /// Where the frame that stopped the pass starts.
    bad_offset: usize,
    stopped: Option<Stop>,
}

#[derive(Debug, Clone, Copy, thiserror::Error)]
enum Stop {
    #[error(transparent)]
    Frame(FrameError),
    #[error("the chain of hashes or numbers is broken")]
    Chain,
    #[error("a group of records is broken")]
    Group,
    #[error("a group of records ends early")]
    GroupEnd,
}

impl Stop {
    /// Whether a crash in the middle of a write can leave this behind: parts that never reached the disk are
    /// missing or read as zeros, everything else is as it was written.
    fn may_be_torn(self, bad: &[u8]) -> bool {
        match self {
            Self::GroupEnd | Self::Frame(FrameError::Hash | FrameError::Incomplete) => true,
            Self::Frame(FrameError::Magic) => {
                let start = bad.get(..MAGIC.len()).unwrap_or(bad);
                start.iter().all(|byte| *byte == 0)
            }
            Self::Frame(FrameError::Newer(_) | FrameError::Length | FrameError::Once) | Self::Chain | Self::Group => {
                false
            }
        }
    }
}

fn scan_segment<E>(
    number: u32,
    bytes: &[u8],
    head: &mut Option<Head>,
    consume: &mut dyn FnMut(Record<'_>) -> Result<(), E>,
) -> Result<Valid, ScanError<E>> {
    let mut length = 0;
    let mut offset = 0;
    let mut group: Vec<Record<'_>> = Vec::new();
    let mut expected_remaining: Option<u32> = None;
    loop {
        let rest = bytes.get(offset..).unwrap_or_default();
        if rest.is_empty() {
            let stopped = (!group.is_empty()).then_some(Stop::GroupEnd);
            return Ok(Valid { length, bad_offset: offset, stopped });
        }
        let stop = |stop| Ok(Valid { length, bad_offset: offset, stopped: Some(stop) });
        let frame = match frame::decode(rest) {
            Ok(frame) => frame,
            Err(error) => return stop(Stop::Frame(error)),
        };
        let last = group.last().map(|record| (record.position.sequence, record.hash));
        let last = last.or_else(|| head.map(|head| (head.position.sequence, head.hash)));
        let (sequence, previous) = last.unwrap_or((0, [0; 32]));
        if frame.link.sequence != sequence.saturating_add(1) || frame.link.previous != previous {
            return stop(Stop::Chain);
        }
        if expected_remaining.is_some_and(|expected| expected != frame.link.remaining) {
            return stop(Stop::Group);
        }
        let position = Position { sequence: frame.link.sequence, segment: number, offset: to_u64(offset) };
        group.push(Record { position, hash: frame.hash, kind: frame.kind, once: frame.once, payload: frame.payload });
        offset = offset.saturating_add(frame.length);
        expected_remaining = frame.link.remaining.checked_sub(1);
        if expected_remaining.is_none() {
            for record in group.drain(..) {
                let position = record.position;
                *head = Some(Head { position, hash: record.hash });
                consume(record).map_err(|error| ScanError::Refused(position, error))?;
            }
            length = offset;
        }
    }
}

/// Whether a whole frame in `bytes` says that record `sequence` was on disk before it.
fn holds_proof_of(bytes: &[u8], sequence: u64) -> bool {
    let mut from = 0;
    while let Some(rest) = bytes.get(from..) {
        let Some(found) = rest.windows(MAGIC.len()).position(|window| window == MAGIC) else {
            return false;
        };
        let candidate = rest.get(found..).unwrap_or_default();
        if frame::decode(candidate).is_ok_and(|frame| frame.link.durable >= sequence) {
            return true;
        }
        from = from.saturating_add(found).saturating_add(1);
    }
    false
}

fn bad_frame(segment: PathBuf, offset: usize, sequence: u64, stop: &Stop) -> JournalDamage {
    let offset = to_u64(offset);
    match stop {
        Stop::Frame(FrameError::Newer(found)) => {
            JournalDamage::NewerVersion { segment, offset, found: *found, supported: FRAME_VERSION }
        }
        stop => JournalDamage::BadFrame { segment, offset, sequence, reason: stop.to_string() },
    }
}

/// Whether the frame at a position is the one that `head` names. `false` too if it cannot be read.
pub(super) fn holds(dir: &Path, head: &Head) -> bool {
    read_at(dir, head.position).is_ok_and(|(_, _, hash)| hash == head.hash)
}

/// Reads one record: kind, payload, hash.
pub(super) fn read_at(dir: &Path, position: Position) -> Result<(u16, Vec<u8>, [u8; 32]), JournalDamage> {
    use std::os::unix::fs::FileExt as _;
    let path = segment_path(dir, position.segment);
    let damage = |error: FrameError| {
        bad_frame(
            path.clone(),
            usize::try_from(position.offset).unwrap_or(usize::MAX),
            position.sequence,
            &Stop::Frame(error),
        )
    };
    let file = fs::File::open(&path).map_err(at("open", &path))?;
    let mut bytes = vec![0; frame::HEADER];
    file.read_exact_at(&mut bytes, position.offset).map_err(at("read", &path))?;
    let length = frame::length(&bytes).map_err(damage)?;
    bytes.resize(length, 0);
    file.read_exact_at(&mut bytes, position.offset).map_err(at("read", &path))?;
    let frame = frame::decode(&bytes).map_err(damage)?;
    if frame.link.sequence != position.sequence {
        return Err(damage(FrameError::Magic));
    }
    Ok((frame.kind, frame.payload.to_vec(), frame.hash))
}

/// Lengths in memory fit 64 bits on every platform Rust has.
pub(super) fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
