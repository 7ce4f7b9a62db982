//! Walking a tree field by field: nothing is skipped, and one error does not hide the next.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

use super::problem::{MAX_SHOWN, Problem, Warning};
use super::tree::{Key, Node, Tree};
use crate::grammar::{GrammarError, nearest, shown};

/// Fields that other systems have and this one refuses on purpose.
const NEVER: &[&str] = &[
    "privileged",
    "host_network",
    "hostNetwork",
    "pid",
    "host_pid",
    "hostPID",
    "ipc",
    "capabilities",
    "cap_add",
    "device",
    "devices",
    "volumes",
    "mounts",
    "security_opt",
    "docker_socket",
];

/// What the walk has found so far.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) errors: Vec<Problem>,
    pub(super) warnings: Vec<Warning>,
    /// The line of each field that the file has.
    pub(super) lines: BTreeMap<String, u32>,
}

/// One field of a table, or one item of a list.
#[derive(Debug, Clone)]
pub(super) struct Field<'a> {
    pub(super) path: String,
    pub(super) line: u32,
    pub(super) tree: &'a Tree,
}

/// The fields of a table, those that were asked for and those that were not.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    path: String,
    /// Where the table starts, 0 where it is not in the file.
    line: u32,
    entries: &'a [(Key, Tree)],
    known: Vec<&'static str>,
}

impl Walk {
    /// An error without advice.
    pub(super) fn error(&mut self, field: &Field<'_>, problem: impl Into<String>) {
        self.errors.push(Problem::new(&field.path, Some(field.line), problem).with_value(field.tree.shown()));
    }

    /// An error with what to write instead.
    pub(super) fn error_hint(&mut self, field: &Field<'_>, problem: impl Into<String>, hint: impl Into<String>) {
        let problem = Problem::new(&field.path, Some(field.line), problem).with_value(field.tree.shown());
        self.errors.push(problem.with_hint(hint));
    }

    /// An error about a field by its path, or about a field that is missing.
    pub(super) fn error_at(&mut self, path: &str, problem: impl Into<String>, hint: impl Into<String>) {
        let line = self.line_of(path);
        self.errors.push(Problem::new(path, line, problem).with_hint(hint));
    }

    pub(super) fn warn(&mut self, path: &str, problem: impl Into<String>, hint: impl Into<String>) {
        let line = self.line_of(path);
        self.warnings.push(Problem::new(path, line, problem).with_hint(hint));
    }

    /// A field that `table` must have and has not.
    pub(super) fn missing(&mut self, table: &Fields<'_>, name: &str, hint: impl Into<String>) {
        let problem = Problem::new(&table.path(name), Some(table.line), "missing");
        self.errors.push(problem.with_hint(hint));
    }

    /// The line of a field, or of the nearest table around it that the file has.
    fn line_of(&self, path: &str) -> Option<u32> {
        let mut path = path;
        loop {
            if let Some(line) = self.lines.get(path) {
                return Some(*line);
            }
            path = path.rfind(['.', '[']).and_then(|at| path.get(..at))?;
        }
    }

