use super::*;

#[test]
fn a_restart_makes_lost_results_of_what_ran_and_the_lease_goes_on() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    let records = stall.journal.len();
    let out = stall.crash(records);
    assert!(out.iter().any(|output| matches!(output, Output::OpenLease(view) if view.lease == lease)));
    let said = stall.said(&out);
    assert_eq!(said[0], Control::Resume);
    let ends: Vec<_> = said
        .iter()
        .filter_map(|body| match body {
            Control::Result(result) => {
                let result = result.verify(&stall.renter).unwrap();
                Some((result.attempt.task, result.end, result.run))
            }
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(0, AttemptEnd::Done, Millis(6_000)), (1, AttemptEnd::Lost, Millis(0))]);

    // The renter pays and hands out the next attempt.
    stall.pays(&result);
    stall.refuses(AttemptId { lease, task: 1, replica: 0, number: 1 });
    let mut again = stall.work(lease, 1);
    again.attempt.number = 2;
    let out = stall.say(lease, Control::Task(again));
    assert_eq!(runs(&out), [1]);
    assert_eq!(stall.trader.books.earned(&stall.renter_id()), Credits(500));
}

#[test]
fn a_restarted_renter_hears_what_is_unanswered_again() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    let first = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    stall.heartbeat(lease);
    stall.channels.insert(lease, Channel::new(lease, 500));
    let resume = stall.channels[&lease].say(Control::Resume);
    let out = stall.message(Message::Lease(resume));
    let said = stall.said(&out);
    let [Control::Result(result)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(result.hash(), first.hash());
    // And can go on from there.
    stall.pays(&first);
    let second = stall.ends(lease, 1, AttemptEnd::Done, 6_000);
    stall.pays(&second);
    let out = stall.end(lease);
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!(receipt.total, Credits(1_000));
}

#[test]
fn a_renter_that_forgot_the_lease_is_shown_its_documents() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let unknown = Channel::new(lease, 500).say(Control::Unknown);
    let out = stall.message(Message::Lease(unknown));
    let shown = out.iter().find_map(|output| match output {
        Output::Send { message: Message::Lease(frame), .. } => match &frame.body {
            Control::Show { award, accepted } => Some((award.clone(), accepted.clone())),
            _ => None,
        },
        _ => None,
    });
    let (award, accepted) = shown.unwrap();
    let award = award.verify(&stall.renter).unwrap();
    assert_eq!(accepted.verify(&stall.renter).unwrap().award, award.hash());
}

#[test]
fn an_acceptance_that_never_reached_the_disk_is_forgotten_with_its_capacity() {
    let mut stall = Stall::new();
    stall.slow = Some(Vec::new());
    let award = stall.award_doc(LeaseId([1; 16]), 2);
    stall.message(stall.award_message(&award, &[0]));
    stall.crash(0);
    assert_eq!(stall.trader.provider.capacity().used, Capacity::default());
    assert!(!stall.trader.provider.knows(&award.lease));
    // The renter's frame is answered: no such lease here.
    let frame = Channel::new(award.lease, 77).say(Control::Resume);
    let out = stall.message(Message::Lease(frame));
    let [Output::Send { message: Message::Lease(answer), .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(answer.body, Control::Unknown);
}

#[test]
fn a_drafted_receipt_survives_and_is_said_again() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    stall.pays(&result);
    let before = stall.end(lease);
    let first = before.iter().find_map(|output| match output {
        Output::Send { message: Message::Lease(frame), .. } => match &frame.body {
            Control::Receipt(draft) => Some(draft.hash()),
            _ => None,
        },
        _ => None,
    });
    let records = stall.journal.len();
    let out = stall.crash(records);
    let (receipt, out) = stall.signs(lease, &out);
    assert_eq!(Some(Signed::sign(&receipt, &stall.renter).unwrap().hash()), first);
    assert_eq!(receipts(&out), 1);
    let records = stall.journal.len();
    stall.crash(records);
    assert!(stall.trader.provider.receipt_file(&lease).is_some());
}

#[test]
fn slots_that_were_freed_before_a_crash_are_not_taken_again_by_the_replay() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 3, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    stall.end(lease);
    let other = stall.lease(2, 4, &[]);
    let records = stall.journal.len();
    let out = stall.crash(records);
    assert_eq!(stall.trader.provider.capacity().used.cpu.0, 4_000);
    let opened = |id| out.iter().any(|output| matches!(output, Output::OpenLease(view) if view.lease == id));
    assert!(opened(other) && !opened(lease));
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Ending(LeaseEnd::Completed));
    stall.said(&out);
    let out = stall.pays(&result);
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!((receipt.total, receipt.ended_by), (Credits(500), Party::Renter));
}

