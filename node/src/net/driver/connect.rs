//! Connections: dialling, what waits for them, strikes and bans.

use libp2p::{
    Multiaddr, PeerId,
    swarm::{
        ConnectionId,
        dial_opts::{DialOpts, PeerCondition},
    },
};
use souk_protocol::NodeId;
use tokio::{sync::oneshot, time::Instant};

use super::{Asking, Dial, Driver, Lookup, MAX_ASKING, MAX_LOOKUPS};
use crate::net::{
    ConnectError, NetEvent, OpenError, RequestError, address,
    behaviour::MAX_REQUEST_TIME,
    codec::{self, Message},
    command::{Kind, OpenReply},
    key,
    peer::{MAX_WAITING, Strike, Waiting, Work},
    streams::Failure,
};

/// How long something may wait for a connection.
const WAIT: std::time::Duration = std::time::Duration::from_secs(15);
/// `connect` calls in progress.
const MAX_CONNECTING: usize = 256;

impl Driver {
    /// A `connect` call.
    pub(super) fn connect(&mut self, text: &str, reply: oneshot::Sender<Result<NodeId, ConnectError>>, now: Instant) {
        let (address, peer) = match address::parse(text, self.fixed.lan) {
            Ok(parsed) => parsed,
            Err(why) => {
                let value = text.chars().take(512).collect();
                let _ = reply.send(Err(ConnectError::Address { value, why }));
                return;
            }
        };
        if self.dials.len() >= MAX_CONNECTING {
            let _ = reply.send(Err(ConnectError::Busy));
            return;
        }
        if let Some(id) = peer {
            if id == *self.swarm.local_peer_id() {
                let why = "it is this node itself".to_owned();
                let _ = reply.send(Err(ConnectError::Address { value: text.to_owned(), why }));
                return;
            }
            if let Some(peer) = self.peer(id, now) {
                peer.give(address.clone());
                if !peer.connections.is_empty() {
                    self.wait_for(id, Work::Connect { reply }, now);
                    return;
                }
            }
        }
        let opts = match peer {
            Some(id) => DialOpts::peer_id(id).addresses(vec![address]).condition(PeerCondition::Always).build(),
            None => DialOpts::unknown_peer_id().address(address).build(),
        };
        let connection = opts.connection_id();
        match self.swarm.dial(opts) {
            Ok(()) => {
                self.dials.insert(connection, Dial::Connect(reply));
            }
            Err(error) => {
                let _ = reply.send(Err(ConnectError::Unreachable { why: error.to_string() }));
            }
        }
    }

    /// Takes addresses of an earlier run. A dial checks the peer's key, so old ones do no harm.
    pub(super) fn remember(&mut self, key: &NodeId, addresses: &[String], now: Instant) {
        let lan = self.fixed.lan;
        let Some(id) = key::peer_id(key).filter(|id| id != self.swarm.local_peer_id()) else { return };
        let parsed = addresses.iter().filter_map(|text| text.parse::<Multiaddr>().ok());
        let addresses = address::keep(parsed, &id, lan);
        if let Some(peer) = self.peer(id, now) {
            peer.addresses = addresses;
        }
    }

    /// Does work at a connected peer, or dials it and lets the work wait.
    pub(super) fn wait_for(&mut self, id: PeerId, work: Work, now: Instant) {
        let Some(peer) = self.peer(id, now) else {
            refuse(work, "the key is not an ed25519 key");
            return;
        };
        if peer.banned_until.is_some() {
            refuse(work, "the peer is shut out for misbehaviour");
            return;
        }
        if !peer.connections.is_empty() {
            match work {
                Work::Connect { reply } if peer.identified => {
                    let _ = reply.send(Ok(peer.key));
                }
                work @ Work::Connect { .. } => self.enqueue(id, work, now),
                work => self.perform(id, work, now),
            }
            return;
        }
        self.enqueue(id, work, now);
        self.dial(id, now);
    }

    fn enqueue(&mut self, id: PeerId, work: Work, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.waiting.len() >= MAX_WAITING {
            busy(work);
            return;
        }
        let until = now + WAIT;
        peer.waiting.push(Waiting { until, work });
        self.wake_at(until);
    }

    /// Dials a peer by all addresses known, if no dial runs; without any, asks the hash table.
    pub(super) fn dial(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.dials > 0 {
            return;
        }
        let opts = DialOpts::peer_id(id)
            .addresses(peer.dialable())
            .condition(PeerCondition::DisconnectedAndNotDialing)
            .extend_addresses_through_behaviour()
            .build();
        let connection = opts.connection_id();
        match self.swarm.dial(opts) {
            Ok(()) => {
                peer.dials = peer.dials.saturating_add(1);
                self.dials.insert(connection, Dial::Peer(id));
            }
            // Somebody else (the hash table, gossip, bootstrap) dials already; the work waits for that.
            Err(libp2p::swarm::DialError::DialPeerConditionFalse(_)) => {}
            Err(error) => self.dial_failed(id, &error.to_string(), now),
        }
    }

