//! Carries out what the rules answer: writes, sends, runs, collects.

use std::sync::Arc;

use souk_matcher::{Event, LeaseView, Notice, Output, Record, Token};
use souk_protocol::{
    AttemptEnd, AttemptId, Control, Credits, Discharge, JobId, LeaseEnd, Message, Millis, NodeId, Party, RunState,
    Signed, TaskResult, Work,
};

use crate::{
    disk::Body,
    invariant::{self, Invariant},
    network::{NodeIndex, Pair, Sent},
    node::Collecting,
    packet::Packet,
    scenario::{Broken, Engine},
    time::Micros,
    workload,
    world::{Happening, Local, World},
};

/// How often a fetch of inputs is tried, once a second, before the attempt fails for want of them.
const FETCH_TRIES: u32 = 15;
/// How long outputs are tried to be collected without progress: the network's `lease_grace`.
const COLLECT_FOR: Micros = Micros::millis(60_000);
/// Longest time that the end of a killed process takes.
const KILLED: Micros = Micros::millis(20);
/// How often a disk stalls, in millionths of its syncs, and for how long at most.
const STALLS: (u32, Micros) = (3_000, Micros::millis(2_500));

impl World<'_> {
    pub(crate) fn carry_out(&mut self, node: NodeIndex, outputs: Vec<Output>) {
        for output in outputs {
            self.carry_out_one(node, output);
        }
    }

    fn carry_out_one(&mut self, node: NodeIndex, output: Output) {
        match output {
            Output::Persist { record, token } => self.persist(node, &record, token),
            Output::Send { to, message } => self.send(node, &to, message),
            Output::Offer(offer) => self.offer(node, offer),
            Output::Blame { peer, fault } => {
                let peer = self.index(&peer);
                self.tell(|_| format!("{node} blames {peer:?}: {fault}"));
                if peer.is_none() || peer != self.scenario.liar() {
                    self.violated(Invariant::NobodyIsBlamed, format!("node {node} blames {peer:?}: {fault}"));
                }
            }
            Output::OpenLease(lease) => self.open_lease(node, lease),
            Output::Run { renter, work } => self.run_attempt(node, renter, work),
            Output::Stop { attempt, end, grace } => self.stop_attempt(node, attempt, end, grace),
            Output::CloseLease { lease } => {
                self.tell(|_| format!("{node} closes {lease:?}"));
                let Some(alive) = self.nodes.get_mut(node).and_then(|node| node.alive.as_mut()) else { return };
                let outcome = alive.executor.close(&lease);
                self.ledger.check(self.now, outcome);
            }
            Output::Forget { lease } => {
                if let Some(node) = self.nodes.get_mut(node) {
                    node.outputs.retain(|attempt| attempt.lease != lease);
                }
            }
            Output::Collect { provider, result } => self.begin_collecting(node, &provider, &result),
            Output::Abandon { attempt } => {
                if let Some(alive) = self.nodes.get_mut(node).and_then(|node| node.alive.as_mut()) {
                    alive.collecting.remove(&attempt);
                }
            }
            Output::Notify(notice) => self.notice(node, &notice),
            // Who may fetch what is the data plane's concern.
            _ => {}
        }
    }

    fn notice(&mut self, node: NodeIndex, notice: &Notice) {
        match notice {
            Notice::Auction { .. } => self.report.auctions += 1,
            // A renter says this of an award that was declined or not answered.
            Notice::LeaseEnded { side: Party::Renter, end: LeaseEnd::Expired, by: Party::Provider, .. } => {
                self.report.refused += 1;
            }
            Notice::Job { state, .. } if state.is_final() => self.stop_listening(node),
            _ => {}
        }
        self.tell(|_| format!("{node} {}", crate::trace::notice(notice)));
    }

    fn persist(&mut self, index: NodeIndex, record: &Record, token: Token) {
        let now = self.now;
        self.tell(|_| format!("{index} writes {}", crate::trace::record(record)));
        let keeps = self.scenario.engine == Engine::Exact || self.nodes.get(index).is_some_and(|node| node.keeps);
        let body = if keeps {
            match record.encode() {
                Ok(bytes) => Body::Kept(bytes),
                Err(error) => return self.violated(Invariant::MessagesFit, format!("node {index} writes {error}")),
            }
        } else {
            Body::Passing(Box::new(record.clone()))
        };
        match &body {
            Body::Kept(bytes) => self.log(1, index, bytes),
            Body::Passing(_) => self.log(1, index, &token.0.to_le_bytes()),
        }
        self.report.records += 1;
        let slowest = if self.is_calm { Micros::millis(5) } else { self.scenario.faults.slowest_sync };
        let stalls = !self.is_calm && slowest > Micros::millis(5) && self.dice.chance(STALLS.0);
        // Most syncs are quick.
        let most = match (stalls, self.dice.chance(900_000)) {
            (true, _) => STALLS.1,
            (false, true) => Micros::millis(5),
            (false, false) => slowest,
        };
        let delay = self.dice.span(Micros(300), most);
        let Some(node) = self.nodes.get_mut(index) else { return };
        let at = node.disk.write(now, delay, token, body);
        let id = node.id;
        let Some(alive) = &mut node.alive else { return };
        alive.credit.note(&id, record);
        if self.scenario.broken == Some(Broken::SpeaksBeforeJournal) {
            let clocks = node.clocks(now);
            let Some(alive) = &mut node.alive else { return };
            let outputs = alive.trader.handle(Event::Persisted(token), clocks);
            self.carry_out(index, outputs);
        }
        self.push_local(at, index, Local::Synced);
    }

    fn send(&mut self, from: NodeIndex, to: &NodeId, message: Message) {
        self.ledger.said(self.now, from, &message);
        let Some(to) = self.index(to) else { return };
        if self.withholds(from, &message) {
            return;
        }
        if let Some(facts) = &mut self.facts {
            facts.said(&message);
        }
        if matches!(message, Message::Award { .. }) {
            self.report.awards += 1;
        }
        let packet = match self.scenario.engine {
            Engine::Light => {
                self.log(2, from, &(to as u64).to_le_bytes());
                Packet::Value(Arc::new(message))
            }
            Engine::Exact => match message.encode() {
                Ok(bytes) => {
                    self.log(2, from, &bytes);
                    Packet::Bytes(Arc::new(bytes))
                }
                Err(error) => return self.violated(Invariant::MessagesFit, format!("node {from} sends {error}")),
            },
        };
        let (sent, packet) = self.network.send(self.now, from, to, packet);
        match (sent, packet) {
            (Sent::Dials { at, epoch }, _) => self.push(at, Happening::Dialled { pair: Pair::of(from, to), epoch }),
            (Sent::Breaks { at, epoch }, _) => self.push(at, Happening::Broken { pair: Pair::of(from, to), epoch }),
            (sent, Some(packet)) => self.travel(from, to, sent, packet),
            _ => {}
        }
    }

    /// Whether this node never says such a thing: a deadbeat its payments, a silent provider its results.
    fn withholds(&self, from: NodeIndex, message: &Message) -> bool {
        let Message::Lease(frame) = message else { return false };
        match frame.body {
            Control::Done { .. } | Control::Refused { .. } => self.scenario.is_deadbeat(from),
            Control::Result(_) => self.scenario.is_silent(from),
            _ => false,
        }
    }

    /// A liar says to somebody what it has heard somewhere.
    pub(crate) fn lie(&mut self, from: NodeIndex, packet: Packet) {
        if self.is_calm || !self.dice.chance(self.scenario.faults.lies) {
            return;
        }
        let to = usize::try_from(self.dice.below(from as u64)).unwrap_or(0);
        let at = self.now + self.dice.span(Micros(0), Micros::millis(20_000));
        self.push(at, Happening::Arrive { from, to, epoch: None, packet });
    }

    pub(crate) fn travel(&mut self, from: NodeIndex, to: NodeIndex, sent: Sent, packet: Packet) {
        if let Sent::Arrives { at, epoch, again } = sent {
            if let Some(again) = again {
                self.push(again, Happening::Arrive { from, to, epoch: None, packet: packet.clone() });
            }
            self.push(at, Happening::Arrive { from, to, epoch: Some(epoch), packet });
        }
    }

    fn open_lease(&mut self, index: NodeIndex, lease: LeaseView) {
        let job = lease.job;
        self.tell(|world| {
            let number = world.numbers.get(&job);
            format!(
                "{index} opens {:?} for {:?} job {number:?} slots {}",
                lease.lease,
                world.index(&lease.peer),
                lease.slots
            )
        });
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else { return };
        let (wall, up_since) = (node.wall(now), node.up_since());
        let Some(alive) = &mut node.alive else { return };
        self.report.reservations += u64::from(self.ledger.lease_begins(now, &lease.lease, wall, up_since));
        let outcome = alive.executor.open(lease, &node.policy.total);
        self.ledger.check(self.now, outcome);
    }

    fn run_attempt(&mut self, index: NodeIndex, renter: NodeId, work: Work) {
        let (now, attempt) = (self.now, work.attempt);
        self.tell(|_| format!("{index} runs {attempt}"));
        self.report.attempts += 1;
        self.ledger.begun(now, attempt, self.nodes.get(index).map_or(0, |node| node.boot));
        let number = self.numbers.get(&work.job).copied();
        self.tally_attempt(number);
        let fate = workload::fate(self.seed, self.scenario, &work.job, number, &attempt);
        let Some(node) = self.nodes.get_mut(index) else { return };
        let limit = node.policy.stranger_limit;
        let Some(alive) = &mut node.alive else { return };
        let due = alive.executor.run(now, renter, work, fate);
        let (owed, running) = alive.credit.exposure(&renter, alive.executor.running());
        let limit = alive.credit.limit(&renter, limit);
        self.ledger.check(now, invariant::within_exposure(owed, running, limit));
        match due {
            Ok(due) => {
                self.push_local(now + Micros(50), index, Local::Fetching(attempt));
                self.push_local(due.at, index, Local::Start { attempt, turn: due.turn, tries: 0 });
            }
            Err(fault) => self.ledger.check(now, Err(fault)),
        }
    }

    pub(crate) fn start_attempt(&mut self, index: NodeIndex, attempt: AttemptId, turn: u32, tries: u32) {
        let now = self.now;
        let alive = self.nodes.get(index).and_then(|node| node.alive.as_ref());
        let Some(renter) = alive.and_then(|alive| alive.executor.fetches(&attempt, turn)) else { return };
        let reachable = self
            .index(&renter)
            .is_some_and(|renter| self.network.passes(renter, index) && self.network.passes(index, renter));
        if !reachable && tries < FETCH_TRIES {
            return self.push_local(
                now + Micros::millis(1_000),
                index,
                Local::Start { attempt, turn, tries: tries + 1 },
            );
        }
        let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) else { return };
        if !reachable {
            alive.executor.input_failed(&attempt);
        }
        let (job, cores) = alive.executor.waiting(&attempt).unwrap_or((JobId([0; 32]), 0));
        if workload::fails(self.seed, self.scenario, index, &attempt, cores, &alive.executor.busy(now)) {
            alive.executor.spoil(&attempt);
        }
        let Some(due) = alive.executor.start(now, &attempt) else { return };
        self.tally_begins(self.numbers.get(&job).copied(), cores);
        self.push_local(due.at, index, Local::Finish { attempt, turn: due.turn });
        if reachable {
            self.tell_node(index, Event::Running { attempt, state: RunState::Running });
        }
    }

    fn stop_attempt(&mut self, index: NodeIndex, attempt: AttemptId, end: AttemptEnd, grace: Millis) {
        self.tell(|_| format!("{index} stops {attempt} as {end}"));
        // As in a node, what its renter cancels is killed at once; the grace is for what others stop.
        let longest = if end == AttemptEnd::Cancelled { KILLED } else { Micros::from(grace) };
        let (now, at) = (self.now, self.now + self.dice.span(Micros(100), longest));
        let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) else { return };
        if let (AttemptEnd::Preempted, Some(ran)) = (end, alive.executor.ran(now, &attempt)) {
            self.report.preemptions += u64::from(self.ledger.preempted(now, &attempt, ran));
        }
        if let Some(due) = alive.executor.stop(&attempt, end, at) {
            self.push_local(due.at, index, Local::Finish { attempt, turn: due.turn });
        }
    }

    pub(crate) fn finish_attempt(&mut self, index: NodeIndex, attempt: AttemptId, turn: u32) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else { return };
        let wall = node.wall(now);
        let Some(alive) = &mut node.alive else { return };
        let Some(mut ended) = alive.executor.finish(now, wall, &attempt, turn) else { return };
        if ended.has_outputs {
            node.outputs.insert(attempt);
        }
        self.ledger.ran(attempt, ended.outcome.run, ended.has_outputs);
        if let Some(facts) = &mut self.facts {
            facts.ran(now, index, ended.job, ended.outcome.run, ended.outcome.end);
        }
        self.tally_ends(index, self.numbers.get(&ended.job).copied(), &ended);
        self.tell(|_| format!("{index} ends {attempt} {} after {} ms", ended.outcome.end, ended.outcome.run.0));
        if self.scenario.broken == Some(Broken::Overclaims) {
            ended.outcome.run = Millis(ended.outcome.run.0.saturating_mul(2));
        }
        self.tell_node(index, Event::Ended { attempt, outcome: ended.outcome });
    }

    fn begin_collecting(&mut self, index: NodeIndex, provider: &NodeId, result: &TaskResult) {
        let Some(provider) = self.index(provider) else { return };
        let (now, attempt) = (self.now, result.attempt);
        let has_outputs = result.files > 0 || result.stdout.len > 0 || result.stderr.len > 0;
        let way = self.network.way(Pair::of(index, provider));
        let at = now + self.network.throw(way) + self.network.throw(way);
        let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) else { return };
        alive.collecting.insert(attempt, Collecting { provider, since: now, has_outputs });
        self.push_local(at, index, Local::Collect(attempt));
    }

    pub(crate) fn collect(&mut self, index: NodeIndex, attempt: AttemptId) {
        let now = self.now;
        let alive = self.nodes.get(index).and_then(|node| node.alive.as_ref());
        let Some(Collecting { provider, since, has_outputs }) =
            alive.and_then(|alive| alive.collecting.get(&attempt)).copied()
        else {
            return;
        };
        let reachable = self.network.passes(provider, index) && self.network.passes(index, provider);
        let there = self.nodes.get(provider).is_some_and(|node| node.outputs.contains(&attempt));
        let spoilt = has_outputs && !self.is_calm && self.dice.chance(self.scenario.faults.uncollectable);
        let lies = self.scenario.broken == Some(Broken::SaysHeld);
        let event = if lies {
            Event::Held { attempt }
        } else if spoilt {
            Event::NotHeld { attempt, reason: "wrong hash".to_owned() }
        } else if reachable && there || !has_outputs {
            self.ledger.held(attempt);
            Event::Held { attempt }
        } else if reachable {
            Event::NotHeld { attempt, reason: "missing".to_owned() }
        } else if now.since(since) > COLLECT_FOR {
            Event::NotHeld { attempt, reason: "no progress".to_owned() }
        } else {
            return self.push_local(now + Micros::millis(1_000), index, Local::Collect(attempt));
        };
        if let Some(alive) = self.nodes.get_mut(index).and_then(|node| node.alive.as_mut()) {
            alive.collecting.remove(&attempt);
        }
        self.tell_node(index, event);
    }

    /// A provider signs that what its renters vouchered so far was paid.
    pub(crate) fn discharge(&mut self, index: NodeIndex) {
        let Some(node) = self.nodes.get(index) else { return };
        let Some(alive) = &node.alive else { return };
        let (creditor, key, wall) = (node.id, Arc::clone(&node.key), node.wall(self.now));
        for (debtor, amount) in alive.credit.undischarged() {
            if amount == Credits(0) {
                continue;
            }
            let discharge = Discharge { creditor, debtor, nonce: self.dice.bytes(), amount, at: wall };
            let Ok(signed) = Signed::sign(&discharge, &*key) else { continue };
            self.report.discharges += 1;
            if let Some(debtor) = self.index(&debtor) {
                self.tell_node(debtor, Event::Discharge(signed.clone()));
            }
            self.tell_node(index, Event::Discharge(signed));
        }
    }
}
