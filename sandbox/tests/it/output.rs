//! Output: exact to the byte up to its limit, told beyond it, never lost at the end.

use std::time::Duration;

use souk_sandbox::{End, Limits, Output, Task};
use tokio::sync::mpsc;

use crate::{
    bench::{Bench, run_on, short},
    guests::{bare, guest, guest_with, tells},
};

/// Fills memory from 4096 with a pattern of period 251.
const FILL: &str = r#"
    (func $fill (param $len i32) (local $i i32)
        (loop $next
            (i32.store8 (i32.add (i32.const 4096) (local.get $i)) (i32.rem_u (local.get $i) (i32.const 251)))
            (local.set $i (i32.add (local.get $i) (i32.const 1)))
            (br_if $next (i32.lt_u (local.get $i) (local.get $len)))))"#;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

fn writes(parts: &[(u32, u32)]) -> Vec<u8> {
    let most = parts.iter().map(|(_, len)| *len).max().unwrap_or(0);
    let calls: String = parts
        .iter()
        .map(|(fd, len)| format!("(call $write (i32.const {fd}) (i32.const 4096) (i32.const {len}))"))
        .collect();
    guest_with(
        "(memory (export \"memory\") 64)",
        &format!("{FILL} (func (export \"_start\") (call $fill (i32.const {most})) {calls})"),
    )
}

#[tokio::test]
async fn one_large_write_arrives_whole() {
    let bench = Bench::new();
    for len in [1, 4_095, 4_096, 10_000, 65_536, 100_000, 3_000_000] {
        let seen = bench.run(&writes(&[(1, len)]), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        assert!(seen.stdout == pattern(len as usize), "{len}");
        assert_eq!(seen.ended.stdout_len, u64::from(len));
        assert!(!seen.ended.stdout_truncated);
    }
    let seen = bench.run(&writes(&[(1, 4), (1, 100_000)]), &short()).await;
    assert!(seen.stdout == [pattern(4), pattern(100_000)].concat());
    bench.is_well().await;
}

#[tokio::test]
async fn the_streams_are_kept_apart_and_measured_apart() {
    let bench = Bench::new();
    let seen = bench.run(&writes(&[(2, 7), (1, 5), (2, 20_000)]), &short()).await;
    assert_eq!(seen.stdout, pattern(5));
    assert!(seen.stderr == [pattern(7), pattern(20_000)].concat());
    assert_eq!((seen.ended.stdout_len, seen.ended.stderr_len), (5, 20_007));
}

#[tokio::test]
async fn output_is_cut_exactly_at_its_limit_and_the_true_length_is_told() {
    let bench = Bench::new();
    let wasm = writes(&[(1, 1_000), (1, 9_000)]);
    for (limit, kept) in
        [(0, 0), (1, 1), (999, 999), (1_000, 1_000), (1_001, 1_001), (9_999, 9_999), (10_000, 10_000), (10_001, 10_000)]
    {
        let limits = Limits { stdout_bytes: limit, ..short() };
        let seen = bench.run(&wasm, &limits).await;
        let whole = [pattern(1_000), pattern(9_000)].concat();
        assert!(seen.stdout == whole[..kept], "{limit}");
        assert_eq!(seen.ended.stdout_len, 10_000);
        assert_eq!(seen.ended.stdout_truncated, limit < 10_000);
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
    }
}

#[tokio::test]
async fn a_flood_is_cut_and_its_length_is_known_even_when_it_is_killed() {
    let bench = Bench::new();
    let wasm = guest_with(
        "(memory (export \"memory\") 64)",
        "(func (export \"_start\") (loop $more (call $write (i32.const 1) (i32.const 4096) (i32.const 1000000)) (br $more)))",
    );
    let limits = Limits { stdout_bytes: 1_000_000, wall_ms: 500, ..short() };
    let seen = bench.run(&wasm, &limits).await;
    assert_eq!(seen.ended.end, End::TimedOut { limit_ms: 500 });
    assert_eq!(seen.stdout.len(), 1_000_000);
    assert!(seen.ended.stdout_truncated);
    assert!(seen.ended.stdout_len > 2_000_000, "{}", seen.ended.stdout_len);
    bench.is_well().await;
}

#[tokio::test]
async fn a_thousand_quick_exits_lose_nothing() {
    let bench = Bench::new();
    let wasm = guest_with(
        "(memory (export \"memory\") 64)",
        &format!(
            "{FILL} (func (export \"_start\") (call $fill (i32.const 150000)) (call $write (i32.const 1) (i32.const 4096) (i32.const 150000)) (call $exit (i32.const 3)))"
        ),
    );
    let module = bench.compile(&wasm).await.unwrap();
    let expected = pattern(150_000);
    let mut runner = bench.take(&module, &short()).await;
    let task = bench.task();
    for round in 0..1_000 {
        let seen = run_on(&mut runner, &task, &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 3 });
        assert!(seen.stdout == expected, "round {round}: {} bytes", seen.stdout.len());
    }
    drop(runner);
    bench.is_well().await;
}

