use proptest::prelude::*;

use super::*;
use crate::money::{Balance, Credits, PowerPrice, Rate};
use crate::units::{BitsPerSecond, Bytes, Celsius, MilliCpu, MilliWatts, Millis, Ppm, Timestamp};

fn bytes(text: &str) -> Result<u64, GrammarError> {
    text.parse::<Bytes>().map(|bytes| bytes.0)
}

fn millis(text: &str) -> Result<u64, GrammarError> {
    text.parse::<Millis>().map(|millis| millis.0)
}

fn refusal<T: std::str::FromStr<Err = GrammarError> + fmt::Debug>(text: &str) -> String {
    text.parse::<T>().unwrap_err().to_string()
}

#[test]
fn case_m1_sizes_are_exact_or_refused() {
    assert_eq!(bytes("512Mi"), Ok(536_870_912));
    assert_eq!(bytes("512MB"), Ok(512_000_000));
    assert_eq!(bytes("1GiB"), Ok(1_073_741_824));
    assert_eq!(refusal::<Bytes>("512m"), "\"512m\": unknown unit \"m\" (at character 4), use M or MB");
    assert_eq!(
        refusal::<Bytes>("1Zi"),
        "\"1Zi\": unknown unit \"Zi\" (at character 2), use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
    );
    let error = bytes("1.2.3Gi").unwrap_err();
    assert_eq!((error.position, error.problem.as_str()), (3, "unknown unit \".3Gi\""));
    assert_eq!(refusal::<Bytes>("1024"), "\"1024\": add a unit, e.g. \"1024GB\"");
    let error = bytes("0.3Mi").unwrap_err();
    assert_eq!((error.position, error.problem.as_str()), (0, "not a whole number of bytes"));
    assert!(bytes("8Ei").is_err());
    assert_eq!(bytes("16777215TiB"), Ok(16_777_215 << 40));
    assert!(refusal::<Bytes>("16777216TiB").contains("too large"));
    for text in [
        "Inf", "NaN", "1e3", "1e3MB", "-1GB", " 1GB", "1GB ", "1  GB", "+1GB", "", "GB", ".5GB", "5.GB", "1GB\n", "١GB",
    ] {
        assert!(bytes(text).is_err(), "{text:?}");
    }
}

#[test]
fn case_u1_size_units() {
    assert_eq!(bytes("24GiB"), Ok(25_769_803_776));
    assert_eq!(bytes("24Gi"), Ok(25_769_803_776));
    assert_eq!(bytes("24G"), Ok(24_000_000_000));
    assert_eq!(bytes("512M"), Ok(512_000_000));
    assert_eq!(bytes("1.5 GB"), Ok(1_500_000_000));
    assert_eq!(refusal::<Bytes>("64"), "\"64\": add a unit, e.g. \"64GB\"");
    assert!(refusal::<Bytes>("400m").ends_with("use M or MB"));
    assert!(refusal::<Bytes>("24gib").ends_with("did you mean \"GiB\"?"));
}

#[test]
fn case_r3_binary_and_decimal_units_differ() {
    assert_eq!(bytes("1Mi"), Ok(1_048_576));
    assert_eq!(bytes("1MB"), Ok(1_000_000));
    assert_eq!(bytes("1GiB"), Ok(1_073_741_824));
    assert_eq!(bytes("1G"), Ok(1_000_000_000));
    assert_eq!("500m".parse(), Ok(MilliCpu(500)));
    assert_eq!("0.5".parse(), Ok(MilliCpu(500)));
    for text in ["-1", "1e3"] {
        assert!(text.parse::<MilliCpu>().is_err(), "{text}");
        assert!(text.parse::<Bytes>().is_err(), "{text}");
    }
}

#[test]
fn case_m2_cores_are_exact_or_refused() {
    let cores = |text: &str| text.parse::<Range<MilliCpu>>().map(|range| range.lo.0);
    assert_eq!(cores("100m"), Ok(100));
    assert_eq!(cores("1.001"), Ok(1_001));
    assert!(cores("250.5m").unwrap_err().to_string().contains("steps of 0.001"));
    assert!(cores("0.0001").unwrap_err().to_string().contains("steps of 0.001"));
    assert!(cores("0.009").unwrap_err().to_string().contains("too small, the least is 0.01"));
    assert!(cores("2k").unwrap_err().to_string().contains("unknown unit \"k\""));
}

