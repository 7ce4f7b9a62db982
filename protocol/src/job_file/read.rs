//! Reading the sections of a job file.

use std::collections::BTreeMap;

use super::paths::{self, Refusal};
use super::problem::Problem;
use super::sections::*;
use super::source::input_source;
use super::walk::{Field, Fields, Walk};
use super::{limits, words};
use crate::gpu::GpuRequest;
use crate::grammar::{Count, GrammarError, Range};
use crate::id::NodeId;
use crate::money::{Credits, Rate};
use crate::spec::{MAX_TASKS, RetryOn};
use crate::terms::{Isolation, Local, Mode, Pay, Tier, Verify};
use crate::units::{Bytes, Millis, Ppm};

/// Applies a rule to a field's text; `None` where it is refused.
fn ruled<'a>(walk: &mut Walk, field: &Field<'a>, rule: impl FnOnce(&str) -> Result<(), Refusal>) -> Option<&'a str> {
    let text = walk.text(field)?;
    match rule(text) {
        Ok(()) => Some(text),
        Err((problem, hint)) => {
            walk.error_hint(field, problem, hint);
            None
        }
    }
}

/// The value of an optional field.
fn optional<'a, T>(
    walk: &mut Walk,
    fields: &mut Fields<'a>,
    name: &'static str,
    read: impl FnOnce(&mut Walk, &Field<'a>) -> Option<T>,
) -> Option<T> {
    let field = fields.take(walk, name)?;
    read(walk, &field)
}

/// A duration above zero and up to `max`.
fn duration(max: Millis) -> impl FnOnce(&mut Walk, &Field<'_>) -> Option<Millis> {
    move |walk, field| {
        let value: Millis = walk.parse(field)?;
        if value.is_zero() {
            walk.error_hint(field, "zero means nothing here", "leave the field out or write a duration above zero");
            return None;
        }
        at_most(walk, field, value, max)
    }
}

/// A duration from zero up to `max`.
fn duration_or_zero(max: Millis) -> impl FnOnce(&mut Walk, &Field<'_>) -> Option<Millis> {
    move |walk, field| {
        let value: Millis = walk.parse(field)?;
        at_most(walk, field, value, max)
    }
}

fn at_most<T: PartialOrd + std::fmt::Display>(walk: &mut Walk, field: &Field<'_>, value: T, max: T) -> Option<T> {
    if value > max {
        walk.error(field, format!("at most {max}"));
        return None;
    }
    Some(value)
}

pub(super) fn labels(walk: &mut Walk, root: &mut Fields<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let Some(field) = root.take(walk, "labels") else { return labels };
    for (name, entry) in walk.entries(&field, limits::LABELS) {
        if let Err((problem, hint)) = words::label_name(name) {
            walk.error_hint(&entry, problem, hint);
            continue;
        }
        let one_line = |text: &str| {
            if text.len() > words::MAX_NAME || text.chars().any(char::is_control) {
                return Err(("not a label".to_owned(), "at most 63 bytes on one line".to_owned()));
            }
            Ok(())
        };
        if let Some(text) = ruled(walk, &entry, one_line) {
            labels.insert(name.to_owned(), text.to_owned());
        }
    }
    labels
}

/// The section and, where it is known, what kind of program it runs. A refused value leaves an empty stand-in.
pub(super) fn runtime(walk: &mut Walk, root: &mut Fields<'_>) -> (RuntimeSection, Option<ProgramKind>) {
    let mut fields = root.section(walk, "runtime");
    let program = program(walk, &mut fields);
    let args = optional(walk, &mut fields, "args", |walk, field| Some(arguments(walk, field))).unwrap_or_default();
    let env = environment(walk, &mut fields);
    let secrets = secrets(walk, &mut fields, &env);
    let network = network(walk, &mut fields);
    fields.finish(walk);
    let bytes = args.iter().map(String::len).chain(env.iter().map(|(name, value)| name.len().saturating_add(value.len())));
    if bytes.fold(0, usize::saturating_add) > limits::ARGS_AND_ENV {
        let problem = format!("args and env are over {} bytes together", limits::ARGS_AND_ENV);
        walk.error_at("runtime.args", problem, "give large data as an input");
    }
    let kind = program.as_ref().map(|program| match program {
        Program::Wasm { .. } => ProgramKind::Wasm,
        Program::Image { .. } => ProgramKind::Image,
    });
    let stand_in = Program::Wasm { path: String::new(), entry: String::new() };
    (RuntimeSection { program: program.unwrap_or(stand_in), args, env, secrets, network }, kind)
}

