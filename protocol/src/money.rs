//! Money: integers of micro-credits (10^-6 CR), checked operations, no floats.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::{Millis, checked_ops, human_serde};

/// Micro-credits in a credit.
const MICRO: u64 = 1_000_000;
const MS_PER_HOUR: u128 = 3_600_000;

/// An amount of money in micro-credits, written "0.001200 CR".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Credits(pub u64);
human_serde!(Credits, u64);
checked_ops!(Credits, u64);

/// A price by time in micro-credits an hour, written "0.340000 CR/h".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Rate(pub u64);
human_serde!(Rate, u64);
checked_ops!(Rate, u64);

/// A price of electricity in micro-credits a kilowatt-hour, written "0.310000 CR/kWh".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PowerPrice(pub u64);
human_serde!(PowerPrice, u64);

/// A signed amount in micro-credits: what a peer owes us (plus) or we owe it (minus).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Balance(pub i64);
human_serde!(Balance, i64);

/// The charge for running `run` at `rate`: `ceil(rate * ms / 3_600_000)`, rounded once; `None` where it does not fit.
pub fn charge(rate: Rate, run: Millis) -> Option<Credits> {
    let product = u128::from(rate.0).checked_mul(u128::from(run.0))?;
    let whole = product.div_ceil(MS_PER_HOUR);
    u64::try_from(whole).ok().map(Credits)
}

impl Credits {
    /// `credits` whole credits, or the largest amount where it does not fit.
    pub const fn from_credits(credits: u64) -> Self {
        Self(credits.saturating_mul(MICRO))
    }

    /// A rounded form for people, at least two significant digits: "19.20 CR", "0.0012 CR". Never "0" for something.
    pub fn short(self) -> String {
        format!("{} CR", short(self.0))
    }
}

impl Rate {
    /// The charge for running `run` at this rate, see [`charge`].
    pub fn charge(self, run: Millis) -> Option<Credits> {
        charge(self, run)
    }

    /// A rounded form for people, at least two significant digits: "0.34 CR/h". Never "0" for something.
    pub fn short(self) -> String {
        format!("{} CR/h", short(self.0))
    }
}

impl Balance {
    /// Even.
    pub const ZERO: Self = Self(0);

    /// The balance after we are owed `amount` more, or `None` where it does not fit.
    pub const fn checked_add(self, amount: Credits) -> Option<Self> {
        match self.0.checked_add_unsigned(amount.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The balance after we owe `amount` more, or `None` where it does not fit.
    pub const fn checked_sub(self, amount: Credits) -> Option<Self> {
        match self.0.checked_sub_unsigned(amount.0) {
            Some(difference) => Some(Self(difference)),
            None => None,
        }
    }

    /// What the peer owes us, nothing if we owe it.
    pub const fn owed_to_us(self) -> Credits {
        if self.0 > 0 { Credits(self.0.unsigned_abs()) } else { Credits::ZERO }
    }

    /// What we owe the peer, nothing if it owes us.
    pub const fn owed_by_us(self) -> Credits {
        if self.0 < 0 { Credits(self.0.unsigned_abs()) } else { Credits::ZERO }
    }

    /// A rounded form for people: "-0.0012 CR".
    pub fn short(self) -> String {
        format!("{}{} CR", if self.0 < 0 { "-" } else { "" }, short(self.0.unsigned_abs()))
    }
}

impl fmt::Display for Credits {
    /// Exact, always six places: "0.001200 CR".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CR", exact(self.0))
    }
}

impl fmt::Display for Rate {
    /// Exact, always six places: "0.340000 CR/h".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CR/h", exact(self.0))
    }
}

impl fmt::Display for PowerPrice {
    /// Exact, always six places: "0.310000 CR/kWh".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} CR/kWh", exact(self.0))
    }
}

impl fmt::Display for Balance {
    /// Exact, always six places, "-" where we owe.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} CR", if self.0 < 0 { "-" } else { "" }, exact(self.0.unsigned_abs()))
    }
}

fn exact(micro: u64) -> String {
    format!("{}.{:06}", micro / MICRO, micro % MICRO)
}

/// At least two places and two significant digits, rounded half up.
fn short(micro: u64) -> String {
    let places: usize = match micro {
        0 | 100_000.. => 2,
        10_000.. => 3,
        1_000.. => 4,
        100.. => 5,
        _ => 6,
    };
    // One unit of the last place shown, in micro-credits.
    let step = match places {
        2 => 10_000,
        3 => 1_000,
        4 => 100,
        5 => 10,
        _ => 1u64,
    };
    let steps = micro.saturating_add(step >> 1).checked_div(step).unwrap_or(0);
    let per_credit = MICRO.checked_div(step).unwrap_or(MICRO);
    let whole = steps.checked_div(per_credit).unwrap_or(0);
    let fraction = steps.checked_rem(per_credit).unwrap_or(0);
    format!("{whole}.{fraction:0places$}")
}

#[cfg(test)]
mod tests;
