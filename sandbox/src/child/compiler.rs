//! The compiler process: confined without a single file, it checks one module and turns it into machine code
//! that it may not run.

use super::{
    ChildError, confine, engine,
    pipe::Pipe,
    prescan::{self},
    wasi,
};
use crate::{
    error::ModuleError,
    wire::{Confine, Hello, Kind, Start},
};

/// Writable memory of a compiler: Cranelift takes some 30 times a large function's size, and the limit on one
/// function keeps that near 100 MB.
pub(crate) const COMPILE_MEMORY_BYTES: u64 = 1536 << 20;
/// CPU seconds of a compiler. A 10 MB module takes about 15 on a slow core.
pub(crate) const COMPILE_CPU_SECONDS: u64 = 60;

pub(crate) fn serve(pipe: &mut Pipe, start: &Start) -> Result<(), ChildError> {
    let engines = [engine::engine(false)?, engine::engine(true)?];
    let tag = engine::tag([&engines[0], &engines[1]]);
    pipe.send(Kind::Hello, &Hello { engine: tag })?;
    let order: Confine = pipe.expect(Kind::Confine)?;
    let engine = &engines[usize::from(order.deterministic)];
    let offered =
        wasi::offered(engine).map_err(|error| ChildError::Other(format!("no imports to offer: {error:#}")))?;
    confine::compiler(
        start,
        confine::Bounds { data_bytes: COMPILE_MEMORY_BYTES, file_bytes: 0, cpu_seconds: Some(COMPILE_CPU_SECONDS) },
    )?;
    let module = pipe.chunks(order.module_bytes)?;
    let compiled = prescan::scan(&module, &offered).and_then(|facts| {
        let artifact =
            if facts.component { engine.precompile_component(&module) } else { engine.precompile_module(&module) };
        let artifact = artifact.map_err(|error| {
            let reason: String = format!("{error:#}").chars().take(500).collect();
            ModuleError::Invalid { reason }
        })?;
        Ok((facts, artifact))
    });
    match compiled {
        Ok((facts, artifact)) => {
            pipe.send(Kind::Compiled, &(facts, artifact.len() as u64))?;
            pipe.send_chunks(&artifact)
        }
        Err(error) => pipe.send(Kind::Refused, &error),
    }
}
