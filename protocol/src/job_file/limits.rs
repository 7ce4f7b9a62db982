//! Limits and defaults of a job file.

use crate::spec::RetryOn;
use crate::units::{Bytes, MilliCpu, Millis};

/// Largest job file. 10,000 tasks of a matrix with texts of usual length fit several times.
pub(super) const FILE: usize = 1 << 20;

// Counts: far above what a person writes, low enough that checking each against each stays cheap.
pub(super) const LABELS: usize = 64;
pub(super) const ARGS: usize = 1_024;
pub(super) const ENV: usize = 1_000;
pub(super) const SECRETS: usize = 64;
pub(super) const HOSTS: usize = 64;
pub(super) const GPU_ALTERNATIVES: usize = 8;
pub(super) const REGIONS: usize = 64;
pub(super) const PROVIDERS: usize = 256;
pub(super) const INPUTS: usize = 1_000;
/// As many as a message to a provider carries.
pub(super) const OUTPUTS: usize = 16;
pub(super) const MATRIX_KEYS: usize = 16;
/// Longest value of a matrix, in bytes.
pub(super) const MATRIX_VALUE: usize = 1_024;
/// Longest name of an export, in bytes.
pub(super) const ENTRY: usize = 255;
/// Most attempts of one task.
pub(super) const ATTEMPTS: u32 = 100;
/// Most replicas that check one task.
pub(super) const REPLICAS: u16 = 16;
/// Most replicas of a service.
pub(super) const SERVICE_REPLICAS: u32 = 1_000;
/// All arguments and variables together, in bytes: what one message to a provider carries beside the rest.
pub(super) const ARGS_AND_ENV: usize = 128 * 1_024;

/// The most memory a wasm module can have: its 32-bit addresses end there.
pub(super) const MAX_WASM_MEMORY: Bytes = Bytes(4 << 30);

// Defaults, in the words of INTERFACE where it has them.
pub(super) const DEFAULT_CPU: MilliCpu = MilliCpu::from_cores(1);
pub(super) const DEFAULT_MEMORY: Bytes = Bytes(512_000_000);
pub(super) const DEFAULT_DISK: Bytes = Bytes(1_000_000_000);
pub(super) const DEFAULT_NOTICE: Millis = Millis::from_secs(30);
pub(super) const DEFAULT_RETENTION: Millis = Millis::from_hours(24);
pub(super) const DEFAULT_TIMEOUT: Millis = Millis::from_mins(10);
pub(super) const DEFAULT_STOP_GRACE: Millis = Millis::from_secs(30);
pub(super) const DEFAULT_STDOUT: Bytes = Bytes(64_000_000);
pub(super) const DEFAULT_ATTEMPTS: u32 = 3;
pub(super) const DEFAULT_RETRY_ON: [RetryOn; 4] =
    [RetryOn::NoCapacity, RetryOn::Preempted, RetryOn::Lost, RetryOn::ProviderFault];
pub(super) const DEFAULT_CHECKPOINT: Millis = Millis::from_mins(10);
pub(super) const DEFAULT_PROBE: Millis = Millis::from_secs(5);
pub(super) const DEFAULT_TO: &str = "./results/{job}/{index}";

// Upper ends: beyond them a value is more likely a slip than meant.
pub(super) const MAX_TIMEOUT: Millis = Millis::from_hours(30 * 24);
pub(super) const MAX_STOP_GRACE: Millis = Millis::from_hours(1);
pub(super) const MAX_STDOUT: Bytes = Bytes(1_000_000_000);
pub(super) const MAX_NOTICE: Millis = Millis::from_hours(24);
pub(super) const MAX_WAIT: Millis = Millis::from_hours(30 * 24);
pub(super) const MAX_AWAY: Millis = Millis::from_hours(30 * 24);
pub(super) const MAX_LATENCY: Millis = Millis::from_mins(10);
