//! What the swarm reports.

use std::sync::Arc;

use libp2p::{
    PeerId,
    core::ConnectedPoint,
    identify, ping,
    swarm::{ConnectionId, SwarmEvent},
};
use tokio::time::Instant;

use super::{Dial, Driver, serve::printable, time::EARLY_ECHOES};
use crate::net::{
    ConnectError, Direction, NetEvent, address,
    behaviour::BehaviourEvent,
    peer::{Connection, Strike},
    stream::Stream,
    streams::Inbound,
    trade,
};

/// Pings in a row that may fail before a connection counts as dead.
const MAX_FAILED_PINGS: u32 = 2;
/// Characters of a peer's agent text that are kept.
const MAX_AGENT: usize = 64;
/// Separates name and version from the process's own number in the agent text.
pub(in crate::net) const BOOT: &str = " boot/";

impl Driver {
    pub(super) fn handle_swarm(&mut self, event: SwarmEvent<BehaviourEvent>, now: Instant) {
        match event {
            SwarmEvent::Behaviour(event) => self.handle_behaviour(event, now),
            SwarmEvent::ConnectionEstablished { peer_id, connection_id, endpoint, .. } => {
                let direction = match endpoint {
                    ConnectedPoint::Dialer { .. } => Direction::Outbound,
                    ConnectedPoint::Listener { .. } => Direction::Inbound,
                };
                let connection = Connection {
                    id: connection_id,
                    address: endpoint.get_remote_address().clone(),
                    direction,
                    since: now,
                    boot: None,
                    failed_pings: 0,
                };
                self.established(peer_id, connection, now);
            }
            SwarmEvent::ConnectionClosed { peer_id, connection_id, cause, .. } => {
                tracing::debug!(peer = %peer_id, ?cause, "connection closed");
                self.closed(peer_id, connection_id, now);
            }
            SwarmEvent::OutgoingConnectionError { connection_id, peer_id, error } => {
                self.dial_error(connection_id, peer_id, &error.to_string(), now);
            }
            SwarmEvent::NewListenAddr { address, .. } => {
                let address = format!("{address}/p2p/{}", self.swarm.local_peer_id());
                tracing::info!(%address, "listening");
                self.tell(NetEvent::ListenAddr { address });
            }
            SwarmEvent::ListenerClosed { addresses, reason, .. } => {
                tracing::warn!(?addresses, ?reason, "no longer listening");
            }
            SwarmEvent::ListenerError { error, .. } => tracing::debug!(%error, "listener error"),
            SwarmEvent::IncomingConnectionError { error, .. } => tracing::debug!(%error, "inbound connection failed"),
            _ => {}
        }
    }

    fn dial_error(&mut self, connection: ConnectionId, peer: Option<PeerId>, why: &str, now: Instant) {
        match self.dials.remove(&connection) {
            Some(Dial::Peer(id)) => {
                self.dial_ended(id);
                self.dial_failed(id, why, now);
                return;
            }
            Some(Dial::Connect(reply)) => {
                let _ = reply.send(Err(ConnectError::Unreachable { why: why.to_owned() }));
            }
            Some(Dial::Bootstrap(place)) => {
                tracing::debug!(why, "bootstrap node unreachable");
                self.bootstrap_failed(place, now);
            }
            None => {}
        }
        // Work may have waited for this dial, made for another purpose: try all addresses.
        if let Some(id) = peer
            && self.peers.get(&id).is_some_and(|peer| peer.connections.is_empty() && !peer.waiting.is_empty())
        {
            self.dial(id, now);
        }
    }

    fn handle_behaviour(&mut self, event: BehaviourEvent, now: Instant) {
        match event {
            BehaviourEvent::Identify(identify::Event::Received { connection_id, peer_id, info }) => {
                self.identified(peer_id, connection_id, info, now);
            }
            BehaviourEvent::Ping(event) => self.pinged(event),
            BehaviourEvent::Kad(event) => self.handle_kad(event, now),
            BehaviourEvent::Gossip(event) => self.handle_gossip(event, now),
            BehaviourEvent::Ask(event) => self.handle_ask(event, now),
            BehaviourEvent::Invite(event) => self.handle_invite(event, now),
            BehaviourEvent::Streams(inbound) => self.inbound_stream(inbound, now),
            _ => {}
        }
    }

