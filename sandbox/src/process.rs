//! Child processes as the node holds them: started by a thread that never ends, killed by pidfd, reaped for sure.

use std::{
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, OnceLock,
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use bytes::BytesMut;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::unix::pipe,
    sync::oneshot,
    time::timeout,
};

use crate::{
    error::SandboxError,
    wire::{self, Fault, Frame, Kind, MAX_FRAME, Role, Start},
};

/// How long a child may take for a step of its set-up: 3 ms on a quiet machine, thousands of times that on one
/// that swaps. Beyond it the child is broken.
pub(crate) const SETUP_LIMIT: Duration = Duration::from_secs(20);

/// How a child ended, as the kernel tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    Code(i32),
    Signal(i32),
    /// The kernel did not tell.
    Unknown,
}

impl Death {
    fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Death::Code(code),
            (None, Some(signal)) => Death::Signal(signal),
            (None, None) => Death::Unknown,
        }
    }
}

impl std::fmt::Display for Death {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Death::Code(code) => write!(f, "it exited with code {code}"),
            Death::Signal(signal) if *signal == libc::SIGSYS => {
                write!(f, "it made a system call that its filter forbids (SIGSYS)")
            }
            Death::Signal(signal) if *signal == libc::SIGKILL => {
                write!(f, "it was killed from outside (SIGKILL), perhaps for want of memory")
            }
            Death::Signal(signal) => write!(f, "it died of signal {signal}"),
            Death::Unknown => write!(f, "it is gone"),
        }
    }
}

/// A child process with its two pipes. Dropping it kills and reaps it.
#[derive(Debug)]
pub(crate) struct Process {
    role: &'static str,
    pid: u32,
    handle: Arc<OwnedFd>,
    child: Option<Child>,
    to: pipe::Sender,
    from: pipe::Receiver,
    buffer: BytesMut,
}

/// What a child's messages can fail with, before it is known why it died.
#[derive(Debug)]
pub(crate) enum Silence {
    /// It closed its pipe: it is dead or dying.
    Ended,
    /// It said what it never says.
    Nonsense(String),
}

