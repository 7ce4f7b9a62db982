//! What a story comes to: the figures by which policies are compared, and how sure they are.
//!
//! All in whole numbers, so that a seed gives the same report on every machine: shares in millionths, times in
//! milliseconds, money in micro-credits.

use serde::Serialize;
use souk_protocol::{Millis, Tier};

use super::{
    demand::{Demand, Fleet, Request},
    story::{Fate, Story},
};
use crate::{
    figures::{narrow, quantile, share},
    random::Dice,
};

/// Runs shorter than this count as this long in the slowdown, or tiny ones would make all of it.
const BOUND: Millis = Millis(10_000);
/// Times that a bootstrap draws its sample again.
const DRAWS: usize = 2_000;
/// All tiers, the dearest first.
pub const TIERS: [Tier; 3] = [Tier::Gold, Tier::Silver, Tier::Bronze];

/// Figures of the jobs of one tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct TierFigures {
    /// Jobs.
    pub jobs: u64,
    /// Share that was done.
    pub filled: u64,
    /// Time from submission to the first start of those that started: median.
    pub wait_p50: u64,
    /// 95 % waited no longer.
    pub wait_p95: u64,
    /// 99 % waited no longer.
    pub wait_p99: u64,
    /// Mean of `max(1, (wait + run) / max(run, 10 s))` of those that were done, in thousandths.
    pub slowdown: u64,
    /// Mean price of a GPU hour of useful work.
    pub rate: u64,
    /// Mean payment for a job that was done.
    pub job_cost: u64,
}

/// Figures of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Figures {
    /// Busy GPU time over capacity, in the span of the arrivals.
    pub utilisation: u64,
    /// The part of it whose result counts.
    pub useful: u64,
    /// Jobs that were done, of all.
    pub filled: u64,
    /// By tier, in the order of [`TIERS`].
    pub tiers: [TierFigures; 3],
    /// Mean bounded slowdown of all, in thousandths.
    pub slowdown: u64,
    /// Mean payment for a job that was done.
    pub job_cost: u64,
    /// What a machine's GPU earned in an hour of the span, on average.
    pub income: u64,
    /// How unevenly: 0 if all GPUs earned the same, a million if one earned everything.
    pub gini: u64,
    /// Preemptions for 100 jobs, in thousandths.
    pub preempted: u64,
    /// GPU time that was used in vain, of all that was used.
    pub wasted: u64,
    /// Awards that were declined, for 100 jobs, in thousandths.
    pub conflicts: u64,
    /// Messages that arrived at a node, on average.
    pub messages: u64,
    /// What must never happen and did.
    pub violations: u64,
}

impl Figures {
    /// Of what became of `demand` on `fleet`.
    #[must_use]
    pub fn of(demand: &Demand, fleet: &Fleet, story: &Story) -> Self {
        let all: Vec<_> = demand.requests.iter().zip(&story.fates).collect();
        let jobs = all.len() as u64;
        let done: Vec<_> = all.iter().filter(|(_, fate)| fate.end.is_some()).copied().collect();
        let span = demand.span();
        let capacity = u128::from(fleet.gpu().0) * u128::from(span.0);
        let (mut busy, mut useful, mut used, mut wasted) = (0, 0, 0, 0);
        for stay in &story.stays {
            let held = |to: Millis| u128::from(stay.gpu.0) * u128::from(to.0.saturating_sub(stay.from.0));
            let within = held(stay.to.min(span));
            busy += within;
            useful += if stay.is_useful { within } else { 0 };
            used += held(stay.to);
            wasted += if stay.is_useful { 0 } else { held(stay.to) };
        }
        let incomes = incomes(fleet, story);
        let gpu_seconds = capacity / 1_000_000;
        let earned: u128 = incomes.iter().map(|(income, _)| u128::from(*income)).sum();
        Self {
            utilisation: share(busy, capacity),
            useful: share(useful, capacity),
            filled: share(done.len() as u128, u128::from(jobs)),
            tiers: TIERS.map(|tier| TierFigures::of(tier, &all)),
            slowdown: mean(done.iter().map(|(request, fate)| slowdown(request, fate))),
            job_cost: mean(done.iter().map(|(_, fate)| fate.paid.0)),
            income: narrow((earned * 3_600).checked_div(gpu_seconds).unwrap_or(0)),
            gini: gini(incomes),
            preempted: ratio(story.fates.iter().map(|fate| u64::from(fate.preempted)).sum(), 100_000, jobs),
            wasted: share(wasted, used),
            conflicts: ratio(story.conflicts, 100_000, jobs),
            messages: ratio(story.messages, 1, story.nodes),
            violations: story.violations.len() as u64,
        }
    }
}

