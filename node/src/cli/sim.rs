//! `souk sim`: the market at scale, on this machine, in virtual time. Needs no home and no node.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use souk_sim::{LIBRARY, MAX_NODES, MAX_SCENARIO_FILE, ScenarioFile, Trial, find, html, trial};

mod study;

use super::{
    error::{CliError, Exit},
    printer::Printer,
    table::Table,
};

/// Most seeds of one call.
const MAX_SEEDS: i64 = 10_000;
/// The results in a folder, without anything that differs from run to run.
const RESULT: &str = "result.json";
/// What differs: how long it took, and how much memory.
const TIMING: &str = "timing.json";
const REPORT: &str = "report.html";
/// Largest file of results that is read again.
const MAX_RESULT: u64 = 256 << 20;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario: one of the library by name, or a file.
    Run(RunArgs),
    /// List the scenarios that come with the program.
    List,
    /// Print the results in a folder again, and make its report.html anew.
    Report {
        /// The folder that `souk sim run --to` wrote.
        folder: PathBuf,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RunArgs {
    /// A name that `souk sim list` shows, or the path of a TOML file.
    scenario: String,
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many seeds, from the first on; without it as many as the scenario says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_SEEDS))]
    seeds: Option<u32>,
    /// Another number of nodes; renters, providers and tasks in proportion.
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// Write result.json, timing.json and report.html into this folder.
    #[arg(long = "to", value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// For a study such as gpu-trace: the folder with the traces, in place of the generator with the same marginals.
    #[arg(long, value_name = "FOLDER")]
    trace: Option<PathBuf>,
}

/// How long a seed took: not part of its result.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Timing {
    seed: u64,
    /// On the wall, in milliseconds.
    wall_ms: u64,
    /// The most memory that the process had so far, in bytes; none where the system does not tell.
    peak_rss: Option<u64>,
}

/// A result as `--json` prints it.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    trial: &'a Trial,
    wall_s: f64,
    peak_rss: Option<u64>,
}

pub(crate) fn run(printer: &Printer, command: &SimCommand) -> Result<Exit, CliError> {
    match command {
        SimCommand::Run(args) => simulate(printer, args),
        SimCommand::List => list(printer),
        SimCommand::Report { folder } => report(printer, folder),
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    nodes: Option<usize>,
    tasks: u64,
    seeds: u32,
    policies: Vec<String>,
    about: String,
}

fn list(printer: &Printer) -> Result<Exit, CliError> {
    let mut items = Vec::new();
    for entry in LIBRARY {
        let file = parse(entry.name, entry.text)?;
        let ScenarioFile { nodes, seeds, policies, about, jobs, study, .. } = file;
        // How many machines a study has depends on the trace.
        let nodes = study.is_none().then_some(nodes);
        let tasks = study.map_or(jobs.tasks, |study| study.jobs as u64);
        items.push(Listed { name: entry.name, nodes, tasks, seeds, policies, about });
    }
    let table = |items: &[Listed]| {
        let mut table = Table::new(&["NAME", ">NODES", ">TASKS", ">SEEDS", "ABOUT"]);
        for item in items {
            let nodes = item.nodes.map_or_else(|| "-".to_owned(), |nodes| nodes.to_string());
            let numbers = [nodes, item.tasks.to_string(), item.seeds.to_string()];
            table.row([item.name.to_owned()].into_iter().chain(numbers).chain([item.about.clone()]));
        }
        table
    };
    printer.list(&items, "no scenarios", |item| item.name.to_owned(), table)?;
    Ok(Exit::DONE)
}

fn parse(name: &str, text: &str) -> Result<ScenarioFile, CliError> {
    ScenarioFile::parse(text).map_err(|problems| CliError::Invalid { file: name.to_owned(), problems })
}

/// The scenario of this name, or in the file of this path.
fn load(scenario: &str) -> Result<ScenarioFile, CliError> {
    if let Some(entry) = find(scenario) {
        return parse(entry.name, entry.text);
    }
    let path = Path::new(scenario);
    let is_path = scenario.contains(['/', '.']);
    match fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() <= MAX_SCENARIO_FILE as u64 => {}
        Ok(meta) if meta.is_file() => {
            let message = format!("{scenario} has {} bytes, at most {MAX_SCENARIO_FILE} are read", meta.len());
            return Err(CliError::usage(message));
        }
        Ok(_) => return Err(CliError::usage(format!("{scenario} is no file"))),
        Err(error) if is_path => return Err(CliError::not_found(format!("cannot read {scenario}: {error}"))),
        Err(_) => {
            let error = CliError::not_found(format!("there is no scenario {scenario:?}"));
            return Err(error.hint("souk sim list shows all; a file is given by its path"));
        }
    }
    let text = fs::read_to_string(path).map_err(|error| CliError::usage(format!("cannot read {scenario}: {error}")))?;
    parse(scenario, &text)
}

