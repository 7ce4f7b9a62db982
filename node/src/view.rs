//! Every JSON value of the API, and so of `--json`: what INTERFACE calls the JSON shapes.
//!
//! The API serialises these and the client reads them, so the two cannot disagree. Money is text with its unit,
//! integers that may pass 2^53 are decimal text ([`Big`]), times are RFC 3339 in UTC. Fields are only ever added.

mod owner;

use std::collections::BTreeMap;

pub use owner::{ComponentPrice, Day, Earnings, NodePrice, PowerCost, PriceRecord, PriceSuggestion, ProposedPrice};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use souk_matcher::{JobState, Reason, TaskState};
use souk_protocol::{Balance, Credits, Hash, JobId, JobSpec, LeaseId, NetworkId, NodeId, Rate, Timestamp};

/// A 64-bit integer, decimal text in JSON: other readers would round it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Big(pub u64);

impl Serialize for Big {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Big {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// The one error object: on stderr under `--json`, and in the body of an API error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// It.
    pub error: ErrorView,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorView {
    /// Machine-readable, `no_offers`.
    pub code: String,
    /// The exit code it means to the command line.
    pub exit: u8,
    /// What failed, with the value.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub hint: Option<String>,
    /// What came closest.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub nearest: Vec<String>,
}

// ---------------------------------------------------------------------------------------------- jobs

/// Body of `POST /v1/jobs`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitRequest {
    /// The job. Its files must be in the store already (`PUT /v1/blobs/{hash}`).
    pub spec: JobSpec,
    /// 32 hexadecimal digits chosen by the client: a repeated submission is the same job.
    pub nonce: String,
}

/// Answer of `POST /v1/jobs`: the job is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submitted {
    /// Its id.
    pub id: JobId,
}

/// A job in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Number of tasks.
    pub tasks: u32,
    /// Tasks whose result counts.
    pub done: u32,
    /// Tasks without an attempt left.
    pub failed: u32,
    /// Tasks with an attempt under way.
    pub running: u32,
    /// What is owed for it.
    pub cost: Credits,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it reached its end state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<Timestamp>,
}

/// A job with all its attempts: `job get`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: JobState,
    /// Why, if it failed, expired or waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Its tasks, by index.
    pub tasks: Vec<Task>,
    /// What is owed for it.
    pub cost: Credits,
    /// Most it may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<Credits>,
    /// Its leases, oldest first.
    pub leases: Vec<JobLease>,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it reached its end state.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended: Option<Timestamp>,
    /// Labels of the job file.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub labels: BTreeMap<String, String>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// Its index.
    pub index: u32,
    /// Where it is in its life.
    pub state: TaskState,
    /// Values of its placeholders.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub values: BTreeMap<String, String>,
    /// Its attempts, oldest first.
    pub attempts: Vec<Attempt>,
}

/// An attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Who runs it.
    pub provider: NodeId,
    /// Under which lease.
    pub lease: LeaseId,
    /// Its number at this task, from 1.
    pub attempt: u32,
    /// Replica of the task, 0 for the first.
    #[serde(default)]
    pub replica: u16,
    /// `fetching`, `running`, or how it ended: `done`, `failed`, `preempted`, `timed-out`, `out-of-memory`,
    /// `input-failed`, `cancelled`, `lost`, `provider-fault`. `unknown` while its provider is silent.
    pub state: String,
    /// The exit code, if the program ended by itself.
    pub exit_code: Option<u32>,
    /// When the program started, by the provider's clock.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Run time billed, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_ms: Option<Big>,
    /// Whether it is owed for.
    #[serde(default)]
    pub billed: bool,
    /// What happened, unless it is done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
}

/// A lease of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLease {
    /// Its id.
    pub lease: LeaseId,
    /// Who provides it.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots.
    pub slots: u32,
    /// `open`, or why it ended: `completed`, `expired`, ..
    pub state: String,
    /// Which side ended it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_by: Option<String>,
    /// What is owed on it.
    pub total: Credits,
    /// Whether both sides signed its receipt.
    pub receipt: bool,
}

/// Why a job is where it is: `job why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// The job.
    pub id: JobId,
    /// Where it is in its life; `lost` for a job of another node on which this one bid in vain.
    pub state: String,
    /// The reasons, weightiest first.
    pub because: Vec<Reason>,
}

