//! The renter's auction: whom to invite, when it closes, and the table of bids that awards rest on.

use std::collections::BTreeMap;

use souk_protocol::{Announcement, Bid, Decline, Hash, Millis, NodeId, Ppm, Rate, Verified};

use crate::{
    event::AuctionReport,
    rank::{self, Candidate, Cost, Loss},
};

/// One of so many places in a round is for peers without a record, so that somebody can come to have one.
pub const NEWCOMERS: usize = 4;
/// Thinking time of a bidder, on top of its own round trip.
pub const THINKING: Millis = Millis(20);

/// A provider that may be invited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitee {
    /// As its offer has it. A provider that only bids ranks by the floor of the others.
    pub candidate: Candidate,
    /// Whether it has no record here.
    pub newcomer: bool,
    /// Whether nothing was free when it was last heard of. It may know better, but others are asked first.
    pub full: bool,
}

/// Chooses whom to invite, `most` at most: the best by estimate, a share of newcomers by lot; who has no room only where
/// places are left.
#[must_use]
pub fn invites(mut invitees: Vec<Invitee>, most: usize, seed: &Hash, duration: Millis, loss: Loss) -> Vec<NodeId> {
    invitees.sort_by_key(|invitee| {
        let cost = rank::cost(&invitee.candidate, duration, loss);
        (invitee.full, cost, rank::tie(seed, &invitee.candidate.provider))
    });
    if invitees.len() <= most {
        return invitees.into_iter().map(|invitee| invitee.candidate.provider).collect();
    }
    let newcomers = most / NEWCOMERS;
    let best = invitees.iter().take(most.saturating_sub(newcomers));
    let mut chosen: Vec<NodeId> = best.map(|invitee| invitee.candidate.provider).collect();
    let rest = invitees.get(chosen.len()..).unwrap_or_default();
    let mut lots: Vec<_> = rest.iter().filter(|invitee| invitee.newcomer).collect();
    lots.sort_by_key(|invitee| (invitee.full, rank::tie(seed, &invitee.candidate.provider)));
    chosen.extend(lots.iter().take(newcomers).map(|invitee| invitee.candidate.provider));
    for invitee in rest {
        if chosen.len() >= most {
            break;
        }
        if !chosen.contains(&invitee.candidate.provider) {
            chosen.push(invitee.candidate.provider);
        }
    }
    chosen
}

/// What came of an invitation.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "most invitations are answered by a bid")]
enum Answer {
    /// Nothing yet; waited for until then.
    Waiting(Millis),
    Bid(Verified<Bid>),
    Declined(Decline),
    /// It cannot be reached.
    Unreachable,
}

/// What a bid did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// It is in the table.
    Counted,
    /// The same again, or one of a provider that declined.
    Ignored,
    /// The provider's first bid says something else: it lies in one of them.
    Contradicts,
    /// It was not invited.
    Uninvited,
}

/// A round under way.
#[derive(Debug, Clone)]
pub struct Auction {
    call: Verified<Announcement>,
    opened: Millis,
    closes: Millis,
    invited: BTreeMap<NodeId, Answer>,
}

impl Auction {
    /// Opens a round. Each invitee is waited for as long as its own round trip and some thinking take, and none longer
    /// than `window`.
    #[must_use]
    pub fn open(
        call: Verified<Announcement>,
        invited: impl IntoIterator<Item = (NodeId, Option<Millis>)>,
        now: Millis,
        window: Millis,
    ) -> Self {
        let closes = now.saturating_add(window);
        let until = |rtt: Option<Millis>| {
            now.saturating_add(rtt.unwrap_or(rank::UNKNOWN_RTT)).saturating_add(THINKING).min(closes)
        };
        let invited = invited.into_iter().map(|(provider, rtt)| (provider, Answer::Waiting(until(rtt)))).collect();
        Self { call, opened: now, closes, invited }
    }

    /// The call for bids.
    #[must_use]
    pub const fn call(&self) -> &Verified<Announcement> {
        &self.call
    }

    /// Takes a bid on this call.
    pub fn bid(&mut self, bid: Verified<Bid>) -> Heard {
        match self.invited.get_mut(&bid.provider) {
            None => Heard::Uninvited,
            Some(Answer::Bid(first)) if first.hash() != bid.hash() => Heard::Contradicts,
            Some(Answer::Bid(_) | Answer::Declined(_)) => Heard::Ignored,
            Some(answer) => {
                *answer = Answer::Bid(bid);
                Heard::Counted
            }
        }
    }

    /// Takes a decline of this call.
    pub fn decline(&mut self, from: &NodeId, decline: Decline) {
        if let Some(answer @ (Answer::Waiting(_) | Answer::Unreachable)) = self.invited.get_mut(from) {
            *answer = Answer::Declined(decline);
        }
    }

    /// Waits no longer for this provider.
    pub fn unreachable(&mut self, peer: &NodeId) {
        if let Some(answer @ Answer::Waiting(_)) = self.invited.get_mut(peer) {
            *answer = Answer::Unreachable;
        }
    }

    /// When the last of those that have not answered has had its time; `None` if all have answered.
    #[must_use]
    pub fn closes_at(&self) -> Option<Millis> {
        let waiting = |answer: &Answer| match answer {
            Answer::Waiting(until) => Some(*until),
            _ => None,
        };
        self.invited.values().filter_map(waiting).max()
    }

