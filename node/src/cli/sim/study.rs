//! `souk sim run` of a study: souk and simpler policies over one demand.

use std::fs;

use serde::Serialize;
use souk_sim::study::{Aim, Study, StudyPlan, Trace};

use super::{REPORT, RunArgs, cannot_write, json, write};
use crate::cli::{
    error::{CliError, Exit},
    printer::Printer,
};

/// All figures of each seed, and what was aimed at.
const RESULT: &str = "study.json";

/// A study as `--json` prints it.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    study: &'a Study,
    aims: Vec<Aim>,
}

pub(super) fn run(printer: &Printer, args: &RunArgs, plan: StudyPlan) -> Result<Exit, CliError> {
    let plan = planned(args, plan)?;
    if let Some(folder) = &args.folder {
        fs::create_dir_all(folder).map_err(|error| cannot_write(folder, &error))?;
    }
    let runs = plan.seeds.saturating_mul(plan.loads.len() as u64);
    printer.talk(format_args!("{runs} runs of {} jobs, on all processors", plan.jobs));
    let study = plan.run().map_err(|error| {
        let error = CliError::usage(error.to_string());
        error.hint("without --trace a generator with the same marginals is used")
    })?;
    let printed = Printed { study: &study, aims: study.aims() };
    if printer.is_structured() {
        printer.value(&printed)?;
    } else {
        printer.line(study.to_string().trim_end())?;
    }
    if let Some(folder) = &args.folder {
        write(&folder.join(RESULT), &json(&printed)?)?;
        write(&folder.join(REPORT), study.html().as_bytes())?;
        printer.talk(format_args!("report: {}", folder.join(REPORT).display()));
    }
    match study.broken.as_slice() {
        [] => Ok(Exit::DONE),
        [first, ..] => {
            Err(CliError::internal(format!("invariants of the market did not hold {} times", study.broken.len()))
                .hint(first))
        }
    }
}

/// The study with what the flags say.
fn planned(args: &RunArgs, plan: StudyPlan) -> Result<StudyPlan, CliError> {
    if args.nodes.is_some() {
        let error = CliError::usage("--nodes is not for a study");
        return Err(error.hint("copy the scenario and set study.gpus and study.renters"));
    }
    let trace = args.trace.clone().map(|folder| match &plan.trace {
        Some(trace) => Trace { folder, ..trace.clone() },
        None => Trace { folder, other_runtimes: false, spot_fleet: false },
    });
    Ok(StudyPlan {
        trace: trace.or_else(|| plan.trace.clone()),
        first_seed: args.seed,
        seeds: args.seeds.map_or(plan.seeds, u64::from),
        ..plan
    })
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn args() -> RunArgs {
        RunArgs {
            scenario: "gpu-trace".to_owned(),
            seed: 7,
            seeds: Some(2),
            nodes: None,
            folder: None,
            trace: Some(PathBuf::from("traces")),
        }
    }

    #[test]
    fn flags_go_over_the_file() {
        let plan = super::super::load("gpu-trace").unwrap().study.unwrap();
        let planned = planned(&args(), plan.clone()).unwrap();
        let trace = Trace { folder: PathBuf::from("traces"), other_runtimes: false, spot_fleet: false };
        assert_eq!(planned, StudyPlan { trace: Some(trace), first_seed: 7, seeds: 2, ..plan });
    }

    #[test]
    fn a_study_has_no_number_of_nodes() {
        let args = RunArgs { nodes: Some(5), ..args() };
        assert!(planned(&args, StudyPlan::default()).is_err());
    }
}
