//! What a job leaves: outputs, costs, receipts.

use serde::{Deserialize, Serialize};
use souk_protocol::{Credits, Hash, JobId, LeaseId, NodeId, Rate, Timestamp};

use super::Big;

/// Outputs of the attempt that counts, of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutputs {
    /// The task.
    pub index: u32,
    /// The attempt that counts.
    pub attempt: u32,
    /// Who ran it.
    pub provider: NodeId,
    /// Its exit code.
    pub exit_code: Option<u32>,
    /// Where which guest folder goes on the renter's machine, placeholders filled in.
    pub folders: Vec<OutputFolder>,
    /// The manifest.
    pub entries: Vec<OutputEntry>,
}

/// A guest folder and where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFolder {
    /// Guest path, `/out`.
    pub path: String,
    /// Absolute folder on the renter's machine; absent if the outputs stay in the store.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
}

/// An entry of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputEntry {
    /// Path below the guest's root without a leading slash: `out/result.json`.
    pub path: String,
    /// What it is.
    #[serde(flatten)]
    pub what: OutputKind,
}

/// What an [`OutputEntry`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum OutputKind {
    /// A regular file.
    File {
        /// BLAKE3 of its content.
        hash: Hash,
        /// Length, in bytes.
        len: Big,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A relative link that stays inside the outputs.
    Link {
        /// Where it points, relative to its own folder.
        target: String,
    },
    /// Something that is not brought home.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// What a job costs: `job cost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The job.
    pub job: JobId,
    /// What is owed.
    pub total: Credits,
    /// What running attempts may add.
    pub reserved: Credits,
    /// Most it may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<Credits>,
    /// By lease.
    pub leases: Vec<LeaseCost>,
}

/// What a lease costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseCost {
    /// The lease.
    pub lease: LeaseId,
    /// To whom it is owed.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Run time billed, in milliseconds.
    pub run_ms: Big,
    /// Attempts owed for.
    pub billed: u32,
    /// Attempts not owed for.
    pub unbilled: u32,
    /// What is owed.
    pub total: Credits,
}

/// A receipt in short, or, until both sides have signed one, what this node's books say of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSummary {
    /// The lease.
    pub lease: LeaseId,
    /// This node's side: `renter` or `provider`.
    pub side: String,
    /// Who pays.
    pub renter: NodeId,
    /// Who worked.
    pub provider: NodeId,
    /// Why the lease ended; nothing while it goes on.
    pub end: Option<String>,
    /// Which side ended it.
    pub ended_by: Option<String>,
    /// Price of one slot.
    pub rate: Rate,
    /// Attempts owed for.
    pub billed: u32,
    /// Attempts not owed for.
    pub unbilled: u32,
    /// Run time billed, in milliseconds.
    pub run_ms: Big,
    /// What is owed.
    pub total: Credits,
    /// When the lease was accepted.
    pub opened: Timestamp,
    /// When it ended, as both sides signed it.
    pub closed: Option<Timestamp>,
    /// Whether both sides signed; only then can it be exported.
    pub complete: bool,
}
