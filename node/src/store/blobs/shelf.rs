//! Which blobs there are, how long ago each was used, and what the budget allows.

use std::collections::{BTreeMap, HashMap};

use blake3::Hash;

/// Most blobs of a home: about 30 MiB of memory. Beyond it the longest unused go, as with bytes.
const MAX_BLOBS: usize = 1 << 18;

#[derive(Debug)]
struct Item {
    length: u64,
    /// When it was last used, as a number that only grows.
    used: u64,
    pins: u32,
}

/// Room that an unfinished blob holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct NoRoom {
    pub(super) held: u64,
    pub(super) budget: u64,
}

#[derive(Debug)]
pub(super) struct Shelf {
    budget: u64,
    bytes: u64,
    pinned_bytes: u64,
    reserved: u64,
    clock: u64,
    items: HashMap<Hash, Item>,
    /// Unpinned blobs by their last use.
    idle: BTreeMap<u64, Hash>,
}

impl Shelf {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, bytes: 0, pinned_bytes: 0, reserved: 0, clock: 0, items: HashMap::new(), idle: BTreeMap::new() }
    }

    pub(super) fn count(&self) -> usize {
        self.items.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn length(&self, hash: &Hash) -> Option<u64> {
        self.items.get(hash).map(|item| item.length)
    }

    pub(super) fn pinned(&self, hash: &Hash) -> bool {
        self.items.get(hash).is_some_and(|item| item.pins > 0)
    }

    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }

    /// Adds a blob as the most recently used one.
    pub(super) fn insert(&mut self, hash: Hash, length: u64) {
        if self.items.contains_key(&hash) {
            return self.touch(&hash);
        }
        let used = self.tick();
        self.items.insert(hash, Item { length, used, pins: 0 });
        self.idle.insert(used, hash);
        self.bytes = self.bytes.saturating_add(length);
    }

    pub(super) fn touch(&mut self, hash: &Hash) {
        let now = self.tick();
        if let Some(item) = self.items.get_mut(hash) {
            if item.pins == 0 {
                self.idle.remove(&item.used);
                self.idle.insert(now, *hash);
            }
            item.used = now;
        }
    }

    /// `false`: it is not there.
    pub(super) fn pin(&mut self, hash: &Hash) -> bool {
        self.touch(hash);
        let Some(item) = self.items.get_mut(hash) else {
            return false;
        };
        if item.pins == 0 {
            self.idle.remove(&item.used);
            self.pinned_bytes = self.pinned_bytes.saturating_add(item.length);
        }
        item.pins = item.pins.saturating_add(1);
        true
    }

    pub(super) fn unpin(&mut self, hash: &Hash) {
        // A pinned blob may have been forgotten because its file vanished or was damaged.
        let Some(item) = self.items.get_mut(hash) else {
            return;
        };
        if item.pins == 1 {
            self.pinned_bytes = self.pinned_bytes.saturating_sub(item.length);
            self.idle.insert(item.used, *hash);
        }
        item.pins = item.pins.saturating_sub(1);
    }

    pub(super) fn forget(&mut self, hash: &Hash) {
        if let Some(item) = self.items.remove(hash) {
            self.bytes = self.bytes.saturating_sub(item.length);
            if item.pins == 0 {
                self.idle.remove(&item.used);
            } else {
                self.pinned_bytes = self.pinned_bytes.saturating_sub(item.length);
            }
        }
    }

    /// Reserves room and returns the blobs that must go for it; their files are the caller's to remove.
    pub(super) fn reserve(&mut self, length: u64) -> Result<Vec<Hash>, NoRoom> {
        let held = self.pinned_bytes.saturating_add(self.reserved);
        if held.saturating_add(length) > self.budget {
            return Err(NoRoom { held, budget: self.budget });
        }
        self.reserved = self.reserved.saturating_add(length);
        let mut evicted = Vec::new();
        while self.bytes.saturating_add(self.reserved) > self.budget || self.items.len() >= MAX_BLOBS {
            let Some((_, hash)) = self.idle.pop_first() else {
                break;
            };
            if let Some(item) = self.items.remove(&hash) {
                self.bytes = self.bytes.saturating_sub(item.length);
            }
            evicted.push(hash);
        }
        Ok(evicted)
    }

    /// Gives back what [`Shelf::reserve`] took.
    pub(super) fn release(&mut self, length: u64) {
        self.reserved = self.reserved.saturating_sub(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(byte: u8) -> Hash {
        blake3::hash(&[byte])
    }

    #[test]
    fn the_longest_unused_goes_first_and_pinned_ones_stay() {
        let mut shelf = Shelf::new(100);
        for byte in 0..4 {
            shelf.insert(hash(byte), 25);
        }
        assert!(shelf.pin(&hash(0)));
        shelf.touch(&hash(1));
        assert_eq!(shelf.reserve(30).unwrap(), vec![hash(2), hash(3)]);
        assert_eq!((shelf.bytes(), shelf.count()), (50, 2));
        let no_room = shelf.reserve(46).unwrap_err();
        assert_eq!((no_room.held, no_room.budget), (55, 100));
        shelf.release(30);
        shelf.unpin(&hash(0));
        assert_eq!(shelf.reserve(100).unwrap(), vec![hash(0), hash(1)]);
    }

    #[test]
    fn a_blob_is_free_after_its_last_pin() {
        let mut shelf = Shelf::new(10);
        shelf.insert(hash(1), 10);
        assert!(shelf.pin(&hash(1)) && shelf.pin(&hash(1)));
        shelf.unpin(&hash(1));
        assert!(shelf.reserve(1).is_err());
        shelf.unpin(&hash(1));
        assert_eq!(shelf.reserve(1).unwrap(), vec![hash(1)]);
        assert!(!shelf.pin(&hash(1)));
    }
}
