//! Blobs: only whole, right ones, within a budget.

use std::io::Read as _;

use blake3::Hash;

use super::*;

fn blobs(dir: &Path, budget: u64) -> Blobs {
    Blobs::open(dir, budget, None).unwrap()
}

/// Files under the folder of unfinished blobs.
fn unfinished(dir: &Path) -> usize {
    fs::read_dir(dir.join("tmp")).unwrap().count()
}

#[test]
fn what_is_put_is_found_by_its_hash_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let content = vec![7_u8; 700_000];
    let hash = blake3::hash(&content);
    run(async {
        let blobs = blobs(dir.path(), 10 << 20);
        assert!(!blobs.has(&hash) && blobs.is_empty());
        let pin = blobs.put_bytes(content.clone(), Durability::Durable).await.unwrap();
        assert_eq!(pin.hash(), hash);
        let hex = hash.to_hex();
        let expected = dir.path().join(&hex[..2]).join(hex.as_str());
        assert_eq!(pin.path(), expected);
        assert_eq!(blobs.len(&hash), Some(700_000));
        // Twice is once.
        drop(blobs.put_bytes(content.clone(), Durability::Cached).await.unwrap());
        assert_eq!(blobs.usage(), (1, 700_000));
    });
    let blobs = blobs(dir.path(), 10 << 20);
    run(async {
        assert_eq!(blobs.read(&hash, 1 << 20).await.unwrap(), content);
        assert!(matches!(blobs.read(&hash, 699_999).await, Err(BlobError::TooLong { .. })));
        let mut opened = blobs.open_blob(&hash).await.unwrap();
        let mut read = Vec::new();
        opened.file.read_to_end(&mut read).unwrap();
        assert_eq!((opened.length, read), (700_000, content));
        assert!(blobs.remove(&hash).await.unwrap());
        assert!(!blobs.remove(&hash).await.unwrap());
        assert!(matches!(blobs.open_blob(&hash).await, Err(BlobError::Missing(missing)) if missing == hash));
    });
}

#[test]
fn pieces_make_a_blob_only_if_hash_and_length_are_as_promised() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(dir.path(), 10 << 20);
    let content: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
    let (hash, length) = (blake3::hash(&content), content.len() as u64);
    run(async {
        let write = async |expected: Option<Hash>, promised: Option<u64>| {
            let mut writer = blobs.writer(length).await.unwrap();
            for piece in content.chunks(7777) {
                writer.write(piece).await.unwrap();
            }
            assert_eq!(writer.length(), length);
            writer.finish(expected, promised, Durability::Durable).await
        };
        let other = blake3::hash(b"other");
        assert!(matches!(
            write(Some(other), Some(length)).await,
            Err(BlobError::WrongHash { expected, found }) if expected == other && found == hash
        ));
        assert!(matches!(
            write(Some(hash), Some(length + 1)).await,
            Err(BlobError::WrongLength { expected, found }) if expected == length + 1 && found == length
        ));
        assert!(blobs.is_empty());
        assert_eq!(unfinished(dir.path()), 0);
        let pin = write(Some(hash), Some(length)).await.unwrap();
        assert_eq!(pin.hash(), hash);
        assert_eq!(blobs.read(&hash, length).await.unwrap(), content);
        // An empty blob is one too.
        let empty = blobs.writer(0).await.unwrap().finish(None, Some(0), Durability::Cached).await.unwrap();
        assert_eq!(empty.hash(), blake3::hash(b""));
    });
}

#[test]
fn a_writer_stops_at_its_limit_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(dir.path(), 1000);
    run(async {
        let mut writer = blobs.writer(600).await.unwrap();
        writer.write(&[1; 600]).await.unwrap();
        assert!(matches!(writer.write(&[1]).await, Err(BlobError::TooLong { limit: 600 })));
        // Its room is taken until it ends.
        let error = blobs.writer(401).await.unwrap_err();
        assert!(matches!(error, BlobError::BudgetFull { needed: 401, held: 600, budget: 1000 }), "{error}");
        drop(writer);
        // The drop ends on the pool.
        let whole = loop {
            match blobs.writer(1000).await {
                Ok(writer) => break writer,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        assert_eq!(unfinished(dir.path()), 1);
        drop(whole);
    });
}

#[test]
fn unfinished_blobs_are_gone_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    drop(blobs(dir.path(), 1000));
    fs::write(dir.path().join("tmp/0123"), "half").unwrap();
    fs::create_dir_all(dir.path().join("ab/cd")).unwrap();
    fs::write(dir.path().join("ab/cd/not-a-hash"), "left alone").unwrap();
    let blobs = blobs(dir.path(), 1000);
    assert!(blobs.is_empty());
    assert_eq!(unfinished(dir.path()), 0);
    assert!(dir.path().join("ab/cd/not-a-hash").exists());
}