impl Process {
    /// Starts a child and has it say hello.
    pub(crate) async fn start(
        program: &Path,
        args: &[String],
        role: Role,
        namespaces: bool,
        root: &Path,
    ) -> Result<(Process, wire::Hello), SandboxError> {
        let failed = |reason: String| SandboxError::Spawn { program: program.to_owned(), reason };
        let (reply, answer) = oneshot::channel();
        spawner()
            .send(Spawn { program: program.to_owned(), args: args.to_owned(), reply })
            .map_err(|_| failed("the starting thread is gone".to_owned()))?;
        let child = answer
            .await
            .map_err(|_| failed("the starting thread is gone".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        let role_name = match role {
            Role::Compiler => "compiler",
            Role::Runner | Role::Probe => "runner",
        };
        let mut process = Process::adopt(child, role_name).map_err(|error| failed(error.to_string()))?;
        let parent = i32::try_from(std::process::id()).unwrap_or_default();
        let start = Start { role, parent, namespaces, root: root.to_owned() };
        process.send(Kind::Start, &start, "starting").await?;
        let hello = process.expect(Kind::Hello, "starting").await?;
        Ok((process, hello))
    }

    fn adopt(mut child: Child, role: &'static str) -> std::io::Result<Process> {
        let ends = child.stdin.take().zip(child.stdout.take());
        let handle = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(std::io::ErrorKind::InvalidData.into())
            .and_then(|pid| Ok(pidfd_open(pid, PidfdFlags::empty())?));
        let pipes = match (ends, handle) {
            (Some((to, from)), Ok(handle)) => pipe::Sender::from_owned_fd(OwnedFd::from(to))
                .and_then(|to| Ok((to, pipe::Receiver::from_owned_fd(OwnedFd::from(from))?, handle))),
            (_, Err(error)) => Err(error),
            (None, _) => Err(std::io::ErrorKind::BrokenPipe.into()),
        };
        let pid = child.id();
        match pipes {
            Ok((to, from, handle)) => Ok(Process {
                role,
                pid,
                handle: Arc::new(handle),
                child: Some(child),
                to,
                from,
                buffer: BytesMut::new(),
            }),
            Err(error) => {
                reap(child, None);
                Err(error)
            }
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// What kills the child from anywhere.
    pub(crate) fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.handle)
    }

    /// Sends a message; a child that is gone is told of by the next read.
    pub(crate) async fn send<T: Serialize>(
        &mut self,
        kind: Kind,
        message: &T,
        doing: &'static str,
    ) -> Result<(), SandboxError> {
        let bytes = wire::message(kind, message);
        match timeout(SETUP_LIMIT, self.to.write_all(&bytes)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.last_words(doing).await),
            Err(_) => Err(self.fault(doing, "it does not read its orders".to_owned())),
        }
    }

    /// Sends a module in chunks.
    pub(crate) async fn send_chunks(&mut self, bytes: &[u8], doing: &'static str) -> Result<(), SandboxError> {
        for chunk in bytes.chunks(MAX_FRAME) {
            let frame = wire::frame(Kind::Chunk, chunk);
            match timeout(SETUP_LIMIT, self.to.write_all(&frame)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Err(self.last_words(doing).await),
                Err(_) => {
                    return Err(self.fault(doing, "it does not read its module".to_owned()));
                }
            }
        }
        Ok(())
    }

    /// The next frame. Cancel safe: what was read stays in the buffer.
    pub(crate) async fn next(&mut self) -> Result<Frame, Silence> {
        loop {
            match Frame::take(&mut self.buffer) {
                Ok(Ok(frame)) => return Ok(frame),
                Ok(Err(lacking)) => self.buffer.reserve(lacking),
                Err(error) => return Err(Silence::Nonsense(error.to_string())),
            }
            match self.from.read_buf(&mut self.buffer).await {
                Ok(count) if count > 0 => {}
                _ => return Err(Silence::Ended),
            }
        }
    }

    /// The message of the next frame, which must be of this kind; a fault that the child reports instead is
    /// returned as what it is.
    pub(crate) async fn expect<T: DeserializeOwned>(
        &mut self,
        kind: Kind,
        doing: &'static str,
    ) -> Result<T, SandboxError> {
        let frame = match timeout(SETUP_LIMIT, self.next()).await {
            Ok(Ok(frame)) => frame,
            Ok(Err(Silence::Ended)) => {
                let death = self.die().await;
                return Err(self.fault(doing, death.to_string()));
            }
            Ok(Err(Silence::Nonsense(reason))) => return Err(self.fault(doing, reason)),
            Err(_) => {
                let reason = format!("no answer within {} s", SETUP_LIMIT.as_secs());
                return Err(self.fault(doing, reason));
            }
        };
        self.parse(&frame, kind, doing)
    }

    /// A frame's message, if it is of this kind.
    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        frame: &Frame,
        kind: Kind,
        doing: &'static str,
    ) -> Result<T, SandboxError> {
        if frame.kind == Kind::Fault {
            return Err(match frame.message() {
                Ok(Fault { step: Some(step), reason }) => SandboxError::Confinement { step, reason },
                Ok(Fault { step: None, reason }) => self.fault(doing, reason),
                Err(error) => self.fault(doing, error.to_string()),
            });
        }
        if frame.kind != kind {
            let reason = format!("it sent {:?} where {kind:?} is due", frame.kind);
            return Err(self.fault(doing, reason));
        }
        frame.message().map_err(|error| self.fault(doing, error.to_string()))
    }

    pub(crate) fn fault(&self, doing: &'static str, reason: String) -> SandboxError {
        SandboxError::Child { role: self.role, doing, reason }
    }

    /// Why a child no longer reads: its own words if it left any.
    async fn last_words(&mut self, doing: &'static str) -> SandboxError {
        match self.expect::<()>(Kind::Fault, doing).await {
            Err(error) => error,
            Ok(()) => self.fault(doing, "it does not read".to_owned()),
        }
    }

