//! A message on its way.

use std::sync::Arc;

use souk_protocol::{Message, codec::CodecError};

/// A message as it travels: its bytes, or the message itself where nobody looks at bytes.
#[derive(Debug, Clone)]
pub(crate) enum Packet {
    /// As on the wire.
    Bytes(Arc<Vec<u8>>),
    /// As it is.
    Value(Arc<Message>),
}

impl Packet {
    /// The message, taken out where this is the last that holds it.
    pub(crate) fn open(self) -> Result<Message, CodecError> {
        match self {
            Self::Bytes(bytes) => Message::decode(&bytes),
            Self::Value(message) => Ok(Arc::unwrap_or_clone(message)),
        }
    }
}
