use souk_matcher::{calendar::AtWindowEnd, price::Strategy};
use souk_protocol::Timestamp;

use super::*;

/// The example of the interface, whole.
const FULL: &str = r#"version = 1
[node]
name    = "attic"
role    = "provider"
profile = "home"

[network]
file   = "testnet.toml"
listen = ["/ip4/0.0.0.0/udp/4477/quic-v1", "/ip4/0.0.0.0/tcp/4477"]
max_up = "50Mbps"

[offer]
gpus    = "all"
slots   = "auto"
reserve = { cpu = 2, memory = "8GB", disk = "100GB" }
region  = "de"

[pricing]
floor = { "RTX 4090" = "0.22 CR/h", "cpu" = "0.005 CR/h", "memory_gb" = "0.001 CR/h" }
ask   = { "RTX 4090" = "0.34 CR/h", "cpu" = "0.008 CR/h", "memory_gb" = "0.0015 CR/h" }
peak  = [ { days = "mon-fri", from = "09:00", to = "18:00", factor = "1.4" } ]
strategy = "adaptive"
power = { price = "0.31 CR/kWh", never_below = true }

[availability]
timezone = "Europe/Berlin"
windows  = [ { days = "mon-fri", from = "22:00", to = "06:00" }, { days = "sat,sun" } ]
except   = [ "2026-12-24..2026-12-27" ]
require_idle  = "15m"
at_window_end = "checkpoint"
notice   = "15m"

[workloads]
runtimes     = ["wasm", "oci"]
max_duration = "12h"
network      = "none"
deny_images  = ["docker.io/xmrig/*"]
min_reliability_of_renter = "0.0"

[engine]
kind = "auto"

[limits]
gpu_power = "320W"
gpu_temp  = { throttle = "80C", stop = "88C" }
disk_free = "50GB"
on_battery = "pause"

[alerts]
webhook = "https://hooks.example/abc"
on      = ["offline>5m", "job-failed", "gpu-xid", "gpu-temp", "disk-low", "no-bids>6h", "clock-skew"]

[api]
listen  = "127.0.0.1:4478"
"#;

fn parse(text: &str) -> Result<Config, Vec<String>> {
    Config::parse_with(text, Path::new("/etc/souk"), &|_| None)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

#[test]
fn the_example_of_the_interface_is_read_whole() {
    let config = parse(FULL).unwrap();
    assert_eq!(config.name, "attic");
    assert_eq!(config.role, Role::Provider);
    assert_eq!(config.network_file, Path::new("/etc/souk/testnet.toml"));
    assert_eq!(config.listen[0].to_string(), "/ip4/0.0.0.0/udp/4477/quic-v1");
    assert_eq!(
        config.reserve,
        Reserve { cpu: MilliCpu(2_000), memory: Bytes(8_000_000_000), disk: Bytes(100_000_000_000) }
    );
    assert_eq!(config.floor.cpu.to_string(), "0.005000 CR/h");
    assert_eq!(config.ask.memory_gb.to_string(), "0.001500 CR/h");
    assert_eq!(config.runtimes, [Runtime::Wasm, Runtime::Oci]);
    assert_eq!(config.max_duration, Millis::from_hours(12));
    let available = &config.availability;
    assert_eq!((available.at_window_end, available.notice), (AtWindowEnd::Checkpoint, Millis::from_mins(15)));
    let calendar = &available.calendar;
    assert_eq!(calendar.zone().name(), "Europe/Berlin");
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    assert_eq!(calendar.open_until(at("2026-06-05T20:00:00Z")), Some(at("2026-06-07T22:00:00Z")));
    assert_eq!(calendar.next_open(at("2026-12-24T12:00:00Z")), Some(at("2026-12-28T21:00:00Z")));
    let pricing = &config.pricing;
    assert_eq!(pricing.strategy, Strategy::Adaptive);
    assert_eq!(pricing.peak_at(at("2026-06-01T07:00:00Z")).to_string(), "1.4");
    assert_eq!(pricing.peak_at(at("2026-06-01T16:00:00Z")).to_string(), "1");
    let power = pricing.power.unwrap();
    assert!(power.never_below && power.per_core.is_none());
    assert_eq!(power.core().to_string(), "0.003100 CR/h", "10 W a core, an estimate");
    assert_eq!(config.api, "127.0.0.1:4478".parse().unwrap());
}

#[test]
fn what_is_not_built_is_listed_and_refused_where_ignoring_it_would_harm() {
    let config = parse(FULL).unwrap();
    let listed: Vec<(&str, bool)> =
        config.missing.iter().map(|missing| (missing.path.as_str(), missing.refused)).collect();
    assert_eq!(
        listed,
        [
            ("network.max_up", true),
            ("offer.gpus", false),
            ("pricing", false),
            ("availability.require_idle", true),
            ("workloads.runtimes", false),
            ("workloads.deny_images", false),
            ("engine.kind", false),
            ("limits.gpu_power", true),
            ("limits.gpu_temp", true),
            ("limits.disk_free", true),
            ("limits.on_battery", true),
            ("alerts", true),
        ]
    );
    assert!(
        config.missing.iter().all(|missing| missing.line.is_some() && missing.text.starts_with("not available yet: "))
    );
}

#[test]
fn a_short_file_has_working_defaults_and_nothing_missing() {
    let config = parse("version = 1\n").unwrap();
    assert_eq!(config.role, Role::Both);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.reserve, Reserve { cpu: MilliCpu(0), memory: Bytes(0), disk: Bytes(0) });
    assert_eq!(config.missing, []);
    assert!(
        config
            .settings
            .iter()
            .filter(|setting| setting.path != "version")
            .all(|setting| setting.origin == Origin::Default)
    );
}

