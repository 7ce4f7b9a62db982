//! Modules that are refused, each for what it is, before and while they are compiled.

use std::{path::Path, sync::Arc};

use souk_sandbox::{CompileError, End, Limits, ModuleError, ModuleSource};

use crate::{
    bench::{Bench, short},
    guests::{bare, guest, hello},
};

fn cached(bench: &Bench) -> Vec<std::path::PathBuf> {
    let listing = std::fs::read_dir(bench.root().join("cache")).unwrap();
    listing
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "souk-module"))
        .collect()
}

#[tokio::test]
async fn what_is_no_module_is_refused() {
    let bench = Bench::new();
    assert!(matches!(bench.refusal(b"").await, ModuleError::NotWasm { .. }));
    assert!(matches!(bench.refusal(b"#!/bin/sh\nid\n").await, ModuleError::NotWasm { .. }));
    assert!(matches!(bench.refusal(b"(module)").await, ModuleError::NotWasm { .. }));
    assert_eq!(bench.refusal(b"\0asm\x0d\0\x01\0").await, ModuleError::NotCommand { has: Vec::new() });
    let whole = hello();
    for length in [4, 7, 9, 40, whole.len() / 2, whole.len() - 1] {
        let error = bench.refusal(&whole[..length]).await;
        let told = matches!(error, ModuleError::NotWasm { .. } | ModuleError::Invalid { .. });
        assert!(told, "{length}: {error:?}");
    }
    // Cut after its header it is a module, an empty one.
    let seen = bench.run(&whole[..8], &short()).await;
    assert!(matches!(seen.ended.end, End::InputFailed { .. }), "{:?}", seen.ended.end);
    bench.is_well().await;
}

#[tokio::test]
async fn machine_code_is_refused_even_if_this_very_engine_made_it() {
    let bench = Bench::new();
    let engine = wasmtime::Engine::default();
    let artifact = engine.precompile_module(&hello()).unwrap();
    assert!(artifact.starts_with(b"\x7fELF"));
    assert_eq!(bench.refusal(&artifact).await, ModuleError::Precompiled);
    bench.is_well().await;
}

#[tokio::test]
async fn imports_that_are_not_offered_are_listed_by_name() {
    let bench = Bench::new();
    let wasm = bare(
        r#"(import "env" "gpu_matmul" (func (param i32)))
           (import "wasi_snapshot_preview1" "sock_open" (func (param i32) (result i32)))
           (import "wasi_snapshot_preview1" "fd_write" (func (param i32)))
           (func (export "_start"))"#,
    );
    assert_eq!(
        bench.refusal(&wasm).await.to_string(),
        "the module imports what is not offered: env.gpu_matmul ((i32) -> ()), \
         wasi_snapshot_preview1.sock_open ((i32) -> (i32)), \
         wasi_snapshot_preview1.fd_write ((i32) -> (); it is offered as (i32, i32, i32, i32) -> (i32))"
    );
    bench.is_well().await;
}

#[tokio::test]
async fn proposals_and_sizes_are_refused_by_name() {
    let bench = Bench::new();
    let feature = async |text: &str| bench.refusal(&bare(text)).await.to_string();
    assert!(feature("(memory i64 1)").await.contains("memory64"));
    assert!(feature("(memory 1 2 shared)").await.contains("shared memory"));
    assert!(feature("(memory 1) (memory 1)").await.contains("multi-memory"));
    assert!(feature("(table 10000000 funcref)").await.contains("10000000 elements"));
    assert!(feature(&"(func)".repeat(100_001)).await.contains("100001 functions"));
    let huge = format!("(func {})", "nop ".repeat(1_100_000));
    assert!(feature(&huge).await.contains("function 0 has a body of 1100002 bytes"));
    bench.is_well().await;
}

#[tokio::test]
async fn a_file_over_64_mib_is_refused_unread() {
    let bench = Bench::new();
    let path = bench.root().join("huge.wasm");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let error = bench.pool.compile(&ModuleSource::Path(path), &[0; 32], false).await;
    let expected = ModuleError::TooLarge { bytes: (64 << 20) + 1, limit: 64 << 20 };
    assert_eq!(error.unwrap_err(), CompileError::Module(expected));
    bench.is_well().await;
}

