//! Compiling on the node's side: hash, cache, and a compiler process for what is new.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::{io::AsyncReadExt, time::timeout};

use crate::{
    cache::{Entry, cache_key},
    child::{COMPILE_CPU_SECONDS, COMPILE_MEMORY_BYTES, Facts},
    error::{CompileError, ModuleError, SandboxError},
    limits::{Limits, MAX_ARTIFACT_BYTES, MAX_MODULE_BYTES},
    pool::Pool,
    process::{Death, Process, Silence},
    wire::{Confine, Kind},
};

const DOING: &str = "compiling";
/// How long compiling may take by the clock; a machine with other work to do gives a compiler half a core.
const COMPILE_WALL: Duration = Duration::from_secs(2 * COMPILE_CPU_SECONDS);

/// Where a module's bytes are.
#[derive(Debug, Clone)]
pub enum ModuleSource {
    /// In memory.
    Bytes(Arc<[u8]>),
    /// In a file.
    Path(PathBuf),
}

/// A compiled module or component. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Compiled(Arc<Inner>);

struct Inner {
    hash: [u8; 32],
    deterministic: bool,
    facts: Facts,
    artifact: Vec<u8>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compiled")
            .field("hash", &hex(&self.hash))
            .field("deterministic", &self.deterministic)
            .field("artifact_bytes", &self.artifact.len())
            .finish_non_exhaustive()
    }
}

impl Compiled {
    fn new(hash: [u8; 32], deterministic: bool, entry: Entry) -> Self {
        Compiled(Arc::new(Inner { hash, deterministic, facts: entry.facts, artifact: entry.artifact }))
    }

    /// The BLAKE3 of the module's source.
    pub fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// Whether it is compiled for deterministic runs.
    pub fn deterministic(&self) -> bool {
        self.0.deterministic
    }

    /// Whether it is a component, started by its `wasi:cli/run`, and not a module.
    pub fn is_component(&self) -> bool {
        self.0.facts.component
    }

    /// Bytes of memory the module starts with.
    pub fn memory_bytes(&self) -> u64 {
        self.0.facts.memory_bytes
    }

    /// Whether a task with this entry can start within these limits: what can be told without running it.
    ///
    /// # Errors
    /// [`ModuleError`] for a missing entry, one of another type, any entry but `_start` of a component, or a
    /// memory that starts over the limit.
    pub fn check(&self, entry: &str, limits: &Limits) -> Result<(), ModuleError> {
        self.0.facts.check(entry, limits.memory_bytes)
    }

    pub(crate) fn artifact(&self) -> &[u8] {
        &self.0.artifact
    }
}

impl Pool {
    /// Compiles a module, or finds it compiled. Each is compiled once, in a process of its own
    /// that can touch no file and has bounded memory, CPU and wall time.
    ///
    /// Cancel safe: a compiler whose caller is gone is killed.
    ///
    /// # Errors
    /// [`CompileError::Module`] when the bytes are not what `hash` says or cannot be run; `Sandbox` when this
    /// machine cannot compile.
    pub async fn compile(
        &self,
        source: &ModuleSource,
        hash: &[u8; 32],
        deterministic: bool,
    ) -> Result<Compiled, CompileError> {
        let engine = self.engine().await?;
        let key = cache_key(hash, &engine, deterministic);
        if let Some(compiled) = self.known(&key) {
            return Ok(compiled);
        }
        // Each module once, and whoever waited for it looks again.
        let flight = self.flight(&key);
        let _turn = flight.lock().await;
        if let Some(compiled) = self.known(&key) {
            return Ok(compiled);
        }
        let cache = self.cache().clone();
        let cached = blocking(move || cache.load(&key)).await?;
        let entry = match cached {
            Some(entry) => entry,
            None => {
                let bytes = read(source).await?;
                let found = blake3::hash(&bytes);
                if found.as_bytes() != hash {
                    return Err(ModuleError::Hash { expected: hex(hash), found: hex(found.as_bytes()) }.into());
                }
                let entry = self.compile_new(&bytes, hash, deterministic).await?;
                let cache = self.cache().clone();
                blocking(move || {
                    cache.store(&key, &entry);
                    entry
                })
                .await?
            }
        };
        let compiled = Compiled::new(*hash, deterministic, entry);
        self.remember(key, &compiled);
        Ok(compiled)
    }

