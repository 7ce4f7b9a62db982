//! Values on a byte stream: a length of four bytes, big endian, then the codec's bytes.

use serde::{Serialize, de::DeserializeOwned};
use souk_protocol::codec::{self, CodecError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// A value could not be read from or written to a stream.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The stream broke.
    #[error("stream: {0}")]
    Io(#[from] std::io::Error),
    /// The other side sent what is no such value.
    #[error("frame: {0}")]
    Codec(#[from] CodecError),
}

/// Writes `value`, at most `max` bytes, and flushes.
///
/// # Errors
/// [`FrameError`].
pub async fn write<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
    max: usize,
) -> Result<(), FrameError> {
    let body = codec::encode(value, max)?;
    let len = u32::try_from(body.len()).map_err(|_| CodecError::TooLong { len: body.len(), max })?;
    let mut frame = Vec::with_capacity(body.len().saturating_add(4));
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await?;
    stream.flush().await?;
    Ok(())
}

/// Reads a value of at most `max` bytes; `None` at a clean end of the stream. The size is checked before anything is
/// allocated for it. Not cancel safe.
///
/// # Errors
/// [`FrameError`].
pub async fn read<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    max: usize,
) -> Result<Option<T>, FrameError> {
    let mut len = [0; 4];
    match stream.read_exact(&mut len).await {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
    if len > max {
        return Err(CodecError::TooLong { len, max }.into());
    }
    let mut body = vec![0; len];
    stream.read_exact(&mut body).await?;
    Ok(Some(codec::decode(&body, max)?))
}
