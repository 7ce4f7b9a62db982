//! What is owed to whom: the pairwise ledger of both roles.
//!
//! A voucher is a debt, nothing more, so what bounds a loss is the **exposure** to a key: everything it has not been
//! discharged of, vouchered or only claimed, plus what its running attempts may still cost. The ledger is a set keyed
//! by lease and attempt in which each entry only ever moves forward, so records that come twice or out of order leave
//! the same books.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use souk_protocol::{
    AttemptId, Award, Balance, CreditLimits, Credits, Discharge, LeaseId, Millis, NodeId, Party, Rate, Signed,
    Timestamp, Verified, Voucher,
};

use crate::{context::Keys, record::Record, trader::ReplayError};

mod credit;
mod entry;
mod takings;

pub use credit::Blocked;
use entry::{Entry, Step};
pub use entry::{LeaseSum, Worth};
use takings::Takings;
pub use takings::{HourSum, MAX_HOURS, core_time};

/// Entries of [`Books::history`] kept; older ones are in the journal.
pub const MAX_HISTORY: usize = 4_096;
/// Leases kept apart after their end. The oldest beyond it become part of their peer's sums.
pub const MAX_CLOSED: usize = 16_384;
/// Discharges remembered, so that none counts twice. Beyond it new ones are refused: a creditor needs a handful.
pub const MAX_DISCHARGES: usize = 65_536;

/// The ledger of this node with every peer.
#[derive(Debug, Clone, PartialEq)]
pub struct Books {
    me: NodeId,
    limits: CreditLimits,
    trust: BTreeMap<NodeId, Credits>,
    /// By lease and this node's side of it.
    leases: BTreeMap<(LeaseId, Party), Entry>,
    /// In the order they ended.
    closed: VecDeque<(LeaseId, Party)>,
    peers: BTreeMap<NodeId, Account>,
    /// What all strangers together may cost.
    strangers: Credits,
    /// Strangers with a debt, by the time it last grew.
    ages: BTreeSet<(Timestamp, NodeId)>,
    written_off: BTreeSet<NodeId>,
    discharges: BTreeSet<(NodeId, NodeId, [u8; 16])>,
    history: VecDeque<HistoryEntry>,
    takings: Takings,
}

/// The sums of one peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Account {
    /// Of leases on which this node is the provider.
    lent: Worth,
    /// Of leases on which this node is the renter.
    owing: Credits,
    /// Discharges this node signed.
    given: Credits,
    /// Discharges the peer signed.
    got: Credits,
    /// The part of the exposure that is in the strangers' sum.
    counted: Credits,
    /// When its debt last grew.
    grown: Option<Timestamp>,
}

impl Account {
    /// What the peer's default would cost at most. Opposite balances are netted.
    fn exposure(&self) -> Credits {
        let due = self.lent.sum().saturating_sub(self.given);
        due.saturating_sub(self.owing.saturating_sub(self.got))
    }

    fn balance(&self) -> Balance {
        let [vouchered, given, owing, got] =
            [self.lent.vouchered, self.given, self.owing, self.got].map(|amount| i128::from(amount.0));
        let sum = vouchered.saturating_sub(given).saturating_sub(owing).saturating_add(got);
        let clamped = sum.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Balance(i64::try_from(clamped).unwrap_or(i64::MAX))
    }
}

/// A line of the ledger's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryEntry {
    /// When, by the document's clock.
    pub at: Timestamp,
    /// With whom.
    pub peer: NodeId,
    /// On which lease, if on one.
    pub lease: Option<LeaseId>,
    /// How much more.
    pub amount: Credits,
    /// Of what.
    pub kind: HistoryKind,
}

/// What a [`HistoryEntry`] is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryKind {
    /// A peer's voucher for work of this node.
    Earned,
    /// This node's voucher for a peer's work.
    Spent,
    /// A debt of the peer that this node discharged.
    DischargeGiven,
    /// A debt of this node that the peer discharged.
    DischargeGot,
    /// Delivered work that no voucher covered when the lease was closed.
    Unpaid,
}

/// Sums over all peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Vouchered to this node.
    pub earned: Credits,
    /// Vouchered by this node.
    pub spent: Credits,
    /// Delivered by this node, not vouchered.
    pub claimed: Credits,
    /// What running attempts of others may cost at most.
    pub reserved: Credits,
    /// Discharged by this node.
    pub discharge_given: Credits,
    /// Discharged by peers.
    pub discharge_got: Credits,
    /// What all strangers together may cost.
    pub strangers: Credits,
}

