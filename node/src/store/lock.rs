//! One node a home: a lock file that names the process which holds it.
//!
//! The lock is the kernel's (`flock`), so it ends with its process however that dies: a file left behind by
//! a crash is no obstacle. The text inside only tells people whom to look for. The file itself stays,
//! because removing it would let two processes lock two different files of the same name.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::FlockOperation;

use super::disk::{DiskError, at, private};

/// Longest lock file that is read: two decimal numbers fit many times.
const MAX_LOCK_TEXT: u64 = 128;

/// A process that the last holder had just forked shares its lock until it calls exec, so that a restart
/// right after a crash may meet it for a moment.
const TRIES: u32 = 10;
/// Between two tries: with them 180 ms in all.
const PAUSE: Duration = Duration::from_millis(20);

/// Why a home could not be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process uses this home.
    #[error(
        "the home {} is in use by process {} since {}; stop that node or choose another home with --home",
        home.display(),
        pid.map_or_else(|| "(unknown)".to_owned(), |pid| pid.to_string()),
        since.map_or_else(|| "(unknown)".to_owned(), age)
    )]
    Locked {
        /// The home folder.
        home: PathBuf,
        /// The holder's process id, if it could be read.
        pid: Option<u32>,
        /// When the holder took the lock, if it could be read.
        since: Option<SystemTime>,
    },
    /// The file system has no locks (some network and FUSE mounts), so two nodes could not be told apart.
    #[error("the file system of {} cannot lock files ({source}); put the home on a local disk", home.display())]
    Unsupported {
        /// The home folder.
        home: PathBuf,
        /// What the operating system answered.
        #[source]
        source: io::Error,
    },
    /// The lock file could not be made.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

fn age(since: SystemTime) -> String {
    match SystemTime::now().duration_since(since) {
        Ok(elapsed) => format!("{} s ago", elapsed.as_secs()),
        Err(_) => "a moment in the future (the clock was moved)".to_owned(),
    }
}

/// Holds a home until dropped.
#[derive(Debug)]
pub struct HomeLock {
    file: File,
    path: PathBuf,
}

impl HomeLock {
    /// Takes the lock of a home folder, which must exist.
    ///
    /// # Errors
    /// [`LockError::Locked`] if another process (or this one) holds it, after a fifth of a second.
    pub fn acquire(home: &Path) -> Result<Self, LockError> {
        let path = home.join("lock");
        let file = private()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(at("open the lock file", &path))?;
        try_lock(&file, home)?;
        let mut lock = Self { file, path };
        lock.write_holder()?;
        Ok(lock)
    }

    /// Refuses if a node uses this home, without creating or changing anything (for offline verification on
    /// a read-only copy). `None`: there is no lock file, so no node ever ran here.
    ///
    /// # Errors
    /// As [`HomeLock::acquire`].
    pub fn acquire_readonly(home: &Path) -> Result<Option<Self>, LockError> {
        let path = home.join("lock");
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at("open the lock file", &path)(error).into()),
        };
        try_lock(&file, home)?;
        Ok(Some(Self { file, path }))
    }

    fn write_holder(&mut self) -> Result<(), LockError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let text = format!("{} {}\n", std::process::id(), since.as_secs());
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .and_then(|()| self.file.write_all(text.as_bytes()))
            .map_err(at("write the lock file", &self.path))?;
        Ok(())
    }
}

impl Drop for HomeLock {
    fn drop(&mut self) {
        // Closing would do, were it not for a child between fork and exec that shares the file.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

fn try_lock(file: &File, home: &Path) -> Result<(), LockError> {
    let mut tries = 1;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if tries < TRIES => {
                tries = tries.saturating_add(1);
                std::thread::sleep(PAUSE);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let (pid, since) = read_holder(file);
                return Err(LockError::Locked { home: home.to_owned(), pid, since });
            }
            Err(error) => {
                let home = home.to_owned();
                return Err(LockError::Unsupported { home, source: error.into() });
            }
        }
    }
}

fn read_holder(mut file: &File) -> (Option<u32>, Option<SystemTime>) {
    let mut text = String::new();
    if file.rewind().is_err() || file.take(MAX_LOCK_TEXT).read_to_string(&mut text).is_err() {
        return (None, None);
    }
    let mut words = text.split_whitespace();
    let pid = words.next().and_then(|word| word.parse().ok());
    let since = words
        .next()
        .and_then(|word| word.parse().ok())
        .and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
    (pid, since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_names_the_pid_and_when() {
        let home = tempfile::tempdir().unwrap();
        let first = HomeLock::acquire(home.path()).unwrap();
        let error = HomeLock::acquire(home.path()).unwrap_err();
        let text = error.to_string();
        let LockError::Locked { pid, since, .. } = error else { panic!("{error:?}") };
        assert_eq!(pid, Some(std::process::id()));
        assert!(since.unwrap().elapsed().unwrap() < Duration::from_secs(60));
        assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
        drop(first);
        HomeLock::acquire(home.path()).unwrap();
    }

    #[test]
    fn a_stale_file_of_a_crashed_process_is_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        for stale in ["4194303 1\n", "", "not a lock", "99999999999999999999 -3"] {
            std::fs::write(home.path().join("lock"), stale).unwrap();
            let lock = HomeLock::acquire(home.path()).unwrap();
            let text = std::fs::read_to_string(home.path().join("lock")).unwrap();
            assert!(text.starts_with(&format!("{} ", std::process::id())), "{text}");
            drop(lock);
        }
    }

    #[test]
    fn verification_is_refused_while_a_node_runs_and_leaves_no_file() {
        let home = tempfile::tempdir().unwrap();
        assert!(HomeLock::acquire_readonly(home.path()).unwrap().is_none());
        assert!(!home.path().join("lock").exists());
        let held = HomeLock::acquire(home.path()).unwrap();
        assert!(matches!(HomeLock::acquire_readonly(home.path()), Err(LockError::Locked { .. })));
        drop(held);
        assert!(HomeLock::acquire_readonly(home.path()).unwrap().is_some());
    }
}