#[test]
fn all_errors_are_told_at_once_with_line_value_and_remedy() {
    let text = "version = 1\n[node]\nrole = \"seller\"\n[network]\nlisten = [\"0.0.0.0:4477\"]\n[offer]\nreserve = { memory = 8 }\n\
                [pricing]\nask = { cpu = \"0.001 CR/h\" }\n[workloads]\nmax_duration = \"0s\"\n[api]\nlisten = \"0.0.0.0:80\"\nport = 1\n";
    let errors = parse(text).unwrap_err();
    let lines: Vec<&str> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
    assert_eq!(lines, ["line 3", "line 5", "line 7", "line 9", "line 11", "line 13", "line 14"]);
    assert_eq!(errors[0], "line 3: node.role = \"seller\": unknown word, one of provider, renter, both");
    assert!(errors[2].contains("offer.reserve.memory = 8") && errors[2].contains("unit"), "{}", errors[2]);
    assert!(errors[3].contains("below the floor of 0.005000 CR/h"), "{}", errors[3]);
    assert!(errors[5].contains("this machine only"), "{}", errors[5]);
    assert!(errors[6].contains("api.port = 1: unknown field"), "{}", errors[6]);
}

/// Case S2: a word that is not on the list is an error that names the field and the words, never the most permissive of
/// them; nor is the right word in other letters.
#[test]
fn case_s2_unknown_words_are_errors_and_never_defaults() {
    for (section, field, right) in [
        ("node", "role", "provider"),
        ("node", "profile", "home"),
        ("pricing", "strategy", "adaptive"),
        ("availability", "at_window_end", "stop"),
        ("workloads", "network", "none"),
        ("engine", "kind", "none"),
        ("limits", "on_battery", "pause"),
        ("offer", "gpus", "none"),
        ("offer", "slots", "auto"),
    ] {
        let with = |word: &str| parse(&format!("version = 1\n[{section}]\n{field} = \"{word}\"\n"));
        assert!(with(right).is_ok(), "{section}.{field} = {right}: {:?}", with(right).err());
        for word in ["composite", "", "accept-all", &right.to_uppercase(), &format!("{right} ")] {
            let errors = with(word).expect_err(field);
            assert!(errors.len() == 1 && errors[0].contains(&format!("{section}.{field}")), "{word:?}: {errors:?}");
        }
    }
    for (line, field) in [
        ("[workloads]\nruntimes = [\"wasm\", \"all\"]", "workloads.runtimes"),
        ("[workloads]\nruntimes = [\"WASM\"]", "workloads.runtimes"),
        ("[alerts]\non = [\"everything\"]", "alerts.on"),
    ] {
        let errors = parse(&format!("version = 1\n{line}\n")).expect_err(line);
        assert!(errors.iter().any(|error| error.contains(field)), "{errors:?}");
    }
}

/// Case M19: a price that is none is refused where the file is judged; whatever is found valid has a price to start with.
#[test]
fn case_m19_a_file_that_is_valid_always_has_a_price() {
    for part in ["cpu", "memory_gb"] {
        for list in ["floor", "ask"] {
            for price in ["\"\"", "\"free\"", "\"0.1\"", "0.1", "\"CR/h\"", "\"-0.1 CR/h\"", "\"1 CR\"", "{}"] {
                let text = format!("version = 1\n[pricing]\n{list} = {{ {part} = {price} }}\n");
                let errors = parse(&text).expect_err(&text);
                assert!(errors.iter().any(|error| error.contains(&format!("pricing.{list}"))), "{text}{errors:?}");
            }
        }
    }
    for text in [
        "",
        "[pricing]\n",
        "[pricing]\nfloor = {}\nask = {}\n",
        "[pricing]\nfloor = { cpu = \"0.02 CR/h\" }\n",
        "[pricing]\nask = { memory_gb = \"0.02 CR/h\" }\n",
        "[pricing]\nask = { \"RTX 4090\" = \"0.34 CR/h\" }\n",
    ] {
        let config = parse(&format!("version = 1\n{text}")).expect(text);
        assert!(config.floor.cpu.0 > 0 && config.floor.memory_gb.0 > 0, "{text}");
        assert!(config.ask.cpu >= config.floor.cpu && config.ask.memory_gb >= config.floor.memory_gb, "{text}");
    }
}

