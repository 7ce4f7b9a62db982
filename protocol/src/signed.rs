//! The only door from bytes to trusted data.
//!
//! Bytes from a peer become [`Signed<T>`], which says nothing yet; [`Signed::verify`] makes a [`Verified<T>`].
//! The signature covers the received bytes under a domain of its own per type, so that a receipt can never be
//! replayed as a voucher.

use core::{fmt, marker::PhantomData, ops::Deref};

use ed25519_dalek::{Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    bounded::List,
    codec::{self, CodecError},
    id::{Hash, NodeId},
};

/// Largest payload of any signed document, in bytes; each type has its own, smaller or equal limit.
pub const MAX_PAYLOAD: usize = 192 * 1024;

/// A type that is signed.
pub trait Document: Serialize + DeserializeOwned + fmt::Debug + Clone {
    /// Context string of the digest; unique per type and version.
    const DOMAIN: &'static str;
    /// Largest encoded length, in bytes.
    const MAX_LEN: usize;
    /// Whether this node is one who may sign this very document.
    fn may_sign(&self, signer: &NodeId) -> bool;
}

/// Who makes signatures: the node's key, or the simulator's table.
pub trait Signer: fmt::Debug {
    /// The node whose signatures these are.
    fn id(&self) -> NodeId;
    /// Signs a 32-byte digest.
    fn sign(&self, digest: &Hash) -> [u8; 64];
}

/// Who checks signatures: strict ed25519, or the simulator's table.
pub trait Verifier: fmt::Debug {
    /// Whether `signature` is `signer`'s over `digest`.
    ///
    /// # Errors
    /// [`VerifyError::WeakKey`] or [`VerifyError::BadSignature`].
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError>;
}

/// Why a document is not believed. All of these are the sender's fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// The payload is not a document of the expected type.
    #[error("payload: {0}")]
    Payload(#[from] CodecError),
    /// The key is of small order or no point at all: anybody can sign for it.
    #[error("the signer's key is weak")]
    WeakKey,
    /// The signature does not match.
    #[error("bad signature")]
    BadSignature,
    /// The signature is fine, but this signer has no say in this document.
    #[error("signed by {signer}, who is no party to it")]
    WrongSigner {
        /// Who signed.
        signer: NodeId,
    },
}

/// A document as received: bytes, the claimed signer and a signature not yet looked at.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Signed<T> {
    payload: List<u8, MAX_PAYLOAD>,
    signer: NodeId,
    signature: Signature,
    #[serde(skip)]
    kind: PhantomData<fn() -> T>,
}

impl<T> Clone for Signed<T> {
    fn clone(&self) -> Self {
        Self { payload: self.payload.clone(), signer: self.signer, signature: self.signature, kind: PhantomData }
    }
}

impl<T> PartialEq for Signed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.payload == other.payload && self.signer == other.signer && self.signature == other.signature
    }
}

impl<T> Eq for Signed<T> {}

/// 64 signature bytes; serde has no arrays of that length.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Signature([u8; 32], [u8; 32]);

impl Signature {
    fn to_bytes(self) -> [u8; 64] {
        let mut bytes = [0; 64];
        let (low, high) = bytes.split_at_mut(32);
        low.copy_from_slice(&self.0);
        high.copy_from_slice(&self.1);
        bytes
    }

    fn from_bytes(bytes: [u8; 64]) -> Self {
        let (mut low, mut high) = ([0; 32], [0; 32]);
        let (a, b) = bytes.split_at(32);
        low.copy_from_slice(a);
        high.copy_from_slice(b);
        Self(low, high)
    }
}

