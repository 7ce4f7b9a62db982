use super::*;

#[test]
fn the_run_starts_at_once_and_the_acceptance_waits_for_the_disk() {
    let mut stall = Stall::new();
    stall.slow = Some(Vec::new());
    let award = stall.award_doc(LeaseId([1; 16]), 2);
    let out = stall.message(stall.award_message(&award, &[0, 1]));
    assert!(matches!(out[0], Output::OpenLease(_)));
    assert_eq!(runs(&out), [0, 1]);
    assert!(!out.iter().any(|output| matches!(output, Output::Send { .. })));
    stall.renters_side(award.lease);
    // What is said meanwhile waits behind it, in order.
    let attempt = AttemptId { lease: award.lease, task: 0, replica: 0, number: 1 };
    let early = stall.handle(Event::Running { attempt, state: RunState::Running });
    assert_eq!(stall.said(&early), []);
    let outcome = stall.outcome(AttemptEnd::Done, 10);
    stall.handle(Event::Ended { attempt, outcome });
    let out = stall.sync();
    let said = stall.said(&out);
    assert!(matches!(said[..], [Control::Accepted(_), Control::Progress { .. }, Control::Result(_)]), "{said:?}");
    assert!(matches!(
        stall.journal[..],
        [Record::Accepted { .. }, Record::Started { .. }, Record::Started { .. }, Record::Delivered { .. }]
    ));
}

#[test]
fn tasks_wait_for_a_slot_and_start_in_their_order() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    for task in 1..4 {
        let work = stall.work(lease, task);
        assert_eq!(runs(&stall.say(lease, Control::Task(work))), Vec::<u32>::new());
    }
    assert_eq!(stall.view(lease).unwrap().queued, 3);
    let attempt = AttemptId { lease, task: 0, replica: 0, number: 1 };
    let outcome = stall.outcome(AttemptEnd::Done, 10);
    let out = stall.handle(Event::Ended { attempt, outcome });
    assert_eq!(runs(&out), [1]);
}

#[test]
fn more_tasks_than_may_wait_come_back_unbilled() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let mut refused = 0;
    for task in 1..=20 {
        let work = stall.work(lease, task);
        let out = stall.say(lease, Control::Task(work));
        for body in stall.said(&out) {
            if let Control::Result(result) = body {
                let result = result.verify(&stall.renter).unwrap();
                assert_eq!((result.end, &*result.reason), (AttemptEnd::Preempted, "too many tasks wait on this lease"));
                refused += 1;
            }
        }
    }
    assert_eq!((refused, stall.view(lease).unwrap().queued), (4, 16));
}

#[test]
fn an_attempt_is_taken_once_and_a_task_that_breaks_the_terms_is_not() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0]);
    let work = stall.work(lease, 0);
    assert_eq!(runs(&stall.say(lease, Control::Task(work))), Vec::<u32>::new());
    let mut greedy = stall.work(lease, 1);
    greedy.limits.timeout = Millis(60_001);
    let out = stall.say(lease, Control::Task(greedy));
    assert_eq!(runs(&out), Vec::<u32>::new());
    assert!(blamed(&out).unwrap().contains("timeout in ms 60001 is over the lease's 60000"));
    assert!(matches!(&stall.said(&out)[..], [Control::Result(_)]));
    // A second attempt at the same task is another one.
    let mut second = stall.work(lease, 0);
    second.attempt.number = 2;
    assert_eq!(runs(&stall.say(lease, Control::Task(second))), [0]);
}

#[test]
fn a_voucher_that_fits_settles_the_claim_and_one_that_differs_does_not() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 12_000);
    // 12 s at 0.30 CR an hour.
    assert_eq!(stall.trader.books.claimed(&stall.renter_id()), Credits(1_000));

    let cheap = stall.voucher(&result, result.hash(), 6_000);
    let Control::Done { attempt, voucher, .. } = cheap else { unreachable!() };
    let out = stall.say(lease, Control::Done { attempt, run: Millis(12_000), voucher: voucher.clone() });
    assert!(blamed(&out).unwrap().contains("voucher 1 says 0.000500 CR"), "{out:?}");
    assert_eq!(stall.trader.books.claimed(&stall.renter_id()), Credits(1_000));

    // What the renter capped and says so is taken.
    let out = stall.say(lease, Control::Done { attempt, run: Millis(6_000), voucher });
    assert_eq!(blamed(&out), None);
    assert_eq!(stall.trader.books.claimed(&stall.renter_id()), Credits(0));
    assert_eq!(stall.trader.books.earned(&stall.renter_id()), Credits(500));
    assert_eq!(stall.view(lease).unwrap().total, Credits(500));
    assert_eq!(stall.trader.provider.earned(&stall.trader.books)[0].vouchered, Credits(500));
}

