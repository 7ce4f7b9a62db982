//! Running a stranger's work.
//!
//! A provider runs WASI commands of people it has never met: modules for preview 1, components for preview 2 (both
//! are called modules where it makes no difference). Each slot has a *runner*: a child process of the node's own
//! program in a hidden mode, confined by landlock, a system-call filter, resource limits and, where the system allows
//! them, namespaces of its own. It holds one module and a folder made for it, runs one task at a time, and is reused
//! for tasks of one lease only.
//!
//! ```text
//! node                                     child (`souk runner`)
//! Pool::warm -- start, folder, hello -->  no_new_privs, dies with the node, namespaces, engine,
//!                                          root pivoted, no capability, landlock
//! Pool::compile -- module -------------->  no file, no new code; checks, compiles
//!              <------------- machine code, kept with a MAC of the node's secret
//! Pool::take -- limits ---------------->  rlimits, seccomp
//!            -- machine code ----------->  loaded; seccomp again: nothing becomes executable any more
//! Runner::run -- entry, argv, env ------>  a fresh instance
//!             <------------- output frames, then how it ended
//! ```
//!
//! A wall limit, a cancel or too much output ends in a kill of the process: nothing is woven into the guest's
//! code for it. A runner dies with the node (parent-death signal, and end of its standard input), so a node that
//! starts again finds none of its predecessor's.
//!
//! ```no_run
//! # async fn example(program: std::path::PathBuf, wasm: std::sync::Arc<[u8]>) -> Result<(), Box<dyn std::error::Error>> {
//! use souk_sandbox::{AttemptName, Limits, ModuleSource, Pool, PoolConfig, Task};
//!
//! let pool = Pool::new(PoolConfig {
//!     program,
//!     args: vec!["runner".to_owned()],
//!     ahead: 1,
//!     scratch: "/var/lib/souk/scratch".into(),
//!     cache_dir: "/var/cache/souk/modules".into(),
//!     secret: [7; 32],
//! });
//! let hash = *blake3::hash(&wasm).as_bytes();
//! let module = pool.compile(&ModuleSource::Bytes(wasm), &hash, false).await?;
//! let limits = Limits { wall_ms: 60_000, ..Limits::default() };
//! let mut runner = pool.take(&module, &limits).await?;
//!
//! let task = Task::new(AttemptName::new("0-0-1")?);
//! runner.folders().prepare(&task)?;
//! let (sink, mut output) = tokio::sync::mpsc::channel(16);
//! let (ended, ()) = tokio::join!(runner.run(&task, &limits, sink), async {
//!     while let Some(output) = output.recv().await {
//!         // append output.bytes to the spool of output.stream
//!     }
//! });
//! # Ok(()) }
//! ```

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

mod cache;
mod child;
mod compile;
mod confinement;
mod error;
mod limits;
mod measure;
mod pool;
mod process;
mod runner;
mod task;
mod wire;

pub use child::runner_main;
pub use compile::{Compiled, ModuleSource};
pub use confinement::{Confinement, self_test};
pub use error::{CompileError, ModuleError, SandboxError};
pub use limits::{
    AttemptName, Folders, Limits, MAX_ARGUMENT_BYTES, MAX_FUNCTION_BYTES, MAX_FUNCTIONS, MAX_MEMORY_BYTES,
    MAX_MODULE_BYTES, MAX_TABLE_ELEMENTS,
};
pub use pool::{Pool, PoolConfig};
pub use runner::{KillHandle, Runner};
pub use task::{End, Ended, InputFault, Output, Stream, Task};
