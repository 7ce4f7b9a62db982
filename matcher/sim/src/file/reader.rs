//! A TOML document as fields by path, each with its line. What nobody asks for is an error, so that nothing in a file
//! is ever ignored and one error does not hide the next.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    str::FromStr,
};

use souk_protocol::{GrammarError, job_file::Problem};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Most errors shown of one file.
const MAX_ERRORS: usize = 100;
/// Most items of a list.
const MAX_ITEMS: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    Text(String),
    /// Numbers keep their digits: nothing passes through a float.
    Number(String),
    Boolean(bool),
    List(Vec<Value>),
    Table,
}

impl Value {
    fn shown(&self) -> Option<String> {
        Some(match self {
            Self::Text(text) => format!("{text:?}"),
            Self::Number(digits) => digits.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::List(_) | Self::Table => return None,
        })
    }
}

/// A document that is being read.
#[derive(Debug, Default)]
pub(super) struct Reader {
    fields: BTreeMap<String, (u32, Value)>,
    known: BTreeSet<String>,
    errors: Vec<Problem>,
}

impl Reader {
    /// Reads TOML. A document with errors of syntax has nothing else.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let line_at = |offset: usize| {
            let newlines = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            u32::try_from(newlines + 1).unwrap_or(u32::MAX)
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            let problem = |error: &toml::de::Error| Problem {
                path: String::new(),
                line: error.span().map(|span| line_at(span.start)),
                value: None,
                problem: format!("not valid TOML: {}", error.message().trim().replace('\n', ", ")),
                hint: None,
            };
            return Err(errors.iter().take(MAX_ERRORS).map(problem).collect());
        }
        let mut reader = Self::default();
        reader.table("", table.get_ref(), &line_at);
        Ok(reader)
    }

    fn table(&mut self, path: &str, table: &DeTable<'_>, line_at: &impl Fn(usize) -> u32) {
        for (key, value) in table {
            let path = if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
            self.place(path, line_at(key.span().start), value, line_at);
        }
    }

    fn place(&mut self, path: String, line: u32, value: &Spanned<DeValue<'_>>, line_at: &impl Fn(usize) -> u32) {
        match value.get_ref() {
            DeValue::Table(table) => {
                self.table(&path, table, line_at);
                self.fields.insert(path, (line, Value::Table));
            }
            DeValue::Array(items) if items.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))) => {
                for (index, item) in items.iter().enumerate() {
                    self.place(format!("{path}[{index}]"), line_at(item.span().start), item, line_at);
                }
                self.fields.insert(path, (line, Value::Table));
            }
            other => {
                self.fields.insert(path, (line, plain(other)));
            }
        }
    }

    /// Whether a field or table is given.
    pub(super) fn has(&self, path: &str) -> bool {
        self.fields.contains_key(path)
    }

    /// An error about a field.
    pub(super) fn error(&mut self, path: &str, problem: impl Into<String>, hint: Option<String>) {
        let found = self.fields.get(path);
        let line = found.map(|(line, _)| *line).or_else(|| self.line_around(path));
        let value = found.and_then(|(_, value)| value.shown());
        self.errors.push(Problem { path: path.to_owned(), line, value, problem: problem.into(), hint });
    }

    fn line_around(&self, path: &str) -> Option<u32> {
        let mut path = path;
        while let Some(at) = path.rfind(['.', '[']) {
            path = path.get(..at)?;
            if let Some((line, _)) = self.fields.get(path) {
                return Some(*line);
            }
        }
        None
    }

    fn know(&mut self, path: &str) -> Option<Value> {
        self.known.insert(path.to_owned());
        self.fields.get(path).map(|(_, value)| value.clone())
    }

    fn wrong<T>(&mut self, path: &str, expected: &str) -> Option<T> {
        self.error(path, format!("{expected} is expected"), None);
        None
    }

    /// A text.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        match self.know(path)? {
            Value::Text(text) => Some(text),
            _ => self.wrong(path, "text in quotes"),
        }
    }

    /// A value of the grammar.
    pub(super) fn value<T: FromStr<Err = GrammarError>>(&mut self, path: &str) -> Option<T> {
        match self.know(path)? {
            Value::Text(text) | Value::Number(text) => self.grammar(path, &text),
            _ => self.wrong(path, "text in quotes"),
        }
    }

    fn grammar<T: FromStr<Err = GrammarError>>(&mut self, path: &str, text: &str) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.error(path, error.detail(), None);
                None
            }
        }
    }

    /// A list of values of the grammar.
    pub(super) fn values<T: FromStr<Err = GrammarError>>(&mut self, path: &str) -> Option<Vec<T>> {
        let texts = self.texts(path)?;
        texts.iter().map(|text| self.grammar(path, text)).collect()
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, path: &str) -> Option<Vec<String>> {
        let Value::List(items) = self.know(path)? else { return self.wrong(path, "a list of texts") };
        self.items(path, &items)
    }

    /// A list of lists of texts.
    pub(super) fn rows(&mut self, path: &str) -> Option<Vec<Vec<String>>> {
        let Value::List(rows) = self.know(path)? else { return self.wrong(path, "a list of lists") };
        if rows.len() > MAX_ITEMS {
            return self.wrong(path, "a shorter list");
        }
        let mut out = Vec::with_capacity(rows.len());
        for row in &rows {
            let Value::List(items) = row else { return self.wrong(path, "a list of lists") };
            out.push(self.items(path, items)?);
        }
        Some(out)
    }

    fn items(&mut self, path: &str, items: &[Value]) -> Option<Vec<String>> {
        if items.len() > MAX_ITEMS {
            self.error(path, format!("{} items, at most {MAX_ITEMS} are allowed", items.len()), None);
            return None;
        }
        let text = |item: &Value| match item {
            Value::Text(text) | Value::Number(text) => Some(text.clone()),
            _ => None,
        };
        let texts: Option<Vec<String>> = items.iter().map(text).collect();
        if texts.is_none() { self.wrong(path, "a list of texts or numbers") } else { texts }
    }

    /// A whole number.
    pub(super) fn whole(&mut self, path: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let Value::Number(digits) = self.know(path)? else { return self.wrong(path, "a whole number") };
        let number = digits.parse().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.error(path, format!("a whole number from {} to {} is expected", range.start(), range.end()), None);
        }
        number
    }

    /// A decimal number of at least zero, in thousandths: `0.35` is 350.
    pub(super) fn thousandths(&mut self, path: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let Value::Number(digits) = self.know(path)? else { return self.wrong(path, "a number") };
        let number = thousandths(&digits).filter(|number| range.contains(number));
        if number.is_none() {
            let shown = |value: &u32| format!("{}.{:03}", value / 1_000, value % 1_000);
            let (low, high) = (shown(range.start()), shown(range.end()));
            self.error(path, format!("a number from {low} to {high} with at most three decimals is expected"), None);
        }
        number
    }

    /// True or false.
    pub(super) fn boolean(&mut self, path: &str) -> Option<bool> {
        match self.know(path)? {
            Value::Boolean(value) => Some(value),
            _ => self.wrong(path, "true or false"),
        }
    }

    /// Paths of the tables in a list of tables.
    pub(super) fn tables(&mut self, path: &str) -> Vec<String> {
        let Some(found) = self.know(path) else { return Vec::new() };
        if found != Value::Table {
            return self.wrong(path, "a list of tables").unwrap_or_default();
        }
        let item = |index| Some(format!("{path}[{index}]")).filter(|path| self.has(path));
        (0..MAX_ITEMS).map_while(item).collect()
    }

    /// All errors, those of fields that nobody asked for with them, in the order of their lines.
    pub(super) fn finish(mut self) -> Vec<Problem> {
        let unknown: Vec<_> = self
            .fields
            .iter()
            .filter(|(path, (_, value))| *value != Value::Table && !self.known.contains(*path))
            .map(|(path, _)| path.clone())
            .collect();
        for path in unknown {
            let hint = self.nearest(&path).map(|nearest| format!("did you mean {nearest}?"));
            self.error(&path, "unknown field", hint);
        }
        self.errors.sort_by_key(|problem| problem.line);
        self.errors.truncate(MAX_ERRORS);
        self.errors
    }

    /// The known field of the same table that differs least, if it is close.
    fn nearest(&self, path: &str) -> Option<String> {
        let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
        let keys = self.known.iter().filter_map(|known| {
            let (known_table, known_key) = known.rsplit_once('.').unwrap_or(("", known));
            (known_table == table).then_some(known_key)
        });
        keys.map(|known| (distance(known, key), known))
            .filter(|(distance, known)| *distance <= 1 + known.len() / 4)
            .min()
            .map(|(_, known)| known.to_owned())
    }
}

