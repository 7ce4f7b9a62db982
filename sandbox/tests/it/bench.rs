//! A pool with a place of its own, and what every test asks at the end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use souk_sandbox::{
    AttemptName, CompileError, Compiled, End, Ended, Folders, Limits, ModuleError, ModuleSource, Output, Pool,
    PoolConfig, Runner, Stream, Task,
};
use tokio::sync::mpsc;

/// The runner's program.
pub(crate) fn runner() -> PathBuf {
    let built = || env!("CARGO_BIN_EXE_souk-runner").into();
    std::env::var_os("SOUK_TEST_RUNNER").map_or_else(built, Into::into)
}

/// What a task did.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) ended: Ended,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

/// A workplace: pool, folders, a number for the next attempt.
pub(crate) struct Bench {
    pub(crate) pool: Pool,
    /// Where a test lays out what a task needs before there is a runner, and finds what it left.
    pub(crate) folders: Folders,
    /// The folders of the runners taken.
    homes: std::cell::RefCell<Vec<Folders>>,
    pub(crate) place: tempfile::TempDir,
    next: std::cell::Cell<u32>,
    pids: std::cell::RefCell<Vec<u32>>,
}

/// A pool's configuration; all pools of one place share its cache.
pub(crate) fn config(place: &Path, scratch: &str, ahead: usize) -> PoolConfig {
    PoolConfig {
        program: runner(),
        args: Vec::new(),
        ahead,
        scratch: place.join(scratch),
        cache_dir: place.join("cache"),
        secret: [9; 32],
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(0)
    }

    pub(crate) fn with(ahead: usize) -> Self {
        let place = tempfile::tempdir().unwrap();
        let pool = Pool::new(config(place.path(), "scratch", ahead));
        let folders = Folders::create(place.path().join("tasks")).unwrap();
        let (homes, pids) = Default::default();
        Bench { pool, folders, homes, place, next: std::cell::Cell::new(0), pids }
    }

    pub(crate) fn root(&self) -> &Path {
        self.place.path()
    }

    /// A pool that has compiled nothing yet, with the same cache.
    pub(crate) fn other_pool(&self) -> Pool {
        Pool::new(config(self.root(), "other", 0))
    }

    pub(crate) async fn compile(&self, wasm: &[u8]) -> Result<Compiled, CompileError> {
        self.compile_for(wasm, false).await
    }

    pub(crate) async fn compile_for(&self, wasm: &[u8], deterministic: bool) -> Result<Compiled, CompileError> {
        let source = ModuleSource::Bytes(Arc::from(wasm));
        let hash = *blake3::hash(wasm).as_bytes();
        self.pool.compile(&source, &hash, deterministic).await
    }

    /// Why a module is refused.
    pub(crate) async fn refusal(&self, wasm: &[u8]) -> ModuleError {
        match self.compile(wasm).await {
            Err(CompileError::Module(error)) => error,
            other => panic!("not refused for what it is: {other:?}"),
        }
    }

    pub(crate) async fn take(&self, module: &Compiled, limits: &Limits) -> Runner {
        let runner = self.pool.take(module, limits).await.unwrap();
        self.pids.borrow_mut().push(runner.pid());
        for number in 0..self.next.get() {
            hand_over(&self.folders, runner.folders(), &attempt(number));
        }
        self.homes.borrow_mut().push(runner.folders().clone());
        runner
    }

    /// A task with folders of its own.
    pub(crate) fn task(&self) -> Task {
        let number = self.next.get();
        self.next.set(number + 1);
        let task = Task::new(attempt(number));
        let all = Task { checkpoint: true, ..task.clone() };
        self.folders.prepare(&all).unwrap();
        for home in &*self.homes.borrow() {
            home.prepare(&all).unwrap();
        }
        task
    }

    /// Compiles, takes a runner, runs once, closes it.
    pub(crate) async fn run(&self, wasm: &[u8], limits: &Limits) -> Seen {
        let task = self.task();
        self.run_task(wasm, &task, limits).await
    }

    pub(crate) async fn run_task(&self, wasm: &[u8], task: &Task, limits: &Limits) -> Seen {
        let module = self.compile_for(wasm, limits.deterministic).await.unwrap();
        let mut runner = self.take(&module, limits).await;
        let seen = run_on(&mut runner, task, limits).await;
        hand_over(runner.folders(), &self.folders, &task.attempt);
        runner.close().await;
        seen
    }

    /// The provider is unaffected: another task on a fresh runner works, and no process is left.
    pub(crate) async fn is_well(&self) {
        let limits = Limits { wall_ms: 60_000, ..Limits::default() };
        let seen = self.run(&crate::guests::hello(), &limits).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        assert_eq!(seen.stdout, b"hello\n");
        self.nothing_left().await;
    }

    /// Every process this bench took is gone.
    pub(crate) async fn nothing_left(&self) {
        let pids = std::mem::take(&mut *self.pids.borrow_mut());
        for pid in pids {
            assert!(gone(pid).await, "process {pid} is left");
        }
    }
}

fn attempt(number: u32) -> AttemptName {
    AttemptName::new(format!("a{number}")).unwrap()
}

/// Moves an attempt's folders, where they are.
fn hand_over(from: &Folders, to: &Folders, attempt: &AttemptName) {
    for place in [Folders::input, Folders::output, Folders::checkpoint] {
        if place(from, attempt).exists() {
            std::fs::rename(place(from, attempt), place(to, attempt)).unwrap();
        }
    }
}

/// Waits until there is no such process, at most some seconds.
pub(crate) async fn gone(pid: u32) -> bool {
    let path = PathBuf::from(format!("/proc/{pid}"));
    let vanish = async {
        while path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), vanish).await.is_ok()
}

/// Runs a task and collects what it writes.
pub(crate) async fn run_on(runner: &mut Runner, task: &Task, limits: &Limits) -> Seen {
    let (sink, output) = mpsc::channel(4);
    let (ended, (stdout, stderr)) = tokio::join!(runner.run(task, limits, sink), collect(output));
    Seen { ended, stdout, stderr }
}

async fn collect(mut output: mpsc::Receiver<Output>) -> (Vec<u8>, Vec<u8>) {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some(Output { stream, bytes }) = output.recv().await {
        match stream {
            Stream::Stdout => stdout.extend_from_slice(&bytes),
            Stream::Stderr => stderr.extend_from_slice(&bytes),
        }
    }
    (stdout, stderr)
}

/// Limits that let a test end soon.
pub(crate) fn short() -> Limits {
    Limits { wall_ms: 20_000, memory_bytes: 64 << 20, ..Limits::default() }
}
