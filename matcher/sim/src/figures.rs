//! The figures of an outcome: what a table and a report show.

use serde::{Deserialize, Serialize};
use souk_protocol::{Credits, Rate};

use crate::{
    outcome::{End, Outcome},
    plan::Plan,
    time::Micros,
};

/// Figures of one policy on one plan. Shares are in millionths, times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Jobs that succeeded, of those that were submitted and not cancelled.
    pub fill_rate: u64,
    /// Tasks that are done.
    pub tasks_done: u64,
    /// Processor time that attempts held, of what was on sale until the last job ended.
    pub utilisation: u64,
    /// The part of it whose attempt was done.
    pub useful: u64,
    /// Time from submission to the first task's start, of half of the jobs that started.
    pub wait_p50_ms: u64,
    /// Of nineteen in twenty.
    pub wait_p95_ms: u64,
    /// Jobs that never started.
    pub unstarted: u64,
    /// Mean cost of a job that succeeded.
    pub cost_per_job: Credits,
    /// Mean price of a core for an hour of useful work.
    pub cost_per_core_hour: Rate,
    /// Income of all providers.
    pub income: Credits,
    /// Providers that earned anything.
    pub earners: u64,
    /// How unequal their income is: the Gini coefficient over all providers.
    pub gini: u64,
    /// Attempts beyond the first of a task, of all attempts.
    pub repeated: u64,
    /// Attempts that were preempted.
    pub preempted: u64,
    /// Awards that were refused or not answered, of all awards.
    pub conflicts: u64,
    /// Awards sent.
    pub awards: u64,
}

impl Figures {
    /// Computes them.
    #[must_use]
    pub fn of(plan: &Plan, outcome: &Outcome) -> Self {
        let jobs = || plan.jobs.iter().zip(&outcome.jobs);
        let wanted = jobs().filter(|(_, job)| job.end != End::Cancelled).count() as u64;
        let succeeded = jobs().filter(|(_, job)| job.end == End::Succeeded);
        let (count, cost) =
            succeeded.fold((0_u64, 0_u64), |(count, cost), (_, job)| (count + 1, cost.saturating_add(job.cost.0)));
        let waits = waits(plan, outcome);
        let last = outcome.jobs.iter().filter_map(|job| job.ended).max().unwrap_or(outcome.took);
        let offered: u128 = plan.machines.iter().map(|machine| u128::from(machine.total.cpu.0)).sum::<u128>()
            * u128::from(last.to_millis().0);
        let busy: u128 = outcome.machines.iter().map(|machine| u128::from(machine.busy)).sum();
        let useful: u128 = outcome.machines.iter().map(|machine| u128::from(machine.useful)).sum();
        let mut incomes: Vec<u64> = outcome.machines.iter().map(|machine| machine.income.0).collect();
        incomes.sort_unstable();
        let income: u128 = incomes.iter().map(|income| u128::from(*income)).sum();
        let attempts: u64 = outcome.jobs.iter().map(|job| u64::from(job.attempts)).sum();
        let tasks_done: u64 = outcome.jobs.iter().map(|job| u64::from(job.done)).sum();
        Self {
            fill_rate: share(u128::from(count), u128::from(wanted)),
            tasks_done,
            utilisation: share(busy, offered),
            useful: share(useful, offered),
            wait_p50_ms: quantile(&waits, 500),
            wait_p95_ms: quantile(&waits, 950),
            unstarted: jobs().filter(|(_, job)| job.started.is_none()).count() as u64,
            cost_per_job: Credits(cost.checked_div(count).unwrap_or(0)),
            cost_per_core_hour: Rate(narrow((income * CORE_HOUR).checked_div(useful).unwrap_or(0))),
            income: Credits(narrow(income)),
            earners: incomes.iter().filter(|income| **income > 0).count() as u64,
            gini: gini(&incomes),
            repeated: share(u128::from(attempts.saturating_sub(tasks_done)), u128::from(attempts)),
            preempted: outcome.jobs.iter().map(|job| u64::from(job.preempted)).sum(),
            conflicts: share(u128::from(outcome.refused), u128::from(outcome.awards)),
            awards: outcome.awards,
        }
    }
}

/// A core for an hour, in thousandths of a core times milliseconds.
const CORE_HOUR: u128 = 1_000 * 3_600_000;

/// Times from submission to the first start, in milliseconds, sorted.
#[must_use]
pub fn waits(plan: &Plan, outcome: &Outcome) -> Vec<u64> {
    let jobs = plan.jobs.iter().zip(&outcome.jobs);
    let wait = |started: Micros, at: Micros| started.since(at).to_millis().0;
    let mut waits: Vec<u64> =
        jobs.filter_map(|(planned, job)| job.started.map(|started| wait(started, planned.at))).collect();
    waits.sort_unstable();
    waits
}

/// The smallest of sorted values that so many thousandths of them do not exceed; zero of none.
#[must_use]
pub fn quantile(sorted: &[u64], thousandths: usize) -> u64 {
    let rank = (sorted.len() * thousandths).div_ceil(1_000).saturating_sub(1);
    sorted.get(rank.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0)
}

/// A part of a whole, in millionths; zero of nothing.
pub(crate) fn share(part: u128, whole: u128) -> u64 {
    narrow((part * 1_000_000).checked_div(whole).unwrap_or(0))
}

/// As much of a value as fits.
pub(crate) fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// The Gini coefficient of sorted values, in millionths.
fn gini(sorted: &[u64]) -> u64 {
    let count = sorted.len() as u128;
    let sum: u128 = sorted.iter().map(|value| u128::from(*value)).sum();
    let weighted: u128 = (1_u128..).zip(sorted).map(|(rank, value)| rank * u128::from(*value)).sum();
    let above = (2 * weighted).saturating_sub((count + 1) * sum);
    narrow((above * 1_000_000).checked_div(count * sum).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_occurred() {
        let waits: Vec<u64> = (1..=20).collect();
        assert_eq!((quantile(&waits, 500), quantile(&waits, 950), quantile(&waits, 1_000)), (10, 19, 20));
        assert_eq!((quantile(&[7], 500), quantile(&[], 950)), (7, 0));
    }

    #[test]
    fn equal_incomes_have_a_gini_of_nothing_and_one_earner_of_nearly_one() {
        assert_eq!(gini(&[5, 5, 5, 5]), 0);
        assert_eq!(gini(&[0, 0, 0, 8]), 750_000);
        assert_eq!(gini(&[]), 0);
        assert_eq!(gini(&[0, 0]), 0);
    }
}
