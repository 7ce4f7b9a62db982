//! WASI, preview 1 and 2, as a guest gets it: nothing inherited, output metered, no network, exact exit codes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::{Linker, ResourceLimiter, component};
use wasmtime_wasi::{
    Deterministic, FsPerms, HostMonotonicClock, HostWallClock, WasiCtxBuilder, WasiCtxView, WasiView,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView},
    filesystem::{WasiFilesystem, WasiFilesystemView},
    p1::WasiP1Ctx,
    p2::{
        self, OutputStream, Pollable, StreamError, StreamResult,
        bindings::{cli, filesystem, random, sockets},
    },
    random::{WasiRandom, WasiRandomView},
    sockets::{WasiSockets, WasiSocketsView},
};

use super::{
    confine::View,
    files, pipe,
    prescan::{Offered, host_signature},
};
use crate::{
    limits::{MAX_COMPONENT_INSTANCES, MAX_COMPONENT_TABLES, MAX_TABLE_ELEMENTS, MAX_TABLES},
    wire::{EXCESS_STEP, Excess, Kind, OUTPUT_CHUNK, Order},
};

/// The module name of WASI preview 1.
const PREVIEW1: &str = "wasi_snapshot_preview1";
/// Open files, streams and pollables of one guest; files end at the runner's own limit before.
const MAX_HANDLES: usize = 1_024;
/// Random bytes of one call; programs ask for 32.
const MAX_RANDOM_BYTES: u64 = 1 << 20;
/// How far a deterministic clock moves each time it is read, in nanoseconds.
const CLOCK_STEP_NS: u64 = 1_000;
/// Where deterministic time starts: 2020-01-01, after the dates that programs compare with.
const CLOCK_START_S: u64 = 1_577_836_800;

/// What a store holds.
pub(crate) struct Guest {
    pub(crate) wasi: WasiP1Ctx,
    pub(crate) memory: Memory,
}

impl WasiView for Guest {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi.ctx()
    }
}

/// An exit with any code: wasmtime's own knows only those under 126.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("exit code {0}")]
pub(crate) struct Exit(pub(crate) u32);

/// Everything that a module can import.
pub(crate) fn linker(engine: &wasmtime::Engine) -> wasmtime::Result<Linker<Guest>> {
    let mut linker: Linker<Guest> = Linker::new(engine);
    wasmtime_wasi::p1::add_to_linker_async(&mut linker, |guest| &mut guest.wasi)?;
    linker.allow_shadowing(true);
    linker.func_wrap(PREVIEW1, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exit(code.cast_unsigned())))
    })?;
    linker.allow_shadowing(false);
    Ok(linker)
}

/// Everything that a component can import: the command world, with the types of sockets and no way to have one.
pub(crate) fn component_linker(engine: &wasmtime::Engine) -> wasmtime::Result<component::Linker<Guest>> {
    let mut linker = component::Linker::new(engine);
    let to = &mut linker;
    // wasi:io, wasi:clocks, the three streams and wasi:random/random.
    p2::add_to_linker_proxy_interfaces_async(to)?;
    cli::environment::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::exit::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::terminal_input::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::terminal_output::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::terminal_stdin::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::terminal_stdout::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    cli::terminal_stderr::add_to_linker::<Guest, WasiCli>(to, Guest::cli)?;
    filesystem::preopens::add_to_linker::<Guest, WasiFilesystem>(to, Guest::filesystem)?;
    filesystem::types::add_to_linker::<Guest, WasiFilesystem>(to, Guest::filesystem)?;
    files::add_to_linker(to)?;
    random::insecure::add_to_linker::<Guest, WasiRandom>(to, Guest::random)?;
    random::insecure_seed::add_to_linker::<Guest, WasiRandom>(to, Guest::random)?;
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<Guest, WasiSockets>(to, &options, Guest::sockets)?;
    sockets::tcp::add_to_linker::<Guest, WasiSockets>(to, Guest::sockets)?;
    sockets::udp::add_to_linker::<Guest, WasiSockets>(to, Guest::sockets)?;
    Ok(linker)
}

