//! Flags in place of a job file, or over one: a flag replaces the whole field.

use std::path::{Path, PathBuf};

use clap::Args;
use toml::{Table, Value};

use super::{folder_of, here};
use crate::cli::{error::CliError, validate};

/// Which job: a file, a module, and what flags change.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct JobArgs {
    /// The job file; - reads stdin.
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["wasm", "image"])]
    file: Option<PathBuf>,
    /// A WASI module: a job without a file.
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
    /// The text of the job file, its name for messages, and the folder where its paths start.
    pub(super) fn source(&self) -> Result<(Vec<u8>, String, PathBuf), CliError> {
        if let Some(path) = &self.file {
            return Ok((validate::read(path)?, path.display().to_string(), folder_of(path)?));
        }
        let mut runtime = Table::new();
        let name = match (&self.wasm, &self.image) {
            (Some(path), _) => {
                runtime.insert("wasm".to_owned(), text_of(&absolute(path)?)?.into());
                job_name(path)
            }
            (None, Some(image)) => {
                runtime.insert("image".to_owned(), image.as_str().into());
                "image".to_owned()
            }
            (None, None) => {
                return Err(CliError::usage("no job").hint("name a job file with -f, or a module with --wasm"));
            }
        };
        let mut table = Table::new();
        table.insert("version".to_owned(), Value::Integer(1));
        table.insert("name".to_owned(), name.into());
        table.insert("runtime".to_owned(), runtime.into());
        // The flags go in here, too: a job without a file has no other text.
        self.apply(&mut table)?;
        let text = toml::to_string(&table).map_err(CliError::internal)?;
        Ok((text.into_bytes(), "the job of the flags".to_owned(), here()?))
    }

    /// The text with the flags over it; `None` if there are none, or if they are in it already.
    pub(super) fn over(&self, text: &[u8]) -> Result<Option<String>, CliError> {
        if self.file.is_none() {
            return Ok(None);
        }
        let text = std::str::from_utf8(text).map_err(CliError::internal)?;
        let before: Table = toml::from_str(text.trim_start_matches('\u{feff}')).map_err(CliError::internal)?;
        let mut table = before.clone();
        if let Some(path) = &self.wasm {
            section(&mut table, "runtime")?.insert("wasm".to_owned(), text_of(&absolute(path)?)?.into());
        }
        if let Some(image) = &self.image {
            section(&mut table, "runtime")?.insert("image".to_owned(), image.as_str().into());
        }
        self.apply(&mut table)?;
        if table == before {
            return Ok(None);
        }
        toml::to_string(&table).map(Some).map_err(CliError::internal)
    }

    fn apply(&self, table: &mut Table) -> Result<(), CliError> {
        let texts = [
            ("", "name", &self.name),
            ("resources", "gpu", &self.gpu),
            ("resources", "cpu", &self.cpu),
            ("resources", "memory", &self.memory),
            ("resources", "disk", &self.disk),
            ("market", "tier", &self.tier),
            ("market", "max_price", &self.max_price),
            ("market", "budget", &self.budget),
            ("market", "mode", &self.mode),
            ("market", "local", &self.local),
            ("limits", "timeout", &self.task_timeout),
        ];
        for (place, field, text) in texts {
            if let Some(text) = text {
                section(table, place)?.insert(field.to_owned(), text.as_str().into());
            }
        }
        let numbers = [("array", "max_parallel", self.max_parallel), ("retry", "attempts", self.attempts)];
        for (place, field, number) in numbers {
            if let Some(number) = number {
                section(table, place)?.insert(field.to_owned(), Value::Integer(number.into()));
            }
        }
        if let Some(count) = self.count {
            let array = section(table, "array")?;
            // Count and matrix are two ways to say one thing.
            array.remove("matrix");
            array.insert("count".to_owned(), Value::Integer(count.into()));
        }
        if !self.region.is_empty() {
            section(table, "resources")?.insert("region".to_owned(), texts_of(&self.region));
        }
        if !self.args.is_empty() {
            section(table, "runtime")?.insert("args".to_owned(), texts_of(&self.args));
        }
        self.environment(table)?;
        self.inputs(table)?;
        self.output(table)
    }

    /// Each variable is a field of its own.
    fn environment(&self, table: &mut Table) -> Result<(), CliError> {
        for pair in &self.env {
            let (name, value) = pair.split_once('=').ok_or_else(|| usage("--env", pair, "write NAME=VALUE"))?;
            let runtime = section(table, "runtime")?;
            section(runtime, "env")?.insert(name.to_owned(), value.into());
        }
        Ok(())
    }

    fn inputs(&self, table: &mut Table) -> Result<(), CliError> {
        if self.input.is_empty() {
            return Ok(());
        }
        let mut inputs = Vec::new();
        for pair in &self.input {
            let (source, target) =
                pair.rsplit_once('=').ok_or_else(|| usage("--input", pair, "write SOURCE=TARGET"))?;
            let source = if source.starts_with("blake3:") || source.starts_with("https:") || source.starts_with("job:")
            {
                source.to_owned()
            } else {
                text_of(&absolute(Path::new(source))?)?
            };
            let mut input = Table::new();
            input.insert("source".to_owned(), source.into());
            input.insert("target".to_owned(), target.into());
            inputs.push(Value::Table(input));
        }
        table.insert("inputs".to_owned(), Value::Array(inputs));
        Ok(())
    }

    fn output(&self, table: &mut Table) -> Result<(), CliError> {
        let Some(to) = &self.to else { return Ok(()) };
        let to = if Path::new(to).is_absolute() {
            to.clone()
        } else {
            // Braces of the current folder's name are no placeholders; those of the flag are.
            let here = text_of(&here()?)?.replace('{', "{{");
            format!("{here}/{}", to.strip_prefix("./").unwrap_or(to))
        };
        let outputs = table.entry("outputs").or_insert_with(|| Value::Array(vec![Value::Table(Table::new())]));
        match outputs.as_array_mut().map(Vec::as_mut_slice) {
            Some([Value::Table(only)]) => {
                only.entry("path").or_insert_with(|| "/out".into());
                only.insert("to".to_owned(), to.into());
                Ok(())
            }
            _ => Err(CliError::usage("--to: the job file has several outputs").hint("change their `to` in the file")),
        }
    }
}

