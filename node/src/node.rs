//! A node: its rooms and how they are wired.
//!
//! ```text
//!  net events ──> pump ──> market (Trader) ──> executor ──> runner processes
//!                  │         │    ▲      └───> collector ──> blobs, logs
//!                  └> offers ┘    └ journal
//! ```
//!
//! Shutdown, in this order: no new events from the network; executor and collector stop their attempts; the market
//! stops; the network closes; the journal writes what is queued.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use souk_matcher::{Event, Policy, Record, Settings, Trader};
use souk_protocol::{
    Document, JobId, Message, Millis, NetworkFile, NodeId, Signed, Signer, Verified, codec::CodecError,
};
use souk_sandbox::{Pool, PoolConfig};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, trace, warn};

use crate::{
    clock::{Clock, wall},
    collector::{self, Collector, Logs},
    data::{self, Fetcher, Kept, Rights},
    executor::{self, Executor},
    keys::NodeKeys,
    market::{self, Hands, Market, MarketHandle, RECORD_KIND},
    net::{Net, NetConfig, NetEvent, NetEvents, Protocol},
    offers::{self, OfferBook, Offers},
    partners::{self, Partners},
    store::{OpenReport, Pin, Store, StoreConfig, StoreError},
};

/// Orders that may wait for a room. The market waits for a room that is full, so rooms take orders without waiting.
const ORDERS: usize = 4_096;
/// Nonces of submissions remembered to catch a client that uses one twice.
const MAX_NONCES: usize = 16_384;
/// Longest wait for the tasks at shutdown.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Everything a node needs to start. The command line makes it of files and flags.
#[derive(Debug)]
pub struct NodeConfig {
    /// Folder of the store.
    pub data: PathBuf,
    /// Seed of the node's key.
    pub secret: [u8; 32],
    /// The network.
    pub network: NetworkFile,
    /// Addresses to listen on.
    pub listen: Vec<String>,
    /// Addresses under which others reach this node, where they differ.
    pub external: Vec<String>,
    /// Whether private and loopback addresses are used.
    pub lan: bool,
    /// What is sold; `None` for a renter.
    pub policy: Option<Policy>,
    /// Runners kept ready; 0 for a renter.
    pub runners_ahead: usize,
    /// The program to start runners with, and the arguments that make it one.
    pub runner: (PathBuf, Vec<String>),
    /// Durable store settings.
    pub store: StoreConfig,
}

/// A node could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The network.
    #[error(transparent)]
    Net(#[from] crate::net::NetError),
    /// The sandbox cannot confine a stranger's work here, so nothing is sold.
    #[error("this machine cannot isolate work: {0}")]
    Sandbox(#[from] souk_sandbox::SandboxError),
    /// No randomness.
    #[error("no randomness: {0}")]
    Random(String),
}

/// A running node.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    network: NetworkFile,
    store: Arc<Store>,
    net: Net,
    market: MarketHandle,
    logs: Logs,
    report: OpenReport,
    stop: CancellationToken,
    tasks: Mutex<JoinSet<()>>,
    failed: CancellationToken,
    keys: Arc<NodeKeys>,
    kept: Kept,
    // A lock and not a task: held for one operation on a small map.
    nonces: Mutex<BTreeMap<[u8; 16], JobId>>,
}

