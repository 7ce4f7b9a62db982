//! The renter's hands: logs as they come, outputs and logs to the last byte at the end.
//!
//! One task takes orders and incoming log streams and never waits for either; each stream and each collection runs in a
//! task of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use souk_matcher::{Event, LeaseView, RenterLeaseState, Trader};
use souk_protocol::{
    AttemptId, EntryKind, Hash, JobId, JobSpec, LeaseId, LogEnd, LogFrame, LogOffsets, LogOpen, MAX_LOG_CHUNK,
    MAX_MANIFEST, Manifest, NodeId, TaskResult, Verified, codec,
};
use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    data::{FetchError, Fetcher, Kept, Rights, Source, stored},
    executor::spool_name,
    frame::{self, FrameError},
    market::{MarketHandle, Order},
    net::{Incoming, Stream},
    store::{AttemptLogs, Durability, Pin, Spool, SpoolError, Store},
};

/// Log streams read at once over all peers.
const MAX_STREAMS: usize = 1_024;
/// Largest frame of a log stream.
const MAX_FRAME: usize = MAX_LOG_CHUNK + 64;
/// After so many leases those that are over are forgotten here.
const SWEEP_EVERY: usize = 256;
/// A log stream that opens before its award has been written down here waits so long.
const STRANGER: Duration = Duration::from_secs(5);
/// The rest of a log is waited for so long before it is fetched by hash.
const LOG_PATIENCE: Duration = Duration::from_millis(500);

/// What the collector works with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Blobs and spools.
    pub store: Arc<Store>,
    /// To fetch outputs.
    pub fetcher: Fetcher,
    /// Where outcomes go.
    pub market: MarketHandle,
    /// Who may fetch inputs.
    pub rights: Rights,
    /// Logs that are open.
    pub logs: Logs,
    /// The newest results of this run of the node: they are not evicted.
    pub kept: Kept,
}

/// Logs of attempts by id, opened when first asked for. Clones share it.
#[derive(Debug, Clone)]
pub struct Logs {
    store: Arc<Store>,
    // A lock and not a task: held for map operations only.
    open: Arc<Mutex<BTreeMap<AttemptId, AttemptLogs>>>,
}