    /// A dial of this peer failed: look the peer up once, then give up.
    pub(super) fn dial_failed(&mut self, id: PeerId, why: &str, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !peer.connections.is_empty() || peer.dials > 0 || peer.waiting.is_empty() {
            return;
        }
        if !peer.looked_up && self.lookups.len() < MAX_LOOKUPS && self.has_routes() {
            if let Some(peer) = self.peers.get_mut(&id) {
                peer.looked_up = true;
            }
            let query = self.swarm.behaviour_mut().kad.get_closest_peers(id);
            self.lookups.insert(query, Lookup::Route(id));
            return;
        }
        tracing::debug!(peer = %id, why, "unreachable");
        self.give_up(id, why, now);
    }

    fn has_routes(&mut self) -> bool {
        self.swarm.behaviour_mut().kad.kbuckets().any(|bucket| bucket.num_entries() > 0)
    }

    /// A look-up of a peer's addresses ended.
    pub(super) fn routed(&mut self, id: PeerId, addresses: Vec<Multiaddr>, now: Instant) {
        let lan = self.fixed.lan;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if !peer.connections.is_empty() || peer.waiting.is_empty() {
            return;
        }
        let found = address::keep(addresses, &id, lan);
        if found.is_empty() {
            self.give_up(id, "no address is known", now);
            return;
        }
        peer.addresses = found;
        self.dial(id, now);
    }

    /// Tells all that wait for this peer that it cannot be reached.
    pub(super) fn give_up(&mut self, id: PeerId, why: &str, _now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.looked_up = false;
        for waiting in std::mem::take(&mut peer.waiting) {
            refuse(waiting.work, why);
        }
    }

    /// Does what waited for a connection.
    pub(super) fn flush(&mut self, id: PeerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.looked_up = false;
        let (identified, key) = (peer.identified, peer.key);
        for Waiting { until, work } in std::mem::take(&mut peer.waiting) {
            match work {
                Work::Connect { reply } if identified => {
                    let _ = reply.send(Ok(key));
                }
                work @ Work::Connect { .. } => {
                    if let Some(peer) = self.peers.get_mut(&id) {
                        peer.waiting.push(Waiting { until, work });
                    }
                }
                work => self.perform(id, work, now),
            }
        }
    }

    /// Does work at a connected peer.
    fn perform(&mut self, id: PeerId, work: Work, now: Instant) {
        match work {
            Work::Open { kind, reply } => self.open(id, kind, reply),
            Work::Ask { kind, body, reply } => {
                if self.asking.len() >= MAX_ASKING {
                    let _ = reply.send(Err(RequestError::Busy));
                    return;
                }
                let request = self.swarm.behaviour_mut().ask.send_request(&id, Message::new(kind, body));
                let echo = kind == codec::ECHO;
                self.asking.insert(request, Asking { reply: Some(reply), echo, since: now });
            }
            Work::Connect { .. } => {}
        }
    }

