use super::*;

/// A day in the life with everything in it: loss, restart of a provider, failures, cancelled leases.
fn eventful() -> World {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.replay = true;
    world.weather = Weather { lost: 5, twice: 10, jitter: 20 };
    world.program = |index, attempt| match (index, attempt.task, attempt.number) {
        (_, 2, 1) => (AttemptEnd::ProviderFault, 5),
        (_, 3, _) => (AttemptEnd::Failed, 40),
        _ => (AttemptEnd::Done, 700),
    };
    let mut job = spec(10);
    job.array.max_failures = 1;
    job.array.max_parallel = 4;
    world.submit(job);
    world.run_for(500);
    world.crash(1, 100);
    assert_eq!(world.run_to_end(600_000), JobState::Succeeded);
    world.settle(600_000);
    world
}

#[test]
fn the_records_give_the_state_of_the_machine_that_wrote_them_at_every_event() {
    let world = eventful(); // compares after every event
    assert_eq!(world.job().done(), 9);
    world.assert_books_agree();
}

#[test]
fn every_prefix_of_the_journal_is_a_state_that_holds_all_rules() {
    let world = eventful();
    for count in 0..=world.records().len() {
        let trader = world.replayed(count);
        for job in trader.renter.jobs() {
            assert_eq!(invariant::job(job), Ok(()), "after {count} records");
        }
    }
}

#[test]
fn a_journal_that_contradicts_itself_is_refused() {
    let world = eventful();
    let records = world.records();
    let is = |kind: fn(&Record) -> bool| records.iter().position(kind).unwrap();
    for twice in [
        is(|record| matches!(record, Record::Lease { .. })),
        is(|record| matches!(record, Record::Attempt { .. })),
        is(|record| matches!(record, Record::Result { .. })),
    ] {
        let mut trader = world.replayed(twice + 1);
        assert!(trader.apply(&records[twice]).is_err(), "record {twice} twice");
    }
    // An attempt before its lease, and a result by another key.
    let mut trader = world.replayed(1);
    assert!(trader.apply(&records[is(|record| matches!(record, Record::Attempt { .. }))]).is_err());
    let result = is(|record| matches!(record, Record::Result { voucher: Some(_), .. }));
    let Record::Result { job, result: signed, verdict, run, voucher } = records[result].clone() else { panic!() };
    let forged = souk_protocol::Signed::sign(&signed.peek().unwrap(), &TestKeys::new(77)).unwrap().into_signed();
    let mut trader = world.replayed(result);
    let error = trader.apply(&Record::Result { job, result: forged, verdict, run, voucher }).unwrap_err();
    assert!(error.to_string().contains("no party to it"), "{error}");
}
