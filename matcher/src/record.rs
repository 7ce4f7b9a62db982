//! What a node must not forget: the records its state is a fold of.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Award, Close, Credits, Discharge, Hash, JobId, JobSpec, LeaseEnd, LeaseId, Millis,
    NodeId, Party, Receipt, Signed, TaskResult, Timestamp, Voucher,
    codec::{self, CodecError},
};

use crate::event::{JobState, Reason};

/// Largest encoded record, in bytes: a spec with ten thousand tasks.
pub const MAX_RECORD: usize = 5 * 1024 * 1024;

/// A durable fact. Variants are append-only; bytes from disk come back through [`Record::decode`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// Renter: a job was submitted.
    Job {
        /// Its id.
        job: JobId,
        /// What it is.
        spec: Arc<JobSpec>,
        /// When.
        at: Timestamp,
    },
    /// Renter: a job has reached an end state.
    JobEnded {
        /// Which.
        job: JobId,
        /// How.
        state: JobState,
        /// Why.
        because: Vec<Reason>,
        /// When.
        at: Timestamp,
    },
    /// Renter: an award was accepted.
    Lease {
        /// The award.
        award: Signed<Award>,
        /// The acceptance.
        accepted: Signed<Accepted>,
    },
    /// Renter: an attempt was handed out. Written before it can be billed.
    Attempt {
        /// Of which job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// When.
        at: Timestamp,
    },
    /// Renter: what came of an attempt that gave a result. With the voucher that covers it, if it is billed.
    Result {
        /// Of which job.
        job: JobId,
        /// The provider's account.
        result: Signed<TaskResult>,
        /// What it counts for.
        verdict: Verdict,
        /// Run time billed; zero if it is not.
        run: Millis,
        /// The lease's running total after it.
        voucher: Option<Signed<Voucher>>,
    },
    /// Renter: an attempt will give no result that counts.
    Lost {
        /// Of which job.
        job: JobId,
        /// Which.
        attempt: AttemptId,
        /// Lost, preempted or cancelled.
        end: AttemptEnd,
        /// Why.
        reason: String,
        /// When.
        at: Timestamp,
    },
    /// Provider: capacity was taken and the award accepted.
    Accepted {
        /// The award.
        award: Signed<Award>,
        /// The acceptance.
        accepted: Signed<Accepted>,
    },
    /// Provider: an attempt was started. Written without waiting; after a restart it is lost unless a result follows.
    Started {
        /// Which.
        attempt: AttemptId,
        /// Of which job.
        job: JobId,
    },
    /// Provider: a result. Its outputs and logs were durable before.
    Delivered {
        /// What came of an attempt.
        result: Signed<TaskResult>,
    },
    /// Provider: the renter's answer to a result: its voucher, or none if it does not count.
    Settled {
        /// Which.
        attempt: AttemptId,
        /// Run time that was billed.
        run: Millis,
        /// The running total that covers it.
        voucher: Option<Signed<Voucher>>,
    },
    /// Both: this side's signature under a receipt.
    Receipt {
        /// The provider's draft.
        provider: Signed<Receipt>,
        /// The renter's signature, on the provider's side once it has come.
        renter: Option<Signed<Receipt>>,
    },
    /// Both: a lease that the other side left.
    Close(Signed<Close>),
    /// The owner's limit for a peer.
    Trust {
        /// Whom.
        peer: NodeId,
        /// How much it may owe.
        limit: Credits,
    },
    /// A discharge given or received.
    Discharge(Signed<Discharge>),
    /// Provider: a lease takes no more tasks; its slots are free once what runs has ended. Written without waiting, but
    /// before the slots are sold again.
    Ended {
        /// Which.
        lease: LeaseId,
        /// Why.
        end: LeaseEnd,
        /// Which side ended it.
        by: Party,
    },
    /// Provider: the owner took its machine, or gave it back.
    Selling {
        /// Whether nothing is sold.
        paused: bool,
    },
}

/// What a result counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The task and replica are done by it.
    Done,
    /// It failed on the renter's account: owed for, perhaps tried again.
    Billed,
    /// Not owed for: another one won, the provider failed, or the outputs could not be had.
    Unbilled,
}

/// Something this node may sign only once: two different digests under one key would be a lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnceKey {
    /// Kind of statement.
    pub kind: u8,
    /// Lease, attempt, or voucher number.
    pub key: Vec<u8>,
    /// What was signed.
    pub digest: Hash,
}

impl Record {
    /// The signatures of this node, `me`, in this record that a second one could contradict. The journal refuses a
    /// record whose key it holds with another digest.
    #[must_use]
    pub fn once(&self, me: &NodeId) -> Vec<OnceKey> {
        let key = |kind: u8, key: Vec<u8>, digest: Hash| OnceKey { kind, key, digest };
        match self {
            Self::Lease { award, .. } if award.signer() == *me => {
                lease_of(award).map(|lease| key(1, lease, award.hash())).into_iter().collect()
            }
            Self::Accepted { award, accepted } if accepted.signer() == *me => {
                lease_of(award).map(|lease| key(2, lease, accepted.hash())).into_iter().collect()
            }
            Self::Delivered { result } if result.signer() == *me => {
                attempt_of(result).map(|attempt| key(3, attempt, result.hash())).into_iter().collect()
            }
            Self::Result { voucher: Some(voucher), .. } if voucher.signer() == *me => {
                voucher_key(voucher).map(|number| key(4, number, voucher.hash())).into_iter().collect()
            }
            Self::Receipt { provider, .. } if provider.signer() == *me => {
                receipt_key(provider).map(|lease| key(5, lease, provider.hash())).into_iter().collect()
            }
            Self::Receipt { renter: Some(renter), .. } if renter.signer() == *me => {
                receipt_key(renter).map(|lease| key(5, lease, renter.hash())).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Encodes for the journal.
    ///
    /// # Errors
    /// If it is larger than [`MAX_RECORD`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self, MAX_RECORD)
    }

    /// Decodes what the journal holds.
    ///
    /// # Errors
    /// [`CodecError`]: the journal was written by another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(bytes, MAX_RECORD)
    }
}

// The records hold documents this node signed or verified before it wrote them.
fn lease_of(award: &Signed<Award>) -> Option<Vec<u8>> {
    award.peek().ok().map(|award| award.lease.0.to_vec())
}

fn attempt_of(result: &Signed<TaskResult>) -> Option<Vec<u8>> {
    result.peek().ok().and_then(|result| codec::encode(&result.attempt, 64).ok())
}

fn voucher_key(voucher: &Signed<Voucher>) -> Option<Vec<u8>> {
    voucher.peek().ok().and_then(|voucher| codec::encode(&(voucher.lease, voucher.number), 64).ok())
}

fn receipt_key(receipt: &Signed<Receipt>) -> Option<Vec<u8>> {
    receipt.peek().ok().map(|receipt| receipt.lease.0.to_vec())
}
