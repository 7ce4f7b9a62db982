//! The loop: takes what happens next, tells the node, carries out what it answers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use souk_matcher::{Event, Record, Token};
use souk_protocol::{AttemptId, JobId, NodeId, Offer, RunState, Verified};

use crate::{
    discovery::Samples,
    disk::Body,
    facts::Facts,
    faults,
    invariant::{Fault, Invariant},
    keys::{SimKey, Table},
    ledger::Ledger,
    network::{Dialled, Network, NodeIndex, Pair},
    node::Node,
    packet::Packet,
    random::Dice,
    report::Report,
    scenario::{Broken, Engine, Scenario},
    tally::Tally,
    time::Micros,
    workload::{self, Submission},
};

/// How often it is looked whether everything is at rest.
const LOOK_EVERY: Micros = Micros::millis(500);
/// Time to go on once everything seems to be at rest: late timers and repeats must change nothing.
const AFTERGLOW: Micros = Micros::millis(5_000);
/// A timer may find that its time is not quite there; more often than this in a row it does not move on.
const MAX_SPINS: u32 = 50;
/// How often a node asks another for the offers it knows.
const EXCHANGE: (Micros, Micros) = (Micros::millis(20_000), Micros::millis(40_000));

/// Events between two words to the watcher.
const WATCH_EVERY: u64 = 4_096;

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub now: Micros,
    /// Tasks that are done.
    pub tasks_done: u64,
}

/// Something that happens.
pub(crate) enum Happening {
    /// A message arrives, on its connection or, a late second one, in spite of everything.
    Arrive { from: NodeIndex, to: NodeIndex, epoch: Option<u64>, packet: Packet },
    /// A dial ends.
    Dialled { pair: Pair, epoch: u64 },
    /// A connection is found broken.
    Broken { pair: Pair, epoch: u64 },
    /// An offer arrives by gossip.
    Offer { to: NodeIndex, offer: Arc<Verified<Offer>> },
    /// A node asks another for the offers it knows.
    Exchange { node: NodeIndex },
    /// Something happens to one run of a node.
    Node { node: NodeIndex, boot: u64, event: Local },
    /// A user submits a job.
    Submit { number: usize },
    /// A user cancels a job.
    Cancel { number: usize },
    /// A provider signs what it was paid outside.
    Discharge { node: NodeIndex },
    /// A fault.
    Fault(faults::Fault),
    /// Is everything at rest?
    Look,
}

/// Something that happens to one run of a node: a restart makes it void.
pub(crate) enum Local {
    /// Records are durable.
    Synced,
    /// The node learns of it.
    Persisted(Token),
    /// A timer fires.
    Wake,
    /// An attempt begins to fetch.
    Fetching(AttemptId),
    /// An attempt has its inputs.
    Start { attempt: AttemptId, turn: u32, tries: u32 },
    /// An attempt ends.
    Finish { attempt: AttemptId, turn: u32 },
    /// Outputs arrive at the renter, or not.
    Collect(AttemptId),
}

/// A market under way.
pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) seed: u64,
    pub(crate) now: Micros,
    queue: crate::queue::Queue<Happening>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) ids: Vec<NodeId>,
    pub(crate) network: Network<Packet>,
    pub(crate) dice: Dice,
    pub(crate) jobs: Vec<Submission>,
    /// Numbers of jobs by their ids.
    pub(crate) numbers: BTreeMap<JobId, usize>,
    /// Numbers of jobs by their renters.
    jobs_of: BTreeMap<NodeIndex, Vec<usize>>,
    pub(crate) samples: Option<Samples>,
    pub(crate) tally: Option<Tally>,
    submit_until: Micros,
    submitted: BTreeSet<usize>,
    /// Jobs whose users have cancelled them.
    cancelled: BTreeSet<usize>,
    pub(crate) ledger: Ledger,
    pub(crate) report: Report,
    pub(crate) is_calm: bool,
    pub(crate) rest_since: Option<Micros>,
    pub(crate) log: blake3::Hasher,
    trace: Option<&'a mut dyn FnMut(&str)>,
    /// Told every so often how far the run is.
    pub(crate) watcher: Option<&'a mut dyn FnMut(Progress)>,
    /// Notes for whoever measures.
    pub(crate) facts: Option<&'a mut Facts>,
}

