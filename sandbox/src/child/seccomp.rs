//! The system calls a child is left with. The first filter still lets the module's code be loaded, the second
//! takes away making anything executable; a call in neither kills the process.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use super::confine::{StepError, step};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What the runner does in its life: read and write, memory, clocks, files below its folders.
const ALLOWED: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_lseek,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mremap,
    libc::SYS_futex,
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_getdents64,
    libc::SYS_mkdirat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_readlinkat,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_utimensat,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_fadvise64,
    libc::SYS_fcntl,
    libc::SYS_epoll_pwait,
    // The first instantiation makes a module's memory image, later than its code.
    libc::SYS_memfd_create,
];

/// The same, by the names only x86 has.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[i64] = &[libc::SYS_epoll_wait, libc::SYS_poll];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[i64] = &[libc::SYS_ppoll];

/// What an honest guest may ask WASI for and does not get: an error for it instead of a death.
const REFUSED: &[i64] = &[
    libc::SYS_linkat,
    libc::SYS_symlinkat,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_flock,
    libc::SYS_ioctl,
    libc::SYS_clone,
    libc::SYS_clone3,
];

fn arch() -> Result<TargetArch, StepError> {
    step("seccomp", TargetArch::try_from(std::env::consts::ARCH))
}

/// The filters as programs, made before anybody waits for them.
#[derive(Debug)]
pub(crate) struct Filters {
    refuse: BpfProgram,
    allow: BpfProgram,
    no_code: BpfProgram,
}

impl Filters {
    pub(crate) fn new() -> Result<Self, StepError> {
        let refused: Rules = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
        let mut allowed: Rules =
            ALLOWED.iter().chain(ALLOWED_HERE).chain(REFUSED).map(|call| (*call, Vec::new())).collect();
        for call in [libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_seccomp, libc::SYS_prctl] {
            allowed.insert(call, Vec::new());
        }
        // A signal to itself ends an abort(); one to anybody else kills the sender.
        let own = condition(0, SeccompCmpOp::Eq, u64::from(std::process::id()))?;
        allowed.insert(libc::SYS_tgkill, vec![rule(own)?]);

        let mut killed: Rules = BTreeMap::new();
        let executable = libc::PROT_EXEC as u64;
        let exec = condition(2, SeccompCmpOp::MaskedEq(executable), executable)?;
        killed.insert(libc::SYS_mmap, vec![rule(exec.clone())?]);
        killed.insert(libc::SYS_mprotect, vec![rule(exec)?]);
        killed.insert(libc::SYS_prctl, Vec::new());
        killed.insert(libc::SYS_seccomp, Vec::new());

        let eperm = SeccompAction::Errno(libc::EPERM as u32);
        Ok(Filters {
            refuse: program(refused, SeccompAction::Allow, eperm)?,
            allow: program(allowed, SeccompAction::KillProcess, SeccompAction::Allow)?,
            no_code: program(killed, SeccompAction::Allow, SeccompAction::KillProcess)?,
        })
    }

    /// The first step: no new thread or process, no socket, no signal to others, nothing by name outside
    /// `openat`.
    pub(crate) fn first(&self) -> Result<(), StepError> {
        step("seccomp", apply_filter(&self.refuse))?;
        step("seccomp", apply_filter(&self.allow))
    }

    /// The second, on top of the first: nothing becomes executable any more, and no filter or process attribute
    /// changes.
    pub(crate) fn second(&self) -> Result<(), StepError> {
        step("seccomp", apply_filter(&self.no_code))
    }
}

fn condition(argument: u8, op: SeccompCmpOp, value: u64) -> Result<SeccompCondition, StepError> {
    step("seccomp", SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value))
}

fn rule(condition: SeccompCondition) -> Result<SeccompRule, StepError> {
    step("seccomp", SeccompRule::new(vec![condition]))
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Result<BpfProgram, StepError> {
    let filter = step("seccomp", SeccompFilter::new(rules, otherwise, matched, arch()?))?;
    step("seccomp", filter.try_into())
}
