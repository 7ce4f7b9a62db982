//! A renter's call for bids: requirements and terms, never arguments, environment or data.

use serde::{Deserialize, Serialize};

use crate::{
    id::{JobId, NetworkId, NodeId},
    money::Rate,
    signed::Document,
    terms::{Requirement, Terms},
    units::{Bytes, Millis, Timestamp},
};

/// A signed call for bids on a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// The renter.
    pub renter: NodeId,
    /// The network it is made in.
    pub network: NetworkId,
    /// The job.
    pub job: JobId,
    /// Round of the auction, from 0.
    pub round: u32,
    /// What one slot must have.
    pub requirement: Requirement,
    /// On which terms.
    pub terms: Terms,
    /// Slots wanted at once.
    pub slots: u32,
    /// Tasks in all.
    pub tasks: u32,
    /// Bytes of module and inputs.
    pub data: Bytes,
    /// Most a slot may cost, if bounded.
    pub max_rate: Option<Rate>,
    /// When the slots are wanted, if not at once: capacity reserved for then.
    pub start_at: Option<Timestamp>,
    /// Longest time the slots may take to be ready, on top of that; any, if unbounded.
    pub start_within: Option<Millis>,
    /// When it was made.
    pub issued: Timestamp,
    /// No bid is read after this.
    pub closes: Timestamp,
}

impl Document for Announcement {
    const DOMAIN: &'static str = "souk/1/announcement";
    const MAX_LEN: usize = 8 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.renter
    }
}
