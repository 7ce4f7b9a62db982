//! Appending, grouping, refusing.

use std::sync::atomic::Ordering;

use super::*;

#[test]
fn records_come_back_in_order_and_can_be_read_by_position() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let (first, second) = run(async {
        let first = store.journal().append(Entry::new(7, b"one".to_vec())).await.unwrap();
        let rest = vec![Entry::new(8, Vec::new()), Entry::new(u16::MAX, vec![0; 1000])];
        (first, store.journal().append_all(rest).await.unwrap())
    });
    assert_eq!(first, Position { sequence: 1, segment: 1, offset: 0 });
    assert_eq!(second.iter().map(|position| position.sequence).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(Position::from_bytes(&second[1].to_bytes()), second[1]);
    let stored = run(store.journal().read(second[1])).unwrap();
    assert_eq!(stored, Stored { kind: u16::MAX, payload: vec![0; 1000] });
    let wrong = Position { sequence: 2, ..first };
    assert!(matches!(run(store.journal().read(wrong)), Err(JournalError::Unreadable { .. })));
    shut(store);
    let (_store, report, seen) = open(home.path());
    let expected = vec![(1, 7, b"one".to_vec()), (2, 8, Vec::new()), (3, u16::MAX, vec![0; 1000])];
    assert_eq!(seen, expected);
    assert_eq!((report.records, report.head.unwrap().position), (3, second[1]));
}

#[test]
fn a_busy_disk_groups_up_to_64_records_and_an_idle_one_syncs_at_once() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let journal = store.journal().clone();
    run(async {
        journal.append(Entry::new(1, vec![0])).await.unwrap();
        assert_eq!(journal.hooks.syncs.load(Ordering::SeqCst), 1);
        let hooks = std::sync::Arc::clone(&journal.hooks);
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let holder = std::thread::spawn(move || {
            let _gate = hooks.gate.lock().unwrap();
            ready.send(()).unwrap();
            held.recv().unwrap();
        });
        is_ready.recv().unwrap();
        let mut pending = vec![journal.try_append(vec![Entry::new(1, vec![1])]).unwrap()];
        while journal.hooks.syncs.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        // The disk is busy with the second record; the next hundred gather.
        for number in 2..102_u8 {
            pending.push(journal.try_append(vec![Entry::new(1, vec![number])]).unwrap());
        }
        hold.send(()).unwrap();
        holder.join().unwrap();
        for (at, pending) in pending.into_iter().enumerate() {
            assert_eq!(pending.first().await.unwrap().sequence, at as u64 + 2);
        }
        assert_eq!(journal.hooks.syncs.load(Ordering::SeqCst), 4, "1 idle, 1, then 64 and 36");
    });
    drop(journal);
    shut(store);
    let (_store, _, seen) = open(home.path());
    let payloads: Vec<u8> = seen.iter().map(|(.., payload)| payload[0]).collect();
    assert_eq!(payloads, (0..102).collect::<Vec<u8>>());
}

#[test]
fn a_full_queue_is_named_and_nothing_of_it_is_lost() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let journal = store.journal().clone();
    let accepted = {
        let _gate = journal.hooks.gate.lock().unwrap();
        let mut accepted = Vec::new();
        loop {
            match journal.try_append(vec![Entry::new(3, vec![0; 8])]) {
                Ok(pending) => accepted.push(pending),
                Err(error) => {
                    assert!(matches!(error, JournalError::QueueFull), "{error}");
                    break;
                }
            }
            assert!(accepted.len() <= MAX_QUEUED + 65);
        }
        accepted
    };
    assert!(accepted.len() >= MAX_QUEUED);
    let count = accepted.len();
    run(async {
        for pending in accepted {
            pending.all().await.unwrap();
        }
    });
    drop(journal);
    shut(store);
    assert_eq!(open(home.path()).2.len(), count);
}

#[test]
fn a_queue_full_of_bytes_is_named() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let journal = store.journal();
    let _gate = journal.hooks.gate.lock().unwrap();
    let mut accepted = Vec::new();
    while let Ok(pending) = journal.try_append(vec![Entry::new(3, vec![0; MAX_PAYLOAD])]) {
        accepted.push(pending);
        assert!(accepted.len() < 30, "32 MiB wait at most");
    }
    assert!(accepted.len() >= 7);
}

