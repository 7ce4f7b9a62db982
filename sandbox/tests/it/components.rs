//! Components: WASI preview 2 commands, held to all that holds of modules.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use souk_sandbox::{CompileError, End, InputFault, Limits, ModuleError, Task};

use crate::{
    bench::{Bench, run_on, short},
    guests::{command, component, component_text, exit, guest, guest_with, hello, tells},
};

#[tokio::test]
async fn a_command_s_greeting_arrives_and_the_runner_is_used_again() {
    let bench = Bench::new();
    let module = bench.compile(&component(&hello())).await.unwrap();
    assert!(module.is_component());
    assert!(!bench.compile(&hello()).await.unwrap().is_component());
    let mut runner = bench.take(&module, &short()).await;
    for _ in 0..20 {
        let seen = run_on(&mut runner, &bench.task(), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        assert_eq!(seen.stdout, b"hello\n");
        assert_eq!((seen.ended.stdout_len, seen.ended.stdout_truncated), (6, false));
        assert!(seen.ended.memory_peak >= 2 * 65_536);
        assert!(runner.is_idle());
    }
    drop(runner);
    bench.is_well().await;
}

/// Exits by wasi:cli/exit itself, as the body says.
fn exits(body: &str) -> Vec<u8> {
    command(
        r#"(import "wasi:cli/exit@0.2.12" (instance $exit
            (export "exit" (func (param "status" (result)))) (export "exit-with-code" (func (param "status-code" u8)))))
        (core func $exit (canon lower (func $exit "exit")))
        (core func $code (canon lower (func $exit "exit-with-code")))"#,
        r#"(import "host" "exit" (func $exit (param i32))) (import "host" "code" (func $code (param i32)))"#,
        body,
        r#"(with "host" (instance (export "exit" (func $exit)) (export "code" (func $code))))"#,
    )
}

#[tokio::test]
async fn exit_codes_are_exact() {
    let bench = Bench::new();
    for code in [0, 1, 3, 125, 126, 255] {
        // Who goes through the preview 1 adapter tells it only whether it failed.
        let seen = bench.run(&component(&exit(code)), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code: code.min(1) });
        let seen = bench.run(&exits(&format!("(call $code (i32.const {code})) unreachable")), &short()).await;
        assert_eq!(seen.ended.end, End::Exited { code });
    }
    for (body, code) in [
        ("(call $exit (i32.const 0)) unreachable", 0),
        ("(call $exit (i32.const 1)) unreachable", 1),
        // Returning says only whether it went well.
        ("i32.const 0", 0),
        ("i32.const 1", 1),
    ] {
        assert_eq!(bench.run(&exits(body), &short()).await.ended.end, End::Exited { code }, "{body}");
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_component_has_no_entry_to_choose() {
    let bench = Bench::new();
    let task = Task { entry: "work".into(), ..bench.task() };
    let end = bench.run_task(&component(&hello()), &task, &short()).await.ended.end;
    let End::InputFailed { reason } = end else { panic!("{end:?}") };
    assert_eq!(
        reason.to_string(),
        "runtime.entry is \"work\", but a component is started by its wasi:cli/run and by nothing else; leave \
         runtime.entry out"
    );
    bench.is_well().await;
}

#[tokio::test]
async fn output_is_exact_apart_and_cut_at_its_limit() {
    let bench = Bench::new();
    let wasm = component(&guest_with(
        "(memory (export \"memory\") 64)",
        r#"(func (export "_start") (local $i i32)
            (loop $next
                (i32.store8 (i32.add (i32.const 4096) (local.get $i)) (i32.rem_u (local.get $i) (i32.const 251)))
                (local.set $i (i32.add (local.get $i) (i32.const 1)))
                (br_if $next (i32.lt_u (local.get $i) (i32.const 2000000))))
            (call $write (i32.const 2) (i32.const 4096) (i32.const 7))
            (call $write (i32.const 1) (i32.const 4096) (i32.const 2000000))
            (call $write (i32.const 2) (i32.const 4096) (i32.const 20000)))"#,
    ));
    let pattern = |len: usize| -> Vec<u8> { (0..len).map(|i| (i % 251) as u8).collect() };
    for limit in [0, 1, 4_095, 4_096, 65_537, 1_999_999, 2_000_000, 3_000_000] {
        let limits = Limits { stdout_bytes: limit, ..short() };
        let seen = bench.run(&wasm, &limits).await;
        assert_eq!(seen.ended.end, End::Exited { code: 0 });
        assert!(seen.stdout == pattern(limit.min(2_000_000) as usize), "{limit}");
        assert!(seen.stderr == [pattern(7), pattern(20_000)].concat());
        assert_eq!((seen.ended.stdout_len, seen.ended.stdout_truncated), (2_000_000, limit < 2_000_000));
        assert_eq!((seen.ended.stderr_len, seen.ended.stderr_truncated), (20_007, false));
    }
    bench.is_well().await;
}

