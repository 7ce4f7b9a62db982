//! Guests in WebAssembly text, good and bad.

/// The imports a guest of these tests may use, a memory, and a body.
pub(crate) fn guest(body: &str) -> Vec<u8> {
    guest_with("(memory (export \"memory\") 2)", body)
}

/// The same with another memory.
pub(crate) fn guest_with(memory: &str, body: &str) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module
            (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_filestat_set_size" (func $set_size (param i32 i64) (result i32)))
            (import "wasi_snapshot_preview1" "fd_readdir" (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_open" (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_link" (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_create_directory" (func $mkdir (param i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_filestat_set_times" (func $set_times (param i32 i32 i32 i32 i64 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
            (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "args_get" (func $args (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes (param i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
            {memory}
            ;; Writes $len bytes from $at to $fd in one call, which must take them all.
            (func $write (param $fd i32) (param $at i32) (param $len i32)
                (i32.store (i32.const 8) (local.get $at))
                (i32.store (i32.const 12) (local.get $len))
                (if (call $fd_write (local.get $fd) (i32.const 8) (i32.const 1) (i32.const 16)) (then unreachable))
                (if (i32.ne (i32.load (i32.const 16)) (local.get $len)) (then unreachable)))
            ;; Exits with $code unless it is 0.
            (func $must (param $code i32) (if (local.get $code) (then (call $exit (local.get $code)))))
            ;; Opens a path of folder $dir; 0 if it cannot. Flags: 1 create, 8 truncate.
            (func $open (param $dir i32) (param $at i32) (param $len i32) (param $flags i32) (param $rights i64) (result i32)
                (if (result i32) (call $path_open (local.get $dir) (i32.const 1) (local.get $at) (local.get $len)
                        (local.get $flags) (local.get $rights) (local.get $rights) (i32.const 0) (i32.const 20))
                    (then (i32.const 0)) (else (i32.load (i32.const 20)))))
            {body})"#
    ))
    .expect("the test's own text")
}

/// A guest without imports.
pub(crate) fn bare(body: &str) -> Vec<u8> {
    wat::parse_str(format!("(module {body})")).expect("the test's own text")
}

/// Writes the block of its arguments to stdout and that of its environment to stderr.
pub(crate) fn tells() -> Vec<u8> {
    guest(
        r#"(func (export "_start")
            (call $must (call $args_sizes (i32.const 64) (i32.const 68)))
            (call $must (call $args (i32.const 1024) (i32.const 4096)))
            (call $write (i32.const 1) (i32.const 4096) (i32.load (i32.const 68)))
            (call $must (call $environ_sizes (i32.const 64) (i32.const 68)))
            (call $must (call $environ (i32.const 1024) (i32.const 4096)))
            (call $write (i32.const 2) (i32.const 4096) (i32.load (i32.const 68))))"#,
    )
}

/// Writes "hello\n" and returns.
pub(crate) fn hello() -> Vec<u8> {
    guest(
        r#"(data (i32.const 64) "hello\n")
           (func (export "_start") (call $write (i32.const 1) (i32.const 64) (i32.const 6)))"#,
    )
}

/// Exits with a code.
pub(crate) fn exit(code: u32) -> Vec<u8> {
    guest(&format!("(func (export \"_start\") (call $exit (i32.const {code})))"))
}

/// The same guest as a component: a WASI preview 2 command made of a module for preview 1.
pub(crate) fn component(module: &[u8]) -> Vec<u8> {
    use wasi_preview1_component_adapter_provider::{
        WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
    };
    let encoder = wit_component::ComponentEncoder::default().module(module).expect("a module");
    let adapted = encoder
        .adapter(WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER)
        .expect("an adapter");
    adapted.validate(true).encode().expect("a command")
}

/// A guest and the same as a component.
pub(crate) fn both(module: Vec<u8>) -> [Vec<u8>; 2] {
    let component = component(&module);
    [module, component]
}

/// A component written as text.
pub(crate) fn component_text(text: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {text})")).expect("the test's own text")
}

/// A component whose `run` is this body of a function `(result i32)`, of a module with these imports: 0 is success,
/// 1 failure.
pub(crate) fn command(imports: &str, module: &str, body: &str, with: &str) -> Vec<u8> {
    component_text(&format!(
        r#"{imports}
        (core module $m {module} (func (export "run") (result i32) {body}))
        (core instance $i (instantiate $m {with}))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $command (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $command))"#
    ))
}