impl Books {
    /// Empty books of the node `me`.
    #[must_use]
    pub fn new(me: NodeId, limits: CreditLimits) -> Self {
        Self {
            me,
            limits,
            trust: BTreeMap::new(),
            leases: BTreeMap::new(),
            closed: VecDeque::new(),
            peers: BTreeMap::new(),
            strangers: Credits::ZERO,
            ages: BTreeSet::new(),
            written_off: BTreeSet::new(),
            discharges: BTreeSet::new(),
            history: VecDeque::new(),
            takings: Takings::default(),
        }
    }

    /// Whose books they are.
    #[must_use]
    pub const fn me(&self) -> NodeId {
        self.me
    }

    /// Replays one record. The documents that mean money are verified again.
    ///
    /// # Errors
    /// If one of them is not valid.
    pub fn apply(&mut self, record: &Record, keys: &dyn Keys) -> Result<(), ReplayError> {
        let wrong = |what: &str, error: souk_protocol::VerifyError| ReplayError(format!("{what}: {error}"));
        match record {
            Record::Result { voucher: Some(voucher), .. } | Record::Settled { voucher: Some(voucher), .. } => {
                voucher.verify(keys).map_err(|error| wrong("voucher", error))?;
            }
            Record::Discharge(discharge) => {
                discharge.verify(keys).map_err(|error| wrong("discharge", error))?;
            }
            _ => {}
        }
        self.note(record);
        Ok(())
    }

    /// Takes note of a record whose documents this node signed or verified.
    pub(crate) fn note(&mut self, record: &Record) {
        match record {
            Record::Lease { award, .. } => self.open(award, Party::Renter),
            Record::Accepted { award, .. } => self.open(award, Party::Provider),
            Record::Result { voucher: Some(voucher), .. } => self.voucher(voucher, Party::Renter),
            Record::Started { attempt, .. } => self.step(*attempt, Step::Running, None),
            Record::Delivered { result } => {
                if let Ok(result) = result.peek() {
                    let key = (result.attempt.lease, Party::Provider);
                    if self.leases.get(&key).is_some_and(|entry| entry.awaits(&result.attempt)) {
                        self.takings.deliver(&result);
                    }
                    let step = if result.end.is_billed() { Step::Claimed(result.run) } else { Step::Settled };
                    self.step(result.attempt, step, Some(result.ended));
                }
            }
            Record::Settled { attempt, voucher, .. } => {
                self.step(*attempt, Step::Settled, None);
                if let Some(voucher) = voucher {
                    self.voucher(voucher, Party::Provider);
                }
            }
            Record::Receipt { provider, renter: Some(_) } => {
                if let Ok(receipt) = provider.peek() {
                    self.close(receipt.lease, self.side(&receipt.provider), None);
                }
            }
            Record::Close(close) => {
                if let Ok(close) = close.peek() {
                    let side = if self.leases.contains_key(&(close.lease, Party::Provider)) {
                        Party::Provider
                    } else {
                        Party::Renter
                    };
                    self.close(close.lease, side, Some(close.at));
                }
            }
            Record::Trust { peer, limit } => self.trust(*peer, *limit),
            Record::Discharge(discharge) => {
                if let Ok(discharge) = discharge.peek() {
                    self.discharged(&discharge);
                }
            }
            _ => {}
        }
    }

    fn side(&self, provider: &NodeId) -> Party {
        if *provider == self.me { Party::Provider } else { Party::Renter }
    }

    fn open(&mut self, award: &Signed<Award>, side: Party) {
        if let Ok(award) = award.peek() {
            let peer = if side == Party::Renter { award.provider } else { award.renter };
            if peer == self.me {
                return; // a node owes itself nothing
            }
            let entry = || Entry::new(peer, award.rate, award.terms.timeout);
            let is_new = !self.leases.contains_key(&(award.lease, side));
            if is_new && side == Party::Provider {
                self.takings.open(award.lease, award.requirement.cpu);
            }
            self.leases.entry((award.lease, side)).or_insert_with(entry);
            self.peers.entry(peer).or_default();
        }
    }

    fn step(&mut self, attempt: AttemptId, step: Step, at: Option<Timestamp>) {
        self.change((attempt.lease, Party::Provider), at, |entry| entry.step(attempt, step));
    }

