//! The task that owns the swarm.
//!
//! It talks with: [`Net`](super::Net) handles (commands in, oneshot replies out), reader and writer
//! tasks (notices in), and the node (events out). It waits for none of them: events go out with
//! `try_send`, and those that must not be lost wait in a backlog here.
//!
//! States of a peer: known, waiting (dials or a look-up run), connected, identified, banned.

mod connect;
mod serve;
mod swarm_events;
mod time;

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::StreamExt;
use libp2p::{
    Multiaddr, PeerId, Swarm, gossipsub,
    kad::QueryId,
    request_response::OutboundRequestId,
    swarm::{ConnectionId, SwarmEvent},
};
use souk_protocol::NodeId;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

pub(super) use self::swarm_events::BOOT;
use self::time::Bootstrap;
use super::{
    ConnectError, LookupError, NetCounts, NetEvent,
    behaviour::{Behaviour, BehaviourEvent, Names},
    command::{AskReply, Command, Notice},
    config::Limits,
    events::QueuedFrame,
    key,
    peer::Peer,
    stream::Stream,
    trade::ReaderId,
};

/// Peers remembered; the longest unseen is forgotten first.
const MAX_PEERS: usize = 2_048;
/// Events that must not be lost and wait for room. Beyond it the oldest is dropped and counted.
const MAX_BACKLOG: usize = 4_096;
/// Requests of this node in progress; more are refused as busy.
const MAX_ASKING: usize = 4_096;
/// Look-ups in progress; more are refused as busy.
const MAX_LOOKUPS: usize = 256;
/// Commands taken in a row before the network has its turn.
const COMMANDS_IN_A_ROW: u32 = 32;
/// A turn of the loop longer than this is counted: something blocks it.
const SLOW_TURN: Duration = Duration::from_millis(50);
/// Housekeeping: bans, forgotten peers.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How long the goodbyes may take at shutdown.
const GOODBYE: Duration = Duration::from_millis(500);

/// Whom an own request serves.
#[derive(Debug)]
struct Asking {
    /// `None` for an early echo, sent to fill the round trip window.
    reply: Option<AskReply>,
    echo: bool,
    since: Instant,
}

/// What a hash table query serves.
#[derive(Debug)]
enum Lookup {
    Route(PeerId),
    Providers { found: Vec<NodeId>, reply: oneshot::Sender<Result<Vec<NodeId>, LookupError>> },
}

/// Whom a dial serves.
#[derive(Debug)]
enum Dial {
    /// What waits at the peer.
    Peer(PeerId),
    /// A `connect` call.
    Connect(oneshot::Sender<Result<NodeId, ConnectError>>),
    /// A configured node, by its place in the list.
    Bootstrap(usize),
}

/// Channels to the outside.
pub(super) struct Ends {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) notices: mpsc::Receiver<Notice>,
    pub(super) control: mpsc::Sender<NetEvent>,
    pub(super) frames: mpsc::Sender<QueuedFrame>,
    pub(super) log: mpsc::Sender<Stream>,
    pub(super) blob: mpsc::Sender<Stream>,
    /// For answers and readers, which talk back to this task. Weak, so that the task ends when the
    /// last handle is dropped.
    pub(super) own_commands: mpsc::WeakSender<Command>,
    pub(super) own_notices: mpsc::Sender<Notice>,
    pub(super) stop: CancellationToken,
}

/// Facts that do not change.
pub(super) struct Fixed {
    pub(super) names: Names,
    pub(super) limits: Limits,
    pub(super) lan: bool,
    pub(super) max_connections: u32,
    pub(super) topics: HashMap<gossipsub::TopicHash, String>,
    pub(super) dials_refused: Arc<AtomicU64>,
    pub(super) has_external: bool,
    pub(super) invitation: Option<String>,
}

/// The network task.
pub(super) struct Driver {
    swarm: Swarm<Behaviour>,
    ends: Ends,
    fixed: Fixed,
    peers: HashMap<PeerId, Peer>,
    dials: HashMap<ConnectionId, Dial>,
    asking: HashMap<OutboundRequestId, Asking>,
    lookups: HashMap<QueryId, Lookup>,
    bootstrap: Vec<Bootstrap>,
    backlog: VecDeque<NetEvent>,
    unheard: VecDeque<serve::Unheard>,
    wake: Instant,
    housekeeping: Instant,
    next_reader: ReaderId,
    seen_from_internet: bool,
    counts: NetCounts,
}

impl Driver {
    pub(super) fn new(
        swarm: Swarm<Behaviour>,
        ends: Ends,
        fixed: Fixed,
        bootstrap: Vec<(Multiaddr, Option<PeerId>)>,
        known: &[(NodeId, Vec<String>)],
        early: Vec<SwarmEvent<BehaviourEvent>>,
    ) -> Self {
        let now = Instant::now();
        let mut driver = Self {
            swarm,
            ends,
            fixed,
            peers: HashMap::new(),
            dials: HashMap::new(),
            asking: HashMap::new(),
            lookups: HashMap::new(),
            bootstrap: bootstrap.into_iter().map(|(address, peer)| Bootstrap::new(address, peer, now)).collect(),
            backlog: VecDeque::new(),
            unheard: VecDeque::new(),
            wake: now,
            housekeeping: now + HOUSEKEEPING,
            next_reader: 0,
            seen_from_internet: false,
            counts: NetCounts::default(),
        };
        for (key, addresses) in known {
            driver.remember(key, addresses, now);
        }
        for event in early {
            driver.handle_swarm(event, now);
        }
        driver
    }

