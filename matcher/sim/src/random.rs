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

    /// The number of one of these parts, each as likely as it is large.
    pub(crate) fn weighted(&mut self, parts: &[u64]) -> usize {
        let mut left = self.below(parts.iter().fold(0, |sum: u64, part| sum.saturating_add(*part)));
        for (index, part) in parts.iter().enumerate() {
            match left.checked_sub(*part) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }

    /// A log-normal amount around `median`, with its sigma in thousandths. The tail ends at six sigma.
    pub(crate) fn log_normal(&mut self, median: u64, sigma: u32) -> u64 {
        // The sum of twelve even draws is close enough to normal, and the same on every machine.
        let sum: i64 = (0..12).map(|_| i64::try_from(self.below(1_000_001)).unwrap_or(0)).sum();
        let z = sum - 6_000_000;
        scaled(median, z.saturating_mul(i64::from(sigma)) / 1_000)
    }

    /// An exponential stretch with this mean.
    pub(crate) fn exponential(&mut self, mean: Micros) -> Micros {
        // -ln of an even draw: how often it can be doubled before it reaches one, and the rest of the way in a straight
        // line between two powers of two, which is off by less than 9 % of a doubling.
        let draw = self.below(1 << 32).max(1);
        let doublings = u64::from(draw.leading_zeros() - 32);
        let mantissa = (draw << doublings) >> 11; // from 2^20 to 2^21
        let down = ((mantissa - (1 << 20)) * 1_000_000) >> 20;
        let log2 = (doublings + 1) * 1_000_000 - down - correction(down);
        let ln = u128::from(log2) * 693_147 / 1_000_000;
        Micros(u64::try_from(u128::from(mean.0) * ln / 1_000_000).unwrap_or(u64::MAX))
    }

    /// Random bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        self.0.fill_bytes(&mut out);
        out
    }
}

/// What log2(1 + x) exceeds x by, both in millionths.
fn correction(x: u64) -> u64 {
    x * (1_000_000 - x.min(1_000_000)) / 1_000_000 * 344 / 1_000
}

/// `median` times e to the power of `exponent` millionths.
fn scaled(median: u64, exponent: i64) -> u64 {
    const ONE: u128 = 1 << 32;
    const LN_2: i64 = 693_147;
    let doublings = exponent.div_euclid(LN_2);
    let rest = u128::from(exponent.rem_euclid(LN_2).unsigned_abs());
    let (mut sum, mut term) = (ONE, ONE);
    for n in 1..=10_u128 {
        term = term * rest / (1_000_000 * n);
        sum += term;
    }
    let product = u128::from(median) * sum;
    let shift = 32 - doublings;
    let out = match u32::try_from(shift) {
        Ok(shift @ 0..=127) => product >> shift,
        Ok(_) => 0,
        Err(_) => u128::MAX,
    };
    u64::try_from(out).unwrap_or(u64::MAX)
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

    #[test]
    fn log_normal_amounts_have_their_median_and_spread() {
        let mut dice = Dice::new(1, "log-normal");
        let mut amounts: Vec<u64> = (0..20_000).map(|_| dice.log_normal(1_000_000, 1_000)).collect();
        amounts.sort_unstable();
        let (low, median, high) = (amounts[3_173], amounts[10_000], amounts[16_827]);
        // One sigma below and above the median.
        assert!((355_000..380_000).contains(&low), "{low}");
        assert!((970_000..1_030_000).contains(&median), "{median}");
        assert!((2_600_000..2_830_000).contains(&high), "{high}");
        assert_eq!(scaled(1_000, 0), 1_000);
        assert_eq!(scaled(1_000_000, 1_000_000), 2_718_282);
        assert_eq!(scaled(1_000_000, -1_000_000), 367_879);
    }

    #[test]
    fn exponential_stretches_have_their_mean_and_median() {
        let mut dice = Dice::new(1, "exponential");
        let mut stretches: Vec<u64> = (0..20_000).map(|_| dice.exponential(Micros(1_000_000)).0).collect();
        stretches.sort_unstable();
        let mean = stretches.iter().sum::<u64>() / 20_000;
        assert!((970_000..1_030_000).contains(&mean), "{mean}");
        assert!((670_000..715_000).contains(&stretches[10_000]), "{}", stretches[10_000]);
    }

    #[test]
    fn parts_are_thrown_as_often_as_they_are_large() {
        let mut dice = Dice::new(1, "parts");
        let counts = (0..10_000).fold([0; 3], |mut counts, _| {
            counts[dice.weighted(&[1, 0, 3])] += 1;
            counts
        });
        assert!(counts[1] == 0 && (2_300..2_700).contains(&counts[0]), "{counts:?}");
        assert_eq!(dice.weighted(&[]), 0);
    }
}
