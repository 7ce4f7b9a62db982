//! Streams of files as a component gets them. WASI preview 2 can read and write a file without waiting, which the
//! host does on a thread beside; a runner has one thread and is allowed no other. So each operation is done at once,
//! as those that wait are, and the streams are always ready.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use wasmtime::{
    StoreContextMut,
    component::{Linker, Resource},
};
use wasmtime_wasi::{
    WasiView,
    filesystem::{Descriptor, WasiFilesystemView},
    p2::{
        DynInputStream, DynOutputStream, FsResult, InputStream, OutputStream, Pollable, StreamResult,
        bindings::filesystem::types::{ErrorCode, HostDescriptor},
    },
};

use super::wasi::Guest;

/// The interface whose functions are replaced, in the version that is linked.
const TYPES: &str = "wasi:filesystem/types@0.2.12";

type Opened<T> = wasmtime::Result<(Result<Resource<T>, ErrorCode>,)>;

/// Replaces the three functions that open a stream.
pub(super) fn add_to_linker(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut types = linker.instance(TYPES)?;
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: StoreContextMut<'_, Guest>,
         (file, offset): (Resource<Descriptor>, u64)|
         -> Opened<DynInputStream> {
            let opened = store.data_mut().filesystem().read_via_stream(file, offset);
            replace(store.data_mut(), opened, |stream| Box::new(Immediate(stream)))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: StoreContextMut<'_, Guest>,
         (file, offset): (Resource<Descriptor>, u64)|
         -> Opened<DynOutputStream> {
            let opened = store.data_mut().filesystem().write_via_stream(file, offset);
            replace(store.data_mut(), opened, |stream| Box::new(Immediate(stream)))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: StoreContextMut<'_, Guest>, (file,): (Resource<Descriptor>,)| -> Opened<DynOutputStream> {
            let opened = store.data_mut().filesystem().append_via_stream(file);
            replace(store.data_mut(), opened, |stream| Box::new(Immediate(stream)))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Puts another stream in the place of the one that was opened.
fn replace<T: 'static + Send>(
    guest: &mut Guest,
    opened: FsResult<Resource<T>>,
    with: impl FnOnce(T) -> T,
) -> Opened<T> {
    let resource = match opened {
        Ok(resource) => resource,
        Err(error) => return Ok((Err(error.downcast()?),)),
    };
    let table = guest.ctx().table;
    let stream = table.delete(resource)?;
    Ok((Ok(table.push(with(stream))?),))
}

/// A file's stream that does each thing at once.
struct Immediate<T>(T);

/// What an operation on a file comes to that waits: it does so inside its first poll.
fn now<T>(operation: impl Future<Output = StreamResult<T>>) -> StreamResult<T> {
    match pin!(operation).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(wasmtime_wasi::p2::StreamError::trap("a file that is not ready")),
    }
}

#[wasmtime_wasi::async_trait]
impl<T: Send + 'static> Pollable for Immediate<T> {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl InputStream for Immediate<DynInputStream> {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        now(self.0.blocking_read(size))
    }
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Immediate<DynOutputStream> {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        now(self.0.blocking_write_and_flush(bytes))
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.0.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.0.check_write()
    }
}
