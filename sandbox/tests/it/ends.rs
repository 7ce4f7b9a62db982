//! How runs end, and that each end is told for what it is.

use std::time::{Duration, Instant};

use souk_sandbox::{End, InputFault, Limits, ModuleError, Output, Task};
use tokio::sync::mpsc;

use crate::{
    bench::{Bench, run_on, short},
    guests::{bare, exit, guest, guest_with, hello},
};

#[tokio::test]
async fn a_greeting_arrives_and_the_runner_is_used_again() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    for _ in 0..20 {
        let seen = run_on(&mut runner, &bench.task(), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        assert_eq!(seen.stdout, b"hello\n");
        assert_eq!(seen.ended.stdout_len, 6);
        assert!(!seen.ended.stdout_truncated);
        assert_eq!(seen.ended.memory_peak, 2 * 65_536);
        assert!(runner.is_idle());
    }
    drop(runner);
    bench.is_well().await;
}

#[tokio::test]
async fn exit_codes_are_exact_to_all_32_bits() {
    let bench = Bench::new();
    for code in [0, 1, 2, 125, 126, 127, 137, 255, 256, u32::MAX] {
        let seen = bench.run(&exit(code), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code });
    }
    bench.is_well().await;
}

#[tokio::test]
async fn an_exit_from_the_start_section_is_an_exit() {
    let bench = Bench::new();
    let wasm = guest("(func $s (call $exit (i32.const 7))) (start $s) (func (export \"_start\"))");
    assert_eq!(bench.run(&wasm, &short()).await.ended.end, End::Exited { code: 7 });
    bench.is_well().await;
}

#[tokio::test]
async fn an_entry_of_another_name_is_initialised_first() {
    let bench = Bench::new();
    let wasm = guest(
        r#"(global $ready (mut i32) (i32.const 0))
           (func (export "_initialize") (global.set $ready (i32.const 1)))
           (func (export "work") (call $exit (i32.add (global.get $ready) (i32.const 40))))"#,
    );
    let task = Task { entry: "work".into(), ..bench.task() };
    let seen = bench.run_task(&wasm, &task, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 41 });
}

