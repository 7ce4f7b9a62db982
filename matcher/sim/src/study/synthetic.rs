//! Demand and fleets made up with the marginals of public GPU traces, for whoever has no trace at hand.
//!
//! Arrivals are a Poisson-like stream with an hour-of-week profile, made bursty by gamma-distributed gaps (coefficient
//! of variation 1.64). Run times are log-normal by class of service, drawn again until they lie between 30 s and 10 h.
//! Sizes, shares and classes come in the proportions that were counted in the trace. No row of it is kept here.

use souk_protocol::{Millis, Tier};

use super::{
    demand::{Demand, ESTIMATES, LONGEST, LeftOut, MilliGpu, Request, SHORTEST, Values},
    fixed::{self, Fixed},
};
use crate::random::Dice;

/// Mean time between two arrivals.
const MEAN_GAP: Millis = Millis(352_000);
/// Shape of the gaps: 1 / 1.64^2.
const GAP_SHAPE: Fixed = Fixed::thousandths(372);
const HOUR: u64 = 3_600_000;
/// Arrivals by hour of a working day, in hundredths: quiet nights, busy mornings and afternoons, less at lunch and in
/// the evening.
const WORKDAY: [u64; 24] =
    [70, 70, 70, 70, 70, 70, 70, 70, 85, 115, 115, 115, 85, 115, 120, 120, 120, 120, 85, 85, 85, 85, 70, 70];
/// A day at the weekend: nights, and days like evenings.
const WEEKEND: [u64; 24] =
    [70, 70, 70, 70, 70, 70, 70, 70, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 85, 70, 70];
const WORKDAYS: u64 = 5;
const DAYS: u64 = 7;

/// Whole GPUs asked for, and how often: two, four or eight, or one or a part of one.
const SIZES: [(u64, u64); 4] = [(1, 6_989), (2, 16), (4, 15), (8, 44)];
/// Of those that ask for one, so many of [`SIZES`]' 6,989 take only a part.
const PARTIAL: u64 = 3_078;
/// Parts of a GPU in thousandths, and how often of a hundred.
const PARTS: [(u64, u64); 8] = [(810, 40), (470, 19), (320, 12), (650, 9), (460, 6), (230, 5), (550, 4), (200, 5)];

/// A class of service of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// Latency-sensitive.
    Ls,
    /// Best effort.
    Be,
    /// Burstable.
    Burstable,
    /// Guaranteed.
    Guaranteed,
}

/// How often each class comes, with mu and sigma of its log-normal run times in thousandths. Too few guaranteed ones
/// were counted to fit anything: they run like latency-sensitive ones.
const CLASSES: [(Class, u64, i64, i64); 4] = [
    (Class::Ls, 4_647, 6_817, 1_779),
    (Class::Be, 3_398, 6_142, 1_878),
    (Class::Burstable, 100, 8_000, 3_050),
    (Class::Guaranteed, 7, 6_817, 1_779),
];
/// One in so many latency-sensitive jobs is taken for gold.
const GOLD_SHARE: u64 = 4;

impl Class {
    /// The tier that a renter with such a job would ask for: guaranteed ones gold, best effort bronze, the others silver,
    /// but of the latency-sensitive ones each fourth gold (the trace has hardly any guaranteed ones).
    pub(super) fn tier(self, dice: &mut Dice) -> Tier {
        match self {
            Self::Guaranteed => Tier::Gold,
            Self::Ls if dice.below(GOLD_SHARE) == 0 => Tier::Gold,
            Self::Ls | Self::Burstable => Tier::Silver,
            Self::Be => Tier::Bronze,
        }
    }
}

/// So many jobs.
#[must_use]
pub fn demand(seed: u64, count: usize, values: &Values) -> Demand {
    let mut dice = Dice::new(seed, "synthetic");
    let mut at = 0;
    let requests = (0..count).map(|_| {
        at = after(at, fixed::gamma(&mut dice, GAP_SHAPE).of(MEAN_GAP.0));
        request(&mut dice, Millis(at), values)
    });
    Demand {
        source: "synthetic, marginals of a public GPU trace".to_owned(),
        requests: requests.collect(),
        left_out: LeftOut::default(),
    }
}

