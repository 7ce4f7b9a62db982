//! The network: libp2p behind a cloneable handle.
//!
//! One task owns the swarm (`driver`). Everything else holds a [`Net`], whose methods send it
//! commands, and one [`NetEvents`], which receives what happens. Payloads are opaque bytes here:
//! documents and signatures belong to the layers above. libp2p's types stop at this module.
//!
//! ```text
//!  node ── Net ──commands──▶ driver ── swarm ── QUIC, TCP
//!   ▲       └──frames──▶ outbox (a queue and a writer a peer) ──▶ trade streams
//!   └── NetEvents ◀──events── driver
//!            └──◀──frames── trade readers (one a peer) ◀── trade streams
//! ```
//!
//! Networks never mix: every protocol name and topic carries the network's id, and a peer that
//! identifies itself with another is disconnected.

mod address;
mod behaviour;
mod bucket;
mod codec;
mod command;
mod config;
mod driver;
mod errors;
mod events;
mod gate;
mod info;
mod invite;
mod key;
mod outbox;
mod peer;
mod stream;
mod streams;
mod trade;
mod transport;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Swarm,
    core::upgrade::Version,
    identity::Keypair,
    swarm::{self, SwarmEvent},
};
use souk_protocol::NodeId;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::{
    command::{COMMAND_QUEUE, Command, Kind, NOTICE_QUEUE},
    driver::{Driver, Ends, Fixed},
    events::{CONTROL_QUEUE, FRAME_QUEUE},
    outbox::Outbox,
};
pub use self::{
    config::{Limits, NetConfig},
    errors::{ConnectError, LookupError, NetError, OpenError, PublishError, RequestError, SendError, SendFailure},
    events::{MessageToken, NetEvent, NetEvents, Reply, Verdict},
    info::{ConnectionInfo, Direction, NetCounts, NetStatus, PeerInfo, Reachable},
    invite::{InviteError, fetch_network},
    key::peer_text,
    stream::{Incoming, Protocol, Stream},
};

/// Longest frame on a trade stream, in bytes.
pub const MAX_FRAME: usize = 256 << 10;
/// Longest request and longest answer, in bytes.
pub const MAX_REQUEST: usize = 256 << 10;
/// Longest gossip message, in bytes.
pub const MAX_GOSSIP: usize = 32 << 10;