#[test]
fn case_u13_durations_have_one_meaning() {
    assert_eq!(millis("1m"), Ok(60_000));
    assert_eq!(millis("1h30m"), Ok(5_400_000));
    assert_eq!(millis("1.5h"), Ok(5_400_000));
    assert_eq!(millis("1.9s"), Ok(1_900));
    assert_eq!(millis("2w1d"), Ok(15 * 86_400_000));
    assert_eq!(millis("250ms"), Ok(250));
    assert_eq!(millis("PT1H30M"), Ok(5_400_000));
    assert_eq!(millis("P1DT0.5S"), Ok(86_400_500));
    assert_eq!(millis("P2W"), Ok(14 * 86_400_000));
    assert!(refusal::<Millis>("1M").ends_with("use \"m\" for minutes; months have no fixed length"));
    assert!(refusal::<Millis>("1mo").contains("no fixed length"));
    assert!(refusal::<Millis>("1y").contains("no fixed length"));
    assert!(refusal::<Millis>("P1M").contains("no fixed length"));
    assert!(refusal::<Millis>("1H").ends_with("did you mean \"h\"?"));
    assert_eq!(refusal::<Millis>("90"), "\"90\": add a unit, e.g. \"90s\" or \"90m\"");
    for text in [
        "",
        "1m1h",
        "1h1h",
        "0.0001s",
        "1h 30m",
        "-1s",
        "1e3s",
        "infs",
        "P",
        "PT",
        "P1DT",
        "P1.5D",
        "pt1h",
        "PT1S1M",
        "99999999999w",
        "1h\n",
        "1h30",
        "PT1H1H",
    ] {
        assert!(millis(text).is_err(), "{text:?}");
    }
}

#[test]
fn case_u19_a_malformed_range_is_refused_with_its_place() {
    let error = "1..2..3".parse::<Range<MilliCpu>>().unwrap_err();
    assert_eq!((error.position, error.problem.as_str()), (4, "a range has two bounds"));
    for text in ["..", "....", "4...8", "8..4", "..4..", "4++", "+", "+4", "", " 4", "4.. 8", "a..b", "0", "0.."] {
        assert!(text.parse::<Range<MilliCpu>>().is_err(), "{text:?}");
    }
}

#[test]
fn ranges_include_their_bounds() {
    let range = |text: &str| text.parse::<Range<MilliCpu>>().unwrap();
    assert_eq!(range("4"), Range::exactly(MilliCpu(4_000)));
    assert_eq!(range("4.."), Range::at_least(MilliCpu(4_000)));
    assert_eq!(range("4+"), range("4.."));
    assert_eq!(range("500m..1.5"), Range { lo: MilliCpu(500), hi: Some(MilliCpu(1_500)) });
    assert_eq!(range("..8"), Range { lo: MilliCpu(10), hi: Some(MilliCpu(8_000)) });
    assert_eq!(Range::parse_from("..8", MilliCpu(1_000)), Ok(Range { lo: MilliCpu(1_000), hi: Some(MilliCpu(8_000)) }));
    assert_eq!(Range::parse_from("..0.5", MilliCpu(1_000)), Ok(Range::exactly(MilliCpu(500))));
    assert_eq!("8GB..1.5TB".parse(), Ok(Range { lo: Bytes(8_000_000_000), hi: Some(Bytes(1_500_000_000_000)) }));
    assert!(range("4..8").contains(MilliCpu(8_000)) && !range("4..8").contains(MilliCpu(8_001)));
    assert!("8..16GB".parse::<Range<Bytes>>().unwrap_err().to_string().contains("add a unit"));
}

