//! TOML as a tree.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Key, Lines, Node, Tree, repeated};
use crate::job_file::problem::Problem;

/// How the parser's message of a repeated key starts.
const REPEATED: &str = "duplicate key";

/// Reads TOML. All errors of syntax are collected; there is a tree where only keys were repeated.
pub(in crate::job_file) fn from_toml(text: &str) -> (Option<Tree>, Vec<Problem>) {
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
                Problem { line, ..repeated(0, value) }
            } else {
                Problem { value, ..Problem::new("", line, format!("not valid TOML: {message}")) }
            }
        })
        .collect();
    (only_repeated.then(|| Tree { line: 1, node: lines.table(table.get_ref()) }), problems)
}

impl Lines {
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
