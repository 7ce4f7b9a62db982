//! Runners started ahead, so that a lease waits for no process to start.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Mutex as AsyncMutex, OnceCell, Semaphore, oneshot},
    time::timeout,
};

use crate::{
    cache::Cache,
    compile::Compiled,
    confinement::{self, Confinement},
    error::{CompileError, ModuleError, SandboxError},
    limits::{Folders, Limits},
    process::{Death, Process, SETUP_LIMIT, Silence},
    runner::{Ready, Runner},
    wire::{Confine, Kind, Role},
};

const ARMING: &str = "taking up a lease";
/// Compilers at work at once: two, so that one stranger's large module does not keep all others waiting, and no
/// more, because each may take 1.5 GB and a core.
const COMPILERS: usize = 2;
/// A runner that was taken is replaced when its first task is over, or after so long: a process that starts takes
/// milliseconds of processor time from the task that somebody waits for.
const REST: Duration = Duration::from_millis(50);
/// Compiled modules kept in memory beside those that runners hold: those of the last leases.
const REMEMBERED_MODULES: usize = 8;
/// And not more than this of machine code.
const REMEMBERED_BYTES: usize = 64 << 20;

/// What a pool needs to know.
#[derive(Clone)]
pub struct PoolConfig {
    /// The program whose `main` calls [`runner_main`](crate::runner_main); usually this one: `/proc/self/exe`
    /// stays the same program when its file is replaced by a newer one.
    pub program: PathBuf,
    /// The arguments that make it do so: `["runner"]`.
    pub args: Vec<String>,
    /// Idle runners kept ready, 18 MB of memory each. As many as slots hides the start of every one; 0 starts
    /// each when it is asked for (4 ms).
    pub ahead: usize,
    /// Where runners' folders are made; must be absolute. What an earlier process left there is for the caller to
    /// remove.
    pub scratch: PathBuf,
    /// Where compiled modules are kept; made when needed. Only the node should be able to write there, but
    /// nothing depends on it.
    pub cache_dir: PathBuf,
    /// The node's secret for files in it. Another secret means another cache.
    pub secret: [u8; 32],
}

impl std::fmt::Debug for PoolConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PoolConfig")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("ahead", &self.ahead)
            .field("scratch", &self.scratch)
            .field("cache_dir", &self.cache_dir)
            .finish_non_exhaustive()
    }
}

/// Starts, confines and hands out runners, and compiles modules for them. Cheap to clone; when the last clone is
/// gone its idle runners are.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    config: PoolConfig,
    try_namespaces: bool,
    cache: Cache,
    /// Held for moments only, never over an await: a queue behind a task would cost a wake-up per take.
    idle: Mutex<VecDeque<Ready>>,
    /// Runners being started ahead.
    starting: AtomicUsize,
    /// Names the next runner's folder.
    number: AtomicU64,
    confinement: OnceCell<Confinement>,
    engine: OnceCell<String>,
    compilers: Semaphore,
    /// One lock for each module that is being compiled, so that it is compiled once.
    flights: Mutex<HashMap<[u8; 32], Weak<AsyncMutex<()>>>>,
    /// The same reasoning as for `idle`.
    modules: Mutex<VecDeque<([u8; 32], Compiled)>>,
}

impl Pool {
    /// A pool. Starts nothing yet: call [`Pool::warm`] when the node is up, or let the first lease wait.
    pub fn new(config: PoolConfig) -> Self {
        Self::build(config, true)
    }

    /// A pool whose runners do without namespaces of their own even where there are some: for systems on which
    /// they do harm. All other steps are taken.
    pub fn without_namespaces(config: PoolConfig) -> Self {
        Self::build(config, false)
    }

    fn build(config: PoolConfig, try_namespaces: bool) -> Self {
        Pool(Arc::new(Inner {
            try_namespaces,
            cache: Cache::new(config.cache_dir.clone(), &config.secret),
            config,
            idle: Mutex::new(VecDeque::new()),
            starting: AtomicUsize::new(0),
            number: AtomicU64::new(0),
            confinement: OnceCell::new(),
            engine: OnceCell::new(),
            compilers: Semaphore::new(COMPILERS),
            flights: Mutex::new(HashMap::new()),
            modules: Mutex::new(VecDeque::new()),
        }))
    }

