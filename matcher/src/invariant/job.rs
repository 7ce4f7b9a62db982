//! Rules for the jobs of a renter.

use souk_protocol::Credits;

use crate::{
    event::TaskState,
    job::{Attempt, Job},
    record::Verdict,
};

/// Of each task and replica at most one attempt counts, and only a done task has one.
///
/// # Errors
/// What is wrong.
pub fn one_done_per_task(job: &Job) -> Result<(), String> {
    for (index, task) in job.tasks().iter().enumerate() {
        let won = task.attempts().iter().filter(|attempt| attempt.verdict == Some(Verdict::Done)).count();
        let expected = usize::from(task.state() == TaskState::Done);
        if won != expected {
            return Err(format!("task {index} is {:?} and {won} of its attempts count", task.state()));
        }
    }
    Ok(())
}

/// What is owed and what is set aside never exceeds the budget.
///
/// # Errors
/// What is wrong.
pub fn budget_held(job: &Job) -> Result<(), String> {
    let Some(budget) = job.spec().market.budget else { return Ok(()) };
    let taken = job.cost().saturating_add(job.reserved());
    if taken > budget {
        return Err(format!("{} owed and {} set aside of a budget of {budget}", job.cost(), job.reserved()));
    }
    Ok(())
}

/// The attempts of a task are numbered from 1 without a gap, and none has the id of another.
///
/// # Errors
/// What is wrong.
pub fn attempts_numbered(job: &Job) -> Result<(), String> {
    for (index, task) in (0u32..).zip(job.tasks()) {
        for (number, attempt) in (1u32..).zip(task.attempts()) {
            if attempt.id.number != number || attempt.id.task != index || attempt.id.replica != 0 {
                return Err(format!("attempt {number} of task {index} is {}", attempt.id));
            }
        }
    }
    Ok(())
}

/// Every task of a job that goes on waits, runs or is over; every task of one that ended is over. What is set aside is
/// for attempts under way.
///
/// # Errors
/// What is wrong.
pub fn no_task_lost(job: &Job) -> Result<(), String> {
    let tasks = job.tasks();
    let count = |state: TaskState| tasks.iter().filter(|task| task.state() == state).count();
    let open = tasks.iter().flat_map(|task| task.open()).count();
    if open != usize::try_from(job.running()).unwrap_or(usize::MAX) {
        return Err(format!("{open} attempts are under way, {} are counted", job.running()));
    }
    let reserved = tasks.iter().flat_map(|task| task.open()).fold(Credits::ZERO, |sum, attempt: &Attempt| {
        sum.saturating_add(job.spec().step_cost(attempt.rate).unwrap_or(Credits::MAX))
    });
    if reserved != job.reserved() {
        return Err(format!("{} are set aside, attempts under way need {reserved}", job.reserved()));
    }
    if job.state().is_final() {
        let waiting = count(TaskState::Queued).saturating_add(count(TaskState::Running));
        return if waiting == 0 { Ok(()) } else { Err(format!("{waiting} tasks of a job that ended are not over")) };
    }
    for (index, task) in (0u32..).zip(tasks) {
        if task.state() == TaskState::Queued && !job.waits(index) {
            return Err(format!("task {index} neither waits nor runs nor is over"));
        }
    }
    Ok(())
}

/// All rules for a job.
///
/// # Errors
/// The first that does not hold.
pub fn job(job: &Job) -> Result<(), String> {
    [one_done_per_task, budget_held, attempts_numbered, no_task_lost]
        .into_iter()
        .try_for_each(|rule| rule(job).map_err(|error| format!("job {}: {error}", job.id().short())))
}
