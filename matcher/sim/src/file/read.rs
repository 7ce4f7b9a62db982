//! Which fields a scenario file has, and what they mean when they are left out.

use souk_protocol::{Bytes, Credits, MilliCpu, Millis, Ppm, Rate, Tier, job_file::Problem};

use super::{Jobs, MAX_NODES, MAX_SCENARIO_FILE, MAX_TASKS, Machines, Owners, ScenarioFile, reader::Reader};
use crate::{
    churn::Churn,
    region::Regions,
    scenario::{CutSide, PlannedCut},
    study,
    time::Micros,
};

/// Most providers whose offers a renter follows.
const MAX_KNOWN: u64 = 4_096;
/// Most seeds of a result.
const MAX_SEEDS: u64 = 10_000;
/// The policy that is the market itself.
const MARKET: &str = "souk";
const MINUTE: u64 = 60_000;
const HOUR: u64 = 3_600_000;

pub(super) fn read(text: &str) -> Result<ScenarioFile, Vec<Problem>> {
    if text.len() > MAX_SCENARIO_FILE {
        return Err(vec![Problem {
            path: String::new(),
            line: None,
            value: None,
            problem: format!("{} bytes, at most {MAX_SCENARIO_FILE} are allowed", text.len()),
            hint: None,
        }]);
    }
    let mut r = Reader::parse(text)?;
    if r.whole("version", 1..=1).is_none() && !r.has("version") {
        r.error("version", "this field is missing", Some("write version = 1".to_owned()));
    }
    let most = MAX_NODES as u64;
    let nodes = size(r.whole("nodes.count", 2..=most).unwrap_or(100));
    let file = ScenarioFile {
        name: name(&mut r),
        about: r.text("about").unwrap_or_default(),
        duration: positive(&mut r, "duration", HOUR),
        seeds: u32::try_from(r.whole("seeds", 1..=MAX_SEEDS).unwrap_or(1)).unwrap_or(1),
        policies: policies(&mut r),
        nodes,
        renters: size(r.whole("nodes.renters", 1..=most).unwrap_or(nodes as u64 / 5).max(1)),
        providers: size(r.whole("nodes.providers", 1..=most).unwrap_or(nodes as u64)),
        regions: regions(&mut r),
        known: size(r.whole("network.known", 1..=MAX_KNOWN).unwrap_or(256)),
        stranger_limit: r.value("market.stranger_limit").unwrap_or(Credits::from_credits(100)),
        machines: machines(&mut r),
        jobs: jobs(&mut r),
        messages: (
            share(&mut r, "network.loss"),
            share(&mut r, "network.duplicated"),
            share(&mut r, "network.reordered"),
        ),
        churn: churn(&mut r),
        cuts: Vec::new(),
        study: None,
    };
    for (field, count) in [("nodes.renters", file.renters), ("nodes.providers", file.providers)] {
        if count > nodes {
            r.error(field, format!("more than the {nodes} nodes there are"), None);
        }
    }
    let cuts = cuts(&mut r, &file.regions);
    let study = super::study::study(&mut r, file.seeds, &file.policies);
    let problems = r.finish();
    if problems.is_empty() { Ok(ScenarioFile { cuts, study, ..file }) } else { Err(problems) }
}

fn size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn share(r: &mut Reader, path: &str) -> Ppm {
    r.value(path).unwrap_or(Ppm::ZERO)
}

fn positive(r: &mut Reader, path: &str, default: u64) -> Millis {
    let Some(value) = r.value::<Millis>(path) else { return Millis(default) };
    if value.is_zero() {
        r.error(path, "more than nothing is expected", None);
    }
    value
}

fn name(r: &mut Reader) -> String {
    let name = r.text("name").unwrap_or_default();
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 63 || !name.chars().all(good) {
        let hint = "use up to 63 lower-case letters, digits and -".to_owned();
        r.error("name", "a scenario needs a name", Some(hint));
    }
    name
}

fn policies(r: &mut Reader) -> Vec<String> {
    let names = r.texts("policies").unwrap_or_else(|| vec![MARKET.to_owned()]);
    for name in &names {
        if name != MARKET && !study::NAMES.contains(&name.as_str()) {
            let hint = format!("use {MARKET}, {}", study::NAMES.join(", "));
            r.error("policies", format!("there is no policy {name:?}"), Some(hint));
        }
    }
    names
}

