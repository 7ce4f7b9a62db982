//! A provider's answer to an announcement: a sealed price, or a coded reason why not.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    bounded::Text,
    id::{Hash, NodeId},
    money::Rate,
    signed::Document,
    units::{Millis, Timestamp},
};

/// A signed price. It holds nothing: capacity is taken at the award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bid {
    /// Hash of the announcement it answers.
    pub announcement: Hash,
    /// Who called.
    pub renter: NodeId,
    /// Who bids.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots it could start.
    pub slots: u32,
    /// How long after the award they are ready: zero if they are free, else the notice that whoever holds them is
    /// given first.
    pub ready_in: Millis,
    /// When it was made.
    pub issued: Timestamp,
    /// Until when an award is honoured if capacity is there.
    pub valid_until: Timestamp,
}

impl Document for Bid {
    const DOMAIN: &'static str = "souk/1/bid";
    const MAX_LEN: usize = 1_024;

    fn may_sign(&self, signer: &NodeId) -> bool {
        *signer == self.provider
    }
}

/// Why a provider does not bid on an announcement or does not accept an award.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decline {
    /// Hash of the announcement or award.
    pub subject: Hash,
    /// The reason.
    pub code: DeclineCode,
    /// What would have been enough, for people: `free 2 of 3 cores`.
    pub nearest: Text<200>,
}

crate::terms::words! {
    /// Reasons of a [`Decline`]. None of them is a fault.
    DeclineCode {
        /// Everything that fits is taken.
        NoCapacity = "no-capacity",
        /// The slot asked for is larger than the whole machine.
        TooLarge = "too-large",
        /// It does not run this kind of work.
        Runtime = "runtime",
        /// It cannot isolate as strongly.
        Isolation = "isolation",
        /// It is elsewhere.
        Region = "region",
        /// It does not serve this tier.
        Tier = "tier",
        /// The price cap is under its floor.
        Price = "price",
        /// The renter would owe too much.
        NoCredit = "no-credit",
        /// The attempt could last longer than it accepts.
        Duration = "duration",
        /// It does not work for this renter.
        Denied = "denied",
        /// Clocks differ by more than the network allows.
        ClockSkew = "clock-skew",
        /// It came too late.
        Expired = "expired",
        /// It refers to a bid or ask that it does not know.
        Unknown = "unknown",
        /// Terms it cannot keep.
        Terms = "terms",
        /// It is stopping or not selling now.
        Closed = "closed",
        /// Too many requests of this renter.
        Busy = "busy",
    }
}

impl fmt::Display for Decline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.code)?;
        if !self.nearest.is_empty() {
            write!(f, ": {}", self.nearest)?;
        }
        Ok(())
    }
}
