//! What an onlooker notes of a run to measure it: who ran where and from when to when, what was paid, what was declined.

use std::collections::{BTreeMap, BTreeSet};

use souk_matcher::{JobState, Record};
use souk_protocol::{AttemptEnd, Hash, JobId, LeaseId, Message, Millis, NodeId, Rate};

use crate::{network::NodeIndex, time::Micros};

/// Notes of a run.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// Everything that ran, in the order of its end.
    pub(crate) ran: Vec<Ran>,
    /// When jobs succeeded.
    pub(crate) succeeded: BTreeMap<JobId, Micros>,
    /// Awards that were declined.
    pub(crate) declined: u64,
    /// Messages sent.
    pub(crate) messages: u64,
    leases: BTreeMap<LeaseId, Leased>,
    awards: BTreeSet<Hash>,
}

/// An attempt that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) job: JobId,
    pub(crate) node: NodeIndex,
    pub(crate) from: Micros,
    pub(crate) to: Micros,
    pub(crate) end: AttemptEnd,
}

#[derive(Debug)]
struct Leased {
    job: JobId,
    rate: Rate,
    billed: Millis,
}

impl Facts {
    /// An attempt of a job is over, having run so long until `now`.
    pub(crate) fn ran(&mut self, now: Micros, node: NodeIndex, job: JobId, run: Millis, end: AttemptEnd) {
        let from = now.since(Micros::from(run));
        self.ran.push(Ran { job, node, from, to: now, end });
    }

    /// Something is said.
    pub(crate) fn said(&mut self, message: &Message) {
        self.messages += 1;
        match message {
            Message::Award { award, .. } => {
                self.awards.insert(award.hash());
            }
            Message::Decline(decline) => self.declined += u64::from(self.awards.remove(&decline.subject)),
            _ => {}
        }
    }

    /// A record of a node is durable.
    pub(crate) fn durable(&mut self, now: Micros, me: &NodeId, record: &Record) {
        match record {
            Record::Lease { award, .. } => {
                if let Ok(award) = award.peek()
                    && award.renter == *me
                {
                    let leased = Leased { job: award.job, rate: award.rate, billed: Millis(0) };
                    self.leases.insert(award.lease, leased);
                }
            }
            Record::Result { result, run, voucher: Some(_), .. } => {
                let lease = result.peek().map(|result| result.attempt.lease);
                if let Some(leased) = lease.ok().and_then(|lease| self.leases.get_mut(&lease)) {
                    leased.billed.0 += run.0;
                }
            }
            Record::JobEnded { job, state: JobState::Succeeded, .. } => {
                self.succeeded.insert(*job, now);
            }
            _ => {}
        }
    }

    /// What each job cost, in micro-credits.
    pub(crate) fn costs(&self) -> BTreeMap<JobId, u64> {
        let mut costs = BTreeMap::new();
        for leased in self.leases.values() {
            let charge = leased.rate.charge(leased.billed).unwrap_or_default();
            *costs.entry(leased.job).or_default() += charge.0;
        }
        costs
    }
}