/// What kind of program a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramKind {
    Wasm,
    Image,
}

fn program(walk: &mut Walk, fields: &mut Fields<'_>) -> Option<Program> {
    let wasm = fields.take(walk, "wasm");
    let entry = fields.take(walk, "entry");
    let image = fields.take(walk, "image");
    let entrypoint = fields.take(walk, "entrypoint");
    match (wasm, image) {
        (Some(wasm), None) => {
            if let Some(entrypoint) = entrypoint {
                walk.error_hint(&entrypoint, "a wasm module has no entrypoint", "use entry, the name of an export");
            }
            let path = ruled(walk, &wasm, |path| {
                paths::source(path)?;
                if path.ends_with(".cwasm") {
                    return Err(("precompiled code is never accepted".to_owned(), "give the .wasm module".to_owned()));
                }
                Ok(())
            });
            let entry = match entry {
                None => Some("_start"),
                Some(field) => ruled(walk, &field, |name| {
                    paths::plain(name)?;
                    if name.len() > limits::ENTRY {
                        return Err(("the name is too long".to_owned(), format!("at most {} bytes", limits::ENTRY)));
                    }
                    Ok(())
                }),
            };
            Some(Program::Wasm {
                path: path.unwrap_or_default().to_owned(),
                entry: entry.unwrap_or_default().to_owned(),
            })
        }
        (None, Some(image)) => {
            if let Some(entry) = entry {
                walk.error_hint(&entry, "an image has no entry", "use entrypoint, a list");
            }
            let reference = ruled(walk, &image, words::image);
            let entrypoint = entrypoint.map(|field| {
                let list = arguments(walk, &field);
                if list.is_empty() {
                    walk.error_hint(&field, "an empty entrypoint runs nothing", "leave it out to keep the image's own");
                }
                list
            });
            Some(Program::Image { reference: reference.unwrap_or_default().to_owned(), entrypoint })
        }
        (Some(_), Some(image)) => {
            walk.error_hint(&image, "a job runs a wasm module or an image, not both", "keep one of the two");
            None
        }
        (None, None) => {
            walk.error_at("runtime", "nothing to run", "add wasm = \"./x.wasm\" or image = \"name:tag\"");
            None
        }
    }
}

fn arguments(walk: &mut Walk, field: &Field<'_>) -> Vec<String> {
    let mut list = Vec::new();
    for (item, text) in walk.texts(field, limits::ARGS) {
        if text.contains('\0') {
            walk.error_hint(&item, "a NUL can't be passed to a program", "remove it");
        } else {
            list.push(text.to_owned());
        }
    }
    list
}

fn environment(walk: &mut Walk, fields: &mut Fields<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let Some(field) = fields.take(walk, "env") else { return env };
    for (name, entry) in walk.entries(&field, limits::ENV) {
        if let Err((problem, hint)) = words::variable(name) {
            walk.error_hint(&entry, problem, hint);
            continue;
        }
        let Some(text) = walk.text(&entry) else { continue };
        if text.contains('\0') {
            walk.error_hint(&entry, "a NUL can't be passed to a program", "remove it");
            continue;
        }
        if words::looks_secret(name) {
            let hint = format!("use secrets = [\"{name}\"] and \"souk secret set {name}\"");
            walk.warn(&entry.path, "looks like a secret, and env is shown to the provider and in records", hint);
        }
        env.insert(name.to_owned(), text.to_owned());
    }
    env
}