#[test]
fn shares_are_exact_and_at_most_one() {
    assert_eq!("0.95".parse(), Ok(Ppm(950_000)));
    assert_eq!("99.5%".parse(), Ok(Ppm(995_000)));
    assert_eq!("1".parse(), Ok(Ppm::ONE));
    assert_eq!("100%".parse(), Ok(Ppm::ONE));
    assert_eq!("0".parse(), Ok(Ppm::ZERO));
    assert_eq!(refusal::<Ppm>("98"), "\"98\": a share is at most 1, did you mean \"98%\"?");
    for text in ["1.000001", "101%", "0.0000001", "-0.1", "50 %", "0,5", ".5", "99999999999999999999"] {
        assert!(text.parse::<Ppm>().is_err(), "{text}");
    }
}

/// Case S1: half is half and not nothing, one and a half times is not twice.
#[test]
fn case_s1_percentages_are_multiplied_before_they_are_divided() {
    let share = |text: &str| text.parse::<Ppm>().unwrap();
    assert_eq!((share("50%"), share("0.5")), (Ppm(500_000), Ppm(500_000)));
    assert_eq!((share("50%").of(1), share("50%").of(2), share("50%").of(5)), (0, 1, 2));
    assert_eq!((share("1%").of(99), share("1%").of(100), share("1%").of(64 << 30)), (0, 1, 687_194_767));
    assert_eq!((share("99.9999%").of(1_000_000), share("0.0001%").of(999_999)), (999_999, 0));
    assert_eq!((share("100%").of(u64::MAX), share("50%").of(u64::MAX)), (u64::MAX, u64::MAX / 2));
    // More than the whole is no share.
    assert_eq!(refusal::<Ppm>("150%"), "\"150%\": a share is at most 1");
}

#[test]
fn bandwidth_power_and_temperature_need_their_units() {
    assert_eq!("50Mbps".parse(), Ok(BitsPerSecond(50_000_000)));
    assert_eq!("1.5 MB/s".parse(), Ok(BitsPerSecond(12_000_000)));
    assert_eq!("320W".parse(), Ok(MilliWatts(320_000)));
    assert_eq!("1.2kW".parse(), Ok(MilliWatts(1_200_000)));
    assert_eq!("80C".parse(), Ok(Celsius(80)));
    for text in ["50", "50mbps", "50Mb", "0.0001kbps"] {
        assert!(text.parse::<BitsPerSecond>().is_err(), "{text}");
    }
    for text in ["80", "80F", "80.5C", "-1C", "80c", "5000000000C"] {
        assert!(text.parse::<Celsius>().is_err(), "{text}");
    }
}

#[test]
fn messages_escape_and_cut_what_they_repeat() {
    let message = refusal::<Bytes>(&format!("1\u{1b}[31m\u{202e}{}", "x".repeat(500)));
    assert!(!message.contains('\u{1b}') && !message.contains('\u{202e}'));
    assert!(message.len() < 400, "{}", message.len());
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,24}|[0-9.eE+\\-PTwdhmsGMKiBCRWbpk/% ]{0,24}") {
        let _ = text.parse::<Bytes>();
        let _ = text.parse::<Millis>();
        let _ = text.parse::<Timestamp>();
        let _ = text.parse::<MilliCpu>();
        let _ = text.parse::<Ppm>();
        let _ = text.parse::<BitsPerSecond>();
        let _ = text.parse::<MilliWatts>();
        let _ = text.parse::<Celsius>();
        let _ = text.parse::<Credits>();
        let _ = text.parse::<Balance>();
        let _ = text.parse::<Rate>();
        let _ = text.parse::<PowerPrice>();
        let _ = text.parse::<Range<MilliCpu>>();
        let _ = text.parse::<Range<Bytes>>();
        let _ = text.parse::<Range<Count>>();
    }

    #[test]
    fn ranges_read_back_what_they_show(a in 10u64..1 << 50, b in 10u64..1 << 50, open: bool) {
        let (lo, hi) = (MilliCpu(a.min(b)), MilliCpu(a.max(b)));
        let range = Range { lo, hi: (!open).then_some(hi) };
        prop_assert_eq!(range.to_string().parse(), Ok(range));
        let range = Range { lo: Bytes(lo.0), hi: range.hi.map(|hi| Bytes(hi.0)) };
        prop_assert_eq!(range.to_string().parse(), Ok(range));
    }
}