    /// Kills the child, if it still lives, and waits for its death.
    pub(crate) async fn die(&mut self) -> Death {
        let Some(child) = self.child.take() else {
            return Death::Unknown;
        };
        let (tell, told) = oneshot::channel();
        reap(child, Some(tell));
        told.await.unwrap_or(Death::Unknown)
    }

    /// Waits for the death of a child that has closed its pipe; it is killed if it lingers.
    pub(crate) async fn death(&mut self) -> Death {
        // A dying process closes its files some time before its parent can wait for it; killed meanwhile, it
        // would seem to have died of that.
        const LINGER_MS: u32 = 2_000;
        for _ in 0..LINGER_MS {
            let Some(child) = &mut self.child else {
                return Death::Unknown;
            };
            match child.try_wait() {
                Ok(None) => tokio::time::sleep(Duration::from_millis(1)).await,
                Ok(Some(status)) => {
                    self.child = None;
                    return Death::of(status);
                }
                Err(_) => break,
            }
        }
        self.die().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            reap(child, None);
        }
    }
}

/// Kills by pidfd: never another process that got the same pid.
pub(crate) fn kill(handle: &OwnedFd) {
    // It fails only if the child is gone, which is what is wanted.
    let _ = pidfd_send_signal(handle, Signal::KILL);
}

struct Spawn {
    program: PathBuf,
    args: Vec<String>,
    reply: oneshot::Sender<std::io::Result<Child>>,
}

/// The thread that starts children. A child's parent-death signal comes when the *thread* that started it ends,
/// so that must be one that ends with the process only.
fn spawner() -> &'static Sender<Spawn> {
    static SPAWNER: OnceLock<Sender<Spawn>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (send, receive) = channel::<Spawn>();
        // Without the thread the receiver is dropped, and each start fails with that as its reason.
        let _ = std::thread::Builder::new().name("souk-spawn".to_owned()).spawn(move || {
            for spawn in receive {
                let child = Command::new(&spawn.program)
                    .args(&spawn.args)
                    .env_clear()
                    .current_dir("/")
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::null())
                    // Ctrl-C in the node's terminal is the node's business.
                    .process_group(0)
                    .spawn();
                if let Err(Ok(child)) = spawn.reply.send(child) {
                    // Nobody waits for it any more.
                    reap(child, None);
                }
            }
        });
        send
    })
}

/// What is left of a runner.
enum Remains {
    Child(Child, Option<oneshot::Sender<Death>>),
    Folder(PathBuf),
}

/// Kills a child now; a thread of its own waits for it.
fn reap(mut child: Child, tell: Option<oneshot::Sender<Death>>) {
    // It fails only for a child that has been waited for, and none of those come here.
    let _ = child.kill();
    bury_later(Remains::Child(child, tell));
}

/// Removes a folder once every child that was dropped before is dead.
pub(crate) fn remove(folder: PathBuf) {
    bury_later(Remains::Folder(folder));
}

fn bury_later(remains: Remains) {
    static REAPER: OnceLock<Sender<Remains>> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| {
        let (send, receive) = channel::<Remains>();
        let _ = std::thread::Builder::new().name("souk-reap".to_owned()).spawn(move || {
            for remains in receive {
                bury(remains);
            }
        });
        send
    });
    if let Err(unsent) = reaper.send(remains) {
        bury(unsent.0);
    }
}

fn bury(remains: Remains) {
    match remains {
        Remains::Child(mut child, tell) => {
            let death = child.wait().map_or(Death::Unknown, Death::of);
            if let Some(tell) = tell {
                // Whoever asked may have gone.
                let _ = tell.send(death);
            }
        }
        Remains::Folder(folder) => {
            if let Err(error) = std::fs::remove_dir_all(&folder)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, folder = %folder.display(), "a runner's folder stays until the next start");
            }
        }
    }
}