fn secrets(walk: &mut Walk, fields: &mut Fields<'_>, env: &BTreeMap<String, String>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let Some(field) = fields.take(walk, "secrets") else { return names };
    for item in walk.list(&field, limits::SECRETS) {
        let Some(name) = ruled(walk, &item, words::variable) else { continue };
        if env.contains_key(name) {
            walk.error_hint(&item, "the same name is in env", "keep one of the two");
        } else if names.iter().any(|other| other == name) {
            walk.error_hint(&item, "named twice", "keep one");
        } else {
            names.push(name.to_owned());
        }
    }
    names
}

fn network(walk: &mut Walk, fields: &mut Fields<'_>) -> NetworkAccess {
    let field = fields.take(walk, "network");
    let hosts = fields.take(walk, "hosts");
    let word = match &field {
        None => "none",
        Some(field) => match walk.text(field) {
            Some(word @ ("none" | "allowlist" | "open")) => word,
            Some("host") => {
                walk.error_hint(field, "never allowed: a job gets no part of its provider's machine", "none, allowlist or open");
                "none"
            }
            Some(_) => {
                walk.error_hint(field, "unknown word", "one of none, allowlist, open");
                "none"
            }
            None => "none",
        },
    };
    match (word, hosts) {
        ("allowlist", Some(hosts)) => {
            let mut list = Vec::new();
            let items = walk.list(&hosts, limits::HOSTS);
            if items.is_empty() {
                walk.error_hint(&hosts, "an allowlist needs hosts", "e.g. hosts = [\"pypi.org\"]");
            }
            for item in items {
                list.extend(ruled(walk, &item, words::host).map(str::to_ascii_lowercase));
            }
            NetworkAccess::Allowlist(list)
        }
        ("allowlist", None) => {
            walk.error_at("runtime.network", "an allowlist needs hosts", "e.g. hosts = [\"pypi.org\"]");
            NetworkAccess::None
        }
        (word, hosts) => {
            if let Some(hosts) = hosts {
                walk.error_hint(&hosts, "hosts belong to an allowlist", "write network = \"allowlist\"");
            }
            if word == "open" { NetworkAccess::Open } else { NetworkAccess::None }
        }
    }
}

pub(super) fn resources(walk: &mut Walk, root: &mut Fields<'_>, program: Option<ProgramKind>) -> ResourcesSection {
    let mut fields = root.section(walk, "resources");
    let gpu = optional(walk, &mut fields, "gpu", |walk, field| Some(gpus(walk, field))).unwrap_or_default();
    let cpu = optional(walk, &mut fields, "cpu", |walk, field| {
        walk.parse_with(field, |text| Range::parse_from(text, limits::DEFAULT_CPU))
    });
    let memory = optional(walk, &mut fields, "memory", |walk, field| size(walk, field, limits::DEFAULT_MEMORY));
    let disk = optional(walk, &mut fields, "disk", |walk, field| size(walk, field, limits::DEFAULT_DISK));
    let region = optional(walk, &mut fields, "region", |walk, field| Some(regions(walk, field))).unwrap_or_default();
    let isolation = isolation(walk, &mut fields, program, !gpu.is_empty());
    let data = optional(walk, &mut fields, "data", |walk, field| walk.choice(field, DataPlacement::ALL));
    if program == Some(ProgramKind::Wasm) && !gpu.is_empty() {
        walk.error_at("resources.gpu", "a wasm module can't use a GPU", "use an image, or leave gpu out");
    }
    fields.finish(walk);
    ResourcesSection {
        gpu,
        cpu: cpu.unwrap_or(Range::at_least(limits::DEFAULT_CPU)),
        memory: memory.unwrap_or(Range::at_least(limits::DEFAULT_MEMORY)),
        disk: disk.unwrap_or(Range::at_least(limits::DEFAULT_DISK)),
        region,
        isolation,
        data: data.unwrap_or(DataPlacement::Any),
    }
}

fn size(walk: &mut Walk, field: &Field<'_>, lowest: Bytes) -> Option<Range<Bytes>> {
    walk.parse_with(field, |text| Range::parse_from(text, lowest))
}