    /// The text of a field; a number or a date is no text.
    pub(super) fn text<'a>(&mut self, field: &Field<'a>) -> Option<&'a str> {
        match &field.tree.node {
            Node::Text(text) => Some(text),
            Node::Integer(digits) | Node::Float(digits) | Node::Date(digits) => {
                self.error_hint(field, "text is expected", format!("write {}", shown(digits)));
                None
            }
            _ => {
                self.wrong_kind(field, "text");
                None
            }
        }
    }

    /// A value of the grammar. Numbers and dates are read by their digits, so that a missing unit is what is reported.
    pub(super) fn parse<T: FromStr<Err = GrammarError>>(&mut self, field: &Field<'_>) -> Option<T> {
        self.parse_with(field, str::parse)
    }

    pub(super) fn parse_with<T>(
        &mut self,
        field: &Field<'_>,
        parse: impl FnOnce(&str) -> Result<T, GrammarError>,
    ) -> Option<T> {
        let (Node::Text(text) | Node::Integer(text) | Node::Float(text) | Node::Date(text)) = &field.tree.node else {
            self.wrong_kind(field, "text");
            return None;
        };
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) => {
                self.errors.push(Problem::from_grammar(&field.path, Some(field.line), field.tree.shown(), &error));
                None
            }
        }
    }

    /// One of a closed list of words.
    pub(super) fn choice<T: Copy + Display>(&mut self, field: &Field<'_>, all: &[T]) -> Option<T> {
        let text = self.text(field)?;
        let found = all.iter().find(|word| word.to_string() == text);
        if found.is_none() {
            let words: Vec<String> = all.iter().map(ToString::to_string).collect();
            let hint = match nearest(text, words.iter().map(String::as_str)) {
                Some(word) => format!("did you mean {word:?}?"),
                None => format!("one of {}", words.join(", ")),
            };
            self.error_hint(field, "unknown word", hint);
        }
        found.copied()
    }

    /// A whole number, without quotes.
    pub(super) fn whole(&mut self, field: &Field<'_>, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        match &field.tree.node {
            Node::Integer(digits) => {
                let number = digits.parse().ok().filter(|number| range.contains(number));
                if number.is_none() {
                    self.error(field, format!("a whole number from {} to {} is expected", range.start(), range.end()));
                }
                number
            }
            Node::Text(text) if text.parse::<u32>().is_ok() => {
                self.error_hint(field, "a whole number is expected, not text", format!("write {text} without quotes"));
                None
            }
            _ => {
                self.wrong_kind(field, "a whole number");
                None
            }
        }
    }

    pub(super) fn boolean(&mut self, field: &Field<'_>) -> Option<bool> {
        match &field.tree.node {
            Node::Boolean(value) => Some(*value),
            Node::Text(text) if text == "true" || text == "false" => {
                self.error_hint(field, "true or false is expected, not text", format!("write {text} without quotes"));
                None
            }
            _ => {
                self.wrong_kind(field, "true or false");
                None
            }
        }
    }

    /// The items of a list, at most `max`.
    pub(super) fn list<'a>(&mut self, field: &Field<'a>, max: usize) -> Vec<Field<'a>> {
        let Node::List(items) = &field.tree.node else {
            self.wrong_kind(field, "a list");
            return Vec::new();
        };
        if items.len() > max {
            self.error(field, format!("{} items, at most {max} are allowed", items.len()));
            return Vec::new();
        }
        let item = |(index, tree): (usize, &'a Tree)| Field {
            path: format!("{}[{index}]", field.path),
            line: tree.line,
            tree,
        };
        let items: Vec<Field<'a>> = items.iter().enumerate().map(item).collect();
        for item in &items {
            self.lines.insert(item.path.clone(), item.line);
        }
        items
    }

    /// A list of texts.
    pub(super) fn texts<'a>(&mut self, field: &Field<'a>, max: usize) -> Vec<(Field<'a>, &'a str)> {
        let items = self.list(field, max);
        items.into_iter().filter_map(|item| self.text(&item).map(|text| (item, text))).collect()
    }

    /// A table whose keys the file chooses.
    pub(super) fn entries<'a>(&mut self, field: &Field<'a>, max: usize) -> Vec<(&'a str, Field<'a>)> {
        let Node::Table(entries) = &field.tree.node else {
            self.wrong_kind(field, "a table");
            return Vec::new();
        };
        if entries.len() > max {
            self.error(field, format!("{} entries, at most {max} are allowed", entries.len()));
            return Vec::new();
        }
        let entry = |(key, tree): &'a (Key, Tree)| {
            (key.name.as_str(), Field { path: join(&field.path, &key.name), line: key.line, tree })
        };
        let entries: Vec<_> = entries.iter().map(entry).collect();
        for (_, entry) in &entries {
            self.lines.insert(entry.path.clone(), entry.line);
        }
        entries
    }

    /// A table with fixed fields; end it with [`Fields::finish`].
    pub(super) fn fields<'a>(&mut self, field: &Field<'a>) -> Option<Fields<'a>> {
        match &field.tree.node {
            Node::Table(entries) => {
                Some(Fields { path: field.path.clone(), line: field.line, entries, known: Vec::new() })
            }
            _ => {
                self.wrong_kind(field, "a table");
                None
            }
        }
    }

    fn wrong_kind(&mut self, field: &Field<'_>, expected: &str) {
        let problem = format!("{expected} is expected, not {}", field.tree.kind());
        self.error(field, problem);
    }
}

impl<'a> Fields<'a> {
    /// The path of a field of this table, whether the file has it or not.
    pub(super) fn path(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The field `name`, if the file has it.
    pub(super) fn take(&mut self, walk: &mut Walk, name: &'static str) -> Option<Field<'a>> {
        self.known.push(name);
        let (key, tree) = self.entries.iter().find(|(key, _)| key.name == name)?;
        // A value from outside of the file has no line, even where the file has its key.
        let line = if tree.line == 0 { 0 } else { key.line };
        let field = Field { path: self.path(name), line, tree };
        walk.lines.insert(field.path.clone(), field.line);
        Some(field)
    }

    /// The table `name`; where the file has none, an empty one.
    pub(super) fn section(&mut self, walk: &mut Walk, name: &'static str) -> Fields<'a> {
        let empty = Fields { path: self.path(name), line: 0, entries: &[], known: Vec::new() };
        self.take(walk, name).and_then(|field| walk.fields(&field)).unwrap_or(empty)
    }

    /// Reports every field that nobody asked for.
    pub(super) fn finish(self, walk: &mut Walk) {
        for (key, tree) in self.entries.iter().filter(|(key, _)| !self.known.contains(&key.name.as_str())) {
            let field = Field { path: join(&self.path, &key.name), line: key.line, tree };
            if NEVER.contains(&key.name.as_str()) {
                walk.error_hint(&field, "never allowed: a job gets no part of its provider's machine", "leave it out");
                continue;
            }
            if walk.errors.len() > MAX_SHOWN {
                // Only counted from here on, so that a megabyte of nonsense costs no more than its reading.
                walk.error(&field, "unknown field");
                continue;
            }
            let hint = match nearest(&key.name, self.known.iter().copied()) {
                Some(name) => format!("did you mean {name:?}?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            walk.error_hint(&field, "unknown field", hint);
        }
    }
}

/// A path with one more name; names that are no plain words are quoted.
fn join(path: &str, name: &str) -> String {
    let plain =
        !name.is_empty() && name.len() <= 64 && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    let name = if plain { name.to_owned() } else { shown(name) };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}
