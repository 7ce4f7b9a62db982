//! The four calls that Rust cannot make safely, each in a function that is safe to call where the child calls
//! it: before it has a second thread or an open file. Nothing else in this crate is `unsafe`.
#![allow(unsafe_code, reason = "four audited calls, each with its argument")]

use rustix::thread::UnshareFlags;
use wasmtime::{Engine, Module, component::Component};

/// Closes every file but the standard three, so that nothing the node left open reaches a guest.
pub(crate) fn close_foreign_files() -> std::io::Result<()> {
    // SAFETY: the child has just started and has opened nothing, so no owned descriptor of this process is above 2.
    let result = unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Leaves the node's namespaces.
pub(crate) fn unshare(flags: UnshareFlags) -> std::io::Result<()> {
    debug_assert!(!flags.contains(UnshareFlags::FILES), "the argument below needs it");
    // SAFETY: unsafe only for the shared table of open files, which these flags leave alone.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(Into::into)
}

/// Loads machine code that this node's own compiler process made.
pub(crate) fn load(engine: &Engine, artifact: &[u8]) -> wasmtime::Result<Module> {
    // SAFETY: the bytes must be what `Engine::precompile_module` returned, unmodified. They come from the node
    // over this process's standard input, which no other process can write to; the node takes them from its own
    // compiler process or from a cache file whose keyed BLAKE3 it has just checked over these same bytes. A
    // module that anybody else compiled has no way here. Another version or configuration is refused by
    // wasmtime itself. Whatever a compiler process taken over by a hostile module might return runs confined as
    // the module itself would.
    unsafe { Module::deserialize(engine, artifact) }
}

/// The same of a component.
pub(crate) fn load_component(engine: &Engine, artifact: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: as above, with `Engine::precompile_component` in place of `Engine::precompile_module`; wasmtime
    // refuses the one's code where the other's is due.
    unsafe { Component::deserialize(engine, artifact) }
}
