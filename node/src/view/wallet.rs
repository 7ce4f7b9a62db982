//! What is owed, and verdicts on what was checked.

use serde::{Deserialize, Serialize};
use souk_protocol::{Balance, Credits, LeaseId, NodeId, Timestamp};

/// `wallet balance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wallet {
    /// What peers owe this node (plus) or it owes them (minus), in sum.
    pub balance: Balance,
    /// What peers owe.
    pub owed_to_us: Credits,
    /// What this node owes.
    pub owed_by_us: Credits,
    /// What strangers owe and may come to owe.
    pub strangers: Credits,
    /// Most they may.
    pub strangers_limit: Credits,
    /// Peer by peer.
    pub peers: Vec<Account>,
}

/// What is between this node and a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The peer.
    pub peer: NodeId,
    /// What it owes us (plus) or we owe it (minus).
    pub balance: Balance,
    /// What it owes and may come to owe.
    pub exposure: Credits,
    /// Most it may owe.
    pub limit: Credits,
    /// Whether the limit is the owner's own (`wallet trust`).
    pub trusted: bool,
}

/// A line of `wallet history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletEntry {
    /// When.
    pub at: Timestamp,
    /// `earned`, `spent`, `discharge-given`, `discharge-received`, `trust`, `unpaid`.
    pub kind: String,
    /// With whom.
    pub peer: NodeId,
    /// On which lease.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<LeaseId>,
    /// How much.
    pub amount: Credits,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remark: Option<String>,
}

/// Body of `POST /v1/wallet/trust` and `POST /v1/wallet/discharge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAmount {
    /// Whom.
    pub peer: NodeId,
    /// How much.
    pub amount: Credits,
}

/// `wallet verify`, `store verify` and `attest verify`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Whether nothing failed.
    pub ok: bool,
    /// Documents, leases or records checked.
    pub checked: u64,
    /// What failed.
    pub failures: Vec<VerifyFailure>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyFailure {
    /// The file; empty where there is none.
    pub file: String,
    /// The document, lease or record.
    pub document: String,
    /// Why.
    pub reason: String,
}
