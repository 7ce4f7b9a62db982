use proptest::prelude::*;
use souk_protocol::{
    Basis, Bytes, Hash, Isolation, Key, LeaseEnd, LogEnd, MilliCpu, NetworkId, Party, Pay, Requirement, Runtime,
    Signer, Terms, Text, Tier, Timestamp, Verify,
};

use super::*;

const LEASE: LeaseId = LeaseId([3; 16]);
const JOB: JobId = JobId([4; 32]);

fn renter() -> Key {
    Key::from_seed(&[1; 32])
}

fn provider() -> Key {
    Key::from_seed(&[2; 32])
}

fn stranger() -> Key {
    Key::from_seed(&[7; 32])
}

/// The documents of a lease before they are signed. Each document refers to those before it when it is signed, so that
/// a change shows in one place only; what a test spoils after that is in `after_links`.
struct Draft {
    award: Award,
    accepted: Accepted,
    results: Vec<TaskResult>,
    runs: Vec<Millis>,
    voucher: Option<Voucher>,
    receipt: Receipt,
    /// Changes documents after they were linked and before they are signed.
    after_links: fn(&mut Linked),
    signers: Signers,
}

/// Documents whose references are filled in.
struct Linked {
    accepted: Accepted,
    voucher: Option<Voucher>,
    receipt: Receipt,
    renters_receipt: Option<Receipt>,
}

struct Signers {
    provider_receipt: Key,
    renter_receipt: Key,
}

fn result(task: u32, run: u64) -> TaskResult {
    TaskResult {
        attempt: AttemptId { lease: LEASE, task, replica: 0, number: 1 },
        job: JOB,
        provider: provider().id(),
        renter: renter().id(),
        end: AttemptEnd::Done,
        exit_code: Some(0),
        reason: Text::default(),
        run: Millis(run),
        started: Timestamp(1_100),
        ended: Timestamp(1_600),
        stdout: LogEnd::empty(),
        stderr: LogEnd::empty(),
        manifest: Hash::of(b"manifest"),
        manifest_len: 8,
        output: Bytes(0),
        files: 0,
        telemetry: None,
    }
}

fn award() -> Award {
    Award {
        lease: LEASE,
        network: NetworkId([9; 32]),
        renter: renter().id(),
        provider: provider().id(),
        job: JOB,
        basis: Basis::Ask { offer: Hash([1; 32]) },
        requirement: Requirement {
            runtime: Runtime::Wasm,
            isolation: Isolation::W0,
            cpu: MilliCpu(1_000),
            memory: Bytes(1 << 20),
            disk: Bytes(1 << 20),
            gpu: None,
            regions: List::default(),
        },
        terms: Terms {
            tier: Tier::Bronze,
            pay: Pay::Delivered,
            preemptible: true,
            notice: Millis(0),
            timeout: Millis(1_000),
            stop_grace: Millis(0),
            stdout: Bytes(1_024),
            offline: Millis(0),
            retention: Millis(0),
            verify: Verify::None,
        },
        rate: Rate(3_600_000),
        slots: 2,
        start: Timestamp(900),
        issued: Timestamp(900),
        accept_by: Timestamp(2_900),
    }
}

impl Draft {
    /// A lease of two done tasks of 500 ms and 700 ms at 3.6 CR/h: 1,200 micro-credits.
    fn sound() -> Self {
        let (renter, provider) = (self::renter().id(), self::provider().id());
        let none = Hash([0; 32]);
        Self {
            award: award(),
            accepted: Accepted { lease: LEASE, award: none, provider, renter, at: Timestamp(1_000) },
            results: vec![result(0, 500), result(1, 700)],
            runs: vec![Millis(500), Millis(700)],
            voucher: Some(Voucher {
                lease: LEASE,
                renter,
                provider,
                number: 2,
                total: Credits(1_200),
                run: Millis(1_200),
                billed: none,
                count: 2,
                at: Timestamp(1_700),
            }),
            receipt: Receipt {
                lease: LEASE,
                renter,
                provider,
                award: none,
                accepted: none,
                rate: Rate(3_600_000),
                end: LeaseEnd::Completed,
                ended_by: Party::Renter,
                opened: Timestamp(1_000),
                closed: Timestamp(1_800),
                billed: List::default(),
                unbilled: 1,
                run: Millis(1_200),
                total: Credits(1_200),
                voucher: None,
                remark: Text::clipped("all done"),
            },
            after_links: |_| {},
            signers: Signers { provider_receipt: self::provider(), renter_receipt: self::renter() },
        }
    }

