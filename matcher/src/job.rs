//! A job: its tasks, their attempts, its budget, and when it ends. A fold of the renter's records.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use souk_protocol::{
    AttemptEnd, AttemptId, Credits, JobId, JobSpec, LeaseId, Millis, NodeId, Rate, RetryOn, RunState, TaskResult,
    Timestamp,
};

use crate::{
    event::{AuctionReport, JobState, Reason, TaskState},
    record::Verdict,
};

mod pace;
mod task;

pub use task::{Attempt, AttemptState, Task};

/// Auction reports kept for people.
const MAX_REPORTS: usize = 16;
/// Kinds of lease ends and refusals told to people.
const MAX_NOTES: usize = 16;
/// A job of this node.
#[derive(Debug, Clone)]
pub struct Job {
    id: JobId,
    spec: Arc<JobSpec>,
    submitted: Timestamp,
    pub(crate) state: JobState,
    because: Vec<Reason>,
    ended: Option<Timestamp>,
    tasks: Vec<Task>,
    queue: BTreeSet<u32>,
    /// Tasks that are out with an award that was not answered yet. Not durable: after a restart they wait again.
    promised: BTreeSet<u32>,
    open: u32,
    collecting: u32,
    done: u32,
    failed: u32,
    reserved: Credits,
    spent: Credits,
    started: bool,
    pace: pace::Pace,
    leases: Vec<LeaseId>,
    reports: Vec<AuctionReport>,
    /// What happened to its leases.
    notes: Vec<Reason>,
    /// What stood in the way when slots were last sought.
    pub(crate) hints: Vec<Reason>,
}

/// A record does not fit the job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misfit(pub String);

/// How an attempt ended, as a record has it.
#[derive(Debug, Clone)]
pub(crate) struct Closing {
    pub(crate) end: AttemptEnd,
    /// `None` if it gave no result.
    pub(crate) verdict: Option<Verdict>,
    pub(crate) run: Millis,
    pub(crate) reason: String,
    pub(crate) at: Timestamp,
    pub(crate) result: Option<Arc<TaskResult>>,
}

impl Job {
    pub(crate) fn new(id: JobId, spec: Arc<JobSpec>, submitted: Timestamp) -> Self {
        let count = spec.task_count();
        Self {
            id,
            submitted,
            state: JobState::Bidding,
            because: Vec::new(),
            ended: None,
            tasks: spec.array.tasks.iter().map(|_| Task::default()).collect(),
            queue: (0..count).collect(),
            promised: BTreeSet::new(),
            open: 0,
            collecting: 0,
            done: 0,
            failed: 0,
            reserved: Credits::ZERO,
            spent: Credits::ZERO,
            started: false,
            pace: pace::Pace::default(),
            leases: Vec::new(),
            reports: Vec::new(),
            notes: Vec::new(),
            hints: Vec::new(),
            spec,
        }
    }

    /// Its id.
    #[must_use]
    pub const fn id(&self) -> JobId {
        self.id
    }

    /// What it is.
    #[must_use]
    pub const fn spec(&self) -> &Arc<JobSpec> {
        &self.spec
    }

    /// When it was submitted.
    #[must_use]
    pub const fn submitted(&self) -> Timestamp {
        self.submitted
    }

    /// When it ended.
    #[must_use]
    pub const fn ended(&self) -> Option<Timestamp> {
        self.ended
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> JobState {
        self.state
    }

    /// Its tasks, by index.
    #[must_use]
    pub fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// Tasks done.
    #[must_use]
    pub const fn done(&self) -> u32 {
        self.done
    }

    /// Tasks failed.
    #[must_use]
    pub const fn failed(&self) -> u32 {
        self.failed
    }

    /// Owed so far, by vouchers.
    #[must_use]
    pub const fn cost(&self) -> Credits {
        self.spent
    }

    /// What attempts under way may still cost.
    #[must_use]
    pub const fn reserved(&self) -> Credits {
        self.reserved
    }

    /// The leases that served it, in the order they were made.
    #[must_use]
    pub fn leases(&self) -> &[LeaseId] {
        &self.leases
    }

    /// How its auctions went; the newest few.
    #[must_use]
    pub fn reports(&self) -> &[AuctionReport] {
        &self.reports
    }

    /// Why it is as it is: why it ended, how attempts failed, what stood in the way when slots were last sought.
    #[must_use]
    pub fn why(&self) -> Vec<Reason> {
        let mut reasons = self.because.clone();
        let mut ends: BTreeMap<AttemptEnd, (u64, &str)> = BTreeMap::new();
        for attempt in self.tasks.iter().flat_map(|task| &task.attempts) {
            if let AttemptState::Ended(end) = attempt.state
                && attempt.verdict != Some(Verdict::Done)
            {
                let entry = ends.entry(end).or_default();
                *entry = (entry.0.saturating_add(1), &attempt.reason);
            }
        }
        for (end, (count, last)) in ends {
            let nearest = (!last.is_empty()).then(|| last.to_owned());
            reasons.push(Reason {
                code: end.word().to_owned(),
                text: format!("attempts that ended {end}"),
                count,
                nearest,
            });
        }
        reasons.extend(self.notes.iter().cloned());
        if !self.state.is_final() {
            reasons.extend(self.hints.iter().cloned());
        }
        reasons
    }

    /// Why it ended, in short: the first reason.
    #[must_use]
    pub fn because(&self) -> &[Reason] {
        &self.because
    }

    /// Tasks that wait for a slot.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.queue.len().saturating_add(self.promised.len())
    }