fn gpus(walk: &mut Walk, field: &Field<'_>) -> Vec<GpuRequest> {
    if !matches!(field.tree.node, super::tree::Node::List(_)) {
        return walk.parse(field).into_iter().collect();
    }
    let items = walk.list(field, limits::GPU_ALTERNATIVES);
    if items.is_empty() {
        walk.error_hint(field, "an empty list asks for nothing", "leave it out");
    }
    items.iter().filter_map(|item| walk.parse(item)).collect()
}

fn regions(walk: &mut Walk, field: &Field<'_>) -> Vec<String> {
    let items = match field.tree.node {
        super::tree::Node::List(_) => walk.list(field, limits::REGIONS),
        _ => vec![field.clone()],
    };
    let mut regions: Vec<String> = Vec::new();
    for item in items {
        let Some(name) = ruled(walk, &item, words::region) else { continue };
        let name = name.to_ascii_lowercase();
        if regions.contains(&name) {
            walk.error_hint(&item, "named twice", "keep one");
        } else {
            regions.push(name);
        }
    }
    regions
}

fn isolation(walk: &mut Walk, fields: &mut Fields<'_>, program: Option<ProgramKind>, gpu: bool) -> Isolation {
    let is_wasm = program == Some(ProgramKind::Wasm);
    let default = match (is_wasm, gpu) {
        (true, _) => Isolation::W0,
        (false, false) => Isolation::C1,
        (false, true) => Isolation::G1,
    };
    let Some(field) = fields.take(walk, "isolation") else { return default };
    let Some(class) = walk.choice(&field, Isolation::ALL) else { return default };
    if is_wasm && class != Isolation::W0 {
        walk.error_hint(&field, "a wasm module runs in class W0", "leave isolation out");
    } else if program == Some(ProgramKind::Image) && class == Isolation::W0 {
        walk.error_hint(&field, "class W0 is for wasm modules", "C1, C2 or V1, with a GPU also G1 or G2");
    } else if matches!(class, Isolation::G1 | Isolation::G2) && !gpu {
        walk.error_hint(&field, format!("class {class} is for GPUs"), "add gpu, or use C1, C2 or V1");
    }
    class
}

pub(super) fn market(walk: &mut Walk, root: &mut Fields<'_>) -> MarketSection {
    let mut fields = root.section(walk, "market");
    let tier = optional(walk, &mut fields, "tier", |walk, field| walk.choice(field, Tier::ALL)).unwrap_or(Tier::Bronze);
    let max_price = optional(walk, &mut fields, "max_price", |walk, field| {
        let rate: Rate = walk.parse(field)?;
        nonzero(walk, field, rate, rate.is_zero())
    });
    let budget = optional(walk, &mut fields, "budget", |walk, field| {
        let amount: Credits = walk.parse(field)?;
        nonzero(walk, field, amount, amount.is_zero())
    });
    let pay = optional(walk, &mut fields, "pay", |walk, field| walk.choice(field, Pay::ALL));
    let preemptible = optional(walk, &mut fields, "preemptible", |walk, field| {
        let preemptible = walk.boolean(field)?;
        if preemptible && tier == Tier::Gold {
            walk.error_hint(field, "gold is never preempted", "leave preemptible out, or use silver or bronze");
        }
        Some(preemptible)
    });
    let notice = optional(walk, &mut fields, "notice", duration_or_zero(limits::MAX_NOTICE));
    let mode = optional(walk, &mut fields, "mode", |walk, field| walk.choice(field, Mode::ALL));
    let local = optional(walk, &mut fields, "local", |walk, field| walk.choice(field, Local::ALL));
    let allow = optional(walk, &mut fields, "allow", |walk, field| Some(providers(walk, field, &[]))).unwrap_or_default();
    let deny = optional(walk, &mut fields, "deny", |walk, field| Some(providers(walk, field, &allow))).unwrap_or_default();
    fields.finish(walk);
    MarketSection {
        tier,
        max_price,
        budget,
        pay: pay.unwrap_or(Pay::Delivered),
        preemptible: preemptible.unwrap_or(tier == Tier::Bronze),
        notice: notice.unwrap_or(limits::DEFAULT_NOTICE),
        mode: mode.unwrap_or(Mode::Auto),
        local: local.unwrap_or(Local::First),
        allow,
        deny,
    }
}