/// What a module can import, as a list of names and signatures.
pub(crate) fn offered(engine: &wasmtime::Engine) -> wasmtime::Result<Offered> {
    let linker = linker(engine)?;
    let nobody = Guest { wasi: WasiCtxBuilder::new().build_p1(), memory: Memory::new(0, false) };
    let mut store = wasmtime::Store::new(engine, nobody);
    let found: Vec<_> =
        linker.iter(&mut store).map(|(module, name, item)| (module.to_owned(), name.to_owned(), item)).collect();
    Ok(found
        .into_iter()
        .filter_map(|(module, name, item)| {
            let function = item.into_func()?;
            Some(((module, name), host_signature(&function.ty(&store))))
        })
        .collect())
}

/// Builds the guest's world for one task of a module or of a component.
pub(crate) fn guest(
    order: &Order,
    view: &View,
    meters: &Meters,
    seed: Option<[u8; 32]>,
    component: bool,
) -> Result<Guest, String> {
    let mut builder = WasiCtxBuilder::new();
    builder
        .args(&order.argv)
        .envs(&order.env)
        .allow_blocking_current_thread(true)
        .allow_tcp(false)
        .allow_udp(false)
        .max_random_size(MAX_RANDOM_BYTES)
        .stdout(meters.stdout.clone())
        .stderr(meters.stderr.clone());
    if let Some(seed) = seed {
        deterministic(&mut builder, seed);
    }
    let mut folders = vec![("in", "/", FsPerms::ReadOnly)];
    if order.output {
        folders.push(("out", "/out", FsPerms::ReadWrite));
    }
    if order.checkpoint {
        folders.push(("ckpt", "/ckpt", FsPerms::ReadWrite));
    }
    for (host, name, perms) in folders {
        let path = view.folder(host).join(&order.attempt);
        builder.preopened_dir(&path, name, perms).map_err(|error| format!("folder {}: {error:#}", path.display()))?;
    }
    let mut wasi = builder.build_p1();
    wasi.ctx().table.set_max_capacity(MAX_HANDLES);
    Ok(Guest { wasi, memory: Memory::new(order.memory_bytes, component) })
}

fn deterministic(builder: &mut WasiCtxBuilder, seed: [u8; 32]) {
    // The generator repeats its bytes, so give it more than a program of its kind uses.
    let stream = |purpose: &[u8]| {
        let mut bytes = vec![0; 64 * 1024];
        let mut hasher = blake3::Hasher::new_keyed(&seed);
        hasher.update(purpose);
        hasher.finalize_xof().fill(&mut bytes);
        Deterministic::new(bytes)
    };
    let clock = Ticks(Arc::new(AtomicU64::new(0)));
    builder
        .secure_random(stream(b"secure"))
        .insecure_random(stream(b"insecure"))
        .insecure_random_seed(u128::from_le_bytes([
            seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7], seed[8], seed[9], seed[10],
            seed[11], seed[12], seed[13], seed[14], seed[15],
        ]))
        .wall_clock(clock.clone())
        .monotonic_clock(clock);
}

/// A clock that moves when it is looked at.
#[derive(Debug, Clone)]
struct Ticks(Arc<AtomicU64>);

impl Ticks {
    fn tick(&self) -> u64 {
        self.0.fetch_add(CLOCK_STEP_NS, Ordering::Relaxed)
    }
}

impl HostWallClock for Ticks {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(CLOCK_STEP_NS)
    }

    fn now(&self) -> Duration {
        Duration::from_secs(CLOCK_START_S) + Duration::from_nanos(self.tick())
    }
}

impl HostMonotonicClock for Ticks {
    fn resolution(&self) -> u64 {
        CLOCK_STEP_NS
    }

    fn now(&self) -> u64 {
        self.tick()
    }
}

