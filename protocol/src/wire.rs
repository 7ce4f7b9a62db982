//! What peers say to each other: protocol names, sizes and the messages that carry documents.

use serde::{Deserialize, Serialize};

use crate::{
    announcement::Announcement,
    award::{Accepted, Award},
    bid::{Bid, Decline},
    bounded::{List, Text},
    codec::{self, CodecError},
    id::{AttemptId, Hash, LeaseId, NetworkId},
    offer::{Offer, OfferDigest},
    receipt::{Close, LeaseEnd, Receipt},
    result::TaskResult,
    signed::Signed,
    tally::Lost,
    telemetry::Checkpoint,
    units::{Millis, Timestamp},
    voucher::{Discharge, Voucher},
    work::Work,
};

/// Version of the wire format, part of every protocol name.
pub const VERSION: u16 = 1;
/// Largest message on a trade stream and largest request or answer, in bytes.
pub const MAX_MESSAGE: usize = 256 * 1024;
/// Largest gossip message, in bytes.
pub const MAX_GOSSIP: usize = 32 * 1024;
/// Largest chunk of a log frame, in bytes.
pub const MAX_LOG_CHUNK: usize = 64 * 1024;

/// `/souk/<net8>/<what>/<version>`.
#[must_use]
pub fn protocol_name(network: &NetworkId, what: &str) -> String {
    format!("/souk/{}/{what}/{VERSION}", network.net8())
}

/// The gossip topic of offers in a shard: region group and accelerator class.
#[must_use]
pub fn offer_topic(network: &NetworkId, shard: &str) -> String {
    format!("souk/{}/offer/{shard}/{VERSION}", network.net8())
}

/// The gossip topic of announcements in a shard.
#[must_use]
pub fn job_topic(network: &NetworkId, shard: &str) -> String {
    format!("souk/{}/job/{shard}/{VERSION}", network.net8())
}

/// A one-way message on the ordered trade stream between two peers. Variants are append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Renter: a call for bids.
    Announce(Signed<Announcement>),
    /// Provider: a price.
    Bid(Signed<Bid>),
    /// Provider: no bid, or no acceptance.
    Decline(Decline),
    /// Renter: a choice, with the first tasks. Small files the work needs may come along.
    Award {
        /// The award.
        award: Signed<Award>,
        /// The first tasks, at most one a slot.
        work: List<Work, 64>,
        /// Files of the work, small ones, to save a round trip.
        files: List<SmallFile, 64>,
    },
    /// Either side: something on a lease.
    Lease(LeaseFrame),
    /// Renter: a bid that did not win, and the proof that it was counted.
    Lost(Lost),
}

/// A file small enough to travel in a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmallFile {
    /// Its content; its name is its BLAKE3.
    pub bytes: List<u8, { 128 * 1024 }>,
}

/// A frame of the control channel of a lease: numbered, acknowledged, kept until acknowledged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LeaseFrame {
    /// Which lease.
    pub lease: LeaseId,
    /// The sender's run since its last start; numbers begin anew with it.
    pub boot: u64,
    /// The receiver's boot that the acknowledgement is about; 0 if unknown.
    pub peer_boot: u64,
    /// Number of the body in this direction, from 1; 0 for a body that is not kept (heartbeat, resume).
    pub number: u64,
    /// All numbers of the receiver up to this one have arrived.
    pub ack: u64,
    /// What is said.
    pub body: Control,
}

