//! The index against a journal that it must agree with.

use super::*;

/// A home with some hundred records, closed.
fn filled() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(async {
        for number in 0..300_u32 {
            let entry = indexed(&format!("key-{number:04}"), &format!("value {number} {}", "x".repeat(200)));
            drop(store.journal().try_append(vec![entry]).unwrap());
        }
        store.journal().append(Entry::new(1, vec![])).await.unwrap();
    });
    shut(store);
    home
}

/// Asserts that the index says what 300 records imply.
fn complete(store: &Store) {
    assert_eq!(store.index().rows(), 600);
    let rows = run(store.index().scan(2, b"key-", None, MAX_SCAN)).unwrap();
    assert_eq!(rows.len(), 300);
    for (number, (key, value)) in rows.iter().enumerate() {
        assert_eq!(*key, format!("key-{number:04}").into_bytes());
        let expected = format!("value {number} {}", "x".repeat(200));
        assert_eq!(*value, expected.as_bytes());
        let digest = store.index().once_blocking(1, key).unwrap();
        assert_eq!(digest, Some(*blake3::hash(expected.as_bytes()).as_bytes()));
    }
}

#[test]
fn what_was_appended_is_there_when_the_append_resolves() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(async {
        let position = store.journal().append(indexed("a", "1")).await.unwrap();
        assert_eq!(store.index().get(2, b"a").await.unwrap(), Some(b"1".to_vec()));
        assert_eq!(store.index().head().unwrap().position, position);
        let removed = Entry::new(1, vec![]).document(Document::remove(2, b"a".as_slice()));
        store.journal().append(removed).await.unwrap();
        assert_eq!(store.index().get(2, b"a").await.unwrap(), None);
        assert_eq!(store.index().rows(), 1, "the signed key stays");
    });
}

#[test]
fn scans_page_through_a_prefix_in_order() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let index = store.index();
    run(async {
        let keys = ["b", "a/1", "a/2", "a", "a0", "a/2/x", "a/"];
        let documents = keys.iter().map(|key| Document::put(9, *key, *key)).collect();
        index.put(documents).await.unwrap();
        index.put(vec![Document::put(8, "a/1", "other"), Document::put(10, "a/1", "other")]).await.unwrap();
        let mut found = Vec::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let page = index.scan(9, b"a/", after.as_deref(), 2).await.unwrap();
            let Some((last, _)) = page.last() else { break };
            assert!(page.len() <= 2);
            after = Some(last.clone());
            found.extend(page.into_iter().map(|(key, value)| {
                assert_eq!(key, value);
                String::from_utf8(key).unwrap()
            }));
        }
        assert_eq!(found, ["a/", "a/1", "a/2", "a/2/x"]);
        assert_eq!(index.scan(9, b"", None, MAX_SCAN).await.unwrap().len(), keys.len());
        let large = Document::put(9, "x", vec![0; MAX_DOCUMENT + 1]);
        assert!(matches!(index.put(vec![large]).await, Err(IndexError::TooLarge { .. })));
        assert_eq!(index.head(), None, "documents alone do not move the head");
    });
}

#[test]
fn a_missing_or_replaced_index_is_rebuilt() {
    let home = filled();
    let db = home.path().join("db");
    fs::remove_dir_all(&db).unwrap();
    let (store, report, _) = open(home.path());
    assert_eq!(report.index, IndexState::Rebuilt { reason: "it was missing".into(), set_aside: None });
    complete(&store);
    shut(store);
    // The index of another home.
    let other = tempfile::tempdir().unwrap();
    let (store, ..) = open(other.path());
    run(store.journal().append(indexed("foreign", "1"))).unwrap();
    shut(store);
    fs::remove_dir_all(&db).unwrap();
    copy_dir(&other.path().join("db"), &db);
    let (store, report, _) = open(home.path());
    let aside = home.path().join("db.bad-1");
    let IndexState::Rebuilt { reason, set_aside: Some(found) } = report.index else { panic!("{:?}", report.index) };
    assert_eq!((reason.as_str(), found), ("it does not belong to this journal (record 1 differs)", aside));
    complete(&store);
    assert_eq!(run(store.index().get(2, b"foreign")).unwrap(), None);
}

