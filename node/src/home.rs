//! Where the files of a node are.
//!
//! ```text
//! config/souk.toml      the owner's settings           (init)
//! config/network.toml   the network it belongs to      (network new, network join)
//! data/key              the node's secret key, 0600    (init)
//! data/token            bearer token of the API, 0600  (first start)
//! data/api              address of the API             (while a node runs)
//! data/...              the store
//! ```
//!
//! With `--home DIR` both folders lie in DIR; without it they are `$XDG_CONFIG_HOME/souk` and `$XDG_DATA_HOME/souk`.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use data_encoding::BASE32_NOPAD_NOCASE;

/// Largest text file read from a home: a network file.
pub const MAX_TEXT: u64 = 256 * 1024;
/// Largest token or address file.
const MAX_LINE: u64 = 256;

/// A file of a home cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// There is no home folder to put things in.
    #[error("neither HOME nor XDG_{0}_HOME is set; name a folder with --home DIR")]
    NoHome(&'static str),
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer.
        #[source]
        source: io::Error,
    },
    /// Larger than such a file can be.
    #[error("{} has more than {max} bytes; is it the right file?", path.display())]
    Large {
        /// Which.
        path: PathBuf,
        /// Most that is read.
        max: u64,
    },
    /// Not text.
    #[error("{}: not UTF-8 at byte {at}; save it as UTF-8", path.display())]
    NotText {
        /// Which.
        path: PathBuf,
        /// Where.
        at: usize,
    },
    /// A folder or device where a file is expected.
    #[error("{} is no regular file", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// The content makes no sense.
    #[error("{}: {problem}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// What is wrong and what to do.
        problem: String,
    },
}

impl HomeError {
    /// Whether a file is simply not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

pub(crate) fn io_error<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> HomeError + 'a {
    move |source| HomeError::Io { action, path: path.to_owned(), source }
}

/// The two folders of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    config: PathBuf,
    data: PathBuf,
    /// The folder given with `--home`.
    folder: Option<PathBuf>,
}

impl Home {
    /// The home in `folder`, or the user's.
    ///
    /// # Errors
    /// [`HomeError::NoHome`] if no folder is given and the environment names none.
    pub fn new(folder: Option<&Path>) -> Result<Self, HomeError> {
        if let Some(folder) = folder {
            let folder = std::path::absolute(folder).map_err(io_error("find", folder))?;
            return Ok(Self { config: folder.join("config"), data: folder.join("data"), folder: Some(folder) });
        }
        let xdg = |name: &'static str, below_home: &str| {
            let variable = std::env::var_os(format!("XDG_{name}_HOME")).map(PathBuf::from);
            // A relative path there is to be ignored, says the specification.
            variable
                .filter(|path| path.is_absolute())
                .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below_home)))
                .filter(|path| path.is_absolute())
                .map(|path| path.join("souk"))
                .ok_or(HomeError::NoHome(name))
        };
        Ok(Self { config: xdg("CONFIG", ".config")?, data: xdg("DATA", ".local/share")?, folder: None })
    }

    /// What a user writes to name this home again: ` --home DIR`, or nothing.
    #[must_use]
    pub fn flag(&self) -> String {
        self.folder.as_ref().map_or_else(String::new, |folder| format!(" --home {}", folder.display()))
    }

    /// Folder of settings.
    #[must_use]
    pub fn config_dir(&self) -> &Path {
        &self.config
    }

    /// Folder of the key and the store.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// The owner's settings.
    #[must_use]
    pub fn config_file(&self) -> PathBuf {
        self.config.join("souk.toml")
    }

    /// The network file that `init`, `network new` and `network join` write.
    #[must_use]
    pub fn network_file(&self) -> PathBuf {
        self.config.join("network.toml")
    }

    /// The node's secret key.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.data.join("key")
    }

    /// Bearer token of the API.
    #[must_use]
    pub fn token_file(&self) -> PathBuf {
        self.data.join("token")
    }

    /// Address of the API of the running node.
    #[must_use]
    pub fn address_file(&self) -> PathBuf {
        self.data.join("api")
    }

    /// Makes both folders, closed to others.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn create(&self) -> Result<(), HomeError> {
        for folder in [&self.config, &self.data] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(io_error("make", folder))?;
        }
        Ok(())
    }

    /// The API's token; made on the first call.
    ///
    /// # Errors
    /// If it cannot be read or made.
    pub fn token(&self) -> Result<String, HomeError> {
        let path = self.token_file();
        match read_line(&path) {
            Err(error) if error.is_missing() => {}
            found => return found,
        }
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).map_err(|error| io_error("make", &path)(io::Error::other(error.to_string())))?;
        let token = BASE32_NOPAD_NOCASE.encode(&bytes).to_ascii_lowercase();
        write_new(&path, format!("{token}\n").as_bytes())?;
        // Another process may have been first.
        read_line(&path)
    }

    /// The token, if a node has run here.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn known_token(&self) -> Result<String, HomeError> {
        read_line(&self.token_file())
    }

    /// Says where the API of the running node is.
    ///
    /// # Errors
    /// [`HomeError::Io`].
    pub fn announce_api(&self, address: SocketAddr) -> Result<(), HomeError> {
        replace(&self.address_file(), format!("{address}\n").as_bytes())
    }

    /// Takes the address back when the node stops.
    pub fn withdraw_api(&self) {
        // Whoever finds it left behind gets no connection, which says the same.
        let _ = fs::remove_file(self.address_file());
    }

    /// Where the API of a node of this home is, if one runs or has crashed.
    ///
    /// # Errors
    /// If the file is there and cannot be read or understood.
    pub fn api_address(&self) -> Result<Option<SocketAddr>, HomeError> {
        let path = self.address_file();
        let line = match read_line(&path) {
            Err(error) if error.is_missing() => return Ok(None),
            line => line?,
        };
        let address = line.parse().map_err(|_| HomeError::Content {
            path,
            problem: format!("{line:?} is no address; remove the file if no node runs"),
        })?;
        Ok(Some(address))
    }
}