    /// Tests the confinement and starts the runners ahead; waits until they are ready.
    ///
    /// # Errors
    /// [`SandboxError`] when this machine cannot run wasm work: then the node must not offer it.
    pub async fn warm(&self) -> Result<Confinement, SandboxError> {
        let confinement = self.confinement().await?.clone();
        self.engine().await?;
        while self.idle().len() < self.0.config.ahead {
            let ready = self.start().await?;
            self.idle().push_back(ready);
        }
        Ok(confinement)
    }

    /// What runners of this pool are confined by, tested once.
    ///
    /// # Errors
    /// [`SandboxError::Confinement`] names the step this machine does not offer.
    pub async fn confinement(&self) -> Result<&Confinement, SandboxError> {
        let config = &self.0.config;
        self.0
            .confinement
            .get_or_try_init(|| async {
                let scratch = self.0.cache.folder();
                confinement::test(&config.program, &config.args, scratch, self.0.try_namespaces).await
            })
            .await
    }

    /// Idle runners ready to be taken.
    pub fn ready(&self) -> usize {
        self.idle().len()
    }

    /// Takes a runner for a lease: it is confined to a folder of its own already, binds itself to `ceiling`, then
    /// loads `module`. It runs tasks of that module within that ceiling until it is dropped.
    ///
    /// Cancel safe: a runner that is not handed out is killed.
    ///
    /// # Errors
    /// `Sandbox` when the limits make no sense, the module is compiled for another mode, or no runner can be started
    /// and confined: nothing is ever run in a lesser confinement. `Module` for a component that cannot be linked.
    pub async fn take(&self, module: &Compiled, ceiling: &Limits) -> Result<Runner, CompileError> {
        ceiling.check()?;
        if module.deterministic() != ceiling.deterministic {
            let mode = SandboxError::Mode { compiled: module.deterministic(), asked: ceiling.deterministic };
            return Err(mode.into());
        }
        // Whatever happened to an idle one in the meantime does not count; a fresh one's failure does.
        while let Some(ready) = self.next_idle() {
            match arm(ready, module, ceiling, self.replenish()).await {
                Err(CompileError::Sandbox(_)) => {}
                settled => return settled,
            }
        }
        let ready = self.start().await?;
        arm(ready, module, ceiling, self.replenish()).await
    }

    /// A fresh runner, confined to a fresh folder.
    async fn start(&self) -> Result<Ready, SandboxError> {
        let number = self.0.number.fetch_add(1, Ordering::Relaxed);
        let folders = Folders::create(self.0.config.scratch.join(format!("runner-{number}")))?;
        let process = self.child(Role::Runner, folders.root()).await?;
        Ok(Ready { process, folders })
    }

    /// A fresh compiler: it sees no folder.
    pub(crate) async fn compiler(&self) -> Result<Process, SandboxError> {
        self.child(Role::Compiler, Path::new("")).await
    }

    /// A fresh child in the confinement that was tested.
    async fn child(&self, role: Role, root: &Path) -> Result<Process, SandboxError> {
        let namespaces = self.confinement().await?.user_namespace;
        let config = &self.0.config;
        let (process, hello) = Process::start(&config.program, &config.args, role, namespaces, root).await?;
        // The same program on the same machine always says the same.
        let _ = self.0.engine.set(hello.engine);
        Ok(process)
    }

