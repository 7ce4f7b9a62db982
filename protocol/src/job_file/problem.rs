//! What is wrong with a job file, and what is merely odd about it.

use std::fmt;

use serde::Serialize;

use crate::grammar::GrammarError;

/// Most errors shown of one file; a file with more is broken as a whole.
pub(super) const MAX_SHOWN: usize = 100;

/// One error of a job file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The field: "limits.timeout", "inputs\[2\].target"; empty where the file as a whole is meant.
    pub path: String,
    /// The line, from 1; `None` for what is not from the file.
    pub line: Option<u32>,
    /// The value as it was written.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub hint: Option<String>,
}

/// Something odd that does not make a job file invalid. Same form as an error.
pub type Warning = Problem;

impl Problem {
    pub(super) fn new(path: &str, line: Option<u32>, problem: impl Into<String>) -> Self {
        // Line 0 stands for values that are not from the file.
        let line = line.filter(|line| *line > 0);
        Self { path: path.to_owned(), line, value: None, problem: problem.into(), hint: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn with_value(mut self, value: Option<String>) -> Self {
        self.value = value;
        self
    }

    pub(super) fn from_grammar(path: &str, line: Option<u32>, value: Option<String>, error: &GrammarError) -> Self {
        Self::new(path, line, error.detail()).with_value(value)
    }

    /// The error with the name of its file, as compilers write it: `job.toml:12: limits.timeout = "0s": ..`.
    pub fn in_file(&self, file: &str) -> String {
        match self.line {
            Some(line) => format!("{file}:{line}: {}", self.text()),
            None => format!("{file}: {}", self.text()),
        }
    }

    fn text(&self) -> String {
        let mut text = match (self.path.as_str(), &self.value) {
            ("", None) => String::new(),
            ("", Some(value)) => format!("{value}: "),
            (path, None) => format!("{path}: "),
            (path, Some(value)) => format!("{path} = {value}: "),
        };
        text.push_str(&self.problem);
        if let Some(hint) = &self.hint {
            text.push_str(", ");
            text.push_str(hint);
        }
        text
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.text())
    }
}

/// All errors of a job file, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JobFileErrors(pub Vec<Problem>);

impl JobFileErrors {
    pub(super) fn of(mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.line);
        let more = problems.len().saturating_sub(MAX_SHOWN);
        problems.truncate(MAX_SHOWN);
        if more > 0 {
            problems.push(Problem::new("", None, format!("and {more} more errors")));
        }
        Self(problems)
    }
}

impl fmt::Display for JobFileErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for JobFileErrors {}
