use proptest::{prelude::*, strategy::Strategy as Generates};
use souk_protocol::Credits;

use super::{Strategy, *};
use crate::calendar::{Window, Zone};

const ASK: PriceList = PriceList { cpu: Rate(8_000), memory_gb: Rate(1_500) };
const FLOOR: PriceList = PriceList { cpu: Rate(5_000), memory_gb: Rate(1_000) };

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn factor(text: &str) -> Factor {
    text.parse().unwrap()
}

fn peak(days: &str, from: &str, to: &str, by: &str) -> Peak {
    let window = Window::new(days.parse().unwrap(), from.parse().unwrap(), to.parse().unwrap()).unwrap();
    let when = Calendar::new(Zone::named("Europe/Berlin").unwrap(), vec![window], Vec::new()).unwrap();
    Peak { when, factor: factor(by) }
}

fn pricing(strategy: Strategy) -> Pricing {
    Pricing { strategy, peaks: vec![peak("mon-fri", "09:00", "18:00", "1.4")], power: None }
}

#[test]
fn factors_are_exact_decimals() {
    for (text, ppm) in [("1.4", 1_400_000), ("0.000001", 1), ("2", 2_000_000), ("1000", 1_000_000_000)] {
        assert_eq!(factor(text).ppm(), ppm);
        assert_eq!(factor(text).to_string(), text);
    }
    for text in ["0", "0.0", "-1", "1.", ".5", "1e3", "1.0000001", "1000.1", "nan", ""] {
        assert_eq!(text.parse::<Factor>(), Err(FactorError), "{text}");
    }
    assert_eq!(factor("1.4").of(Rate(3)), Rate(5), "rounded up");
}

/// Case S1: 50 % more is 1.5 times, 150 % more is 2.5 times, and half is half.
#[test]
fn case_s1_factors_are_not_rounded_to_whole_ones() {
    for (by, rate) in [("0.5", 4_000), ("1.5", 12_000), ("2.5", 20_000), ("0.000125", 1), ("1.000125", 8_001)] {
        assert_eq!(factor(by).of(Rate(8_000)), Rate(rate), "{by}");
    }
    let half = Pricing { peaks: vec![peak("mon-sun", "00:00", "24:00", "1.5")], ..pricing(Strategy::Fixed) };
    assert_eq!(half.peak_at(at("2026-03-02T12:00:00Z")).ppm(), 1_500_000);
    // An adaptive price between 0.7 and 1.3 times, by the share in use.
    let factors = [0, 500_000, 1_000_000].map(|used| pricing(Strategy::Adaptive).utilisation(Ppm(used)).ppm());
    assert_eq!(factors, [700_000, 1_000_000, 1_300_000]);
}

#[test]
fn a_fixed_price_is_the_ask_and_its_peaks() {
    let pricing = pricing(Strategy::Fixed);
    let mut level = Level::default();
    let (night, day) = (at("2026-06-01T06:59:59Z"), at("2026-06-01T07:00:00Z"));
    level.follow(&pricing, Ppm(0), night, Millis(0));
    assert_eq!(pricing.list(ASK, FLOOR, level.factor()), ASK);
    level.follow(&pricing, Ppm(1_000_000), day, Millis(1_000));
    let price = pricing.list(ASK, FLOOR, level.factor());
    assert_eq!(price, PriceList { cpu: Rate(11_200), memory_gb: Rate(2_100) });
    assert_eq!(level.due(), None);
}

#[test]
fn an_adaptive_price_falls_when_idle_and_rises_when_busy_five_percent_a_minute() {
    let pricing = Pricing { strategy: Strategy::Adaptive, ..Pricing::default() };
    let now = at("2026-06-01T00:00:00Z");
    let mut level = Level::default();
    level.follow(&pricing, Ppm(0), now, Millis(0));
    assert_eq!(level.factor(), factor("0.7"));
    level.follow(&pricing, Ppm(500_000), now, Millis(59_999));
    assert_eq!((level.factor(), level.due()), (factor("0.7"), Some(Millis(60_000))));
    level.follow(&pricing, Ppm(500_000), now, Millis(60_000));
    assert_eq!(level.factor(), factor("0.735"));
    level.follow(&pricing, Ppm(500_000), now, Millis(10 * 60_000));
    assert_eq!((level.factor(), level.due()), (Factor::ONE, None));
    level.follow(&pricing, Ppm(1_000_000), now, Millis(100 * 60_000));
    assert_eq!(level.factor(), factor("1.3"));
}

