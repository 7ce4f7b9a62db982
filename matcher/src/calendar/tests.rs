use std::collections::BTreeMap;

use jiff::{
    civil::Date,
    tz::{TimeZone, TimeZoneDatabase},
};
use proptest::prelude::*;

use super::*;

const MINUTE: u64 = 60_000;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn window(days: &str, from: &str, to: &str) -> Window {
    Window::new(days.parse().unwrap(), from.parse().unwrap(), to.parse().unwrap()).unwrap()
}

fn whole(days: &str) -> Window {
    Window::whole_days(days.parse().unwrap())
}

fn calendar(zone: &str, windows: &[Window], except: &[&str]) -> Calendar {
    let except = except.iter().map(|text| text.parse().unwrap()).collect();
    Calendar::new(Zone::named(zone).unwrap(), windows.to_vec(), except).unwrap()
}

/// The spans between two moments, as text.
fn spans(calendar: &Calendar, from: &str, to: &str) -> Vec<String> {
    let text = |at: Timestamp| at.to_string().trim_end_matches(":00Z").to_owned();
    calendar.spans(at(from), at(to)).iter().map(|span| format!("{} {}", text(span.from), text(span.to))).collect()
}

/// The one span that starts between two moments.
fn only(zone: &str, window: Window, from: &str, to: &str) -> String {
    let found = spans(&calendar(zone, &[window], &[]), from, to);
    assert_eq!(found.len(), 1, "{found:?}");
    found.concat()
}

#[test]
fn days_and_times_are_read_and_shown() {
    for (text, shown) in [
        ("mon-fri", "mon-fri"),
        ("sat,sun", "sat-sun"),
        ("fri-mon", "mon,fri-sun"),
        ("wed", "wed"),
        ("mon-wed, fri", "mon-wed,fri"),
        ("sun-sat", "mon-sun"),
    ] {
        assert_eq!(text.parse::<Days>().unwrap().to_string(), shown, "{text}");
    }
    for text in ["", "Mon", "mon-", "monday", "mon..fri", "1-5"] {
        assert_eq!(text.parse::<Days>(), Err(CalendarError::Days), "{text}");
    }
    assert_eq!("24:00".parse::<Minute>(), Ok(MIDNIGHT));
    assert_eq!("09:05".parse::<Minute>().unwrap().to_string(), "09:05");
    for text in ["24:01", "9:00", "09:60", "09", "0900", "-1:00", "09:00:00"] {
        assert_eq!(text.parse::<Minute>(), Err(CalendarError::Time), "{text}");
    }
    let nine = "09:00".parse().unwrap();
    assert_eq!(Window::new(Days::ALL, nine, nine), Err(CalendarError::Empty));
    assert_eq!(Window::new(Days::ALL, MIDNIGHT, nine), Err(CalendarError::StartsAtMidnight));
    assert_eq!("2026-12-24..2026-12-24".parse::<Dates>().unwrap().to_string(), "2026-12-24");
    assert_eq!("2026-12-27..2026-12-24".parse::<Dates>(), Err(CalendarError::Backwards));
    assert_eq!("2026-02-30".parse::<Dates>(), Err(CalendarError::Date));
}

#[test]
fn only_zones_with_a_region_and_utc_are_known_whatever_their_case() {
    assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
    assert_eq!(Zone::named("UTC").unwrap().name(), "UTC");
    for name in ["PDT", "CET", "UTC+2", "Etc/GMT-2", "etc/gmt+5", "Europe/Atlantis", "", "../etc/passwd"] {
        assert_eq!(Zone::named(name), Err(CalendarError::Zone), "{name}");
    }
}

