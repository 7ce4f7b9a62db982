use proptest::prelude::*;

use super::*;
use crate::testing::permutations;

/// Something that happens, in whatever order.
#[derive(Debug, Clone)]
enum Step {
    Award { lease: u8, slots: u32, tasks: u32 },
    Task { lease: u8, task: u32 },
    Ended { lease: u8, task: u32, end: AttemptEnd, run: u64 },
    Answer { lease: u8, pay: bool },
    Cancel { lease: u8, task: u32 },
    End { lease: u8 },
    Sign { lease: u8 },
    Pass(u64),
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = 0..4u8;
    let end = prop_oneof![
        Just(AttemptEnd::Done),
        Just(AttemptEnd::Failed),
        Just(AttemptEnd::Lost),
        Just(AttemptEnd::ProviderFault),
    ];
    prop_oneof![
        3 => (lease.clone(), 0..5u32, 0..3u32).prop_map(|(lease, slots, tasks)| Step::Award { lease, slots, tasks }),
        4 => (lease.clone(), 0..9u32).prop_map(|(lease, task)| Step::Task { lease, task }),
        6 => (lease.clone(), 0..9u32, end, 0..70_000u64)
            .prop_map(|(lease, task, end, run)| Step::Ended { lease, task, end, run }),
        5 => (lease.clone(), any::<bool>()).prop_map(|(lease, pay)| Step::Answer { lease, pay }),
        1 => (lease.clone(), 0..9u32).prop_map(|(lease, task)| Step::Cancel { lease, task }),
        1 => lease.clone().prop_map(|lease| Step::End { lease }),
        1 => lease.prop_map(|lease| Step::Sign { lease }),
        2 => prop_oneof![0..3_000u64, 50_000..200_000u64].prop_map(Step::Pass),
        1 => Just(Step::Crash),
    ]
}

/// The renter's notes: results it has not answered, drafts it has not signed.
#[derive(Default)]
struct Notes {
    results: BTreeMap<LeaseId, Vec<Verified<TaskResult>>>,
    drafts: BTreeMap<LeaseId, Signed<Receipt>>,
}

impl Notes {
    fn take(&mut self, stall: &mut Stall, out: &[Output]) {
        for body in stall.said(out) {
            match body {
                Control::Result(result) => {
                    let result = result.verify(&stall.renter).unwrap();
                    let known = self.results.entry(result.attempt.lease).or_default();
                    let billed = stall.accounts[&result.attempt.lease].has(&result.attempt);
                    if !billed && known.iter().all(|known| known.attempt != result.attempt) {
                        known.push(result);
                    }
                }
                Control::Receipt(draft) => {
                    self.drafts.insert(draft.peek().unwrap().lease, draft);
                }
                _ => {}
            }
        }
    }
}

fn apply(stall: &mut Stall, notes: &mut Notes, step: Step) {
    let id = |lease: u8| LeaseId([lease; 16]);
    let attempt = |lease: u8, task: u32| AttemptId { lease: id(lease), task, replica: 0, number: 1 };
    let out = match step {
        Step::Award { lease, slots, tasks } => {
            if stall.channels.contains_key(&id(lease)) {
                return;
            }
            let tasks: Vec<u32> = (0..tasks.min(slots)).collect();
            let message = stall.award_message(&stall.award_doc(id(lease), slots), &tasks);
            let out = stall.message(message);
            if decline(&out).is_none() {
                stall.renters_side(id(lease));
            }
            out
        }
        Step::Pass(ms) => stall.pass(ms),
        Step::Crash => stall.crash(stall.journal.len()),
        Step::Ended { lease, task, end, run } => {
            let outcome = stall.outcome(end, run);
            stall.handle(Event::Ended { attempt: attempt(lease, task), outcome })
        }
        Step::Task { lease, .. }
        | Step::Answer { lease, .. }
        | Step::Cancel { lease, .. }
        | Step::End { lease }
        | Step::Sign { lease }
            if !stall.channels.contains_key(&id(lease)) =>
        {
            return;
        }
        Step::Task { lease, task } => {
            let work = stall.work(id(lease), task);
            stall.say(id(lease), Control::Task(work))
        }
        Step::Answer { lease, pay } => {
            let Some(result) = notes.results.get_mut(&id(lease)).and_then(Vec::pop) else { return };
            if pay && result.end.is_billed() && stall.trader.provider.leases.contains_key(&id(lease)) {
                stall.pays(&result)
            } else {
                stall.refuses(result.attempt)
            }
        }
        Step::Cancel { lease, task } => stall.say(id(lease), Control::Cancel { attempt: attempt(lease, task) }),
        Step::End { lease } => stall.end(id(lease)),
        Step::Sign { lease } => {
            let Some(draft) = notes.drafts.remove(&id(lease)) else { return };
            let signed = Signed::sign(&draft.peek().unwrap(), &stall.renter).unwrap().into_signed();
            stall.say(id(lease), Control::Receipt(signed))
        }
    };
    notes.take(stall, &out);
}

