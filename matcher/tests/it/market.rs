//! A market in memory: nodes with ordered links, disks that take a moment, executors that take as long as told.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use souk_matcher::{
    Event, JobState, Keys, Notice, Outcome, Output, Policy, Record, Settings, Token, Trader, invariant,
};
use souk_protocol::{
    Array, AttemptEnd, AttemptId, Bytes, Capacity, Credits, Hash, JobId, JobSpec, LeaseId, Local, LogEnd,
    Market as MarketTerms, Message, MilliCpu, Millis, Mode, Offer, Party, PriceList, Rate, Receipt, Retry, RunState,
    Text, Timestamp, Verified,
};

use crate::testing::{self, TestKeys, WALL};

/// One way between two nodes.
const LATENCY: u64 = 5;
/// Until a record is durable.
const SYNC: u64 = 2;

/// What is on its way.
enum Due {
    Event(usize, Event),
    Message { from: usize, to: usize, message: Message },
    Synced(usize, Record, Token),
    Ended(usize, AttemptId, AttemptEnd),
}

/// A node and what it has on disk and in hand.
pub(crate) struct Node {
    pub(crate) trader: Trader,
    keys: Arc<dyn Keys>,
    policy: Option<Policy>,
    boot: u64,
    pub(crate) up: bool,
    /// What a crash leaves.
    pub(crate) journal: Vec<Record>,
    /// Attempts the executor has, with their start.
    executing: BTreeMap<AttemptId, u64>,
    pub(crate) receipts: Vec<(Party, Receipt)>,
    pub(crate) states: BTreeMap<JobId, JobState>,
    /// Blames, which no honest node earns.
    pub(crate) blames: Vec<String>,
    offer: Option<Verified<Offer>>,
}

/// All nodes and the time.
pub(crate) struct Market {
    pub(crate) nodes: Vec<Node>,
    pub(crate) now: u64,
    /// How long each task runs.
    pub(crate) run: u64,
    due: BTreeMap<(u64, u64), Due>,
    count: u64,
    /// Share of messages that are lost, in percent.
    pub(crate) lossy: u64,
    /// Seed and state of the losses.
    pub(crate) dice: u64,
    /// Who executed what: a task and replica may run twice, but is paid once.
    pub(crate) executed: Vec<AttemptId>,
    /// Leases whose results the provider may drop.
    pub(crate) forgotten: BTreeSet<LeaseId>,
}

/// So many cores, at an ask for one of them.
pub(crate) fn policy(cores: u64, ask: u64) -> Policy {
    Policy {
        total: Capacity { cpu: MilliCpu(cores * 1_000), memory: Bytes(64_000_000_000), disk: Bytes(64_000_000_000) },
        floor: PriceList { cpu: Rate(1_000), memory_gb: Rate(0) },
        ask: PriceList { cpu: Rate(ask), memory_gb: Rate(0) },
        stranger_limit: Credits(1_000_000),
        strangers_limit: Credits(10_000_000),
        ..testing::policy()
    }
}

/// So many tasks, four at once, each tried five times where it is nobody's doing.
pub(crate) fn spec(tasks: usize, mode: Mode) -> JobSpec {
    let usual = testing::job_spec();
    JobSpec {
        market: MarketTerms { mode, local: Local::Never, ..usual.market },
        retry: Retry { attempts: 5, ..usual.retry },
        array: Array { tasks: vec![BTreeMap::new(); tasks], max_parallel: 4, ..usual.array },
        ..usual
    }
}

impl Market {
    /// Node 0 rents; the others sell by these policies.
    pub(crate) fn new(policies: Vec<Policy>) -> Self {
        let mut market = Self {
            nodes: Vec::new(),
            now: 0,
            run: 100,
            due: BTreeMap::new(),
            count: 0,
            lossy: 0,
            dice: 1,
            executed: Vec::new(),
            forgotten: BTreeSet::new(),
        };
        for policy in std::iter::once(None).chain(policies.into_iter().map(Some)) {
            let seed = u8::try_from(market.nodes.len()).unwrap() + 1;
            let keys: Arc<dyn Keys> = Arc::new(TestKeys::new(seed));
            let trader = Trader::new(settings(1, seed), Arc::clone(&keys));
            market.nodes.push(Node {
                trader,
                keys,
                policy,
                boot: 1,
                up: true,
                journal: Vec::new(),
                executing: BTreeMap::new(),
                receipts: Vec::new(),
                states: BTreeMap::new(),
                blames: Vec::new(),
                offer: None,
            });
        }
        for index in 0..market.nodes.len() {
            market.start(index);
        }
        for index in 1..market.nodes.len() {
            let peer = market.nodes[index].trader.id();
            market.handle(0, Event::Rtt { peer, p95: Millis(2 * LATENCY) });
        }
        market.until(50);
        market
    }

