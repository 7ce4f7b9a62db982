//! The running account of one lease. Both sides keep it by the same rules, so their vouchers agree to the byte.

use souk_protocol::{
    AttemptId, Billed, Credits, Hash, LeaseId, MAX_BILLED, Millis, NodeId, Rate, Timestamp, Voucher, extend_billed,
};

/// Why a charge or a voucher is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    /// The same attempt twice.
    #[error("attempt {0} is billed already")]
    Twice(AttemptId),
    /// More attempts than a receipt can list.
    #[error("a lease bills at most {MAX_BILLED} attempts")]
    Full,
    /// The amounts do not fit.
    #[error("the total overflows")]
    Overflow,
    /// The voucher is not what this side computes.
    #[error("voucher {number} says {theirs} for {count} attempts, expected {ours}")]
    Differs {
        /// Its number.
        number: u32,
        /// Its total.
        theirs: Credits,
        /// Its number of attempts.
        count: u32,
        /// The total on this side.
        ours: Credits,
    },
}

/// What is owed on one lease, and for which attempts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAccount {
    rate: Rate,
    run: Millis,
    total: Credits,
    billed: Vec<Billed>,
    chain: Hash,
}

impl LeaseAccount {
    /// An account with nothing owed.
    #[must_use]
    pub const fn new(rate: Rate) -> Self {
        Self { rate, run: Millis(0), total: Credits(0), billed: Vec::new(), chain: Hash([0; 32]) }
    }

    /// What is owed.
    #[must_use]
    pub const fn total(&self) -> Credits {
        self.total
    }

    /// Run time it is owed for.
    #[must_use]
    pub const fn run(&self) -> Millis {
        self.run
    }

    /// The attempts it is owed for, in the order they were billed.
    #[must_use]
    pub fn billed(&self) -> &[Billed] {
        &self.billed
    }

    /// Whether this attempt is billed.
    #[must_use]
    pub fn has(&self, attempt: &AttemptId) -> bool {
        self.billed.iter().any(|item| item.attempt == *attempt)
    }

    /// Bills an attempt. The charge is rounded once a lease: on the summed run time, not per attempt.
    ///
    /// # Errors
    /// Nothing is changed by a refusal.
    pub fn bill(&mut self, item: Billed) -> Result<(), AccountError> {
        if self.has(&item.attempt) {
            return Err(AccountError::Twice(item.attempt));
        }
        if self.billed.len() >= MAX_BILLED {
            return Err(AccountError::Full);
        }
        let run = self.run.checked_add(item.run).ok_or(AccountError::Overflow)?;
        self.total = self.rate.charge(run).ok_or(AccountError::Overflow)?;
        self.run = run;
        self.chain = extend_billed(&self.chain, &item);
        self.billed.push(item);
        Ok(())
    }

    /// Bills an attempt if `voucher` then covers exactly what is billed here.
    ///
    /// # Errors
    /// Nothing is changed by a refusal.
    pub fn bill_by(&mut self, item: Billed, voucher: &Voucher) -> Result<(), AccountError> {
        let (run, total, chain) = (self.run, self.total, self.chain);
        self.bill(item)?;
        let checked = self.check(voucher);
        if checked.is_err() {
            self.billed.pop();
            (self.run, self.total, self.chain) = (run, total, chain);
        }
        checked
    }

    /// The voucher over everything billed so far. Its number is the number of billed attempts.
    #[must_use]
    pub fn voucher(&self, lease: LeaseId, renter: NodeId, provider: NodeId, at: Timestamp) -> Voucher {
        let count = u32::try_from(self.billed.len()).unwrap_or(u32::MAX);
        Voucher {
            lease,
            renter,
            provider,
            number: count,
            total: self.total,
            run: self.run,
            billed: self.chain,
            count,
            at,
        }
    }