fn simulate(printer: &Printer, args: &RunArgs) -> Result<Exit, CliError> {
    let mut file = load(&args.scenario)?;
    if let Some(plan) = file.study.take() {
        return study::run(printer, args, plan);
    }
    if args.trace.is_some() {
        let error = CliError::usage(format!("{} is no study: it makes its own jobs", args.scenario));
        return Err(error.hint("--trace is for scenarios with a [study] table, such as gpu-trace"));
    }
    if let Some(nodes) = args.nodes {
        let hint = format!("--nodes takes 2 to {MAX_NODES}");
        file = file.with_nodes(nodes).map_err(|message| CliError::usage(message).hint(hint))?;
    }
    if let Some(folder) = &args.folder {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    }
    let (mut trials, mut timings) = (Vec::new(), Vec::new());
    for number in 0..u64::from(args.seeds.unwrap_or(file.seeds)) {
        let seed = args.seed.saturating_add(number);
        let (done, timing) = one(printer, &file, seed);
        if printer.is_structured() {
            let wall_s = timing.wall_ms as f64 / 1_000.0;
            printer.item(&Printed { trial: &done, wall_s, peak_rss: timing.peak_rss })?;
        }
        printer.talk(format_args!("{}", footer(&done, timing)));
        trials.push(done);
        timings.push(timing);
    }
    if !printer.is_structured() {
        show(printer, &trials)?;
    }
    if let Some(folder) = &args.folder {
        write(&folder.join(RESULT), &json(&trials)?)?;
        write(&folder.join(TIMING), &json(&timings)?)?;
        write(&folder.join(REPORT), html(&trials).as_bytes())?;
        printer.talk(format_args!("report: {}", folder.join(REPORT).display()));
    }
    verdict(&trials)
}

/// Runs one seed under a bar.
fn one(printer: &Printer, file: &ScenarioFile, seed: u64) -> (Trial, Timing) {
    let started = Instant::now();
    let bar = if printer.has_progress() {
        let style =
            ProgressStyle::with_template("seed {msg} [{bar:30}] {pos}/{len} tasks {elapsed}, {prefix} simulated");
        let target = ProgressDrawTarget::stderr();
        ProgressBar::with_draw_target(Some(file.jobs.tasks), target)
            .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
            .with_message(seed.to_string())
    } else {
        ProgressBar::with_draw_target(Some(file.jobs.tasks), ProgressDrawTarget::hidden())
    };
    let (done, _) = trial(file, seed, &mut |progress| {
        bar.set_position(progress.tasks_done);
        bar.set_prefix(seconds(progress.now.0 / 1_000_000));
    });
    bar.finish_and_clear();
    let wall_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    (done, Timing { seed, wall_ms, peak_rss: peak_rss() })
}

/// The most memory that this process has had.
fn peak_rss() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1_024)
}

fn footer(trial: &Trial, timing: Timing) -> String {
    let memory = timing.peak_rss.map_or_else(String::new, |bytes| format!(", {} MB at most", bytes / 1_000_000));
    let a_node = trial.messages.checked_div(trial.nodes).unwrap_or(0);
    format!(
        "seed {}: {} simulated in {}.{} s{memory}; {} events, {} messages ({a_node} a node), invariants checked {} times, \
         violated {}",
        trial.seed,
        seconds(trial.virtual_s),
        timing.wall_ms / 1_000,
        timing.wall_ms / 100 % 10,
        trial.events,
        trial.messages,
        trial.invariants.checked,
        trial.invariants.violated
    )
}

