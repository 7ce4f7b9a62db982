//! One value of each document, with every field set to something of its own.

use souk_protocol::*;

pub(crate) fn renter() -> Key {
    Key::from_seed(&[1; 32])
}

pub(crate) fn provider() -> Key {
    Key::from_seed(&[2; 32])
}

fn text<const N: usize>(value: &str) -> Text<N> {
    Text::try_from(value).unwrap()
}

fn list<T, const N: usize>(items: Vec<T>) -> List<T, N> {
    List::try_from(items).ok().unwrap()
}

pub(crate) fn attempt() -> AttemptId {
    AttemptId { lease: LeaseId([7; 16]), task: 5, replica: 0, number: 2 }
}

pub(crate) fn requirement() -> Requirement {
    Requirement {
        runtime: Runtime::Wasm,
        isolation: Isolation::W0,
        cpu: MilliCpu(1_000),
        memory: Bytes(256_000_000),
        disk: Bytes(100_000_000),
        gpu: None,
        regions: list(vec![text("de")]),
    }
}

pub(crate) fn terms() -> Terms {
    Terms {
        tier: Tier::Bronze,
        pay: Pay::Delivered,
        preemptible: true,
        notice: Millis(120_000),
        timeout: Millis(600_000),
        stop_grace: Millis(30_000),
        stdout: Bytes(64_000_000),
        offline: Millis(0),
        retention: Millis(86_400_000),
        verify: Verify::Telemetry,
    }
}

const AT: Timestamp = Timestamp(1_767_225_600_000);

pub(crate) fn offer() -> Offer {
    let capacity = Capacity { cpu: MilliCpu(2_000), memory: Bytes(8_000_000_000), disk: Bytes(50_000_000_000) };
    Offer {
        provider: provider().id(),
        network: NetworkId([9; 32]),
        sequence: 42,
        issued: AT,
        expires: Timestamp(AT.0 + 600_000),
        name: text("attic"),
        region: text("de"),
        total: capacity,
        free: Capacity { cpu: MilliCpu(1_000), ..capacity },
        gpus: list(vec![]),
        runtimes: list(vec![Runtime::Wasm]),
        isolation: list(vec![Isolation::W0]),
        tiers: list(vec![Tier::Bronze, Tier::Silver]),
        ask: Some(PriceList { cpu: Rate(8_000), memory_gb: Rate(1_500) }),
        max_duration: Millis(43_200_000),
        notice: Millis(900_000),
        interruptions: 20_000,
        stranger_limit: Credits(50_000),
        strangers_limit: Credits(1_000_000),
        addresses: list(vec![text("/ip4/127.0.0.1/udp/4477/quic-v1")]),
    }
}

pub(crate) fn announcement() -> Announcement {
    Announcement {
        renter: renter().id(),
        network: NetworkId([9; 32]),
        job: JobId([3; 32]),
        round: 0,
        requirement: requirement(),
        terms: terms(),
        slots: 8,
        tasks: 12,
        data: Bytes(323_712),
        max_rate: Some(Rate(50_000)),
        start_at: Some(Timestamp(AT.0 + 3_600_000)),
        start_within: Some(Millis(600_000)),
        issued: AT,
        closes: Timestamp(AT.0 + 270),
    }
}

pub(crate) fn bid() -> Bid {
    Bid {
        announcement: Hash([4; 32]),
        renter: renter().id(),
        provider: provider().id(),
        rate: Rate(9_000),
        slots: 2,
        ready_in: Millis(34_000),
        issued: AT,
        valid_until: Timestamp(AT.0 + 2_000),
    }
}

pub(crate) fn tally() -> Tally {
    Tally { announcement: Hash([4; 32]), renter: renter().id(), table: Hash([6; 32]), bids: 9, at: AT }
}

pub(crate) fn award() -> Award {
    Award {
        lease: LeaseId([7; 16]),
        network: NetworkId([9; 32]),
        renter: renter().id(),
        provider: provider().id(),
        job: JobId([3; 32]),
        basis: Basis::Bid { bid: Hash([5; 32]), table: Hash([6; 32]) },
        requirement: requirement(),
        terms: terms(),
        rate: Rate(9_000),
        slots: 2,
        start: Timestamp(AT.0 + 3_600_000),
        issued: AT,
        accept_by: Timestamp(AT.0 + 2_000),
    }
}

pub(crate) fn accepted() -> Accepted {
    Accepted { lease: LeaseId([7; 16]), award: Hash([8; 32]), provider: provider().id(), renter: renter().id(), at: AT }
}

pub(crate) fn result() -> TaskResult {
    TaskResult {
        attempt: attempt(),
        job: JobId([3; 32]),
        provider: provider().id(),
        renter: renter().id(),
        end: AttemptEnd::Failed,
        exit_code: Some(u32::MAX),
        reason: text("exit code 4294967295"),
        run: Millis(1_234),
        started: AT,
        ended: Timestamp(AT.0 + 1_234),
        stdout: LogEnd { len: 5, hash: Hash::of(b"hello"), written: 10_000 },
        stderr: LogEnd::empty(),
        manifest: Hash([10; 32]),
        manifest_len: 8,
        output: Bytes(0),
        files: 0,
        telemetry: Some(Hash([11; 32])),
    }
}

pub(crate) fn checkpoint() -> Checkpoint {
    let sample = Sample {
        previous: first_link(&attempt()),
        number: 0,
        at: AT,
        cpu_time: Millis(990),
        cpu: Some(MilliCpu(985)),
        memory: Some(Bytes(17_600_000)),
        fuel: None,
        gpus: list(vec![GpuSample {
            index: 0,
            busy_ppm: Some(870_000),
            memory: Some(Bytes(1 << 30)),
            power_mw: None,
            temperature_c: Some(-3),
        }]),
    };
    Checkpoint { attempt: attempt(), provider: provider().id(), samples: list(vec![sample]) }
}

