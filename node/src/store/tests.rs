//! Tests of the store as a whole; those of one file alone stand in it.

mod blobs;
mod crash;
mod full;
mod index;
mod journal;
mod recovery;
mod spool;
mod verify;

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::*;

/// No ballast, small segments.
pub(super) fn config() -> StoreConfig {
    StoreConfig { ballast_bytes: 0, segment_bytes: 64 << 10, ..StoreConfig::default() }
}

/// What a replay told: sequence, kind, payload.
type Seen = Vec<(u64, u16, Vec<u8>)>;

/// Opens a home. Records of kind 2 hold "key value" and derive a document of kind 2.
pub(super) fn try_open(home: &Path, config: StoreConfig) -> Result<(Store, OpenReport, Seen), StoreError> {
    let mut seen = Vec::new();
    let (store, report) = Store::open(home, config, &mut |record| {
        seen.push((record.position.sequence, record.kind, record.payload.to_vec()));
        if let Some(document) = derive(record.kind, record.payload) {
            record.document(document);
        }
        Ok(())
    })?;
    Ok((store, report, seen))
}

pub(super) fn open(home: &Path) -> (Store, OpenReport, Seen) {
    try_open(home, config()).unwrap()
}

fn derive(kind: u16, payload: &[u8]) -> Option<Document> {
    let text = std::str::from_utf8(payload).ok()?;
    let (key, value) = text.split_once(' ')?;
    (kind == 2).then(|| Document::put(2, key, value))
}

/// A record of kind 2 with its document, signing its key once.
pub(super) fn indexed(key: &str, value: &str) -> Entry {
    let payload = format!("{key} {value}").into_bytes();
    let digest = *blake3::hash(value.as_bytes()).as_bytes();
    let mut entry = Entry::new(2, payload.clone()).once(1, key, digest);
    entry.documents.extend(derive(2, &payload));
    entry
}

pub(super) fn segment(home: &Path, number: u32) -> PathBuf {
    scan::segment_path(&home.join("journal"), number)
}

pub(super) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Closes a store; only then can its home be opened again at once.
pub(super) fn shut(store: Store) {
    run(store.close());
}

/// Runs async code of a test.
pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(work)
}

mod home {
    use super::*;

    #[test]
    fn a_new_home_is_made_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("a/b");
        let (store, report, seen) = open(&home);
        assert!(report.created && report.warnings.is_empty() && seen.is_empty());
        assert_eq!((report.index, report.head), (IndexState::Current, None));
        shut(store);
        let (_store, report, _) = open(&home);
        assert!(!report.created && report.warnings.is_empty());
    }

    #[test]
    fn a_second_store_is_refused_with_the_pid() {
        let home = tempfile::tempdir().unwrap();
        let (store, ..) = open(home.path());
        let error = try_open(home.path(), config()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&format!("in use by process {}", std::process::id())), "{text}");
        // A handle that outlives the store keeps the home.
        let index = store.index().clone();
        shut(store);
        assert!(matches!(try_open(home.path(), config()), Err(StoreError::Lock(LockError::Locked { .. }))));
        drop(index);
        open(home.path());
    }

    #[test]
    fn a_newer_or_foreign_format_is_refused() {
        let home = tempfile::tempdir().unwrap();
        shut(open(home.path()).0);
        let path = home.path().join("store");
        fs::write(&path, "souk store 2\n").unwrap();
        let error = try_open(home.path(), config()).unwrap_err();
        assert!(error.to_string().contains("store version 2, but this souk reads 1"), "{error}");
        for foreign in ["", "souk store 1", "souk store x\n", "\u{0}\u{0}", "something else"] {
            fs::write(&path, foreign).unwrap();
            assert!(matches!(try_open(home.path(), config()), Err(StoreError::Foreign { .. })), "{foreign:?}");
        }
        fs::remove_file(&path).unwrap();
        assert_eq!(open(home.path()).1.warnings, [Warning::FormatRestored]);
    }

    #[test]
    fn no_empty_journal_replaces_a_missing_one() {
        let home = tempfile::tempdir().unwrap();
        let (store, ..) = open(home.path());
        run(store.journal().append(indexed("a", "1"))).unwrap();
        shut(store);
        fs::remove_dir_all(home.path().join("journal")).unwrap();
        assert!(matches!(try_open(home.path(), config()), Err(StoreError::MissingJournal { .. })));
        fs::remove_file(home.path().join("store")).unwrap();
        assert!(matches!(try_open(home.path(), config()), Err(StoreError::MissingJournal { .. })));
        assert!(!home.path().join("journal").exists());
    }

    #[test]
    fn a_file_where_the_home_should_be_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x").unwrap();
        let error = try_open(&path, config()).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }

    #[test]
    fn a_record_that_the_node_refuses_stops_the_start() {
        let home = tempfile::tempdir().unwrap();
        let (store, ..) = open(home.path());
        run(store.journal().append_all(vec![Entry::new(1, vec![1]), Entry::new(9, vec![2])])).unwrap();
        shut(store);
        let error = Store::open(home.path(), config(), &mut |record| {
            if record.kind == 9 { Err("no such event".into()) } else { Ok(()) }
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("record 2 (segment 1") && error.contains("no such event"), "{error}");
    }

    #[test]
    fn the_ballast_is_kept_at_its_size() {
        let home = tempfile::tempdir().unwrap();
        let with = |ballast_bytes| StoreConfig { ballast_bytes, ..config() };
        let size = || fs::metadata(home.path().join("ballast")).map(|meta| meta.len()).ok();
        shut(try_open(home.path(), with(1 << 20)).unwrap().0);
        assert_eq!(size(), Some(1 << 20));
        shut(try_open(home.path(), with(2 << 20)).unwrap().0);
        assert_eq!(size(), Some(2 << 20));
        shut(try_open(home.path(), with(0)).unwrap().0);
        assert_eq!(size(), None);
        let (_, report, _) = try_open(home.path(), with(1 << 60)).unwrap();
        assert_eq!(report.warnings, [Warning::NoBallast { bytes: 1 << 60 }]);
    }
}
