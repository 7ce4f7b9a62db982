//! What node and child say to each other: frames of one kind byte, a little-endian length and that many bytes,
//! over two pipes. The node treats a child's frames like a stranger's: bounded, typed, and anything unexpected
//! ends the child.

use std::path::PathBuf;

use bytes::{Buf, Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::error::ModuleError;

/// The longest frame: a chunk of a module. Output comes in chunks of [`OUTPUT_CHUNK`].
pub(crate) const MAX_FRAME: usize = 1 << 20;
/// The longest chunk of output: what a pipe holds by default, so that one write is one wake-up.
pub(crate) const OUTPUT_CHUNK: usize = 64 * 1024;
/// After how many bytes beyond a stream's limit the child tells the node again.
pub(crate) const EXCESS_STEP: u64 = 1 << 20;
const HEADER: usize = 5;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    // To the child.
    Start = b'S',
    Confine = b'C',
    Chunk = b'M',
    Order = b'T',
    // From the child.
    Hello = b'h',
    Ready = b'r',
    Stdout = b'o',
    Stderr = b'e',
    Excess = b'x',
    Done = b'd',
    Compiled = b'c',
    Refused = b'n',
    Probed = b'p',
    Fault = b'f',
}

impl Kind {
    fn of(byte: u8) -> Option<Kind> {
        use Kind::{
            Chunk, Compiled, Confine, Done, Excess, Fault, Hello, Order, Probed, Ready, Refused, Start, Stderr, Stdout,
        };
        [Start, Confine, Chunk, Order, Hello, Ready, Stdout, Stderr, Excess, Done, Compiled, Refused, Probed, Fault]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A frame as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum WireError {
    #[error("unknown frame kind {0:#04x}")]
    Kind(u8),
    #[error("frame of {0} bytes, the limit is {MAX_FRAME}")]
    Length(usize),
    #[error("a {kind:?} frame that does not parse: {reason}")]
    Body { kind: Kind, reason: String },
}

impl Frame {
    /// Takes the first whole frame out of `buffer`, or says how many bytes it still lacks.
    pub(crate) fn take(buffer: &mut BytesMut) -> Result<Result<Frame, usize>, WireError> {
        let Some((kind, length)) = buffer.split_first_chunk::<HEADER>().map(|(head, _)| {
            let [kind, a, b, c, d] = *head;
            (kind, u32::from_le_bytes([a, b, c, d]) as usize)
        }) else {
            return Ok(Err(HEADER - buffer.len()));
        };
        let kind = Kind::of(kind).ok_or(WireError::Kind(kind))?;
        if length > MAX_FRAME {
            return Err(WireError::Length(length));
        }
        if buffer.len() < HEADER + length {
            return Ok(Err(HEADER + length - buffer.len()));
        }
        buffer.advance(HEADER);
        let body = buffer.split_to(length).freeze();
        Ok(Ok(Frame { kind, body }))
    }

    /// The message in the body.
    pub(crate) fn message<T: DeserializeOwned>(&self) -> Result<T, WireError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| WireError::Body { kind: self.kind, reason: error.to_string() })
    }

    /// The text in the body, cut to what a reason needs.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        text.chars().take(2_000).collect()
    }
}

/// Header and body in one buffer, so that they go out in one write.
pub(crate) fn frame(kind: Kind, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= MAX_FRAME, "senders split what is longer");
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.push(kind as u8);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// A message as a frame.
pub(crate) fn message<T: Serialize>(kind: Kind, message: &T) -> Vec<u8> {
    // Plain structs of strings and numbers always have a JSON form.
    let body = serde_json::to_vec(message).unwrap_or_default();
    frame(kind, &body)
}

/// What a child is started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Runs tasks of one module in the folders of one lease.
    Runner,
    /// Checks and compiles one module, touching no file.
    Compiler,
    /// Confines itself as a runner and tries what must not work.
    Probe,
}

/// The first frame to a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) role: Role,
    /// The node's pid: a child that finds another parent was orphaned before it could ask to die with it.
    pub(crate) parent: i32,
    /// Whether to enter namespaces of its own.
    pub(crate) namespaces: bool,
    /// The folder made for it, all it will ever see; empty for a compiler.
    pub(crate) root: PathBuf,
}

/// The first frame from a child.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// What compiled code depends on: engine configuration, wasmtime version, CPU; for both modes.
    pub(crate) engine: String,
}

/// The last steps of the confinement, and what the module frames that follow are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Confine {
    pub(crate) memory_bytes: u64,
    /// The largest file that can be written.
    pub(crate) file_bytes: u64,
    pub(crate) deterministic: bool,
    /// Whether the machine code that follows is a component's. A compiler sees for itself what its source is.
    pub(crate) component: bool,
    /// The BLAKE3 of the module's source: what a deterministic run's clocks and random numbers start from.
    pub(crate) seed: [u8; 32],
    /// Bytes of the module in the [`Kind::Chunk`] frames that follow.
    pub(crate) module_bytes: u64,
}

/// A task for a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) entry: String,
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) attempt: String,
    pub(crate) output: bool,
    pub(crate) checkpoint: bool,
    pub(crate) memory_bytes: u64,
    pub(crate) stdout_bytes: u64,
    pub(crate) stderr_bytes: u64,
}

/// How a task ended, as the runner saw it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Exited(u32),
    Trapped(String),
    OutOfMemory,
    Input(ModuleError),
    /// The runner could not do its part.
    Fault(String),
}

/// What a runner reports of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) fuel: Option<u64>,
    pub(crate) stdout_len: u64,
    pub(crate) stderr_len: u64,
    pub(crate) memory_peak: u64,
    pub(crate) memory_refused: bool,
    /// Whether it can take another task.
    pub(crate) reusable: bool,
}

/// How much a guest wrote so far, told when it is over a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Excess {
    pub(crate) stdout_len: u64,
    pub(crate) stderr_len: u64,
}

/// A child that cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The confinement step, if it was one.
    pub(crate) step: Option<String>,
    pub(crate) reason: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_frame_has_these_bytes() {
        assert_eq!(frame(Kind::Stdout, b"hi"), b"o\x02\0\0\0hi");
    }

    #[test]
    fn half_a_frame_says_what_it_lacks() {
        let mut buffer = BytesMut::from(&b"o\x05\0\0\0hi"[..]);
        assert_eq!(Frame::take(&mut buffer), Ok(Err(3)));
        let mut buffer = BytesMut::from(&b"o\x05"[..]);
        assert_eq!(Frame::take(&mut buffer), Ok(Err(3)));
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_it_is_read() {
        let mut buffer = BytesMut::from(&b"o\xff\xff\xff\xff"[..]);
        assert_eq!(Frame::take(&mut buffer), Err(WireError::Length(u32::MAX as usize)));
    }

    proptest! {
        #[test]
        fn frames_cut_anywhere_come_out_whole(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..6), cut in 1usize..50) {
            let bytes: Vec<u8> = bodies.iter().flat_map(|body| frame(Kind::Stderr, body)).collect();
            let mut buffer = BytesMut::new();
            let mut seen = Vec::new();
            for part in bytes.chunks(cut) {
                buffer.extend_from_slice(part);
                while let Ok(Ok(frame)) = Frame::take(&mut buffer) {
                    seen.push(frame.body.to_vec());
                }
            }
            prop_assert_eq!(seen, bodies);
        }

        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Ok(frame)) = Frame::take(&mut buffer) {
                let _ = frame.message::<Done>();
                let _ = frame.text();
            }
        }
    }
}
