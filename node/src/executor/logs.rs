//! Logs of an attempt: into the spool, and to the renter while it runs.
//!
//! Two tasks share the work, so that a slow renter never makes the guest wait: the writer appends to the spool and
//! hands each piece on if the sender has room; the sender sends pieces as they come and reads from the spool whatever it
//! missed. What a broken stream lost is fetched by the renter by hash at the end.

use std::{sync::Arc, time::Duration};

use souk_protocol::{AttemptId, Hash, LeaseId, List, LogEnd, LogFrame, LogOffsets, LogOpen, MAX_LOG_CHUNK, NodeId};
use souk_sandbox::{Output, Stream as Which};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    time::{sleep, timeout},
};
use tracing::debug;

use crate::{
    frame::{self, FrameError},
    net::{Net, Protocol, Stream},
    store::{AttemptLogs, Spool, SpoolError, Store},
};

/// Pieces on their way to the sender. When it is full they are not handed on, and read from the spool later.
const PIECES: usize = 64;
/// Wait before a broken stream is opened again.
const REOPEN: Duration = Duration::from_millis(500);
/// A renter that takes nothing for so long is tried again on a new stream.
const STALL: Duration = Duration::from_secs(10);
/// After so long without a new piece the sender looks whether it is behind the spool.
const BEHIND: Duration = Duration::from_secs(1);
/// Time for the rest of the log after the attempt's end; then the renter fetches it by hash.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Largest frame of a log stream.
const MAX_FRAME: usize = MAX_LOG_CHUNK + 64;

/// What the names of an attempt's logs begin with.
pub(crate) fn spool_name(attempt: &AttemptId) -> String {
    format!("{}-{}-{}-{}", attempt.lease, attempt.task, attempt.replica, attempt.number)
}

/// What the names of a lease's logs begin with.
pub(super) fn lease_prefix(lease: &LeaseId) -> String {
    format!("{lease}-")
}

/// Removes the logs of a lease.
pub(super) async fn remove(store: &Arc<Store>, prefix: &str) {
    let (dir, prefix) = (store.spool_dir(), prefix.to_owned());
    let _ = tokio::task::spawn_blocking(move || {
        for item in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if item.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
                && let Err(error) = std::fs::remove_file(item.path())
            {
                debug!(%error, "a log stays");
            }
        }
    })
    .await;
}

const fn of(logs: &AttemptLogs, which: Which) -> &Spool {
    match which {
        Which::Stdout => &logs.stdout,
        Which::Stderr => &logs.stderr,
    }
}

/// Opens both logs of an attempt.
pub(super) async fn open(store: &Store, attempt: &AttemptId, cap: u64) -> Result<AttemptLogs, SpoolError> {
    store.logs(&spool_name(attempt), cap, false).await
}

/// Closes both, durable, and says what is in them. `written` is what the guest wrote, kept or not.
pub(super) async fn close(logs: &AttemptLogs, written: (u64, u64)) -> Result<(LogEnd, LogEnd), SpoolError> {
    let end = |closed: crate::store::Closed, written: u64| LogEnd {
        len: closed.length,
        hash: Hash(*closed.hash.as_bytes()),
        written: written.max(closed.length),
    };
    let (stdout, stderr) = tokio::try_join!(logs.stdout.close(None), logs.stderr.close(None))?;
    Ok((end(stdout, written.0), end(stderr, written.1)))
}

/// Takes the guest's output until the runner lets go of `outputs`, into the spools and towards the renter.
pub(super) async fn write(
    logs: AttemptLogs,
    mut outputs: mpsc::Receiver<Output>,
    sender: mpsc::Sender<Piece>,
) -> Result<(), SpoolError> {
    while let Some(output) = outputs.recv().await {
        let spool = of(&logs, output.stream);
        // First on its way, then to the disk: nothing is signed yet. Nobody else writes, so the spool's end is its place.
        let _ = sender.try_send(Piece { offset: spool.state().length, output: output.clone() });
        spool.append(output.bytes).await?;
    }
    Ok(())
}

/// Output on its way to the sender, with its place in its log.
#[derive(Debug)]
pub(super) struct Piece {
    offset: u64,
    output: Output,
}

/// A channel from the writer to the sender.
pub(super) fn pieces() -> (mpsc::Sender<Piece>, mpsc::Receiver<Piece>) {
    mpsc::channel(PIECES)
}

