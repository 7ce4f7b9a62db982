//! The runner process: holds one module or component and one folder, runs one task of one lease after another.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use wasmtime::{Engine, ExternType, InstancePre, Linker, Store, Trap, WasmBacktrace};
use wasmtime_wasi::{I32Exit, p2::bindings::CommandPre};

use super::{
    ChildError, confine,
    confine::View,
    engine,
    pipe::Pipe,
    prescan::{DEFAULT_ENTRY, component_entry, host_signature},
    seccomp::Filters,
    syscalls,
    wasi::{self, Exit, Guest, Meters},
};
use crate::{
    error::ModuleError,
    wire::{Confine, Done, Hello, Kind, Order, Outcome, Start},
};

/// The longest reason that is reported of a trap.
const REASON_CHARS: usize = 1_000;
/// Functions named in the reason of a trap, innermost first.
const FRAMES: usize = 8;
/// What one host call may copy out of a component, which hands over lists and strings whole. Nothing that WASI
/// offers takes more at once than a stream does, 64 KiB.
const COMPONENT_HOSTCALL_BYTES: usize = 8 << 20;

pub(crate) fn serve(pipe: &mut Pipe, start: &Start) -> Result<(), ChildError> {
    // Ready to go before a lease comes: engines, linkers and the runtime cost more than the rest.
    let engines = [engine::engine(false)?, engine::engine(true)?];
    let linkers = [linker(&engines[0])?, linker(&engines[1])?];
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|error| ChildError::Other(format!("no runtime: {error}")))?;
    let filters = Filters::new()?;
    let tag = engine::tag([&engines[0], &engines[1]]);
    let view = confine::settle(start)?;
    pipe.send(Kind::Hello, &Hello { engine: tag })?;

    let order: Confine = pipe.expect(Kind::Confine)?;
    confine::bind(
        confine::Bounds {
            // The module is in memory twice while it is loaded.
            data_bytes: order
                .memory_bytes
                .saturating_add(order.module_bytes.saturating_mul(2))
                .saturating_add(confine::HEADROOM_BYTES),
            // The image of a module's memory is a file to the kernel, no larger than the module.
            file_bytes: order.file_bytes.max(order.module_bytes),
            cpu_seconds: None,
        },
        &filters,
    )?;
    let mode = usize::from(order.deterministic);
    let (Some(engine), Some(linker)) = (engines.get(mode), linkers.get(mode)) else {
        return Err(ChildError::Other("no such mode".to_owned()));
    };
    let artifact = pipe.chunks(order.module_bytes)?;
    let program = if order.component {
        match Program::component(engine, &artifact)? {
            Ok(program) => program,
            Err(error) => return pipe.send(Kind::Refused, &error),
        }
    } else {
        Program::module(engine, linker, &artifact)?
    };
    let seed = order.deterministic.then_some(order.seed);
    drop(artifact);
    filters.second()?;
    pipe.send(Kind::Ready, &())?;

    let runner = Runner { engine: engine.clone(), program, view, seed, runtime };
    loop {
        let order: Order = pipe.expect(Kind::Order)?;
        let done = runner.run(&order);
        let reusable = done.reusable;
        pipe.send(Kind::Done, &done)?;
        if !reusable {
            return Ok(());
        }
    }
}

fn linker(engine: &Engine) -> Result<Linker<Guest>, ChildError> {
    wasi::linker(engine).map_err(|error| ChildError::Other(format!("no linker: {error:#}")))
}

/// What is run, linked.
enum Program {
    Module(InstancePre<Guest>),
    Component(CommandPre<Guest>),
}

impl Program {
    fn module(engine: &Engine, linker: &Linker<Guest>, artifact: &[u8]) -> Result<Self, ChildError> {
        let module = syscalls::load(engine, artifact)
            .map_err(|error| ChildError::Other(format!("cannot load the module: {error:#}")))?;
        let linked = linker
            .instantiate_pre(&module)
            .map_err(|error| ChildError::Other(format!("cannot link the module: {error:#}")))?;
        Ok(Program::Module(linked))
    }

    /// The linker is made now and not ahead of a lease: runners that will hold a module, nearly all, do without.
    /// Only it knows the types of what is offered: a component that imports something as what it is not, or whose
    /// `run` is none, is refused here.
    fn component(engine: &Engine, artifact: &[u8]) -> Result<Result<Self, ModuleError>, ChildError> {
        let component = syscalls::load_component(engine, artifact)
            .map_err(|error| ChildError::Other(format!("cannot load the component: {error:#}")))?;
        let linker =
            wasi::component_linker(engine).map_err(|error| ChildError::Other(format!("no linker: {error:#}")))?;
        let linked = linker.instantiate_pre(&component).and_then(CommandPre::new);
        let unlinkable = |error| ModuleError::Unlinkable { reason: cut(&format!("{error:#}")) };
        Ok(linked.map(Program::Component).map_err(unlinkable))
    }
}

struct Runner {
    engine: Engine,
    program: Program,
    view: View,
    /// For deterministic runs: what clocks and random numbers start from.
    seed: Option<[u8; 32]>,
    runtime: tokio::runtime::Runtime,
}

/// A run as it went, before it is classified.
struct Ran {
    result: Result<(), wasmtime::Error>,
    fuel: Option<u64>,
    memory_peak: u64,
    memory_refused: bool,
}

