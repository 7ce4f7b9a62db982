//! When a machine is for sale: weekly windows in its owner's time zone, less some dates.
//!
//! - A window is half-open, `[from, to)`, and belongs to the local day on which it starts. If `to` is not after `from`
//!   it ends on the day after. Windows that touch or overlap are one.
//! - A boundary that a clock change skips moves later by the length of the skip, one that comes twice is the first.
//!   A window that is empty then, and one of a day that a zone skipped altogether, is out.
//! - An exception is a whole local day: windows that start on it are out, and one that reaches into it from the day
//!   before ends where it begins. An owner who wants a machine back for a day has it from midnight to midnight.
//! - Without windows the calendar is always open, except on the exceptions.
//!
//! The rules of all zones are part of the program, so the answer does not depend on the machine it runs on.

use std::fmt;

use jiff::civil::Date;
use souk_protocol::Timestamp;

mod week;
mod zone;

pub use week::{CalendarError, Days, MIDNIGHT, Minute, Window};
pub use zone::Zone;

/// Most windows and most exceptions of a calendar: each question looks at all of them.
pub const MAX_WINDOWS: usize = 64;
/// How far ahead a calendar is looked through, in days: every window comes again within a year, whatever the dates.
pub const HORIZON_DAYS: i64 = 400;
/// An end that does not come within the horizon.
pub const NEVER: Timestamp = Timestamp(u64::MAX);

/// Whole local days, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dates {
    from: Date,
    to: Date,
}

impl Dates {
    /// The days from `from` to `to`.
    ///
    /// # Errors
    /// If the last is before the first.
    pub fn new(from: Date, to: Date) -> Result<Self, CalendarError> {
        if to < from { Err(CalendarError::Backwards) } else { Ok(Self { from, to }) }
    }

    fn has(&self, date: Date) -> bool {
        self.from <= date && date <= self.to
    }
}

impl std::str::FromStr for Dates {
    type Err = CalendarError;

    /// "2026-12-24" or "2026-12-24..2026-12-27".
    fn from_str(text: &str) -> Result<Self, CalendarError> {
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        let date = |text: &str| text.trim().parse::<Date>().map_err(|_| CalendarError::Date);
        Self::new(date(from)?, date(to)?)
    }
}

impl fmt::Display for Dates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to { write!(f, "{}", self.from) } else { write!(f, "{}..{}", self.from, self.to) }
    }
}

/// What happens to work that runs when a window ends. New work is never started outside of the windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AtWindowEnd {
    /// It is told in time to save its state, then stopped. A runtime without checkpoints is only told and stopped.
    #[default]
    Checkpoint,
    /// It ends by itself.
    Finish,
    /// It is told in time, then stopped.
    Stop,
}

impl AtWindowEnd {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Checkpoint, Self::Finish, Self::Stop];
}

impl fmt::Display for AtWindowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Checkpoint => "checkpoint",
            Self::Finish => "finish",
            Self::Stop => "stop",
        })
    }
}

/// A time without interruption, half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Its first moment.
    pub from: Timestamp,
    /// The first moment after it.
    pub to: Timestamp,
}

impl Span {
    /// Whether a moment lies in it.
    #[must_use]
    pub fn has(&self, at: Timestamp) -> bool {
        self.from <= at && at < self.to
    }
}

/// Why a calendar is open or closed at a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There are no windows.
    NoWindows,
    /// In this window, which started on this local day.
    Window(Window, Date),
    /// The local day is an exception.
    Exception(Dates),
    /// No window is open.
    Outside,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWindows => f.write_str("no windows are set, so it is always open"),
            Self::Window(window, day) => write!(f, "window {window} of {}", day.strftime("%a %Y-%m-%d")),
            Self::Exception(dates) => write!(f, "{dates} is excepted"),
            Self::Outside => f.write_str("outside of all windows"),
        }
    }
}

/// When a machine is for sale. The default is always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    zone: Zone,
    windows: Vec<Window>,
    except: Vec<Dates>,
    /// The windows cover the week without a gap.
    covers: bool,
}

impl Default for Calendar {
    fn default() -> Self {
        Self { zone: Zone::utc(), windows: Vec::new(), except: Vec::new(), covers: true }
    }
}

impl Calendar {
    /// A calendar of windows and exceptions in a zone.
    ///
    /// # Errors
    /// If there are more than [`MAX_WINDOWS`] of either.
    pub fn new(zone: Zone, windows: Vec<Window>, except: Vec<Dates>) -> Result<Self, CalendarError> {
        if windows.len().max(except.len()) > MAX_WINDOWS {
            return Err(CalendarError::TooMany(windows.len().max(except.len())));
        }
        let covers = windows.is_empty() || week::covers(&windows);
        Ok(Self { zone, windows, except, covers })
    }

    /// The zone its times are in.
    #[must_use]
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Whether it never closes.
    #[must_use]
    pub const fn is_always_open(&self) -> bool {
        self.covers && self.except.is_empty()
    }

    /// Whether it is open at a moment.
    #[must_use]
    pub fn is_open(&self, at: Timestamp) -> bool {
        self.is_always_open() || self.around(at).any(|(span, ..)| span.has(at))
    }