impl Logs {
    /// The logs kept in `store`.
    #[must_use]
    pub fn new(store: Arc<Store>) -> Self {
        Self { store, open: Arc::default() }
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<AttemptId, AttemptLogs>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The logs of an attempt that is under way, at most `cap` bytes each: writers and followers share them.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub async fn of(&self, attempt: &AttemptId, cap: u64) -> Result<AttemptLogs, SpoolError> {
        if let Some(logs) = self.known(attempt) {
            return Ok(logs);
        }
        let logs = self.open(attempt, cap).await?;
        // Two openers at once share what came first.
        Ok(self.map().entry(*attempt).or_insert(logs).clone())
    }

    /// The logs of an attempt that has ended: read, not shared, so that old logs hold no files open here.
    ///
    /// # Errors
    /// [`SpoolError`].
    pub async fn ended(&self, attempt: &AttemptId, cap: u64) -> Result<AttemptLogs, SpoolError> {
        match self.known(attempt) {
            Some(logs) => Ok(logs),
            None => self.open(attempt, cap).await,
        }
    }

    fn known(&self, attempt: &AttemptId) -> Option<AttemptLogs> {
        self.map().get(attempt).cloned()
    }

    async fn open(&self, attempt: &AttemptId, cap: u64) -> Result<AttemptLogs, SpoolError> {
        self.store.logs(&format!("job-{}", spool_name(attempt)), cap, true).await
    }

    /// Lets go of an attempt's logs; followers keep theirs until they are done.
    fn retire(&self, attempt: &AttemptId) {
        self.map().remove(attempt);
    }

    fn retain(&self, open: &BTreeSet<AttemptId>) {
        self.map().retain(|attempt, _| open.contains(attempt));
    }
}

/// A lease as the collector knows it.
#[derive(Debug, Clone)]
struct Known {
    peer: NodeId,
    job: JobId,
    stdout_cap: u64,
}

/// The collector's task.
#[derive(Debug)]
pub struct Collector {
    tools: Tools,
    leases: watch::Sender<BTreeMap<LeaseId, Known>>,
    collecting: BTreeMap<AttemptId, JoinHandle<()>>,
    places: Arc<Semaphore>,
}

impl Collector {
    /// A collector without leases.
    #[must_use]
    pub fn new(tools: Tools) -> Self {
        let (leases, _) = watch::channel(BTreeMap::new());
        Self { tools, leases, collecting: BTreeMap::new(), places: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// Carries out orders and reads log streams until the node stops.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, mut incoming: Incoming, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                order = orders.recv() => match order {
                    Some(order) => self.carry_out(order),
                    None => break,
                },
                Some(stream) = incoming.next() => self.read(stream),
            }
        }
        for task in self.collecting.values() {
            task.abort();
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Serve { lease, spec } => self.serve(&lease, &spec),
            Order::Collect { provider, result } => {
                self.collecting.retain(|_, task| !task.is_finished());
                let attempt = result.attempt;
                if self.collecting.contains_key(&attempt) {
                    return; // an order is carried out once
                }
                let cap = self.leases.borrow().get(&attempt.lease).map_or(u64::MAX, |known| known.stdout_cap);
                self.collecting.insert(attempt, tokio::spawn(collect(self.tools.clone(), provider, result, cap)));
            }
            Order::Abandon(attempt) => {
                if let Some(task) = self.collecting.remove(&attempt) {
                    task.abort();
                }
                self.tools.logs.retire(&attempt);
            }
            Order::Forget(lease) => {
                self.tools.rights.revoke(&lease);
                self.leases.send_modify(|leases| {
                    leases.remove(&lease);
                });
            }
            Order::OpenLease(_) | Order::Run { .. } | Order::Stop { .. } | Order::CloseLease(_) | Order::Offer(_) => {
                debug!("an order for another room")
            }
        }
    }

    fn serve(&self, lease: &LeaseView, spec: &JobSpec) {
        let files = spec.inputs.iter().flat_map(|input| input.sources.values().flatten()).map(|file| file.hash);
        let files: Vec<Hash> = files.chain([spec.module.hash]).collect();
        let pins: Vec<Pin> = files.iter().filter_map(|hash| self.tools.store.blobs().pin(&stored(hash))).collect();
        self.tools.rights.grant(lease.lease, lease.peer, files.into_iter().map(|hash| (hash, Source::Blob)), pins);
        let known = Known { peer: lease.peer, job: lease.job, stdout_cap: spec.terms.stdout.0 };
        self.leases.send_modify(|leases| {
            leases.insert(lease.lease, known);
        });
        if self.leases.borrow().len().is_multiple_of(SWEEP_EVERY) {
            tokio::spawn(sweep(self.tools.clone(), self.leases.clone()));
        }
    }

    fn read(&self, stream: Stream) {
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            debug!("too many log streams; the log will be fetched at the end");
            return;
        };
        let (tools, leases) = (self.tools.clone(), self.leases.subscribe());
        tokio::spawn(async move {
            let peer = stream.peer();
            if let Err(error) = read_log(stream, &tools, leases).await {
                debug!(peer = %peer.short(), %error, "log stream ended");
            }
            drop(place);
        });
    }
}

/// Forgets leases that are over and logs that nobody writes any more.
async fn sweep(tools: Tools, leases: watch::Sender<BTreeMap<LeaseId, Known>>) {
    let look = |trader: &Trader| {
        let live = trader
            .renter
            .leases()
            .filter(|lease| !matches!(lease.state, RenterLeaseState::Closed | RenterLeaseState::Settled));
        let live: BTreeSet<LeaseId> = live.map(|lease| lease.lease.lease).collect();
        let tasks = trader.renter.jobs().filter(|job| !job.state().is_final()).flat_map(souk_matcher::Job::tasks);
        let open: BTreeSet<AttemptId> = tasks.flat_map(|task| task.open().map(|attempt| attempt.id)).collect();
        (live, open)
    };
    // The node may be stopping.
    let Ok((live, open)) = tools.market.with(look).await else { return };
    tools.logs.retain(&open);
    leases.send_modify(|leases| {
        leases.retain(|lease, _| {
            let lives = live.contains(lease);
            if !lives {
                tools.rights.revoke(lease);
            }
            lives
        });
    });
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("no lease of this peer")]
    Stranger,
    #[error("stream {0} is neither 1 nor 2")]
    Which(u8),
}

