//! The child process: what `souk runner` does. It starts single-threaded, takes its role from the first frame,
//! confines itself, and only then reads a byte of a stranger's.

mod capabilities;
mod compiler;
mod component;
mod confine;
mod engine;
mod execute;
mod files;
mod namespaces;
mod pipe;
mod prescan;
mod probe;
mod seccomp;
mod syscalls;
mod wasi;

use std::process::ExitCode;

pub(crate) use compiler::{COMPILE_CPU_SECONDS, COMPILE_MEMORY_BYTES};
use confine::StepError;
use pipe::Pipe;
pub(crate) use prescan::Facts;

use crate::wire::{Fault, Kind, Role, Start};

/// Exit code of a child whose set-up failed after it said so on its pipe.
const EXIT_FAULT: u8 = 70;

/// Why a child stops.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// The node closed its end or is gone: the ordinary end.
    #[error("the node is gone")]
    Gone,
    /// A step of the confinement failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// The hidden mode of the product's binary: call it first thing in `main`, before any thread exists.
///
/// Reads its orders from standard input and answers on standard output; ends when standard input ends, and dies
/// with the thread that started it.
pub fn runner_main() -> ExitCode {
    let mut pipe = Pipe::new();
    match serve(&mut pipe) {
        Ok(()) | Err(ChildError::Gone) => ExitCode::SUCCESS,
        Err(error) => {
            let fault = match error {
                ChildError::Step(step) => Fault { step: Some(step.step.to_owned()), reason: step.reason },
                other => Fault { step: None, reason: other.to_string() },
            };
            // The node may be gone by now; there is nobody else to tell.
            let _ = pipe.send(Kind::Fault, &fault);
            ExitCode::from(EXIT_FAULT)
        }
    }
}

fn serve(pipe: &mut Pipe) -> Result<(), ChildError> {
    let start: Start = pipe.expect(Kind::Start)?;
    confine::enter(&start)?;
    match start.role {
        Role::Runner => execute::serve(pipe, &start),
        Role::Compiler => compiler::serve(pipe, &start),
        Role::Probe => probe::serve(pipe, &start),
    }
}
