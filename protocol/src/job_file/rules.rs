//! Rules that look at more than one field.

use std::collections::BTreeSet;

use super::paths::{self, Refusal};
use super::problem::Problem;
use super::sections::{ArrayTasks, InputSection, InputSource, JobKind, Program, ServiceSection};
use super::template::{self, INDEX, JOB, Piece};
use super::walk::Walk;
use super::{JobFile, words};
use crate::terms::Verify;
use crate::units::Timestamp;

/// What a template is used for, which says what its values must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// An argument or a value of the environment.
    Text,
    /// A path of this machine to read from.
    Source,
    /// A path that must not leave its folder.
    Path,
}

pub(super) fn check(walk: &mut Walk, file: &JobFile) {
    let mut placeholders = Placeholders::of(file);
    templates(walk, file, &mut placeholders);
    placeholders.report_unused(walk);
    targets(walk, &file.inputs);
    outputs(walk, file);
    times(walk, file);
    match &file.kind {
        JobKind::Task => task(walk, file),
        JobKind::Service(service) => self::service(walk, file, service),
    }
}

/// The placeholders a job defines, and which of them its file uses.
struct Placeholders<'a> {
    known: Vec<&'a str>,
    matrix: Vec<(&'a str, &'a [String])>,
    used: BTreeSet<&'a str>,
}

impl<'a> Placeholders<'a> {
    fn of(file: &'a JobFile) -> Self {
        let matrix: Vec<(&str, &[String])> = match &file.array.tasks {
            ArrayTasks::Count(_) => Vec::new(),
            ArrayTasks::Matrix(matrix) => {
                matrix.iter().map(|(key, values)| (key.as_str(), values.as_slice())).collect()
            }
        };
        let known = matrix.iter().map(|(key, _)| *key).chain([INDEX, JOB]).collect();
        Self { known, matrix, used: BTreeSet::new() }
    }

    /// Checks one template; false where it can't be expanded.
    fn check(&mut self, walk: &mut Walk, path: &str, text: &'a str, used_for: Use) -> bool {
        let names = match template::names(text, &self.known) {
            Ok(names) => names,
            Err(error) => {
                walk.errors.push(problem_at(walk, path, error.to_string(), text));
                return false;
            }
        };
        let mut fine = true;
        for name in names {
            self.used.insert(name);
            let Some((key, values)) = self.matrix.iter().find(|(key, _)| *key == name) else { continue };
            let refused = values.iter().find(|value| match used_for {
                Use::Text => false,
                Use::Source => value.is_empty() || value.chars().any(char::is_control),
                Use::Path => !paths::is_safe_in_path(value),
            });
            if let Some(value) = refused {
                let problem =
                    format!("{{{key}}} can't be used in a path: it has the value {}", crate::grammar::shown(value));
                let hint = "values in paths have no \"/\" and are not empty or only dots";
                walk.errors.push(problem_at(walk, path, problem, text).with_hint(hint));
                fine = false;
            }
        }
        fine
    }

    fn report_unused(&self, walk: &mut Walk) {
        for (key, _) in &self.matrix {
            if !self.used.contains(key) {
                let hint = format!("use {{{key}}} in args, env, inputs or outputs");
                walk.warn(&format!("array.matrix.{key}"), "never used: its tasks differ in nothing else", hint);
            }
        }
    }
}

fn problem_at(walk: &Walk, path: &str, problem: String, value: &str) -> Problem {
    let line = walk.lines.get(path).copied();
    // Values that should have been secrets are not repeated in messages.
    let secret = path.strip_prefix("runtime.env.").is_some_and(words::looks_secret);
    Problem::new(path, line, problem).with_value((!secret).then(|| crate::grammar::shown(value)))
}

/// The template with each placeholder replaced by a plain name, for rules about paths.
fn with_plain_names(text: &str) -> String {
    let pieces = template::pieces(text).unwrap_or_default();
    pieces.into_iter().map(|piece| if let Piece::Text(text) = piece { text } else { "x" }).collect()
}

fn templates<'a>(walk: &mut Walk, file: &'a JobFile, placeholders: &mut Placeholders<'a>) {
    for (index, arg) in file.runtime.args.iter().enumerate() {
        placeholders.check(walk, &format!("runtime.args[{index}]"), arg, Use::Text);
    }
    for (name, value) in &file.runtime.env {
        placeholders.check(walk, &format!("runtime.env.{name}"), value, Use::Text);
    }
    if let Program::Image { entrypoint: Some(entrypoint), .. } = &file.runtime.program {
        for (index, arg) in entrypoint.iter().enumerate() {
            placeholders.check(walk, &format!("runtime.entrypoint[{index}]"), arg, Use::Text);
        }
    }
    for (index, input) in file.inputs.iter().enumerate() {
        let path = format!("inputs[{index}].source");
        match &input.source {
            InputSource::Path(text) if text.is_empty() => {}
            InputSource::Path(text) => {
                placeholders.check(walk, &path, text, Use::Source);
            }
            InputSource::Https { url, .. } => {
                placeholders.check(walk, &path, url, Use::Text);
            }
            InputSource::Job { index, path: output, .. } => {
                placeholders.check(walk, &path, index, Use::Text);
                placeholders.check(walk, &path, output, Use::Path);
            }
            InputSource::Blob(_) => {}
        }
        let path = format!("inputs[{index}].target");
        if !input.target.is_empty() || walk.lines.contains_key(&path) {
            path_rule(walk, placeholders, &path, &input.target, paths::target);
        }
    }
    for (index, output) in file.outputs.iter().enumerate() {
        let path = format!("outputs[{index}].path");
        if walk.lines.contains_key(&path) {
            path_rule(walk, placeholders, &path, &output.path, |path| paths::inside(path, paths::OUT));
        }
        path_rule(walk, placeholders, &format!("outputs[{index}].to"), &output.to, paths::local);
    }
}

