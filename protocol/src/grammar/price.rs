//! Money and prices: "40 CR", "2.20 CR/h", "0.31 CR/kWh"; exact decimals of at most 6 places.

use std::str::FromStr;

use super::{GrammarError, Scan};
use crate::money::{Balance, Credits, PowerPrice, Rate};

/// Micro-credits are the smallest unit, so no more places can be meant.
const MAX_PLACES: u32 = 6;
const MICRO: u64 = 1_000_000;
const SECONDS_PER_HOUR: u64 = 3_600;

/// The amount in micro-credits and the unit after it, with its place.
fn amount<'a>(text: &'a str, example: &str) -> Result<(u64, &'a str, Scan<'a>), GrammarError> {
    let mut scan = Scan::new(text);
    let number = scan.decimal()?;
    let digits = text.get(number.start..scan.at()).unwrap_or(text);
    if number.places > MAX_PLACES {
        return Err(scan
            .error_at(number.start, format!("at most {MAX_PLACES} places after the point"))
            .with_hint("0.000001 CR is the smallest amount"));
    }
    let Ok(micro) = number.times(MICRO) else {
        return Err(scan.error_at(number.start, "the amount is too large"));
    };
    if scan.is_done() {
        return Err(scan.error("add the unit").with_hint(format!("e.g. \"{digits} {example}\"")));
    }
    if !scan.eat(" ") {
        return Err(scan
            .error("a space and the unit are expected here")
            .with_hint(format!("e.g. \"{digits} {example}\"")));
    }
    Ok((micro, scan.rest(), scan))
}

fn wrong_unit(scan: &Scan<'_>, unit: &str, example: &str) -> GrammarError {
    scan.error(format!("unknown unit {}", super::shown(unit))).with_hint(format!("write {example:?}"))
}

impl FromStr for Credits {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let (micro, unit, scan) = amount(text, "CR")?;
        match unit {
            "CR" => Ok(Self(micro)),
            "CR/h" | "CR/s" => Err(scan.error("an amount, not a price by time, is expected").with_hint("write \"CR\"")),
            other => Err(wrong_unit(&scan, other, "CR")),
        }
    }
}

impl FromStr for Balance {
    type Err = GrammarError;

    /// An amount with an optional "-": what a peer owes (plus) or is owed (minus).
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let (digits, negative) = text.strip_prefix('-').map_or((text, false), |digits| (digits, true));
        let Credits(micro) = digits.parse().map_err(|error: GrammarError| error.within(text, usize::from(negative)))?;
        let signed = if negative { 0i64.checked_sub_unsigned(micro) } else { i64::try_from(micro).ok() };
        signed.map(Self).ok_or_else(|| GrammarError::new(text, 0, "the amount is too large"))
    }
}

impl FromStr for Rate {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let (micro, unit, scan) = amount(text, "CR/h")?;
        match unit {
            "CR/h" => Ok(Self(micro)),
            "CR/s" => {
                micro.checked_mul(SECONDS_PER_HOUR).map(Self).ok_or_else(|| scan.error_at(0, "the price is too large"))
            }
            "CR" => Err(scan.error("a price needs its time").with_hint("write \"CR/h\"")),
            other => Err(wrong_unit(&scan, other, "CR/h")),
        }
    }
}

impl FromStr for PowerPrice {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let (micro, unit, scan) = amount(text, "CR/kWh")?;
        if unit == "CR/kWh" { Ok(Self(micro)) } else { Err(wrong_unit(&scan, unit, "CR/kWh")) }
    }
}
