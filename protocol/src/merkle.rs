//! Merkle roots with the hashing of RFC 6962, over BLAKE3: leaves and nodes have different prefixes.

use crate::id::Hash;

fn leaf(item: &Hash) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[0]);
    hasher.update(&item.0);
    Hash(*hasher.finalize().as_bytes())
}

fn node(left: &Hash, right: &Hash) -> Hash {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[1]);
    hasher.update(&left.0);
    hasher.update(&right.0);
    Hash(*hasher.finalize().as_bytes())
}

/// The root over `items` in the given order; of none, BLAKE3 of nothing.
#[must_use]
pub fn root(items: &[Hash]) -> Hash {
    let mut level: Vec<Hash> = items.iter().map(leaf).collect();
    if level.is_empty() {
        return Hash::of(&[]);
    }
    // Pairing neighbours and carrying an odd one up gives the same tree as RFC 6962's split at a power of two.
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => node(left, right),
                [only] => *only,
                _ => Hash::of(&[]),
            })
            .collect();
    }
    level.first().copied().unwrap_or(Hash::of(&[]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_odd_leaf_is_carried_up() {
        let items: Vec<Hash> = (0..3u8).map(|i| Hash([i; 32])).collect();
        let expected = node(&node(&leaf(&items[0]), &leaf(&items[1])), &leaf(&items[2]));
        assert_eq!(root(&items), expected);
    }

    #[test]
    fn a_leaf_cannot_pass_for_a_node() {
        let (a, b) = (Hash([1; 32]), Hash([2; 32]));
        assert_ne!(root(&[a, b]), root(&[node(&leaf(&a), &leaf(&b))]));
    }
}
