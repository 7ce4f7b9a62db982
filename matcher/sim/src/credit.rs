//! What peers owe a node, counted apart from the books of the rules: a fold of its records and of what its machine
//! really runs.

use std::collections::BTreeMap;

use souk_matcher::{LeaseView, Record};
use souk_protocol::{AttemptId, Credits, LeaseId, Millis, NodeId, Rate, Work};

/// Loans and debts of one node.
#[derive(Debug, Default)]
pub(crate) struct Credit {
    loans: BTreeMap<LeaseId, Loan>,
    /// What this node vouchered, by lease.
    debts: BTreeMap<LeaseId, (NodeId, Credits)>,
    given: BTreeMap<NodeId, Credits>,
    got: BTreeMap<NodeId, Credits>,
    trust: BTreeMap<NodeId, Credits>,
}

#[derive(Debug)]
struct Loan {
    renter: NodeId,
    rate: Rate,
    vouchered: Millis,
    total: Credits,
    claimed: BTreeMap<AttemptId, Millis>,
}

impl Credit {
    /// Takes note of a record of `me`.
    pub(crate) fn note(&mut self, me: &NodeId, record: &Record) {
        match record {
            Record::Accepted { award, .. } => {
                if let Ok(award) = award.peek() {
                    let loan = Loan {
                        renter: award.renter,
                        rate: award.rate,
                        vouchered: Millis(0),
                        total: Credits(0),
                        claimed: BTreeMap::new(),
                    };
                    self.loans.insert(award.lease, loan);
                }
            }
            Record::Delivered { result } => {
                if let Ok(result) = result.peek()
                    && result.end.is_billed()
                    && let Some(loan) = self.loans.get_mut(&result.attempt.lease)
                {
                    loan.claimed.insert(result.attempt, result.run);
                }
            }
            Record::Settled { attempt, voucher, .. } => {
                let Some(loan) = self.loans.get_mut(&attempt.lease) else { return };
                loan.claimed.remove(attempt);
                if let Some(Ok(voucher)) = voucher.as_ref().map(souk_protocol::Signed::peek)
                    && voucher.total > loan.total
                {
                    (loan.vouchered, loan.total) = (voucher.run, voucher.total);
                }
            }
            Record::Result { voucher: Some(voucher), .. } => {
                if let Ok(voucher) = voucher.peek() {
                    self.debts.insert(voucher.lease, (voucher.provider, voucher.total));
                }
            }
            Record::Trust { peer, limit } => {
                self.trust.insert(*peer, *limit);
            }
            Record::Discharge(discharge) => {
                let Ok(discharge) = discharge.peek() else { return };
                let (sums, peer) = if discharge.creditor == *me {
                    (&mut self.given, discharge.debtor)
                } else {
                    (&mut self.got, discharge.creditor)
                };
                let sum = sums.entry(peer).or_default();
                *sum = sum.saturating_add(discharge.amount);
            }
            _ => {}
        }
    }

    /// How much `renter` may owe where a stranger may owe `stranger`.
    #[must_use]
    pub(crate) fn limit(&self, renter: &NodeId, stranger: Credits) -> Credits {
        self.trust.get(renter).copied().unwrap_or(stranger)
    }

    /// What `renter` owes: delivered work, and what `running` attempts of its may still cost. Opposite debts are
    /// netted, discharges taken off.
    #[must_use]
    pub(crate) fn exposure<'a>(
        &self,
        renter: &NodeId,
        running: impl Iterator<Item = (&'a LeaseView, &'a Work)>,
    ) -> (Credits, Credits) {
        // By lease: rate, run time delivered, run time possible.
        let mut leases: BTreeMap<LeaseId, (Rate, u64, u64)> = BTreeMap::new();
        for (lease, loan) in self.loans.iter().filter(|(_, loan)| loan.renter == *renter) {
            let claimed = loan.claimed.values().fold(loan.vouchered.0, |sum, run| sum.saturating_add(run.0));
            leases.insert(*lease, (loan.rate, claimed, 0));
        }
        for (lease, work) in running.filter(|(lease, _)| lease.peer == *renter) {
            let entry = leases.entry(lease.lease).or_insert((lease.rate, 0, 0));
            entry.2 = entry.2.saturating_add(work.limits.timeout.0);
        }
        let (mut owed, mut at_most) = (0_u64, 0_u64);
        for (rate, delivered, possible) in leases.into_values() {
            let charge = |run: u64| rate.charge(Millis(run)).unwrap_or(Credits::MAX).0;
            owed = owed.saturating_add(charge(delivered));
            at_most = at_most.saturating_add(charge(delivered.saturating_add(possible)));
        }
        let off = self.given.get(renter).copied().unwrap_or_default().0;
        let debts = self.debts.values().filter(|(peer, _)| peer == renter).map(|(_, total)| total.0);
        let owing = debts.fold(0, u64::saturating_add);
        let owing = owing.saturating_sub(self.got.get(renter).copied().unwrap_or_default().0);
        let net = |sum: u64| sum.saturating_sub(off).saturating_sub(owing);
        (Credits(net(owed)), Credits(net(at_most).saturating_sub(net(owed))))
    }

    /// What each renter has vouchered and was not discharged of.
    #[must_use]
    pub(crate) fn undischarged(&self) -> BTreeMap<NodeId, Credits> {
        let mut sums: BTreeMap<NodeId, Credits> = BTreeMap::new();
        for loan in self.loans.values() {
            let sum = sums.entry(loan.renter).or_default();
            *sum = sum.saturating_add(loan.total);
        }
        for (renter, sum) in &mut sums {
            *sum = sum.saturating_sub(self.given.get(renter).copied().unwrap_or_default());
        }
        sums.retain(|_, sum| !sum.is_zero());
        sums
    }
}