    /// Attempts under way.
    #[must_use]
    pub const fn running(&self) -> u32 {
        self.open
    }

    /// Whether an attempt was ever handed out.
    #[must_use]
    pub const fn has_started(&self) -> bool {
        self.started
    }

    pub(crate) fn find(&self, attempt: &AttemptId) -> Option<&Attempt> {
        self.task(attempt.task).and_then(|task| task.find(attempt))
    }

    pub(crate) fn task(&self, index: u32) -> Option<&Task> {
        usize::try_from(index).ok().and_then(|index| self.tasks.get(index))
    }

    fn task_mut(&mut self, index: u32) -> Option<&mut Task> {
        usize::try_from(index).ok().and_then(|index| self.tasks.get_mut(index))
    }

    /// What is left of the budget for attempts not yet handed out; `None` without a budget. `promised` is what is out
    /// under awards that were not answered.
    pub(crate) fn budget_left(&self, promised: Credits) -> Option<Credits> {
        let taken = self.spent.saturating_add(self.reserved).saturating_add(promised);
        self.spec.market.budget.map(|budget| budget.saturating_sub(taken))
    }

    /// The longest one attempt can be charged for at `rate`.
    pub(crate) fn step(&self, rate: Rate) -> Credits {
        self.spec.step_cost(rate).unwrap_or(Credits::MAX)
    }

    pub(crate) fn is_queued(&self, task: u32) -> bool {
        self.queue.contains(&task)
    }

    /// Tasks that wait for a slot and are not out with an award.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether a task waits for a slot, or is out with an award that was not answered.
    pub(crate) fn waits(&self, task: u32) -> bool {
        self.queue.contains(&task) || self.promised.contains(&task)
    }

    /// Notes what happened to a lease, for people. The same again is counted.
    pub(crate) fn hint(&mut self, note: Reason) {
        if let Some(known) = self.notes.iter_mut().find(|known| known.text == note.text) {
            known.count = known.count.saturating_add(note.count);
            known.nearest = note.nearest;
        } else if self.notes.len() < MAX_NOTES {
            self.notes.push(note);
        }
    }

    pub(crate) fn first_queued(&self) -> Option<u32> {
        self.queue.first().copied()
    }

