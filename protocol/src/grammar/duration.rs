//! Durations: "1h30m", "1.5h", "250ms", or ISO 8601 "PT1H30M".

use std::str::FromStr;

use super::{GrammarError, Scan, scan::Unfit};
use crate::units::Millis;

/// Largest first, the order in which they may follow each other.
const UNITS: &[(&str, u64)] =
    &[("w", 604_800_000), ("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

const ISO_DATE: &[(char, u64)] = &[('W', 604_800_000), ('D', 86_400_000)];
const ISO_TIME: &[(char, u64)] = &[('H', 3_600_000), ('M', 60_000), ('S', 1_000)];

impl FromStr for Millis {
    type Err = GrammarError;

    fn from_str(text: &str) -> Result<Self, GrammarError> {
        if text.starts_with('P') { iso(text) } else { short(text) }
    }
}

fn short(text: &str) -> Result<Millis, GrammarError> {
    let mut scan = Scan::new(text);
    let mut total = Millis(0);
    // Units still allowed: each one at most once, from large to small.
    let mut allowed = UNITS;
    loop {
        let number = scan.decimal()?;
        let unit_at = scan.at();
        let unit = scan.take_while(|c| c.is_alphabetic());
        if unit.is_empty() && scan.is_done() {
            let digits = text.get(number.start..unit_at).unwrap_or(text);
            return Err(scan.error("add a unit").with_hint(format!("e.g. \"{digits}s\" or \"{digits}m\"")));
        }
        let Some(index) = allowed.iter().position(|(name, _)| *name == unit) else {
            return Err(wrong_unit(&scan, unit_at, unit));
        };
        let factor = allowed.get(index).map_or(1, |(_, factor)| *factor);
        allowed = allowed.get(index.saturating_add(1)..).unwrap_or(&[]);
        total = add(&scan, total, number.times(factor), number.start)?;
        if scan.is_done() {
            return Ok(total);
        }
    }
}

fn wrong_unit(scan: &Scan<'_>, at: usize, unit: &str) -> GrammarError {
    let list = "use ms, s, m, h, d or w";
    if unit.is_empty() {
        return scan.error_at(at, "a unit is expected here").with_hint(list);
    }
    if UNITS.iter().any(|(name, _)| *name == unit) {
        return scan.error_at(at, "units go from large to small, each at most once").with_hint("e.g. \"1h30m\"");
    }
    let error = scan.error_at(at, format!("unknown unit {}", super::shown(unit)));
    match unit {
        "M" => error.with_hint("use \"m\" for minutes; months have no fixed length"),
        "mo" | "mon" | "month" | "months" | "y" | "yr" | "year" | "years" => {
            error.with_hint("months and years have no fixed length, use d or w")
        }
        _ => match UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
            Some((name, _)) => error.with_hint(format!("did you mean {name:?}?")),
            None => error.with_hint(list),
        },
    }
}

fn iso(text: &str) -> Result<Millis, GrammarError> {
    let mut scan = Scan::new(text);
    scan.eat("P");
    let mut total = Millis(0);
    let mut in_time = false;
    let mut allowed = ISO_DATE;
    let mut any = false;
    loop {
        if !in_time && scan.eat("T") {
            in_time = true;
            allowed = ISO_TIME;
            any = false;
        }
        if scan.is_done() {
            break;
        }
        let number = scan.decimal()?;
        let letter = scan.rest().chars().next();
        let Some(index) = letter.and_then(|l| allowed.iter().position(|(name, _)| *name == l)) else {
            let error = scan.error("not an ISO 8601 duration");
            return Err(match letter {
                Some('Y' | 'M') if !in_time => error.with_hint("months and years have no fixed length, use D or W"),
                _ => error.with_hint("e.g. \"PT1H30M\" or \"1h30m\""),
            });
        };
        let (name, factor) = allowed.get(index).copied().unwrap_or(('S', 1_000));
        if number.places > 0 && name != 'S' {
            return Err(scan.error_at(number.start, "only seconds may have a fraction in ISO 8601"));
        }
        scan.take_while(|c| c == name);
        allowed = allowed.get(index.saturating_add(1)..).unwrap_or(&[]);
        total = add(&scan, total, number.times(factor), number.start)?;
        any = true;
    }
    if any { Ok(total) } else { Err(scan.error("an amount is missing at the end").with_hint("e.g. \"PT1H30M\"")) }
}

fn add(scan: &Scan<'_>, total: Millis, part: Result<u64, Unfit>, at: usize) -> Result<Millis, GrammarError> {
    match part {
        Ok(ms) => total.checked_add(Millis(ms)).ok_or_else(|| scan.error_at(at, "the duration is too long")),
        Err(Unfit::TooLarge) => Err(scan.error_at(at, "the duration is too long")),
        Err(Unfit::NotWhole) => {
            Err(scan.error_at(at, "not a whole number of milliseconds").with_hint("use fewer digits"))
        }
    }
}
