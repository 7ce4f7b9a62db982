//! An exported receipt file, checked with keys and bytes alone: no node, no network, no clock.
//!
//! Three things are checked, in this order: that each document is signed by who must sign it, that the documents are
//! about each other (by hash), and that the sums follow from what they list. A reader who trusts nobody can so tell
//! that *these two keys* agreed on *this account*. It says nothing about who holds the keys, nor whether the work was
//! done well.

use std::collections::BTreeSet;

use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Award, Billed, Credits, Document, JobId, LeaseId, List, MAX_BILLED,
    MAX_RECEIPT_FILE, Millis, NodeId, RECEIPT_MAGIC, Rate, Receipt, ReceiptFile, Signed, Strict, TaskResult, Verified,
    Voucher, billed_hash, codec,
};

/// Documents of a receipt file without results and voucher: award, acceptance, and the receipt twice.
const FIXED_DOCUMENTS: usize = 4;

/// The first document of a receipt file that does not hold, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{document}: {reason}")]
pub struct ReceiptError {
    /// Which document: `file`, `award`, `acceptance`, `receipt of the provider`, `receipt of the renter`, `receipt`
    /// (both), `result 0`, `voucher`.
    pub document: String,
    /// What is wrong with it, with the values found.
    pub reason: String,
}

/// A settled lease whose documents agree. Made by [`verify_receipt`] only.
#[derive(Debug, Clone)]
pub struct VerifiedReceipt {
    award: Verified<Award>,
    accepted: Verified<Accepted>,
    results: Vec<Verified<TaskResult>>,
    voucher: Option<Verified<Voucher>>,
    receipt: Verified<Receipt>,
}

impl VerifiedReceipt {
    /// The account, as the provider signed it; the renter signed the same bytes.
    #[must_use]
    pub const fn receipt(&self) -> &Verified<Receipt> {
        &self.receipt
    }

    /// The award it rests on.
    #[must_use]
    pub const fn award(&self) -> &Verified<Award> {
        &self.award
    }

    /// The provider's acceptance of the award.
    #[must_use]
    pub const fn accepted(&self) -> &Verified<Accepted> {
        &self.accepted
    }

    /// Results of the billed attempts, in the order of the receipt.
    #[must_use]
    pub fn results(&self) -> &[Verified<TaskResult>] {
        &self.results
    }

    /// The last voucher; `None` if nothing was billed.
    #[must_use]
    pub const fn voucher(&self) -> Option<&Verified<Voucher>> {
        self.voucher.as_ref()
    }

    /// How many signatures were checked, one a document; the receipt counts twice.
    #[must_use]
    pub fn documents(&self) -> usize {
        FIXED_DOCUMENTS.saturating_add(self.results.len()).saturating_add(usize::from(self.voucher.is_some()))
    }
}

/// Checks every signature, every reference between the documents and every sum of an exported receipt file.
///
/// # Errors
/// [`ReceiptError`]: the first document that does not hold.
pub fn verify_receipt(bytes: &[u8]) -> Result<VerifiedReceipt, ReceiptError> {
    let Some(body) = bytes.strip_prefix(RECEIPT_MAGIC.as_slice()) else {
        return Err(error("file", "it is not an exported receipt: the first bytes differ"));
    };
    let file: ReceiptFile = codec::decode_canonical(body, MAX_RECEIPT_FILE).map_err(|why| error("file", why))?;
    let award = signed(&file.award, "award")?;
    let accepted = signed(&file.accepted, "acceptance")?;
    let receipt = signed(&file.provider, "receipt of the provider")?;
    let renters = signed(&file.renter, "receipt of the renter")?;

    check_lease(&award, &accepted)?;
    check_receipt(&receipt, &renters, &award, &accepted)?;
    let results = check_results(&file.results, &receipt, award.terms.timeout)?;
    check_sums(&receipt)?;
    let voucher = check_voucher(file.voucher.as_ref(), &receipt)?;
    Ok(VerifiedReceipt { award, accepted, results, voucher, receipt })
}

