//! What the network tells the node, and how the node answers.

use libp2p::{PeerId, gossipsub, request_response::ResponseChannel};
use souk_protocol::NodeId;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::{
    SendFailure,
    codec::{self, Message},
    command::Command,
};

/// Events other than frames that may wait. When full: gossip is ignored, requests are answered
/// "busy", round trips are skipped; connection changes wait in the network task instead.
pub(super) const CONTROL_QUEUE: usize = 1_024;
/// Frames that may wait, over all peers. Each peer's share is bounded in bytes by its reader, so this
/// only says how many small frames there may be.
pub(super) const FRAME_QUEUE: usize = 16_384;
/// A reason for a refusal is cut to this many bytes.
const MAX_REASON: usize = 256;

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum NetEvent {
    /// A peer of this network is connected and identified.
    Connected {
        /// The peer.
        peer: NodeId,
    },
    /// The last connection to a peer ended. Frames on their way to it may be lost.
    Disconnected {
        /// The peer.
        peer: NodeId,
    },
    /// A frame arrived; frames of one peer come in the order it sent them.
    Frame {
        /// The peer.
        peer: NodeId,
        /// 1 byte to 256 KiB.
        bytes: Vec<u8>,
    },
    /// A peer asks something and waits.
    Request {
        /// The peer.
        peer: NodeId,
        /// At most 256 KiB.
        bytes: Vec<u8>,
        /// Takes the answer.
        reply: Reply,
    },
    /// A gossip message arrived. It travels no further until [`Net::validate`](super::Net::validate)
    /// accepts it.
    Gossip {
        /// The topic as configured.
        topic: String,
        /// The neighbour it came from, not its author.
        source: NodeId,
        /// At most 32 KiB.
        bytes: Vec<u8>,
        /// Names the message in the verdict.
        token: MessageToken,
    },
    /// Queued frames were given up.
    SendFailed {
        /// The peer.
        peer: NodeId,
        /// How many frames.
        dropped: usize,
        /// Why.
        why: SendFailure,
    },
    /// A round trip was measured.
    Rtt {
        /// The peer.
        peer: NodeId,
        /// In microseconds.
        micros: u64,
        /// 95th percentile of the last ones, in microseconds.
        p95_micros: u64,
    },
    /// This node listens on an address.
    ListenAddr {
        /// With the `/p2p` part.
        address: String,
    },
}

/// A frame and its share of its peer's memory.
#[derive(Debug)]
pub(super) struct QueuedFrame {
    pub(super) peer: NodeId,
    pub(super) bytes: Vec<u8>,
    pub(super) hold: OwnedSemaphorePermit,
}

/// Receives everything that happens. Dropping it makes the node deaf but leaves it running.
#[derive(Debug)]
pub struct NetEvents {
    pub(super) control: mpsc::Receiver<NetEvent>,
    pub(super) frames: mpsc::Receiver<QueuedFrame>,
}

impl NetEvents {
    /// The next event; `None` once the network has shut down.
    ///
    /// Events that are not frames come first. Cancel safe.
    pub async fn recv(&mut self) -> Option<NetEvent> {
        tokio::select! {
            biased;
            Some(event) = self.control.recv() => Some(event),
            Some(QueuedFrame { peer, bytes, hold }) = self.frames.recv() => {
                drop(hold);
                Some(NetEvent::Frame { peer, bytes })
            }
            else => None,
        }
    }
}

/// What to do with a gossip message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Pass it on.
    Accept,
    /// Do not pass it on; nobody is to blame (late, duplicate, or this node is overloaded).
    Ignore,
    /// Do not pass it on; an honest peer cannot have sent it. Costs the neighbour reputation.
    Reject,
}

/// Names a gossip message in a [`Verdict`].
#[derive(Debug, Clone)]
pub struct MessageToken {
    pub(super) id: gossipsub::MessageId,
    pub(super) source: PeerId,
}

/// Takes the answer to a request. Dropping it refuses.
#[derive(Debug)]
pub struct Reply(Option<Pending>);

#[derive(Debug)]
struct Pending {
    channel: ResponseChannel<Message>,
    commands: mpsc::Sender<Command>,
    // Until it is answered, the request counts against the memory of inbound requests.
    _hold: Option<OwnedSemaphorePermit>,
}

impl Reply {
    pub(super) fn new(
        channel: ResponseChannel<Message>,
        commands: mpsc::Sender<Command>,
        hold: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self(Some(Pending { channel, commands, _hold: hold }))
    }

    /// Answers. More than 256 KiB become a refusal.
    pub fn send(mut self, bytes: Vec<u8>) {
        if bytes.len() > super::MAX_REQUEST {
            self.give(Message::new(codec::REFUSED, b"the answer is too long".to_vec()));
        } else {
            self.give(Message::new(codec::OK, bytes));
        }
    }

    /// Refuses, with a reason of at most 256 bytes.
    pub fn refuse(mut self, why: &str) {
        let mut end = why.len().min(MAX_REASON);
        while !why.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        self.give(Message::new(codec::REFUSED, why.get(..end).unwrap_or_default().as_bytes().to_vec()));
    }

    /// Asks the peer to come back later.
    pub fn busy(mut self) {
        self.give(Message::new(codec::BUSY, Vec::new()));
    }

    fn give(&mut self, message: Message) {
        let Some(Pending { channel, commands, .. }) = self.0.take() else { return };
        match commands.try_send(Command::Respond { channel, message }) {
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
            Err(mpsc::error::TrySendError::Full(command)) => {
                // Answers are bounded by the requests that came in, so a few waiting tasks do no harm.
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        let _ = commands.send(command).await;
                    });
                }
            }
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.give(Message::new(codec::REFUSED, b"not answered".to_vec()));
    }
}