#[test]
fn the_longest_unused_make_room_and_pinned_ones_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(dir.path(), 1000);
    run(async {
        let put = async |byte: u8| blobs.put_bytes(vec![byte; 300], Durability::Cached).await;
        let hash = |byte: u8| blake3::hash(&[byte; 300]);
        let kept = put(1).await.unwrap();
        drop(put(2).await.unwrap());
        drop(put(3).await.unwrap());
        drop(blobs.open_blob(&hash(2)).await.unwrap());
        drop(put(4).await.unwrap());
        assert!(blobs.has(&hash(1)) && blobs.has(&hash(2)) && !blobs.has(&hash(3)));
        assert!(!blobs.path(&hash(3)).exists());
        assert!(matches!(blobs.remove(&hash(1)).await, Err(BlobError::Pinned(_))));
        let second = kept.clone();
        drop(kept);
        let pins = [put(5).await.unwrap(), put(6).await.unwrap()];
        assert!(matches!(put(7).await, Err(BlobError::BudgetFull { held: 900, .. })));
        assert!(second.path().exists());
        drop((second, pins));
        drop(put(7).await.unwrap());
        assert_eq!(blobs.usage(), (3, 900));
    });
}

#[test]
fn a_damaged_blob_is_noticed_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(dir.path(), 1000);
    run(async {
        for way in 0..2 {
            let pin = blobs.put_bytes(vec![9; 100], Durability::Cached).await.unwrap();
            let (hash, path) = (pin.hash(), pin.path());
            blobs.check(&hash).await.unwrap();
            fs::write(&path, vec![8; 100]).unwrap();
            let error = match way {
                0 => blobs.check(&hash).await.unwrap_err(),
                _ => blobs.read(&hash, 1000).await.unwrap_err(),
            };
            assert!(matches!(error, BlobError::Damaged(damaged) if damaged == hash));
            assert!(!path.exists() && !blobs.has(&hash));
            drop(pin);
            assert_eq!(blobs.usage(), (0, 0));
        }
    });
}

#[test]
fn files_are_copied_and_other_things_refused() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(&dir.path().join("blobs"), 10 << 20);
    run(async {
        let file = dir.path().join("input");
        fs::write(&file, vec![3; 600_000]).unwrap();
        let pin = blobs.put_file(&file, 600_000, Durability::Durable).await.unwrap();
        fs::write(&file, "changed later").unwrap();
        assert_eq!(blobs.read(&pin.hash(), 1 << 20).await.unwrap(), vec![3; 600_000]);
        assert!(matches!(blobs.put_file(&file, 5, Durability::Cached).await, Err(BlobError::TooLong { limit: 5 })));
        for path in [dir.path().to_owned(), dir.path().join("absent")] {
            let error = blobs.put_file(&path, 5, Durability::Cached).await.unwrap_err();
            assert!(matches!(error, BlobError::Disk(_)) && error.to_string().contains(path.to_str().unwrap()));
        }
    });
}

#[test]
fn the_same_content_from_many_writers_is_one_blob() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = blobs(dir.path(), 64 << 20);
    run(async {
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let blobs = blobs.clone();
                tokio::spawn(async move {
                    let mut writer = blobs.writer(1 << 20).await?;
                    writer.write(&vec![5; 1 << 20]).await?;
                    writer.finish(None, None, Durability::Cached).await
                })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await.unwrap().unwrap().hash(), blake3::hash(&vec![5; 1 << 20]));
        }
        assert_eq!(blobs.usage(), (1, 1 << 20));
        assert_eq!(unfinished(dir.path()), 0);
    });
}
