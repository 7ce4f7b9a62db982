//! The API's client: what the command line talks to a node with.

mod lines;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes_of::BytesStream;
use futures::{Stream, StreamExt as _};
use reqwest::{Method, Response, StatusCode};
use serde::{Serialize, de::DeserializeOwned};
use souk_protocol::Hash;
use tokio::io::AsyncWriteExt as _;

use self::lines::{EventReader, PartReader};
use crate::view::{ErrorBody, ErrorView, JobEvent, LogPart};

/// Longest wait for a connection: the node is on this machine.
const CONNECT: Duration = Duration::from_secs(2);
/// Longest wait for an answer that is not a stream. A node that replays a large journal answers late.
const ANSWER: Duration = Duration::from_secs(30);
/// Largest error body read.
const MAX_ERROR: usize = 64 * 1024;

mod bytes_of {
    //! Names the stream of a body without naming the crate its chunks are from.

    use std::pin::Pin;

    use futures::Stream;

    /// A body as it comes.
    pub(crate) type BytesStream = Pin<Box<dyn Stream<Item = Result<Vec<u8>, reqwest::Error>> + Send>>;
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no node answers on {address}")]
    Refused {
        /// Where.
        address: SocketAddr,
    },
    /// The connection broke or nothing came in time.
    #[error("the node on {address} does not answer: {why}")]
    Broken {
        /// Where.
        address: SocketAddr,
        /// What happened.
        why: String,
    },
    /// The node said no.
    #[error("{}", .0.message)]
    Api(Box<ErrorView>),
    /// The answer is not what this version understands.
    #[error("the node's answer to {what} makes no sense: {why}")]
    Shape {
        /// What was asked.
        what: String,
        /// What is wrong.
        why: String,
    },
    /// A file of this machine cannot be read or written.
    #[error("cannot {action} {}: {why}", path.display())]
    Local {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// The answer.
        why: String,
    },
}

/// Speaks to one node.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    address: SocketAddr,
    token: String,
}

