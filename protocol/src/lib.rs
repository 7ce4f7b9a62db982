//! What is said in souk, a peer-to-peer market for computing: ids, units, money, job files, documents, signatures
//! and the codec. Plain data: no tokio, no libp2p, no clock.
//!
//! The modules are in the order of a job's life:
//!
//! ```text
//! renter                                  provider
//! JobFile -> JobSpec, JobId               Offer (capacity, policy, ask)
//! Announcement  ------------------------>
//!               <------------------------ Bid | Decline
//! Award + Work  ------------------------>
//!               <------------------------ Accepted           together: a lease
//! Control::Task ------------------------>
//!               <------------------------ Checkpoint, TaskResult, Manifest
//! Done + Voucher ----------------------->
//! Receipt       <-----------------------> Receipt            signed by both
//! ```
//!
//! Bytes from a peer become [`Signed<T>`](Signed), then by [`Signed::verify`] a [`Verified<T>`](Verified); nothing
//! else can make one.
//!
//! ```
//! use souk_protocol::{Credits, Millis, Rate};
//!
//! // A slot at 0.36 CR an hour for 1.5 s costs 0.00015 CR, rounded up to a whole micro-credit.
//! let rate: Rate = "0.36 CR/h".parse().unwrap();
//! assert_eq!(rate.charge(Millis(1_500)), Some(Credits(150)));
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::float_arithmetic
    )
)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may panic"))]

pub mod bounded;
pub mod codec;
pub mod merkle;

mod grammar;
mod id;
mod money;
mod units;

mod gpu;
pub mod job_file;
mod spec;
mod terms;

mod announcement;
mod award;
mod bid;
mod network;
mod offer;
mod receipt;
mod result;
mod signed;
mod tally;
mod telemetry;
mod voucher;
mod wire;
mod work;

pub use announcement::Announcement;
pub use award::{ACCEPT_WITHIN_MS, Accepted, Award, Basis};
pub use bid::{Bid, Decline, DeclineCode};
pub use bounded::{List, Text};
pub use gpu::{
    GpuFamily, GpuForm, GpuIdentity, GpuMismatch, GpuRequest, MAX_GPU_FAMILIES, MAX_GPUS, MemoryClass, MigProfile,
    Vendor,
};
pub use grammar::{Count, GrammarError, Range, RangeItem};
pub use id::{AttemptId, Hash, IdError, JobId, LeaseId, NetworkId, NodeId};
pub use job_file::JobFile;
pub use money::{Balance, Credits, PowerPrice, Rate, charge};
pub use network::{CreditLimits, MAX_NETWORK_FILE, NetworkFile, NetworkFileError, Params};
pub use offer::{Capacity, GpuOffer, OFFER_LIFE, Offer, OfferDigest, PriceList};
pub use receipt::{Close, LeaseEnd, MAX_BILLED, MAX_RECEIPT_FILE, Party, RECEIPT_MAGIC, Receipt, ReceiptFile};
pub use result::{
    AttemptEnd, Entry, EntryKind, LogEnd, MAX_ENTRIES, MAX_MANIFEST, Manifest, TaskResult, is_plain_path,
};
pub use signed::{Document, Key, MAX_PAYLOAD, Signed, Signer, Strict, Verified, Verifier, VerifyError};
pub use spec::{
    Array, Input, InputFile, JobSpec, MAX_INPUT_FILES, MAX_SPEC, MAX_TASKS, Market, Module, Output, Retry, RetryOn, Sla,
};
pub use tally::{Lost, MAX_PATH, Tally};
pub use telemetry::{Checkpoint, GpuSample, MAX_SAMPLES, Sample, first_link};
pub use terms::{Isolation, Local, Mode, Pay, Requirement, Runtime, Terms, Tier, UnknownWord, Verify};
pub use units::{BitsPerSecond, Bytes, Celsius, MilliCpu, MilliWatts, Millis, Ppm, Timestamp};
pub use voucher::{Billed, Discharge, Voucher, billed_hash, extend_billed};
pub use wire::{
    Answer, Ask, BlobAnswer, BlobRequest, Control, LeaseFrame, LogFrame, LogOffsets, LogOpen, MAX_GOSSIP,
    MAX_LOG_CHUNK, MAX_MESSAGE, Message, RunState, SmallFile, VERSION, job_topic, offer_topic, protocol_name,
};
pub use work::{InputBlob, MAX_WORK, Work, WorkLimits};
