//! Offers between nodes: heard by gossip, completed by anti-entropy.
//!
//! Gossip is checked before it goes on. On every new connection and once a minute this node asks a few peers for the
//! digest of the live offers they know and fetches what it lacks, so a lost message never loses an offer.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use souk_matcher::Event;
use souk_protocol::{
    Answer, Ask, Hash, List, MAX_GOSSIP, MAX_MESSAGE, Millis, NetworkId, NodeId, OFFER_LIFE, Offer, OfferDigest,
    Signed, Text, Timestamp, Verified, codec,
};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::{
    clock::wall,
    keys::Signatures,
    market::{MarketHandle, Order},
    net::{MessageToken, Net, Reply, Verdict},
};

/// Most offers kept. Beyond it, offers of new providers are ignored until others expire.
pub const MAX_OFFERS: usize = 20_000;
/// Peers asked at each turn of anti-entropy.
const ASKED: usize = 3;
/// Interval of anti-entropy.
const SYNC_EVERY: Duration = Duration::from_secs(60);
/// Longest wait for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);
/// Clocks may differ by so much before an offer is ignored as one from the future.
const FUTURE: Millis = Millis(30_000);
/// Most offers fetched from one peer at a turn.
const MAX_PULL: usize = 2_048;
/// The shard of all offers in this version: one region group, one accelerator class.
pub const SHARD: &str = "all";

/// The gossip topic of offers, without network and version.
#[must_use]
pub fn topic() -> String {
    format!("offer/{SHARD}")
}

/// The live offers a node knows. Clones share it.
#[derive(Debug, Clone, Default)]
// A lock and not a task: requests of peers read it, gossip writes it, map operations only.
pub struct OfferBook(Arc<Mutex<BTreeMap<NodeId, Verified<Offer>>>>);

impl OfferBook {
    fn map(&self) -> MutexGuard<'_, BTreeMap<NodeId, Verified<Offer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this offer is newer than what is known of its provider; keeps it if so.
    fn take(&self, offer: &Verified<Offer>, now: Timestamp) -> bool {
        let mut map = self.map();
        if map.get(&offer.provider).is_some_and(|known| known.sequence >= offer.sequence) {
            return false;
        }
        if map.len() >= MAX_OFFERS {
            map.retain(|_, known| known.expires > now);
        }
        if map.len() >= MAX_OFFERS && !map.contains_key(&offer.provider) {
            return false;
        }
        map.insert(offer.provider, offer.clone());
        true
    }

    fn digest(&self, now: Timestamp) -> Vec<OfferDigest> {
        let map = self.map();
        map.values()
            .filter(|offer| offer.expires > now)
            .take(3_000)
            .map(|offer| OfferDigest { provider: offer.provider, sequence: offer.sequence, hash: offer.hash() })
            .collect()
    }

    fn lacking(&self, digest: &[OfferDigest]) -> Vec<Hash> {
        let map = self.map();
        digest
            .iter()
            .filter(|line| map.get(&line.provider).is_none_or(|known| known.sequence < line.sequence))
            .map(|line| line.hash)
            .take(MAX_PULL)
            .collect()
    }

    fn signed(&self, hashes: &[Hash]) -> Vec<Signed<Offer>> {
        let map = self.map();
        map.values().filter(|offer| hashes.contains(&offer.hash())).map(|offer| offer.signed().clone()).collect()
    }
}

/// What the offers' task works with.
#[derive(Debug, Clone)]
pub struct Offers {
    /// The network.
    pub net: Net,
    /// Its id, to which offers must belong.
    pub network: NetworkId,
    /// The trader.
    pub market: MarketHandle,
    /// What is known.
    pub book: OfferBook,
}

