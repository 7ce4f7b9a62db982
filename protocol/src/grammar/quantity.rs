//! Sizes, cores, shares and bandwidth.

use std::str::FromStr;

use super::{GrammarError, Scan, scan::Unfit};
use crate::units::{BitsPerSecond, Bytes, MilliCpu, Ppm};

pub(super) const SIZE_UNITS: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

const BANDWIDTH_UNITS: &[(&str, u64)] = &[
    ("kbps", 1_000),
    ("Mbps", 1_000_000),
    ("Gbps", 1_000_000_000),
    ("kB/s", 8_000),
    ("MB/s", 8_000_000),
    ("GB/s", 8_000_000_000),
];

/// What one kind of quantity looks like, for its messages.
pub(super) struct Quantity {
    pub(super) units: &'static [(&'static str, u64)],
    /// The smallest amount, in words: "byte".
    pub(super) whole: &'static str,
    /// Unit shown in the example when a unit is missing.
    pub(super) example: &'static str,
    pub(super) list: &'static str,
}

pub(super) const SIZE: Quantity =
    Quantity { units: SIZE_UNITS, whole: "bytes", example: "GB", list: "use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB" };

const BANDWIDTH: Quantity = Quantity {
    units: BANDWIDTH_UNITS,
    whole: "bits per second",
    example: "Mbps",
    list: "use kbps, Mbps, Gbps, kB/s, MB/s or GB/s",
};

/// `DEC [space] unit`, to the end of the value.
pub(super) fn quantity(text: &str, kind: &Quantity) -> Result<u64, GrammarError> {
    let mut scan = Scan::new(text);
    let number = scan.decimal()?;
    let digits_end = scan.at();
    scan.eat(" ");
    let unit = scan.rest();
    if unit.is_empty() {
        let digits = text.get(..digits_end).unwrap_or(text);
        return Err(
            GrammarError::new(text, text.len(), "add a unit").with_hint(format!("e.g. \"{digits}{}\"", kind.example))
        );
    }
    let Some((_, factor)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        return Err(unknown_unit(&scan, unit, kind));
    };
    number.times(*factor).map_err(|unfit| match unfit {
        Unfit::TooLarge => scan.error_at(number.start, "the number is too large"),
        Unfit::NotWhole => scan
            .error_at(number.start, format!("not a whole number of {}", kind.whole))
            .with_hint("use a smaller unit or another number"),
    })
}

fn unknown_unit(scan: &Scan<'_>, unit: &str, kind: &Quantity) -> GrammarError {
    if unit.starts_with(char::is_whitespace) || unit.ends_with(char::is_whitespace) {
        return scan.error("a space or line end is not allowed here").with_hint("remove it");
    }
    let error = scan.error(format!("unknown unit {}", super::shown(unit)));
    if unit == "m" && kind.example == "GB" {
        // Kubernetes reads it as a thousandth of a byte, others as a megabyte.
        return error.with_hint("use M or MB");
    }
    match kind.units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        Some((name, _)) => error.with_hint(format!("did you mean {name:?}?")),
        None => error.with_hint(kind.list),
    }
}

impl FromStr for Bytes {
    type Err = GrammarError;

    /// `DEC [space] unit`; a bare number, a fraction of a byte and unknown units are refused.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        quantity(text, &SIZE).map(Self)
    }
}

impl FromStr for BitsPerSecond {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        quantity(text, &BANDWIDTH).map(Self)
    }
}

impl FromStr for MilliCpu {
    type Err = GrammarError;

    /// Cores in steps of 0.001 ("4", "0.5"), or thousandths ("500m").
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scan = Scan::new(text);
        let number = scan.decimal()?;
        let factor = if scan.eat("m") { 1 } else { 1_000 };
        if !scan.is_done() {
            return Err(scan
                .error(format!("unknown unit {}", super::shown(scan.rest())))
                .with_hint("write cores (\"4\", \"0.5\") or thousandths (\"500m\")"));
        }
        number.times(factor).map(Self).map_err(|unfit| match unfit {
            Unfit::TooLarge => scan.error_at(number.start, "the number is too large"),
            Unfit::NotWhole => {
                scan.error_at(number.start, "cores come in steps of 0.001").with_hint("e.g. \"0.5\" or \"500m\"")
            }
        })
    }
}

impl FromStr for Ppm {
    type Err = GrammarError;

    /// A share: "0.95" or "95%", exact to a millionth.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scan = Scan::new(text);
        let number = scan.decimal()?;
        let percent = scan.eat("%");
        if !scan.is_done() {
            return Err(scan
                .error("a share is a number from 0 to 1 or a percentage")
                .with_hint("e.g. \"0.95\" or \"95%\""));
        }
        let factor = if percent { 10_000 } else { 1_000_000 };
        let millionths = number.times(factor).map_err(|unfit| match unfit {
            Unfit::TooLarge => scan.error_at(number.start, "a share is at most 1"),
            Unfit::NotWhole => {
                scan.error_at(number.start, "a share is exact to a millionth").with_hint("use fewer digits")
            }
        })?;
        let share = u32::try_from(millionths).ok().filter(|ppm| *ppm <= Self::ONE.0).map(Self);
        share.ok_or_else(|| {
            let error = scan.error_at(number.start, "a share is at most 1");
            match number.times(1) {
                Ok(whole @ 2..=100) if !percent => error.with_hint(format!("did you mean \"{whole}%\"?")),
                _ => error,
            }
        })
    }
}
