//! Guests, written as text.

use std::path::PathBuf;

use crate::home::Home;

/// What most guests import, and memory.
const HEAD: &str = r#"
    (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
    (memory (export "memory") 4)
    (func $write (param $at i32) (param $len i32)
        (i32.store (i32.const 0) (local.get $at))
        (i32.store (i32.const 4) (local.get $len))
        (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
    (func $now (result i64)
        (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 16)))
        (i64.load (i32.const 16)))"#;

/// Writes a module of this text, after the common imports, and returns its path.
pub(super) fn module(home: &Home, name: &str, body: &str) -> PathBuf {
    home.write(name, wat::parse_str(format!("(module {HEAD} {body})")).unwrap())
}

/// The same as a component, a command for WASI preview 2.
pub(super) fn component(home: &Home, name: &str, body: &str) -> PathBuf {
    use wasi_preview1_component_adapter_provider::{
        WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
    };
    let module = wat::parse_str(format!("(module {HEAD} {body})")).unwrap();
    let encoder = wit_component::ComponentEncoder::default().module(&module).unwrap();
    let adapted = encoder.adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER);
    home.write(name, adapted.unwrap().encode().unwrap())
}

/// Says `begin`, computes for this long, then says its first argument, a line each.
pub(super) fn busy(home: &Home, ms: u64) -> PathBuf {
    let body = format!(
        r#"(data (i32.const 32) "begin\n")
        (func (export "_start") (local $end i64) (local $from i32)
            (call $write (i32.const 32) (i32.const 6))
            (local.set $end (i64.add (call $now) (i64.const {})))
            (loop $again (br_if $again (i64.lt_u (call $now) (local.get $end))))
            (drop (call $args_sizes_get (i32.const 64) (i32.const 68)))
            (drop (call $args_get (i32.const 128) (i32.const 1024)))
            (local.set $from (i32.load (i32.const 132)))
            ;; The arguments end with a nul, which becomes the line's end.
            (i32.store8 (i32.add (i32.const 1023) (i32.load (i32.const 68))) (i32.const 10))
            (call $write (local.get $from)
                (i32.sub (i32.add (i32.const 1024) (i32.load (i32.const 68))) (local.get $from))))"#,
        ms * 1_000_000
    );
    module(home, "busy.wasm", &body)
}

/// Sleeps for this long, says nothing and leaves the processor to others.
pub(super) fn sleeps(home: &Home, name: &str, ms: u64) -> PathBuf {
    // One subscription at 64: the monotonic clock, so long from now. The rest of it is zero.
    let body = format!(
        r#"(func (export "_start")
            (i32.store (i32.const 80) (i32.const 1))
            (i64.store (i32.const 88) (i64.const {}))
            (if (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 192)) (then unreachable)))"#,
        ms * 1_000_000
    );
    module(home, name, &body)
}

/// Says `begin` and computes for ever, without a single call.
pub(super) fn endless(home: &Home) -> PathBuf {
    let body = r#"(data (i32.const 32) "begin\n")
        (func (export "_start") (call $write (i32.const 32) (i32.const 6)) (loop $again (br $again)))"#;
    module(home, "endless.wasm", body)
}

/// Exits with this code.
pub(super) fn exits(home: &Home, code: u32) -> PathBuf {
    module(home, &format!("exit-{code}.wasm"), &format!(r#"(func (export "_start") (call $exit (i32.const {code})))"#))
}

/// Writes `line a`, `line b` and so on, one every `step_ms`; at most 26.
pub(super) fn lines(home: &Home, count: u64, step_ms: u64) -> PathBuf {
    let body = format!(
        r#"(data (i32.const 32) "line a\n")
        (func (export "_start") (local $next i64) (local $left i32)
            (local.set $left (i32.const {count}))
            (local.set $next (call $now))
            (loop $again
                (loop $wait (br_if $wait (i64.lt_u (call $now) (local.get $next))))
                (call $write (i32.const 32) (i32.const 7))
                (i32.store8 (i32.const 37) (i32.add (i32.load8_u (i32.const 37)) (i32.const 1)))
                (local.set $next (i64.add (local.get $next) (i64.const {})))
                (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                (br_if $again (local.get $left))))"#,
        step_ms * 1_000_000
    );
    module(home, "lines.wasm", &body)
}
