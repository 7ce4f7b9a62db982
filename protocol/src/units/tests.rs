use proptest::prelude::*;

use super::*;
use crate::GrammarError;

fn bytes(text: &str) -> Result<u64, GrammarError> {
    text.parse::<Bytes>().map(|bytes| bytes.0)
}

#[test]
fn sizes_are_shown_exactly_in_their_shortest_form() {
    let shown = |n: u64| Bytes(n).to_string();
    assert_eq!(shown(0), "0B");
    assert_eq!(shown(64_000_000_000), "64GB");
    assert_eq!(shown(25_769_803_776), "24GiB");
    assert_eq!(shown(24_564 << 20), "24564MiB");
    assert_eq!(shown(1_000), "1kB");
    assert_eq!(shown(1_023), "1023B");
    assert_eq!(bytes("0B").unwrap(), 0);
}

#[test]
fn sizes_have_a_rounded_form_for_tables() {
    assert_eq!(Bytes(24_564_000_000).short(), "24.6 GB");
    assert_eq!(Bytes(24_000_000_000).short(), "24 GB");
    assert_eq!(Bytes(999).short(), "999 B");
    assert_eq!(Bytes(u64::MAX).short(), "18446744.1 TB");
}

#[test]
fn moments_are_shown_in_utc() {
    assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00Z");
    assert_eq!(Timestamp(951_782_400_123).to_string(), "2000-02-29T00:00:00.123Z");
    assert_eq!(Timestamp::LATEST_WRITTEN.to_string(), "9999-12-31T23:59:59.999Z");
    assert_eq!("2026-12-24T08:00:00Z".parse(), Ok(Timestamp(1_798_099_200_000)));
    assert_eq!("2026-12-24T09:00:00+01:00".parse(), Ok(Timestamp(1_798_099_200_000)));
    assert_eq!("2026-12-24T07:30:00.5-00:30".parse(), Ok(Timestamp(1_798_099_200_500)));
}

#[test]
fn moments_that_do_not_exist_are_refused() {
    for text in [
        "2025-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-12-24T24:00:00Z",
        "2026-12-24T08:00:60Z",
        "2026-12-24",
        "2026-12-24 08:00:00Z",
        "2026-12-24T08:00:00",
        "2026-12-24T08:00:00.0001Z",
        "2026-12-24T08:00:00Z ",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+00:01",
        "",
    ] {
        assert!(text.parse::<Timestamp>().is_err(), "{text}");
    }
}

#[test]
fn moments_far_beyond_the_calendar_are_still_shown() {
    assert!(Timestamp(u64::MAX).to_string().ends_with('Z'));
}

#[test]
fn durations_are_shown_from_days_to_milliseconds() {
    assert_eq!(Millis(5_400_000).to_string(), "1h30m");
    assert_eq!(Millis(250).to_string(), "250ms");
    assert_eq!(Millis(0).to_string(), "0s");
    assert_eq!(Millis(90_061_001).to_string(), "1d1h1m1s1ms");
}

#[test]
fn cores_shares_and_rates_of_data_are_shown_without_zeros_at_the_end() {
    assert_eq!(MilliCpu(500).to_string(), "0.5");
    assert_eq!(MilliCpu(1_001).to_string(), "1.001");
    assert_eq!(Ppm(950_000).to_string(), "0.95");
    assert_eq!(Ppm::ONE.to_string(), "1");
    assert_eq!(BitsPerSecond(50_000_000).to_string(), "50Mbps");
    assert_eq!(MilliWatts(320_000).to_string(), "320W");
    assert_eq!(Celsius(80).to_string(), "80C");
}

#[test]
fn a_share_of_an_amount_is_rounded_down() {
    assert_eq!(Ppm(333_333).of(10), 3);
    assert_eq!(Ppm::ONE.of(u64::MAX), u64::MAX);
}

#[test]
fn units_are_text_in_json_and_integers_in_binary() {
    assert_eq!(serde_json::to_string(&Bytes(64_000_000_000)).unwrap(), "\"64GB\"");
    assert_eq!(serde_json::from_str::<Millis>("\"1h30m\"").unwrap(), Millis(5_400_000));
    assert_eq!(crate::codec::encode(&Millis(7), 64).unwrap(), 7u64.to_le_bytes());
    assert_eq!(crate::codec::decode::<Ppm>(&7u32.to_le_bytes(), 64).unwrap(), Ppm(7));
}

proptest! {
    #[test]
    fn every_unit_reads_back_what_it_shows(n: u64, small in 0u32..=1_000_000, signed: u32) {
        prop_assert_eq!(Bytes(n).to_string().parse(), Ok(Bytes(n)));
        prop_assert_eq!(Millis(n).to_string().parse(), Ok(Millis(n)));
        prop_assert_eq!(MilliCpu(n).to_string().parse(), Ok(MilliCpu(n)));
        prop_assert_eq!(BitsPerSecond(n).to_string().parse(), Ok(BitsPerSecond(n)));
        prop_assert_eq!(MilliWatts(n).to_string().parse(), Ok(MilliWatts(n)));
        prop_assert_eq!(Ppm(small).to_string().parse(), Ok(Ppm(small)));
        prop_assert_eq!(Celsius(signed).to_string().parse(), Ok(Celsius(signed)));
    }

    #[test]
    fn every_moment_that_can_be_written_reads_back(ms in 0..=Timestamp::LATEST_WRITTEN.0) {
        prop_assert_eq!(Timestamp(ms).to_string().parse(), Ok(Timestamp(ms)));
    }

    #[test]
    fn days_and_dates_agree(days in -1_000_000i64..10_000_000) {
        let (year, month, day) = civil_from_days(days);
        prop_assert_eq!(days_from_civil(year, month, day), days);
    }
}
