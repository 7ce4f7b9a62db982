//! Probabilities in fixed point, so that everybody decides a case on the boundary alike.

use souk_protocol::Ppm;

/// Parts of certainty: two factors of it stay below 2^128.
const ONE: u128 = 1_000_000_000_000_000_000;
/// Parts of a millionth.
const PPM: u128 = 1_000_000_000_000;

/// A probability in parts of 10^18.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chance(u128);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const CERTAIN: Self = Self(ONE);

    /// So many parts of 10^18, if those are no more than all.
    #[must_use]
    pub const fn from_parts(parts: u128) -> Option<Self> {
        if parts <= ONE { Some(Self(parts)) } else { None }
    }

    /// So many millionths, at most all.
    #[must_use]
    pub fn of(share: Ppm) -> Self {
        Self(u128::from(share.0).saturating_mul(PPM).min(ONE))
    }

    /// In parts of 10^18.
    #[must_use]
    pub const fn parts(self) -> u128 {
        self.0
    }

    /// That it does not happen.
    #[must_use]
    pub const fn not(self) -> Self {
        Self(ONE.saturating_sub(self.0))
    }

    /// That both of two independent events happen, rounded up: what a chance of failure needs.
    #[must_use]
    pub const fn and_up(self, other: Self) -> Self {
        Self(self.0.saturating_mul(other.0).div_ceil(ONE))
    }

    /// The same rounded down: what a chance of success needs.
    #[must_use]
    pub const fn and_down(self, other: Self) -> Self {
        Self(self.0.saturating_mul(other.0) / ONE)
    }

    /// That either of two events happens that exclude each other.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).min(ONE))
    }

    /// That all fail: a common shock takes all at once, without it each fails by itself. Rounded up.
    /// `shock + (1 - shock) * self`.
    #[must_use]
    pub fn shocked(self, shock: Self) -> Self {
        shock.or(shock.not().and_up(self))
    }

    /// The largest chance that all fail by themselves under which, with a common shock, all fail no more often than
    /// `self`; `None` if the shock alone is more than that.
    #[must_use]
    pub fn without_shock(self, shock: Self) -> Option<Self> {
        let rest = self.0.checked_sub(shock.0)?;
        if shock.0 >= ONE {
            return Some(Self::CERTAIN); // all of nothing
        }
        let left = shock.not().0;
        // floor(rest * ONE / left): the factors are below 2^60.
        rest.saturating_mul(ONE).checked_div(left).map(|parts| Self(parts.min(ONE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_rounded_against_the_claim() {
        let third = Chance::from_parts(333_333_333_333_333_333).unwrap();
        assert_eq!(third.and_up(third).parts(), 111_111_111_111_111_111);
        assert_eq!(third.and_down(third).parts(), 111_111_111_111_111_110);
        let tenth = Chance::of(Ppm(100_000));
        assert_eq!(tenth.and_up(tenth), tenth.and_down(tenth)); // exact
        assert_eq!(Chance::from_parts(1_000_000_000_000_000_001), None);
        assert_eq!(Chance::of(Ppm(2_000_000)), Chance::CERTAIN);
    }

    #[test]
    fn a_common_shock_bounds_what_any_pool_can_promise() {
        let (shock, goal) = (Chance::of(Ppm(10_000)), Chance::of(Ppm(50_000)));
        // 0.01 + 0.99 x 0.1 = 0.109.
        assert_eq!(Chance::of(Ppm(100_000)).shocked(shock), Chance::of(Ppm(109_000)));
        let most = goal.without_shock(shock).unwrap();
        assert_eq!(most.parts(), 40_404_040_404_040_404); // 0.04 / 0.99, down
        assert!(most.shocked(shock) <= goal);
        assert_eq!(shock.without_shock(goal), None);
        assert_eq!(shock.without_shock(shock), Some(Chance::NEVER));
        assert_eq!(Chance::CERTAIN.without_shock(Chance::CERTAIN), Some(Chance::CERTAIN));
    }
}
