//! The protocols of the node, limits first.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use libp2p::{
    StreamProtocol, allow_block_list, connection_limits, gossipsub, identify, identity::Keypair, kad,
    memory_connection_limits, ping, request_response, swarm::NetworkBehaviour,
};

use super::{MAX_GOSSIP, NetConfig, NetError, codec::Codec, gate, invite, streams};

/// Gossip that passes only topics of this network, at most as many as there are.
pub(super) type Gossip = gossipsub::Behaviour<
    gossipsub::IdentityTransform,
    gossipsub::MaxCountSubscriptionFilter<gossipsub::WhitelistSubscriptionFilter>,
>;

/// What the swarm runs.
#[derive(NetworkBehaviour)]
pub(super) struct Behaviour {
    /// Connections: total, pending, per peer.
    pub(super) limits: connection_limits::Behaviour,
    /// No new connections while the process is large.
    memory: memory_connection_limits::Behaviour,
    /// Peers shut out for a time.
    pub(super) banned: allow_block_list::Behaviour<allow_block_list::BlockedPeers>,
    /// Dials a minute.
    gate: gate::Behaviour,
    /// Who the other side is and which network it speaks for.
    pub(super) identify: identify::Behaviour,
    /// Round trips and dead connections.
    ping: ping::Behaviour,
    /// Rendezvous keys and peer routing; never on the path of a submit.
    pub(super) kad: kad::Behaviour<kad::store::MemoryStore>,
    /// Announcements.
    pub(super) gossip: Gossip,
    /// Small requests.
    pub(super) ask: request_response::Behaviour<Codec>,
    /// The network file, for those who do not know the network yet.
    pub(super) invite: request_response::Behaviour<Codec>,
    /// Trade, log and blob streams.
    pub(super) streams: streams::Behaviour,
}

/// Protocol names of one network.
#[derive(Debug, Clone)]
pub(super) struct Names {
    pub(super) identify: String,
    pub(super) kad: StreamProtocol,
    pub(super) ask: StreamProtocol,
    pub(super) trade: StreamProtocol,
    pub(super) log: StreamProtocol,
    pub(super) blob: StreamProtocol,
    prefix: String,
}

impl Names {
    /// Names for a network id of eight hexadecimal digits.
    pub(super) fn new(network: &str) -> Result<Self, NetError> {
        if network.len() != 8 || !network.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NetError::Network { value: network.chars().take(64).collect() });
        }
        let prefix = format!("/souk/{}", network.to_ascii_lowercase());
        let name = |what: &str| {
            StreamProtocol::try_from_owned(format!("{prefix}/{what}/1"))
                .map_err(|error| NetError::Setup { what: "protocol names", why: error.to_string() })
        };
        Ok(Self {
            identify: format!("{prefix}/id/1"),
            kad: name("kad")?,
            ask: name("ask")?,
            trade: name("trade")?,
            log: name("log")?,
            blob: name("blob")?,
            prefix,
        })
    }

    /// A topic's name on the wire.
    pub(super) fn topic(&self, topic: &str) -> gossipsub::IdentTopic {
        gossipsub::IdentTopic::new(format!("{}/{topic}/1", self.prefix))
    }
}

/// Share of connections others may open, in percent: the rest stays for those this node chooses,
/// so that strangers cannot surround it.
const INBOUND_PERCENT: u32 = 70;
/// Connections being made at once, each direction.
const MAX_PENDING: u32 = 32;
/// Two, because both sides may dial at the same moment.
const MAX_PER_PEER: u32 = 2;
/// Resident memory above which no new connection is accepted.
const MAX_PROCESS_BYTES: usize = 640 << 20;
/// Longest time a request may take; callers choose shorter ones.
pub(super) const MAX_REQUEST_TIME: Duration = Duration::from_secs(60);
/// Requests running at once on one connection, both directions.
const MAX_ASKS: usize = 64;
/// Hash table entries live two hours, renewed every thirty minutes.
const PROVIDER_TTL: Duration = Duration::from_secs(7_200);
const PROVIDER_RENEW: Duration = Duration::from_secs(1_800);
/// Providers kept for one key, and keys this node provides.
const MAX_PROVIDERS: usize = 20;
pub(super) const MAX_PROVIDED: usize = 256;
/// Messages waiting for one gossip peer.
const GOSSIP_QUEUE: usize = 1_000;
/// Gossip size on the wire: the payload and its envelope.
const GOSSIP_WIRE: usize = MAX_GOSSIP + 1_024;

