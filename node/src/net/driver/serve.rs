//! Commands of handles, notices of tasks, requests of peers, gossip and look-ups.

use std::time::Duration;

use libp2p::{
    PeerId, gossipsub,
    kad::{self, RecordKey},
    request_response::{self, OutboundFailure, ResponseChannel},
};
use souk_protocol::NodeId;
use tokio::{sync::oneshot, time::Instant};

use super::{Driver, Lookup, MAX_LOOKUPS, connect::id_or_refuse};
use crate::net::{
    LookupError, MessageToken, NetEvent, NetStatus, PublishError, Reachable, Reply, RequestError, Verdict,
    behaviour::MAX_PROVIDED,
    codec::{self, Message},
    command::{Command, Notice},
    invite, key,
    peer::{Strike, Work},
};

/// Messages published while nobody listened; they go out when a subscriber appears.
const MAX_UNHEARD: usize = 64;
/// How long they wait.
const UNHEARD_FOR: Duration = Duration::from_secs(30);
/// Longest hash table key, in bytes.
const MAX_KEY: usize = 64;

/// A message that found no subscriber yet.
#[derive(Debug)]
pub(super) struct Unheard {
    topic: String,
    bytes: Vec<u8>,
    until: Instant,
}

impl Driver {
    pub(super) fn handle_command(&mut self, command: Command, now: Instant) {
        match command {
            Command::Connect { address, reply } => self.connect(&address, reply, now),
            Command::Open { peer, kind, reply } => {
                if let Some((id, work)) = id_or_refuse(&peer, Work::Open { kind, reply }) {
                    self.wait_for(id, work, now);
                }
            }
            Command::Ask { peer, kind, body, reply } => {
                if let Some((id, work)) = id_or_refuse(&peer, Work::Ask { kind, body, reply }) {
                    self.wait_for(id, work, now);
                }
            }
            Command::Respond { channel, message } => self.respond(channel, message),
            Command::Publish { topic, bytes, reply } => {
                let _ = reply.send(self.publish(topic, bytes, now));
            }
            Command::Verdict { token, verdict } => self.verdict(&token, verdict, now),
            Command::Peers { reply } => {
                let mut all: Vec<_> = self.peers.values().map(|peer| peer.info(now)).collect();
                all.sort_by_key(|info| info.id);
                let _ = reply.send(all);
            }
            Command::Status { reply } => {
                let _ = reply.send(self.status());
            }
            Command::ListenAddrs { reply } => {
                let _ = reply.send(self.listen_addrs());
            }
            Command::Provide { key, reply } => {
                let _ = reply.send(self.provide(&key));
            }
            Command::StopProviding { key } => self.swarm.behaviour_mut().kad.stop_providing(&RecordKey::new(&key)),
            Command::Providers { key, reply } => self.providers(&key, reply),
            Command::Strike { peer, points } => {
                if let Some(id) = key::peer_id(&peer) {
                    self.strike(id, Strike::Reported(points), now);
                }
            }
        }
    }

    pub(super) fn handle_notice(&mut self, notice: Notice, now: Instant) {
        match notice {
            Notice::ReaderEnded { peer: id, id: reader, strike } => {
                if let Some(peer) = self.peers.get_mut(&id)
                    && peer.reader.as_ref().is_some_and(|current| current.id == reader)
                {
                    peer.reader = None;
                }
                if let Some(strike) = strike {
                    self.strike(id, strike, now);
                }
            }
            Notice::SendFailed { peer, dropped, why } => self.tell(NetEvent::SendFailed { peer, dropped, why }),
        }
    }

    fn respond(&mut self, channel: ResponseChannel<Message>, message: Message) {
        // The asking side may be gone: normal.
        let _ = self.swarm.behaviour_mut().ask.send_response(channel, message);
    }

