//! Torn tails, damage, and the difference.

use proptest::prelude::*;

use super::{
    super::{
        frame::{self, Link},
        scan::{ScanError, Scanned, scan},
    },
    *,
};

/// One record of a journal made by hand: payload, how many more belong to its group, the record up to which
/// the disk was synced before it.
type Plan = (Vec<u8>, u32, u64);

/// The bytes of a journal and where each of its records ends.
fn made(plan: &[Plan]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends, mut previous) = (Vec::new(), Vec::new(), [0; 32]);
    for (at, (payload, remaining, durable)) in plan.iter().enumerate() {
        let link = Link { sequence: at as u64 + 1, durable: *durable, remaining: *remaining, previous };
        previous = frame::encode(&mut bytes, 1, link, &[], payload);
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Scans a journal of one segment.
fn scanned(bytes: &[u8]) -> (Result<Scanned, JournalDamage>, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    fs::write(scan::segment_path(dir.path(), 1), bytes).unwrap();
    let mut seen = Vec::new();
    let result = scan(dir.path(), &mut |record| {
        seen.push(record.payload.to_vec());
        Ok::<(), ()>(())
    });
    let result = result.map_err(|error| match error {
        ScanError::Damage(damage) => damage,
        ScanError::Refused(..) => unreachable!(),
    });
    (result, seen)
}

/// Five records, each synced alone.
fn five() -> (Vec<Plan>, Vec<u8>, Vec<usize>) {
    let plan: Vec<Plan> = (0..5_u8).map(|at| (vec![at; 10 + usize::from(at)], 0, u64::from(at))).collect();
    let (bytes, ends) = made(&plan);
    (plan, bytes, ends)
}

#[test]
fn every_truncation_leaves_the_longest_whole_prefix() {
    let (plan, bytes, ends) = five();
    for cut in 0..=bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let (result, seen) = scanned(&bytes[..cut]);
        let result = result.unwrap();
        assert_eq!(seen.len(), whole, "cut at {cut}");
        assert!(seen.iter().zip(&plan).all(|(seen, (payload, ..))| seen == payload));
        let valid = whole.checked_sub(1).map_or(0, |last| ends[last]);
        let torn = result.torn.map(|torn| (torn.offset, torn.bytes));
        assert_eq!(torn, (valid < cut).then_some((valid as u64, (cut - valid) as u64)));
        assert_eq!(result.last_length, valid as u64);
    }
}

