//! Flags in place of a job file, or over one: a flag replaces the whole field.

use std::path::{Path, PathBuf};

use clap::Args;
use souk_protocol::job_file::{self, JobFileErrors, OutputSection, Override, OverrideValue, Parsed};

use super::{folder_of, here};
use crate::cli::{error::CliError, validate};

/// Which job: a file, a module, and what flags change.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// The job file: TOML, or YAML or JSON by its ending; - reads stdin (TOML or JSON).
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["wasm", "image"])]
    file: Option<PathBuf>,
    /// A WASI module or component: a job without a file.
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    wasm: Option<PathBuf>,
    /// A container image: a job without a file.
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// Name of the job.
    #[arg(long)]
    name: Option<String>,
    /// GPU of each task, e.g. A100:80GB:2.
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Cores of each task, e.g. 2 or 4..8.
    #[arg(long, value_name = "RANGE")]
    cpu: Option<String>,
    /// Memory of each task, e.g. 2GB.. .
    #[arg(long, value_name = "RANGE")]
    memory: Option<String>,
    /// Scratch space of each task.
    #[arg(long, value_name = "RANGE")]
    disk: Option<String>,
    /// Where it may run; may be repeated.
    #[arg(long, value_name = "REGION")]
    region: Vec<String>,
    /// gold, silver or bronze.
    #[arg(long)]
    tier: Option<String>,
    /// Most a slot may cost, e.g. "0.05 CR/h".
    #[arg(long, value_name = "PRICE")]
    max_price: Option<String>,
    /// Most the whole job may cost, e.g. "2 CR".
    #[arg(long, value_name = "MONEY")]
    budget: Option<String>,
    /// auto, auction or ask.
    #[arg(long)]
    mode: Option<String>,
    /// Use of this node's own capacity: first, only or never.
    #[arg(long)]
    local: Option<String>,
    /// Longest run of one attempt (--timeout bounds the command).
    #[arg(long, value_name = "DUR")]
    task_timeout: Option<String>,
    /// Number of tasks.
    #[arg(long, value_name = "N")]
    count: Option<u32>,
    /// Most tasks at once.
    #[arg(long, value_name = "N")]
    max_parallel: Option<u32>,
    /// Attempts of each task in all.
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    /// A variable of the task's environment; may be repeated.
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// A file or folder for the task, SOURCE=TARGET; may be repeated, replaces all inputs.
    #[arg(long, value_name = "SOURCE=TARGET")]
    input: Vec<String>,
    /// Folder on this machine for what the task leaves in /out.
    #[arg(long, value_name = "DIR")]
    to: Option<String>,
    /// Arguments of the program, after --.
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<String>,
}

impl JobArgs {
    /// The job: the file with the flags over it, or the flags alone. With it its name for messages, and the folder where
    /// its paths start.
    pub(super) fn job(&self) -> Result<(Parsed, String, PathBuf), CliError> {
        let flags = self.overrides()?;
        let Some(path) = &self.file else {
            let name = "the job of the flags".to_owned();
            return Ok((judged(&name, job_file::from_overrides(&self.with_output(flags, &[])?))?, name, here()?));
        };
        let (name, folder) = (path.display().to_string(), folder_of(path)?);
        let (text, format) = validate::read(path)?;
        // The file is judged for itself first, so that its own errors come with their lines.
        let file = judged(&name, job_file::parse(&text, format))?;
        let flags = self.with_output(flags, &file.file.outputs)?;
        if flags.is_empty() {
            return Ok((file, name, folder));
        }
        let whole = format!("{name} with the flags given");
        Ok((judged(&whole, job_file::parse_with(&text, format, &flags))?, name, folder))
    }