fn nonzero<T>(walk: &mut Walk, field: &Field<'_>, value: T, is_zero: bool) -> Option<T> {
    if is_zero {
        walk.error_hint(field, "nobody works for nothing", "leave the field out for no limit");
        return None;
    }
    Some(value)
}

fn providers(walk: &mut Walk, field: &Field<'_>, elsewhere: &[NodeId]) -> Vec<NodeId> {
    let mut list = Vec::new();
    for item in walk.list(field, limits::PROVIDERS) {
        let Some(id) = node_id(walk, &item) else { continue };
        if list.contains(&id) {
            walk.error_hint(&item, "named twice", "keep one");
        } else if elsewhere.contains(&id) {
            walk.error_hint(&item, "both allowed and denied", "keep one of the two");
        } else {
            list.push(id);
        }
    }
    list
}

fn node_id(walk: &mut Walk, field: &Field<'_>) -> Option<NodeId> {
    let text = walk.text(field)?;
    let id = text.parse().ok();
    if id.is_none() {
        walk.error_hint(field, "not the id of a node", "52 characters, as `souk peers -o name` shows them");
    }
    id
}

pub(super) fn sla(walk: &mut Walk, root: &mut Fields<'_>) -> SlaSection {
    let mut fields = root.section(walk, "sla");
    let moment = |walk: &mut Walk, field: &Field<'_>| walk.parse(field);
    let start_within = optional(walk, &mut fields, "start_within", duration(limits::MAX_WAIT));
    let start_at = optional(walk, &mut fields, "start_at", moment);
    let deadline = optional(walk, &mut fields, "deadline", moment);
    let reliability = optional(walk, &mut fields, "reliability", share);
    let latency = optional(walk, &mut fields, "latency", duration(limits::MAX_LATENCY));
    let near = optional(walk, &mut fields, "near", node_id);
    let loss = optional(walk, &mut fields, "loss", |walk, field| walk.parse(field));
    let offline = optional(walk, &mut fields, "offline", duration_or_zero(limits::MAX_AWAY));
    let retention = optional(walk, &mut fields, "retention", duration(limits::MAX_AWAY));
    let verify = optional(walk, &mut fields, "verify", |walk, field| walk.parse_with(field, verification));
    let p95_latency = optional(walk, &mut fields, "p95_latency", duration(limits::MAX_LATENCY));
    let uptime = optional(walk, &mut fields, "uptime", share);
    fields.finish(walk);
    SlaSection {
        start_within,
        start_at,
        deadline,
        reliability,
        latency,
        near,
        loss,
        offline: offline.unwrap_or(Millis::ZERO),
        retention: retention.unwrap_or(limits::DEFAULT_RETENTION),
        verify: verify.unwrap_or(Verify::Telemetry),
        p95_latency,
        uptime,
    }
}

fn share(walk: &mut Walk, field: &Field<'_>) -> Option<Ppm> {
    let share: Ppm = walk.parse(field)?;
    if share == Ppm::ZERO {
        walk.error_hint(field, "zero means nothing here", "leave the field out");
        return None;
    }
    Some(share)
}

/// `none`, `telemetry`, `spot:SHARE`, `replicate:N`.
fn verification(text: &str) -> Result<Verify, GrammarError> {
    let unknown = |problem: &str| {
        GrammarError::new(text, 0, problem).with_hint("one of none, telemetry, spot:0.1, replicate:2")
    };
    match text.split_once(':') {
        None if text == "none" => Ok(Verify::None),
        None if text == "telemetry" => Ok(Verify::Telemetry),
        Some(("spot", share)) => {
            let share: Ppm = share.parse().map_err(|error: GrammarError| error.within(text, 5))?;
            if share == Ppm::ZERO { Err(unknown("a share of zero checks nothing")) } else { Ok(Verify::Spot(share)) }
        }
        Some(("replicate", number)) => {
            let Count(number) = number.parse().map_err(|error: GrammarError| error.within(text, 10))?;
            let number = u16::try_from(number).ok().filter(|number| (2..=limits::REPLICAS).contains(number));
            number.map(Verify::Replicate).ok_or_else(|| unknown("replicas go from 2 to 16"))
        }
        _ => Err(unknown("unknown word")),
    }
}