/// Why this node bids or does not: `node why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWhy {
    /// This node.
    pub node: NodeId,
    /// Whether it would take work now.
    pub selling: bool,
    /// The reasons, with counts since the start.
    pub because: Vec<Reason>,
}

/// Something that happened to a job: one line of `job events`, one message of the event stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent {
    /// Rises with each event of this run of the node; give it as `from` to go on after a break.
    pub seq: Big,
    /// When.
    pub at: Timestamp,
    /// Of which job.
    pub job: JobId,
    /// What.
    #[serde(flatten)]
    pub what: JobEventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum JobEventKind {
    /// The job changed its state. The stream starts with the state it has, and ends after an end state.
    State {
        /// The state now.
        state: JobState,
        /// Why, where there is something to say.
        #[serde(skip_serializing_if = "Vec::is_empty", default)]
        because: Vec<Reason>,
    },
    /// Bids or asks were compared.
    Auction(Auction),
    /// A lease began.
    Leased {
        /// Its id.
        lease: LeaseId,
        /// With whom.
        provider: NodeId,
        /// Price of one slot.
        rate: Rate,
        /// Slots.
        slots: u32,
    },
    /// A lease ended.
    LeaseEnded {
        /// Its id.
        lease: LeaseId,
        /// Why: `completed`, `expired`, ..
        end: String,
        /// `renter` or `provider`.
        by: String,
    },
    /// An attempt was handed out.
    Attempt {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// Under which lease.
        lease: LeaseId,
        /// To whom.
        provider: NodeId,
    },
    /// An attempt goes on.
    Progress {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// `fetching` or `running`.
        state: String,
    },
    /// An attempt ended; the verdict is durable.
    AttemptEnded {
        /// Of which task.
        index: u32,
        /// Its number.
        attempt: u32,
        /// How: `done`, `failed`, ..
        end: String,
        /// The exit code, if there was one.
        exit_code: Option<u32>,
        /// Why, unless it is done.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        reason: Option<String>,
        /// Whether it is owed for.
        billed: bool,
    },
    /// A task changed its state.
    Task {
        /// Which.
        index: u32,
        /// The state now.
        state: TaskState,
    },
    /// A receipt is complete.
    Receipt {
        /// Of which lease.
        lease: LeaseId,
        /// What is owed on it.
        total: Credits,
    },
    /// Bytes of a log; only where the stream was asked for with `logs=1`.
    Log {
        /// Of which task.
        index: u32,
        /// Of which attempt.
        attempt: u32,
        /// `stdout` or `stderr`.
        stream: String,
        /// Offset of the first byte.
        offset: Big,
        /// The bytes, base64.
        data: String,
    },
    /// Events were dropped because this reader was too slow: ask for the job's state again.
    Gap {
        /// How many, at least.
        missed: Big,
    },
}

/// A part of a log: one line of `GET /v1/jobs/{id}/logs?parts=1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogPart {
    /// Whose log it is: the attempt's number.
    pub attempt: u32,
    /// Where the part starts.
    pub offset: Big,
    /// When it arrived at this node; not known of logs from before that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Its bytes in base64; none in the last line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
    /// Whether the log is complete: the last line says so, and only it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end: bool,
}

/// How an auction or a choice of asks went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Auction {
    /// Round, from 0.
    pub round: u32,
    /// Whether standing asks were taken without an auction.
    pub by_ask: bool,
    /// Providers invited, or asks considered.
    pub invited: u32,
    /// Bids, best first.
    pub bids: Vec<BidView>,
    /// Providers that declined.
    pub declines: Vec<DeclineView>,
    /// Providers that did not answer in time.
    pub silent: u32,
    /// How long it was open, in milliseconds.
    pub window_ms: u64,
}

/// A bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidView {
    /// Who.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Slots.
    pub slots: u32,
    /// Whether it was awarded.
    pub won: bool,
}

/// A provider that did not bid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclineView {
    /// Who.
    pub provider: NodeId,
    /// Code and nearest miss.
    pub reason: String,
}

/// Outputs of the attempt that counts, of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskOutputs {
    /// The task.
    pub index: u32,
    /// The attempt that counts.
    pub attempt: u32,
    /// Who ran it.
    pub provider: NodeId,
    /// Its exit code.
    pub exit_code: Option<u32>,
    /// Where which guest folder goes on the renter's machine, placeholders filled in.
    pub folders: Vec<OutputFolder>,
    /// The manifest.
    pub entries: Vec<OutputEntry>,
}

