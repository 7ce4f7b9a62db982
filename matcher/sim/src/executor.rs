//! A provider's machine: what is leased, what runs, and how it ends. It believes nothing that the rules tell it about
//! capacity, it counts for itself.

use std::collections::BTreeMap;

use souk_matcher::{LeaseView, Outcome};
use souk_protocol::{
    AttemptEnd, AttemptId, Bytes, Capacity, Hash, JobId, LeaseId, LogEnd, Millis, NodeId, Text, Timestamp, Work,
};

use crate::{
    invariant::{self, Fault},
    time::Micros,
    workload::Fate,
};

/// Leases that are open and attempts that are under way on one machine. Empty after each restart.
#[derive(Debug, Default)]
pub(crate) struct Executor {
    leases: BTreeMap<LeaseId, LeaseView>,
    running: BTreeMap<AttemptId, Running>,
}

#[derive(Debug)]
struct Running {
    renter: NodeId,
    work: Work,
    fate: Fate,
    started: Option<Micros>,
    turn: u32,
    stopped: Option<AttemptEnd>,
}

/// Something will happen to an attempt then, unless its turn has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Due {
    /// When.
    pub(crate) at: Micros,
    /// Which turn.
    pub(crate) turn: u32,
}

/// An attempt that is over.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    /// What the executor tells of it.
    pub(crate) outcome: Outcome,
    /// Of which job it was.
    pub(crate) job: JobId,
    /// Whether there are outputs or logs to collect.
    pub(crate) has_outputs: bool,
    /// Thousandths of cores that it held.
    pub(crate) cores: u64,
    /// Whether its program had started.
    pub(crate) has_started: bool,
}

impl Executor {
    /// Slots are set aside for a lease.
    ///
    /// # Errors
    /// If the machine is oversold.
    pub(crate) fn open(&mut self, lease: LeaseView, machine: &Capacity) -> Result<(), Fault> {
        self.leases.insert(lease.lease, lease);
        invariant::nothing_oversold(machine, self.leases.values())
    }

    /// The slots of a lease are free again.
    ///
    /// # Errors
    /// If something still runs on it.
    pub(crate) fn close(&mut self, lease: &LeaseId) -> Result<(), Fault> {
        self.leases.remove(lease);
        invariant::nothing_runs_on(lease, self.running.keys())
    }

    /// Begins to fetch what an attempt needs.
    ///
    /// # Errors
    /// If its lease is not open or has no free slot.
    pub(crate) fn run(&mut self, now: Micros, renter: NodeId, work: Work, fate: Fate) -> Result<Due, Fault> {
        let attempt = work.attempt;
        let at = now + fate.fetch;
        self.running.insert(attempt, Running { renter, work, fate, started: None, turn: 0, stopped: None });
        let busy = self.running.keys().filter(|other| other.lease == attempt.lease).count();
        invariant::slots_respected(&attempt, busy, self.leases.get(&attempt.lease))?;
        Ok(Due { at, turn: 0 })
    }

    /// Whether this attempt still waits for its inputs in this turn, and from whom.
    #[must_use]
    pub(crate) fn fetches(&self, attempt: &AttemptId, turn: u32) -> Option<NodeId> {
        let running = self.running.get(attempt)?;
        (running.turn == turn && running.started.is_none()).then_some(running.renter)
    }

    /// The inputs are there: the program starts. Answers when it will end.
    pub(crate) fn start(&mut self, now: Micros, attempt: &AttemptId) -> Option<Due> {
        let running = self.running.get_mut(attempt)?;
        running.started = Some(now);
        running.turn += 1;
        let limit = Micros::from(running.work.limits.timeout);
        let run = match running.fate.end {
            AttemptEnd::InputFailed => Micros(0),
            AttemptEnd::TimedOut => limit,
            _ => running.fate.run.min(limit),
        };
        Some(Due { at: now + run, turn: running.turn })
    }

    /// The inputs are not to be had.
    pub(crate) fn input_failed(&mut self, attempt: &AttemptId) {
        if let Some(running) = self.running.get_mut(attempt) {
            running.fate.end = AttemptEnd::InputFailed;
        }
    }

    /// Somebody wants it stopped. Answers when it will have, unless it is over or stops already.
    pub(crate) fn stop(&mut self, attempt: &AttemptId, end: AttemptEnd, at: Micros) -> Option<Due> {
        let running = self.running.get_mut(attempt)?;
        if running.stopped.is_some() {
            return None;
        }
        running.stopped = Some(end);
        running.turn += 1;
        Some(Due { at, turn: running.turn })
    }

