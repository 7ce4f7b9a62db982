//! What can go wrong on the network, as facts a caller can act on.

use std::time::Duration;

/// Why the network could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// A configured address cannot be used.
    #[error("{field}: address {value} cannot be used: {why}")]
    Address {
        /// The setting it came from (`listen`, `bootstrap` or `external`).
        field: &'static str,
        /// The text as given.
        value: String,
        /// The reason and, where there is one, the remedy.
        why: String,
    },
    /// The network id is not eight hexadecimal digits.
    #[error("network: id {value} is not 8 hexadecimal digits")]
    Network {
        /// The text as given.
        value: String,
    },
    /// Listening failed, mostly because another process holds the port.
    #[error("listen: cannot listen on {value}: {why}; choose another port or stop the process that holds it")]
    Listen {
        /// The address.
        value: String,
        /// The system's reason.
        why: String,
    },
    /// The transport or a protocol could not be set up.
    #[error("cannot set up {what}: {why}")]
    Setup {
        /// Which part.
        what: &'static str,
        /// The reason.
        why: String,
    },
}

/// Why a connection to an address was not made.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address cannot be used.
    #[error("address {value} cannot be used: {why}")]
    Address {
        /// The text as given.
        value: String,
        /// The reason.
        why: String,
    },
    /// Somebody answered, but speaks for another network.
    #[error("the node at this address belongs to another network")]
    ForeignNetwork,
    /// Nobody answered, or not the peer expected.
    #[error("no connection: {why}")]
    Unreachable {
        /// The transport's reason.
        why: String,
    },
    /// No answer in time.
    #[error("no connection within {0:?}")]
    Timeout(Duration),
    /// This node has too much in progress.
    #[error("too many connections in progress; try again")]
    Busy,
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}

/// Why a frame was not queued.
#[derive(Debug, thiserror::Error, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendError {
    /// The frame is empty or longer than allowed.
    #[error("frame of {len} bytes refused: 1 to {} bytes", super::MAX_FRAME)]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// The peer's queue is full: it reads more slowly than this node writes.
    #[error("the queue to this peer is full")]
    QueueFull,
    /// Frames wait for too many peers already.
    #[error("frames wait for too many peers")]
    TooManyPeers,
    /// A node does not send to itself.
    #[error("the peer is this node itself")]
    Own,
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}

/// Why frames already queued were given up.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendFailure {
    /// No connection within the reconnect window.
    #[error("peer unreachable: {0}")]
    Unreachable(String),
    /// The peer does not speak this network's trade protocol.
    #[error("peer does not speak this network's trade protocol")]
    Unsupported,
    /// The peer stopped reading.
    #[error("peer does not read")]
    Stalled,
    /// This node is shutting down.
    #[error("shutting down")]
    Stopped,
}

/// Why a request has no answer.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestError {
    /// The request is longer than allowed.
    #[error("request of {len} bytes refused: at most {} bytes", super::MAX_REQUEST)]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// No connection could be made.
    #[error("peer unreachable: {0}")]
    Unreachable(String),
    /// The peer does not speak the protocol.
    #[error("peer does not speak this network's request protocol")]
    Unsupported,
    /// The peer is overloaded, or this node asks too often.
    #[error("peer is busy; try again after a pause")]
    Busy,
    /// The peer refused, with its reason.
    #[error("peer refused: {0}")]
    Refused(String),
    /// No answer in time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The connection broke before the answer came.
    #[error("connection lost before the answer: {0}")]
    Lost(String),
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}

impl RequestError {
    /// Whether the other side may have acted on the request although no answer came.
    /// Retry such a request only with the same idempotency key.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        matches!(self, Self::Timeout(_) | Self::Lost(_) | Self::Stopped)
    }
}

/// Why a stream was not opened.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// No connection could be made.
    #[error("peer unreachable: {0}")]
    Unreachable(String),
    /// The peer does not speak the protocol.
    #[error("peer does not speak this protocol")]
    Unsupported,
    /// Too many streams are being opened.
    #[error("too many streams are being opened; try again")]
    Busy,
    /// The connection broke meanwhile.
    #[error("connection lost: {0}")]
    Lost(String),
    /// No stream in time.
    #[error("no stream within {0:?}")]
    Timeout(Duration),
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}

/// Why a message was not published.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// The message is empty or longer than allowed.
    #[error("message of {len} bytes refused: 1 to {} bytes", super::MAX_GOSSIP)]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// The topic is not among those configured.
    #[error("topic {0} is not among the node's topics")]
    UnknownTopic(String),
    /// The same message was published within the last minute.
    #[error("the same message was published already")]
    Duplicate,
    /// All queues are full; retry with jitter.
    #[error("all gossip queues are full; try again")]
    Busy,
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}

/// Why a look-up in the distributed hash table has no result.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LookupError {
    /// The key is empty or longer than 64 bytes.
    #[error("key of {len} bytes refused: 1 to 64 bytes")]
    Length {
        /// Its length in bytes.
        len: usize,
    },
    /// Too many look-ups or keys at once.
    #[error("too many look-ups in progress; try again")]
    Busy,
    /// The network task has ended.
    #[error("the network has been shut down")]
    Stopped,
}
