//! What the network task remembers about one peer.

use std::{sync::Arc, time::Duration};

use libp2p::{Multiaddr, swarm::ConnectionId};
use souk_protocol::NodeId;
use tokio::{
    sync::{Semaphore, oneshot},
    time::Instant,
};

use super::{
    ConnectError, ConnectionInfo, Direction, PeerInfo, address,
    bucket::Bucket,
    command::{AskReply, Kind, OpenReply},
    config::Limits,
    info::RttWindow,
    trade::{Reader, Share},
};

/// Inbound log and blob streams open at once from one peer.
const MAX_STREAMS: usize = 64;
/// Inbound trade streams a peer may open: a second, and at once. Honest peers keep one.
const STREAM_OPENS: (u32, u32) = (20, 64);
/// Inbound gossip messages handed up from one neighbour, a second and at once.
const GOSSIP: (u32, u32) = (200, 1_000);
/// Strike points halve in this time.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// Things that wait for a connection to one peer.
pub(super) const MAX_WAITING: usize = 64;

/// How a peer misbehaved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strike {
    /// A frame with an impossible length: garbage, or an attempt on our memory.
    BadFrame,
    /// A frame begun and not finished in time.
    SlowFrame,
    /// Streams opened far too often.
    StreamFlood,
    /// A gossip message an honest peer cannot have sent.
    RejectedGossip,
    /// Reported by the node.
    Reported(u32),
}

impl Strike {
    pub(super) fn points(self) -> u32 {
        match self {
            Self::BadFrame => 20,
            Self::SlowFrame => 5,
            Self::StreamFlood | Self::RejectedGossip => 10,
            Self::Reported(points) => points,
        }
    }
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) address: Multiaddr,
    pub(super) direction: Direction,
    pub(super) since: Instant,
    /// The number the other side's process drew at its start, once identified.
    pub(super) boot: Option<String>,
    pub(super) failed_pings: u32,
}

/// Something that needs a connection.
#[derive(Debug)]
pub(super) enum Work {
    Open {
        kind: Kind,
        reply: OpenReply,
    },
    Ask {
        kind: u8,
        body: Vec<u8>,
        reply: AskReply,
    },
    /// Needs an identified peer.
    Connect {
        reply: oneshot::Sender<Result<NodeId, ConnectError>>,
    },
}

/// The same with its deadline.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) until: Instant,
    pub(super) work: Work,
}

/// A peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) key: NodeId,
    pub(super) connections: Vec<Connection>,
    pub(super) identified: bool,
    pub(super) agent: String,
    /// Told by the peer, checked, without `/p2p`.
    pub(super) addresses: Vec<Multiaddr>,
    /// Given by the user of this node (`connect`, `bootstrap`); tried as well.
    pub(super) given: Vec<Multiaddr>,
    pub(super) rtt: RttWindow,
    pub(super) waiting: Vec<Waiting>,
    pub(super) dials: u32,
    pub(super) looked_up: bool,
    pub(super) share: Arc<Share>,
    pub(super) reader: Option<Reader>,
    pub(super) streams: Arc<Semaphore>,
    pub(super) stream_opens: Bucket,
    pub(super) requests: Bucket,
    pub(super) gossip: Bucket,
    strike_points: f64,
    strikes_at: Instant,
    pub(super) banned_until: Option<Instant>,
    /// Echoes still to be sent early, and when the next one is due.
    pub(super) early_echoes: u32,
    pub(super) next_echo: Option<Instant>,
    pub(super) last_seen: Instant,
}

impl Peer {
    pub(super) fn new(key: NodeId, limits: &Limits, now: Instant) -> Self {
        Self {
            key,
            connections: Vec::new(),
            identified: false,
            agent: String::new(),
            addresses: Vec::new(),
            given: Vec::new(),
            rtt: RttWindow::default(),
            waiting: Vec::new(),
            dials: 0,
            looked_up: false,
            share: Arc::new(Share::new(limits, now)),
            reader: None,
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            stream_opens: Bucket::new(STREAM_OPENS.0, STREAM_OPENS.1, now),
            requests: Bucket::new(limits.requests_per_second, limits.requests_burst, now),
            gossip: Bucket::new(GOSSIP.0, GOSSIP.1, now),
            strike_points: 0.0,
            strikes_at: now,
            banned_until: None,
            early_echoes: 0,
            next_echo: None,
            last_seen: now,
        }
    }

    /// The newest connection: an older one may belong to a process of the peer that is gone.
    pub(super) fn newest(&self) -> Option<ConnectionId> {
        self.connections.last().map(|connection| connection.id)
    }

    pub(super) fn connection(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.connections.iter_mut().find(|connection| connection.id == id)
    }

    /// Adds an address given by this node's user.
    pub(super) fn give(&mut self, address: Multiaddr) {
        if self.given.contains(&address) {
            return;
        }
        if self.given.len() >= address::MAX_ADDRESSES {
            self.given.remove(0);
        }
        self.given.push(address);
    }

    /// All addresses worth dialling.
    pub(super) fn dialable(&self) -> Vec<Multiaddr> {
        let mut all = self.given.clone();
        for address in &self.addresses {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// Adds strike points to what is left of earlier ones and says how many there are.
    pub(super) fn strike(&mut self, points: u32, now: Instant) -> f64 {
        self.strike_points = self.points(now) + f64::from(points);
        self.strikes_at = now;
        self.strike_points
    }

    fn points(&self, now: Instant) -> f64 {
        let halves = now.saturating_duration_since(self.strikes_at).as_secs_f64() / HALF_LIFE.as_secs_f64();
        self.strike_points * 0.5f64.powf(halves)
    }

    /// Forgets strikes, after a ban has been served.
    pub(super) fn forgive(&mut self) {
        self.strike_points = 0.0;
        self.banned_until = None;
    }

    /// Whether nothing would be lost by forgetting this peer.
    pub(super) fn forgettable(&self, now: Instant) -> bool {
        self.connections.is_empty()
            && self.waiting.is_empty()
            && self.dials == 0
            && self.banned_until.is_none()
            && self.points(now) < 1.0
    }

    /// For people.
    pub(super) fn info(&self, now: Instant) -> PeerInfo {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "points are small and not negative"
        )]
        let strikes = self.points(now).round() as u32;
        PeerInfo {
            id: self.key,
            addresses: self
                .addresses
                .iter()
                .chain(self.given.iter().filter(|given| !self.addresses.contains(given)))
                .take(address::MAX_ADDRESSES)
                .map(ToString::to_string)
                .collect(),
            connected: self.identified && !self.connections.is_empty(),
            rtt_micros: self.rtt.last(),
            rtt_p95_micros: self.rtt.p95(),
            agent: self.agent.clone(),
            connections: self
                .connections
                .iter()
                .map(|connection| ConnectionInfo {
                    address: connection.address.to_string(),
                    direction: connection.direction,
                    transport: address::transport(&connection.address),
                })
                .collect(),
            strikes,
            banned: self.banned_until.is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strikes_halve_every_ten_minutes() {
        let start = Instant::now();
        let mut peer = Peer::new(NodeId([1; 32]), &Limits::default(), start);
        assert!((peer.strike(40, start) - 40.0).abs() < 1e-9);
        assert!((peer.strike(20, start + HALF_LIFE) - 40.0).abs() < 1e-9);
        assert!(!peer.forgettable(start + HALF_LIFE));
        assert!(peer.forgettable(start + HALF_LIFE * 8));
    }
}
