//! Compiled modules on disk. A file is used only if its keyed BLAKE3 says that this node wrote it, so that
//! nobody who can write to the folder, short of knowing the node's secret, can make a runner load machine code.

use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use crate::{child::Facts, limits::MAX_ARTIFACT_BYTES};

/// Starts each file; the number changes with the layout.
const MAGIC: &[u8; 16] = b"souk module v2\n\0";
/// Files end in this.
const EXTENSION: &str = "souk-module";
/// The longest facts: 4,096 exports with names of 256 bytes and signatures as long.
const MAX_FACTS_BYTES: usize = 4 << 20;
/// What the whole folder may hold: some thousand ordinary modules. The least recently written go first.
const MAX_CACHE_BYTES: u64 = 2 << 30;

/// The folder and what its files are checked with.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    folder: PathBuf,
    key: [u8; 32],
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) facts: Facts,
    pub(crate) artifact: Vec<u8>,
}

/// What a compiled module is found by: its source, the engine it is for, the mode. Whether it is a module or a
/// component stands in the source's first bytes, so its hash tells one from the other.
pub(crate) fn cache_key(module: &[u8; 32], engine: &str, deterministic: bool) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("souk 2026-11 compiled module cache key");
    hasher.update(module);
    hasher.update(&[u8::from(deterministic)]);
    hasher.update(engine.as_bytes());
    *hasher.finalize().as_bytes()
}

impl Cache {
    pub(crate) fn new(folder: PathBuf, secret: &[u8; 32]) -> Self {
        Cache { folder, key: blake3::derive_key("souk 2026-11 compiled module cache MAC", secret) }
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &[u8; 32]) -> PathBuf {
        let name = data_encoding::HEXLOWER.encode(key);
        self.folder.join(name).with_extension(EXTENSION)
    }

    /// The entry, if there is a file of this node's for it. Any other file is as good as none, and is removed.
    pub(crate) fn load(&self, key: &[u8; 32]) -> Option<Entry> {
        let path = self.path(key);
        let bytes = read_bounded(&path)?;
        let entry = self.open(key, &bytes);
        if entry.is_none() {
            tracing::warn!(path = %path.display(), "cached module is damaged or not this node's; it is compiled again");
            // If it cannot be removed it will be replaced or refused again.
            let _ = std::fs::remove_file(&path);
        }
        entry
    }

    fn open(&self, key: &[u8; 32], bytes: &[u8]) -> Option<Entry> {
        let (body, mac) = bytes.split_last_chunk::<32>()?;
        // blake3's comparison takes the same time wherever the first difference is.
        if self.mac(key, body) != blake3::Hash::from_bytes(*mac) {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let (facts, artifact) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Entry { facts: serde_json::from_slice(facts).ok()?, artifact: artifact.to_vec() })
    }

    /// Keeps an entry. A cache that cannot be written is no reason to refuse work.
    pub(crate) fn store(&self, key: &[u8; 32], entry: &Entry) {
        if let Err(error) = self.write(key, entry) {
            tracing::warn!(folder = %self.folder.display(), %error, "compiled module is not cached");
        }
        self.evict();
    }

    fn write(&self, key: &[u8; 32], entry: &Entry) -> std::io::Result<()> {
        let facts = serde_json::to_vec(&entry.facts)?;
        if facts.len() > MAX_FACTS_BYTES {
            return Err(std::io::Error::other("too many exports to remember"));
        }
        let mut body = Vec::with_capacity(MAGIC.len() + 4 + facts.len() + entry.artifact.len() + 32);
        body.extend_from_slice(MAGIC);
        body.extend_from_slice(&(facts.len() as u32).to_le_bytes());
        body.extend_from_slice(&facts);
        body.extend_from_slice(&entry.artifact);
        let mac = self.mac(key, &body);
        body.extend_from_slice(mac.as_bytes());

        std::fs::create_dir_all(&self.folder)?;
        let path = self.path(key);
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        // No sync: a file cut short by a crash fails its check and is made again.
        file.write_all(&body).and_then(|()| std::fs::rename(&part, &path)).inspect_err(|_| {
            let _ = std::fs::remove_file(&part);
        })
    }

    fn mac(&self, key: &[u8; 32], body: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(key);
        hasher.update(body);
        hasher.finalize()
    }

    /// Removes the oldest files until the folder is within its limit.
    fn evict(&self) {
        let Ok(listing) = std::fs::read_dir(&self.folder) else {
            return;
        };
        let mut files: Vec<(SystemTime, u64, PathBuf)> = listing
            .filter_map(Result::ok)
            .filter(|file| file.path().extension().is_some_and(|end| end == EXTENSION))
            .filter_map(|file| {
                let meta = file.metadata().ok()?;
                Some((meta.modified().ok()?, meta.len(), file.path()))
            })
            .collect();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if total <= MAX_CACHE_BYTES {
                break;
            }
            if std::fs::remove_file(path).is_ok() {
                total -= size;
            }
        }
    }
}

fn read_bounded(path: &Path) -> Option<Vec<u8>> {
    let limit = MAX_ARTIFACT_BYTES + MAX_FACTS_BYTES as u64;
    let file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    if size > limit {
        return Some(Vec::new());
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(limit).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        let mut facts = Facts { memory_bytes: 65_536, ..Facts::default() };
        facts.functions.insert("_start".into(), "() -> ()".into());
        Entry { facts, artifact: b"machine code".to_vec() }
    }

    #[test]
    fn what_was_stored_comes_back_to_the_same_node_only() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("new"), &[1; 32]);
        let key = cache_key(&[7; 32], "engine", false);
        assert_eq!(cache.load(&key), None);
        cache.store(&key, &entry());
        assert_eq!(cache.load(&key), Some(entry()));
        let other = Cache::new(folder.path().join("new"), &[2; 32]);
        assert_eq!(other.load(&key), None);
    }

    #[test]
    fn a_file_with_any_byte_changed_is_refused_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), &[1; 32]);
        let key = cache_key(&[7; 32], "engine", false);
        cache.store(&key, &entry());
        let path = cache.path(&key);
        let whole = std::fs::read(&path).unwrap();
        for position in 0..whole.len() {
            let mut changed = whole.clone();
            changed[position] ^= 1;
            std::fs::write(&path, changed).unwrap();
            assert_eq!(cache.load(&key), None, "byte {position}");
            assert!(!path.exists());
        }
        for length in [0, 10, 31, 32, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(cache.load(&key), None, "length {length}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(cache.load(&key), Some(entry()));
    }

    #[test]
    fn a_file_under_another_name_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), &[1; 32]);
        let keys = [
            cache_key(&[7; 32], "engine", false),
            cache_key(&[7; 32], "engine", true),
            cache_key(&[8; 32], "engine", false),
            cache_key(&[7; 32], "engine 2", false),
        ];
        cache.store(&keys[0], &entry());
        for other in &keys[1..] {
            std::fs::copy(cache.path(&keys[0]), cache.path(other)).unwrap();
            assert_eq!(cache.load(other), None);
        }
    }
}
