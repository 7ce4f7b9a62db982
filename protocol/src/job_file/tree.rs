//! A job file as a tree of values with line numbers, whatever language it was written in.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::Problem;

/// How the parser's message of a repeated key starts.
const REPEATED: &str = "duplicate key";

/// A value and the line it starts on; line 0 for what came from outside of the file.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    pub(super) line: u32,
    pub(super) node: Node,
}

/// A key and its line.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) line: u32,
    pub(super) name: String,
}

/// Numbers and dates keep their digits: nothing passes through a float.
#[derive(Debug, Clone)]
pub(super) enum Node {
    Text(String),
    Integer(String),
    Float(String),
    Boolean(bool),
    Date(String),
    List(Vec<Tree>),
    Table(Vec<(Key, Tree)>),
}

impl Tree {
    /// What the value is, in the words of a message.
    pub(super) fn kind(&self) -> &'static str {
        match self.node {
            Node::Text(_) => "text",
            Node::Integer(_) => "a whole number",
            Node::Float(_) => "a number",
            Node::Boolean(_) => "true or false",
            Node::Date(_) => "a date",
            Node::List(_) => "a list",
            Node::Table(_) => "a table",
        }
    }

    /// The value as it was written, for messages; `None` for lists and tables.
    pub(super) fn shown(&self) -> Option<String> {
        match &self.node {
            Node::Text(text) => Some(crate::grammar::shown(text)),
            Node::Integer(text) | Node::Float(text) | Node::Date(text) => Some(text.chars().take(64).collect()),
            Node::Boolean(value) => Some(value.to_string()),
            Node::List(_) | Node::Table(_) => None,
        }
    }
}

/// Reads TOML. All errors of syntax are collected; there is a tree where only keys were repeated.
pub(super) fn from_toml(text: &str) -> (Option<Tree>, Vec<Problem>) {
    let lines = Lines::of(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let only_repeated = errors.iter().all(|error| error.message().starts_with(REPEATED));
    let problems: Vec<Problem> = errors
        .iter()
        .map(|error| {
            let line = error.span().map(|span| lines.at(span.start));
            let message = error.message().trim().replace('\n', ", ");
            let found = error.span().and_then(|span| text.get(span)).filter(|found| !found.trim().is_empty());
            let value = found.map(crate::grammar::shown);
            if message.starts_with(REPEATED) {
                Problem { value, ..Problem::new("", line, "this key is given twice").with_hint("keep one of the two") }
            } else {
                Problem { value, ..Problem::new("", line, format!("not valid TOML: {message}")) }
            }
        })
        .collect();
    (only_repeated.then(|| Tree { line: 1, node: lines.table(table.get_ref()) }), problems)
}

/// Where the lines of a text start.
struct Lines {
    starts: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Self {
        let after_newlines = text.match_indices('\n').map(|(at, _)| at.saturating_add(1));
        Self { starts: std::iter::once(0).chain(after_newlines).collect() }
    }

    /// The line of a byte, from 1.
    fn at(&self, offset: usize) -> u32 {
        let line = self.starts.partition_point(|start| *start <= offset);
        u32::try_from(line).unwrap_or(u32::MAX)
    }

    fn table(&self, table: &DeTable<'_>) -> Node {
        let entries = table.iter().map(|(key, value)| {
            let key = Key { line: self.at(key.span().start), name: key.get_ref().to_string() };
            (key, self.value(value))
        });
        Node::Table(entries.collect())
    }

    fn value(&self, value: &Spanned<DeValue<'_>>) -> Tree {
        let node = match value.get_ref() {
            DeValue::String(text) => Node::Text(text.to_string()),
            DeValue::Integer(number) => Node::Integer(
                i128::from_str_radix(number.as_str(), number.radix())
                    .map_or_else(|_| number.to_string(), |decimal| decimal.to_string()),
            ),
            DeValue::Float(number) => Node::Float(number.as_str().to_owned()),
            DeValue::Boolean(value) => Node::Boolean(*value),
            DeValue::Datetime(date) => Node::Date(date.to_string()),
            DeValue::Array(items) => Node::List(items.iter().map(|item| self.value(item)).collect()),
            DeValue::Table(table) => self.table(table),
        };
        Tree { line: self.at(value.span().start), node }
    }
}
