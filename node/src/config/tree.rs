//! A TOML document as leaves by path, each with its line and its origin.
//!
//! Reading is by asking: every field that is asked for is known, what nobody asked for is an error. So nothing in a
//! file is ever ignored, and one error does not hide the next.

use std::{collections::BTreeMap, fmt::Display, str::FromStr};

use souk_protocol::{GrammarError, job_file::Problem};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Longest piece of a value repeated in a message, in characters.
const SHOWN: usize = 64;
/// Most errors shown of one file.
const MAX_ERRORS: usize = 100;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A line of the file.
    File(u32),
    /// A variable of the environment.
    Env,
    /// Nobody said anything.
    Default,
}

/// A value that is no table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    /// Numbers and dates keep their digits: nothing passes through a float.
    Number(String),
    Boolean(bool),
    List(Vec<Value>),
}

impl Value {
    fn shown(&self) -> String {
        match self {
            Self::Text(text) => {
                let cut = if text.chars().count() > SHOWN { ".." } else { "" };
                format!("{:?}{cut}", text.chars().take(SHOWN).collect::<String>())
            }
            Self::Number(text) => text.chars().take(SHOWN).collect(),
            Self::Boolean(value) => value.to_string(),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::shown).collect();
                format!("[{}]", items.join(", "))
            }
        }
    }
}

#[derive(Debug, Clone)]
struct Leaf {
    origin: Origin,
    value: Value,
}

/// A line of `config show`: a field, its value in force and where that comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Path of the field.
    pub path: String,
    /// Its value, as TOML.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// A document that is being read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    leaves: BTreeMap<String, Leaf>,
    /// Tables, and lists of tables with their length.
    tables: BTreeMap<String, (u32, Option<usize>)>,
    known: Vec<String>,
    settings: Vec<Setting>,
    errors: Vec<Problem>,
}

/// The path of a field below a table; keys that are no plain words are quoted.
pub(super) fn join(table: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if plain { key.to_owned() } else { format!("{key:?}") };
    if table.is_empty() { key } else { format!("{table}.{key}") }
}

