use super::*;

#[test]
fn a_lease_that_has_done_its_work_ends_in_a_receipt_of_both() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    for (task, end) in [(0, AttemptEnd::Done), (1, AttemptEnd::Failed)] {
        let result = stall.ends(lease, task, end, 6_000);
        stall.pays(&result);
    }
    let out = stall.end(lease);
    assert!(out.contains(&Output::CloseLease { lease }));
    assert_eq!(stall.trader.provider.capacity().used, Capacity::default());
    let (receipt, out) = stall.signs(lease, &out);
    assert_eq!((receipt.total, receipt.run, receipt.billed.len()), (Credits(1_000), Millis(12_000), 2));
    assert_eq!((receipt.end, receipt.ended_by), (LeaseEnd::Completed, Party::Renter));
    assert!(receipt.voucher.is_some());
    assert!(receipt.remark.starts_with("task 1"), "{}", receipt.remark);
    assert!(out.contains(&Output::Forget { lease }));
    assert_eq!(receipts(&out), 1);
    assert_eq!(stall.view(lease), None);

    let file = stall.trader.provider.receipt_file(&lease).unwrap();
    assert_eq!(file.results.len(), 2);
    assert_eq!(file.provider.hash(), file.renter.hash());
    assert_eq!(file.voucher.unwrap().hash(), receipt.voucher.unwrap());
    assert_eq!(invariant::vouchers_monotone(&stall.journal), Ok(()));
}

#[test]
fn an_end_waits_for_what_is_not_settled() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    let out = stall.end(lease);
    assert!(out.contains(&Output::CloseLease { lease }));
    assert_eq!(stall.said(&out), []);
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Ending(LeaseEnd::Completed));
    let out = stall.pays(&result);
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!(receipt.total, Credits(500));
}

#[test]
fn a_cancelled_lease_stops_its_work_and_bills_the_time_to_the_stop() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let work = stall.work(lease, 1);
    stall.say(lease, Control::Task(work));
    let out = stall.say(lease, Control::End { end: LeaseEnd::CancelledByRenter, reason: Text::default() });
    assert_eq!(stops(&out), [(0, AttemptEnd::Cancelled)]);
    assert!(!out.contains(&Output::CloseLease { lease }));
    let said = stall.said(&out);
    let [Control::Result(waiting)] = &said[..] else { panic!("{said:?}") };
    let waiting = waiting.verify(&stall.renter).unwrap();
    stall.refuses(waiting.attempt);
    let result = stall.ends(lease, 0, AttemptEnd::Cancelled, 1_200);
    let out = stall.pays(&result);
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!((receipt.total, receipt.billed.len(), receipt.unbilled), (Credits(100), 1, 1));
}

#[test]
fn a_receipt_that_differs_from_the_draft_is_not_taken() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[]);
    let out = stall.end(lease);
    let said = stall.said(&out);
    let [Control::Receipt(draft)] = &said[..] else { panic!("{said:?}") };
    let mut other = draft.peek().unwrap();
    other.remark = Text::clipped("cheaper");
    let signed = Signed::sign(&other, &stall.renter).unwrap().into_signed();
    let out = stall.say(lease, Control::Receipt(signed));
    assert!(blamed(&out).unwrap().ends_with("differs from the draft"));
    // The provider's own signature in return is none of the renter's.
    let out = stall.say(lease, Control::Receipt(draft.clone()));
    assert!(blamed(&out).is_some());
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Drafted(LeaseEnd::Completed));
    // A renter that is there and never signs is left with a one-sided close.
    for _ in 0..13 {
        stall.pass(5_000);
        stall.heartbeat(lease);
    }
    assert_eq!(stall.view(lease), None);
    assert!(matches!(stall.journal.last(), Some(Record::Close(_))));
}

#[test]
fn a_closed_lease_answers_what_is_repeated() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[]);
    let award = stall.award_doc(lease, 1);
    let out = stall.end(lease);
    stall.signs(lease, &out);
    let out = stall.message(stall.award_message(&award, &[0]));
    assert_eq!(runs(&out), Vec::<u32>::new());
    assert!(matches!(&stall.said(&out)[..], [Control::Receipt(_)]));
    // A renter that restarted without the receipt gets it again.
    stall.channels.insert(lease, Channel::new(lease, 99));
    let resume = stall.channels[&lease].say(Control::Resume);
    let out = stall.message(Message::Lease(resume));
    assert!(matches!(&stall.said(&out)[..], [Control::Receipt(_)]));
    // But an answer is not answered.
    let Some(Control::Receipt(receipt)) = stall.said(&out).pop().or_else(|| {
        out.iter().find_map(|output| match output {
            Output::Send { message: Message::Lease(frame), .. } => Some(frame.body.clone()),
            _ => None,
        })
    }) else {
        panic!("{out:?}")
    };
    let frame = stall.channels[&lease].say(Control::Receipt(receipt));
    assert_eq!(stall.message(Message::Lease(frame)), []);
}

