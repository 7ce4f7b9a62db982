//! Whole sequences: a renter and some providers, real machines on both sides, over a network and disks that the tests
//! decide about.

use std::{collections::BTreeMap, sync::Arc};

use souk_protocol::{
    Array, AttemptEnd, Bytes, Credits, Hash, JobSpec, LogEnd, MilliCpu, Mode, PriceList, Rate, RunState, Text, Work,
};

use super::*;
use crate::{
    AttemptState, Event, Notice, Outcome, Output, Policy, Trader, invariant,
    testing::{TestKeys, at, job_spec, policy, settings, slot},
};

mod asks;
mod auctions;
mod faults;
mod hand;
mod limits;
mod own;
mod property;
mod replay;
mod straggle;

pub(super) const JOB: JobId = JobId([7; 32]);

pub(super) fn spec(tasks: u32) -> JobSpec {
    let tasks = (0..tasks).map(|n| BTreeMap::from([("X".to_owned(), n.to_string())])).collect();
    let usual = job_spec();
    JobSpec {
        args: vec!["--task={index}".to_owned(), "{{{X}}".to_owned()],
        array: Array { tasks, ..usual.array },
        ..usual
    }
}

/// What a program does: how it ends and how long it takes; by provider and attempt.
type Program = fn(usize, &AttemptId) -> (AttemptEnd, u64);

pub(super) fn well(_: usize, _: &AttemptId) -> (AttemptEnd, u64) {
    (AttemptEnd::Done, 1_000)
}

/// What the network does with messages.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weather {
    /// In 100.
    pub(super) lost: u64,
    pub(super) twice: u64,
    /// Longest extra delay, which changes the order.
    pub(super) jitter: u64,
}

struct Machine {
    trader: Trader,
    seed: u8,
    boot: u64,
    policy: Option<Policy>,
    /// Everything that was to be persisted since the last start, after what was durable before.
    written: Vec<Record>,
    /// How many of these are durable.
    durable: usize,
    up: bool,
}

/// A market of one renter, machine 0, and some providers.
pub(super) struct World {
    machines: Vec<Machine>,
    ids: BTreeMap<NodeId, usize>,
    /// By time and order.
    todo: BTreeMap<(u64, u64), (usize, Event)>,
    count: u64,
    now: u64,
    random: u64,
    pub(super) weather: Weather,
    pub(super) program: Program,
    pub(super) disk: u64,
    pub(super) latency: u64,
    pub(super) notices: Vec<Notice>,
    pub(super) blames: Vec<String>,
    pub(super) runs: Vec<(usize, Work)>,
    /// Machines whose messages are lost, both ways.
    pub(super) cut: Vec<usize>,
    /// Whether outputs can be had.
    pub(super) collectable: bool,
    /// Whether every record is replayed after every event.
    pub(super) replay: bool,
}

pub(super) fn priced(cpu: u64, memory: u64) -> Policy {
    Policy {
        ask: PriceList { cpu: Rate(cpu), memory_gb: Rate(memory) },
        floor: PriceList { cpu: Rate(cpu / 2), memory_gb: Rate(memory / 2) },
        stranger_limit: Credits(10_000_000),
        strangers_limit: Credits(100_000_000),
        ..policy()
    }
}

impl World {
    pub(super) fn new(policies: Vec<Policy>) -> Self {
        Self::with_own(None, policies)
    }

    /// A renter that has capacity of its own.
    pub(super) fn with_own(own: Option<Policy>, policies: Vec<Policy>) -> Self {
        let mut world = Self {
            machines: Vec::new(),
            ids: BTreeMap::new(),
            todo: BTreeMap::new(),
            count: 0,
            now: 1_000,
            random: 1,
            weather: Weather::default(),
            program: well,
            disk: 2,
            latency: 5,
            notices: Vec::new(),
            blames: Vec::new(),
            runs: Vec::new(),
            cut: Vec::new(),
            collectable: true,
            replay: false,
        };
        for (index, policy) in std::iter::once(own).chain(policies.into_iter().map(Some)).enumerate() {
            let seed = 10 + u8::try_from(index).unwrap();
            let trader = Trader::new(settings(1), Arc::new(TestKeys::new(seed)));
            world.ids.insert(trader.id(), index);
            world.machines.push(Machine { trader, seed, boot: 1, policy, written: Vec::new(), durable: 0, up: true });
        }
        for index in 0..world.machines.len() {
            world.start(index);
        }
        world.run_for(100);
        world
    }

