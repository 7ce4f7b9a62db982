//! What a renter tells those that bid and did not win: that their bid was counted, and how far off it was.

use serde::{Deserialize, Serialize};

use crate::{
    bounded::List,
    id::{Hash, NodeId},
    merkle,
    signed::{Document, Signed},
    units::{Ppm, Timestamp},
};

/// Most neighbours on the way from a bid to the root of its table: for 65,536 bids.
pub const MAX_PATH: usize = 16;

/// The renter's commitment to the bids of one auction: the same table root as its awards name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Hash of the announcement.
    pub announcement: Hash,
    /// Who called.
    pub renter: NodeId,
    /// Root over the hashes of all bids, sorted ([`crate::merkle::root`]).
    pub table: Hash,
    /// How many bids there were.
    pub bids: u32,
    /// When it closed.
    pub at: Timestamp,
}

impl Document for Tally {
    const DOMAIN: &'static str = "souk/1/tally";
    const MAX_LEN: usize = 512;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.renter
    }
}

/// A tally as one of the bidders is told of it. Rank and distance are the renter's word: reliability is its own opinion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// What the renter signed.
    pub tally: Signed<Tally>,
    /// Hash of the bid.
    pub bid: Hash,
    /// Its place among the sorted hashes, from 0.
    pub index: u32,
    /// Its neighbours on the way to the root.
    pub path: List<Hash, MAX_PATH>,
    /// Its rank by effective cost, from 1; 0 if it did not meet a hard constraint.
    pub rank: u32,
    /// By how much its effective cost is above that of the best bid.
    pub over: Ppm,
}

impl Lost {
    /// Whether the bid is among those that `tally` commits to.
    #[must_use]
    pub fn is_counted(&self, tally: &Tally) -> bool {
        let at = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        merkle::includes(&tally.table, &self.bid, at(self.index), at(tally.bids), &self.path)
    }
}
