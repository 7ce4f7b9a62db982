//! Logarithms, powers and the draws that need them, in whole numbers: a seed gives the same demand on every machine,
//! whatever its mathematical library.

use crate::random::Dice;

/// One, in units of 2^-32.
pub(super) const ONE: i64 = 1 << BITS;
const BITS: u32 = 32;
/// ln 2.
const LN_2: i64 = 2_977_044_472;
/// Terms of the exponential series: the next is below 2^-32 for arguments up to ln 2.
const TERMS: i64 = 12;
/// Largest exponent of two that the result of [`exp`] has room for.
const MAX_EXPONENT: i64 = 30;

/// A number in units of 2^-32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fixed(pub(super) i64);

impl Fixed {
    /// `thousandths` / 1000.
    pub(super) const fn thousandths(thousandths: i64) -> Self {
        Self(thousandths * ONE / 1_000)
    }

    pub(super) const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The product, the nearest that fits where it is too large.
    pub(super) fn times(self, other: Self) -> Self {
        let product = (i128::from(self.0) * i128::from(other.0)) >> BITS;
        Self(i64::try_from(product).unwrap_or(if product < 0 { i64::MIN } else { i64::MAX }))
    }

    /// The quotient; nothing divided by nothing is nothing.
    pub(super) fn over(self, other: Self) -> Self {
        let quotient = (i128::from(self.0) << BITS).checked_div(i128::from(other.0)).unwrap_or(0);
        Self(i64::try_from(quotient).unwrap_or(if quotient < 0 { i64::MIN } else { i64::MAX }))
    }

    /// This many of `unit`, rounded down; none if it is negative.
    pub(super) fn of(self, unit: u64) -> u64 {
        let product = (i128::from(self.0).max(0) * i128::from(unit)) >> BITS;
        u64::try_from(product).unwrap_or(u64::MAX)
    }
}

/// The natural logarithm; that of the smallest number for what is not positive.
pub(super) fn ln(x: Fixed) -> Fixed {
    let bits = x.0.max(1);
    let exponent = i64::from(63 - bits.leading_zeros()) - i64::from(BITS);
    // The mantissa, from 1 to 2, in units of 2^-62; each squaring yields one binary digit of the logarithm.
    let mut mantissa = u128::from(bits.unsigned_abs()) << (bits.leading_zeros() - 1);
    let mut log2 = exponent * ONE;
    for digit in 1..=BITS {
        mantissa = (mantissa * mantissa) >> 62;
        if mantissa >> 63 != 0 {
            mantissa >>= 1;
            log2 += ONE >> digit;
        }
    }
    Fixed(log2).times(Fixed(LN_2))
}

/// e to the power of `x`, the largest number where that is too large.
pub(super) fn exp(x: Fixed) -> Fixed {
    let exponent = x.0.div_euclid(LN_2);
    let rest = Fixed(x.0.rem_euclid(LN_2));
    let (mut sum, mut term) = (ONE, Fixed(ONE));
    for n in 1..=TERMS {
        term = Fixed(term.times(rest).0 / n);
        sum += term.0;
    }
    match exponent {
        i64::MIN..-62 => Fixed(0),
        -62..0 => Fixed(sum >> exponent.unsigned_abs()),
        0..=MAX_EXPONENT => Fixed(sum << exponent),
        _ => Fixed(i64::MAX),
    }
}

fn sqrt(x: Fixed) -> Fixed {
    let root = (u128::from(x.0.max(0).unsigned_abs()) << BITS).isqrt();
    Fixed(i64::try_from(root).unwrap_or(i64::MAX))
}

/// Evenly from 0 to 1, neither included.
pub(super) fn uniform(dice: &mut Dice) -> Fixed {
    Fixed(i64::try_from(dice.below(ONE.unsigned_abs() - 1)).unwrap_or(0) + 1)
}

