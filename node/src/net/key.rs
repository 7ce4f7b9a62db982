//! Node keys outside, libp2p peer ids inside.

use libp2p::{PeerId, core::multihash::Multihash};
use souk_protocol::NodeId;

/// The protobuf header of an ed25519 key of 32 bytes, which a peer id wraps in an identity hash.
const PREFIX: [u8; 4] = [0x08, 0x01, 0x12, 0x20];
/// Multihash code of the identity function.
const IDENTITY: u64 = 0;

/// The peer id of a key. Built from bytes, without decompressing the curve point: it is called for
/// every frame, and a key that is no point can only fail to connect.
pub(super) fn peer_id(key: &NodeId) -> Option<PeerId> {
    let mut bytes = [0u8; 36];
    let (head, tail) = bytes.split_at_mut(PREFIX.len());
    head.copy_from_slice(&PREFIX);
    tail.copy_from_slice(&key.0);
    let hash = Multihash::<64>::wrap(IDENTITY, &bytes).ok()?;
    PeerId::from_multihash(hash).ok()
}

/// The key of a peer id; `None` for other kinds of keys, which have no place in a souk network.
pub(super) fn peer_key(id: &PeerId) -> Option<NodeId> {
    let hash: &Multihash<64> = id.as_ref();
    if hash.code() != IDENTITY {
        return None;
    }
    let key = hash.digest().strip_prefix(&PREFIX)?;
    key.try_into().ok().map(NodeId)
}

/// A key as multiaddresses write it (`12D3Koo..`).
#[must_use]
pub fn peer_text(key: &NodeId) -> String {
    peer_id(key).map(|id| id.to_base58()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use libp2p::identity::Keypair;

    use super::*;

    #[test]
    fn key_and_peer_id_convert_both_ways_and_agree_with_libp2p() {
        let mut seed = [7u8; 32];
        let pair = Keypair::ed25519_from_bytes(&mut seed).unwrap();
        let public = NodeId(pair.public().try_into_ed25519().unwrap().to_bytes());
        let id = pair.public().to_peer_id();
        assert_eq!(peer_key(&id), Some(public));
        assert_eq!(peer_id(&public), Some(id));
        assert_eq!(peer_text(&public), id.to_string());
    }
}
