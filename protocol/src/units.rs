//! Quantities as types: sizes, times, cores, shares, bandwidth, power.
//!
//! On the wire each is a plain integer. For people (TOML, JSON) it is text in the grammar of the job file, which
//! reads back to exactly the same value.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Implements serde for a unit: an integer in binary encodings, its text for people.
macro_rules! human_serde {
    ($name:ident, $inner:ty) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() { serializer.collect_str(self) } else { self.0.serialize(serializer) }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = String::deserialize(deserializer)?;
                    text.parse().map_err(serde::de::Error::custom)
                } else {
                    <$inner>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}
pub(crate) use human_serde;

/// Implements the checked operations of an unsigned quantity.
macro_rules! checked_ops {
    ($name:ident, $inner:ty) => {
        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);
            /// The largest value that can be written down.
            pub const MAX: Self = Self(<$inner>::MAX);

            /// The sum, or `None` where it does not fit.
            pub const fn checked_add(self, other: Self) -> Option<Self> {
                match self.0.checked_add(other.0) {
                    Some(sum) => Some(Self(sum)),
                    None => None,
                }
            }

            /// The difference, or `None` where it would be negative.
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(difference) => Some(Self(difference)),
                    None => None,
                }
            }

            /// The product with a count, or `None` where it does not fit.
            pub const fn checked_mul(self, count: $inner) -> Option<Self> {
                match self.0.checked_mul(count) {
                    Some(product) => Some(Self(product)),
                    None => None,
                }
            }

            /// The difference, or nothing where it would be negative.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The sum, or the largest value where it does not fit.
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Whether there is nothing.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }
        }
    };
}
pub(crate) use checked_ops;

/// A size in bytes, written "8GB" or "8GiB".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Bytes(pub u64);
human_serde!(Bytes, u64);
checked_ops!(Bytes, u64);

/// A duration in milliseconds, written "1h30m".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Millis(pub u64);
human_serde!(Millis, u64);
checked_ops!(Millis, u64);

/// A moment in milliseconds since 1970-01-01T00:00:00Z, written in RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub u64);
human_serde!(Timestamp, u64);

/// Thousandths of a CPU core, written "4", "0.5" or "500m".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MilliCpu(pub u64);
human_serde!(MilliCpu, u64);
checked_ops!(MilliCpu, u64);

/// A share in millionths, from 0 to 1,000,000, written "0.95" or "95%".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Ppm(pub u32);
human_serde!(Ppm, u32);

/// A bandwidth in bits per second, written "50Mbps" or "6.25MB/s".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct BitsPerSecond(pub u64);
human_serde!(BitsPerSecond, u64);
checked_ops!(BitsPerSecond, u64);

/// Electrical power in milliwatts, written "320W" or "1.2kW".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MilliWatts(pub u64);
human_serde!(MilliWatts, u64);
checked_ops!(MilliWatts, u64);

/// A temperature in whole degrees Celsius, written "80C".
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Celsius(pub u32);
human_serde!(Celsius, u32);

impl Bytes {
    /// `mib` binary megabytes, as device drivers report memory.
    pub const fn from_mib(mib: u64) -> Option<Self> {
        match mib.checked_mul(1 << 20) {
            Some(bytes) => Some(Self(bytes)),
            None => None,
        }
    }

    /// A rounded form for tables, "24.6 GB"; `Display` is the exact one.
    pub fn short(self) -> String {
        const UNITS: [(&str, u64); 4] =
            [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];
        let Some((name, unit)) = UNITS.into_iter().find(|(_, unit)| self.0 >= *unit) else {
            return format!("{} B", self.0);
        };
        // Tenths, rounded half up; a whole number of units is shown without the point.
        let tenths = u128::from(self.0).saturating_mul(10).saturating_add(u128::from(unit >> 1));
        let tenths = tenths.checked_div(u128::from(unit)).unwrap_or(0);
        match (tenths / 10, tenths % 10) {
            (whole, 0) => format!("{whole} {name}"),
            (whole, tenth) => format!("{whole}.{tenth} {name}"),
        }
    }
}

impl fmt::Display for Bytes {
    /// Exact, in the unit that makes it shortest.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 9] = [
            ("TB", 1_000_000_000_000),
            ("GB", 1_000_000_000),
            ("MB", 1_000_000),
            ("kB", 1_000),
            ("TiB", 1 << 40),
            ("GiB", 1 << 30),
            ("MiB", 1 << 20),
            ("KiB", 1 << 10),
            ("B", 1),
        ];
        let whole = |unit: u64| (self.0.checked_rem(unit) == Some(0)).then(|| self.0.checked_div(unit)).flatten();
        let shortest = UNITS
            .into_iter()
            .filter_map(|(name, unit)| whole(unit).map(|amount| format!("{amount}{name}")))
            .min_by_key(String::len);
        match shortest {
            Some(text) if self.0 > 0 => f.write_str(&text),
            _ => f.write_str("0B"),
        }
    }
}

impl Millis {
    /// `seconds` as a duration, or the longest one where it does not fit.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000))
    }

    /// `minutes` as a duration, or the longest one where it does not fit.
    pub const fn from_mins(minutes: u64) -> Self {
        Self(minutes.saturating_mul(60_000))
    }

    /// `hours` as a duration, or the longest one where it does not fit.
    pub const fn from_hours(hours: u64) -> Self {
        Self(hours.saturating_mul(3_600_000))
    }

    /// The same length of time for the standard library.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