impl Reader {
    /// Reads TOML. A document with errors of syntax has nothing else.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let line_at = |offset: usize| {
            let newlines = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            u32::try_from(newlines.saturating_add(1)).unwrap_or(u32::MAX)
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        let mut reader = Self::default();
        if errors.is_empty() {
            reader.flatten("", table.get_ref(), &line_at);
            return Ok(reader);
        }
        let problem = |error: &toml::de::Error| {
            let message = error.message().trim().replace('\n', ", ");
            let line = error.span().map(|span| line_at(span.start));
            let twice = message.starts_with("duplicate key");
            Problem {
                path: String::new(),
                line,
                value: error.span().and_then(|span| text.get(span)).map(|found| Value::Text(found.to_owned()).shown()),
                problem: if twice {
                    "this key is given twice".to_owned()
                } else {
                    format!("not valid TOML: {message}")
                },
                hint: twice.then(|| "keep one of the two".to_owned()),
            }
        };
        Err(sorted(errors.iter().map(problem).collect()))
    }

    fn flatten(&mut self, path: &str, table: &DeTable<'_>, line_at: &impl Fn(usize) -> u32) {
        for (key, value) in table {
            let line = line_at(key.span().start);
            self.place(join(path, key.get_ref()), line, value, line_at);
        }
    }

    fn place(&mut self, path: String, line: u32, value: &Spanned<DeValue<'_>>, line_at: &impl Fn(usize) -> u32) {
        match value.get_ref() {
            DeValue::Table(table) => {
                self.tables.insert(path.clone(), (line, None));
                self.flatten(&path, table, line_at);
            }
            DeValue::Array(items) if items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))) => {
                self.tables.insert(path.clone(), (line, Some(items.len())));
                for (index, item) in items.iter().enumerate() {
                    self.place(format!("{path}[{index}]"), line_at(item.span().start), item, line_at);
                }
            }
            other => {
                if let Some(value) = plain(other) {
                    self.leaves.insert(path, Leaf { origin: Origin::File(line), value });
                }
            }
        }
    }

    /// Puts the environment over the file: `SOUK_API_LISTEN` is `api.listen`. Texts and numbers only.
    pub(super) fn overlay(&mut self, paths: &[&str], variable: &dyn Fn(&str) -> Option<String>) {
        for path in paths {
            let name = format!("SOUK_{}", path.replace('.', "_").to_ascii_uppercase());
            if let Some(text) = variable(&name) {
                self.leaves.insert((*path).to_owned(), Leaf { origin: Origin::Env, value: Value::Text(text) });
            }
        }
    }

    /// Whether a field or anything below it is given.
    pub(super) fn has(&self, path: &str) -> bool {
        let below = |found: &str| found.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
        self.leaves.contains_key(path) || self.tables.contains_key(path) || self.leaves.keys().any(|key| below(key))
    }

    /// The value of a field, without asking for it.
    pub(super) fn given(&self, path: &str) -> Option<&Value> {
        self.leaves.get(path).map(|leaf| &leaf.value)
    }

    /// The line of a field or of the table around it.
    pub(super) fn line(&self, path: &str) -> Option<u32> {
        let mut path = path;
        loop {
            match (self.leaves.get(path), self.tables.get(path)) {
                (Some(Leaf { origin: Origin::File(line), .. }), _) | (None, Some((line, _))) => return Some(*line),
                _ => path = path.rfind(['.', '[']).and_then(|at| path.get(..at))?,
            }
        }
    }

    /// An error about a field.
    pub(super) fn error(&mut self, path: &str, problem: impl Into<String>, hint: Option<&str>) {
        let value = self.leaves.get(path).map(|leaf| leaf.value.shown());
        let line = self.line(path);
        let problem =
            Problem { path: path.to_owned(), line, value, problem: problem.into(), hint: hint.map(str::to_owned) };
        self.errors.push(problem);
    }

    fn know(&mut self, path: &str) -> Option<Leaf> {
        self.known.push(path.to_owned());
        let found = self.leaves.get(path).cloned();
        if found.is_none() && self.tables.contains_key(path) {
            self.error(path, "a value is expected, not a table", None);
        }
        found
    }

    fn set(&mut self, path: &str, value: String, origin: Origin) {
        self.settings.push(Setting { path: path.to_owned(), value, origin });
    }

    /// Notes the default of a field that is not given, for `config show`.
    pub(super) fn note_default(&mut self, path: &str, value: impl Display) {
        self.set(path, value.to_string(), Origin::Default);
    }

    fn wrong_kind<T>(&mut self, path: &str, expected: &str) -> Option<T> {
        self.error(path, format!("{expected} is expected"), None);
        None
    }

    /// A text; from the environment too.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let leaf = self.know(path)?;
        let shown = leaf.value.shown();
        match leaf.value {
            Value::Text(text) => {
                self.set(path, shown, leaf.origin);
                Some(text)
            }
            _ => self.wrong_kind(path, "text in quotes"),
        }
    }

    /// A value of the grammar. Numbers are read by their digits, so that a missing unit is what is reported.
    pub(super) fn parse_field<T: FromStr<Err = GrammarError>>(&mut self, path: &str) -> Option<T> {
        let leaf = self.know(path)?;
        let shown = leaf.value.shown();
        let (Value::Text(text) | Value::Number(text)) = leaf.value else {
            return self.wrong_kind(path, "text in quotes");
        };
        match text.parse() {
            Ok(value) => {
                self.set(path, shown, leaf.origin);
                Some(value)
            }
            Err(error) => {
                self.error(path, error.detail(), None);
                None
            }
        }
    }

    /// One of a closed list of words.
    pub(super) fn word<T: Copy + Display>(&mut self, path: &str, all: &[T]) -> Option<T> {
        let text = self.text(path)?;
        let found = all.iter().copied().find(|word| word.to_string() == text);
        if found.is_none() {
            let words: Vec<String> = all.iter().map(ToString::to_string).collect();
            self.error(path, "unknown word", Some(&format!("one of {}", words.join(", "))));
        }
        found
    }

    /// A whole number, without quotes; from the environment as text.
    pub(super) fn whole(&mut self, path: &str, range: std::ops::RangeInclusive<u32>) -> Option<u32> {
        let leaf = self.know(path)?;
        let shown = leaf.value.shown();
        let digits = match leaf.value {
            Value::Number(digits) => digits,
            Value::Text(text) if leaf.origin == Origin::Env => text,
            _ => return self.wrong_kind(path, "a whole number"),
        };
        let number = digits.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.error(path, format!("a whole number from {} to {} is expected", range.start(), range.end()), None);
        } else {
            self.set(path, shown, leaf.origin);
        }
        number
    }

    pub(super) fn boolean(&mut self, path: &str) -> Option<bool> {
        let leaf = self.know(path)?;
        match leaf.value {
            Value::Boolean(value) => {
                self.set(path, value.to_string(), leaf.origin);
                Some(value)
            }
            _ => self.wrong_kind(path, "true or false"),
        }
    }

    /// A list of texts, at most `max`.
    pub(super) fn texts(&mut self, path: &str, max: usize) -> Option<Vec<String>> {
        let leaf = self.know(path)?;
        let shown = leaf.value.shown();
        let Value::List(items) = leaf.value else { return self.wrong_kind(path, "a list of texts") };
        if items.len() > max {
            self.error(path, format!("{} items, at most {max} are allowed", items.len()), None);
            return None;
        }
        let texts: Option<Vec<String>> =
            items.into_iter().map(|item| if let Value::Text(text) = item { Some(text) } else { None }).collect();
        if texts.is_none() {
            return self.wrong_kind(path, "a list of texts");
        }
        self.set(path, shown, leaf.origin);
        texts
    }

    /// Number of tables in a list of tables, each to be read by its path `name[0]..`.
    pub(super) fn tables(&mut self, path: &str, max: usize) -> usize {
        self.known.push(path.to_owned());
        match self.tables.get(path) {
            Some((_, Some(count))) if *count <= max => *count,
            Some((_, Some(count))) => {
                let problem = format!("{count} items, at most {max} are allowed");
                self.error(path, problem, None);
                0
            }
            Some((_, None)) => self.wrong_kind(path, "a list of tables").unwrap_or(0),
            None => {
                // An empty list is a leaf.
                if self.leaves.get(path).is_some_and(|leaf| leaf.value != Value::List(Vec::new())) {
                    return self.wrong_kind(path, "a list of tables").unwrap_or(0);
                }
                0
            }
        }
    }

    /// Keys of a table whose keys the file chooses, with their paths.
    pub(super) fn keys(&mut self, table: &str) -> Vec<(String, String)> {
        let prefix = format!("{table}.");
        let key = |path: &String| {
            let key = path.strip_prefix(&prefix)?;
            let unquoted = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
            Some((unquoted.to_owned(), path.clone()))
        };
        self.leaves.keys().filter_map(key).collect()
    }

    /// Ends the reading: what was not asked for is unknown.
    pub(super) fn finish(mut self) -> Result<Vec<Setting>, Vec<Problem>> {
        let is_around = |table: &str, known: &str| {
            known.strip_prefix(table).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let unknown_leaf = |path: &&String| !self.known.contains(path);
        let unknown_table = |path: &&String| !self.known.iter().any(|known| is_around(path, known));
        let mut unknown: Vec<String> = self.tables.keys().filter(unknown_table).cloned().collect();
        for path in self.leaves.keys().filter(unknown_leaf) {
            // An unknown table is one error, not one for each of its fields.
            if !unknown.iter().any(|table| is_around(table, path)) {
                unknown.push(path.clone());
            }
        }
        unknown.dedup();
        for path in unknown {
            // Where a table is expected and a value stands, the value is what is wrong.
            let hint = self.nearest(&path).map(|near| format!("did you mean {near:?}?"));
            self.error(&path, "unknown field", hint.as_deref());
        }
        if self.errors.is_empty() { Ok(self.settings) } else { Err(sorted(self.errors)) }
    }

    /// The known field of the same table that differs by the fewest letters, if that is at most two.
    fn nearest(&self, path: &str) -> Option<String> {
        let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
        let prefix = if table.is_empty() { String::new() } else { format!("{table}.") };
        let siblings = self.known.iter().filter_map(|known| known.strip_prefix(&prefix)?.split(['.', '[']).next());
        siblings
            .map(|sibling| (distance(name, sibling), sibling))
            .filter(|(distance, _)| *distance <= 2)
            .min()
            .map(|(_, sibling)| sibling.to_owned())
    }
}