    fn start(&mut self, index: usize) {
        self.handle(index, Event::Recovered);
        if let Some(policy) = self.nodes[index].policy.clone() {
            self.handle(index, Event::Policy(Box::new(policy)));
        }
        for other in 0..self.nodes.len() {
            if other != index && self.nodes[other].up {
                let (a, b) = (self.nodes[index].trader.id(), self.nodes[other].trader.id());
                self.handle(index, Event::PeerUp(b));
                self.handle(other, Event::PeerUp(a));
                // Anti-entropy: whoever comes gets the offers that are about.
                if let Some(offer) = self.nodes[other].offer.clone() {
                    self.handle(index, Event::Offer(offer));
                }
            }
        }
    }

    pub(crate) fn submit(&mut self, spec: JobSpec) -> JobId {
        let renter = self.nodes[0].trader.id();
        let job = JobId::new(&renter, &spec.hash().unwrap(), &[7; 16]);
        self.handle(0, Event::Submit { job, spec: Arc::new(spec) });
        job
    }

    /// A process dies: what was on its way to or from it is lost, and what was not durable.
    pub(crate) fn crash(&mut self, index: usize) {
        self.nodes[index].up = false;
        self.nodes[index].executing.clear();
        let gone = |due: &Due| match due {
            Due::Event(node, _) | Due::Synced(node, ..) | Due::Ended(node, ..) => *node == index,
            Due::Message { from, to, .. } => *from == index || *to == index,
        };
        self.due.retain(|_, due| !gone(due));
        let id = self.nodes[index].trader.id();
        for other in 0..self.nodes.len() {
            if other != index && self.nodes[other].up {
                self.handle(other, Event::PeerDown(id));
            }
        }
    }

    /// It comes back with what its disk says.
    pub(crate) fn restart(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.boot += 1;
        node.up = true;
        node.trader = Trader::new(settings(node.boot, u8::try_from(index).unwrap() + 1), Arc::clone(&node.keys));
        for record in &node.journal {
            node.trader.apply(record).expect("a journal that replays");
        }
        self.start(index);
    }

    fn plan(&mut self, after: u64, due: Due) {
        self.count += 1;
        self.due.insert((self.now + after, self.count), due);
    }

    pub(crate) fn handle(&mut self, index: usize, event: Event) {
        let now = testing::at(self.now);
        let out = self.nodes[index].trader.handle(event, now);
        for output in out {
            self.carry_out(index, output);
        }
        let node = &self.nodes[index];
        assert_eq!(invariant::no_oversell(&node.trader.provider), Ok(()));
        assert_eq!(invariant::exposure_within_limits(&node.trader.books), Ok(()));
        for job in node.trader.renter.jobs() {
            assert_eq!(invariant::job(job), Ok(()));
        }
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        match output {
            Output::Persist { record, token } => self.plan(SYNC, Due::Synced(index, record, token)),
            Output::Send { to, message } => {
                let Some(to) = self.nodes.iter().position(|node| node.trader.id() == to) else { return };
                self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if !self.nodes[to].up {
                    let peer = self.nodes[to].trader.id();
                    self.plan(1, Due::Event(index, Event::SendFailed(peer)));
                } else if (self.dice >> 33) % 100 >= self.lossy {
                    let bytes = message.encode().expect("a message that fits");
                    let message = Message::decode(&bytes).expect("a message that reads back");
                    self.plan(LATENCY, Due::Message { from: index, to, message });
                }
            }
            Output::Offer(offer) => {
                self.nodes[index].offer = Some(offer.clone());
                for other in 0..self.nodes.len() {
                    if other != index {
                        self.plan(LATENCY, Due::Event(other, Event::Offer(offer.clone())));
                    }
                }
            }
            Output::Blame { fault, .. } => self.nodes[index].blames.push(fault),
            Output::Run { work, .. } => {
                let attempt = work.attempt;
                self.executed.push(attempt);
                self.nodes[index].executing.insert(attempt, self.now);
                self.plan(1, Due::Event(index, Event::Running { attempt, state: RunState::Running }));
                self.plan(self.run, Due::Ended(index, attempt, AttemptEnd::Done));
            }
            Output::Stop { attempt, end, .. } => self.plan(3, Due::Ended(index, attempt, end)),
            Output::Collect { result, .. } => {
                self.plan(2 * LATENCY, Due::Event(index, Event::Held { attempt: result.attempt }));
            }
            Output::Forget { lease } => {
                self.forgotten.insert(lease);
            }
            Output::Notify(Notice::Receipt { side, receipt }) => self.nodes[index].receipts.push((side, receipt)),
            Output::Notify(Notice::Job { job, state, .. }) => {
                self.nodes[index].states.insert(job, state);
            }
            Output::OpenLease(_)
            | Output::CloseLease { .. }
            | Output::Serve { .. }
            | Output::Abandon { .. }
            | Output::Notify(_) => {}
        }
    }

