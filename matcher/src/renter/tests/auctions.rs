use super::*;

fn auction(tasks: u32) -> JobSpec {
    let mut job = spec(tasks);
    job.market.mode = Mode::Auction;
    job
}

fn report(world: &World) -> crate::AuctionReport {
    world.job().reports().last().cloned().unwrap()
}

#[test]
fn an_auction_takes_two_round_trips_and_awards_the_best() {
    let mut world = World::new(vec![priced(400_000, 0), priced(200_000, 0), priced(300_000, 0)]);
    world.replay = true;
    let start = world.now();
    world.submit(auction(1));
    world.run_until(5_000, "it runs", |world| !world.runs.is_empty());
    // Call, bids, award: no fixed wait.
    assert_eq!(world.now() - start, 3 * world.latency);
    assert_eq!(world.runs[0].0, 2);
    let report = report(&world);
    assert_eq!((report.by_ask, report.invited, report.bids.len(), report.silent), (false, 3, 3, 0));
    let order: Vec<_> = report.bids.iter().map(|(provider, _, _, won)| (world.ids[provider], *won)).collect();
    assert_eq!(order, [(2, true), (3, false), (1, false)]);
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    world.settle(5_000);
    world.assert_books_agree();
}

#[test]
fn those_that_lose_learn_their_rank_and_that_they_were_counted() {
    let mut world = World::new(vec![priced(400_000, 0), priced(200_000, 0), priced(300_000, 0)]);
    world.submit(auction(1));
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    let job = world.job().id();
    let told = |index: usize| world.trader(index).provider.outbid(&job).map(crate::Outbid::text);
    // All are equally near and unknown, so that the distance is that of the rates.
    assert_eq!(told(1).as_deref(), Some("lost: rank 3 of 3, 100 % over"));
    assert_eq!(told(2), None);
    assert_eq!(told(3).as_deref(), Some("lost: rank 2 of 3, 50 % over"));
    let why = world.trader(1).provider.why();
    assert_eq!((why[0].code.as_str(), why[0].count), ("outbid", 1));
}

#[test]
fn a_silent_invitee_is_waited_for_no_longer_than_its_own_round_trip() {
    let mut world = World::new(vec![priced(400_000, 0), priced(200_000, 0)]);
    world.cut = vec![2];
    let peer = world.id(2);
    world.handle(0, Event::Rtt { peer, p95: Millis(80) });
    let start = world.now();
    world.submit(auction(1));
    world.run_until(5_000, "it runs", |world| !world.runs.is_empty());
    assert_eq!(world.now() - start, 80 + 20 + world.latency);
    assert_eq!(report(&world).silent, 1);
}

#[test]
fn a_silent_invitee_of_unknown_distance_is_waited_for_a_quarter_second() {
    let mut world = World::new(vec![priced(400_000, 0), priced(200_000, 0)]);
    world.cut = vec![2];
    let start = world.now();
    world.submit(auction(1));
    world.run_until(5_000, "it runs", |world| !world.runs.is_empty());
    assert_eq!(world.now() - start, 250 + 20 + world.latency);
}

#[test]
fn a_refused_award_goes_to_the_next_of_the_same_table() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.submit(auction(1));
    world.run_for(2 * world.latency - 1);
    // The best has bid; before the award comes it stops selling.
    world.handle(1, Event::Drain);
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    assert_eq!(world.runs.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2]);
    assert_eq!(world.job().reports().len(), 1); // no second round
}

#[test]
fn an_award_that_nobody_answers_is_void_and_the_next_best_gets_the_task() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.submit(auction(1));
    world.run_for(2 * world.latency - 1);
    world.kill(1);
    assert_eq!(world.run_to_end(20_000), JobState::Succeeded);
    assert_eq!(world.runs.iter().map(|(index, _)| *index).collect::<Vec<_>>(), [2]);
    // Within the time for an answer and the clock skew.
    assert!(world.now() < 1_100 + 2_000 + 2_000 + 1_500, "{}", world.now());
}

#[test]
fn a_late_acceptance_of_a_void_award_is_ended_and_nothing_is_owed_for_it() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    world.program = |index, _| (AttemptEnd::Done, if index == 1 { 30_000 } else { 1_000 });
    world.submit(auction(1));
    world.run_for(2 * world.latency + 1);
    // The award is on its way; the answer is not heard until it is too late.
    world.run_until(100, "the first runs it", |world| !world.runs.is_empty());
    world.cut = vec![1];
    assert_eq!(world.run_to_end(20_000), JobState::Succeeded);
    world.cut.clear();
    world.settle(60_000);
    assert_eq!(world.trader(1).books.earned(&world.id(0)), Credits(0));
    assert_eq!(world.trader(1).provider.capacity().used, Default::default());
    world.assert_books_agree();
}

#[test]
fn nobody_bids_and_the_reasons_say_why() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    let mut job = auction(1);
    job.requirement = huge();
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    let why = world.job().why();
    assert_eq!((why[0].code.as_str(), why[0].count), ("no-offers", 2));
    assert_eq!((why[1].code.as_str(), why[1].count, why[1].nearest.as_deref()), ("cpu", 2, Some("largest 4")));
}

#[test]
fn a_cap_under_every_floor_gives_no_bids() {
    let mut world = World::new(vec![Policy { standing: false, ..priced(200_000, 0) }]);
    let mut job = auction(1);
    job.market.max_rate = Some(Rate(10));
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    let why = world.job().why();
    assert_eq!(why[0].code, "no-bids");
    assert_eq!((why[1].code.as_str(), why[1].count), ("price", 1));
}

#[test]
fn a_provider_without_a_standing_ask_is_found_by_auction_in_auto_mode() {
    let mut world = World::new(vec![Policy { standing: false, ..priced(200_000, 0) }]);
    world.submit(spec(1));
    assert_eq!(world.run_to_end(10_000), JobState::Succeeded);
    assert!(!report(&world).by_ask);
}

#[test]
fn gold_is_never_taken_by_ask() {
    let mut gold = priced(200_000, 0);
    gold.tiers.push(Tier::Gold);
    let mut world = World::new(vec![gold]);
    let mut job = spec(1);
    job.terms.tier = Tier::Gold;
    job.terms.preemptible = false;
    world.submit(job);
    assert_eq!(world.run_to_end(10_000), JobState::Succeeded);
    assert!(!report(&world).by_ask);
}

use souk_protocol::Tier;