#[tokio::test]
async fn bytes_that_are_not_what_was_announced_are_refused() {
    let bench = Bench::new();
    let source = ModuleSource::Bytes(Arc::from(hello()));
    let error = bench.pool.compile(&source, &[1; 32], false).await.unwrap_err();
    assert!(matches!(error, CompileError::Module(ModuleError::Hash { .. })));
    assert!(error.to_string().contains(&"01".repeat(32)));
    assert_eq!(cached(&bench), Vec::<std::path::PathBuf>::new());
}

fn leb(mut value: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A module with one function of nine i64 parameters and this body, beside an empty entry: in bytes, for as text
/// it would be too long.
fn one_function(body: Vec<u8>) -> Vec<u8> {
    let sized = |content: Vec<u8>| [leb(content.len() as u32), content].concat();
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    let mut section = |id: u8, content: Vec<u8>| {
        module.push(id);
        module.extend(sized(content));
    };
    let wide = [&[0x60, 9][..], &[0x7e; 9], &[1, 0x7e]].concat();
    section(1, [vec![2, 0x60, 0, 0], wide].concat());
    section(3, vec![2, 0, 1]);
    section(7, [vec![1, 6], b"_start".to_vec(), vec![0, 0]].concat());
    section(10, [vec![2, 2, 0, 0x0b], sized(body)].concat());
    module
}

#[tokio::test]
async fn a_function_just_under_the_limit_compiles() {
    let bench = Bench::new();
    // No locals; then, 130,000 times, a = rotl(a, b).
    let mut body = vec![0];
    for n in 0..130_000u32 {
        let (a, b) = ((n % 9) as u8, ((n * 7 + 3) % 9) as u8);
        body.extend([0x20, a, 0x20, b, 0x89, 0x21, a]);
    }
    body.extend([0x20, 0, 0x0b]);
    assert!((900_000..1 << 20).contains(&body.len()));
    let seen = bench.run(&one_function(body), &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
}

#[tokio::test]
async fn a_compile_bomb_ends_at_the_compile_limit() {
    let bench = Bench::new();
    // 500 locals beside the parameters; then, 50,000 times, `if (p) a = rotl(a, b)`: every local lives all the
    // way, and each may have either of two values after each step.
    let mut body = [vec![1], leb(500), vec![0x7e]].concat();
    for n in 0..50_000u32 {
        let (a, b) = (leb(n % 509), leb((n * 7 + 3) % 509));
        body.extend([0x20, (n % 9) as u8, 0xa7, 0x04, 0x40, 0x20]);
        body.extend([&a[..], &[0x20], &b, &[0x89, 0x21], &a, &[0x0b]].concat());
    }
    body.extend([0x20, 0, 0x0b]);
    assert!(body.len() < 1 << 20);
    let error = bench.refusal(&one_function(body)).await;
    assert!(matches!(error, ModuleError::CompileLimit { .. }), "{error:?}");
    bench.is_well().await;
}

#[tokio::test]
async fn a_compiled_module_is_found_again_by_the_next_pool_with_the_same_secret() {
    let bench = Bench::new();
    let wasm = hello();
    bench.compile(&wasm).await.unwrap();
    let [file] = &cached(&bench)[..] else { panic!("one file") };
    let modified = |path: &Path| std::fs::metadata(path).unwrap().modified().unwrap();
    let first = modified(file);
    let pool = |secret| {
        let config = crate::bench::config(bench.root(), "other", 0);
        souk_sandbox::Pool::new(souk_sandbox::PoolConfig { secret, ..config })
    };
    // The source is gone: only the cache can answer.
    let nowhere = ModuleSource::Path(bench.root().join("not there"));
    let hash = *blake3::hash(&wasm).as_bytes();
    let found = pool([9; 32]).compile(&nowhere, &hash, false).await.unwrap();
    assert_eq!(found.hash(), &hash);
    assert_eq!(modified(file), first);
    assert!(pool([9; 32]).compile(&nowhere, &hash, true).await.is_err());
    assert!(pool([8; 32]).compile(&nowhere, &hash, false).await.is_err());
}

#[tokio::test]
async fn a_cache_file_that_somebody_wrote_to_is_compiled_anew() {
    let bench = Bench::new();
    let wasm = guest("(func (export \"_start\") (call $exit (i32.const 9)))");
    bench.compile(&wasm).await.unwrap();
    let [file] = &cached(&bench)[..] else { panic!("one file") };
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(file, &bytes).unwrap();
    let pool = bench.other_pool();
    let source = ModuleSource::Bytes(Arc::from(&wasm[..]));
    let hash = *blake3::hash(&wasm).as_bytes();
    let module = pool.compile(&source, &hash, false).await.unwrap();
    let mut runner = pool.take(&module, &short()).await.unwrap();
    let task = bench.task();
    runner.folders().prepare(&task).unwrap();
    let seen = crate::bench::run_on(&mut runner, &task, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 9 });
    assert_ne!(std::fs::read(file).unwrap(), bytes);
}

#[tokio::test]
async fn many_callers_of_one_module_compile_it_once() {
    let bench = Bench::new();
    let wasm = hello();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let pool = bench.pool.clone();
            let source = ModuleSource::Bytes(Arc::from(&wasm[..]));
            let hash = *blake3::hash(&wasm).as_bytes();
            tokio::spawn(async move { pool.compile(&source, &hash, false).await.map(|_| ()) })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(cached(&bench).len(), 1);
}

#[tokio::test]
async fn a_module_runs_only_in_the_mode_it_is_compiled_for() {
    let bench = Bench::new();
    let module = bench.compile(&hello()).await.unwrap();
    let limits = Limits { deterministic: true, ..short() };
    let error = bench.pool.take(&module, &limits).await.unwrap_err();
    assert!(error.to_string().contains("compiled for deterministic = false"));
}

/// Writes 16 random bytes, the clock twice, and a NaN made of 0/0.
fn entropy() -> Vec<u8> {
    guest(
        r#"(func (export "_start")
            (call $must (call $random (i32.const 64) (i32.const 16)))
            (call $must (call $clock (i32.const 0) (i64.const 0) (i32.const 80)))
            (call $must (call $clock (i32.const 1) (i64.const 0) (i32.const 88)))
            (f64.store (i32.const 96) (f64.div (f64.load (i32.const 1000)) (f64.load (i32.const 1000))))
            (call $write (i32.const 1) (i32.const 64) (i32.const 40)))"#,
    )
}

