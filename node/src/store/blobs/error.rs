//! Why blobs are refused.

use blake3::Hash;

use crate::store::disk::DiskError;

/// Why a blob was not stored or found.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The content has another hash than was promised.
    #[error("the content has BLAKE3 {found}, not {expected}")]
    WrongHash {
        /// What was promised.
        expected: Hash,
        /// What came.
        found: Hash,
    },
    /// The content has another length than was promised.
    #[error("the content has {found} bytes, not {expected}")]
    WrongLength {
        /// What was promised.
        expected: u64,
        /// What came.
        found: u64,
    },
    /// More bytes came than the writer was opened for.
    #[error("the content exceeds its limit of {limit} bytes")]
    TooLong {
        /// What the writer was opened for.
        limit: u64,
    },
    /// There is no such blob.
    #[error("there is no blob {0}")]
    Missing(Hash),
    /// A stored blob does not have its content any more; it was removed.
    #[error("blob {0} was damaged on the disk and has been removed; fetch it again")]
    Damaged(Hash),
    /// Pinned and unfinished blobs leave no room in the budget.
    #[error(
        "no room for {needed} bytes: {held} of {budget} bytes are held by blobs in use; raise store.blob_budget or wait"
    )]
    BudgetFull {
        /// Bytes asked for.
        needed: u64,
        /// Bytes that cannot be given up.
        held: u64,
        /// The budget.
        budget: u64,
    },
    /// The blob is in use.
    #[error("blob {0} is in use")]
    Pinned(Hash),
    /// The number of blobs is at its limit and all are in use.
    #[error("no room for another blob: {0} are in use")]
    TooMany(usize),
    /// A file operation failed; see [`DiskError::is_full`].
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The blocking pool is gone: the node shuts down.
    #[error("the node is shutting down")]
    Stopped,
}
