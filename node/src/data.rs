//! Files between peers: who may fetch what, serving and fetching by BLAKE3.
//!
//! A lease gives the right to fetch: the provider the job's module and inputs, the renter the outputs and logs of the
//! results. Nobody fetches anything without one.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use souk_protocol::{BlobAnswer, BlobRequest, Hash, LeaseId, NodeId};
use tokio::{
    io::{AsyncReadExt as _, AsyncSeekExt as _, AsyncWriteExt as _},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    frame::{self, FrameError},
    net::{Incoming, Net, OpenError, Protocol, Stream},
    store::{self, BlobError, Blobs, Durability, Pin},
};

/// Streams served at once; more wait in the network's own bounded queue.
const MAX_SERVING: usize = 64;
/// A peer that sends or takes nothing for so long is given up.
const STALL: Duration = Duration::from_secs(20);
/// Bytes read or written at once.
const CHUNK: usize = 256 * 1024;
/// Tries of one fetch, each going on where the one before stopped.
const TRIES: u32 = 3;
/// Largest header of a blob stream.
const MAX_HEADER: usize = 256;

/// The store's form of a hash.
#[must_use]
pub const fn stored(hash: &Hash) -> blake3::Hash {
    blake3::Hash::from_bytes(hash.0)
}

/// What a lease gives the right to fetch.
#[derive(Debug, Default)]
struct Right {
    peer: Option<NodeId>,
    files: BTreeMap<Hash, Source>,
    pins: Vec<Pin>,
}

/// Where a file is.
#[derive(Debug, Clone)]
pub enum Source {
    /// Among the blobs.
    Blob,
    /// A finished log.
    File(PathBuf),
}

/// Who may fetch what. Clones share it.
#[derive(Debug, Clone, Default)]
// A lock and not a task: it is held for map operations only, and readers are many.
pub struct Rights(Arc<Mutex<BTreeMap<LeaseId, Right>>>);

impl Rights {
    fn map(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Right>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `peer` fetch these files under `lease`; `pins` keep them from being evicted until it ends.
    pub fn grant(
        &self,
        lease: LeaseId,
        peer: NodeId,
        files: impl IntoIterator<Item = (Hash, Source)>,
        pins: impl IntoIterator<Item = Pin>,
    ) {
        let mut map = self.map();
        let right = map.entry(lease).or_default();
        right.peer = Some(peer);
        right.files.extend(files);
        right.pins.extend(pins);
    }

    /// Ends the rights of a lease.
    pub fn revoke(&self, lease: &LeaseId) {
        self.map().remove(lease);
    }

    /// The other side of a lease, if it is known here.
    #[must_use]
    pub fn peer(&self, lease: &LeaseId) -> Option<NodeId> {
        self.map().get(lease).and_then(|right| right.peer)
    }

    fn source(&self, peer: &NodeId, request: &BlobRequest) -> Option<Source> {
        let map = self.map();
        let right = map.get(&request.lease).filter(|right| right.peer.as_ref() == Some(peer))?;
        right.files.get(&request.hash).cloned()
    }
}

/// Most files kept from eviction beside those of open leases; beyond it the oldest may go when room is needed.
const MAX_KEPT: usize = 65_536;

/// Files that are not to be evicted, the newest of them. Clones share it.
#[derive(Debug, Clone, Default)]
// A lock and not a task: it is held to push and pop only.
pub struct Kept(Arc<Mutex<VecDeque<Pin>>>);

impl Kept {
    /// Keeps these, and lets go of the oldest beyond the limit.
    pub fn add(&self, pins: impl IntoIterator<Item = Pin>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(pins);
        while kept.len() > MAX_KEPT {
            kept.pop_front();
        }
    }
}

/// Answers peers that fetch, until the network ends.
pub async fn serve(mut incoming: Incoming, rights: Rights, blobs: Blobs, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_SERVING));
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            stream = incoming.next() => stream,
        };
        let (Some(stream), Ok(place)) = (stream, Arc::clone(&places).acquire_owned().await) else { return };
        let (rights, blobs, stop) = (rights.clone(), blobs.clone(), stop.clone());
        tokio::spawn(async move {
            let peer = stream.peer();
            tokio::select! {
                () = stop.cancelled() => {}
                served = serve_one(stream, &rights, &blobs) => {
                    if let Err(error) = served {
                        debug!(peer = %peer.short(), %error, "blob stream ended");
                    }
                }
            }
            drop(place);
        });
    }
}