    fn file(self) -> ReceiptFile {
        let award = Signed::sign(&self.award, &renter()).unwrap();
        let accepted = Accepted { award: award.hash(), ..self.accepted };
        let results: Vec<_> = self.results.iter().map(|result| Signed::sign(result, &provider()).unwrap()).collect();
        let billed = results.iter().zip(&self.runs);
        let billed: Vec<_> =
            billed.map(|(result, run)| Billed { attempt: result.attempt, result: result.hash(), run: *run }).collect();
        let voucher = self.voucher.map(|voucher| Voucher { billed: billed_hash(&billed), ..voucher });
        let receipt = Receipt { award: award.hash(), billed: List::try_from(billed).unwrap(), ..self.receipt };
        let mut linked = Linked { accepted, voucher, receipt, renters_receipt: None };
        // References to the two that a test may spoil are set first, so that a spoilt hash stays spoilt.
        linked.receipt.accepted = Signed::sign(&linked.accepted, &provider()).unwrap().hash();
        linked.receipt.voucher = linked.voucher.map(|voucher| Signed::sign(&voucher, &renter()).unwrap().hash());
        (self.after_links)(&mut linked);
        let renters_receipt = linked.renters_receipt.as_ref().unwrap_or(&linked.receipt);
        ReceiptFile {
            award: award.into_signed(),
            accepted: Signed::sign(&linked.accepted, &provider()).unwrap().into_signed(),
            results: List::try_from(results.into_iter().map(Verified::into_signed).collect::<Vec<_>>()).unwrap(),
            voucher: linked.voucher.map(|voucher| Signed::sign(&voucher, &renter()).unwrap().into_signed()),
            renter: Signed::sign(renters_receipt, &self.signers.renter_receipt).unwrap().into_signed(),
            provider: Signed::sign(&linked.receipt, &self.signers.provider_receipt).unwrap().into_signed(),
        }
    }
}

fn exported(file: &ReceiptFile) -> Vec<u8> {
    [RECEIPT_MAGIC.as_slice(), &codec::encode(file, MAX_RECEIPT_FILE).unwrap()].concat()
}

/// The error of a sound lease that was changed before its documents were linked and signed.
fn refused(change: impl FnOnce(&mut Draft)) -> String {
    let mut draft = Draft::sound();
    change(&mut draft);
    verify_receipt(&exported(&draft.file())).unwrap_err().to_string()
}

/// The error of a sound lease whose linked documents were changed and signed again.
fn refused_linked(change: fn(&mut Linked)) -> String {
    refused(|draft| draft.after_links = change)
}

/// The error of a sound lease some of whose signed documents were replaced.
fn refused_file(change: impl FnOnce(&mut ReceiptFile)) -> String {
    let mut file = Draft::sound().file();
    change(&mut file);
    verify_receipt(&exported(&file)).unwrap_err().to_string()
}

#[test]
fn a_sound_file_is_believed_and_shows_its_documents() {
    let verified = verify_receipt(&exported(&Draft::sound().file())).unwrap();
    assert_eq!(verified.documents(), 7);
    assert_eq!(verified.receipt().total, Credits(1_200));
    assert_eq!(verified.receipt().signer(), provider().id());
    assert_eq!(verified.award().hash(), verified.receipt().award);
    assert_eq!(verified.accepted().hash(), verified.receipt().accepted);
    assert_eq!(verified.voucher().map(Verified::hash), verified.receipt().voucher);
    assert_eq!(verified.results().iter().map(|result| result.run).collect::<Vec<_>>(), [Millis(500), Millis(700)]);
}