/// A standard normal number, by the polar method of Marsaglia.
pub(super) fn normal(dice: &mut Dice) -> Fixed {
    loop {
        let mut side = || Fixed(uniform(dice).0 * 2 - ONE);
        let (u, v) = (side(), side());
        let square = u.times(u).plus(v.times(v));
        if square.0 > 0 && square.0 < ONE {
            let scale = sqrt(Fixed(ln(square).0.saturating_mul(-2)));
            return u.over(sqrt(square)).times(scale);
        }
    }
}

/// A gamma-distributed number with mean 1 and this shape, by the method of Marsaglia and Tsang. Its coefficient of
/// variation is `shape` to the power of -1/2.
pub(super) fn gamma(dice: &mut Dice, shape: Fixed) -> Fixed {
    let d = Fixed(shape.0 + ONE - ONE / 3);
    let c = Fixed(ONE).over(sqrt(Fixed(d.0.saturating_mul(9))));
    let raised = loop {
        let x = normal(dice);
        let root = Fixed(ONE).plus(c.times(x));
        let v = root.times(root).times(root);
        if v.0 <= 0 {
            continue;
        }
        let half = Fixed(x.times(x).0 / 2);
        let bound = half.plus(d).0.saturating_sub(d.times(v).0).saturating_add(d.times(ln(v)).0);
        if ln(uniform(dice)).0 < bound {
            break d.times(v);
        }
    };
    // That was of the shape + 1; a power of an even number takes it down to the shape.
    let power = exp(ln(uniform(dice)).over(shape));
    raised.times(power).over(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(x: Fixed) -> f64 {
        x.0 as f64 / ONE as f64
    }

    fn fixed(x: f64) -> Fixed {
        Fixed((x * ONE as f64) as i64)
    }

    #[test]
    fn logarithms_and_powers_agree_with_the_mathematical_library() {
        for x in [0.000_01, 0.02, 0.5, 0.999, 1.0, 1.5, 2.0, 10.0, 36_000.0, 1_000_000.0] {
            assert!((float(ln(fixed(x))) - float(fixed(x)).ln()).abs() < 1e-7, "ln {x} = {}", float(ln(fixed(x))));
        }
        for x in [-12.0, -1.0, -0.1, 0.0, 0.3, 1.0, 6.561, 10.49, 20.0] {
            let (got, wanted) = (float(exp(fixed(x))), f64::exp(x));
            assert!((got - wanted).abs() < 1e-9 + wanted * 1e-7, "exp {x} = {got}, not {wanted}");
        }
        assert_eq!(exp(fixed(25.0)), Fixed(i64::MAX));
        assert_eq!(exp(fixed(-60.0)), Fixed(0));
        assert_eq!(ln(Fixed(0)), ln(Fixed(1)));
    }

    /// Mean and standard deviation of many draws.
    fn moments(mut draw: impl FnMut() -> Fixed) -> (f64, f64) {
        let draws: Vec<_> = (0..100_000).map(|_| float(draw())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        (mean, variance.sqrt())
    }

    #[test]
    fn normal_numbers_have_mean_0_and_deviation_1_and_a_sixth_lies_beyond_one() {
        let mut dice = Dice::new(1, "normal");
        let (mean, deviation) = moments(|| normal(&mut dice));
        assert!(mean.abs() < 0.01 && (deviation - 1.0).abs() < 0.01, "{mean} {deviation}");
        let beyond = (0..100_000).filter(|_| normal(&mut dice).0 > ONE).count();
        assert!((15_400..16_400).contains(&beyond), "{beyond} of 100,000 beyond one deviation, 15,866 expected");
    }

    #[test]
    fn gamma_numbers_have_mean_1_and_the_variation_of_their_shape() {
        let mut dice = Dice::new(1, "gamma");
        // 1 / 1.64^2
        let (mean, deviation) = moments(|| gamma(&mut dice, Fixed::thousandths(372)));
        assert!((mean - 1.0).abs() < 0.02 && (deviation - 1.64).abs() < 0.04, "{mean} {deviation}");
    }
}
