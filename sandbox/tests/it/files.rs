//! Files: inputs are read-only, results have a place and a limit, and there is no way out.

use std::os::unix::fs::symlink;

use souk_sandbox::{AttemptName, End, Limits, Task};

use crate::{
    bench::{Bench, short},
    guests::{both, guest, guest_with},
};

/// The guest's folders: `/` is 3, `/out` 4, `/ckpt` 5.
fn with_checkpoint(bench: &Bench) -> Task {
    Task { checkpoint: true, ..bench.task() }
}

/// Data at 1024 and on: paths, 64 bytes each, with their lengths.
struct Paths(Vec<&'static str>);

impl Paths {
    fn data(&self) -> String {
        let line = |(n, path): (usize, &&str)| format!("(data (i32.const {}) \"{path}\")", 1024 + 64 * n);
        self.0.iter().enumerate().map(line).collect()
    }

    fn at(&self, path: &str) -> String {
        let n = self.0.iter().position(|known| *known == path).expect("a known path");
        format!("(i32.const {}) (i32.const {})", 1024 + 64 * n, path.len())
    }
}

const READ: i64 = 2;
const WRITE: i64 = 64;

#[tokio::test]
async fn an_input_is_read_and_a_result_written() {
    let bench = Bench::new();
    let task = with_checkpoint(&bench);
    let input = bench.folders.input(&task.attempt);
    std::fs::create_dir(input.join("in")).unwrap();
    std::fs::write(input.join("in/digits.csv"), b"0,1,2").unwrap();
    let paths = Paths(vec!["in/digits.csv", "result", "state"]);
    let wasm = guest(&format!(
        r#"{data}
        (func (export "_start") (local $in i32)
            (local.set $in (call $open (i32.const 3) {digits} (i32.const 0) (i64.const {READ})))
            (call $must (i32.eqz (local.get $in)))
            (i32.store (i32.const 8) (i32.const 64)) (i32.store (i32.const 12) (i32.const 100))
            (call $must (call $fd_read (local.get $in) (i32.const 8) (i32.const 1) (i32.const 24)))
            (call $write (call $open (i32.const 4) {result} (i32.const 1) (i64.const {WRITE})) (i32.const 64) (i32.load (i32.const 24)))
            (call $write (call $open (i32.const 5) {state} (i32.const 1) (i64.const {WRITE})) (i32.const 64) (i32.const 1)))"#,
        data = paths.data(),
        digits = paths.at("in/digits.csv"),
        result = paths.at("result"),
        state = paths.at("state"),
    ));
    let result = bench.folders.output(&task.attempt).join("result");
    let state = bench.folders.checkpoint(&task.attempt).join("state");
    for wasm in both(wasm) {
        let seen = bench.run_task(&wasm, &task, &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        for (file, content) in [(&result, &b"0,1,2"[..]), (&state, b"0")] {
            assert_eq!(std::fs::read(file).unwrap(), content);
            std::fs::remove_file(file).unwrap();
        }
    }
    bench.is_well().await;
}

#[tokio::test]
async fn folders_that_a_task_did_not_ask_for_are_not_there() {
    let bench = Bench::new();
    let paths = Paths(vec!["x"]);
    let wasm = guest(&format!(
        r#"{data} (func (export "_start")
            (if (call $open (i32.const 4) {x} (i32.const 1) (i64.const {WRITE})) (then (call $exit (i32.const 4))))
            (if (call $open (i32.const 5) {x} (i32.const 1) (i64.const {WRITE})) (then (call $exit (i32.const 5)))))"#,
        data = paths.data(),
        x = paths.at("x"),
    ));
    let task = Task { output: false, ..bench.task() };
    assert_eq!(bench.run_task(&wasm, &task, &short()).await.ended.end, End::Exited { code: 0 });
    let seen = bench.run(&wasm, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 4 });
}

/// Each line must fail; the guest exits with the number of the first that does not.
fn all_refused(paths: &Paths, attempts: &[String]) -> Vec<u8> {
    let lines: String = attempts
        .iter()
        .enumerate()
        .map(|(n, call)| format!("(if (i32.eqz {call}) (then (call $exit (i32.const {}))))", n + 1))
        .collect();
    guest(&format!(
        r#"{} (func $cannot_open (param $dir i32) (param $at i32) (param $len i32) (param $flags i32) (param $rights i64) (result i32)
            (i32.eqz (call $open (local.get $dir) (local.get $at) (local.get $len) (local.get $flags) (local.get $rights))))
        (func (export "_start") {lines})"#,
        paths.data()
    ))
}