#[test]
fn a_failed_sync_is_fatal_and_said_to_everybody() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let journal = store.journal().clone();
    run(async {
        journal.append(Entry::new(1, b"safe".to_vec())).await.unwrap();
        assert!(journal.failure().is_none());
        journal.hooks.fail_sync.store(true, Ordering::SeqCst);
        let error = journal.append(Entry::new(1, b"unknown".to_vec())).await.unwrap_err();
        assert!(matches!(&error, JournalError::Failed { reason } if reason.contains("syncing segment 1")), "{error}");
        // A disk that works again changes nothing.
        journal.hooks.fail_sync.store(false, Ordering::SeqCst);
        assert!(matches!(journal.append(Entry::new(1, vec![])).await, Err(JournalError::Failed { .. })));
        assert!(matches!(journal.try_append(vec![Entry::new(1, vec![])]), Err(JournalError::Failed { .. })));
        assert!(matches!(journal.ended().await, JournalError::Failed { .. }));
        assert!(journal.failure().is_some());
    });
    drop(journal);
    shut(store);
    let (_store, _, seen) = open(home.path());
    assert_eq!(seen[0].2, b"safe");
}

#[test]
fn a_closed_journal_says_so() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let journal = store.journal().clone();
    shut(store);
    assert!(matches!(run(journal.append(Entry::new(1, vec![]))), Err(JournalError::Closed)));
    assert!(matches!(run(journal.ended()), JournalError::Closed));
}

#[test]
fn limits_are_named_and_nothing_is_written() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let refused = |entries: Vec<Entry>| match run(store.journal().append_all(entries)).unwrap_err() {
        JournalError::TooLarge { what, length, limit } => {
            assert!(length > limit);
            what
        }
        error => panic!("{error:?}"),
    };
    let entry = |payload| Entry::new(1, vec![0; payload]);
    assert_eq!(refused(vec![entry(MAX_PAYLOAD + 1)]), "payload");
    assert_eq!(refused(vec![entry(0).once(1, vec![0; MAX_ONCE_KEY + 1], [0; 32])]), "sign-once key");
    let many = (0..=MAX_ONCE_KEYS).fold(entry(0), |entry, at| entry.once(1, vec![at as u8], [0; 32]));
    assert_eq!(refused(vec![many]), "number of sign-once keys");
    let document = |key, value| Document::put(1, vec![0; key], vec![0; value]);
    assert_eq!(refused(vec![entry(0).document(document(1, MAX_DOCUMENT + 1))]), "document");
    assert_eq!(refused(vec![entry(0).document(document(MAX_DOCUMENT_KEY + 1, 1))]), "document key");
    let many = (0..=MAX_DOCUMENTS).fold(entry(0), |entry, _| entry.document(document(1, 1)));
    assert_eq!(refused(vec![many]), "number of documents");
    assert_eq!(refused(vec![entry(0); MAX_GROUP + 1]), "number of records in a group");
    assert_eq!(refused(vec![entry(MAX_PAYLOAD), entry(MAX_PAYLOAD), entry(1)]), "group");
    // Exactly at the limits all is well.
    let full =
        (0..MAX_ONCE_KEYS).fold(entry(MAX_PAYLOAD), |entry, at| entry.once(1, vec![at as u8; MAX_ONCE_KEY], [9; 32]));
    run(store.journal().append_all(vec![full.document(document(MAX_DOCUMENT_KEY, MAX_DOCUMENT))])).unwrap();
    assert!(run(store.journal().append_all(Vec::new())).unwrap().is_empty());
    shut(store);
    assert_eq!(open(home.path()).2.len(), 1);
}

#[test]
fn a_contradiction_is_refused_before_and_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let signed = |digest: u8| Entry::new(5, vec![digest]).once(3, b"lease".as_slice(), [digest; 32]);
    let contradicts = |store: &Store| {
        let error = run(store.journal().append(signed(2))).unwrap_err();
        match &error {
            JournalError::Contradiction { kind: 3, key, recorded, offered } => {
                assert_eq!((key.as_slice(), *recorded, *offered), (&b"lease"[..], [1; 32], [2; 32]));
            }
            error => panic!("{error:?}"),
        }
        let text = error.to_string();
        assert!(text.contains("key 6c65617365 of kind 3 already stands for 0101"), "{text}");
    };
    let (store, ..) = open(home.path());
    run(store.journal().append(signed(1))).unwrap();
    contradicts(&store);
    // The same words again are no contradiction, nor is the key of another family.
    run(store.journal().append(signed(1))).unwrap();
    run(store.journal().append(Entry::new(5, vec![]).once(4, b"lease".as_slice(), [2; 32]))).unwrap();
    shut(store);
    let (store, _, seen) = open(home.path());
    assert_eq!(seen.len(), 3);
    contradicts(&store);
    assert_eq!(run(store.index().once(3, b"lease")).unwrap(), Some([1; 32]));
    shut(store);
    // Neither is it forgotten with the index.
    fs::remove_dir_all(home.path().join("db")).unwrap();
    let (store, report, _) = open(home.path());
    assert_eq!(report.index, IndexState::Rebuilt { reason: "it was missing".into(), set_aside: None });
    contradicts(&store);
}

