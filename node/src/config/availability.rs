//! `[availability]`: when work may run. Judged whole; not built yet, so a node with windows refuses to start.

use souk_protocol::Millis;

use super::tree::Reader;

/// Most windows a week and most exceptions.
const MAX_WINDOWS: usize = 64;
const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const ENDS: [&str; 3] = ["checkpoint", "finish", "stop"];
/// Minutes of a day.
const MIDNIGHT: u16 = 24 * 60;

pub(super) fn read(r: &mut Reader) {
    timezone(r);
    for index in 0..r.tables("availability.windows", MAX_WINDOWS) {
        window(r, &format!("availability.windows[{index}]"), false);
    }
    let except = r.texts("availability.except", MAX_WINDOWS).unwrap_or_default();
    for text in except {
        let (from, to) = text.split_once("..").unwrap_or((&text, &text));
        match (from.trim().parse::<jiff::civil::Date>(), to.trim().parse::<jiff::civil::Date>()) {
            (Ok(from), Ok(to)) if from <= to => {}
            (Ok(_), Ok(_)) => r.error("availability.except", format!("{text:?} ends before it starts"), None),
            _ => {
                let hint = "e.g. \"2026-12-24\" or \"2026-12-24..2026-12-27\", both ends included";
                r.error("availability.except", format!("{text:?} is no date"), Some(hint));
            }
        }
    }
    let _: Option<Millis> = r.parse_field("availability.require_idle");
    let _ = r.word("availability.at_window_end", &ENDS);
    let _: Option<Millis> = r.parse_field("availability.notice");
}

/// A window of days and times: `{ days, from, to }`, in `pricing.peak` with a factor.
pub(super) fn window(r: &mut Reader, path: &str, has_factor: bool) {
    let days = format!("{path}.days");
    if let Some(text) = r.text(&days) {
        if !is_days(&text) {
            r.error(&days, "not days of the week", Some("e.g. \"mon-fri\", \"sat,sun\""));
        }
    } else if !r.has(&days) {
        r.error(path, "a window needs its days", Some("e.g. days = \"mon-fri\""));
    }
    let (from, to) = (format!("{path}.from"), format!("{path}.to"));
    match (time(r, &from), time(r, &to)) {
        (Some(a), Some(b)) if a == b => {
            r.error(&to, "the window is empty", Some("for a whole day leave both times out"))
        }
        (Some(MIDNIGHT), _) => r.error(&from, "24:00 can only end a window", Some("write 00:00")),
        (Some(_), None) if !r.has(&to) => {
            r.error(path, "a window with a start needs an end", Some("e.g. to = \"06:00\""))
        }
        (None, Some(_)) if !r.has(&from) => {
            r.error(path, "a window with an end needs a start", Some("e.g. from = \"22:00\""));
        }
        _ => {}
    }
    if has_factor {
        let factor = format!("{path}.factor");
        match r.text(&factor) {
            Some(text) if is_factor(&text) => {}
            Some(_) => r.error(&factor, "not a factor", Some("e.g. \"1.4\"")),
            None if r.has(&factor) => {}
            None => r.error(path, "a peak needs its factor", Some("e.g. factor = \"1.4\"")),
        }
    }
}

fn timezone(r: &mut Reader) {
    let path = "availability.timezone";
    let Some(name) = r.text(path) else {
        if r.has("availability.windows") && !r.has(path) {
            r.error("availability", "windows need a time zone", Some("e.g. timezone = \"Europe/Berlin\""));
        }
        return;
    };
    // Abbreviations and offsets have no summer time, or several.
    let is_region = name == "UTC" || (name.contains('/') && !name.starts_with("Etc/GMT"));
    let zones = jiff::tz::db();
    let is_known = zones.is_definitively_empty() || zones.get(&name).is_ok();
    if !is_region || !is_known {
        r.error(
            path,
            "not a zone of the IANA database",
            Some("e.g. \"Europe/Berlin\", \"America/New_York\" or \"UTC\""),
        );
    }
}

fn is_days(text: &str) -> bool {
    let day = |text: &str| DAYS.contains(&text.trim());
    text.split(',').all(|part| match part.split_once('-') {
        Some((from, to)) => day(from) && day(to),
        None => day(part),
    })
}

/// Minutes since midnight.
fn time(r: &mut Reader, path: &str) -> Option<u16> {
    let text = r.text(path)?;
    let two = |text: &str| {
        let is_plain = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        is_plain.then(|| text.parse::<u16>().ok()).flatten()
    };
    let minutes = text.split_once(':').and_then(|(hour, minute)| {
        let (hour, minute) = (two(hour)?, two(minute)?);
        (minute < 60).then(|| hour.saturating_mul(60).saturating_add(minute)).filter(|minutes| *minutes <= MIDNIGHT)
    });
    if minutes.is_none() {
        r.error(path, "not a time of day", Some("00:00 to 24:00"));
    }
    minutes
}

fn is_factor(text: &str) -> bool {
    let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(places) && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}