    /// What compiled code depends on, as the first child said.
    pub(crate) async fn engine(&self) -> Result<String, SandboxError> {
        if let Some(engine) = self.0.engine.get() {
            return Ok(engine.clone());
        }
        let ready = self.start().await?;
        self.idle().push_back(ready);
        let engine = self.0.engine.get().cloned();
        engine.ok_or_else(|| SandboxError::Child {
            role: "runner",
            doing: "starting",
            reason: "it did not say what engine it has".to_owned(),
        })
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    /// The right to start a compiler.
    pub(crate) fn compilers(&self) -> &Semaphore {
        &self.0.compilers
    }

    /// The lock of whoever compiles this module.
    pub(crate) fn flight(&self, key: &[u8; 32]) -> Arc<AsyncMutex<()>> {
        let mut flights = self.0.flights.lock().unwrap_or_else(PoisonError::into_inner);
        flights.retain(|_, flight| flight.strong_count() > 0);
        if let Some(flight) = flights.get(key).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::new(AsyncMutex::new(()));
        flights.insert(*key, Arc::downgrade(&flight));
        flight
    }

    /// A compiled module from memory.
    pub(crate) fn known(&self, key: &[u8; 32]) -> Option<Compiled> {
        let modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.iter().find(|(found, _)| found == key).map(|(_, compiled)| compiled.clone())
    }

    /// Keeps a compiled module in memory; the oldest go.
    pub(crate) fn remember(&self, key: [u8; 32], compiled: &Compiled) {
        let mut modules = self.0.modules.lock().unwrap_or_else(PoisonError::into_inner);
        modules.push_back((key, compiled.clone()));
        let bytes = |modules: &VecDeque<([u8; 32], Compiled)>| -> usize {
            modules.iter().map(|(_, module)| module.artifact().len()).sum()
        };
        while modules.len() > 1 && (modules.len() > REMEMBERED_MODULES || bytes(&modules) > REMEMBERED_BYTES) {
            modules.pop_front();
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<Ready>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_idle(&self) -> Option<Ready> {
        self.idle().pop_front()
    }

    /// Starts runners in the background until there are as many ahead as there should be, once what it returns is
    /// dropped or after [`REST`].
    fn replenish(&self) -> Busy {
        let (busy, over) = oneshot::channel::<Infallible>();
        // A weak reference: a pool that is gone needs no runners.
        let pool = Arc::downgrade(&self.0);
        tokio::spawn(async move {
            let _ = timeout(REST, over).await;
            if let Some(inner) = pool.upgrade() {
                Pool(inner).start_ahead();
            }
        });
        Busy { _over: busy }
    }

    fn start_ahead(&self) {
        let lacking = {
            let ready = self.ready();
            let starting = self.0.starting.load(Ordering::Relaxed);
            self.0.config.ahead.saturating_sub(ready + starting)
        };
        for _ in 0..lacking {
            self.0.starting.fetch_add(1, Ordering::Relaxed);
            let pool = self.clone();
            tokio::spawn(async move {
                let started = pool.start().await;
                pool.0.starting.fetch_sub(1, Ordering::Relaxed);
                match started {
                    Ok(ready) => pool.idle().push_back(ready),
                    // The next take tries for itself, and has somebody to tell.
                    Err(error) => tracing::warn!(%error, "no runner could be started ahead"),
                }
            });
        }
    }
}

/// A runner that somebody waits for: the pool rests while it is held.
#[derive(Debug)]
pub(crate) struct Busy {
    _over: oneshot::Sender<Infallible>,
}

async fn arm(mut ready: Ready, module: &Compiled, ceiling: &Limits, busy: Busy) -> Result<Runner, CompileError> {
    let artifact = module.artifact();
    let order = Confine {
        memory_bytes: ceiling.memory_bytes,
        file_bytes: ceiling.output_bytes,
        deterministic: ceiling.deterministic,
        component: module.is_component(),
        seed: *module.hash(),
        module_bytes: artifact.len() as u64,
    };
    let process = &mut ready.process;
    process.send(Kind::Confine, &order, ARMING).await?;
    process.send_chunks(artifact, ARMING).await?;
    if module.is_component() {
        linked(process).await?;
    } else {
        process.expect::<()>(Kind::Ready, ARMING).await?;
    }
    Ok(Runner::new(ready, module.clone(), ceiling.clone(), busy))
}

/// Waits for a runner to load and link a component. What its instances take, and whether it uses each interface as
/// it is defined, comes out only here; neither is this side's fault.
async fn linked(process: &mut Process) -> Result<(), CompileError> {
    let frame = match timeout(SETUP_LIMIT, process.next()).await {
        Ok(Ok(frame)) => frame,
        Ok(Err(Silence::Ended)) => {
            return Err(match process.death().await {
                Death::Signal(libc::SIGABRT) => {
                    ModuleError::CompileLimit { what: "the memory its instances take".to_owned() }.into()
                }
                death => process.fault(ARMING, death.to_string()).into(),
            });
        }
        Ok(Err(Silence::Nonsense(reason))) => return Err(process.fault(ARMING, reason).into()),
        Err(_) => return Err(ModuleError::CompileLimit { what: format!("{} s to link", SETUP_LIMIT.as_secs()) }.into()),
    };
    if frame.kind == Kind::Refused {
        return Err(process.parse::<ModuleError>(&frame, Kind::Refused, ARMING)?.into());
    }
    Ok(process.parse(&frame, Kind::Ready, ARMING)?)
}
