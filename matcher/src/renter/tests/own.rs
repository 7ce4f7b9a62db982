//! This node's own capacity: filled first, alone, or never.

use souk_protocol::{Announcement, Capacity, DeclineCode, Local, Message};

use super::*;

/// As many cores of its own.
fn own(cores: u64) -> Policy {
    Policy { total: Capacity { cpu: MilliCpu(cores * 1_000), ..policy().total }, ..priced(200_000, 100_000) }
}

fn job(tasks: u32, local: Local) -> JobSpec {
    let mut job = spec(tasks);
    job.market.local = local;
    job
}

/// Where the tasks ran: on this node itself, on the provider.
fn places(world: &World) -> (usize, usize) {
    let here = world.runs.iter().filter(|(index, _)| *index == 0).count();
    (here, world.runs.len() - here)
}

/// Nothing is owed to oneself, and no line of the ledger says so.
fn assert_free(world: &World) {
    let (me, books) = (world.id(0), &world.trader(0).books);
    assert_eq!((books.spent(&me), books.earned(&me)), (Credits(0), Credits(0)));
    assert!(books.history().all(|entry| entry.peer != me));
    for lease in world.renter().leases().filter(|lease| lease.lease.peer == me) {
        assert_eq!((lease.lease.rate, lease.total), (Rate::ZERO, Credits(0)));
    }
    assert_eq!(world.blames, Vec::<String>::new());
}

#[test]
fn own_slots_are_filled_first_and_the_rest_goes_to_the_market_at_once() {
    let mut world = World::with_own(Some(own(2)), vec![priced(200_000, 100_000)]);
    world.replay = true;
    let start = world.now();
    world.submit(job(4, Local::First));
    assert_eq!(places(&world), (2, 0), "its own tasks start with the submission");
    assert_eq!(world.trader(0).provider.capacity().used.cpu, MilliCpu(2_000));
    world.run_until(1_000, "the provider runs the rest", |world| world.runs.len() == 4);
    assert_eq!((places(&world), world.now() - start), ((2, 2), world.latency));
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    world.settle(10_000);
    assert_eq!(world.trader(0).provider.capacity().used, Capacity::default());
    // Two seconds of a slot at 0.3 CR an hour are owed to the provider.
    assert_eq!(world.job().cost(), Credits(167));
    assert_free(&world);
    world.assert_books_agree();
}

#[test]
fn a_job_that_may_run_only_here_waits_for_own_slots_and_asks_nobody() {
    let mut world = World::with_own(Some(own(1)), vec![priced(1, 1)]);
    world.replay = true;
    world.submit(job(3, Local::Only));
    assert_eq!(world.run_to_end(10_000), JobState::Succeeded);
    world.settle(10_000);
    assert_eq!(places(&world), (3, 0));
    assert_eq!(world.job().cost(), Credits(0));
    assert_eq!(world.job().leases().len(), 1, "one after the other on one slot");
    assert_free(&world);
}

#[test]
fn a_slot_that_comes_free_here_is_taken_at_once_by_what_waits_for_it() {
    let mut world = World::with_own(Some(own(1)), Vec::new());
    world.program = |_, _| (AttemptEnd::Done, 20_000);
    world.submit(job(1, Local::Only));
    let second = JobId([8; 32]);
    world.handle(0, Event::Submit { job: second, spec: Arc::new(job(1, Local::Only)) });
    world.run_until(60_000, "the second runs", |world| world.runs.len() == 2);
    // The first has run for 20 s, its outputs took 10 ms, and records are durable after 2 ms each.
    assert!(world.now() < 1_100 + 20_100, "at {}", world.now());
    world.run_until(60_000, "the second is done", |world| {
        world.renter().job(&second).is_some_and(|job| job.state() == JobState::Succeeded)
    });
}

#[test]
fn a_job_that_may_run_only_here_and_never_fits_says_so() {
    let mut world = World::with_own(Some(own(2)), vec![priced(1, 1)]);
    let mut large = job(1, Local::Only);
    large.requirement.cpu = MilliCpu(3_000);
    world.submit(large);
    world.run_until(60_000, "it is given up", |world| world.job().state().is_final());
    assert_eq!(world.runs.len(), 0);
    let why = world.job().why();
    let reason = why.iter().find(|reason| reason.code == "too-large").unwrap_or_else(|| panic!("{why:?}"));
    assert_eq!(reason.nearest.as_deref(), Some("free 2 of 2 cores, asked 3"));

    let mut world = World::new(vec![priced(1, 1)]);
    world.submit(job(1, Local::Only));
    world.run_until(60_000, "it is given up", |world| world.job().state().is_final());
    assert!(world.job().why().iter().any(|reason| reason.code == "closed"), "{:?}", world.job().why());
}