#[tokio::test]
async fn no_path_leads_out_of_the_folders() {
    let bench = Bench::new();
    // What somebody would want: another attempt's input, the lease's own folder, the host's files.
    let other = bench.task();
    std::fs::write(bench.folders.input(&other.attempt).join("secret"), b"s").unwrap();
    let task = with_checkpoint(&bench);
    let input = bench.folders.input(&task.attempt);
    let output = bench.folders.output(&task.attempt);
    // Links that the host itself put there, or that came with an input.
    symlink("/etc/passwd", input.join("absolute")).unwrap();
    symlink("../a0/secret", input.join("relative")).unwrap();
    symlink("/", output.join("root")).unwrap();
    symlink("../../in/a0/secret", output.join("sideways")).unwrap();

    let paths = Paths(vec![
        "../a0/secret",
        "/etc/passwd",
        "etc/passwd",
        "absolute",
        "relative",
        "root/etc/passwd",
        "sideways",
        "x/../../a0/secret",
        "../../../../../../etc/passwd",
        "new",
        "..",
        "/proc/self/environ",
    ]);
    let open = |dir: u32, path: &str, flags: u32, rights: i64| {
        format!("(call $cannot_open (i32.const {dir}) {} (i32.const {flags}) (i64.const {rights}))", paths.at(path))
    };
    let mut attempts: Vec<String> = Vec::new();
    for dir in [3, 4, 5] {
        for path in &paths.0 {
            if *path != "new" {
                // `cannot_open` answers 1 when it is refused, as an errno would.
                attempts.push(open(dir, path, 0, READ));
                // Where nothing of that name lies, making one is every guest's right.
                let plain = dir != 3 && !path.contains(['/', '.']) && !(dir == 4 && *path == "sideways");
                if !plain {
                    attempts.push(open(dir, path, 1, READ | WRITE));
                }
            }
        }
    }
    attempts.push(format!("(call $symlink {} (i32.const 4) {})", paths.at("/etc/passwd"), paths.at("new")));
    attempts.push(format!("(call $symlink {} (i32.const 4) {})", paths.at("../a0/secret"), paths.at("new")));
    attempts.push(format!(
        "(call $link (i32.const 4) (i32.const 1) {} (i32.const 4) {})",
        paths.at("sideways"),
        paths.at("new")
    ));
    attempts.push(format!(
        "(call $rename (i32.const 4) {} (i32.const 4) {})",
        paths.at("root/etc/passwd"),
        paths.at("new")
    ));
    attempts.push(format!("(call $mkdir (i32.const 4) {})", paths.at("../../../../../../etc/passwd")));
    for wasm in both(all_refused(&paths, &attempts)) {
        let seen = bench.run_task(&wasm, &task, &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 }, "{:?}", failed(&seen.ended.end, &attempts));
    }
    bench.is_well().await;
}

fn failed<'a>(end: &End, attempts: &'a [String]) -> Option<&'a String> {
    match end {
        End::Exited { code } => attempts.get((*code as usize).wrapping_sub(1)),
        _ => None,
    }
}

