//! What must hold at rest, and forgetting what is: a run of many nodes has no room for all facts.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use souk_protocol::{AttemptId, Credits, JobId, LeaseId, NodeId};

use super::{AttemptFacts, JobFacts, JobSum, LeaseFacts, Ledger, OnceKey, Side, SideState, fault};
use crate::{
    invariant::{self, Fault, Invariant},
    network::NodeIndex,
    time::Micros,
};

/// What is kept of what was forgotten.
#[derive(Debug, Default)]
pub(super) struct Forgotten {
    pub(super) leases: BTreeSet<LeaseId>,
    pub(super) jobs: BTreeMap<JobId, JobSum>,
    pub(super) agreed: usize,
    pub(super) both: usize,
    pub(super) spent: u64,
    pub(super) vouchered: BTreeMap<(NodeId, NodeId), (Credits, Credits)>,
}

impl Ledger {
    /// A lease that is over on both sides: what must hold at rest must hold now, and then it is forgotten.
    pub(super) fn forget(&mut self, at: Micros, id: LeaseId) {
        let is_over = |side: &Side| matches!(side.state, SideState::Receipt | SideState::Left);
        // One side alone may hold the receipt for the time of a message.
        let over = |facts: &LeaseFacts| is_over(&facts.provider) && is_over(&facts.renter);
        if !self.forgets || !self.leases.get(&id).is_some_and(over) {
            return;
        }
        let attempts: Vec<AttemptId> = self.attempts.range(attempts_of(id)).map(|(attempt, _)| *attempt).collect();
        let Some(facts) = self.leases.get(&id) else { return };
        let mut outcomes = lease_at_rest(&id, facts, &self.crooks);
        for attempt in &attempts {
            if let Some(attempt_facts) = self.attempts.get(attempt) {
                outcomes.extend(attempt_at_rest(attempt, attempt_facts, Some(facts), &self.crooks));
            }
        }
        for outcome in outcomes {
            self.check(at, outcome);
        }
        for attempt in attempts {
            self.attempts.remove(&attempt);
        }
        let keys: Vec<OnceKey> = self.once.range(once_of(id)).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.once.remove(&key);
        }
        let Some(facts) = self.leases.remove(&id) else { return };
        self.forgotten.leases.insert(id);
        self.forgotten.agreed += usize::from(facts.is_agreed());
        self.forgotten.both += usize::from(facts.has_both());
        self.forgotten.spent = self.forgotten.spent.saturating_add(facts.vouchered());
        facts.add_to(&mut self.forgotten.vouchered);
        let jobs = facts.job;
        if let Some(job) = self.jobs.get_mut(&jobs) {
            job.leases.remove(&id);
            job.spent = job.spent.saturating_add(facts.vouchered());
        }
        self.forget_job(jobs);
    }

    pub(super) fn forget_job(&mut self, id: JobId) {
        let is_over = |facts: &&JobFacts| facts.ended.is_some() && facts.leases.is_empty();
        if let Some(facts) = self.jobs.get(&id).filter(is_over).filter(|_| self.forgets) {
            let sum = self.sum(facts);
            self.forgotten.jobs.insert(id, sum);
            self.jobs.remove(&id);
        }
    }

    /// What must hold at the end, when all faults are long over. Of what is not at rest yet nothing is asked.
    pub(crate) fn at_rest(&mut self, at: Micros, is_at_rest: bool) {
        if !is_at_rest {
            return;
        }
        let mut outcomes = Vec::new();
        for (job, facts) in &self.jobs {
            if facts.ended.is_none() && !self.crooks.contains(&facts.renter) {
                let (done, tasks) = (facts.done.len(), facts.spec.task_count());
                outcomes
                    .push(fault(Invariant::JobsEnd, format!("{job:?} has no end, {done} of {tasks} tasks are done")));
            }
        }
        for (lease, facts) in &self.leases {
            outcomes.extend(lease_at_rest(lease, facts, &self.crooks));
        }
        for (attempt, facts) in &self.attempts {
            outcomes.extend(attempt_at_rest(attempt, facts, self.leases.get(&attempt.lease), &self.crooks));
        }
        for outcome in outcomes {
            self.check(at, outcome);
        }
    }
}

/// What must hold of a lease when nothing more will happen to it.
fn lease_at_rest(lease: &LeaseId, facts: &LeaseFacts, crooks: &BTreeSet<NodeId>) -> Vec<Result<(), Fault>> {
    let mut outcomes = Vec::new();
    for name in facts.open_at(crooks) {
        outcomes.push(fault(Invariant::LeasesClose, format!("{lease:?} is open at its {name}")));
    }
    let both = facts.has_both();
    if facts.provider.state == SideState::Receipt && facts.renter.state != SideState::Receipt {
        outcomes.push(fault(Invariant::ReceiptsAreTrue, format!("{lease:?}: only the provider has the receipt")));
    }
    if both && facts.renter.receipt != facts.provider.receipt {
        outcomes.push(fault(Invariant::ReceiptsAreTrue, format!("{lease:?}: the sides hold two receipts")));
    }
    let voucher = |side: &Side| side.voucher.as_ref().map(|(voucher, _)| *voucher);
    let (renter, provider) = (voucher(&facts.renter), voucher(&facts.provider));
    outcomes.push(invariant::books_agree(lease, renter.as_ref(), provider.as_ref(), both));
    outcomes
}

/// The same of an attempt.
fn attempt_at_rest(
    attempt: &AttemptId,
    facts: &AttemptFacts,
    lease: Option<&LeaseFacts>,
    crooks: &BTreeSet<NodeId>,
) -> Vec<Result<(), Fault>> {
    let mut outcomes = Vec::new();
    let honest = lease.is_some_and(|lease| !crooks.contains(&lease.renter_id));
    if facts.journaled && !facts.answered && honest {
        outcomes.push(fault(Invariant::JobsEnd, format!("{attempt} was handed out and never accounted for")));
    }
    let receipt = lease.map(|lease| lease.provider.state) == Some(SideState::Receipt);
    if receipt && facts.delivered && !facts.settled {
        outcomes.push(fault(Invariant::BooksAgree, format!("{attempt} was delivered and not settled")));
    }
    outcomes
}

/// All statements about a lease.
fn once_of(lease: LeaseId) -> RangeInclusive<OnceKey> {
    // No statement is of the last kind.
    (lease, NodeIndex::MIN, 0, Vec::new())..=(lease, NodeIndex::MAX, u8::MAX, Vec::new())
}

/// All attempts of a lease.
fn attempts_of(lease: LeaseId) -> RangeInclusive<AttemptId> {
    let attempt = |task, replica, number| AttemptId { lease, task, replica, number };
    attempt(0, 0, 0)..=attempt(u32::MAX, u16::MAX, u32::MAX)
}
