//! What must hold whatever goes wrong. Each is one pure function over facts that the simulator gathers for itself;
//! none of them asks the rules.

use std::{collections::BTreeSet, fmt};

use souk_matcher::LeaseView;
use souk_protocol::{
    AttemptId, Billed, Capacity, Credits, Hash, LeaseId, Millis, Rate, Receipt, Timestamp, Voucher, billed_hash,
};

/// Names of the invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A task and replica has one journaled Done.
    OneDone,
    /// Leases never hold more than the machine, attempts never more than the slots of their lease.
    NothingOversold,
    /// An attempt is executed once, or again after a crash took it with its result.
    RunsOnce,
    /// Each attempt and each task and replica is paid for once, to one provider, by a voucher that follows the last.
    PaidOnce,
    /// What is paid for was run, for at least as long.
    PaidWorkWasDone,
    /// What counts as done is held by the renter.
    PaidResultsAreHeld,
    /// A provider's vouchers are its renter's, and at rest both have the same.
    BooksAgree,
    /// No node signs two different statements about one thing.
    NoContradiction,
    /// What another could rely on is durable before it is said.
    JournalBeforeSpeaking,
    /// No renter owes a provider more than that allows.
    WithinExposure,
    /// No job costs more than its budget.
    WithinBudget,
    /// No task has more attempts than the job allows.
    AttemptsBounded,
    /// Each job reaches an end state, one, and with it each of its attempts.
    JobsEnd,
    /// Each lease is closed on both sides.
    LeasesClose,
    /// Receipts verify, and say what the vouchers say.
    ReceiptsAreTrue,
    /// A journal replays, and to the state the node was in.
    ReplayFollows,
    /// A timer that fires moves on.
    TimersMoveOn,
    /// Records and messages are within their limits and decode.
    MessagesFit,
    /// Honest nodes do not blame each other.
    NobodyIsBlamed,
    /// A lease begins when it was promised to.
    ReservationsKept,
    /// What runs is stopped for others only if its terms allow it, and no sooner than its notice says.
    NoticeKept,
}

impl Invariant {
    /// The name people read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneDone => "one-done",
            Self::NothingOversold => "nothing-oversold",
            Self::RunsOnce => "runs-once",
            Self::PaidOnce => "paid-once",
            Self::PaidWorkWasDone => "paid-work-was-done",
            Self::PaidResultsAreHeld => "paid-results-are-held",
            Self::BooksAgree => "books-agree",
            Self::NoContradiction => "no-contradiction",
            Self::JournalBeforeSpeaking => "journal-before-speaking",
            Self::WithinExposure => "within-exposure",
            Self::WithinBudget => "within-budget",
            Self::AttemptsBounded => "attempts-bounded",
            Self::JobsEnd => "jobs-end",
            Self::LeasesClose => "leases-close",
            Self::ReceiptsAreTrue => "receipts-are-true",
            Self::ReplayFollows => "replay-follows",
            Self::TimersMoveOn => "timers-move-on",
            Self::MessagesFit => "messages-fit",
            Self::NobodyIsBlamed => "nobody-is-blamed",
            Self::ReservationsKept => "reservations-kept",
            Self::NoticeKept => "notice-kept",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An invariant does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Which.
    pub invariant: Invariant,
    /// What was found.
    pub detail: String,
}

/// `holds`, or the fault with `detail`.
fn check(invariant: Invariant, holds: bool, detail: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault { invariant, detail: detail() }) }
}

/// A Done of a task and replica: there was none before.
///
/// # Errors
/// [`Invariant::OneDone`].
pub fn one_done(before: Option<&AttemptId>, now: &AttemptId) -> Result<(), Fault> {
    check(Invariant::OneDone, before.is_none(), || format!("{now} is done, and {} was before", show(before)))
}

/// The open leases fit into the machine.
///
/// # Errors
/// [`Invariant::NothingOversold`].
pub fn nothing_oversold<'a>(machine: &Capacity, leases: impl Iterator<Item = &'a LeaseView>) -> Result<(), Fault> {
    let (mut cpu, mut memory, mut disk) = (0_u64, 0_u64, 0_u64);
    for lease in leases {
        let slots = u64::from(lease.slots);
        cpu = cpu.saturating_add(lease.requirement.cpu.0.saturating_mul(slots));
        memory = memory.saturating_add(lease.requirement.memory.0.saturating_mul(slots));
        disk = disk.saturating_add(lease.requirement.disk.0.saturating_mul(slots));
    }
    let fits = cpu <= machine.cpu.0 && memory <= machine.memory.0 && disk <= machine.disk.0;
    check(Invariant::NothingOversold, fits, || format!("leased cpu {cpu}m memory {memory} disk {disk} of {machine:?}"))
}

