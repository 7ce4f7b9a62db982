//! Which faults strike when: planned before a run begins.

use std::collections::BTreeSet;

use souk_protocol::Credits;

use crate::{
    network::{Cut, Network, NodeIndex},
    random::Dice,
    scenario::{CutSide, Scenario, Workload},
    time::Micros,
    world::{Happening, World},
};

/// A fault, or the end of one.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// A node is killed.
    Crash(NodeIndex, Micros),
    /// It comes back.
    Restart(NodeIndex),
    /// The network is cut.
    Cut(usize, Cut),
    /// And whole again.
    Heal(usize),
    /// Connections break, so many of those there are.
    Disconnect,
    /// A provider stops selling.
    Drain(NodeIndex),
    /// An owner takes its machine, or gives it back.
    Pause(NodeIndex, bool),
    /// A provider changes its terms.
    Policy(NodeIndex, u64),
    /// An owner comes home and wants the machine, or goes again.
    Owner(NodeIndex, bool),
    /// A wall clock jumps, by so many milliseconds.
    Jump(NodeIndex, i64),
    /// No more faults from now on.
    Calm,
}

/// All faults of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) faults: Vec<(Micros, Fault)>,
    /// Of each node's clock, in milliseconds.
    pub(crate) skews: Vec<i64>,
    /// Nodes that will be killed.
    pub(crate) crashes: BTreeSet<NodeIndex>,
}

/// The cuts at planned times, as faults.
pub(crate) fn cuts<M>(seed: u64, scenario: &Scenario, network: &Network<M>) -> Vec<(Micros, Fault)> {
    let mut dice = Dice::new(seed, "cuts");
    let mut faults = Vec::new();
    for (number, planned) in scenario.cuts.iter().enumerate() {
        let number = scenario.faults.cuts + number;
        let is_inside = |node| match planned.side {
            CutSide::Region(region) => network.place(node).is_some_and(|place| place.region == region),
            CutSide::Share(share) => dice.chance(share),
        };
        let cut = Cut { inside: (0..scenario.nodes).map(is_inside).collect(), one_way: planned.one_way };
        faults.push((planned.at, Fault::Cut(number, cut)));
        faults.push((planned.at + planned.length, Fault::Heal(number)));
    }
    faults
}