fn error(document: &str, reason: impl ToString) -> ReceiptError {
    ReceiptError { document: document.to_owned(), reason: reason.to_string() }
}

/// Refuses unless the condition holds. The reason is written only if it is needed.
fn hold<R: ToString>(condition: bool, document: &str, reason: impl FnOnce() -> R) -> Result<(), ReceiptError> {
    if condition { Ok(()) } else { Err(error(document, reason())) }
}

fn signed<T: Document>(document: &Signed<T>, name: &str) -> Result<Verified<T>, ReceiptError> {
    document.verify(&Strict).map_err(|why| error(name, why))
}

/// Whose lease a document is about.
type Parties = (LeaseId, NodeId, NodeId);

fn same_parties(document: &str, found: Parties, expected: Parties) -> Result<(), ReceiptError> {
    hold(found.0 == expected.0, document, || format!("it is about lease {}, expected {}", found.0, expected.0))?;
    hold(found.1 == expected.1, document, || format!("its renter is {}, expected {}", found.1, expected.1))?;
    hold(found.2 == expected.2, document, || format!("its provider is {}, expected {}", found.2, expected.2))
}

fn check_lease(award: &Verified<Award>, accepted: &Verified<Accepted>) -> Result<(), ReceiptError> {
    let name = "award";
    hold(award.renter != award.provider, name, || "renter and provider are the same key")?;
    hold(award.issued <= award.accept_by, name, || {
        format!("it lapsed at {}, before it was made at {}", award.accept_by, award.issued)
    })?;
    let name = "acceptance";
    hold(accepted.award == award.hash(), name, || "it accepts another award")?;
    let expected = (award.lease, award.renter, award.provider);
    same_parties(name, (accepted.lease, accepted.renter, accepted.provider), expected)?;
    hold(accepted.at <= award.accept_by, name, || {
        format!("it came at {}, after the award had lapsed at {}", accepted.at, award.accept_by)
    })
}

fn check_receipt(
    receipt: &Verified<Receipt>,
    renters: &Verified<Receipt>,
    award: &Verified<Award>,
    accepted: &Verified<Accepted>,
) -> Result<(), ReceiptError> {
    // Either side may sign a receipt: who signed which copy is checked here, or one side could sign both.
    hold(receipt.signer() == award.provider, "receipt of the provider", || {
        format!("signed by {}, expected the provider {}", receipt.signer(), award.provider)
    })?;
    hold(renters.signer() == award.renter, "receipt of the renter", || {
        format!("signed by {}, expected the renter {}", renters.signer(), award.renter)
    })?;
    let name = "receipt";
    hold(renters.hash() == receipt.hash(), name, || "the two sides signed different accounts")?;
    let found = (receipt.lease, receipt.renter, receipt.provider);
    same_parties(name, found, (award.lease, award.renter, award.provider))?;
    hold(receipt.award == award.hash(), name, || "it is about another award")?;
    hold(receipt.accepted == accepted.hash(), name, || "it is about another acceptance")?;
    hold(receipt.rate == award.rate, name, || format!("its rate is {}, awarded was {}", receipt.rate, award.rate))?;
    hold(receipt.opened == accepted.at, name, || {
        format!("it opens at {}, but the award was accepted at {}", receipt.opened, accepted.at)
    })?;
    hold(receipt.opened <= receipt.closed, name, || {
        format!("it ends at {}, before it opens at {}", receipt.closed, receipt.opened)
    })
}

fn check_results(
    results: &List<Signed<TaskResult>, MAX_BILLED>,
    receipt: &Receipt,
    timeout: Millis,
) -> Result<Vec<Verified<TaskResult>>, ReceiptError> {
    hold(results.len() == receipt.billed.len(), "receipt", || {
        format!("it bills {} attempts, but {} results are here", receipt.billed.len(), results.len())
    })?;
    let mut seen = Seen::default();
    results
        .iter()
        .zip(&receipt.billed)
        .enumerate()
        .map(|(index, (result, billed))| {
            let name = format!("result {index}");
            let result = signed(result, &name)?;
            check_result(&name, &result, billed, receipt, timeout)?;
            seen.add(&name, &result)?;
            Ok(result)
        })
        .collect()
}

