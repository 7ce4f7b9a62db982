//! What a run may use. Every default is closed: a caller raises what a job needs, nothing is unlimited.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{error::SandboxError, process, task::Task};

/// The most memory a wasm guest can have: 32-bit addresses end at 4 GiB.
pub const MAX_MEMORY_BYTES: u64 = 4 << 30;
/// The most a guest's table may hold. Large honest programs (interpreters, compilers) have some 50,000 function
/// pointers; an element costs 8 to 16 bytes of the runner's own memory.
pub const MAX_TABLE_ELEMENTS: u64 = 200_000;
/// Tables of one module: the linker makes one, reference types may add a few.
pub(crate) const MAX_TABLES: u64 = 4;
/// Tables of one component: its modules' own, and one through which they call each other.
pub(crate) const MAX_COMPONENT_TABLES: u64 = 8;
/// Modules and components in one component. One that a compiler made has some four; one composed of others has as
/// many for each.
pub(crate) const MAX_PARTS: usize = 100;
/// How deep they may be nested, the whole counted.
pub(crate) const MAX_DEPTH: usize = 8;
/// Instances that a component makes of its modules.
pub(crate) const MAX_COMPONENT_INSTANCES: usize = 100;
/// Bytes of arguments and environment of one task together, names included: what Linux allows a program is about
/// this much in one string, and the guest's copy counts against its memory anyway.
pub const MAX_ARGUMENT_BYTES: usize = 256 * 1024;
/// The largest wasm binary that is looked at. Beyond this it is refused unread.
pub const MAX_MODULE_BYTES: u64 = 64 << 20;
/// The most functions of one module; compile time grows with them.
pub const MAX_FUNCTIONS: u32 = 100_000;
/// The largest body of one function: register allocation is worse than linear in it.
pub const MAX_FUNCTION_BYTES: u64 = 1 << 20;
/// The largest compiled module that is kept or handed to a runner.
pub(crate) const MAX_ARTIFACT_BYTES: u64 = 512 << 20;

/// The limits of one run. They hold from the first instruction of the module's start section on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the guest's linear memory, at most [`MAX_MEMORY_BYTES`]. `memory.grow` beyond it answers -1.
    /// Default 256 MiB.
    pub memory_bytes: u64,
    /// Bytes of standard output that are delivered; what comes after is counted, not kept. Default 64 MB.
    pub stdout_bytes: u64,
    /// The same for standard error. Default 64 MB.
    pub stderr_bytes: u64,
    /// Bytes of all files under the attempt's `out` and `ckpt` together. No single file can pass it (the kernel
    /// refuses); the sum is looked at every 50 ms and at the end, so it is overshot by at most what a run writes
    /// in one such interval. Default 1 GB.
    pub output_bytes: u64,
    /// Files and folders under the attempt's `out` and `ckpt` together, measured at the same moments.
    /// Default 10,000.
    pub output_files: u32,
    /// Milliseconds from the order to run to the kill, instantiation and the start section included. Default 10
    /// minutes; 0 is refused; a value no clock can hold means "no end that will be seen".
    pub wall_ms: u64,
    /// Milliseconds a task that is asked to stop may go on before it is killed. Default 30 s; 0 kills at once.
    pub stop_grace_ms: u64,
    /// Run so that every machine computes the same bytes: fuel is counted, NaNs are canonical, relaxed SIMD is
    /// refused, clocks and random numbers come from the task. The module must be compiled for it. Default false.
    pub deterministic: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            memory_bytes: 256 << 20,
            stdout_bytes: 64_000_000,
            stderr_bytes: 64_000_000,
            output_bytes: 1_000_000_000,
            output_files: 10_000,
            wall_ms: 10 * 60 * 1000,
            stop_grace_ms: 30_000,
            deterministic: false,
        }
    }
}

impl Limits {
    /// Checks that the limits mean something.
    ///
    /// # Errors
    /// [`SandboxError::Limit`] names the first field that is out of range.
    pub fn check(&self) -> Result<(), SandboxError> {
        let refuse = |field, value, remedy: &str| Err(SandboxError::Limit { field, value, remedy: remedy.to_owned() });
        if self.memory_bytes == 0 {
            return refuse("memory_bytes", 0, "give the guest at least one page, 65536");
        }
        if self.memory_bytes > MAX_MEMORY_BYTES {
            return refuse("memory_bytes", self.memory_bytes, "wasm has at most 4 GiB (4294967296)");
        }
        if self.wall_ms == 0 {
            return refuse("wall_ms", 0, "give the run at least one millisecond");
        }
        Ok(())
    }

    /// Whether a run within `self` stays within `ceiling`, for the limits that a runner cannot raise later.
    pub(crate) fn exceeds(&self, ceiling: &Limits) -> Option<&'static str> {
        if self.memory_bytes > ceiling.memory_bytes {
            Some("memory_bytes")
        } else if self.output_bytes > ceiling.output_bytes {
            Some("output_bytes")
        } else if self.deterministic != ceiling.deterministic {
            Some("deterministic")
        } else {
            None
        }
    }
}