/// The guest's memory, tables and instances, limited and measured. Modules and components alike have one memory:
/// its limit is that of the whole.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: u64,
    instances: usize,
    tables: u64,
    pub(crate) peak: u64,
    pub(crate) refused: bool,
}

impl Memory {
    fn new(limit: u64, component: bool) -> Self {
        let (instances, tables) =
            if component { (MAX_COMPONENT_INSTANCES, MAX_COMPONENT_TABLES) } else { (1, MAX_TABLES) };
        Memory { limit, instances, tables, peak: 0, refused: false }
    }
}

impl ResourceLimiter for Memory {
    fn memory_growing(&mut self, _current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        let desired = desired as u64;
        if maximum.is_some_and(|maximum| desired > maximum as u64) {
            // Its own maximum: it would be refused anywhere.
            return Ok(false);
        }
        if desired > self.limit {
            self.refused = true;
            return Ok(false);
        }
        self.peak = self.peak.max(desired);
        Ok(true)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> wasmtime::Result<()> {
        // Within the limit, but the process has no more: the same to the guest.
        self.refused = true;
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired as u64 <= MAX_TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        self.instances
    }

    fn tables(&self) -> usize {
        self.tables as usize
    }

    fn memories(&self) -> usize {
        1
    }
}

/// The guest's two output streams with their meters.
#[derive(Debug, Clone)]
pub(crate) struct Meters {
    stdout: Meter,
    stderr: Meter,
}

impl Meters {
    pub(crate) fn new(stdout_limit: u64, stderr_limit: u64) -> Self {
        let lengths = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        let meter = |index, kind, limit| Meter { lengths: Arc::clone(&lengths), index, kind, limit };
        Meters { stdout: meter(0, Kind::Stdout, stdout_limit), stderr: meter(1, Kind::Stderr, stderr_limit) }
    }

    /// What was written so far, delivered or not.
    pub(crate) fn excess(&self) -> Excess {
        self.stdout.excess()
    }
}

/// One output stream: bytes up to the limit go to the node at once, all are counted.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    lengths: Arc<[AtomicU64; 2]>,
    index: usize,
    kind: Kind,
    limit: u64,
}

impl Meter {
    fn length(&self, index: usize) -> u64 {
        self.lengths.get(index).map_or(0, |length| length.load(Ordering::Relaxed))
    }

    fn excess(&self) -> Excess {
        Excess { stdout_len: self.length(0), stderr_len: self.length(1) }
    }

    fn deliver(&self, bytes: &[u8]) -> StreamResult<()> {
        let before = self.length(self.index);
        let after = before.saturating_add(bytes.len() as u64);
        if let Some(length) = self.lengths.get(self.index) {
            length.store(after, Ordering::Relaxed);
        }
        let room = self.limit.saturating_sub(before).min(bytes.len() as u64);
        let kept = bytes.get(..room as usize).unwrap_or_default();
        for chunk in kept.chunks(OUTPUT_CHUNK) {
            send(self.kind, chunk)?;
        }
        let steps = |length: u64| length.saturating_sub(self.limit).div_ceil(EXCESS_STEP);
        if steps(after) > steps(before) {
            let body = serde_json::to_vec(&self.excess()).unwrap_or_default();
            send(Kind::Excess, &body)?;
        }
        Ok(())
    }
}

fn send(kind: Kind, body: &[u8]) -> StreamResult<()> {
    pipe::send_frame(kind, body).map_err(|error| StreamError::Trap(wasmtime::Error::msg(error.to_string())))
}

#[wasmtime_wasi::async_trait]
impl Pollable for Meter {
    async fn ready(&mut self) {}
}

impl OutputStream for Meter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        // Blocks while the node is behind: the guest waits, nothing is lost.
        self.deliver(&bytes)
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(OUTPUT_CHUNK)
    }
}

impl IsTerminal for Meter {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Meter {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Preview 1 and 2 ask for the other kind of stream only.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}