impl From<std::time::Duration> for Millis {
    /// Whole milliseconds, rounded down.
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Millis {
    /// Exact, from days to milliseconds: "1h30m", "250ms", "0s".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut left = self.0;
        for (name, unit) in UNITS {
            let amount = left.checked_div(unit).unwrap_or(0);
            left = left.checked_rem(unit).unwrap_or(0);
            if amount > 0 {
                write!(f, "{amount}{name}")?;
            }
        }
        Ok(())
    }
}

impl Timestamp {
    /// The last moment that RFC 3339 can write, 9999-12-31T23:59:59.999Z.
    pub const LATEST_WRITTEN: Self = Self(253_402_300_799_999);

    /// The moment `duration` later, or `None` where it does not fit.
    pub const fn checked_add(self, duration: Millis) -> Option<Self> {
        match self.0.checked_add(duration.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// The moment `duration` later, or the last one where it does not fit.
    pub const fn saturating_add(self, duration: Millis) -> Self {
        Self(self.0.saturating_add(duration.0))
    }

    /// The moment `duration` earlier, or the first one.
    pub const fn saturating_sub(self, duration: Millis) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }

    /// The time from `earlier` to this moment, `None` where `earlier` is later.
    pub const fn checked_since(self, earlier: Self) -> Option<Millis> {
        match self.0.checked_sub(earlier.0) {
            Some(elapsed) => Some(Millis(elapsed)),
            None => None,
        }
    }

    /// The time from `earlier` to this moment, nothing where `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Millis {
        Millis(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC, with milliseconds only where there are any.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0 / 86_400_000;
        let ms = self.0 % 86_400_000;
        let (year, month, day) = civil_from_days(i64::try_from(days).unwrap_or(i64::MAX));
        let (hour, minute, second) = (ms / 3_600_000, (ms / 60_000) % 60, (ms / 1_000) % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")?;
        match ms % 1_000 {
            0 => f.write_str("Z"),
            millis => write!(f, ".{millis:03}Z"),
        }
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar; years are counted from March, so that the leap day is the last.
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = month.saturating_add(9).rem_euclid(12);
    let day_of_year = shifted_month.saturating_mul(153).saturating_add(2) / 5;
    let day_of_year = day_of_year.saturating_add(day).saturating_sub(1);
    let leap_days = (year_of_era / 4).saturating_sub(year_of_era / 100);
    let day_of_era = year_of_era.saturating_mul(365).saturating_add(leap_days).saturating_add(day_of_year);
    era.saturating_mul(146_097).saturating_add(day_of_era).saturating_sub(719_468)
}

/// The date of a day counted from 1970-01-01: year, month, day.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let correction = (day_of_era / 1_460).saturating_add(day_of_era / 146_096).saturating_sub(day_of_era / 36_524);
    let year_of_era = day_of_era.saturating_sub(correction) / 365;
    let leap_days = (year_of_era / 4).saturating_sub(year_of_era / 100);
    let day_of_year = day_of_era.saturating_sub(year_of_era.saturating_mul(365).saturating_add(leap_days));
    let shifted_month = day_of_year.saturating_mul(5).saturating_add(2) / 153;
    let month_start = shifted_month.saturating_mul(153).saturating_add(2) / 5;
    let day = day_of_year.saturating_sub(month_start).saturating_add(1);
    let month = if shifted_month < 10 { shifted_month.saturating_add(3) } else { shifted_month.saturating_sub(9) };
    let year = year_of_era.saturating_add(era.saturating_mul(400));
    (if month <= 2 { year.saturating_add(1) } else { year }, month, day)
}

impl MilliCpu {
    /// `cores` whole cores, or the largest amount where it does not fit.
    pub const fn from_cores(cores: u64) -> Self {
        Self(cores.saturating_mul(1_000))
    }
}

impl fmt::Display for MilliCpu {
    /// Cores: "4", "0.5".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 1_000, 3)
    }
}

impl Ppm {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const ONE: Self = Self(1_000_000);

    /// `whole` times this share, rounded down.
    pub const fn of(self, whole: u64) -> u64 {
        let product = (whole as u128).saturating_mul(self.0 as u128) / 1_000_000;
        if product > u64::MAX as u128 {
            return u64::MAX;
        }
        #[expect(clippy::cast_possible_truncation, reason = "compared with the largest u64 above")]
        let whole = product as u64;
        whole
    }
}

impl fmt::Display for Ppm {
    /// A number from 0 to 1: "0.95".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, u64::from(self.0), 1_000_000, 6)
    }
}

impl fmt::Display for BitsPerSecond {
    /// Exact, in the largest unit that gives at most three places.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, places, name) = match self.0 {
            0..1_000_000 => (1_000, 3, "kbps"),
            1_000_000..1_000_000_000 => (1_000_000, 6, "Mbps"),
            _ => (1_000_000_000, 9, "Gbps"),
        };
        write_decimal(f, self.0, unit, places)?;
        f.write_str(name)
    }
}

impl fmt::Display for MilliWatts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_decimal(f, self.0, 1_000, 3)?;
        f.write_str("W")
    }
}

impl fmt::Display for Celsius {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}C", self.0)
    }
}

/// `amount / unit` without zeros at the end; `unit` is 10^places.
fn write_decimal(f: &mut fmt::Formatter<'_>, amount: u64, unit: u64, places: usize) -> fmt::Result {
    let whole = amount.checked_div(unit).unwrap_or(0);
    let fraction = amount.checked_rem(unit).unwrap_or(0);
    if fraction == 0 {
        return write!(f, "{whole}");
    }
    let digits = format!("{fraction:0places$}");
    write!(f, "{whole}.{}", digits.trim_end_matches('0'))
}

#[cfg(test)]
mod tests;
