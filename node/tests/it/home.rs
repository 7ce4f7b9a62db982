//! A home in a temporary folder, and the program in it.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicU64, Ordering},
};

/// A home that is gone when dropped.
pub(crate) struct Home {
    folder: tempfile::TempDir,
}

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Run {
    /// The one JSON value on stdout; nothing else may be there.
    pub(crate) fn json(&self) -> serde_json::Value {
        assert!(!self.stdout.contains('\u{1b}'), "{:?}", self.stdout);
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {:?} {:?}", self.stdout, self.stderr))
    }

    /// The one error object on stderr; nothing else may be there.
    pub(crate) fn error(&self) -> serde_json::Value {
        let body: serde_json::Value = serde_json::from_str(self.stderr.trim_end())
            .unwrap_or_else(|error| panic!("{error}: {:?} {:?}", self.stdout, self.stderr));
        assert_eq!(body["error"]["exit"].as_i64().map(|exit| exit as i32), self.code, "{body}");
        body["error"].clone()
    }
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A home after `souk init`.
    pub(crate) fn made() -> Self {
        let home = Self::new();
        assert_eq!(home.run(&["init", "--profile", "lan"]).code, Some(0));
        home
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    pub(crate) fn write(&self, below: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(below);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn read(&self, below: &str) -> String {
        fs::read_to_string(self.path(below)).unwrap()
    }

    /// The program with this home, in its folder, without anything of the environment that changes what it does.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = plain(self.folder.path());
        command.arg("--home").arg(self.folder.path()).args(args);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        run(self.command(args))
    }
}

/// A port that is given to nobody else: a node binds it only later, when many others have looked for theirs. It counts up
/// from a place of this process's own, below the ports that outgoing connections get.
pub(crate) fn free_port() -> u16 {
    const PORTS: (u64, u64) = (10_000, 20_000);
    static GIVEN: AtomicU64 = AtomicU64::new(0);
    loop {
        let place = u64::from(std::process::id()) * 7_919 + GIVEN.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(PORTS.0 + place % PORTS.1).unwrap();
        let address = (Ipv4Addr::LOCALHOST, port);
        if TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok() {
            return port;
        }
    }
}

/// The program without a home.
pub(crate) fn plain(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_souk"));
    command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(folder).stdin(Stdio::null());
    command
}

pub(crate) fn run(mut command: Command) -> Run {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}
