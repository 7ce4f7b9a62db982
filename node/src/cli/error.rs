//! What can go wrong, and the exit code that says so.

use std::{io::Write as _, process::ExitCode};

use souk_protocol::{Millis, job_file::Problem};

use crate::{
    client::ClientError,
    home::HomeError,
    identity::IdentityError,
    view::{ErrorBody, ErrorView},
};

/// The code of a command that has done what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    /// Done.
    pub(crate) const DONE: Self = Self(0);
}

/// Why a command failed. Exit codes are those of the interface.
#[derive(Debug)]
pub(crate) enum CliError {
    /// 1: a bug, or a machine that refuses what it never refuses.
    Internal(String),
    /// 2: the command line makes no sense.
    Usage { message: String, hint: Option<String> },
    /// 2: a file is invalid.
    Invalid { file: String, problems: Vec<Problem> },
    /// 3: there is no such thing.
    NotFound { message: String, hint: Option<String> },
    /// 3: no node runs.
    NotRunning { hint: String },
    /// 4: nobody offers what is wanted.
    NoOffers { message: String, nearest: Vec<String> },
    /// 5: the money does not suffice.
    Budget { message: String, hint: Option<String> },
    /// 6: something is in the way now; worth a retry.
    Unreachable { message: String, hint: Option<String> },
    /// 7: `--timeout` has passed.
    Timeout { limit: Millis },
    /// 8: a person said no.
    Declined(String),
    /// 9: a document, a store or a wallet is not what it should be.
    Unverified { message: String, nearest: Vec<String> },
    /// 100, 101, 103, 104: the job is not what was hoped for.
    Job { exit: u8, code: &'static str, message: String, hint: Option<String>, nearest: Vec<String> },
    /// 130.
    Interrupted,
    /// 143.
    Terminated,
    /// As the node said.
    Api(Box<ErrorView>),
    /// The reader of stdout has enough: no failure.
    Pipe,
}

impl CliError {
    pub(crate) fn internal(message: impl ToString) -> Self {
        Self::Internal(message.to_string())
    }

    pub(crate) fn usage(message: impl ToString) -> Self {
        Self::Usage { message: message.to_string(), hint: None }
    }

    pub(crate) fn not_found(message: impl ToString) -> Self {
        Self::NotFound { message: message.to_string(), hint: None }
    }

    pub(crate) fn unreachable(message: impl ToString) -> Self {
        Self::Unreachable { message: message.to_string(), hint: None }
    }

    /// Says what to do about it.
    pub(crate) fn hint(mut self, text: impl ToString) -> Self {
        match &mut self {
            Self::Usage { hint, .. }
            | Self::NotFound { hint, .. }
            | Self::Budget { hint, .. }
            | Self::Unreachable { hint, .. }
            | Self::Job { hint, .. } => *hint = Some(text.to_string()),
            _ => {}
        }
        self
    }

    /// The error as the API and `--json` show it.
    pub(crate) fn view(&self) -> ErrorView {
        let view = |code: &str, exit: u8, message: &str| ErrorView {
            code: code.to_owned(),
            exit,
            message: message.to_owned(),
            hint: None,
            nearest: Vec::new(),
        };
        match self {
            Self::Internal(message) => view("internal", 1, message),
            Self::Usage { message, hint } => ErrorView { hint: hint.clone(), ..view("usage", 2, message) },
            Self::Invalid { file, problems } => {
                let count = problems.len();
                let message = format!("{file} has {count} error{}", if count == 1 { "" } else { "s" });
                let nearest = problems.iter().map(|problem| problem.in_file(file)).collect();
                ErrorView { nearest, ..view("invalid_file", 2, &message) }
            }
            Self::NotFound { message, hint } => ErrorView { hint: hint.clone(), ..view("not_found", 3, message) },
            Self::NotRunning { hint } => {
                ErrorView { hint: Some(hint.clone()), ..view("not_running", 3, "no node runs in this home") }
            }
            Self::NoOffers { message, nearest } => {
                ErrorView { nearest: nearest.clone(), ..view("no_offers", 4, message) }
            }
            Self::Budget { message, hint } => ErrorView { hint: hint.clone(), ..view("budget", 5, message) },
            Self::Unreachable { message, hint } => ErrorView { hint: hint.clone(), ..view("unreachable", 6, message) },
            Self::Timeout { limit } => view("timeout", 7, &format!("not done within {limit}")),
            Self::Declined(message) => view("declined", 8, message),
            Self::Unverified { message, nearest } => {
                ErrorView { nearest: nearest.clone(), ..view("verification_failed", 9, message) }
            }
            Self::Job { exit, code, message, hint, nearest } => {
                ErrorView { hint: hint.clone(), nearest: nearest.clone(), ..view(code, *exit, message) }
            }
            Self::Interrupted => view("interrupted", 130, "interrupted"),
            Self::Terminated => view("terminated", 143, "terminated"),
            Self::Api(view) => (**view).clone(),
            Self::Pipe => view("pipe", 0, "the reader has closed the pipe"),
        }
    }

    /// Tells the error on stderr and gives its exit code.
    pub(crate) fn report(&self, json: bool) -> ExitCode {
        if matches!(self, Self::Pipe) {
            return ExitCode::SUCCESS;
        }
        let error = self.view();
        let exit = error.exit;
        let text =
            if json { serde_json::to_string(&ErrorBody { error }).unwrap_or_default() } else { self.text(&error) };
        // stderr may be closed; the exit code says the same.
        let _ = writeln!(std::io::stderr().lock(), "{text}");
        ExitCode::from(exit)
    }

    fn text(&self, error: &ErrorView) -> String {
        let mut lines = Vec::new();
        match self {
            // Each problem is a line that editors can jump to.
            Self::Invalid { file, problems } => {
                lines.extend(problems.iter().map(|problem| format!("error: {}", problem.in_file(file))));
            }
            // The line about what goes on has been printed already.
            Self::Interrupted | Self::Terminated => lines.push(error.message.clone()),
            _ => {
                lines.push(format!("error: {}", error.message));
                lines.extend(error.nearest.iter().map(|nearest| format!("  {nearest}")));
            }
        }
        lines.extend(error.hint.iter().map(|hint| format!("hint: {hint}")));
        lines.join("\n")
    }
}

impl From<HomeError> for CliError {
    fn from(error: HomeError) -> Self {
        if error.is_missing() {
            return Self::not_found(error).hint("souk init makes a home");
        }
        match error {
            HomeError::Io { .. } => Self::internal(error),
            _ => Self::usage(error),
        }
    }
}

impl From<IdentityError> for CliError {
    fn from(error: IdentityError) -> Self {
        match error {
            IdentityError::Home(error) => error.into(),
            IdentityError::Random(_) => Self::internal(error),
            IdentityError::Open { .. } | IdentityError::Malformed { .. } => Self::usage(error),
        }
    }
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::Api(view) => match view.code.as_str() {
                "not_found" => Self::NotFound { message: view.message, hint: view.hint },
                _ => Self::Api(view),
            },
            ClientError::Refused { .. } => Self::unreachable(error),
            ClientError::Broken { .. } => Self::unreachable(error).hint("souk status says whether the node still runs"),
            ClientError::Shape { .. } => Self::internal(error),
            ClientError::Local { .. } => Self::usage(error),
        }
    }
}

impl From<std::io::Error> for CliError {
    /// Errors of writing to stdout.
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::Pipe;
        }
        Self::internal(format!("cannot write to stdout: {error}"))
    }
}