/// Sets up every protocol.
pub(super) fn build(
    pair: &Keypair,
    config: &NetConfig,
    names: &Names,
    agent: String,
    refused_dials: Arc<AtomicU64>,
) -> Result<Behaviour, NetError> {
    let total = config.max_connections.max(4);
    let inbound = (total.saturating_mul(INBOUND_PERCENT) / 100).max(2);
    let limits = connection_limits::ConnectionLimits::default()
        .with_max_pending_incoming(Some(MAX_PENDING))
        .with_max_pending_outgoing(Some(MAX_PENDING))
        .with_max_established_incoming(Some(inbound))
        .with_max_established(Some(total))
        .with_max_established_per_peer(Some(MAX_PER_PEER));
    let local = pair.public().to_peer_id();
    Ok(Behaviour {
        limits: connection_limits::Behaviour::new(limits),
        memory: memory_connection_limits::Behaviour::with_max_bytes(MAX_PROCESS_BYTES),
        banned: allow_block_list::Behaviour::default(),
        gate: gate::Behaviour::new(config.lan, refused_dials),
        identify: identify::Behaviour::new(
            identify::Config::new(names.identify.clone(), pair.public())
                .with_agent_version(agent)
                .with_push_listen_addr_updates(true)
                // Addresses of the own network interfaces are nobody's business on the internet.
                .with_hide_listen_addrs(!config.lan),
        ),
        ping: ping::Behaviour::new(
            ping::Config::new().with_interval(config.limits.ping_interval).with_timeout(Duration::from_secs(10)),
        ),
        kad: build_kad(local, config, names),
        gossip: build_gossip(config, names)?,
        ask: request_response::Behaviour::with_codec(
            Codec::new(),
            [(names.ask.clone(), request_response::ProtocolSupport::Full)],
            request_response::Config::default()
                .with_request_timeout(MAX_REQUEST_TIME)
                .with_max_concurrent_streams(MAX_ASKS),
        ),
        invite: invite::behaviour(),
        streams: streams::Behaviour::new(vec![names.trade.clone(), names.log.clone(), names.blob.clone()]),
    })
}

fn build_kad(local: libp2p::PeerId, config: &NetConfig, names: &Names) -> kad::Behaviour<kad::store::MemoryStore> {
    let store = kad::store::MemoryStore::with_config(
        local,
        kad::store::MemoryStoreConfig {
            max_records: 1,
            max_value_bytes: 1,
            max_providers_per_key: MAX_PROVIDERS,
            max_provided_keys: MAX_PROVIDED,
        },
    );
    let mut settings = kad::Config::new(names.kad.clone());
    settings
        .set_kbucket_inserts(kad::BucketInserts::Manual)
        .set_record_filtering(kad::StoreInserts::FilterBoth)
        .set_query_timeout(Duration::from_secs(20))
        .disjoint_query_paths(true)
        .set_provider_record_ttl(Some(PROVIDER_TTL))
        .set_provider_publication_interval(Some(PROVIDER_RENEW))
        // Values are not used: offers travel by gossip and direct questions.
        .set_replication_interval(None)
        .set_publication_interval(None);
    let mut kad = kad::Behaviour::with_config(local, store, settings);
    kad.set_mode(Some(if config.server { kad::Mode::Server } else { kad::Mode::Client }));
    kad
}

/// Mesh sizes. LAN networks are small: with the usual six neighbours they would only prune and graft.
struct Mesh {
    n: usize,
    low: usize,
    high: usize,
    outbound: usize,
}

