//! The child's two ends: blocking, unbuffered towards the node, so that nothing is lost when the child dies.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
};

use bytes::BytesMut;
use serde::{Serialize, de::DeserializeOwned};

use super::ChildError;
use crate::wire::{self, Frame, Kind, MAX_FRAME};

/// How much is asked of standard input at once.
const READ_STEP: usize = 4096;

/// Standard input and output as frames.
#[derive(Debug)]
pub(crate) struct Pipe {
    input: io::Stdin,
    output: io::Stdout,
    buffer: BytesMut,
}

impl Pipe {
    pub(crate) fn new() -> Self {
        Pipe { input: io::stdin(), output: io::stdout(), buffer: BytesMut::new() }
    }

    /// The next frame.
    pub(crate) fn next(&mut self) -> Result<Frame, ChildError> {
        loop {
            let lacking = match Frame::take(&mut self.buffer) {
                Ok(Ok(frame)) => return Ok(frame),
                Ok(Err(lacking)) => lacking,
                Err(error) => return Err(ChildError::Other(error.to_string())),
            };
            let old = self.buffer.len();
            self.buffer.resize(old + lacking.max(READ_STEP), 0);
            // The frames' own buffer is the only one: `Stdin`'s would hide bytes from it.
            let read = loop {
                let into = self.buffer.get_mut(old..).unwrap_or_default();
                match rustix::io::read(self.input.as_fd(), into) {
                    Err(rustix::io::Errno::INTR) => {}
                    other => break other,
                }
            };
            let count = read.map_err(|_| ChildError::Gone)?;
            self.buffer.truncate(old + count);
            if count == 0 {
                return Err(ChildError::Gone);
            }
        }
    }

    /// The message of the next frame, which must be of this kind.
    pub(crate) fn expect<T: DeserializeOwned>(&mut self, kind: Kind) -> Result<T, ChildError> {
        let frame = self.next()?;
        if frame.kind != kind {
            return Err(ChildError::Other(format!("a {:?} frame where {kind:?} is due", frame.kind)));
        }
        frame.message().map_err(|error| ChildError::Other(error.to_string()))
    }

    /// The bytes of the chunk frames that follow, `length` in all.
    pub(crate) fn chunks(&mut self, length: u64) -> Result<Vec<u8>, ChildError> {
        let length =
            usize::try_from(length).map_err(|_| ChildError::Other("a module longer than memory".to_owned()))?;
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let frame = self.next()?;
            if frame.kind != Kind::Chunk || frame.body.len() > length - bytes.len() {
                return Err(ChildError::Other(format!(
                    "a {:?} frame of {} bytes where {} bytes of a module are due",
                    frame.kind,
                    frame.body.len(),
                    length - bytes.len()
                )));
            }
            bytes.extend_from_slice(&frame.body);
        }
        Ok(bytes)
    }

    pub(crate) fn send<T: Serialize>(&self, kind: Kind, message: &T) -> Result<(), ChildError> {
        write_all(self.output.as_fd(), &wire::message(kind, message))
    }

    /// Sends bytes of any length as chunk frames.
    pub(crate) fn send_chunks(&self, bytes: &[u8]) -> Result<(), ChildError> {
        for chunk in bytes.chunks(MAX_FRAME) {
            write_all(self.output.as_fd(), &wire::frame(Kind::Chunk, chunk))?;
        }
        Ok(())
    }
}

/// Writes a frame to the node from anywhere in the process: the guest's output streams do.
pub(crate) fn send_frame(kind: Kind, body: &[u8]) -> Result<(), ChildError> {
    write_all(io::stdout().as_fd(), &wire::frame(kind, body))
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), ChildError> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) if count > 0 => bytes = bytes.get(count..).unwrap_or_default(),
            // A broken pipe: the node is gone, and so is the reason to live.
            _ => return Err(ChildError::Gone),
        }
    }
    Ok(())
}