/// A guest folder and where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFolder {
    /// Guest path, `/out`.
    pub path: String,
    /// Absolute folder on the renter's machine; absent if the outputs stay in the store.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub to: Option<String>,
}

/// An entry of a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputEntry {
    /// Path below the guest's root without a leading slash: `out/result.json`.
    pub path: String,
    /// What it is.
    #[serde(flatten)]
    pub what: OutputKind,
}

/// What an [`OutputEntry`] is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum OutputKind {
    /// A regular file.
    File {
        /// BLAKE3 of its content.
        hash: Hash,
        /// Length, in bytes.
        len: Big,
        /// Whether its owner may execute it.
        executable: bool,
    },
    /// A folder.
    Folder,
    /// A relative link that stays inside the outputs.
    Link {
        /// Where it points, relative to its own folder.
        target: String,
    },
    /// Something that is not brought home.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// What a job costs: `job cost`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The job.
    pub job: JobId,
    /// What is owed.
    pub total: Credits,
    /// What running attempts may add.
    pub reserved: Credits,
    /// Most it may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub budget: Option<Credits>,
    /// By lease.
    pub leases: Vec<LeaseCost>,
}

/// What a lease costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseCost {
    /// The lease.
    pub lease: LeaseId,
    /// To whom it is owed.
    pub provider: NodeId,
    /// Price of one slot.
    pub rate: Rate,
    /// Run time billed, in milliseconds.
    pub run_ms: Big,
    /// Attempts owed for.
    pub billed: u32,
    /// Attempts not owed for.
    pub unbilled: u32,
    /// What is owed.
    pub total: Credits,
}

/// A receipt in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptSummary {
    /// The lease.
    pub lease: LeaseId,
    /// This node's side: `renter` or `provider`.
    pub side: String,
    /// Who pays.
    pub renter: NodeId,
    /// Who worked.
    pub provider: NodeId,
    /// Why the lease ended.
    pub end: String,
    /// Which side ended it.
    pub ended_by: String,
    /// Price of one slot.
    pub rate: Rate,
    /// Attempts owed for.
    pub billed: u32,
    /// Attempts not owed for.
    pub unbilled: u32,
    /// Run time billed, in milliseconds.
    pub run_ms: Big,
    /// What is owed.
    pub total: Credits,
    /// When the lease was accepted.
    pub opened: Timestamp,
    /// When it ended.
    pub closed: Timestamp,
    /// Whether both sides signed; only then can it be exported.
    pub complete: bool,
}

// -------------------------------------------------------------------------------------------- market

/// Body of `POST /v1/plan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanRequest {
    /// The job. Its files need not be in the store.
    pub spec: JobSpec,
}

/// `plan` and `offers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The request in words, as it was resolved.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub request: Option<String>,
    /// Offers that match, best first, at most as many as were asked for.
    pub offers: Vec<OfferView>,
    /// Offers that match.
    pub matched: u32,
    /// Live offers known.
    pub seen: u32,
    /// What the job may cost.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub estimate: Option<Estimate>,
    /// Why others do not match, most frequent first.
    pub near_misses: Vec<NearMiss>,
}

/// Answer of `GET /v1/offers`: a [`Plan`] without a request and an estimate.
pub type Offers = Plan;

/// An offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferView {
    /// Whose.
    pub provider: NodeId,
    /// The node's name, for people.
    #[serde(default)]
    pub name: String,
    /// Its GPUs in short; none for a machine without.
    pub gpu: Option<String>,
    /// ISO code of the place.
    pub region: String,
    /// Firmest tier it serves that fits.
    pub tier: String,
    /// Price of one slot of the request, or of a core and 1 GB of memory where there is no request; none if it only
    /// bids.
    pub rate: Option<Rate>,
    /// This node's estimate of it keeping its promises, `0.991`; none without a record.
    pub reliability: Option<String>,
    /// Measured round trip, in milliseconds, rounded up.
    pub rtt_ms: Option<u64>,
    /// `now`, or when it could start.
    pub start: String,
    /// Large inputs it holds, `2/3`; none if nothing was asked.
    pub data_held: Option<String>,
    /// Slots of the request that are free.
    #[serde(default)]
    pub slots: u32,
    /// Processors on sale.
    #[serde(default)]
    pub cpu: String,
    /// Memory on sale.
    #[serde(default)]
    pub memory: String,
    /// When the offer ends.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires: Option<Timestamp>,
    /// Whether it is this node itself, which works for its own jobs free.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub local: bool,
}