    /// Whether it is closed at `now`.
    #[must_use]
    pub fn is_over(&self, now: Millis) -> bool {
        now >= self.closes || self.closes_at().is_none_or(|at| at <= now)
    }

    /// The bids.
    pub fn bids(&self) -> impl Iterator<Item = &Verified<Bid>> {
        self.invited.values().filter_map(|answer| match answer {
            Answer::Bid(bid) => Some(bid),
            _ => None,
        })
    }

    /// The declines.
    pub fn declines(&self) -> impl Iterator<Item = (&NodeId, &Decline)> {
        self.invited.iter().filter_map(|(provider, answer)| match answer {
            Answer::Declined(decline) => Some((provider, decline)),
            _ => None,
        })
    }

    /// How many answered nothing.
    #[must_use]
    pub fn silent(&self) -> usize {
        self.invited.values().filter(|answer| matches!(answer, Answer::Waiting(_) | Answer::Unreachable)).count()
    }

    /// How many were invited.
    #[must_use]
    pub fn invited(&self) -> usize {
        self.invited.len()
    }

    /// The report of a round closed at `now`, with `bids` best first.
    #[must_use]
    pub fn report(&self, bids: Vec<(NodeId, Rate, u32, bool)>, now: Millis) -> AuctionReport {
        AuctionReport {
            round: self.call.round,
            by_ask: false,
            invited: count(self.invited()),
            bids,
            declines: self.declines().map(|(provider, decline)| (*provider, decline.to_string())).collect(),
            silent: count(self.silent()),
            window: now.saturating_sub(self.opened),
        }
    }
}

/// A number for a report.
pub(crate) fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// The bids of a closed round that will do, best first. Refusals are answered from it; a new round opens only when it is
/// used up.
#[derive(Debug, Clone)]
pub struct Table {
    root: Hash,
    entries: Vec<Entry>,
}

#[derive(Debug, Clone)]
struct Entry {
    bid: Verified<Bid>,
    cost: Cost,
    used: bool,
}

/// A bid that did not win, as its bidder is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loser {
    /// Who bid.
    pub provider: NodeId,
    /// Hash of its bid.
    pub bid: Hash,
    /// Place of that hash among those of all bids, sorted.
    pub index: usize,
    /// Its neighbours on the way to the table's root.
    pub path: Vec<Hash>,
    /// Its rank, from 1; 0 if it will not do.
    pub rank: u32,
    /// How much dearer it is than the best, all things considered.
    pub over: Ppm,
}

impl Table {
    /// The table of a closed round: the root is over all its bids, the entries are those that will do.
    #[must_use]
    pub fn of(
        auction: &Auction,
        mut fits: impl FnMut(&Bid) -> Option<Candidate>,
        duration: Millis,
        loss: Loss,
    ) -> Self {
        let root = rank::root(auction.bids().map(Verified::hash));
        let bids: BTreeMap<Hash, &Verified<Bid>> = auction.bids().map(|bid| (bid.hash(), bid)).collect();
        let candidates = bids
            .iter()
            .filter_map(|(hash, bid)| fits(bid).map(|candidate| Candidate { document: *hash, ..candidate }))
            .collect();
        let ranked = rank::rank(candidates, &root, duration, loss);
        let entry = |candidate: &Candidate| {
            let bid = (*bids.get(&candidate.document)?).clone();
            Some(Entry { bid, cost: rank::cost(candidate, duration, loss), used: false })
        };
        let entries = ranked.iter().filter_map(entry).collect();
        Self { root, entries }
    }

    /// Who did not win, when the best take `wanted` slots.
    #[must_use]
    pub fn losers(&self, auction: &Auction, wanted: u32) -> Vec<Loser> {
        let all: BTreeMap<Hash, NodeId> = auction.bids().map(|bid| (bid.hash(), bid.provider)).collect();
        let hashes: Vec<Hash> = all.keys().copied().collect();
        let mut places: BTreeMap<Hash, (u32, Cost, bool)> = BTreeMap::new();
        let mut left = wanted;
        for (rank, entry) in (1u32..).zip(&self.entries) {
            places.insert(entry.bid.hash(), (rank, entry.cost, left > 0));
            left = left.saturating_sub(entry.bid.slots);
        }
        let best = self.entries.first().map(|entry| entry.cost).unwrap_or_default();
        let mut losers = Vec::new();
        for (index, (bid, provider)) in all.iter().enumerate() {
            let (rank, cost, won) = places.get(bid).copied().unwrap_or((0, best, false));
            if let Some(path) = souk_protocol::merkle::path(&hashes, index).filter(|_| !won) {
                losers.push(Loser { provider: *provider, bid: *bid, index, path, rank, over: cost.over(best) });
            }
        }
        losers
    }

    /// What awards on this table name.
    #[must_use]
    pub const fn root(&self) -> Hash {
        self.root
    }

    /// The bids that will do, best first.
    pub fn bids(&self) -> impl Iterator<Item = &Verified<Bid>> {
        self.entries.iter().map(|entry| &entry.bid)
    }

    /// Whether no bid is left.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.entries.iter().all(|entry| entry.used)
    }

    /// The best bid that is left.
    pub fn take(&mut self) -> Option<Verified<Bid>> {
        let entry = self.entries.iter_mut().find(|entry| !entry.used)?;
        entry.used = true;
        Some(entry.bid.clone())
    }
}

#[cfg(test)]
mod tests;