#[tokio::test]
async fn an_input_cannot_be_changed_in_any_way() {
    let bench = Bench::new();
    let task = bench.task();
    let input = bench.folders.input(&task.attempt);
    std::fs::create_dir(input.join("in")).unwrap();
    std::fs::write(input.join("in/data"), b"precious").unwrap();
    let paths = Paths(vec!["in/data", "in/new", "stolen", "in"]);
    let data = paths.at("in/data");
    let attempts = vec![
        // Write, truncate, create, append beside it.
        format!("(call $cannot_open (i32.const 3) {data} (i32.const 0) (i64.const {WRITE}))"),
        format!("(call $cannot_open (i32.const 3) {data} (i32.const 8) (i64.const {READ}))"),
        format!("(call $cannot_open (i32.const 3) {data} (i32.const 8) (i64.const {}))", READ | WRITE),
        format!("(call $cannot_open (i32.const 3) {} (i32.const 1) (i64.const {READ}))", paths.at("in/new")),
        // Truncate through a descriptor that can only read.
        format!("(call $set_size (call $open (i32.const 3) {data} (i32.const 0) (i64.const {READ})) (i64.const 0))"),
        // Link and rename it to where writing is allowed, and the other way round.
        format!("(call $link (i32.const 3) (i32.const 0) {data} (i32.const 4) {})", paths.at("stolen")),
        format!("(call $rename (i32.const 3) {data} (i32.const 4) {})", paths.at("stolen")),
        format!("(call $unlink (i32.const 3) {data})"),
        format!("(call $mkdir (i32.const 3) {})", paths.at("in/new")),
        format!("(call $symlink {data} (i32.const 3) {})", paths.at("in/new")),
        format!("(call $set_times (i32.const 3) (i32.const 0) {data} (i64.const 0) (i64.const 0) (i32.const 5))"),
    ];
    let before = std::fs::metadata(input.join("in/data")).unwrap().modified().unwrap();
    for wasm in both(all_refused(&paths, &attempts)) {
        let seen = bench.run_task(&wasm, &task, &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 }, "{:?}", failed(&seen.ended.end, &attempts));
    }
    assert_eq!(std::fs::read(input.join("in/data")).unwrap(), b"precious");
    assert_eq!(std::fs::metadata(input.join("in/data")).unwrap().modified().unwrap(), before);
    let left: Vec<_> = std::fs::read_dir(bench.folders.output(&task.attempt)).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn results_can_be_renamed_between_folders_and_listed() {
    let bench = Bench::new();
    let task = bench.task();
    let paths = Paths(vec!["tmp", "tmp/part", "result"]);
    let wasm = guest(&format!(
        r#"{data} (func (export "_start")
            (call $must (call $mkdir (i32.const 4) {tmp}))
            (call $write (call $open (i32.const 4) {part} (i32.const 1) (i64.const {WRITE})) (i32.const 1024) (i32.const 3))
            (call $must (call $rename (i32.const 4) {part} (i32.const 4) {result}))
            (call $must (call $set_times (i32.const 4) (i32.const 0) {result} (i64.const 0) (i64.const 5000000000) (i32.const 4)))
            (call $must (call $readdir (i32.const 4) (i32.const 4096) (i32.const 4096) (i64.const 0) (i32.const 64)))
            (call $must (i32.lt_u (i32.load (i32.const 64)) (i32.const 100))))"#,
        data = paths.data(),
        tmp = paths.at("tmp"),
        part = paths.at("tmp/part"),
        result = paths.at("result"),
    ));
    let seen = bench.run_task(&wasm, &task, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    let result = bench.folders.output(&task.attempt).join("result");
    assert_eq!(std::fs::read(&result).unwrap(), b"tmp");
    let modified = std::fs::metadata(&result).unwrap().modified().unwrap();
    assert_eq!(modified.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 5);
}

fn size_of(folder: &std::path::Path) -> u64 {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test]
async fn a_file_ends_at_the_limit_and_so_does_the_run() {
    let bench = Bench::new();
    let paths = Paths(vec!["big"]);
    let limits = Limits { output_bytes: 5_000_000, ..short() };
    let open = format!("(call $open (i32.const 4) {} (i32.const 1) (i64.const {}))", paths.at("big"), WRITE | READ);
    let grow = format!("(call $set_size {open} (i64.const 1099511627776)) drop");
    let write = format!(
        "(local.set $f {open}) (loop $more (call $write (local.get $f) (i32.const 4096) (i32.const 1000000)) (br $more))"
    );
    let guests = [grow, write].map(|body| {
        guest_with(
            "(memory (export \"memory\") 64)",
            &format!("{} (func (export \"_start\") (local $f i32) {body})", paths.data()),
        )
    });
    for wasm in guests.into_iter().flat_map(both) {
        let task = bench.task();
        let seen = bench.run_task(&wasm, &task, &limits).await;
        assert!(
            matches!(seen.ended.end, End::OutputLimit { limit_bytes: 5_000_000, .. } | End::Trapped { .. }),
            "{:?}",
            seen.ended.end
        );
        assert!(size_of(&bench.folders.output(&task.attempt)) <= 5_000_000);
    }
    bench.is_well().await;
}

