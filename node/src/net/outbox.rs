//! Frames on their way out: one bounded queue and one writer task for each peer that has any.
//!
//! A frame leaves its queue when the transport has taken it. If the stream breaks, what is still
//! queued is kept for a short time and sent over the next connection, in order; frames that the
//! transport had taken may be lost then (the node learns of the break by `Disconnected`). The reader
//! confirms each stream with one byte; frames on a stream that breaks unconfirmed are reported lost.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use libp2p::core::upgrade::NegotiationError;
use souk_protocol::NodeId;
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    MAX_FRAME, OpenError, SendError, SendFailure,
    command::{Command, Kind, Notice},
    trade::CONFIRM,
};

/// Frames waiting for one peer; more are refused.
const PEER_FRAMES: usize = 4_096;
/// Bytes waiting for one peer; more are refused. At least one longest frame fits.
const PEER_BYTES: usize = 4 << 20;
/// Bytes waiting in all; more are refused.
const ALL_BYTES: usize = 64 << 20;
/// Peers with a queue.
const MAX_PEERS: usize = 1_024;
/// Small frames are sent together up to this many bytes.
const BATCH_BYTES: usize = 64 << 10;
/// How long queued frames outlive a broken stream.
const RECONNECT_WINDOW: Duration = Duration::from_secs(6);
/// First pause between attempts to reopen a stream; it doubles, to spare the dial budget.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// An idle trade stream is closed after this time, so that the connection may end when room is short.
const IDLE: Duration = Duration::from_secs(600);
/// A peer that takes no byte for this long is given up.
const STALL: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Queues {
    peers: HashMap<NodeId, Queue>,
    bytes: usize,
    closed: bool,
}

/// All outgoing queues.
#[derive(Debug)]
pub(super) struct Outbox {
    // A lock rather than a message: `send` must neither wait nor lose the order of its caller.
    // Held for a few instructions, never over an await.
    queues: Mutex<Queues>,
    drained: Notify,
    commands: mpsc::Sender<Command>,
    notices: mpsc::Sender<Notice>,
    runtime: tokio::runtime::Handle,
    stop: CancellationToken,
}

impl Outbox {
    pub(super) fn new(
        commands: mpsc::Sender<Command>,
        notices: mpsc::Sender<Notice>,
        runtime: tokio::runtime::Handle,
        stop: CancellationToken,
    ) -> Self {
        Self { queues: Mutex::default(), drained: Notify::new(), commands, notices, runtime, stop }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a frame.
    pub(super) fn push(self: &Arc<Self>, peer: NodeId, frame: Vec<u8>) -> Result<(), SendError> {
        let len = frame.len();
        if len == 0 || len > MAX_FRAME {
            return Err(SendError::Length { len });
        }
        let mut queues = self.lock();
        if queues.closed || self.stop.is_cancelled() {
            return Err(SendError::Stopped);
        }
        if queues.bytes.saturating_add(len) > ALL_BYTES {
            return Err(SendError::QueueFull);
        }
        let count = queues.peers.len();
        let queue = match queues.peers.entry(peer) {
            Entry::Occupied(entry) => {
                let queue = entry.into_mut();
                if queue.frames.len() >= PEER_FRAMES || queue.bytes.saturating_add(len) > PEER_BYTES {
                    return Err(SendError::QueueFull);
                }
                queue.wake.notify_one();
                queue
            }
            Entry::Vacant(entry) => {
                if count >= MAX_PEERS {
                    return Err(SendError::TooManyPeers);
                }
                let queue = entry.insert(Queue::default());
                let writer = Writer { peer, outbox: Arc::clone(self), wake: Arc::clone(&queue.wake) };
                self.runtime.spawn(writer.run());
                queue
            }
        };
        queue.bytes = queue.bytes.saturating_add(len);
        queue.frames.push_back(frame);
        queues.bytes = queues.bytes.saturating_add(len);
        Ok(())
    }

    /// Takes no more frames and waits until the queues are empty, or for `limit`.
    pub(super) async fn close(&self, limit: Duration) {
        self.lock().closed = true;
        let empty = async {
            loop {
                let drained = self.drained.notified();
                if self.lock().bytes == 0 {
                    return;
                }
                drained.await;
            }
        };
        // What does not leave in time is lost, as in a crash; the node above resumes by its journal.
        let _ = timeout(limit, empty).await;
    }

    /// Takes frames for one write. They still count until [`settle`](Self::settle).
    fn take(&self, peer: &NodeId) -> Vec<Vec<u8>> {
        let mut queues = self.lock();
        let Some(queue) = queues.peers.get_mut(peer) else { return Vec::new() };
        let mut batch = Vec::new();
        let mut bytes = 0usize;
        while let Some(frame) = queue.frames.front() {
            bytes = bytes.saturating_add(frame.len()).saturating_add(4);
            if bytes > BATCH_BYTES && !batch.is_empty() {
                break;
            }
            batch.extend(queue.frames.pop_front());
        }
        batch
    }

    /// Ends what [`take`](Self::take) began: `sent` bytes are gone, `unsent` frames come first again.
    fn settle(&self, peer: &NodeId, sent: usize, unsent: Vec<Vec<u8>>) {
        let mut queues = self.lock();
        if let Some(queue) = queues.peers.get_mut(peer) {
            queue.bytes = queue.bytes.saturating_sub(sent);
            for frame in unsent.into_iter().rev() {
                queue.frames.push_front(frame);
            }
            queues.bytes = queues.bytes.saturating_sub(sent);
        }
        if queues.bytes == 0 {
            self.drained.notify_waiters();
        }
    }

    /// Removes an empty queue; `false` if a frame came meanwhile. After `true` the caller's writer
    /// must end: the next frame starts another.
    fn retire(&self, peer: &NodeId) -> bool {
        let mut queues = self.lock();
        if queues.peers.get(peer).is_some_and(|queue| !queue.frames.is_empty()) {
            return false;
        }
        queues.peers.remove(peer);
        true
    }

    /// Removes a queue with all it holds and says how many frames that were.
    fn discard(&self, peer: &NodeId) -> usize {
        let mut queues = self.lock();
        let Some(queue) = queues.peers.remove(peer) else { return 0 };
        queues.bytes = queues.bytes.saturating_sub(queue.bytes);
        if queues.bytes == 0 {
            self.drained.notify_waiters();
        }
        queue.frames.len()
    }

    #[cfg(test)]
    pub(super) fn queued_bytes(&self) -> usize {
        self.lock().bytes
    }
}

/// Why a stream is no longer written to.
enum End {
    Idle,
    Broken(io::Error),
    Stalled,
    Stopped,
}

struct Writer {
    peer: NodeId,
    outbox: Arc<Outbox>,
    wake: Arc<Notify>,
}

impl Writer {
    async fn run(self) {
        let Err(why) = self.session().await else { return };
        let dropped = self.outbox.discard(&self.peer);
        self.report(dropped, why).await;
    }

