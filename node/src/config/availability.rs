//! `[availability]`: when work may run.

use std::str::FromStr;

use souk_matcher::calendar::{AtWindowEnd, Calendar, CalendarError, Dates, Days, MAX_WINDOWS, Minute, Window, Zone};
use souk_protocol::Millis;

use super::tree::Reader;

/// Warning before preemption that is granted where the file names none.
const NOTICE: Millis = Millis::from_mins(15);

/// When work may run, and what comes of it when a window ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    /// The windows and exceptions.
    pub calendar: Calendar,
    /// What happens to work that runs when a window ends.
    pub at_window_end: AtWindowEnd,
    /// Longest warning before preemption that is granted.
    pub notice: Millis,
}

pub(super) fn read(r: &mut Reader) -> Availability {
    let zone = timezone(r);
    let mut windows = Vec::new();
    for index in 0..r.tables("availability.windows", MAX_WINDOWS) {
        windows.extend(window(r, &format!("availability.windows[{index}]")));
    }
    let mut except = Vec::new();
    for text in r.texts("availability.except", MAX_WINDOWS).unwrap_or_default() {
        match text.parse::<Dates>() {
            Ok(dates) => except.push(dates),
            Err(CalendarError::Backwards) => {
                r.error("availability.except", format!("{text:?} ends before it starts"), None);
            }
            Err(_) => {
                let hint = "e.g. \"2026-12-24\" or \"2026-12-24..2026-12-27\", both ends included";
                r.error("availability.except", format!("{text:?} is no date"), Some(hint));
            }
        }
    }
    let _: Option<Millis> = r.parse_field("availability.require_idle");
    let at_window_end = super::or_default(r, "availability.at_window_end", AtWindowEnd::default(), |r, path| {
        r.word(path, &AtWindowEnd::ALL)
    });
    let notice = super::or_default(r, "availability.notice", NOTICE, Reader::parse_field);
    // What is wrong with it is an error of the file already.
    let calendar = Calendar::new(zone, windows, except).unwrap_or_default();
    Availability { calendar, at_window_end, notice }
}

/// A window of days and times: `{ days, from, to }`.
pub(super) fn window(r: &mut Reader, path: &str) -> Option<Window> {
    let field = format!("{path}.days");
    let days: Option<Days> = parse(r, &field, "not days of the week", "e.g. \"mon-fri\", \"sat,sun\"");
    if !r.has(&field) {
        r.error(path, "a window needs its days", Some("e.g. days = \"mon-fri\""));
    }
    let (from_field, to_field) = (format!("{path}.from"), format!("{path}.to"));
    let from: Option<Minute> = parse(r, &from_field, "not a time of day", "00:00 to 24:00");
    let to: Option<Minute> = parse(r, &to_field, "not a time of day", "00:00 to 24:00");
    match (from, to) {
        (Some(from), Some(to)) => match Window::new(days.unwrap_or(Days::ALL), from, to) {
            Ok(window) => return days.map(|_| window),
            Err(CalendarError::StartsAtMidnight) => {
                r.error(&from_field, "24:00 can only end a window", Some("write 00:00"));
            }
            Err(_) => r.error(&to_field, "the window is empty", Some("for a whole day leave both times out")),
        },
        (Some(_), None) if !r.has(&to_field) => {
            r.error(path, "a window with a start needs an end", Some("e.g. to = \"06:00\""));
        }
        (None, Some(_)) if !r.has(&from_field) => {
            r.error(path, "a window with an end needs a start", Some("e.g. from = \"22:00\""));
        }
        (None, None) if !r.has(&from_field) && !r.has(&to_field) => return days.map(Window::whole_days),
        _ => {}
    }
    None
}

fn parse<T: FromStr<Err = E>, E>(r: &mut Reader, path: &str, problem: &str, hint: &str) -> Option<T> {
    let parsed = r.text(path)?.parse();
    if parsed.is_err() {
        r.error(path, problem, Some(hint));
    }
    parsed.ok()
}

/// The zone of all times of day in the file.
fn timezone(r: &mut Reader) -> Zone {
    let path = "availability.timezone";
    let Some(name) = r.text(path) else {
        let hint = Some("e.g. [availability] timezone = \"Europe/Berlin\"");
        for field in ["availability.windows", "availability.except", "pricing.peak"] {
            if r.has(field) && !r.has(path) {
                r.error(field, "times of day and dates need a time zone", hint);
            }
        }
        return Zone::utc();
    };
    Zone::named(&name).unwrap_or_else(|_| {
        let hint = "e.g. \"Europe/Berlin\", \"America/New_York\" or \"UTC\"";
        r.error(path, "not a zone of the IANA database", Some(hint));
        Zone::utc()
    })
}
