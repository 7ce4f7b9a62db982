//! This node's key, and the check of everybody's signatures.

use souk_protocol::{Hash, Key, NodeId, Signer, Strict, Verifier, VerifyError};

use crate::ablation::{Step, leaves_out};

/// Signs as this node, checks as any node.
#[derive(Debug)]
pub(crate) struct NodeKeys(Key);

impl NodeKeys {
    /// The key of a 32-byte seed.
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Key::from_seed(seed))
    }
}

impl Signer for NodeKeys {
    fn id(&self) -> NodeId {
        self.0.id()
    }

    fn sign(&self, digest: &Hash) -> [u8; 64] {
        if leaves_out(Step::Signatures) { stand_in(digest) } else { self.0.sign(digest) }
    }
}

impl Verifier for NodeKeys {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        Signatures.check(signer, digest, signature)
    }
}

/// Checks signatures; needs no key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signatures;

impl Verifier for Signatures {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        if leaves_out(Step::Signatures) {
            return if *signature == stand_in(digest) { Ok(()) } else { Err(VerifyError::BadSignature) };
        }
        Strict.check(signer, digest, signature)
    }
}

/// What stands for a signature where they are left out.
fn stand_in(digest: &Hash) -> [u8; 64] {
    let mut bytes = [0; 64];
    for (byte, from) in bytes.iter_mut().zip(digest.0.iter().cycle()) {
        *byte = *from;
    }
    bytes
}