#[test]
fn a_lease_on_which_nothing_was_billed_needs_no_voucher() {
    let mut draft = Draft::sound();
    (draft.results, draft.runs, draft.voucher) = (vec![], vec![], None);
    (draft.receipt.run, draft.receipt.total) = (Millis(0), Credits(0));
    let verified = verify_receipt(&exported(&draft.file())).unwrap();
    assert_eq!(verified.documents(), 4);
    assert!(verified.voucher().is_none());
}

#[test]
fn a_renter_may_be_billed_less_than_the_result_claims() {
    let mut draft = Draft::sound();
    draft.results[1].run = Millis(900);
    assert!(verify_receipt(&exported(&draft.file())).is_ok());
}

#[test]
fn a_failed_attempt_and_its_retry_are_both_owed() {
    let mut draft = Draft::sound();
    draft.results[0].end = AttemptEnd::Failed;
    draft.results[1].attempt = AttemptId { number: 2, ..draft.results[0].attempt };
    assert!(verify_receipt(&exported(&draft.file())).is_ok());
}

#[test]
fn every_flipped_byte_is_noticed() {
    let bytes = exported(&Draft::sound().file());
    assert!(bytes.len() > 2_000, "{}", bytes.len());
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        assert!(verify_receipt(&bad).is_err(), "byte {at}");
    }
}

#[test]
fn a_file_that_is_cut_or_continued_is_noticed() {
    let bytes = exported(&Draft::sound().file());
    for len in 0..bytes.len() {
        assert!(verify_receipt(&bytes[..len]).is_err(), "{len} bytes");
    }
    assert!(verify_receipt(&[bytes.as_slice(), b"\0"].concat()).is_err());
}

#[test]
fn what_is_no_receipt_file_or_too_large_is_refused_before_it_is_read() {
    let reason = |bytes: &[u8]| verify_receipt(bytes).unwrap_err().to_string();
    assert_eq!(reason(b"souk-rc2"), "file: it is not an exported receipt: the first bytes differ");
    let mut large = RECEIPT_MAGIC.to_vec();
    large.resize(RECEIPT_MAGIC.len() + MAX_RECEIPT_FILE + 1, 0);
    assert_eq!(reason(&large), "file: 8388609 bytes are over the limit of 8388608");
}

proptest! {
    #[test]
    fn any_bytes_are_answered_with_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let file = [RECEIPT_MAGIC.as_slice(), &bytes].concat();
        prop_assert!(verify_receipt(&bytes).is_err());
        prop_assert!(verify_receipt(&file).is_err());
    }
}

#[test]
fn an_award_to_oneself_or_out_of_time_is_refused() {
    assert!(refused(|d| d.award.provider = renter().id()).starts_with("award: renter and provider are the same key"));
    let reason = refused(|d| d.award.accept_by = Timestamp(899));
    assert_eq!(reason, "award: it lapsed at 1970-01-01T00:00:00.899Z, before it was made at 1970-01-01T00:00:00.900Z");
}

#[test]
fn an_acceptance_must_fit_the_award() {
    let other = |l: &mut Linked| l.accepted.award = Hash([8; 32]);
    assert_eq!(refused_linked(other), "acceptance: it accepts another award");
    assert!(refused(|d| d.accepted.lease = LeaseId([8; 16])).starts_with("acceptance: it is about lease "));
    assert!(refused(|d| d.accepted.renter = stranger().id()).starts_with("acceptance: its renter is "));
    let late = refused(|d| d.accepted.at = Timestamp(2_901));
    let expected =
        "acceptance: it came at 1970-01-01T00:00:02.901Z, after the award had lapsed at 1970-01-01T00:00:02.900Z";
    assert_eq!(late, expected);
    let mut stolen = Draft::sound().file();
    let accepted = Accepted { provider: stranger().id(), ..stolen.accepted.peek().unwrap() };
    stolen.accepted = Signed::sign(&accepted, &stranger()).unwrap().into_signed();
    let reason = verify_receipt(&exported(&stolen)).unwrap_err().to_string();
    assert!(reason.starts_with("acceptance: its provider is "), "{reason}");
}