impl fmt::Debug for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({} at {})", self.scenario.name, self.now)
    }
}

impl<'a> World<'a> {
    pub(crate) fn new(seed: u64, scenario: &'a Scenario, trace: Option<&'a mut dyn FnMut(&str)>) -> Self {
        let (table, ids) = Table::new(seed, scenario.nodes);
        let plan = faults::plan(seed, scenario);
        let is_crook = |index: &usize| scenario.is_deadbeat(*index) || scenario.is_silent(*index);
        let crooks = ids.iter().enumerate().filter(|(index, _)| is_crook(index)).map(|(_, id)| *id).collect();
        let nodes = ids.iter().enumerate().map(|(index, id)| Node {
            id: *id,
            key: Arc::new(SimKey::new(Arc::clone(&table), *id)),
            keeps: plan.crashes.contains(&index),
            skew: plan.skews.get(index).copied().unwrap_or(0),
            boot: 0,
            disk: crate::disk::Disk::default(),
            outputs: BTreeSet::new(),
            policy: workload::policy(seed, scenario, index, 0),
            alive: None,
        });
        let jobs = workload::jobs(seed, scenario, &ids);
        let mut jobs_of: BTreeMap<NodeIndex, Vec<usize>> = BTreeMap::new();
        for (number, job) in jobs.iter().enumerate() {
            jobs_of.entry(job.renter).or_default().push(number);
        }
        let home = |node| workload::machine(scenario, node).map(|machine| machine.region);
        let mut world = Self {
            scenario,
            seed,
            now: Micros(0),
            queue: crate::queue::Queue::default(),
            nodes: nodes.collect(),
            network: Network::of(seed, scenario.nodes, scenario.faults, &scenario.latency, home),
            dice: Dice::new(seed, "world"),
            numbers: jobs.iter().enumerate().map(|(number, job)| (job.job, number)).collect(),
            jobs_of,
            jobs,
            samples: Samples::new(seed, scenario),
            tally: Tally::new(scenario),
            ids,
            submit_until: scenario.workload.submit_until(),
            submitted: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            ledger: Ledger::new(table, crooks, scenario.engine == Engine::Light),
            report: Report::new(seed, scenario),
            is_calm: false,
            rest_since: None,
            log: blake3::Hasher::new(),
            trace,
            watcher: None,
            facts: None,
        };
        for (at, fault) in faults::cuts(seed, scenario, &world.network) {
            world.queue.push(at, Happening::Fault(fault));
        }
        for (at, fault) in plan.faults {
            world.queue.push(at, Happening::Fault(fault));
        }
        world.schedule_users();
        world
    }

    fn schedule_users(&mut self) {
        for number in 0..self.jobs.len() {
            let Some(job) = self.jobs.get(number) else { continue };
            let (at, cancel_at) = (job.at, job.cancel_at);
            self.push(at, Happening::Submit { number });
            if self.dice.chance(50_000) {
                let again = at + self.dice.span(Micros(0), Micros::millis(5_000));
                self.push(again, Happening::Submit { number });
            }
            if let Some(at) = cancel_at {
                self.push(at, Happening::Cancel { number });
            }
        }
        if let Some(every) = self.scenario.discharge_every {
            for node in 0..self.nodes.len() {
                let at = self.dice.span(Micros(0), every);
                self.push(at, Happening::Discharge { node });
            }
        }
        self.push(LOOK_EVERY, Happening::Look);
    }