pub(crate) fn plan(seed: u64, scenario: &Scenario) -> Plan {
    let mut dice = Dice::new(seed, "faults");
    let kinds = scenario.faults;
    let until = scenario.faults_until;
    let nodes = scenario.nodes as u64;
    let mut faults = Vec::new();
    let node = |dice: &mut Dice, from: u64| usize::try_from(dice.between(from, nodes.saturating_sub(1))).unwrap_or(0);
    let first_provider = nodes.saturating_sub(scenario.providers as u64);
    for _ in 0..kinds.crashes {
        // Renters are few and their crashes teach the most.
        let victim = if dice.chance(400_000) {
            usize::try_from(dice.below(scenario.renters as u64)).unwrap_or(0)
        } else {
            node(&mut dice, 0)
        };
        let away = if dice.chance(600_000) { Micros::millis(5_000) } else { kinds.away.1 };
        let away = dice.span(kinds.away.0, away.max(kinds.away.0));
        faults.push((dice.span(Micros(0), until), Fault::Crash(victim, away)));
    }
    for number in 0..kinds.cuts {
        let at = dice.span(Micros(0), until);
        let share = *dice.pick(&[50_000, 200_000, 500_000]).unwrap_or(&50_000);
        let inside = (0..scenario.nodes).map(|_| dice.chance(share)).collect();
        let cut = Cut { inside, one_way: dice.chance(400_000) };
        let end = at + dice.span(Micros::millis(500), kinds.longest_cut);
        faults.push((at, Fault::Cut(number, cut)));
        faults.push((end.min(until), Fault::Heal(number)));
    }
    for _ in 0..kinds.disconnects {
        faults.push((dice.span(Micros(0), until), Fault::Disconnect));
    }
    for _ in 0..kinds.drains {
        faults.push((dice.span(Micros(0), until), Fault::Drain(node(&mut dice, first_provider))));
    }
    for _ in 0..kinds.owners {
        let (provider, at) = (node(&mut dice, first_provider), dice.span(Micros(0), until));
        let back = at + dice.span(Micros::millis(1_000), Micros::millis(40_000));
        faults.push((at, Fault::Pause(provider, true)));
        faults.push((back.min(until), Fault::Pause(provider, false)));
    }
    for variant in 0..kinds.policies {
        let provider = node(&mut dice, first_provider);
        faults.push((dice.span(Micros(0), until), Fault::Policy(provider, variant as u64 + 1)));
    }
    for _ in 0..kinds.jumps {
        let most = *dice.pick(&[1_000, 10_000, 3_600_000]).unwrap_or(&1_000);
        let by = i64::try_from(dice.below(most)).unwrap_or(0);
        let by = if dice.chance(500_000) { by } else { -by };
        faults.push((dice.span(Micros(0), until), Fault::Jump(node(&mut dice, 0), by)));
    }
    if let Some(churn) = &scenario.churn {
        // Renters stay: who has a job running is at the machine.
        for node in scenario.nodes.saturating_sub(scenario.providers).max(scenario.renters)..scenario.nodes {
            let mut dice = Dice::new(seed, &format!("churn {node}"));
            let absences = churn.absences(&mut dice, until);
            faults.extend(absences.into_iter().map(|(at, away)| (at, Fault::Crash(node, away.min(until.since(at))))));
        }
    }
    if let Workload::Plan(plan) = &scenario.workload {
        let first = scenario.nodes.saturating_sub(plan.machines.len());
        for (number, machine) in plan.machines.iter().enumerate() {
            let home = machine.owner_home.iter().filter(|(from, _)| *from < until);
            for (from, end) in home {
                faults.push((*from, Fault::Owner(first + number, true)));
                faults.push(((*end).min(until), Fault::Owner(first + number, false)));
            }
        }
    }
    let victim = |(_, fault): &(Micros, Fault)| if let Fault::Crash(node, _) = fault { Some(*node) } else { None };
    let crashes = faults.iter().filter_map(victim).collect();
    faults.push((until, Fault::Calm));
    Plan { faults, skews: skews(&mut dice, scenario), crashes }
}

fn skews(dice: &mut Dice, scenario: &Scenario) -> Vec<i64> {
    let most = scenario.faults.skew.0;
    let ordinary =
        |dice: &mut Dice| i64::try_from(dice.between(0, most * 2)).unwrap_or(0) - i64::try_from(most).unwrap_or(0);
    let mut skews: Vec<_> = (0..scenario.nodes).map(|_| ordinary(dice)).collect();
    for _ in 0..scenario.faults.bad_clocks {
        // Only of nodes that do nothing but sell: a renter with such a clock gets nothing, which is another test.
        let index = dice.between(scenario.renters as u64, (scenario.nodes as u64).saturating_sub(1));
        let far = i64::try_from(dice.between(3_000, 60_000)).unwrap_or(0);
        let far = if dice.chance(500_000) { far } else { -far };
        if let Some(skew) = usize::try_from(index).ok().and_then(|index| skews.get_mut(index)) {
            *skew = far;
        }
    }
    skews
}