    /// The flags as fields, but for the folder of the output.
    fn overrides(&self) -> Result<Vec<Override>, CliError> {
        let mut flags = Vec::new();
        let mut set = |path: &str, value| flags.push(Override { path: path.to_owned(), value });
        if let Some(path) = &self.wasm {
            set("runtime.wasm", OverrideValue::Text(text_of(&absolute(path)?)?));
        }
        if self.file.is_none() && self.name.is_none() {
            let name = self.wasm.as_deref().map_or_else(|| "image".to_owned(), job_name);
            set("name", OverrideValue::Text(name));
        }
        for (path, text) in [
            ("runtime.image", &self.image),
            ("name", &self.name),
            ("resources.gpu", &self.gpu),
            ("resources.cpu", &self.cpu),
            ("resources.memory", &self.memory),
            ("resources.disk", &self.disk),
            ("market.tier", &self.tier),
            ("market.max_price", &self.max_price),
            ("market.budget", &self.budget),
            ("market.mode", &self.mode),
            ("market.local", &self.local),
            ("limits.timeout", &self.task_timeout),
        ] {
            if let Some(text) = text {
                set(path, OverrideValue::Text(text.clone()));
            }
        }
        if let Some(count) = self.count {
            // Count and matrix are two ways to say one thing.
            set("array.matrix", OverrideValue::Nothing);
            set("array.count", OverrideValue::Whole(count));
        }
        for (path, number) in [("array.max_parallel", self.max_parallel), ("retry.attempts", self.attempts)] {
            if let Some(number) = number {
                set(path, OverrideValue::Whole(number));
            }
        }
        for (path, texts) in [("resources.region", &self.region), ("runtime.args", &self.args)] {
            if !texts.is_empty() {
                set(path, OverrideValue::Texts(texts.clone()));
            }
        }
        // Each variable is a field of its own.
        for pair in &self.env {
            let (name, value) = pair.split_once('=').ok_or_else(|| usage("--env", pair, "write NAME=VALUE"))?;
            set(&format!("runtime.env.{name}"), OverrideValue::Text(value.to_owned()));
        }
        if !self.input.is_empty() {
            set("inputs", OverrideValue::Tables(self.inputs()?));
        }
        Ok(flags)
    }

    fn inputs(&self) -> Result<Vec<Vec<(String, String)>>, CliError> {
        let mut inputs = Vec::new();
        for pair in &self.input {
            let (source, target) =
                pair.rsplit_once('=').ok_or_else(|| usage("--input", pair, "write SOURCE=TARGET"))?;
            let elsewhere = ["blake3:", "https:", "job:"].iter().any(|scheme| source.starts_with(scheme));
            let source = if elsewhere { source.to_owned() } else { text_of(&absolute(Path::new(source))?)? };
            inputs.push(vec![("source".to_owned(), source), ("target".to_owned(), target.to_owned())]);
        }
        Ok(inputs)
    }

    /// Adds the folder of the one output there is.
    fn with_output(&self, mut flags: Vec<Override>, outputs: &[OutputSection]) -> Result<Vec<Override>, CliError> {
        let Some(to) = &self.to else { return Ok(flags) };
        let path = match outputs {
            [] => "/out".to_owned(),
            [only] => only.path.clone(),
            _ => {
                let error = CliError::usage("--to: the job file has several outputs");
                return Err(error.hint("change their `to` in the file"));
            }
        };
        let to = if Path::new(to).is_absolute() {
            to.clone()
        } else {
            // Braces of the current folder's name are no placeholders; those of the flag are.
            let here = text_of(&here()?)?.replace('{', "{{");
            format!("{here}/{}", to.strip_prefix("./").unwrap_or(to))
        };
        let output = vec![("path".to_owned(), path), ("to".to_owned(), to)];
        flags.push(Override { path: "outputs".to_owned(), value: OverrideValue::Tables(vec![output]) });
        Ok(flags)
    }
}

fn judged(name: &str, parsed: Result<Parsed, JobFileErrors>) -> Result<Parsed, CliError> {
    parsed.map_err(|errors| CliError::Invalid { file: name.to_owned(), problems: errors.0 })
}

fn usage(flag: &str, value: &str, hint: &str) -> CliError {
    CliError::usage(format!("{flag} {value:?} has no \"=\"")).hint(hint)
}

fn absolute(path: &Path) -> Result<PathBuf, CliError> {
    std::path::absolute(path).map_err(|error| CliError::usage(format!("{}: {error}", path.display())))
}

