//! Frames on trade streams: a length of four bytes (big endian), then 1 byte to 256 KiB. The reading
//! side writes a single byte when it takes the stream, and nothing else.
//!
//! One task reads each peer's stream. It may wait for the node: that stops this peer alone, whose
//! stream then fills up, and nobody else.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use libp2p::PeerId;
use souk_protocol::NodeId;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader},
    sync::{Semaphore, mpsc},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_util::{compat::FuturesAsyncReadCompatExt, sync::CancellationToken};

use super::{MAX_FRAME, bucket::Bucket, command::Notice, config::Limits, events::QueuedFrame, peer::Strike};

/// Bytes of one peer's frames that may be in memory here, read but not yet taken by the node.
const PEER_BYTES: usize = 512 << 10;
/// What a small frame counts, so that many small ones are bounded too.
const MIN_COST: usize = 1_024;
/// Read ahead for each peer: many small frames come with one system call.
const READ_AHEAD: usize = 16 << 10;

/// What the reading side writes when it takes a stream.
pub(super) const CONFIRM: u8 = 1;

/// Tells a peer's readers apart.
pub(super) type ReaderId = u64;

/// One peer's share of this node, kept over reconnections.
#[derive(Debug)]
pub(super) struct Share {
    memory: Arc<Semaphore>,
    // A plain lock: only this peer's reader takes it, never across an await.
    rate: Mutex<Bucket>,
}

impl Share {
    pub(super) fn new(limits: &Limits, now: Instant) -> Self {
        Self {
            memory: Arc::new(Semaphore::new(PEER_BYTES)),
            rate: Mutex::new(Bucket::new(limits.frames_per_second, limits.frames_burst, now)),
        }
    }
}

/// A running reader.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: ReaderId,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Reader {
    /// Stops it at once.
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

/// What a reader needs.
pub(super) struct Setup {
    pub(super) id: ReaderId,
    pub(super) peer_id: PeerId,
    pub(super) peer: NodeId,
    pub(super) share: Arc<Share>,
    pub(super) frame_timeout: Duration,
    pub(super) frames: mpsc::Sender<QueuedFrame>,
    pub(super) notices: mpsc::Sender<Notice>,
}

/// Starts reading a peer's trade stream. A reader that is replaced ends first, so frames stay in order.
pub(super) fn start(setup: Setup, stream: libp2p::Stream, previous: Option<Reader>) -> Reader {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let id = setup.id;
    let task = tokio::spawn(async move {
        let (from, mut to) = tokio::io::split(stream.compat());
        // If this fails, reading will fail too. One byte always fits, so it does not wait for the peer.
        let _ = to.write_all(&[CONFIRM]).await;
        let _ = to.flush().await;
        if let Some(Reader { stop, task, .. }) = previous {
            // The older one takes what has already arrived, then stops.
            stop.cancel();
            let _ = task.await;
        }
        let strike = read(&setup, from, stopped).await.err();
        let _ = setup.notices.send(Notice::ReaderEnded { peer: setup.peer_id, id, strike }).await;
    });
    Reader { id, stop, task }
}

/// Reads frames until the stream ends (`Ok`) or the peer misbehaves.
async fn read(setup: &Setup, stream: impl AsyncRead + Unpin, stop: CancellationToken) -> Result<(), Strike> {
    let mut reader = BufReader::with_capacity(READ_AHEAD, stream);
    loop {
        // Between frames a peer may be silent as long as it likes.
        let more = tokio::select! {
            biased;
            more = reader.fill_buf() => more,
            () = stop.cancelled() => return Ok(()),
        };
        match more {
            Ok(bytes) if !bytes.is_empty() => {}
            _ => return Ok(()),
        }
        let head = timeout(setup.frame_timeout, reader.read_u32()).await;
        let len = match head {
            Err(_) => return Err(Strike::SlowFrame),
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(len)) => usize::try_from(len).unwrap_or(usize::MAX),
        };
        if len == 0 || len > MAX_FRAME {
            return Err(Strike::BadFrame);
        }
        wait_for_rate(&setup.share).await;
        // Memory is paid for before it is allocated; the payment returns when the node takes the frame.
        let cost = u32::try_from(len.max(MIN_COST)).unwrap_or(u32::MAX);
        let Ok(hold) = Arc::clone(&setup.share.memory).acquire_many_owned(cost).await else { return Ok(()) };
        let mut bytes = vec![0; len];
        match timeout(setup.frame_timeout, reader.read_exact(&mut bytes)).await {
            Err(_) => return Err(Strike::SlowFrame),
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(_)) => {}
        }
        if setup.frames.send(QueuedFrame { peer: setup.peer, bytes, hold }).await.is_err() {
            return Ok(());
        }
    }
}

async fn wait_for_rate(share: &Share) {
    let wait = share.rate.lock().unwrap_or_else(PoisonError::into_inner).take_later(Instant::now());
    if let Some(wait) = wait {
        tokio::time::sleep(wait).await;
    }
}
