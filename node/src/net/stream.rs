//! Bulk streams: logs and blobs.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use souk_protocol::NodeId;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::{OwnedSemaphorePermit, mpsc},
};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt};

use super::command::Kind;

/// Which bulk protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// Output of running tasks, by offset.
    Log,
    /// Inputs and outputs, by hash.
    Blob,
}

impl Protocol {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Log => Kind::Log,
            Self::Blob => Kind::Blob,
        }
    }
}

/// An ordered stream of bytes both ways. Dropping it resets what is unsent: end with `shutdown`.
///
/// An outgoing stream is opened lazily: the peer learns of it with the first write or read, and that
/// the peer does not know the protocol shows at the first read.
#[derive(Debug)]
pub struct Stream {
    inner: Compat<libp2p::Stream>,
    peer: NodeId,
    // Inbound streams of a peer are limited; the place is free again when the stream is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

impl Stream {
    pub(super) fn new(inner: libp2p::Stream, peer: NodeId, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { inner: inner.compat(), peer, _place: place }
    }

    /// The peer at the other end.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        self.peer
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

/// Streams that peers open here, of one protocol.
#[derive(Debug)]
pub struct Incoming(pub(super) mpsc::Receiver<Stream>);

impl Incoming {
    /// The next stream; `None` once the network has shut down. Cancel safe.
    pub async fn next(&mut self) -> Option<Stream> {
        self.0.recv().await
    }
}