/// Inbound streams of one bulk protocol that may wait to be taken; more are reset.
const INCOMING_QUEUE: usize = 256;
/// How long a listener may take to report its address.
const LISTEN_LIMIT: Duration = Duration::from_secs(5);
/// A connection without streams ends after this time, if many are open.
const IDLE: Duration = Duration::from_secs(90);
/// Streams being negotiated on one connection.
const MAX_NEGOTIATING: usize = 256;
/// Longest time a stream may take to open, dialling included.
const OPEN_LIMIT: Duration = Duration::from_secs(20);
/// Longest time a `connect` may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);
/// How long queued frames may take to leave at shutdown.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// A handle to the running network. Cheap to clone; the network ends when the last one is dropped,
/// or with [`shutdown`](Net::shutdown).
#[derive(Debug, Clone)]
pub struct Net(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    id: NodeId,
    commands: mpsc::Sender<Command>,
    outbox: Arc<Outbox>,
    stop: CancellationToken,
    ended: CancellationToken,
    // Taken once each. A lock, because `Net` is shared; held for a moment only.
    incoming: Mutex<(Option<Incoming>, Option<Incoming>)>,
    /// Where streams to this node itself go: logs, blobs. Weak, so that they end with the network task.
    own: (mpsc::WeakSender<Stream>, mpsc::WeakSender<Stream>),
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Whether a node may dial and tell this address: the public ones, on a LAN private and loopback ones, too.
#[must_use]
pub fn is_usable(ip: std::net::IpAddr, lan: bool) -> bool {
    address::check_ip(ip, lan).is_ok()
}

impl Net {
    /// Starts the network and waits until every listener has its address.
    ///
    /// # Errors
    /// [`NetError`] if an address is unusable or taken, or a part cannot be set up.
    pub async fn start(config: NetConfig) -> Result<(Self, NetEvents), NetError> {
        let mut seed = config.secret;
        let pair = Keypair::ed25519_from_bytes(&mut seed)
            .map_err(|error| NetError::Setup { what: "key", why: error.to_string() })?;
        let local = pair.public().to_peer_id();
        let id = key::peer_key(&local)
            .ok_or_else(|| NetError::Setup { what: "key", why: "not an ed25519 key".to_owned() })?;
        let names = behaviour::Names::new(&config.network)?;
        let bootstrap = parse_all("bootstrap", &config.bootstrap, config.lan)?;
        let external = parse_all("external", &config.external, config.lan)?;

        let dials_refused = Arc::new(AtomicU64::new(0));
        let behaviour = behaviour::build(&pair, &config, &names, agent(), Arc::clone(&dials_refused))?;
        let settings = swarm::Config::with_tokio_executor()
            .with_idle_connection_timeout(IDLE)
            .with_max_negotiating_inbound_streams(MAX_NEGOTIATING)
            // The first bytes travel with the protocol name: no round trip to open a stream.
            .with_substream_upgrade_protocol_override(Version::V1Lazy)
            .with_smart_dial();
        let mut swarm = Swarm::new(transport::build(&pair, config.lan)?, behaviour, local, settings);
        for (address, _) in &external {
            swarm.add_external_address(address.clone());
        }
        for (_, peer) in &bootstrap {
            if let Some(peer) = peer {
                swarm.behaviour_mut().streams.keep(*peer);
                swarm.behaviour_mut().limits.bypass_peer_id(peer);
            }
        }
        let early = listen(&mut swarm, &config.listen).await?;

        let (commands_in, commands) = mpsc::channel(COMMAND_QUEUE);
        let (notices_in, notices) = mpsc::channel(NOTICE_QUEUE);
        let (control_in, control) = mpsc::channel(CONTROL_QUEUE);
        let (frames_in, frames) = mpsc::channel(FRAME_QUEUE);
        let (log_in, log) = mpsc::channel(INCOMING_QUEUE);
        let (blob_in, blob) = mpsc::channel(INCOMING_QUEUE);
        let own = (log_in.downgrade(), blob_in.downgrade());
        let stop = CancellationToken::new();
        let ended = CancellationToken::new();

        let topics = config.topics.iter().map(|topic| (names.topic(topic).hash(), topic.clone()));
        let fixed = Fixed {
            topics: topics.collect::<HashMap<_, _>>(),
            names,
            limits: config.limits,
            lan: config.lan,
            max_connections: config.max_connections,
            dials_refused,
            has_external: !external.is_empty(),
            invitation: config.invitation.clone(),
        };
        let ends = Ends {
            commands,
            notices,
            control: control_in,
            frames: frames_in,
            log: log_in,
            blob: blob_in,
            own_commands: commands_in.downgrade(),
            own_notices: notices_in.clone(),
            stop: stop.clone(),
        };
        let driver = Driver::new(swarm, ends, fixed, bootstrap, &config.known, early);
        let end = ended.clone().drop_guard();
        tokio::spawn(async move {
            // Dropped also when the task panics, so that `shutdown` never hangs.
            let _end = end;
            driver.run().await;
        });

        let runtime = tokio::runtime::Handle::current();
        let outbox = Arc::new(Outbox::new(commands_in.clone(), notices_in, runtime, stop.clone()));
        let incoming = Mutex::new((Some(Incoming(log)), Some(Incoming(blob))));
        let net = Self(Arc::new(Shared { id, commands: commands_in, outbox, stop, ended, incoming, own }));
        Ok((net, NetEvents { control, frames }))
    }

    /// This node's id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.0.id
    }

    /// Addresses listened on, with the `/p2p` part. Empty after shutdown.
    pub async fn listen_addrs(&self) -> Vec<String> {
        self.ask_driver(|reply| Command::ListenAddrs { reply }).await.unwrap_or_default()
    }

    /// Connects to an address and waits until the node there has identified itself.
    ///
    /// # Errors
    /// [`ConnectError`]. Cancel safe: the connection may still be made.
    pub async fn connect(&self, address: String) -> Result<NodeId, ConnectError> {
        let asked = self.ask_driver(|reply| Command::Connect { address, reply });
        match timeout(CONNECT_LIMIT, asked).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(ConnectError::Stopped),
            Err(_) => Err(ConnectError::Timeout(CONNECT_LIMIT)),
        }
    }

    /// Queues a frame for a peer; connects if need be. Never waits.
    ///
    /// Frames arrive in order and at most once. Those still queued when a connection breaks are sent
    /// over the next one if it comes within a few seconds; otherwise [`NetEvent::SendFailed`] counts them.
    /// Frames on a stream that the peer never took are reported likewise. Frames already handed to the
    /// transport when a working connection breaks may be lost without it: what must arrive is
    /// acknowledged and repeated by the protocol above, after [`NetEvent::Disconnected`].
    ///
    /// # Errors
    /// [`SendError`]; the frame was not queued.
    pub fn send(&self, peer: NodeId, frame: Vec<u8>) -> Result<(), SendError> {
        if peer == self.0.id {
            return Err(SendError::Own);
        }
        self.0.outbox.push(peer, frame)
    }

    /// Asks a peer and waits for its answer, at most `limit` (and a minute).
    ///
    /// # Errors
    /// [`RequestError`], which says whether the peer [may have acted](RequestError::may_have_acted).
    pub async fn request(&self, peer: NodeId, bytes: Vec<u8>, limit: Duration) -> Result<Vec<u8>, RequestError> {
        if bytes.len() > MAX_REQUEST {
            return Err(RequestError::Length { len: bytes.len() });
        }
        self.ask(peer, codec::ASK, bytes, limit).await.map(|(answer, _)| answer)
    }

    /// Measures a round trip to a peer, connecting if need be.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn ping(&self, peer: NodeId, limit: Duration) -> Result<Duration, RequestError> {
        self.ask(peer, codec::ECHO, Vec::new(), limit).await.map(|(_, took)| took)
    }

    async fn ask(
        &self,
        peer: NodeId,
        kind: u8,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<(Vec<u8>, Duration), RequestError> {
        if peer == self.0.id {
            return Err(RequestError::Unreachable("the peer is this node itself".to_owned()));
        }
        let asked = self.ask_driver(|reply| Command::Ask { peer, kind, body, reply });
        match timeout(limit, asked).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(RequestError::Stopped),
            Err(_) => Err(RequestError::Timeout(limit)),
        }
    }

    /// Opens a bulk stream to a peer, connecting if need be.
    ///
    /// # Errors
    /// [`OpenError`]. That the peer does not know the protocol may show at the first read only.
    pub async fn open_stream(&self, peer: NodeId, protocol: Protocol) -> Result<Stream, OpenError> {
        if peer == self.0.id {
            return self.open_own(protocol);
        }
        self.open(peer, protocol.kind()).await.map(|stream| Stream::new(stream, peer, None))
    }

    /// A stream to this node itself, which takes it like one of a peer: a job may run on its own node.
    fn open_own(&self, protocol: Protocol) -> Result<Stream, OpenError> {
        let to = match protocol {
            Protocol::Log => &self.0.own.0,
            Protocol::Blob => &self.0.own.1,
        };
        let (here, there) = Stream::pair(self.0.id);
        match to.upgrade().ok_or(OpenError::Stopped)?.try_send(there) {
            Ok(()) => Ok(here),
            Err(mpsc::error::TrySendError::Full(_)) => Err(OpenError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(OpenError::Stopped),
        }
    }

    async fn open(&self, peer: NodeId, kind: Kind) -> Result<libp2p::Stream, OpenError> {
        if peer == self.0.id {
            return Err(OpenError::Unreachable("the peer is this node itself".to_owned()));
        }
        let asked = self.ask_driver(|reply| Command::Open { peer, kind, reply });
        match timeout(OPEN_LIMIT, asked).await {
            Ok(Some(result)) => result,
            Ok(None) => Err(OpenError::Stopped),
            Err(_) => Err(OpenError::Timeout(OPEN_LIMIT)),
        }
    }

    /// The streams that peers open here; `None` if they were taken before. Until they are taken, a few
    /// wait and the rest are reset.
    #[must_use]
    pub fn take_incoming(&self, protocol: Protocol) -> Option<Incoming> {
        let mut incoming = self.0.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        match protocol {
            Protocol::Log => incoming.0.take(),
            Protocol::Blob => incoming.1.take(),
        }
    }

    /// Publishes a message on a topic. Without any subscriber it waits up to 30 s for one.
    ///
    /// Delivery is best effort; the same bytes again within a minute are a duplicate.
    ///
    /// # Errors
    /// [`PublishError`].
    pub async fn publish(&self, topic: &str, bytes: Vec<u8>) -> Result<(), PublishError> {
        if bytes.is_empty() || bytes.len() > MAX_GOSSIP {
            return Err(PublishError::Length { len: bytes.len() });
        }
        let topic = topic.to_owned();
        self.ask_driver(|reply| Command::Publish { topic, bytes, reply }).await.unwrap_or(Err(PublishError::Stopped))
    }

    /// Says what becomes of a gossip message. Call it once for each, within a second or so. Never waits;
    /// under overload the verdict is lost, which means "ignore".
    pub fn validate(&self, token: MessageToken, verdict: Verdict) {
        let _ = self.0.commands.try_send(Command::Verdict { token, verdict });
    }

    /// Holds a peer's misbehaviour against it: at 50 points it is shut out for an hour, and points halve
    /// every ten minutes. Never waits.
    pub fn strike(&self, peer: NodeId, points: u32) {
        let _ = self.0.commands.try_send(Command::Strike { peer, points });
    }

    /// All peers known, connected or not, sorted by id.
    pub async fn peers(&self) -> Vec<PeerInfo> {
        self.ask_driver(|reply| Command::Peers { reply }).await.unwrap_or_default()
    }

    /// The network as a whole; `None` after shutdown.
    pub async fn status(&self) -> Option<NetStatus> {
        self.ask_driver(|reply| Command::Status { reply }).await
    }

    /// Announces in the hash table that this node provides a key (1 to 64 bytes), and keeps announcing.
    ///
    /// # Errors
    /// [`LookupError`].
    pub async fn provide(&self, key: Vec<u8>) -> Result<(), LookupError> {
        self.ask_driver(|reply| Command::Provide { key, reply }).await.unwrap_or(Err(LookupError::Stopped))
    }

    /// Announces a key no longer; others forget it within two hours.
    pub async fn stop_providing(&self, key: Vec<u8>) {
        // Without a network nothing is announced anyway.
        let _ = self.0.commands.send(Command::StopProviding { key }).await;
    }

    /// Other nodes that provide a key, as far as the hash table knows; takes up to 20 s.
    ///
    /// # Errors
    /// [`LookupError`].
    pub async fn providers(&self, key: Vec<u8>) -> Result<Vec<NodeId>, LookupError> {
        self.ask_driver(|reply| Command::Providers { key, reply }).await.unwrap_or(Err(LookupError::Stopped))
    }

    /// Lets queued frames leave (for a second at most), closes all connections and ends the network.
    pub async fn shutdown(&self) {
        self.0.outbox.close(DRAIN_LIMIT).await;
        self.0.stop.cancel();
        self.0.ended.cancelled().await;
    }

    /// Sends a command and waits for its reply; `None` if the network has ended.
    async fn ask_driver<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.0.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

/// Name, version and a number drawn for this process, by which peers notice a restart.
fn agent() -> String {
    let mut boot = [0u8; 6];
    // Without randomness restarts are only noticed later, by time-outs.
    let _ = getrandom::fill(&mut boot);
    let boot = data_encoding::HEXLOWER.encode(&boot);
    format!("souk/{}{}{boot}", env!("CARGO_PKG_VERSION"), driver::BOOT)
}

fn parse_all(
    field: &'static str,
    texts: &[String],
    lan: bool,
) -> Result<Vec<(libp2p::Multiaddr, Option<libp2p::PeerId>)>, NetError> {
    texts
        .iter()
        .map(|text| address::parse(text, lan).map_err(|why| NetError::Address { field, value: text.clone(), why }))
        .collect()
}

/// An error with its causes: the transport's errors say little by themselves.
fn chain(error: &dyn std::error::Error) -> String {
    let mut texts = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        texts.push(error.to_string());
        cause = error.source();
    }
    texts.retain(|text| !text.is_empty());
    texts.dedup();
    texts.join(": ")
}

