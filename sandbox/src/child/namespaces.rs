//! Namespaces of its own, where the system allows them: no network, no other file system than the lease's folder.

use std::path::Path;

use rustix::{
    fs::{StatVfsMountFlags, statvfs},
    mount::{
        MountFlags, MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, mount_remount,
        unmount,
    },
    thread::UnshareFlags,
};

use super::{
    confine::{StepError, step},
    syscalls,
};

/// The uid and gid inside: nobody, whoever the node is outside.
const NOBODY: u32 = 65534;

/// Enters new namespaces as nobody. Must happen while /proc/self belongs to the caller, that is while the
/// process is dumpable.
pub(crate) fn enter(flags: UnshareFlags) -> Result<(), StepError> {
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    step("namespaces", syscalls::unshare(flags))?;
    for (file, text) in [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{NOBODY} {uid} 1")),
        ("gid_map", format!("{NOBODY} {gid} 1")),
    ] {
        step("namespaces", std::fs::write(format!("/proc/self/{file}"), text))?;
    }
    Ok(())
}

/// Makes the lease's folder the root of all this process can name: `in` and the rest read-only, `out` and `ckpt`
/// writable, nothing executable.
pub(crate) fn pivot(root: &Path) -> Result<(), StepError> {
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    step("mounts", mount_change("/", private))?;
    // Recursive: a folder may be a file system of its own, and what hides beneath it must stay hidden.
    step("mounts", mount_bind_recursive(root, root))?;
    for name in ["out", "ckpt"] {
        let folder = root.join(name);
        step("mounts", mount_bind(&folder, &folder))?;
        remount(&folder, MountFlags::empty())?;
    }
    remount(root, MountFlags::RDONLY)?;
    step("pivot_root", rustix::process::chdir(root))?;
    step("pivot_root", rustix::process::pivot_root(".", "."))?;
    step("pivot_root", unmount(".", UnmountFlags::DETACH))?;
    step("pivot_root", rustix::process::chdir("/"))
}

fn remount(folder: &Path, more: MountFlags) -> Result<(), StepError> {
    // What the outer namespace locked must be repeated, or the kernel refuses.
    let old = step("mounts", statvfs(folder))?.f_flag;
    let mut flags = MountFlags::BIND | MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | more;
    for (was, flag) in [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ] {
        flags.set(flag, flags.contains(flag) || old.contains(was));
    }
    step("mounts", mount_remount(folder, flags, c""))
}