/// What is said on a lease. Variants are append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Control {
    /// Both: nothing but the acknowledgement; still alive.
    Heartbeat,
    /// Both, after a break: I am here again. The other side repeats what is durable and unanswered.
    Resume,
    /// Provider: the signed acceptance.
    Accepted(Signed<Accepted>),
    /// Renter: run this.
    Task(Work),
    /// Provider: an attempt goes on to its next state.
    Progress {
        /// Which.
        attempt: AttemptId,
        /// What it does now.
        state: RunState,
        /// When, by the provider's clock.
        at: Timestamp,
    },
    /// Provider: a signed result, repeated until acknowledged.
    Result(Signed<TaskResult>),
    /// Renter: the result counts (done, or failed on the renter's account); the voucher covers it.
    Done {
        /// Which.
        attempt: AttemptId,
        /// Run time that is billed: what the result says, or less where the renter capped it.
        run: Millis,
        /// What is owed now.
        voucher: Signed<Voucher>,
    },
    /// Renter: the result does not count (another one won, or it came too late) and is not owed for.
    Refused {
        /// Which.
        attempt: AttemptId,
        /// Why.
        reason: Text<200>,
    },
    /// Renter: stop this attempt.
    Cancel {
        /// Which.
        attempt: AttemptId,
    },
    /// Provider: measurements.
    Telemetry(Signed<Checkpoint>),
    /// Either: the lease is over. The provider's answer, or the next message, is its draft of the receipt.
    End {
        /// Why.
        end: LeaseEnd,
        /// For people.
        reason: Text<200>,
    },
    /// Provider first, renter in return: the receipt.
    Receipt(Signed<Receipt>),
    /// Provider: a warning before preemption.
    Notice {
        /// Attempts stop then.
        stop_in: Millis,
    },
    /// Either: no lease of this id is known here. A provider answers with [`Control::Show`].
    Unknown,
    /// Provider: the lease's documents, for a renter that forgot them in a restart.
    Show {
        /// What the renter signed.
        award: Signed<Award>,
        /// What the provider signed.
        accepted: Signed<Accepted>,
    },
}

/// What an attempt is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunState {
    /// Inputs are being fetched, the module compiled.
    Fetching,
    /// The program runs.
    Running,
}

/// First bytes on a log stream, from provider to renter; one stream an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOpen {
    /// Which attempt.
    pub attempt: AttemptId,
    /// Whether the renter is to answer with the [`LogOffsets`] it holds. The first stream of an attempt starts at zero
    /// at once, without a round trip.
    pub resumes: bool,
}

/// Bytes of an attempt's logs that the renter holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOffsets {
    /// Of standard output.
    pub stdout: u64,
    /// Of standard error.
    pub stderr: u64,
}

/// A frame of a log stream, from provider to renter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFrame {
    /// 1 for standard output, 2 for standard error.
    pub stream: u8,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes.
    pub bytes: List<u8, MAX_LOG_CHUNK>,
}

/// A request of the request-response protocol. Variants are append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Ask {
    /// Which offers do you know?
    Digest,
    /// Send me these offers.
    Offers(List<Hash, 256>),
    /// A creditor's discharge.
    Discharge(Signed<Discharge>),
    /// One-sided close of a lease, for the record.
    Close(Signed<Close>),
}

/// An answer of the request-response protocol. Variants are append-only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// Live offers known here.
    Digest(List<OfferDigest, 3_000>),
    /// The offers asked for, as far as they are known and fit.
    Offers(List<Signed<Offer>, 256>),
    /// Noted.
    Noted,
    /// Not answered.
    Refused(Text<200>),
}

/// First bytes on a blob stream: which file, from where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRequest {
    /// Which file.
    pub hash: Hash,
    /// The lease it is for, which gives the right to ask.
    pub lease: LeaseId,
    /// First byte wanted.
    pub offset: u64,
}

/// The answer on a blob stream; the bytes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlobAnswer {
    /// The file's whole length; `len - offset` bytes follow.
    Found {
        /// Length, in bytes.
        len: u64,
    },
    /// Not here.
    Missing,
    /// Not for you.
    Refused,
}

impl Message {
    /// Encodes for the wire.
    ///
    /// # Errors
    /// If it is larger than [`MAX_MESSAGE`].
    pub fn encode(&self) -> Result<Vec<u8>, CodecError> {
        codec::encode(self, MAX_MESSAGE)
    }

    /// Decodes what a peer sent.
    ///
    /// # Errors
    /// [`CodecError`]; the peer is to blame.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        codec::decode(bytes, MAX_MESSAGE)
    }
}
