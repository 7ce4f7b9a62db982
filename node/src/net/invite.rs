//! The network file, asked of a node by one that does not know the network yet.
//!
//! Its protocol is the only one whose name carries no network id. Whoever asks learns nothing that is not in a file made
//! to be given away; whoever answers is believed as far as the file is: it is judged as if it came from a disk, and its
//! id is shown to the user.

use std::time::Duration;

use futures::StreamExt as _;
use libp2p::{
    PeerId, StreamProtocol, Swarm,
    identity::Keypair,
    request_response,
    swarm::{self, SwarmEvent, dial_opts::DialOpts},
};
use souk_protocol::NodeId;
use tokio::time::timeout;

use super::{
    MAX_REQUEST, address, chain,
    codec::{ASK, BUSY, Codec, Message, OK, REFUSED},
    key, transport,
};

/// Name of the protocol.
const NAME: StreamProtocol = StreamProtocol::new("/souk/network/1");
/// Questions answered at once on one connection: one is enough for anybody.
const MAX_STREAMS: usize = 4;
/// Longest time for the whole exchange.
const LIMIT: Duration = Duration::from_secs(20);

/// Why no network file could be had.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The address makes no sense, or may not be dialled.
    #[error("{value:?} is no address to join by: {why}")]
    Address {
        /// It.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers there, or somebody else does.
    #[error("no node answers on {address}: {why}")]
    Unreachable {
        /// Where.
        address: String,
        /// What happened.
        why: String,
    },
    /// The node there does not give its network file.
    #[error("the node on {address} gives no network file: {why}")]
    Refused {
        /// Where.
        address: String,
        /// What it says.
        why: String,
    },
    /// The parts could not be set up.
    #[error("the network does not start: {0}")]
    Setup(String),
}

/// The behaviour that asks and answers.
pub(super) fn behaviour() -> request_response::Behaviour<Codec> {
    request_response::Behaviour::with_codec(
        Codec::new(),
        [(NAME, request_response::ProtocolSupport::Full)],
        request_response::Config::default().with_request_timeout(LIMIT).with_max_concurrent_streams(MAX_STREAMS),
    )
}

/// What a node answers.
pub(super) fn answer(request: &Message, invitation: Option<&str>, within_rate: bool) -> Message {
    match invitation {
        _ if !within_rate => Message::new(BUSY, Vec::new()),
        // A later version may ask for something else.
        _ if request.kind != ASK || !request.body.is_empty() => Message::new(REFUSED, b"unknown question".to_vec()),
        Some(text) if text.len() <= MAX_REQUEST => Message::new(OK, text.as_bytes().to_vec()),
        _ => Message::new(REFUSED, b"it has none to give".to_vec()),
    }
}

/// Asks the node at an address for its network file. Returns who answered, and what it sent, at most [`MAX_REQUEST`]
/// bytes. With `/p2p/..` in the address nobody else can answer.
///
/// # Errors
/// [`InviteError`].
pub async fn fetch_network(address: &str, lan: bool) -> Result<(NodeId, Vec<u8>), InviteError> {
    match timeout(LIMIT, fetch(address, lan)).await {
        Ok(fetched) => fetched,
        Err(_) => Err(unreachable(address, &format!("nothing within {} s", LIMIT.as_secs()))),
    }
}

fn unreachable(address: &str, why: &str) -> InviteError {
    InviteError::Unreachable { address: address.to_owned(), why: why.to_owned() }
}

async fn fetch(text: &str, lan: bool) -> Result<(NodeId, Vec<u8>), InviteError> {
    let (address, peer) = address::parse(text, lan)
        .map_err(|why| InviteError::Address { value: text.chars().take(512).collect(), why })?;
    // A key for this one question: the answer does not depend on who asks.
    let pair = Keypair::generate_ed25519();
    let transport = transport::build(&pair, lan).map_err(|error| InviteError::Setup(error.to_string()))?;
    let settings = swarm::Config::with_tokio_executor().with_idle_connection_timeout(LIMIT);
    let mut swarm = Swarm::new(transport, behaviour(), pair.public().to_peer_id(), settings);
    let dial = match peer {
        Some(peer) => DialOpts::peer_id(peer).addresses(vec![address]).build(),
        None => DialOpts::unknown_peer_id().address(address).build(),
    };
    swarm.dial(dial).map_err(|error| unreachable(text, &chain(&error)))?;
    loop {
        match swarm.select_next_some().await {
            SwarmEvent::ConnectionEstablished { peer_id, .. } => {
                swarm.behaviour_mut().send_request(&peer_id, Message::new(ASK, Vec::new()));
            }
            SwarmEvent::OutgoingConnectionError { error, .. } => return Err(unreachable(text, &chain(&error))),
            SwarmEvent::Behaviour(request_response::Event::Message {
                peer,
                message: request_response::Message::Response { response, .. },
                ..
            }) => return judged(text, &peer, response),
            SwarmEvent::Behaviour(request_response::Event::OutboundFailure { error, .. }) => {
                return Err(match error {
                    request_response::OutboundFailure::UnsupportedProtocols => {
                        let why = "it does not know how; is it a souk node?".to_owned();
                        InviteError::Refused { address: text.to_owned(), why }
                    }
                    error => unreachable(text, &chain(&error)),
                });
            }
            _ => {}
        }
    }
}

fn judged(address: &str, peer: &PeerId, response: Message) -> Result<(NodeId, Vec<u8>), InviteError> {
    let refused = |why: String| InviteError::Refused { address: address.to_owned(), why };
    let key = key::peer_key(peer).ok_or_else(|| refused("its key is not an ed25519 key".to_owned()))?;
    match response.kind {
        OK => Ok((key, response.body)),
        BUSY => Err(unreachable(address, "it is busy")),
        _ => Err(refused(
            String::from_utf8_lossy(&response.body).chars().filter(|c| !c.is_control()).take(200).collect(),
        )),
    }
}
