use super::*;

#[test]
fn a_dead_provider_costs_one_attempt_and_nothing_is_paid_twice() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 3_000);
    let mut job = spec(8);
    job.array.max_parallel = 4;
    world.submit(job);
    world.run_for(1_000);
    world.kill(1);
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    // 15 s of silence, then the second attempts: long before the grace of a minute.
    assert!(world.now() < 1_100 + 1_000 + 15_000 + 10_000, "{}", world.now());
    let seconds: Vec<_> = world.job().tasks().iter().filter(|task| task.attempts().len() == 2).collect();
    assert_eq!(seconds.len(), 4);
    assert_eq!(world.job().done(), 8);
    world.run_for(120_000);
    world.assert_books_agree();
}

#[test]
fn the_first_done_wins_and_the_loser_is_refused_unbilled() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |index, _| (AttemptEnd::Done, if index == 1 { 25_000 } else { 60_000 });
    world.submit(spec(1));
    world.run_for(1_000);
    world.cut = vec![1];
    world.run_until(20_000, "a second attempt", |world| world.runs.len() == 2);
    world.run_for(1_000);
    world.cut.clear();
    world.run_until(30_000, "it is done", |world| world.job().done() == 1);
    assert_eq!(world.job().tasks()[0].winner().unwrap().provider, world.id(1));
    world.settle(120_000);
    let states: Vec<_> = world.attempts();
    assert_eq!(states[0].2, AttemptState::Ended(AttemptEnd::Done));
    assert_eq!(states[1].2, AttemptState::Ended(AttemptEnd::Cancelled));
    assert_eq!(world.trader(2).books.earned(&world.id(0)), Credits(0));
    world.assert_books_agree();
}

#[test]
fn a_provider_that_is_heard_again_in_time_needs_no_second_attempt() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 30_000);
    world.submit(spec(1));
    world.run_for(1_000);
    world.cut = vec![1];
    world.run_for(20_000);
    assert_eq!(world.renter().leases().next().unwrap().state, RenterLeaseState::Unknown);
    world.cut.clear();
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
    assert_eq!(world.job().tasks()[0].attempts().len(), 1);
}

#[test]
fn a_result_delivered_before_the_grace_still_counts_after_it() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 5_000);
    world.submit(spec(1));
    world.run_for(1_000);
    world.cut = vec![1];
    world.run_for(70_000); // it is done there, and given up here
    assert_eq!(world.attempts()[0].2, AttemptState::Ended(AttemptEnd::Lost));
    assert!(!world.job().state().is_final());
    world.cut.clear();
    assert_eq!(world.run_to_end(30_000), JobState::Succeeded);
    world.settle(120_000);
    assert!(world.job().cost() > Credits(0));
    world.assert_books_agree();
}

#[test]
fn a_renter_that_restarts_goes_on_and_pays_once() {
    for cut in [3, 40, 200, 900, 1_010, 1_020, 1_500, 2_500] {
        let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
        let mut job = spec(12);
        job.array.max_parallel = 5;
        world.submit(job);
        world.run_for(cut);
        world.crash(0, 500);
        assert_eq!(world.run_to_end(120_000), JobState::Succeeded, "cut at {cut}");
        world.settle(120_000);
        assert_eq!(world.job().done(), 12);
        world.assert_books_agree();
        assert_eq!(world.blames, Vec::<String>::new(), "cut at {cut}");
    }
}

#[test]
fn a_provider_that_restarts_loses_its_attempts_unbilled_and_keeps_its_leases() {
    for cut in [40, 500, 1_010, 1_020, 1_500] {
        let mut world = World::new(vec![priced(200_000, 0)]);
        let mut job = spec(6);
        job.array.max_parallel = 3;
        world.submit(job);
        world.run_for(cut);
        world.crash(1, 500);
        assert_eq!(world.run_to_end(120_000), JobState::Succeeded, "cut at {cut}");
        world.settle(120_000);
        world.assert_books_agree();
        assert_eq!(world.blames, Vec::<String>::new(), "cut at {cut}");
    }
}