    fn start(&mut self, index: usize) {
        self.handle(index, Event::Recovered);
        if let Some(policy) = self.machines[index].policy.clone() {
            self.handle(index, Event::Policy(Box::new(policy)));
        }
    }

    /// A number below `n`, from a fixed sequence.
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n.max(1)
    }

    pub(super) fn seed(&mut self, seed: u64) {
        self.random = seed;
    }

    pub(super) fn id(&self, index: usize) -> NodeId {
        self.machines[index].trader.id()
    }

    pub(super) fn renter(&self) -> &Renter {
        &self.machines[0].trader.renter
    }

    pub(super) fn trader(&self, index: usize) -> &Trader {
        &self.machines[index].trader
    }

    pub(super) fn job(&self) -> &Job {
        self.renter().job(&JOB).unwrap()
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.machines[0].written
    }

    fn plan(&mut self, after: u64, index: usize, event: Event) {
        self.count += 1;
        self.todo.insert((self.now + after, self.count), (index, event));
    }

    pub(super) fn handle(&mut self, index: usize, event: Event) {
        if !self.machines[index].up {
            return;
        }
        if let Event::Persisted(_) = event {
            self.machines[index].durable += 1;
        }
        let outputs = self.machines[index].trader.handle(event, at(self.now));
        for output in outputs {
            self.output(index, output);
        }
        if index == 0 {
            for job in self.renter().jobs() {
                assert_eq!(invariant::job(job), Ok(()), "at {}", self.now);
            }
            if self.replay {
                assert_eq!(self.replayed(self.records().len()).renter.digest(), self.renter().digest());
            }
        }
    }

    /// A renter made of the first `count` of its records.
    pub(super) fn replayed(&self, count: usize) -> Trader {
        let mut trader = Trader::new(settings(99), Arc::new(TestKeys::new(self.machines[0].seed)));
        for record in &self.records()[..count] {
            trader.apply(record).unwrap();
        }
        trader
    }

    fn output(&mut self, index: usize, output: Output) {
        match output {
            Output::Persist { record, token } => {
                self.machines[index].written.push(record);
                self.plan(self.disk, index, Event::Persisted(token));
            }
            Output::Send { to, message } => {
                let to = self.ids[&to];
                if self.cut.contains(&to) || self.cut.contains(&index) || self.below(100) < self.weather.lost {
                    return;
                }
                let copies = if self.below(100) < self.weather.twice { 2 } else { 1 };
                for _ in 0..copies {
                    let delay = self.latency + self.below(self.weather.jitter + 1);
                    let from = self.id(index);
                    self.plan(delay, to, Event::Message { from, message: message.clone() });
                }
            }
            Output::Offer(offer) => {
                if !self.cut.contains(&index) {
                    self.plan(self.latency, 0, Event::Offer(offer));
                }
            }
            Output::Blame { fault, .. } => self.blames.push(format!("{index}: {fault}")),
            Output::Run { work, .. } => {
                let attempt = work.attempt;
                self.runs.push((index, work));
                let (end, run) = (self.program)(index, &attempt);
                self.plan(1, index, Event::Running { attempt, state: RunState::Running });
                let outcome = self.outcome(end, run);
                self.plan(2 + run, index, Event::Ended { attempt, outcome });
            }
            Output::Stop { attempt, end, .. } => {
                let outcome = self.outcome(end, 500);
                self.plan(1, index, Event::Ended { attempt, outcome });
            }
            Output::Collect { result, .. } => {
                let attempt = result.attempt;
                let event = if self.collectable {
                    Event::Held { attempt }
                } else {
                    Event::NotHeld { attempt, reason: "a hash differs".to_owned() }
                };
                self.plan(2 * self.latency, index, event);
            }
            Output::Notify(notice) if index == 0 => self.notices.push(notice),
            Output::Notify(_)
            | Output::OpenLease(_)
            | Output::CloseLease { .. }
            | Output::Forget { .. }
            | Output::Serve { .. }
            | Output::Abandon { .. } => {}
        }
    }

    fn outcome(&self, end: AttemptEnd, run: u64) -> Outcome {
        let done = end == AttemptEnd::Done;
        Outcome {
            end,
            exit_code: if done { Some(0) } else { (end == AttemptEnd::Failed).then_some(3) },
            reason: if done { Text::default() } else { Text::clipped("as the test has it") },
            run: Millis(run),
            started: at(self.now).wall,
            ended: at(self.now + run).wall,
            stdout: LogEnd { len: 6, hash: Hash::of(b"hello\n"), written: 6 },
            stderr: LogEnd::empty(),
            manifest: Hash::of(&[]),
            manifest_len: 8,
            output: Bytes(0),
            files: 0,
            telemetry: None,
        }
    }

    pub(super) fn submit(&mut self, spec: JobSpec) {
        self.handle(0, Event::Submit { job: JOB, spec: Arc::new(spec) });
    }

    /// The next thing that happens, if it does before `end`. Timers count.
    fn step(&mut self, end: u64) -> bool {
        let planned = self.todo.keys().next().map(|(at, _)| *at);
        let timer = (0..self.machines.len())
            .filter(|index| self.machines[*index].up)
            .filter_map(|index| self.machines[index].trader.wake_at().map(|at| (at.0.max(self.now), index)))
            .min();
        match (planned, timer) {
            (planned, Some((at, index))) if at <= end && planned.is_none_or(|planned| at < planned) => {
                self.now = at;
                self.handle(index, Event::Wake);
                true
            }
            (Some(at), _) if at <= end => {
                self.now = self.now.max(at);
                let ((_, _), (index, event)) = self.todo.pop_first().unwrap();
                self.handle(index, event);
                true
            }
            _ => false,
        }
    }

    pub(super) fn run_for(&mut self, ms: u64) {
        let end = self.now + ms;
        let mut steps = 0u64;
        while self.step(end) {
            steps += 1;
            assert!(steps < 2_000_000, "the machines never come to rest");
        }
        self.now = end;
    }

    /// Until something holds; fails after `ms`.
    pub(super) fn run_until(&mut self, ms: u64, what: &str, holds: impl Fn(&Self) -> bool) {
        let end = self.now + ms;
        while !holds(self) {
            assert!(
                self.step(end),
                "not within {ms} ms: {what}; the job is {:?}: {:?}",
                self.job().state(),
                self.job().why()
            );
        }
    }

    pub(super) fn run_to_end(&mut self, ms: u64) -> JobState {
        self.run_until(ms, "the job is over", |world| world.job().state().is_final());
        self.job().state()
    }

    /// Until all leases are settled.
    pub(super) fn settle(&mut self, ms: u64) {
        self.run_until(ms, "all leases are closed", |world| world.renter().live_leases.is_empty());
        self.run_for(1_000); // the last acknowledgements
    }

    /// The machine loses what was not durable and starts again after `down`.
    pub(super) fn crash(&mut self, index: usize, down: u64) {
        self.kill(index);
        self.run_for(down);
        self.revive(index);
    }

    pub(super) fn kill(&mut self, index: usize) {
        self.todo.retain(|_, (to, event)| *to != index || matches!(event, Event::Message { .. } | Event::Offer(_)));
        self.machines[index].up = false;
    }

    pub(super) fn revive(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        machine.written.truncate(machine.durable);
        machine.boot += 1;
        let keys = Arc::new(TestKeys::new(machine.seed));
        machine.trader = Trader::new(settings(machine.boot), keys);
        for record in &machine.written {
            machine.trader.apply(record).unwrap();
        }
        machine.up = true;
        self.start(index);
        if index == 0 {
            // Anti-entropy brings the offers back.
            for provider in 1..self.machines.len() {
                if let Some(policy) = self.machines[provider].policy.clone() {
                    self.handle(provider, Event::Policy(Box::new(policy)));
                }
            }
        }
    }

    /// What each attempt came to, in order of task and number.
    pub(super) fn attempts(&self) -> Vec<(u32, u32, AttemptState)> {
        let attempts = self.job().tasks().iter().flat_map(|task| task.attempts());
        attempts.map(|attempt| (attempt.id.task, attempt.id.number, attempt.state)).collect()
    }

    /// Both books of every lease agree, and nothing is owed twice.
    pub(super) fn assert_books_agree(&self) {
        for provider in 1..self.machines.len() {
            let (ours, theirs) = (&self.machines[0].trader.books, &self.machines[provider].trader.books);
            let (renter, provider) = (self.id(0), self.id(provider));
            assert_eq!(ours.spent(&provider), theirs.earned(&renter), "spent and earned differ");
        }
        let mut paid = std::collections::BTreeSet::new();
        for lease in self.renter().leases() {
            for billed in lease.billed {
                assert!(paid.insert(billed.attempt), "attempt {} is owed twice", billed.attempt);
            }
        }
        let sum = self.renter().leases().fold(Credits(0), |sum, lease| sum.saturating_add(lease.total));
        assert_eq!(self.job().cost(), sum);
    }
}

/// A slot that is too large for anybody.
pub(super) fn huge() -> souk_protocol::Requirement {
    souk_protocol::Requirement { cpu: MilliCpu(64_000), ..slot() }
}
