//! `[array]`, `[[inputs]]`, `[[outputs]]`, `[checkpoint]`: the tasks and their files.

use std::collections::{BTreeMap, BTreeSet};

use super::{duration, optional, required, ruled};
use crate::job_file::sections::{
    ArraySection, ArrayTasks, CheckpointSection, InputSection, InputSource, OutputSection,
};
use crate::job_file::source::input_source;
use crate::job_file::walk::{Field, Fields, Walk};
use crate::job_file::{limits, paths, template, words};
use crate::spec::MAX_TASKS;

pub(in crate::job_file) fn array(walk: &mut Walk, root: &mut Fields<'_>) -> ArraySection {
    let mut fields = root.section(walk, "array");
    let count = fields.take(walk, "count");
    let matrix = fields.take(walk, "matrix");
    let tasks = match (count, matrix) {
        (Some(_), Some(matrix)) => {
            walk.error_hint(&matrix, "an array has a count or a matrix, not both", "keep one of the two");
            None
        }
        (Some(count), None) => walk.whole(&count, 1..=MAX_TASKS).map(ArrayTasks::Count),
        (None, Some(matrix)) => self::matrix(walk, &matrix).map(ArrayTasks::Matrix),
        (None, None) => None,
    };
    let tasks = tasks.unwrap_or(ArrayTasks::Count(1));
    let all = tasks.count();
    let max_parallel = optional(walk, &mut fields, "max_parallel", |walk, field| walk.whole(field, 1..=MAX_TASKS));
    let max_failures = optional(walk, &mut fields, "max_failures", |walk, field| walk.whole(field, 0..=MAX_TASKS));
    let gang = optional(walk, &mut fields, "gang", |walk, field| walk.boolean(field)).unwrap_or(false);
    if gang && max_parallel.is_some_and(|parallel| parallel < all) {
        walk.error_at("array.max_parallel", format!("a gang starts all {all} tasks at once"), "leave max_parallel out");
    }
    fields.finish(walk);
    ArraySection { tasks, max_parallel: max_parallel.unwrap_or(all).min(all), max_failures, gang }
}

fn matrix(walk: &mut Walk, field: &Field<'_>) -> Option<BTreeMap<String, Vec<String>>> {
    let mut matrix = BTreeMap::new();
    let errors_before = walk.errors.len();
    let entries = walk.entries(field, limits::MATRIX_KEYS);
    if entries.is_empty() && walk.errors.len() == errors_before {
        walk.error_hint(field, "an empty matrix has no tasks", "leave it out for one task");
    }
    for (key, entry) in entries {
        if !words::is_identifier(key) {
            walk.error_hint(&entry, "not a name for a placeholder", "letters, digits and \"_\", no digit first");
        } else if key == template::INDEX || key == template::JOB {
            walk.error_hint(&entry, "this name has its own meaning in placeholders", "choose another");
        }
        let mut values: Vec<String> = Vec::new();
        let mut seen = BTreeSet::new();
        let items = walk.texts(&entry, usize::try_from(MAX_TASKS).unwrap_or(usize::MAX));
        if items.is_empty() && walk.errors.len() == errors_before {
            walk.error_hint(&entry, "a key without values leaves no task", "give a list of texts");
        }
        for (item, text) in items {
            if text.contains('\0') || text.len() > limits::MATRIX_VALUE {
                walk.error(&item, format!("a value has at most {} bytes and no NUL", limits::MATRIX_VALUE));
            } else if !seen.insert(text) {
                walk.error_hint(&item, "the same value twice runs the same task twice", "keep one");
            } else {
                values.push(text.to_owned());
            }
        }
        matrix.insert(key.to_owned(), values);
    }
    if walk.errors.len() > errors_before {
        return None;
    }
    let lengths = matrix.values().map(|values| u32::try_from(values.len()).unwrap_or(u32::MAX));
    let tasks = lengths.fold(1u32, u32::saturating_mul);
    if tasks > MAX_TASKS {
        walk.error(field, format!("more than {MAX_TASKS} tasks"));
        return None;
    }
    Some(matrix)
}

pub(in crate::job_file) fn inputs(walk: &mut Walk, root: &mut Fields<'_>) -> Vec<InputSection> {
    let Some(field) = root.take(walk, "inputs") else { return Vec::new() };
    let mut inputs = Vec::new();
    for item in walk.list(&field, limits::INPUTS) {
        let Some(mut fields) = walk.fields(&item) else { continue };
        let source = required(walk, &mut fields, "source").and_then(|field| {
            let text = walk.text(&field)?;
            match input_source(text) {
                Ok(source) => Some(source),
                Err((problem, hint)) => {
                    walk.error_hint(&field, problem, hint);
                    None
                }
            }
        });
        let target = required(walk, &mut fields, "target").and_then(|field| walk.text(&field).map(str::to_owned));
        let sealed = optional(walk, &mut fields, "sealed", |walk, field| walk.boolean(field)).unwrap_or(false);
        fields.finish(walk);
        // A refused value leaves an empty stand-in, so that later entries keep their place.
        let source = source.unwrap_or(InputSource::Path(String::new()));
        inputs.push(InputSection { source, target: target.unwrap_or_default(), sealed });
    }
    inputs
}

pub(in crate::job_file) fn outputs(walk: &mut Walk, root: &mut Fields<'_>) -> Vec<OutputSection> {
    let Some(field) = root.take(walk, "outputs") else { return Vec::new() };
    let mut outputs = Vec::new();
    for item in walk.list(&field, limits::OUTPUTS) {
        let Some(mut fields) = walk.fields(&item) else { continue };
        let path = required(walk, &mut fields, "path").and_then(|field| walk.text(&field).map(str::to_owned));
        let to = match fields.take(walk, "to") {
            Some(field) => walk.text(&field).map(str::to_owned),
            None => Some(limits::DEFAULT_TO.to_owned()),
        };
        fields.finish(walk);
        outputs.push(OutputSection { path: path.unwrap_or_default(), to: to.unwrap_or_default() });
    }
    outputs
}

pub(in crate::job_file) fn checkpoint(walk: &mut Walk, root: &mut Fields<'_>) -> Option<CheckpointSection> {
    let field = root.take(walk, "checkpoint")?;
    let mut fields = walk.fields(&field)?;
    let path = match fields.take(walk, "path") {
        None => paths::CKPT.to_owned(),
        Some(field) => ruled(walk, &field, |path| paths::inside(path, paths::CKPT)).unwrap_or(paths::CKPT).to_owned(),
    };
    let every = optional(walk, &mut fields, "every", duration(limits::MAX_TIMEOUT));
    fields.finish(walk);
    Some(CheckpointSection { path, every: every.unwrap_or(limits::DEFAULT_CHECKPOINT) })
}
