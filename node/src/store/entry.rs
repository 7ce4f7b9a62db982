//! What is appended, where it stands, and how it is named.

use std::fmt;

use super::{
    frame::{MAX_ONCE_KEY, MAX_ONCE_KEYS, MAX_PAYLOAD},
    index::{Document, MAX_DOCUMENT, MAX_DOCUMENT_KEY},
    journal::JournalError,
};

/// Most documents that one entry may change; a record concerns few things.
pub const MAX_DOCUMENTS: usize = 64;

/// Where a record stands in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// 1, 2, 3 .. over the life of the home.
    pub sequence: u64,
    /// Number of the segment file, from 1.
    pub segment: u32,
    /// Byte at which the frame starts in it.
    pub offset: u64,
}

impl Position {
    /// Bytes of [`Position::to_bytes`].
    pub const BYTES: usize = 20;

    /// A fixed form for documents that point into the journal; sorts like the position.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let fields = self.sequence.to_be_bytes().into_iter();
        let fields = fields.chain(self.segment.to_be_bytes()).chain(self.offset.to_be_bytes());
        for (slot, byte) in bytes.iter_mut().zip(fields) {
            *slot = byte;
        }
        bytes
    }

    /// The inverse of [`Position::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (sequence, rest) = bytes.split_first_chunk().map_or(([0; 8], &[][..]), |(a, b)| (*a, b));
        let (segment, rest) = rest.split_first_chunk().map_or(([0; 4], &[][..]), |(a, b)| (*a, b));
        let offset = rest.first_chunk().copied().unwrap_or_default();
        Self {
            sequence: u64::from_be_bytes(sequence),
            segment: u32::from_be_bytes(segment),
            offset: u64::from_be_bytes(offset),
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} (segment {}, byte {})", self.sequence, self.segment, self.offset)
    }
}

/// The end of the chain: the last record and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The last record.
    pub position: Position,
    /// Its BLAKE3, which covers the hash before it and so the whole journal.
    pub hash: [u8; 32],
}

/// Something this node says once: under one key only one digest is ever written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OnceKey {
    /// The family of keys (award, acceptance, result, voucher ..).
    pub kind: u8,
    /// The key within it, at most [`MAX_ONCE_KEY`] bytes.
    pub key: Vec<u8>,
    /// BLAKE3 of what is said.
    pub digest: [u8; 32],
}

/// What is to be recorded. The store does not look into the payload.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// What the payload is.
    pub kind: u16,
    /// At most [`MAX_PAYLOAD`] bytes.
    pub payload: Vec<u8>,
    /// What the record says once; at most [`MAX_ONCE_KEYS`].
    pub once: Vec<OnceKey>,
    /// Values derived from the record for the index; at most [`MAX_DOCUMENTS`]. They are not journaled: the
    /// replay callback derives the same ones again when the index is rebuilt.
    pub documents: Vec<Document>,
}

impl Entry {
    /// An entry that neither signs nor indexes anything.
    #[must_use]
    pub fn new(kind: u16, payload: Vec<u8>) -> Self {
        Self { kind, payload, ..Self::default() }
    }

    /// Adds something the record says once.
    #[must_use]
    pub fn once(mut self, kind: u8, key: impl Into<Vec<u8>>, digest: [u8; 32]) -> Self {
        self.once.push(OnceKey { kind, key: key.into(), digest });
        self
    }

    /// Adds a change of the index.
    #[must_use]
    pub fn document(mut self, document: Document) -> Self {
        self.documents.push(document);
        self
    }

    /// Checks the limits and returns the bytes that the entry takes in memory.
    pub(super) fn check(&self) -> Result<usize, JournalError> {
        let within = |what, length, limit| {
            if length > limit { Err(JournalError::TooLarge { what, length, limit }) } else { Ok(()) }
        };
        within("payload", self.payload.len(), MAX_PAYLOAD)?;
        within("number of sign-once keys", self.once.len(), MAX_ONCE_KEYS)?;
        within("number of documents", self.documents.len(), MAX_DOCUMENTS)?;
        let mut bytes = self.payload.len();
        for once in &self.once {
            within("sign-once key", once.key.len(), MAX_ONCE_KEY)?;
            bytes = bytes.saturating_add(once.key.len());
        }
        for document in &self.documents {
            let value = document.value.as_ref().map_or(0, Vec::len);
            within("document key", document.key.len(), MAX_DOCUMENT_KEY)?;
            within("document", value, MAX_DOCUMENT)?;
            bytes = bytes.saturating_add(document.key.len()).saturating_add(value);
        }
        Ok(bytes)
    }
}

/// A record read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What the payload is.
    pub kind: u16,
    /// As it was appended.
    pub payload: Vec<u8>,
}