#[tokio::test]
async fn a_flood_is_cut_and_counted_until_it_is_killed() {
    let bench = Bench::new();
    let wasm = component(&guest_with(
        "(memory (export \"memory\") 64)",
        "(func (export \"_start\") (loop $more (call $write (i32.const 1) (i32.const 4096) (i32.const 1000000)) (br $more)))",
    ));
    let limits = Limits { stdout_bytes: 1_000_000, wall_ms: 1_000, ..short() };
    let seen = bench.run(&wasm, &limits).await;
    assert_eq!(seen.ended.end, End::TimedOut { limit_ms: 1_000 });
    assert_eq!(seen.stdout.len(), 1_000_000);
    assert!(seen.ended.stdout_truncated && seen.ended.stdout_len > 2_000_000, "{}", seen.ended.stdout_len);
    bench.is_well().await;
}

#[tokio::test]
async fn loops_and_sleeps_without_end_are_ended_at_the_limit() {
    let bench = Bench::new();
    let write = r#"(data (i32.const 64) "go\n") (func $w (call $write (i32.const 1) (i32.const 64) (i32.const 3)))"#;
    let spin = guest(&format!("{write} (func (export \"_start\") (call $w) (loop (br 0)))"));
    let sleep = guest(&format!(
        r#"{write} (func (export "_start") (call $w)
            (i32.store (i32.const 144) (i32.const 1)) (i64.store (i32.const 152) (i64.const 0x7fffffffffffffff))
            (call $must (call $poll (i32.const 128) (i32.const 256) (i32.const 1) (i32.const 400))))"#
    ));
    let start = component_text(
        r#"(core module $m (func $s (loop (br 0))) (start $s) (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $command (export "run" (func $run))) (export "wasi:cli/run@0.2.0" (instance $command))"#,
    );
    for (wasm, stdout) in [(component(&spin), &b"go\n"[..]), (component(&sleep), b"go\n"), (start, b"")] {
        let limits = Limits { wall_ms: 400, ..short() };
        let module = bench.compile(&wasm).await.unwrap();
        let mut runner = bench.take(&module, &limits).await;
        let began = Instant::now();
        let seen = run_on(&mut runner, &bench.task(), &limits).await;
        assert_eq!(seen.ended.end, End::TimedOut { limit_ms: 400 });
        assert_eq!(seen.stdout, stdout);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        bench.nothing_left().await;
    }
    bench.is_well().await;
}

#[tokio::test]
async fn memory_is_limited_and_told() {
    let bench = Bench::new();
    let bomb = component(&guest(
        r#"(func (export "_start") (local $at i32)
            (loop $more
                (local.set $at (memory.grow (i32.const 16)))
                (if (i32.eq (local.get $at) (i32.const -1)) (then unreachable))
                (memory.fill (i32.mul (local.get $at) (i32.const 65536)) (i32.const 1) (i32.const 1048576))
                (br $more)))"#,
    ));
    let seen = bench.run(&bomb, &short()).await;
    assert_eq!(seen.ended.end, End::OutOfMemory { limit: 64 << 20 });
    assert!((60 << 20..=64 << 20).contains(&seen.ended.memory_peak), "{}", seen.ended.memory_peak);
    let end = bench.run(&component(&hello()), &Limits { memory_bytes: 131_071, ..short() }).await.ended.end;
    assert!(
        matches!(&end, End::InputFailed { reason: InputFault::Module(ModuleError::MemoryMinimum { .. }) }),
        "{end:?}"
    );
    bench.is_well().await;
}

