//! A job file as a tree of values with line numbers, whatever language it was written in.

mod json;
mod toml;
mod yaml;

pub(super) use json::from_json;
pub(super) use toml::from_toml;
pub(super) use yaml::from_yaml;

use super::problem::Problem;

/// Deepest nesting of lists and tables that is read: the schema has four levels.
const MAX_DEPTH: usize = 32;

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
    /// JSON's and YAML's word for no value.
    Null,
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
            Node::Null => "nothing",
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
            Node::Null => Some("null".to_owned()),
            Node::List(_) | Node::Table(_) => None,
        }
    }
}

/// Adds an entry to a table. A key that is there already is a problem; the first one stands.
fn add(entries: &mut Vec<(Key, Tree)>, key: Key, value: Tree, problems: &mut Vec<Problem>) {
    if entries.iter().any(|(known, _)| known.name == key.name) {
        problems.push(repeated(key.line, Some(crate::grammar::shown(&key.name))));
    } else {
        entries.push((key, value));
    }
}

fn repeated(line: u32, value: Option<String>) -> Problem {
    let problem = Problem::new("", Some(line), "this key is given twice").with_hint("keep one of the two");
    Problem { value, ..problem }
}

fn too_deep(line: u32) -> Problem {
    Problem::new("", Some(line), format!("nested deeper than {MAX_DEPTH} levels"))
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
}

#[cfg(test)]
mod tests;
