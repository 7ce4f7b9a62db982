//! One task of a spec as work for a provider: placeholders expanded, files named by hash.

use souk_protocol::{
    AttemptId, InputBlob, JobId, JobSpec, List, MAX_WORK, Text, Work, WorkLimits,
    bounded::TooLong,
    codec::{self, CodecError},
    job_file::{self, TemplateError},
};

/// A task cannot be handed out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    /// A placeholder has no value.
    #[error("{0}: {1}")]
    Template(&'static str, TemplateError),
    /// Something is longer than a provider accepts.
    #[error("{0}: {1}")]
    TooLong(&'static str, TooLong),
    /// No files were found for what the source of an input expands to.
    #[error("inputs: {0:?} was not resolved")]
    Source(String),
    /// All in all.
    #[error("the task is too large: {0}")]
    TooLarge(CodecError),
    /// There is no such task.
    #[error("the job has no task {0}")]
    NoTask(u32),
}

/// The work of `attempt`.
///
/// # Errors
/// [`WorkError`]: the spec is at fault, no provider could run it.
pub fn work(job: &JobId, spec: &JobSpec, attempt: AttemptId) -> Result<Work, WorkError> {
    let index = attempt.task;
    let vars = usize::try_from(index).ok().and_then(|index| spec.array.tasks.get(index));
    let vars = vars.ok_or(WorkError::NoTask(index))?;
    let id = job.to_string();
    let expand = |field: &'static str, text: &str| {
        job_file::expand(text, &id, index, vars).map_err(|error| WorkError::Template(field, error))
    };
    let args = spec.args.iter().map(|arg| text("args", expand("args", arg)?)).collect::<Result<Vec<_>, _>>()?;
    let env = spec
        .env
        .iter()
        .map(|(name, value)| Ok((text("env", name.clone())?, text("env", expand("env", value)?)?)))
        .collect::<Result<Vec<_>, _>>()?;
    let mut inputs = Vec::new();
    for input in &spec.inputs {
        let source = expand("inputs", &input.source)?;
        let target = expand("inputs", &input.target)?;
        let files = input.sources.get(&source).ok_or(WorkError::Source(source))?;
        for file in files {
            let path = if file.path.is_empty() {
                target.clone()
            } else {
                format!("{}/{}", target.trim_end_matches('/'), file.path)
            };
            inputs.push(InputBlob { target: text("inputs", path)?, hash: file.hash, len: file.len });
        }
    }
    let outputs = spec.outputs.iter().map(|output| text("outputs", expand("outputs", &output.path)?));
    let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
    let work = Work {
        attempt,
        job: *job,
        count: spec.task_count(),
        module: spec.module.hash,
        module_len: spec.module.len,
        argv0: spec.module.name.clone(),
        entry: spec.module.entry.clone(),
        args: list("args", args)?,
        env: list("env", env)?,
        inputs: list("inputs", inputs)?,
        outputs: list("outputs", outputs)?,
        limits: WorkLimits {
            timeout: spec.terms.timeout,
            stop_grace: spec.terms.stop_grace,
            memory: spec.requirement.memory,
            stdout: spec.terms.stdout,
            disk: spec.requirement.disk,
        },
    };
    codec::encode(&work, MAX_WORK).map_err(WorkError::TooLarge)?;
    Ok(work)
}

/// Encoded length of some work, in bytes.
pub(super) fn len(work: &Work) -> usize {
    codec::encode(work, MAX_WORK).map_or(MAX_WORK, |bytes| bytes.len())
}

fn text<const N: usize>(field: &'static str, value: String) -> Result<Text<N>, WorkError> {
    Text::try_from(value).map_err(|error| WorkError::TooLong(field, error))
}

fn list<T, const N: usize>(field: &'static str, items: Vec<T>) -> Result<List<T, N>, WorkError> {
    List::try_from(items).map_err(|error| WorkError::TooLong(field, error))
}