    async fn report(&self, dropped: usize, why: SendFailure) {
        if dropped > 0 {
            let notice = Notice::SendFailed { peer: self.peer, dropped, why };
            let _ = self.outbox.notices.send(notice).await;
        }
    }

    /// Writes until the queue is empty and retired (`Ok`) or must be given up.
    async fn session(&self) -> Result<(), SendFailure> {
        // Since when nothing could be sent.
        let mut down: Option<Instant> = None;
        let mut pause = FIRST_PAUSE;
        loop {
            let begun = Instant::now();
            let problem = match self.open().await {
                Ok(stream) => {
                    let Pumped { end, confirmed, frames } = self.pump(stream).await;
                    let failure = match end {
                        End::Idle if self.outbox.retire(&self.peer) => return Ok(()),
                        End::Idle => continue,
                        End::Stopped => return Err(SendFailure::Stopped),
                        End::Stalled => SendFailure::Stalled,
                        End::Broken(error) if is_unsupported(&error) => SendFailure::Unsupported,
                        End::Broken(error) => SendFailure::Unreachable(error.to_string()),
                    };
                    if confirmed {
                        // A stream that worked begins a new outage.
                        down = Some(Instant::now());
                        pause = FIRST_PAUSE;
                    } else {
                        self.report(frames, failure.clone()).await;
                    }
                    match failure {
                        SendFailure::Unreachable(problem) => problem,
                        final_failure => return Err(final_failure),
                    }
                }
                Err(OpenError::Stopped) => return Err(SendFailure::Stopped),
                Err(OpenError::Unsupported) => return Err(SendFailure::Unsupported),
                Err(error) => error.to_string(),
            };
            if self.outbox.stop.is_cancelled() {
                return Err(SendFailure::Stopped);
            }
            if down.get_or_insert(begun).elapsed() >= RECONNECT_WINDOW {
                return Err(SendFailure::Unreachable(problem));
            }
            if self.outbox.retire(&self.peer) {
                // Nothing is queued: no reason to reconnect.
                return Ok(());
            }
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
        }
    }

    async fn open(&self) -> Result<libp2p::Stream, OpenError> {
        let (reply, opened) = oneshot::channel();
        let command = Command::Open { peer: self.peer, kind: Kind::Trade, reply };
        self.outbox.commands.send(command).await.map_err(|_| OpenError::Stopped)?;
        opened.await.map_err(|_| OpenError::Stopped)?
    }

