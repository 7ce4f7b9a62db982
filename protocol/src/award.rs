//! The renter's choice, and the provider's acceptance: together they are a lease.

use serde::{Deserialize, Serialize};

use crate::{
    id::{Hash, JobId, LeaseId, NetworkId, NodeId},
    money::Rate,
    signed::Document,
    terms::{Requirement, Terms},
    units::Timestamp,
};

/// Longest time between an award and its acceptance.
pub const ACCEPT_WITHIN_MS: u64 = 2_000;

/// A signed choice of one provider for some slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Award {
    /// Random, chosen by the renter.
    pub lease: LeaseId,
    /// The network.
    pub network: NetworkId,
    /// The renter.
    pub renter: NodeId,
    /// The provider.
    pub provider: NodeId,
    /// The first job it serves.
    pub job: JobId,
    /// What it rests on.
    pub basis: Basis,
    /// What one slot must have.
    pub requirement: Requirement,
    /// On which terms.
    pub terms: Terms,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots leased.
    pub slots: u32,
    /// The slots are the renter's from then on: the time of the award, later if the bid takes time to be ready, or the
    /// start that was asked for.
    pub start: Timestamp,
    /// When it was made.
    pub issued: Timestamp,
    /// No acceptance after this, by the provider's clock.
    pub accept_by: Timestamp,
}

/// The price an award rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Basis {
    /// The provider's own bid.
    Bid {
        /// Hash of the bid.
        bid: Hash,
        /// Root of the table of all bids of the auction ([`crate::merkle::root`]).
        table: Hash,
    },
    /// The provider's standing ask.
    Ask {
        /// Hash of the offer.
        offer: Hash,
    },
}

impl Document for Award {
    const DOMAIN: &'static str = "souk/1/award";
    const MAX_LEN: usize = 8 * 1024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.renter
    }
}

/// The provider's signature under an award.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accepted {
    /// The lease.
    pub lease: LeaseId,
    /// Hash of the award.
    pub award: Hash,
    /// The provider.
    pub provider: NodeId,
    /// The renter.
    pub renter: NodeId,
    /// When capacity was taken.
    pub at: Timestamp,
}

impl Document for Accepted {
    const DOMAIN: &'static str = "souk/1/accepted";
    const MAX_LEN: usize = 512;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.provider
    }
}