#[test]
fn a_job_that_may_never_run_here_leaves_the_own_capacity_alone() {
    let mut world = World::with_own(Some(own(4)), vec![priced(200_000, 100_000)]);
    world.submit(job(2, Local::Never));
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    assert_eq!(places(&world), (0, 2));
}

#[test]
fn before_an_auction_own_slots_are_filled_too() {
    let mut world = World::with_own(Some(own(1)), vec![priced(200_000, 100_000)]);
    let mut mixed = job(3, Local::First);
    mixed.market.mode = Mode::Auction;
    world.submit(mixed);
    assert_eq!(places(&world), (1, 0));
    assert_eq!(world.run_to_end(10_000), JobState::Succeeded);
    world.settle(10_000);
    assert!(places(&world).1 >= 2, "{:?}", places(&world));
    assert_free(&world);
    world.assert_books_agree();
}

#[test]
fn a_plan_shows_the_own_capacity_first_and_free() {
    let world = World::with_own(Some(own(2)), vec![priced(200_000, 100_000)]);
    let plan = |local| world.trader(0).plan(&job(4, local), at(world.now()));
    let first = plan(Local::First);
    let rows: Vec<_> = first.offers.iter().map(|offer| (offer.provider, offer.rate, offer.slots)).collect();
    assert_eq!(rows[0], (world.id(0), Some(Rate::ZERO), 2));
    assert_eq!((rows.len(), first.matched, first.seen), (2, 2, 2));
    assert_eq!(first.low, Some(Credits(0)));
    assert_eq!(plan(Local::Only).offers.len(), 1);
    let never = plan(Local::Never);
    assert_eq!((never.offers.len(), never.offers[0].provider), (1, world.id(1)));
}

#[test]
fn a_node_that_dies_with_own_work_runs_it_again_and_its_journal_can_be_replayed_for_ever() {
    let mut world = World::with_own(Some(own(2)), vec![priced(200_000, 100_000)]);
    world.submit(job(6, Local::First));
    world.run_for(500);
    assert_eq!(places(&world), (2, 4));
    world.crash(0, 200);
    assert_eq!(world.run_to_end(120_000), JobState::Succeeded);
    world.settle(120_000);
    let lost = |(_, number, state): &&(u32, u32, AttemptState)| {
        *number == 1 && *state == AttemptState::Ended(AttemptEnd::Lost)
    };
    assert_eq!(world.attempts().iter().filter(lost).count(), 2, "its own: {:?}", world.attempts());
    assert_free(&world);
    world.assert_books_agree();
    let digest = world.renter().digest();
    world.crash(0, 200);
    world.run_for(5_000);
    assert_eq!(world.renter().digest(), digest);
    assert_eq!(world.trader(0).provider.capacity().used, Capacity::default());
    assert_free(&world);
}

#[test]
fn a_node_that_works_for_itself_alone_tells_nobody_and_sells_nothing() {
    let mut world = World::with_own(Some(own(2)), vec![Policy { own_only: true, ..priced(1, 1) }]);
    assert_eq!(world.renter().offers(at(world.now()).wall).count(), 0, "no offer came");
    world.handle(0, Event::Policy(Box::new(Policy { own_only: true, ..own(1) })));
    world.submit(job(1, Local::Only));
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    // An award without an offer, by somebody who guesses.
    let key = TestKeys::new(60);
    let call = crate::testing::announcement(&key);
    let call = Announcement { issued: at(world.now()).wall, closes: at(world.now() + 1_000).wall, ..call };
    let message = Message::Announce(souk_protocol::Signed::sign(&call, &key).unwrap().into_signed());
    let from = souk_protocol::Signer::id(&key);
    let now = at(world.now());
    let answer = world.machines[0].trader.handle(Event::Message { from, message }, now);
    let declined = answer.iter().find_map(|output| match output {
        Output::Send { message: Message::Decline(decline), .. } => Some((decline.code, decline.nearest.to_string())),
        _ => None,
    });
    assert_eq!(declined, Some((DeclineCode::Closed, "the node works for itself alone".to_owned())));
}
