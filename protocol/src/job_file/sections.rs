//! The sections of a job file, with every default resolved.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use crate::gpu::GpuRequest;
use crate::grammar::{Count, Range};
use crate::id::{Hash, JobId, NodeId};
use crate::money::{Credits, Rate};
use crate::spec::RetryOn;
use crate::terms::{Isolation, Local, Mode, Pay, Tier, Verify};
use crate::units::{Bytes, MilliCpu, Millis, Ppm, Timestamp};

/// Shows a value by its `Display`.
fn as_text<T: std::fmt::Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Shows a list by the `Display` of its items.
fn as_texts<T: std::fmt::Display, S: Serializer>(values: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

/// What a job is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Tasks that end.
    Task,
    /// Replicas that answer requests until the job is cancelled.
    Service(ServiceSection),
}

/// `[runtime]`: what runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RuntimeSection {
    /// The program.
    pub program: Program,
    /// The container's command; for wasm what follows argv\[0\]. May hold placeholders.
    pub args: Vec<String>,
    /// The environment. Values may hold placeholders.
    pub env: BTreeMap<String, String>,
    /// Names of secrets; values are never in a file.
    pub secrets: Vec<String>,
    /// What the task may reach.
    pub network: NetworkAccess,
}

/// The program of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Program {
    /// A WASI command: a module for preview 1 or a component for preview 2.
    Wasm {
        /// The module, relative to the job file.
        path: String,
        /// The export that is called; a component has none to choose.
        entry: String,
    },
    /// A container image.
    Image {
        /// Its reference, by digest or exact tag.
        reference: String,
        /// Replaces the image's ENTRYPOINT.
        entrypoint: Option<Vec<String>>,
    },
}

/// What a task may reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkAccess {
    /// Nothing.
    None,
    /// These hosts, "name" or "name:port".
    Allowlist(Vec<String>),
    /// Everything but the provider's own network.
    Open,
}

/// `[resources]`: what one task gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourcesSection {
    /// Alternatives in order of preference; empty for no GPU.
    #[serde(serialize_with = "as_texts")]
    pub gpu: Vec<GpuRequest>,
    /// Processor cores. Default 1 or more.
    #[serde(serialize_with = "as_text")]
    pub cpu: Range<MilliCpu>,
    /// Memory. Default 512 MB or more.
    #[serde(serialize_with = "as_text")]
    pub memory: Range<Bytes>,
    /// Scratch space. Default 1 GB or more.
    #[serde(serialize_with = "as_text")]
    pub disk: Range<Bytes>,
    /// ISO codes or groups of the network file, lower case, any of which will do; empty for anywhere.
    pub region: Vec<String>,
    /// Weakest isolation accepted. Default W0 for wasm, C1 for images, G1 with a GPU.
    #[serde(serialize_with = "as_text")]
    pub isolation: Isolation,
    /// Whether the provider must hold the large inputs already.
    #[serde(serialize_with = "as_text")]
    pub data: DataPlacement,
}

crate::terms::words! {
    /// Where the large inputs must be.
    DataPlacement {
        /// Anywhere.
        Any = "any",
        /// With the provider already.
        Warm = "warm",
    }
}

/// `[market]`: price and choice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MarketSection {
    /// How firm the promise is. Default bronze.
    #[serde(serialize_with = "as_text")]
    pub tier: Tier,
    /// Most one slot may cost.
    pub max_price: Option<Rate>,
    /// Most the whole job may cost, hard.
    pub budget: Option<Credits>,
    /// When the renter owes. Default delivered.
    #[serde(serialize_with = "as_text")]
    pub pay: Pay,
    /// Whether the provider may preempt. Default: bronze only.
    pub preemptible: bool,
    /// Warning needed before preemption. Default 30 s.
    pub notice: Millis,
    /// How providers are found. Default auto.
    #[serde(serialize_with = "as_text")]
    pub mode: Mode,
    /// Use of this node's own capacity. Default first.
    #[serde(serialize_with = "as_text")]
    pub local: Local,
    /// If not empty, the only providers.
    pub allow: Vec<NodeId>,
    /// Never these.
    pub deny: Vec<NodeId>,
}