#[test]
fn more_than_was_claimed_or_a_strangers_voucher_is_no_payment() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 12_000);
    let more = stall.voucher(&result, result.hash(), 12_001);
    assert!(blamed(&stall.say(lease, more)).unwrap().contains("claims 12000 ms, 12001 are billed"));
    stall.renters_side_account(lease);
    let good = stall.voucher(&result, result.hash(), 12_000);
    let Control::Done { attempt, run, voucher } = good else { unreachable!() };
    let forged = Signed::sign(&voucher.peek().unwrap(), &TestKeys::new(8)).unwrap().into_signed();
    assert!(blamed(&stall.say(lease, Control::Done { attempt, run, voucher: forged })).is_some());
    assert_eq!(stall.trader.books.earned(&stall.renter_id()), Credits(0));
}

#[test]
fn a_run_longer_than_its_timeout_is_claimed_at_the_timeout() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::TimedOut, 61_500);
    assert_eq!(result.run, Millis(60_000));
}

#[test]
fn a_cancelled_attempt_is_stopped_once_and_a_waiting_one_is_answered_at_once() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let work = stall.work(lease, 1);
    stall.say(lease, Control::Task(work));
    let attempt = |task| AttemptId { lease, task, replica: 0, number: 1 };
    let out = stall.say(lease, Control::Cancel { attempt: attempt(1) });
    let said = stall.said(&out);
    let [Control::Result(result)] = &said[..] else { panic!("{said:?}") };
    let result = result.verify(&stall.renter).unwrap();
    assert_eq!((result.end, result.run), (AttemptEnd::Cancelled, Millis(0)));
    let out = stall.say(lease, Control::Cancel { attempt: attempt(0) });
    assert_eq!(stops(&out), [(0, AttemptEnd::Cancelled)]);
    let out = stall.say(lease, Control::Cancel { attempt: attempt(0) });
    assert_eq!(stops(&out), []);
}

#[test]
fn tasks_wait_while_too_much_is_unvouchered_and_go_on_when_it_is_paid() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    // Six minutes of claims at 0.005 CR a minute are more than half of 0.05 CR.
    let mut results =
        vec![stall.ends(lease, 0, AttemptEnd::Done, 60_000), stall.ends(lease, 1, AttemptEnd::Done, 60_000)];
    for task in 2..6 {
        let work = stall.work(lease, task);
        assert_eq!(runs(&stall.say(lease, Control::Task(work))), [task]);
        results.push(stall.ends(lease, task, AttemptEnd::Done, 60_000));
    }
    let work = stall.work(lease, 6);
    assert_eq!(runs(&stall.say(lease, Control::Task(work))), Vec::<u32>::new());
    let out = stall.pays(&results[0]);
    assert_eq!(runs(&out), [6]);
}

/// Case M13: what blocks is said by name, and at once if waiting would not help.
#[test]
fn a_lease_whose_renter_has_used_up_its_credit_ends_with_the_reason() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    for task in 0..10 {
        if task > 0 {
            let work = stall.work(lease, task);
            assert_eq!(runs(&stall.say(lease, Control::Task(work))), [task]);
        }
        let result = stall.ends(lease, task, AttemptEnd::Done, 60_000);
        stall.pays(&result);
    }
    assert_eq!(stall.trader.books.exposure(&stall.renter_id()), Credits(50_000));
    let work = stall.work(lease, 10);
    let out = stall.say(lease, Control::Task(work));
    let said = stall.said(&out);
    let Control::End { end: LeaseEnd::RenterFault, reason } = &said[0] else { panic!("{said:?}") };
    assert!(reason.starts_with("no-credit: you may owe 0.050000 CR of at most 0.050000 CR"), "{reason}");
    let Control::Result(result) = &said[1] else { panic!("{said:?}") };
    let result = result.verify(&stall.renter).unwrap();
    assert_eq!(result.end, AttemptEnd::Preempted);
    let out = stall.refuses(result.attempt);
    let (receipt, out) = stall.signs(lease, &out);
    assert_eq!((receipt.total, receipt.unbilled, receipt.end), (Credits(50_000), 1, LeaseEnd::RenterFault));
    assert_eq!(receipts(&out), 1);
}

#[test]
fn telemetry_is_signed_and_numbered() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let attempt = AttemptId { lease, task: 0, replica: 0, number: 1 };
    let out = stall.handle(Event::Samples { attempt, samples: List::default() });
    let said = stall.said(&out);
    let [Control::Telemetry(checkpoint)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(checkpoint.verify(&stall.renter).unwrap().attempt, attempt);
}

#[test]
fn a_frame_of_somebody_else_or_of_the_wrong_role_is_blamed() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let frame = stall.channels[&lease].say(Control::End { end: LeaseEnd::Completed, reason: Text::default() });
    let out = stall.handle(Event::Message { from: NodeId([7; 32]), message: Message::Lease(frame) });
    assert!(blamed(&out).unwrap().ends_with("to which it is no party"));
    let attempt = AttemptId { lease, task: 0, replica: 0, number: 1 };
    let out = stall.say(lease, Control::Progress { attempt, state: RunState::Running, at: at(0).wall });
    assert_eq!(blamed(&out), Some("said what only a provider says"));
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Open);
}

impl Stall {
    /// The renter's account of a lease, from scratch.
    fn renters_side_account(&mut self, lease: LeaseId) {
        self.accounts.insert(lease, LeaseAccount::new(RATE));
    }
}
