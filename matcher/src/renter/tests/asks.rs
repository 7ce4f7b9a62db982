use super::*;

#[test]
fn a_task_runs_by_standing_ask_from_award_to_receipt() {
    let mut world = World::new(vec![priced(200_000, 100_000)]);
    world.replay = true;
    let start = world.now();
    world.submit(spec(1));
    world.run_until(1_000, "the provider runs it", |world| !world.runs.is_empty());
    // One way, and no disk: the first output needs no more than the award's arrival.
    assert_eq!(world.now() - start, world.latency);
    assert_eq!(world.run_to_end(5_000), JobState::Succeeded);
    world.settle(5_000);
    let attempt = &world.job().tasks()[0].attempts()[0];
    assert_eq!(attempt.state, AttemptState::Ended(AttemptEnd::Done));
    assert_eq!((attempt.exit_code, attempt.billed), (Some(0), Some(Millis(1_000))));
    // 0.3 CR an hour for a second, rounded up.
    assert_eq!(world.job().cost(), Credits(84));
    let lease = world.job().leases()[0];
    let file = world.renter().receipt_file(&lease).unwrap();
    let receipt = file.renter.peek().unwrap();
    assert_eq!((receipt.total, receipt.end, receipt.ended_by), (Credits(84), LeaseEnd::Completed, Party::Renter));
    assert_eq!(file.provider.hash(), file.renter.hash());
    assert_eq!(file.results.len(), 1);
    assert_eq!(world.trader(1).provider.receipt_file(&lease).unwrap(), file);
    world.assert_books_agree();
    assert_eq!(world.blames, Vec::<String>::new());
}

#[test]
fn the_notices_tell_the_story_in_order() {
    let mut world = World::new(vec![priced(200_000, 100_000)]);
    world.submit(spec(1));
    world.run_to_end(5_000);
    world.settle(5_000);
    let story: Vec<String> = world
        .notices
        .iter()
        .map(|notice| match notice {
            Notice::Job { state, .. } => format!("job {state:?}"),
            Notice::Auction { report, .. } => format!("auction by ask {}", report.by_ask),
            Notice::Leased { .. } => "leased".to_owned(),
            Notice::LeaseEnded { end, .. } => format!("lease {end}"),
            Notice::Attempt { .. } => "attempt".to_owned(),
            Notice::Progress { state, .. } => format!("progress {state:?}"),
            Notice::AttemptEnded { end, billed, .. } => format!("ended {end} billed {billed}"),
            Notice::Task { state, .. } => format!("task {state:?}"),
            Notice::Receipt { .. } => "receipt".to_owned(),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        story,
        [
            "auction by ask true",
            "job Placing",
            "job Bidding", // it is durable
            "leased",
            "attempt",
            "task Running",
            "job Running",
            "progress Running",
            "job Verifying",
            "lease completed",
            "ended done billed true",
            "task Done",
            "job Succeeded",
            "receipt",
        ]
    );
}

#[test]
fn placeholders_are_expanded_for_each_task() {
    let mut world = World::new(vec![priced(200_000, 100_000)]);
    world.submit(spec(2));
    world.run_to_end(10_000);
    let args: Vec<Vec<String>> =
        world.runs.iter().map(|(_, work)| work.args.iter().map(|arg| arg.to_string()).collect()).collect();
    assert_eq!(args, [["--task=0", "{0}"], ["--task=1", "{1}"]]);
    assert_eq!(world.runs[1].1.count, 2);
}

#[test]
fn an_array_takes_the_cheapest_slots_and_reuses_its_leases() {
    let mut world = World::new(vec![priced(400_000, 0), priced(200_000, 0), priced(300_000, 0)]);
    let mut job = spec(20);
    job.array.max_parallel = 6;
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Succeeded);
    world.settle(5_000);
    // Four slots of the cheapest, two of the next; nothing of the dearest.
    let slots: BTreeMap<NodeId, u32> =
        world.renter().leases().map(|lease| (lease.lease.peer, lease.lease.slots)).collect();
    assert_eq!(slots, BTreeMap::from([(world.id(2), 4), (world.id(3), 2)]));
    assert_eq!(world.runs.len(), 20);
    assert_eq!(world.job().done(), 20);
    world.assert_books_agree();
}