    /// The next thing that happens, if it does before `end`.
    fn step(&mut self, end: u64) -> bool {
        let planned = self.due.first_key_value().map(|((at, _), _)| *at);
        let wake = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, node)| node.up)
            .filter_map(|(index, node)| node.trader.wake_at().map(|at| (at.0.max(self.now), index)))
            .min();
        let (at, waking) = match (planned, wake) {
            (Some(planned), Some((wake, index))) if wake < planned => (wake, Some(index)),
            (Some(planned), _) => (planned, None),
            (None, Some((wake, index))) => (wake, Some(index)),
            (None, None) => return false,
        };
        if at > end {
            return false;
        }
        self.now = self.now.max(at);
        if let Some(index) = waking {
            self.handle(index, Event::Wake);
            return true;
        }
        let Some((_, due)) = self.due.pop_first() else { return false };
        match due {
            Due::Event(index, event) if self.nodes[index].up => self.handle(index, event),
            Due::Message { from, to, message } if self.nodes[to].up => {
                let from = self.nodes[from].trader.id();
                self.handle(to, Event::Message { from, message });
            }
            Due::Synced(index, record, token) => {
                self.nodes[index].journal.push(record);
                self.handle(index, Event::Persisted(token));
            }
            Due::Ended(index, attempt, end) => {
                if let Some(start) = self.nodes[index].executing.remove(&attempt) {
                    let outcome = outcome(end, self.now - start, WALL + self.now);
                    self.handle(index, Event::Ended { attempt, outcome });
                }
            }
            Due::Event(..) | Due::Message { .. } => {}
        }
        true
    }

    pub(crate) fn until(&mut self, end: u64) {
        let mut steps = 0;
        while self.step(end) {
            steps += 1;
            assert!(steps < 2_000_000, "the market does not come to rest");
        }
        self.now = end;
    }

    /// Runs until the job has ended; when it has.
    pub(crate) fn until_done(&mut self, job: JobId, limit: u64) -> JobState {
        let mut steps = 0;
        loop {
            if let Some(state) = self.state(job).filter(|state| state.is_final()) {
                return state;
            }
            steps += 1;
            assert!(steps < 2_000_000 && self.step(limit), "job not done at {}: {:?}", self.now, self.why(job));
        }
    }

    pub(crate) fn state(&self, job: JobId) -> Option<JobState> {
        self.nodes[0].trader.renter.job(&job).map(souk_matcher::Job::state)
    }

    fn why(&self, job: JobId) -> Vec<souk_matcher::Reason> {
        self.nodes[0].trader.renter.job(&job).map(souk_matcher::Job::why).unwrap_or_default()
    }

    /// What must hold of all books and journals; `quiet` if nothing is under way and nobody crashed.
    pub(crate) fn check(&self, quiet: bool) {
        let renter = &self.nodes[0];
        for node in &self.nodes {
            assert_eq!(invariant::vouchers_monotone(&node.journal), Ok(()));
            assert_eq!(node.trader.books.verify(), Vec::<String>::new());
            assert_eq!(node.blames, Vec::<String>::new());
        }
        for node in &self.nodes[1..] {
            assert_eq!(invariant::books_agree(&renter.trader.books, &node.trader.books, quiet), Ok(()));
        }
        // No task is paid twice as done.
        let mut done = BTreeSet::new();
        for record in &renter.journal {
            if let Record::Result { result, verdict: souk_matcher::Verdict::Done, .. } = record {
                let result = result.peek().unwrap();
                let attempt = result.attempt;
                assert!(
                    done.insert((result.job, attempt.task, attempt.replica)),
                    "task {} is done twice",
                    attempt.task
                );
            }
        }
    }
}

fn settings(boot: u64, seed: u8) -> Settings {
    let mut bytes = [seed; 32];
    bytes[..8].copy_from_slice(&boot.to_le_bytes());
    Settings { seed: bytes, ..testing::settings(boot) }
}

fn outcome(end: AttemptEnd, run: u64, now: u64) -> Outcome {
    let log = b"hello";
    let hello = LogEnd { len: 5, hash: Hash::of(log), written: 5 };
    Outcome {
        end,
        exit_code: (end == AttemptEnd::Done).then_some(0),
        reason: Text::default(),
        run: Millis(run),
        started: Timestamp(now - run),
        ended: Timestamp(now),
        stdout: hello,
        stderr: LogEnd::empty(),
        manifest: Hash::of(&[]),
        manifest_len: 0,
        output: Bytes(0),
        files: 0,
        telemetry: None,
    }
}
