//! Logs: exact to the byte, followed, capped, continued.

use super::*;

fn spool(dir: &Path, cap: u64) -> Spool {
    Spool::open_blocking(dir, "lease-0-0-1", "stdout", cap, false).unwrap()
}

#[test]
fn a_follower_sees_every_byte_and_the_end() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let spool = spool(dir.path(), 100 << 20);
        let follower = {
            let spool = spool.clone();
            tokio::spawn(async move {
                let mut watch = spool.watch();
                let mut read = Vec::new();
                loop {
                    let state = *watch.borrow_and_update();
                    while (read.len() as u64) < state.length {
                        read.extend(spool.read(read.len() as u64, 10_000).await.unwrap());
                    }
                    if let Some(closed) = state.closed {
                        return (read, closed);
                    }
                    watch.changed().await.unwrap();
                }
            })
        };
        let mut all = Vec::new();
        for number in 0..500_u32 {
            let line = format!("line {number} {}\n", "y".repeat(number as usize % 97));
            all.extend_from_slice(line.as_bytes());
            let appended = spool.append(line).await.unwrap();
            assert_eq!(appended, Appended { length: all.len() as u64, dropped: 0 });
        }
        let closed = spool.close(Some(all.len() as u64)).await.unwrap();
        assert_eq!(closed, Closed { length: all.len() as u64, hash: blake3::hash(&all) });
        let (read, seen) = follower.await.unwrap();
        assert_eq!((read, seen), (all, closed));
        assert_eq!(spool.close(None).await.unwrap(), closed);
        assert!(matches!(spool.append("more").await, Err(SpoolError::Closed { length }) if length == closed.length));
    });
}

#[test]
fn a_large_output_right_before_the_end_is_exact() {
    // Case M12: the whole output, then the end at once, many times.
    let dir = tempfile::tempdir().unwrap();
    run(async {
        for attempt in 0..200_u32 {
            let spool = Spool::open_blocking(dir.path(), &attempt.to_string(), "stdout", 1 << 30, false).unwrap();
            let bytes: Vec<u8> = (0..100_000 + attempt).map(|at| at.wrapping_mul(attempt) as u8).collect();
            for piece in bytes.chunks(65_536) {
                spool.append(piece).await.unwrap();
            }
            let closed = spool.close(Some(bytes.len() as u64)).await.unwrap();
            assert_eq!(closed.hash, blake3::hash(&bytes));
            assert_eq!(fs::read(spool.path()).unwrap(), bytes);
            fs::remove_file(spool.path()).unwrap();
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    });
}

#[test]
fn the_cap_cuts_and_says_how_much() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let spool = spool(dir.path(), 10);
        assert_eq!(spool.append("12345678").await.unwrap(), Appended { length: 8, dropped: 0 });
        assert_eq!(spool.append("90abc").await.unwrap(), Appended { length: 10, dropped: 3 });
        assert_eq!(spool.append("x").await.unwrap(), Appended { length: 10, dropped: 1 });
        assert_eq!(spool.read(0, 100).await.unwrap(), b"1234567890");
        assert_eq!(spool.read(4, 3).await.unwrap(), b"567");
        assert_eq!(spool.read(10, 3).await.unwrap(), b"");
        assert_eq!(spool.read(1000, 3).await.unwrap(), b"");
    });
}

#[test]
fn an_empty_log_has_no_file() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let empty = spool(dir.path(), 10);
        assert_eq!(empty.append("").await.unwrap(), Appended { length: 0, dropped: 0 });
        assert_eq!(empty.read(0, 10).await.unwrap(), b"");
        assert_eq!(empty.close(None).await.unwrap(), Closed { length: 0, hash: blake3::hash(b"") });
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(spool(dir.path(), 10).state(), SpoolState { length: 0, closed: None });
    });
}

#[test]
fn a_copy_by_offset_takes_each_byte_once_and_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    run(async {
        let copy = spool(dir.path(), 1000);
        copy.append_at(0, "hello ").await.unwrap();
        assert_eq!(copy.append_at(0, "hello ").await.unwrap().length, 6);
        assert_eq!(copy.append_at(2, "llo wor").await.unwrap().length, 9);
        assert!(matches!(copy.append_at(10, "d").await, Err(SpoolError::Gap { offset: 10, length: 9 })));
        assert!(matches!(copy.close(Some(11)).await, Err(SpoolError::Length { expected: 11, length: 9 })));
        drop(copy);
        let copy = spool(dir.path(), 1000);
        assert_eq!(copy.state(), SpoolState { length: 9, closed: None });
        copy.append_at(9, "ld").await.unwrap();
        let closed = copy.close(Some(11)).await.unwrap();
        assert_eq!(closed.hash, blake3::hash(b"hello world"));
    });
}

#[test]
fn names_cannot_leave_the_folder() {
    let dir = tempfile::tempdir().unwrap();
    for bad in ["", ".", "..", ".hidden", "a/b", "a\0b", "ä", &"x".repeat(201)] {
        for (attempt, stream) in [(bad, "stdout"), ("attempt", bad)] {
            let result = Spool::open_blocking(dir.path(), attempt, stream, 1, false);
            assert!(matches!(result, Err(SpoolError::Name(name)) if name == bad), "{bad:?}");
        }
    }
}