#[test]
fn long_work_pays_for_the_dearer_hours_it_reaches_into() {
    let pricing = pricing(Strategy::Fixed);
    // Monday 06:00 in Berlin: nine of the next twelve hours are dearer.
    let now = at("2026-06-01T04:00:00Z");
    assert_eq!(pricing.peak_over(now, Millis::from_hours(12)), factor("1.3"));
    assert_eq!(pricing.peak_over(now, Millis::from_hours(3)), Factor::ONE);
    assert_eq!(pricing.peak_over(now, Millis::ZERO), Factor::ONE);
    let mut level = Level::default();
    level.follow(&pricing, Ppm(0), now, Millis(0));
    assert_eq!(level.factor_for(&pricing, now, Millis::from_hours(12)), factor("1.3"));
    assert_eq!(level.factor_for(&pricing, now, Millis::from_mins(59)), Factor::ONE);
    // In the peak, work that reaches out of it pays the peak all the same.
    let noon = at("2026-06-01T15:00:00Z");
    level.follow(&pricing, Ppm(0), noon, Millis(0));
    assert_eq!(level.factor_for(&pricing, noon, Millis::from_hours(10)), factor("1.4"));
}

#[test]
fn a_core_is_never_sold_for_less_than_its_power() {
    let power = Power { price: PowerPrice(310_000), per_core: Some(MilliWatts(30_000)), never_below: true };
    assert_eq!(power.core(), Rate(9_300), "30 W at 0.31 CR/kWh");
    let guarded = Pricing { strategy: Strategy::Adaptive, power: Some(power), ..Pricing::default() };
    assert_eq!(guarded.list(ASK, FLOOR, factor("0.7")), PriceList { cpu: Rate(9_300), memory_gb: Rate(1_050) });
    let informed = Pricing { power: Some(Power { never_below: false, ..power }), ..guarded };
    assert_eq!(informed.list(ASK, FLOOR, factor("0.7")).cpu, Rate(5_600));
    let estimated = Power { per_core: None, ..power };
    assert_eq!((estimated.draws(), estimated.core()), (MilliWatts(10_000), Rate(3_100)));
}

#[test]
fn the_breakdown_names_every_part() {
    let pricing = pricing(Strategy::Adaptive);
    let (day, mut level) = (at("2026-06-01T07:00:00Z"), Level::default());
    level.follow(&pricing, Ppm(250_000), day, Millis(0));
    let breakdown = level.breakdown(&pricing, ASK, FLOOR, Ppm(250_000), day);
    assert_eq!((breakdown.peak, breakdown.utilisation), (factor("1.4"), factor("0.85")));
    assert_eq!((breakdown.target, breakdown.factor), (factor("1.19"), factor("1.19")));
    assert_eq!(breakdown.price, PriceList { cpu: Rate(9_520), memory_gb: Rate(1_785) });
}

#[test]
fn suggestions_follow_the_record() {
    let pricing = Pricing::default();
    let say = |record, used| suggest(&record, &pricing, ASK, FLOOR, Ppm(used));
    let few = Record { won: 3, lost: 4, ..Record::default() };
    assert_eq!(say(few, 0).enough, Enough::TooLittle { answers: 7 });
    let beaten = Record { bids: 40, won: 4, lost: 36, ..Record::default() };
    let found = say(beaten, 100_000);
    assert_eq!((found.enough, found.won), (Enough::TooDear, Some(Ppm(100_000))));
    assert_eq!(found.ask, Some(PriceList { cpu: Rate(7_200), memory_gb: Rate(1_350) }));
    assert_eq!(say(beaten, 700_000).enough, Enough::Fits, "a machine in use need not be cheaper");
    let wanted = Record { bids: 40, won: 40, ..Record::default() };
    let found = say(wanted, 950_000);
    assert_eq!((found.enough, found.ask.map(|ask| ask.cpu)), (Enough::TooCheap, Some(Rate(8_800))));
    let poor = Record { under_floor: 30, best_refused: Some(Ppm(800_000)), ..Record::default() };
    let found = say(poor, 0);
    assert_eq!(found.enough, Enough::FloorTooHigh);
    assert_eq!(found.floor, Some(PriceList { cpu: Rate(4_000), memory_gb: Rate(800) }));
    let power = Power { price: PowerPrice(450_000), per_core: None, never_below: true };
    let guarded = Pricing { power: Some(power), ..Pricing::default() };
    assert_eq!(suggest(&poor, &guarded, ASK, FLOOR, Ppm(0)).floor.map(|floor| floor.cpu), Some(Rate(4_500)));
    let mut record = Record::default();
    record.refuse(Rate(4), Rate(5));
    record.refuse(Rate(3), Rate(5));
    assert_eq!((record.under_floor, record.best_refused), (2, Some(Ppm(800_000))));
}

