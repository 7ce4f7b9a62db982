//! YAML 1.2 as a tree.
//!
//! The core schema of version 1.2 and nothing of 1.1: `no`, `on`, `1_000`, `12:30` and `2026-12-24` are text. What makes a
//! file mean more than it shows (anchors, aliases, tags, several documents) is refused.

use std::iter::Peekable;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::{Key, MAX_DEPTH, Node, Tree, add, too_deep};
use crate::job_file::problem::Problem;

/// Reads YAML.
pub(in crate::job_file) fn from_yaml(text: &str) -> (Option<Tree>, Vec<Problem>) {
    let mut reader = Reader { events: Parser::new_from_str(text).peekable(), problems: Vec::new() };
    match reader.document() {
        Ok(tree) => (tree, reader.problems),
        Err(Stop) => (None, reader.problems),
    }
}

/// The problem that was noted last ends the reading.
struct Stop;

struct Reader<'a> {
    events: Peekable<Parser<'a, StrInput<'a>>>,
    problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Option<Tree>, Stop> {
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentStart(_) | Event::Nothing => {}
                Event::StreamEnd | Event::DocumentEnd => {
                    return self.stop(line(&span), "the file is empty", "version = 1 and name are the least");
                }
                first => {
                    let tree = self.value(first, &span, 0)?;
                    self.the_end()?;
                    return Ok(Some(tree));
                }
            }
        }
    }

    /// Nothing may follow.
    fn the_end(&mut self) -> Result<(), Stop> {
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(()),
                (Event::DocumentEnd | Event::Nothing, _) => {}
                (_, span) => return self.stop(line(&span), "a second document", "one file is one job"),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.events.next() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => self.broken(&error),
            None => self.stop(0, "the file ends too early", "look for an open quote or bracket"),
        }
    }

    fn broken<T>(&mut self, error: &ScanError) -> Result<T, Stop> {
        let line = u32::try_from(error.marker().line()).ok();
        self.problems.push(Problem::new("", line, format!("not valid YAML: {}", error.info())));
        Err(Stop)
    }

    fn stop<T>(&mut self, line: u32, problem: &str, hint: &str) -> Result<T, Stop> {
        self.problems.push(Problem::new("", Some(line).filter(|line| *line > 0), problem).with_hint(hint));
        Err(Stop)
    }

    /// The value that begins with `event`.
    fn value(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Tree, Stop> {
        let line = line(span);
        if depth >= MAX_DEPTH {
            self.problems.push(too_deep(line));
            return Err(Stop);
        }
        let (anchor, tag) = match &event {
            Event::Scalar(_, _, anchor, tag) => (*anchor, tag.is_some()),
            Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) => (*anchor, tag.is_some()),
            _ => (0, false),
        };
        if tag {
            return self.stop(line, "tags are not read", "leave out what begins with \"!\"");
        }
        if anchor != 0 {
            return self.stop(line, "anchors are not read", "leave out what begins with \"&\", write the value twice");
        }
        let deeper = depth.saturating_add(1);
        let node = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => plain(&text),
            Event::Scalar(text, ..) => Node::Text(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break,
                        (item, span) => items.push(self.value(item, &span, deeper)?),
                    }
                }
                Node::List(items)
            }
            Event::MappingStart(..) => {
                let mut entries = Vec::new();
                loop {
                    let (event, span) = self.next()?;
                    if event == Event::MappingEnd {
                        break;
                    }
                    let key = self.key(event, &span)?;
                    let (event, span) = self.next()?;
                    let value = self.value(event, &span, deeper)?;
                    add(&mut entries, key, value, &mut self.problems);
                }
                Node::Table(entries)
            }
            Event::Alias(_) => {
                return self.stop(line, "aliases are not read", "write the value again in place of \"*\"");
            }
            _ => return self.stop(line, "a value is expected", "look at the indentation"),
        };
        Ok(Tree { line, node })
    }

    /// A key is text as it stands, whatever it would be as a value.
    fn key(&mut self, event: Event<'a>, span: &Span) -> Result<Key, Stop> {
        match event {
            Event::Scalar(text, _, 0, None) => Ok(Key { line: line(span), name: text.into_owned() }),
            _ => self.stop(line(span), "a key is plain text", "lists, tables, anchors and tags can be no keys"),
        }
    }
}

fn line(span: &Span) -> u32 {
    u32::try_from(span.start.line()).unwrap_or(u32::MAX)
}

/// A scalar without quotes, by the core schema (YAML 1.2.2, section 10.3.2).
fn plain(text: &str) -> Node {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Node::Null,
        "true" | "True" | "TRUE" => return Node::Boolean(true),
        "false" | "False" | "FALSE" => return Node::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => return Node::Float(text.to_owned()),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Node::Float(text.to_owned());
    }
    let radix = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix).filter(|digits| digits.chars().all(|c| c.is_digit(radix)))?;
        i128::from_str_radix(digits, radix).ok()
    };
    if let Some(number) = radix("0o", 8).or_else(|| radix("0x", 16)) {
        return Node::Integer(number.to_string());
    }
    if !unsigned.is_empty() && unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Node::Integer(text.parse::<i128>().map_or_else(|_| text.to_owned(), |number| number.to_string()));
    }
    if is_float(unsigned) { Node::Float(text.to_owned()) } else { Node::Text(text.to_owned()) }
}

/// `[0-9]*` with at most one point, then perhaps an exponent; at least one digit.
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, places) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let some = !(exponent.is_empty() || whole.is_empty() && places.is_empty());
    some && digits(whole) && digits(places) && digits(exponent)
}
