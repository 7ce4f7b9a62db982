//! What the network knows about peers and itself, for people and for ranking.

use souk_protocol::NodeId;

/// Round trips kept for each peer.
const WINDOW: usize = 32;

/// One peer, as `souk peers` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its key.
    pub id: NodeId,
    /// Where it can be dialled, at most eight.
    pub addresses: Vec<String>,
    /// Whether it is connected and identified.
    pub connected: bool,
    /// Last round trip, in microseconds.
    pub rtt_micros: Option<u64>,
    /// 95th percentile of the last 32 round trips, in microseconds.
    pub rtt_p95_micros: Option<u64>,
    /// Name and version of its software, cleaned.
    pub agent: String,
    /// Open connections.
    pub connections: Vec<ConnectionInfo>,
    /// Strike points held against it.
    pub strikes: u32,
    /// Whether it is shut out.
    pub banned: bool,
}

/// One connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The other side's address.
    pub address: String,
    /// Who dialled.
    pub direction: Direction,
    /// `quic`, `tcp` or `other`.
    pub transport: &'static str,
}

/// Who opened a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The peer dialled this node.
    Inbound,
    /// This node dialled.
    Outbound,
}

/// Whether others can reach this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reachable {
    /// Nothing known yet.
    Unknown,
    /// An address is configured as external, or somebody on the internet connected to this node.
    Public,
    /// LAN mode: only the private network is asked.
    Private,
}

/// The network as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetStatus {
    /// Whether others can reach this node.
    pub reachable: Reachable,
    /// Addresses listened on, with the `/p2p` part.
    pub listen: Vec<String>,
    /// Connected and identified peers.
    pub peers: usize,
    /// Whether this node serves the hash table.
    pub kad_server: bool,
    /// Peers in the hash table's routing table.
    pub kad_peers: usize,
    /// Gossip neighbours: peers to which accepted messages are forwarded, over all topics.
    pub gossip_mesh: usize,
    /// Things that were dropped or refused since the start.
    pub counts: NetCounts,
}

/// What was dropped or refused since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Events dropped because the node was too slow to take them.
    pub events_dropped: u64,
    /// Requests answered "busy".
    pub requests_busy: u64,
    /// Gossip messages ignored because of a peer's rate or a full queue.
    pub gossip_ignored: u64,
    /// Inbound streams dropped over a limit.
    pub streams_dropped: u64,
    /// Strikes given.
    pub strikes: u64,
    /// Peers shut out.
    pub bans: u64,
    /// Dials refused by the budget.
    pub dials_refused: u64,
    /// Turns of the network task that took longer than 50 ms.
    pub slow_turns: u64,
}

/// The last round trips of a peer.
#[derive(Debug, Clone, Default)]
pub(super) struct RttWindow {
    micros: std::collections::VecDeque<u64>,
}

impl RttWindow {
    pub(super) fn push(&mut self, micros: u64) {
        if self.micros.len() == WINDOW {
            self.micros.pop_front();
        }
        self.micros.push_back(micros);
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.micros.back().copied()
    }

    /// The smallest sample that at least 95 % of the samples do not exceed.
    pub(super) fn p95(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.micros.iter().copied().collect();
        sorted.sort_unstable();
        let rank = sorted.len().saturating_mul(95).div_ceil(100);
        sorted.get(rank.checked_sub(1)?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p95_is_over_the_last_32_round_trips() {
        let mut window = RttWindow::default();
        assert_eq!((window.last(), window.p95()), (None, None));
        window.push(9);
        assert_eq!((window.last(), window.p95()), (Some(9), Some(9)));
        for micros in 1..=132 {
            window.push(micros);
        }
        // 101..=132 remain; 31 of 32 are at most 131.
        assert_eq!((window.last(), window.p95()), (Some(132), Some(131)));
    }
}
