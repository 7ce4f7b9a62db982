//! How much more a peer may owe.

use souk_protocol::{CreditLimits, Credits, NodeId, Timestamp};

use super::Books;

/// Why nothing more is lent, with the figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Blocked {
    /// The peer's own limit.
    #[error("you may owe {owed} of at most {limit} ({name}), this may cost {extra} more")]
    Peer {
        /// What it may cost already.
        owed: Credits,
        /// What would come on top.
        extra: Credits,
        /// The limit.
        limit: Credits,
        /// Which limit: `credit.stranger` or `trust`.
        name: &'static str,
    },
    /// The limit of all strangers together.
    #[error("strangers may owe {owed} of at most {limit} (credit.strangers), this may cost {extra} more")]
    Strangers {
        /// What they may cost already.
        owed: Credits,
        /// What would come on top.
        extra: Credits,
        /// The limit.
        limit: Credits,
    },
    /// Too much is delivered without a voucher.
    #[error("{claimed} is delivered without a voucher, more than half of {limit} ({name})")]
    Unvouchered {
        /// How much.
        claimed: Credits,
        /// The peer's limit.
        limit: Credits,
        /// Which limit.
        name: &'static str,
    },
    /// An old debt.
    #[error("a debt of {owed} was written off and has to be discharged first")]
    WrittenOff {
        /// How much.
        owed: Credits,
    },
}

impl Books {
    /// The owner's limits for strangers, in place of the network's.
    pub fn limit(&mut self, stranger: Credits, strangers: Credits) {
        self.limits = CreditLimits { stranger, strangers, write_off: self.limits.write_off };
    }

    /// What `peer`'s default would cost at most: charges not discharged and what its running attempts may cost.
    #[must_use]
    pub fn exposure(&self, peer: &NodeId) -> Credits {
        self.peers.get(peer).map_or(Credits::ZERO, super::Account::exposure)
    }

    /// What the default of all strangers would cost at most.
    #[must_use]
    pub const fn strangers(&self) -> Credits {
        self.strangers
    }

    /// The limits for strangers.
    #[must_use]
    pub const fn limits(&self) -> CreditLimits {
        self.limits
    }

    /// The owner's own limit for `peer`, if there is one.
    #[must_use]
    pub fn trusted(&self, peer: &NodeId) -> Option<Credits> {
        self.trust.get(peer).copied()
    }

    /// The limit for `peer`, and which one it is.
    #[must_use]
    pub fn limit_of(&self, peer: &NodeId) -> (Credits, &'static str) {
        if *peer == self.me {
            return (Credits::MAX, "own node");
        }
        match self.trust.get(peer) {
            Some(limit) => (*limit, "trust"),
            None => (self.limits.stranger, "credit.stranger"),
        }
    }

    /// Debts older than `credit.write_off` leave the strangers' sum; their keys stay refused until discharged.
    pub fn age(&mut self, now: Timestamp) {
        while let Some((grown, peer)) = self.ages.first().copied() {
            if grown.0.saturating_add(self.limits.write_off.0) > now.0 {
                break;
            }
            self.ages.pop_first();
            if !self.exposure(&peer).is_zero() && !self.trust.contains_key(&peer) && peer != self.me {
                self.written_off.insert(peer);
            }
            self.count(peer);
        }
    }

    /// Whether the debt of `peer` was written off and not discharged.
    #[must_use]
    pub fn is_written_off(&self, peer: &NodeId) -> bool {
        self.written_off.contains(peer)
    }

    /// Whether `peer` may owe `extra` more. Call [`age`](Self::age) first.
    ///
    /// # Errors
    /// The limit that blocks, with its figures.
    pub fn may_lend(&self, peer: &NodeId, extra: Credits) -> Result<(), Blocked> {
        let owed = self.exposure(peer);
        if *peer == self.me {
            return Ok(());
        }
        if self.written_off.contains(peer) {
            return Err(Blocked::WrittenOff { owed });
        }
        let (limit, name) = self.limit_of(peer);
        if owed.checked_add(extra).is_none_or(|sum| sum > limit) {
            return Err(Blocked::Peer { owed, extra, limit, name });
        }
        if !self.trust.contains_key(peer) {
            let (owed, limit) = (self.strangers, self.limits.strangers);
            if owed.checked_add(extra).is_none_or(|sum| sum > limit) {
                return Err(Blocked::Strangers { owed, extra, limit });
            }
        }
        Ok(())
    }

    /// Whether another task of `peer` may start that may cost `extra`: as [`may_lend`](Self::may_lend), and at most half
    /// the limit is delivered without a voucher.
    ///
    /// # Errors
    /// The limit that blocks.
    pub fn may_start(&self, peer: &NodeId, extra: Credits) -> Result<(), Blocked> {
        self.may_lend(peer, extra)?;
        let (limit, name) = self.limit_of(peer);
        let claimed = self.claimed(peer);
        if claimed.0 > limit.0 >> 1 {
            return Err(Blocked::Unvouchered { claimed, limit, name });
        }
        Ok(())
    }

    /// Whether the exposure to `peer` may yet fall by itself: work that runs may be cheaper than its timeout.
    #[must_use]
    pub fn is_in_flight(&self, peer: &NodeId) -> bool {
        self.peers.get(peer).is_some_and(|account| !account.lent.reserved.is_zero())
    }

    /// How much more `peer` may owe.
    #[must_use]
    pub fn room(&self, peer: &NodeId) -> Credits {
        if *peer == self.me {
            return Credits::MAX;
        }
        if self.written_off.contains(peer) {
            return Credits::ZERO;
        }
        let own = self.limit_of(peer).0.saturating_sub(self.exposure(peer));
        if self.trust.contains_key(peer) { own } else { own.min(self.limits.strangers.saturating_sub(self.strangers)) }
    }
}