#[test]
fn each_side_must_have_signed_its_own_copy_of_the_same_account() {
    let reason = refused(|d| d.signers.provider_receipt = renter());
    assert!(reason.starts_with("receipt of the provider: signed by "), "{reason}");
    let reason = refused(|d| d.signers.renter_receipt = provider());
    assert!(reason.starts_with("receipt of the renter: signed by "), "{reason}");
    let reason = refused(|d| d.signers.renter_receipt = stranger());
    assert!(reason.contains("who is no party to it"), "{reason}");
    let differ = |l: &mut Linked| l.renters_receipt = Some(Receipt { unbilled: 2, ..l.receipt.clone() });
    assert_eq!(refused_linked(differ), "receipt: the two sides signed different accounts");
}

#[test]
fn a_receipt_must_fit_award_and_acceptance() {
    assert!(refused(|d| d.receipt.lease = LeaseId([8; 16])).starts_with("receipt: it is about lease "));
    assert_eq!(refused_linked(|l| l.receipt.award = Hash([8; 32])), "receipt: it is about another award");
    assert_eq!(refused_linked(|l| l.receipt.accepted = Hash([8; 32])), "receipt: it is about another acceptance");
    let reason = refused(|d| d.receipt.rate = Rate(7_200_000));
    assert_eq!(reason, "receipt: its rate is 7.200000 CR/h, awarded was 3.600000 CR/h");
    let reason = refused(|d| d.receipt.opened = Timestamp(1_001));
    let expected = "receipt: it opens at 1970-01-01T00:00:01.001Z, but the award was accepted at 1970-01-01T00:00:01Z";
    assert_eq!(reason, expected);
    let reason = refused(|d| d.receipt.closed = Timestamp(999));
    assert_eq!(reason, "receipt: it ends at 1970-01-01T00:00:00.999Z, before it opens at 1970-01-01T00:00:01Z");
}

#[test]
fn a_receipt_between_others_is_refused_though_they_signed_it() {
    // A whole receipt of two other keys, put beside the award.
    let reason = refused_file(|file| {
        let other = Receipt { renter: stranger().id(), ..file.provider.peek().unwrap() };
        file.provider = Signed::sign(&other, &provider()).unwrap().into_signed();
        file.renter = Signed::sign(&other, &stranger()).unwrap().into_signed();
    });
    assert!(reason.starts_with("receipt of the renter: signed by "), "{reason}");
}

#[test]
fn the_results_must_be_those_that_are_billed() {
    let reason = refused_file(|file| file.results = List::try_from(file.results[..1].to_vec()).unwrap());
    assert_eq!(reason, "receipt: it bills 2 attempts, but 1 results are here");
    let reason = refused_file(|file| {
        let swapped = vec![file.results[1].clone(), file.results[0].clone()];
        file.results = List::try_from(swapped).unwrap();
    });
    assert!(reason.starts_with("result 0: it is of attempt "), "{reason}");
    let reason = refused_file(|file| {
        let other = TaskResult { exit_code: Some(1), ..result(1, 700) };
        let other = Signed::sign(&other, &provider()).unwrap().into_signed();
        file.results = List::try_from(vec![file.results[0].clone(), other]).unwrap();
    });
    assert_eq!(reason, "result 1: it is not the result that is billed");
    let reason = refused_file(|file| {
        let forged = Signed::sign(&result(0, 500), &renter()).unwrap().into_signed();
        file.results = List::try_from(vec![forged, file.results[1].clone()]).unwrap();
    });
    assert!(reason.starts_with("result 0: signed by ") && reason.ends_with("who is no party to it"), "{reason}");
}

#[test]
fn a_result_of_another_lease_or_renter_is_refused() {
    let reason = refused(|d| d.results[1].attempt.lease = LeaseId([8; 16]));
    assert!(reason.starts_with("result 1: it is about lease "), "{reason}");
    let reason = refused(|d| d.results[1].renter = stranger().id());
    assert!(reason.starts_with("result 1: its renter is "), "{reason}");
}

