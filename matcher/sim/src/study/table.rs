//! A study as text: a table for each load, what was aimed at beside what was reached.

use std::fmt;

use super::{
    measure::{Estimate, Figures},
    run::{Aim, AtLoad, Study},
};

/// The load at which the aims for utilisation were set.
const HIGH_LOAD: u64 = 1_100_000;
/// Utilisation that is aimed at there.
const AIM_UTILISATION: u64 = 940_000;
/// How much less than the fixed price silver and bronze are to pay, in millionths.
const AIM_LESS: (i64, i64) = (300_000, 700_000);

/// Percent with a decimal, of millionths.
pub(super) fn percent(ppm: u64) -> String {
    format!("{}.{}", ppm / 10_000, ppm / 1_000 % 10)
}

/// Credits with three decimals, of micro-credits.
fn credits(micro: u64) -> String {
    format!("{}.{:03}", micro / 1_000_000, micro / 1_000 % 1_000)
}

/// A stretch of milliseconds for people.
pub(super) fn time(ms: u64) -> String {
    let seconds = ms / 1_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        _ => format!("{}.{} h", seconds / 3_600, seconds % 3_600 / 360),
    }
}

/// Thousandths with one decimal.
fn tenths(thousandths: u64) -> String {
    format!("{}.{}", thousandths / 1_000, thousandths / 100 % 10)
}

/// Mean and bounds, shown in the same way.
pub(super) fn bounds(estimate: Estimate, show: impl Fn(u64) -> String) -> String {
    format!("{} ({}-{})", show(estimate.mean), show(estimate.low), show(estimate.high))
}

