//! What came in, by the hour: for the owner, not for the debts.

use std::collections::BTreeMap;

use souk_protocol::{Credits, LeaseId, MilliCpu, Millis, TaskResult, Timestamp};

/// Hours kept: five weeks. Older ones are in the journal.
pub const MAX_HOURS: usize = 35 * 24;
/// Leases whose grants are kept; beyond it those with the lowest id count with no processor time.
const MAX_GRANTS: usize = 8_192;
const HOUR: u64 = 3_600_000;

/// What came in within an hour of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HourSum {
    /// Vouchered to this node.
    pub earned: Credits,
    /// Attempts whose results are owed for.
    pub billed: u32,
    /// Attempts that came to nothing: preempted, lost, refused.
    pub unbilled: u32,
    /// Work done: thousandths of a core times milliseconds.
    pub busy: u128,
}

/// Sums by the hour, a fold of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Takings {
    grants: BTreeMap<LeaseId, MilliCpu>,
    /// By hours since 1970.
    hours: BTreeMap<u64, HourSum>,
}

impl Takings {
    pub(super) fn open(&mut self, lease: LeaseId, slot: MilliCpu) {
        if self.grants.len() >= MAX_GRANTS {
            self.grants.pop_first();
        }
        self.grants.insert(lease, slot);
    }

    pub(super) fn close(&mut self, lease: &LeaseId) {
        self.grants.remove(lease);
    }

    pub(super) fn earn(&mut self, at: Timestamp, amount: Credits) {
        let hour = self.hour(at.0 / HOUR);
        hour.earned = hour.earned.saturating_add(amount);
    }

    /// The run of an attempt, which ended when its result says and lasted as long.
    pub(super) fn deliver(&mut self, result: &TaskResult) {
        let hour = self.hour(result.ended.0 / HOUR);
        let count = if result.end.is_billed() { &mut hour.billed } else { &mut hour.unbilled };
        *count = count.saturating_add(1);
        let cpu = u128::from(self.grants.get(&result.attempt.lease).copied().unwrap_or_default().0);
        // A run of longer than is kept would only push its own beginning out again.
        let longest = HOUR.saturating_mul(u64::try_from(MAX_HOURS).unwrap_or(u64::MAX));
        let run = result.run.0.min(longest);
        let mut from = result.ended.0.saturating_sub(run);
        while from < result.ended.0 {
            let number = from / HOUR;
            let to = number.saturating_add(1).saturating_mul(HOUR).min(result.ended.0);
            let busy = cpu.saturating_mul(u128::from(to.saturating_sub(from)));
            let hour = self.hour(number);
            hour.busy = hour.busy.saturating_add(busy);
            from = to;
        }
    }

    fn hour(&mut self, number: u64) -> &mut HourSum {
        // Room first, so that what is returned is not what goes.
        if self.hours.len() >= MAX_HOURS && !self.hours.contains_key(&number) {
            self.hours.pop_first();
        }
        self.hours.entry(number).or_default()
    }

    pub(super) fn hours(&self) -> impl Iterator<Item = (Timestamp, HourSum)> + '_ {
        self.hours.iter().map(|(number, sum)| (Timestamp(number.saturating_mul(HOUR)), *sum))
    }
}

/// Processor time as core-milliseconds.
#[must_use]
pub fn core_time(busy: u128) -> Millis {
    Millis(u64::try_from(busy.checked_div(1_000).unwrap_or(0)).unwrap_or(u64::MAX))
}