/// Weights beside a list: as many as it has items, all alike if they are left out.
fn parts(r: &mut Reader, path: &str, items: usize) -> Vec<u64> {
    let Some(texts) = r.texts(path) else { return vec![1; items] };
    let parts: Vec<u64> = texts.iter().filter_map(|text| text.parse().ok()).filter(|part| *part <= 1_000_000).collect();
    if parts.len() != items || texts.len() != items || parts.iter().all(|part| *part == 0) {
        r.error(path, format!("{items} whole numbers up to 1000000 are expected, not all of them 0"), None);
        return vec![1; items];
    }
    parts
}

fn regions(r: &mut Reader) -> Regions {
    let default = Regions::single(Micros::millis(20));
    let codes = r.texts("network.regions").filter(|codes| !codes.is_empty()).unwrap_or(default.codes);
    let shares = parts(r, "network.shares", codes.len());
    let spread = r.thousandths("network.spread", 0..=3_000).unwrap_or(default.spread);
    let nat = share(r, "network.nat");
    let mut latency = vec![vec![Micros::millis(20); codes.len()]; codes.len()];
    if let Some(rows) = r.rows("network.latency") {
        let time = |text: &String| text.parse::<Millis>().ok().map(Micros::from);
        let parsed: Vec<Vec<Micros>> = rows.iter().map(|row| row.iter().filter_map(time).collect()).collect();
        let is_square = parsed.len() == codes.len() && parsed.iter().all(|row| row.len() == codes.len());
        if is_square {
            latency = parsed;
        } else {
            let problem =
                format!("{0} rows of {0} times such as \"20ms\" are expected, one for each region", codes.len());
            r.error("network.latency", problem, None);
        }
    } else if codes.len() > 1 && !r.has("network.latency") {
        r.error("network.latency", "it is missing: several regions need the times between them", None);
    }
    Regions { codes, shares, latency, spread, nat }
}

fn machines(r: &mut Reader) -> Machines {
    let cores = r.texts("machines.cores").unwrap_or_else(|| vec!["8".to_owned()]);
    let cores: Vec<u64> = cores.iter().filter_map(|text| text.parse().ok()).collect();
    if cores.is_empty() || cores.iter().any(|cores| !(1..=1_024).contains(cores)) {
        r.error("machines.cores", "whole numbers from 1 to 1024 are expected", None);
    }
    let shares = parts(r, "machines.cores_parts", cores.len());
    let owners = r.has("machines.owners").then(|| Owners {
        share: r.value("machines.owners.share").unwrap_or(Ppm::ONE),
        away: positive(r, "machines.owners.away", 4 * HOUR),
        home: positive(r, "machines.owners.home", HOUR),
    });
    Machines {
        cores: cores.into_iter().zip(shares).collect(),
        memory: r.value("machines.memory_per_core").unwrap_or(Bytes(4_000_000_000)),
        ask: r.value("machines.ask").unwrap_or(Rate(40_000)),
        spread: r.thousandths("machines.spread", 0..=3_000).unwrap_or(400),
        floor: r.value("machines.floor").unwrap_or(Ppm(500_000)),
        standing: r.value("machines.standing").unwrap_or(Ppm(800_000)),
        lowballers: share(r, "machines.lowballers"),
        oversellers: share(r, "machines.oversellers"),
        owners,
    }
}

fn jobs(r: &mut Reader) -> Jobs {
    let cores = r.values("jobs.cores").filter(|list| !list.is_empty()).unwrap_or_else(|| vec![MilliCpu(1_000)]);
    let shares = parts(r, "jobs.cores_parts", cores.len());
    let bounds = (positive(r, "jobs.shortest", 100), positive(r, "jobs.longest", 10 * HOUR));
    if bounds.0 > bounds.1 {
        r.error("jobs.shortest", "longer than the longest", None);
    }
    let mut tiers = Vec::new();
    for (tier, word) in [(Tier::Gold, "gold"), (Tier::Silver, "silver"), (Tier::Bronze, "bronze")] {
        let default = u64::from(tier == Tier::Bronze && !r.has("jobs.tiers"));
        tiers.push((tier, r.whole(&format!("jobs.tiers.{word}"), 0..=1_000_000).unwrap_or(default)));
    }
    if tiers.iter().all(|(_, parts)| *parts == 0) {
        r.error("jobs.tiers", "all parts are 0", None);
    }
    let estimates = r.texts("jobs.estimates").unwrap_or_else(|| vec!["2".to_owned()]);
    let estimates: Vec<u64> = estimates.iter().filter_map(|text| text.parse().ok()).collect();
    if estimates.is_empty() || estimates.iter().any(|estimate| !(1..=1_000).contains(estimate)) {
        r.error("jobs.estimates", "whole numbers from 1 to 1000 are expected", None);
    }
    let worth = r.thousandths("jobs.worth", 1..=1_000_000);
    let worth_spread = r.thousandths("jobs.worth_spread", 0..=3_000).unwrap_or(0);
    Jobs {
        tasks: r.whole("jobs.tasks", 1..=MAX_TASKS).unwrap_or(1_000),
        per_job: r.whole("jobs.per_job", 1..=10_000).unwrap_or(10),
        over: positive(r, "jobs.over", 10 * MINUTE),
        run: positive(r, "jobs.run", MINUTE),
        spread: r.thousandths("jobs.spread", 0..=3_000).unwrap_or(1_000),
        bounds,
        estimates,
        cores: cores.into_iter().zip(shares).collect(),
        memory: r.value("jobs.memory_per_core").unwrap_or(Bytes(1_000_000_000)),
        tiers,
        worth: worth.map(|median| (median, worth_spread)),
        patience: r.value("jobs.patience"),
        cancelled: share(r, "jobs.cancelled"),
    }
}

