//! Verifying a home that no node uses.

use super::*;

fn filled() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(async {
        for key in ["a", "b", "c"] {
            store.journal().append(indexed(key, "1")).await.unwrap();
        }
        drop(store.blobs().put_bytes("content", Durability::Durable).await.unwrap());
    });
    shut(store);
    home
}

/// Every file of a home with its bytes.
fn snapshot(home: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![home.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push((path.clone(), fs::read(&path).unwrap()));
            }
        }
    }
    files.sort();
    files
}

const ALL: VerifyOptions = VerifyOptions { blobs: true };

#[test]
fn a_sound_home_is_reported_and_not_touched() {
    let home = filled();
    let before = snapshot(home.path());
    let report = verify(home.path(), ALL).unwrap();
    assert!(report.is_ok());
    assert_eq!((report.records, report.segments, report.once_keys), (3, 1, 3));
    assert_eq!(report.bytes, fs::metadata(segment(home.path(), 1)).unwrap().len());
    assert_eq!(report.index, IndexVerdict::Current { rows: 6 });
    let blobs = BlobsVerdict { checked: 1, bytes: 7, bad_count: 0, bad: Vec::new() };
    assert_eq!(report.blobs, Some(blobs));
    assert_eq!(snapshot(home.path()), before);
}

#[test]
fn damage_is_named_and_not_touched() {
    let home = filled();
    let path = segment(home.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[70] ^= 1;
    fs::write(&path, bytes).unwrap();
    let blob = home.path().join("blobs");
    let hex = blake3::hash(b"content").to_hex();
    let blob = blob.join(&hex[..2]).join(hex.as_str());
    fs::write(&blob, "contend").unwrap();
    let before = snapshot(home.path());
    let report = verify(home.path(), ALL).unwrap();
    assert!(!report.is_ok());
    assert!(matches!(report.damage, Some(JournalDamage::BadFrame { offset: 0, sequence: 1, .. })));
    assert_eq!(report.index, IndexVerdict::Unknown);
    assert_eq!(report.blobs.unwrap().bad, [blob]);
    assert_eq!(snapshot(home.path()), before);
}

#[test]
fn a_torn_tail_is_harmless_and_a_lost_one_is_not() {
    let home = filled();
    let path = segment(home.path(), 1);
    let bytes = fs::read(&path).unwrap();
    let mut torn = bytes.clone();
    torn.extend_from_slice(b"SKJF");
    fs::write(&path, torn).unwrap();
    let report = verify(home.path(), ALL).unwrap();
    assert!(report.is_ok());
    assert_eq!(report.torn.unwrap().bytes, 4);
    fs::write(&path, &bytes[..bytes.len() - 5]).unwrap();
    let report = verify(home.path(), ALL).unwrap();
    assert!(!report.is_ok());
    assert_eq!((report.records, report.index), (2, IndexVerdict::Ahead { at: 3 }));
}

#[test]
fn the_index_is_judged() {
    let home = filled();
    let db = home.path().join("db");
    let keep = tempfile::tempdir().unwrap();
    copy_dir(&db, keep.path());
    fs::remove_dir_all(&db).unwrap();
    assert_eq!(verify(home.path(), ALL).unwrap().index, IndexVerdict::Missing);
    copy_dir(keep.path(), &db);
    let (store, ..) = open(home.path());
    run(store.journal().append(indexed("d", "1"))).unwrap();
    shut(store);
    fs::remove_dir_all(&db).unwrap();
    copy_dir(keep.path(), &db);
    assert_eq!(verify(home.path(), ALL).unwrap().index, IndexVerdict::Behind { at: 3 });
    fs::write(db.join("db"), vec![0xff; 1 << 20]).unwrap();
    let report = verify(home.path(), ALL).unwrap();
    assert!(matches!(report.index, IndexVerdict::Damaged { .. }) && report.is_ok(), "{report:?}");
}

#[test]
fn a_journal_that_contradicts_itself_is_found() {
    let home = filled();
    let path = segment(home.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    // No writer of ours does this, so it is made by hand.
    let previous = *bytes.last_chunk::<32>().unwrap();
    let link = frame::Link { sequence: 4, durable: 3, remaining: 0, previous };
    let once = OnceKey { kind: 1, key: b"a".to_vec(), digest: [0; 32] };
    frame::encode(&mut bytes, 2, link, std::slice::from_ref(&once), b"a 2");
    fs::write(&path, bytes).unwrap();
    let report = verify(home.path(), ALL).unwrap();
    assert!(!report.is_ok());
    assert_eq!(report.contradictions.len(), 1);
    assert_eq!((report.contradictions[0].0.sequence, &report.contradictions[0].1), (4, &once));
    // The node starts, says so, and stays with the first.
    let (store, report, _) = open(home.path());
    assert_eq!(report.warnings, [Warning::Contradiction(once)]);
    let first = *blake3::hash(b"1").as_bytes();
    assert_eq!(run(store.index().once(1, b"a")).unwrap(), Some(first));
}

#[test]
fn a_home_in_use_or_none_at_all_is_an_error() {
    let home = filled();
    let (store, ..) = open(home.path());
    let error = verify(home.path(), ALL).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    shut(store);
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(verify(empty.path(), ALL), Err(StoreError::Foreign { .. })));
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
    fs::remove_dir_all(home.path().join("journal")).unwrap();
    assert!(matches!(verify(home.path(), ALL), Err(StoreError::MissingJournal { .. })));
}
