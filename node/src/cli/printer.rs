//! The one way out: stdout for results, stderr for talk.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
};

use serde::Serialize;

use super::{
    args::{OutputFormat, Shared},
    error::CliError,
    table::Table,
};

/// Prints results and talk in the form that was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    format: OutputFormat,
    quiet: bool,
    verbose: bool,
    yes: bool,
}

impl Printer {
    pub(crate) fn new(shared: &Shared) -> Self {
        let format = match shared.output {
            _ if shared.json => OutputFormat::Json,
            // -q prints ids only, but the form that was asked for wins.
            None if shared.quiet => OutputFormat::Name,
            None => OutputFormat::Table,
            Some(format) => format,
        };
        Self { format, quiet: shared.quiet, verbose: shared.verbose, yes: shared.yes }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Whether the result is a value for programs, and no text.
    pub(crate) fn is_structured(&self) -> bool {
        matches!(self.format, OutputFormat::Json | OutputFormat::Yaml)
    }

    /// Whether only ids are wanted.
    pub(crate) fn is_name(&self) -> bool {
        self.format == OutputFormat::Name
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose && !self.is_json()
    }

    /// Whether progress bars make sense: somebody looks at a terminal and wants talk.
    pub(crate) fn has_progress(&self) -> bool {
        !self.quiet && !self.is_json() && io::stderr().is_terminal()
    }

    /// A line of the result.
    pub(crate) fn line(&self, text: impl Display) -> Result<(), CliError> {
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }

    /// Bytes of the result, as they are.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), CliError> {
        let mut out = io::stdout().lock();
        out.write_all(bytes)?;
        Ok(out.flush()?)
    }

    /// The result as one value, in JSON or YAML.
    pub(crate) fn value(&self, value: &impl Serialize) -> Result<(), CliError> {
        if self.format == OutputFormat::Yaml {
            return self.bytes(yaml(value)?.as_bytes());
        }
        let text = serde_json::to_string_pretty(value).map_err(CliError::internal)?;
        self.line(text)
    }

    /// One of many values: JSON on a line of its own, or a YAML document.
    pub(crate) fn item(&self, value: &impl Serialize) -> Result<(), CliError> {
        if self.format == OutputFormat::Yaml {
            return self.bytes(format!("---\n{}", yaml(value)?).as_bytes());
        }
        let text = serde_json::to_string(value).map_err(CliError::internal)?;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    }

    /// A list: one value, ids, or a table. An empty list is no error, and says so.
    pub(crate) fn list<T: Serialize>(
        &self,
        items: &[T],
        none: &str,
        id: impl Fn(&T) -> String,
        table: impl FnOnce(&[T]) -> Table,
    ) -> Result<(), CliError> {
        match self.format {
            OutputFormat::Json | OutputFormat::Yaml => self.value(&items),
            OutputFormat::Name => items.iter().try_for_each(|item| self.line(id(item))),
            OutputFormat::Table | OutputFormat::Wide if items.is_empty() => {
                self.talk(none);
                Ok(())
            }
            OutputFormat::Table | OutputFormat::Wide => self.table(&table(items)),
        }
    }

    /// A table; its wide columns only where they were asked for.
    pub(crate) fn table(&self, table: &Table) -> Result<(), CliError> {
        self.line(table.render(self.format == OutputFormat::Wide))
    }

    /// Talk: what happens, on stderr.
    pub(crate) fn talk(&self, text: impl Display) {
        if !self.quiet && !self.is_json() {
            // A closed stderr silences talk, not the work.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// A warning: on stderr even with -q.
    pub(crate) fn warn(&self, text: impl Display) {
        if !self.is_json() {
            let _ = writeln!(io::stderr().lock(), "warning: {text}");
        }
    }

    /// Bytes of a task's stderr, as they are.
    pub(crate) fn err_bytes(&self, bytes: &[u8]) {
        let _ = io::stderr().lock().write_all(bytes);
    }

    /// Asks for a yes. `-y` answers; without a terminal there is nobody to ask.
    pub(crate) async fn confirm(&self, question: &str) -> Result<(), CliError> {
        if self.yes {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() || self.is_json() {
            return Err(CliError::usage(format!("{question} nobody is here to ask")).hint("answer yes with -y"));
        }
        let _ = write!(io::stderr().lock(), "{question} [y/N] ");
        // On a thread of its own: a read of a terminal cannot be ended, and Ctrl-C must be.
        let read = tokio::task::spawn_blocking(|| {
            let mut answer = String::new();
            io::stdin().read_line(&mut answer).map(|_| answer)
        });
        let answer = read
            .await
            .map_err(CliError::internal)?
            .map_err(|error| CliError::internal(format!("cannot read the answer: {error}")))?;
        if matches!(answer.trim(), "y" | "Y" | "yes") { Ok(()) } else { Err(CliError::Declined("declined".to_owned())) }
    }
}

/// A value as YAML 1.2, with the fields of its JSON form in the same order.
fn yaml(value: &impl Serialize) -> Result<String, CliError> {
    serde_saphyr::to_string(value).map_err(CliError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_keeps_the_order_of_fields_and_quotes_what_would_be_read_as_something_else() {
        let event = crate::view::LogPart {
            attempt: 2,
            offset: crate::view::Big(u64::MAX),
            at: Some(souk_protocol::Timestamp(1_500)),
            data: "no".to_owned(),
            end: true,
        };
        let text = yaml(&event).unwrap();
        let expected = [
            "attempt: 2",
            "offset: \"18446744073709551615\"",
            "at: \"1970-01-01T00:00:01.500Z\"",
            "data: \"no\"",
            "end: true",
        ];
        assert_eq!(text.lines().map(|line| line.replace('\'', "\"")).collect::<Vec<_>>(), expected);
        assert_eq!(yaml(&Vec::<u32>::new()).unwrap(), "[]\n");
    }
}
