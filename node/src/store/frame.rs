//! One record of the journal as bytes.
//!
//! ```text
//!  0  magic "SKJF"        4   a frame starts here
//!  4  version             2   little-endian, like all numbers below
//!  6  kind                2   what the payload is; the journal does not care
//!  8  remaining           4   frames that follow in the same atomic group
//! 12  once length         4   bytes of the sign-once block
//! 16  payload length      4
//! 20  sequence            8   1, 2, 3 .. over all segments
//! 28  durable             8   highest sequence that was on disk before this frame's write began
//! 36  previous           32   hash of the frame before, zeros for the first
//! 68  once block, payload
//!     BLAKE3             32   of everything before it
//! ```
//!
//! `durable` tells a torn write from damage: a bad frame that a later, whole frame calls durable had been
//! acknowledged, so it must not be cut off.

use super::entry::OnceKey;

/// Marks the start of each frame.
pub(super) const MAGIC: [u8; 4] = *b"SKJF";
/// The version of this layout. A newer one is refused, an older one would be migrated.
pub const FRAME_VERSION: u16 = 1;
/// Bytes before the once block.
pub(super) const HEADER: usize = 68;
/// Bytes of a BLAKE3 hash.
const HASH: usize = 32;
/// Longest payload, 4 MiB: larger things are blobs, and a reader allocates this much for a claim.
pub const MAX_PAYLOAD: usize = 4 << 20;
/// Most sign-once keys of one entry; a record signs one thing, rarely two.
pub const MAX_ONCE_KEYS: usize = 16;
/// Longest sign-once key in bytes; ids are 32, a pair of them with a number 72.
pub const MAX_ONCE_KEY: usize = 256;
/// Longest once block that `MAX_ONCE_KEYS` and `MAX_ONCE_KEY` allow.
const MAX_ONCE_BLOCK: usize = MAX_ONCE_KEYS * (1 + 2 + MAX_ONCE_KEY + HASH);

/// What a frame says besides its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) durable: u64,
    pub(super) remaining: u32,
    pub(super) previous: [u8; 32],
}

/// A frame that was read and whose hash is right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    pub(super) kind: u16,
    pub(super) link: Link,
    pub(super) once: Vec<OnceKey>,
    pub(super) payload: &'a [u8],
    pub(super) hash: [u8; 32],
    /// Bytes of the whole frame.
    pub(super) length: usize,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the frame ends early")]
    Incomplete,
    #[error("no frame starts here")]
    Magic,
    #[error("frame version {0} is newer than {FRAME_VERSION}")]
    Newer(u16),
    #[error("a length exceeds its limit")]
    Length,
    #[error("the hash does not match")]
    Hash,
    #[error("the sign-once block is malformed")]
    Once,
}

/// Appends the frame of an entry to `out` and returns its hash.
///
/// The caller has checked the limits.
pub(super) fn encode(out: &mut Vec<u8>, kind: u16, link: Link, once: &[OnceKey], payload: &[u8]) -> [u8; 32] {
    let start = out.len();
    let once_len: usize = once.iter().map(|one| 1 + 2 + one.key.len() + HASH).sum();
    out.reserve(HEADER + once_len + payload.len() + HASH);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&FRAME_VERSION.to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&link.remaining.to_le_bytes());
    out.extend_from_slice(&u32::try_from(once_len).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&u32::try_from(payload.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&link.sequence.to_le_bytes());
    out.extend_from_slice(&link.durable.to_le_bytes());
    out.extend_from_slice(&link.previous);
    for one in once {
        out.push(one.kind);
        out.extend_from_slice(&u16::try_from(one.key.len()).unwrap_or(u16::MAX).to_le_bytes());
        out.extend_from_slice(&one.key);
        out.extend_from_slice(&one.digest);
    }
    out.extend_from_slice(payload);
    let hash = *blake3::hash(out.get(start..).unwrap_or_default()).as_bytes();
    out.extend_from_slice(&hash);
    hash
}

/// Takes fields from the front of a slice.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
}

/// The length of the frame that `header` starts, once it is known to be within the limits.
pub(super) fn length(header: &[u8]) -> Result<usize, FrameError> {
    let mut fields = Fields(header);
    let Some(magic) = fields.array::<4>() else {
        return Err(if MAGIC.starts_with(header) { FrameError::Incomplete } else { FrameError::Magic });
    };
    if magic != MAGIC {
        return Err(FrameError::Magic);
    }
    let version = fields.u16().ok_or(FrameError::Incomplete)?;
    if version > FRAME_VERSION {
        return Err(FrameError::Newer(version));
    }
    if version != FRAME_VERSION {
        // Version 0 never was; a torn write can leave zeros here.
        return Err(FrameError::Hash);
    }
    fields.take(2 + 4).ok_or(FrameError::Incomplete)?;
    let once = fields.u32().ok_or(FrameError::Incomplete)?;
    let payload = fields.u32().ok_or(FrameError::Incomplete)?;
    let once = usize::try_from(once).map_err(|_| FrameError::Length)?;
    let payload = usize::try_from(payload).map_err(|_| FrameError::Length)?;
    if once > MAX_ONCE_BLOCK || payload > MAX_PAYLOAD {
        return Err(FrameError::Length);
    }
    Ok(HEADER + once + payload + HASH)
}

