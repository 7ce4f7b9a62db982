//! Bodies that are read line by line.

use std::{collections::VecDeque, net::SocketAddr};

use futures::StreamExt as _;

use super::{ClientError, broken, bytes_of::BytesStream};
use crate::view::{JobEvent, LogPart};

/// Largest event or part: a log chunk in base64, or an auction with many bids.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// Lines of a stream of bytes.
#[derive(Debug, Default)]
pub(super) struct Lines {
    ready: VecDeque<String>,
    rest: Vec<u8>,
}

impl Lines {
    /// Takes a chunk; `false` if a line is longer than any event.
    fn push(&mut self, chunk: &[u8]) -> bool {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(part);
            if self.rest.last() == Some(&b'\n') {
                let line = String::from_utf8_lossy(&self.rest).trim_end_matches(['\n', '\r']).to_owned();
                self.ready.push_back(line);
                self.rest.clear();
            }
        }
        self.rest.len() <= MAX_EVENT
    }
}

/// Reads server-sent events.
pub(super) struct EventReader {
    body: BytesStream,
    lines: Lines,
    data: String,
    address: SocketAddr,
}

impl EventReader {
    pub(super) fn new(body: BytesStream, address: SocketAddr) -> Self {
        Self { body, lines: Lines::default(), data: String::new(), address }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<JobEvent>, ClientError> {
        let shape = |why: String| ClientError::Shape { what: "the event stream".to_owned(), why };
        loop {
            while let Some(line) = self.lines.ready.pop_front() {
                if let Some(data) = line.strip_prefix("data:") {
                    self.data.push_str(data.trim_start());
                } else if line.is_empty() && !self.data.is_empty() {
                    let data = std::mem::take(&mut self.data);
                    return serde_json::from_str(&data).map(Some).map_err(|error| shape(error.to_string()));
                }
            }
            match self.body.next().await {
                Some(Ok(chunk)) => {
                    if !self.lines.push(&chunk) || self.data.len() > MAX_EVENT {
                        return Err(shape(format!("an event of more than {MAX_EVENT} bytes")));
                    }
                }
                Some(Err(error)) => return Err(broken(self.address, &error)),
                None => return Ok(None),
            }
        }
    }
}

/// Reads parts of a log.
pub(super) struct PartReader {
    body: BytesStream,
    lines: Lines,
    address: SocketAddr,
}

impl PartReader {
    pub(super) fn new(body: BytesStream, address: SocketAddr) -> Self {
        Self { body, lines: Lines::default(), address }
    }

    /// The next part. A body that ends before the part that says so is broken.
    pub(super) async fn next(&mut self) -> Result<Option<LogPart>, ClientError> {
        let shape = |why: String| ClientError::Shape { what: "a log".to_owned(), why };
        loop {
            if let Some(line) = self.lines.ready.pop_front() {
                return serde_json::from_str(&line).map(Some).map_err(|error| shape(error.to_string()));
            }
            match self.body.next().await {
                Some(Ok(chunk)) => {
                    if !self.lines.push(&chunk) {
                        return Err(shape(format!("a line of more than {MAX_EVENT} bytes")));
                    }
                }
                Some(Err(error)) => return Err(broken(self.address, &error)),
                None => {
                    let why = "the log breaks off".to_owned();
                    return Err(ClientError::Broken { address: self.address, why });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_the_bytes_are_cut() {
        let text = "data: {\"a\":1}\r\n\ndata: é\n";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            for chunk in text.as_bytes().chunks(size) {
                assert!(lines.push(chunk));
            }
            assert_eq!(lines.ready, ["data: {\"a\":1}", "", "data: é"], "{size}");
        }
    }
}
