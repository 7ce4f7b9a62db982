//! Bulk streams: logs and blobs.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use souk_protocol::NodeId;
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::{OwnedSemaphorePermit, mpsc},
};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt};

use super::command::Kind;

/// Bytes on their way from this node to itself; a writer then waits for the reader.
const OWN_BUFFER: usize = 64 << 10;

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
    inner: Inner,
    peer: NodeId,
    // Inbound streams of a peer are limited; the place is free again when the stream is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

/// What carries the bytes.
#[derive(Debug)]
enum Inner {
    Peer(Compat<libp2p::Stream>),
    /// To this node itself.
    Own(DuplexStream),
}

impl Stream {
    pub(super) fn new(inner: libp2p::Stream, peer: NodeId, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { inner: Inner::Peer(inner.compat()), peer, _place: place }
    }

    /// Both ends of a stream of a node to itself.
    pub(super) fn pair(me: NodeId) -> (Self, Self) {
        let (here, there) = tokio::io::duplex(OWN_BUFFER);
        let end = |inner| Self { inner: Inner::Own(inner), peer: me, _place: None };
        (end(here), end(there))
    }

    /// The peer at the other end.
    #[must_use]
    pub fn peer(&self) -> NodeId {
        self.peer
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Peer(inner) => Pin::new(inner).poll_read(cx, buf),
            Inner::Own(inner) => Pin::new(inner).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.inner {
            Inner::Peer(inner) => Pin::new(inner).poll_write(cx, buf),
            Inner::Own(inner) => Pin::new(inner).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Peer(inner) => Pin::new(inner).poll_flush(cx),
            Inner::Own(inner) => Pin::new(inner).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.inner {
            Inner::Peer(inner) => Pin::new(inner).poll_shutdown(cx),
            Inner::Own(inner) => Pin::new(inner).poll_shutdown(cx),
        }
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