impl Node {
    /// Opens the store, replays it and starts every room.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: NodeConfig) -> Result<Self, StartError> {
        let clock = Clock::default();
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| StartError::Random(error.to_string()))?;
        let keys = Arc::new(NodeKeys::from_seed(&config.secret));
        let id = keys.id();
        let network = config.network.id();
        let settings = Settings {
            network,
            params: config.network.params,
            open: config.network.open,
            // The wall clock rises from start to start; two starts in one millisecond are not possible.
            boot: wall().0,
            seed,
            keep: souk_matcher::Keep::default(),
        };
        let trader = Trader::new(settings, Arc::clone(&keys) as Arc<dyn souk_matcher::Keys>);
        let (store, trader, report) = open(config.data.clone(), config.store, trader).await?;
        for warning in &report.warnings {
            warn!(%warning, "store");
        }
        let store = Arc::new(store);
        let scratch = config.data.join("scratch");
        // What a run before this one left there: its runners died with it.
        if let Err(error) = std::fs::remove_dir_all(&scratch)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!(%error, "old scratch folders stay");
        }
        let pool = Pool::new(PoolConfig {
            program: config.runner.0,
            args: config.runner.1,
            ahead: config.runners_ahead,
            scratch,
            cache_dir: config.data.join("modules"),
            secret: blake3::derive_key("souk/1/module-cache", &config.secret),
        });
        let mut policy = config.policy;
        if let Some(wanted) = &policy
            && let Err(error) = pool.warm().await
        {
            if !wanted.own_only {
                return Err(error.into());
            }
            // Its jobs may still go to the market.
            warn!(%error, "this machine cannot isolate work, so jobs do not run here");
            policy = None;
        }
        let partners = Partners::load(config.data.join("partners.json"));
        let (net, events) = Net::start(NetConfig {
            secret: config.secret,
            network: network.net8(),
            listen: config.listen,
            bootstrap: config.network.bootstrap.clone(),
            external: config.external,
            lan: config.lan,
            server: true,
            topics: vec![offers::topic()],
            known: partners.addresses(),
            invitation: config.network.to_toml().ok(),
            ..NetConfig::default()
        })
        .await?;
        let (market, inbox) = market::channel(clock);
        let rights = Rights::default();
        let logs = Logs::new(Arc::clone(&store));
        let kept = Kept::default();
        let fetcher = Fetcher { net: net.clone(), blobs: store.blobs().clone() };
        let (executor_orders, executor_inbox) = mpsc::channel(ORDERS);
        let (collector_orders, collector_inbox) = mpsc::channel(ORDERS);
        let (offer_orders, offer_inbox) = mpsc::channel(ORDERS);
        let offers = Offers { net: net.clone(), network, market: market.clone(), book: OfferBook::default() };
        let executor = Executor::new(executor::Tools {
            pool,
            store: Arc::clone(&store),
            net: net.clone(),
            market: market.clone(),
            rights: rights.clone(),
        });
        executor.restore(trader.provider.delivered()).await;
        let collector = Collector::new(collector::Tools {
            store: Arc::clone(&store),
            fetcher,
            market: market.clone(),
            rights: rights.clone(),
            logs: logs.clone(),
            kept: kept.clone(),
        });
        let stop = CancellationToken::new();
        let failed = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let market_task = Market {
            trader,
            journal: store.journal().clone(),
            net: net.clone(),
            hands: Hands { executor: executor_orders, collector: collector_orders, offers: offer_orders },
            handle: market.clone(),
            stop: stop.child_token(),
        };
        let broken = failed.clone();
        tasks.spawn(async move {
            if let Err(error) = market_task.run(inbox).await {
                tracing::error!(%error, "the journal failed: the node stops, nothing more is promised");
                broken.cancel();
            }
        });
        tasks.spawn(executor.run(executor_inbox, stop.child_token()));
        let incoming_logs = net.take_incoming(Protocol::Log);
        let incoming_blobs = net.take_incoming(Protocol::Blob);
        if let Some(incoming) = incoming_logs {
            tasks.spawn(collector.run(collector_inbox, incoming, stop.child_token()));
        }
        if let Some(incoming) = incoming_blobs {
            tasks.spawn(data::serve(incoming, rights, store.blobs().clone(), stop.child_token()));
        }
        tasks.spawn(offers.clone().run(offer_inbox, stop.child_token()));
        let (met, meetings) = mpsc::channel(partners::QUEUE);
        tasks.spawn(partners.run(net.clone(), market.feed().clone(), meetings, stop.child_token()));
        tasks.spawn(pump(events, market.clone(), offers, met, stop.child_token()));
        if let Some(policy) = policy {
            tell_policy(&market, &net, policy).await;
        }
        info!(id = %id.short(), records = report.records, "node is up");
        Ok(Self {
            id,
            network: config.network,
            store,
            net,
            market,
            logs,
            report,
            stop,
            tasks: Mutex::new(tasks),
            failed,
            keys,
            kept,
            nonces: Mutex::default(),
        })
    }

    /// The node.
    #[must_use]
    pub const fn id(&self) -> NodeId {
        self.id
    }

    /// Its network.
    #[must_use]
    pub const fn network(&self) -> &NetworkFile {
        &self.network
    }

    /// Its market.
    #[must_use]
    pub const fn market(&self) -> &MarketHandle {
        &self.market
    }

    /// Its store.
    #[must_use]
    pub const fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Its network handle.
    #[must_use]
    pub const fn net(&self) -> &Net {
        &self.net
    }

    /// Logs of its jobs' attempts.
    #[must_use]
    pub const fn logs(&self) -> &Logs {
        &self.logs
    }

    /// How its store was found.
    #[must_use]
    pub const fn report(&self) -> &OpenReport {
        &self.report
    }

    /// Resolves when the node can promise nothing more and must be shut down.
    pub async fn failed(&self) {
        self.failed.cancelled().await;
    }

    /// The owner's terms from now on. Work that runs keeps those it was awarded on.
    pub async fn set_policy(&self, policy: Policy) {
        tell_policy(&self.market, &self.net, policy).await;
    }

    /// Signs a document of this node that is no part of a lease.
    ///
    /// # Errors
    /// If it is longer than its type allows.
    pub fn sign<T: Document>(&self, document: &T) -> Result<Verified<T>, CodecError> {
        Signed::sign(document, &*self.keys)
    }

    /// Keeps a file from being evicted, as long as it is among the newest.
    pub fn keep(&self, pin: Pin) {
        self.kept.add([pin]);
    }

    /// Whether `nonce` is new or was chosen for this very job. Nonces of an earlier run are not known; the same file
    /// with the same nonce is the same job in any case.
    pub fn claim_nonce(&self, nonce: [u8; 16], job: JobId) -> bool {
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        if nonces.len() >= MAX_NONCES {
            nonces.clear();
        }
        *nonces.entry(nonce).or_insert(job) == job
    }

    /// Stops every room in the order of the module's description.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        let drained = tokio::time::timeout(SHUTDOWN, async {
            while let Some(ended) = tasks.join_next().await {
                if let Err(error) = ended
                    && error.is_panic()
                {
                    tracing::error!(%error, "a task of the node panicked");
                }
            }
        });
        if drained.await.is_err() {
            warn!("some tasks did not stop in time");
            tasks.shutdown().await;
        }
        self.net.shutdown().await;
        Store::clone(&self.store).close().await;
    }
}

