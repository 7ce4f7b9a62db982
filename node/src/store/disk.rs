//! The few file system moves that durability rests on.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::FallocateFlags;

/// An operation on a file that failed, with what was tried on which path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}: {source}", path.display())]
pub struct DiskError {
    /// What was tried, as in "cannot `create` /home/..".
    pub action: &'static str,
    /// The file or folder.
    pub path: PathBuf,
    /// What the operating system answered.
    #[source]
    pub source: io::Error,
}

impl DiskError {
    /// Whether the disk, the quota or the file size limit is exhausted.
    #[must_use]
    pub fn is_full(&self) -> bool {
        is_full(&self.source)
    }
}

/// Names the action and the path of an I/O error.
pub(crate) fn at(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> DiskError {
    let path = path.into();
    move |source| DiskError { action, path, source }
}

/// Whether an error means that there is no room: disk, quota, or the limit on a file's size.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

/// Makes the names inside a folder durable (new, renamed and removed files).
pub(crate) fn sync_dir(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|dir| dir.sync_all()).map_err(at("sync the folder", path))
}

/// Creates a folder and its missing parents, readable by the owner alone.
pub(crate) fn create_dir(path: &Path) -> Result<(), DiskError> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(at("create the folder", path))
}

/// Options of a new or existing file that only the owner may read.
pub(crate) fn private() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Writes a small file so that a crash leaves the old text or the new one, never a part.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), DiskError> {
    let temporary = path.with_extension("new");
    let mut file =
        private().write(true).create(true).truncate(true).open(&temporary).map_err(at("create", &temporary))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(at("write", &temporary))?;
    fs::rename(&temporary, path).map_err(at("rename into place", path))?;
    match path.parent() {
        Some(parent) => sync_dir(parent),
        None => Ok(()),
    }
}

/// Removes a file; that it is not there is fine.
pub(crate) fn remove_if_there(path: &Path) -> Result<bool, DiskError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(at("remove", path)(error)),
    }
}

/// Bytes that the file system of `path` would still give to this user.
pub(crate) fn free_bytes(path: &Path) -> Result<u64, DiskError> {
    let stats = rustix::fs::statvfs(path).map_err(io::Error::from).map_err(at("ask the free space of", path))?;
    Ok(stats.f_bavail.saturating_mul(stats.f_frsize))
}

/// Space held back in a file, given up when the disk is full, so that the journal can still write
/// what must be written and the node can still be opened.
#[derive(Debug)]
pub(crate) struct Ballast {
    path: PathBuf,
    bytes: u64,
    given_up: AtomicBool,
}

impl Ballast {
    pub(crate) fn new(path: PathBuf, bytes: u64) -> Self {
        Self { path, bytes, given_up: AtomicBool::new(false) }
    }

    /// Allocates the ballast unless it is there. `false`: the disk has no room for it.
    pub(crate) fn fill(&self) -> Result<bool, DiskError> {
        if self.bytes == 0 {
            remove_if_there(&self.path)?;
            return Ok(true);
        }
        if fs::metadata(&self.path).is_ok_and(|meta| meta.len() == self.bytes) {
            return Ok(true);
        }
        // Never take the last bytes of a disk only to give them back a moment later.
        let parent = self.path.parent().unwrap_or(Path::new("."));
        if free_bytes(parent)? < self.bytes.saturating_mul(2) {
            return Ok(false);
        }
        let file =
            private().write(true).create(true).truncate(true).open(&self.path).map_err(at("create", &self.path))?;
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.bytes) {
            Ok(()) => Ok(true),
            Err(error) => {
                remove_if_there(&self.path)?;
                let error = io::Error::from(error);
                // A file system without preallocation gets no ballast: zeros could be compressed away.
                if is_full(&error) || error.kind() == io::ErrorKind::Unsupported {
                    Ok(false)
                } else {
                    Err(at("allocate", &self.path)(error))
                }
            }
        }
    }

    /// Gives the space back. `true` if there was any.
    pub(crate) fn release(&self) -> bool {
        let released = remove_if_there(&self.path).unwrap_or(false);
        self.given_up.fetch_or(released, Ordering::Relaxed);
        released
    }

    /// Whether the space was given back.
    pub(crate) fn given_up(&self) -> bool {
        self.given_up.load(Ordering::Relaxed)
    }
}