/// Makes folders or files with numbers for names until it cannot, then loops.
fn litter(call: &str) -> Vec<u8> {
    guest(&format!(
        r#"(func (export "_start") (local $n i32)
            (loop $more
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                ;; Four letters of a name, from the number.
                (i32.store8 (i32.const 1024) (i32.add (i32.const 97) (i32.and (local.get $n) (i32.const 15))))
                (i32.store8 (i32.const 1025) (i32.add (i32.const 97) (i32.and (i32.shr_u (local.get $n) (i32.const 4)) (i32.const 15))))
                (i32.store8 (i32.const 1026) (i32.add (i32.const 97) (i32.and (i32.shr_u (local.get $n) (i32.const 8)) (i32.const 15))))
                (i32.store8 (i32.const 1027) (i32.add (i32.const 97) (i32.and (i32.shr_u (local.get $n) (i32.const 12)) (i32.const 15))))
                {call}
                (br_if $more (i32.lt_u (local.get $n) (i32.const 60000))))
            (loop (br 0)))"#
    ))
}

#[tokio::test]
async fn many_files_or_many_bytes_in_sum_end_the_run() {
    let bench = Bench::new();
    let folders = litter("(call $must (call $mkdir (i32.const 4) (i32.const 1024) (i32.const 4)))");
    let limits = Limits { output_files: 100, ..short() };
    for wasm in both(folders) {
        let end = bench.run(&wasm, &limits).await.ended.end;
        assert!(matches!(end, End::OutputLimit { files: 101.., limit_files: 100, .. }), "{end:?}");
    }

    let files = litter(&format!(
        r#"(call $set_size (call $open (i32.const 4) (i32.const 1024) (i32.const 4) (i32.const 1) (i64.const {WRITE})) (i64.const 400000)) drop
           (drop (call $fd_close (i32.load (i32.const 20))))"#
    ));
    let limits = Limits { output_bytes: 1_000_000, ..short() };
    for wasm in both(files) {
        let end = bench.run(&wasm, &limits).await.ended.end;
        assert!(matches!(end, End::OutputLimit { bytes: 1_000_001.., .. }), "{end:?}");
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_run_that_is_over_before_anybody_looked_is_looked_at() {
    let bench = Bench::new();
    let paths = Paths(vec!["one", "two"]);
    let file = |name| {
        format!(
            "(call $must (call $set_size (call $open (i32.const 4) {} (i32.const 1) (i64.const {WRITE})) (i64.const 600000)))",
            paths.at(name)
        )
    };
    let wasm = guest(&format!("{} (func (export \"_start\") {} {})", paths.data(), file("one"), file("two")));
    let limits = Limits { output_bytes: 1_000_000, ..short() };
    let end = bench.run(&wasm, &limits).await.ended.end;
    assert_eq!(end, End::OutputLimit { bytes: 1_200_000, files: 2, limit_bytes: 1_000_000, limit_files: 10_000 });
    let limits = Limits { output_bytes: 1_200_000, ..short() };
    assert_eq!(bench.run(&wasm, &limits).await.ended.end, End::Exited { code: 0 });
}

#[tokio::test]
async fn open_files_come_to_an_end_and_the_runner_does_not() {
    let bench = Bench::new();
    let paths = Paths(vec!["x"]);
    let wasm = guest(&format!(
        r#"{} (func (export "_start") (local $n i32)
            (loop $more
                (local.set $n (i32.add (local.get $n) (i32.const 1)))
                (if (i32.eqz (call $open (i32.const 4) {} (i32.const 1) (i64.const {WRITE}))) (then (call $exit (i32.lt_u (local.get $n) (i32.const 200)))))
                (br_if $more (i32.lt_u (local.get $n) (i32.const 5000))))
            (call $exit (i32.const 9)))"#,
        paths.data(),
        paths.at("x")
    ));
    let seen = bench.run(&wasm, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    bench.is_well().await;
}

#[tokio::test]
async fn an_attempt_without_folders_is_our_fault_not_the_guest_s() {
    let bench = Bench::new();
    let task = Task::new(AttemptName::new("never-prepared").unwrap());
    let seen = bench.run_task(&crate::guests::hello(), &task, &short()).await;
    assert!(
        matches!(&seen.ended.end, End::RunnerFault { reason } if reason.contains("never-prepared")),
        "{:?}",
        seen.ended.end
    );
    bench.is_well().await;
}
