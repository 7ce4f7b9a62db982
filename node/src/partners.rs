//! Addresses of trading partners, kept over restarts.
//!
//! A node that comes back after a crash must find the other side of its leases even if it alone can dial. The file is a
//! hint and no record: it may be lost or stale, and a dial checks the peer's key in any case.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use souk_matcher::Notice;
use souk_protocol::{NodeId, Timestamp};
use tokio::sync::{
    broadcast::{Receiver, error::RecvError},
    mpsc,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::{
    clock::wall,
    market::{Feed, Stamped},
    net::{Direction, Net, PeerInfo},
    store::write_atomically,
};

/// Partners remembered; the one not heard of for the longest time is forgotten first. Open leases are far fewer.
const MAX_PARTNERS: usize = 256;
/// Addresses kept of each: the network keeps no more of a peer either.
const MAX_ADDRESSES: usize = 8;
/// Largest file read: [`MAX_PARTNERS`] with the longest addresses.
const MAX_FILE: u64 = 2 << 20;
/// Connections that may wait to be looked at; of more, the addresses are kept at the next occasion.
pub(crate) const QUEUE: usize = 64;

/// A partner in the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Partner {
    peer: NodeId,
    addresses: Vec<String>,
    seen: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    version: u32,
    partners: Vec<Partner>,
}

/// Those this node trades or traded with, and where they were reached.
#[derive(Debug)]
pub(crate) struct Partners {
    path: PathBuf,
    known: BTreeMap<NodeId, Partner>,
}

impl Partners {
    /// What the file says; a file that makes no sense says nothing.
    pub(crate) fn load(path: PathBuf) -> Self {
        let known = match read(&path) {
            Ok(known) => known,
            Err(why) => {
                warn!(path = %path.display(), why, "addresses of earlier partners are lost");
                BTreeMap::new()
            }
        };
        Self { path, known }
    }

    /// Who was reached where.
    pub(crate) fn addresses(&self) -> Vec<(NodeId, Vec<String>)> {
        self.known.values().map(|partner| (partner.peer, partner.addresses.clone())).collect()
    }

    /// Keeps the addresses of those with whom leases are made, until the node stops. `meetings` are peers that have
    /// connected.
    pub(crate) async fn run(
        mut self,
        net: Net,
        feed: Feed,
        mut meetings: mpsc::Receiver<NodeId>,
        stop: CancellationToken,
    ) {
        let (_, mut live) = feed.after(u64::MAX);
        loop {
            let peer = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                partner = leased(&mut live) => match partner {
                    Some(peer) => peer,
                    None => return,
                },
                met = meetings.recv() => match met {
                    Some(peer) if self.known.contains_key(&peer) => peer,
                    Some(_) => continue,
                    None => return,
                },
            };
            let found = net.peers().await.into_iter().find(|info| info.id == peer);
            if found.is_some_and(|info| self.take(&info, wall())) {
                self.save().await;
            }
        }
    }

    /// Takes what is known of a peer; whether that is worth writing.
    fn take(&mut self, info: &PeerInfo, now: Timestamp) -> bool {
        // An address that was dialled with success comes first.
        let dialled = info.connections.iter().filter(|open| open.direction == Direction::Outbound);
        let mut addresses: Vec<String> = Vec::new();
        for address in dialled.map(|open| bare(&open.address)).chain(info.addresses.iter().map(|told| bare(told))) {
            if !addresses.iter().any(|kept| kept == address) && addresses.len() < MAX_ADDRESSES {
                addresses.push(address.to_owned());
            }
        }
        if addresses.is_empty() {
            return false; // it lets nobody dial it: what was known before may still do
        }
        let partner = Partner { peer: info.id, addresses, seen: now };
        let before = self.known.insert(info.id, partner);
        if self.known.len() > MAX_PARTNERS {
            let oldest = self.known.values().min_by_key(|partner| partner.seen).map(|partner| partner.peer);
            if let Some(oldest) = oldest {
                self.known.remove(&oldest);
            }
        }
        let now_known = self.known.get(&info.id).map(|partner| &partner.addresses);
        before.is_none_or(|before| Some(&before.addresses) != now_known)
    }

    async fn save(&self) {
        let kept = Kept { version: 1, partners: self.known.values().cloned().collect() };
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || {
            let bytes = serde_json::to_vec_pretty(&kept).map_err(|error| error.to_string())?;
            write_atomically(&path, &bytes).map_err(|error| error.to_string())
        });
        // A full disk costs the hint, not the trade. A task that did not run belongs to a node that stops.
        if let Ok(Err(error)) = written.await {
            debug!(error, "addresses of partners not written");
        }
    }
}

