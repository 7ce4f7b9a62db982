//! A full disk: refused by name, nothing acknowledged is lost, and it recovers.
#![allow(clippy::print_stdout, reason = "a child process tells its parent by its output")]

use std::{io::Write as _, process::Command};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{
    crash::{child, child_home},
    *,
};

/// Appends until the store refuses; the acknowledged count and the refusal.
async fn fill(store: &Store, size: usize) -> (usize, JournalError) {
    let mut count = 0;
    loop {
        match store.journal().append(Entry::new(4, vec![6; size])).await {
            Ok(_) => count += 1,
            Err(error) => return (count, error),
        }
        assert!(count < 10_000, "it never fills");
    }
}

/// In a child whose files may not grow beyond a limit.
#[test]
fn limited() {
    let Some(home) = child_home() else { return };
    let old = getrlimit(Resource::Fsize);
    let large = StoreConfig { segment_bytes: 64 << 20, ..config() };
    let (store, ..) = try_open(&home, large.clone()).unwrap();
    setrlimit(Resource::Fsize, Rlimit { current: Some(3_000_000), maximum: old.maximum }).unwrap();
    let (count, error) = run(fill(&store, 100_000));
    assert!(matches!(error, JournalError::StorageFull { .. }), "{error}");
    assert_eq!(count, 29);
    assert!(store.journal().failure().is_none(), "a full disk is not fatal");
    // The next record that fits is taken: the half-written one left nothing behind.
    run(store.journal().append(indexed("small", "1"))).unwrap();
    setrlimit(Resource::Fsize, old).unwrap();
    run(store.journal().append(indexed("large", "1"))).unwrap();
    shut(store);
    let (_store, report, seen) = try_open(&home, large).unwrap();
    assert!(report.warnings.is_empty());
    assert_eq!((report.index, seen.len()), (IndexState::Current, 31));
    println!("\npassed");
}

#[test]
fn a_write_that_does_not_fit_is_refused_and_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    // An ignored signal stays ignored across exec; by default SIGXFSZ would kill the child.
    let wrapper = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let output = child("full::limited", home.path(), &wrapper).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("passed"), "{text}");
}

/// In a child that has a small disk of its own.
#[test]
fn small_disk() {
    let Some(mount) = child_home() else { return };
    let home = mount.join("home");
    let kept = StoreConfig { ballast_bytes: 8 << 20, segment_bytes: 4 << 20, ..config() };
    let (store, report, _) = try_open(&home, kept.clone()).unwrap();
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    run(store.journal().append(indexed("first", "1"))).unwrap();
    // Somebody else fills the disk up to the ballast.
    let filler = mount.join("filler");
    let mut file = fs::File::create(&filler).unwrap();
    while disk::free_bytes(&mount).unwrap() > 6 << 20 {
        file.write_all(&[1; 64 << 10]).unwrap();
    }
    drop(file);
    assert!(!store.gave_up_ballast());
    let (count, error) = run(fill(&store, 50_000));
    assert!(matches!(error, JournalError::StorageFull { .. }), "{error}");
    assert!(store.gave_up_ballast() && !home.join("ballast").exists());
    assert!(count > 100, "{count}: the ballast's room was used");
    // Reading goes on, also signing's table.
    assert_eq!(run(store.index().get(2, b"first")).unwrap(), Some(b"1".to_vec()));
    // A node that is stopped now can be started on the full disk.
    shut(store);
    let (store, report, seen) = try_open(&home, kept.clone()).unwrap();
    assert_eq!((seen.len(), report.warnings), (count + 1, vec![Warning::NoBallast { bytes: 8 << 20 }]));
    assert!(matches!(run(fill(&store, 50_000)), (0, JournalError::StorageFull { .. })));
    // Freed space is used at once.
    fs::remove_file(filler).unwrap();
    run(store.journal().append(indexed("second", "1"))).unwrap();
    shut(store);
    let (store, report, seen) = try_open(&home, kept).unwrap();
    assert!(report.warnings.is_empty() && home.join("ballast").exists());
    assert_eq!(seen.len(), count + 2);
    assert_eq!(run(store.index().get(2, b"second")).unwrap(), Some(b"1".to_vec()));
    println!("\npassed");
}

/// In a child that may turn its disk read-only.
#[test]
fn read_only_disk() {
    let Some(mount) = child_home() else { return };
    let home = mount.join("home");
    let (store, ..) = open(&home);
    run(store.journal().append(indexed("first", "1"))).unwrap();
    shut(store);
    let remount = Command::new("mount").args(["-o", "remount,ro"]).arg(&mount).status().unwrap();
    assert!(remount.success());
    let error = try_open(&home, config()).unwrap_err();
    assert!(matches!(error, StoreError::ReadOnly { .. }), "{error:?}");
    let report = super::super::verify(&home, VerifyOptions { blobs: true }).unwrap();
    assert!(report.is_ok());
    assert_eq!(report.records, 1);
    println!("\npassed");
}

#[test]
fn a_read_only_home_is_named_and_can_be_verified() {
    with_small_disk("full::read_only_disk");
}

#[test]
fn a_full_disk_is_refused_survived_and_recovered_from() {
    with_small_disk("full::small_disk");
}

/// Runs a test in a child that has a disk of its own, or says that this machine does not allow it.
fn with_small_disk(test: &str) {
    let mount = tempfile::tempdir().unwrap();
    let namespace = ["unshare", "--mount", "--map-root-user", "sh", "-c"];
    let script = format!("mount -t tmpfs -o size=40m none '{}' && exec \"$0\" \"$@\"", mount.path().display());
    let probe = Command::new(namespace[0]).args(&namespace[1..]).args([&script, "true"]).output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("skipped: this machine does not let a test mount a small disk of its own");
        return;
    }
    let mut wrapper = namespace.to_vec();
    wrapper.push(&script);
    let output = child(test, mount.path(), &wrapper).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("passed"), "{text}");
}
