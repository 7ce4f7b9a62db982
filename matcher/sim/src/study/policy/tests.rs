use souk_protocol::{Credits, Tier};

use super::*;
use crate::study::{demand::LeftOut, demand::Values, measure::Figures, synthetic};

const MINUTE: u64 = 60_000;

fn request(at: u64, gpu: u64, minutes: u64) -> Request {
    let run = Millis(minutes * MINUTE);
    Request {
        at: Millis(at * MINUTE),
        tier: Tier::Silver,
        gpu: MilliGpu(gpu),
        run,
        limit: run,
        worth: Rate(1_000),
        patience: None,
    }
}

fn fleet(machines: &[(u64, u64)]) -> Fleet {
    let machine = |(gpus, ask): &(u64, u64)| Machine {
        model: String::new(),
        gpu: MilliGpu(gpus * 1_000),
        floor: Rate(*ask / 2),
        ask: Rate(*ask),
    };
    Fleet { source: String::new(), machines: machines.iter().map(machine).collect() }
}

fn demand(requests: Vec<Request>) -> Demand {
    Demand { source: String::new(), requests, left_out: LeftOut::default() }
}

/// Minutes at which each job started, and on which machine.
fn starts(story: &Story) -> Vec<Option<(u64, usize)>> {
    story.fates.iter().map(|fate| Some((fate.start?.0 / MINUTE, fate.machine?))).collect()
}

/// Four jobs on a machine of two GPUs: the second is wide and must wait for the first.
fn line() -> Demand {
    demand(vec![request(0, 1_000, 10), request(1, 2_000, 5), request(2, 1_000, 8), request(3, 1_000, 4)])
}

#[test]
fn in_fifo_nobody_overtakes_the_head_of_the_line() {
    let story = play(&line(), &fleet(&[(2, 100)]), &mut Fifo);
    assert_eq!(starts(&story), [Some((0, 0)), Some((10, 0)), Some((15, 0)), Some((15, 0))]);
    assert_eq!(story.fates[0].paid, Credits(17)); // 100 for an hour, 10 minutes, rounded up
}

#[test]
fn easy_lets_those_overtake_who_will_be_gone_in_time() {
    let story = play(&line(), &fleet(&[(2, 100)]), &mut Easy::default());
    // The third would end at 10 and does; the fourth cannot before.
    assert_eq!(starts(&story), [Some((0, 0)), Some((10, 0)), Some((2, 0)), Some((15, 0))]);
}

#[test]
fn easy_goes_by_what_owners_say_unless_it_knows_better() {
    let mut all = line();
    all.requests[2].limit = Millis(40 * MINUTE);
    let story = play(&all, &fleet(&[(2, 100)]), &mut Easy::default());
    assert_eq!(starts(&story), [Some((0, 0)), Some((10, 0)), Some((15, 0)), Some((3, 0))]);
    let story = play(&all, &fleet(&[(2, 100)]), &mut Easy { knows_runs: true });
    assert_eq!(starts(&story)[2], Some((2, 0)));
}

#[test]
fn the_cheapest_machine_is_taken_first_and_the_wide_job_waits_for_whoever_passes_by() {
    let story = play(&line(), &fleet(&[(2, 300), (1, 100)]), &mut Cheapest);
    assert_eq!(starts(&story), [Some((0, 1)), Some((1, 0)), Some((6, 0)), Some((6, 0))]);
    assert_eq!(story.fates[1].paid, Credits(50));
}

#[test]
fn at_a_fixed_price_the_poor_and_the_dear_stay_away() {
    let mut all = line();
    all.requests[1].worth = Rate(150);
    // At 200 the machine of 500 does not sell (its floor is 250), and the second renter does not buy.
    let story = play(&all, &fleet(&[(2, 500), (2, 100)]), &mut FixedPrice(Rate(200)));
    assert_eq!(starts(&story), [Some((0, 1)), None, Some((2, 1)), Some((10, 1))]);
    assert_eq!(story.fates[2].paid, Credits(27)); // 8 minutes at 200, rounded up
}

#[test]
fn the_best_price_is_the_one_that_takes_most() {
    let mut all = line();
    for (request, worth) in all.requests.iter_mut().zip([100, 300, 320, 900]) {
        (request.gpu, request.run, request.worth) = (MilliGpu(1_000), Millis(MINUTE), Rate(worth));
    }
    // 300 from three of them is more than 900 from one.
    assert_eq!(best_price(&all, &fleet(&[(4, 20)])), Rate(300));
    // With room for one alone, the most that one pays: over three minutes a third of a GPU is a job.
    all.requests[3].run = Millis(3 * MINUTE);
    assert_eq!(best_price(&all, &fleet(&[(1, 20)])), Rate(900));
}