/// Reads the frame at the front of `bytes`.
pub(super) fn decode(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let length = length(bytes)?;
    let whole = bytes.get(..length).ok_or(FrameError::Incomplete)?;
    let (covered, hash) = whole.split_last_chunk::<HASH>().ok_or(FrameError::Incomplete)?;
    if blake3::hash(covered) != *hash {
        return Err(FrameError::Hash);
    }
    let mut fields = Fields(covered);
    // All fields below were measured by `length`, so a missing one cannot occur.
    let mut read = || {
        fields.take(4 + 2)?;
        let kind = fields.u16()?;
        let remaining = fields.u32()?;
        let once_len = fields.u32()?;
        fields.u32()?;
        let sequence = fields.u64()?;
        let durable = fields.u64()?;
        let previous = fields.array()?;
        let once = fields.take(usize::try_from(once_len).ok()?)?;
        Some((kind, Link { sequence, durable, remaining, previous }, once, fields.0))
    };
    let (kind, link, once, payload) = read().ok_or(FrameError::Incomplete)?;
    let once = decode_once(once).ok_or(FrameError::Once)?;
    Ok(Frame { kind, link, once, payload, hash: *hash, length })
}

fn decode_once(bytes: &[u8]) -> Option<Vec<OnceKey>> {
    let mut fields = Fields(bytes);
    let mut once = Vec::new();
    while !fields.0.is_empty() {
        let [kind] = fields.array()?;
        let key_len = usize::from(fields.u16()?);
        if key_len > MAX_ONCE_KEY || once.len() >= MAX_ONCE_KEYS {
            return None;
        }
        let key = fields.take(key_len)?.to_vec();
        let digest = fields.array()?;
        once.push(OnceKey { kind, key, digest });
    }
    Some(once)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn once() -> impl Strategy<Value = OnceKey> {
        (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40), any::<[u8; 32]>())
            .prop_map(|(kind, key, digest)| OnceKey { kind, key, digest })
    }

    #[test]
    fn the_layout_is_fixed() {
        let link = Link { sequence: 2, durable: 1, remaining: 0, previous: [7; 32] };
        let once = [OnceKey { kind: 9, key: b"k".to_vec(), digest: [1; 32] }];
        let mut bytes = Vec::new();
        let hash = encode(&mut bytes, 0x0102, link, &once, b"hi");
        let mut expected = b"SKJF\x01\0\x02\x01\0\0\0\0".to_vec();
        expected.extend_from_slice(&[36, 0, 0, 0, 2, 0, 0, 0]);
        expected.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend_from_slice(&[7; 32]);
        expected.extend_from_slice(&[9, 1, 0, b'k']);
        expected.extend_from_slice(&[1; 32]);
        expected.extend_from_slice(b"hi");
        assert_eq!(&bytes[..bytes.len() - 32], expected);
        assert_eq!(blake3::hash(&expected), hash);
    }

    #[test]
    fn a_newer_version_is_named() {
        let link = Link { sequence: 1, durable: 0, remaining: 0, previous: [0; 32] };
        let mut bytes = Vec::new();
        encode(&mut bytes, 1, link, &[], b"x");
        bytes[4] = 9;
        assert_eq!(decode(&bytes), Err(FrameError::Newer(9)));
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            kind: u16, sequence: u64, durable: u64, remaining: u32, previous: [u8; 32],
            once in proptest::collection::vec(once(), 0..4),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            behind in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let link = Link { sequence, durable, remaining, previous };
            let mut bytes = Vec::new();
            let hash = encode(&mut bytes, kind, link, &once, &payload);
            let length = bytes.len();
            bytes.extend_from_slice(&behind);
            let frame = decode(&bytes).unwrap();
            prop_assert_eq!(frame, Frame { kind, link, once, payload: &payload, hash, length });
        }

        #[test]
        fn no_flipped_bit_passes(payload in proptest::collection::vec(any::<u8>(), 0..60), at: prop::sample::Index, bit in 0u8..8) {
            let link = Link { sequence: 5, durable: 4, remaining: 0, previous: [3; 32] };
            let mut bytes = Vec::new();
            encode(&mut bytes, 3, link, &[], &payload);
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), start: bool) {
            let mut all = if start { b"SKJF\x01\0".to_vec() } else { Vec::new() };
            all.extend_from_slice(&bytes);
            prop_assert!(decode(&all).is_err());
        }
    }
}
