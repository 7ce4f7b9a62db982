//! What this machine offers to confine a stranger with, found out by trying.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    error::SandboxError,
    limits::Folders,
    process::{Death, Process},
    wire::{Confine, Kind, Role},
};

/// The confinement of a runner on this machine, after a child has put itself into it and tried to get out.
///
/// Everything but the user namespace is required: without it [`self_test`] fails, and so does every runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// The landlock version in force, 1 to 6. Only the lease's folders can be reached.
    pub landlock_abi: u8,
    /// Only the listed system calls are answered; none makes a socket, a process or new machine code.
    pub seccomp: bool,
    /// Memory, address space, file size, open files and core dumps are bounded by the kernel.
    pub rlimits: bool,
    /// No capability is left, even as root.
    pub capabilities_dropped: bool,
    /// A runner is killed by the kernel when the node dies.
    pub dies_with_node: bool,
    /// Whether runners have user, mount, network, IPC and UTS namespaces of their own, with nothing but the
    /// lease's folder as file system.
    pub user_namespace: bool,
    /// Why they have none.
    pub user_namespace_reason: Option<String>,
}

/// Starts a child, confines it as a runner, and has it try to read and write outside.
///
/// `program` with `args` must end in [`runner_main`](crate::runner_main); `scratch` is an existing folder the
/// node can write to, in which the test makes one of its own and removes it.
///
/// # Errors
/// [`SandboxError::Confinement`] names the step that this machine does not offer.
pub async fn self_test(program: &Path, args: &[String], scratch: &Path) -> Result<Confinement, SandboxError> {
    test(program, args, scratch, true).await
}

/// The same, with or without trying for namespaces.
pub(crate) async fn test(
    program: &Path,
    args: &[String],
    scratch: &Path,
    namespaces: bool,
) -> Result<Confinement, SandboxError> {
    let folders = folders(scratch)?;
    let reason = if namespaces {
        match probe(program, args, &folders, true).await {
            Ok(confinement) => return Ok(confinement),
            Err(error) => error.to_string(),
        }
    } else {
        "switched off".to_owned()
    };
    let mut confinement = probe(program, args, &folders, false).await?;
    confinement.user_namespace_reason = Some(reason);
    Ok(confinement)
}

async fn probe(
    program: &Path,
    args: &[String],
    folders: &Folders,
    namespaces: bool,
) -> Result<Confinement, SandboxError> {
    const DOING: &str = "testing the confinement";
    let (mut process, _) = Process::start(program, args, Role::Probe, namespaces, folders.root()).await?;
    let order = Confine {
        memory_bytes: 1 << 20,
        file_bytes: 1 << 20,
        deterministic: false,
        component: false,
        seed: [0; 32],
        module_bytes: 0,
    };
    process.send(Kind::Confine, &order, DOING).await?;
    let confinement = process.expect(Kind::Probed, DOING).await?;
    // Its last act is to ask for a socket.
    match process.death().await {
        Death::Signal(libc::SIGSYS) => Ok(confinement),
        death => Err(SandboxError::Confinement {
            step: "seccomp".to_owned(),
            reason: format!("a child that asked for a socket was not killed for it: {death}"),
        }),
    }
}

/// Folders for one test, removed after it.
fn folders(scratch: &Path) -> Result<Folders, SandboxError> {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    Folders::create(scratch.join(format!("self-test-{}-{number}", std::process::id())))
}
