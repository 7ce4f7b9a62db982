//! What the parts of a [`Trader`](crate::Trader) work with while they handle one event.

use std::{collections::BTreeMap, fmt, sync::Arc};

use souk_protocol::{
    Decline, DeclineCode, Document, Hash, LeaseFrame, LeaseId, Message, NodeId, Signed, Signer, Text, Verified, Verifier,
    VerifyError,
};

use crate::{
    books::Books,
    event::{Notice, Now, Output, Settings, Token},
    record::Record,
};

/// Outputs that wait for a record to be durable.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    next: u64,
    outputs: BTreeMap<Token, Vec<Output>>,
}

impl Waiting {
    pub(crate) fn release(&mut self, token: Token) -> Vec<Output> {
        self.outputs.remove(&token).unwrap_or_default()
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

    /// Signs a document of this node. A document that does not fit its type is a bug of the caller, answered `None`.
    pub(crate) fn sign<T: Document>(&self, document: &T) -> Option<Verified<T>> {
        Signed::sign(document, &**self.keys).ok()
    }

    /// Checks a peer's document.
    pub(crate) fn verify<T: Document>(&self, signed: &Signed<T>) -> Result<Verified<T>, VerifyError> {
        signed.verify(&**self.keys)
    }

    /// Makes `record` durable; `then` goes out once it is.
    pub(crate) fn persist(&mut self, record: Record, then: Vec<Output>) {
        self.waiting.next = self.waiting.next.saturating_add(1);
        let token = Token(self.waiting.next);
        self.waiting.outputs.insert(token, then);
        self.out.push(Output::Persist { record, token });
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.out.push(Output::Send { to, message });
    }

    pub(crate) fn send_frame(&mut self, to: NodeId, frame: LeaseFrame) {
        self.send(to, Message::Lease(frame));
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

