//! SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{SignalKind, signal};

use super::error::CliError;

/// What the user or the system wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// `kill`, or the end of the system.
    Terminate,
}

impl Signal {
    pub(crate) fn error(self) -> CliError {
        match self {
            Self::Interrupt => CliError::Interrupted,
            Self::Terminate => CliError::Terminated,
        }
    }
}

/// Waits for the next signal. Not cancel-safe in the sense that a signal between two calls is lost: keep a
/// [`Signals`] where that matters.
pub(crate) async fn any() -> Signal {
    match Signals::new() {
        Ok(mut signals) => signals.next().await,
        // Without handlers the default action of the system ends the process.
        Err(_) => std::future::pending().await,
    }
}

/// A stream of SIGHUP, which asks for the node file to be read again.
#[derive(Debug)]
pub(crate) struct Hangups(tokio::signal::unix::Signal);

impl Hangups {
    pub(crate) fn new() -> std::io::Result<Self> {
        signal(SignalKind::hangup()).map(Self)
    }

    /// The next one. Cancel-safe.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }
}

/// A stream of signals; none is lost between two calls of [`Signals::next`].
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// The next signal. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            Some(()) = self.interrupt.recv() => Signal::Interrupt,
            Some(()) = self.terminate.recv() => Signal::Terminate,
            else => std::future::pending().await,
        }
    }
}
