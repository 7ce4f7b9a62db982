//! Flags that every command shares, and what happens to a command line that makes no sense.

use std::{
    ffi::OsString,
    io::{IsTerminal as _, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use clap::{ArgMatches, Args, FromArgMatches, ValueEnum, builder::FalseyValueParser, error::ErrorKind};
use souk_protocol::Millis;

use super::error::CliError;

/// Form of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    Table,
    Wide,
    Json,
    Yaml,
    Name,
}

/// Flags that every command shares. `SOUK_*` variables mirror them; a flag wins.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Shared options")]
pub(crate) struct Shared {
    /// Form of the result: table, wide, json, yaml, name.
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        hide_possible_values = true,
        value_name = "FORMAT",
        env = "SOUK_OUTPUT",
        hide_env = true
    )]
    pub(crate) output: Option<OutputFormat>,
    /// The same as -o json.
    #[arg(long, global = true, env = "SOUK_JSON", hide_env = true, value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) json: bool,
    /// Results only, as ids where there are ids.
    #[arg(short, long, global = true, env = "SOUK_QUIET", hide_env = true, value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) quiet: bool,
    /// More talk on stderr.
    #[arg(short, long, global = true, env = "SOUK_VERBOSE", hide_env = true, value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) verbose: bool,
    /// No colours; NO_COLOR does the same.
    #[arg(long, global = true, env = "SOUK_NO_COLOR", hide_env = true, value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) no_color: bool,
    /// Answer every question with yes.
    #[arg(short, long, global = true, env = "SOUK_YES", hide_env = true, value_parser = FalseyValueParser::new(), action = clap::ArgAction::SetTrue)]
    pub(crate) yes: bool,
    /// Give up after this time (exit code 7), e.g. 30s.
    #[arg(long, global = true, value_name = "DUR", env = "SOUK_TIMEOUT", hide_env = true, value_parser = duration)]
    pub(crate) timeout: Option<Millis>,
    /// Folder of config and data, in place of the XDG folders.
    #[arg(long, global = true, value_name = "DIR", env = "SOUK_HOME", hide_env = true)]
    pub(crate) home: Option<PathBuf>,
    /// Refuse unless this home belongs to the network of this name.
    #[arg(long, global = true, value_name = "NAME", env = "SOUK_NETWORK", hide_env = true)]
    pub(crate) network: Option<String>,
}

fn duration(text: &str) -> Result<Millis, String> {
    match text.parse::<Millis>() {
        Ok(limit) if limit.is_zero() => Err("zero means nothing here, leave the flag out".to_owned()),
        Ok(limit) => Ok(limit),
        Err(error) => Err(error.detail()),
    }
}

/// A value of the grammar, for clap: its message already shows the value.
pub(crate) fn grammar<T: std::str::FromStr<Err = souk_protocol::GrammarError>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: souk_protocol::GrammarError| error.detail())
}

/// Whether errors are to be told as JSON: known before the command line is understood.
pub(crate) fn wants_json(words: &[OsString]) -> bool {
    let words: Vec<&str> =
        words.iter().skip(1).map_while(|word| word.to_str()).take_while(|word| *word != "--").collect();
    let by_pair = words.windows(2).any(|pair| matches!(pair, ["-o" | "--output", "json"]));
    let by_flag = words.iter().any(|word| matches!(*word, "--json" | "-ojson" | "-o=json" | "--output=json"));
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let falsey = ["", "0", "n", "no", "f", "false", "off"];
    by_pair
        || by_flag
        || variable("SOUK_OUTPUT") == "json"
        || !falsey.contains(&variable("SOUK_JSON").to_ascii_lowercase().as_str())
}

/// Parses the command line.
pub(crate) fn command(words: &[OsString], command: clap::Command) -> Result<ArgMatches, clap::Error> {
    let plain = words.iter().any(|word| word == "--no-color")
        || std::env::var_os("SOUK_NO_COLOR").is_some_and(|value| !value.is_empty());
    let command = if plain { command.color(clap::ColorChoice::Never) } else { command };
    command.try_get_matches_from(words)
}

pub(crate) fn from_matches<T: FromArgMatches>(matches: &ArgMatches) -> Result<T, clap::Error> {
    T::from_arg_matches(matches)
}

/// Prints help where it was asked for, and the error otherwise: exit code 2.
pub(crate) fn report(error: &clap::Error, json: bool) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A reader that has enough is no failure.
            let _ = if std::io::stdout().is_terminal() {
                error.print()
            } else {
                std::io::stdout().lock().write_all(error.render().to_string().as_bytes())
            };
            ExitCode::SUCCESS
        }
        _ if json => CliError::usage(plain_message(error)).report(true),
        _ => {
            let _ = error.print();
            ExitCode::from(2)
        }
    }
}

/// The first paragraph of clap's message, on one line.
fn plain_message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").map(str::to_owned).unwrap_or(line)
}