fn usage(flag: &str, value: &str, hint: &str) -> CliError {
    CliError::usage(format!("{flag} {value:?} has no \"=\"")).hint(hint)
}

fn texts_of(texts: &[String]) -> Value {
    Value::Array(texts.iter().map(|text| text.as_str().into()).collect())
}

/// A table of the job file, made if it is not there. The empty name is the file itself.
fn section<'a>(table: &'a mut Table, name: &str) -> Result<&'a mut Table, CliError> {
    if name.is_empty() {
        return Ok(table);
    }
    let value = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
    value.as_table_mut().ok_or_else(|| CliError::usage(format!("{name} is no table in the job file")))
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
    use souk_protocol::job_file::{self, Format};

    use super::*;

    const FILE: &str = "version = 1\nname = \"t\"\n[runtime]\nwasm = \"./m.wasm\"\nargs = [\"a\", \"b\"]\nenv = { A = \"1\", B = \"2\" }\n\
                        [array]\nmatrix = { X = [\"1\", \"2\"] }\n";

    fn over(args: JobArgs) -> souk_protocol::JobFile {
        let args = JobArgs { file: Some("job.toml".into()), ..args };
        let text = args.over(FILE.as_bytes()).unwrap().unwrap();
        job_file::parse(text.as_bytes(), Format::Toml).unwrap().file
    }

    #[test]
    fn a_flag_replaces_the_whole_field() {
        let file = over(JobArgs {
            args: vec!["c".to_owned()],
            count: Some(3),
            env: vec!["A=x=y".to_owned()],
            budget: Some("2 CR".to_owned()),
            task_timeout: Some("5s".to_owned()),
            input: vec!["/data=/in/data".to_owned()],
            to: Some("/r/{index}".to_owned()),
            ..JobArgs::default()
        });
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
        let args = JobArgs { file: Some("job.toml".into()), ..JobArgs::default() };
        assert_eq!(args.over(FILE.as_bytes()).unwrap(), None);
    }

    #[test]
    fn a_job_of_flags_alone_is_a_valid_file() {
        let args = JobArgs {
            wasm: Some("/x/Hello.wasm".into()),
            args: vec!["--lr".to_owned(), "0.1".to_owned()],
            max_price: Some("0.05 CR/h".to_owned()),
            ..JobArgs::default()
        };
        let (text, _, _) = args.source().unwrap();
        let file = job_file::parse(&text, Format::Toml).unwrap().file;
        assert_eq!(file.name, "hello");
        assert_eq!(file.runtime.args, ["--lr", "0.1"]);
        assert_eq!(file.market.max_price.unwrap().to_string(), "0.050000 CR/h");
        assert_eq!(args.over(&text).unwrap(), None);
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