/// Machines as a large GPU cluster has them, most of them with eight.
#[must_use]
pub fn nodes() -> Vec<(String, u64)> {
    // GPUs by model, and how many of them share a machine.
    [("G2", 4_392, 8), ("T4", 842, 4), ("V100", 399, 8), ("G3", 312, 8), ("P100", 265, 2)]
        .into_iter()
        .flat_map(|(model, gpus, size)| vec![(model.to_owned(), size); gpus / usize::try_from(size).unwrap_or(1)])
        .collect()
}

fn request(dice: &mut Dice, at: Millis, values: &Values) -> Request {
    let (class, _, mu, sigma) = *weighted(dice, &CLASSES, |class| class.1).unwrap_or(&CLASSES[0]);
    let tier = class.tier(dice);
    let run = run(dice, Fixed::thousandths(mu), Fixed::thousandths(sigma));
    Request { at, tier, gpu: gpu(dice), run, limit: limit(dice, run), worth: values.worth(dice, tier), patience: None }
}

/// A log-normal run time in seconds, within the bounds.
fn run(dice: &mut Dice, mu: Fixed, sigma: Fixed) -> Millis {
    loop {
        let seconds = fixed::exp(mu.plus(sigma.times(fixed::normal(dice))));
        let run = Millis(seconds.of(1_000));
        if (SHORTEST..=LONGEST).contains(&run) {
            return run;
        }
    }
}

/// What somebody says who wants to be on the safe side, more or less.
pub(super) fn limit(dice: &mut Dice, run: Millis) -> Millis {
    Millis(run.0 * dice.pick(&ESTIMATES).copied().unwrap_or(1))
}

fn gpu(dice: &mut Dice) -> MilliGpu {
    let (whole, count) = weighted(dice, &SIZES, |size| size.1).copied().unwrap_or((1, 1));
    if whole == 1 && dice.below(count) < PARTIAL {
        return MilliGpu(weighted(dice, &PARTS, |part| part.1).map_or(MilliGpu::ONE.0, |part| part.0));
    }
    MilliGpu(whole * MilliGpu::ONE.0)
}

/// One of `items`, as likely as its weight says.
fn weighted<'a, T>(dice: &mut Dice, items: &'a [T], weight: impl Fn(&T) -> u64) -> Option<&'a T> {
    let mut left = dice.below(items.iter().map(&weight).sum());
    items.iter().find(|item| {
        let weight = weight(item);
        let found = left < weight;
        left = left.saturating_sub(weight);
        found
    })
}