    /// The queued tasks.
    pub(crate) fn queue(&self) -> impl Iterator<Item = u32> + '_ {
        self.queue.iter().copied()
    }

    /// The id of the next attempt at a task.
    pub(crate) fn next_attempt(&self, lease: LeaseId, task: u32) -> AttemptId {
        let number = self.task(task).map_or(1, Task::next_number);
        AttemptId { lease, task, replica: 0, number }
    }

    /// Takes a task out of the queue, for an award that is not answered yet.
    pub(crate) fn promise(&mut self, task: u32) {
        self.queue.remove(&task);
        self.promised.insert(task);
    }

    /// The award of a promised task was answered or is void.
    pub(crate) fn unpromise(&mut self, task: u32) {
        self.promised.remove(&task);
    }

    /// Puts a task back into the queue, unless it is over or no attempt is left for it. Whether it waits now.
    pub(crate) fn requeue(&mut self, task: u32) -> bool {
        let spec = Arc::clone(&self.spec);
        let may = !self.state.is_final() && self.task(task).is_some_and(|task| !task.is_final() && task.may_try(&spec));
        if may && !self.promised.contains(&task) {
            self.queue.insert(task);
        }
        may
    }

    /// A second attempt at a task whose provider is silent.
    pub(crate) fn doubt(&mut self, task: u32) -> bool {
        let retries = self.spec.retry.on.contains(&RetryOn::Lost);
        retries && !self.queue.contains(&task) && !self.promised.contains(&task) && self.requeue(task)
    }

    /// How long after it was handed out a task gets a second attempt: only once every task is handed out and few are
    /// left, so that nobody waits for it, and while more may run at once.
    pub(crate) fn straggles_after(&self) -> Option<Millis> {
        let all = self.spec.task_count();
        let left = all.saturating_sub(self.done).saturating_sub(self.failed);
        let few = left <= (all / 10).max(1) && left > 0;
        let waits = !self.queue.is_empty() || !self.promised.is_empty();
        let room = self.open < self.spec.array.max_parallel.max(1);
        if self.state.is_final() || waits || !few || !room || !self.spec.retry.on.contains(&RetryOn::Lost) {
            return None;
        }
        self.pace.limit()
    }

    /// Whether a task under way may get a second attempt beside the first.
    pub(crate) fn may_double(&self, index: u32) -> bool {
        self.task(index).is_some_and(|task| !task.is_final() && task.open().count() == 1 && task.may_try(&self.spec))
    }

    /// The provider is heard again: no second attempt is needed.
    pub(crate) fn trust_again(&mut self, task: u32) {
        self.queue.remove(&task);
    }

    pub(crate) fn add_lease(&mut self, lease: LeaseId) {
        self.leases.push(lease);
    }

    pub(crate) fn report(&mut self, report: AuctionReport) {
        if self.reports.len() >= MAX_REPORTS {
            self.reports.remove(0);
        }
        self.reports.push(report);
    }

    pub(crate) fn progress(&mut self, attempt: &AttemptId, state: RunState, at: Timestamp) {
        if let Some(attempt) = self.task_mut(attempt.task).and_then(|task| task.find_mut(attempt))
            && matches!(attempt.state, AttemptState::Fetching | AttemptState::Running)
        {
            match state {
                RunState::Fetching => {}
                RunState::Running => {
                    attempt.state = AttemptState::Running;
                    attempt.started.get_or_insert(at);
                }
            }
        }
    }

    pub(crate) fn collecting(&mut self, id: &AttemptId, end: AttemptEnd) {
        if let Some(attempt) = self.task_mut(id.task).and_then(|task| task.find_mut(id))
            && matches!(attempt.state, AttemptState::Fetching | AttemptState::Running)
        {
            attempt.state = AttemptState::Collecting(end);
            self.collecting = self.collecting.saturating_add(1);
        }
    }

    /// Whether every attempt under way has given its result, and none is to come.
    pub(crate) fn is_verifying(&self) -> bool {
        self.queue.is_empty() && self.promised.is_empty() && self.open > 0 && self.open == self.collecting
    }

    /// An attempt was handed out.
    pub(crate) fn open_attempt(
        &mut self,
        id: AttemptId,
        provider: NodeId,
        rate: Rate,
        handed: Timestamp,
    ) -> Result<(), Misfit> {
        let step = self.step(rate);
        let misfit = |what: &str| Misfit(format!("attempt {id}: {what}"));
        let task = self.task_mut(id.task).ok_or_else(|| misfit("the job has no such task"))?;
        if id.number != task.next_number() || id.replica != 0 {
            return Err(misfit("not the next number of its task"));
        }
        task.attempts.push(Attempt {
            id,
            provider,
            rate,
            state: AttemptState::Fetching,
            handed,
            exit_code: None,
            started: None,
            ended: None,
            reason: String::new(),
            billed: None,
            verdict: None,
            result: None,
        });
        self.queue.remove(&id.task);
        self.open = self.open.saturating_add(1);
        self.started = true;
        self.reserved = self.reserved.saturating_add(step);
        Ok(())
    }

    /// An attempt has ended. Whether its task's state changed.
    pub(crate) fn close_attempt(&mut self, id: &AttemptId, closing: Closing) -> Result<bool, Misfit> {
        let spec = Arc::clone(&self.spec);
        let over = self.state.is_final();
        let missing = || Misfit(format!("attempt {id} was not handed out"));
        let task = self.task_mut(id.task).ok_or_else(missing)?;
        let before = task.state();
        let was_final = task.is_final();
        let attempt = task.find_mut(id).ok_or_else(missing)?;
        let was_open = attempt.is_open();
        let was_collecting = matches!(attempt.state, AttemptState::Collecting(_));
        let wins = closing.verdict == Some(Verdict::Done);
        if wins && was_final {
            return Err(Misfit(format!("task {} is over, attempt {id} cannot be its result", id.task)));
        }
        if !was_open && !wins {
            return Ok(false); // given up before, and nothing comes of its late result
        }
        let rate = attempt.rate;
        attempt.state = AttemptState::Ended(closing.end);
        attempt.verdict = closing.verdict;
        attempt.ended = Some(closing.at);
        attempt.reason = closing.reason;
        if let Some(result) = closing.result {
            attempt.exit_code = result.exit_code;
            attempt.ended = Some(result.ended);
            if result.run > Millis::ZERO || result.end.is_billed() {
                attempt.started = Some(result.started);
            }
            attempt.result = Some(result);
        }
        if matches!(closing.verdict, Some(Verdict::Done | Verdict::Billed)) {
            attempt.billed = Some(closing.run);
        }
        let another = task.open().next().is_some();
        let again = !another && task.may_try(&spec) && retries(&spec, closing.end, closing.verdict);
        if wins {
            task.outcome = Some(TaskState::Done);
        } else if !was_final && !another && !again {
            // A second attempt may be waiting for a slot; without room for one more it is no attempt at all.
            task.outcome = Some(TaskState::Failed);
        }
        let after = task.state();
        if was_collecting {
            self.collecting = self.collecting.saturating_sub(1);
        }
        if was_open {
            self.open = self.open.saturating_sub(1);
            self.reserved = self.reserved.saturating_sub(self.step(rate));
        }
        match (was_final, after) {
            (false, TaskState::Done) => {
                self.done = self.done.saturating_add(1);
                self.pace.note(closing.run);
                self.queue.remove(&id.task);
            }
            (false, TaskState::Failed) => {
                self.failed = self.failed.saturating_add(1);
                self.queue.remove(&id.task);
            }
            (false, _) if again && !over && !self.promised.contains(&id.task) => {
                self.queue.insert(id.task);
            }
            _ => {}
        }
        Ok(before != after)
    }

    /// More is owed.
    pub(crate) fn owe(&mut self, more: Credits) {
        self.spent = self.spent.saturating_add(more);
    }

    /// Whether it is over by its own rules, and how.
    pub(crate) fn outcome(&self) -> Option<(JobState, Vec<Reason>)> {
        if self.state.is_final() {
            return None;
        }
        if self.failed > self.spec.array.max_failures {
            return Some((JobState::Failed, vec![self.failure()]));
        }
        let over = self.done.saturating_add(self.failed);
        (over >= self.spec.task_count()).then(|| {
            let because = if self.failed > 0 { vec![self.failure()] } else { Vec::new() };
            // Without a limit every task is tried; that is no promise that a failure is fine.
            let tolerated = self.failed == 0 || self.spec.array.max_failures != u32::MAX;
            (if tolerated { JobState::Succeeded } else { JobState::Failed }, because)
        })
    }

    fn failure(&self) -> Reason {
        let mut failed = (0u32..).zip(&self.tasks).filter(|(_, task)| task.outcome == Some(TaskState::Failed));
        let first = failed.next().and_then(|(index, task)| task.attempts.last().map(|attempt| (index, attempt)));
        let (code, nearest) = match first {
            Some((index, attempt)) => {
                let end = match attempt.state {
                    AttemptState::Ended(end) => end,
                    _ => AttemptEnd::Failed,
                };
                let exit = attempt.exit_code.map_or_else(String::new, |code| format!(" with exit code {code}"));
                let reason = if attempt.reason.is_empty() { String::new() } else { format!(": {}", attempt.reason) };
                (end.word().to_owned(), Some(format!("task {index} ended {end}{exit}{reason}")))
            }
            None => ("failed".to_owned(), None),
        };
        let text = match self.spec.array.max_failures {
            0 | u32::MAX => "tasks failed".to_owned(),
            most => format!("tasks failed (at most {most} may)"),
        };
        Reason { code, text, count: u64::from(self.failed), nearest }
    }

    /// It is over.
    pub(crate) fn end(&mut self, state: JobState, because: Vec<Reason>, at: Timestamp) {
        self.state = state;
        self.because = because;
        self.ended = Some(at);
        self.queue.clear();
        self.promised.clear();
        for task in &mut self.tasks {
            task.outcome.get_or_insert(TaskState::Cancelled);
        }
    }
}

/// Whether the spec wants another attempt after such an end.
fn retries(spec: &JobSpec, end: AttemptEnd, verdict: Option<Verdict>) -> bool {
    let on = match end {
        AttemptEnd::Failed => RetryOn::Failed,
        AttemptEnd::TimedOut => RetryOn::TimedOut,
        AttemptEnd::OutOfMemory => RetryOn::OutOfMemory,
        AttemptEnd::Preempted => RetryOn::Preempted,
        AttemptEnd::ProviderFault => RetryOn::ProviderFault,
        // Outputs that cannot be had are lost, and so is what was stopped while the job goes on.
        AttemptEnd::Lost | AttemptEnd::Cancelled | AttemptEnd::Done => RetryOn::Lost,
        // The next provider would fail on the same input.
        AttemptEnd::InputFailed => return false,
    };
    // A billed end that does not count was not the task's: its outputs could not be had.
    let on = if end.is_billed() && verdict == Some(Verdict::Unbilled) { RetryOn::Lost } else { on };
    spec.retry.on.contains(&on)
}

#[cfg(test)]
mod tests;