    pub(super) fn handle_ask(&mut self, event: request_response::Event<Message, Message>, now: Instant) {
        match event {
            request_response::Event::Message { peer, message, .. } => match message {
                request_response::Message::Request { request, channel, .. } => {
                    self.requested(peer, request, channel, now);
                }
                request_response::Message::Response { request_id, response } => {
                    let Some(asking) = self.asking.remove(&request_id) else { return };
                    let took = now.saturating_duration_since(asking.since);
                    if asking.echo && response.kind == codec::OK {
                        self.measured(peer, took);
                    }
                    if let Some(reply) = asking.reply {
                        let _ = reply.send(match response.kind {
                            codec::OK => Ok((response.body, took)),
                            codec::BUSY => Err(RequestError::Busy),
                            _ => Err(RequestError::Refused(printable(&response.body))),
                        });
                    }
                }
            },
            request_response::Event::OutboundFailure { request_id, error, .. } => {
                let Some(asking) = self.asking.remove(&request_id) else { return };
                let Some(reply) = asking.reply else { return };
                let _ = reply.send(Err(match error {
                    OutboundFailure::DialFailure => RequestError::Unreachable("no connection".to_owned()),
                    OutboundFailure::Timeout => RequestError::Timeout(now.saturating_duration_since(asking.since)),
                    OutboundFailure::UnsupportedProtocols => RequestError::Unsupported,
                    OutboundFailure::ConnectionClosed => RequestError::Lost("connection closed".to_owned()),
                    OutboundFailure::Io(error) => RequestError::Lost(error.to_string()),
                }));
            }
            request_response::Event::InboundFailure { peer, error, .. } => {
                tracing::debug!(%peer, %error, "inbound request failed");
                if let request_response::InboundFailure::Io(error) = error
                    && error.kind() == std::io::ErrorKind::InvalidData
                {
                    self.strike(peer, Strike::BadFrame, now);
                }
            }
            request_response::Event::ResponseSent { .. } => {}
        }
    }

    fn requested(&mut self, id: PeerId, request: Message, channel: ResponseChannel<Message>, now: Instant) {
        let Some(peer) = self.peer(id, now) else { return };
        let from = peer.key;
        if !peer.requests.take(now) {
            self.busy(channel);
            return;
        }
        let Message { kind, body, hold } = request;
        if kind == codec::ECHO {
            self.respond(channel, Message::new(codec::OK, Vec::new()));
            return;
        }
        let Some(commands) = self.ends.own_commands.upgrade() else { return };
        let reply = Reply::new(channel, commands, hold);
        if let Err(NetEvent::Request { reply, .. }) = self.offer(NetEvent::Request { peer: from, bytes: body, reply }) {
            self.counts.requests_busy = self.counts.requests_busy.saturating_add(1);
            reply.busy();
        }
    }

    /// Gives the network file to whoever asks.
    pub(super) fn handle_invite(&mut self, event: request_response::Event<Message, Message>, now: Instant) {
        let request_response::Event::Message { peer: id, message, .. } = event else { return };
        let request_response::Message::Request { request, channel, .. } = message else { return };
        let within_rate = self.peer(id, now).is_some_and(|peer| peer.requests.take(now));
        let answer = invite::answer(&request, self.fixed.invitation.as_deref(), within_rate);
        // The asking side may be gone: normal.
        let _ = self.swarm.behaviour_mut().invite.send_response(channel, answer);
    }

    fn busy(&mut self, channel: ResponseChannel<Message>) {
        self.counts.requests_busy = self.counts.requests_busy.saturating_add(1);
        self.respond(channel, Message::new(codec::BUSY, Vec::new()));
    }

    // --- gossip

