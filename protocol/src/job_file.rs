//! The job file: what a renter writes. Parsed whole, judged whole.
//!
//! A file is valid or it has errors, all of which are found at once, each with its field, line and value. Nothing in
//! it is ever ignored: unknown fields are errors. [`not_available`] lists what a valid file asks for that this
//! version can't do yet.
//!
//! ```
//! use souk_protocol::job_file::{self, Format};
//!
//! let text = b"version = 1\nname = \"hello\"\n[runtime]\nwasm = \"./hello.wasm\"\n[limits]\ntimeout = \"0s\"\n";
//! let errors = job_file::parse(text, Format::Toml).unwrap_err();
//! assert_eq!(
//!     errors.to_string(),
//!     "line 6: limits.timeout = \"0s\": zero means nothing here, leave the field out or write a duration above zero"
//! );
//! ```

mod feature;
mod limits;
mod overrides;
mod paths;
mod problem;
mod read;
mod rules;
mod sections;
mod source;
mod template;
mod tree;
mod walk;
mod words;

use std::collections::BTreeMap;

use serde::Serialize;

pub use feature::{Feature, not_available};
pub use overrides::{Override, OverrideValue};
pub use problem::{JobFileErrors, Problem, Warning};
pub use sections::{
    ArraySection, ArrayTasks, CheckpointSection, DataPlacement, InputSection, InputSource, JobKind, LimitsSection,
    MarketSection, NetworkAccess, OutputSection, Program, Readiness, ResourcesSection, RetrySection, RuntimeSection,
    Scaling, ScalingMetric, ServiceSection, SlaSection,
};
pub use template::{TemplateError, expand};

use crate::units::Timestamp;
use tree::Tree;
use walk::{Field, Fields, Walk};

/// Largest job file, in bytes.
pub const MAX_JOB_FILE: usize = limits::FILE;

/// The language of a job file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// YAML 1.2.
    Yaml,
    /// JSON.
    Json,
}

impl Format {
    /// The language of a file by its name: `.yaml`, `.yml` and `.json` as they say, anything else is TOML.
    #[must_use]
    pub fn of_name(name: &str) -> Self {
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let is = |word: &str| ending.eq_ignore_ascii_case(word);
        if is("yaml") || is("yml") {
            Self::Yaml
        } else if is("json") {
            Self::Json
        } else {
            Self::Toml
        }
    }
}

/// A valid job file and what is odd about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The job.
    pub file: JobFile,
    /// Remarks, in the order of the lines.
    pub warnings: Vec<Warning>,
}

/// A valid job file with every default resolved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobFile {
    /// Version of the schema, 1.
    pub version: u32,
    /// Name, for people.
    pub name: String,
    /// Task or service.
    #[serde(rename = "type")]
    pub kind: JobKind,
    /// Labels, for people.
    pub labels: BTreeMap<String, String>,
    /// What runs.
    pub runtime: RuntimeSection,
    /// What one task gets.
    pub resources: ResourcesSection,
    /// Price and choice.
    pub market: MarketSection,
    /// When, how reliable, how checked.
    pub sla: SlaSection,
    /// Of one attempt.
    pub limits: LimitsSection,
    /// What is tried again.
    pub retry: RetrySection,
    /// The tasks.
    pub array: ArraySection,
    /// Files laid out before a task starts.
    pub inputs: Vec<InputSection>,
    /// What is brought home.
    pub outputs: Vec<OutputSection>,
    /// What survives an attempt.
    pub checkpoint: Option<CheckpointSection>,
    /// The line of each field that the file has, for messages.
    #[serde(skip)]
    pub lines: BTreeMap<String, u32>,
}

/// One task of a job: its index and the values of its placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskVars {
    /// Its index, from 0.
    pub index: u32,
    /// Its value of each key of the matrix.
    pub vars: BTreeMap<String, String>,
}

impl TaskVars {
    /// Expands the placeholders of a text for this task of `job`.
    ///
    /// # Errors
    /// A brace without its partner, or a name without a value; neither occurs in the texts of a valid [`JobFile`].
    pub fn expand(&self, template: &str, job: &str) -> Result<String, TemplateError> {
        expand(template, job, self.index, &self.vars)
    }
}

impl ArrayTasks {
    /// Number of tasks.
    pub fn count(&self) -> u32 {
        match self {
            Self::Count(count) => *count,
            Self::Matrix(matrix) => matrix
                .values()
                .map(|values| u32::try_from(values.len()).unwrap_or(u32::MAX))
                .fold(1, u32::saturating_mul),
        }
    }

    /// The values of task `index`: keys sorted, the last one changes fastest.
    fn vars(&self, index: u32) -> BTreeMap<String, String> {
        let Self::Matrix(matrix) = self else { return BTreeMap::new() };
        let mut vars = BTreeMap::new();
        let mut rest = usize::try_from(index).unwrap_or(usize::MAX);
        for (key, values) in matrix.iter().rev() {
            let digit = rest.checked_rem(values.len()).unwrap_or(0);
            rest = rest.checked_div(values.len()).unwrap_or(0);
            if let Some(value) = values.get(digit) {
                vars.insert(key.clone(), value.clone());
            }
        }
        vars
    }
}