pub(super) fn attempt_limits(walk: &mut Walk, root: &mut Fields<'_>) -> LimitsSection {
    let mut fields = root.section(walk, "limits");
    let timeout = optional(walk, &mut fields, "timeout", duration(limits::MAX_TIMEOUT));
    let stop_grace = optional(walk, &mut fields, "stop_grace", duration_or_zero(limits::MAX_STOP_GRACE));
    let stdout = optional(walk, &mut fields, "stdout", |walk, field| {
        let size: Bytes = walk.parse(field)?;
        if size.is_zero() {
            walk.error_hint(field, "zero means nothing here", "leave the field out for 64MB");
            return None;
        }
        at_most(walk, field, size, limits::MAX_STDOUT)
    });
    fields.finish(walk);
    LimitsSection {
        timeout: timeout.unwrap_or(limits::DEFAULT_TIMEOUT),
        stop_grace: stop_grace.unwrap_or(limits::DEFAULT_STOP_GRACE),
        stdout: stdout.unwrap_or(limits::DEFAULT_STDOUT),
    }
}

pub(super) fn retry(walk: &mut Walk, root: &mut Fields<'_>) -> RetrySection {
    let mut fields = root.section(walk, "retry");
    let attempts = optional(walk, &mut fields, "attempts", |walk, field| walk.whole(field, 1..=limits::ATTEMPTS));
    let on = optional(walk, &mut fields, "on", |walk, field| {
        let mut ends = Vec::new();
        for item in walk.list(field, RetryOn::ALL.len()) {
            let Some(end) = walk.choice(&item, RetryOn::ALL) else { continue };
            if ends.contains(&end) {
                walk.error_hint(&item, "named twice", "keep one");
            } else {
                ends.push(end);
            }
        }
        Some(ends)
    });
    fields.finish(walk);
    RetrySection {
        attempts: attempts.unwrap_or(limits::DEFAULT_ATTEMPTS),
        on: on.unwrap_or_else(|| limits::DEFAULT_RETRY_ON.to_vec()),
    }
}