/// Sends the logs to the renter until the pieces end and all has been sent.
pub(super) async fn send(
    net: Net,
    renter: NodeId,
    attempt: AttemptId,
    logs: AttemptLogs,
    mut pieces: mpsc::Receiver<Piece>,
) {
    let mut sender = Sender { net, renter, attempt, logs, stream: None, opened: false, sent: [0, 0] };
    // Ahead of the first piece: the stream opens while the program starts.
    let mut sent = sender.connect().await;
    loop {
        if let Err(error) = sent {
            debug!(%attempt, %error, "log stream broke");
            sender.stream = None;
            sleep(REOPEN).await;
        }
        sent = match timeout(BEHIND, pieces.recv()).await {
            Ok(Some(piece)) => sender.piece(piece).await,
            Ok(None) => break,
            // A piece that was not handed on has no successor to bring it along.
            Err(_) => sender.catch_up().await,
        };
    }
    let rest = timeout(LAST_WORDS, async {
        while sender.catch_up().await.is_err() {
            sender.stream = None;
            sleep(REOPEN).await;
        }
        sender.close().await;
    });
    if rest.await.is_err() {
        debug!(%attempt, "the renter fetches the rest of the log by hash");
    }
}

struct Sender {
    net: Net,
    renter: NodeId,
    attempt: AttemptId,
    logs: AttemptLogs,
    stream: Option<Stream>,
    opened: bool,
    sent: [u64; 2],
}

const fn index(which: Which) -> usize {
    match which {
        Which::Stdout => 0,
        Which::Stderr => 1,
    }
}

impl Sender {
    async fn piece(&mut self, Piece { offset, output }: Piece) -> Result<(), FrameError> {
        self.connect().await?;
        let sent = self.sent.get(index(output.stream)).copied().unwrap_or(0);
        if offset == sent {
            return self.frame(output.stream, &output.bytes).await;
        }
        // It went with what was read from the spool, or something before it was not handed on. In both cases the spool
        // knows what is missing.
        self.catch_up().await
    }

    async fn connect(&mut self) -> Result<(), FrameError> {
        if self.stream.is_some() {
            return Ok(());
        }
        let opened = self.net.open_stream(self.renter, Protocol::Log).await;
        let mut stream = opened.map_err(|error| FrameError::Io(std::io::Error::other(error.to_string())))?;
        let resumes = self.opened;
        frame::write(&mut stream, &LogOpen { attempt: self.attempt, resumes }, MAX_FRAME).await?;
        if resumes {
            let offsets: LogOffsets = timeout(STALL, frame::read(&mut stream, MAX_FRAME))
                .await
                .map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))??
                .ok_or_else(|| std::io::Error::from(std::io::ErrorKind::UnexpectedEof))?;
            self.sent = [offsets.stdout, offsets.stderr];
        }
        self.opened = true;
        self.stream = Some(stream);
        Ok(())
    }

    /// Ends the stream and waits until the renter has read it: a stream that is dropped before its protocol was confirmed
    /// takes what is in it along.
    async fn close(&mut self) {
        if let Some(stream) = &mut self.stream {
            // A renter that is gone fetches by hash what it lacks.
            let _ = stream.shutdown().await;
            let _ = stream.read(&mut [0]).await;
        }
    }

    async fn catch_up(&mut self) -> Result<(), FrameError> {
        for which in [Which::Stdout, Which::Stderr] {
            loop {
                let sent = self.sent.get(index(which)).copied().unwrap_or(0);
                if of(&self.logs, which).state().length <= sent {
                    break;
                }
                self.connect().await?;
                let read = of(&self.logs, which).read(sent, MAX_LOG_CHUNK as u64).await;
                let bytes = read.map_err(|error| FrameError::Io(std::io::Error::other(error.to_string())))?;
                self.frame(which, &bytes).await?;
            }
        }
        Ok(())
    }

    async fn frame(&mut self, which: Which, bytes: &[u8]) -> Result<(), FrameError> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        let Some(sent) = self.sent.get_mut(index(which)) else { return Ok(()) };
        for chunk in bytes.chunks(MAX_LOG_CHUNK) {
            let Ok(bytes) = List::try_from(chunk.to_vec()) else { continue };
            let stream_number = if index(which) == 0 { 1 } else { 2 };
            let value = LogFrame { stream: stream_number, offset: *sent, bytes };
            match timeout(STALL, frame::write(stream, &value, MAX_FRAME)).await {
                Ok(written) => written?,
                Err(_) => return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            }
            *sent = sent.saturating_add(chunk.len() as u64);
        }
        Ok(())
    }
}
