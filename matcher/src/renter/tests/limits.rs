use super::*;

/// At this ask an attempt of a minute may cost 3,334 micro-credits.
const STEP: u64 = 3_334;

#[test]
fn the_budget_is_a_hard_limit_and_running_out_says_so() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 60_000);
    let mut job = spec(5);
    job.market.mode = Mode::Ask;
    job.market.budget = Some(Credits(3 * STEP + 100));
    world.submit(job);
    assert_eq!(world.run_to_end(300_000), JobState::Failed);
    assert_eq!(world.job().because()[0].code, "budget");
    assert_eq!(world.runs.len(), 3);
    assert!(world.job().cost() <= Credits(3 * STEP + 100));
    world.settle(60_000);
    world.assert_books_agree();
}

/// The same by auction: a job whose rest fits no bid does not wait for anybody.
#[test]
fn by_auction_too_running_out_of_budget_ends_the_job_at_once_and_says_so() {
    for (standing, others) in [(true, false), (false, false), (false, true), (true, true)] {
        let mut policies = vec![Policy { standing, ..priced(200_000, 0) }];
        if others {
            // One that declines, one that fails only memory, one that is dearer still.
            policies.push(Policy { standing, max_duration: Millis(1_000), ..priced(100_000, 0) });
            let mut small = priced(100_000, 0);
            small.total.memory = Bytes(1_000_000);
            policies.push(small);
            policies.push(Policy { standing, ..priced(400_000, 0) });
        }
        let mut world = World::new(policies);
        world.program = |_, _| (AttemptEnd::Done, 60_000);
        let mut job = spec(5);
        job.market.mode = Mode::Auction;
        job.market.budget = Some(Credits(3 * STEP + 100));
        let start = world.now();
        world.submit(job);
        assert_eq!(world.run_to_end(300_000), JobState::Failed, "{standing} {others}");
        // Three minutes of work at once, and one more round of bids at the most.
        assert!(world.now() - start < 61_000, "{standing} {others}: {}", world.now() - start);
        let because = world.job().because();
        assert_eq!((because[0].code.as_str(), because[0].nearest.as_deref()), ("budget", Some("left 0.00010 CR")));
        let near = because.iter().skip(1).find(|reason| reason.code == "budget").expect("the nearest miss");
        assert_eq!(near.nearest.as_deref(), Some("it may cost 0.0033 CR, left 0.00010 CR"));
        assert_eq!(world.runs.len(), 3);
        world.settle(60_000);
        world.assert_books_agree();
    }
}

#[test]
fn a_budget_that_somebody_silent_may_fit_is_waited_for() {
    let dear = Policy { standing: false, ..priced(400_000, 0) };
    let mut world = World::new(vec![priced(200_000, 0), dear]);
    world.program = |_, _| (AttemptEnd::Done, 50_000);
    let mut job = spec(1);
    job.market.mode = Mode::Auction;
    job.market.budget = Some(Credits(STEP + 100));
    world.submit(job);
    world.run_for(1_000);
    world.kill(1);
    world.run_for(90_000);
    // The other one bids, and every time too much.
    let last = world.job().reports().last().cloned().unwrap();
    assert_eq!((last.bids.len(), world.job().why().last().unwrap().code.as_str()), (0, "budget"));
    assert_eq!((world.job().running(), world.job().state()), (0, JobState::Placing));
    world.revive(1);
    assert_eq!(world.run_to_end(70_000), JobState::Succeeded);
    assert_eq!(world.runs.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn what_short_tasks_leave_of_the_budget_serves_the_next() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    let mut job = spec(40);
    job.market.budget = Some(Credits(2 * STEP + 40 * 56));
    world.submit(job);
    assert_eq!(world.run_to_end(300_000), JobState::Succeeded);
    assert!(world.job().cost() <= Credits(40 * 56), "{}", world.job().cost());
}

#[test]
fn a_budget_too_small_for_one_attempt_finds_nothing() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    let mut job = spec(1);
    job.market.budget = Some(Credits(STEP - 1));
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    let why = world.job().why();
    assert_eq!(why[1].code, "budget");
    assert_eq!(why[1].nearest.as_deref(), Some("it may cost 0.0033 CR, left 0.0033 CR"));
}

