//! How much lies in an attempt's folders, looked at while it runs and when it has ended.

use std::path::{Path, PathBuf};

/// Entries that are looked at on the caller's thread: a few hundred cost less than handing them to another.
const INLINE_ENTRIES: u32 = 256;
/// Folders within folders; deeper than any honest output, and each level costs an open file.
const MAX_DEPTH: u32 = 64;

/// What was found, or at least this much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Usage {
    pub(crate) bytes: u64,
    pub(crate) files: u32,
}

/// Adds up `folders`, but stops once either limit is passed.
pub(crate) async fn measure(folders: &[PathBuf], max_bytes: u64, max_files: u32) -> Usage {
    let mut usage = Usage::default();
    let inline = Limit { bytes: max_bytes, files: max_files.min(INLINE_ENTRIES) };
    for folder in folders {
        add(folder, inline, 0, &mut usage);
    }
    if usage.files <= INLINE_ENTRIES || usage.files > max_files || usage.bytes > max_bytes {
        return usage;
    }
    let folders = folders.to_owned();
    let whole = Limit { bytes: max_bytes, files: max_files };
    let counted = tokio::task::spawn_blocking(move || {
        let mut usage = Usage::default();
        for folder in &folders {
            add(folder, whole, 0, &mut usage);
        }
        usage
    });
    // Counting does not panic; if the runtime is going down, what is known so far is the answer.
    counted.await.unwrap_or(usage)
}

#[derive(Debug, Clone, Copy)]
struct Limit {
    bytes: u64,
    files: u32,
}

fn add(folder: &Path, limit: Limit, depth: u32, usage: &mut Usage) {
    // A folder that is not there, or goes while it is read, has nothing in it.
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        if usage.files > limit.files || usage.bytes > limit.bytes {
            return;
        }
        usage.files = usage.files.saturating_add(1);
        // Of the entry itself: a link is never followed.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() {
            if depth == MAX_DEPTH {
                usage.files = u32::MAX;
                return;
            }
            add(&entry.path(), limit, depth + 1, usage);
        } else {
            // Its length, not its blocks: holes are full of zeros to whoever fetches it.
            usage.bytes = usage.bytes.saturating_add(meta.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_and_folders_are_counted_and_links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/x"), [0; 100]).unwrap();
        std::fs::write(root.join("y"), [0; 20]).unwrap();
        std::os::unix::fs::symlink("/", root.join("a/link")).unwrap();
        let usage = measure(&[root.clone(), root.join("not there")], 1 << 30, 1_000).await;
        assert_eq!(usage.files, 5);
        assert_eq!(usage.bytes, 121);
    }

    #[tokio::test]
    async fn counting_stops_at_the_limit_and_goes_on_beyond_the_inline_part() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..600 {
            std::fs::write(folder.path().join(name.to_string()), b"1234567890").unwrap();
        }
        let folders = [folder.path().to_owned()];
        let all = measure(&folders, 1 << 30, 10_000).await;
        assert_eq!(all, Usage { bytes: 6_000, files: 600 });
        assert_eq!(measure(&folders, 1 << 30, 500).await.files, 501);
        assert_eq!(measure(&folders, 1 << 30, 10).await.files, 11);
        let bytes = measure(&folders, 100, 10_000).await.bytes;
        assert!((101..=110).contains(&bytes), "{bytes}");
    }
}