fn any_pricing() -> impl Generates<Value = Pricing> {
    let peak_factors = prop::collection::vec(100_000..4_000_000_u64, 0..3);
    (any::<bool>(), peak_factors, prop::option::of((0..2_000_000_u64, 0..50_000_u64, any::<bool>()))).prop_map(
        |(adaptive, factors, power)| Pricing {
            strategy: if adaptive { Strategy::Adaptive } else { Strategy::Fixed },
            peaks: factors
                .into_iter()
                .zip([("mon-fri", "09:00", "18:00"), ("mon-sun", "17:00", "23:00"), ("sat,sun", "22:00", "06:00")])
                .map(|(ppm, (days, from, to))| Peak { factor: Factor(ppm), ..peak(days, from, to, "1") })
                .collect(),
            power: power.map(|(price, draws, never_below)| Power {
                price: PowerPrice(price),
                per_core: Some(MilliWatts(draws)),
                never_below,
            }),
        },
    )
}

fn any_list() -> impl Generates<Value = PriceList> {
    (0..1_000_000_u64, 0..1_000_000_u64).prop_map(|(cpu, memory)| PriceList { cpu: Rate(cpu), memory_gb: Rate(memory) })
}

proptest! {
    #[test]
    fn no_price_is_ever_under_the_floor_or_the_power_cost(
        pricing in any_pricing(),
        ask in any_list(),
        floor in any_list(),
        steps in prop::collection::vec((0..=1_000_000_u32, 0..600_000_u64), 1..20),
        length in 0..1_000_000_000_u64,
    ) {
        let (mut level, mut now, start) = (Level::default(), 0, 1_780_000_000_000_u64);
        for (used, wait) in steps {
            now += wait;
            let at = Timestamp(start + now);
            level.follow(&pricing, Ppm(used), at, Millis(now));
            for factor in [level.factor(), level.factor_for(&pricing, at, Millis(length))] {
                let price = pricing.list(ask, floor, factor);
                prop_assert!(price.cpu >= floor.cpu && price.memory_gb >= floor.memory_gb);
                if let Some(power) = pricing.power.filter(|power| power.never_below) {
                    prop_assert!(price.cpu >= power.core());
                }
            }
        }
    }

    #[test]
    fn an_adaptive_factor_moves_at_most_five_percent_within_any_minute(
        pricing in any_pricing(),
        steps in prop::collection::vec((0..=1_000_000_u32, 0..90_000_u64), 1..60),
    ) {
        let pricing = Pricing { strategy: Strategy::Adaptive, ..pricing };
        let (mut level, mut now, start) = (Level::default(), 0, 1_780_000_000_000_u64);
        let mut seen: Vec<(u64, u64)> = Vec::new();
        for (used, wait) in steps {
            now += wait;
            level.follow(&pricing, Ppm(used), Timestamp(start + now), Millis(now));
            let factor = level.factor().ppm();
            for (_, before) in seen.iter().rev().take_while(|(then, _)| now - then < 60_000) {
                let most = (before * 50_000 / 1_000_000).max(1);
                prop_assert!(factor.abs_diff(*before) <= most, "{before} to {factor}");
            }
            seen.push((now, factor));
        }
    }

    #[test]
    fn a_price_never_falls_when_more_is_in_use(
        pricing in any_pricing(),
        ask in any_list(),
        floor in any_list(),
        pair in (0..=1_000_000_u32, 0..=1_000_000_u32),
        at in 1_780_000_000_000..1_790_000_000_000_u64,
        length in 0..100_000_000_u64,
    ) {
        let price = |used| {
            let mut level = Level::default();
            level.follow(&pricing, Ppm(used), Timestamp(at), Millis(0));
            pricing.list(ask, floor, level.factor_for(&pricing, Timestamp(at), Millis(length)))
        };
        let (less, more) = (price(pair.0.min(pair.1)), price(pair.0.max(pair.1)));
        prop_assert!(less.cpu <= more.cpu && less.memory_gb <= more.memory_gb);
    }
}

#[test]
fn the_largest_numbers_do_not_overflow() {
    let power = Power { price: PowerPrice(u64::MAX), per_core: Some(MilliWatts(u64::MAX)), never_below: true };
    assert_eq!(power.core(), Rate(u64::MAX));
    assert_eq!(Factor(MAX_FACTOR).of(Rate(u64::MAX)), Rate(u64::MAX));
    assert_eq!(Factor(MAX_FACTOR).times(Factor(MAX_FACTOR)), Factor(MAX_FACTOR));
    assert_eq!(Rate(u64::MAX).charge(Millis(u64::MAX)), None::<Credits>);
}
