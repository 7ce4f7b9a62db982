//! The tables of the index: what their keys and values look like in the one sled tree.
//!
//! Each table has a name with a version and a prefix byte that all of its keys start with. A change of any
//! layout changes [`LAYOUT`], and the next start rebuilds the index from the journal.

use crate::store::entry::{Head, Position};

/// The names of all tables, hashed into the stored state: another set is another layout.
pub(super) const LAYOUT: &str = "state/1 once/1 documents/1";

/// A table of the index.
pub(super) trait Table {
    /// First byte of each key.
    const PREFIX: u8;
    /// A key in its family, without the bytes that place it in the tree.
    fn key(kind: u8, key: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(key.len().saturating_add(2));
        bytes.push(Self::PREFIX);
        bytes.push(kind);
        bytes.extend_from_slice(key);
        bytes
    }
}

/// `state/1`: one value, [`State`].
pub(super) struct StateTable;
/// `once/1`: (family, key) -> digest of what was signed under it.
pub(super) struct OnceTable;
/// `documents/1`: (kind, key) -> a value that the node derived from the journal.
pub(super) struct DocumentsTable;

impl Table for StateTable {
    const PREFIX: u8 = 0;
}
impl Table for OnceTable {
    const PREFIX: u8 = 1;
}
impl Table for DocumentsTable {
    const PREFIX: u8 = 2;
}

/// Bytes of a key before the caller's part.
pub(super) const KEY_START: usize = 2;

/// What the index knows about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct State {
    /// The last record that was applied.
    pub(super) head: Option<Head>,
    /// What all other rows add up to.
    pub(super) rows: RowSum,
}

impl State {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(160);
        bytes.extend_from_slice(blake3::hash(LAYOUT.as_bytes()).as_bytes());
        match &self.head {
            Some(head) => {
                bytes.extend_from_slice(&head.position.to_bytes());
                bytes.extend_from_slice(&head.hash);
            }
            None => bytes.extend_from_slice(&[0; Position::BYTES + 32]),
        }
        for lane in self.rows.lanes {
            bytes.extend_from_slice(&lane.to_be_bytes());
        }
        bytes.extend_from_slice(&self.rows.count.to_be_bytes());
        let check = blake3::hash(&bytes);
        bytes.extend_from_slice(check.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (covered, check) = bytes.split_last_chunk::<32>()?;
        if blake3::hash(covered) != *check {
            return None;
        }
        let (layout, rest) = covered.split_first_chunk::<32>()?;
        if blake3::hash(LAYOUT.as_bytes()) != *layout {
            return None;
        }
        let (position, rest) = rest.split_first_chunk::<{ Position::BYTES }>()?;
        let (hash, mut rest) = rest.split_first_chunk::<32>()?;
        let position = Position::from_bytes(position);
        let mut lanes = [0; 4];
        for lane in &mut lanes {
            let (bytes, behind) = rest.split_first_chunk()?;
            *lane = u64::from_be_bytes(*bytes);
            rest = behind;
        }
        let count = u64::from_be_bytes(*rest.first_chunk()?);
        let head = (position.sequence > 0).then_some(Head { position, hash: *hash });
        Some(Self { head, rows: RowSum { lanes, count } })
    }
}

/// A checksum over a set of rows that can be updated row by row: the sum of their hashes. sled can lose
/// rows without an error, and this is how that is noticed. It guards against accidents, not attackers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct RowSum {
    lanes: [u64; 4],
    count: u64,
}

impl RowSum {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        for (lane, part) in self.lanes.iter_mut().zip(Self::parts(key, value)) {
            *lane = lane.wrapping_add(part);
        }
        self.count = self.count.wrapping_add(1);
    }

    pub(super) fn subtract(&mut self, key: &[u8], value: &[u8]) {
        for (lane, part) in self.lanes.iter_mut().zip(Self::parts(key, value)) {
            *lane = lane.wrapping_sub(part);
        }
        self.count = self.count.wrapping_sub(1);
    }

    /// Rows in the set.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    fn parts(key: &[u8], value: &[u8]) -> [u64; 4] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&crate::store::scan::to_u64(key.len()).to_be_bytes());
        hasher.update(key);
        hasher.update(value);
        let hash = hasher.finalize();
        let (chunks, _) = hash.as_bytes().as_chunks::<8>();
        let mut parts = [0; 4];
        for (part, chunk) in parts.iter_mut().zip(chunks) {
            *part = u64::from_be_bytes(*chunk);
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_survives_encoding_and_no_flipped_bit_does() {
        let mut rows = RowSum::default();
        rows.add(b"a", b"1");
        let position = Position { sequence: 7, segment: 2, offset: 99 };
        for head in [None, Some(Head { position, hash: [4; 32] })] {
            let state = State { head, rows };
            let bytes = state.encode();
            assert_eq!(State::decode(&bytes), Some(state));
            for at in 0..bytes.len() {
                let mut bad = bytes.clone();
                bad[at] ^= 1;
                assert_eq!(State::decode(&bad), None, "byte {at}");
            }
        }
    }

    #[test]
    fn a_sum_depends_on_the_set_alone() {
        let mut one = RowSum::default();
        one.add(b"a", b"1");
        one.add(b"b", b"2");
        let mut other = RowSum::default();
        other.add(b"b", b"2");
        other.add(b"c", b"3");
        other.add(b"a", b"1");
        assert_ne!(one, other);
        other.subtract(b"c", b"3");
        assert_eq!(one, other);
        let mut moved = RowSum::default();
        moved.add(b"a1", b"");
        moved.add(b"b", b"2");
        assert_ne!(one, moved);
    }
}