fn plain(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => Value::Number(number.to_string().replace('_', "")),
        DeValue::Float(number) => Value::Number(number.to_string().replace('_', "")),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(date) => Value::Number(date.to_string()),
        DeValue::Array(items) => Value::List(items.iter().map(|item| plain(item.get_ref())).collect()),
        DeValue::Table(_) => Value::Table,
    }
}

/// A decimal number of at least zero, in thousandths.
pub(super) fn thousandths(digits: &str) -> Option<u32> {
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if part.len() > 3 {
        return None;
    }
    let part: u32 = format!("{part:0<3}").parse().ok()?;
    whole.parse::<u32>().ok()?.checked_mul(1_000)?.checked_add(part)
}

/// How many letters to put in, take out or change.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.iter().enumerate() {
            let (left, above) = (row.get(j).copied().unwrap_or(0), row.get(j + 1).copied().unwrap_or(0));
            let best = (corner + usize::from(x != *y)).min(left + 1).min(above + 1);
            corner = above;
            if let Some(cell) = row.get_mut(j + 1) {
                *cell = best;
            }
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_asks_for_is_an_error_with_its_line_and_the_nearest_field() {
        let mut reader = Reader::parse("a = 1\n[b]\ncout = 2\nc = \"x\"\n").unwrap();
        assert_eq!(reader.whole("a", 0..=9), Some(1));
        assert_eq!(reader.whole("b.count", 0..=9), None);
        assert_eq!(reader.text("b.c").as_deref(), Some("x"));
        let errors: Vec<String> = reader.finish().iter().map(|error| error.in_file("f.toml")).collect();
        assert_eq!(errors, ["f.toml:3: b.cout = 2: unknown field, did you mean count?"]);
    }

    #[test]
    fn decimals_are_read_by_their_digits() {
        assert_eq!(thousandths("0.35"), Some(350));
        assert_eq!(thousandths("2"), Some(2_000));
        assert_eq!(thousandths("1.2345"), None);
        assert_eq!(thousandths("-1"), None);
        assert_eq!((distance("count", "cout"), distance("a", "a"), distance("", "ab")), (1, 0, 2));
    }

    #[test]
    fn broken_toml_says_where() {
        let errors = Reader::parse("a = \n").unwrap_err();
        assert_eq!(errors[0].line, Some(1));
    }
}
