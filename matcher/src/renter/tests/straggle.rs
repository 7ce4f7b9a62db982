use super::*;

/// Twenty tasks of three seconds each; the last takes a minute where it is tried first.
fn world() -> World {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |_, attempt| {
        let slow = attempt.task == 19 && attempt.number == 1;
        (AttemptEnd::Done, if slow { 50_000 } else { 3_000 })
    };
    world
}

fn array() -> JobSpec {
    let mut job = spec(20);
    job.array.max_parallel = 4;
    job
}

#[test]
fn a_straggler_gets_a_second_attempt_and_the_first_done_wins() {
    let mut world = world();
    world.submit(array());
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    // Five rounds of three seconds; the last task is late after six, and done three after that.
    assert!(world.now() < 1_100 + 12_000 + 6_000 + 3_000 + 1_000, "{}", world.now());
    let task = &world.job().tasks()[19];
    let attempts: Vec<_> = task.attempts().iter().map(|attempt| (attempt.id.number, attempt.provider)).collect();
    assert_eq!(attempts, [(1, world.id(1)), (2, world.id(2))]);
    assert_eq!(task.winner().unwrap().id.number, 2);
    assert!(world.job().why().iter().any(|reason| reason.code == "straggler" && reason.count == 1));
    world.settle(120_000);
    let first = &world.job().tasks()[19].attempts()[0];
    assert_eq!((first.state, first.billed), (AttemptState::Ended(AttemptEnd::Cancelled), None));
    // Twenty tasks of three seconds each are paid for, and nothing else.
    let run: u64 = world.renter().leases().map(|lease| lease.run.0).sum();
    assert_eq!(run, 60_000);
    world.assert_books_agree();
}

#[test]
fn a_straggler_that_is_done_first_after_all_wins() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |_, attempt| match (attempt.task, attempt.number) {
        (19, 1) => (AttemptEnd::Done, 8_000),
        (19, _) => (AttemptEnd::Done, 40_000),
        _ => (AttemptEnd::Done, 3_000),
    };
    world.submit(array());
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    let task = &world.job().tasks()[19];
    assert_eq!((task.attempts().len(), task.winner().unwrap().id.number), (2, 1));
    world.settle(120_000);
    assert_eq!(world.job().tasks()[19].attempts()[1].billed, None);
    world.assert_books_agree();
}

#[test]
fn no_second_attempt_without_retries_or_while_others_wait_or_where_the_budget_has_no_room() {
    let attempts = |world: &World| world.job().tasks()[19].attempts().len();
    // No attempt is left.
    let mut once = world();
    let mut job = array();
    job.retry.attempts = 1;
    once.submit(job);
    assert_eq!(once.run_to_end(120_000), JobState::Succeeded);
    assert_eq!(attempts(&once), 1);
    // Every slot that the job may have at once is taken.
    let mut narrow = world();
    let mut job = array();
    job.array.max_parallel = 1;
    narrow.submit(job);
    assert_eq!(narrow.run_to_end(200_000), JobState::Succeeded);
    assert_eq!(attempts(&narrow), 1);
    // 19 tasks have cost 3,167, the last one reserves 3,334; a whole attempt at the dearer provider would be 5,000.
    let mut poor = world();
    let mut job = array();
    job.market.budget = Some(Credits(10_000));
    job.array.max_parallel = 2;
    poor.submit(job);
    assert_eq!(poor.run_to_end(300_000), JobState::Succeeded);
    assert_eq!(attempts(&poor), 1);
}

#[test]
fn a_lone_provider_goes_on_with_its_straggler() {
    let mut world = World::new(vec![priced(200_000, 0)]);
    world.program = |_, attempt| (AttemptEnd::Done, if attempt.task == 19 { 30_000 } else { 3_000 });
    world.submit(array());
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    assert_eq!(world.job().tasks()[19].attempts().len(), 1);
    world.settle(120_000);
    world.assert_books_agree();
}
