//! A node's disk: an append-only journal that is behind by the time of a sync.

use std::collections::VecDeque;

use souk_matcher::{Record, Token};

use crate::time::Micros;

/// A journal of encoded records. What is durable survives a crash; of the rest a prefix may, as on a real disk where
/// the write was under way.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    durable: Vec<Vec<u8>>,
    writing: VecDeque<Write>,
    last_sync: Micros,
}

#[derive(Debug)]
struct Write {
    at: Micros,
    token: Token,
    body: Body,
}

/// A record on its way to the disk.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    /// Its bytes, which are kept.
    Kept(Vec<u8>),
    /// The record itself: nobody will ever read it again.
    Passing(Box<Record>),
}

impl Disk {
    /// Appends a record; answers when it will be durable. Records become durable in their order.
    pub(crate) fn write(&mut self, now: Micros, delay: Micros, token: Token, body: Body) -> Micros {
        let at = (now + delay).max(self.last_sync);
        self.last_sync = at;
        self.writing.push_back(Write { at, token, body });
        at
    }

    /// The next record that is durable by now, if there is one. It will survive any crash from now on.
    pub(crate) fn synced(&mut self, now: Micros) -> Option<(Token, Body)> {
        let write = self.writing.pop_front_if(|write| write.at <= now)?;
        if let Body::Kept(bytes) = &write.body {
            self.durable.push(bytes.clone());
        }
        Some((write.token, write.body))
    }

    /// Loses what was being written, but for the first `kept` records. Answers how many these were.
    pub(crate) fn crash(&mut self, kept: usize) -> usize {
        let kept = kept.min(self.writing.len());
        let bytes = |write: Write| if let Body::Kept(bytes) = write.body { Some(bytes) } else { None };
        self.durable.extend(self.writing.drain(..kept).filter_map(bytes));
        self.writing.clear();
        self.last_sync = Micros(0);
        kept
    }

    /// Records on their way.
    #[must_use]
    pub(crate) fn pending(&self) -> usize {
        self.writing.len()
    }

    /// What a restart finds.
    #[must_use]
    pub(crate) fn records(&self) -> &[Vec<u8>] {
        &self.durable
    }

    /// A disk that lied: the newest `count` records were acknowledged and are gone. No rule can stand this; it is
    /// there to show that the invariants see it.
    pub(crate) fn forget_newest(&mut self, count: usize) {
        self.durable.truncate(self.durable.len().saturating_sub(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let mut disk = Disk::default();
        for n in 1..=3 {
            disk.write(Micros(0), Micros(10 * n), Token(n), Body::Kept(vec![u8::try_from(n).unwrap()]));
        }
        disk
    }

    #[test]
    fn records_become_durable_in_order_and_not_before_their_time() {
        let mut disk = Disk::default();
        assert_eq!(disk.write(Micros(0), Micros(50), Token(1), Body::Kept(vec![1])), Micros(50));
        // A faster write behind a slow one waits for it.
        assert_eq!(disk.write(Micros(1), Micros(5), Token(2), Body::Kept(vec![2])), Micros(50));
        assert_eq!(disk.synced(Micros(49)), None);
        assert_eq!(disk.synced(Micros(50)), Some((Token(1), Body::Kept(vec![1]))));
        assert_eq!(disk.synced(Micros(50)), Some((Token(2), Body::Kept(vec![2]))));
        assert_eq!(disk.synced(Micros(99)), None);
    }

    #[test]
    fn a_crash_loses_all_but_a_prefix_of_what_was_being_written() {
        for kept in 0..=4 {
            let mut disk = disk();
            assert_eq!(disk.synced(Micros(10)).map(|(token, _)| token), Some(Token(1)));
            assert_eq!(disk.crash(kept), kept.min(2));
            assert_eq!(disk.records().len(), 1 + kept.min(2));
            assert_eq!(disk.pending(), 0);
            assert_eq!(disk.synced(Micros(99)), None);
        }
    }

    #[test]
    fn what_was_acknowledged_survives() {
        let mut disk = disk();
        while disk.synced(Micros(30)).is_some() {}
        disk.crash(0);
        assert_eq!(disk.records(), [[1], [2], [3]]);
        disk.forget_newest(2);
        assert_eq!(disk.records(), [[1]]);
    }
}
