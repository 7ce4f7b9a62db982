//! A cursor over a value, and exact decimals.

use super::GrammarError;

/// Reads a value from left to right.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scan<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    pub(crate) fn is_done(&self) -> bool {
        self.rest().is_empty()
    }

    pub(crate) fn eat(&mut self, part: &str) -> bool {
        let found = self.rest().starts_with(part);
        if found {
            self.skip(part.len());
        }
        found
    }

    pub(crate) fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c| !keep(c)).unwrap_or(rest.len());
        self.skip(end);
        rest.get(..end).unwrap_or("")
    }

    fn skip(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes);
    }

    pub(crate) fn error(&self, problem: impl Into<String>) -> GrammarError {
        GrammarError::new(self.text, self.at, problem)
    }

    pub(crate) fn error_at(&self, position: usize, problem: impl Into<String>) -> GrammarError {
        GrammarError::new(self.text, position, problem)
    }

    /// `digits [ "." digits ]`, without sign and exponent.
    pub(crate) fn decimal(&mut self) -> Result<Decimal, GrammarError> {
        let start = self.at;
        let whole = self.take_while(|c| c.is_ascii_digit());
        if whole.is_empty() {
            return Err(self.not_a_number());
        }
        let mut fraction = "";
        // ".." belongs to a range, never to a number.
        if self.rest().starts_with('.') && !self.rest().starts_with("..") {
            self.eat(".");
            fraction = self.take_while(|c| c.is_ascii_digit());
            if fraction.is_empty() {
                return Err(self.error("a digit is missing after the point"));
            }
        }
        let mut letters = self.rest().chars();
        if matches!(letters.next(), Some('e' | 'E'))
            && letters.next().is_none_or(|c| c.is_ascii_digit() || "+-".contains(c))
        {
            return Err(self.error("exponents are not allowed").with_hint("write the number out"));
        }
        let too_long = || self.error_at(start, "the number is too large");
        let mut mantissa: u128 = 0;
        for digit in whole.chars().chain(fraction.chars()).filter_map(|c| c.to_digit(10)) {
            mantissa = mantissa.checked_mul(10).and_then(|m| m.checked_add(u128::from(digit))).ok_or_else(too_long)?;
        }
        let places = u32::try_from(fraction.len()).map_err(|_| too_long())?;
        Ok(Decimal { mantissa, places, start })
    }

    fn not_a_number(&self) -> GrammarError {
        let rest = self.rest();
        let lower = rest.to_ascii_lowercase();
        if rest.is_empty() && self.at == 0 {
            self.error("the value is empty")
        } else if rest.is_empty() {
            self.error("a number is missing at the end")
        } else if rest.starts_with('-') {
            self.error("a negative number means nothing here")
        } else if rest.starts_with('+') {
            self.error("a sign is not allowed").with_hint("leave out the \"+\"")
        } else if rest.starts_with(char::is_whitespace) {
            self.error("a space is not allowed here").with_hint("remove it")
        } else if rest.starts_with('.') {
            self.error("a digit is missing before the point").with_hint("e.g. \"0.5\"")
        } else if lower.starts_with("nan") || lower.starts_with("inf") {
            self.error("not a finite number")
        } else {
            self.error("a number is expected here")
        }
    }
}

/// An exact decimal: `mantissa / 10^places`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decimal {
    mantissa: u128,
    /// Digits written after the point.
    pub(crate) places: u32,
    /// Where the number starts in its value.
    pub(crate) start: usize,
}

/// Why a decimal is no whole number of a unit that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unfit {
    TooLarge,
    NotWhole,
}

impl Decimal {
    /// `self * unit` as a whole number.
    pub(crate) fn times(self, unit: u64) -> Result<u64, Unfit> {
        // Zeros at the end of the fraction change nothing; without them the power of ten stays small.
        let mut mantissa = self.mantissa;
        let mut places = self.places;
        while places > 0 && mantissa.checked_rem(10) == Some(0) {
            mantissa = mantissa.checked_div(10).ok_or(Unfit::TooLarge)?;
            places = places.saturating_sub(1);
        }
        let product = mantissa.checked_mul(u128::from(unit)).ok_or(Unfit::TooLarge)?;
        let divisor = 10u128.checked_pow(places).ok_or(Unfit::NotWhole)?;
        if product.checked_rem(divisor) != Some(0) {
            return Err(Unfit::NotWhole);
        }
        let whole = product.checked_div(divisor).ok_or(Unfit::TooLarge)?;
        u64::try_from(whole).map_err(|_| Unfit::TooLarge)
    }
}