impl World<'_> {
    pub(crate) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(node, away) => self.crash(node, away),
            Fault::Restart(node) => self.start(node),
            Fault::Cut(number, cut) => {
                self.tell(|_| {
                    let inside: Vec<_> = (0..cut.inside.len()).filter(|n| cut.inside.get(*n) == Some(&true)).collect();
                    format!("cut {number} one-way {} {inside:?}", cut.one_way)
                });
                self.network.cut(number, cut);
            }
            Fault::Heal(number) => {
                self.tell(|_| format!("heal {number}"));
                self.network.heal(number);
            }
            Fault::Disconnect => {
                let all = self.network.all();
                if let Some((pair, epoch)) = self.dice.pick(&all).copied() {
                    self.tell(|_| format!("disconnect {pair:?}"));
                    self.broken(pair, epoch);
                }
            }
            Fault::Drain(node) => {
                self.tell(|_| format!("{node} drains"));
                self.tell_node(node, souk_matcher::Event::Drain);
            }
            Fault::Pause(node, paused) => {
                self.tell(|_| format!("{node} is {}", if paused { "taken by its owner" } else { "given back" }));
                let event = if paused { souk_matcher::Event::Pause } else { souk_matcher::Event::Resume };
                self.tell_node(node, event);
            }
            Fault::Policy(index, variant) => {
                let policy = crate::workload::policy(self.seed, self.scenario, index, variant);
                let Some(node) = self.nodes.get_mut(index) else { return };
                node.policy = policy;
                let told = node.told_policy(self.scenario.broken);
                self.tell_node(index, souk_matcher::Event::Policy(Box::new(told)));
                let renter = usize::try_from(self.dice.below(self.scenario.renters as u64)).unwrap_or(0);
                if let Some(peer) = self.ids.get(renter).copied() {
                    let limit = Credits(self.scenario.stranger_limit.0.saturating_mul(10));
                    self.tell_node(index, souk_matcher::Event::Trust { peer, limit });
                }
            }
            Fault::Owner(node, is_home) => {
                self.tell(|_| format!("the owner of {node} {}", if is_home { "comes home" } else { "goes" }));
                self.tally_node(node, !is_home);
                let event = if is_home { souk_matcher::Event::Pause } else { souk_matcher::Event::Resume };
                self.tell_node(node, event);
            }
            Fault::Jump(index, by) => {
                self.tell(|_| format!("{index}'s clock jumps by {by} ms"));
                if let Some(node) = self.nodes.get_mut(index) {
                    node.skew = node.skew.saturating_add(by);
                }
            }
            Fault::Calm => {
                self.tell(|_| "calm".to_owned());
                self.is_calm = true;
                self.network.calm();
            }
        }
    }

    fn crash(&mut self, index: NodeIndex, away: Micros) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(index) else { return };
        let Some(alive) = node.alive.take() else { return };
        self.report.crashes += 1;
        for (attempt, ran) in alive.executor.attempts(now) {
            self.ledger.ran(attempt, ran, false);
        }
        self.tally_lost(index, &alive.executor.busy(now));
        self.tally_node(index, false);
        self.lose_unsynced(index);
        self.tell(|_| format!("{index} crashes, back in {away}"));
        for (pair, epoch) in self.network.crash(index) {
            let quick = self.dice.chance(500_000);
            let after = if quick { Micros::millis(200) } else { Micros::millis(10_000) };
            let at = now + self.dice.span(Micros(0), after);
            self.push(at, Happening::Broken { pair, epoch });
        }
        self.push(now + away, Happening::Fault(Fault::Restart(index)));
    }

    fn lose_unsynced(&mut self, index: NodeIndex) {
        let Some(node) = self.nodes.get_mut(index) else { return };
        let id = node.id;
        let kept = usize::try_from(self.dice.between(0, node.disk.pending() as u64)).unwrap_or(0);
        let kept = node.disk.crash(kept);
        let from = node.disk.records().len().saturating_sub(kept);
        for bytes in node.disk.records().iter().skip(from) {
            if let Ok(record) = souk_matcher::Record::decode(bytes) {
                self.ledger.durable(self.now, index, &id, &record);
            }
        }
        if let Some(crate::scenario::Broken::LyingDisk { records }) = self.scenario.broken {
            node.disk.forget_newest(records);
        }
    }
}
