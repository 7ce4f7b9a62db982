//! Chance, from a seed.

use rand_chacha::ChaCha8Rng;
use rand_core::{RngCore, SeedableRng};

use crate::time::Micros;

/// Parts of a whole in `Dice::chance`.
pub const MILLION: u32 = 1_000_000;

/// Quantiles of a log-normal distribution (sigma 0.5) in thousandths of the median, each as likely as any other.
const LOG_NORMAL: [u64; 16] =
    [394, 517, 604, 677, 748, 819, 887, 961, 1_041, 1_127, 1_221, 1_336, 1_477, 1_657, 1_935, 2_535];

/// A source of chance. Two of one seed and label throw alike.
#[derive(Debug, Clone)]
pub(crate) struct Dice(ChaCha8Rng);

impl Dice {
    /// The dice of a seed for one purpose. Purposes do not disturb each other.
    #[must_use]
    pub(crate) fn new(seed: u64, label: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("souk/sim/dice");
        hasher.update(&seed.to_le_bytes());
        hasher.update(label.as_bytes());
        Self(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// A number below `end`; zero if there is none.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64().checked_rem(end).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A moment or stretch between two, both included.
    pub(crate) fn span(&mut self, low: Micros, high: Micros) -> Micros {
        Micros(self.between(low.0, high.0))
    }

    /// Whether something happens that happens `ppm` times in a million.
    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        self.below(u64::from(MILLION)) < u64::from(ppm)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = self.below(items.len() as u64);
        items.get(usize::try_from(index).ok()?)
    }

    /// A log-normal stretch around `median`, now and then (1 %) with a long tail.
    pub(crate) fn around(&mut self, median: Micros) -> Micros {
        let factor = self.pick(&LOG_NORMAL).copied().unwrap_or(1_000);
        let tail = if self.chance(10_000) { self.between(2, 12) } else { 1 };
        Micros(median.0.saturating_mul(factor).saturating_mul(tail) / 1_000)
    }

    /// Random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.0.fill_bytes(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_and_label_throw_alike_and_another_label_does_not() {
        let throw = |seed, label| Dice::new(seed, label).bytes::<16>();
        assert_eq!(throw(1, "a"), throw(1, "a"));
        assert_ne!(throw(1, "a"), throw(1, "b"));
        assert_ne!(throw(1, "a"), throw(2, "a"));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut dice = Dice::new(7, "bounds");
        for _ in 0..1_000 {
            assert!((3..=5).contains(&dice.between(3, 5)));
            assert!(dice.around(Micros(1_000)).0 >= 394);
        }
        assert_eq!(dice.below(0), 0);
        assert!(!dice.chance(0));
        assert!(dice.chance(MILLION));
        assert_eq!(dice.pick::<u8>(&[]), None);
    }
}
