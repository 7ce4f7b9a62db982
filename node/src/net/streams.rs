//! Raw substreams by protocol name: the trade, log and blob protocols.
//!
//! Modelled on `libp2p-stream`, with three differences this node needs: inbound streams that arrive
//! in one packet are all kept (there, all but one are dropped), the connection to use is chosen
//! (the newest, since an older one may be a dead peer's), and connections stay warm while there is
//! room for them.

use std::{
    collections::{HashSet, VecDeque},
    convert::Infallible,
    future::{Ready, ready},
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId, Stream, StreamProtocol,
    core::{
        Endpoint,
        transport::PortUse,
        upgrade::{InboundUpgrade, OutboundUpgrade, UpgradeInfo},
    },
    swarm::{
        ConnectionDenied, ConnectionHandler, ConnectionHandlerEvent, ConnectionId, FromSwarm, NetworkBehaviour,
        NotifyHandler, StreamUpgradeError, SubstreamProtocol, THandler, THandlerInEvent, THandlerOutEvent, ToSwarm,
        handler::{ConnectionEvent, DialUpgradeError, FullyNegotiatedInbound, FullyNegotiatedOutbound},
    },
};
use tokio::sync::oneshot;

/// Streams being opened over one connection; more are refused as busy.
const MAX_OPENING: usize = 128;
/// Inbound streams waiting for the network task over one connection; more are dropped (reset).
const MAX_ARRIVED: usize = 64;
/// Open requests waiting for the swarm; it takes them within one turn, so this only bounds a bug.
const MAX_EVENTS: usize = 4_096;

/// Why a substream could not be opened.
#[derive(Debug)]
pub(super) enum Failure {
    Busy,
    Unsupported,
    Timeout,
    Io(io::Error),
}

/// Where the opened stream goes. Dropped without an answer when the connection ends.
pub(super) type Opened = oneshot::Sender<Result<Stream, Failure>>;

/// Asks a connection for a substream.
#[derive(Debug)]
pub(super) struct OpenRequest {
    protocol: StreamProtocol,
    reply: Opened,
}

/// A substream the other side opened.
#[derive(Debug)]
pub(super) struct Arrived {
    protocol: StreamProtocol,
    stream: Stream,
}

/// The same with its sender, for the network task.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) peer: PeerId,
    pub(super) protocol: StreamProtocol,
    pub(super) stream: Stream,
}

/// The behaviour.
pub(super) struct Behaviour {
    protocols: Arc<[StreamProtocol]>,
    events: VecDeque<ToSwarm<Inbound, OpenRequest>>,
    /// Peers whose connections never idle out (bootstrap nodes).
    keep: HashSet<PeerId>,
    /// Set while few connections are open; then none idles out.
    room: Arc<AtomicBool>,
}

impl Behaviour {
    pub(super) fn new(protocols: Vec<StreamProtocol>) -> Self {
        Self {
            protocols: protocols.into(),
            events: VecDeque::new(),
            keep: HashSet::new(),
            room: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Opens a substream on a connection.
    pub(super) fn open(&mut self, peer: PeerId, connection: ConnectionId, protocol: StreamProtocol, reply: Opened) {
        if self.events.len() >= MAX_EVENTS {
            // A caller that went away is normal.
            let _ = reply.send(Err(Failure::Busy));
            return;
        }
        self.events.push_back(ToSwarm::NotifyHandler {
            peer_id: peer,
            handler: NotifyHandler::One(connection),
            event: OpenRequest { protocol, reply },
        });
    }

    /// Future connections of this peer do not idle out.
    pub(super) fn keep(&mut self, peer: PeerId) {
        self.keep.insert(peer);
    }

    /// Says whether there is room for idle connections.
    pub(super) fn set_room(&mut self, room: bool) {
        self.room.store(room, Ordering::Relaxed);
    }

    fn handler(&self, peer: &PeerId) -> Handler {
        Handler {
            protocols: Arc::clone(&self.protocols),
            opening: VecDeque::new(),
            negotiating: 0,
            arrived: VecDeque::new(),
            keep: self.keep.contains(peer),
            room: Arc::clone(&self.room),
        }
    }
}

impl NetworkBehaviour for Behaviour {
    type ConnectionHandler = Handler;
    type ToSwarm = Inbound;

    fn handle_established_inbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: &Multiaddr,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler(&peer))
    }

    fn handle_established_outbound_connection(
        &mut self,
        _: ConnectionId,
        peer: PeerId,
        _: &Multiaddr,
        _: Endpoint,
        _: PortUse,
    ) -> Result<THandler<Self>, ConnectionDenied> {
        Ok(self.handler(&peer))
    }