fn check_result(
    name: &str,
    result: &Verified<TaskResult>,
    billed: &Billed,
    receipt: &Receipt,
    timeout: Millis,
) -> Result<(), ReceiptError> {
    let expected = (receipt.lease, receipt.renter, receipt.provider);
    same_parties(name, (result.attempt.lease, result.renter, result.provider), expected)?;
    hold(result.attempt == billed.attempt, name, || {
        format!("it is of attempt {}, billed is {}", result.attempt, billed.attempt)
    })?;
    hold(result.hash() == billed.result, name, || "it is not the result that is billed")?;
    hold(result.end.is_billed(), name, || format!("nothing is owed for an attempt that ended {}", result.end))?;
    hold(billed.run <= result.run, name, || format!("{} are billed, it ran for {}", billed.run, result.run))?;
    hold(billed.run <= timeout, name, || format!("{} are billed, the timeout is {timeout}", billed.run))
}

/// What has been paid for already.
#[derive(Default)]
struct Seen {
    attempts: BTreeSet<AttemptId>,
    done: BTreeSet<(JobId, u32, u16)>,
}

impl Seen {
    fn add(&mut self, name: &str, result: &TaskResult) -> Result<(), ReceiptError> {
        let attempt = result.attempt;
        hold(self.attempts.insert(attempt), name, || format!("attempt {attempt} is billed twice"))?;
        let done = result.end == AttemptEnd::Done;
        let first = !done || self.done.insert((result.job, attempt.task, attempt.replica));
        hold(first, name, || format!("task {} replica {} is paid twice", attempt.task, attempt.replica))
    }
}

fn check_sums(receipt: &Receipt) -> Result<(), ReceiptError> {
    let name = "receipt";
    let run = receipt.billed.iter().try_fold(Millis(0), |run, item| run.checked_add(item.run));
    let run = run.ok_or_else(|| error(name, "the run time of the billed attempts overflows"))?;
    hold(receipt.run == run, name, || format!("its run time is {}, billed are {run}", receipt.run))?;
    let total = charge(receipt.rate, run)?;
    hold(receipt.total == total, name, || format!("its total is {}, rate and run time make {total}", receipt.total))
}

fn charge(rate: Rate, run: Millis) -> Result<Credits, ReceiptError> {
    rate.charge(run).ok_or_else(|| error("receipt", format!("{run} at {rate} overflow")))
}

fn check_voucher(
    voucher: Option<&Signed<Voucher>>,
    receipt: &Receipt,
) -> Result<Option<Verified<Voucher>>, ReceiptError> {
    let name = "voucher";
    let Some(voucher) = voucher else {
        hold(receipt.voucher.is_none(), name, || "the receipt names one that is not here")?;
        hold(receipt.billed.is_empty(), name, || "attempts are billed without one")?;
        return Ok(None);
    };
    let voucher = signed(voucher, name)?;
    hold(receipt.voucher == Some(voucher.hash()), name, || "it is not the one that the receipt names")?;
    let expected = (receipt.lease, receipt.renter, receipt.provider);
    same_parties(name, (voucher.lease, voucher.renter, voucher.provider), expected)?;
    hold(voucher.total == receipt.total, name, || {
        format!("its total is {}, the receipt's is {}", voucher.total, receipt.total)
    })?;
    hold(voucher.run == receipt.run, name, || {
        format!("its run time is {}, the receipt's is {}", voucher.run, receipt.run)
    })?;
    hold(usize::try_from(voucher.count).ok() == Some(receipt.billed.len()), name, || {
        format!("it covers {} attempts, billed are {}", voucher.count, receipt.billed.len())
    })?;
    hold(voucher.billed == billed_hash(&receipt.billed), name, || "it covers other attempts than are billed")?;
    Ok(Some(voucher))
}

#[cfg(test)]
mod tests;