    /// Runs until everything is at rest or time is up.
    pub(crate) fn run(mut self) -> Report {
        for node in 0..self.nodes.len() {
            if Some(node) != self.scenario.liar() {
                self.start(node);
            }
        }
        while let Some((at, happening)) = self.queue.pop() {
            if at > self.scenario.duration || self.ledger.violations().len() >= crate::report::ENOUGH {
                break;
            }
            if self.rest_since.is_some_and(|since| at.since(since) > AFTERGLOW) {
                break;
            }
            self.now = at;
            self.report.events += 1;
            if self.report.events.is_multiple_of(WATCH_EVERY)
                && let Some(watcher) = &mut self.watcher
            {
                watcher(Progress { now: at, tasks_done: self.ledger.done() });
            }
            self.happen(happening);
        }
        self.finish()
    }

    pub(crate) fn push(&mut self, at: Micros, happening: Happening) {
        self.queue.push(at, happening);
    }

    /// Something will happen to a node unless it restarts before.
    pub(crate) fn push_local(&mut self, at: Micros, node: NodeIndex, event: Local) {
        let boot = self.nodes.get(node).map_or(0, |node| node.boot);
        self.push(at, Happening::Node { node, boot, event });
    }

    /// Writes a line for whoever looks on.
    pub(crate) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.is_some() {
            let line = format!("{} {}", self.now, line(self));
            if let Some(trace) = &mut self.trace {
                trace(&line);
            }
        }
    }

    /// Adds to the log whose digest tells two runs apart.
    pub(crate) fn log(&mut self, kind: u8, node: NodeIndex, bytes: &[u8]) {
        self.log.update(&self.now.0.to_le_bytes());
        self.log.update(&[kind]);
        self.log.update(&(node as u64).to_le_bytes());
        self.log.update(bytes);
    }

    pub(crate) fn violated(&mut self, invariant: Invariant, detail: String) {
        self.ledger.check(self.now, Err(Fault { invariant, detail }));
    }

    pub(crate) fn index(&self, id: &NodeId) -> Option<NodeIndex> {
        crate::keys::number_of(id).filter(|number| self.ids.get(*number) == Some(id))
    }

    /// Tells a node something and carries out its answer.
    pub(crate) fn tell_node(&mut self, index: NodeIndex, event: Event) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else { return };
        let clocks = node.clocks(now);
        let Some(alive) = &mut node.alive else { return };
        let outputs = alive.trader.handle(event, clocks);
        self.carry_out(index, outputs);
        self.set_timer(index);
    }

    fn set_timer(&mut self, index: NodeIndex) {
        if self.scenario.broken == Some(Broken::Deaf) {
            return;
        }
        let now = self.now;
        let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) else { return };
        let Some(due) = alive.trader.wake_at() else { return };
        let at = alive.moment(due).max(now + Micros::millis(u64::from(alive.spins > 0)));
        if alive.wake.is_none_or(|wake| at < wake) {
            alive.wake = Some(at);
            self.push_local(at, index, Local::Wake);
        }
    }

    fn wake(&mut self, index: NodeIndex) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else { return };
        let mono = node.clocks(now).mono;
        let Some(alive) = &mut node.alive else { return };
        if alive.wake != Some(now) {
            return; // an earlier timer has taken its place
        }
        alive.wake = None;
        if alive.trader.wake_at().is_none_or(|due| due > mono) {
            return self.set_timer(index);
        }
        self.tell_node(index, Event::Wake);
        let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) else { return };
        let again = alive.trader.wake_at().is_some_and(|due| due <= mono);
        alive.spins = if again { alive.spins + 1 } else { 0 };
        if alive.spins == MAX_SPINS {
            self.violated(Invariant::TimersMoveOn, format!("node {index} wants to wake up again and again"));
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { from, to, epoch, packet } => match self.scenario.liar() {
                None => self.arrive(from, to, epoch, packet),
                Some(liar) => {
                    self.arrive(from, to, epoch, packet.clone());
                    self.lie(liar, packet);
                }
            },
            Happening::Dialled { pair, epoch } => self.dialled(pair, epoch),
            Happening::Broken { pair, epoch } => self.broken(pair, epoch),
            Happening::Offer { to, offer } => self.learn_offer(to, offer),
            Happening::Exchange { node } => {
                self.exchange_offers(node);
                let at = self.now + self.dice.span(EXCHANGE.0, EXCHANGE.1);
                self.push(at, Happening::Exchange { node });
            }
            Happening::Node { node, boot, event } => {
                if self.nodes.get(node).is_some_and(|node| node.boot == boot && node.alive.is_some()) {
                    self.happen_to(node, event);
                }
            }
            Happening::Submit { number } => self.submit(number),
            Happening::Cancel { number } => {
                self.cancelled.insert(number);
                self.cancel(number);
            }
            Happening::Discharge { node } => {
                self.discharge(node);
                if let Some(every) = self.scenario.discharge_every {
                    self.push(self.now + every, Happening::Discharge { node });
                }
            }
            Happening::Fault(fault) => self.strike(fault),
            Happening::Look => self.look(),
        }
    }

    fn look(&mut self) {
        self.tally_moment();
        let all_submitted = self.report.submitted == self.jobs.len() && self.now > self.submit_until;
        // With many nodes some fault is always under way.
        let faults_are_over = self.now >= self.scenario.faults_until || self.scenario.engine == Engine::Light;
        let is_late = faults_are_over && all_submitted;
        if !is_late || !self.ledger.is_at_rest() {
            self.rest_since = None;
        } else if self.rest_since.is_none() {
            self.rest_since = Some(self.now);
        }
        self.push(self.now + LOOK_EVERY, Happening::Look);
    }

    fn happen_to(&mut self, node: NodeIndex, event: Local) {
        match event {
            Local::Synced => self.synced(node),
            Local::Persisted(token) => self.tell_node(node, Event::Persisted(token)),
            Local::Wake => self.wake(node),
            Local::Fetching(attempt) => {
                self.tell_node(node, Event::Running { attempt, state: RunState::Fetching });
            }
            Local::Start { attempt, turn, tries } => self.start_attempt(node, attempt, turn, tries),
            Local::Finish { attempt, turn } => self.finish_attempt(node, attempt, turn),
            Local::Collect(attempt) => self.collect(node, attempt),
        }
    }

    fn synced(&mut self, index: NodeIndex) {
        let now = self.now;
        loop {
            let Some(node) = self.nodes.get_mut(index) else { return };
            let id = node.id;
            let Some((token, body)) = node.disk.synced(now) else { return };
            let record = match body {
                Body::Kept(bytes) => Record::decode(&bytes),
                Body::Passing(record) => Ok(*record),
            };
            match record {
                Ok(record) => {
                    if let Some(facts) = &mut self.facts {
                        facts.durable(now, &id, &record);
                    }
                    self.ledger.durable(now, index, &id, &record);
                }
                Err(error) => self.violated(Invariant::ReplayFollows, format!("node {index} wrote {error}")),
            }
            match self.scenario.engine {
                // Between the sync and the word of it a node may be killed, too.
                Engine::Exact => self.push_local(now + Micros(60), index, Local::Persisted(token)),
                Engine::Light => self.tell_node(index, Event::Persisted(token)),
            }
        }
    }

    fn arrive(&mut self, from: NodeIndex, to: NodeIndex, epoch: Option<u64>, packet: Packet) {
        let arrives = match epoch {
            Some(_) => self.network.epoch(Pair::of(from, to)) == epoch,
            None => true,
        };
        let Some(sender) = self.ids.get(from).copied() else { return };
        if !arrives || !self.network.passes(from, to) {
            return;
        }
        self.report.messages += 1;
        if let Some(heard) = self.report.heard.get_mut(to) {
            *heard = heard.saturating_add(1);
        }
        match packet.open() {
            Ok(message) => {
                self.tell(|_| format!("{from} > {to} {}", crate::trace::message(&message)));
                self.tell_node(to, Event::Message { from: sender, message });
            }
            Err(error) => self.violated(Invariant::MessagesFit, format!("{from} to {to}: {error}")),
        }
    }

    fn dialled(&mut self, pair: Pair, epoch: u64) {
        let [a, b] = pair.ends();
        match self.network.dialled(pair, epoch) {
            None => {}
            Some(Dialled::Failed(senders)) => {
                for node in senders {
                    let other = if node == a { b } else { a };
                    if let Some(peer) = self.ids.get(other).copied() {
                        self.tell_node(node, Event::SendFailed(peer));
                    }
                }
            }
            Some(Dialled::Up(held)) => {
                let p95 = souk_protocol::Millis(self.network.way(pair).to_millis().0 * 4 + 1);
                for (node, other) in [(a, b), (b, a)] {
                    let Some(peer) = self.ids.get(other).copied() else { continue };
                    self.tell_node(node, Event::PeerUp(peer));
                    self.tell_node(node, Event::Rtt { peer, p95 });
                }
                for (from, packet) in held {
                    let to = if from == a { b } else { a };
                    let sent = self.network.transmit(self.now, from, to);
                    self.travel(from, to, sent, packet);
                }
            }
        }
    }

    pub(crate) fn broken(&mut self, pair: Pair, epoch: u64) {
        let Some(swallowed) = self.network.broken(pair, epoch) else { return };
        let [a, b] = pair.ends();
        for (node, other) in [(a, b), (b, a)] {
            let Some(peer) = self.ids.get(other).copied() else { continue };
            self.tell_node(node, Event::PeerDown(peer));
            if swallowed.contains(&node) {
                self.tell_node(node, Event::SendFailed(peer));
            }
        }
    }

    fn submit(&mut self, number: usize) {
        let Some(planned) = self.jobs.get(number).cloned() else { return };
        let Some(renter) = self.ids.get(planned.renter).copied() else { return };
        if self.ledger.ended(&planned.job).is_none() {
            self.report.submitted = self.report.submitted.max(number + 1);
        }
        if self.submitted.insert(number) {
            self.listen(planned.renter);
        }
        self.ledger.submitted(renter, planned.job, &planned.spec);
        let mut spec = planned.spec;
        if self.scenario.broken == Some(Broken::BlindToBudget) {
            let told = Arc::make_mut(&mut spec);
            told.market.budget = told.market.budget.map(|budget| souk_protocol::Credits(budget.0.saturating_mul(10)));
        }
        self.tell(|_| format!("{} submits {number} {:?}", planned.renter, planned.job));
        self.tell_node(planned.renter, Event::Submit { job: planned.job, spec });
    }

    fn cancel(&mut self, number: usize) {
        let Some((renter, job)) = self.jobs.get(number).map(|planned| (planned.renter, planned.job)) else { return };
        self.tell(|_| format!("{renter} cancels {number}"));
        self.tell_node(renter, Event::Cancel { job });
    }

    /// Starts a node, again or for the first time. Its users say again what they want.
    pub(crate) fn start(&mut self, index: NodeIndex) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        if node.alive.is_some() {
            return;
        }
        let outcome = node.start(self.now, self.scenario, &mut self.dice);
        let policy = node.told_policy(self.scenario.broken);
        let boot = node.boot;
        self.tell(|_| format!("{index} starts for the {boot}. time"));
        let outcome = outcome
            .map_err(|error| Fault { invariant: Invariant::ReplayFollows, detail: format!("node {index}: {error}") });
        self.ledger.check(self.now, outcome);
        for (pair, epoch) in self.network.restart(index) {
            self.broken(pair, epoch);
        }
        self.tally_node(index, true);
        self.tell_node(index, Event::Policy(Box::new(policy)));
        self.tell_node(index, Event::Recovered);
        if boot > 1 {
            self.exchange_offers(index);
        } else if self.samples.is_none() {
            let at = self.now + self.dice.span(EXCHANGE.0, EXCHANGE.1);
            self.push(at, Happening::Exchange { node: index });
        }
        if boot == 1 {
            return; // nothing has been submitted yet
        }
        for number in self.jobs_of.get(&index).cloned().unwrap_or_default() {
            let due = |job: &Submission| job.at <= self.now && self.ledger.ended(&job.job).is_none();
            if self.jobs.get(number).is_some_and(due) {
                self.submit(number);
                if self.cancelled.contains(&number) {
                    self.cancel(number);
                }
            }
        }
    }
}
