//! The same demand and fleet under souk's own rules: every renter and every provider is a node with the machines of
//! `souk-matcher`, and nobody sees the whole.

use std::{collections::BTreeMap, sync::Arc};

use souk_protocol::{AttemptEnd, Bytes, Capacity, Credits, JobId, MilliCpu, Millis, Mode, PriceList, Rate, Tier};

use super::{
    demand::{ANYTHING, Demand, Fleet, MilliGpu, Request},
    measure::TIERS,
    story::{Stay, Story},
};
use crate::{
    facts::Facts,
    plan::{self, Conduct, Plan, PlannedJob},
    scenario::{Faults, Scenario, Workload},
    time::Micros,
    world::World,
};

/// Memory of a slot: next to nothing, GPUs are what is short.
const SLOT_MEMORY: Bytes = Bytes(1_000_000);
/// Memory and disk of a machine: never short.
const MEMORY: Bytes = Bytes(1_000_000_000_000);
/// Attempts of a job: nobody is given up for having been preempted.
const ATTEMPTS: u32 = 1_000;
/// The first job comes when nodes have heard of each other.
const SETTLE: Micros = Micros::millis(10_000);
/// What anybody may owe: credit is not what is studied.
const CREDIT: Credits = Credits::from_credits(1_000_000);
/// Longest virtual time of a run: beyond it something hangs.
const DURATION: Micros = Micros::millis(60 * 24 * 3_600_000);

/// Bronze jobs are told so long before they are stopped, in time of the demand.
const NOTICE: Millis = Millis(30_000);
/// Who waits for nothing waits for the answers all the same.
const ONE_TRY: Millis = Millis(5_000);

/// How the market is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Market {
    /// Nodes that rent. Jobs are dealt out among them.
    pub renters: usize,
    /// So many milliseconds of the demand pass in one of the market. Heartbeats, round trips and waits of the protocol
    /// take their real time, so they weigh this much more than they would: what is lost by them is overstated.
    pub pace: u64,
    /// Every other gold job is known so long ahead, in time of the demand, and reserved.
    pub ahead: Millis,
}

impl Default for Market {
    fn default() -> Self {
        Self { renters: 24, pace: 60, ahead: Millis(3_600_000) }
    }
}

/// Plays `demand` on `fleet` through the real machines, until everything has come to rest.
#[must_use]
pub fn souk(seed: u64, demand: &Demand, fleet: &Fleet, market: &Market) -> Story {
    let scenario = scenario(demand, fleet, market);
    let mut facts = Facts::default();
    let mut world = World::new(seed, &scenario, None);
    let ids: BTreeMap<JobId, usize> = world.jobs.iter().enumerate().map(|(number, job)| (job.job, number)).collect();
    world.facts = Some(&mut facts);
    let report = world.run();
    let mut story = Story::new("souk", demand.requests.len());
    story.nodes = scenario.nodes as u64;
    story.messages = facts.messages;
    story.conflicts = facts.declined;
    story.violations =
        report.violations.iter().map(|violation| format!("{}: {}", violation.invariant, violation.detail)).collect();
    let back = |at: Micros| Millis(at.since(SETTLE).0 * market.pace / 1_000);
    let first = scenario.nodes - scenario.providers;
    for ran in &facts.ran {
        let (Some(request), Some(machine)) = (ids.get(&ran.job).copied(), ran.node.checked_sub(first)) else {
            continue;
        };
        let gpu = demand.requests.get(request).map_or(MilliGpu(0), |request| request.gpu);
        let is_useful = ran.end == AttemptEnd::Done;
        let (from, to) = (back(ran.from), back(ran.to));
        story.stays.push(Stay { request, machine, gpu, from, to, is_useful });
        if let Some(fate) = story.fates.get_mut(request) {
            fate.start = Some(fate.start.map_or(from, |start| start.min(from)));
            fate.preempted += u32::from(ran.end == AttemptEnd::Preempted);
            if is_useful {
                fate.machine = Some(machine);
                fate.end = Some(to);
            }
        }
    }
    for (job, cost) in facts.costs() {
        if let Some(fate) = ids.get(&job).and_then(|request| story.fates.get_mut(*request)) {
            // The market's hour is `pace` hours of the demand.
            fate.paid = Credits(cost.saturating_mul(market.pace));
        }
    }
    story
}

fn scenario(demand: &Demand, fleet: &Fleet, market: &Market) -> Scenario {
    let machines: Vec<_> = fleet.machines.iter().map(machine).collect();
    let job = |(number, request)| job(number, request, market);
    let plan = Plan { machines, jobs: demand.requests.iter().enumerate().map(job).collect() };
    let smoke = Scenario::smoke();
    let mut params = smoke.params;
    (params.credit.stranger, params.credit.strangers) = (CREDIT, CREDIT);
    Scenario {
        name: "gpu-trace".to_owned(),
        nodes: market.renters + plan.machines.len(),
        renters: market.renters,
        providers: plan.machines.len(),
        workload: Workload::Plan(Arc::new(plan)),
        params,
        stranger_limit: CREDIT,
        discharge_every: None,
        faults: Faults::NONE,
        faults_until: Micros(0),
        duration: DURATION,
        ..smoke
    }
}

fn machine(machine: &super::Machine) -> plan::Machine {
    let price = |rate: Rate| PriceList { cpu: rate, memory_gb: Rate(0) };
    plan::Machine {
        total: Capacity { cpu: MilliCpu(machine.gpu.0), memory: MEMORY, disk: MEMORY },
        ask: price(machine.ask),
        floor: price(machine.floor),
        standing: true,
        tiers: TIERS.to_vec(),
        region: 0,
        owner_home: Vec::new(),
        conduct: Conduct::Honest,
    }
}

fn job(number: usize, request: &Request, market: &Market) -> PlannedJob {
    let scaled = |time: Millis| Micros(time.0 * 1_000 / market.pace.max(1));
    let need = Capacity { cpu: MilliCpu(request.gpu.0), memory: SLOT_MEMORY, disk: SLOT_MEMORY };
    let is_gold = request.tier == Tier::Gold;
    // Every other renter of gold knows ahead when it will want it.
    let ahead = if is_gold && number.is_multiple_of(2) { market.ahead.0.min(request.at.0) } else { 0 };
    let start_at = SETTLE + scaled(request.at);
    PlannedJob {
        tier: request.tier,
        // A run that takes exactly its limit is in time.
        limit: Millis(scaled(request.limit).to_millis().0 + 1),
        attempts: ATTEMPTS,
        mode: if is_gold { Mode::Auction } else { Mode::Auto },
        max_rate: (request.worth != ANYTHING)
            .then(|| Rate(request.worth.0.saturating_mul(request.gpu.0) / MilliGpu::ONE.0)),
        notice: scaled(NOTICE).to_millis(),
        start_at: (ahead > 0).then_some(start_at),
        start_within: request.patience.map(|patience| scaled(patience).to_millis().max(ONE_TRY)),
        ..PlannedJob::plain(
            number.checked_rem(market.renters).unwrap_or(0),
            SETTLE + scaled(Millis(request.at.0 - ahead)),
            need,
            vec![scaled(request.run)],
        )
    }
}