    fn on_swarm_event(&mut self, _: FromSwarm<'_>) {}

    fn on_connection_handler_event(&mut self, peer: PeerId, _: ConnectionId, event: THandlerOutEvent<Self>) {
        let Arrived { protocol, stream } = event;
        self.events.push_back(ToSwarm::GenerateEvent(Inbound { peer, protocol, stream }));
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ToSwarm<Self::ToSwarm, THandlerInEvent<Self>>> {
        match self.events.pop_front() {
            Some(event) => Poll::Ready(event),
            None => Poll::Pending,
        }
    }
}

/// One connection's part.
pub(super) struct Handler {
    protocols: Arc<[StreamProtocol]>,
    opening: VecDeque<OpenRequest>,
    negotiating: usize,
    arrived: VecDeque<Arrived>,
    keep: bool,
    room: Arc<AtomicBool>,
}

impl ConnectionHandler for Handler {
    type FromBehaviour = OpenRequest;
    type ToBehaviour = Arrived;
    type InboundProtocol = Names;
    type OutboundProtocol = Names;
    type InboundOpenInfo = ();
    type OutboundOpenInfo = Opened;

    fn listen_protocol(&self) -> SubstreamProtocol<Names> {
        SubstreamProtocol::new(Names(self.protocols.to_vec()), ())
    }

    fn connection_keep_alive(&self) -> bool {
        self.keep || self.room.load(Ordering::Relaxed)
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<ConnectionHandlerEvent<Names, Opened, Arrived>> {
        if let Some(arrived) = self.arrived.pop_front() {
            return Poll::Ready(ConnectionHandlerEvent::NotifyBehaviour(arrived));
        }
        if let Some(OpenRequest { protocol, reply }) = self.opening.pop_front() {
            self.negotiating = self.negotiating.saturating_add(1);
            return Poll::Ready(ConnectionHandlerEvent::OutboundSubstreamRequest {
                protocol: SubstreamProtocol::new(Names(vec![protocol]), reply),
            });
        }
        Poll::Pending
    }

    fn on_behaviour_event(&mut self, request: OpenRequest) {
        if self.opening.len().saturating_add(self.negotiating) >= MAX_OPENING {
            let _ = request.reply.send(Err(Failure::Busy));
            return;
        }
        self.opening.push_back(request);
    }

    fn on_connection_event(&mut self, event: ConnectionEvent<'_, Names, Names, (), Opened>) {
        match event {
            ConnectionEvent::FullyNegotiatedInbound(FullyNegotiatedInbound {
                protocol: (stream, protocol), ..
            }) if self.arrived.len() < MAX_ARRIVED => {
                self.arrived.push_back(Arrived { protocol, stream });
            }
            ConnectionEvent::FullyNegotiatedOutbound(FullyNegotiatedOutbound {
                protocol: (stream, _),
                info: reply,
            }) => {
                self.negotiating = self.negotiating.saturating_sub(1);
                let _ = reply.send(Ok(stream));
            }
            ConnectionEvent::DialUpgradeError(DialUpgradeError { info: reply, error }) => {
                self.negotiating = self.negotiating.saturating_sub(1);
                let failure = match error {
                    StreamUpgradeError::Timeout => Failure::Timeout,
                    StreamUpgradeError::Apply(never) => match never {},
                    StreamUpgradeError::NegotiationFailed => Failure::Unsupported,
                    StreamUpgradeError::Io(error) => Failure::Io(error),
                };
                let _ = reply.send(Err(failure));
            }
            _ => {}
        }
    }
}

/// Protocol names offered or wanted; the substream itself is the result.
#[derive(Debug)]
pub(super) struct Names(Vec<StreamProtocol>);

impl UpgradeInfo for Names {
    type Info = StreamProtocol;
    type InfoIter = std::vec::IntoIter<StreamProtocol>;

    fn protocol_info(&self) -> Self::InfoIter {
        self.0.clone().into_iter()
    }
}

impl InboundUpgrade<Stream> for Names {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_inbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        ready(Ok((stream, name)))
    }
}

impl OutboundUpgrade<Stream> for Names {
    type Output = (Stream, StreamProtocol);
    type Error = Infallible;
    type Future = Ready<Result<Self::Output, Infallible>>;

    fn upgrade_outbound(self, stream: Stream, name: StreamProtocol) -> Self::Future {
        ready(Ok((stream, name)))
    }
}
