//! Files by their BLAKE3: in for jobs, out for results.

use axum::{
    body::Body,
    extract::Path,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::StreamExt as _;
use souk_protocol::Hash;
use tokio_util::io::ReaderStream;

use super::{App, error::ApiError};
use crate::{
    data::stored,
    store::{BlobError, Durability},
};

fn hash(text: &str) -> Result<Hash, ApiError> {
    text.parse().map_err(ApiError::bad)
}

/// Stores the body, which must be what the hash says and as long as `Content-Length` says.
pub(super) async fn put(
    axum::extract::State(state): App,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, ApiError> {
    let hash = hash(&name)?;
    let blobs = state.node.store().blobs();
    if let Some(pin) = blobs.pin(&stored(&hash)) {
        state.node.keep(pin);
        return Ok(StatusCode::OK);
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let length = length.ok_or_else(|| ApiError::bad("Content-Length is missing: say how long the file is"))?;
    let mut writer = blobs.writer(length).await.map_err(refused)?;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| ApiError::bad(format_args!("the upload broke off: {error}")))?;
        writer.write(&chunk).await.map_err(refused)?;
    }
    // A job is journaled after its files: they must be there when it is.
    let pin = writer.finish(Some(stored(&hash)), Some(length), Durability::Durable).await.map_err(refused)?;
    state.node.keep(pin);
    Ok(StatusCode::CREATED)
}

fn refused(error: BlobError) -> ApiError {
    match error {
        BlobError::WrongHash { .. } | BlobError::WrongLength { .. } | BlobError::TooLong { .. } => ApiError::bad(error),
        other => ApiError::internal(other),
    }
}

/// The file.
pub(super) async fn get(axum::extract::State(state): App, Path(name): Path<String>) -> Result<Response, ApiError> {
    let hash = hash(&name)?;
    let blob = match state.node.store().blobs().open_blob(&stored(&hash)).await {
        Ok(blob) => blob,
        Err(BlobError::Missing(_)) => return Err(ApiError::missing(format_args!("no file {hash} here"))),
        Err(error) => return Err(ApiError::internal(error)),
    };
    let stream = ReaderStream::with_capacity(tokio::fs::File::from_std(blob.file), 256 * 1024);
    let headers = [
        (header::CONTENT_LENGTH, blob.length.to_string()),
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
    ];
    Ok((headers, Body::from_stream(stream)).into_response())
}