fn churn(r: &mut Reader) -> Option<Churn> {
    r.has("churn").then(|| Churn { stay: positive(r, "churn.stay", 8 * HOUR), away: positive(r, "churn.away", HOUR) })
}

fn cuts(r: &mut Reader, regions: &Regions) -> Vec<PlannedCut> {
    let mut out = Vec::new();
    for path in r.tables("cuts") {
        let field = |name: &str| format!("{path}.{name}");
        let at = Micros::from(r.value(&field("at")).unwrap_or(Millis(0)));
        let length = Micros::from(positive(r, &field("length"), MINUTE));
        let one_way = r.boolean(&field("one_way")).unwrap_or(false);
        let (region, part) = (r.text(&field("region")), r.value::<Ppm>(&field("share")));
        let side = match (region, part) {
            (Some(region), None) => match regions.codes.iter().position(|code| *code == region) {
                Some(number) => CutSide::Region(number),
                None => {
                    let hint = format!("use {}", regions.codes.join(", "));
                    r.error(&field("region"), "there is no such region", Some(hint));
                    continue;
                }
            },
            (None, Some(part)) => CutSide::Share(part.0),
            _ => {
                r.error(&path, "a cut needs either a region or a share of the nodes", None);
                continue;
            }
        };
        out.push(PlannedCut { at, length, side, one_way });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "version = 1\nname = \"small\"\n[nodes]\ncount = 10\nrenters = 2\n";

    fn errors(text: &str) -> Vec<String> {
        read(text).unwrap_err().iter().map(|problem| problem.in_file("s.toml")).collect()
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let file = read(SMALL).unwrap();
        assert_eq!((file.nodes, file.renters, file.providers, file.known), (10, 2, 10, 256));
        assert_eq!(file.policies, ["souk"]);
        assert_eq!(file.jobs.tiers, [(Tier::Gold, 0), (Tier::Silver, 0), (Tier::Bronze, 1)]);
        assert_eq!((file.churn, file.machines.owners), (None, None));
    }

    #[test]
    fn all_errors_come_at_once_with_path_and_line() {
        let text = format!(
            "{SMALL}provider = 3\n[network]\nregions = [\"eu\", \"us\"]\nnat = \"150%\"\n[[cuts]]\nregion = \"mars\"\n"
        );
        assert_eq!(
            errors(&text),
            [
                "s.toml:6: nodes.provider = 3: unknown field, did you mean providers?",
                "s.toml:7: network.latency: it is missing: several regions need the times between them",
                "s.toml:9: network.nat = \"150%\": a share is at most 1",
                "s.toml:11: cuts[0].region = \"mars\": there is no such region, use eu, us",
            ]
        );
    }

    #[test]
    fn more_renters_than_nodes_and_unknown_policies_are_refused() {
        let text = SMALL.replace("renters = 2", "renters = 11") + "[jobs]\nestimates = [0]\n";
        assert_eq!(
            errors(&text),
            [
                "s.toml:5: nodes.renters = 11: more than the 10 nodes there are",
                "s.toml:7: jobs.estimates: whole numbers from 1 to 1000 are expected",
            ]
        );
        let text = format!("policies = [\"souk\", \"lottery\"]\n{SMALL}");
        assert_eq!(errors(&text).len(), 1);
    }
}