#[tokio::test]
async fn a_deterministic_run_is_the_same_each_time_and_counts_fuel() {
    let bench = Bench::new();
    let limits = Limits { deterministic: true, ..short() };
    let first = bench.run(&entropy(), &limits).await;
    let second = bench.run(&entropy(), &limits).await;
    assert_eq!(first.ended.end, End::Exited { code: 0 });
    assert_eq!(first.stdout, second.stdout);
    assert_eq!(first.ended.fuel, second.ended.fuel);
    assert!(first.ended.fuel.is_some_and(|fuel| fuel > 20), "{:?}", first.ended.fuel);
    assert_eq!(&first.stdout[32..40], &0x7ff8_0000_0000_0000u64.to_le_bytes());

    let free = [bench.run(&entropy(), &short()).await, bench.run(&entropy(), &short()).await];
    assert_ne!(free[0].stdout, free[1].stdout);
    assert_eq!(free[0].ended.fuel, None);
}

#[tokio::test]
async fn relaxed_simd_runs_unless_determinism_forbids_it() {
    let bench = Bench::new();
    let wasm = bare(
        r#"(func (export "_start") (drop (f32x4.relaxed_min
            (v128.const f32x4 1 2 3 4) (v128.const f32x4 4 3 2 1))))"#,
    );
    let seen = bench.run(&wasm, &short()).await;
    assert_eq!(seen.ended.end, End::Exited { code: 0 });
    let refused = bench.compile_for(&wasm, true).await.unwrap_err();
    assert!(refused.to_string().contains("relaxed"), "{refused}");
}
