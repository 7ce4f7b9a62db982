//! Signatures without curves: a table of secrets that the simulator keeps for everybody.

use std::{fmt, sync::Arc};

use souk_protocol::{Hash, NodeId, Signer, Verifier, VerifyError};

/// The secrets of all nodes of a simulation. A signature is a keyed BLAKE3 of the digest, so only the table can make
/// or check one; that is enough where everybody runs in one process.
pub struct Table {
    ids: Vec<NodeId>,
    secrets: Vec<[u8; 32]>,
}

/// The number of a node ends its id, so that it is found without a search. Ids are ordered by what comes before.
fn numbered(mut id: [u8; 32], number: usize) -> NodeId {
    let (_, tail) = id.split_at_mut(28);
    tail.copy_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    NodeId(id)
}

/// The number in an id, whether there is such a node or not.
pub(crate) fn number_of(id: &NodeId) -> Option<usize> {
    let (_, tail) = id.0.split_at(28);
    usize::try_from(u32::from_be_bytes(tail.try_into().ok()?)).ok()
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({} keys)", self.secrets.len())
    }
}

impl Table {
    /// The keys of `nodes` nodes, in the order of their numbers.
    #[must_use]
    pub fn new(seed: u64, nodes: usize) -> (Arc<Self>, Vec<NodeId>) {
        let mut ids = Vec::with_capacity(nodes);
        let mut secrets = Vec::with_capacity(nodes);
        for number in 0..nodes {
            let secret = blake3::derive_key("souk/sim/secret", format!("{seed}/{number}").as_bytes());
            ids.push(numbered(blake3::derive_key("souk/sim/node-id", &secret), number));
            secrets.push(secret);
        }
        (Arc::new(Self { ids: ids.clone(), secrets }), ids)
    }

    fn signature(&self, signer: &NodeId, digest: &Hash) -> Option<[u8; 64]> {
        let number = number_of(signer).filter(|number| self.ids.get(*number) == Some(signer))?;
        let secret = self.secrets.get(number)?;
        let mut signature = [0; 64];
        blake3::Hasher::new_keyed(secret).update(&digest.0).finalize_xof().fill(&mut signature);
        Some(signature)
    }
}

impl Verifier for Table {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        match self.signature(signer, digest) {
            None => Err(VerifyError::WeakKey),
            Some(ours) if ours == *signature => Ok(()),
            Some(_) => Err(VerifyError::BadSignature),
        }
    }
}

/// One node's key: signs as that node, checks for all.
#[derive(Debug, Clone)]
pub(crate) struct SimKey {
    table: Arc<Table>,
    id: NodeId,
}

impl SimKey {
    /// The key of `id`.
    #[must_use]
    pub(crate) const fn new(table: Arc<Table>, id: NodeId) -> Self {
        Self { table, id }
    }
}

impl Signer for SimKey {
    fn id(&self) -> NodeId {
        self.id
    }

    fn sign(&self, digest: &Hash) -> [u8; 64] {
        // A node that is not in the table signs nothing anybody would believe.
        self.table.signature(&self.id, digest).unwrap_or([0; 64])
    }
}

impl Verifier for SimKey {
    fn check(&self, signer: &NodeId, digest: &Hash, signature: &[u8; 64]) -> Result<(), VerifyError> {
        self.table.check(signer, digest, signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_good_for_its_signer_and_digest_only() {
        let (table, ids) = Table::new(1, 2);
        let key = SimKey::new(Arc::clone(&table), ids[0]);
        let (digest, other) = (Hash([1; 32]), Hash([2; 32]));
        let signature = key.sign(&digest);
        assert_eq!(key.check(&ids[0], &digest, &signature), Ok(()));
        assert_eq!(key.check(&ids[0], &other, &signature), Err(VerifyError::BadSignature));
        assert_eq!(key.check(&ids[1], &digest, &signature), Err(VerifyError::BadSignature));
        assert_eq!(key.check(&NodeId([0; 32]), &digest, &signature), Err(VerifyError::WeakKey));
        assert_eq!(SimKey::new(table, NodeId([9; 32])).sign(&digest), [0; 64]);
    }
}