/// The moment after `at` by which arrivals worth `gap` of a mean hour have passed.
fn after(mut at: u64, gap: u64) -> u64 {
    let week: u64 = WORKDAYS * WORKDAY.iter().sum::<u64>() + (DAYS - WORKDAYS) * WEEKEND.iter().sum::<u64>();
    let mean = week / (DAYS * 24);
    let mut left = gap * week / (DAYS * 24);
    loop {
        let hour = at / HOUR;
        let day = if (hour / 24) % DAYS < WORKDAYS { &WORKDAY } else { &WEEKEND };
        let pace = usize::try_from(hour % 24).ok().and_then(|hour| day.get(hour)).copied().unwrap_or(mean);
        let until_next = (hour + 1) * HOUR - at;
        if left <= until_next * pace {
            return at + left / pace;
        }
        left -= until_next * pace;
        at += until_next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: usize = 60_000;

    fn many() -> Demand {
        demand(1, MANY, &Values::default())
    }

    fn quantile(sorted: &[u64], percent: usize) -> u64 {
        sorted[sorted.len() * percent / 100]
    }

    fn near(what: &str, got: u64, wanted: u64, tolerance_percent: u64) {
        let off = got.abs_diff(wanted) * 100;
        assert!(off <= wanted * tolerance_percent, "{what}: {got}, expected {wanted} within {tolerance_percent} %");
    }

    #[test]
    fn the_same_seed_makes_the_same_demand() {
        let values = Values::default();
        assert_eq!(demand(7, 500, &values), demand(7, 500, &values));
        assert_ne!(demand(7, 500, &values), demand(8, 500, &values));
    }

    #[test]
    fn run_times_of_best_effort_work_have_the_quantiles_of_their_truncated_log_normal() {
        // exp(mu + sigma * z), z being the normal quantile of a part of the way from 30 s to 10 h.
        let mut runs: Vec<_> =
            many().requests.iter().filter(|r| r.tier == Tier::Bronze).map(|r| r.run.0 / 1_000).collect();
        runs.sort_unstable();
        for (percent, seconds) in [(5, 50), (25, 175), (50, 538), (75, 1_756), (95, 9_173)] {
            near(&format!("{percent} %"), quantile(&runs, percent), seconds, 6);
        }
    }

    #[test]
    fn run_times_of_other_work_have_the_quantiles_of_theirs() {
        let mut runs: Vec<_> =
            many().requests.iter().filter(|r| r.tier == Tier::Gold).map(|r| r.run.0 / 1_000).collect();
        runs.sort_unstable();
        for (percent, seconds) in [(5, 71), (25, 300), (50, 930), (75, 2_904), (95, 13_114)] {
            near(&format!("{percent} %"), quantile(&runs, percent), seconds, 7);
        }
    }

    #[test]
    fn gaps_have_the_mean_and_the_burstiness_of_the_trace() {
        let all = many();
        near("mean gap", all.span().0 / MANY as u64, MEAN_GAP.0, 2);
        let gaps: Vec<_> = all.requests.windows(2).map(|pair| (pair[1].at.0 - pair[0].at.0) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // The profile of the week adds a little to 1.64.
        let variation = variance.sqrt() / mean;
        assert!((1.60..1.74).contains(&variation), "{variation}");
    }

    #[test]
    fn afternoons_are_busier_than_nights_as_the_profile_says() {
        let mut by_hour = [0_u64; 24];
        for request in many().requests {
            let hour = request.at.0 / HOUR;
            if (hour / 24) % DAYS < WORKDAYS {
                by_hour[usize::try_from(hour % 24).unwrap()] += 1;
            }
        }
        let (night, afternoon): (u64, u64) = (by_hour[0..7].iter().sum(), by_hour[14..18].iter().sum());
        near("afternoon over night", afternoon * 100 / 4 * 7 / night, 120 * 100 / 70, 6);
    }

    #[test]
    fn sizes_shares_tiers_and_estimates_come_as_often_as_counted() {
        let all = many();
        let share = |test: &dyn Fn(&Request) -> bool| {
            all.requests.iter().filter(|request| test(request)).count() as u64 * 1_000_000 / MANY as u64
        };
        near("part of a GPU", share(&|r| r.gpu < MilliGpu::ONE), 3_078 * 1_000_000 / 7_064, 2);
        near("0.81 GPU", share(&|r| r.gpu == MilliGpu(810)), 3_078 * 400_000 / 7_064, 4);
        near("one GPU", share(&|r| r.gpu == MilliGpu::ONE), 3_911 * 1_000_000 / 7_064, 2);
        near("eight GPUs", share(&|r| r.gpu == MilliGpu(8_000)), 44 * 1_000_000 / 7_064, 15);
        near("bronze", share(&|r| r.tier == Tier::Bronze), 3_398 * 1_000_000 / 8_152, 2);
        near("gold", share(&|r| r.tier == Tier::Gold), (4_647 / 4 + 7) * 1_000_000 / 8_152, 4);
        near("exact estimates", share(&|r| r.limit == r.run), 500_000, 2);
        near("five times too long", share(&|r| r.limit.0 == 5 * r.run.0), 250_000, 3);
        assert!(all.requests.iter().all(|r| (SHORTEST..=LONGEST).contains(&r.run)));
    }

    #[test]
    fn a_week_of_mean_hours_takes_a_week() {
        assert_eq!(after(0, DAYS * 24 * HOUR) / HOUR, DAYS * 24);
    }
}
