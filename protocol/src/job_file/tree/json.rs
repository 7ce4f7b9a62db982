//! JSON as a tree.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use super::{Key, Lines, MAX_DEPTH, Node, Tree, add, too_deep};
use crate::job_file::problem::Problem;

/// Reads JSON. Numbers keep their digits; a key given twice is an error.
pub(in crate::job_file) fn from_json(text: &str) -> (Option<Tree>, Vec<Problem>) {
    let mut reader = Reader { text, lines: Lines::of(text), problems: Vec::new() };
    let tree = match serde_json::from_str::<&RawValue>(text) {
        Ok(raw) => reader.value(raw, 0),
        Err(error) => {
            let line = u32::try_from(error.line()).ok().filter(|line| *line > 0);
            let message = error.to_string();
            let message = message.split(" at line ").next().unwrap_or_default();
            reader.problems.push(Problem::new("", line, format!("not valid JSON: {message}")));
            None
        }
    };
    (tree, reader.problems)
}

/// A text that was found to be JSON.
struct Reader<'a> {
    text: &'a str,
    lines: Lines,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// The line of a value, by where its text lies in the whole.
    fn line(&self, raw: &RawValue) -> u32 {
        let offset = (raw.get().as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        self.lines.at(offset)
    }

    /// `None` only below what is too deep.
    fn value(&mut self, raw: &'a RawValue, depth: usize) -> Option<Tree> {
        let line = self.line(raw);
        if depth >= MAX_DEPTH {
            self.problems.push(too_deep(line));
            return None;
        }
        let text = raw.get();
        let deeper = depth.saturating_add(1);
        let node = match text.as_bytes().first() {
            Some(b'{') => {
                let Entries(entries) = serde_json::from_str(text).unwrap_or_default();
                let mut table = Vec::new();
                for (name, value) in entries {
                    // A key stands on the line of its value, or the one before: near enough to find it.
                    if let Some(value) = self.value(value, deeper) {
                        add(&mut table, Key { line: value.line, name }, value, &mut self.problems);
                    }
                }
                Node::Table(table)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
                Node::List(items.into_iter().filter_map(|item| self.value(item, deeper)).collect())
            }
            Some(b'"') => match serde_json::from_str(text) {
                Ok(text) => Node::Text(text),
                Err(error) => {
                    self.problems.push(Problem::new("", Some(line), format!("not valid JSON: {error}")));
                    return None;
                }
            },
            Some(b't') => Node::Boolean(true),
            Some(b'f') => Node::Boolean(false),
            Some(b'n') | None => Node::Null,
            Some(_) if text.contains(['.', 'e', 'E']) => Node::Float(text.to_owned()),
            Some(_) => Node::Integer(text.to_owned()),
        };
        Some(Tree { line, node })
    }
}

/// The entries of an object as they stand there, repeated ones too.
#[derive(Default)]
struct Entries<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Entries<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct All;

        impl<'de> Visitor<'de> for All {
            type Value = Entries<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_map(All)
    }
}
