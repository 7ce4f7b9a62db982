//! Rules broken on purpose: each is seen, by the invariant it belongs to.

use std::collections::BTreeSet;

use souk_sim::{Broken, Invariant, RecordKind, Scenario, run};

/// Most seeds it may take until a broken rule shows.
const SEEDS: u64 = 40;

/// `broken` is seen, and by one of these.
fn is_seen(broken: Broken, expected: &[Invariant]) {
    is_seen_in(Scenario::market(), broken, expected);
}

fn is_seen_in(mut scenario: Scenario, broken: Broken, expected: &[Invariant]) {
    scenario.broken = Some(broken);
    let mut seen = BTreeSet::new();
    for seed in 0..SEEDS {
        // What is violated first tells what the broken rule is for; later ones may follow from it.
        let report = run(seed, &scenario);
        let Some(first) = report.violations.first() else { continue };
        if expected.contains(&first.invariant) {
            return;
        }
        seen.insert(first.invariant);
    }
    panic!("{broken:?} was seen as {seen:?} in {SEEDS} seeds, expected {expected:?}");
}

#[test]
fn speaking_before_the_journal_is_seen() {
    is_seen(Broken::SpeaksBeforeJournal, &[Invariant::JournalBeforeSpeaking]);
}

#[test]
fn a_disk_that_lies_makes_contradictions() {
    let expected =
        [Invariant::NoContradiction, Invariant::OneDone, Invariant::PaidOnce, Invariant::JournalBeforeSpeaking];
    is_seen(Broken::LyingDisk { records: 30 }, &expected);
}

#[test]
fn a_renter_that_forgets_its_verdicts_is_seen() {
    let expected = [Invariant::NoContradiction, Invariant::OneDone, Invariant::PaidOnce];
    is_seen(Broken::ReplaySkips(RecordKind::Result), &expected);
}

#[test]
fn a_provider_that_forgets_its_results_is_seen() {
    is_seen(Broken::ReplaySkips(RecordKind::Delivered), &[Invariant::ReplayFollows]);
}

#[test]
fn a_provider_that_forgets_its_acceptances_is_seen() {
    is_seen(
        Broken::ReplaySkips(RecordKind::Accepted),
        &[Invariant::ReplayFollows, Invariant::LeasesClose, Invariant::NothingOversold, Invariant::NoContradiction],
    );
}

#[test]
fn a_renter_that_forgets_that_a_job_has_ended_is_seen() {
    is_seen(Broken::ReplaySkips(RecordKind::JobEnded), &[Invariant::JobsEnd, Invariant::OneDone]);
}

#[test]
fn a_claim_for_more_than_was_run_is_seen() {
    is_seen(Broken::Overclaims, &[Invariant::PaidWorkWasDone]);
}

#[test]
fn a_machine_sold_twice_is_seen() {
    is_seen(Broken::Oversells, &[Invariant::NothingOversold]);
}

#[test]
fn a_budget_that_is_not_held_is_seen() {
    is_seen_in(Scenario::thrifty(), Broken::BlindToBudget, &[Invariant::WithinBudget]);
}

#[test]
fn a_credit_limit_that_is_not_held_is_seen() {
    is_seen_in(Scenario::thrifty(), Broken::BlindToCredit, &[Invariant::WithinExposure]);
}

#[test]
fn timers_that_never_fire_leave_jobs_or_leases_open() {
    is_seen(Broken::Deaf, &[Invariant::JobsEnd, Invariant::LeasesClose]);
}

#[test]
fn payment_for_outputs_that_nobody_holds_is_seen() {
    is_seen(Broken::SaysHeld, &[Invariant::PaidResultsAreHeld]);
}
