//! A provider that may join a pool whose members may fail.

use souk_protocol::{Hash, NodeId, Ppm};

use super::{chance::Chance, domain::Domains};
use crate::rank::{self, Cost};

/// One that may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub provider: NodeId,
    /// Its bid or offer.
    pub document: Hash,
    /// What its part costs.
    pub cost: Cost,
    /// How likely it is to deliver.
    pub reliability: Ppm,
    /// With whom it fails together.
    pub domains: Domains,
}

impl Member {
    /// Its chance to fail.
    #[must_use]
    pub fn failing(&self) -> Chance {
        Chance::of(self.reliability).not()
    }
}

/// Members that meet a goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// Their places among the candidates, ascending.
    pub members: Vec<usize>,
    /// What they cost together.
    pub cost: Cost,
    /// The chance that they miss the goal, rounded up.
    pub failing: Chance,
    /// Whether nothing cheaper meets the goal; otherwise the search was cut short.
    pub is_optimal: bool,
}

/// The candidates by cost for what they add, equal ones by lot, so that the order of arrival does not matter. Those that
/// add nothing are left out.
pub(super) fn by_worth(candidates: &[Member], root: &Hash) -> Vec<usize> {
    let mut keyed: Vec<_> = candidates
        .iter()
        .enumerate()
        .filter(|(_, member)| member.failing() < Chance::CERTAIN)
        .map(|(index, member)| {
            // Cost for each doubling of certainty, which add up where chances multiply.
            let worth = u128::from(doublings(member.failing()).max(1));
            let price = scaled(member.cost).checked_div(worth).unwrap_or(u128::MAX);
            (price, member.cost, member.failing(), rank::tie(root, &member.provider), member.document, index)
        })
        .collect();
    keyed.sort();
    keyed.into_iter().map(|(.., index)| index).collect()
}

/// A cost in parts so small that a division by [`doublings`] tells costs apart; saturates far beyond any money.
const fn scaled(cost: Cost) -> u128 {
    cost.parts().saturating_mul(1 << 16)
}

/// How often certainty has doubled, in parts of 2^-16: the binary logarithm of the chance to fail. It only decides the
/// order of the search, never whether a goal is met.
fn doublings(failing: Chance) -> u32 {
    if failing == Chance::NEVER {
        return u32::MAX;
    }
    // The chance as a 64-bit fraction, and the binary logarithm of that by repeated squaring.
    let all = Chance::CERTAIN.parts();
    let fraction = (failing.parts() << 64).checked_div(all).unwrap_or(u128::MAX).max(1);
    let whole = 64u32.saturating_sub(fraction.ilog2());
    let mut mantissa = fraction << whole.saturating_sub(1); // in [2^63, 2^64)
    let mut below = 0u32;
    for _ in 0..16 {
        below <<= 1;
        let square = mantissa.saturating_mul(mantissa) >> 63;
        if square >> 64 == 0 {
            mantissa = square;
        } else {
            mantissa = square >> 1;
            below |= 1;
        }
    }
    (whole << 16).saturating_sub(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_right_to_the_last_places() {
        for (ppm, exact) in
            [(500_000, 1.0), (250_000, 2.0), (200_000, 2.321_928), (1, 19.931_568), (999_999, 0.000_001_4)]
        {
            let got = f64::from(doublings(Chance::of(Ppm(ppm)))) / 65_536.0;
            assert!((got - exact).abs() < 3e-5, "{ppm}: {got}");
        }
    }
}