    fn publish(&mut self, topic: String, bytes: Vec<u8>, now: Instant) -> Result<(), PublishError> {
        if !self.fixed.topics.values().any(|known| *known == topic) {
            return Err(PublishError::UnknownTopic(topic.chars().take(64).collect()));
        }
        let hash = self.fixed.names.topic(&topic).hash();
        match self.swarm.behaviour_mut().gossip.publish(hash, bytes.clone()) {
            Ok(_) => Ok(()),
            Err(gossipsub::PublishError::NoPeersSubscribedToTopic) => {
                // Right after a connection the other side's topics are not known yet.
                if self.unheard.len() >= MAX_UNHEARD {
                    self.unheard.pop_front();
                }
                let until = now + UNHEARD_FOR;
                self.unheard.push_back(Unheard { topic, bytes, until });
                Ok(())
            }
            Err(gossipsub::PublishError::Duplicate) => Err(PublishError::Duplicate),
            Err(gossipsub::PublishError::MessageTooLarge) => Err(PublishError::Length { len: bytes.len() }),
            Err(error) => {
                tracing::debug!(%error, "not published");
                Err(PublishError::Busy)
            }
        }
    }

    fn publish_unheard(&mut self, topic: &str, now: Instant) {
        let waiting = std::mem::take(&mut self.unheard);
        for message in waiting {
            if message.topic != topic {
                self.unheard.push_back(message);
            } else if message.until > now {
                // An error was already possible when the caller was told that all is well.
                let _ = self.publish(message.topic, message.bytes, now);
            }
        }
    }

    pub(super) fn drop_unheard(&mut self, now: Instant) {
        self.unheard.retain(|message| message.until > now);
    }

    pub(super) fn handle_gossip(&mut self, event: gossipsub::Event, now: Instant) {
        match event {
            gossipsub::Event::Message { propagation_source, message_id, message } => {
                let token = MessageToken { id: message_id, source: propagation_source };
                let topic = self.fixed.topics.get(&message.topic).cloned();
                let (Some(topic), Some(peer)) = (topic, self.peer(propagation_source, now)) else {
                    self.verdict(&token, Verdict::Ignore, now);
                    return;
                };
                let source = peer.key;
                if message.data.is_empty() || message.data.len() > crate::net::MAX_GOSSIP {
                    self.verdict(&token, Verdict::Reject, now);
                    return;
                }
                let within_rate = peer.gossip.take(now);
                let event = NetEvent::Gossip { topic, source, bytes: message.data, token: token.clone() };
                if !within_rate || self.offer(event).is_err() {
                    self.counts.gossip_ignored = self.counts.gossip_ignored.saturating_add(1);
                    self.verdict(&token, Verdict::Ignore, now);
                }
            }
            gossipsub::Event::Subscribed { topic, .. } => {
                if let Some(topic) = self.fixed.topics.get(&topic).cloned() {
                    self.publish_unheard(&topic, now);
                }
            }
            gossipsub::Event::SlowPeer { peer_id, .. } => tracing::debug!(peer = %peer_id, "slow gossip peer"),
            _ => {}
        }
    }

    fn verdict(&mut self, token: &MessageToken, verdict: Verdict, now: Instant) {
        let acceptance = match verdict {
            Verdict::Accept => gossipsub::MessageAcceptance::Accept,
            Verdict::Ignore => gossipsub::MessageAcceptance::Ignore,
            Verdict::Reject => gossipsub::MessageAcceptance::Reject,
        };
        // False means that the message has left the cache: too late to matter.
        let _ =
            self.swarm.behaviour_mut().gossip.report_message_validation_result(&token.id, &token.source, acceptance);
        if verdict == Verdict::Reject {
            self.strike(token.source, Strike::RejectedGossip, now);
        }
    }

    // --- hash table

    fn provide(&mut self, key: &[u8]) -> Result<(), LookupError> {
        check_key(key)?;
        self.swarm.behaviour_mut().kad.start_providing(RecordKey::new(&key)).map(|_| ()).map_err(|error| {
            tracing::debug!(%error, limit = MAX_PROVIDED, "key not provided");
            LookupError::Busy
        })
    }