fn seconds(seconds: u64) -> String {
    format!("{}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

fn show(printer: &Printer, trials: &[Trial]) -> Result<(), CliError> {
    for trial in trials {
        printer.line(&trial.label)?;
        let mut table = Table::new(&[
            "POLICY",
            ">FILLED",
            ">UTILISATION",
            ">WAIT-P50",
            ">WAIT-P95",
            ">CR/JOB",
            ">CR/CORE-H",
            ">INCOME",
            ">CONFLICTS",
            ">REPEATED",
            "+>GINI",
            "+>PREEMPTED",
            "+>UNSTARTED",
        ]);
        for (name, result) in trial.ordered() {
            let f = &result.figures;
            table.row([
                name.to_owned(),
                percent(f.fill_rate),
                percent(f.utilisation),
                wait(f.wait_p50_ms),
                wait(f.wait_p95_ms),
                f.cost_per_job.short(),
                f.cost_per_core_hour.short(),
                f.income.short(),
                percent(f.conflicts),
                percent(f.repeated),
                percent(f.gini),
                f.preempted.to_string(),
                f.unstarted.to_string(),
            ]);
        }
        printer.table(&table)?;
    }
    Ok(())
}

fn percent(millionths: u64) -> String {
    format!("{}.{}%", millionths / 10_000, millionths / 1_000 % 10)
}

fn wait(ms: u64) -> String {
    if ms < 10_000 { format!("{ms}ms") } else { format!("{}s", ms / 1_000) }
}

/// Rules that did not hold are a bug, and worth an exit code.
fn verdict(trials: &[Trial]) -> Result<Exit, CliError> {
    let violated = trials.iter().find_map(|trial| trial.invariants.first.as_ref().map(|first| (trial.seed, first)));
    match violated {
        None => Ok(Exit::DONE),
        Some((seed, first)) => {
            Err(CliError::internal(format!("an invariant of the market did not hold with seed {seed}: {first}")))
        }
    }
}

fn report(printer: &Printer, folder: &Path) -> Result<Exit, CliError> {
    let path = folder.join(RESULT);
    let shown = path.display();
    match fs::metadata(&path) {
        Ok(meta) if meta.len() <= MAX_RESULT => {}
        Ok(meta) => {
            return Err(CliError::usage(format!("{shown} has {} bytes, at most {MAX_RESULT} are read", meta.len())));
        }
        Err(error) => {
            let error = CliError::not_found(format!("cannot read {shown}: {error}"));
            return Err(error.hint("souk sim run SCENARIO --to FOLDER writes it"));
        }
    }
    let bytes = fs::read(&path).map_err(|error| CliError::usage(format!("cannot read {shown}: {error}")))?;
    let trials: Vec<Trial> = serde_json::from_slice(&bytes)
        .map_err(|error| CliError::usage(format!("{shown} is no result of souk sim: {error}")))?;
    write(&folder.join(REPORT), html(&trials).as_bytes())?;
    if printer.is_structured() {
        printer.value(&trials)?;
    } else {
        show(printer, &trials)?;
    }
    printer.talk(format_args!("report: {}", folder.join(REPORT).display()));
    verdict(&trials)
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, CliError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(CliError::internal)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    fs::write(path, bytes).map_err(|error| cannot_write(path, &error))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> CliError {
    CliError::usage(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_found_by_name_or_path_and_what_is_missing_says_how_to_find_it() {
        assert_eq!(load("calm").unwrap().name, "calm");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.toml");
        fs::write(&path, "version = 1\nname = \"mine\"\n[jobs]\ntask = 3\n").unwrap();
        let path = path.display().to_string();
        let Err(CliError::Invalid { problems, .. }) = load(&path) else { panic!("a wrong file was read") };
        let texts: Vec<_> = problems.iter().map(|problem| problem.in_file("mine.toml")).collect();
        assert_eq!(texts, ["mine.toml:4: jobs.task = 3: unknown field, did you mean tasks?"]);
        let Err(CliError::NotFound { message, hint }) = load("stormy") else { panic!("it exists") };
        assert_eq!(message, "there is no scenario \"stormy\"");
        assert!(hint.is_some_and(|hint| hint.contains("souk sim list")));
    }

    #[test]
    fn a_folder_with_results_gives_its_report_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = load("calm").unwrap().with_nodes(10).unwrap();
        let (done, report) = trial(&file, 3, &mut |_| {});
        assert!(report.holds(), "{report}");
        let trials = [done];
        write(&folder.path().join(RESULT), &json(&trials).unwrap()).unwrap();
        let bytes = fs::read(folder.path().join(RESULT)).unwrap();
        let again: Vec<Trial> = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(again, trials);
        assert!(verdict(&again).is_ok());
        assert_eq!(html(&again), html(&trials));
    }

    #[test]
    fn times_and_shares_are_shown_as_people_write_them() {
        assert_eq!(seconds(3_725), "1:02:05");
        assert_eq!(
            (percent(981_234), wait(950), wait(61_000)),
            ("98.1%".to_owned(), "950ms".to_owned(), "61s".to_owned())
        );
    }
}
