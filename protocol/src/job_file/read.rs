//! Reading the sections of a job file: what they share, and the fields outside of any section.

mod resources;
mod runtime;
mod service;
mod tasks;
mod terms;

use std::collections::BTreeMap;
use std::fmt::Display;

use super::paths::Refusal;
use super::tree::Node;
use super::walk::{Field, Fields, Walk};
use super::{limits, words};
use crate::id::NodeId;
use crate::units::{Millis, Ppm};

pub(super) use resources::resources;
pub(super) use runtime::runtime;
pub(super) use service::kind;
pub(super) use tasks::{array, checkpoint, inputs, outputs};
pub(super) use terms::{attempt_limits, market, retry, sla};

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

fn required<'a>(walk: &mut Walk, fields: &mut Fields<'a>, name: &'static str) -> Option<Field<'a>> {
    let field = fields.take(walk, name);
    if field.is_none() {
        walk.missing(fields, name, format!("add {name} = \"..\""));
    }
    field
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

fn at_most<T: PartialOrd + Display>(walk: &mut Walk, field: &Field<'_>, value: T, max: T) -> Option<T> {
    if value > max {
        walk.error(field, format!("at most {max}"));
        return None;
    }
    Some(value)
}

fn nonzero<T>(walk: &mut Walk, field: &Field<'_>, value: T, is_zero: bool) -> Option<T> {
    if is_zero {
        walk.error_hint(field, "nobody works for nothing", "leave the field out for no limit");
        return None;
    }
    Some(value)
}

fn share(walk: &mut Walk, field: &Field<'_>) -> Option<Ppm> {
    let share: Ppm = walk.parse(field)?;
    if share == Ppm::ZERO {
        walk.error_hint(field, "zero means nothing here", "leave the field out");
        return None;
    }
    Some(share)
}

fn node_id(walk: &mut Walk, field: &Field<'_>) -> Option<NodeId> {
    let text = walk.text(field)?;
    let id = text.parse().ok();
    if id.is_none() {
        walk.error_hint(field, "not the id of a node", "52 characters, as `souk peers -o name` shows them");
    }
    id
}

/// Version, name: what every file must have.
pub(super) fn version(walk: &mut Walk, root: &mut Fields<'_>) {
    let Some(field) = root.take(walk, "version") else {
        walk.missing(root, "version", "add version = 1");
        return;
    };
    if let Node::Integer(digits) = &field.tree.node {
        if digits != "1" {
            walk.error_hint(&field, "this souk reads version 1", "write version = 1");
        }
    } else {
        walk.whole(&field, 1..=1);
    }
}

pub(super) fn name(walk: &mut Walk, root: &mut Fields<'_>) -> Option<String> {
    let Some(field) = root.take(walk, "name") else {
        walk.missing(root, "name", "add name = \"my-job\"");
        return None;
    };
    ruled(walk, &field, words::job_name).map(str::to_owned)
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
