use super::*;

fn attempt(task: u32, number: u32) -> AttemptId {
    AttemptId { lease: LeaseId([1; 16]), task, replica: 0, number }
}

fn item(task: u32, run: u64) -> Billed {
    Billed { attempt: attempt(task, 1), result: Hash([2; 32]), run: Millis(run) }
}

fn voucher(billed: &[Billed], rate: Rate) -> Voucher {
    let run = Millis(billed.iter().map(|item| item.run.0).sum());
    let count = u32::try_from(billed.len()).unwrap();
    Voucher {
        lease: LeaseId([1; 16]),
        renter: souk_protocol::NodeId([1; 32]),
        provider: souk_protocol::NodeId([2; 32]),
        number: count,
        total: rate.charge(run).unwrap(),
        run,
        billed: billed_hash(billed),
        count,
        at: souk_protocol::Timestamp(0),
    }
}

fn broken(outcome: Result<(), Fault>) -> Invariant {
    outcome.unwrap_err().invariant
}

#[test]
fn a_second_done_or_payment_of_a_task_is_a_fault_that_names_both() {
    assert_eq!(one_done(None, &attempt(1, 2)), Ok(()));
    let fault = one_done(Some(&attempt(1, 1)), &attempt(1, 2)).unwrap_err();
    assert_eq!(fault.invariant, Invariant::OneDone);
    assert!(fault.detail.contains("#2 is done"), "{}", fault.detail);
    assert_eq!(broken(paid_once(Some(&attempt(1, 1)), &attempt(1, 2))), Invariant::PaidOnce);
    assert_eq!(broken(runs_once(&attempt(1, 1), true)), Invariant::RunsOnce);
}

#[test]
fn a_voucher_follows_only_if_number_list_time_and_total_do() {
    let rate = Rate(7_000);
    let billed = [item(1, 500), item(2, 1_500)];
    let good = voucher(&billed, rate);
    assert_eq!(voucher_follows(&good, rate, &billed), Ok(()));
    assert_eq!(broken(voucher_follows(&good, Rate(8_000_000), &billed)), Invariant::PaidOnce);
    assert_eq!(broken(voucher_follows(&good, rate, &billed[..1])), Invariant::PaidOnce);
    let twice = [item(1, 500), item(1, 500)];
    assert_eq!(broken(voucher_follows(&voucher(&twice, rate), rate, &twice)), Invariant::PaidOnce);
    let skipped = Voucher { number: 3, ..good };
    assert_eq!(broken(voucher_follows(&skipped, rate, &billed)), Invariant::PaidOnce);
}

#[test]
fn paid_work_ran_at_least_as_long_as_it_is_billed_for() {
    let timeout = Millis(1_000);
    assert_eq!(paid_work_was_done(&item(1, 500), Some(Millis(500)), timeout), Ok(()));
    for (billed, ran) in [(501, Some(500)), (1, None), (1_001, Some(2_000))] {
        let outcome = paid_work_was_done(&item(1, billed), ran.map(Millis), timeout);
        assert_eq!(broken(outcome), Invariant::PaidWorkWasDone);
    }
    assert_eq!(paid_results_are_held(&attempt(1, 1), false, false), Ok(()));
    assert_eq!(broken(paid_results_are_held(&attempt(1, 1), true, false)), Invariant::PaidResultsAreHeld);
}

#[test]
fn books_agree_to_the_byte_or_the_provider_is_behind_where_it_was_left() {
    let rate = Rate(1_000_000);
    let lease = LeaseId([1; 16]);
    let (less, more) = (voucher(&[item(1, 5_000)], rate), voucher(&[item(1, 5_000), item(2, 5_000)], rate));
    assert_eq!(books_agree(&lease, Some(&more), Some(&more), true), Ok(()));
    assert_eq!(broken(books_agree(&lease, Some(&more), Some(&less), true)), Invariant::BooksAgree);
    assert_eq!(books_agree(&lease, Some(&more), Some(&less), false), Ok(()));
    assert_eq!(broken(books_agree(&lease, Some(&less), Some(&more), false)), Invariant::BooksAgree);
    assert_eq!(broken(books_agree(&lease, None, Some(&less), false)), Invariant::BooksAgree);
    assert_eq!(broken(voucher_is_known(&less, false)), Invariant::BooksAgree);
}

#[test]
fn contradictions_and_words_before_the_journal_are_faults() {
    let (a, b) = (Hash([1; 32]), Hash([2; 32]));
    assert_eq!(no_contradiction(3, None, &a), Ok(()));
    assert_eq!(no_contradiction(3, Some(&a), &a), Ok(()));
    assert_eq!(broken(no_contradiction(3, Some(&a), &b)), Invariant::NoContradiction);
    assert_eq!(journal_before_speaking("result", Some(&a), &a), Ok(()));
    assert_eq!(broken(journal_before_speaking("result", None, &a)), Invariant::JournalBeforeSpeaking);
    assert_eq!(broken(journal_before_speaking("result", Some(&b), &a)), Invariant::JournalBeforeSpeaking);
}

#[test]
fn limits_are_inclusive() {
    assert_eq!(within_exposure(Credits(6), Credits(4), Credits(10)), Ok(()));
    assert_eq!(broken(within_exposure(Credits(6), Credits(5), Credits(10))), Invariant::WithinExposure);
    assert_eq!(within_budget(Credits(10), Some(Credits(10))), Ok(()));
    assert_eq!(within_budget(Credits(10), None), Ok(()));
    assert_eq!(broken(within_budget(Credits(11), Some(Credits(10)))), Invariant::WithinBudget);
    assert_eq!(attempts_bounded(&attempt(1, 3), 3, 3), Ok(()));
    assert_eq!(broken(attempts_bounded(&attempt(1, 4), 4, 3)), Invariant::AttemptsBounded);
}