impl TierFigures {
    fn of(tier: Tier, all: &[(&Request, &Fate)]) -> Self {
        let all: Vec<_> = all.iter().filter(|(request, _)| request.tier == tier).collect();
        let done: Vec<_> = all.iter().filter(|(_, fate)| fate.end.is_some()).collect();
        let mut waits: Vec<_> =
            all.iter().filter_map(|(request, fate)| Some(fate.start?.0.saturating_sub(request.at.0))).collect();
        waits.sort_unstable();
        let paid: u128 = done.iter().map(|(_, fate)| u128::from(fate.paid.0)).sum();
        let work: u128 = done.iter().map(|(request, _)| request.work()).sum();
        Self {
            jobs: all.len() as u64,
            filled: share(done.len() as u128, all.len() as u128),
            wait_p50: quantile(&waits, 500),
            wait_p95: quantile(&waits, 950),
            wait_p99: quantile(&waits, 990),
            slowdown: mean(done.iter().map(|(request, fate)| slowdown(request, fate))),
            rate: narrow((paid * 3_600_000_000).checked_div(work).unwrap_or(0)),
            job_cost: mean(done.iter().map(|(_, fate)| fate.paid.0)),
        }
    }
}

/// In thousandths.
fn slowdown(request: &Request, fate: &Fate) -> u64 {
    let end = fate.end.map_or(0, |end| end.0);
    let took = end.saturating_sub(request.at.0);
    (took * 1_000).checked_div(request.run.max(BOUND).0).unwrap_or(0).max(1_000)
}

fn mean(values: impl Iterator<Item = u64>) -> u64 {
    let (sum, count) = values.fold((0_u128, 0_u128), |(sum, count), value| (sum + u128::from(value), count + 1));
    narrow((sum + count / 2).checked_div(count).unwrap_or(0))
}

fn ratio(part: u64, unit: u64, whole: u64) -> u64 {
    narrow((u128::from(part) * u128::from(unit)).checked_div(u128::from(whole)).unwrap_or(0))
}

/// What each machine earned, with its GPUs in thousandths.
fn incomes(fleet: &Fleet, story: &Story) -> Vec<(u64, u64)> {
    let mut incomes: Vec<_> = fleet.machines.iter().map(|machine| (0, machine.gpu.0)).collect();
    for fate in &story.fates {
        if let Some((income, _)) = fate.machine.and_then(|machine| incomes.get_mut(machine)) {
            *income += fate.paid.0;
        }
    }
    incomes
}

/// The Gini coefficient of what a GPU earns, in millionths: every GPU of a machine earns the same.
fn gini(mut incomes: Vec<(u64, u64)>) -> u64 {
    // Income of one GPU, compared without division.
    incomes.sort_by_key(|(income, gpu)| (u128::from(*income) * 1_000_000).checked_div(u128::from(*gpu)));
    let gpus: u128 = incomes.iter().map(|(_, gpu)| u128::from(*gpu)).sum();
    let earned: u128 = incomes.iter().map(|(income, _)| u128::from(*income)).sum();
    // Twice the area under the Lorenz curve, over gpus * earned.
    let (mut area, mut below) = (0_u128, 0_u128);
    for (income, gpu) in incomes {
        area += u128::from(gpu) * (2 * below + u128::from(income));
        below += u128::from(income);
    }
    let whole = gpus * earned;
    share(whole.saturating_sub(area), whole)
}

/// A mean over seeds with the bounds within which it lies with 95 % certainty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Estimate {
    /// The mean.
    pub mean: u64,
    /// 2.5 % of all means of samples drawn again lie below.
    pub low: u64,
    /// 2.5 % lie above.
    pub high: u64,
}

impl Estimate {
    /// By bootstrap. The same values give the same bounds.
    #[must_use]
    pub fn of(values: &[u64]) -> Self {
        let mut dice = Dice::new(values.len() as u64, "bootstrap");
        let mut draw = || mean(values.iter().filter_map(|_| dice.pick(values).copied()));
        let mut means: Vec<_> = (0..DRAWS).map(|_| draw()).collect();
        means.sort_unstable();
        Self { mean: mean(values.iter().copied()), low: quantile(&means, 25), high: quantile(&means, 975) }
    }
}

#[cfg(test)]
mod tests {
    use souk_protocol::{Credits, Rate};