#[tokio::test]
async fn quick_exits_of_fresh_runners_lose_nothing() {
    let bench = Bench::new();
    let wasm = writes(&[(1, 200_000)]);
    for _ in 0..20 {
        assert!(bench.run(&wasm, &short()).await.stdout == pattern(200_000));
    }
    bench.nothing_left().await;
}

#[tokio::test]
async fn a_reader_that_is_behind_makes_the_guest_wait_and_loses_nothing() {
    let bench = Bench::new();
    let module = bench.compile(&writes(&[(1, 2_000_000)])).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    let task = bench.task();
    let (sink, mut output) = mpsc::channel::<Output>(1);
    let limits = short();
    let slow = async {
        let mut bytes = Vec::new();
        while let Some(output) = output.recv().await {
            tokio::task::yield_now().await;
            bytes.extend_from_slice(&output.bytes);
        }
        bytes
    };
    let (ended, bytes) = tokio::join!(runner.run(&task, &limits, sink), slow);
    assert_eq!(ended.end, End::Exited { code: 0 });
    assert!(bytes == pattern(2_000_000));
}

#[tokio::test]
async fn a_reader_that_stops_reading_does_not_stop_the_wall_limit() {
    let bench = Bench::new();
    let module = bench.compile(&writes(&[(1, 2_000_000)])).await.unwrap();
    let limits = Limits { wall_ms: 200, ..short() };
    let mut runner = bench.take(&module, &limits).await;
    let pid = runner.pid();
    let task = bench.task();
    let (sink, mut output) = mpsc::channel::<Output>(1);
    let reader = async {
        // The guest is stuck with a full pipe until it is killed.
        while alive(pid) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut bytes = Vec::new();
        while let Some(output) = output.recv().await {
            bytes.extend_from_slice(&output.bytes);
        }
        bytes
    };
    let (ended, bytes) = tokio::join!(runner.run(&task, &limits, sink), reader);
    assert_eq!(ended.end, End::TimedOut { limit_ms: 200 });
    // What was in the pipe when it was killed is not lost.
    assert!(bytes.len() > 4_096, "{}", bytes.len());
    assert!(bytes == pattern(bytes.len()));
}

/// Whether a process is there and not only waiting to be reaped.
fn alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_closed_sink_wants_nothing_and_the_task_still_ends() {
    let bench = Bench::new();
    let module = bench.compile(&writes(&[(1, 2_000_000)])).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    let (sink, output) = mpsc::channel(1);
    drop(output);
    let ended = runner.run(&bench.task(), &short(), sink).await;
    assert_eq!(ended.end, End::Exited { code: 0 });
    assert_eq!(ended.stdout_len, 2_000_000);
}

#[tokio::test]
async fn output_comes_while_the_task_runs() {
    let bench = Bench::new();
    let wasm = guest(
        r#"(data (i32.const 64) "now")
           (func (export "_start") (call $write (i32.const 1) (i32.const 64) (i32.const 3)) (loop (br 0)))"#,
    );
    let module = bench.compile(&wasm).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    let handle = runner.kill_handle();
    let task = bench.task();
    let limits = short();
    let (sink, mut output) = mpsc::channel::<Output>(1);
    let first = async {
        let first = tokio::time::timeout(Duration::from_secs(10), output.recv()).await;
        handle.kill();
        first.unwrap().unwrap().bytes
    };
    let (ended, bytes) = tokio::join!(runner.run(&task, &limits, sink), first);
    assert_eq!(&bytes[..], b"now");
    assert_eq!(ended.end, End::Killed);
}

#[tokio::test]
async fn a_task_sees_its_arguments_and_environment_and_nothing_else() {
    let bench = Bench::new();
    let wasm = tells();
    let task = Task {
        argv0: "sweep.wasm".into(),
        args: vec!["--lr".into(), "0.1".into(), "ü".into()],
        env: vec![("SOUK_TASK".into(), "3".into()), ("EMPTY".into(), String::new())],
        ..bench.task()
    };
    let seen = bench.run_task(&wasm, &task, &short()).await;
    assert_eq!(seen.stdout, "sweep.wasm\0--lr\x000.1\0ü\0".as_bytes());
    assert_eq!(seen.stderr, b"SOUK_TASK=3\0EMPTY=\0");
    let bare_task = bench.task();
    let seen = bench.run_task(&wasm, &bare_task, &short()).await;
    assert_eq!(seen.stdout, b"main.wasm\0");
    assert_eq!(seen.stderr, b"");
}

#[tokio::test]
async fn a_module_without_imports_or_memory_runs() {
    let bench = Bench::new();
    let seen = bench.run(&bare("(func (export \"_start\"))"), &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    assert_eq!(seen.ended.memory_peak, 0);
}