/// What a job may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Estimate {
    /// If each task takes as long as the shortest guess.
    pub low: Credits,
    /// If each attempt of each task runs to its timeout at the dearest matching rate.
    pub high: Credits,
    /// The most it can cost: the budget, or max_price times every attempt's timeout. None: nothing bounds it.
    pub cap: Option<Credits>,
}

/// Why offers do not match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NearMiss {
    /// What they fail, `disk >= 500GB`.
    pub reason: String,
    /// How many fail only that.
    pub count: u32,
    /// The closest of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub nearest: Option<String>,
}

// ---------------------------------------------------------------------------------------------- node

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Version of souk.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Name of the network.
    pub network: String,
    /// Its id.
    pub network_id: NetworkId,
    /// `public`, `private`, `relayed` or `unknown`.
    pub reachable: String,
    /// Addresses listened on, each with `/p2p/`.
    pub listen: Vec<String>,
    /// Connected peers.
    pub peers: u32,
    /// Roles: `renter`, `provider`.
    pub roles: Vec<String>,
    /// Open leases, both sides.
    pub leases: u32,
    /// Open leases as provider.
    pub leases_provided: u32,
    /// Jobs not at their end.
    pub jobs: u32,
    /// Live offers known.
    pub offers: u32,
    /// Slots, processors and memory in use, for people: `2 of 4 cores, 3 of 8 GB`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used: Option<String>,
    /// What peers owe this node (plus) or it owes them (minus), in sum.
    pub balance: Balance,
    /// What the owner should look at.
    pub warnings: Vec<String>,
    /// When the node started.
    pub started: Timestamp,
}

/// An open lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSummary {
    /// Its id.
    pub lease: LeaseId,
    /// This node's side: `renter` or `provider`.
    pub side: String,
    /// The other side.
    pub peer: NodeId,
    /// The job.
    pub job: JobId,
    /// Slots.
    pub slots: u32,
    /// Price of one slot.
    pub rate: Rate,
    /// `open`, `unknown` while the other side is silent, `ending`.
    pub state: String,
    /// What is owed on it.
    pub total: Credits,
}

/// Answer of `POST /v1/drain`, `/v1/pause` and `/v1/resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Leases that still run.
    pub leases: u32,
}

/// One round trip to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// To whom.
    pub peer: NodeId,
    /// Microseconds.
    pub micros: u64,
}

/// A peer: one of `peers`, and `peers show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its key.
    pub peer: NodeId,
    /// Name in its offer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Whether it is connected.
    pub connected: bool,
    /// Name and version of its software.
    pub agent: String,
    /// Addresses under which it can be dialled.
    pub addresses: Vec<String>,
    /// `quic`, `tcp`, with the direction.
    pub connections: Vec<String>,
    /// Last round trip, in milliseconds, rounded up.
    pub rtt_ms: Option<u64>,
    /// 95th percentile of round trips, in milliseconds, rounded up.
    pub rtt_p95_ms: Option<u64>,
    /// This node's estimate of it keeping its promises; none without a record.
    pub reliability: Option<String>,
    /// What it owes us (plus) or we owe it (minus).
    pub balance: Balance,
    /// The owner's limit for it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<Credits>,
    /// Strike points held against it.
    #[serde(default)]
    pub strikes: u32,
    /// Whether it is shut out.
    #[serde(default)]
    pub banned: bool,
    /// What the estimate rests on.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub because: Vec<Reason>,
}

/// The network file in force: `network show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: NetworkId,
    /// 32 hexadecimal digits.
    pub nonce: String,
    /// Whether unrated peers may serve every tier.
    pub open: bool,
    /// Addresses of bootstrap peers.
    pub bootstrap: Vec<String>,
    /// Governance keys.
    pub keys: Vec<String>,
    /// How many of the keys must sign a change.
    pub threshold: u16,
    /// The rules, by name.
    pub params: BTreeMap<String, String>,
}

