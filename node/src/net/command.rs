//! What handles ask of the network task.

use std::time::Duration;

use libp2p::{Stream, request_response::ResponseChannel};
use souk_protocol::NodeId;
use tokio::sync::oneshot;

use super::{
    ConnectError, LookupError, MessageToken, NetStatus, OpenError, PeerInfo, PublishError, RequestError, Verdict,
    codec::Message, peer::Strike, trade::ReaderId,
};

/// Commands waiting for the network task. It takes them faster than they can be made, so callers
/// wait only when the machine is overloaded.
pub(super) const COMMAND_QUEUE: usize = 1_024;
/// Notices of reader and writer tasks that may wait; those tasks then wait.
pub(super) const NOTICE_QUEUE: usize = 256;

/// Which substream protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Trade,
    Log,
    Blob,
}

/// Where an opened stream goes.
pub(super) type OpenReply = oneshot::Sender<Result<Stream, OpenError>>;
/// Where an answer goes, with the time it took.
pub(super) type AskReply = oneshot::Sender<Result<(Vec<u8>, Duration), RequestError>>;

/// One order for the network task.
#[derive(Debug)]
pub(super) enum Command {
    Connect { address: String, reply: oneshot::Sender<Result<NodeId, ConnectError>> },
    Open { peer: NodeId, kind: Kind, reply: OpenReply },
    Ask { peer: NodeId, kind: u8, body: Vec<u8>, reply: AskReply },
    Respond { channel: ResponseChannel<Message>, message: Message },
    Publish { topic: String, bytes: Vec<u8>, reply: oneshot::Sender<Result<(), PublishError>> },
    Verdict { token: MessageToken, verdict: Verdict },
    Peers { reply: oneshot::Sender<Vec<PeerInfo>> },
    Status { reply: oneshot::Sender<NetStatus> },
    ListenAddrs { reply: oneshot::Sender<Vec<String>> },
    Provide { key: Vec<u8>, reply: oneshot::Sender<Result<(), LookupError>> },
    StopProviding { key: Vec<u8> },
    Providers { key: Vec<u8>, reply: oneshot::Sender<Result<Vec<NodeId>, LookupError>> },
    Strike { peer: NodeId, points: u32 },
}

/// What reader and writer tasks tell the network task.
#[derive(Debug)]
pub(super) enum Notice {
    /// A trade reader ended, perhaps because the peer misbehaved.
    ReaderEnded { peer: libp2p::PeerId, id: ReaderId, strike: Option<Strike> },
    /// A writer gave frames up.
    SendFailed { peer: NodeId, dropped: usize, why: super::SendFailure },
}
