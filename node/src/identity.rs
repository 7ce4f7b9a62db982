//! The node's secret key on disk.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use data_encoding::BASE32_NOPAD_NOCASE;
use souk_protocol::{Key, NodeId, Signer};
use zeroize::Zeroizing;

use crate::home::{self, HomeError};

/// First word of a key file.
const FORMAT: &str = "souk-secret-1";
/// Largest key file.
const MAX_FILE: u64 = 256;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// Others may read it, so it may be known already.
    #[error(
        "{} may be read by other users (mode {mode:04o}); if nobody has: chmod 600 {}",
        path.display(),
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Not a key file. Its content is not shown.
    #[error("{} is no key file of this version of souk; restore it from a backup", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// No randomness.
    #[error("no randomness: {0}")]
    Random(String),
}

/// A node's key. Whoever has it is this node.
pub struct Identity {
    seed: Zeroizing<[u8; 32]>,
    id: NodeId,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Identity({})", self.id.short())
    }
}

impl Identity {
    /// The identity of a seed.
    #[must_use]
    pub fn from_seed(seed: [u8; 32]) -> Self {
        let id = Key::from_seed(&seed).id();
        Self { seed: Zeroizing::new(seed), id }
    }

    /// A new identity.
    ///
    /// # Errors
    /// [`IdentityError::Random`].
    pub fn random() -> Result<Self, IdentityError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| IdentityError::Random(error.to_string()))?;
        Ok(Self::from_seed(seed))
    }

    /// Reads a key file.
    ///
    /// # Errors
    /// [`IdentityError`]; a file that others may read is refused.
    pub fn load(path: &Path) -> Result<Self, IdentityError> {
        let text = Zeroizing::new(home::read_text(path, MAX_FILE)?);
        let mode = fs::metadata(path).map_err(home::io_error("read", path))?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(IdentityError::Open { path: path.to_owned(), mode });
        }
        let malformed = || IdentityError::Malformed { path: path.to_owned() };
        let secret = text.trim().strip_prefix(FORMAT).map(str::trim).ok_or_else(malformed)?;
        let bytes = Zeroizing::new(BASE32_NOPAD_NOCASE.decode(secret.as_bytes()).map_err(|_| malformed())?);
        let seed = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| malformed())?;
        Ok(Self::from_seed(seed))
    }

    /// Reads a key file, or makes one where there is none. Says whether it was made.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn load_or_create(path: &Path) -> Result<(Self, bool), IdentityError> {
        match Self::load(path) {
            Err(IdentityError::Home(error)) if error.is_missing() => {}
            loaded => return Ok((loaded?, false)),
        }
        let made = Self::random()?;
        let secret = Zeroizing::new(BASE32_NOPAD_NOCASE.encode(made.seed.as_slice()).to_ascii_lowercase());
        let text = Zeroizing::new(format!("{FORMAT} {}\n", secret.as_str()));
        let is_first = home::write_new(path, text.as_bytes())?;
        // Another process may have been first: what is on disk is the node's key.
        Ok((Self::load(path)?, is_first))
    }

    /// The node.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// The secret, for the parts that sign.
    #[must_use]
    pub fn seed(&self) -> [u8; 32] {
        *self.seed
    }

    /// The key that signs.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::from_seed(&self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let (made, is_new) = Identity::load_or_create(&path).unwrap();
        assert!(is_new);
        let (read, is_new) = Identity::load_or_create(&path).unwrap();
        assert!(!is_new);
        assert_eq!(read.id(), made.id());
        assert_eq!(read.seed(), made.seed());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        Identity::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o660] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = Identity::load(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")) && error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_damaged_key_is_refused_without_showing_it_or_replacing_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        fs::write(&path, "souk-secret-1 aaaa\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Identity::load_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("no key file") && !error.contains("aaaa"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"souk-secret-1 aaaa\n");
    }

    #[test]
    fn the_secret_never_shows_in_debug_output() {
        let identity = Identity::from_seed([7; 32]);
        assert_eq!(format!("{identity:?}"), format!("Identity({})", identity.id().short()));
    }
}