#[test]
fn who_waits_for_nothing_leaves_and_those_behind_move_up() {
    let mut all = line();
    all.requests[1].patience = Some(Millis(3 * MINUTE));
    let story = play(&all, &fleet(&[(2, 100)]), &mut Fifo);
    assert_eq!(starts(&story), [Some((0, 0)), None, Some((4, 0)), Some((10, 0))]);
}

/// Busy GPUs never exceed a machine's, whatever the policy.
fn nothing_oversold(demand: &Demand, fleet: &Fleet, story: &Story) {
    for (number, machine) in fleet.machines.iter().enumerate() {
        let mut changes: Vec<(Millis, i64)> = Vec::new();
        for stay in story.stays.iter().filter(|stay| stay.machine == number) {
            let gpu = i64::try_from(stay.gpu.0).unwrap();
            changes.extend([(stay.from, gpu), (stay.to, -gpu)]);
        }
        changes.sort_unstable();
        let mut busy = 0;
        for (at, change) in changes {
            busy += change;
            assert!(busy <= i64::try_from(machine.gpu.0).unwrap(), "{} oversold at {at}", story.policy);
        }
    }
    for (fate, request) in story.fates.iter().zip(&demand.requests) {
        assert!(fate.start.is_none_or(|start| start >= request.at));
    }
}

#[test]
fn on_a_synthetic_trace_nothing_is_oversold_all_are_served_and_the_reference_is_best_used() {
    let values = Values::default();
    let fleet = Fleet::sampled(1, "", &synthetic::nodes(), 24, &values);
    let mut all = synthetic::demand(1, 600, &values);
    for request in &mut all.requests {
        request.worth = Rate(9_000_000);
    }
    let all = all.scaled(&fleet, 1_100_000);
    let price = best_price(&all, &fleet);
    let policies: [Box<dyn Policy>; 6] = [
        Box::new(Fifo),
        Box::new(Random::new(1)),
        Box::new(Cheapest),
        Box::new(FixedPrice(price)),
        Box::new(Easy::default()),
        Box::new(Easy { knows_runs: true }),
    ];
    let mut utilisation = BTreeMap::new();
    for mut policy in policies {
        let story = play(&all, &fleet, policy.as_mut());
        nothing_oversold(&all, &fleet, &story);
        assert!(story.fates.iter().all(|fate| fate.end.is_some()), "{} leaves somebody out", story.policy);
        utilisation.insert(story.policy.clone(), Figures::of(&all, &fleet, &story).utilisation);
    }

    assert!(utilisation["easy"] > utilisation["fifo"] + 100_000, "{utilisation:?}");
}

#[test]
fn no_policy_beats_the_optimum_and_the_optimum_is_what_trying_everything_gives() {
    for seed in 0..40 {
        let instance = Instance::random(seed, 6, &Values::default());
        let best = optimum(&instance);
        assert_eq!(best, everything(&instance), "seed {seed}");
        let policies: [Box<dyn Policy>; 3] = [Box::new(Fifo), Box::new(Random::new(seed)), Box::new(Cheapest)];
        for mut policy in policies {
            let story = play(&instance.demand, &instance.fleet, policy.as_mut());
            assert!(story.welfare(&instance.demand, &instance.fleet) <= best, "seed {seed} {}", story.policy);
        }
    }
}

/// The largest welfare of all ways to give each job a machine or none.
fn everything(instance: &Instance) -> u64 {
    let (jobs, fleet) = (&instance.demand.requests, &instance.fleet);
    let ways = fleet.machines.len() + 1;
    (0..ways.pow(u32::try_from(jobs.len()).unwrap()))
        .filter_map(|mut way| {
            let mut free: Vec<_> = fleet.machines.iter().map(|machine| machine.gpu.0).collect();
            let mut sum = 0;
            for job in jobs {
                let choice = way % ways;
                way /= ways;
                let Some(machine) = choice.checked_sub(1) else { continue };
                let on = &fleet.machines[machine];
                free[machine] = free[machine].checked_sub(job.gpu.0)?;
                let worth = job.gpu.charge(job.worth, job.run).0;
                sum += worth.checked_sub(job.gpu.charge(on.floor, job.run).0)?;
            }
            Some(sum)
        })
        .max()
        .unwrap()
}
