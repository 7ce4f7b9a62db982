//! What is owed: the renter's running total on a lease.

use serde::{Deserialize, Serialize};

use crate::{
    id::{AttemptId, Hash, LeaseId, NodeId},
    money::Credits,
    signed::Document,
    units::{Millis, Timestamp},
};

/// A signed running total. Each replaces the one before; totals never fall, so none can pay twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voucher {
    /// The lease.
    pub lease: LeaseId,
    /// Who owes.
    pub renter: NodeId,
    /// To whom.
    pub provider: NodeId,
    /// Rises by one with each voucher of the lease, from 1.
    pub number: u32,
    /// All that is owed on the lease.
    pub total: Credits,
    /// Run time it covers, summed over the billed attempts.
    pub run: Millis,
    /// Hash of the list of billed attempts ([`billed_hash`]).
    pub billed: Hash,
    /// How many they are.
    pub count: u32,
    /// When it was signed.
    pub at: Timestamp,
}

impl Document for Voucher {
    const DOMAIN: &'static str = "souk/1/voucher";
    const MAX_LEN: usize = 512;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.renter
    }
}

/// An attempt that the renter owes for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Billed {
    /// Which.
    pub attempt: AttemptId,
    /// Hash of its signed result.
    pub result: Hash,
    /// Run time billed: the renter may have capped what the result claims.
    pub run: Millis,
}

/// The hash of a list of billed attempts, as a running chain: adding one needs only the hash before.
#[must_use]
pub fn billed_hash<'a>(billed: impl IntoIterator<Item = &'a Billed>) -> Hash {
    billed.into_iter().fold(Hash([0; 32]), |chain, item| extend_billed(&chain, item))
}

/// The chain of [`billed_hash`] with one more attempt.
#[must_use]
pub fn extend_billed(chain: &Hash, item: &Billed) -> Hash {
    let bytes = crate::codec::encode(item, 256).unwrap_or_default();
    let mut hasher = blake3::Hasher::new_derive_key("souk/1/billed");
    hasher.update(&chain.0);
    hasher.update(&bytes);
    Hash(*hasher.finalize().as_bytes())
}

/// A creditor's statement that a debt was settled outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discharge {
    /// To whom it was owed, and who signs.
    pub creditor: NodeId,
    /// Who owed.
    pub debtor: NodeId,
    /// Chosen at random, so that the same discharge counts once.
    pub nonce: [u8; 16],
    /// How much.
    pub amount: Credits,
    /// When.
    pub at: Timestamp,
}

impl Document for Discharge {
    const DOMAIN: &'static str = "souk/1/discharge";
    const MAX_LEN: usize = 256;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.creditor
    }
}
