//! Watts and degrees: "320W", "1.2kW", "80C".

use std::str::FromStr;

use super::{GrammarError, Scan, quantity};
use crate::units::{Celsius, MilliWatts};

const POWER: quantity::Quantity = quantity::Quantity {
    units: &[("W", 1_000), ("kW", 1_000_000)],
    whole: "milliwatts",
    example: "W",
    list: "use W or kW",
};

impl FromStr for MilliWatts {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        quantity::quantity(text, &POWER).map(Self)
    }
}

impl FromStr for Celsius {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scan = Scan::new(text);
        let number = scan.decimal()?;
        if number.places > 0 {
            return Err(scan.error_at(number.start, "whole degrees only").with_hint("e.g. \"80C\""));
        }
        if scan.is_done() {
            return Err(scan.error("add the unit").with_hint(format!("e.g. \"{text}C\"")));
        }
        if scan.rest() != "C" {
            return Err(scan.error(format!("unknown unit {}", super::shown(scan.rest()))).with_hint("write \"80C\""));
        }
        let degrees = number.times(1).ok().and_then(|whole| u32::try_from(whole).ok());
        degrees.map(Self).ok_or_else(|| scan.error_at(0, "the number is too large"))
    }
}