fn plain(value: &DeValue<'_>) -> Option<Value> {
    Some(match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Number(
            i128::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.to_string(), |decimal| decimal.to_string()),
        ),
        DeValue::Float(number) => Value::Number(number.as_str().to_owned()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(date) => Value::Number(date.to_string()),
        DeValue::Array(items) => Value::List(items.iter().filter_map(|item| plain(item.get_ref())).collect()),
        DeValue::Table(_) => return None,
    })
}

fn sorted(mut problems: Vec<Problem>) -> Vec<Problem> {
    problems.sort_by_key(|problem| problem.line);
    problems.truncate(MAX_ERRORS);
    problems
}

/// Letters to change, add or drop.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().take(SHOWN).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().take(SHOWN).enumerate() {
        let mut next = vec![i.saturating_add(1)];
        for (y, pair) in b.iter().zip(row.windows(2)) {
            let (&[diagonal, above], Some(&left)) = (pair, next.last()) else { continue };
            let change = diagonal.saturating_add(usize::from(x != *y));
            next.push(change.min(above.saturating_add(1)).min(left.saturating_add(1)));
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unknown_field_is_named_with_line_and_the_nearest_known() {
        let mut reader = Reader::parse("[node]\nnmae = \"x\"\n[nodes]\na = 1\nb = 2\n").unwrap();
        assert_eq!(reader.text("node.name"), None);
        let errors = reader.finish().unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            [
                "line 2: node.nmae = \"x\": unknown field, did you mean \"name\"?",
                "line 3: nodes: unknown field, did you mean \"node\"?",
            ]
        );
    }

    #[test]
    fn the_environment_goes_over_the_file_and_says_so() {
        let mut reader = Reader::parse("[api]\nlisten = \"a\"\n").unwrap();
        reader.overlay(&["api.listen"], &|name| (name == "SOUK_API_LISTEN").then(|| "b".to_owned()));
        assert_eq!(reader.text("api.listen").as_deref(), Some("b"));
        let settings = reader.finish().unwrap();
        assert_eq!(
            settings,
            [Setting { path: "api.listen".to_owned(), value: "\"b\"".to_owned(), origin: Origin::Env }]
        );
    }

    #[test]
    fn all_errors_of_syntax_come_with_their_lines() {
        let errors = Reader::parse("a = 1\na = 2\nb = \n").unwrap_err();
        let lines: Vec<_> = errors.iter().map(|error| error.line).collect();
        assert_eq!(lines, [Some(2), Some(3)]);
        assert_eq!(errors[0].problem, "this key is given twice");
    }

    #[test]
    fn keys_with_spaces_are_quoted_in_paths_and_bare_as_keys() {
        let mut reader = Reader::parse("[pricing]\nfloor = { \"RTX 4090\" = \"1 CR/h\", cpu = \"2 CR/h\" }\n").unwrap();
        let keys = reader.keys("pricing.floor");
        assert_eq!(keys[0], ("RTX 4090".to_owned(), "pricing.floor.\"RTX 4090\"".to_owned()));
        assert_eq!(keys[1], ("cpu".to_owned(), "pricing.floor.cpu".to_owned()));
    }
}
