//! Time zones: local days and times as moments.

use std::fmt;

use jiff::{
    civil::{Date, Time},
    tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase},
};
use souk_protocol::Timestamp;

use super::week::{CalendarError, Minute};

/// A zone of the IANA database that is part of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

impl Zone {
    /// The zone without clock changes.
    #[must_use]
    pub fn utc() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }

    /// A zone by its name: a region such as "Europe/Berlin", or "UTC".
    ///
    /// # Errors
    /// If there is none. Abbreviations and offsets ("PDT", "UTC+2", "Etc/GMT-2") are none: they have no summer time, or
    /// several.
    pub fn named(name: &str) -> Result<Self, CalendarError> {
        if name == "UTC" {
            return Ok(Self::utc());
        }
        let is_region = name.contains('/') && !name.to_ascii_lowercase().starts_with("etc/");
        let zones = TimeZoneDatabase::bundled();
        let rules = is_region.then(|| zones.get(name).ok()).flatten().ok_or(CalendarError::Zone)?;
        // The database finds names whatever their case.
        Ok(Self { name: rules.iana_name().unwrap_or(name).to_owned(), rules })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The local day of a moment; `None` past the year 9999.
    #[must_use]
    pub fn date(&self, at: Timestamp) -> Option<Date> {
        Some(self.rules.to_datetime(instant(at)?).date())
    }

    /// A moment for people, in local time: "Thu 2026-12-24 22:00 Europe/Berlin".
    #[must_use]
    pub fn show(&self, at: Timestamp) -> String {
        self.local(at, "%a %Y-%m-%d %H:%M").map_or_else(|| at.to_string(), |text| format!("{text} {}", self.name))
    }

    /// A moment in local time, by a format of `strftime`; `None` past the year 9999.
    #[must_use]
    pub fn local(&self, at: Timestamp, format: &str) -> Option<String> {
        jiff::fmt::strtime::format(format, &instant(at)?.to_zoned(self.rules.clone())).ok()
    }

    /// A local time written "2026-12-24 22:00" or "2026-12-24T22:00"; one that is skipped or comes twice as for windows.
    #[must_use]
    pub fn parse_local(&self, text: &str) -> Option<Timestamp> {
        let (date, time) = text.trim().split_once([' ', 'T'])?;
        self.at(date.parse().ok()?, time.trim().parse().ok()?)
    }

    /// The clock changes after `from` and before `to`, in seconds by which local time goes forward.
    #[must_use]
    pub fn changes(&self, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, i32)> {
        let (Some(start), Some(end)) = (instant(from), instant(to)) else { return Vec::new() };
        let mut before = self.rules.to_offset(start).seconds();
        let mut changes = Vec::new();
        for change in self.rules.following(start).take_while(|change| change.timestamp() < end) {
            let after = change.offset().seconds();
            if let Some(at) = moment(change.timestamp())
                && after != before
            {
                changes.push((at, after.saturating_sub(before)));
            }
            before = after;
        }
        changes
    }

    /// The moment of a local time. One that is skipped moves later by the length of the skip, of two it is the first.
    pub(super) fn at(&self, date: Date, minute: Minute) -> Option<Timestamp> {
        let (date, minutes) = match minute {
            super::MIDNIGHT => (date.tomorrow().ok()?, 0),
            Minute { .. } => (date, minute.get()),
        };
        let time = Time::new(i8::try_from(minutes / 60).ok()?, i8::try_from(minutes % 60).ok()?, 0, 0).ok()?;
        moment(self.rules.to_timestamp(date.to_datetime(time)).ok()?)
    }

    /// The first moment of a local day; that of the next one if the zone skips it.
    pub(super) fn first_moment(&self, date: Date) -> Option<Timestamp> {
        let found = self.rules.to_ambiguous_timestamp(date.to_datetime(Time::midnight()));
        let offset = found.offset();
        let at = found.compatible().ok()?;
        match offset {
            AmbiguousOffset::Gap { .. } => {
                // Local midnight is skipped: the day begins with the change that skips it.
                let after = at.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?;
                moment(self.rules.preceding(after).next()?.timestamp())
            }
            AmbiguousOffset::Fold { .. } | AmbiguousOffset::Unambiguous { .. } => moment(at),
        }
    }

    /// Whether the zone has this day at all: a change of the date line may skip one.
    pub(super) fn has_day(&self, date: Date) -> bool {
        let next = date.tomorrow().ok().and_then(|next| self.first_moment(next));
        self.first_moment(date).zip(next).is_some_and(|(first, next)| first < next)
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn instant(at: Timestamp) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_millisecond(i64::try_from(at.0).ok()?).ok()
}

/// `None` before 1970.
fn moment(at: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}
