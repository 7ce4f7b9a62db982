//! The grammar of values that people write: sizes, durations, prices, shares, ranges.
//!
//! Every value is read exactly or refused. There are no floats, no silent rounding and no defaults for a
//! missing unit; a refusal names the value, the place in it and what to write instead.

mod duration;
mod nearest;
mod power;
mod price;
mod quantity;
mod range;
mod scan;
mod time;

use std::fmt;

pub(crate) use nearest::nearest;
pub use range::{Count, Range, RangeItem};
pub(crate) use scan::Scan;

/// Longest piece of a user's value repeated in a message, in characters.
const SHOWN_VALUE_CHARS: usize = 64;

/// Why a value does not follow the grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrammarError {
    /// The whole value as it was written.
    pub value: String,
    /// Where in the value the problem is, as a byte offset; its length if something is missing at the end.
    pub position: usize,
    /// What is wrong, in the words of the user.
    pub problem: String,
    /// What to write instead.
    pub hint: Option<String>,
}

impl GrammarError {
    /// A problem at `position` of `value`.
    pub fn new(value: &str, position: usize, problem: impl Into<String>) -> Self {
        Self { value: value.to_owned(), position, problem: problem.into(), hint: None }
    }

    /// The same error with advice.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The problem with its place and advice, but without the value (for messages that show it already).
    pub fn detail(&self) -> String {
        let mut text = self.problem.clone();
        if self.position > 0 && self.position < self.value.len() {
            let before = self.value.get(..self.position).map_or(0, |part| part.chars().count());
            text.push_str(&format!(" (at character {})", before.saturating_add(1)));
        }
        if let Some(hint) = &self.hint {
            text.push_str(", ");
            text.push_str(hint);
        }
        text
    }

    /// Moves the error from a part of a value to the whole of it.
    pub(crate) fn within(mut self, whole: &str, offset: usize) -> Self {
        self.position = self.position.saturating_add(offset);
        whole.clone_into(&mut self.value);
        self
    }
}

impl fmt::Display for GrammarError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.value), self.detail())
    }
}

impl std::error::Error for GrammarError {}

/// A user's text for a message: quoted, control characters escaped, cut to a bounded length.
pub(crate) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(SHOWN_VALUE_CHARS).collect();
    let cut = if chars.next().is_some() { ".." } else { "" };
    format!("{head:?}{cut}")
}

#[cfg(test)]
mod tests;
