//! What a task costs an embedder that trusts it: instantiate a WASI command and call it, in this process, with nothing
//! around it. The floor under every figure of the sandbox.
//!
//! ```text
//! cargo run --release -p souk-sandbox --example bare_call -- examples/hello/hello.wasm [runs]
//! ```
#![allow(clippy::print_stdout, reason = "prints what it measured")]

use std::time::Instant;

use wasmtime::{Engine, Linker, Module, Result, Store};
use wasmtime_wasi::{
    FsPerms, I32Exit, WasiCtxBuilder,
    p1::{WasiP1Ctx, add_to_linker_sync},
    p2::pipe::MemoryOutputPipe,
};

/// Bytes of output kept of one run.
const OUTPUT: usize = 64 * 1024;

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| "examples/hello/hello.wasm".to_owned());
    let runs: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    let engine = Engine::default();
    let module = Module::from_file(&engine, &path)?;
    let mut linker: Linker<WasiP1Ctx> = Linker::new(&engine);
    add_to_linker_sync(&mut linker, |context| context)?;
    let linked = linker.instantiate_pre(&module)?;
    let out = tempfile::tempdir()?;
    let mut took = Vec::with_capacity(runs);
    for _ in 0..runs.max(1) {
        let stdout = MemoryOutputPipe::new(OUTPUT);
        let began = Instant::now();
        let context = WasiCtxBuilder::new()
            .args(&["hello", "bench"])
            .stdout(stdout.clone())
            .preopened_dir(out.path(), "/out", FsPerms::ReadWrite)?
            .build_p1();
        let mut store = Store::new(&engine, context);
        let instance = linked.instantiate(&mut store)?;
        let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
        match start.call(&mut store, ()) {
            Ok(()) => {}
            Err(error) if error.downcast_ref::<I32Exit>().is_some_and(|exit| exit.0 == 0) => {}
            Err(error) => return Err(error),
        }
        took.push(began.elapsed().as_micros());
        assert!(!stdout.contents().is_empty(), "the module wrote nothing");
    }
    took.sort_unstable();
    let pick = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or_default();
    println!("{{\"runs\":{},\"p50_us\":{},\"p95_us\":{}}}", took.len(), pick(50), pick(95));
    Ok(())
}