impl Offers {
    /// Publishes own offers and keeps up with the others' until the node stops.
    pub async fn run(self, mut orders: mpsc::Receiver<Order>, stop: CancellationToken) {
        let mut turns = interval(SYNC_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                order = orders.recv() => match order {
                    Some(Order::Offer(offer)) => self.publish(offer),
                    Some(_) => debug!("an order for another room"),
                    None => return,
                },
                _ = turns.tick() => {
                    let offers = self.clone();
                    tokio::spawn(async move { offers.sync_some().await });
                }
            }
        }
    }

    fn publish(&self, offer: Verified<Offer>) {
        self.book.take(&offer, wall());
        let Ok(bytes) = codec::encode(offer.signed(), MAX_GOSSIP) else { return };
        let net = self.net.clone();
        tokio::spawn(async move {
            // Without a neighbour yet, anti-entropy carries it.
            if let Err(error) = net.publish(&topic(), bytes).await {
                debug!(%error, "offer not gossiped");
            }
        });
    }

    /// Judges a gossip message and passes a new offer on to the trader.
    pub async fn gossip(&self, source: NodeId, bytes: &[u8], token: MessageToken) {
        let verdict = match self.judge(bytes) {
            Ok(Some(offer)) => {
                let _ = self.market.event(Event::Offer(offer)).await;
                Verdict::Accept
            }
            Ok(None) => Verdict::Ignore,
            Err(fault) => {
                debug!(source = %source.short(), fault, "gossip rejected");
                Verdict::Reject
            }
        };
        self.net.validate(token, verdict);
    }

    /// `Ok(None)`: nobody is to blame, but it goes no further. `Err`: no honest peer sends this.
    fn judge(&self, bytes: &[u8]) -> Result<Option<Verified<Offer>>, &'static str> {
        let signed: Signed<Offer> = codec::decode_canonical(bytes, MAX_GOSSIP).map_err(|_| "not an offer")?;
        self.admit(&signed)
    }

    fn admit(&self, signed: &Signed<Offer>) -> Result<Option<Verified<Offer>>, &'static str> {
        let offer = signed.verify(&Signatures).map_err(|_| "bad signature or form")?;
        if offer.network != self.network {
            return Err("an offer of another network");
        }
        if offer.expires.saturating_since(offer.issued) > OFFER_LIFE || offer.expires < offer.issued {
            return Err("an offer that lives too long");
        }
        let now = wall();
        if offer.issued > now.saturating_add(FUTURE) || offer.expires <= now {
            return Ok(None);
        }
        Ok(self.book.take(&offer, now).then_some(offer))
    }

    /// A peer is there: complete each other.
    pub fn met(&self, peer: NodeId) {
        let offers = self.clone();
        tokio::spawn(async move { offers.sync(peer).await });
    }

    async fn sync_some(&self) {
        let peers = self.net.peers().await;
        let mut connected: Vec<NodeId> = peers.into_iter().filter(|peer| peer.connected).map(|peer| peer.id).collect();
        // A different few each time: the order by hash of (minute, peer) is as good as chance.
        let minute = wall().0.checked_div(60_000).unwrap_or_default();
        connected.sort_by_key(|peer| Hash::of(&[&minute.to_le_bytes()[..], &peer.0[..]].concat()));
        for peer in connected.into_iter().take(ASKED) {
            self.sync(peer).await;
        }
    }

    async fn sync(&self, peer: NodeId) {
        let Some(Answer::Digest(digest)) = self.ask(peer, &Ask::Digest).await else { return };
        let lacking = self.book.lacking(&digest);
        for part in lacking.chunks(32) {
            let Ok(hashes) = List::try_from(part.to_vec()) else { continue };
            let Some(Answer::Offers(offers)) = self.ask(peer, &Ask::Offers(hashes)).await else { return };
            for signed in &offers {
                if let Ok(Some(offer)) = self.admit(signed) {
                    let _ = self.market.event(Event::Offer(offer)).await;
                }
            }
        }
    }

    async fn ask(&self, peer: NodeId, ask: &Ask) -> Option<Answer> {
        let bytes = codec::encode(ask, MAX_MESSAGE).ok()?;
        match self.net.request(peer, bytes, ASK_TIMEOUT).await {
            Ok(answer) => codec::decode(&answer, MAX_MESSAGE).ok(),
            Err(error) => {
                debug!(peer = %peer.short(), %error, "no answer");
                None
            }
        }
    }

    /// Answers a peer's request.
    pub async fn answer(&self, peer: NodeId, bytes: &[u8], reply: Reply) {
        let answer = match codec::decode::<Ask>(bytes, MAX_MESSAGE) {
            Ok(Ask::Digest) => list(self.book.digest(wall()), Answer::Digest),
            Ok(Ask::Offers(hashes)) => list(self.book.signed(&hashes), Answer::Offers),
            Ok(Ask::Discharge(discharge)) => match discharge.verify(&Signatures) {
                Ok(discharge) if discharge.creditor == peer => {
                    let _ = self.market.event(Event::Discharge(discharge)).await;
                    Answer::Noted
                }
                Ok(_) => refused("a discharge of somebody else"),
                Err(error) => refused(&error.to_string()),
            },
            Ok(Ask::Close(close)) => match close.verify(&Signatures) {
                Ok(close) if close.by == peer => Answer::Noted,
                Ok(_) => refused("a statement of somebody else"),
                Err(error) => refused(&error.to_string()),
            },
            Err(error) => refused(&error.to_string()),
        };
        match codec::encode(&answer, MAX_MESSAGE) {
            Ok(bytes) => reply.send(bytes),
            Err(_) => reply.refuse("the answer is too long"),
        }
    }
}

fn list<T, const N: usize>(mut items: Vec<T>, answer: impl FnOnce(List<T, N>) -> Answer) -> Answer {
    items.truncate(N);
    List::try_from(items).map_or_else(|_| refused("too many"), answer)
}

fn refused(why: &str) -> Answer {
    Answer::Refused(Text::clipped(why))
}