    use super::*;
    use crate::study::{
        demand::{LeftOut, Machine, MilliGpu},
        story::Stay,
    };

    #[test]
    fn quantiles_are_the_smallest_values_that_enough_do_not_exceed() {
        let waits: Vec<u64> = (1..=100).collect();
        assert_eq!([500, 950, 990, 1_000].map(|part| quantile(&waits, part)), [50, 95, 99, 100]);
        assert_eq!((quantile(&[7], 10), quantile(&[], 500)), (7, 0));
    }

    #[test]
    fn incomes_are_even_or_one_takes_all() {
        assert_eq!(gini(vec![(10, 1_000), (80, 8_000)]), 0);
        assert_eq!(gini(vec![(0, 1_000), (0, 1_000), (0, 1_000), (9, 1_000)]), 750_000);
        assert_eq!(gini(vec![(1, 1_000), (3, 1_000)]), 250_000);
        assert_eq!(gini(Vec::new()), 0);
    }

    #[test]
    fn a_story_is_measured_by_hand() {
        let request = |at, tier, gpu, run| Request {
            at: Millis(at),
            tier,
            gpu: MilliGpu(gpu),
            run: Millis(run),
            limit: Millis(run),
            worth: Rate(9),
            patience: None,
        };
        let hour = 3_600_000;
        let demand = Demand {
            source: String::new(),
            left_out: LeftOut::default(),
            requests: vec![
                request(0, Tier::Gold, 1_000, hour),
                request(0, Tier::Bronze, 500, hour),
                request(2 * hour, Tier::Silver, 1_000, hour),
            ],
        };
        let machine = |gpu| Machine { model: String::new(), gpu: MilliGpu(gpu), floor: Rate(1), ask: Rate(1) };
        let fleet = Fleet { source: String::new(), machines: vec![machine(1_000), machine(1_000)] };
        let mut story = Story::new("test", 3);
        let stay = |request, gpu, from, to, is_useful| Stay {
            request,
            machine: 0,
            gpu: MilliGpu(gpu),
            from: Millis(from),
            to: Millis(to),
            is_useful,
        };
        story.stays = vec![
            stay(0, 1_000, 0, hour, true),
            stay(1, 500, 0, hour / 2, false),
            stay(1, 500, hour, 2 * hour, true),
            stay(2, 1_000, 2 * hour, 3 * hour, true),
        ];
        let fate = |start, end, machine, paid, preempted| Fate {
            start: Some(Millis(start)),
            end: Some(Millis(end)),
            machine: Some(machine),
            paid: Credits(paid),
            preempted,
        };
        story.fates = vec![fate(0, hour, 0, 400, 0), fate(0, 2 * hour, 1, 100, 1), Fate::default()];
        (story.conflicts, story.messages, story.nodes) = (3, 70, 7);
        let figures = Figures::of(&demand, &fleet, &story);
        // Of four GPU hours one, a quarter and a half were busy.
        assert_eq!((figures.utilisation, figures.useful, figures.filled), (437_500, 375_000, 666_666));
        assert_eq!(figures.wasted, 250 * 1_000_000 / 2_750);
        assert_eq!((figures.preempted, figures.conflicts, figures.messages), (33_333, 100_000, 10));
        assert_eq!((figures.income, figures.gini), (125, 300_000));
        assert_eq!((figures.job_cost, figures.slowdown), (250, 1_500));
        let [gold, silver, bronze] = figures.tiers;
        assert_eq!((gold.jobs, gold.filled, gold.rate, gold.wait_p95), (1, 1_000_000, 400, 0));
        assert_eq!((silver.jobs, silver.filled, silver.rate), (1, 0, 0));
        assert_eq!((bronze.slowdown, bronze.rate, bronze.job_cost), (2_000, 200, 100));
    }

    #[test]
    fn bounds_lie_around_the_mean_and_close_on_it_where_all_seeds_agree() {
        let estimate = Estimate::of(&[10, 12, 14, 16, 18, 20, 22, 24, 26, 28]);
        assert_eq!(estimate.mean, 19);
        assert!((13..18).contains(&estimate.low) && (20..25).contains(&estimate.high), "{estimate:?}");
        assert_eq!(Estimate::of(&[10, 12, 14, 16, 18, 20, 22, 24, 26, 28]), estimate);
        assert_eq!(Estimate::of(&[5; 10]), Estimate { mean: 5, low: 5, high: 5 });
        assert_eq!(Estimate::of(&[]), Estimate::default());
    }
}
