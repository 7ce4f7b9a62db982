use proptest::prelude::*;

use super::*;

#[test]
fn money_is_shown_with_six_places_and_reads_back() {
    assert_eq!(Credits(1_200).to_string(), "0.001200 CR");
    assert_eq!(Rate(340_000).to_string(), "0.340000 CR/h");
    assert_eq!(Balance(-1_200).to_string(), "-0.001200 CR");
    assert_eq!("0.0012 CR".parse(), Ok(Credits(1_200)));
    assert_eq!("2.20 CR/h".parse(), Ok(Rate(2_200_000)));
    assert_eq!("-0.5 CR".parse(), Ok(Balance(-500_000)));
    assert_eq!("0.31 CR/kWh".parse(), Ok(PowerPrice(310_000)));
}

#[test]
fn a_price_by_the_second_is_exact_by_the_hour() {
    assert_eq!("0.000001 CR/s".parse(), Ok(Rate(3_600)));
    assert_eq!("0.0001 CR/s".parse(), Ok(Rate(360_000)));
}

#[test]
fn a_charge_is_rounded_up_once() {
    assert_eq!(charge(Rate(340_000), Millis(3_600_000)), Some(Credits(340_000)));
    assert_eq!(charge(Rate(1), Millis(1)), Some(Credits(1)));
    assert_eq!(charge(Rate(0), Millis(u64::MAX)), Some(Credits(0)));
    assert_eq!(charge(Rate(7), Millis(0)), Some(Credits(0)));
    assert_eq!(charge(Rate(3_600_000), Millis(1_001)), Some(Credits(1_001)));
    assert_eq!(charge(Rate(3_600_001), Millis(1_001)), Some(Credits(1_002)));
    assert_eq!(charge(Rate(u64::MAX), Millis(u64::MAX)), None);
    assert_eq!(Rate(360_000).charge(Millis(1_500)), Some(Credits(150)));
}

/// The sums of the case are finer than a micro-credit; they come out exactly in the next unit up.
#[test]
fn case_m8_money_has_no_floats() {
    // 0.002 CR/s for 44.094619588 s is 0.088189239176 CR: at a millisecond's precision 0.088190 CR, rounded up.
    let by_second: Rate = "0.002 CR/s".parse().unwrap();
    assert_eq!(by_second, Rate(7_200_000));
    assert_eq!(charge(by_second, Millis(44_095)), Some(Credits(88_190)));
    // 0.0001 CR/s for 44.018 s and 0.00005 CR/s for 103.003 s: each exact.
    assert_eq!(charge("0.0001 CR/s".parse().unwrap(), Millis(44_018)), Some(Credits(4_402)));
    assert_eq!(charge("0.00005 CR/s".parse().unwrap(), Millis(103_003)), Some(Credits(5_151)));
    // The exact products behind them, in 10^-15 credits: 2,000 micro-credits/s times nanoseconds.
    assert_eq!(2_000u128 * 44_094_619_588, 88_189_239_176_000);
    assert_eq!(100u128 * 44_017_951_000 + 50 * 103_002_864_998, 9_551_938_349_900);
    // 0.025 an hour stays 0.025.
    assert_eq!("0.025 CR/h".parse::<Rate>().unwrap().to_string(), "0.025000 CR/h");
    // Tiny sums have no exponent.
    assert_eq!(Credits(1).to_string(), "0.000001 CR");
    assert_eq!(Credits(1).short(), "0.000001 CR");
}

#[test]
fn case_u9_small_money_is_never_shown_as_nothing() {
    assert_eq!("0.00004 CR/h".parse::<Rate>().unwrap().short(), "0.000040 CR/h");
    assert_eq!(Rate(25_000).short(), "0.025 CR/h");
    assert_eq!(Credits(0).short(), "0.00 CR");
    assert_eq!(Credits(1_200).short(), "0.0012 CR");
    assert_eq!(Credits(19_200_000).short(), "19.20 CR");
    assert_eq!(Credits(999_999).short(), "1.00 CR");
    assert_eq!(Credits(99_999).short(), "0.100 CR");
    assert_eq!(Credits(u64::MAX).short(), "18446744073709.55 CR");
    // Ten times 0.1 is 1.
    let tenth: Credits = "0.1 CR".parse().unwrap();
    let sum = (0..10).try_fold(Credits::ZERO, |sum, _| sum.checked_add(tenth));
    assert_eq!(sum, "1 CR".parse().ok());
    // Money is text in JSON.
    assert_eq!(serde_json::to_string(&tenth).unwrap(), "\"0.100000 CR\"");
}

#[test]
fn money_without_its_unit_or_with_too_many_places_is_refused_with_advice() {
    let refused = |text: &str| text.parse::<Credits>().unwrap_err().to_string();
    assert_eq!(refused("40"), "\"40\": add the unit, e.g. \"40 CR\"");
    assert_eq!(refused("40CR"), "\"40CR\": a space and the unit are expected here (at character 3), e.g. \"40 CR\"");
    assert_eq!(
        refused("0.0000001 CR"),
        "\"0.0000001 CR\": at most 6 places after the point, 0.000001 CR is the smallest amount"
    );
    assert_eq!(refused("-1 CR"), "\"-1 CR\": a negative number means nothing here");
    assert_eq!(refused("1e3 CR"), "\"1e3 CR\": exponents are not allowed (at character 2), write the number out");
    assert!(refused("NaN CR").contains("not a finite number"));
    assert!(refused("99999999999999999999 CR").contains("too large"));
    assert!("1 CR".parse::<Rate>().unwrap_err().to_string().contains("a price needs its time"));
}

#[test]
fn a_balance_never_wraps() {
    assert_eq!(Balance(i64::MAX).checked_add(Credits(1)), None);
    assert_eq!(Balance(i64::MIN).checked_sub(Credits(1)), None);
    assert_eq!(Balance(5).checked_sub(Credits(7)), Some(Balance(-2)));
    assert_eq!(Balance(-2).owed_by_us(), Credits(2));
    assert_eq!(Balance(i64::MIN).owed_by_us(), Credits(1 << 63));
    assert_eq!(Balance(-2).owed_to_us(), Credits::ZERO);
}

proptest! {
    #[test]
    fn money_reads_back_what_it_shows(micro: u64, signed: i64) {
        prop_assert_eq!(Credits(micro).to_string().parse(), Ok(Credits(micro)));
        prop_assert_eq!(Rate(micro).to_string().parse(), Ok(Rate(micro)));
        prop_assert_eq!(PowerPrice(micro).to_string().parse(), Ok(PowerPrice(micro)));
        prop_assert_eq!(Balance(signed).to_string().parse(), Ok(Balance(signed)));
    }

    #[test]
    fn a_charge_is_the_smallest_whole_amount_that_covers_the_run(rate in 0u64..1 << 40, ms in 0u64..1 << 40) {
        let Credits(paid) = charge(Rate(rate), Millis(ms)).unwrap();
        let owed = u128::from(rate) * u128::from(ms);
        prop_assert!(u128::from(paid) * 3_600_000 >= owed);
        prop_assert!(u128::from(paid) * 3_600_000 < owed + 3_600_000);
    }

    #[test]
    fn the_short_form_of_money_is_never_zero_for_something(micro in 1u64..) {
        prop_assert!(Credits(micro).short().chars().any(|c| ('1'..='9').contains(&c)));
    }
}