    /// An attempt is over, if this turn still counts. `wall` is the provider's clock.
    pub(crate) fn finish(&mut self, now: Micros, wall: Timestamp, attempt: &AttemptId, turn: u32) -> Option<Ended> {
        if self.running.get(attempt)?.turn != turn {
            return None;
        }
        let cores = self.cores(&attempt.lease);
        let running = self.running.remove(attempt)?;
        let limit = running.work.limits.timeout;
        let end = running.stopped.unwrap_or(running.fate.end);
        let run = running.ran(now);
        let is_whole = running.stopped.is_none() && matches!(end, AttemptEnd::Done | AttemptEnd::Failed);
        let has_outputs = is_whole && running.fate.leaves_outputs;
        let log = if has_outputs { log_of(attempt) } else { LogEnd::empty() };
        let outcome = Outcome {
            end,
            exit_code: match end {
                AttemptEnd::Done => Some(0),
                AttemptEnd::Failed => Some(1),
                _ => None,
            },
            reason: Text::clipped(if end == AttemptEnd::Done { "" } else { end.word() }),
            run: run.min(limit),
            started: Timestamp(wall.0.saturating_sub(run.0)),
            ended: wall,
            stdout: log,
            stderr: LogEnd::empty(),
            manifest: Hash::of(if has_outputs { b"outputs" } else { b"" }),
            manifest_len: if has_outputs { 100 } else { 0 },
            output: Bytes(if has_outputs { 5_000 } else { 0 }),
            files: u32::from(has_outputs),
            telemetry: None,
        };
        let (job, has_started) = (running.work.job, running.started.is_some());
        Some(Ended { outcome, has_outputs, job, cores, has_started })
    }

    fn cores(&self, lease: &LeaseId) -> u64 {
        self.leases.get(lease).map_or(0, |lease| lease.requirement.cpu.0)
    }

    /// What runs: the cores of each attempt that has started, and how long it has run.
    #[must_use]
    pub(crate) fn busy(&self, now: Micros) -> Vec<(u64, Millis)> {
        let started = self.running.iter().filter(|(_, running)| running.started.is_some());
        started.map(|(attempt, running)| (self.cores(&attempt.lease), running.ran(now))).collect()
    }

    /// An attempt that waits for its inputs: its job and its cores.
    #[must_use]
    pub(crate) fn waiting(&self, attempt: &AttemptId) -> Option<(JobId, u64)> {
        self.running.get(attempt).map(|running| (running.work.job, self.cores(&attempt.lease)))
    }

    /// The machine will not do what it promised for this attempt: it fails half-way.
    pub(crate) fn spoil(&mut self, attempt: &AttemptId) {
        if let Some(running) = self.running.get_mut(attempt) {
            running.fate.end = AttemptEnd::ProviderFault;
            running.fate.run = Micros(running.fate.run.0 / 2);
            running.fate.leaves_outputs = false;
        }
    }

    /// What is under way, each with its lease.
    pub(crate) fn running(&self) -> impl Iterator<Item = (&LeaseView, &Work)> {
        let with_lease = |running: &'_ Running| running.work.attempt.lease;
        self.running.values().filter_map(move |running| Some((self.leases.get(&with_lease(running))?, &running.work)))
    }

    /// How long an attempt that is under way has run so far.
    #[must_use]
    pub(crate) fn ran(&self, now: Micros, attempt: &AttemptId) -> Option<Millis> {
        self.running.get(attempt).map(|running| running.ran(now))
    }

    /// The attempts that are under way, and how long each has run so far.
    #[must_use]
    pub(crate) fn attempts(&self, now: Micros) -> Vec<(AttemptId, Millis)> {
        self.running.iter().map(|(attempt, running)| (*attempt, running.ran(now))).collect()
    }
}

impl Running {
    fn ran(&self, now: Micros) -> Millis {
        self.started.map_or(Millis(0), |started| now.since(started).to_millis())
    }
}

fn log_of(attempt: &AttemptId) -> LogEnd {
    let text = attempt.to_string();
    LogEnd { len: text.len() as u64, hash: Hash::of(text.as_bytes()), written: text.len() as u64 }
}

#[cfg(test)]
mod tests {
    use souk_protocol::{Isolation, List, MilliCpu, Rate, Requirement, Runtime, WorkLimits};

    use super::*;

    fn lease(id: u8, slots: u32) -> LeaseView {
        let requirement = Requirement {
            runtime: Runtime::Wasm,
            isolation: Isolation::W0,
            cpu: MilliCpu(1_000),
            memory: Bytes(1),
            disk: Bytes(1),
            gpu: None,
            regions: List::default(),
        };
        let (peer, job) = (NodeId([1; 32]), JobId([2; 32]));
        LeaseView { lease: LeaseId([id; 16]), peer, job, slots, requirement, rate: Rate(1) }
    }