/// `[sla]`: when, how reliable, how checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SlaSection {
    /// Give up if nothing has started by then.
    pub start_within: Option<Millis>,
    /// Start at this time; with gold, reserved.
    pub start_at: Option<Timestamp>,
    /// Give up at this time.
    pub deadline: Option<Timestamp>,
    /// Least reliability.
    pub reliability: Option<Ppm>,
    /// Largest measured round trip.
    pub latency: Option<Millis>,
    /// Measured to this peer instead of the renter.
    pub near: Option<NodeId>,
    /// What a failure costs the renter; by tier where it is not given.
    pub loss: Option<Credits>,
    /// How long this node may be away while the job runs. Default 0.
    pub offline: Millis,
    /// How long results wait to be fetched. Default 24 h.
    pub retention: Millis,
    /// How results are checked. Default telemetry.
    #[serde(serialize_with = "as_text")]
    pub verify: Verify,
    /// Of a service: 95 % of requests are answered within.
    pub p95_latency: Option<Millis>,
    /// Of a service: share of time it answers.
    pub uptime: Option<Ppm>,
}

/// `[limits]`: of one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitsSection {
    /// Longest run time, image and inputs not counted. Default 10 min.
    pub timeout: Millis,
    /// Time a stopping task gets before it is killed. Default 30 s.
    pub stop_grace: Millis,
    /// Bytes kept of stdout and of stderr. Default 64 MB.
    pub stdout: Bytes,
}

/// `[retry]`: what is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RetrySection {
    /// Attempts of a task in all. Default 3.
    pub attempts: u32,
    /// On which ends. Default no-capacity, preempted, lost, provider-fault.
    #[serde(serialize_with = "as_texts")]
    pub on: Vec<RetryOn>,
}

/// `[array]`: the tasks of a job. One task where the file says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArraySection {
    /// How many, or which.
    pub tasks: ArrayTasks,
    /// Most tasks at once. Default all.
    pub max_parallel: u32,
    /// The job fails when more tasks than this have failed; without it, it ends when all tasks have.
    pub max_failures: Option<u32>,
    /// All tasks at once or none.
    pub gang: bool,
}

/// The tasks of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayTasks {
    /// So many, told apart by `{index}`.
    Count(u32),
    /// Every combination of these values; keys sorted, the last one changes fastest.
    Matrix(BTreeMap<String, Vec<String>>),
}

/// One of `[[inputs]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputSection {
    /// Where it comes from.
    pub source: InputSource,
    /// Where the task sees it, read-only. May hold placeholders.
    pub target: String,
    /// Encrypted to the chosen provider only.
    pub sealed: bool,
}

/// Where an input comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InputSource {
    /// A file or folder, relative to the job file. May hold placeholders.
    Path(String),
    /// Content that the network holds.
    Blob(Hash),
    /// A download that must have this hash. The address may hold placeholders.
    Https {
        /// The address.
        url: String,
        /// What must arrive.
        hash: Hash,
    },
    /// An output of another job.
    Job {
        /// Whose output.
        job: JobId,
        /// Index of its task; may be a placeholder.
        index: String,
        /// Path below its output folder. May hold placeholders.
        path: String,
    },
}

/// One of `[[outputs]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutputSection {
    /// A folder or file of the task, "/out" or below it. May hold placeholders.
    pub path: String,
    /// Where it goes on this machine, relative to the job file. May hold placeholders. Default "./results/{job}/{index}".
    pub to: String,
}

/// `[checkpoint]`: what survives an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointSection {
    /// A folder of the task, "/ckpt" or below it. Default "/ckpt".
    pub path: String,
    /// How often it is kept. Default 10 min.
    pub every: Millis,
}

/// `[service]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServiceSection {
    /// Where replicas listen.
    pub port: u16,
    /// How many. Default 1.
    #[serde(serialize_with = "as_text")]
    pub replicas: Range<Count>,
    /// When replicas are added.
    pub scaling: Option<Scaling>,
    /// When a replica is ready.
    pub readiness: Option<Readiness>,
}

/// When replicas are added or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Scaling {
    /// What is measured.
    #[serde(serialize_with = "as_text")]
    pub metric: ScalingMetric,
    /// The value each replica is meant to have.
    pub target: u32,
}

crate::terms::words! {
    /// What scaling looks at.
    ScalingMetric {
        /// Requests a second.
        Rps = "rps",
        /// Requests at once.
        Concurrency = "concurrency",
    }
}

/// The probe that says whether a replica is ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Readiness {
    /// Path of the request.
    pub path: String,
    /// How long nothing is expected. Default 0.
    pub initial_delay: Millis,
    /// How long one answer may take. Default 5 s.
    pub timeout: Millis,
}