impl Runner {
    fn run(&self, order: &Order) -> Done {
        let meters = Meters::new(order.stdout_bytes, order.stderr_bytes);
        let mut done = Done {
            outcome: Outcome::Exited(0),
            fuel: None,
            stdout_len: 0,
            stderr_len: 0,
            memory_peak: 0,
            memory_refused: false,
            reusable: true,
        };
        if let Err(error) = self.check(order) {
            done.outcome = Outcome::Input(error);
            return done;
        }
        let component = matches!(self.program, Program::Component(_));
        let guest = match wasi::guest(order, &self.view, &meters, self.seed, component) {
            Ok(guest) => guest,
            Err(reason) => {
                done.outcome = Outcome::Fault(reason);
                return done;
            }
        };
        let attempt = catch_unwind(AssertUnwindSafe(|| self.call(order, guest)));
        let excess = meters.excess();
        done.stdout_len = excess.stdout_len;
        done.stderr_len = excess.stderr_len;
        match attempt {
            Ok(ran) => {
                done.outcome = classify(ran.result, ran.memory_refused);
                done.fuel = ran.fuel;
                done.memory_peak = ran.memory_peak;
                done.memory_refused = ran.memory_refused;
            }
            Err(panic) => {
                // A host call that panics does so because of what the guest asked for.
                let reason = format!("a host call failed: {}", panic_text(panic.as_ref()));
                done.outcome = Outcome::Trapped(cut(&reason));
                done.reusable = false;
            }
        }
        done
    }

    /// The node has checked this already; a runner does not rely on it.
    fn check(&self, order: &Order) -> Result<(), ModuleError> {
        let module = match &self.program {
            Program::Module(linked) => linked.module(),
            Program::Component(_) => return component_entry(&order.entry),
        };
        match module.get_export(&order.entry) {
            Some(ExternType::Func(ty)) if ty.params().len() == 0 && ty.results().len() == 0 => Ok(()),
            Some(ExternType::Func(ty)) => {
                Err(ModuleError::WrongSignature { entry: order.entry.clone(), found: host_signature(&ty) })
            }
            _ => Err(ModuleError::MissingExport { entry: order.entry.clone(), has: Vec::new() }),
        }
    }

    fn call(&self, order: &Order, guest: Guest) -> Ran {
        let mut store = Store::new(&self.engine, guest);
        store.limiter(|guest| &mut guest.memory);
        store.set_hostcall_fuel(match self.program {
            Program::Component(_) => COMPONENT_HOSTCALL_BYTES,
            // What one host call may copy out of the guest: as much as the guest has, so that a large write is one
            // write; what the host must copy on top is bound by RLIMIT_DATA.
            Program::Module(_) => usize::try_from(order.memory_bytes).unwrap_or(usize::MAX),
        });
        let start_fuel = self.seed.map(|_| u64::MAX);
        let result = self.runtime.block_on(async {
            if let Some(fuel) = start_fuel {
                store.set_fuel(fuel)?;
            }
            match &self.program {
                Program::Module(linked) => call_module(linked, &mut store, &order.entry).await,
                Program::Component(linked) => call_component(linked, &mut store).await,
            }
        });
        let fuel = start_fuel.and_then(|start| Some(start - store.get_fuel().ok()?));
        let memory = &store.data().memory;
        Ran { result, fuel, memory_peak: memory.peak, memory_refused: memory.refused }
    }
}

async fn call_module(linked: &InstancePre<Guest>, store: &mut Store<Guest>, entry: &str) -> wasmtime::Result<()> {
    let instance = linked.instantiate_async(&mut *store).await?;
    if entry != DEFAULT_ENTRY
        && let Ok(initialize) = instance.get_typed_func::<(), ()>(&mut *store, "_initialize")
    {
        initialize.call_async(&mut *store, ()).await?;
    }
    let entry = instance.get_typed_func::<(), ()>(&mut *store, entry)?;
    entry.call_async(&mut *store, ()).await
}

/// A command tells only whether it failed, unless it exits with a code.
async fn call_component(linked: &CommandPre<Guest>, store: &mut Store<Guest>) -> wasmtime::Result<()> {
    let command = linked.instantiate_async(&mut *store).await?;
    let result = command.wasi_cli_run().call_run(&mut *store).await?;
    result.map_err(|()| wasmtime::Error::new(Exit(1)))
}

fn classify(result: Result<(), wasmtime::Error>, memory_refused: bool) -> Outcome {
    let Err(error) = result else {
        return Outcome::Exited(0);
    };
    if let Some(Exit(code)) = error.downcast_ref::<Exit>() {
        return Outcome::Exited(*code);
    }
    if let Some(I32Exit(code)) = error.downcast_ref::<I32Exit>() {
        return Outcome::Exited(code.cast_unsigned());
    }
    let trap = error.downcast_ref::<Trap>();
    if memory_refused && matches!(trap, Some(Trap::UnreachableCodeReached) | None) {
        // A language's own answer to a refused allocation is to abort.
        return Outcome::OutOfMemory;
    }
    let mut reason = match trap {
        Some(trap) => trap.to_string(),
        None => format!("{:#}", error.root_cause()),
    };
    if let Some(trace) = error.downcast_ref::<WasmBacktrace>() {
        let names: Vec<String> = trace
            .frames()
            .iter()
            .take(FRAMES)
            .map(|frame| match frame.func_name() {
                Some(name) => name.to_owned(),
                None => format!("function {}", frame.func_index()),
            })
            .collect();
        if !names.is_empty() {
            reason = format!("{reason}, in {}", names.join(" < "));
        }
    }
    Outcome::Trapped(cut(&reason))
}

fn cut(reason: &str) -> String {
    reason.chars().take(REASON_CHARS).collect()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no reason given")
}