    /// Why it is open or closed at a moment; of several windows the one that ends last.
    #[must_use]
    pub fn why(&self, at: Timestamp) -> Why {
        if self.windows.is_empty() && self.except.is_empty() {
            return Why::NoWindows;
        }
        let open = self.around(at).filter(|(span, ..)| span.has(at)).max_by_key(|(span, ..)| span.to);
        if let Some((_, window, date)) = open {
            return window.map_or(Why::NoWindows, |window| Why::Window(window, date));
        }
        let date = self.zone.date(at);
        let excepted = date.and_then(|date| self.except.iter().find(|dates| dates.has(date)));
        excepted.map_or(Why::Outside, |dates| Why::Exception(*dates))
    }

    /// The end of the joined span that a moment lies in: `None` if it is closed then, [`NEVER`] if there is no end
    /// within [`HORIZON_DAYS`].
    #[must_use]
    pub fn open_until(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_always_open() {
            return Some(NEVER);
        }
        let horizon = Timestamp(at.0.saturating_add(DAY_MS.saturating_mul(HORIZON_DAYS.unsigned_abs())));
        let mut end = at;
        while end < horizon {
            match self.around(end).filter(|(span, ..)| span.has(end)).map(|(span, ..)| span.to).max() {
                Some(later) => end = later,
                None => return (end > at).then_some(end),
            }
        }
        Some(NEVER)
    }

    /// The first moment from `at` on at which it is open; `None` if there is none within [`HORIZON_DAYS`].
    #[must_use]
    pub fn next_open(&self, at: Timestamp) -> Option<Timestamp> {
        if self.is_open(at) {
            return Some(at);
        }
        let mut day = self.zone.date(at)?.yesterday().ok()?;
        for _ in 0..HORIZON_DAYS {
            let next = day.tomorrow().ok()?;
            // A start that a clock change moves past midnight may lie behind one of the next day.
            let starts = self.of(day).chain(self.of(next)).map(|(span, ..)| span.from);
            if let Some(first) = starts.filter(|from| *from > at).min() {
                return Some(first);
            }
            day = next;
        }
        None
    }

    /// The joined spans between two moments, cut to them. At most [`HORIZON_DAYS`] are looked through.
    #[must_use]
    pub fn spans(&self, from: Timestamp, to: Timestamp) -> Vec<Span> {
        let horizon = Timestamp(from.0.saturating_add(DAY_MS.saturating_mul(HORIZON_DAYS.unsigned_abs())));
        let to = to.min(horizon);
        let mut spans = Vec::new();
        let mut at = from;
        while at < to {
            let Some(start) = self.next_open(at).filter(|start| *start < to) else { break };
            let end = self.open_until(start).unwrap_or(start);
            spans.push(Span { from: start, to: end.min(to) });
            at = end;
        }
        spans
    }

    /// The next moment after `at` at which it opens or closes, within the horizon.
    #[must_use]
    pub fn next_change(&self, at: Timestamp) -> Option<Timestamp> {
        match self.open_until(at) {
            Some(end) => (end != NEVER).then_some(end),
            None => self.next_open(at),
        }
    }

    /// Windows of the days that can reach a moment. A window is at most a day long, and a clock change moves it by at
    /// most a day more.
    fn around(&self, at: Timestamp) -> impl Iterator<Item = Found> {
        let day = self.zone.date(at);
        let offsets = [-2, -1, 0, 1];
        offsets
            .into_iter()
            .filter_map(move |offset| day?.checked_add(jiff::Span::new().days(offset)).ok())
            .flat_map(|date| self.of(date))
    }

    /// The windows of a local day, not joined, without empty ones.
    fn of(&self, date: Date) -> impl Iterator<Item = Found> {
        const ALL_DAY: [Window; 1] = [Window::DAILY];
        let is_out = self.excepted(date) || !self.zone.has_day(date);
        let windows = if self.windows.is_empty() { &ALL_DAY[..] } else { &self.windows };
        let windows = windows.iter().filter(move |window| !is_out && window.days().has(date.weekday()));
        windows.filter_map(move |window| {
            let from = self.zone.at(date, window.from())?;
            let end_date = if window.crosses_midnight() { date.tomorrow().ok()? } else { date };
            let mut to = self.zone.at(end_date, window.to())?;
            let mut day = date;
            for _ in 0..2 {
                day = day.tomorrow().ok()?;
                // A day that the zone skips cuts nothing: there is no moment of it.
                if self.excepted(day) && self.zone.has_day(day) {
                    to = to.min(self.zone.first_moment(day)?);
                }
            }
            let given = (!self.windows.is_empty()).then_some(*window);
            (from < to).then_some((Span { from, to }, given, date))
        })
    }

    fn excepted(&self, date: Date) -> bool {
        self.except.iter().any(|dates| dates.has(date))
    }
}

/// A span, the window it comes from unless there are none, and the local day it starts on.
type Found = (Span, Option<Window>, Date);

/// Milliseconds of a day without a clock change.
const DAY_MS: u64 = 24 * 3_600_000;

#[cfg(test)]
mod tests;
