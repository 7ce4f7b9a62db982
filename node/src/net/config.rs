//! What the network needs to know before it starts.

use std::time::Duration;

use souk_protocol::NodeId;

/// Settings of the network. `Default` listens on nothing and knows nobody.
#[derive(Clone)]
pub struct NetConfig {
    /// Seed of the node's ed25519 key.
    pub secret: [u8; 32],
    /// The network's short id: 8 hexadecimal digits, part of every protocol name and topic.
    pub network: String,
    /// Multiaddresses to listen on, e.g. `/ip4/0.0.0.0/udp/4101/quic-v1`; port 0 takes any free port.
    pub listen: Vec<String>,
    /// Multiaddresses of nodes to stay connected to; with `/p2p/..` the peer's key is checked.
    pub bootstrap: Vec<String>,
    /// Multiaddresses under which others reach this node, where they differ from `listen`.
    pub external: Vec<String>,
    /// Whether private and loopback addresses may be dialled and told to others.
    pub lan: bool,
    /// Connections in all, both directions.
    pub max_connections: u32,
    /// Whether this node serves the distributed hash table (others must be able to reach it).
    pub server: bool,
    /// Gossip topics, without network and version, e.g. `offer/eu-cpu`. All others are refused.
    pub topics: Vec<String>,
    /// Addresses under which peers were reached before, tried when they are needed.
    pub known: Vec<(NodeId, Vec<String>)>,
    /// The network file, given to whoever asks for it.
    pub invitation: Option<String>,
    /// What inbound traffic may cost.
    pub limits: Limits,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            secret: [0; 32],
            network: String::new(),
            listen: Vec::new(),
            bootstrap: Vec::new(),
            external: Vec::new(),
            lan: false,
            max_connections: 150,
            server: false,
            topics: Vec::new(),
            known: Vec::new(),
            invitation: None,
            limits: Limits::default(),
        }
    }
}

impl std::fmt::Debug for NetConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The secret stays out of logs.
        f.debug_struct("NetConfig")
            .field("network", &self.network)
            .field("listen", &self.listen)
            .field("bootstrap", &self.bootstrap)
            .field("external", &self.external)
            .field("lan", &self.lan)
            .field("max_connections", &self.max_connections)
            .field("server", &self.server)
            .field("topics", &self.topics)
            .field("known", &self.known.len())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// What one peer may send, and what happens when it misbehaves.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Inbound frames a second for each peer; more are read later (back-pressure), not dropped.
    pub frames_per_second: u32,
    /// Frames that may come at once.
    pub frames_burst: u32,
    /// Inbound requests a second for each peer; more are answered "busy".
    pub requests_per_second: u32,
    /// Requests that may come at once.
    pub requests_burst: u32,
    /// How long a frame's body may take once its length was read.
    pub frame_timeout: Duration,
    /// Strike points at which a peer is shut out. They halve every ten minutes.
    pub ban_at: u32,
    /// How long a peer is shut out.
    pub ban_for: Duration,
    /// Interval of pings on a connection.
    pub ping_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frames_per_second: 2_000,
            frames_burst: 4_000,
            requests_per_second: 500,
            requests_burst: 1_000,
            frame_timeout: Duration::from_secs(10),
            ban_at: 50,
            ban_for: Duration::from_secs(3_600),
            ping_interval: Duration::from_secs(15),
        }
    }
}
