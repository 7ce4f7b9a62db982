//! Virtual time.

use std::{fmt, ops::Add};

use souk_protocol::Millis;

/// A moment of the simulation or a stretch of it, in microseconds: fine enough to order what happens within one
/// millisecond of a node's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Micros(pub u64);

impl Micros {
    /// So many milliseconds.
    #[must_use]
    pub const fn millis(ms: u64) -> Self {
        Self(ms.saturating_mul(1_000))
    }

    /// In whole milliseconds, rounded down.
    #[must_use]
    pub const fn to_millis(self) -> Millis {
        Millis(self.0 / 1_000)
    }

    /// The stretch since `earlier`, nothing if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

impl From<Millis> for Micros {
    fn from(ms: Millis) -> Self {
        Self::millis(ms.0)
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