async fn tell_policy(market: &MarketHandle, net: &Net, policy: Policy) {
    let addresses = net.listen_addrs().await;
    // A market that is gone has stopped with its node.
    let _ = market.event(Event::Policy(Box::new(with_addresses(policy, &addresses)))).await;
}

fn with_addresses(mut policy: Policy, addresses: &[String]) -> Policy {
    policy.addresses =
        addresses.iter().filter_map(|address| souk_protocol::Text::try_from(address.as_str()).ok()).take(8).collect();
    policy
}

/// Opens the store off the runtime and replays the market's records.
async fn open(
    data: PathBuf,
    config: StoreConfig,
    mut trader: Trader,
) -> Result<(Store, Trader, OpenReport), StartError> {
    let opened = tokio::task::spawn_blocking(move || {
        let opened = Store::open(&data, config, &mut |replayed| {
            if replayed.kind != RECORD_KIND {
                return Err(format!("record of unknown kind {}", replayed.kind).into());
            }
            let record = Record::decode(replayed.payload)?;
            trader.apply(&record)?;
            Ok(())
        });
        opened.map(|(store, report)| (store, trader, report))
    });
    match opened.await {
        Ok(opened) => Ok(opened?),
        Err(error) => Err(StartError::Random(error.to_string())),
    }
}

/// Carries the network's events to the market and the offers.
async fn pump(
    mut events: NetEvents,
    market: MarketHandle,
    offers: Offers,
    met: mpsc::Sender<NodeId>,
    stop: CancellationToken,
) {
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.recv() => event,
        };
        let Some(event) = event else { return };
        let told = match event {
            NetEvent::Frame { peer, bytes } => match Message::decode(&bytes) {
                Ok(message) => {
                    trace!(target: "souk_node::messages", peer = %peer.short(), bytes = bytes.len());
                    market.event(Event::Message { from: peer, message }).await
                }
                Err(error) => {
                    warn!(peer = %peer.short(), %error, "a frame that is no message");
                    offers.net.strike(peer, 5);
                    Ok(())
                }
            },
            NetEvent::Connected { peer } => {
                offers.met(peer);
                // Too many at once: its addresses are kept at the next meeting or lease.
                let _ = met.try_send(peer);
                market.event(Event::PeerUp(peer)).await
            }
            NetEvent::Disconnected { peer } => market.event(Event::PeerDown(peer)).await,
            NetEvent::SendFailed { peer, dropped, why } => {
                debug!(peer = %peer.short(), dropped, %why, "messages dropped");
                market.event(Event::SendFailed(peer)).await
            }
            NetEvent::Rtt { peer, p95_micros, .. } => {
                market.event(Event::Rtt { peer, p95: Millis(p95_micros.div_ceil(1_000)) }).await
            }
            NetEvent::Gossip { topic, source, bytes, token } => {
                debug!(topic, source = %source.short(), "gossip");
                // Here and not in a task of its own: a market that stands still then stops the source.
                offers.gossip(source, &bytes, token).await;
                Ok(())
            }
            NetEvent::Request { peer, bytes, reply } => {
                offers.answer(peer, &bytes, reply).await;
                Ok(())
            }
            _ => Ok(()),
        };
        if told.is_err() {
            return;
        }
    }
}