#[test]
fn a_missing_or_newer_version_is_refused() {
    assert!(parse("").unwrap_err()[0].contains("write version = 1"));
    assert!(parse("version = 2\n").unwrap_err()[0].contains("this souk reads version 1"));
    assert!(parse("version = \"1\"\n").unwrap_err()[0].contains("a whole number is expected"));
}

#[test]
fn times_zones_and_days_of_the_calendar_are_judged() {
    let with = |line: &str| parse(&format!("version = 1\n[availability]\n{line}\n"));
    assert!(with("timezone = \"UTC\"\nwindows = [{ days = \"mon\", from = \"22:00\", to = \"24:00\" }]").is_ok());
    for line in [
        "timezone = \"PDT\"",
        "timezone = \"UTC+2\"",
        "timezone = \"Etc/GMT+2\"",
        "windows = [{ days = \"mon\" }]",
        "timezone = \"UTC\"\nwindows = [{ days = \"monday\" }]",
        "timezone = \"UTC\"\nwindows = [{ days = \"mon\", from = \"08:00\", to = \"08:00\" }]",
        "timezone = \"UTC\"\nwindows = [{ days = \"mon\", from = \"24:00\", to = \"08:00\" }]",
        "timezone = \"UTC\"\nwindows = [{ days = \"mon\", from = \"8:00\", to = \"09:00\" }]",
        "timezone = \"UTC\"\nwindows = [{ days = \"mon\", from = \"08:00\" }]",
        "timezone = \"UTC\"\nwindows = [{ from = \"08:00\", to = \"09:00\" }]",
        "timezone = \"UTC\"\nwindows = \"mon\"",
        "except = [\"2026-12-24\"]",
        "timezone = \"UTC\"\nexcept = [\"2026-02-30\"]",
        "timezone = \"UTC\"\nexcept = [\"2026-12-27..2026-12-24\"]",
        "require_idle = 15",
        "at_window_end = \"explode\"",
    ] {
        assert!(with(line).is_err(), "{line}");
    }
}

#[test]
fn peaks_and_power_are_judged() {
    let with = |line: &str| parse(&format!("version = 1\n[availability]\ntimezone = \"UTC\"\n[pricing]\n{line}\n"));
    let config =
        with("peak = [{ days = \"sun\", factor = \"0.5\" }]\npower = { price = \"1 CR/kWh\", per_core = \"8W\" }");
    let pricing = config.unwrap().pricing;
    assert_eq!(pricing.peak_at("2026-06-07T12:00:00Z".parse().unwrap()).to_string(), "0.5");
    let power = pricing.power.unwrap();
    assert_eq!((power.core().to_string(), power.never_below), ("0.008000 CR/h".to_owned(), false));
    for line in [
        "peak = [{ days = \"sun\" }]",
        "peak = [{ factor = \"1.4\" }]",
        "peak = [{ days = \"sun\", factor = \"0\" }]",
        "peak = [{ days = \"sun\", factor = 1.4 }]",
        "strategy = \"greedy\"",
        "power = { never_below = true }",
        "power = { price = \"0.31 CR/h\" }",
        "power = { price = \"0.31 CR/kWh\", per_core = 10 }",
    ] {
        assert!(with(line).is_err(), "{line}");
    }
    let zoneless = parse("version = 1\n[pricing]\npeak = [{ days = \"sun\", factor = \"2\" }]\n").unwrap_err();
    assert!(zoneless[0].contains("need a time zone"), "{zoneless:?}");
}

#[test]
fn a_renter_may_keep_what_only_harms_a_provider() {
    let config = parse("version = 1\n[node]\nrole = \"renter\"\n[limits]\ndisk_free = \"50GB\"\n").unwrap();
    assert_eq!(config.missing.len(), 1);
    assert!(!config.missing[0].refused);
}

#[test]
fn the_environment_wins_over_the_file() {
    let variable = |name: &str| (name == "SOUK_API_LISTEN").then(|| "127.0.0.1:9".to_owned());
    let config =
        Config::parse_with("version = 1\n[api]\nlisten = \"127.0.0.1:1\"\n", Path::new("/"), &variable).unwrap();
    assert_eq!(config.api, "127.0.0.1:9".parse().unwrap());
    let setting = config.settings.iter().find(|setting| setting.path == "api.listen").unwrap();
    assert_eq!(setting.origin, Origin::Env);
}

#[test]
fn addresses_that_others_dial_have_a_port_and_a_host() {
    let with = |address: &str| parse(&format!("version = 1\n[network]\nexternal = [\"{address}\"]\n"));
    assert!(with("/dns4/node.example.net/udp/4477/quic-v1").is_ok());
    assert!(with("/ip4/203.0.113.7/tcp/4477").is_ok());
    for address in ["/ip4/0.0.0.0/tcp/4477", "/dns4//tcp/1", "/dns4/x/tcp/0", "/ip4/1.2.3.4", "node:1"] {
        assert!(with(address).is_err(), "{address}");
    }
}

proptest::proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[a-z\\[\\]{}=\". ,0-9\n]{0,200}") {
        let _ = parse(&text);
    }
}