/// The address without its `/p2p` part.
fn bare(address: &str) -> &str {
    address.split("/p2p/").next().unwrap_or(address)
}

/// The other side of the next lease; `None` when the market is gone.
async fn leased(live: &mut Receiver<Arc<Stamped>>) -> Option<NodeId> {
    loop {
        match live.recv().await {
            Ok(stamped) => {
                if let Notice::Leased { lease, .. } = &stamped.notice {
                    return Some(lease.peer);
                }
            }
            // Leases among those that were missed: their addresses come with the next connection or lease.
            Err(RecvError::Lagged(missed)) => debug!(missed, "notices missed"),
            Err(RecvError::Closed) => return None,
        }
    }
}

fn read(path: &Path) -> Result<BTreeMap<NodeId, Partner>, String> {
    let file = match File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        file => file.map_err(|error| error.to_string())?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
    if kept.version != 1 {
        return Err(format!("version {}, this souk reads 1", kept.version));
    }
    Ok(kept.partners.into_iter().take(MAX_PARTNERS).map(|partner| (partner.peer, partner)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::ConnectionInfo;

    fn peer(number: u16, addresses: &[&str], dialled: &[&str]) -> PeerInfo {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&number.to_be_bytes());
        PeerInfo {
            id: NodeId(id),
            addresses: addresses.iter().map(|text| (*text).to_owned()).collect(),
            connected: true,
            rtt_micros: None,
            rtt_p95_micros: None,
            agent: String::new(),
            connections: dialled
                .iter()
                .map(|text| ConnectionInfo {
                    address: (*text).to_owned(),
                    direction: Direction::Outbound,
                    transport: "tcp",
                })
                .collect(),
            strikes: 0,
            banned: false,
        }
    }

    #[tokio::test]
    async fn what_is_kept_comes_back_with_the_dialled_address_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("partners.json");
        let mut partners = Partners::load(path.clone());
        let info = peer(1, &["/ip4/10.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/2"], &["/ip4/10.0.0.1/tcp/2/p2p/12D3"]);
        assert!(partners.take(&info, Timestamp(1)));
        assert!(!partners.take(&info, Timestamp(2)), "nothing new");
        assert!(!partners.take(&peer(1, &[], &[]), Timestamp(3)), "what was known stays");
        partners.save().await;
        let kept = vec!["/ip4/10.0.0.1/tcp/2".to_owned(), "/ip4/10.0.0.1/tcp/1".to_owned()];
        assert_eq!(Partners::load(path.clone()).addresses(), [(info.id, kept)]);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(Partners::load(path).addresses(), []);
    }

    #[test]
    fn the_one_not_seen_for_the_longest_time_is_forgotten_first() {
        let mut partners = Partners::load(PathBuf::from("/nowhere/partners.json"));
        for number in 0..=u16::try_from(MAX_PARTNERS).unwrap() {
            partners.take(&peer(number, &["/ip4/10.0.0.1/tcp/1"], &[]), Timestamp(u64::from(number ^ 1)));
        }
        assert_eq!(partners.known.len(), MAX_PARTNERS);
        assert!(!partners.known.contains_key(&peer(1, &[], &[]).id), "seen at 0");
        assert!(partners.known.contains_key(&peer(0, &[], &[]).id), "seen at 1");
    }
}