/// An attempt runs on an open lease that has a slot for it. `busy` counts it already.
///
/// # Errors
/// [`Invariant::NothingOversold`].
pub fn slots_respected(attempt: &AttemptId, busy: usize, lease: Option<&LeaseView>) -> Result<(), Fault> {
    let slots = lease.map_or(0, |lease| lease.slots);
    let fits = busy as u64 <= u64::from(slots);
    check(Invariant::NothingOversold, fits, || format!("{attempt} makes {busy} attempts on {slots} slots"))
}

/// A lease whose slots are freed has nothing under way.
///
/// # Errors
/// [`Invariant::NothingOversold`].
pub fn nothing_runs_on<'a>(lease: &LeaseId, mut running: impl Iterator<Item = &'a AttemptId>) -> Result<(), Fault> {
    let left = running.find(|attempt| attempt.lease == *lease);
    check(Invariant::NothingOversold, left.is_none(), || format!("lease closed under {}", show(left)))
}

/// An attempt is begun that was not begun before, unless a crash took it with its result.
///
/// # Errors
/// [`Invariant::RunsOnce`].
pub fn runs_once(attempt: &AttemptId, begun_before: bool) -> Result<(), Fault> {
    check(Invariant::RunsOnce, !begun_before, || format!("{attempt} is begun again"))
}

/// A voucher follows the one before it: next number, one more attempt, the total that the rate makes of the run time.
///
/// # Errors
/// [`Invariant::PaidOnce`].
pub fn voucher_follows(voucher: &Voucher, rate: Rate, billed: &[Billed]) -> Result<(), Fault> {
    let run = billed.iter().fold(0_u64, |sum, item| sum.saturating_add(item.run.0));
    let attempts: BTreeSet<_> = billed.iter().map(|item| item.attempt).collect();
    let count = billed.len() as u64;
    let problem = if attempts.len() != billed.len() {
        "an attempt is billed twice"
    } else if u64::from(voucher.number) != count || u64::from(voucher.count) != count {
        "it is not the next"
    } else if voucher.billed != billed_hash(billed) {
        "its list is another"
    } else if voucher.run != Millis(run) {
        "its run time is another"
    } else if rate.charge(Millis(run)) != Some(voucher.total) {
        "its total is not what the rate makes of the run time"
    } else {
        return Ok(());
    };
    check(Invariant::PaidOnce, false, || format!("voucher {} of {:?}: {problem}", voucher.number, voucher.lease))
}

/// A task and replica that is paid for as done was not before.
///
/// # Errors
/// [`Invariant::PaidOnce`].
pub fn paid_once(before: Option<&AttemptId>, now: &AttemptId) -> Result<(), Fault> {
    check(Invariant::PaidOnce, before.is_none(), || format!("{now} is paid as done, and {} was before", show(before)))
}

/// What is billed was run for at least as long, and within its limit. `ran` is what the machine knows: nothing of an
/// attempt that was cancelled before it began, for which no time can be billed.
///
/// # Errors
/// [`Invariant::PaidWorkWasDone`].
pub fn paid_work_was_done(item: &Billed, ran: Option<Millis>, timeout: Millis) -> Result<(), Fault> {
    let holds = item.run <= ran.unwrap_or_default() && item.run <= timeout;
    check(Invariant::PaidWorkWasDone, holds, || {
        format!("{} is billed {} ms, ran {ran:?} of at most {} ms", item.attempt, item.run.0, timeout.0)
    })
}

/// What counts is held, if there was anything to hold.
///
/// # Errors
/// [`Invariant::PaidResultsAreHeld`].
pub fn paid_results_are_held(attempt: &AttemptId, has_outputs: bool, held: bool) -> Result<(), Fault> {
    check(Invariant::PaidResultsAreHeld, held || !has_outputs, || format!("{attempt} counts, its outputs are not held"))
}

/// A provider's voucher is one that its renter has journaled.
///
/// # Errors
/// [`Invariant::BooksAgree`].
pub fn voucher_is_known(voucher: &Voucher, journaled: bool) -> Result<(), Fault> {
    check(Invariant::BooksAgree, journaled, || {
        format!("voucher {} of {:?} is not in its renter's journal", voucher.number, voucher.lease)
    })
}

/// At rest, both sides of a lease have the same last voucher; where one side was left alone, the provider's may be
/// behind.
///
/// # Errors
/// [`Invariant::BooksAgree`].
pub fn books_agree(
    lease: &LeaseId,
    renter: Option<&Voucher>,
    provider: Option<&Voucher>,
    both_signed: bool,
) -> Result<(), Fault> {
    let total = |voucher: Option<&Voucher>| voucher.map_or(Credits(0), |voucher| voucher.total);
    let holds = if both_signed { renter == provider } else { total(provider) <= total(renter) };
    check(Invariant::BooksAgree, holds, || {
        format!("{lease:?}: renter owes {}, provider is owed {}", total(renter), total(provider))
    })
}