/// The runs of task 0, by provider.
fn who(world: &World) -> Vec<usize> {
    world.runs.iter().map(|(index, _)| *index).collect()
}

/// A provider that says itself that it lost an attempt is there again: nobody else would do, and nothing is waited for.
#[test]
fn a_sole_provider_that_restarts_goes_on_at_once_on_the_same_lease() {
    for mode in [Mode::Ask, Mode::Auto, Mode::Auction] {
        let mut world = World::new(vec![priced(200_000, 0)]);
        world.program = |_, _| (AttemptEnd::Done, 3_000);
        let mut job = spec(4);
        job.market.mode = mode;
        world.submit(job);
        world.run_for(1_000);
        assert_eq!(world.runs.len(), 4);
        world.crash(1, 500);
        let back = world.now();
        assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
        // The results reach the renter, the tasks come back, run, and their outputs are fetched.
        assert!(world.now() - back <= 3_000 + 8 * world.latency, "{mode:?}: {} ms", world.now() - back);
        assert_eq!((world.runs.len(), world.renter().leases().count()), (8, 1), "{mode:?}");
        world.settle(60_000);
        let lost = |state: &AttemptState| *state == AttemptState::Ended(AttemptEnd::Lost);
        assert_eq!(world.attempts().iter().filter(|(_, _, state)| lost(state)).count(), 4);
        world.assert_books_agree();
    }
}

#[test]
fn a_provider_that_loses_the_same_task_twice_comes_second_but_still_does_if_nobody_else_would() {
    for (others, cores) in [(true, 4), (false, 4), (false, 1)] {
        let mut first = priced(200_000, 0);
        first.total.cpu = MilliCpu(cores * 1_000);
        let mut policies = vec![first];
        policies.extend(others.then(|| priced(300_000, 0)));
        let mut world = World::new(policies);
        world.program = |_, _| (AttemptEnd::Done, 3_000);
        world.submit(spec(1));
        for lost in 1..=2 {
            world.run_until(20_000, "it runs", |world| world.runs.len() == lost);
            world.run_for(500);
            world.crash(1, 500);
        }
        let back = world.now();
        assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
        assert_eq!(who(&world), [1, 1, if others { 2 } else { 1 }]);
        // At most the shortest wait for a slot that is given back; nothing like the half minute of a broken promise.
        assert!(world.now() - back < 4_000, "{} ms with {cores} cores", world.now() - back);
        world.settle(60_000);
        world.assert_books_agree();
    }
}

/// Silence breaks a promise as long as it lasts.
#[test]
fn a_sole_provider_that_was_silent_for_longer_than_the_grace_is_asked_as_soon_as_it_is_heard() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 90_000);
    let mut job = spec(1);
    job.terms.timeout = Millis(100_000);
    world.submit(job);
    world.run_for(1_000);
    world.cut = vec![1];
    world.run_for(62_000);
    assert_eq!(world.attempts()[0].2, AttemptState::Ended(AttemptEnd::Lost));
    world.cut.clear();
    let heard = world.now();
    world.run_until(10_000, "it runs again", |world| world.runs.len() == 2);
    // Within a heartbeat or a second try of what was not acknowledged, and the longest wait between two searches.
    assert!(world.now() - heard <= 10_000, "{}", world.now() - heard);
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
}

#[test]
fn a_forgotten_award_is_taken_up_when_the_provider_shows_it() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 8_000);
    world.disk = 2;
    world.submit(spec(1));
    // The job is durable, the acceptance is not: it arrives as the renter dies.
    world.run_for(world.latency * 2 + 1);
    assert_eq!(world.runs.len(), 1);
    world.crash(0, 300);
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
    world.settle(60_000);
    // The provider went on with the attempt it had: nothing ran twice.
    assert_eq!(world.runs.len(), 1);
    assert_eq!(world.renter().leases().count(), 1);
    world.assert_books_agree();
}