    fn voucher(&mut self, voucher: &Signed<Voucher>, side: Party) {
        let Ok(voucher) = voucher.peek() else { return };
        let (mine, theirs) = match side {
            Party::Renter => (voucher.renter, voucher.provider),
            Party::Provider => (voucher.provider, voucher.renter),
        };
        let key = (voucher.lease, side);
        if mine != self.me || self.leases.get(&key).is_none_or(|entry| entry.peer != theirs) {
            return;
        }
        let before = self.leases.get(&key).map_or(Credits::ZERO, |entry| entry.worth.vouchered);
        self.change(key, Some(voucher.at), |entry| entry.voucher(&voucher));
        let after = self.leases.get(&key).map_or(Credits::ZERO, |entry| entry.worth.vouchered);
        let kind = if side == Party::Renter { HistoryKind::Spent } else { HistoryKind::Earned };
        if side == Party::Provider {
            self.takings.earn(voucher.at, after.saturating_sub(before));
        }
        self.tell(HistoryEntry {
            at: voucher.at,
            peer: theirs,
            lease: Some(voucher.lease),
            amount: after.saturating_sub(before),
            kind,
        });
    }

    /// Changes one lease's entry and everything that is summed over it.
    fn change(&mut self, key: (LeaseId, Party), at: Option<Timestamp>, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.leases.get_mut(&key) else { return };
        let before = entry.worth;
        change(entry);
        let (after, peer) = (entry.worth, entry.peer);
        if after == before {
            return;
        }
        let account = self.peers.entry(peer).or_default();
        match key.1 {
            Party::Renter => {
                account.owing = account.owing.saturating_sub(before.vouchered).saturating_add(after.vouchered);
            }
            Party::Provider => {
                account.lent = account.lent.replace(before, after);
                let debt = |worth: Worth| worth.vouchered.saturating_add(worth.claimed);
                if debt(after) > debt(before)
                    && let Some(at) = at
                {
                    if let Some(grown) = account.grown {
                        self.ages.remove(&(grown, peer));
                    }
                    let grown = account.grown.map_or(at, |grown| grown.max(at));
                    account.grown = Some(grown);
                    self.ages.insert((grown, peer));
                }
            }
        }
        self.count(peer);
    }

    /// Brings a peer's part of the strangers' sum up to date.
    fn count(&mut self, peer: NodeId) {
        let Some(account) = self.peers.get_mut(&peer) else { return };
        let exposure = account.exposure();
        if exposure.is_zero() {
            self.written_off.remove(&peer);
        }
        let apart = peer == self.me || self.trust.contains_key(&peer) || self.written_off.contains(&peer);
        let counted = if apart { Credits::ZERO } else { exposure };
        self.strangers = self.strangers.saturating_sub(account.counted).saturating_add(counted);
        account.counted = counted;
    }

    fn close(&mut self, lease: LeaseId, side: Party, left_at: Option<Timestamp>) {
        let key = (lease, side);
        if self.leases.get(&key).is_none_or(|entry| entry.closed) {
            return;
        }
        self.change(key, None, Entry::close);
        if side == Party::Provider {
            self.takings.close(&lease);
        }
        if let (Some(at), Some(entry)) = (left_at, self.leases.get(&key)) {
            let (peer, amount) = (entry.peer, entry.worth.claimed);
            self.tell(HistoryEntry { at, peer, lease: Some(lease), amount, kind: HistoryKind::Unpaid });
        }
        self.closed.push_back(key);
        if self.closed.len() > MAX_CLOSED
            && let Some(oldest) = self.closed.pop_front()
        {
            self.leases.remove(&oldest); // its amounts stay in the peer's sums
        }
    }

    /// The owner's own limit for a peer, in place of the stranger's.
    pub fn trust(&mut self, peer: NodeId, limit: Credits) {
        self.trust.insert(peer, limit);
        self.count(peer);
    }

    /// A discharge given or received. Whether it is new and concerns this node.
    pub fn discharge(&mut self, discharge: &Verified<Discharge>) -> bool {
        self.discharged(discharge)
    }

    fn discharged(&mut self, discharge: &Discharge) -> bool {
        let given = discharge.creditor == self.me;
        let peer = if given { discharge.debtor } else { discharge.creditor };
        // A stranger's discharge of a debt that never was would only take up room.
        let concerns = given || (discharge.debtor == self.me && self.peers.contains_key(&peer));
        let id = (discharge.creditor, discharge.debtor, discharge.nonce);
        if !concerns || discharge.creditor == discharge.debtor || self.discharges.len() >= MAX_DISCHARGES {
            return false;
        }
        if !self.discharges.insert(id) {
            return false;
        }
        let account = self.peers.entry(peer).or_default();
        let sum = if given { &mut account.given } else { &mut account.got };
        *sum = sum.saturating_add(discharge.amount);
        self.count(peer);
        let kind = if given { HistoryKind::DischargeGiven } else { HistoryKind::DischargeGot };
        self.tell(HistoryEntry { at: discharge.at, peer, lease: None, amount: discharge.amount, kind });
        true
    }

    fn tell(&mut self, entry: HistoryEntry) {
        if entry.amount.is_zero() {
            return;
        }
        if self.history.len() >= MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(entry);
    }