async fn read_log(
    mut stream: Stream,
    tools: &Tools,
    mut leases: watch::Receiver<BTreeMap<LeaseId, Known>>,
) -> Result<(), ReadError> {
    let Some(open) = frame::read::<LogOpen>(&mut stream, MAX_FRAME).await? else { return Ok(()) };
    let lease = open.attempt.lease;
    let known = timeout(STRANGER, leases.wait_for(|leases| leases.contains_key(&lease))).await;
    let known = known.ok().and_then(Result::ok).and_then(|leases| leases.get(&lease).cloned());
    let known = known.filter(|known| known.peer == stream.peer()).ok_or(ReadError::Stranger)?;
    debug!(job = %known.job.short(), attempt = %open.attempt, "log stream");
    let logs = tools.logs.of(&open.attempt, known.stdout_cap).await?;
    if open.resumes {
        let offsets = LogOffsets { stdout: logs.stdout.state().length, stderr: logs.stderr.state().length };
        frame::write(&mut stream, &offsets, MAX_FRAME).await?;
    }
    while let Some(LogFrame { stream: which, offset, bytes }) = frame::read(&mut stream, MAX_FRAME).await? {
        let spool = match which {
            1 => &logs.stdout,
            2 => &logs.stderr,
            other => return Err(ReadError::Which(other)),
        };
        spool.append_at(offset, bytes.into_vec()).await?;
    }
    Ok(())
}

/// Why what a result promises could not be had.
#[derive(Debug, thiserror::Error)]
enum CollectError {
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error(transparent)]
    Store(#[from] crate::store::BlobError),
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error("the manifest is not in canonical form")]
    Manifest,
    #[error("the manifest lists {found} bytes, the result said {said}")]
    Sum { found: u64, said: u64 },
    #[error("the {0} differs from what the result signs")]
    Log(&'static str),
}

async fn collect(tools: Tools, provider: NodeId, result: Verified<TaskResult>, cap: u64) {
    let attempt = result.attempt;
    let event = match gather(&tools, provider, &result, cap).await {
        Ok(()) => Event::Held { attempt },
        Err(error) => Event::NotHeld { attempt, reason: error.to_string() },
    };
    tools.logs.retire(&attempt);
    // The node may be stopping.
    let _ = tools.market.event(event).await;
}

async fn gather(tools: &Tools, provider: NodeId, result: &TaskResult, cap: u64) -> Result<(), CollectError> {
    let lease = result.attempt.lease;
    let logs = tools.logs.of(&result.attempt, cap).await?;
    let outputs = async {
        if result.manifest_len == 0 {
            return Ok(()); // the program never ran
        }
        let fetch = |hash, len| tools.fetcher.fetch(provider, lease, hash, len, Durability::Durable);
        let pin = fetch(result.manifest, result.manifest_len.min(MAX_MANIFEST as u64)).await?;
        let bytes = tools.store.blobs().read(&stored(&result.manifest), MAX_MANIFEST as u64).await?;
        let manifest: Manifest = codec::decode_canonical(&bytes, MAX_MANIFEST).map_err(|_| CollectError::Manifest)?;
        if !manifest.is_canonical() {
            return Err(CollectError::Manifest);
        }
        let files: Vec<(Hash, u64)> = manifest
            .entries
            .iter()
            .filter_map(|entry| match entry.kind {
                EntryKind::File { hash, len, .. } => Some((hash, len)),
                EntryKind::Folder | EntryKind::Link { .. } | EntryKind::Skipped { .. } => None,
            })
            .collect();
        // Checked before anything is fetched: a provider cannot fill the disk with more than it said it would bring.
        let found = files.iter().fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        if found != result.output.0 {
            return Err(CollectError::Sum { found, said: result.output.0 });
        }
        let mut pins = vec![pin];
        for (hash, len) in files {
            pins.push(fetch(hash, len).await?);
        }
        tools.kept.add(pins);
        Ok::<(), CollectError>(())
    };
    let (outputs, stdout, stderr) = tokio::join!(
        outputs,
        finish_log(tools, provider, lease, &logs.stdout, result.stdout, "stdout"),
        finish_log(tools, provider, lease, &logs.stderr, result.stderr, "stderr"),
    );
    outputs?;
    stdout?;
    stderr
}

/// Waits for the rest of a log, or fetches it by hash, and checks it.
async fn finish_log(
    tools: &Tools,
    provider: NodeId,
    lease: LeaseId,
    spool: &Spool,
    end: LogEnd,
    name: &'static str,
) -> Result<(), CollectError> {
    let mut state = spool.watch();
    let complete = state.wait_for(|state| state.closed.is_some() || state.length >= end.len);
    if timeout(LOG_PATIENCE, complete).await.is_err() && spool.state().length < end.len {
        let pin = tools.fetcher.fetch(provider, lease, end.hash, end.len, Durability::Cached).await?;
        let bytes = tools.store.blobs().read(&pin.hash(), end.len).await?;
        spool.append_at(0, bytes).await?;
    }
    let closed = spool.close(None).await?;
    if closed.length == end.len && closed.hash.as_bytes() == &end.hash.0 {
        Ok(())
    } else {
        Err(CollectError::Log(name))
    }
}
