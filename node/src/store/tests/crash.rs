//! kill -9 at random moments: what was acknowledged is there.
#![allow(clippy::print_stdout, reason = "a child process tells its parent by its output")]

use std::{
    collections::HashSet,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use super::*;

/// Names the home to a child process, which is this test binary again.
const HOME: &str = "SOUK_STORE_CRASH_HOME";
/// Kills per run.
const KILLS: u32 = 25;

/// Starts this binary with one test in it, which finds its home in the environment.
pub(super) fn child(test: &str, home: &Path, wrapper: &[&str]) -> Child {
    let module = module_path!().split_once("::").unwrap().1.rsplit_once("::").unwrap().0;
    let binary = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([binary.as_os_str()]);
    Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", &format!("{module}::{test}"), "--nocapture", "--test-threads=1"])
        .env(HOME, home)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The home, in a child.
pub(super) fn child_home() -> Option<PathBuf> {
    std::env::var_os(HOME).map(PathBuf::from)
}

/// In a child: appends from several tasks for ever and prints what was acknowledged.
#[test]
fn victim() {
    let Some(home) = child_home() else { return };
    let small = StoreConfig { segment_bytes: 20_000, ..config() };
    let (store, _, seen) = try_open(&home, small).unwrap();
    let round = seen.len();
    run(async {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    for number in 0.. {
                        let key = format!("{round}-{task}-{number}");
                        let filler = Entry::new(1, vec![7; number % 300]);
                        let group = vec![indexed(&key, "v"), filler];
                        let positions = store.journal().append_all(group).await.unwrap();
                        println!("\nack {} {key}", positions[0].sequence);
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn no_acknowledged_record_is_lost_by_kill_9() {
    let home = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<(u64, String)> = Vec::new();
    for kill in 0..KILLS {
        let mut victim = child("crash::victim", home.path(), &[]);
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        // Varies the moment by the number of acknowledgements waited for; what came through the pipe until
        // its end counts, because it was printed after the append resolved.
        let mut wanted = 1 + (kill * 37) % 150;
        while let Some(Ok(line)) = lines.next() {
            let Some(rest) = line.strip_prefix("ack ") else {
                continue;
            };
            let (sequence, key) = rest.split_once(' ').unwrap();
            acknowledged.push((sequence.parse().unwrap(), key.to_owned()));
            wanted = wanted.saturating_sub(1);
            if wanted == 0 {
                victim.kill().unwrap();
            }
        }
        victim.wait().unwrap();
        assert_eq!(wanted, 0, "the child ended by itself");
        // The killed process is no obstacle (case U20), and all is there.
        let (store, report, seen) = open(home.path());
        assert!(!matches!(report.index, IndexState::Rebuilt { .. }), "{:?}", report.index);
        assert!(seen.len().is_multiple_of(2), "a group is whole or absent");
        let records: HashSet<(u64, &[u8])> =
            seen.iter().map(|(sequence, _, payload)| (*sequence, payload.as_slice())).collect();
        for (sequence, key) in &acknowledged {
            let payload = format!("{key} v");
            assert!(records.contains(&(*sequence, payload.as_bytes())), "record {sequence} {key} is lost");
        }
        for (_, key) in acknowledged.iter().rev().take(50) {
            assert_eq!(store.index().get_blocking(2, key.as_bytes()).unwrap(), Some(b"v".to_vec()));
            assert!(store.index().once_blocking(1, key.as_bytes()).unwrap().is_some());
        }
        shut(store);
    }
    assert!(acknowledged.len() > 500);
}
