//! The node, its leases, its peers, its network.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use souk_matcher::Reason;
use souk_protocol::{Balance, Credits, JobId, LeaseId, NetworkId, NodeId, Rate, Timestamp};

/// `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// This node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Version of souk.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Name of the network.
    pub network: String,
    /// Its id.
    pub network_id: NetworkId,
    /// `public`, `private`, `relayed` or `unknown`.
    pub reachable: String,
    /// Addresses listened on, each with `/p2p/`.
    pub listen: Vec<String>,
    /// Connected peers.
    pub peers: u32,
    /// Roles: `renter`, `provider`.
    pub roles: Vec<String>,
    /// Open leases, both sides.
    pub leases: u32,
    /// Open leases as provider.
    pub leases_provided: u32,
    /// Jobs not at their end.
    pub jobs: u32,
    /// Live offers known.
    pub offers: u32,
    /// Slots, processors and memory in use, for people: `2 of 4 cores, 3 of 8 GB`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub used: Option<String>,
    /// What peers owe this node (plus) or it owes them (minus), in sum.
    pub balance: Balance,
    /// What the owner should look at.
    pub warnings: Vec<String>,
    /// When the node started.
    pub started: Timestamp,
}

/// Why this node bids or does not: `node why`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeWhy {
    /// This node.
    pub node: NodeId,
    /// Whether it would take work now.
    pub selling: bool,
    /// The reasons, with counts since the start.
    pub because: Vec<Reason>,
}

/// An open lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSummary {
    /// Its id.
    pub lease: LeaseId,
    /// This node's side: `renter` or `provider`.
    pub side: String,
    /// The other side.
    pub peer: NodeId,
    /// The job.
    pub job: JobId,
    /// Slots.
    pub slots: u32,
    /// Price of one slot.
    pub rate: Rate,
    /// `open`, `unknown` while the other side is silent, `ending`.
    pub state: String,
    /// What is owed on it.
    pub total: Credits,
}

/// Answer of `POST /v1/drain`, `/v1/pause` and `/v1/resume`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draining {
    /// Leases that still run.
    pub leases: u32,
}

/// One round trip to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping {
    /// To whom.
    pub peer: NodeId,
    /// Microseconds.
    pub micros: u64,
}

/// A peer: one of `peers`, and `peers show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Its key.
    pub peer: NodeId,
    /// Name in its offer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Whether it is connected.
    pub connected: bool,
    /// Name and version of its software.
    pub agent: String,
    /// Addresses under which it can be dialled.
    pub addresses: Vec<String>,
    /// `quic`, `tcp`, with the direction.
    pub connections: Vec<String>,
    /// Last round trip, in milliseconds, rounded up.
    pub rtt_ms: Option<u64>,
    /// 95th percentile of round trips, in milliseconds, rounded up.
    pub rtt_p95_ms: Option<u64>,
    /// This node's estimate of it keeping its promises; none without a record.
    pub reliability: Option<String>,
    /// What it owes us (plus) or we owe it (minus).
    pub balance: Balance,
    /// The owner's limit for it, where there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub limit: Option<Credits>,
    /// Strike points held against it.
    #[serde(default)]
    pub strikes: u32,
    /// Whether it is shut out.
    #[serde(default)]
    pub banned: bool,
    /// What the estimate rests on.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub because: Vec<Reason>,
}

/// The network file in force: `network show`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its name.
    pub name: String,
    /// Its id.
    pub id: NetworkId,
    /// 32 hexadecimal digits.
    pub nonce: String,
    /// Whether unrated peers may serve every tier.
    pub open: bool,
    /// Addresses of bootstrap peers.
    pub bootstrap: Vec<String>,
    /// Governance keys.
    pub keys: Vec<String>,
    /// How many of the keys must sign a change.
    pub threshold: u16,
    /// The rules, by name.
    pub params: BTreeMap<String, String>,
}

impl From<&souk_protocol::NetworkFile> for Network {
    fn from(file: &souk_protocol::NetworkFile) -> Self {
        let p = &file.params;
        let params = [
            ("period", p.period.to_string()),
            ("bid_window_max", p.bid_window_max.to_string()),
            ("invites", p.invites.to_string()),
            ("lease_grace", p.lease_grace.to_string()),
            ("unknown_after", p.unknown_after.to_string()),
            ("clock_skew", p.clock_skew.to_string()),
            ("credit.stranger", p.credit.stranger.to_string()),
            ("credit.strangers", p.credit.strangers.to_string()),
            ("credit.write_off", p.credit.write_off.to_string()),
        ];
        Self {
            name: file.name.clone(),
            id: file.id(),
            nonce: data_encoding::HEXLOWER.encode(&file.nonce),
            open: file.open,
            bootstrap: file.bootstrap.clone(),
            keys: file.keys.clone(),
            threshold: file.threshold,
            params: params.map(|(name, value)| (name.to_owned(), value)).into(),
        }
    }
}