async fn serve_one(mut stream: Stream, rights: &Rights, blobs: &Blobs) -> Result<(), FrameError> {
    let Some(request) = stalled(frame::read::<BlobRequest>(&mut stream, MAX_HEADER)).await? else { return Ok(()) };
    let peer = stream.peer();
    let Some(source) = rights.source(&peer, &request) else {
        return frame::write(&mut stream, &BlobAnswer::Refused, MAX_HEADER).await;
    };
    let opened = match source {
        Source::Blob => blobs.open_blob(&stored(&request.hash)).await.ok().map(|blob| (blob.file, blob.length)),
        Source::File(path) => open(path).await,
    };
    let Some((file, len)) = opened else {
        return frame::write(&mut stream, &BlobAnswer::Missing, MAX_HEADER).await;
    };
    frame::write(&mut stream, &BlobAnswer::Found { len }, MAX_HEADER).await?;
    let mut file = tokio::fs::File::from_std(file);
    file.seek(std::io::SeekFrom::Start(request.offset)).await?;
    let mut rest = file.take(len.saturating_sub(request.offset));
    let mut chunk = vec![0; CHUNK];
    loop {
        let count = rest.read(&mut chunk).await?;
        if count == 0 {
            break;
        }
        let bytes = chunk.get(..count).unwrap_or_default();
        stalled(async { Ok(stream.write_all(bytes).await?) }).await?;
    }
    stream.shutdown().await?;
    Ok(())
}

async fn open(path: PathBuf) -> Option<(std::fs::File, u64)> {
    let file = tokio::fs::File::open(path).await.ok()?;
    let len = file.metadata().await.ok()?.len();
    Some((file.into_std().await, len))
}

async fn stalled<T>(step: impl Future<Output = Result<T, FrameError>>) -> Result<T, FrameError> {
    match timeout(STALL, step).await {
        Ok(done) => done,
        Err(_) => Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "no progress for 20 s").into()),
    }
}

/// Why a file could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The peer does not have it (any more).
    #[error("{hash} is not there any more")]
    Missing {
        /// Which.
        hash: Hash,
    },
    /// The peer does not give it.
    #[error("{hash} was refused")]
    Refused {
        /// Which.
        hash: Hash,
    },
    /// It is not as long as was said.
    #[error("{hash} has {found} bytes, expected {expected}")]
    Length {
        /// Which.
        hash: Hash,
        /// What the peer says.
        found: u64,
        /// What was agreed.
        expected: u64,
    },
    /// The peer could not be reached.
    #[error("unreachable: {0}")]
    Open(#[from] OpenError),
    /// The stream broke, too often.
    #[error(transparent)]
    Stream(#[from] FrameError),
    /// It could not be stored here, or is not what its hash says.
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// Where and under which lease to fetch.
#[derive(Debug, Clone)]
pub struct Fetcher {
    /// The network.
    pub net: Net,
    /// Where files go.
    pub blobs: Blobs,
}

impl Fetcher {
    /// Fetches a file that is not here yet, and pins it. The bytes are checked against the hash before they get a name.
    ///
    /// # Errors
    /// [`FetchError`].
    pub async fn fetch(
        &self,
        peer: NodeId,
        lease: LeaseId,
        hash: Hash,
        len: u64,
        durability: Durability,
    ) -> Result<Pin, FetchError> {
        if let Some(pin) = self.blobs.pin(&stored(&hash)) {
            return Ok(pin);
        }
        let mut writer = self.blobs.writer(len).await?;
        let mut tries = 0u32;
        while writer.length() < len || tries == 0 {
            tries = tries.saturating_add(1);
            let before = writer.length();
            match self.fetch_part(peer, lease, hash, len, &mut writer).await {
                Ok(()) => {}
                Err(error @ (FetchError::Stream(_) | FetchError::Open(_))) => {
                    // A try that brought something does not count against the peer.
                    if writer.length() > before {
                        tries = 1;
                    } else if tries >= TRIES {
                        return Err(error);
                    }
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(writer.finish(Some(stored(&hash)), Some(len), durability).await?)
    }

    async fn fetch_part(
        &self,
        peer: NodeId,
        lease: LeaseId,
        hash: Hash,
        len: u64,
        writer: &mut store::BlobWriter,
    ) -> Result<(), FetchError> {
        let mut stream = self.net.open_stream(peer, Protocol::Blob).await?;
        let request = BlobRequest { hash, lease, offset: writer.length() };
        frame::write(&mut stream, &request, MAX_HEADER).await?;
        match stalled(frame::read::<BlobAnswer>(&mut stream, MAX_HEADER)).await? {
            Some(BlobAnswer::Found { len: found }) if found == len => {}
            Some(BlobAnswer::Found { len: found }) => return Err(FetchError::Length { hash, found, expected: len }),
            Some(BlobAnswer::Missing) => return Err(FetchError::Missing { hash }),
            Some(BlobAnswer::Refused) => return Err(FetchError::Refused { hash }),
            None => return Err(broken().into()),
        }
        let mut chunk = vec![0; CHUNK];
        while writer.length() < len {
            let want = usize::try_from(len.saturating_sub(writer.length())).unwrap_or(CHUNK).min(CHUNK);
            let room = chunk.get_mut(..want).unwrap_or_default();
            let count = stalled(async { Ok(stream.read(room).await?) }).await?;
            if count == 0 {
                return Err(broken().into());
            }
            writer.write(chunk.get(..count).unwrap_or_default()).await?;
        }
        Ok(())
    }
}

fn broken() -> FrameError {
    std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the stream ended early").into()
}
