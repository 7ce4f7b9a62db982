//! A receipt file that two keys of the tests have signed.

use souk_protocol::{
    Accepted, AttemptEnd, AttemptId, Award, Basis, Billed, Bytes, Credits, Hash, Isolation, JobId, Key, LeaseEnd,
    LeaseId, List, LogEnd, MAX_RECEIPT_FILE, MilliCpu, Millis, NetworkId, NodeId, Party, Pay, RECEIPT_MAGIC, Rate,
    Receipt, ReceiptFile, Requirement, Runtime, Signed, Signer, TaskResult, Terms, Text, Tier, Timestamp, Verify,
    Voucher, billed_hash, codec,
};

/// A receipt file of a lease with one billed task.
pub(crate) fn sample() -> Vec<u8> {
    let (renter, provider) = (Key::from_seed(&[1; 32]), Key::from_seed(&[2; 32]));
    let (lease, job, rate) = (LeaseId([3; 16]), JobId([4; 32]), Rate(3_600_000));
    let ids: (NodeId, NodeId) = (renter.id(), provider.id());
    let award = Signed::sign(&award(lease, job, rate, ids), &renter).unwrap();
    let accepted = Accepted { lease, award: award.hash(), provider: ids.1, renter: ids.0, at: Timestamp(5) };
    let accepted = Signed::sign(&accepted, &provider).unwrap();
    let attempt = AttemptId { lease, task: 0, replica: 0, number: 1 };
    let result = TaskResult {
        attempt,
        job,
        provider: ids.1,
        renter: ids.0,
        end: AttemptEnd::Done,
        exit_code: Some(0),
        reason: Text::default(),
        run: Millis(500),
        started: Timestamp(6),
        ended: Timestamp(7),
        stdout: LogEnd::empty(),
        stderr: LogEnd::empty(),
        manifest: Hash([0; 32]),
        manifest_len: 8,
        output: Bytes(0),
        files: 0,
        telemetry: None,
    };
    let result = Signed::sign(&result, &provider).unwrap();
    let billed = Billed { attempt, result: result.hash(), run: Millis(500) };
    let voucher = Voucher {
        lease,
        renter: ids.0,
        provider: ids.1,
        number: 1,
        total: Credits(500),
        run: Millis(500),
        billed: billed_hash([&billed]),
        count: 1,
        at: Timestamp(8),
    };
    let voucher = Signed::sign(&voucher, &renter).unwrap();
    let receipt = Receipt {
        lease,
        renter: ids.0,
        provider: ids.1,
        award: award.hash(),
        accepted: accepted.hash(),
        rate,
        end: LeaseEnd::Completed,
        ended_by: Party::Renter,
        opened: Timestamp(5),
        closed: Timestamp(9),
        billed: List::try_from(vec![billed]).unwrap(),
        unbilled: 0,
        run: Millis(500),
        total: Credits(500),
        voucher: Some(voucher.hash()),
        remark: Text::default(),
    };
    let file = ReceiptFile {
        award: award.into_signed(),
        accepted: accepted.into_signed(),
        results: List::try_from(vec![result.into_signed()]).unwrap(),
        voucher: Some(voucher.into_signed()),
        provider: Signed::sign(&receipt, &provider).unwrap().into_signed(),
        renter: Signed::sign(&receipt, &renter).unwrap().into_signed(),
    };
    let mut bytes = RECEIPT_MAGIC.to_vec();
    bytes.extend(codec::encode(&file, MAX_RECEIPT_FILE).unwrap());
    bytes
}

fn award(lease: LeaseId, job: JobId, rate: Rate, (renter, provider): (NodeId, NodeId)) -> Award {
    Award {
        lease,
        network: NetworkId([9; 32]),
        renter,
        provider,
        job,
        basis: Basis::Ask { offer: Hash([1; 32]) },
        requirement: Requirement {
            runtime: Runtime::Wasm,
            isolation: Isolation::W0,
            cpu: MilliCpu(1_000),
            memory: Bytes(1),
            disk: Bytes(1),
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
            stdout: Bytes(0),
            offline: Millis(0),
            retention: Millis(0),
            verify: Verify::None,
        },
        rate,
        slots: 1,
        start: Timestamp(4),
        issued: Timestamp(4),
        accept_by: Timestamp(6),
    }
}