    /// Writes batches until the stream ends.
    async fn pump(&self, stream: libp2p::Stream) -> Pumped {
        let (mut from, mut to) = stream.split();
        let confirmed = AtomicBool::new(false);
        let mut count = 0usize;
        let end = loop {
            let frames = self.outbox.take(&self.peer);
            if frames.is_empty() {
                let end = tokio::select! {
                    biased;
                    () = self.outbox.stop.cancelled() => End::Stopped,
                    error = closed(&mut from, &confirmed) => End::Broken(error),
                    () = self.wake.notified() => continue,
                    () = sleep(IDLE) => End::Idle,
                };
                if matches!(end, End::Idle) {
                    // Everything has been flushed; a failure now loses nothing.
                    let _ = to.close().await;
                }
                break end;
            }
            let mut written = 0usize;
            let failure = tokio::select! {
                biased;
                () = self.outbox.stop.cancelled() => Some(End::Stopped),
                error = closed(&mut from, &confirmed) => Some(End::Broken(error)),
                result = write(&mut to, &frames, &mut written) => result.err(),
            };
            let all = frames.len();
            let (sent, unsent) = split(frames, written);
            count = count.saturating_add(all.saturating_sub(unsent.len()));
            self.outbox.settle(&self.peer, sent, unsent);
            if let Some(end) = failure {
                break end;
            }
        };
        Pumped { end, confirmed: confirmed.load(Ordering::Relaxed), frames: count }
    }
}

/// How a stream's life went.
struct Pumped {
    end: End,
    /// Whether the peer's reader took the stream.
    confirmed: bool,
    /// Frames written.
    frames: usize,
}

/// Payload bytes of the frames wholly within the first `written` bytes of the batch, and the other frames.
fn split(frames: Vec<Vec<u8>>, written: usize) -> (usize, Vec<Vec<u8>>) {
    let mut end = 0usize;
    let mut sent = 0usize;
    let mut unsent = Vec::new();
    for frame in frames {
        end = end.saturating_add(frame.len()).saturating_add(4);
        if end <= written {
            sent = sent.saturating_add(frame.len());
        } else {
            unsent.push(frame);
        }
    }
    (sent, unsent)
}

/// Writes all frames and counts bytes taken by the transport, also when cancelled.
async fn write<W: AsyncWrite + Unpin>(to: &mut W, frames: &[Vec<u8>], written: &mut usize) -> Result<(), End> {
    let size = frames.iter().map(|frame| frame.len().saturating_add(4)).sum();
    let mut batch = Vec::with_capacity(size);
    for frame in frames {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        batch.extend_from_slice(&len.to_be_bytes());
        batch.extend_from_slice(frame);
    }
    while let Some(rest) = batch.get(*written..).filter(|rest| !rest.is_empty()) {
        match timeout(STALL, to.write(rest)).await {
            Err(_) => return Err(End::Stalled),
            Ok(Err(error)) => return Err(End::Broken(error)),
            Ok(Ok(0)) => return Err(End::Broken(io::ErrorKind::WriteZero.into())),
            Ok(Ok(count)) => *written = written.saturating_add(count),
        }
    }
    match timeout(STALL, to.flush()).await {
        Err(_) => Err(End::Stalled),
        Ok(result) => result.map_err(End::Broken),
    }
}

/// Resolves when the other side ends the stream. Apart from one confirmation it sends nothing.
async fn closed<R: AsyncRead + Unpin>(from: &mut R, confirmed: &AtomicBool) -> io::Error {
    loop {
        let mut byte = [0u8; 1];
        match from.read(&mut byte).await {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Ok(_) if byte == [CONFIRM] && !confirmed.swap(true, Ordering::Relaxed) => {}
            Ok(_) => return io::Error::new(io::ErrorKind::InvalidData, "the peer wrote on a one-way stream"),
            Err(error) => return error,
        }
    }
}

/// Whether the peer refused the protocol, which with lazy opening shows on reading.
fn is_unsupported(error: &io::Error) -> bool {
    error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<NegotiationError>())
        .is_some_and(|inner| matches!(inner, NegotiationError::Failed))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_frames_only_count_as_sent(
            lens in prop::collection::vec(1usize..50, 0..20),
            cut in 0usize..1_500,
        ) {
            let frames: Vec<Vec<u8>> = lens.iter().map(|len| vec![7; *len]).collect();
            let total: usize = lens.iter().map(|len| len + 4).sum();
            let (sent, unsent) = split(frames.clone(), cut.min(total));
            let kept: usize = unsent.iter().map(Vec::len).sum();
            prop_assert_eq!(sent + kept, lens.iter().sum::<usize>());
            prop_assert_eq!(&unsent[..], &frames[frames.len() - unsent.len()..]);
            let sent_wire: usize = frames[..frames.len() - unsent.len()].iter().map(|f| f.len() + 4).sum();
            prop_assert!(sent_wire <= cut.min(total));
            if let Some(next) = unsent.first() {
                prop_assert!(sent_wire + next.len() + 4 > cut.min(total));
            }
        }
    }
}
