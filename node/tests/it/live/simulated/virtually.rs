//! The market in the simulator.

use std::sync::Arc;

use souk_sim::{Discovery, End, Engine, Latency, Micros, Plan, PlannedJob, Regions, Scenario, Workload};

use super::{
    came::{Came, Job, Lease},
    market::{Market, RENTERS},
    real::Did,
};

/// One way between two processes of a machine: half of a round trip as `docs/benchmarks.md` has it.
const LOOPBACK: Micros = Micros(170);
/// Rounds are so far apart that every node has heard of all machines, even of those whose news it missed at first.
const ROUND: Micros = Micros::millis(120_000);

/// Runs it with the rules of the real network and with users that do what the real ones did.
pub(super) fn run(market: &Market, did: &Did) -> Came {
    let mut jobs = Vec::new();
    let mut done = did.jobs.iter();
    for (number, round) in (1..).zip(&market.rounds) {
        let mut first = None;
        for (wish, did) in round.iter().zip(&mut done) {
            let began = *first.get_or_insert(did.submitted);
            let at = Micros(ROUND.0 * number) + Micros::from(did.submitted.saturating_since(began));
            let whole = Micros::from(did.ended.saturating_since(did.submitted));
            jobs.push(PlannedJob { at, cancel_at: wish.is_cancelled.then_some(at + whole), ..wish.job.clone() });
        }
    }
    let submitted: Vec<Micros> = jobs.iter().map(|job| job.at).collect();
    let machines = market.machines.clone();
    let scenario = Scenario {
        name: "against real nodes".to_owned(),
        nodes: RENTERS + machines.len(),
        renters: RENTERS,
        providers: machines.len(),
        workload: Workload::Plan(Arc::new(Plan { machines, jobs })),
        latency: Latency::Regions(Arc::new(Regions::single(LOOPBACK))),
        discovery: Discovery::Gossip,
        engine: Engine::Exact,
        params: did.params,
        stranger_limit: did.params.credit.stranger,
        duration: Micros(ROUND.0 * (market.rounds.len() as u64 + 2)),
        ..Scenario::smoke()
    };
    let report = souk_sim::run(1, &scenario);
    assert!(report.holds(), "{report}");
    let outcome = report.outcome.unwrap();
    let came = |number: usize| {
        let (job, at) = (&outcome.jobs[number], submitted[number]);
        let leases = outcome.leases.iter().filter(|lease| lease.job == number);
        Job {
            end: word(job.end).to_owned(),
            done: u64::from(job.done),
            attempts: u64::from(job.attempts),
            leases: leases
                .map(|lease| Lease {
                    provider: lease.machine,
                    rate: lease.rate,
                    billed: u64::from(lease.billed),
                    run_ms: lease.run.0,
                    paid: lease.paid.0,
                    receipt: lease.receipt,
                })
                .collect(),
            cost: job.cost.0,
            wait_ms: job.started.map(|started| started.since(at).to_millis().0),
            whole_ms: job.ended.unwrap().since(at).to_millis().0,
        }
    };
    Came {
        jobs: (0..outcome.jobs.len()).map(came).collect(),
        earned: outcome.machines.iter().map(|machine| machine.income.0).collect(),
        heard: report.heard.iter().map(|heard| u64::from(*heard)).collect(),
    }
}

/// As a node says it.
fn word(end: End) -> &'static str {
    match end {
        End::Open => "open",
        End::Succeeded => "succeeded",
        End::Failed => "failed",
        End::Cancelled => "cancelled",
        End::Expired => "expired",
    }
}
