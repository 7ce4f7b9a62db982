//! What is going to happen, in order.

use std::collections::BTreeMap;

use crate::time::Micros;

/// A queue by time; of two entries for one moment the one put in first comes first.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    entries: BTreeMap<(Micros, u64), T>,
    count: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), count: 0 }
    }
}

impl<T> Queue<T> {
    /// `item` happens at `at`.
    pub(crate) fn push(&mut self, at: Micros, item: T) {
        self.count = self.count.saturating_add(1);
        self.entries.insert((at, self.count), item);
    }

    /// What happens next, and when.
    pub(crate) fn pop(&mut self) -> Option<(Micros, T)> {
        self.entries.pop_first().map(|((at, _), item)| (at, item))
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
