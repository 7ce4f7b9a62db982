//! What the parts of a [`Trader`](crate::Trader) work with while they handle one event.

use std::{collections::BTreeMap, fmt, sync::Arc};

use souk_protocol::{
    Decline, DeclineCode, Document, Hash, LeaseFrame, LeaseId, Message, NodeId, Signed, Signer, Text, Verified,
    Verifier, VerifyError,
};

use crate::{
    books::Books,
    desk::Desk,
    event::{Notice, Now, Output, Settings, Token},
    local,
    record::Record,
};

/// Outputs that wait for a record to be durable.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    next: u64,
    outputs: BTreeMap<Token, Vec<Output>>,
    /// By lease: the newest token that a numbered frame waits for. A later frame must not overtake it, for the other
    /// side would take it as lost.
    behind: BTreeMap<LeaseId, Token>,
}

impl Waiting {
    pub(crate) fn release(&mut self, token: Token) -> Vec<Output> {
        let outputs = self.outputs.remove(&token).unwrap_or_default();
        for output in &outputs {
            if let Some(lease) = numbered(output)
                && self.behind.get(&lease) == Some(&token)
            {
                self.behind.remove(&lease);
            }
        }
        outputs
    }
}

/// The lease whose order of frames this output is part of.
fn numbered(output: &Output) -> Option<LeaseId> {
    match output {
        Output::Send { message: Message::Lease(frame), .. } if frame.number != 0 => Some(frame.lease),
        _ => None,
    }
}

/// Deterministic randomness from a seed that the driver draws anew for each run.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    seed: [u8; 32],
    count: u64,
}

impl Random {
    pub(crate) const fn new(seed: [u8; 32]) -> Self {
        Self { seed, count: 0 }
    }

    pub(crate) fn bytes(&mut self) -> [u8; 16] {
        self.count = self.count.saturating_add(1);
        let mut out = [0; 16];
        blake3::Hasher::new_keyed(&self.seed).update(&self.count.to_le_bytes()).finalize_xof().fill(&mut out);
        out
    }
}

/// Both traits in one name: the node's key or the simulator's table.
pub trait Keys: Signer + Verifier + Send + Sync {}
impl<T: Signer + Verifier + Send + Sync> Keys for T {}

/// The surroundings of one event.
pub(crate) struct Context<'a> {
    pub(crate) now: Now,
    pub(crate) settings: &'a Settings,
    pub(crate) keys: &'a Arc<dyn Keys>,
    pub(crate) random: &'a mut Random,
    pub(crate) books: &'a mut Books,
    pub(crate) waiting: &'a mut Waiting,
    /// What this node could do for itself; not there while the provider's side handles something.
    pub(crate) local: Option<&'a Desk>,
    pub(crate) out: &'a mut Vec<Output>,
}

impl fmt::Debug for Context<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("now", &self.now).finish_non_exhaustive()
    }
}

impl Context<'_> {
    /// This node.
    pub(crate) fn me(&self) -> NodeId {
        self.keys.id()
    }

    /// The boot number of this node as the provider of `renter`.
    pub(crate) fn provider_boot(&self, renter: &NodeId) -> u64 {
        if *renter == self.me() { local::boot(self.settings.boot) } else { self.settings.boot }
    }

    /// Signs a document of this node. A document that does not fit its type is a bug of the caller, answered `None`.
    pub(crate) fn sign<T: Document>(&self, document: &T) -> Option<Verified<T>> {
        Signed::sign(document, &**self.keys).ok()
    }

    /// Checks a peer's document.
    pub(crate) fn verify<T: Document>(&self, signed: &Signed<T>) -> Result<Verified<T>, VerifyError> {
        signed.verify(&**self.keys)
    }

    /// Makes `record` durable; `then` goes out once it is. The books take note of it at once.
    pub(crate) fn persist(&mut self, record: Record, then: Vec<Output>) {
        self.books.note(&record);
        self.waiting.next = self.waiting.next.saturating_add(1);
        let token = Token(self.waiting.next);
        for lease in then.iter().filter_map(numbered) {
            self.waiting.behind.insert(lease, token);
        }
        self.waiting.outputs.insert(token, then);
        self.out.push(Output::Persist { record, token });
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.out.push(Output::Send { to, message });
    }

    /// Sends a frame: at once, or behind the frames of its lease that wait for the disk.
    pub(crate) fn send_frame(&mut self, to: NodeId, frame: LeaseFrame) {
        if frame.number == 0 {
            self.send(to, Message::Lease(frame));
        } else {
            self.send_frame_in_order(to, frame);
        }
    }

    /// Sends a frame behind those of its lease that wait for the disk, even if it is unnumbered.
    pub(crate) fn send_frame_in_order(&mut self, to: NodeId, frame: LeaseFrame) {
        let behind = self.waiting.behind.get(&frame.lease).copied();
        let output = Output::Send { to, message: Message::Lease(frame) };
        match behind.and_then(|token| self.waiting.outputs.get_mut(&token)) {
            Some(outputs) => outputs.push(output),
            None => self.out.push(output),
        }
    }

    pub(crate) fn notify(&mut self, notice: Notice) {
        self.out.push(Output::Notify(notice));
    }

    pub(crate) fn blame(&mut self, peer: NodeId, fault: impl fmt::Display) {
        self.out.push(Output::Blame { peer, fault: fault.to_string() });
    }

    pub(crate) fn decline(&mut self, to: NodeId, subject: Hash, code: DeclineCode, nearest: &str) {
        self.send(to, Message::Decline(Decline { subject, code, nearest: Text::clipped(nearest) }));
    }

    pub(crate) fn random_lease(&mut self) -> LeaseId {
        LeaseId(self.random.bytes())
    }
}
