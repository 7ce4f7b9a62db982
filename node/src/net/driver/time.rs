//! What happens by the clock: bootstrap redials, bans that end, early round trips.

use std::time::Duration;

use libp2p::{
    Multiaddr, PeerId,
    swarm::dial_opts::{DialOpts, PeerCondition},
};
use tokio::time::Instant;

use super::{Asking, Dial, Driver, HOUSEKEEPING};
use crate::net::{
    NetEvent,
    codec::{ECHO, Message},
};

/// First pause before a bootstrap node is dialled again.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// Longest pause in LAN mode and on the internet.
const LAN_LONGEST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Round trips measured soon after a peer is identified, besides the pings.
pub(super) const EARLY_ECHOES: u32 = 3;
/// Pause between them.
const ECHO_PAUSE: Duration = Duration::from_secs(1);
/// A peer that has not identified itself by then is disconnected.
const IDENTIFY_LIMIT: Duration = Duration::from_secs(15);

/// A node this one wants to stay connected to.
#[derive(Debug)]
pub(super) struct Bootstrap {
    address: Multiaddr,
    /// Configured, or learned with the first connection.
    pub(super) peer: Option<PeerId>,
    failures: u32,
    /// `None` while connected or being dialled.
    next: Option<Instant>,
}

impl Bootstrap {
    pub(super) fn new(address: Multiaddr, peer: Option<PeerId>, now: Instant) -> Self {
        Self { address, peer, failures: 0, next: Some(now) }
    }
}

impl Driver {
    pub(super) fn handle_timer(&mut self, now: Instant) {
        self.wake = now + HOUSEKEEPING;
        self.redial_bootstrap(now);
        self.send_echoes(now);
        self.end_bans(now);
        self.expire_waiting(now);
        if now >= self.housekeeping {
            self.housekeeping = now + HOUSEKEEPING;
            self.drop_silent(now);
        }
        self.drop_unheard(now);
        // Whatever is due next.
        let bootstrap = self.bootstrap.iter().filter_map(|known| known.next);
        let peers = self.peers.values().flat_map(|peer| {
            peer.waiting.iter().map(|waiting| waiting.until).chain(peer.next_echo).chain(peer.banned_until)
        });
        if let Some(next) = bootstrap.chain(peers).min() {
            self.wake = self.wake.min(next).max(now + Duration::from_millis(1));
        }
    }

    fn redial_bootstrap(&mut self, now: Instant) {
        for place in 0..self.bootstrap.len() {
            let Some(known) = self.bootstrap.get_mut(place) else { continue };
            if known.next.is_none_or(|next| next > now) {
                continue;
            }
            known.next = None;
            if known.peer.is_some_and(|id| self.swarm.is_connected(&id)) {
                continue;
            }
            let opts = match known.peer {
                Some(id) => DialOpts::peer_id(id)
                    .addresses(vec![known.address.clone()])
                    .condition(PeerCondition::DisconnectedAndNotDialing)
                    .build(),
                None => DialOpts::unknown_peer_id().address(known.address.clone()).build(),
            };
            let connection = opts.connection_id();
            match self.swarm.dial(opts) {
                Ok(()) => {
                    self.dials.insert(connection, Dial::Bootstrap(place));
                }
                Err(error) => {
                    tracing::debug!(%error, "bootstrap node not dialled");
                    self.bootstrap_failed(place, now);
                }
            }
        }
    }

    /// A dial failed: again after a longer pause.
    pub(super) fn bootstrap_failed(&mut self, place: usize, now: Instant) {
        let longest = if self.fixed.lan { LAN_LONGEST_PAUSE } else { LONGEST_PAUSE };
        let Some(known) = self.bootstrap.get_mut(place) else { return };
        let pause = FIRST_PAUSE.saturating_mul(1u32 << known.failures.min(10)).min(longest);
        known.failures = known.failures.saturating_add(1);
        let next = now + jitter(pause);
        known.next = Some(next);
        self.wake_at(next);
    }

    /// A dial succeeded: from now on the node's connections are kept.
    pub(super) fn bootstrap_reached(&mut self, place: usize, id: PeerId) {
        let Some(known) = self.bootstrap.get_mut(place) else { return };
        known.peer = Some(id);
        let behaviour = self.swarm.behaviour_mut();
        behaviour.streams.keep(id);
        behaviour.limits.bypass_peer_id(&id);
    }

    /// The node has identified itself as one of this network.
    pub(super) fn bootstrap_good(&mut self, id: PeerId) {
        for known in &mut self.bootstrap {
            if known.peer == Some(id) {
                known.failures = 0;
            }
        }
    }

    /// The last connection to a peer ended: if it is a bootstrap node, dial it again soon.
    pub(super) fn bootstrap_lost(&mut self, id: PeerId, now: Instant) {
        for place in 0..self.bootstrap.len() {
            if self.bootstrap.get(place).is_some_and(|known| known.peer == Some(id) && known.next.is_none()) {
                self.bootstrap_failed(place, now);
            }
        }
    }

    /// Measures a few round trips early, since pings come only every 15 s.
    fn send_echoes(&mut self, now: Instant) {
        let mut due = Vec::new();
        for (id, peer) in &mut self.peers {
            if peer.next_echo.is_none_or(|next| next > now) {
                continue;
            }
            peer.early_echoes = peer.early_echoes.saturating_sub(1);
            peer.next_echo = (peer.early_echoes > 0).then(|| now + ECHO_PAUSE);
            due.push(*id);
        }
        for id in due {
            let request = self.swarm.behaviour_mut().ask.send_request(&id, Message::new(ECHO, Vec::new()));
            self.asking.insert(request, Asking { reply: None, echo: true, since: now });
        }
    }

    /// A round trip was measured.
    pub(super) fn measured(&mut self, id: PeerId, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
        let Some(peer) = self.peers.get_mut(&id) else { return };
        peer.rtt.push(micros);
        if peer.identified {
            let (peer, p95_micros) = (peer.key, peer.rtt.p95().unwrap_or(micros));
            // Only a sample: it may be lost.
            let _ = self.offer(NetEvent::Rtt { peer, micros, p95_micros });
        }
    }

    fn end_bans(&mut self, now: Instant) {
        for (id, peer) in &mut self.peers {
            if peer.banned_until.is_some_and(|until| until <= now) {
                peer.forgive();
                self.swarm.behaviour_mut().banned.unblock_peer(*id);
            }
        }
    }

    /// Disconnects those who do not say who they are.
    fn drop_silent(&mut self, now: Instant) {
        let silent: Vec<PeerId> = self
            .peers
            .iter()
            .filter(|(_, peer)| {
                !peer.identified
                    && peer.connections.iter().any(|open| now.saturating_duration_since(open.since) > IDENTIFY_LIMIT)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in silent {
            let _ = self.swarm.disconnect_peer_id(id);
        }
    }
}

/// The pause, a quarter more or less, so that nodes do not redial in step.
fn jitter(pause: Duration) -> Duration {
    let mut byte = [128u8; 1];
    // Without randomness the pause is merely not spread.
    let _ = getrandom::fill(&mut byte);
    let [byte] = byte;
    pause.mul_f64(0.75 + f64::from(byte) / 512.0)
}