/// Wherever the journal is cut, what comes back is what its records say, and the books agree with it.
#[test]
fn a_replay_of_every_prefix_gives_the_state_that_was_there() {
    let mut stall = Stall::new();
    let mut states = Vec::new();
    let mut remember = |stall: &Stall| {
        let durable = |view: ProviderLease| (view.lease, view.unsettled + view.running.len(), view.billed, view.total);
        let leases = stall.trader.provider.leases(Millis(0), Millis(1)).into_iter().map(durable).collect::<Vec<_>>();
        states.push((stall.journal.len(), leases, stall.trader.books.totals(), stall.trader.provider.capacity().used));
    };
    let a = stall.lease(1, 2, &[0, 1]);
    remember(&stall);
    let first = stall.ends(a, 0, AttemptEnd::Done, 6_000);
    remember(&stall);
    let b = stall.lease(2, 1, &[]);
    remember(&stall);
    stall.pays(&first);
    remember(&stall);
    let second = stall.ends(a, 1, AttemptEnd::ProviderFault, 10);
    stall.refuses(second.attempt);
    remember(&stall);
    let out = stall.end(a);
    remember(&stall);
    stall.signs(a, &out);
    remember(&stall);
    let out = stall.end(b);
    stall.signs(b, &out);
    remember(&stall);
    for cut in 0..=stall.journal.len() {
        let mut trader = Trader::new(settings(9), Arc::new(TestKeys::new(1)));
        for record in &stall.journal[..cut] {
            trader.apply(record).unwrap();
        }
        assert_eq!(invariant::no_oversell(&trader.provider), Ok(()));
        assert_eq!(trader.books.verify(), Vec::<String>::new());
        for (_, leases, totals, used) in states.iter().filter(|(len, ..)| *len == cut) {
            let durable =
                |view: ProviderLease| (view.lease, view.unsettled + view.running.len(), view.billed, view.total);
            let replayed: Vec<_> = trader.provider.leases(Millis(0), Millis(1)).into_iter().map(durable).collect();
            assert_eq!((&replayed, &trader.books.totals(), &trader.provider.capacity().used), (leases, totals, used));
        }
    }
}

#[test]
fn a_journal_with_a_forged_or_repeated_record_is_refused() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    stall.pays(&result);
    let journal = stall.journal.clone();
    let replay = |records: &[Record]| {
        let mut trader = Trader::new(settings(9), Arc::new(TestKeys::new(1)));
        records.iter().try_for_each(|record| trader.apply(record)).map_err(|error| error.to_string())
    };
    assert_eq!(replay(&journal), Ok(()));
    let twice = [&journal[..], &journal[..1]].concat();
    assert!(replay(&twice).unwrap_err().contains("was accepted twice"));
    let mut early = journal.clone();
    early.remove(0);
    assert!(replay(&early).unwrap_err().contains("is not open"));
    let mut forged = journal;
    let Some(Record::Delivered { result }) = forged.get_mut(2) else { panic!("order of records") };
    let mut better = result.peek().unwrap();
    better.run = Millis(50_000);
    better.provider = stall.renter_id();
    *result = Signed::sign(&better, &stall.renter).unwrap().into_signed();
    assert!(replay(&forged).unwrap_err().contains("a result of another node"));
}
