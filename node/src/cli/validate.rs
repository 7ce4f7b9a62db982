//! `souk job validate`, and reading a job file for the commands that need one.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use souk_protocol::{
    JobFile,
    job_file::{self, Feature, Format, MAX_JOB_FILE, Parsed, Problem, Warning},
};

use super::{
    Context,
    error::{CliError, Exit},
};
use crate::home;

#[derive(Debug, Clone, Args)]
pub(crate) struct ValidateArgs {
    /// The job file.
    #[arg(short, long, value_name = "FILE", required_unless_present = "path")]
    file: Option<PathBuf>,
    /// The job file.
    #[arg(value_name = "FILE", conflicts_with = "file")]
    path: Option<PathBuf>,
}

#[derive(Serialize)]
struct Judged {
    ok: bool,
    file: String,
    errors: Vec<Problem>,
    warnings: Vec<Warning>,
    not_available: Vec<Feature>,
    tasks: Option<u32>,
    job: Option<JobFile>,
}

pub(crate) fn run(context: &Context, args: &ValidateArgs) -> Result<Exit, CliError> {
    let path = args.file.as_ref().or(args.path.as_ref()).cloned().unwrap_or_default();
    let name = path.display().to_string();
    let printer = &context.printer;
    let judged = match judge(&path)? {
        Ok((parsed, late)) => {
            let not_available = job_file::not_available(&parsed.file);
            Judged {
                ok: late.is_empty(),
                file: name.clone(),
                errors: late,
                warnings: parsed.warnings,
                not_available,
                tasks: Some(parsed.file.task_count()),
                job: Some(parsed.file),
            }
        }
        Err(errors) => Judged {
            ok: false,
            file: name.clone(),
            errors,
            warnings: Vec::new(),
            not_available: Vec::new(),
            tasks: None,
            job: None,
        },
    };
    if printer.is_structured() {
        printer.value(&judged)?;
    }
    for warning in &judged.warnings {
        printer.warn(warning.in_file(&name));
    }
    for feature in &judged.not_available {
        let line = feature.line.map_or_else(String::new, |line| format!(":{line}"));
        printer.warn(format_args!("{name}{line}: {}: {}", feature.path, feature.text));
    }
    if !judged.ok {
        return Err(CliError::Invalid { file: name, problems: judged.errors });
    }
    if !printer.is_structured() {
        let tasks = super::table::count(judged.tasks.unwrap_or(1), "task");
        printer.line(format_args!("{name} is valid: {tasks}"))?;
    }
    Ok(Exit::DONE)
}

/// A file that parses with what is wrong with it at this moment, or all its errors.
type Verdict = Result<(Parsed, Vec<Problem>), Vec<Problem>>;

fn judge(path: &Path) -> Result<Verdict, CliError> {
    let (bytes, format) = read(path)?;
    Ok(match job_file::parse(&bytes, format) {
        Ok(parsed) => {
            let late = parsed.file.check_at(crate::clock::wall());
            Ok((parsed, late))
        }
        Err(errors) => Err(errors.0),
    })
}

/// The bytes of a job file and its language, by its name; `-` is stdin, TOML or JSON by its first character.
pub(crate) fn read(path: &Path) -> Result<(Vec<u8>, Format), CliError> {
    if path == Path::new("-") {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        let limit = (MAX_JOB_FILE as u64).saturating_add(1);
        std::io::stdin()
            .take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| CliError::usage(format!("cannot read stdin: {error}")))?;
        let is_json = bytes.trim_ascii_start().starts_with(b"{");
        return Ok((bytes, if is_json { Format::Json } else { Format::Toml }));
    }
    let format = Format::of_name(&path.to_string_lossy());
    home::read_bytes(path, MAX_JOB_FILE as u64)
        .map(|bytes| (bytes, format))
        .map_err(|error| if error.is_missing() { CliError::not_found(error) } else { CliError::usage(error) })
}