#[test]
fn delivered_work_without_a_voucher_ends_the_lease_unpaid_and_stays_owed() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    stall.ends(lease, 0, AttemptEnd::Done, 12_000);
    let mut said = Vec::new();
    let mut stopped = Vec::new();
    for _ in 0..14 {
        stall.heartbeat(lease);
        let out = stall.pass(5_000);
        stopped.extend(stops(&out));
        said.extend(stall.said(&out));
    }
    assert!(said.iter().any(|body| matches!(body, Control::End { end: LeaseEnd::Unpaid, .. })), "{said:?}");
    assert_eq!(stopped, [(1, AttemptEnd::Preempted)]);
    stall.ends(lease, 1, AttemptEnd::Preempted, 3_000);
    for _ in 0..14 {
        stall.heartbeat(lease);
        stall.pass(5_000);
    }
    assert_eq!(stall.view(lease), None);
    let Some(Record::Close(close)) = stall.journal.last() else { panic!("no close") };
    let close = close.peek().unwrap();
    assert_eq!((close.end, close.claimed, close.vouchered), (LeaseEnd::Unpaid, Credits(1_000), Credits(0)));
    assert_eq!(stall.trader.books.exposure(&stall.renter_id()), Credits(1_000));
}

#[test]
fn a_silent_renter_is_unknown_then_its_work_stops_and_its_results_wait_until_the_retention_ends() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[0, 1]);
    let result = stall.ends(lease, 0, AttemptEnd::Done, 12_000);
    stall.heartbeat(lease);
    stall.pass(14_999);
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Open);
    stall.pass(1);
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Unknown);
    let out = stall.pass(45_000);
    assert_eq!(stops(&out), [(1, AttemptEnd::Lost)]);
    stall.handle(Event::Ended {
        attempt: AttemptId { lease, task: 1, replica: 0, number: 1 },
        outcome: stall.outcome(AttemptEnd::Lost, 60_000),
    });
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Lapsed);
    assert_eq!(stall.trader.provider.capacity().used, Capacity::default());

    // Back within the retention: the result counts, and both sign.
    stall.pass(3_000_000);
    stall.heartbeat(lease);
    let done = stall.voucher(&result, result.hash(), 12_000);
    stall.say(lease, done);
    let out = stall.refuses(AttemptId { lease, task: 1, replica: 0, number: 1 });
    assert!(stall.view(lease).is_some_and(|view| view.state == LeaseState::Drafted(LeaseEnd::Unreachable)));
    let out = [out, stall.pass(8_000)].concat();
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!(
        (receipt.total, receipt.end, receipt.ended_by),
        (Credits(1_000), LeaseEnd::Unreachable, Party::Provider)
    );
}

#[test]
fn a_renter_that_never_comes_back_leaves_a_one_sided_close() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    stall.ends(lease, 0, AttemptEnd::Done, 12_000);
    stall.pass(60_000 + 3_600_000 - 1);
    assert_eq!(stall.view(lease).unwrap().state, LeaseState::Lapsed);
    let out = stall.pass(1);
    assert!(out.contains(&Output::Forget { lease }));
    let Some(Record::Close(close)) = stall.journal.last() else { panic!("no close") };
    assert_eq!(close.peek().unwrap().claimed, Credits(1_000));
    // Nothing owed, nothing to wait for.
    let idle = stall.lease(2, 1, &[]);
    stall.pass(60_000);
    assert_eq!(stall.view(idle), None);
}

#[test]
fn an_offline_window_keeps_the_work_going() {
    let mut stall = Stall::new();
    let mut award = stall.award_doc(LeaseId([1; 16]), 1);
    award.terms.offline = Millis(600_000);
    let out = stall.message(stall.award_message(&award, &[0]));
    assert_eq!(runs(&out), [0]);
    assert_eq!(stops(&stall.pass(599_999)), []);
    assert_eq!(stops(&stall.pass(1)), [(0, AttemptEnd::Lost)]);
}

#[test]
fn a_draining_node_takes_nothing_new_and_lets_what_runs_end() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 1, &[0]);
    let work = stall.work(lease, 1);
    stall.say(lease, Control::Task(work));
    let out = stall.handle(Event::Drain);
    assert_eq!(stops(&out), []);
    assert_eq!(stall.offer.as_ref().unwrap().free, Capacity::default());
    let said = stall.said(&out);
    let [Control::End { end: LeaseEnd::Preempted, .. }, Control::Result(waiting)] = &said[..] else {
        panic!("{said:?}")
    };
    let waiting = waiting.verify(&stall.renter).unwrap();
    assert_eq!(waiting.end, AttemptEnd::Preempted);
    stall.refuses(waiting.attempt);
    let award = stall.award_doc(LeaseId([2; 16]), 1);
    assert_eq!(code(&stall.message(stall.award_message(&award, &[]))), Some(DeclineCode::Closed));
    let result = stall.ends(lease, 0, AttemptEnd::Done, 6_000);
    let out = stall.pays(&result);
    let (receipt, _) = stall.signs(lease, &out);
    assert_eq!((receipt.total, receipt.end), (Credits(500), LeaseEnd::Preempted));
}

#[test]
fn something_is_said_every_five_seconds_and_acknowledged_soon() {
    let mut stall = Stall::new();
    let lease = stall.lease(1, 2, &[]);
    stall.heartbeat(lease);
    let beats = |out: &[Output]| {
        let beat = |output: &&Output| matches!(output, Output::Send { message: Message::Lease(frame), .. } if frame.body == Control::Heartbeat);
        out.iter().filter(beat).count()
    };
    assert_eq!(beats(&stall.pass(4_999)), 0);
    assert_eq!(beats(&stall.pass(1)), 1);
    let work = stall.work(lease, 0);
    stall.say(lease, Control::Task(work));
    assert_eq!(beats(&stall.pass(199)), 0);
    let out = stall.pass(1);
    assert_eq!(beats(&out), 1);
    stall.said(&out);
    assert!(stall.channels[&lease].is_settled());
}