    async fn compile_new(&self, bytes: &[u8], hash: &[u8; 32], deterministic: bool) -> Result<Entry, CompileError> {
        let _permit = self.compilers().acquire().await.map_err(|error| {
            // The semaphore is never closed while its pool lives.
            SandboxError::Child { role: "compiler", doing: DOING, reason: error.to_string() }
        })?;
        let mut process = self.compiler().await?;
        let order = Confine {
            memory_bytes: 0,
            file_bytes: 0,
            deterministic,
            component: false,
            seed: *hash,
            module_bytes: bytes.len() as u64,
        };
        process.send(Kind::Confine, &order, DOING).await?;
        process.send_chunks(bytes, DOING).await?;
        let Ok(result) = timeout(COMPILE_WALL, receive(&mut process)).await else {
            return Err(limit(format!("{} s", COMPILE_WALL.as_secs())).into());
        };
        result
    }
}

async fn receive(process: &mut Process) -> Result<Entry, CompileError> {
    let frame = match process.next().await {
        Ok(frame) => frame,
        Err(Silence::Nonsense(reason)) => return Err(process.fault(DOING, reason).into()),
        Err(Silence::Ended) => return Err(died(process).await),
    };
    if frame.kind == Kind::Refused {
        let error: ModuleError = process.parse(&frame, Kind::Refused, DOING)?;
        return Err(error.into());
    }
    let (facts, length): (Facts, u64) = process.parse(&frame, Kind::Compiled, DOING)?;
    if length > MAX_ARTIFACT_BYTES {
        return Err(limit(format!("{MAX_ARTIFACT_BYTES} bytes of machine code")).into());
    }
    let length = length as usize;
    let mut artifact = Vec::with_capacity(length);
    while artifact.len() < length {
        match process.next().await {
            Ok(frame) if frame.kind == Kind::Chunk && frame.body.len() <= length - artifact.len() => {
                artifact.extend_from_slice(&frame.body);
            }
            Ok(frame) => {
                let reason = format!("it sent {:?} in the middle of a module", frame.kind);
                return Err(process.fault(DOING, reason).into());
            }
            Err(Silence::Nonsense(reason)) => return Err(process.fault(DOING, reason).into()),
            Err(Silence::Ended) => return Err(died(process).await),
        }
    }
    Ok(Entry { facts, artifact })
}

/// A compiler that dies does so of its module, but for the deaths that only our own mistakes explain.
async fn died(process: &mut Process) -> CompileError {
    match process.death().await {
        Death::Signal(libc::SIGXCPU) => limit(format!("{COMPILE_CPU_SECONDS} s of CPU")).into(),
        // RLIMIT_CPU's hard limit kills; nobody else does.
        Death::Signal(libc::SIGKILL) => limit(format!("{COMPILE_CPU_SECONDS} s of CPU")).into(),
        Death::Signal(libc::SIGABRT) => limit(format!("{COMPILE_MEMORY_BYTES} bytes of memory")).into(),
        Death::Signal(libc::SIGSEGV) => limit("the compiler's stack".to_owned()).into(),
        death => process.fault(DOING, death.to_string()).into(),
    }
}

fn limit(what: String) -> ModuleError {
    ModuleError::CompileLimit { what }
}

async fn read(source: &ModuleSource) -> Result<Arc<[u8]>, CompileError> {
    let path = match source {
        ModuleSource::Bytes(bytes) => return bounded(bytes.len() as u64).map(|()| Arc::clone(bytes)),
        ModuleSource::Path(path) => path,
    };
    let unreadable = |error: std::io::Error| SandboxError::Folder { path: path.clone(), reason: error.to_string() };
    let file = tokio::fs::File::open(path).await.map_err(unreadable)?;
    bounded(file.metadata().await.map_err(unreadable)?.len())?;
    let mut bytes = Vec::new();
    // Bounded again: the file may grow while it is read.
    let mut file = file.take(MAX_MODULE_BYTES + 1);
    file.read_to_end(&mut bytes).await.map_err(unreadable)?;
    bounded(bytes.len() as u64)?;
    Ok(bytes.into())
}

fn bounded(bytes: u64) -> Result<(), CompileError> {
    if bytes > MAX_MODULE_BYTES {
        return Err(ModuleError::TooLarge { bytes, limit: MAX_MODULE_BYTES }.into());
    }
    Ok(())
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, SandboxError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| SandboxError::Child {
        role: "compiler",
        doing: "reading the cache",
        reason: error.to_string(),
    })
}

fn hex(hash: &[u8; 32]) -> String {
    data_encoding::HEXLOWER.encode(hash)
}
