//! Ranges: "4", "4..", "..8", "4..8", "4+".

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::GrammarError;
use crate::units::{Bytes, MilliCpu};

/// From `lo` to `hi`, both included; without `hi` there is no upper bound. What is granted is `lo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Range<T> {
    /// The least that will do.
    pub lo: T,
    /// The most that is wanted, `None` for any amount.
    pub hi: Option<T>,
}

/// A quantity that ranges are made of.
pub trait RangeItem: Copy + Ord + FromStr<Err = GrammarError> + fmt::Display {
    /// The smallest amount that means something; the lower bound of "..v", and anything below it is refused.
    const LEAST: Self;
}

impl RangeItem for MilliCpu {
    const LEAST: Self = Self(10);
}

impl RangeItem for Bytes {
    const LEAST: Self = Self(1);
}

/// A count of whole things, such as GPUs or replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Count(pub u32);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Count {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scan = super::Scan::new(text);
        let number = scan.decimal()?;
        if number.places > 0 || !scan.is_done() {
            return Err(scan.error_at(number.start, "a whole number is expected"));
        }
        let whole = number.times(1).ok().and_then(|whole| u32::try_from(whole).ok());
        whole.map(Self).ok_or_else(|| scan.error_at(number.start, "the number is too large"))
    }
}

impl RangeItem for Count {
    const LEAST: Self = Self(1);
}

impl<T: RangeItem> Range<T> {
    /// Exactly `value`.
    pub const fn exactly(value: T) -> Self {
        Self { lo: value, hi: Some(value) }
    }

    /// `value` or more.
    pub const fn at_least(value: T) -> Self {
        Self { lo: value, hi: None }
    }

    /// Whether `value` lies in the range.
    pub fn contains(&self, value: T) -> bool {
        self.lo <= value && self.hi.is_none_or(|hi| value <= hi)
    }

    /// Reads a range in which "..v" starts at `lowest`, or at v where v is smaller.
    ///
    /// # Errors
    /// Whatever the grammar of ranges or of the quantity refuses, bounds in the wrong order, and amounts too small to mean something.
    pub fn parse_from(text: &str, lowest: T) -> Result<Self, GrammarError> {
        let range = match text.split_once("..") {
            None => match text.strip_suffix('+') {
                Some(value) => Self::at_least(bound(text, value, 0)?),
                None => Self::exactly(bound(text, text, 0)?),
            },
            Some(("", "")) => {
                return Err(GrammarError::new(text, 0, "a range needs at least one bound").with_hint("e.g. \"4..8\""));
            }
            Some((lo, "")) => Self::at_least(bound(text, lo, 0)?),
            Some((lo, hi)) => {
                let hi_at = lo.len().saturating_add(2);
                if let Some(extra) = hi.find("..") {
                    return Err(GrammarError::new(text, hi_at.saturating_add(extra), "a range has two bounds")
                        .with_hint("e.g. \"4..8\""));
                }
                let hi: T = bound(text, hi, hi_at)?;
                let lo = if lo.is_empty() { lowest.min(hi) } else { bound(text, lo, 0)? };
                if lo > hi {
                    return Err(GrammarError::new(text, 0, "the lower bound is above the upper bound")
                        .with_hint(format!("write \"{hi}..{lo}\"")));
                }
                Self { lo, hi: Some(hi) }
            }
        };
        Ok(range)
    }
}

fn bound<T: RangeItem>(whole: &str, text: &str, offset: usize) -> Result<T, GrammarError> {
    let value: T = text.parse().map_err(|error: GrammarError| error.within(whole, offset))?;
    if value < T::LEAST {
        let problem = format!("too small, the least is {}", T::LEAST);
        return Err(GrammarError::new(whole, offset, problem));
    }
    Ok(value)
}

impl<T: RangeItem> FromStr for Range<T> {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        Self::parse_from(text, T::LEAST)
    }
}

impl<T: RangeItem> fmt::Display for Range<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hi {
            Some(hi) if hi == self.lo => write!(f, "{hi}"),
            Some(hi) => write!(f, "{}..{hi}", self.lo),
            None => write!(f, "{}..", self.lo),
        }
    }
}
