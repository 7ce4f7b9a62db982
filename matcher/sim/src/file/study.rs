//! The `[study]` table of a scenario file: a demand from a trace or the generator under several policies, in place of
//! machines and jobs of its own.

use std::path::PathBuf;

use souk_protocol::Rate;

use super::reader::{Reader, thousandths};
use crate::study::{Market, StudyPlan, Trace, Values};

/// Most jobs of a run, and GPUs: every policy looks at every waiting job and every machine again and again.
const MAX_JOBS: u64 = 100_000;
const MAX_GPUS: u64 = 10_000;
/// Most time of the demand in one of the market: beyond it round trips are longer than jobs.
const MAX_PACE: u64 = 1_000;
/// Loads in thousandths of the capacity.
const LOADS: std::ops::RangeInclusive<u32> = 10..=10_000;
const MAX_RENTERS: u64 = 10_000;
const MAX_INSTANCES: u64 = 10_000;
/// Most percent of the floor that an ask lies above it.
const MAX_MARGIN: u64 = 1_000;

/// What is studied, if the file has such a table. Seeds and policies are those of the scenario.
pub(super) fn study(r: &mut Reader, seeds: u32, policies: &[String]) -> Option<StudyPlan> {
    if !r.has("study") {
        return None;
    }
    let default = StudyPlan::default();
    let market = Market {
        renters: size(r.whole("study.renters", 1..=MAX_RENTERS), default.market.renters),
        pace: r.whole("study.pace", 1..=MAX_PACE).unwrap_or(default.market.pace),
        ahead: r.value("study.ahead").unwrap_or(default.market.ahead),
    };
    let folder = r.text("study.trace").map(PathBuf::from);
    let (other_runtimes, spot_fleet) =
        (choice(r, "study.runtimes", ["trace", "philly"]), choice(r, "study.fleet", ["trace", "spot"]));
    if folder.is_none() && (other_runtimes || spot_fleet) {
        r.error(
            "study",
            "runtimes and fleet are taken from files of a trace",
            Some("add trace = \"FOLDER\"".to_owned()),
        );
    }
    let others: Vec<_> = policies.iter().filter(|name| *name != "souk").cloned().collect();
    Some(StudyPlan {
        trace: folder.map(|folder| Trace { folder, other_runtimes, spot_fleet }),
        jobs: size(r.whole("study.jobs", 2..=MAX_JOBS), default.jobs),
        gpus: r.whole("study.gpus", 1..=MAX_GPUS).unwrap_or(default.gpus),
        loads: loads(r).unwrap_or(default.loads),
        first_seed: default.first_seed,
        seeds: u64::from(seeds),
        instances: r.whole("study.instances", 0..=MAX_INSTANCES).unwrap_or(default.instances),
        values: values(r),
        market,
        policies: if others.is_empty() { default.policies } else { others },
    })
}

fn size(number: Option<u64>, default: usize) -> usize {
    number.and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
}

/// Whether the second of two words is chosen; the first is what is meant without a word.
fn choice(r: &mut Reader, path: &str, words: [&str; 2]) -> bool {
    let Some(word) = r.text(path) else { return false };
    if !words.contains(&word.as_str()) {
        r.error(path, format!("there is no such choice as {word:?}"), Some(format!("use {}", words.join(" or "))));
    }
    word == words[1]
}

fn loads(r: &mut Reader) -> Option<Vec<u64>> {
    let texts = r.texts("study.loads")?;
    let loads: Vec<_> = texts.iter().filter_map(|text| thousandths(text)).filter(|load| LOADS.contains(load)).collect();
    if loads.is_empty() || loads.len() != texts.len() {
        r.error("study.loads", "loads from 0.01 to 10 with at most three decimals are expected", None);
    }
    Some(loads.into_iter().map(|load| u64::from(load) * 1_000).collect())
}

fn values(r: &mut Reader) -> Values {
    let default = Values::default();
    let mut rates = |path: &str, default: (Rate, Rate)| match r.values::<Rate>(path).as_deref() {
        None => default,
        Some([low, high]) if low <= high && high.0 > 0 => (*low, *high),
        Some(_) => {
            r.error(path, "two rates, the lower first, are expected", None);
            default
        }
    };
    let (floor, gold) = (rates("study.floor", default.floor), rates("study.gold", default.gold));
    let (silver, bronze) = (rates("study.silver", default.silver), rates("study.bronze", default.bronze));
    let margin = r.texts("study.margin").map(|texts| {
        let numbers: Vec<u64> =
            texts.iter().filter_map(|text| text.parse().ok()).filter(|margin| *margin <= MAX_MARGIN).collect();
        match numbers.as_slice() {
            [low, high] if low <= high => (*low, *high),
            _ => {
                r.error("study.margin", "two whole numbers of percent, the lower first, are expected", None);
                default.margin
            }
        }
    });
    Values { floor, margin: margin.unwrap_or(default.margin), gold, silver, bronze }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::ScenarioFile;

    const HEAD: &str = "version = 1\nname = \"s\"\nseeds = 3\n";

    #[test]
    fn a_study_says_what_it_changes_and_leaves_the_rest_as_it_is() {
        let text = format!(
            "{HEAD}policies = [\"souk\", \"fifo\"]\n[study]\njobs = 50\nloads = [0.7, \"1.1\"]\npace = 10\ntrace = \"data\"\n\
             fleet = \"spot\"\ngold = [\"1 CR/h\", \"2 CR/h\"]\nmargin = [0, 10]\n"
        );
        let plan = ScenarioFile::parse(&text).unwrap().study.unwrap();
        let trace = Trace { folder: PathBuf::from("data"), other_runtimes: false, spot_fleet: true };
        let default = StudyPlan::default();
        let gold = (Rate(1_000_000), Rate(2_000_000));
        let expected = StudyPlan {
            trace: Some(trace),
            jobs: 50,
            loads: vec![700_000, 1_100_000],
            seeds: 3,
            policies: vec!["fifo".to_owned()],
            market: Market { pace: 10, ..default.market },
            values: Values { gold, margin: (0, 10), ..default.values },
            ..default
        };
        assert_eq!(plan, expected);
    }

    #[test]
    fn without_the_table_there_is_no_study() {
        assert_eq!(ScenarioFile::parse(HEAD).unwrap().study, None);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let text =
            format!("{HEAD}[study]\nloads = [0]\nfleet = \"mine\"\nfloor = [\"2 CR/h\", \"1 CR/h\"]\npeace = 3\n");
        let problems = ScenarioFile::parse(&text).unwrap_err();
        let lines: Vec<_> = problems.iter().map(|problem| (problem.line, problem.path.as_str())).collect();
        let expected = ["study.loads", "study.fleet", "study.floor", "study.peace"];
        assert_eq!(lines, expected.iter().zip(5..).map(|(path, line)| (Some(line), *path)).collect::<Vec<_>>());
    }

    #[test]
    fn other_run_times_need_a_trace() {
        let text = format!("{HEAD}[study]\nruntimes = \"philly\"\n");
        let [problem] = ScenarioFile::parse(&text).unwrap_err().try_into().unwrap();
        assert_eq!((problem.line, problem.hint.as_deref()), (Some(4), Some("add trace = \"FOLDER\"")));
    }
}