    /// What `peer` owes by vouchers, less discharges and what this node owes it; negative if this node is the debtor.
    #[must_use]
    pub fn balance(&self, peer: &NodeId) -> Balance {
        self.peers.get(peer).map_or(Balance::ZERO, Account::balance)
    }

    /// Vouchered by `peer` for work of this node, over all leases.
    #[must_use]
    pub fn earned(&self, peer: &NodeId) -> Credits {
        self.peers.get(peer).map_or(Credits::ZERO, |account| account.lent.vouchered)
    }

    /// Delivered to `peer` and not vouchered.
    #[must_use]
    pub fn claimed(&self, peer: &NodeId) -> Credits {
        self.peers.get(peer).map_or(Credits::ZERO, |account| account.lent.claimed)
    }

    /// Vouchered by this node for work of `peer`, over all leases.
    #[must_use]
    pub fn spent(&self, peer: &NodeId) -> Credits {
        self.peers.get(peer).map_or(Credits::ZERO, |account| account.owing)
    }

    /// Everybody this node has dealt with.
    pub fn peers(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.peers.keys().copied()
    }

    /// One lease, by id and this node's side of it.
    #[must_use]
    pub fn lease(&self, lease: &LeaseId, side: Party) -> Option<LeaseSum> {
        self.leases.get(&(*lease, side)).map(|entry| entry.view(*lease, side))
    }

    /// All leases that are kept apart, open and closed.
    pub fn leases(&self) -> impl Iterator<Item = LeaseSum> + '_ {
        self.leases.iter().map(|((lease, side), entry)| entry.view(*lease, *side))
    }

    /// What came in by the hour, oldest first.
    pub fn takings(&self) -> impl Iterator<Item = (Timestamp, HourSum)> + '_ {
        self.takings.hours()
    }

    /// What changed, oldest first; the newest [`MAX_HISTORY`] entries.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = &HistoryEntry> {
        self.history.iter()
    }

    /// Sums over all peers.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let start = Totals { strangers: self.strangers, ..Totals::default() };
        self.peers.values().fold(start, |sum, account| Totals {
            earned: sum.earned.saturating_add(account.lent.vouchered),
            spent: sum.spent.saturating_add(account.owing),
            claimed: sum.claimed.saturating_add(account.lent.claimed),
            reserved: sum.reserved.saturating_add(account.lent.reserved),
            discharge_given: sum.discharge_given.saturating_add(account.given),
            discharge_got: sum.discharge_got.saturating_add(account.got),
            strangers: sum.strangers,
        })
    }

    /// What the books would not say if they were right: each sum computed anew from the entries below it.
    #[must_use]
    pub fn verify(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut sums: BTreeMap<NodeId, (Worth, Credits)> = BTreeMap::new();
        for ((lease, side), entry) in &self.leases {
            if let Some(error) = entry.verify() {
                wrong.push(format!("lease {}: {error}", lease.short()));
            }
            let sum = sums.entry(entry.peer).or_default();
            match side {
                Party::Provider => sum.0 = sum.0.replace(Worth::default(), entry.worth),
                Party::Renter => sum.1 = sum.1.saturating_add(entry.worth.vouchered),
            }
        }
        let folded = self.closed.len() >= MAX_CLOSED;
        for (peer, account) in &self.peers {
            let (lent, owing) = sums.get(peer).copied().unwrap_or_default();
            // Leases folded away are only in the sums, which then are the larger ones.
            let fits = if folded {
                account.lent.vouchered >= lent.vouchered && account.owing >= owing
            } else {
                account.lent == lent && account.owing == owing
            };
            if !fits {
                wrong.push(format!(
                    "peer {}: the leases give {} earned and {} spent, the sums say {} and {}",
                    peer.short(),
                    lent.vouchered,
                    owing,
                    account.lent.vouchered,
                    account.owing
                ));
            }
        }
        let strangers = self.peers.iter().filter(|(peer, _)| self.is_counted(peer));
        let strangers = strangers.fold(Credits::ZERO, |sum, (_, account)| sum.saturating_add(account.exposure()));
        if strangers != self.strangers {
            wrong.push(format!("strangers: their exposures give {strangers}, the sum says {}", self.strangers));
        }
        wrong
    }

    fn is_counted(&self, peer: &NodeId) -> bool {
        *peer != self.me && !self.trust.contains_key(peer) && !self.written_off.contains(peer)
    }
}

/// The charge for so much run time, the largest amount where it does not fit.
fn charge(rate: Rate, run: Millis) -> Credits {
    rate.charge(run).unwrap_or(Credits::MAX)
}

#[cfg(test)]
mod tests;