    /// Runs until told to stop or until the last handle is gone, then says goodbye.
    pub(super) async fn run(mut self) {
        let stop = self.ends.stop.clone();
        let control = self.ends.control.clone();
        let mut in_a_row = 0u32;
        loop {
            let wake = self.wake;
            let turn = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                command = self.ends.commands.recv() => match command {
                    Some(command) => Turn::Command(command),
                    None => break,
                },
                Some(notice) = self.ends.notices.recv() => Turn::Notice(notice),
                room = control.reserve(), if !self.backlog.is_empty() => {
                    match (room, self.backlog.pop_front()) {
                        (Ok(room), Some(event)) => room.send(event),
                        // Nobody listens.
                        _ => self.backlog.clear(),
                    }
                    continue;
                }
                () = sleep_until(wake) => Turn::Timer,
                event = self.swarm.select_next_some() => Turn::Swarm(event),
            };
            let started = Instant::now();
            match turn {
                Turn::Command(command) => {
                    self.handle_command(command, started);
                    in_a_row = in_a_row.saturating_add(1);
                    if in_a_row >= COMMANDS_IN_A_ROW {
                        in_a_row = 0;
                        // The network is not starved by busy handles.
                        if let Poll::Ready(Some(event)) = futures::poll!(self.swarm.next()) {
                            self.handle_swarm(event, started);
                        }
                    }
                }
                Turn::Notice(notice) => self.handle_notice(notice, started),
                Turn::Timer => self.handle_timer(started),
                Turn::Swarm(event) => {
                    in_a_row = 0;
                    self.handle_swarm(event, started);
                }
            }
            let took = started.elapsed();
            if took > SLOW_TURN {
                self.counts.slow_turns = self.counts.slow_turns.saturating_add(1);
                tracing::warn!(?took, "slow turn of the network task");
            }
        }
        self.goodbye().await;
    }

    /// Closes all connections, so that peers learn at once.
    async fn goodbye(mut self) {
        self.ends.stop.cancel();
        for peer in self.peers.values() {
            if let Some(reader) = &peer.reader {
                reader.abort();
            }
        }
        let connected: Vec<PeerId> = self.swarm.connected_peers().copied().collect();
        for peer in connected {
            // An error means that it is gone already.
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        let closed = async {
            while self.swarm.connected_peers().next().is_some() {
                let _ = self.swarm.next().await;
            }
        };
        let _ = timeout(GOODBYE, closed).await;
    }

    /// Hands an event over that must not be lost: it waits here if the node is slow.
    fn tell(&mut self, event: NetEvent) {
        if self.backlog.is_empty() {
            match self.ends.control.try_send(event) {
                Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => return,
                Err(mpsc::error::TrySendError::Full(event)) => self.backlog.push_back(event),
            }
        } else {
            self.backlog.push_back(event);
        }
        if self.backlog.len() > MAX_BACKLOG {
            self.backlog.pop_front();
            self.counts.events_dropped = self.counts.events_dropped.saturating_add(1);
        }
    }

    /// Hands an event over that may be lost; gives it back if there is no room.
    #[expect(clippy::result_large_err, reason = "an event is moved, not copied, and given back rarely")]
    fn offer(&mut self, event: NetEvent) -> Result<(), NetEvent> {
        self.ends.control.try_send(event).map_err(|error| {
            self.counts.events_dropped = self.counts.events_dropped.saturating_add(1);
            error.into_inner()
        })
    }

    /// The record of a peer, made if need be. `None` for keys that no souk node has.
    fn peer(&mut self, id: PeerId, now: Instant) -> Option<&mut Peer> {
        if !self.peers.contains_key(&id) {
            let key = key::peer_key(&id)?;
            if self.peers.len() >= MAX_PEERS {
                self.forget_one(now);
            }
            self.peers.insert(id, Peer::new(key, &self.fixed.limits, now));
        }
        self.peers.get_mut(&id)
    }

    fn forget_one(&mut self, now: Instant) {
        let oldest = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.forgettable(now))
            .min_by_key(|(_, peer)| peer.last_seen)
            .map(|(id, _)| *id);
        if let Some(id) = oldest {
            self.peers.remove(&id);
        }
    }

    /// Makes sure the loop wakes at that time.
    fn wake_at(&mut self, at: Instant) {
        self.wake = self.wake.min(at);
    }

    fn counts(&self) -> NetCounts {
        NetCounts { dials_refused: self.fixed.dials_refused.load(Ordering::Relaxed), ..self.counts }
    }
}

/// What one turn of the loop does.
#[expect(
    clippy::large_enum_variant,
    reason = "lives on the stack for one turn; boxing would cost an allocation an event"
)]
enum Turn {
    Command(Command),
    Notice(Notice),
    Timer,
    Swarm(SwarmEvent<BehaviourEvent>),
}
