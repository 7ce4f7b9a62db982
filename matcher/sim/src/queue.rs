//! What is going to happen, in order.

use std::{cmp::Ordering, collections::BinaryHeap};

use crate::time::Micros;

/// A queue by time; of two entries for one moment the one put in first comes first.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: BinaryHeap<Entry<T>>,
    count: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: Micros,
    age: u64,
    item: T,
}

impl<T> Ord for Entry<T> {
    /// The heap gives the greatest first: that is the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.age).cmp(&(self.at, self.age))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl<T> Eq for Entry<T> {}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { entries: BinaryHeap::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    /// `item` happens at `at`.
    pub(crate) fn push(&mut self, at: Micros, item: T) {
        self.count = self.count.saturating_add(1);
        self.entries.push(Entry { at, age: self.count, item });
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(Micros, T)> {
        self.entries.pop().map(|entry| (entry.at, entry.item))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_come_out_by_time_and_then_by_age(times in proptest::collection::vec(0_u64..20, 0..200)) {
            let mut queue = Queue::default();
            for (age, at) in times.iter().enumerate() {
                queue.push(Micros(*at), age);
            }
            let out: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, age)| (at.0, age)).collect();
            let mut sorted: Vec<_> = times.iter().copied().zip(0..).collect();
            sorted.sort_unstable();
            prop_assert_eq!(out, sorted);
            prop_assert_eq!(queue.pop(), None);
        }
    }
}
