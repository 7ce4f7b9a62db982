//! Requests and answers on the wire: one byte of kind, a length, a body. The length is checked and
//! paid for before anything is allocated.

use std::{io, sync::Arc};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::{StreamProtocol, request_response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::MAX_REQUEST;

/// Bytes of inbound requests that may be in memory at once, over all peers (read, queued or being
/// answered). Beyond it requests fail at once and the asking side retries.
pub(super) const INBOUND_BYTES: usize = 16 << 20;

/// Kind of a request.
pub(super) const ASK: u8 = 0;
/// A request answered by the network layer itself, to measure a round trip.
pub(super) const ECHO: u8 = 1;

/// Kind of an answer.
pub(super) const OK: u8 = 0;
/// Try again later.
pub(super) const BUSY: u8 = 1;
/// The body is the reason, as text.
pub(super) const REFUSED: u8 = 2;

/// A request or an answer.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
    /// Held until an inbound request is done with.
    pub(super) hold: Option<OwnedSemaphorePermit>,
}

impl Message {
    pub(super) fn new(kind: u8, body: Vec<u8>) -> Self {
        Self { kind, body, hold: None }
    }
}

/// Reads and writes [`Message`]s.
#[derive(Debug, Clone)]
pub(super) struct Codec {
    budget: Arc<Semaphore>,
}

impl Codec {
    pub(super) fn new() -> Self {
        Self { budget: Arc::new(Semaphore::new(INBOUND_BYTES)) }
    }
}

async fn read_head<T: AsyncRead + Unpin + Send>(io: &mut T) -> io::Result<(u8, usize)> {
    let mut head = [0u8; 5];
    io.read_exact(&mut head).await?;
    let [kind, a, b, c, d] = head;
    let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    if len > MAX_REQUEST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{len} bytes announced, at most {MAX_REQUEST} allowed"),
        ));
    }
    Ok((kind, len))
}

async fn read_body<T: AsyncRead + Unpin + Send>(io: &mut T, len: usize) -> io::Result<Vec<u8>> {
    let mut body = vec![0; len];
    io.read_exact(&mut body).await?;
    Ok(body)
}

async fn write<T: AsyncWrite + Unpin + Send>(io: &mut T, message: Message) -> io::Result<()> {
    let Message { kind, body, hold: _hold } = message;
    let len = u32::try_from(body.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // One write, so that head and body share a packet.
    let mut bytes = Vec::with_capacity(body.len().saturating_add(5));
    bytes.push(kind);
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(&body);
    io.write_all(&bytes).await?;
    io.flush().await
}

impl request_response::Codec for Codec {
    type Protocol = StreamProtocol;
    type Request = Message;
    type Response = Message;

    async fn read_request<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Message>
    where
        T: AsyncRead + Unpin + Send,
    {
        let (kind, len) = read_head(io).await?;
        let cost = u32::try_from(len.max(256)).unwrap_or(u32::MAX);
        let hold = Arc::clone(&self.budget)
            .try_acquire_many_owned(cost)
            .map_err(|_| io::Error::other("inbound requests use all their memory"))?;
        let body = read_body(io, len).await?;
        Ok(Message { kind, body, hold: Some(hold) })
    }

    async fn read_response<T>(&mut self, _: &StreamProtocol, io: &mut T) -> io::Result<Message>
    where
        T: AsyncRead + Unpin + Send,
    {
        let (kind, len) = read_head(io).await?;
        Ok(Message::new(kind, read_body(io, len).await?))
    }

    async fn write_request<T>(&mut self, _: &StreamProtocol, io: &mut T, message: Message) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        write(io, message).await
    }

    async fn write_response<T>(&mut self, _: &StreamProtocol, io: &mut T, message: Message) -> io::Result<()>
    where
        T: AsyncWrite + Unpin + Send,
    {
        write(io, message).await
    }
}

#[cfg(test)]
mod tests {
    use futures::io::Cursor;
    use libp2p::request_response::Codec as _;

    use super::*;

    const NAME: StreamProtocol = StreamProtocol::new("/souk/test/ask/1");

    #[tokio::test]
    async fn a_message_comes_back_as_it_went() {
        let mut wire = Cursor::new(Vec::new());
        let mut codec = Codec::new();
        codec.write_request(&NAME, &mut wire, Message::new(ASK, b"abc".to_vec())).await.unwrap();
        assert_eq!(wire.get_ref(), &[0, 0, 0, 0, 3, b'a', b'b', b'c']);
        wire.set_position(0);
        let message = codec.read_request(&NAME, &mut wire).await.unwrap();
        assert_eq!((message.kind, message.body.as_slice()), (ASK, &b"abc"[..]));
        assert_eq!(codec.budget.available_permits(), INBOUND_BYTES - 256);
        drop(message);
        assert_eq!(codec.budget.available_permits(), INBOUND_BYTES);
    }

    #[tokio::test]
    async fn too_long_a_message_is_refused_before_its_body_is_read() {
        let mut wire = Cursor::new([&[0u8][..], &(MAX_REQUEST as u32 + 1).to_be_bytes()].concat());
        let error = Codec::new().read_request(&NAME, &mut wire).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_truncated_message_is_an_error() {
        let mut wire = Cursor::new(vec![0, 0, 0, 0, 9, 1, 2]);
        assert_eq!(
            Codec::new().read_response(&NAME, &mut wire).await.unwrap_err().kind(),
            io::ErrorKind::UnexpectedEof
        );
    }
}