#[test]
fn outputs_that_cannot_be_had_are_not_paid_for_and_the_task_is_tried_again() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.collectable = false;
    world.submit(spec(1));
    assert_eq!(world.run_to_end(60_000), JobState::Failed);
    world.settle(60_000);
    assert_eq!(world.job().cost(), Credits(0));
    assert_eq!(world.attempts().len(), 3);
    let because = &world.job().because()[0];
    assert_eq!(
        because.nearest.as_deref(),
        Some("task 0 ended done with exit code 0: its outputs could not be had: a hash differs")
    );
    world.assert_books_agree();
}

#[test]
fn a_provider_that_faults_is_passed_over_for_the_next_attempt() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |index, _| if index == 1 { (AttemptEnd::ProviderFault, 10) } else { (AttemptEnd::Done, 500) };
    world.submit(spec(1));
    assert_eq!(world.run_to_end(30_000), JobState::Succeeded);
    assert_eq!(world.runs.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1, 2]);
    world.settle(30_000);
    world.assert_books_agree();
}

#[test]
fn a_draining_provider_gives_its_work_back() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.submit(spec(8));
    world.run_for(300);
    world.handle(1, Event::Drain);
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
    world.settle(60_000);
    world.assert_books_agree();
}

#[test]
fn the_network_loses_repeats_and_reorders_and_the_books_agree() {
    for seed in 0..12 {
        let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
        world.seed(seed);
        world.weather = Weather { lost: 10, twice: 15, jitter: 60 };
        let mut job = spec(16);
        job.array.max_parallel = 6;
        world.submit(job);
        assert_eq!(world.run_to_end(600_000), JobState::Succeeded, "seed {seed}");
        world.settle(600_000);
        assert_eq!(world.blames, Vec::<String>::new(), "seed {seed}");
        world.assert_books_agree();
    }
}

#[test]
fn cancelling_works_in_every_state() {
    for after in [0, 1, 6, 12, 500, 1_012, 1_020, 1_024] {
        let mut world = World::new(vec![priced(200_000, 0)]);
        let mut job = spec(2);
        job.array.max_parallel = 1;
        world.submit(job);
        world.run_for(after);
        world.handle(0, Event::Cancel { job: JOB });
        assert_eq!(world.job().state(), JobState::Cancelled, "after {after}");
        world.settle(60_000);
        assert!(world.job().tasks().iter().all(|task| task.state() != TaskState::Running));
        assert_eq!(world.job().reserved(), Credits(0));
        assert_eq!(world.trader(1).provider.capacity().used, Default::default(), "after {after}");
        world.assert_books_agree();
    }
}

#[test]
fn what_ran_until_the_cancel_is_owed_for() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, _| (AttemptEnd::Done, 30_000);
    world.submit(spec(1));
    world.run_for(5_000);
    world.handle(0, Event::Cancel { job: JOB });
    world.settle(60_000);
    let attempt = &world.job().tasks()[0].attempts()[0];
    assert_eq!((attempt.state, attempt.billed), (AttemptState::Ended(AttemptEnd::Cancelled), Some(Millis(500))));
    assert_eq!(world.job().tasks()[0].state(), TaskState::Cancelled);
}

/// Found by the simulator: what was lost on a lease that its provider had closed was handed to that lease again, and
/// never heard of.
#[test]
fn tasks_of_a_lease_that_its_provider_has_closed_do_not_go_to_it_again() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program =
        |_, attempt| if attempt.number == 1 { (AttemptEnd::ProviderFault, 2_000) } else { (AttemptEnd::Done, 500) };
    let mut job = spec(4);
    job.array.max_parallel = 2;
    world.submit(job);
    world.run_for(1_000);
    // Away for longer than the grace, with nothing delivered that is owed for: the provider closes the lease.
    world.crash(0, 70_000);
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    world.settle(120_000);
    assert!(world.job().tasks().iter().flat_map(|task| task.attempts()).all(|attempt| !attempt.is_open()));
    world.assert_books_agree();
}
