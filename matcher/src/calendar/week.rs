//! Days of the week, times of day, and windows made of them.

use std::fmt;

use jiff::civil::Weekday;

/// Minutes since the start of a local day, from 0 to [`MIDNIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(u16);

/// 24:00, the end of a day.
pub const MIDNIGHT: Minute = Minute(24 * 60);

const WORDS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// A calendar cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    /// Not days of the week.
    #[error("not days of the week, such as \"mon-fri\" or \"sat,sun\"")]
    Days,
    /// Not a time of day.
    #[error("not a time of day, 00:00 to 24:00")]
    Time,
    /// A window from a time to the same time.
    #[error("the window is empty; for a whole day leave both times out")]
    Empty,
    /// 24:00 as a start.
    #[error("24:00 can only end a window, write 00:00")]
    StartsAtMidnight,
    /// Not a date.
    #[error("not a date, such as \"2026-12-24\" or \"2026-12-24..2026-12-27\", both ends included")]
    Date,
    /// Dates in the wrong order.
    #[error("ends before it starts")]
    Backwards,
    /// Not a time zone.
    #[error("not a zone of the IANA database, such as \"Europe/Berlin\", \"America/New_York\" or \"UTC\"")]
    Zone,
    /// More than a calendar holds.
    #[error("{0} items, at most {max} are allowed", max = super::MAX_WINDOWS)]
    TooMany(usize),
}

impl Minute {
    /// `minutes` after the start of the day; at most 24 hours.
    #[must_use]
    pub const fn new(minutes: u16) -> Option<Self> {
        if minutes <= MIDNIGHT.0 { Some(Self(minutes)) } else { None }
    }

    /// Minutes after the start of the day.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl std::str::FromStr for Minute {
    type Err = CalendarError;

    /// "00:00" to "24:00".
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let two = |text: &str| {
            let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
            is_plain.then(|| text.parse::<u16>().ok()).flatten()
        };
        let minutes = text.split_once(':').and_then(|(hour, minute)| {
            let (hour, minute) = (two(hour)?, two(minute).filter(|minute| *minute < 60)?);
            Self::new(hour.saturating_mul(60).saturating_add(minute))
        });
        minutes.ok_or(CalendarError::Time)
    }
}

impl fmt::Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0 / 60, self.0 % 60)
    }
}

/// Some days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    /// All seven.
    pub const ALL: Self = Self(0b111_1111);

    /// Whether a day is among them.
    #[must_use]
    pub fn has(self, day: Weekday) -> bool {
        self.has_number(day.to_monday_zero_offset().unsigned_abs())
    }

    /// By number, from Monday, 0.
    const fn has_number(self, number: u8) -> bool {
        matches!(self.0.checked_shr(number as u32), Some(bits) if bits & 1 == 1)
    }
}

impl std::str::FromStr for Days {
    type Err = CalendarError;

    /// "mon", "mon-fri", "fri-mon", "sat,sun", "mon-wed,fri".
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let number = |text: &str| WORDS.iter().position(|word| *word == text.trim()).ok_or(CalendarError::Days);
        let mut days = 0;
        for part in text.split(',') {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            let (mut day, last) = (number(from)?, number(to)?);
            // At most once around the week.
            for _ in WORDS {
                days |= 1 << day;
                if day == last {
                    break;
                }
                day = if day == 6 { 0 } else { day.saturating_add(1) };
            }
        }
        Ok(Self(days))
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, _) in WORDS.iter().enumerate().filter(|(at, _)| self.has_number(u8::try_from(*at).unwrap_or(7))) {
            match runs.last_mut() {
                Some((_, last)) if last.saturating_add(1) == at => *last = at,
                _ => runs.push((at, at)),
            }
        }
        for (count, (from, to)) in runs.into_iter().enumerate() {
            let word = |at: usize| WORDS.get(at).copied().unwrap_or_default();
            let comma = if count == 0 { "" } else { "," };
            match to.saturating_sub(from) {
                0 => write!(f, "{comma}{}", word(from))?,
                _ => write!(f, "{comma}{}-{}", word(from), word(to))?,
            }
        }
        Ok(())
    }
}

/// A time that comes back every week, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    days: Days,
    from: Minute,
    to: Minute,
}

impl Window {
    /// Every day, the whole day.
    pub(super) const DAILY: Self = Self::whole_days(Days::ALL);

    /// From a time of these days to a time of the same day, or of the next if that is not later.
    ///
    /// # Errors
    /// If the two are equal, or the first is 24:00.
    pub fn new(days: Days, from: Minute, to: Minute) -> Result<Self, CalendarError> {
        if from == to {
            Err(CalendarError::Empty)
        } else if from == MIDNIGHT {
            Err(CalendarError::StartsAtMidnight)
        } else {
            Ok(Self { days, from, to })
        }
    }

    /// These days as a whole.
    #[must_use]
    pub const fn whole_days(days: Days) -> Self {
        Self { days, from: Minute(0), to: MIDNIGHT }
    }

    /// The days on which it starts.
    #[must_use]
    pub const fn days(&self) -> Days {
        self.days
    }

    /// When it starts.
    #[must_use]
    pub const fn from(&self) -> Minute {
        self.from
    }

    /// When it ends.
    #[must_use]
    pub const fn to(&self) -> Minute {
        self.to
    }

    /// Whether it ends on the day after.
    #[must_use]
    pub fn crosses_midnight(&self) -> bool {
        self.to < self.from
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-{}", self.days, self.from, self.to)
    }
}

/// Whether windows cover the week without a gap. Clock changes cannot open one: a window ends at the very moment at
/// which one with that start begins.
pub(super) fn covers(windows: &[Window]) -> bool {
    let week = MIDNIGHT.0.saturating_mul(7);
    let mut parts: Vec<(u16, u16)> = Vec::new();
    for window in windows {
        for day in (0..7_u8).filter(|day| window.days.has_number(*day)) {
            let start = MIDNIGHT.0.saturating_mul(u16::from(day));
            let from = start.saturating_add(window.from.0);
            let next = if window.crosses_midnight() { MIDNIGHT.0 } else { 0 };
            let to = start.saturating_add(next).saturating_add(window.to.0);
            parts.push((from, to.min(week)));
            if to > week {
                parts.push((0, to.saturating_sub(week)));
            }
        }
    }
    parts.sort_unstable();
    let mut covered = 0;
    for (from, to) in parts {
        if from > covered {
            return false;
        }
        covered = covered.max(to);
    }
    covered >= week
}