pub(crate) fn billed() -> Billed {
    Billed { attempt: attempt(), result: Hash([12; 32]), run: Millis(1_234) }
}

pub(crate) fn voucher() -> Voucher {
    Voucher {
        lease: LeaseId([7; 16]),
        renter: renter().id(),
        provider: provider().id(),
        number: 1,
        total: Credits(4),
        run: Millis(1_234),
        billed: billed_hash([&billed()]),
        count: 1,
        at: AT,
    }
}

pub(crate) fn discharge() -> Discharge {
    Discharge { creditor: provider().id(), debtor: renter().id(), nonce: [13; 16], amount: Credits(4), at: AT }
}

pub(crate) fn receipt() -> Receipt {
    Receipt {
        lease: LeaseId([7; 16]),
        renter: renter().id(),
        provider: provider().id(),
        award: Hash([8; 32]),
        accepted: Hash([14; 32]),
        rate: Rate(9_000),
        end: LeaseEnd::Completed,
        ended_by: Party::Renter,
        opened: AT,
        closed: Timestamp(AT.0 + 5_000),
        billed: list(vec![billed()]),
        unbilled: 1,
        run: Millis(1_234),
        total: Credits(4),
        voucher: Some(Hash([15; 32])),
        remark: text(""),
    }
}

pub(crate) fn close() -> Close {
    Close {
        lease: LeaseId([7; 16]),
        by: provider().id(),
        other: renter().id(),
        end: LeaseEnd::Unreachable,
        vouchered: Credits(4),
        claimed: Credits(1),
        at: AT,
    }
}

pub(crate) fn work() -> Work {
    Work {
        attempt: attempt(),
        job: JobId([3; 32]),
        count: 12,
        module: Hash([16; 32]),
        module_len: 59_000,
        argv0: text("sweep.wasm"),
        entry: text("_start"),
        args: list(vec![text("--lr"), text("0.1")]),
        env: list(vec![(text("MODE"), text("fast"))]),
        inputs: list(vec![InputBlob { target: text("/in/digits.csv"), hash: Hash([17; 32]), len: 264_712 }]),
        outputs: list(vec![text("/out")]),
        limits: WorkLimits {
            timeout: Millis(600_000),
            stop_grace: Millis(30_000),
            memory: Bytes(256_000_000),
            stdout: Bytes(64_000_000),
            disk: Bytes(100_000_000),
        },
    }
}

pub(crate) fn manifest() -> Manifest {
    Manifest {
        entries: list(vec![
            Entry { path: text("out/a"), kind: EntryKind::File { hash: Hash::of(b"a"), len: 1, executable: false } },
            Entry { path: text("out/b"), kind: EntryKind::Link { target: text("a") } },
            Entry { path: text("out/c"), kind: EntryKind::Folder },
            Entry { path: text("out/d"), kind: EntryKind::Skipped { reason: text("a FIFO") } },
        ]),
    }
}

/// One of each message and of each thing said on a lease.
pub(crate) fn messages() -> Vec<Message> {
    let (renter, provider) = (renter(), provider());
    let frame =
        |body| Message::Lease(LeaseFrame { lease: LeaseId([7; 16]), boot: 3, peer_boot: 2, number: 1, ack: 9, body });
    vec![
        Message::Announce(Signed::sign(&announcement(), &renter).unwrap().into_signed()),
        Message::Bid(Signed::sign(&bid(), &provider).unwrap().into_signed()),
        Message::Decline(Decline { subject: Hash([4; 32]), code: DeclineCode::NoCredit, nearest: text("0.05 CR") }),
        Message::Award {
            award: Signed::sign(&award(), &renter).unwrap().into_signed(),
            work: list(vec![work()]),
            files: list(vec![SmallFile { bytes: list(vec![1, 2, 3]) }]),
        },
        Message::Lost(Lost {
            tally: Signed::sign(&tally(), &renter).unwrap().into_signed(),
            bid: Hash([5; 32]),
            index: 3,
            path: list(vec![Hash([1; 32]), Hash([2; 32])]),
            rank: 4,
            over: Ppm(120_000),
        }),
        frame(Control::Heartbeat),
        frame(Control::Resume),
        frame(Control::Accepted(Signed::sign(&accepted(), &provider).unwrap().into_signed())),
        frame(Control::Task(work())),
        frame(Control::Progress { attempt: attempt(), state: RunState::Running, at: AT }),
        frame(Control::Result(Signed::sign(&result(), &provider).unwrap().into_signed())),
        frame(Control::Done {
            attempt: attempt(),
            run: Millis(1_234),
            voucher: Signed::sign(&voucher(), &renter).unwrap().into_signed(),
        }),
        frame(Control::Refused { attempt: attempt(), reason: text("done already") }),
        frame(Control::Cancel { attempt: attempt() }),
        frame(Control::Telemetry(Signed::sign(&checkpoint(), &provider).unwrap().into_signed())),
        frame(Control::End { end: LeaseEnd::Completed, reason: text("") }),
        frame(Control::Receipt(Signed::sign(&receipt(), &provider).unwrap().into_signed())),
        frame(Control::Notice { stop_in: Millis(120_000) }),
        frame(Control::Unknown),
        frame(Control::Show {
            award: Signed::sign(&award(), &renter).unwrap().into_signed(),
            accepted: Signed::sign(&accepted(), &provider).unwrap().into_signed(),
        }),
    ]
}