fn trap(end: &End) -> &str {
    match end {
        End::Trapped { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn traps_are_told_with_their_reason() {
    let bench = Bench::new();
    let unreachable = bare("(func $inner unreachable) (func $main (export \"_start\") (call $inner))");
    let end = bench.run(&unreachable, &short()).await.ended.end;
    assert!(trap(&end).contains("unreachable"), "{end:?}");
    assert!(trap(&end).contains("in inner < main"), "{end:?}");

    let divide = bare("(func (export \"_start\") (drop (i32.div_u (i32.const 1) (i32.const 0))))");
    let end = bench.run(&divide, &short()).await.ended.end;
    assert!(trap(&end).contains("divide by zero"), "{end:?}");

    let outside = bare("(memory 1) (func (export \"_start\") (drop (i32.load (i32.const 70000))))");
    let end = bench.run(&outside, &short()).await.ended.end;
    assert!(trap(&end).contains("out of bounds"), "{end:?}");

    let deep = bare("(func $f (export \"_start\") (call $f) (call $f))");
    let end = bench.run(&deep, &short()).await.ended.end;
    assert!(trap(&end).contains("stack"), "{end:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn a_trap_leaves_the_runner_usable() {
    let bench = Bench::new();
    let wasm = guest(r#"(func (export "bad") unreachable) (func (export "_start") (call $exit (i32.const 3)))"#);
    let module = bench.compile(&wasm).await.unwrap();
    let mut runner = bench.take(&module, &short()).await;
    for _ in 0..3 {
        let bad = Task { entry: "bad".into(), ..bench.task() };
        assert!(matches!(run_on(&mut runner, &bad, &short()).await.ended.end, End::Trapped { .. }));
        let seen = run_on(&mut runner, &bench.task(), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 3 });
    }
}

fn endless() -> [Vec<u8>; 2] {
    let start = |text: &str| {
        guest(&format!(
            "(func $w (call $write (i32.const 1) (i32.const 64) (i32.const 3))) (data (i32.const 64) \"go\\n\") {text}"
        ))
    };
    [
        start("(func (export \"_start\") (call $w) (loop (br 0)))"),
        start("(func $s (call $w) (loop (br 0))) (start $s) (func (export \"_start\"))"),
    ]
}

#[tokio::test]
async fn an_endless_loop_is_ended_at_the_limit_with_its_output_kept() {
    let bench = Bench::new();
    for wasm in endless() {
        let limits = Limits { wall_ms: 300, ..short() };
        let began = Instant::now();
        let module = bench.compile(&wasm).await.unwrap();
        let mut runner = bench.take(&module, &limits).await;
        let seen = run_on(&mut runner, &bench.task(), &limits).await;
        assert_eq!(seen.ended.end, End::TimedOut { limit_ms: 300 });
        assert_eq!(seen.stdout, b"go\n");
        assert_eq!(seen.ended.run_ms, 300);
        assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
        assert!(!runner.is_idle());
        let again = run_on(&mut runner, &bench.task(), &limits).await;
        assert!(matches!(again.ended.end, End::RunnerFault { .. }));
        bench.nothing_left().await;
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_cancel_kills_a_loop_within_a_second() {
    let bench = Bench::new();
    for wasm in endless() {
        let module = bench.compile(&wasm).await.unwrap();
        let mut runner = bench.take(&module, &short()).await;
        let handle = runner.kill_handle();
        let task = bench.task();
        let (sink, mut output) = mpsc::channel::<Output>(4);
        let cancel = async {
            // The loop has begun when its output is here.
            assert_eq!(&output.recv().await.unwrap().bytes[..], b"go\n");
            let began = Instant::now();
            handle.kill();
            began
        };
        let limits = short();
        let (ended, began) = tokio::join!(runner.run(&task, &limits, sink), cancel);
        assert_eq!(ended.end, End::Killed);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        bench.nothing_left().await;
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_stop_lets_a_task_finish_within_its_grace_and_not_beyond() {
    let bench = Bench::new();
    // Sleeps 200 ms, then exits with 5. Subscription at 128: clock 1, relative.
    let sleep = guest(
        r#"(func (export "_start")
            (call $write (i32.const 1) (i32.const 64) (i32.const 1))
            (i32.store (i32.const 144) (i32.const 1))
            (i64.store (i32.const 152) (i64.const 200000000))
            (call $must (call $poll (i32.const 128) (i32.const 256) (i32.const 1) (i32.const 320)))
            (call $exit (i32.const 5)))"#,
    );
    for (grace, end) in [(10_000, End::Exited { code: 5 }), (20, End::Killed)] {
        let limits = Limits { stop_grace_ms: grace, ..short() };
        let module = bench.compile(&sleep).await.unwrap();
        let mut runner = bench.take(&module, &limits).await;
        let handle = runner.kill_handle();
        let task = bench.task();
        let (sink, mut output) = mpsc::channel::<Output>(4);
        let stop = async {
            output.recv().await.unwrap();
            handle.stop();
        };
        let (ended, ()) = tokio::join!(runner.run(&task, &limits, sink), stop);
        assert_eq!(ended.end, end);
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_handle_that_outlives_its_runner_kills_nobody() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    let runner = bench.take(&module, &short()).await;
    let handle = runner.kill_handle();
    runner.close().await;
    handle.kill();
    handle.stop();
    bench.is_well().await;
}

#[tokio::test]
async fn a_guest_that_sleeps_for_ever_is_ended_at_the_limit() {
    let bench = Bench::new();
    // Once as the only subscription, once with a second one beside it: two ways through the host.
    for count in [1, 2] {
        let wasm = guest(&format!(
            r#"(func (export "_start")
                (i32.store (i32.const 144) (i32.const 1)) (i64.store (i32.const 152) (i64.const 0x7fffffffffffffff))
                (i32.store (i32.const 192) (i32.const 1)) (i64.store (i32.const 200) (i64.const 0x7fffffffffffffff))
                (call $must (call $poll (i32.const 128) (i32.const 256) (i32.const {count}) (i32.const 400))))"#
        ));
        let limits = Limits { wall_ms: 200, ..short() };
        let seen = bench.run(&wasm, &limits).await;
        assert_eq!(seen.ended.end, End::TimedOut { limit_ms: 200 });
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_wall_limit_no_clock_can_hold_is_no_limit() {
    let bench = Bench::new();
    for wall_ms in [u64::MAX, 10_000_000_000_000] {
        let limits = Limits { wall_ms, ..short() };
        assert_eq!(bench.run(&hello(), &limits).await.ended.end, End::Exited { code: 0 });
    }
}

fn input(end: End) -> String {
    match end {
        End::InputFailed { reason } => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_entry_that_is_missing_or_of_another_type_fails_the_input_by_name() {
    let bench = Bench::new();
    let wasm = guest(r#"(func (export "_start")) (func (export "sum") (param i32 i32) (result i32) i32.const 1)"#);
    let run = |entry: &str| Task { entry: entry.into(), ..bench.task() };
    let end = bench.run_task(&wasm, &run("not_start"), &short()).await.ended.end;
    assert_eq!(input(end), r#"the module exports no function "not_start"; it has: _start, sum"#);
    let end = bench.run_task(&wasm, &run("sum"), &short()).await.ended.end;
    assert_eq!(input(end), r#"the entry "sum" has the signature (i32, i32) -> (i32), it must be () -> ()"#);
    let end = bench.run_task(&wasm, &run("memory"), &short()).await.ended.end;
    assert!(input(end).contains("no function \"memory\""));
    bench.is_well().await;
}

#[tokio::test]
async fn arguments_that_no_program_can_have_fail_the_input() {
    let bench = Bench::new();
    let task = Task { args: vec!["x".repeat(1 << 20)], ..bench.task() };
    let end = bench.run_task(&hello(), &task, &short()).await.ended.end;
    assert!(matches!(&end, End::InputFailed { reason: InputFault::Task(_) }), "{end:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn memory_limits_from_one_byte_to_the_last_page() {
    let bench = Bench::new();
    let limits = |memory_bytes| Limits { memory_bytes, ..short() };
    let end = bench.run(&hello(), &limits(1)).await.ended.end;
    assert_eq!(input(end), "the module starts with 131072 bytes of memory, the limit is 1; raise resources.memory");
    let end = bench.run(&hello(), &limits(131_071)).await.ended.end;
    assert!(matches!(
        end,
        End::InputFailed { reason: InputFault::Module(ModuleError::MemoryMinimum { needs: 131_072, limit: 131_071 }) }
    ));
    assert_eq!(bench.run(&hello(), &limits(131_072)).await.ended.end, End::Exited { code: 0 });
    // Grows to exactly 4 GiB, which is 65,536 pages, and writes its last byte.
    let whole = guest(
        r#"(func (export "_start")
            (drop (memory.grow (i32.const 65534)))
            (i32.store8 (i32.const -1) (i32.const 1))
            (call $exit (memory.size)))"#,
    );
    let seen = bench.run(&whole, &limits(4 << 30)).await;
    assert_eq!(seen.ended.end, End::Exited { code: 65_536 });
    assert_eq!(seen.ended.memory_peak, 4 << 30);
    let over = bench.pool.take(&bench.compile(&whole).await.unwrap(), &limits((4 << 30) + 1)).await;
    assert!(over.unwrap_err().to_string().contains("memory_bytes is 4294967297"));
    bench.is_well().await;
}

#[tokio::test]
async fn a_refused_growth_answers_minus_one_and_a_guest_may_live_with_it() {
    let bench = Bench::new();
    let wasm = guest("(func (export \"_start\") (call $exit (memory.grow (i32.const 60000))))");
    let seen = bench.run(&wasm, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: u32::MAX });
    assert!(seen.ended.memory_refused);
    assert_eq!(seen.ended.memory_peak, 131_072);
}

#[tokio::test]
async fn a_guest_that_dies_of_refused_memory_is_out_of_memory() {
    let bench = Bench::new();
    // Takes and touches pages until there are none, then aborts as languages do.
    let bomb = guest(
        r#"(func (export "_start") (local $at i32)
            (loop $more
                (local.set $at (memory.grow (i32.const 16)))
                (if (i32.eq (local.get $at) (i32.const -1)) (then unreachable))
                (memory.fill (i32.mul (local.get $at) (i32.const 65536)) (i32.const 1) (i32.const 1048576))
                (br $more)))"#,
    );
    let seen = bench.run(&bomb, &short()).await;
    assert_eq!(seen.ended.end, End::OutOfMemory { limit: 64 << 20 });
    // From 2 pages in steps of 16, the last that fits 1024.
    assert_eq!(seen.ended.memory_peak, 1010 * 65_536);
    bench.is_well().await;
}

#[tokio::test]
async fn a_module_s_own_maximum_is_not_our_limit() {
    let bench = Bench::new();
    let wasm = guest_with(
        "(memory (export \"memory\") 2 3)",
        "(func (export \"_start\") (drop (memory.grow (i32.const 5))) unreachable)",
    );
    let seen = bench.run(&wasm, &short()).await;
    assert!(matches!(seen.ended.end, End::Trapped { .. }), "{:?}", seen.ended.end);
    assert!(!seen.ended.memory_refused);
}

#[tokio::test]
async fn tables_grow_to_the_limit_and_no_further() {
    let bench = Bench::new();
    let wasm = guest(
        r#"(table $t 1 funcref)
           (func (export "_start")
            (call $must (i32.ne (table.grow $t (ref.null func) (i32.const 100000)) (i32.const 1)))
            (call $must (i32.ne (table.grow $t (ref.null func) (i32.const 100000000)) (i32.const -1)))
            (loop $more (br_if $more (i32.ne (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))))
            (call $exit (table.size $t)))"#,
    );
    let seen = bench.run(&wasm, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 199_001 });
    bench.is_well().await;
}
