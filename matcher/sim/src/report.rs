//! What came of a run.

use std::{collections::BTreeMap, fmt};

use souk_matcher::JobState;
use souk_protocol::{Credits, Hash};

use crate::{
    ledger::{Ledger, Violation},
    outcome::Outcome,
    scenario::Scenario,
    time::Micros,
};

/// A run is stopped at so many violations: the first is what matters.
pub(crate) const ENOUGH: usize = 8;

/// Figures of a run and what was violated in it.
#[derive(Debug, Clone)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// The scenario's name.
    pub scenario: String,
    /// Things that happened.
    pub events: u64,
    /// Messages that arrived.
    pub messages: u64,
    /// Records written.
    pub records: u64,
    /// Attempts that machines began.
    pub attempts: u64,
    /// Comparisons of bids or asks.
    pub auctions: u64,
    /// Awards sent.
    pub awards: u64,
    /// Those of them that were declined or not answered.
    pub refused: u64,
    /// Offers that nodes were told of.
    pub offers_heard: u64,
    /// Messages that arrived, by node.
    pub heard: Vec<u32>,
    /// Connections made, and those of them that needed a relay.
    pub connections: (u64, u64),
    /// What came of the plan, where the workload is one.
    pub outcome: Option<Outcome>,
    /// Kills of nodes.
    pub crashes: u64,
    /// Discharges signed.
    pub discharges: u64,
    /// Leases that began at the time they were promised for.
    pub reservations: u64,
    /// Attempts stopped for somebody else after they had run for a while.
    pub preemptions: u64,
    /// Jobs that were submitted.
    pub submitted: usize,
    /// Jobs by their end state, as words.
    pub jobs: BTreeMap<String, usize>,
    /// Tasks with a journaled Done.
    pub tasks_done: usize,
    /// Leases that both sides agreed on.
    pub leases: usize,
    /// Those of them that ended with a receipt of both.
    pub receipts: usize,
    /// Vouchered by all renters.
    pub spent: Credits,
    /// Virtual time until all was at rest.
    pub took: Micros,
    /// How often an invariant was asked.
    pub checks: u64,
    /// What did not hold.
    pub violations: Vec<Violation>,
    /// Of everything that was written and said, and when.
    pub digest: Hash,
}

impl Report {
    pub(crate) fn new(seed: u64, scenario: &Scenario) -> Self {
        Self {
            seed,
            scenario: scenario.name.clone(),
            events: 0,
            messages: 0,
            records: 0,
            attempts: 0,
            auctions: 0,
            awards: 0,
            connections: (0, 0),
            outcome: None,
            refused: 0,
            offers_heard: 0,
            heard: vec![0; scenario.nodes],
            crashes: 0,
            discharges: 0,
            reservations: 0,
            preemptions: 0,
            submitted: 0,
            jobs: BTreeMap::new(),
            tasks_done: 0,
            leases: 0,
            receipts: 0,
            spent: Credits(0),
            took: Micros(0),
            checks: 0,
            violations: Vec::new(),
            digest: Hash([0; 32]),
        }
    }

    pub(crate) fn finish(&mut self, now: Micros, ledger: &Ledger, digest: Hash) {
        for (_, sum) in ledger.jobs() {
            *self.jobs.entry(word(sum.state).to_owned()).or_default() += 1;
            self.tasks_done += sum.done;
        }
        (self.leases, self.receipts) = ledger.leases();
        self.spent = ledger.spent();
        self.took = now;
        self.checks = ledger.checks();
        self.violations = ledger.violations().to_vec();
        self.digest = digest;
    }

    /// Whether everything held.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

const fn word(state: Option<JobState>) -> &'static str {
    match state {
        Some(JobState::Succeeded) => "succeeded",
        Some(JobState::Failed) => "failed",
        Some(JobState::Cancelled) => "cancelled",
        Some(JobState::Expired) => "expired",
        Some(JobState::Bidding | JobState::Placing | JobState::Running | JobState::Verifying) | None => "without-end",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} seed {}: {} events, {} messages, {} crashes, {} attempts, {} tasks done, jobs {:?}, {} of {} leases with \
             receipt, {} spent, {} checks, at rest after {}",
            self.scenario,
            self.seed,
            self.events,
            self.messages,
            self.crashes,
            self.attempts,
            self.tasks_done,
            self.jobs,
            self.receipts,
            self.leases,
            self.spent,
            self.checks,
            self.took
        )?;
        for violation in &self.violations {
            writeln!(f, "  {} violated at {}: {}", violation.invariant, violation.at, violation.detail)?;
        }
        Ok(())
    }
}