/// A path as text of a job file.
fn text_of(path: &Path) -> Result<String, CliError> {
    let text = path.to_str().ok_or_else(|| CliError::usage(format!("{} is no UTF-8 text", path.display())))?;
    Ok(text.to_owned())
}

/// A job's name from its module's: letters, digits and dashes, starting with a letter.
fn job_name(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let name: String = stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(58).collect();
    let name = name.trim_matches('-');
    if name.starts_with(|c: char| c.is_ascii_lowercase()) {
        name.to_owned()
    } else {
        format!("job-{name}").trim_end_matches('-').to_owned()
    }
}

#[cfg(test)]
mod tests {
    use souk_protocol::job_file::{Format, JobFile};

    use super::*;

    const FILE: &str = "version = 1\nname = \"t\"\n[runtime]\nwasm = \"./m.wasm\"\nargs = [\"a\", \"b\"]\nenv = { A = \"1\", B = \"2\" }\n\
                        [array]\nmatrix = { X = [\"1\", \"2\"] }\n";

    fn over(file: &str, ending: &str, args: JobArgs) -> JobFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(format!("job.{ending}"));
        std::fs::write(&path, file).unwrap();
        JobArgs { file: Some(path), ..args }.job().unwrap().0.file
    }

    #[test]
    fn a_flag_replaces_the_whole_field() {
        let file = over(
            FILE,
            "toml",
            JobArgs {
                args: vec!["c".to_owned()],
                count: Some(3),
                env: vec!["A=x=y".to_owned()],
                budget: Some("2 CR".to_owned()),
                task_timeout: Some("5s".to_owned()),
                input: vec!["/data=/in/data".to_owned()],
                to: Some("/r/{index}".to_owned()),
                ..JobArgs::default()
            },
        );
        assert_eq!(file.runtime.args, ["c"]);
        assert_eq!(file.task_count(), 3);
        assert_eq!(file.runtime.env["A"], "x=y");
        assert_eq!(file.runtime.env["B"], "2");
        assert_eq!(file.market.budget.unwrap().to_string(), "2.000000 CR");
        assert_eq!(file.limits.timeout.to_string(), "5s");
        assert_eq!(file.inputs[0].target, "/in/data");
        assert_eq!((file.outputs[0].path.as_str(), file.outputs[0].to.as_str()), ("/out", "/r/{index}"));
    }

    #[test]
    fn without_flags_the_file_stays_as_it_is() {
        let file = over(FILE, "toml", JobArgs::default());
        assert_eq!(file, job_file::parse(FILE.as_bytes(), Format::Toml).unwrap().file);
    }

    #[test]
    fn flags_go_over_a_file_in_any_language() {
        let yaml = "version: 1\nname: t\nruntime: {wasm: ./m.wasm}\noutputs: [{path: /out, to: ./r}]\n";
        let flags = JobArgs { memory: Some("1GB".to_owned()), to: Some("/x".to_owned()), ..JobArgs::default() };
        let file = over(yaml, "yaml", flags);
        assert_eq!(file.outputs[0].to, "/x");
        assert_eq!(file.resources.memory.lo.to_string(), "1GB");
    }

    #[test]
    fn a_job_of_flags_alone_is_a_valid_file() {
        let args = JobArgs {
            wasm: Some("/x/Hello.wasm".into()),
            args: vec!["--lr".to_owned(), "0.1".to_owned()],
            max_price: Some("0.05 CR/h".to_owned()),
            ..JobArgs::default()
        };
        let file = args.job().unwrap().0.file;
        assert_eq!(file.name, "hello");
        assert_eq!(file.runtime.args, ["--lr", "0.1"]);
        assert_eq!(file.market.max_price.unwrap().to_string(), "0.050000 CR/h");
    }

    #[test]
    fn names_come_from_modules() {
        for (path, name) in
            [("a/Train_Net.wasm", "train-net"), ("1.wasm", "job-1"), ("-.wasm", "job"), ("x.y.wasm", "x-y")]
        {
            assert_eq!(job_name(Path::new(path)), name);
        }
    }
}
