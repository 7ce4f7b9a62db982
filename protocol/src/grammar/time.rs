//! Moments: RFC 3339, read with any offset, shown in UTC.

use std::str::FromStr;

use super::{GrammarError, Scan};
use crate::units::{Timestamp, days_from_civil};

impl FromStr for Timestamp {
    type Err = GrammarError;

    /// `2026-12-24T08:00:00Z`, with milliseconds and any offset.
    fn from_str(text: &str) -> Result<Self, GrammarError> {
        let mut scan = Scan::new(text);
        let year = number(&mut scan, 4, 1970..=9999)?;
        separator(&mut scan, "-")?;
        let month = number(&mut scan, 2, 1..=12)?;
        separator(&mut scan, "-")?;
        let day = number(&mut scan, 2, 1..=days_in_month(year, month))?;
        if scan.is_done() {
            return Err(shape(&scan, "the time is missing"));
        }
        if !scan.eat("T") && !scan.eat("t") {
            return Err(shape(&scan, "a \"T\" is expected between date and time"));
        }
        let hour = number(&mut scan, 2, 0..=23)?;
        separator(&mut scan, ":")?;
        let minute = number(&mut scan, 2, 0..=59)?;
        separator(&mut scan, ":")?;
        let second = number(&mut scan, 2, 0..=59)?;
        let millis = if scan.eat(".") { milliseconds(&mut scan)? } else { 0 };
        let offset_minutes = offset(&mut scan)?;
        if !scan.is_done() {
            return Err(scan.error("nothing may follow the time").with_hint("remove it"));
        }

        let days = days_from_civil(year, month, day);
        let local = days
            .saturating_mul(86_400_000)
            .saturating_add(hour.saturating_mul(3_600_000))
            .saturating_add(minute.saturating_mul(60_000))
            .saturating_add(second.saturating_mul(1_000))
            .saturating_add(millis);
        let utc = local.saturating_sub(offset_minutes.saturating_mul(60_000));
        u64::try_from(utc)
            .ok()
            .map(Self)
            .filter(|moment| *moment <= Self::LATEST_WRITTEN)
            .ok_or_else(|| GrammarError::new(text, 0, "the moment is outside the years 1970 to 9999 (UTC)"))
    }
}

fn shape(scan: &Scan<'_>, problem: &str) -> GrammarError {
    scan.error(problem).with_hint("e.g. \"2026-12-24T08:00:00Z\"")
}

fn separator(scan: &mut Scan<'_>, sign: &str) -> Result<(), GrammarError> {
    if scan.eat(sign) { Ok(()) } else { Err(shape(scan, &format!("{sign:?} is expected here"))) }
}

fn number(scan: &mut Scan<'_>, width: usize, range: std::ops::RangeInclusive<i64>) -> Result<i64, GrammarError> {
    let start = scan.at();
    let digits = scan.take_while(|c| c.is_ascii_digit());
    if digits.len() != width {
        return Err(shape(scan, &format!("{width} digits are expected here")));
    }
    let value = digits.parse().unwrap_or(i64::MAX);
    if range.contains(&value) {
        Ok(value)
    } else {
        Err(scan.error_at(start, format!("{digits} is not between {} and {}", range.start(), range.end())))
    }
}

fn milliseconds(scan: &mut Scan<'_>) -> Result<i64, GrammarError> {
    let start = scan.at();
    let digits = scan.take_while(|c| c.is_ascii_digit());
    let (kept, beyond) = digits.split_at_checked(3).unwrap_or((digits, ""));
    if digits.is_empty() || beyond.chars().any(|c| c != '0') {
        return Err(scan.error_at(start, "fractions of a second are exact to a millisecond"));
    }
    Ok(format!("{kept:0<3}").parse().unwrap_or(0))
}

/// Minutes east of UTC.
fn offset(scan: &mut Scan<'_>) -> Result<i64, GrammarError> {
    if scan.eat("Z") || scan.eat("z") {
        return Ok(0);
    }
    let sign = if scan.eat("+") {
        1
    } else if scan.eat("-") {
        -1
    } else {
        return Err(scan.error("the zone is missing").with_hint("end with \"Z\" (UTC) or an offset like \"+01:00\""));
    };
    let hours = number(scan, 2, 0..=23)?;
    separator(scan, ":")?;
    let minutes = number(scan, 2, 0..=59)?;
    Ok(hours.saturating_mul(60).saturating_add(minutes).saturating_mul(sign))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year.checked_rem(4) == Some(0) && (year.checked_rem(100) != Some(0) || year.checked_rem(400) == Some(0));
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
