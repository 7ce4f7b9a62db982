//! One lease in the books.

use std::collections::BTreeMap;

use souk_protocol::{AttemptId, Credits, LeaseId, Millis, NodeId, Party, Rate, Voucher};

use super::charge;

/// What is owed on a lease or by a peer, from the surest part to the least sure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Worth {
    /// Signed by the debtor.
    pub vouchered: Credits,
    /// Delivered and not vouchered.
    pub claimed: Credits,
    /// What running attempts may still cost.
    pub reserved: Credits,
}

impl Worth {
    /// All of it.
    #[must_use]
    pub const fn sum(&self) -> Credits {
        self.vouchered.saturating_add(self.claimed).saturating_add(self.reserved)
    }

    /// With one part exchanged for another.
    pub(super) const fn replace(self, before: Self, after: Self) -> Self {
        Self {
            vouchered: self.vouchered.saturating_sub(before.vouchered).saturating_add(after.vouchered),
            claimed: self.claimed.saturating_sub(before.claimed).saturating_add(after.claimed),
            reserved: self.reserved.saturating_sub(before.reserved).saturating_add(after.reserved),
        }
    }
}

/// A lease as the books see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseSum {
    /// Which.
    pub lease: LeaseId,
    /// This node's side.
    pub side: Party,
    /// The other side.
    pub peer: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Number of the last voucher, 0 if there is none.
    pub number: u32,
    /// Run time it covers.
    pub run: Millis,
    /// What is owed.
    pub worth: Worth,
    /// Whether nothing more will come.
    pub closed: bool,
}

/// How far an attempt is. Later steps never give way to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// May cost up to the timeout.
    Running,
    /// Delivered, with this run time.
    Claimed(Millis),
    /// Vouchered or given up.
    Settled,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) peer: NodeId,
    rate: Rate,
    timeout: Millis,
    number: u32,
    run: Millis,
    attempts: BTreeMap<AttemptId, Step>,
    running: u64,
    claimed: Millis,
    pub(super) worth: Worth,
    pub(super) closed: bool,
}

impl Entry {
    pub(super) const fn new(peer: NodeId, rate: Rate, timeout: Millis) -> Self {
        Self {
            peer,
            rate,
            timeout,
            number: 0,
            run: Millis::ZERO,
            attempts: BTreeMap::new(),
            running: 0,
            claimed: Millis::ZERO,
            worth: Worth { vouchered: Credits::ZERO, claimed: Credits::ZERO, reserved: Credits::ZERO },
            closed: false,
        }
    }

    /// Whether no result of this attempt is known.
    pub(super) fn awaits(&self, attempt: &AttemptId) -> bool {
        !self.closed && matches!(self.attempts.get(attempt), None | Some(Step::Running))
    }

    pub(super) fn step(&mut self, attempt: AttemptId, step: Step) {
        let known = self.attempts.get(&attempt).copied();
        if self.closed || known.is_some_and(|known| known >= step) {
            return;
        }
        match known {
            Some(Step::Running) => self.running = self.running.saturating_sub(1),
            Some(Step::Claimed(run)) => self.claimed = self.claimed.saturating_sub(run),
            Some(Step::Settled) | None => {}
        }
        match step {
            Step::Running => self.running = self.running.saturating_add(1),
            Step::Claimed(run) => self.claimed = self.claimed.saturating_add(run),
            Step::Settled => {}
        }
        self.attempts.insert(attempt, step);
        self.weigh();
    }

    /// The highest number wins, and a total never falls.
    pub(super) fn voucher(&mut self, voucher: &Voucher) {
        if voucher.number <= self.number || voucher.total < self.worth.vouchered || voucher.run < self.run {
            return;
        }
        self.number = voucher.number;
        self.run = voucher.run;
        self.worth.vouchered = voucher.total;
        self.weigh();
    }

    /// Nothing runs any more; what is claimed stays so.
    pub(super) fn close(&mut self) {
        self.attempts.clear();
        self.running = 0;
        self.closed = true;
        self.weigh();
    }

    fn weigh(&mut self) {
        let billed = self.run.saturating_add(self.claimed);
        let delivered = charge(self.rate, billed);
        let may_run = self.timeout.0.saturating_mul(self.running);
        let at_most = charge(self.rate, billed.saturating_add(Millis(may_run)));
        self.worth.claimed = delivered.saturating_sub(self.worth.vouchered);
        self.worth.reserved = at_most.saturating_sub(delivered);
    }

    pub(super) const fn view(&self, lease: LeaseId, side: Party) -> LeaseSum {
        LeaseSum {
            lease,
            side,
            peer: self.peer,
            rate: self.rate,
            number: self.number,
            run: self.run,
            worth: self.worth,
            closed: self.closed,
        }
    }

    pub(super) fn verify(&self) -> Option<String> {
        let total = charge(self.rate, self.run);
        if self.worth.vouchered != total {
            return Some(format!(
                "voucher {} says {}, but {} ms at {} are {total}",
                self.number, self.worth.vouchered, self.run.0, self.rate
            ));
        }
        let mut anew = self.clone();
        if !self.closed {
            anew.running = 0;
            anew.claimed = Millis::ZERO;
            for step in self.attempts.values() {
                match step {
                    Step::Running => anew.running = anew.running.saturating_add(1),
                    Step::Claimed(run) => anew.claimed = anew.claimed.saturating_add(*run),
                    Step::Settled => {}
                }
            }
        }
        anew.weigh();
        (anew.worth != self.worth)
            .then(|| format!("its attempts give {} claimed, the entry says {}", anew.worth.claimed, self.worth.claimed))
    }
}
