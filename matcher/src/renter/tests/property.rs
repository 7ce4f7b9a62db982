use proptest::prelude::*;

use super::*;

/// Something that happens to the market.
#[derive(Debug, Clone)]
enum Blow {
    Pass(u64),
    Crash { machine: usize, down: u64 },
    Cut { machine: usize, ms: u64 },
    Drain(usize),
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        4 => (1u64..3_000).prop_map(Blow::Pass),
        2 => (0usize..3, 1u64..4_000).prop_map(|(machine, down)| Blow::Crash { machine, down }),
        1 => (1usize..3, prop_oneof![1u64..5_000, Just(20_000u64), Just(70_000u64)])
            .prop_map(|(machine, ms)| Blow::Cut { machine, ms }),
        1 => (1usize..3).prop_map(Blow::Drain),
    ]
}

fn mixed(index: usize, attempt: &AttemptId) -> (AttemptEnd, u64) {
    match (index as u32 + attempt.task * 7 + attempt.number * 3) % 9 {
        0 => (AttemptEnd::Failed, 300),
        1 => (AttemptEnd::ProviderFault, 20),
        2 => (AttemptEnd::Done, 9_000),
        _ => (AttemptEnd::Done, 400),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Whatever happens: the rules hold after every event (the world checks them), no task is paid twice, the budget
    /// holds, and the job comes to an end.
    #[test]
    fn no_order_of_events_breaks_a_rule(
        blows in proptest::collection::vec(blow(), 0..10),
        seed in any::<u64>(),
        lost in 0u64..15,
        jitter in 0u64..80,
        disk in 0u64..30,
        tasks in 1u32..12,
        budget in prop_oneof![Just(None), (3_000u64..40_000).prop_map(Some)],
    ) {
        let mut world = World::new(vec![priced(200_000, 0), priced(300_000, 0)]);
        world.seed(seed);
        world.weather = Weather { lost, twice: lost, jitter };
        world.disk = disk;
        world.program = mixed;
        let mut job = spec(tasks);
        job.array.max_parallel = 5;
        job.array.max_failures = 100;
        job.market.budget = budget.map(Credits);
        job.sla.deadline = Some(at(world.now() + 900_000).wall);
        world.submit(job);
        // A crash before the job is durable would leave nothing to speak of.
        world.run_for(disk + 1);
        for blow in blows {
            match blow {
                Blow::Pass(ms) => world.run_for(ms),
                Blow::Crash { machine, down } => world.crash(machine, down),
                Blow::Cut { machine, ms } => {
                    world.cut = vec![machine];
                    world.run_for(ms);
                    world.cut.clear();
                }
                Blow::Drain(machine) => world.handle(machine, Event::Drain),
            }
        }
        world.run_to_end(2_000_000);
        world.weather = Weather::default();
        world.settle(8_000_000);
        prop_assert!(world.job().reserved() == Credits(0));
        if let Some(budget) = budget {
            prop_assert!(world.job().cost() <= Credits(budget));
        }
        let mut paid = std::collections::BTreeSet::new();
        for lease in world.renter().leases() {
            for billed in lease.billed {
                prop_assert!(paid.insert(billed.attempt));
            }
        }
        for provider in 1..3 {
            let (ours, theirs) = (world.trader(0).books.spent(&world.id(provider)), world.trader(provider).books.earned(&world.id(0)));
            // The renter's voucher may be lost with a provider that left for good, never the other way round.
            prop_assert!(theirs <= ours, "the provider holds vouchers for {} of {}", theirs, ours);
        }
        prop_assert_eq!(world.replayed(world.records().len()).renter.digest(), world.renter().digest());
    }
}