fn build_gossip(config: &NetConfig, names: &Names) -> Result<Gossip, NetError> {
    let setup = |why: String| NetError::Setup { what: "gossip", why };
    let mesh = if config.lan {
        Mesh { n: 4, low: 2, high: 8, outbound: 0 }
    } else {
        Mesh { n: 6, low: 4, high: 12, outbound: 2 }
    };
    let settings = gossipsub::ConfigBuilder::default()
        .mesh_n(mesh.n)
        .mesh_n_low(mesh.low)
        .mesh_n_high(mesh.high)
        .mesh_outbound_min(mesh.outbound)
        .heartbeat_initial_delay(Duration::from_millis(500))
        .heartbeat_interval(Duration::from_secs(1))
        .flood_publish(true)
        .validate_messages()
        // Documents carry their own signature and author; a second one here would cost time twice.
        .validation_mode(gossipsub::ValidationMode::Anonymous)
        .max_transmit_size(GOSSIP_WIRE)
        .connection_handler_queue_len(GOSSIP_QUEUE)
        .duplicate_cache_time(Duration::from_secs(60))
        .message_id_fn(|message: &gossipsub::Message| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(message.topic.as_str().as_bytes());
            hasher.update(&[0]);
            hasher.update(&message.data);
            let hash = hasher.finalize();
            gossipsub::MessageId::new(hash.as_bytes().get(..20).unwrap_or_default())
        })
        .build()
        .map_err(|error| setup(error.to_string()))?;

    let topics: Vec<gossipsub::IdentTopic> = config.topics.iter().map(|topic| names.topic(topic)).collect();
    let known: HashSet<gossipsub::TopicHash> = topics.iter().map(gossipsub::IdentTopic::hash).collect();
    let filter = gossipsub::MaxCountSubscriptionFilter {
        max_subscribed_topics: known.len().max(1),
        max_subscriptions_per_request: known.len().max(1).saturating_mul(2),
        filter: gossipsub::WhitelistSubscriptionFilter(known.clone()),
    };
    let mut gossip = Gossip::new_with_subscription_filter(gossipsub::MessageAuthenticity::Anonymous, settings, filter)
        .map_err(|error| setup(error.to_owned()))?;

    gossip.with_peer_score(score(config.lan, known), thresholds()).map_err(setup)?;
    for topic in &topics {
        gossip.subscribe(topic).map_err(|error| setup(error.to_string()))?;
    }
    Ok(gossip)
}

/// Scores only what an honest peer never does: invalid messages and protocol abuse. Deliveries are
/// not scored, since on quiet topics that punishes honest peers.
fn score(lan: bool, topics: HashSet<gossipsub::TopicHash>) -> gossipsub::PeerScoreParams {
    let topic = gossipsub::TopicScoreParams {
        topic_weight: 1.0,
        time_in_mesh_weight: 0.0,
        first_message_deliveries_weight: 0.0,
        mesh_message_deliveries_weight: 0.0,
        mesh_failure_penalty_weight: 0.0,
        invalid_message_deliveries_weight: -10.0,
        invalid_message_deliveries_decay: 0.9,
        ..gossipsub::TopicScoreParams::default()
    };
    gossipsub::PeerScoreParams {
        topics: topics.into_iter().map(|hash| (hash, topic.clone())).collect::<HashMap<_, _>>(),
        // On one machine or behind one router all peers share an address.
        ip_colocation_factor_weight: if lan { 0.0 } else { -5.0 },
        ip_colocation_factor_threshold: 8.0,
        ..gossipsub::PeerScoreParams::default()
    }
}

fn thresholds() -> gossipsub::PeerScoreThresholds {
    gossipsub::PeerScoreThresholds {
        gossip_threshold: -100.0,
        publish_threshold: -500.0,
        graylist_threshold: -1_000.0,
        ..gossipsub::PeerScoreThresholds::default()
    }
}