#[test]
fn every_flipped_bit_in_an_acknowledged_record_is_named() {
    let (_, bytes, ends) = five();
    for at in 0..ends[3] {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let record = ends.iter().filter(|end| **end <= at).count();
        let starts = record.checked_sub(1).map_or(0, |last| ends[last]);
        let (result, seen) = scanned(&bad);
        assert_eq!(seen.len(), record);
        match result.unwrap_err() {
            JournalDamage::BadFrame { segment, offset, sequence, .. } => {
                assert_eq!((offset, sequence), (starts as u64, record as u64 + 1), "byte {at}");
                assert!(segment.ends_with("00000001.seg"));
            }
            JournalDamage::NewerVersion { offset, .. } => assert_eq!(offset, starts as u64),
            damage => panic!("{damage:?}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_record_never_yields_other_bytes() {
    let (plan, bytes, ends) = five();
    for at in ends[3]..ends[4] {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let (result, seen) = scanned(&bad);
        assert_eq!(seen, plan.iter().take(4).map(|(payload, ..)| payload.clone()).collect::<Vec<_>>());
        assert!(result.is_err() || result.unwrap().torn.is_some());
    }
}

#[test]
fn pages_of_one_unfinished_write_may_be_missing_in_any_order() {
    // Records 3, 4 and 5 were one write; its first page never reached the disk, the others did.
    let plan = [(vec![1; 9], 0, 0), (vec![2; 9], 0, 1), (vec![3; 9], 0, 2), (vec![4; 9], 0, 2), (vec![5; 9], 0, 2)];
    let (mut bytes, ends) = made(&plan);
    bytes[ends[1]..ends[2]].fill(0);
    let (result, seen) = scanned(&bytes);
    assert_eq!(seen.len(), 2);
    assert_eq!(result.unwrap().torn.unwrap().bytes, (ends[4] - ends[1]) as u64);
    // Had a later write begun, the same hole would be a loss.
    let plan = [(vec![1; 9], 0, 0), (vec![2; 9], 0, 1), (vec![3; 9], 0, 2), (vec![4; 9], 0, 3)];
    let (mut bytes, ends) = made(&plan);
    bytes[ends[1]..ends[2]].fill(0);
    assert!(matches!(scanned(&bytes).0, Err(JournalDamage::BadFrame { sequence: 3, .. })));
}

#[test]
fn foreign_files_are_not_mistaken_for_a_torn_write() {
    for foreign in [&b"hello"[..], b"SQLite format 3\0", &[0xff; 300], b"\x7fELF"] {
        assert!(matches!(scanned(foreign).0, Err(JournalDamage::BadFrame { offset: 0, .. })), "{foreign:?}");
    }
    let (result, _) = scanned(&[0; 5000]);
    assert_eq!(result.unwrap().torn.unwrap().bytes, 5000, "zeros are what a lost write looks like");
}

#[test]
fn a_newer_version_is_refused_by_its_number() {
    let (_, mut bytes, ends) = five();
    bytes[ends[3] + 4] = 2;
    let damage = scanned(&bytes).0.unwrap_err();
    assert!(damage.to_string().contains("frame version 2, but this souk reads up to 1"), "{damage}");
}

#[test]
fn a_swapped_or_repeated_record_breaks_the_chain() {
    let (_, bytes, ends) = five();
    let record = |at: usize| &bytes[at.checked_sub(1).map_or(0, |last| ends[last])..ends[at]];
    for order in [[0, 2, 1], [0, 1, 1], [0, 1, 3], [1, 2, 3]] {
        let made: Vec<u8> = order.iter().flat_map(|at| record(*at).to_vec()).collect();
        assert!(matches!(scanned(&made).0, Err(JournalDamage::BadFrame { .. })), "{order:?}");
    }
}

/// Any journal: groups of records, each a write of its own.
fn groups() -> impl Strategy<Value = Vec<Vec<Vec<u8>>>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..80);
    proptest::collection::vec(proptest::collection::vec(payload, 1..4), 1..6)
}

fn plan(groups: &[Vec<Vec<u8>>]) -> Vec<Plan> {
    let (mut plan, mut durable) = (Vec::new(), 0);
    for group in groups {
        for (at, payload) in group.iter().enumerate() {
            plan.push((payload.clone(), (group.len() - at - 1) as u32, durable));
        }
        durable += group.len() as u64;
    }
    plan
}

proptest! {
    #[test]
    fn a_truncated_journal_keeps_its_whole_groups(groups in groups(), cut: prop::sample::Index) {
        let plan = plan(&groups);
        let (bytes, ends) = made(&plan);
        let cut = cut.index(bytes.len() + 1);
        let (mut whole, mut records) = (0, 0);
        for group in &groups {
            records += group.len();
            if ends[records - 1] <= cut {
                whole = records;
            }
        }
        let (result, seen) = scanned(&bytes[..cut]);
        let result = result.unwrap();
        prop_assert_eq!(seen, plan.iter().take(whole).map(|(payload, ..)| payload.clone()).collect::<Vec<_>>());
        let valid = whole.checked_sub(1).map_or(0, |last| ends[last]);
        prop_assert_eq!(result.last_length, valid as u64);
        prop_assert_eq!(result.torn.is_some(), cut > valid);
    }

    #[test]
    fn any_overwrite_yields_a_prefix_or_a_named_error(
        groups in groups(), at: prop::sample::Index, junk in proptest::collection::vec(any::<u8>(), 1..40)
    ) {
        let plan = plan(&groups);
        let (mut bytes, _) = made(&plan);
        let at = at.index(bytes.len());
        for (slot, junk) in bytes[at..].iter_mut().zip(junk) {
            *slot = junk;
        }
        let (result, seen) = scanned(&bytes);
        prop_assert!(seen.len() <= plan.len());
        prop_assert!(seen.iter().zip(&plan).all(|(seen, (payload, ..))| seen == payload));
        if result.as_ref().is_ok_and(|scanned| scanned.torn.is_none()) {
            prop_assert_eq!(seen.len(), plan.len());
        }
    }

    #[test]
    fn arbitrary_segments_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (result, seen) = scanned(&bytes);
        prop_assert!(seen.is_empty());
        prop_assert!(result.is_err() || bytes.iter().take(4).all(|byte| *byte == 0) || b"SKJF".starts_with(&bytes));
    }
}

