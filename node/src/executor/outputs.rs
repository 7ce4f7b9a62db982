//! Outputs of an attempt: from files in a folder to a manifest and blobs.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _},
    path::{Component, Path},
};

use souk_protocol::{Bytes, Entry, EntryKind, Hash, List, MAX_ENTRIES, MAX_MANIFEST, Manifest, Text, codec};

use crate::store::{Blobs, Durability, Pin};

/// Deepest folder that is looked into; what lies deeper is listed as skipped.
const MAX_DEPTH: usize = 64;

/// The outputs as they are kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) manifest: Hash,
    pub(super) manifest_len: u64,
    pub(super) bytes: Bytes,
    pub(super) files: u32,
    pub(super) hashes: Vec<Hash>,
    pub(super) pins: Vec<Pin>,
}

/// Walks `folder`, the guest's `/out`, and keeps every file by its hash. Links are never followed; whatever is no file,
/// folder or inner link is listed with the reason why it is not brought home.
///
/// Blocks on the disk; all is durable when it returns.
///
/// # Errors
/// For people: too many entries, or the disk's error.
pub(super) fn keep(folder: &Path, blobs: &Blobs) -> Result<Kept, String> {
    let mut walk = Walk { blobs, entries: Vec::new(), bytes: 0, files: 0, hashes: Vec::new(), pins: Vec::new() };
    if folder.is_dir() {
        walk.folder(folder, "out", 0)?;
    }
    let Walk { mut entries, bytes, files, mut hashes, mut pins, .. } = walk;
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    let entries = List::try_from(entries).map_err(|e| format!("{} outputs are over the limit of {}", e.len, e.max))?;
    let encoded = codec::encode(&Manifest { entries }, MAX_MANIFEST).map_err(|e| format!("manifest: {e}"))?;
    let pin = blobs.put_bytes_blocking(&encoded, Durability::Durable).map_err(|e| format!("manifest: {e}"))?;
    let manifest = Hash(*pin.hash().as_bytes());
    hashes.push(manifest);
    pins.push(pin);
    Ok(Kept { manifest, manifest_len: encoded.len() as u64, bytes: Bytes(bytes), files, hashes, pins })
}

struct Walk<'a> {
    blobs: &'a Blobs,
    entries: Vec<Entry>,
    bytes: u64,
    files: u32,
    hashes: Vec<Hash>,
    pins: Vec<Pin>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, path: &str, depth: usize) -> Result<(), String> {
        let failed = |error: io::Error| format!("output {path}: {error}");
        let mut names = Vec::new();
        for item in fs::read_dir(folder).map_err(failed)? {
            names.push(item.map_err(failed)?);
        }
        names.sort_by_key(fs::DirEntry::file_name);
        for item in names {
            let Some(name) = item.file_name().to_str().map(str::to_owned) else {
                self.skip(path, "a name in it is not UTF-8")?;
                continue;
            };
            let inner = format!("{path}/{name}");
            let kind = item.file_type().map_err(failed)?;
            if kind.is_dir() && depth < MAX_DEPTH {
                self.push(&inner, EntryKind::Folder)?;
                self.folder(&item.path(), &inner, depth.saturating_add(1))?;
            } else if kind.is_file() {
                self.file(&item.path(), &inner)?;
            } else if kind.is_symlink() {
                self.link(&item.path(), &inner)?;
            } else {
                let what = if kind.is_dir() { "too deep" } else { "neither file, folder nor link" };
                self.skip(&inner, what)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, file: &Path, path: &str) -> Result<(), String> {
        let failed = |error: String| format!("output {path}: {error}");
        // A guest's leftovers cannot race with this walk, for its runner is idle or dead; still no link is followed.
        let opened =
            File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(file).map_err(|e| failed(e.to_string()))?;
        let meta = opened.metadata().map_err(|e| failed(e.to_string()))?;
        let limit = meta.len();
        let pin = self
            .blobs
            .put_open_file_blocking(opened, file, limit, Durability::Durable)
            .map_err(|e| failed(e.to_string()))?;
        let hash = Hash(*pin.hash().as_bytes());
        self.bytes = self.bytes.saturating_add(limit);
        self.files = self.files.saturating_add(1);
        self.hashes.push(hash);
        self.pins.push(pin);
        let executable = meta.permissions().mode() & 0o100 != 0;
        self.push(path, EntryKind::File { hash, len: limit, executable })
    }

    fn link(&mut self, link: &Path, path: &str) -> Result<(), String> {
        let target = fs::read_link(link).map_err(|e| format!("output {path}: {e}"))?;
        match target.to_str().and_then(|text| Text::try_from(text).ok()) {
            Some(text) if stays_inside(path, &target) => self.push(path, EntryKind::Link { target: text }),
            Some(_) => self.skip(path, "a link out of the outputs"),
            None => self.skip(path, "a link whose target is no short UTF-8 text"),
        }
    }

    fn skip(&mut self, path: &str, reason: &str) -> Result<(), String> {
        self.push(path, EntryKind::Skipped { reason: Text::clipped(reason) })
    }

    fn push(&mut self, path: &str, kind: EntryKind) -> Result<(), String> {
        if self.entries.len() >= MAX_ENTRIES {
            return Err(format!("more than {MAX_ENTRIES} outputs"));
        }
        let path = Text::try_from(path).map_err(|e| format!("output path of {} bytes, at most {}", e.len, e.max))?;
        self.entries.push(Entry { path, kind });
        Ok(())
    }
}

/// Whether a relative link at `path` (`out/a/b`) points to somewhere below `out`.
fn stays_inside(path: &str, target: &Path) -> bool {
    let mut depth = path.split('/').count().saturating_sub(2);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth = depth.saturating_add(1),
            Component::CurDir => {}
            Component::ParentDir => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return false,
            },
            Component::RootDir | Component::Prefix(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn inner_links_are_kept_and_outer_ones_listed() {
        // A model folder as people leave it: a file, a link to it, a link out, a folder without write bit, a FIFO.
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("guest");
        fs::create_dir_all(out.join("ro")).unwrap();
        fs::write(out.join("model-000.bin"), b"weights").unwrap();
        fs::write(out.join("ro/f"), b"x").unwrap();
        symlink("model-000.bin", out.join("latest.bin")).unwrap();
        symlink("/etc/passwd", out.join("evil")).unwrap();
        symlink("../../x", out.join("ro/up")).unwrap();
        let blobs = Blobs::open(&home.path().join("blobs"), 1 << 20, None).unwrap();
        let kept = keep(&out, &blobs).unwrap();
        let bytes = blobs.read_blocking(&crate::data::stored(&kept.manifest), 1 << 20).unwrap();
        let manifest: Manifest = codec::decode(&bytes, MAX_MANIFEST).unwrap();
        assert!(manifest.is_canonical());
        let shown: Vec<_> = manifest
            .entries
            .iter()
            .map(|entry| match &entry.kind {
                EntryKind::File { len, .. } => format!("{} file {len}", entry.path),
                EntryKind::Folder => format!("{} folder", entry.path),
                EntryKind::Link { target } => format!("{} -> {target}", entry.path),
                EntryKind::Skipped { reason } => format!("{} skipped: {reason}", entry.path),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "out/evil skipped: a link out of the outputs",
                "out/latest.bin -> model-000.bin",
                "out/model-000.bin file 7",
                "out/ro folder",
                "out/ro/f file 1",
                "out/ro/up skipped: a link out of the outputs",
            ]
        );
        assert_eq!((kept.files, kept.bytes), (2, Bytes(8)));
    }
}
