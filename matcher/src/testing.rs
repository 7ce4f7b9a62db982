//! What the tests of several parts need: keys, a usual slot, usual terms. The tests of the whole crate in `tests/it` take
//! in this file too, so it names the crate as they do.

use souk_matcher::{Keep, Now, Policy, Settings};
use souk_protocol::{
    Announcement, Array, Bytes, Capacity, Credits, Hash, Isolation, JobId, JobSpec, Key, List, Local, Market, MilliCpu,
    Millis, Mode, Module, NetworkId, NodeId, Offer, Params, Pay, PriceList, Rate, Requirement, Retry, RetryOn, Runtime,
    Signer, Sla, Strict, Terms, Text, Tier, Timestamp, Verifier, Verify, VerifyError,
};

/// A real key that checks strictly.
#[derive(Debug)]
pub(crate) struct TestKeys(pub(crate) Key);

impl TestKeys {
    pub(crate) fn new(seed: u8) -> Self {
        Self(Key::from_seed(&[seed; 32]))
    }
}

impl Signer for TestKeys {
    fn id(&self) -> NodeId {
        self.0.id()
    }
    fn sign(&self, digest: &Hash) -> [u8; 64] {
        self.0.sign(digest)
    }
}

impl Verifier for TestKeys {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        Strict.check(signer, digest, signature)
    }
}

pub(crate) const NETWORK: NetworkId = NetworkId([9; 32]);
/// A moment: 2026-03-01.
pub(crate) const WALL: u64 = 1_772_323_200_000;

pub(crate) fn at(mono: u64) -> Now {
    Now { wall: Timestamp(WALL + mono), mono: Millis(mono) }
}

pub(crate) fn settings(boot: u64) -> Settings {
    Settings {
        network: NETWORK,
        params: Params::default(),
        open: true,
        boot,
        seed: [u8::try_from(boot).unwrap_or(0); 32],
        keep: Keep::default(),
    }
}

/// One core and 1 GB.
pub(crate) fn slot() -> Requirement {
    Requirement {
        runtime: Runtime::Wasm,
        isolation: Isolation::W0,
        cpu: MilliCpu(1_000),
        memory: Bytes(1_000_000_000),
        disk: Bytes(1_000_000_000),
        gpu: None,
        regions: List::default(),
    }
}

/// Bronze, at most a minute.
pub(crate) fn terms() -> Terms {
    Terms {
        tier: Tier::Bronze,
        pay: Pay::Delivered,
        preemptible: true,
        notice: Millis(0),
        timeout: Millis(60_000),
        stop_grace: Millis(500),
        stdout: Bytes(1_000_000),
        offline: Millis(0),
        retention: Millis(3_600_000),
        verify: Verify::None,
    }
}

/// Four cores at an ask of 0.30 CR an hour for a slot and a floor of 0.15.
pub(crate) fn policy() -> Policy {
    Policy {
        name: Text::clipped("stall"),
        region: Text::clipped("DE"),
        total: Capacity { cpu: MilliCpu(4_000), memory: Bytes(8_000_000_000), disk: Bytes(100_000_000_000) },
        runtimes: vec![Runtime::Wasm],
        isolation: vec![Isolation::W0],
        tiers: vec![Tier::Bronze, Tier::Silver],
        floor: PriceList { cpu: Rate(100_000), memory_gb: Rate(50_000) },
        ask: PriceList { cpu: Rate(200_000), memory_gb: Rate(100_000) },
        standing: true,
        pricing: Default::default(),
        calendar: Default::default(),
        at_window_end: Default::default(),
        max_duration: Millis(3_600_000),
        notice: Millis(600_000),
        stranger_limit: Credits(50_000),
        strangers_limit: Credits(1_000_000),
        own_only: false,
        deny: Vec::new(),
        addresses: Vec::new(),
    }
}

/// Every order of the numbers below `count`.
pub(crate) fn permutations(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for _ in 0..count {
        let longer = |order: &Vec<usize>| {
            let left: Vec<_> = (0..count).filter(|next| !order.contains(next)).collect();
            left.into_iter().map(|next| [order.as_slice(), &[next]].concat()).collect::<Vec<_>>()
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// One task by whatever way, tried three times where it is nobody's doing.
pub(crate) fn job_spec() -> JobSpec {
    JobSpec {
        name: Text::clipped("hello"),
        labels: std::collections::BTreeMap::new(),
        module: Module {
            hash: Hash([3; 32]),
            len: 1_000,
            name: Text::clipped("hello.wasm"),
            entry: Text::clipped("_start"),
        },
        args: Vec::new(),
        env: Vec::new(),
        inputs: Vec::new(),
        outputs: Vec::new(),
        requirement: slot(),
        terms: terms(),
        market: Market {
            max_rate: None,
            budget: None,
            mode: Mode::Auto,
            local: Local::First,
            allow: Vec::new(),
            deny: Vec::new(),
        },
        sla: Sla { start_within: None, start_at: None, deadline: None, reliability: None, latency: None, loss: None },
        retry: Retry {
            attempts: 3,
            on: vec![RetryOn::NoCapacity, RetryOn::Preempted, RetryOn::Lost, RetryOn::ProviderFault],
        },
        array: Array { tasks: vec![std::collections::BTreeMap::new()], max_parallel: 64, max_failures: 0 },
    }
}

/// The offer of the usual policy, with everything free.
pub(crate) fn offer() -> Offer {
    let policy = policy();
    Offer {
        provider: NodeId([42; 32]),
        network: NETWORK,
        sequence: 1,
        issued: Timestamp(WALL),
        expires: Timestamp(WALL + 600_000),
        name: policy.name,
        region: policy.region,
        total: policy.total,
        free: policy.total,
        gpus: List::default(),
        runtimes: List::try_from(policy.runtimes).unwrap(),
        isolation: List::try_from(policy.isolation).unwrap(),
        tiers: List::try_from(policy.tiers).unwrap(),
        ask: Some(policy.ask),
        max_duration: policy.max_duration,
        notice: policy.notice,
        interruptions: 0,
        stranger_limit: policy.stranger_limit,
        strangers_limit: policy.strangers_limit,
        addresses: List::default(),
    }
}

/// A call for bids on a usual slot.
pub(crate) fn announcement(renter: &dyn Signer) -> Announcement {
    Announcement {
        renter: renter.id(),
        network: NETWORK,
        job: JobId([5; 32]),
        round: 0,
        requirement: slot(),
        terms: terms(),
        slots: 1,
        tasks: 1,
        data: Bytes(1_000),
        max_rate: None,
        start_at: None,
        start_within: None,
        issued: Timestamp(WALL),
        closes: Timestamp(WALL + 30_000),
    }
}