impl Client {
    /// A client of the node on `address`. Nothing is sent yet.
    ///
    /// # Errors
    /// If the HTTP client cannot be made.
    pub fn new(address: SocketAddr, token: String) -> Result<Self, ClientError> {
        let http = reqwest::Client::builder()
            // A proxy has no business between two processes of one machine.
            .no_proxy()
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| ClientError::Broken { address, why: error.to_string() })?;
        Ok(Self { http, address, token })
    }

    /// Where the node is.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// `GET`, one JSON value.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let request = self.request(Method::GET, path).timeout(ANSWER);
        self.json(path, self.sent(request).await?).await
    }

    /// `POST` of a JSON value, answered by one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, ClientError> {
        let request = self.request(Method::POST, path).timeout(ANSWER).json(body);
        self.json(path, self.sent(request).await?).await
    }

    /// `GET`, all bytes of the answer, at most `max`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn bytes(&self, path: &str, max: usize) -> Result<Vec<u8>, ClientError> {
        let mut stream = self.stream(path).await?;
        let mut all = Vec::new();
        while let Some(chunk) = stream.next().await {
            all.extend_from_slice(&chunk?);
            if all.len() > max {
                return Err(ClientError::Shape { what: path.to_owned(), why: format!("more than {max} bytes") });
            }
        }
        Ok(all)
    }

    /// `GET`, the bytes as they come.
    ///
    /// # Errors
    /// [`ClientError`]; each chunk may fail, too.
    pub async fn stream(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, ClientError>> + use<>, ClientError> {
        let response = self.sent(self.request(Method::GET, path)).await?;
        let address = self.address;
        Ok(body(response).map(move |chunk| chunk.map_err(|error| broken(address, &error))))
    }

    /// The length of a blob, if the node holds it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn blob_len(&self, hash: &Hash) -> Result<Option<u64>, ClientError> {
        let request = self.request(Method::HEAD, &format!("/v1/blobs/{hash}")).timeout(ANSWER);
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let length = response.headers().get("content-length").and_then(|value| value.to_str().ok());
                Ok(length.and_then(|text| text.parse().ok()))
            }
            _ => Err(self.error(response).await),
        }
    }

    /// Gives the node a file by its hash; `sent` hears of each chunk's length.
    ///
    /// # Errors
    /// [`ClientError`]; a file that has changed since it was hashed is refused by the node.
    pub async fn put_blob(
        &self,
        hash: &Hash,
        len: u64,
        path: &Path,
        sent: impl Fn(u64) + Send + Sync + 'static,
    ) -> Result<(), ClientError> {
        let file = tokio::fs::File::open(path).await.map_err(local("read", path))?;
        let stream = tokio_util::io::ReaderStream::with_capacity(file, 128 * 1024).map(move |chunk| {
            if let Ok(chunk) = &chunk {
                sent(chunk.len() as u64);
            }
            chunk
        });
        let request = self
            .request(Method::PUT, &format!("/v1/blobs/{hash}"))
            .header("content-length", len)
            .body(reqwest::Body::wrap_stream(stream));
        self.sent(request).await.map(drop)
    }

    /// Writes a blob into a file and says how long it was. Its hash is checked.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_blob(&self, hash: &Hash, into: &mut tokio::fs::File, path: &Path) -> Result<u64, ClientError> {
        let what = format!("/v1/blobs/{hash}");
        let mut stream = self.stream(&what).await?;
        let mut hasher = blake3::Hasher::new();
        let mut len = 0_u64;
        while let Some(chunk) = stream.next().await {
            let chunk = chunk?;
            hasher.update(&chunk);
            into.write_all(&chunk).await.map_err(local("write", path))?;
            len = len.saturating_add(chunk.len() as u64);
        }
        into.flush().await.map_err(local("write", path))?;
        if hasher.finalize().as_bytes() != &hash.0 {
            return Err(ClientError::Shape { what, why: "other bytes than its hash says".to_owned() });
        }
        Ok(len)
    }

    /// Events of a job after number `from`, until its end state; with `logs` log chunks ride along.
    ///
    /// # Errors
    /// [`ClientError`]; each event may fail, too.
    pub async fn events(
        &self,
        job: &str,
        from: u64,
        logs: bool,
    ) -> Result<impl Stream<Item = Result<JobEvent, ClientError>> + Unpin + use<>, ClientError> {
        let path = format!("/v1/jobs/{job}/events?from={from}&logs={}", u8::from(logs));
        let request = self.request(Method::GET, &path).header("accept", "text/event-stream");
        let response = self.sent(request).await?;
        let reader = EventReader::new(body(response), self.address);
        Ok(Box::pin(futures::stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(event)) => Some((Ok(event), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    /// Parts of a log as they come; the last one says that it is the end.
    ///
    /// # Errors
    /// [`ClientError`]; each part may fail, too.
    pub async fn parts(
        &self,
        path: &str,
    ) -> Result<impl Stream<Item = Result<LogPart, ClientError>> + Unpin + use<>, ClientError> {
        let response = self.sent(self.request(Method::GET, path)).await?;
        let reader = PartReader::new(body(response), self.address);
        Ok(Box::pin(futures::stream::unfold(Some(reader), |reader| async {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(part)) => {
                    let rest = (!part.end).then_some(reader);
                    Some((Ok(part), rest))
                }
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })))
    }

    fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("http://{}{path}", self.address)).bearer_auth(&self.token)
    }

    async fn sent(&self, request: reqwest::RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.failed(&error))?;
        if response.status().is_success() { Ok(response) } else { Err(self.error(response).await) }
    }

    async fn json<T: DeserializeOwned>(&self, what: &str, response: Response) -> Result<T, ClientError> {
        let bytes = response.bytes().await.map_err(|error| self.failed(&error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| ClientError::Shape { what: what.to_owned(), why: error.to_string() })
    }

    /// The error in an answer's body, or what its status says.
    async fn error(&self, response: Response) -> ClientError {
        let status = response.status();
        let mut stream = body(response);
        let mut bytes = Vec::new();
        while let Some(Ok(chunk)) = stream.next().await {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_ERROR {
                break;
            }
        }
        if let Ok(body) = serde_json::from_slice::<ErrorBody>(&bytes) {
            return ClientError::Api(Box::new(body.error));
        }
        let view = ErrorView {
            code: "api".to_owned(),
            exit: if status.is_server_error() { 6 } else { 1 },
            message: format!("{} answers {status}; is it a souk node?", self.address),
            hint: None,
            nearest: Vec::new(),
        };
        ClientError::Api(Box::new(view))
    }

    fn failed(&self, error: &reqwest::Error) -> ClientError {
        if error.is_connect() && !error.is_timeout() {
            return ClientError::Refused { address: self.address };
        }
        broken(self.address, error)
    }
}

fn broken(address: SocketAddr, error: &reqwest::Error) -> ClientError {
    let mut why = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        // The cause says more than "error sending request".
        why = cause.to_string();
        source = cause.source();
    }
    ClientError::Broken { address, why }
}

fn local<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> ClientError + 'a {
    move |error| ClientError::Local { action, path: path.to_owned(), why: error.to_string() }
}

fn body(response: Response) -> BytesStream {
    Box::pin(response.bytes_stream().map(|chunk| chunk.map(|chunk| chunk.to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_listening_is_told_apart_from_no_answer() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let client = Client::new(address, "t".to_owned()).unwrap();
        let error = client.get::<serde_json::Value>("/v1/status").await.unwrap_err();
        assert!(matches!(error, ClientError::Refused { .. }), "{error}");
    }
}