#[test]
fn windows_at_the_clock_changes_of_case_u7() {
    let berlin = |from, to, a, b| only("Europe/Berlin", window("mon-sun", from, to), a, b);
    let (spring, autumn) = (("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"), "2026-10-24T22:00:00Z");
    assert_eq!(berlin("01:00", "04:00", spring.0, spring.1), "2026-03-29T00:00 2026-03-29T02:00");
    assert_eq!(berlin("02:30", "05:00", spring.0, spring.1), "2026-03-29T01:30 2026-03-29T03:00");
    assert_eq!(berlin("01:00", "04:00", autumn, "2026-10-25T23:00:00Z"), "2026-10-24T23:00 2026-10-25T03:00");
    let night = only("Europe/Berlin", window("sat", "22:00", "02:30"), "2026-10-24T00:00:00Z", "2026-10-26T00:00:00Z");
    assert_eq!(night, "2026-10-24T20:00 2026-10-25T00:30", "until the first 02:30");
    let santiago = only("America/Santiago", whole("sun"), "2026-09-06T00:00:00Z", "2026-09-08T00:00:00Z");
    assert_eq!(santiago, "2026-09-06T04:00 2026-09-07T03:00");
}

#[test]
fn a_day_without_midnight_or_with_two_has_one_start() {
    // Brazil skipped midnight of 2018-11-04 and had 23:00 of 2018-02-17 twice.
    let day = |days, from, to| only("America/Sao_Paulo", whole(days), from, to);
    assert_eq!(day("sun", "2018-11-03T00:00:00Z", "2018-11-06T00:00:00Z"), "2018-11-04T03:00 2018-11-05T02:00");
    assert_eq!(day("sat", "2018-02-16T00:00:00Z", "2018-02-19T00:00:00Z"), "2018-02-17T02:00 2018-02-18T03:00");
    let late =
        only("America/Sao_Paulo", window("sat", "23:00", "24:00"), "2018-02-16T00:00:00Z", "2018-02-19T00:00:00Z");
    assert_eq!(late, "2018-02-18T01:00 2018-02-18T03:00");
    // Egypt moves forward at midnight into a Friday, Lebanon into a Sunday.
    let cairo = only("Africa/Cairo", whole("fri"), "2026-04-23T00:00:00Z", "2026-04-26T00:00:00Z");
    assert_eq!(cairo, "2026-04-23T22:00 2026-04-24T21:00");
    let beirut = only("Asia/Beirut", whole("sun"), "2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
    assert_eq!(beirut, "2026-03-28T22:00 2026-03-29T21:00");
    // Lord Howe moves by half an hour.
    let howe = |from, to, a, b| only("Australia/Lord_Howe", window("sun", from, to), a, b);
    assert_eq!(
        howe("02:15", "03:00", "2026-10-03T00:00:00Z", "2026-10-05T00:00:00Z"),
        "2026-10-03T15:45 2026-10-03T16:00"
    );
    assert_eq!(
        howe("01:30", "02:30", "2026-04-04T00:00:00Z", "2026-04-06T00:00:00Z"),
        "2026-04-04T14:30 2026-04-04T16:00"
    );
    // Samoa had no 2011-12-30, a Friday.
    assert_eq!(
        spans(&calendar("Pacific/Apia", &[whole("fri")], &[]), "2011-12-26T00:00:00Z", "2012-01-03T00:00:00Z"),
        Vec::<String>::new()
    );
}

#[test]
fn a_window_that_a_clock_change_swallows_is_out_that_day() {
    // 02:30 moves to 03:30, behind 03:10.
    let swallowed = calendar("Europe/Berlin", &[window("mon-sun", "02:30", "03:10")], &[]);
    assert_eq!(
        spans(&swallowed, "2026-03-28T00:00:00Z", "2026-03-31T00:00:00Z"),
        ["2026-03-28T01:30 2026-03-28T02:10", "2026-03-30T00:30 2026-03-30T01:10"]
    );
}

#[test]
fn nights_and_weekends_join_and_end_before_the_boundary() {
    let calendar = calendar("Europe/Berlin", &[window("mon-fri", "22:00", "06:00"), whole("sat,sun")], &[]);
    // From Friday night to the end of Sunday.
    assert_eq!(
        spans(&calendar, "2026-06-04T12:00:00Z", "2026-06-09T00:00:00Z"),
        ["2026-06-04T20:00 2026-06-05T04:00", "2026-06-05T20:00 2026-06-07T22:00", "2026-06-08T20:00 2026-06-09T00:00"]
    );
    let end = at("2026-06-05T04:00:00Z");
    assert!(calendar.is_open(Timestamp(end.0 - 1)) && !calendar.is_open(end));
    assert_eq!(calendar.open_until(at("2026-06-05T03:00:00Z")), Some(end));
    assert_eq!(calendar.open_until(end), None);
    assert_eq!(calendar.next_open(end), Some(at("2026-06-05T20:00:00Z")));
    assert_eq!(calendar.next_change(end), Some(at("2026-06-05T20:00:00Z")));
    assert_eq!(calendar.next_change(at("2026-06-05T20:00:00Z")), Some(at("2026-06-07T22:00:00Z")));
    assert_eq!(calendar.why(at("2026-06-05T03:00:00Z")).to_string(), "window mon-fri 22:00-06:00 of Thu 2026-06-04");
    assert_eq!(calendar.why(end).to_string(), "outside of all windows");
    assert_eq!(calendar.zone().show(at("2026-06-05T20:00:00Z")), "Fri 2026-06-05 22:00 Europe/Berlin");
}

#[test]
fn an_exception_is_a_whole_local_day_and_cuts_the_night_before() {
    let nights = calendar("Europe/Berlin", &[window("mon-sun", "22:00", "06:00")], &["2026-12-24..2026-12-25"]);
    assert_eq!(
        spans(&nights, "2026-12-22T12:00:00Z", "2026-12-27T12:00:00Z"),
        ["2026-12-22T21:00 2026-12-23T05:00", "2026-12-23T21:00 2026-12-23T23:00", "2026-12-26T21:00 2026-12-27T05:00"]
    );
    assert_eq!(nights.why(at("2026-12-24T12:00:00Z")).to_string(), "2026-12-24..2026-12-25 is excepted");
    let always = calendar("Europe/Berlin", &[], &["2026-12-24"]);
    assert_eq!(
        spans(&always, "2026-12-23T00:00:00Z", "2026-12-26T00:00:00Z"),
        ["2026-12-23T00:00 2026-12-23T23:00", "2026-12-24T23:00 2026-12-26T00:00"]
    );
    assert_eq!(always.open_until(at("2026-12-25T00:00:00Z")), Some(NEVER));
    assert!(!always.is_always_open());
}

#[test]
fn windows_that_cover_the_week_never_close() {
    for windows in [
        vec![],
        vec![whole("mon-sun")],
        vec![window("mon-sun", "06:00", "22:00"), window("mon-sun", "22:00", "06:00")],
        vec![whole("mon-sat"), window("sat", "23:00", "12:00"), window("sun", "12:00", "24:00")],
    ] {
        let calendar = calendar("Europe/Berlin", &windows, &[]);
        assert!(calendar.is_always_open(), "{windows:?}");
        assert_eq!(calendar.open_until(at("2026-03-29T00:59:59Z")), Some(NEVER));
        assert_eq!(calendar.next_change(at("2026-03-29T00:59:59Z")), None);
    }
    assert!(!calendar("UTC", &[whole("mon-sat"), window("sun", "00:00", "23:59")], &[]).is_always_open());
    assert!(!calendar("UTC", &[window("sun", "22:00", "06:00"), whole("tue-sun")], &[]).is_always_open());
    assert_eq!(Calendar::default().open_until(at("2026-01-01T00:00:00Z")), Some(NEVER));
}

#[test]
fn a_calendar_that_never_opens_says_so() {
    let shut = calendar("UTC", &[], &["2020-01-01..2040-12-31"]);
    assert_eq!(shut.next_open(at("2026-01-01T00:00:00Z")), None);
    assert_eq!(shut.next_change(at("2026-01-01T00:00:00Z")), None);
    assert!(shut.spans(at("2026-01-01T00:00:00Z"), NEVER).is_empty());
    assert!(!calendar("UTC", &[window("mon", "01:00", "02:00")], &[]).is_open(NEVER), "past the year 9999");
}

#[test]
fn stepping_from_change_to_change_through_a_year_starts_each_window_once_a_day() {
    for (zone, from, to, days) in [
        ("America/New_York", "01:30", "02:30", 364),
        // Swallowed on 2018-03-11: 02:30 moves to 03:30.
        ("America/New_York", "02:30", "03:30", 363),
        ("Europe/Berlin", "23:00", "03:00", 365),
        ("America/Sao_Paulo", "00:00", "00:30", 364),
        ("Australia/Lord_Howe", "01:45", "02:15", 365),
    ] {
        let calendar = calendar(zone, &[window("mon-sun", from, to)], &[]);
        let end = at("2019-01-01T00:00:00Z");
        let (mut now, mut starts, mut steps) = (at("2018-01-01T12:00:00Z"), Vec::new(), 0);
        while let Some(next) = calendar.next_change(now).filter(|next| *next < end) {
            assert!(next > now);
            if calendar.is_open(next) {
                starts.push(calendar.zone().date(next).unwrap());
            }
            (now, steps) = (next, steps + 1);
        }
        let all = starts.len();
        starts.dedup();
        assert_eq!((all, starts.len()), (days, days), "{zone} {from}");
        assert!(steps <= 730, "{steps}");
    }
}

/// Kwajalein had no 21 August 1993: it changed sides of the date line.
#[test]
fn an_exception_on_a_day_that_the_zone_skips_cuts_nothing() {
    let nights = [window("mon-sun", "22:00", "02:20")];
    let with = calendar("Pacific/Kwajalein", &nights, &["1993-08-21"]);
    let without = calendar("Pacific/Kwajalein", &nights, &[]);
    let (from, to) = (at("1993-08-21T06:00:00Z"), at("1993-08-22T06:00:00Z"));
    let night = Span { from: at("1993-08-21T10:00:00Z"), to: at("1993-08-21T14:20:00Z") };
    assert_eq!((with.spans(from, to), without.spans(from, to)), (vec![night], vec![night]));
}

/// A slow calendar that knows only the offset of each minute.
struct Reference {
    first: u64,
    /// The local minute, counted from 1970, of each minute from `first` on.
    local: Vec<i64>,
}

impl Reference {
    /// `None` if an offset is no whole minute.
    fn new(zone: &TimeZone, first: u64, minutes: u64) -> Option<Self> {
        let local = |minute: u64| {
            let at = jiff::Timestamp::from_second(i64::try_from(minute * 60).unwrap()).unwrap();
            let offset = zone.to_offset(at).seconds();
            (offset % 60 == 0).then(|| i64::try_from(minute).unwrap() + i64::from(offset / 60))
        };
        Some(Self { first, local: (first..first + minutes).map(local).collect::<Option<_>>()? })
    }

    /// The index of a local minute: the first of two, or as much later as local time jumps over it.
    fn find(&self, wanted: i64) -> Option<usize> {
        self.local.iter().position(|local| *local == wanted).or_else(|| {
            let gap = self.local.windows(2).position(|pair| pair[0] < wanted && wanted < pair[1])?;
            Some(gap + 1 + usize::try_from(wanted - self.local[gap] - 1).unwrap())
        })
    }

    /// The first minute of a local day, counted from 1970.
    fn day(&self, day: i64) -> Option<usize> {
        self.local.iter().position(|local| local.div_euclid(1_440) == day)
    }

    /// Spans between two indices.
    fn spans(&self, windows: &[Window], except: &[i64], range: std::ops::Range<usize>) -> Vec<Span> {
        let mut open = vec![false; self.local.len()];
        let days = self.local[0].div_euclid(1_440) + 1..self.local[self.local.len() - 1].div_euclid(1_440) - 1;
        for day in days {
            // 1970-01-01 was a Thursday.
            let number = i8::try_from((day + 3).rem_euclid(7)).unwrap();
            let weekday = jiff::civil::Weekday::from_monday_zero_offset(number).unwrap();
            if except.contains(&day) || self.day(day).is_none() {
                continue;
            }
            for window in windows.iter().filter(|window| window.days().has(weekday)) {
                let from = self.find(day * 1_440 + i64::from(window.from().get())).unwrap();
                let next = i64::from(window.to() < window.from());
                let mut to = self.find((day + next) * 1_440 + i64::from(window.to().get())).unwrap();
                for excepted in except.iter().filter(|excepted| (day + 1..=day + 2).contains(excepted)) {
                    to = to.min(self.day(*excepted).unwrap_or(to));
                }
                open[from..to.max(from)].fill(true);
            }
        }
        let moment = |index: usize| Timestamp((self.first + u64::try_from(index).unwrap()) * MINUTE);
        let mut spans: Vec<Span> = Vec::new();
        for index in range.filter(|index| open[*index]) {
            match spans.last_mut() {
                Some(span) if span.to == moment(index) => span.to = moment(index + 1),
                _ => spans.push(Span { from: moment(index), to: moment(index + 1) }),
            }
        }
        spans
    }
}

/// Days of minutes around a clock change, so that windows that begin days before are whole.
const AROUND: u64 = 5 * 1_440;
/// Of those, the ones compared.
const COMPARED: std::ops::Range<usize> = 2 * 1_440 + 720..7 * 1_440 + 720;

fn compare(name: &str, zone: &TimeZone, change: u64, windows: &[Window], except: &[i64]) -> Option<()> {
    let reference = Reference::new(zone, change - AROUND, 2 * AROUND)?;
    let date = |day: i64| {
        let epoch = Date::constant(1970, 1, 1);
        epoch.checked_add(jiff::Span::new().days(day)).unwrap()
    };
    let excepted = except.iter().map(|day| Dates::new(date(*day), date(*day)).unwrap()).collect();
    let calendar = Calendar::new(Zone::named(name).unwrap(), windows.to_vec(), excepted).unwrap();
    let moment = |index: usize| Timestamp((reference.first + u64::try_from(index).unwrap()) * MINUTE);
    let (from, to) = (moment(COMPARED.start), moment(COMPARED.end));
    let expected = reference.spans(windows, except, COMPARED);
    assert_eq!(calendar.spans(from, to), expected, "{name} at {} {windows:?} {except:?}", Timestamp(change * MINUTE));
    for index in COMPARED.step_by(47) {
        let at = moment(index);
        let is_open = expected.iter().any(|span| span.has(at));
        assert_eq!(calendar.is_open(at), is_open, "{name} at {at} {windows:?} {except:?}");
    }
    Some(())
}

/// Clock changes of all zones since 1970 that differ in the local time they happen at or in what they do, with the
/// minute of the change. Zones share most of them.
fn changes() -> BTreeMap<(i64, i32, i32), (String, TimeZone, u64)> {
    let zones = TimeZoneDatabase::bundled();
    let mut found = BTreeMap::new();
    for name in zones.available() {
        let name = name.as_str();
        if Zone::named(name).is_err() {
            continue;
        }
        let zone = zones.get(name).unwrap();
        let start = jiff::Timestamp::from_second(20 * 86_400).unwrap();
        let end = jiff::Timestamp::from_second(2_145_000_000).unwrap();
        let mut before = zone.to_offset(start).seconds();
        for change in zone.following(start).take_while(|change| change.timestamp() < end) {
            let (second, after) = (change.timestamp().as_second(), change.offset().seconds());
            if second % 60 == 0 && after != before {
                let key = ((second + i64::from(before)) % (7 * 86_400), before, after - before);
                found
                    .entry(key)
                    .or_insert_with(|| (name.to_owned(), zone.clone(), u64::try_from(second / 60).unwrap()));
            }
            before = after;
        }
    }
    found
}

#[test]
fn every_kind_of_clock_change_of_all_zones_agrees_with_a_minute_by_minute_reference() {
    let found = changes();
    let mut compared = 0;
    for ((local, before, by), (name, zone, change)) in found {
        let day = (i64::try_from(change).unwrap() + i64::from(before / 60)).div_euclid(1_440);
        let minute = u16::try_from(local.rem_euclid(86_400) / 60).unwrap();
        let clock = |shift: i64| {
            let minute = (i64::from(minute) + shift).rem_euclid(1_440);
            Minute::new(u16::try_from(minute).unwrap()).unwrap()
        };
        let all = "mon-sun".parse().unwrap();
        // Boundaries before, in and behind what is skipped or comes twice.
        let half = i64::from(by / 120);
        for (from, to) in [(clock(-90), clock(half)), (clock(half), clock(95)), (clock(-half), clock(half))] {
            let Ok(around) = Window::new(all, from, to) else { continue };
            compare(&name, &zone, change, &[around], &[]).into_iter().for_each(|()| compared += 1);
        }
        let days = [whole("mon,wed,fri,sun"), window("tue-sat", "22:00", "02:30")];
        compare(&name, &zone, change, &days, &[day + 1]).into_iter().for_each(|()| compared += 1);
    }
    assert!(compared > 1_000, "{compared}");
}

fn a_window() -> impl Strategy<Value = Window> {
    let days = prop::sample::subsequence(vec!["mon", "tue", "wed", "thu", "fri", "sat", "sun"], 1..=7);
    // Five minutes apart, so that boundaries often touch.
    (days, 0..288_u16, 1..=288_u16).prop_filter_map("empty", |(days, from, to)| {
        let minute = |five: u16| Minute::new(five * 5).unwrap();
        Window::new(days.join(",").parse().unwrap(), minute(from), minute(to)).ok()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_windows_around_any_clock_change_agree_with_the_reference(
        pick in any::<prop::sample::Index>(),
        windows in prop::collection::vec(a_window(), 1..5),
        except in prop::collection::vec(-3..4_i64, 0..3),
    ) {
        use std::sync::LazyLock;
        static CHANGES: LazyLock<Vec<(String, TimeZone, u64)>> = LazyLock::new(|| changes().into_values().collect());
        let (name, zone, change) = &CHANGES[pick.index(CHANGES.len())];
        let day = i64::try_from(change / 1_440).unwrap();
        let except: Vec<i64> = except.iter().map(|shift| day + shift).collect();
        compare(name, zone, *change, &windows, &except);
    }

    #[test]
    fn the_answers_of_a_calendar_agree_with_each_other(
        windows in prop::collection::vec(a_window(), 0..4),
        start in 1_700_000_000_000..1_900_000_000_000_u64,
    ) {
        let calendar = Calendar::new(Zone::named("Europe/Berlin").unwrap(), windows, Vec::new()).unwrap();
        let at = Timestamp(start);
        match calendar.open_until(at) {
            Some(NEVER) => prop_assert!(calendar.is_always_open()),
            Some(end) => {
                prop_assert!(calendar.is_open(at) && !calendar.is_open(end));
                prop_assert!(calendar.is_open(Timestamp(end.0 - 1)));
                prop_assert_eq!(calendar.next_open(at), Some(at));
            }
            None => {
                let next = calendar.next_open(at).unwrap();
                prop_assert!(next > at && calendar.is_open(next) && !calendar.is_open(Timestamp(next.0 - 1)));
            }
        }
        let spans = calendar.spans(at, Timestamp(start + 14 * 86_400_000));
        for pair in spans.windows(2) {
            prop_assert!(pair[0].to < pair[1].from, "touching spans are one");
        }
    }
}