impl<T: Document> Signed<T> {
    /// Signs `document`.
    ///
    /// # Errors
    /// [`CodecError`] if it is longer than its type allows.
    pub fn sign(document: &T, signer: &dyn Signer) -> Result<Verified<T>, CodecError> {
        let payload = codec::encode(document, T::MAX_LEN)?;
        let digest = digest::<T>(&payload);
        let too_long = |e: crate::bounded::TooLong| CodecError::TooLong { len: e.len, max: e.max };
        let signed = Self {
            signature: Signature::from_bytes(signer.sign(&digest)),
            payload: List::try_from(payload).map_err(too_long)?,
            signer: signer.id(),
            kind: PhantomData,
        };
        Ok(Verified { document: document.clone(), hash: digest, signed })
    }

    /// Checks the size, the form, the signer's say and the signature, in this order, cheapest first.
    ///
    /// # Errors
    /// [`VerifyError`]; the peer that sent it is to blame.
    pub fn verify(&self, verifier: &dyn Verifier) -> Result<Verified<T>, VerifyError> {
        let document: T = codec::decode_canonical(&self.payload, T::MAX_LEN)?;
        if !document.may_sign(&self.signer) {
            return Err(VerifyError::WrongSigner { signer: self.signer });
        }
        let digest = digest::<T>(&self.payload);
        verifier.check(&self.signer, &digest, &self.signature.to_bytes())?;
        Ok(Verified { document, hash: digest, signed: self.clone() })
    }

    /// The document without a check of its signature: only for what this node verified before it stored it.
    ///
    /// # Errors
    /// If the payload is not a document of this type.
    pub fn peek(&self) -> Result<T, CodecError> {
        codec::decode_canonical(&self.payload, T::MAX_LEN)
    }

    /// Who claims to have signed.
    #[must_use]
    pub fn signer(&self) -> NodeId {
        self.signer
    }

    /// The document's hash: domain and payload, without the signature.
    #[must_use]
    pub fn hash(&self) -> Hash {
        digest::<T>(&self.payload)
    }
}

impl<T> fmt::Debug for Signed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signed({} bytes by {})", self.payload.len(), self.signer.short())
    }
}

fn digest<T: Document>(payload: &[u8]) -> Hash {
    Hash(blake3::derive_key(T::DOMAIN, payload))
}

/// A document whose signature has been checked, or that this node signed itself. Cannot be decoded from bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Verified<T> {
    document: T,
    hash: Hash,
    signed: Signed<T>,
}

impl<T: Document> Verified<T> {
    /// The document's hash, by which others refer to it.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Who signed it.
    #[must_use]
    pub fn signer(&self) -> NodeId {
        self.signed.signer
    }

    /// The signed form, to send on or to store.
    #[must_use]
    pub fn signed(&self) -> &Signed<T> {
        &self.signed
    }

    /// The signed form, owned.
    #[must_use]
    pub fn into_signed(self) -> Signed<T> {
        self.signed
    }

    /// The document itself, owned.
    #[must_use]
    pub fn into_document(self) -> T {
        self.document
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.document
    }
}

impl<T: fmt::Debug> fmt::Debug for Verified<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.document, f)
    }
}

/// A node's signing key.
pub struct Key(SigningKey);

impl Key {
    /// The key of a 32-byte seed.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id().short())
    }
}

impl Signer for Key {
    fn id(&self) -> NodeId {
        NodeId(self.0.verifying_key().to_bytes())
    }

    fn sign(&self, digest: &Hash) -> [u8; 64] {
        self.0.sign(&digest.0).to_bytes()
    }
}

/// Strict ed25519: small-order keys and malleable signatures are refused.
///
/// The plain check of the scheme accepts a forged signature for any message under a small-order key.
#[derive(Debug, Clone, Copy, Default)]
pub struct Strict;

impl Verifier for Strict {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        let key = VerifyingKey::from_bytes(&signer.0).map_err(|_| VerifyError::WeakKey)?;
        if key.is_weak() {
            return Err(VerifyError::WeakKey);
        }
        let signature = ed25519_dalek::Signature::from_bytes(signature);
        key.verify_strict(&digest.0, &signature).map_err(|_| VerifyError::BadSignature)
    }
}

#[cfg(test)]
mod tests;
