//! Limits how often this node dials, whoever asks for it: the node itself, the hash table or gossip.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId,
    core::{Endpoint, transport::PortUse},
    swarm::{
        ConnectionDenied, ConnectionId, FromSwarm, NetworkBehaviour, THandler, THandlerInEvent, THandlerOutEvent,
        ToSwarm, dummy,
    },
};
use tokio::time::Instant;

use super::bucket::Bucket;

/// Dials a minute on the internet: more looks like a scan to the owner's provider.
const DIALS_PER_MINUTE: u32 = 60;
/// Dials a minute in LAN mode, where a restarted test network redials all at once.
const LAN_DIALS_PER_MINUTE: u32 = 600;

/// The dial budget is used up.
#[derive(Debug, thiserror::Error)]
#[error("dial budget of {0} a minute is used up")]
pub(super) struct BudgetUsed(u32);

/// The behaviour that denies dials beyond the budget.
#[derive(Debug)]
pub(super) struct Behaviour {
    bucket: Bucket,
    per_minute: u32,
    refused: Arc<AtomicU64>,
}

impl Behaviour {
    pub(super) fn new(lan: bool, refused: Arc<AtomicU64>) -> Self {
        let per_minute = if lan { LAN_DIALS_PER_MINUTE } else { DIALS_PER_MINUTE };
        Self { bucket: Bucket::per_minute(per_minute, Instant::now()), per_minute, refused }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = dummy::ConnectionHandler;
    type ToSwarm = std::convert::Infallible;

    fn handle_pending_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: Option<PeerId>,
        _: &[Multiaddr],
        _: Endpoint,
    ) -> Result<Vec<Multiaddr>, ConnectionDenied> {
        if self.bucket.take(Instant::now()) {
            return Ok(Vec::new());
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        Err(ConnectionDenied::new(BudgetUsed(self.per_minute)))
    }

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        _: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(dummy::ConnectionHandler)
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(&mut self, _: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        match event {}
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        Poll::Pending
    }
}