    /// The voucher that would cover one attempt more. Nothing is billed by it.
    ///
    /// # Errors
    /// As [`bill`](Self::bill).
    pub fn next_voucher(
        &self,
        item: &Billed,
        lease: LeaseId,
        renter: NodeId,
        provider: NodeId,
        at: Timestamp,
    ) -> Result<Voucher, AccountError> {
        if self.has(&item.attempt) {
            return Err(AccountError::Twice(item.attempt));
        }
        if self.billed.len() >= MAX_BILLED {
            return Err(AccountError::Full);
        }
        let run = self.run.checked_add(item.run).ok_or(AccountError::Overflow)?;
        let total = self.rate.charge(run).ok_or(AccountError::Overflow)?;
        let count = u32::try_from(self.billed.len()).unwrap_or(u32::MAX).saturating_add(1);
        let billed = extend_billed(&self.chain, item);
        Ok(Voucher { lease, renter, provider, number: count, total, run, billed, count, at })
    }

    /// Whether `voucher` covers exactly what is billed here.
    ///
    /// # Errors
    /// [`AccountError::Differs`].
    pub fn check(&self, voucher: &Voucher) -> Result<(), AccountError> {
        let ours = self.voucher(voucher.lease, voucher.renter, voucher.provider, voucher.at);
        if ours == *voucher {
            Ok(())
        } else {
            Err(AccountError::Differs {
                number: voucher.number,
                theirs: voucher.total,
                count: voucher.count,
                ours: self.total,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(task: u32, run: u64) -> Billed {
        let attempt = AttemptId { lease: LeaseId([1; 16]), task, replica: 0, number: 1 };
        Billed { attempt, result: Hash([9; 32]), run: Millis(run) }
    }

    #[test]
    fn the_charge_is_rounded_once_a_lease() {
        // 1 micro-credit an hour: each attempt alone would round up to 1.
        let mut account = LeaseAccount::new(Rate(1));
        for task in 0..10 {
            account.bill(item(task, 1_000)).unwrap();
        }
        assert_eq!(account.total(), Credits(1));
    }

    #[test]
    fn an_attempt_is_billed_once() {
        let mut account = LeaseAccount::new(Rate(3_600_000));
        account.bill(item(1, 500)).unwrap();
        assert_eq!(account.bill(item(1, 500)), Err(AccountError::Twice(item(1, 0).attempt)));
        assert_eq!(account.total(), Credits(500));
    }

    #[test]
    fn both_sides_agree_on_the_voucher_or_say_what_differs() {
        let (renter, provider) = (NodeId([1; 32]), NodeId([2; 32]));
        let mut ours = LeaseAccount::new(Rate(3_600_000));
        let mut theirs = ours.clone();
        for account in [&mut ours, &mut theirs] {
            account.bill(item(1, 500)).unwrap();
        }
        let voucher = ours.voucher(LeaseId([1; 16]), renter, provider, Timestamp(5));
        assert_eq!(voucher.number, 1);
        assert_eq!(theirs.check(&voucher), Ok(()));
        theirs.bill(item(2, 1)).unwrap();
        let error = theirs.check(&voucher).unwrap_err().to_string();
        assert!(error.starts_with("voucher 1 says"), "{error}");
    }

    #[test]
    fn the_next_voucher_is_the_one_that_billing_makes_valid() {
        let (renter, provider, lease) = (NodeId([1; 32]), NodeId([2; 32]), LeaseId([1; 16]));
        let mut account = LeaseAccount::new(Rate(3_600_000));
        for task in 0..3 {
            let next = account.next_voucher(&item(task, 700), lease, renter, provider, Timestamp(9)).unwrap();
            account.bill_by(item(task, 700), &next).unwrap();
        }
        let again = account.next_voucher(&item(1, 1), lease, renter, provider, Timestamp(9));
        assert_eq!(again, Err(AccountError::Twice(item(1, 0).attempt)));
    }

    #[test]
    fn an_overflow_changes_nothing() {
        let mut account = LeaseAccount::new(Rate(u64::MAX));
        let before = account.clone();
        assert_eq!(account.bill(item(1, u64::MAX)), Err(AccountError::Overflow));
        assert_eq!(account, before);
    }
}