    fn open(&mut self, id: PeerId, kind: Kind, reply: OpenReply) {
        let Some(connection) = self.peers.get(&id).and_then(crate::net::peer::Peer::newest) else {
            let _ = reply.send(Err(OpenError::Unreachable("the connection has just ended".to_owned())));
            return;
        };
        let protocol = match kind {
            Kind::Trade => self.fixed.names.trade.clone(),
            Kind::Log => self.fixed.names.log.clone(),
            Kind::Blob => self.fixed.names.blob.clone(),
        };
        let (opened, result) = oneshot::channel();
        self.swarm.behaviour_mut().streams.open(id, connection, protocol, opened);
        // A task only to translate the result: it ends with the connection at the latest.
        tokio::spawn(async move {
            let result = match result.await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(Failure::Busy)) => Err(OpenError::Busy),
                Ok(Err(Failure::Unsupported)) => Err(OpenError::Unsupported),
                Ok(Err(Failure::Timeout)) => Err(OpenError::Lost("no answer to the opening".to_owned())),
                Ok(Err(Failure::Io(error))) => Err(OpenError::Lost(error.to_string())),
                Err(_) => Err(OpenError::Lost("the connection ended".to_owned())),
            };
            let _ = reply.send(result);
        });
    }

    /// A peer misbehaved: count it, and shut the peer out when there is too much.
    pub(super) fn strike(&mut self, id: PeerId, strike: Strike, now: Instant) {
        self.counts.strikes = self.counts.strikes.saturating_add(1);
        let limits = self.fixed.limits;
        let configured = self.bootstrap.iter().any(|known| known.peer == Some(id));
        let Some(peer) = self.peer(id, now) else { return };
        let points = peer.strike(strike.points(), now);
        tracing::debug!(peer = %id, ?strike, points, "strike");
        // Bootstrap nodes are the way into the network: never shut out.
        if points < f64::from(limits.ban_at) || configured || peer.banned_until.is_some() {
            return;
        }
        let until = now + limits.ban_for;
        peer.banned_until = Some(until);
        if let Some(reader) = peer.reader.take() {
            reader.abort();
        }
        self.counts.bans = self.counts.bans.saturating_add(1);
        tracing::info!(peer = %id, ?strike, for_s = limits.ban_for.as_secs(), "peer shut out");
        let behaviour = self.swarm.behaviour_mut();
        behaviour.banned.block_peer(id);
        behaviour.kad.remove_peer(&id);
        self.wake_at(until);
    }

    /// A connection has begun.
    pub(super) fn established(&mut self, id: PeerId, connection: crate::net::peer::Connection, now: Instant) {
        let dial = self.dials.remove(&connection.id);
        if connection.direction == crate::net::Direction::Inbound && address::is_global(&connection.address) {
            self.seen_from_internet = true;
        }
        if self.peer(id, now).is_none() {
            // Not an ed25519 key: cannot be a node of any souk network.
            let _ = self.swarm.disconnect_peer_id(id);
            return;
        }
        let (address, _) = address::split(connection.address.clone());
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.last_seen = now;
            peer.connections.push(connection);
        }
        match dial {
            Some(Dial::Peer(dialled)) => self.dial_ended(dialled),
            Some(Dial::Connect(reply)) => {
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.give(address);
                }
                self.wait_for(id, Work::Connect { reply }, now);
            }
            Some(Dial::Bootstrap(place)) => self.bootstrap_reached(place, id),
            None => {}
        }
        self.update_room();
        self.flush(id, now);
    }

    pub(super) fn dial_ended(&mut self, id: PeerId) {
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.dials = peer.dials.saturating_sub(1);
        }
    }

    /// Idle connections may stay while less than half of the places are taken.
    pub(super) fn update_room(&mut self) {
        let open: usize = self.peers.values().map(|peer| peer.connections.len()).sum();
        let half = usize::try_from(self.fixed.max_connections / 2).unwrap_or(usize::MAX);
        self.swarm.behaviour_mut().streams.set_room(open < half);
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, id: PeerId, connection: ConnectionId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.connections.retain(|open| open.id != connection);
        peer.last_seen = now;
        if peer.connections.is_empty() {
            let was_identified = std::mem::replace(&mut peer.identified, false);
            peer.next_echo = None;
            let key = peer.key;
            // A `connect` call that waited for the peer to identify itself.
            self.give_up(id, "the connection ended", now);
            if was_identified {
                self.tell(NetEvent::Disconnected { peer: key });
            }
            self.bootstrap_lost(id, now);
        }
        self.update_room();
    }

    /// Work whose deadline has passed.
    pub(super) fn expire_waiting(&mut self, now: Instant) {
        let mut late = Vec::new();
        for peer in self.peers.values_mut() {
            if peer.waiting.iter().any(|waiting| waiting.until <= now) {
                let (due, kept) = std::mem::take(&mut peer.waiting).into_iter().partition(|w| w.until <= now);
                peer.waiting = kept;
                let due: Vec<Waiting> = due;
                late.extend(due);
            }
        }
        for waiting in late {
            refuse(waiting.work, "no connection in time");
        }
        // The request-response protocol gives every request an end; this only guards against a leak.
        self.asking
            .retain(|_, asking| now.saturating_duration_since(asking.since) < MAX_REQUEST_TIME.saturating_mul(2));
    }

    /// The peer turned out to belong to another network.
    pub(super) fn foreign(&mut self, id: PeerId, now: Instant) {
        if let Some(peer) = self.peers.get_mut(&id) {
            for waiting in std::mem::take(&mut peer.waiting) {
                match waiting.work {
                    Work::Connect { reply } => {
                        let _ = reply.send(Err(ConnectError::ForeignNetwork));
                    }
                    work => refuse(work, "the peer belongs to another network"),
                }
            }
            peer.last_seen = now;
        }
        let behaviour = self.swarm.behaviour_mut();
        behaviour.kad.remove_peer(&id);
        let _ = self.swarm.disconnect_peer_id(id);
    }
}

/// Tells a caller that the peer cannot be reached.
pub(super) fn refuse(work: Work, why: &str) {
    // Callers that went away are normal.
    match work {
        Work::Open { reply, .. } => {
            let _ = reply.send(Err(OpenError::Unreachable(why.to_owned())));
        }
        Work::Ask { reply, .. } => {
            let _ = reply.send(Err(RequestError::Unreachable(why.to_owned())));
        }
        Work::Connect { reply } => {
            let _ = reply.send(Err(ConnectError::Unreachable { why: why.to_owned() }));
        }
    }
}

/// Tells a caller that too much waits already.
fn busy(work: Work) {
    match work {
        Work::Open { reply, .. } => {
            let _ = reply.send(Err(OpenError::Busy));
        }
        Work::Ask { reply, .. } => {
            let _ = reply.send(Err(RequestError::Busy));
        }
        Work::Connect { reply } => {
            let _ = reply.send(Err(ConnectError::Busy));
        }
    }
}

/// The peer id of a key, or an answer to the caller.
pub(super) fn id_or_refuse(key: &NodeId, work: Work) -> Option<(PeerId, Work)> {
    match key::peer_id(key) {
        Some(id) => Some((id, work)),
        None => {
            refuse(work, "the key is not an ed25519 key");
            None
        }
    }
}