    fn work(id: u8, task: u32) -> Work {
        Work {
            attempt: AttemptId { lease: LeaseId([id; 16]), task, replica: 0, number: 1 },
            job: JobId([2; 32]),
            count: 9,
            module: Hash([0; 32]),
            module_len: 1,
            argv0: Text::default(),
            entry: Text::default(),
            args: List::default(),
            env: List::default(),
            inputs: List::default(),
            outputs: List::default(),
            limits: WorkLimits {
                timeout: Millis(1_000),
                stop_grace: Millis(10),
                memory: Bytes(1),
                stdout: Bytes(1),
                disk: Bytes(1),
            },
        }
    }

    fn fate(run_ms: u64, end: AttemptEnd) -> Fate {
        Fate { fetch: Micros::millis(5), run: Micros::millis(run_ms), end, leaves_outputs: true }
    }

    const MACHINE: Capacity = Capacity { cpu: MilliCpu(3_000), memory: Bytes(100), disk: Bytes(100) };
    const RENTER: NodeId = NodeId([1; 32]);

    fn outcome(executor: &mut Executor, work: Work, fate: Fate) -> Outcome {
        let attempt = work.attempt;
        let due = executor.run(Micros(0), RENTER, work, fate).unwrap();
        assert_eq!(executor.fetches(&attempt, due.turn), Some(RENTER));
        let due = executor.start(due.at, &attempt).unwrap();
        executor.finish(due.at, Timestamp(9_000), &attempt, due.turn).unwrap().outcome
    }

    #[test]
    fn a_task_runs_as_long_as_it_takes_but_not_beyond_its_limit() {
        let mut executor = Executor::default();
        executor.open(lease(1, 2), &MACHINE).unwrap();
        let done = outcome(&mut executor, work(1, 0), fate(300, AttemptEnd::Done));
        assert_eq!((done.end, done.run, done.exit_code, done.files), (AttemptEnd::Done, Millis(300), Some(0), 1));
        let timed_out = outcome(&mut executor, work(1, 1), fate(300, AttemptEnd::TimedOut));
        assert_eq!((timed_out.end, timed_out.run, timed_out.files), (AttemptEnd::TimedOut, Millis(1_000), 0));
        let input = outcome(&mut executor, work(1, 2), fate(300, AttemptEnd::InputFailed));
        assert_eq!((input.end, input.run), (AttemptEnd::InputFailed, Millis(0)));
    }

    #[test]
    fn a_stopped_task_ends_as_it_was_told_with_the_time_it_ran() {
        let mut executor = Executor::default();
        executor.open(lease(1, 1), &MACHINE).unwrap();
        let attempt = work(1, 0).attempt;
        let due = executor.run(Micros(0), RENTER, work(1, 0), fate(500, AttemptEnd::Done)).unwrap();
        let natural = executor.start(due.at, &attempt).unwrap();
        let stop = executor.stop(&attempt, AttemptEnd::Cancelled, Micros::millis(105)).unwrap();
        assert_eq!(executor.stop(&attempt, AttemptEnd::Lost, Micros::millis(106)), None);
        assert!(executor.finish(natural.at, Timestamp(0), &attempt, natural.turn).is_none());
        let ended = executor.finish(stop.at, Timestamp(0), &attempt, stop.turn).unwrap();
        assert_eq!((ended.outcome.end, ended.outcome.run), (AttemptEnd::Cancelled, Millis(100)));
        assert!(executor.attempts(stop.at).is_empty());
    }

    #[test]
    fn oversold_machines_and_full_leases_are_noticed() {
        let mut executor = Executor::default();
        executor.open(lease(1, 2), &MACHINE).unwrap();
        assert!(executor.open(lease(2, 2), &MACHINE).is_err());
        executor.close(&LeaseId([2; 16])).unwrap();
        executor.open(lease(3, 1), &MACHINE).unwrap();
        executor.run(Micros(0), RENTER, work(3, 0), fate(1, AttemptEnd::Done)).unwrap();
        assert!(executor.run(Micros(0), RENTER, work(3, 1), fate(1, AttemptEnd::Done)).is_err());
        assert!(executor.run(Micros(0), RENTER, work(9, 1), fate(1, AttemptEnd::Done)).is_err());
        assert!(executor.close(&LeaseId([3; 16])).is_err());
    }
}