/// Case M9: vouchers, a refusal, the end and the signed receipt in every order, each repeated until all are through: the
/// deadline never finds a paid lease unpaid, and the books are the same whatever came first.
#[test]
fn every_order_of_arrival_leaves_the_provider_with_the_same_books() {
    let lease = LeaseId([1; 16]);
    let ready = || {
        let mut stall = Stall::new();
        assert_eq!(stall.lease(1, 3, &[0, 1, 2]), lease);
        let run = |task| 3_000 + u64::from(task);
        let results: Vec<_> = (0..3).map(|task| stall.ends(lease, task, AttemptEnd::Done, run(task))).collect();
        (stall, results)
    };
    let (mut straight, results) = ready();
    let paid: Vec<_> =
        results[..2].iter().map(|result| straight.voucher(result, result.hash(), result.run.0)).collect();
    let refused = Control::Refused { attempt: results[2].attempt, reason: Text::clipped("not wanted") };
    let end = Control::End { end: LeaseEnd::Completed, reason: Text::default() };
    let mut frames = Vec::new();
    let mut last = Vec::new();
    let mut say = |stall: &mut Stall, body: Control| {
        let frame = stall.channels.get_mut(&lease).unwrap().send(body, Millis(0)).unwrap();
        frames.push(frame.clone());
        last = stall.message(Message::Lease(frame));
        stall.said(&last)
    };
    for body in paid.into_iter().chain([refused]) {
        say(&mut straight, body);
    }
    let said = say(&mut straight, end);
    let [Control::Receipt(draft)] = &said[..] else { panic!("{said:?}") };
    let signed = Signed::sign(&draft.peek().unwrap(), &straight.renter).unwrap().into_signed();
    say(&mut straight, Control::Receipt(signed));
    assert_eq!(receipts(&last), 1);
    let expected = straight.trader.provider.receipt_file(&lease).unwrap();
    assert_eq!((expected.results.len(), draft.peek().unwrap().unbilled), (2, 1));
    for order in permutations(frames.len()) {
        let (mut stall, _) = ready();
        for _ in 0..frames.len() {
            for index in &order {
                stall.message(Message::Lease(frames[*index].clone()));
            }
        }
        assert_eq!(stall.trader.provider.receipt_file(&lease).as_ref(), Some(&expected), "{order:?}");
        assert_eq!(stall.trader.books.totals(), straight.trader.books.totals(), "{order:?}");
        assert_eq!(stall.journal, straight.journal, "{order:?}");
        // Long after every deadline nothing is unpaid.
        stall.pass(200_000);
        assert_eq!(stall.trader.books.totals(), straight.trader.books.totals(), "{order:?}");
        assert_eq!(stall.trader.provider.capacity().used, Capacity::default());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// No interleaving sells a slot twice, lends over a limit, loses a voucher or leaves a timer unsatisfied; and the
    /// journal alone gives the same books.
    #[test]
    fn no_interleaving_oversells_or_lends_too_much(steps in proptest::collection::vec(step(), 1..60)) {
        let mut stall = Stall::new();
        let mut notes = Notes::default();
        for step in steps {
            apply(&mut stall, &mut notes, step); // checks the invariants after every event
        }
        prop_assert_eq!(invariant::vouchers_monotone(&stall.journal), Ok(()));
        let totals = stall.trader.books.totals();
        stall.crash(stall.journal.len());
        // What ran is lost by the restart, and all else is as it was.
        let after = stall.trader.books.totals();
        prop_assert_eq!((after.earned, after.claimed), (totals.earned, totals.claimed));
        prop_assert_eq!(after.reserved, Credits(0));
    }

    /// Frames that come twice, late or in another order end in the same account.
    #[test]
    fn frames_in_any_order_and_repeated_give_the_same_account(
        order in proptest::collection::vec(0..4usize, 4..24),
    ) {
        let mut stall = Stall::new();
        let lease = stall.lease(1, 4, &[0, 1, 2, 3]);
        let results: Vec<_> = (0..4).map(|task| stall.ends(lease, task, AttemptEnd::Done, 3_000 + u64::from(task))).collect();
        let mut frames = Vec::new();
        for result in &results {
            let done = stall.voucher(result, result.hash(), result.run.0);
            frames.push(stall.channels.get_mut(&lease).unwrap().send(done, Millis(0)).unwrap());
        }
        for index in order.into_iter().chain(0..4) {
            stall.message(Message::Lease(frames[index].clone()));
        }
        let view = stall.view(lease).unwrap();
        prop_assert_eq!((view.billed, view.unsettled, view.total), (4, 0, stall.accounts[&lease].total()));
        prop_assert_eq!(stall.trader.books.earned(&stall.renter_id()), stall.accounts[&lease].total());
        prop_assert_eq!(invariant::vouchers_monotone(&stall.journal), Ok(()));
    }
}