#[test]
fn only_what_is_owed_may_be_billed_and_never_more_than_was_run() {
    let reason = refused(|d| d.results[0].end = AttemptEnd::Preempted);
    assert_eq!(reason, "result 0: nothing is owed for an attempt that ended preempted");
    let reason = refused(|d| d.results[1].run = Millis(699));
    assert_eq!(reason, "result 1: 700ms are billed, it ran for 699ms");
    let reason = refused(|d| d.award.terms.timeout = Millis(600));
    assert_eq!(reason, "result 1: 700ms are billed, the timeout is 600ms");
}

#[test]
fn an_attempt_or_a_task_is_not_paid_twice() {
    let reason = refused(|d| d.results[1].attempt = d.results[0].attempt);
    assert!(reason.starts_with("result 1: attempt ") && reason.ends_with("is billed twice"), "{reason}");
    let reason = refused(|d| d.results[1].attempt = AttemptId { number: 2, ..d.results[0].attempt });
    assert_eq!(reason, "result 1: task 0 replica 0 is paid twice");
}

#[test]
fn the_sums_must_follow_from_what_is_listed() {
    assert_eq!(refused(|d| d.receipt.run = Millis(1_201)), "receipt: its run time is 1s201ms, billed are 1s200ms");
    let reason = refused(|d| d.receipt.total = Credits(1_201));
    assert_eq!(reason, "receipt: its total is 0.001201 CR, rate and run time make 0.001200 CR");
    let reason = refused(|d| {
        d.award.terms.timeout = Millis(u64::MAX);
        (d.results[0].run, d.runs[0]) = (Millis(u64::MAX), Millis(u64::MAX));
    });
    assert_eq!(reason, "receipt: the run time of the billed attempts overflows");
    let reason = refused(|d| {
        d.award.terms.timeout = Millis(u64::MAX);
        (d.award.rate, d.receipt.rate) = (Rate(u64::MAX), Rate(u64::MAX));
        d.receipt.run = Millis(4_000_700);
        (d.results[0].run, d.runs[0]) = (Millis(4_000_000), Millis(4_000_000));
    });
    assert!(reason.starts_with("receipt: 1h6m40s700ms at ") && reason.ends_with(" overflow"), "{reason}");
}

#[test]
fn the_voucher_must_be_there_if_and_only_if_the_receipt_names_it() {
    assert_eq!(refused_file(|file| file.voucher = None), "voucher: the receipt names one that is not here");
    assert_eq!(refused(|d| d.voucher = None), "voucher: attempts are billed without one");
    let reason = refused_linked(|l| l.receipt.voucher = Some(Hash([8; 32])));
    assert_eq!(reason, "voucher: it is not the one that the receipt names");
    let reason = refused_linked(|l| l.receipt.voucher = None);
    assert_eq!(reason, "voucher: it is not the one that the receipt names");
    let forged = refused_file(|file| {
        let voucher = file.voucher.as_ref().unwrap().peek().unwrap();
        file.voucher = Some(Signed::sign(&voucher, &provider()).unwrap().into_signed());
    });
    assert!(forged.starts_with("voucher: signed by ") && forged.ends_with("who is no party to it"), "{forged}");
}

#[test]
fn the_voucher_must_say_what_the_receipt_says() {
    fn spoilt(change: impl Fn(&mut Voucher)) -> String {
        refused(|d| d.voucher.iter_mut().for_each(change))
    }
    assert!(spoilt(|v| v.lease = LeaseId([8; 16])).starts_with("voucher: it is about lease "));
    assert!(spoilt(|v| v.provider = stranger().id()).starts_with("voucher: its provider is "));
    assert_eq!(spoilt(|v| v.total = Credits(1)), "voucher: its total is 0.000001 CR, the receipt's is 0.001200 CR");
    assert_eq!(spoilt(|v| v.run = Millis(1)), "voucher: its run time is 1ms, the receipt's is 1s200ms");
    assert_eq!(spoilt(|v| v.count = 3), "voucher: it covers 3 attempts, billed are 2");
    let other = refused_linked(|l| {
        let voucher = l.voucher.map(|voucher| Voucher { billed: Hash([8; 32]), ..voucher });
        l.receipt.voucher = voucher.map(|voucher| Signed::sign(&voucher, &renter()).unwrap().hash());
        l.voucher = voucher;
    });
    assert_eq!(other, "voucher: it covers other attempts than are billed");
}
