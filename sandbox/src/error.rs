//! What can go wrong, by whose doing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The sandbox itself does not work as it must: our side, never the guest's. Nothing was run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SandboxError {
    /// A limit is out of range.
    #[error("{field} is {value}: {remedy}")]
    Limit {
        /// The field of [`Limits`](crate::Limits).
        field: &'static str,
        /// Its value.
        value: u64,
        /// What would do.
        remedy: String,
    },
    /// An attempt's name cannot be a folder's name.
    #[error("attempt name {name:?} is not 1 to 64 letters, digits, '-', '_' or '.' without a leading dot")]
    AttemptName {
        /// The name as given.
        name: String,
    },
    /// A folder cannot be used.
    #[error("folder {}: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The runner's program does not start.
    #[error("cannot start {}: {reason}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A step of the confinement is not available: nothing runs without it.
    #[error("confinement step {step} failed: {reason}; wasm work cannot be run on this machine")]
    Confinement {
        /// The step: `landlock`, `seccomp`, `rlimit`, `capabilities`, ...
        step: String,
        /// What the system said.
        reason: String,
    },
    /// A child process said something that it never says, or stopped answering.
    #[error("a {role} process failed while {doing}: {reason}")]
    Child {
        /// `runner` or `compiler`.
        role: &'static str,
        /// What it was to do.
        doing: &'static str,
        /// What happened.
        reason: String,
    },
    /// The module is compiled for other limits than those of this run.
    #[error("the module is compiled for deterministic = {compiled}, the limits say {asked}; compile it again")]
    Mode {
        /// As compiled.
        compiled: bool,
        /// As asked for.
        asked: bool,
    },
}

/// A module that cannot be run: the renter's side. The attempt ends `input-failed`.
#[derive(Debug, Clone, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum ModuleError {
    /// The bytes are no module at all.
    #[error("not a WebAssembly module: {found}")]
    NotWasm {
        /// What the first bytes look like.
        found: String,
    },
    /// Machine code. It is never accepted, from nobody.
    #[error("a precompiled module (.cwasm) is machine code and is never accepted; send the .wasm")]
    Precompiled,
    /// A component with a chosen entry: it has none to choose.
    #[error(
        "runtime.entry is {entry:?}, but a component is started by its wasi:cli/run and by nothing else; leave \
         runtime.entry out"
    )]
    ComponentEntry {
        /// The entry asked for.
        entry: String,
    },
    /// A component that is no command.
    #[error("the component exports no wasi:cli/run@0.2, so it is no command; it has: {}", list(has))]
    NotCommand {
        /// What it does export, the first 20.
        has: Vec<String>,
    },
    /// A component that uses an interface in another way than it is defined.
    #[error("the component does not fit WASI preview 2: {reason}")]
    Unlinkable {
        /// What the linker said.
        reason: String,
    },
    /// The file is too large to look at.
    #[error("the module has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// [`MAX_MODULE_BYTES`](crate::MAX_MODULE_BYTES).
        limit: u64,
    },
    /// Too many functions to compile for a stranger.
    #[error("the module has {count} functions, the limit is {limit}")]
    TooManyFunctions {
        /// As the module says.
        count: u32,
        /// [`MAX_FUNCTIONS`](crate::MAX_FUNCTIONS).
        limit: u32,
    },
    /// One function too large to compile for a stranger.
    #[error("function {index} has a body of {bytes} bytes, the limit is {limit}; split it or lower the inlining")]
    FunctionTooLarge {
        /// Its index, imports included.
        index: u32,
        /// Size of its body.
        bytes: u64,
        /// [`MAX_FUNCTION_BYTES`](crate::MAX_FUNCTION_BYTES).
        limit: u64,
    },
    /// A proposal of WebAssembly that is not run here.
    #[error("the module needs {feature}, which is not offered")]
    Feature {
        /// Its name: `memory64`, `shared memory`, `multi-memory`, ...
        feature: String,
    },
    /// The memory the module starts with is over the limit.
    #[error("the module starts with {needs} bytes of memory, the limit is {limit}; raise resources.memory")]
    MemoryMinimum {
        /// What it needs to start.
        needs: u64,
        /// What it may have.
        limit: u64,
    },
    /// A table larger than the limit.
    #[error("the module starts with a table of {elements} elements, the limit is {limit}")]
    TableMinimum {
        /// What it needs to start.
        elements: u64,
        /// [`MAX_TABLE_ELEMENTS`](crate::MAX_TABLE_ELEMENTS).
        limit: u64,
    },
    /// Imports that WASI does not have as it is offered here.
    #[error("the module imports what is not offered: {}", names.join(", "))]
    MissingImports {
        /// Each as `module.name (kind or signature)`; of a component as `package:name/interface@version (kind)`.
        names: Vec<String>,
    },
    /// The entry is not exported.
    #[error("the module exports no function {entry:?}; it has: {}", list(has))]
    MissingExport {
        /// The entry asked for.
        entry: String,
        /// The functions that it does export, the first 20.
        has: Vec<String>,
    },
    /// The entry is a function of another type.
    #[error("the entry {entry:?} has the signature {found}, it must be () -> ()")]
    WrongSignature {
        /// The entry asked for.
        entry: String,
        /// Its type.
        found: String,
    },
    /// The bytes do not validate.
    #[error("the module is invalid: {reason}")]
    Invalid {
        /// What the validator said.
        reason: String,
    },
    /// Compiling took more than is spent on a stranger's module.
    #[error("compile limit: {what}")]
    CompileLimit {
        /// Which limit, with its value.
        what: String,
    },
    /// The bytes are not those that were announced.
    #[error("the module's BLAKE3 is {found}, {expected} was announced")]
    Hash {
        /// As announced, in hex.
        expected: String,
        /// As found, in hex.
        found: String,
    },
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// A module could not be made ready to run, by its own fault or by ours.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The module cannot be run.
    #[error(transparent)]
    Module(#[from] ModuleError),
    /// The sandbox does not work.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}