    fn providers(&mut self, key: &[u8], reply: oneshot::Sender<Result<Vec<NodeId>, LookupError>>) {
        if let Err(error) = check_key(key) {
            let _ = reply.send(Err(error));
            return;
        }
        if self.lookups.len() >= MAX_LOOKUPS {
            let _ = reply.send(Err(LookupError::Busy));
            return;
        }
        let query = self.swarm.behaviour_mut().kad.get_providers(RecordKey::new(&key));
        self.lookups.insert(query, Lookup::Providers { found: Vec::new(), reply });
    }

    pub(super) fn handle_kad(&mut self, event: kad::Event, now: Instant) {
        match event {
            kad::Event::InboundRequest { request: kad::InboundRequest::AddProvider { record: Some(record) } } => {
                self.add_provider(record);
            }
            kad::Event::OutboundQueryProgressed { id, result, step, .. } => match result {
                kad::QueryResult::GetProviders(result) => self.found_providers(id, result, step.last),
                kad::QueryResult::GetClosestPeers(result) if step.last => {
                    let Some(Lookup::Route(wanted)) = self.lookups.remove(&id) else { return };
                    let peers = match result {
                        Ok(found) => found.peers,
                        Err(kad::GetClosestPeersError::Timeout { peers, .. }) => peers,
                    };
                    let addresses =
                        peers.into_iter().filter(|info| info.peer_id == wanted).flat_map(|info| info.addrs).collect();
                    self.routed(wanted, addresses, now);
                }
                _ => {}
            },
            _ => {}
        }
    }

    fn add_provider(&mut self, mut record: kad::ProviderRecord) {
        use kad::store::RecordStore as _;
        if record.key.as_ref().len() > MAX_KEY {
            return;
        }
        record.addresses = crate::net::address::keep(record.addresses, &record.provider, self.fixed.lan);
        // A full store refuses: the provider tries other nodes as well.
        let _ = self.swarm.behaviour_mut().kad.store_mut().add_provider(record);
    }

    fn found_providers(&mut self, id: kad::QueryId, result: kad::GetProvidersResult, last: bool) {
        let local = *self.swarm.local_peer_id();
        if let (Some(Lookup::Providers { found, .. }), Ok(kad::GetProvidersOk::FoundProviders { providers, .. })) =
            (self.lookups.get_mut(&id), result)
        {
            for provider in providers {
                let Some(key) = key::peer_key(&provider) else { continue };
                if provider != local && !found.contains(&key) && found.len() < 256 {
                    found.push(key);
                }
            }
        }
        if last && let Some(Lookup::Providers { found, reply }) = self.lookups.remove(&id) {
            let _ = reply.send(Ok(found));
        }
    }

    // --- for people

    fn listen_addrs(&self) -> Vec<String> {
        let local = self.swarm.local_peer_id();
        self.swarm.listeners().map(|address| format!("{address}/p2p/{local}")).collect()
    }

    fn status(&mut self) -> NetStatus {
        let reachable = if self.fixed.has_external {
            Reachable::Public
        } else if self.fixed.lan {
            Reachable::Private
        } else if self.seen_from_internet {
            Reachable::Public
        } else {
            Reachable::Unknown
        };
        let kad = &mut self.swarm.behaviour_mut().kad;
        let kad_server = kad.mode() == kad::Mode::Server;
        let kad_peers = kad.kbuckets().map(|bucket| bucket.num_entries()).sum();
        NetStatus {
            reachable,
            listen: self.listen_addrs(),
            peers: self.peers.values().filter(|peer| peer.identified && !peer.connections.is_empty()).count(),
            kad_server,
            kad_peers,
            gossip_mesh: self.swarm.behaviour().gossip.all_mesh_peers().collect::<std::collections::HashSet<_>>().len(),
            counts: self.counts(),
        }
    }
}

fn check_key(key: &[u8]) -> Result<(), LookupError> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(LookupError::Length { len: key.len() });
    }
    Ok(())
}

/// A stranger's text, made safe to show: printable ASCII, at most 200 characters.
pub(super) fn printable(bytes: &[u8]) -> String {
    bytes.iter().take(200).map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' }).collect()
}