#[test]
fn a_torn_write_is_cut_with_a_warning_and_the_journal_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    run(store.journal().append(indexed("a", "1"))).unwrap();
    shut(store);
    let path = segment(home.path(), 1);
    let whole = fs::read(&path).unwrap();
    // What a crash in the middle of the next write leaves: its first 40 bytes.
    let mut torn = whole.clone();
    torn.extend_from_slice(&whole[..40]);
    fs::write(&path, torn).unwrap();
    let (store, report, seen) = open(home.path());
    let offset = whole.len() as u64;
    let warning = Warning::TailCut(TornTail { segment: path.clone(), offset, bytes: 40 });
    assert_eq!(report.warnings, std::slice::from_ref(&warning));
    assert!(warning.to_string().starts_with("cut 40 bytes of an unfinished write"), "{warning}");
    assert_eq!(seen.len(), 1);
    run(store.journal().append(indexed("b", "2"))).unwrap();
    shut(store);
    let (_store, report, seen) = open(home.path());
    assert!(report.warnings.is_empty());
    assert_eq!(seen.len(), 2);
}

#[test]
fn a_journal_shorter_than_what_was_acknowledged_is_refused_unless_told() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    for key in ["a", "b", "c"] {
        run(store.journal().append(indexed(key, "1"))).unwrap();
    }
    shut(store);
    let path = segment(home.path(), 1);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let error = try_open(home.path(), config()).unwrap_err();
    assert!(matches!(error, StoreError::AcknowledgedLost { ends: 2, seen: 3, .. }), "{error:?}");
    assert_eq!(fs::read(&path).unwrap().len(), bytes.len() - 1, "a refusal changes nothing");
    let accept = StoreConfig { accept_lost_tail: true, ..config() };
    let (store, report, seen) = try_open(home.path(), accept).unwrap();
    assert_eq!(seen.len(), 2);
    assert!(report.warnings.contains(&Warning::LostTail { ends: 2, seen: 3 }));
    assert!(matches!(report.index, IndexState::Rebuilt { .. }));
    assert_eq!(run(store.index().get(2, b"c")).unwrap(), None);
    run(store.journal().append(indexed("d", "1"))).unwrap();
    shut(store);
    assert_eq!(open(home.path()).2.len(), 3);
}

#[test]
fn damage_in_the_middle_stops_the_start_and_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let (store, ..) = open(home.path());
    for key in ["a", "b", "c"] {
        run(store.journal().append(indexed(key, "1"))).unwrap();
    }
    shut(store);
    let path = segment(home.path(), 1);
    let mut bytes = fs::read(&path).unwrap();
    bytes[80] ^= 4;
    fs::write(&path, &bytes).unwrap();
    for index in [true, false] {
        if !index {
            fs::remove_dir_all(home.path().join("db")).unwrap();
        }
        let error = try_open(home.path(), config()).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StoreError::Damage(JournalDamage::BadFrame { offset: 0, sequence: 1, .. })), "{text}");
        assert!(text.contains("00000001.seg at byte 0 (record 1): the hash does not match"), "{text}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
}