#[test]
fn an_ask_over_the_price_cap_is_not_taken_but_its_provider_may_bid_less() {
    let mut world = World::new(vec![priced(200_000, 100_000)]);
    let mut job = spec(1);
    job.market.max_rate = Some(Rate(290_000));
    job.market.mode = Mode::Ask;
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    let why = world.job().why();
    assert_eq!((why[0].code.as_str(), why[0].count), ("no-offers", 1));
    assert_eq!((why[1].code.as_str(), why[1].count, why[1].nearest.as_deref()), ("price", 1, Some("0.30 CR/h")));
}

#[test]
fn a_taken_slot_is_declined_and_the_next_ask_is_tried() {
    let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
    let mut full = priced(200_000, 0);
    full.total.cpu = MilliCpu(1_000);
    world.machines[1].policy = Some(full.clone());
    world.handle(1, Event::Policy(Box::new(full)));
    world.run_for(100);
    // Another renter's job takes the only slot; the offer of before still says that it is free.
    let stale: Vec<_> = world.renter().offers(at(world.now()).wall).cloned().collect();
    world.submit(spec(1));
    world.run_for(50);
    let second = JobId([8; 32]);
    for offer in stale {
        world.handle(0, Event::Offer(offer));
    }
    world.handle(0, Event::Submit { job: second, spec: Arc::new(spec(1)) });
    world.run_until(10_000, "both are done", |world| {
        world.renter().jobs().all(|job| job.state() == JobState::Succeeded)
    });
    let providers: Vec<_> = world.runs.iter().map(|(index, _)| *index).collect();
    assert_eq!(providers, [1, 2]);
}

#[test]
fn a_job_waits_for_room_when_everybody_is_full() {
    let mut small = priced(200_000, 0);
    small.total.cpu = MilliCpu(1_000);
    let mut world = World::new(vec![small]);
    world.program = |_, _| (AttemptEnd::Done, 50_000);
    world.submit(spec(1));
    let second = JobId([8; 32]);
    world.run_for(1_000);
    for mode in [Mode::Ask, Mode::Auto] {
        let mut job = spec(1);
        job.market.mode = mode;
        let id = if mode == Mode::Ask { second } else { JobId([9; 32]) };
        world.handle(0, Event::Submit { job: id, spec: Arc::new(job) });
    }
    world.run_for(45_000); // longer than the patience when nothing matches
    assert!(world.renter().jobs().all(|job| !job.state().is_final()));
    world.run_until(200_000, "all are done", |world| {
        world.renter().jobs().all(|job| job.state() == JobState::Succeeded)
    });
    assert_eq!(world.runs.len(), 3);
}

#[test]
fn an_offer_that_comes_later_is_taken_at_once() {
    let mut world = World::new(vec![Policy { total: Default::default(), ..priced(200_000, 0) }]);
    world.submit(spec(1));
    world.run_for(5_000);
    assert_eq!(world.job().state(), JobState::Bidding);
    let before = world.now();
    world.handle(1, Event::Policy(Box::new(priced(200_000, 0))));
    world.run_until(1_000, "it runs", |world| !world.runs.is_empty());
    assert_eq!(world.now() - before, 2 * world.latency);
}

#[test]
fn a_rate_is_never_read_in_another_unit() {
    // Case M6: a cap of 17.875 micro-credits an hour is none; 18 refuses 26.
    let mut world = World::new(vec![priced(26, 0)]);
    let mut job = spec(1);
    job.market.max_rate = Some(Rate(18));
    job.market.mode = Mode::Ask;
    world.submit(job);
    assert_eq!(world.run_to_end(60_000), JobState::Expired);
    assert!(world.runs.is_empty());
}