fn path_rule<'a>(
    walk: &mut Walk,
    placeholders: &mut Placeholders<'a>,
    path: &str,
    text: &'a str,
    rule: impl FnOnce(&str) -> Result<(), Refusal>,
) {
    if !placeholders.check(walk, path, text, Use::Path) || already_wrong(walk, path) {
        return;
    }
    if let Err((problem, hint)) = rule(&with_plain_names(text)) {
        walk.errors.push(problem_at(walk, path, problem, text).with_hint(hint));
    }
}

/// Whether the field had no readable value, so that its stand-in must not be judged.
fn already_wrong(walk: &Walk, path: &str) -> bool {
    walk.errors.iter().any(|error| error.path == path)
}

/// No input may hide another one.
fn targets(walk: &mut Walk, inputs: &[InputSection]) {
    let mut seen: Vec<(&str, usize)> = inputs
        .iter()
        .enumerate()
        .filter(|(_, input)| !input.target.is_empty())
        .map(|(index, input)| (input.target.as_str(), index))
        .collect();
    // With "/" sorted before everything else, whatever lies in a folder follows it directly.
    seen.sort_by_key(|(target, index)| (target.replace('/', "\0"), *index));
    let mut outer: Option<(&str, usize)> = None;
    for (target, index) in seen {
        match outer {
            Some((folder, first)) if paths::is_within(target, folder) => {
                let (problem, hint) = if target == folder {
                    ("the same target as", "give each input its own")
                } else {
                    ("lies inside the target of", "put it beside")
                };
                walk.error_at(&format!("inputs[{index}].target"), format!("{problem} inputs[{first}]"), hint);
            }
            _ => outer = Some((target, index)),
        }
    }
}

/// Tasks must not write over each other's results.
fn outputs(walk: &mut Walk, file: &JobFile) {
    let tasks = file.task_count();
    for (index, output) in file.outputs.iter().enumerate() {
        let names = template::names(&output.to, &Placeholders::of(file).known).unwrap_or_default();
        let told_apart = names.contains(&INDEX)
            || match &file.array.tasks {
                ArrayTasks::Count(_) => false,
                ArrayTasks::Matrix(matrix) => {
                    matrix.iter().all(|(key, values)| values.len() < 2 || names.contains(&key.as_str()))
                }
            };
        let path = format!("outputs[{index}].to");
        if tasks > 1 && !told_apart && !already_wrong(walk, &path) {
            let problem = format!("all {tasks} tasks would write to one place");
            walk.errors.push(
                problem_at(walk, &path, problem, &output.to).with_hint("add {index}, or every key of the matrix"),
            );
        }
        let before = file.outputs.iter().take(index);
        if before.clone().any(|other| other.to == output.to && other.path == output.path) {
            walk.error_at(&format!("outputs[{index}]"), "the same output twice", "keep one");
        }
    }
}

fn times(walk: &mut Walk, file: &JobFile) {
    let sla = &file.sla;
    if let (Some(start), Some(deadline)) = (sla.start_at, sla.deadline) {
        if deadline <= start {
            walk.error_at("sla.deadline", "the deadline is not after start_at", "move one of the two");
        } else if deadline.saturating_since(start) < file.limits.timeout {
            walk.warn("sla.deadline", "closer to start_at than limits.timeout", "an attempt may be cut short");
        }
    }
    if let Some(checkpoint) = file.checkpoint.as_ref().filter(|checkpoint| checkpoint.every >= file.limits.timeout) {
        let problem = format!("{} is no shorter than limits.timeout ({})", checkpoint.every, file.limits.timeout);
        walk.warn("checkpoint.every", problem, "no checkpoint would ever be taken");
    }
}

fn task(walk: &mut Walk, file: &JobFile) {
    for (path, given) in
        [("sla.p95_latency", file.sla.p95_latency.is_some()), ("sla.uptime", file.sla.uptime.is_some())]
    {
        if given {
            walk.error_at(path, "only a service has this", "leave it out, or write type = \"service\"");
        }
    }
}

fn service(walk: &mut Walk, file: &JobFile, service: &ServiceSection) {
    if walk.lines.contains_key("runtime.wasm") {
        walk.error_at("runtime.wasm", "a wasm module can't listen", "a service runs an image");
    }
    for section in ["array", "checkpoint", "outputs", "retry"] {
        if walk.lines.contains_key(section) {
            walk.error_at(section, "a service has no such section", "leave it out, or write type = \"task\"");
        }
    }
    if matches!(file.sla.verify, Verify::Spot(_) | Verify::Replicate(_)) {
        walk.error_at("sla.verify", "answers of a service are not run again", "none or telemetry");
    }
    let can_grow = service.replicas.hi != Some(service.replicas.lo);
    if can_grow && service.scaling.is_none() {
        walk.error_at("service.replicas", "a range needs scaling", "e.g. scaling = { metric = \"rps\", target = 5 }");
    }
}

/// Moments that must lie ahead.
pub(super) fn against_clock(file: &JobFile, now: Timestamp) -> Vec<Problem> {
    let moments = [("sla.deadline", file.sla.deadline), ("sla.start_at", file.sla.start_at)];
    moments
        .into_iter()
        .filter_map(|(path, moment)| moment.filter(|moment| *moment <= now).map(|moment| (path, moment)))
        .map(|(path, moment)| {
            Problem::new(path, file.line_of(path), format!("in the past, it is {now}"))
                .with_value(Some(format!("\"{moment}\"")))
                .with_hint("choose a later time")
        })
        .collect()
}
