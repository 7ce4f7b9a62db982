//! Counts what comes of a plan while the market runs.

use std::collections::BTreeMap;

use souk_matcher::JobState;
use souk_protocol::{AttemptEnd, Millis, NodeId};

use crate::{
    executor::Ended,
    ledger::{JobSum, LeaseSum},
    network::NodeIndex,
    outcome::{End, JobOutcome, LeaseOutcome, MachineOutcome, Moment, Outcome},
    scenario::{Scenario, Workload},
    time::Micros,
    workload,
    world::World,
};

/// Moments kept of a run, if it takes its whole time.
const MOMENTS: u64 = 600;

/// What came of a plan so far.
#[derive(Debug)]
pub(crate) struct Tally {
    outcome: Outcome,
    first_machine: NodeIndex,
    step: Micros,
    next: Micros,
    /// Of all machines that are there.
    offered: u64,
    /// By machine that is not there: for how many reasons, its owner and its absence.
    gone: BTreeMap<NodeIndex, u32>,
    /// Of all attempts that run.
    busy: u64,
    running: u64,
}

impl Tally {
    /// Of a plan. Nothing where there is none.
    pub(crate) fn new(scenario: &Scenario) -> Option<Self> {
        let Workload::Plan(plan) = &scenario.workload else { return None };
        let outcome = Outcome {
            policy: "souk".to_owned(),
            jobs: vec![JobOutcome::default(); plan.jobs.len()],
            machines: vec![MachineOutcome::default(); plan.machines.len()],
            ..Outcome::default()
        };
        let step = Micros(scenario.duration.0 / MOMENTS).max(Micros::millis(500));
        let first_machine = scenario.nodes.saturating_sub(plan.machines.len());
        Some(Self {
            outcome,
            first_machine,
            step,
            next: Micros(0),
            offered: 0,
            gone: BTreeMap::new(),
            busy: 0,
            running: 0,
        })
    }

    /// A machine is there, or one reason more that it is not.
    fn machine(&mut self, node: NodeIndex, cores: u64, is_there: bool) {
        let reasons = self.gone.entry(node).or_default();
        let before = *reasons;
        *reasons = if is_there { before.saturating_sub(1) } else { before + 1 };
        match (before, *reasons) {
            (0, 1) => self.offered = self.offered.saturating_sub(cores),
            (0 | 1, 0) => self.offered += cores,
            _ => {}
        }
    }

    fn begins(&mut self, number: Option<usize>, at: Micros, cores: u64) {
        self.busy += cores;
        self.running += 1;
        if let Some(job) = number.and_then(|number| self.outcome.jobs.get_mut(number)) {
            job.started.get_or_insert(at);
        }
    }

    fn stops(&mut self, tasks: u64, cores: u64) {
        self.busy = self.busy.saturating_sub(cores);
        self.running = self.running.saturating_sub(tasks);
    }

    fn used(&mut self, node: NodeIndex, cores: u64, run: Millis, is_useful: bool) {
        let machine = node.checked_sub(self.first_machine).and_then(|machine| self.outcome.machines.get_mut(machine));
        if let Some(machine) = machine {
            let used = cores.saturating_mul(run.0);
            machine.busy = machine.busy.saturating_add(used);
            machine.useful = machine.useful.saturating_add(if is_useful { used } else { 0 });
        }
    }
}