impl JobFile {
    /// Number of tasks.
    pub fn task_count(&self) -> u32 {
        self.array.tasks.count()
    }

    /// The tasks, by index.
    pub fn tasks(&self) -> impl Iterator<Item = TaskVars> + '_ {
        (0..self.task_count()).map(|index| TaskVars { index, vars: self.array.tasks.vars(index) })
    }

    /// What is wrong with the job at this moment: a deadline or a start in the past.
    pub fn check_at(&self, now: Timestamp) -> Vec<Problem> {
        rules::against_clock(self, now)
    }

    /// The line of a field, where the file has it.
    pub fn line_of(&self, path: &str) -> Option<u32> {
        self.lines.get(path).copied()
    }
}

/// Parses and judges a job file.
///
/// # Errors
/// All errors of the file at once, in the order of its lines.
pub fn parse(bytes: &[u8], format: Format) -> Result<Parsed, JobFileErrors> {
    parse_with(bytes, format, &[])
}

/// Parses and judges a job file of which some fields have been replaced, by flags of a command for example.
///
/// # Errors
/// All errors of the file and of the replacements at once; those of replacements have no line.
pub fn parse_with(bytes: &[u8], format: Format, overrides: &[Override]) -> Result<Parsed, JobFileErrors> {
    let text = text_of(bytes).map_err(|problem| JobFileErrors(vec![problem]))?;
    let (tree, problems) = match format {
        Format::Toml => tree::from_toml(text),
        Format::Yaml => tree::from_yaml(text),
        Format::Json => tree::from_json(text),
    };
    match tree {
        Some(tree) => judge(tree, overrides, problems),
        None => Err(JobFileErrors::of(problems)),
    }
}

/// Judges a job that has no file, only these fields. The version of the schema need not be among them.
///
/// # Errors
/// All errors at once, without lines.
pub fn from_overrides(overrides: &[Override]) -> Result<Parsed, JobFileErrors> {
    let version = Override { path: "version".to_owned(), value: OverrideValue::Whole(1) };
    let mut tree = Tree { line: 0, node: tree::Node::Table(Vec::new()) };
    version.apply(&mut tree);
    judge(tree, overrides, Vec::new())
}

/// The file as text: bounded, UTF-8, without the mark that some editors put first.
fn text_of(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() > MAX_JOB_FILE {
        let problem = format!("the file has {} bytes, at most {MAX_JOB_FILE} are read", bytes.len());
        return Err(Problem::new("", None, problem).with_hint("give large data as an input"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let valid = bytes.get(..error.valid_up_to()).unwrap_or(&[]);
        let newlines = valid.iter().filter(|byte| **byte == b'\n').count();
        let line = u32::try_from(newlines.saturating_add(1)).ok();
        Problem::new("", line, format!("not UTF-8 at byte {}", error.valid_up_to())).with_hint("save the file as UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Judges a tree, from whatever language it came. `problems` are those of its text.
fn judge(mut tree: Tree, overrides: &[Override], problems: Vec<Problem>) -> Result<Parsed, JobFileErrors> {
    for change in overrides {
        change.apply(&mut tree);
    }
    let mut walk = Walk { errors: problems, ..Walk::default() };
    let root = Field { path: String::new(), line: tree.line, tree: &tree };
    let Some(mut root) = walk.fields(&root) else {
        return Err(JobFileErrors::of(walk.errors));
    };
    let mut file = read_file(&mut walk, &mut root);
    root.finish(&mut walk);
    rules::check(&mut walk, &file);
    if !walk.errors.is_empty() {
        return Err(JobFileErrors::of(walk.errors));
    }
    walk.warnings.sort_by_key(|warning| warning.line);
    file.lines = walk.lines.into_iter().filter(|(_, line)| *line > 0).collect();
    Ok(Parsed { file, warnings: walk.warnings })
}

/// Reads every section. Where a value was refused, a stand-in takes its place: the error is what counts.
fn read_file(walk: &mut Walk, root: &mut Fields<'_>) -> JobFile {
    read::version(walk, root);
    let name = read::name(walk, root).unwrap_or_default();
    let kind = read::kind(walk, root);
    let labels = read::labels(walk, root);
    let (runtime, program) = read::runtime(walk, root);
    JobFile {
        version: 1,
        name,
        kind,
        labels,
        runtime,
        resources: read::resources(walk, root, program),
        market: read::market(walk, root),
        sla: read::sla(walk, root),
        limits: read::attempt_limits(walk, root),
        retry: read::retry(walk, root),
        array: read::array(walk, root),
        inputs: read::inputs(walk, root),
        outputs: read::outputs(walk, root),
        checkpoint: read::checkpoint(walk, root),
        lines: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests;
