//! One node: the rules, and around them what a real node has: a clock, a disk, a machine, an offer table.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use souk_matcher::{Keep, Now, Policy, Record, Settings, Trader};
use souk_protocol::{AttemptId, Millis, NetworkId, NodeId, Offer, Timestamp, Verified};

use crate::{
    credit::Credit,
    disk::Disk,
    executor::Executor,
    keys::SimKey,
    network::NodeIndex,
    random::Dice,
    scenario::{Broken, Engine, RecordKind, Scenario},
    time::Micros,
    workload::EPOCH,
};

/// What nodes keep where there are many of them: all their leases, for providers come back after hours, but nothing that
/// only a user would ask for.
const KEPT: Keep = Keep { jobs: 4, leases: 4_096, results: 0 };

/// A node of the simulation. What a crash takes is in `Running` fields of its own; the rest is on disk.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: NodeId,
    pub(crate) key: Arc<SimKey>,
    /// Wall clock minus true time, in milliseconds.
    pub(crate) skew: i64,
    pub(crate) boot: u64,
    /// Whether its journal will be read again.
    pub(crate) keeps: bool,
    /// On disk.
    pub(crate) disk: Disk,
    /// Outputs and logs of ended attempts, on disk.
    pub(crate) outputs: BTreeSet<AttemptId>,
    /// What the owner really sells.
    pub(crate) policy: Policy,
    /// In memory; none while the node is down.
    pub(crate) alive: Option<Alive>,
}

/// What a crash takes.
#[derive(Debug)]
pub(crate) struct Alive {
    pub(crate) trader: Trader,
    since: Micros,
    origin: u64,
    pub(crate) wake: Option<Micros>,
    pub(crate) spins: u32,
    pub(crate) executor: Executor,
    pub(crate) credit: Credit,
    pub(crate) offers: BTreeMap<NodeId, Arc<Verified<Offer>>>,
    pub(crate) collecting: BTreeMap<AttemptId, Collecting>,
}

/// Outputs on their way to a renter.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Collecting {
    pub(crate) provider: NodeIndex,
    pub(crate) since: Micros,
    pub(crate) has_outputs: bool,
}

impl Node {
    /// Starts the node on what its disk holds. Answers what the replay said.
    pub(crate) fn start(&mut self, now: Micros, scenario: &Scenario, dice: &mut Dice) -> Result<(), String> {
        self.boot += 1;
        let mut params = scenario.params;
        if scenario.broken == Some(Broken::BlindToCredit) {
            params.credit.stranger.0 = params.credit.stranger.0.saturating_mul(1_000);
        }
        let keep = if scenario.engine == Engine::Light { KEPT } else { Keep::default() };
        let settings =
            Settings { network: NetworkId([7; 32]), params, open: true, boot: self.boot, seed: dice.bytes(), keep };
        let mut trader = Trader::new(settings, self.key.clone());
        let mut credit = Credit::default();
        let mut outcome = Ok(());
        for bytes in self.disk.records() {
            let record = match Record::decode(bytes) {
                Ok(record) => record,
                Err(error) => {
                    outcome = Err(error.to_string());
                    continue;
                }
            };
            credit.note(&self.id, &record);
            if matches!(scenario.broken, Some(Broken::ReplaySkips(kind)) if kind.is(&record)) {
                continue;
            }
            if let Err(error) = trader.apply(&record) {
                outcome = Err(error.to_string());
            }
        }
        self.alive = Some(Alive {
            trader,
            since: now,
            origin: dice.below(1_000_000_000),
            wake: None,
            spins: 0,
            executor: Executor::default(),
            credit,
            offers: BTreeMap::new(),
            collecting: BTreeMap::new(),
        });
        outcome
    }

    /// What the node's wall clock says.
    pub(crate) fn wall(&self, now: Micros) -> Timestamp {
        Timestamp(EPOCH.0.saturating_add(now.to_millis().0).saturating_add_signed(self.skew))
    }

    /// Since when it has been up, by its wall clock.
    pub(crate) fn up_since(&self) -> Timestamp {
        self.wall(self.alive.as_ref().map_or(Micros(0), |alive| alive.since))
    }

    /// Both clocks. A node that is down has no monotonic one.
    pub(crate) fn clocks(&self, now: Micros) -> Now {
        let mono = self.alive.as_ref().map_or(0, |alive| alive.origin + now.since(alive.since).to_millis().0);
        Now { wall: self.wall(now), mono: Millis(mono) }
    }

    /// Terms as the rules are told them.
    pub(crate) fn told_policy(&self, broken: Option<Broken>) -> Policy {
        let mut policy = self.policy.clone();
        match broken {
            Some(Broken::Oversells) => {
                policy.total.cpu.0 = policy.total.cpu.0.saturating_mul(2);
                policy.total.memory.0 = policy.total.memory.0.saturating_mul(2);
            }
            Some(Broken::BlindToCredit) => policy.stranger_limit.0 = policy.stranger_limit.0.saturating_mul(1_000),
            _ => {}
        }
        policy
    }
}

impl Alive {
    /// The moment at which the monotonic clock of this run shows `mono`.
    pub(crate) fn moment(&self, mono: Millis) -> Micros {
        self.since + Micros::millis(mono.0.saturating_sub(self.origin))
    }
}

impl RecordKind {
    /// Whether `record` is of this kind.
    #[must_use]
    pub const fn is(self, record: &Record) -> bool {
        match self {
            Self::Accepted => matches!(record, Record::Accepted { .. }),
            Self::Result => matches!(record, Record::Result { .. }),
            Self::Delivered => matches!(record, Record::Delivered { .. }),
            Self::Settled => matches!(record, Record::Settled { .. }),
            Self::Lease => matches!(record, Record::Lease { .. }),
            Self::JobEnded => matches!(record, Record::JobEnded { .. }),
        }
    }
}