impl From<&souk_protocol::NetworkFile> for Network {
    fn from(file: &souk_protocol::NetworkFile) -> Self {
        let p = &file.params;
        let params = [
            ("period", p.period.to_string()),
            ("bid_window_max", p.bid_window_max.to_string()),
            ("invites", p.invites.to_string()),
            ("lease_grace", p.lease_grace.to_string()),
            ("unknown_after", p.unknown_after.to_string()),
            ("clock_skew", p.clock_skew.to_string()),
            ("credit.stranger", p.credit.stranger.to_string()),
            ("credit.strangers", p.credit.strangers.to_string()),
            ("credit.write_off", p.credit.write_off.to_string()),
        ];
        Self {
            name: file.name.clone(),
            id: file.id(),
            nonce: data_encoding::HEXLOWER.encode(&file.nonce),
            open: file.open,
            bootstrap: file.bootstrap.clone(),
            keys: file.keys.clone(),
            threshold: file.threshold,
            params: params.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}

// -------------------------------------------------------------------------------------------- wallet

/// `wallet balance`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wallet {
    /// What peers owe this node (plus) or it owes them (minus), in sum.
    pub balance: Balance,
    /// What peers owe.
    pub owed_to_us: Credits,
    /// What this node owes.
    pub owed_by_us: Credits,
    /// What strangers owe and may come to owe.
    pub strangers: Credits,
    /// Most they may.
    pub strangers_limit: Credits,
    /// Peer by peer.
    pub peers: Vec<Account>,
}

/// What is between this node and a peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// The peer.
    pub peer: NodeId,
    /// What it owes us (plus) or we owe it (minus).
    pub balance: Balance,
    /// What it owes and may come to owe.
    pub exposure: Credits,
    /// Most it may owe.
    pub limit: Credits,
    /// Whether the limit is the owner's own (`wallet trust`).
    pub trusted: bool,
}

/// A line of `wallet history`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalletEntry {
    /// When.
    pub at: Timestamp,
    /// `earned`, `spent`, `discharge-given`, `discharge-received`, `trust`, `unpaid`.
    pub kind: String,
    /// With whom.
    pub peer: NodeId,
    /// On which lease.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lease: Option<LeaseId>,
    /// How much.
    pub amount: Credits,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub remark: Option<String>,
}

/// Body of `POST /v1/wallet/trust` and `POST /v1/wallet/discharge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerAmount {
    /// Whom.
    pub peer: NodeId,
    /// How much.
    pub amount: Credits,
}

/// `wallet verify`, `store verify` and `attest verify`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verification {
    /// Whether nothing failed.
    pub ok: bool,
    /// Documents, leases or records checked.
    pub checked: u64,
    /// What failed.
    pub failures: Vec<VerifyFailure>,
}

/// What failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyFailure {
    /// The file; empty where there is none.
    pub file: String,
    /// The document, lease or record.
    pub document: String,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn big_integers_are_text() {
        assert_eq!(serde_json::to_string(&Big(u64::MAX)).unwrap(), "\"18446744073709551615\"");
        assert_eq!(serde_json::from_str::<Big>("\"7\"").unwrap(), Big(7));
        assert!(serde_json::from_str::<Big>("7").is_err());
    }

    #[test]
    fn an_event_is_one_flat_object_and_reads_back() {
        let event = JobEvent {
            seq: Big(9),
            at: Timestamp(0),
            job: JobId([1; 32]),
            what: JobEventKind::Task { index: 3, state: TaskState::Done },
        };
        let text = serde_json::to_string(&event).unwrap();
        let id = JobId([1; 32]).to_string();
        assert_eq!(
            text,
            format!(
                "{{\"seq\":\"9\",\"at\":\"1970-01-01T00:00:00Z\",\"job\":\"{id}\",\"kind\":\"task\",\"index\":3,\"state\":\"done\"}}"
            )
        );
        assert_eq!(serde_json::from_str::<JobEvent>(&text).unwrap(), event);
    }

    #[test]
    fn an_error_is_one_object_under_one_key() {
        let body = ErrorBody {
            error: ErrorView {
                code: "no_offers".to_owned(),
                exit: 4,
                message: "no offer matches".to_owned(),
                hint: None,
                nearest: vec![],
            },
        };
        let text = serde_json::to_string(&body).unwrap();
        assert_eq!(text, "{\"error\":{\"code\":\"no_offers\",\"exit\":4,\"message\":\"no offer matches\"}}");
        assert_eq!(serde_json::from_str::<ErrorBody>(&text).unwrap(), body);
    }
}