/// Listens on all addresses, waits until each is bound and returns what happened meanwhile.
async fn listen(
    swarm: &mut Swarm<behaviour::Behaviour>,
    texts: &[String],
) -> Result<Vec<SwarmEvent<behaviour::BehaviourEvent>>, NetError> {
    let mut pending = HashMap::new();
    for text in texts {
        let address: libp2p::Multiaddr = text.parse().map_err(|error: libp2p::multiaddr::Error| NetError::Address {
            field: "listen",
            value: text.clone(),
            why: error.to_string(),
        })?;
        let taken = |why: String| NetError::Listen { value: text.clone(), why };
        address::probe_port(&address).map_err(|error| taken(error.to_string()))?;
        let listener = swarm.listen_on(address).map_err(|error| taken(chain(&error)))?;
        pending.insert(listener, text.clone());
    }
    let mut early = Vec::new();
    let all = async {
        while !pending.is_empty() {
            let event = swarm.select_next_some().await;
            match &event {
                SwarmEvent::NewListenAddr { listener_id, .. } => {
                    pending.remove(listener_id);
                }
                SwarmEvent::ListenerClosed { listener_id, reason: Err(error), .. } => {
                    if let Some(value) = pending.remove(listener_id) {
                        return Err(NetError::Listen { value, why: error.to_string() });
                    }
                }
                _ => {}
            }
            early.push(event);
        }
        Ok(())
    };
    match timeout(LISTEN_LIMIT, all).await {
        Ok(result) => result?,
        Err(_) => {
            let value = pending.into_values().next().unwrap_or_default();
            return Err(NetError::Listen { value, why: "no address within 5 s".to_owned() });
        }
    }
    Ok(early)
}