/// One key, one digest.
///
/// # Errors
/// [`Invariant::NoContradiction`].
pub fn no_contradiction(kind: u8, before: Option<&Hash>, now: &Hash) -> Result<(), Fault> {
    let holds = before.is_none_or(|before| before == now);
    check(Invariant::NoContradiction, holds, || format!("kind {kind}: {now:?} signed after {}", show(before)))
}

/// What is said is in the journal.
///
/// # Errors
/// [`Invariant::JournalBeforeSpeaking`].
pub fn journal_before_speaking(what: &str, durable: Option<&Hash>, said: &Hash) -> Result<(), Fault> {
    check(Invariant::JournalBeforeSpeaking, durable == Some(said), || {
        format!("{what} {said:?} is said, durable is {}", show(durable))
    })
}

/// What a renter owes a provider, running attempts at their full length included, is within the limit.
///
/// # Errors
/// [`Invariant::WithinExposure`].
pub fn within_exposure(owed: Credits, running: Credits, limit: Credits) -> Result<(), Fault> {
    let holds = owed.0.saturating_add(running.0) <= limit.0;
    check(Invariant::WithinExposure, holds, || format!("owed {owed} and running {running} of at most {limit}"))
}

/// The vouchers of a job's leases are within its budget.
///
/// # Errors
/// [`Invariant::WithinBudget`].
pub fn within_budget(vouchered: Credits, budget: Option<Credits>) -> Result<(), Fault> {
    let holds = budget.is_none_or(|budget| vouchered <= budget);
    check(Invariant::WithinBudget, holds, || format!("vouchered {vouchered} of a budget of {}", show(budget.as_ref())))
}

/// A task has no more attempts than the job allows.
///
/// # Errors
/// [`Invariant::AttemptsBounded`].
pub fn attempts_bounded(attempt: &AttemptId, journaled: usize, allowed: u32) -> Result<(), Fault> {
    let holds = journaled as u64 <= u64::from(allowed);
    check(Invariant::AttemptsBounded, holds, || format!("{attempt} is attempt {journaled} of {allowed}"))
}

/// A receipt says what was agreed, billed and vouchered.
///
/// # Errors
/// [`Invariant::ReceiptsAreTrue`].
pub fn receipt_is_true(
    receipt: &Receipt,
    award: Hash,
    accepted: Hash,
    rate: Rate,
    billed: &[Billed],
    voucher: Option<(&Voucher, Hash)>,
) -> Result<(), Fault> {
    let run = billed.iter().fold(0_u64, |sum, item| sum.saturating_add(item.run.0));
    let problem = if (receipt.award, receipt.accepted, receipt.rate) != (award, accepted, rate) {
        "it is of another agreement"
    } else if *receipt.billed != *billed {
        "it bills other attempts"
    } else if receipt.run != Millis(run) || Some(receipt.total) != rate.charge(Millis(run)) {
        "its sums are wrong"
    } else if receipt.voucher != voucher.map(|(_, hash)| hash) {
        "it names another voucher"
    } else if voucher.is_some_and(|(voucher, _)| voucher.total != receipt.total) {
        "its voucher has another total"
    } else {
        return Ok(());
    };
    check(Invariant::ReceiptsAreTrue, false, || format!("receipt of {:?}: {problem}", receipt.lease))
}

/// A lease begins at the time it was promised, by its provider's clock, or as soon as that was up again.
///
/// # Errors
/// [`Invariant::ReservationsKept`].
pub fn reservation_kept(
    lease: &LeaseId,
    promised: Timestamp,
    begins: Timestamp,
    up_since: Timestamp,
) -> Result<(), Fault> {
    let due = promised.max(up_since);
    let late = begins.saturating_since(due);
    let holds = begins.saturating_add(CLOCK_ROUNDING) >= promised && late <= CLOCK_ROUNDING;
    check(Invariant::ReservationsKept, holds, || format!("{lease:?} was promised for {promised}, begins {begins}"))
}

/// What has run for a while is stopped as preempted only under terms that allow it, and as long after its notice as
/// they say.
///
/// # Errors
/// [`Invariant::NoticeKept`].
pub fn notice_kept(attempt: &AttemptId, may_stop: bool, promised: Millis, given: Option<Millis>) -> Result<(), Fault> {
    let holds = may_stop && given.is_some_and(|given| given.0.saturating_add(CLOCK_ROUNDING.0) >= promised.0);
    check(Invariant::NoticeKept, holds, || {
        format!("{attempt} is stopped, allowed {may_stop}, notice {promised}, given {}", show(given.as_ref()))
    })
}

/// Clocks of nodes count milliseconds, the world microseconds.
const CLOCK_ROUNDING: Millis = Millis(5);

fn show(value: Option<&impl fmt::Debug>) -> String {
    value.map_or_else(|| "nothing".to_owned(), |value| format!("{value:?}"))
}

#[cfg(test)]
mod tests;