/// One figure of a run.
pub(super) type Figure = fn(&Figures) -> u64;
/// A line of the table: its name and how a policy's estimate is shown.
pub(super) type Line = (&'static str, Figure, fn(u64) -> String);

pub(super) const LINES: [Line; 27] = [
    ("utilisation, %", |f| f.utilisation, percent),
    ("  by work that counts", |f| f.useful, percent),
    ("jobs done, %", |f| f.filled, percent),
    ("  gold", |f| f.tiers[0].filled, percent),
    ("  silver", |f| f.tiers[1].filled, percent),
    ("  bronze", |f| f.tiers[2].filled, percent),
    ("wait gold p50", |f| f.tiers[0].wait_p50, time),
    ("  p95", |f| f.tiers[0].wait_p95, time),
    ("  p99", |f| f.tiers[0].wait_p99, time),
    ("wait silver p50", |f| f.tiers[1].wait_p50, time),
    ("  p95", |f| f.tiers[1].wait_p95, time),
    ("  p99", |f| f.tiers[1].wait_p99, time),
    ("wait bronze p50", |f| f.tiers[2].wait_p50, time),
    ("  p95", |f| f.tiers[2].wait_p95, time),
    ("  p99", |f| f.tiers[2].wait_p99, time),
    ("bounded slowdown", |f| f.slowdown, tenths),
    ("CR a GPU hour gold", |f| f.tiers[0].rate, credits),
    ("  silver", |f| f.tiers[1].rate, credits),
    ("  bronze", |f| f.tiers[2].rate, credits),
    ("CR a job", |f| f.job_cost, credits),
    ("CR a GPU and hour earned", |f| f.income, credits),
    ("Gini of that, %", |f| f.gini, percent),
    ("preemptions, 100 jobs", |f| f.preempted, tenths),
    ("wasted GPU time, %", |f| f.wasted, percent),
    ("declined awards, 100 jobs", |f| f.conflicts, tenths),
    ("messages a node", |f| f.messages, |count| count.to_string()),
    ("broken promises", |f| f.violations, |count| count.to_string()),
];

impl Study {
    /// What was aimed at, and what was reached.
    #[must_use]
    pub fn aims(&self) -> Vec<Aim> {
        let mut aims = Vec::new();
        for at in &self.loads {
            at.aims(&mut aims);
        }
        aims.push(Aim {
            what: "reservations delayed by backfill, and other invariants broken, all loads".to_owned(),
            aim: "none",
            reached: self.broken.len().to_string(),
            met: Some(self.broken.is_empty()),
        });
        aims
    }
}

impl AtLoad {
    fn aims(&self, aims: &mut Vec<Aim>) {
        let load = percent(self.load);
        let of = |policy: &str, figure: Figure| self.estimate(policy, figure);
        if let (Some(souk), Some(useful)) = (of("souk", |f| f.utilisation), of("souk", |f| f.useful)) {
            let others = ["fifo", "fixed-price", "easy-known"]
                .into_iter()
                .filter_map(|name| Some(format!("{name} {}", bounds(of(name, |f| f.utilisation)?, percent))));
            let is_high = self.load == HIGH_LOAD;
            aims.push(Aim {
                what: format!("utilisation at load {load} %"),
                aim: if is_high { "94 %, fifo 75 %" } else { "-" },
                reached: format!(
                    "{}, {} by work that counts; {}",
                    bounds(souk, percent),
                    bounds(useful, percent),
                    others.collect::<Vec<_>>().join(", ")
                ),
                // What was thrown away is no use.
                met: is_high.then_some(useful.mean >= AIM_UTILISATION),
            });
        }
        let gold = of("fixed-price", |f| f.tiers[0].rate).filter(|gold| gold.mean > 0);
        let tiers: [(&str, Figure); 2] = [("silver", |f| f.tiers[1].rate), ("bronze", |f| f.tiers[2].rate)];
        for (tier, rate) in tiers {
            let (Some(paid), Some(gold)) = (of("souk", rate), gold) else { continue };
            let less = |paid: u64| {
                let gold = i64::try_from(gold.mean).unwrap_or(i64::MAX);
                let saved = gold.saturating_sub(i64::try_from(paid).unwrap_or(i64::MAX));
                i64::try_from(i128::from(saved) * 1_000_000 / i128::from(gold.max(1))).unwrap_or(0)
            };
            let shown = |ppm: i64| format!("{}{}", if ppm < 0 { "-" } else { "" }, percent(ppm.unsigned_abs()));
            let mean = less(paid.mean);
            aims.push(Aim {
                what: format!("{tier} pays less than fixed-price gold at load {load} %, by"),
                aim: "30-70 %",
                reached: format!(
                    "{} ({}-{}) %: {} against {} CR a GPU hour",
                    shown(mean),
                    shown(less(paid.high)),
                    shown(less(paid.low)),
                    credits(paid.mean),
                    credits(gold.mean)
                ),
                met: Some((AIM_LESS.0..=AIM_LESS.1).contains(&mean)),
            });
        }
        if let Some(wait) = of("souk", |f| f.tiers[0].wait_p95) {
            let others = ["fifo", "fixed-price", "easy-known"]
                .into_iter()
                .filter_map(|name| Some(format!("{name} {}", time(of(name, |f| f.tiers[0].wait_p95)?.mean))));
            aims.push(Aim {
                what: format!("gold waits at load {load} %, p95"),
                aim: "-",
                reached: format!("{}; {}", bounds(wait, time), others.collect::<Vec<_>>().join(", ")),
                met: None,
            });
        }
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.label)?;
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        for at in &self.loads {
            writeln!(f, "\nload {} %, {} of arrivals; mean (95 % bounds)", percent(at.load), time(at.span.0))?;
            let columns: Vec<Vec<String>> = at
                .policies
                .iter()
                .map(|(name, _)| {
                    let cell = |(_, figure, show): &Line| {
                        at.estimate(name, figure).map_or_else(String::new, |estimate| bounds(estimate, show))
                    };
                    std::iter::once(name.clone()).chain(LINES.iter().map(cell)).collect()
                })
                .collect();
            let names = std::iter::once("").chain(LINES.iter().map(|(name, ..)| *name));
            for (row, name) in names.enumerate() {
                write!(f, "{name:<26}")?;
                for column in &columns {
                    let width = column.iter().map(String::len).max().unwrap_or(0);
                    write!(f, "  {:>width$}", column.get(row).map_or("", String::as_str))?;
                }
                writeln!(f)?;
            }
        }
        writeln!(
            f,
            "\nwelfare on {} small instances, % of the optimum (and how often it was within 5 %)",
            self.instances
        )?;
        for efficiency in &self.efficiency {
            writeln!(f, "{:<26}  {} ({})", efficiency.policy, percent(efficiency.share), efficiency.near)?;
        }
        writeln!(f, "\naimed at, and reached")?;
        for aim in self.aims() {
            let met = match aim.met {
                Some(true) => "yes",
                Some(false) => "no",
                None => "",
            };
            writeln!(f, "  {:<3} {}: aim {}; {}", met, aim.what, aim.aim, aim.reached)?;
        }
        for broken in &self.broken {
            writeln!(f, "      {broken}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_units() {
        assert_eq!((percent(943_210), credits(512_999)), ("94.3".to_owned(), "0.512".to_owned()));
        assert_eq!([59_999, 120_000, 7_200_000].map(time), ["59 s", "2 min", "2.0 h"]);
        assert_eq!(bounds(Estimate { mean: 2_500, low: 1_000, high: 3_999 }, tenths), "2.5 (1.0-3.9)");
    }

    #[test]
    fn aims_stand_beside_what_was_reached() {
        let mut figures = Figures { utilisation: 960_000, useful: 950_000, ..Figures::default() };
        figures.tiers[1].rate = 500_000;
        figures.tiers[2].rate = 950_000;
        let mut fixed = Figures { utilisation: 800_000, ..Figures::default() };
        fixed.tiers[0].rate = 1_000_000;
        let policies = vec![("souk".to_owned(), vec![figures]), ("fixed-price".to_owned(), vec![fixed])];
        let mut study = Study {
            label: "simulated (seeds 1-1, test)".to_owned(),
            notes: Vec::new(),
            loads: vec![AtLoad { load: 1_100_000, span: souk_protocol::Millis(0), policies }],
            efficiency: Vec::new(),
            instances: 0,
            broken: Vec::new(),
        };
        let aims: Vec<_> = study.aims().into_iter().map(|aim| (aim.what, aim.met, aim.reached)).collect();
        assert_eq!(aims[0].1, Some(true));
        assert_eq!(aims[0].2, "96.0 (96.0-96.0), 95.0 (95.0-95.0) by work that counts; fixed-price 80.0 (80.0-80.0)");
        assert_eq!((aims[1].1, aims[2].1), (Some(true), Some(false)));
        assert_eq!(aims[2].2, "5.0 (5.0-5.0) %: 0.950 against 1.000 CR a GPU hour");
        assert_eq!((aims[4].1, aims[4].2.as_str()), (Some(true), "0"));
        let text = study.to_string();
        assert!(text.starts_with("simulated (seeds 1-1, test)\n") && text.contains("95.0 (95.0-95.0)"), "{text}");

        let what = "no oversell: node 3".to_owned();
        study.broken.push(super::super::run::Broken { load: 1_100_000, seed: 9, what });
        let text = study.to_string();
        assert!(text.ends_with("aim none; 1\n      broken at load 110.0 %, seed 9: no oversell: node 3\n"), "{text}");
    }
}
