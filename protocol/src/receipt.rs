//! The account of a lease, signed by both sides.

use serde::{Deserialize, Serialize};

use crate::{
    award::{Accepted, Award},
    bounded::{List, Text},
    id::{Hash, LeaseId, NodeId},
    money::{Credits, Rate},
    result::TaskResult,
    signed::{Document, Signed},
    units::{Millis, Timestamp},
    voucher::{Billed, Voucher},
};

/// Most billed attempts on one receipt, and so on one lease.
pub const MAX_BILLED: usize = 1_500;

crate::terms::words! {
    /// Why a lease ended.
    LeaseEnd {
        /// Its work is done.
        Completed = "completed",
        /// Its agreed end has come.
        Expired = "expired",
        /// The renter wanted no more.
        CancelledByRenter = "cancelled-by-renter",
        /// The provider needed its machine.
        Preempted = "preempted",
        /// The provider's failure.
        ProviderFault = "provider-fault",
        /// The renter's failure.
        RenterFault = "renter-fault",
        /// No voucher came for delivered work.
        Unpaid = "unpaid",
        /// The other side was silent for longer than the grace.
        Unreachable = "unreachable",
    }
}

crate::terms::words! {
    /// A side of a lease.
    Party {
        /// Who pays.
        Renter = "renter",
        /// Who works.
        Provider = "provider",
    }
}

/// The account of a lease. The provider drafts it; both sign the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The lease.
    pub lease: LeaseId,
    /// Who pays.
    pub renter: NodeId,
    /// Who worked.
    pub provider: NodeId,
    /// Hash of the award.
    pub award: Hash,
    /// Hash of the acceptance.
    pub accepted: Hash,
    /// Price of one slot.
    pub rate: Rate,
    /// Why it ended.
    pub end: LeaseEnd,
    /// Which side ended it.
    pub ended_by: Party,
    /// When it was accepted.
    pub opened: Timestamp,
    /// When it ended.
    pub closed: Timestamp,
    /// Attempts that are owed for.
    pub billed: List<Billed, MAX_BILLED>,
    /// Attempts that are not.
    pub unbilled: u32,
    /// Run time of the billed attempts.
    pub run: Millis,
    /// What is owed: the rate times the run time, rounded up once.
    pub total: Credits,
    /// Hash of the last voucher, if there was one.
    pub voucher: Option<Hash>,
    /// A remark for people: the last exit code and the tail of the log of a failed lease.
    pub remark: Text<500>,
}

impl Document for Receipt {
    const DOMAIN: &'static str = "souk/1/receipt";
    const MAX_LEN: usize = 190 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.renter || *signer == self.provider
    }
}

/// One side's statement about a lease that the other left: no receipt, and counted apart from receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// The lease.
    pub lease: LeaseId,
    /// Who states it.
    pub by: NodeId,
    /// The other side.
    pub other: NodeId,
    /// Why it ended, as this side sees it.
    pub end: LeaseEnd,
    /// What is owed on it by the last voucher.
    pub vouchered: Credits,
    /// What this side claims beyond that.
    pub claimed: Credits,
    /// When.
    pub at: Timestamp,
}

impl Document for Close {
    const DOMAIN: &'static str = "souk/1/close";
    const MAX_LEN: usize = 512;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.by
    }
}

/// All documents of a settled lease: what `souk attest verify` needs to check it offline, with keys and bytes alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReceiptFile {
    /// The award.
    pub award: Signed<Award>,
    /// Its acceptance.
    pub accepted: Signed<Accepted>,
    /// Results of the billed attempts, in their order.
    pub results: List<Signed<TaskResult>, MAX_BILLED>,
    /// The last voucher.
    pub voucher: Option<Signed<Voucher>>,
    /// The receipt as the provider signed it.
    pub provider: Signed<Receipt>,
    /// The same bytes as the renter signed them.
    pub renter: Signed<Receipt>,
}

/// First bytes of an exported receipt file.
pub const RECEIPT_MAGIC: &[u8; 8] = b"souk-rc1";
/// Largest receipt file, in bytes, without the magic.
pub const MAX_RECEIPT_FILE: usize = 8 * 1024 * 1024;
