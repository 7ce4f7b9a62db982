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

/// The next level up. Pairing neighbours and carrying an odd one up gives the same tree as RFC 6962's split at a power of
/// two.
fn above(level: &[Hash]) -> Vec<Hash> {
    let parent = |pair: &[Hash]| match pair {
        [left, right] => Some(node(left, right)),
        [only] => Some(*only),
        _ => None,
    };
    level.chunks(2).filter_map(parent).collect()
}

/// The root over `items` in the given order; of none, BLAKE3 of nothing.
#[must_use]
pub fn root(items: &[Hash]) -> Hash {
    let mut level: Vec<Hash> = items.iter().map(leaf).collect();
    if level.is_empty() {
        return Hash::of(&[]);
    }
    while level.len() > 1 {
        level = above(&level);
    }
    level.first().copied().unwrap_or(Hash::of(&[]))
}

/// The path from the item at `index` up to [`root`]: its neighbours, lowest first (the audit path of RFC 6962, 2.1.1).
/// `None` if there is no such item.
#[must_use]
pub fn path(items: &[Hash], index: usize) -> Option<Vec<Hash>> {
    items.get(index)?;
    let mut level: Vec<Hash> = items.iter().map(leaf).collect();
    let mut at = index;
    let mut path = Vec::new();
    while level.len() > 1 {
        // An odd one has no neighbour and is carried up.
        path.extend(level.get(at ^ 1).copied());
        at /= 2;
        level = above(&level);
    }
    Some(path)
}

/// Whether `item` is the one at `index` of `count` items under `root`, by its [`path`].
#[must_use]
pub fn includes(root: &Hash, item: &Hash, index: usize, count: usize, path: &[Hash]) -> bool {
    if index >= count {
        return false;
    }
    let (mut at, mut width, mut hash) = (index, count, leaf(item));
    let mut rest = path.iter();
    while width > 1 {
        let is_carried = at == width.saturating_sub(1) && at.is_multiple_of(2);
        if !is_carried {
            let Some(neighbour) = rest.next() else { return false };
            hash = if at.is_multiple_of(2) { node(&hash, neighbour) } else { node(neighbour, &hash) };
        }
        at /= 2;
        width = width.div_ceil(2);
    }
    rest.next().is_none() && hash == *root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_item_has_a_path_to_the_root_and_only_in_its_own_place(count in 1usize..70, at in 0usize..70, other in 0usize..70) {
            let items: Vec<Hash> = (0..count).map(|n| Hash::of(&n.to_le_bytes())).collect();
            let (at, other) = (at % count, other % count);
            let root = root(&items);
            let way = path(&items, at).unwrap();
            prop_assert!(includes(&root, &items[at], at, count, &way));
            prop_assert_eq!(includes(&root, &items[other], at, count, &way), at == other);
            prop_assert_eq!(includes(&root, &items[at], other, count, &way), at == other);
            prop_assert!(!includes(&root, &items[at], at, count, &way[..way.len().saturating_sub(1)]) || way.is_empty());
            prop_assert!(!includes(&root, &items[at], count, count, &way));
        }
    }

    #[test]
    fn there_is_no_path_to_what_is_not_there() {
        assert_eq!(path(&[], 0), None);
        assert_eq!(path(&[Hash([1; 32])], 1), None);
        assert_eq!(path(&[Hash([1; 32])], 0), Some(Vec::new()));
    }

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