fn trap(end: End) -> String {
    match end {
        End::Trapped { reason } => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn traps_are_told_with_their_reason_and_leave_the_runner_usable() {
    let bench = Bench::new();
    let unreachable = "(func $inner unreachable) (func $main (export \"_start\") (call $inner))";
    let divide = "(func (export \"_start\") (drop (i32.div_u (i32.const 1) (i32.const 0))))";
    let outside = "(func (export \"_start\") (drop (i32.load (i32.const 0x7fff0000))))";
    let deep = "(func $f (export \"_start\") (call $f) (call $f))";
    for (body, named) in
        [(unreachable, "in inner < main"), (divide, "divide by zero"), (outside, "out of bounds"), (deep, "stack")]
    {
        let module = bench.compile(&component(&guest(body))).await.unwrap();
        let mut runner = bench.take(&module, &short()).await;
        for _ in 0..2 {
            let reason = trap(run_on(&mut runner, &bench.task(), &short()).await.ended.end);
            assert!(reason.contains(named), "{reason}");
        }
    }
    bench.is_well().await;
}

/// Asks for this many random bytes at once.
fn random(bytes: u64) -> Vec<u8> {
    command(
        r#"(import "wasi:random/random@0.2.0" (instance $random
            (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
        (core module $libc (memory (export "memory") 64)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 64)))
        (core instance $libc (instantiate $libc))
        (core func $random (canon lower (func $random "get-random-bytes")
            (memory (core memory $libc "memory")) (realloc (core func $libc "realloc"))))"#,
        r#"(import "host" "random" (func $random (param i64 i32)))"#,
        &format!("(call $random (i64.const {bytes}) (i32.const 8)) i32.const 0"),
        r#"(with "host" (instance (export "random" (func $random))))"#,
    )
}

#[tokio::test]
async fn what_a_host_call_hands_over_is_bounded() {
    let bench = Bench::new();
    assert_eq!(bench.run(&random(1 << 20), &short()).await.ended.end, End::Exited { code: 0 });
    for bytes in [(1 << 20) + 1, 1 << 40] {
        let reason = trap(bench.run(&random(bytes), &short()).await.ended.end);
        assert!(reason.contains("exceeds limit 1048576"), "{reason}");
    }
    bench.is_well().await;
}

/// Opens /out/file, writes and reads it by streams without waiting, and fails unless it reads what it wrote.
const STREAMS: &str = r#"
    (import "wasi:io/error@0.2.0" (instance $error (export "error" (type (sub resource)))))
    (alias export $error "error" (type $failure))
    (import "wasi:io/streams@0.2.0" (instance $streams
        (export "input-stream" (type $in (sub resource)))
        (export "output-stream" (type $out (sub resource)))
        (alias outer 1 $failure (type $e))
        (export "error" (type $error (eq $e)))
        (type $variant (variant (case "last-operation-failed" (own $error)) (case "closed")))
        (export "stream-error" (type $stream-error (eq $variant)))
        (export "[method]output-stream.check-write"
            (func (param "self" (borrow $out)) (result (result u64 (error $stream-error)))))
        (export "[method]output-stream.write"
            (func (param "self" (borrow $out)) (param "contents" (list u8)) (result (result (error $stream-error)))))
        (export "[method]input-stream.read"
            (func (param "self" (borrow $in)) (param "len" u64) (result (result (list u8) (error $stream-error)))))))
    (alias export $streams "input-stream" (type $input))
    (alias export $streams "output-stream" (type $output))
    (import "wasi:filesystem/types@0.2.0" (instance $files
        (export "descriptor" (type $d (sub resource)))
        (alias outer 1 $input (type $i))
        (export "input-stream" (type $in (eq $i)))
        (alias outer 1 $output (type $o))
        (export "output-stream" (type $out (eq $o)))
        (type $enum (enum "access" "would-block" "already" "bad-descriptor" "busy" "deadlock" "quota" "exist"
            "file-too-large" "illegal-byte-sequence" "in-progress" "interrupted" "invalid" "io" "is-directory" "loop"
            "too-many-links" "message-size" "name-too-long" "no-device" "no-entry" "no-lock" "insufficient-memory"
            "insufficient-space" "not-directory" "not-empty" "not-recoverable" "unsupported" "no-tty" "no-such-device"
            "overflow" "not-permitted" "pipe" "read-only" "invalid-seek" "text-file-busy" "cross-device"))
        (export "error-code" (type $code (eq $enum)))
        (type $pf (flags "symlink-follow"))
        (export "path-flags" (type $path-flags (eq $pf)))
        (type $of (flags "create" "directory" "exclusive" "truncate"))
        (export "open-flags" (type $open-flags (eq $of)))
        (type $df (flags "read" "write" "file-integrity-sync" "data-integrity-sync" "requested-write-sync"
            "mutate-directory"))
        (export "descriptor-flags" (type $descriptor-flags (eq $df)))
        (export "[method]descriptor.open-at" (func (param "self" (borrow $d)) (param "path-flags" $path-flags)
            (param "path" string) (param "open-flags" $open-flags) (param "flags" $descriptor-flags)
            (result (result (own $d) (error $code)))))
        (export "[method]descriptor.write-via-stream"
            (func (param "self" (borrow $d)) (param "offset" u64) (result (result (own $out) (error $code)))))
        (export "[method]descriptor.read-via-stream"
            (func (param "self" (borrow $d)) (param "offset" u64) (result (result (own $in) (error $code)))))))
    (alias export $files "descriptor" (type $descriptor))
    (import "wasi:filesystem/preopens@0.2.0" (instance $preopens
        (alias outer 1 $descriptor (type $d))
        (export "descriptor" (type $descriptor (eq $d)))
        (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))))
    (core module $libc (memory (export "memory") 2)
        (global $next (mut i32) (i32.const 4096))
        (func (export "realloc") (param i32 i32 i32 i32) (result i32)
            (global.get $next)
            (global.set $next (i32.add (global.get $next) (i32.and (i32.add (local.get 3) (i32.const 15)) (i32.const -16))))))
    (core instance $libc (instantiate $libc))
    (alias core export $libc "memory" (core memory $memory))
    (alias core export $libc "realloc" (core func $realloc))
    (core func $directories (canon lower (func $preopens "get-directories") (memory $memory) (realloc $realloc)))
    (core func $open (canon lower (func $files "[method]descriptor.open-at") (memory $memory)))
    (core func $writer (canon lower (func $files "[method]descriptor.write-via-stream") (memory $memory)))
    (core func $reader (canon lower (func $files "[method]descriptor.read-via-stream") (memory $memory)))
    (core func $room (canon lower (func $streams "[method]output-stream.check-write") (memory $memory)))
    (core func $write (canon lower (func $streams "[method]output-stream.write") (memory $memory)))
    (core func $read (canon lower (func $streams "[method]input-stream.read") (memory $memory) (realloc $realloc)))"#;