#[test]
fn a_contradiction_refuses_its_whole_group_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    let signed = |key: &str, digest: u8| Entry::new(5, vec![digest]).once(3, key, [digest; 32]);
    let journal = store.journal();
    run(async {
        // Within one group.
        let group = vec![signed("a", 1), signed("b", 1), signed("a", 2)];
        assert!(matches!(journal.append_all(group).await, Err(JournalError::Contradiction { .. })));
        // A refused group leaves no trace in the table.
        journal.append(signed("a", 2)).await.unwrap();
        // Between groups that wait for the same sync.
        let (first, second, third) = tokio::join!(
            journal.append_all(vec![signed("c", 1), Entry::new(1, vec![])]),
            journal.append_all(vec![Entry::new(1, vec![]), signed("c", 2)]),
            journal.append(signed("c", 1)),
        );
        assert_eq!(first.unwrap().len(), 2);
        assert!(matches!(second, Err(JournalError::Contradiction { .. })));
        third.unwrap();
    });
    shut(store);
    assert_eq!(open(home.path()).2.len(), 4);
}

#[test]
fn nothing_is_signed_while_the_table_cannot_be_read() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(async {
        store.journal().append(indexed("a", "1")).await.unwrap();
        store.index().break_for_test();
        let error = store.journal().append(indexed("b", "1")).await.unwrap_err();
        assert!(matches!(error, JournalError::OnceUnavailable { .. }), "{error}");
        assert!(matches!(store.index().get(2, b"a").await, Err(IndexError::Damaged(_))));
        // Records that sign nothing are still safe, and not forgotten by the next start.
        store.journal().append(Entry::new(2, b"c 3".to_vec())).await.unwrap();
    });
    shut(store);
    let (store, report, _) = open(home.path());
    assert_eq!(report.index, IndexState::CaughtUp { records: 1 });
    assert_eq!(run(store.index().get(2, b"c")).unwrap(), Some(b"3".to_vec()));
    run(store.journal().append(indexed("b", "1"))).unwrap();
}

#[test]
fn segments_follow_each_other_without_a_gap() {
    let home = tempfile::tempdir().unwrap();
    let small = StoreConfig { segment_bytes: 2000, ..config() };
    let (store, ..) = try_open(home.path(), small.clone()).unwrap();
    let mut positions = Vec::new();
    run(async {
        for number in 0..40_u8 {
            let size = usize::from(number) * 40;
            positions.push(store.journal().append(Entry::new(1, vec![number; size])).await.unwrap());
        }
        // A group larger than a segment still stays together.
        let group = vec![Entry::new(2, vec![1; 1500]), Entry::new(2, vec![2; 1500])];
        positions.extend(store.journal().append_all(group).await.unwrap());
        for (number, position) in positions.iter().take(40).enumerate() {
            let stored = store.journal().read(*position).await.unwrap();
            assert_eq!(stored.payload, vec![number as u8; number * 40]);
        }
    });
    assert!(positions.last().unwrap().segment > 15);
    assert_eq!(positions[40].segment, positions[41].segment);
    shut(store);
    let (store, _, seen) = try_open(home.path(), small).unwrap();
    assert_eq!(seen.iter().map(|(sequence, ..)| *sequence).collect::<Vec<_>>(), (1..=42).collect::<Vec<_>>());
    shut(store);
    // A missing one is named, whichever it is.
    for missing in [1, 5] {
        let path = segment(home.path(), missing);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let error = try_open(home.path(), config()).unwrap_err();
        assert!(error.to_string().contains(&format!("segment {} is missing", path.display())), "{error}");
        fs::write(&path, bytes).unwrap();
    }
    open(home.path());
}
