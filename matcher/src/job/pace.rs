//! How long the tasks of a job take, and when one of them takes much longer.

use souk_protocol::Millis;

/// Tasks done before their pace says something about the rest: of fewer, one that takes long is no surprise.
const ENOUGH: usize = 8;
/// Run times kept: more would not change the median by much.
const MAX_RUNS: usize = 1_025;
/// A second attempt at a task of seconds costs more than it can save.
const LEAST_DELAY: Millis = Millis(2_000);

/// Run times of the tasks done, ascending.
#[derive(Debug, Clone, Default)]
pub(super) struct Pace(Vec<Millis>);

impl Pace {
    /// A task is done.
    pub(super) fn note(&mut self, run: Millis) {
        if self.0.len() < MAX_RUNS {
            let place = self.0.partition_point(|known| *known <= run);
            self.0.insert(place, run);
        }
    }

    /// How long after it was handed out a task is a straggler: twice the median, and at least two seconds more than it.
    pub(super) fn limit(&self) -> Option<Millis> {
        let median = self.0.get(self.0.len() / 2).filter(|_| self.0.len() >= ENOUGH)?;
        Some(median.saturating_add(*median).max(median.saturating_add(LEAST_DELAY)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straggler_takes_twice_the_median_and_two_seconds_more() {
        let mut pace = Pace::default();
        for run in [9_000, 1_000, 8_000, 2_000, 7_000, 3_000, 6_000] {
            pace.note(Millis(run));
            assert_eq!(pace.limit(), None);
        }
        pace.note(Millis(5_000));
        assert_eq!(pace.limit(), Some(Millis(12_000))); // the median is 6,000, the upper of two
        for _ in 0..8 {
            pace.note(Millis(50));
        }
        assert_eq!(pace.limit(), Some(Millis(3_000))); // now it is 1,000
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pace = Pace::default();
        for run in 0..5_000 {
            pace.note(Millis(run));
        }
        assert_eq!(pace.0.len(), MAX_RUNS);
    }
}