/// The folder of a runner: `in` is read-only for guests, `out` and `ckpt` are writable; each attempt has a folder
/// of its own name in each of the three. It is removed with its last clone.
///
/// A guest sees its attempt's `in` as `/`, `out` as `/out`, `ckpt` as `/ckpt`: an input for `/in/digits.csv` lies
/// at `root/in/ATTEMPT/in/digits.csv`.
#[derive(Debug, Clone)]
pub struct Folders(Arc<Root>);

#[derive(Debug)]
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        process::remove(std::mem::take(&mut self.0));
    }
}

impl Folders {
    /// Makes `root` with its three folders, where they do not exist yet.
    ///
    /// # Errors
    /// [`SandboxError::Folder`] when a folder cannot be made, or `root` is not absolute or not UTF-8.
    pub fn create(root: impl Into<PathBuf>) -> Result<Self, SandboxError> {
        let root = root.into();
        if !root.is_absolute() || root.to_str().is_none() {
            return Err(SandboxError::Folder {
                path: root,
                reason: "a runner's folder needs an absolute UTF-8 path".to_owned(),
            });
        }
        let folders = Folders(Arc::new(Root(root)));
        for name in ["in", "out", "ckpt"] {
            make_dir(&folders.root().join(name))?;
        }
        Ok(folders)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.0.0
    }

    /// The attempt's inputs, `/` of the guest.
    pub fn input(&self, attempt: &AttemptName) -> PathBuf {
        self.root().join("in").join(attempt.as_str())
    }

    /// The attempt's results, `/out` of the guest.
    pub fn output(&self, attempt: &AttemptName) -> PathBuf {
        self.root().join("out").join(attempt.as_str())
    }

    /// The attempt's checkpoints, `/ckpt` of the guest.
    pub fn checkpoint(&self, attempt: &AttemptName) -> PathBuf {
        self.root().join("ckpt").join(attempt.as_str())
    }

    /// Makes the folders that a task asks for, where they do not exist yet.
    ///
    /// # Errors
    /// [`SandboxError::Folder`] when a folder cannot be made.
    pub fn prepare(&self, task: &Task) -> Result<(), SandboxError> {
        let attempt = &task.attempt;
        make_dir(&self.input(attempt))?;
        if task.output {
            make_dir(&self.output(attempt))?;
        }
        if task.checkpoint {
            make_dir(&self.checkpoint(attempt))?;
        }
        Ok(())
    }
}

fn make_dir(path: &Path) -> Result<(), SandboxError> {
    std::fs::create_dir_all(path)
        .map_err(|error| SandboxError::Folder { path: path.to_owned(), reason: error.to_string() })
}

/// The name of an attempt's folders: 1 to 64 of letters, digits, `-`, `_`, `.`, not starting with a dot, so that
/// it can be neither a path nor hidden.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AttemptName(String);

impl AttemptName {
    /// The longest name.
    pub const MAX_LEN: usize = 64;

    /// Checks a name.
    ///
    /// # Errors
    /// [`SandboxError::AttemptName`] when it has a character or length that is not allowed.
    pub fn new(name: impl Into<String>) -> Result<Self, SandboxError> {
        let name = name.into();
        let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        if name.is_empty() || name.len() > Self::MAX_LEN || name.starts_with('.') || !plain {
            return Err(SandboxError::AttemptName { name });
        }
        Ok(AttemptName(name))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_paths_are_refused() {
        for name in ["", ".", "..", "a/b", "/a", ".hidden", "a\0b", "ü", "a b"] {
            assert!(AttemptName::new(name).is_err(), "{name:?}");
        }
        assert!(AttemptName::new("x".repeat(65)).is_err());
        assert!(AttemptName::new("x".repeat(64)).is_ok());
        assert_eq!(AttemptName::new("t3-r0.a1_b").unwrap().as_str(), "t3-r0.a1_b");
    }

    #[test]
    fn a_limit_out_of_range_is_named() {
        let refused = |limits: Limits| limits.check().unwrap_err().to_string();
        assert_eq!(Limits::default().check(), Ok(()));
        assert!(
            refused(Limits { memory_bytes: 800 << 30, ..Limits::default() }).contains("memory_bytes is 858993459200")
        );
        assert!(refused(Limits { memory_bytes: 0, ..Limits::default() }).contains("memory_bytes"));
        assert!(refused(Limits { wall_ms: 0, ..Limits::default() }).contains("wall_ms"));
        let long = Limits { wall_ms: u64::MAX, memory_bytes: 1, ..Limits::default() };
        assert_eq!(long.check(), Ok(()));
    }
}
