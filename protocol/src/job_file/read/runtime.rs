//! `[runtime]`.

use std::collections::BTreeMap;

use super::{optional, ruled};
use crate::job_file::sections::{NetworkAccess, Program, RuntimeSection};
use crate::job_file::walk::{Field, Fields, Walk};
use crate::job_file::{limits, paths, words};

/// The section and, where it is known, what kind of program it runs. A refused value leaves an empty stand-in.
pub(in crate::job_file) fn runtime(walk: &mut Walk, root: &mut Fields<'_>) -> (RuntimeSection, Option<ProgramKind>) {
    let mut fields = root.section(walk, "runtime");
    let program = program(walk, &mut fields);
    let args = optional(walk, &mut fields, "args", |walk, field| Some(arguments(walk, field))).unwrap_or_default();
    let env = environment(walk, &mut fields);
    let secrets = secrets(walk, &mut fields, &env);
    let network = network(walk, &mut fields);
    fields.finish(walk);
    let bytes =
        args.iter().map(String::len).chain(env.iter().map(|(name, value)| name.len().saturating_add(value.len())));
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
pub(in crate::job_file) enum ProgramKind {
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
                walk.error_hint(
                    field,
                    "never allowed: a job gets no part of its provider's machine",
                    "none, allowlist or open",
                );
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