    fn identified(&mut self, id: PeerId, connection: ConnectionId, info: identify::Info, now: Instant) {
        if info.protocol_version != self.fixed.names.identify {
            tracing::debug!(peer = %id, "peer of another network");
            self.foreign(id, now);
            return;
        }
        let lan = self.fixed.lan;
        let addresses = address::keep(info.listen_addrs, &id, lan);
        let serves_kad = info.protocols.contains(&self.fixed.names.kad);
        {
            let kad = &mut self.swarm.behaviour_mut().kad;
            if serves_kad {
                for address in &addresses {
                    kad.add_address(&id, address.clone());
                }
            } else {
                kad.remove_peer(&id);
            }
        }
        let (agent, boot) = match info.agent_version.split_once(BOOT) {
            Some((agent, boot)) => (agent, Some(printable(boot.as_bytes()))),
            None => (info.agent_version.as_str(), None),
        };
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.agent = printable(agent.as_bytes()).chars().take(MAX_AGENT).collect();
        if !addresses.is_empty() {
            peer.addresses = addresses;
        }
        if let Some(open) = peer.connection(connection) {
            open.boot.clone_from(&boot);
        }
        // Connections of an earlier process of the same node are dead, though the transport may not
        // have noticed: what was sent over them would be lost.
        let newest_first = peer.newest() == Some(connection);
        let dead: Vec<ConnectionId> = peer
            .connections
            .iter()
            .filter(|open| newest_first && boot.is_some() && open.boot.is_some() && open.boot != boot)
            .map(|open| open.id)
            .collect();
        let key = peer.key;
        let first = !std::mem::replace(&mut peer.identified, true);
        if first {
            peer.early_echoes = EARLY_ECHOES;
            peer.next_echo = Some(now);
        }
        for id in dead {
            self.swarm.close_connection(id);
        }
        if first {
            self.wake_at(now);
            self.bootstrap_good(id);
            self.tell(NetEvent::Connected { peer: key });
        }
        self.flush(id, now);
    }

    fn pinged(&mut self, event: ping::Event) {
        let ping::Event { peer: id, connection, result } = event;
        match result {
            Ok(round_trip) => {
                if let Some(open) = self.peers.get_mut(&id).and_then(|peer| peer.connection(connection)) {
                    open.failed_pings = 0;
                }
                self.measured(id, round_trip);
            }
            Err(error) => {
                tracing::debug!(peer = %id, %error, "ping failed");
                let Some(open) = self.peers.get_mut(&id).and_then(|peer| peer.connection(connection)) else { return };
                open.failed_pings = open.failed_pings.saturating_add(1);
                if open.failed_pings >= MAX_FAILED_PINGS {
                    self.swarm.close_connection(connection);
                }
            }
        }
    }

    fn inbound_stream(&mut self, inbound: Inbound, now: Instant) {
        let Inbound { peer: id, protocol, stream } = inbound;
        let is_trade = protocol == self.fixed.names.trade;
        let is_log = protocol == self.fixed.names.log;
        let reader = self.next_reader;
        let frame_timeout = self.fixed.limits.frame_timeout;
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if is_trade {
            if !peer.stream_opens.take(now) {
                self.counts.streams_dropped = self.counts.streams_dropped.saturating_add(1);
                self.strike(id, Strike::StreamFlood, now);
                return;
            }
            self.next_reader = self.next_reader.wrapping_add(1);
            let setup = trade::Setup {
                id: reader,
                peer_id: id,
                peer: peer.key,
                share: Arc::clone(&peer.share),
                frame_timeout,
                frames: self.ends.frames.clone(),
                notices: self.ends.own_notices.clone(),
            };
            peer.reader = Some(trade::start(setup, stream, peer.reader.take()));
            return;
        }
        let place = Arc::clone(&peer.streams).try_acquire_owned().ok();
        let key = peer.key;
        let to = if is_log { &self.ends.log } else { &self.ends.blob };
        let taken = place.is_some_and(|place| to.try_send(Stream::new(stream, key, Some(place))).is_ok());
        if !taken {
            self.counts.streams_dropped = self.counts.streams_dropped.saturating_add(1);
        }
    }
}