impl World<'_> {
    /// A node starts or goes.
    pub(crate) fn tally_node(&mut self, node: NodeIndex, is_there: bool) {
        let cores = workload::machine(self.scenario, node).map_or(0, |machine| machine.total.cpu.0);
        if let Some(tally) = &mut self.tally {
            tally.machine(node, cores, is_there);
        }
    }

    /// Attempts that ran on a node are gone with it: each with its cores and its run.
    pub(crate) fn tally_lost(&mut self, node: NodeIndex, lost: &[(u64, Millis)]) {
        if let Some(tally) = &mut self.tally {
            for (cores, run) in lost {
                tally.stops(1, *cores);
                tally.used(node, *cores, *run, false);
            }
        }
    }

    /// An attempt of a job is handed to a machine.
    pub(crate) fn tally_attempt(&mut self, number: Option<usize>) {
        let jobs = self.tally.as_mut().map(|tally| &mut tally.outcome.jobs);
        if let Some(job) = jobs.zip(number).and_then(|(jobs, number)| jobs.get_mut(number)) {
            job.attempts = job.attempts.saturating_add(1);
        }
    }

    /// An attempt of a job begins to run.
    pub(crate) fn tally_begins(&mut self, number: Option<usize>, cores: u64) {
        let now = self.now;
        if let Some(tally) = &mut self.tally {
            tally.begins(number, now, cores);
        }
    }

    /// An attempt is over.
    pub(crate) fn tally_ends(&mut self, node: NodeIndex, number: Option<usize>, ended: &Ended) {
        let Some(tally) = &mut self.tally else { return };
        let end = ended.outcome.end;
        if ended.has_started {
            tally.stops(1, ended.cores);
            tally.used(node, ended.cores, ended.outcome.run, end == AttemptEnd::Done);
        }
        if end == AttemptEnd::Preempted
            && let Some(job) = number.and_then(|number| tally.outcome.jobs.get_mut(number))
        {
            job.preempted = job.preempted.saturating_add(1);
        }
    }

    /// Takes down the moment, if it is time.
    pub(crate) fn tally_moment(&mut self) {
        let at = self.now;
        let Some(tally) = &mut self.tally else { return };
        if at < tally.next {
            return;
        }
        tally.next = at + tally.step;
        let waiting = self.ledger.unfinished().saturating_sub(tally.running);
        let (offered, busy, running) = (tally.offered, tally.busy, tally.running);
        tally.outcome.timeline.push(Moment { at, offered, busy, running, waiting });
    }

    /// What came of the plan.
    pub(crate) fn outcome(&mut self) -> Option<Outcome> {
        let mut tally = self.tally.take()?;
        let sums: Vec<(usize, JobSum)> =
            self.ledger.jobs().filter_map(|(job, sum)| self.numbers.get(job).map(|number| (*number, sum))).collect();
        for (number, sum) in sums {
            if let Some(job) = tally.outcome.jobs.get_mut(number) {
                job.end = end(sum.state);
                job.ended = sum.state.map(|_| sum.at);
                job.done = u32::try_from(sum.done).unwrap_or(u32::MAX);
                job.cost = sum.spent;
            }
        }
        let number_of = |provider: &NodeId| self.index(provider).and_then(|node| node.checked_sub(tally.first_machine));
        for ((_, provider), (_, earned)) in self.ledger.vouchered() {
            if let Some(machine) = number_of(&provider).and_then(|machine| tally.outcome.machines.get_mut(machine)) {
                machine.income = machine.income.saturating_add(earned);
            }
        }
        let lease = |lease: LeaseSum| {
            Some(LeaseOutcome {
                job: *self.numbers.get(&lease.job)?,
                machine: number_of(&lease.provider)?,
                rate: lease.rate,
                billed: u32::try_from(lease.billed).unwrap_or(u32::MAX),
                run: lease.run,
                paid: lease.spent,
                receipt: lease.has_both,
            })
        };
        tally.outcome.leases = self.ledger.lease_sums().filter_map(lease).collect();
        tally.outcome.messages = self.report.messages;
        tally.outcome.awards = self.report.awards;
        tally.outcome.refused = self.report.refused;
        tally.outcome.took = self.now;
        Some(tally.outcome)
    }
}

const fn end(state: Option<JobState>) -> End {
    match state {
        Some(JobState::Succeeded) => End::Succeeded,
        Some(JobState::Failed) => End::Failed,
        Some(JobState::Cancelled) => End::Cancelled,
        Some(JobState::Expired) => End::Expired,
        Some(JobState::Bidding | JobState::Placing | JobState::Running | JobState::Verifying) | None => End::Open,
    }
}