pub(super) fn array(walk: &mut Walk, root: &mut Fields<'_>) -> ArraySection {
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
        } else if key == super::template::INDEX || key == super::template::JOB {
            walk.error_hint(&entry, "this name has its own meaning in placeholders", "choose another");
        }
        let mut values: Vec<String> = Vec::new();
        let items = walk.texts(&entry, usize::try_from(MAX_TASKS).unwrap_or(usize::MAX));
        if items.is_empty() && walk.errors.len() == errors_before {
            walk.error_hint(&entry, "a key without values leaves no task", "give a list of texts");
        }
        for (item, text) in items {
            if text.contains('\0') || text.len() > limits::MATRIX_VALUE {
                walk.error(&item, format!("a value has at most {} bytes and no NUL", limits::MATRIX_VALUE));
            } else if values.iter().any(|other| other == text) {
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

pub(super) fn inputs(walk: &mut Walk, root: &mut Fields<'_>) -> Vec<InputSection> {
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
        if let (Some(source), Some(target)) = (source, target) {
            inputs.push(InputSection { source, target, sealed });
        } else {
            // Keeps later entries at their place, so that their paths in messages are right.
            inputs.push(InputSection { source: InputSource::Path(String::new()), target: String::new(), sealed });
        }
    }
    inputs
}

fn required<'a>(walk: &mut Walk, fields: &mut Fields<'a>, name: &'static str) -> Option<Field<'a>> {
    let field = fields.take(walk, name);
    if field.is_none() {
        walk.error_at(&fields.path(name), "missing", format!("add {name} = \"..\""));
    }
    field
}

pub(super) fn outputs(walk: &mut Walk, root: &mut Fields<'_>) -> Vec<OutputSection> {
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

pub(super) fn checkpoint(walk: &mut Walk, root: &mut Fields<'_>) -> Option<CheckpointSection> {
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

/// `type` and, for a service, its section.
pub(super) fn kind(walk: &mut Walk, root: &mut Fields<'_>) -> JobKind {
    let word = optional(walk, root, "type", |walk, field| walk.choice(field, &["task", "service"])).unwrap_or("task");
    let section = root.take(walk, "service");
    match (word, section) {
        ("service", Some(field)) => {
            let stand_in =
                ServiceSection { port: 0, replicas: Range::exactly(Count(1)), scaling: None, readiness: None };
            JobKind::Service(service(walk, &field).unwrap_or(stand_in))
        }
        ("service", None) => {
            walk.error_at("service", "missing", "a service needs [service] with its port");
            JobKind::Task
        }
        (_, Some(field)) => {
            walk.error_hint(&field, "only a service has this section", "write type = \"service\"");
            JobKind::Task
        }
        (_, None) => JobKind::Task,
    }
}

fn service(walk: &mut Walk, field: &Field<'_>) -> Option<ServiceSection> {
    let mut fields = walk.fields(field)?;
    let port = required(walk, &mut fields, "port").and_then(|field| walk.whole(&field, 1..=65_535));
    let replicas: Option<Range<Count>> = optional(walk, &mut fields, "replicas", |walk, field| {
        let range: Range<Count> = walk.parse(field)?;
        let most = range.hi.unwrap_or(Count(u32::MAX));
        at_most(walk, field, most, Count(limits::SERVICE_REPLICAS)).map(|_| range)
    });
    let scaling = optional(walk, &mut fields, "scaling", |walk, field| {
        let mut fields = walk.fields(field)?;
        let metric = required(walk, &mut fields, "metric").and_then(|field| walk.choice(&field, ScalingMetric::ALL));
        let target = required(walk, &mut fields, "target").and_then(|field| walk.whole(&field, 1..=1_000_000));
        fields.finish(walk);
        Some(Scaling { metric: metric?, target: target? })
    });
    let readiness = optional(walk, &mut fields, "readiness", |walk, field| {
        let mut fields = walk.fields(field)?;
        let path = required(walk, &mut fields, "path").and_then(|field| {
            let text = ruled(walk, &field, paths::local)?;
            if !text.starts_with('/') {
                walk.error_hint(&field, "a path of a request starts with \"/\"", "e.g. \"/health\"");
                return None;
            }
            Some(text.to_owned())
        });
        let initial_delay = optional(walk, &mut fields, "initial_delay", duration_or_zero(limits::MAX_AWAY));
        let timeout = optional(walk, &mut fields, "timeout", duration(limits::MAX_LATENCY));
        fields.finish(walk);
        Some(Readiness {
            path: path?,
            initial_delay: initial_delay.unwrap_or(Millis::ZERO),
            timeout: timeout.unwrap_or(limits::DEFAULT_PROBE),
        })
    });
    fields.finish(walk);
    Some(ServiceSection {
        port: u16::try_from(port?).ok()?,
        replicas: replicas.unwrap_or(Range::exactly(Count(1))),
        scaling,
        readiness,
    })
}

/// Version, name: what every file must have.
pub(super) fn version(walk: &mut Walk, root: &mut Fields<'_>) {
    let Some(field) = root.take(walk, "version") else {
        walk.errors.push(Problem::new("version", Some(1), "missing").with_hint("add version = 1"));
        return;
    };
    if let super::tree::Node::Integer(digits) = &field.tree.node {
        if digits != "1" {
            walk.error_hint(&field, "this souk reads version 1", "write version = 1");
        }
    } else {
        walk.whole(&field, 1..=1);
    }
}

pub(super) fn name(walk: &mut Walk, root: &mut Fields<'_>) -> Option<String> {
    let Some(field) = root.take(walk, "name") else {
        walk.errors.push(Problem::new("name", Some(1), "missing").with_hint("add name = \"my-job\""));
        return None;
    };
    ruled(walk, &field, words::job_name).map(str::to_owned)
}