#[tokio::test]
async fn files_are_written_and_read_by_streams_that_do_not_wait() {
    let bench = Bench::new();
    // Each answer lies at 16: whether it is an error, then, from 20 or 24 on, what it is.
    let wasm = command(
        STREAMS,
        r#"(import "libc" "memory" (memory 1))
        (import "host" "directories" (func $directories (param i32)))
        (import "host" "open" (func $open (param i32 i32 i32 i32 i32 i32 i32)))
        (import "host" "writer" (func $writer (param i32 i64 i32)))
        (import "host" "reader" (func $reader (param i32 i64 i32)))
        (import "host" "room" (func $room (param i32 i32)))
        (import "host" "write" (func $write (param i32 i32 i32 i32)))
        (import "host" "read" (func $read (param i32 i64 i32)))
        (data (i32.const 128) "file") (data (i32.const 256) "one two three")
        (func $good (if (i32.load8_u (i32.const 16)) (then unreachable)))"#,
        r#"(local $file i32) (local $stream i32)
        (call $directories (i32.const 16))
        ;; The second is /out; 9 is create and truncate, 3 read and write.
        (call $open (i32.load offset=12 (i32.load (i32.const 16))) (i32.const 0) (i32.const 128) (i32.const 4)
            (i32.const 9) (i32.const 3) (i32.const 16))
        (call $good)
        (local.set $file (i32.load (i32.const 20)))
        (call $writer (local.get $file) (i64.const 0) (i32.const 16))
        (call $good)
        (local.set $stream (i32.load (i32.const 20)))
        (call $write (local.get $stream) (i32.const 256) (i32.const 4) (i32.const 16))
        (call $good)
        (call $room (local.get $stream) (i32.const 16))
        (call $good)
        (if (i64.lt_u (i64.load (i32.const 24)) (i64.const 9)) (then unreachable))
        (call $write (local.get $stream) (i32.const 260) (i32.const 9) (i32.const 16))
        (call $good)
        (call $reader (local.get $file) (i64.const 4) (i32.const 16))
        (call $good)
        (call $read (i32.load (i32.const 20)) (i64.const 100) (i32.const 16))
        (call $good)
        ;; "two three" is 9 bytes that begin with 0x206f7774.
        (i32.or
            (i32.ne (i32.load (i32.const 24)) (i32.const 9))
            (i32.ne (i32.load (i32.load (i32.const 20))) (i32.const 0x206f7774)))"#,
        r#"(with "libc" (instance $libc)) (with "host" (instance
            (export "directories" (func $directories)) (export "open" (func $open)) (export "writer" (func $writer))
            (export "reader" (func $reader)) (export "room" (func $room)) (export "write" (func $write))
            (export "read" (func $read))))"#,
    );
    let task = bench.task();
    let seen = bench.run_task(&wasm, &task, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    assert_eq!(std::fs::read(bench.folders.output(&task.attempt).join("file")).unwrap(), b"one two three");
    // A file that reaches the limit ends the run whichever way it is written.
    let limits = Limits { output_bytes: 8, ..short() };
    let end = bench.run(&wasm, &limits).await.ended.end;
    assert!(matches!(end, End::OutputLimit { .. } | End::Trapped { .. }), "{end:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn imports_that_are_not_offered_are_refused_by_name_before_anything_runs() {
    let bench = Bench::new();
    let importing = |name: &str| command(&format!("(import \"{name}\" (instance))"), "", "i32.const 0", "");
    for name in [
        "wasi:sockets/instance-network@0.2.0",
        "wasi:sockets/tcp-create-socket@0.2.3",
        "wasi:sockets/udp-create-socket@0.2.3",
        "wasi:sockets/ip-name-lookup@0.2.0",
        "wasi:http/outgoing-handler@0.2.0",
        "wasi:nn/graph@0.2.0",
        "wasi:cli/environment@0.3.0",
        "evil:host/steal@1.0.0",
    ] {
        let error = bench.refusal(&importing(name)).await.to_string();
        assert_eq!(error, format!("the module imports what is not offered: {name} (interface)"));
    }
    // Types of sockets without a way to make one, as C libraries import them.
    let seen = bench.run(&importing("wasi:sockets/tcp@0.2.0"), &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    bench.is_well().await;
}

/// Why a component that compiles gets no runner.
async fn unlinkable(bench: &Bench, wasm: &[u8]) -> String {
    let module = bench.compile(wasm).await.unwrap();
    match bench.pool.take(&module, &short()).await {
        Err(CompileError::Module(error @ ModuleError::Unlinkable { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_interface_used_as_it_is_not_defined_is_the_input_s_fault() {
    let bench = Bench::new();
    for (function, named) in
        [(r#"(export "exit" (func (param "status" string)))"#, "exit"), (r#"(export "explode" (func))"#, "explode")]
    {
        let import = format!("(import \"wasi:cli/exit@0.2.0\" (instance {function}))");
        let reason = unlinkable(&bench, &command(&import, "", "i32.const 0", "")).await;
        assert!(reason.contains("does not fit WASI preview 2") && reason.contains(named), "{reason}");
    }
    let reason =
        unlinkable(&bench, &component_text(r#"(instance $i) (export "wasi:cli/run@0.2.0" (instance $i))"#)).await;
    assert!(reason.contains("run"), "{reason}");
    // A run of another type is found when it is called.
    let text = r#"(core module $m (func (export "run") (param i32)))
        (core instance $i (instantiate $m))
        (func $run (param "n" u32) (canon lift (core func $i "run")))
        (instance $command (export "run" (func $run))) (export "wasi:cli/run@0.2.0" (instance $command))"#;
    trap(bench.run(&component_text(text), &short()).await.ended.end);
    bench.is_well().await;
}

#[tokio::test]
async fn what_is_no_command_is_refused() {
    let bench = Bench::new();
    let end = bench.refusal(&component_text("(core module)")).await;
    assert_eq!(end, ModuleError::NotCommand { has: Vec::new() });
    let whole = component(&hello());
    for length in [9, 40, whole.len() / 4, whole.len() / 2, whole.len() - 1] {
        let error = bench.refusal(&whole[..length]).await;
        assert!(matches!(error, ModuleError::Invalid { .. } | ModuleError::NotCommand { .. }), "{length}: {error:?}");
    }
    let mut garbage = whole.clone();
    garbage.iter_mut().skip(8).step_by(7).for_each(|byte| *byte ^= 0x5a);
    assert!(matches!(bench.refusal(&garbage).await, ModuleError::Invalid { .. } | ModuleError::Feature { .. }));
    // What its own engine made of it.
    let artifact = wasmtime::Engine::default().precompile_component(&whole).unwrap();
    assert_eq!(bench.refusal(&artifact).await, ModuleError::Precompiled);
    bench.is_well().await;
}

const RUN: &str = r#"(core module $m (func (export "run") (result i32) i32.const 0))
    (core instance $i (instantiate $m)) (func $run (result (result)) (canon lift (core func $i "run")))
    (instance $command (export "run" (func $run))) (export "wasi:cli/run@0.2.0" (instance $command))"#;

#[tokio::test]
async fn modules_inside_are_looked_at_and_nesting_ends() {
    let bench = Bench::new();
    let refused = async |text: &str| bench.refusal(&component_text(&format!("{text} {RUN}"))).await.to_string();
    assert!(refused("(component (core module (memory i64 1)))").await.contains("memory64"));
    assert!(refused("(core module (memory 1)) (core module (memory 1))").await.contains("more than one memory"));
    assert!(refused("(core module (table 10000000 funcref))").await.contains("10000000 elements"));
    let huge = format!("(component (core module (func {})))", "nop ".repeat(1_100_000));
    assert!(refused(&huge).await.contains("body of 1100002 bytes"));
    let many = format!("(core module {})", "(func)".repeat(60_000));
    assert!(refused(&many.repeat(2)).await.contains("120000 functions"));
    assert!(refused(&format!("{}{}", "(component ".repeat(50), ")".repeat(50))).await.contains("nested more than"));
    assert!(refused(&"(component)".repeat(101)).await.contains("more than 100 modules and components"));
    bench.is_well().await;
}

#[tokio::test]
async fn instances_that_multiply_come_to_an_end() {
    let bench = Bench::new();
    // Each component makes sixteen instances of the one inside it, the innermost one of a module: 16^5.
    let mut bomb = "(component $c (core module $m (func)) (core instance (instantiate $m)))".to_owned();
    for _ in 0..5 {
        bomb = format!("(component $c {bomb} {})", "(instance (instantiate $c))".repeat(16));
    }
    let wasm = component_text(&format!("{bomb} (instance (instantiate $c)) {RUN}"));
    let began = Instant::now();
    let error = match bench.compile(&wasm).await {
        Err(error) => error,
        Ok(module) => bench.pool.take(&module, &short()).await.unwrap_err(),
    };
    assert!(matches!(&error, CompileError::Module(ModuleError::CompileLimit { .. })), "{error}");
    assert!(began.elapsed() < Duration::from_secs(150), "{:?}", began.elapsed());

    let wasm =
        component_text(&format!("(core module $n (func)) {} {RUN}", "(core instance (instantiate $n))".repeat(200)));
    let reason = trap(bench.run(&wasm, &short()).await.ended.end);
    assert!(reason.contains("instance count too high"), "{reason}");
    // One memory, but instantiated twice.
    let wasm =
        component_text(&format!("(core module $n (memory 1)) {} {RUN}", "(core instance (instantiate $n))".repeat(2)));
    let reason = trap(bench.run(&wasm, &short()).await.ended.end);
    assert!(reason.contains("memory count too high"), "{reason}");
    bench.is_well().await;
}

#[tokio::test]
async fn a_deterministic_command_is_the_same_each_time_and_counts_fuel() {
    let bench = Bench::new();
    let wasm = component(&guest(
        r#"(func (export "_start")
            (call $must (call $random (i32.const 64) (i32.const 16)))
            (call $must (call $clock (i32.const 0) (i64.const 0) (i32.const 80)))
            (call $must (call $clock (i32.const 1) (i64.const 0) (i32.const 88)))
            (call $write (i32.const 1) (i32.const 64) (i32.const 32)))"#,
    ));
    let limits = Limits { deterministic: true, ..short() };
    let runs = [bench.run(&wasm, &limits).await, bench.run(&wasm, &limits).await];
    assert_eq!(runs[0].ended.end, End::Exited { code: 0 });
    assert_eq!(runs[0].stdout.len(), 32);
    assert_eq!(runs[0].stdout, runs[1].stdout);
    assert_eq!(runs[0].ended.fuel, runs[1].ended.fuel);
    assert!(runs[0].ended.fuel.is_some_and(|fuel| fuel > 20), "{:?}", runs[0].ended.fuel);
    let free = [bench.run(&wasm, &short()).await, bench.run(&wasm, &short()).await];
    assert_ne!(free[0].stdout, free[1].stdout);
}

#[tokio::test]
async fn a_command_sees_its_arguments_and_environment_and_nothing_else() {
    let bench = Bench::new();
    let wasm = component(&tells());
    let task = Task {
        argv0: "sweep.wasm".into(),
        args: vec!["--lr".into(), "ü".into()],
        env: vec![("SOUK_TASK".into(), "3".into()), ("EMPTY".into(), String::new())],
        ..bench.task()
    };
    let seen = bench.run_task(&wasm, &task, &short()).await;
    assert_eq!(seen.stdout, "sweep.wasm\0--lr\0ü\0".as_bytes());
    assert_eq!(seen.stderr, b"SOUK_TASK=3\0EMPTY=\0");
}

#[tokio::test]
async fn a_compiled_component_is_found_again_in_the_cache() {
    let bench = Bench::new();
    let wasm = component(&hello());
    bench.compile(&wasm).await.unwrap();
    let pool = bench.other_pool();
    let nowhere = souk_sandbox::ModuleSource::Path(Path::new("/not there").to_owned());
    let found = pool.compile(&nowhere, blake3::hash(&wasm).as_bytes(), false).await.unwrap();
    assert!(found.is_component());
    let mut runner = pool.take(&found, &short()).await.unwrap();
    let task = bench.task();
    runner.folders().prepare(&task).unwrap();
    assert_eq!(run_on(&mut runner, &task, &short()).await.stdout, b"hello\n");
}

/// How long calls take, for who asks: `cargo test --release -p souk-sandbox -- --ignored --nocapture calls`.
#[tokio::test]
#[ignore = "a measurement"]
async fn calls_of_a_module_and_of_its_component() {
    let bench = Bench::new();
    for (name, wasm) in [("module", hello()), ("component", component(&hello()))] {
        let began = Instant::now();
        let module = bench.compile(&wasm).await.unwrap();
        let compiled = began.elapsed();
        let began = Instant::now();
        let mut runner = bench.take(&module, &short()).await;
        let taken = began.elapsed();
        let task = bench.task();
        let mut times = Vec::new();
        for _ in 0..500 {
            times.push(run_on(&mut runner, &task, &short()).await.ended.run_us);
        }
        times.sort_unstable();
        println!(
            "{name}: compiled in {compiled:?}, taken in {taken:?}, a call p50 {} us, p95 {} us",
            times[250], times[475]
        );
    }
}