#[test]
fn credit_bounds_what_a_stranger_gets_at_once_and_paying_goes_on_within_it() {
    let mut tight = priced(200_000, 0);
    tight.stranger_limit = Credits(2 * STEP + STEP / 2);
    let mut world = World::new(vec![tight]);
    world.program = |_, _| (AttemptEnd::Done, 100);
    let mut job = spec(4);
    job.market.mode = Mode::Ask;
    world.submit(job);
    world.run_for(50);
    assert_eq!(world.runs.len(), 2); // of four free slots
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
    assert_eq!(world.blames, Vec::<String>::new());
}

#[test]
fn a_trusted_renter_gets_more_than_the_offer_says() {
    let mut tight = priced(200_000, 0);
    tight.stranger_limit = Credits(STEP - 1);
    let mut world = World::new(vec![tight]);
    let peer = world.id(0);
    world.handle(1, Event::Trust { peer, limit: Credits(1_000_000) });
    world.submit(spec(3));
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
}

#[test]
fn without_credit_the_job_says_so() {
    let mut tight = priced(200_000, 0);
    tight.stranger_limit = Credits(STEP - 1);
    let mut world = World::new(vec![tight]);
    world.submit(spec(1));
    assert_eq!(world.run_to_end(120_000), JobState::Expired);
    let codes: Vec<_> = world.job().why().into_iter().map(|reason| reason.code).collect();
    assert!(codes.contains(&"no-credit".to_owned()), "{codes:?}");
}

#[test]
fn failures_beyond_the_limit_fail_the_job_and_those_within_do_not() {
    for (most, state) in [(1, JobState::Failed), (2, JobState::Succeeded)] {
        let mut world = World::new(vec![priced(200_000, 0)]);
        world.program =
            |_, attempt| if attempt.task < 2 { (AttemptEnd::Failed, 300) } else { (AttemptEnd::Done, 2_000) };
        let mut job = spec(6);
        job.array.max_failures = most;
        world.submit(job);
        assert_eq!(world.run_to_end(60_000), state);
        world.settle(60_000);
        assert_eq!(world.job().because()[0].code, "failed");
        assert_eq!(
            world.job().because()[0].nearest.as_deref(),
            Some("task 0 ended failed with exit code 3: as the test has it")
        );
        world.assert_books_agree();
    }
}

#[test]
fn a_failure_is_tried_again_only_if_the_spec_says_so_and_is_owed_for_each_time() {
    for (on, attempts) in [(false, 1), (true, 2)] {
        let mut world = World::new(vec![priced(200_000, 0)]);
        world.program = |_, _| (AttemptEnd::Failed, 36_000);
        let mut job = spec(1);
        job.retry.attempts = 2;
        if on {
            job.retry.on.push(RetryOn::Failed);
        }
        world.submit(job);
        assert_eq!(world.run_to_end(200_000), JobState::Failed);
        assert_eq!(world.attempts().len(), attempts);
        assert_eq!(world.job().cost(), Credits(2_000 * attempts as u64));
    }
}

#[test]
fn a_missing_export_fails_at_once_and_is_not_tried_again() {
    // Case T3, as the market sees it.
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |_, _| (AttemptEnd::InputFailed, 0);
    world.submit(spec(1));
    assert_eq!(world.run_to_end(5_000), JobState::Failed);
    assert_eq!(world.runs.len(), 1);
    assert_eq!(world.job().cost(), Credits(0));
    assert_eq!(world.job().because()[0].code, "input-failed");
}

#[test]
fn a_timeout_is_a_failure_within_seconds_and_never_a_cancel() {
    // Case T8, as the market sees it.
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::TimedOut, 60_000);
    world.submit(spec(1));
    assert_eq!(world.run_to_end(62_000), JobState::Failed);
    assert_eq!(world.job().because()[0].code, "timed-out");
    assert_eq!(world.job().cost(), Credits(STEP));
}