/// Reads a bounded regular file as text, without the mark that some editors put first.
///
/// # Errors
/// [`HomeError`].
pub fn read_text(path: &Path, max: u64) -> Result<String, HomeError> {
    let bytes = read_bytes(path, max)?;
    let text = String::from_utf8(bytes)
        .map_err(|error| HomeError::NotText { path: path.to_owned(), at: error.utf8_error().valid_up_to() })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Reads a bounded regular file.
///
/// # Errors
/// [`HomeError`].
pub fn read_bytes(path: &Path, max: u64) -> Result<Vec<u8>, HomeError> {
    // Before the open, which would wait for a writer of a FIFO.
    let meta = fs::metadata(path).map_err(io_error("read", path))?;
    if !meta.is_file() {
        return Err(HomeError::NotAFile { path: path.to_owned() });
    }
    let file = File::open(path).map_err(io_error("read", path))?;
    let mut bytes = Vec::new();
    file.take(max.saturating_add(1)).read_to_end(&mut bytes).map_err(io_error("read", path))?;
    if bytes.len() as u64 > max {
        return Err(HomeError::Large { path: path.to_owned(), max });
    }
    Ok(bytes)
}

fn read_line(path: &Path) -> Result<String, HomeError> {
    Ok(read_text(path, MAX_LINE)?.trim().to_owned())
}

/// Writes a private file that must not be there yet: whole and durable, or not at all. An existing file stays.
///
/// # Errors
/// [`HomeError::Io`].
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<bool, HomeError> {
    let temp = written(path, bytes)?;
    match temp.persist_noclobber(path) {
        Ok(_) => {}
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(io_error("write", path)(error.error)),
    }
    sync_parent(path)?;
    Ok(true)
}

/// Writes a private file in place of another: whole and durable, or not at all.
///
/// # Errors
/// [`HomeError::Io`].
pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), HomeError> {
    let temp = written(path, bytes)?;
    temp.persist(path).map_err(|error| io_error("write", path)(error.error))?;
    sync_parent(path)
}

fn written(path: &Path, bytes: &[u8]) -> Result<tempfile::NamedTempFile, HomeError> {
    let folder = path.parent().unwrap_or_else(|| Path::new("."));
    let write = || {
        let mut temp = tempfile::Builder::new()
            .prefix(".souk-")
            .permissions(fs::Permissions::from_mode(0o600))
            .tempfile_in(folder)?;
        temp.write_all(bytes)?;
        temp.as_file().sync_all()?;
        Ok(temp)
    };
    write().map_err(io_error("write", path))
}

fn sync_parent(path: &Path) -> Result<(), HomeError> {
    let Some(folder) = path.parent() else { return Ok(()) };
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::new(Some(folder.path())).unwrap();
        home.create().unwrap();
        (folder, home)
    }

    #[test]
    fn a_named_home_holds_both_folders_and_is_closed_to_others() {
        let (folder, home) = home();
        assert_eq!(home.config_file(), folder.path().join("config/souk.toml"));
        assert_eq!(home.key_file(), folder.path().join("data/key"));
        assert_eq!(home.flag(), format!(" --home {}", folder.path().display()));
        assert_eq!(fs::metadata(home.data_dir()).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn the_token_is_made_once_and_private() {
        let (_folder, home) = home();
        assert!(home.known_token().unwrap_err().is_missing());
        let token = home.token().unwrap();
        assert_eq!(token.len(), 52);
        assert_eq!(home.token().unwrap(), token);
        assert_eq!(fs::metadata(home.token_file()).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn the_address_of_the_api_comes_and_goes() {
        let (_folder, home) = home();
        assert_eq!(home.api_address().unwrap(), None);
        let address = "127.0.0.1:4478".parse().unwrap();
        home.announce_api(address).unwrap();
        assert_eq!(home.api_address().unwrap(), Some(address));
        home.withdraw_api();
        assert_eq!(home.api_address().unwrap(), None);
        fs::write(home.address_file(), "here").unwrap();
        assert!(home.api_address().unwrap_err().to_string().contains("\"here\" is no address"));
    }

    #[test]
    fn an_existing_file_is_never_overwritten() {
        let (_folder, home) = home();
        assert!(write_new(&home.config_file(), b"mine").unwrap());
        assert!(!write_new(&home.config_file(), b"other").unwrap());
        assert_eq!(fs::read(home.config_file()).unwrap(), b"mine");
        assert_eq!(fs::read_dir(home.config_dir()).unwrap().count(), 1);
    }

    #[test]
    fn odd_files_are_named() {
        let (folder, home) = home();
        let path = home.config_file();
        assert!(read_text(&path, 10).unwrap_err().is_missing());
        fs::write(&path, "\u{feff}12345").unwrap();
        assert_eq!(read_text(&path, 10).unwrap(), "12345");
        fs::write(&path, "12345678901").unwrap();
        assert!(read_text(&path, 10).unwrap_err().to_string().contains("more than 10 bytes"));
        fs::write(&path, b"ab\xff").unwrap();
        assert!(read_text(&path, 10).unwrap_err().to_string().contains("not UTF-8 at byte 2"));
        assert!(read_text(folder.path(), 10).unwrap_err().to_string().contains("no regular file"));
    }
}
