//! What the owner of a machine asks without a running node: hours and prices, by the file alone.

use crate::home::{Home, Run};

const FILE: &str = "version = 1
[availability]
timezone = \"Europe/Berlin\"
windows = [ { days = \"mon-fri\", from = \"22:00\", to = \"06:00\" }, { days = \"sat,sun\" } ]
except = [ \"2026-12-24..2026-12-27\" ]
at_window_end = \"finish\"
[pricing]
floor = { cpu = \"0.005 CR/h\", memory_gb = \"0.001 CR/h\" }
ask = { cpu = \"0.008 CR/h\", memory_gb = \"0.0015 CR/h\" }
strategy = \"adaptive\"
power = { price = \"0.60 CR/kWh\", never_below = true }
";

fn home(file: &str) -> Home {
    let home = Home::new();
    home.write("config/souk.toml", file);
    home
}

fn check(home: &Home, at: &str) -> Run {
    home.run(&["node", "schedule", "check", at, "--json"])
}

#[test]
fn a_schedule_is_checked_at_any_time_in_utc_or_local_time() {
    let home = home(FILE);
    let night = check(&home, "2026-06-05T20:00:00Z").json();
    assert_eq!(night["open"], true);
    assert_eq!(night["local"], "2026-06-05T22:00:00+02:00");
    assert_eq!(night["until"], "2026-06-07T22:00:00Z", "{night}");
    assert_eq!(night["why"], "window mon-fri 22:00-06:00 of Fri 2026-06-05");
    assert_eq!(check(&home, "2026-06-05 22:00").json(), night);
    let holiday = check(&home, "2026-12-24 23:00").json();
    assert_eq!((holiday["open"].as_bool(), holiday["opens"].as_str()), (Some(false), Some("2026-12-28T21:00:00Z")));
    assert_eq!(holiday["why"], "2026-12-24..2026-12-27 is excepted");
    let run = home.run(&["node", "schedule", "check", "2026-06-05T12:00:00Z"]);
    assert_eq!(
        run.stdout,
        "Fri 2026-06-05 14:00 Europe/Berlin: closed, opens Fri 2026-06-05 22:00 Europe/Berlin: outside of all windows\n"
    );
    let wrong = check(&home, "tomorrow");
    assert_eq!((wrong.code, wrong.error()["code"].as_str()), (Some(2), Some("usage")));
}

#[test]
fn a_schedule_is_shown_as_spans_that_agree_with_the_checks() {
    let home = home(FILE);
    let shown = home.run(&["node", "schedule", "show", "--next", "21d", "--json"]).json();
    assert_eq!((shown["timezone"].as_str(), shown["at_window_end"].as_str()), (Some("Europe/Berlin"), Some("finish")));
    let spans = shown["spans"].as_array().unwrap();
    // Four nights a week and the weekend, but for dates that are excepted.
    assert!(spans.len() >= 9, "{shown}");
    for span in spans.iter().take(3) {
        let (from, to) = (span["from"].as_str().unwrap(), span["to"].as_str().unwrap());
        assert_eq!(check(&home, from).json()["open"], true, "{span}");
        if to != shown["to"] {
            assert_eq!(check(&home, to).json()["open"], false, "{span}");
        }
    }
    let table = home.run(&["node", "schedule", "show"]);
    assert!(table.stdout.contains("FROM") && table.stderr.contains("Europe/Berlin"), "{table:?}");
    let never = home.run(&["node", "schedule", "show", "--next", "2000d"]);
    assert_eq!(never.code, Some(2), "{never:?}");
}

#[test]
fn without_windows_a_node_is_always_open() {
    let home = home("version = 1\n");
    let run = home.run(&["node", "schedule", "show"]);
    assert_eq!(run.stdout, "open, no end within 400 days: no windows are set, so it is always open\n");
    let shown = home.run(&["node", "schedule", "show", "--json"]).json();
    assert_eq!((shown["always_open"].as_bool(), shown["spans"].as_array().unwrap().len()), (Some(true), 1));
}

#[test]
fn a_price_is_shown_with_each_of_its_parts() {
    let home = home(FILE);
    let price = home.run(&["node", "price", "show", "--json"]).json();
    assert_eq!((price["running"].as_bool(), price["utilisation"].as_str()), (Some(false), Some("0.7")));
    // 0.7 of the ask is 0.0056, the power of ten watts 0.006.
    let core = &price["components"][0];
    assert_eq!((core["price"].as_str(), core["because"].as_str()), (Some("0.006000 CR/h"), Some("power")));
    let memory = &price["components"][1];
    assert_eq!((memory["price"].as_str(), memory["because"].as_str()), (Some("0.001050 CR/h"), Some("ask")));
    assert_eq!((price["power"]["per_core"].as_str(), price["power"]["estimated"].as_bool()), (Some("10W"), Some(true)));
    assert_eq!(price["suggestion"]["verdict"], "too-little-data");
    let table = home.run(&["node", "price", "show"]);
    assert!(table.stdout.contains("an estimate; set pricing.power.per_core"), "{table:?}");
    let text = home.run(&["node", "price", "suggest"]);
    assert_eq!(text.stdout, "too-little-data: 0 answers since the start, 20 are needed\n");
}

#[test]
fn earnings_need_a_running_node() {
    assert_eq!(home("version = 1\n").run(&["node", "earnings"]).code, Some(3));
}