#[test]
fn the_parallel_limit_holds_whatever_slots_there_are() {
    let mut world = World::new(vec![priced(200_000, 0), priced(200_000, 0)]);
    let mut job = spec(20);
    job.array.max_parallel = 3;
    world.submit(job);
    let mut most = 0;
    while !world.job().state().is_final() {
        assert!(world.step(1_000_000));
        let running = world.job().tasks().iter().flat_map(|task| task.open());
        let running = running.filter(|attempt| !matches!(attempt.state, AttemptState::Collecting(_))).count();
        most = most.max(running);
    }
    assert_eq!(most, 3);
}

#[test]
fn a_deadline_ends_the_job_wherever_it_is() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 50_000);
    let mut job = spec(1);
    job.sla.deadline = Some(at(world.now() + 10_000).wall);
    let start = world.now();
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    assert_eq!(world.now() - start, 10_000);
    assert_eq!(world.job().because()[0].code, "deadline");
    world.settle(60_000);
    world.assert_books_agree();
}

#[test]
fn start_within_is_how_long_it_is_tried() {
    let mut world = World::new(vec![]);
    let mut job = spec(1);
    job.sla.start_within = Some(Millis(90_000));
    let start = world.now();
    world.submit(job);
    assert_eq!(world.run_to_end(200_000), JobState::Expired);
    assert_eq!(world.now() - start, 90_000);
    assert_eq!(world.job().because()[0].code, "no-offers");
}

#[test]
fn nothing_matches_for_half_a_minute_and_the_job_gives_up() {
    let mut world = World::new(vec![]);
    let start = world.now();
    world.submit(spec(1));
    assert_eq!(world.run_to_end(200_000), JobState::Expired);
    assert_eq!(world.now() - start, 30_000);
}

#[test]
fn what_is_not_built_yet_is_refused_and_never_ignored() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    let mut job = spec(1);
    job.terms.verify = Verify::Replicate(2);
    world.submit(job);
    assert_eq!(world.job().state(), JobState::Failed);
    assert_eq!(world.job().because()[0].text, "not available yet: sla.verify = replicate:2");
    assert!(world.runs.is_empty());
}

#[test]
fn thousands_of_tasks_take_as_many_leases_as_receipts_can_list() {
    let mut wide = priced(200_000, 0);
    wide.total =
        souk_protocol::Capacity { cpu: MilliCpu(64_000), memory: Bytes(64_000_000_000), disk: Bytes(100_000_000_000) };
    wide.stranger_limit = Credits(10_000_000_000);
    wide.strangers_limit = Credits(10_000_000_000);
    let mut world = World::new(vec![wide]);
    world.program = |_, _| (AttemptEnd::Done, 10);
    world.submit(spec(2_000));
    assert_eq!(world.run_to_end(600_000), JobState::Succeeded);
    world.settle(60_000);
    // A receipt lists 1,500 attempts: a second lease takes the rest.
    assert_eq!(world.renter().leases().count(), 2);
    world.assert_books_agree();
}

#[test]
fn a_plan_names_offers_cost_and_near_misses() {
    let mut silver = priced(400_000, 0);
    silver.tiers = vec![souk_protocol::Tier::Silver];
    let world = World::new(vec![priced(200_000, 0), priced(300_000, 0), silver]);
    let mut job = spec(6);
    job.retry.attempts = 2;
    let trader = world.trader(0);
    let plan = trader.plan(&job, at(world.now()));
    assert_eq!((plan.matched, plan.seen), (2, 3));
    assert_eq!(
        plan.offers.iter().map(|offer| (offer.rate, offer.slots)).collect::<Vec<_>>(),
        [(Some(Rate(200_000)), 4), (Some(Rate(300_000)), 4)]
    );
    assert_eq!(plan.low, Some(Credits(6 * STEP)));
    assert_eq!(plan.high, Some(Credits(12 * 5_000)));
    assert_eq!(plan.near_misses[0].code, "tier");
    assert_eq!(plan.near_misses[0].nearest.as_deref(), Some("serves silver"));
}