#[test]
fn an_index_that_lags_behind_is_caught_up() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(store.journal().append(indexed("a", "1"))).unwrap();
    shut(store);
    let old = tempfile::tempdir().unwrap();
    copy_dir(&home.path().join("db"), old.path());
    let (store, ..) = open(home.path());
    for key in ["b", "c"] {
        run(store.journal().append(indexed(key, "2"))).unwrap();
    }
    shut(store);
    fs::remove_dir_all(home.path().join("db")).unwrap();
    copy_dir(old.path(), &home.path().join("db"));
    let (store, report, seen) = open(home.path());
    assert_eq!((report.index, seen.len()), (IndexState::CaughtUp { records: 2 }, 3));
    assert_eq!(run(store.index().get(2, b"c")).unwrap(), Some(b"2".to_vec()));
    let contradiction = Entry::new(1, vec![]).once(1, "b", [0; 32]);
    assert!(matches!(run(store.journal().append(contradiction)), Err(JournalError::Contradiction { .. })));
    shut(store);
    assert_eq!(open(home.path()).1.index, IndexState::Current);
}

/// Numbers that look random, the same in every run.
struct Numbers(blake3::OutputReader);

impl Numbers {
    fn new(seed: &str) -> Self {
        Self(blake3::Hasher::new().update(seed.as_bytes()).finalize_xof())
    }

    fn below(&mut self, limit: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        (u64::from_le_bytes(bytes) % limit as u64) as usize
    }
}

/// Damages the index 20 times and expects everything to be there after each start.
fn survives(seed: &str, damage: impl Fn(&mut Numbers, &mut Vec<u8>)) {
    let pristine = filled();
    let mut numbers = Numbers::new(seed);
    let mut noticed = 0;
    for trial in 0..20 {
        let home = tempfile::tempdir().unwrap();
        copy_dir(pristine.path(), home.path());
        let file = home.path().join("db/db");
        let mut bytes = fs::read(&file).unwrap();
        damage(&mut numbers, &mut bytes);
        fs::write(&file, bytes).unwrap();
        // sled prefers its snapshot to the log; without one it has to read what was damaged.
        for entry in fs::read_dir(home.path().join("db")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("snap.") && trial % 2 == 0 {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let (store, report, seen) = open(home.path());
        assert_eq!(seen.len(), 301);
        complete(&store);
        noticed += usize::from(report.index != IndexState::Current);
        shut(store);
        let (store, report, _) = open(home.path());
        assert_eq!(report.index, IndexState::Current, "trial {trial}");
        complete(&store);
        shut(store);
    }
    assert!(noticed > 0, "no trial hit anything");
}

#[test]
fn flipped_bits_in_sleds_file_lose_nothing() {
    survives("flip", |numbers, bytes| {
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let at = numbers.below(used);
        bytes[at] ^= 1 << numbers.below(8);
    });
}

#[test]
fn zeroed_pages_in_sleds_file_lose_nothing() {
    survives("page", |numbers, bytes| {
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        let start = numbers.below(used) / 4096 * 4096;
        let end = (start + 4096).min(bytes.len());
        bytes[start..end].fill(0);
    });
}

#[test]
fn truncations_of_sleds_file_lose_nothing() {
    survives("cut", |numbers, bytes| {
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) + 1;
        bytes.truncate(numbers.below(used));
    });
}

#[test]
fn only_a_few_damaged_indexes_are_kept() {
    let home = filled();
    for _ in 0..5 {
        fs::write(home.path().join("db/db"), vec![0xff; 1 << 20]).unwrap();
        let (store, report, _) = open(home.path());
        assert!(matches!(report.index, IndexState::Rebuilt { set_aside: Some(_), .. }));
        complete(&store);
        shut(store);
    }
    let mut kept: Vec<String> = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("db.bad-"))
        .collect();
    kept.sort();
    assert_eq!(kept, ["db.bad-3", "db.bad-4", "db.bad-5"]);
}
