//! The confinement, in the order that works: what needs the old world first, the filters last. Each step is an
//! error that names it; there is no way to go on without one.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::{
    process::{DumpableBehavior, Resource, Rlimit, Signal},
    thread::UnshareFlags,
};

use super::{capabilities, namespaces, seccomp::Filters, syscalls};
use crate::wire::{Role, Start};

/// What the runner needs beside the guest's memory and the module: itself, stacks, tables, buffers. It has 18 MB
/// warm; the rest is room for tables and host calls.
pub(crate) const HEADROOM_BYTES: u64 = 64 << 20;
/// Address space: the 4 GiB that wasmtime reserves for a memory and its guards, and as much again as a large
/// module and the runner take. Reservations cost nothing; what becomes writable is bound by RLIMIT_DATA.
const ADDRESS_SPACE_BYTES: u64 = 6 << 30;
/// Files a guest can have open at once, with the runner's own five.
const OPEN_FILES: u64 = 256;

/// A step of the confinement that failed.
#[derive(Debug, Clone, thiserror::Error)]
#[error("confinement step {step} failed: {reason}")]
pub(crate) struct StepError {
    pub(crate) step: &'static str,
    pub(crate) reason: String,
}

/// Names the step in whatever it fails with.
pub(crate) fn step<T, E: std::fmt::Display>(step: &'static str, result: Result<T, E>) -> Result<T, StepError> {
    result.map_err(|error| StepError { step, reason: error.to_string() })
}

/// Where the three folders are once the child is confined.
#[derive(Debug, Clone)]
pub(crate) struct View {
    root: PathBuf,
    /// The landlock version in force.
    pub(crate) landlock: u8,
}

impl View {
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

/// What a child does before it knows for whom it will work.
pub(crate) fn enter(start: &Start) -> Result<(), StepError> {
    step("no_new_privs", rustix::thread::set_no_new_privs(true))?;
    step("close_range", syscalls::close_foreign_files())?;
    die_with_parent(start.parent)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    // When the machine has no memory left, a guest goes before the node or anything of its owner's. A system
    // that does not let it say so is no less confined.
    let _ = std::fs::write("/proc/self/oom_score_adj", "900");
    if start.namespaces {
        let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
        // A compiler has no folders to bind; landlock without a single rule is all it needs.
        flags.set(UnshareFlags::NEWNS, start.role != Role::Compiler);
        namespaces::enter(flags)?;
        // Entering them may have cleared it.
        die_with_parent(start.parent)?;
    }
    step("dumpable", rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable))
}

fn die_with_parent(parent: i32) -> Result<(), StepError> {
    step("parent-death signal", rustix::process::set_parent_process_death_signal(Some(Signal::KILL)))?;
    // It is of no use if the parent died before it was set.
    let found = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if found == parent {
        Ok(())
    } else {
        step("parent-death signal", Err(format!("the parent is {found}, not the node {parent}")))
    }
}

/// What a confined process may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Bytes that may become writable.
    pub(crate) data_bytes: u64,
    /// The largest file.
    pub(crate) file_bytes: u64,
    /// Seconds of CPU, for a compiler.
    pub(crate) cpu_seconds: Option<u64>,
}

/// A runner's confinement to the folder made for it, long before it hears of a lease: changing mounts takes
/// milliseconds, for which no task should wait.
pub(crate) fn settle(start: &Start) -> Result<View, StepError> {
    let mut view = View { root: start.root.clone(), landlock: 0 };
    if start.namespaces {
        namespaces::pivot(&start.root)?;
        view.root = PathBuf::from("/");
    } else {
        step("chdir", rustix::process::chdir("/"))?;
    }
    capabilities::drop_all()?;
    die_with_parent(start.parent)?;
    fixed_limits()?;
    view.landlock = landlock(Some(&view))?;
    Ok(view)
}

/// The rest of it, when the lease is known: its limits, and the filter that still lets code be loaded.
pub(crate) fn bind(bounds: Bounds, filters: &Filters) -> Result<(), StepError> {
    limits(bounds)?;
    filters.first()
}

/// A compiler's confinement: no file, no machine code.
pub(crate) fn compiler(start: &Start, bounds: Bounds) -> Result<(), StepError> {
    let filters = Filters::new()?;
    step("chdir", rustix::process::chdir("/"))?;
    capabilities::drop_all()?;
    die_with_parent(start.parent)?;
    fixed_limits()?;
    limits(bounds)?;
    landlock(None)?;
    filters.first()?;
    filters.second()
}

/// The limits that are the same for every lease.
fn fixed_limits() -> Result<(), StepError> {
    for (resource, value) in [
        (Resource::As, ADDRESS_SPACE_BYTES),
        (Resource::Core, 0),
        (Resource::Nofile, OPEN_FILES),
        (Resource::Memlock, 0),
        (Resource::Msgqueue, 0),
        (Resource::Nproc, 0),
    ] {
        limit(resource, value)?;
    }
    Ok(())
}

fn limits(bounds: Bounds) -> Result<(), StepError> {
    limit(Resource::Data, bounds.data_bytes)?;
    limit(Resource::Fsize, bounds.file_bytes)?;
    bounds.cpu_seconds.map_or(Ok(()), |seconds| limit(Resource::Cpu, seconds))
}

fn limit(resource: Resource, value: u64) -> Result<(), StepError> {
    let limit = Rlimit { current: Some(value), maximum: Some(value) };
    step("rlimit", rustix::process::setrlimit(resource, limit))
}

/// Puts the highest landlock version this kernel has into force, in full.
///
/// Version 1 (Linux 5.13) suffices: what later ones add (truncation, TCP, signals) cannot be reached through the
/// system-call filter in the first place. Returns the version.
fn landlock(view: Option<&View>) -> Result<u8, StepError> {
    let mut unavailable = String::new();
    for (version, abi) in [(6, ABI::V6), (5, ABI::V5), (4, ABI::V4), (3, ABI::V3), (2, ABI::V2), (1, ABI::V1)] {
        let created = (|| {
            let mut ruleset = Ruleset::default()
                .set_compatibility(CompatLevel::HardRequirement)
                .handle_access(AccessFs::from_all(abi))?;
            if version >= 4 {
                ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
            }
            if version >= 6 {
                ruleset = ruleset.scope(Scope::from_all(abi))?;
            }
            ruleset.create()
        })();
        let mut created = match created {
            Ok(created) => created,
            Err(error) => {
                unavailable = error.to_string();
                continue;
            }
        };
        if let Some(view) = view {
            let writable = AccessFs::from_all(abi)
                & !(AccessFs::Execute
                    | AccessFs::MakeSym
                    | AccessFs::MakeSock
                    | AccessFs::MakeFifo
                    | AccessFs::MakeBlock
                    | AccessFs::MakeChar
                    | AccessFs::IoctlDev);
            for (name, access) in
                [("in", AccessFs::ReadFile | AccessFs::ReadDir), ("out", writable), ("ckpt", writable)]
            {
                let folder = step("landlock", PathFd::new(view.folder(name)))?;
                created = step("landlock", created.add_rule(PathBeneath::new(folder, access)))?;
            }
        }
        let status = step("landlock", created.restrict_self())?;
        return if status.ruleset == RulesetStatus::FullyEnforced && status.no_new_privs {
            Ok(version)
        } else {
            step("landlock", Err(format!("only {:?}", status.ruleset)))
        };
    }
    step(
        "landlock",
        Err(format!("{unavailable} (it needs Linux 5.13 with landlock among the active security modules)")),
    )
}
