//! Bars and stages on a terminal, plain lines elsewhere.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{
    cli::{Context, error::CliError, session::Session},
    submit::LocalFile,
};

/// Between two steps of a spinner.
const TICK: Duration = Duration::from_millis(100);

fn bar(context: &Context, length: u64, template: &str) -> ProgressBar {
    if !context.printer.has_progress() {
        return ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
    }
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::stderr()).with_style(style)
}

/// Gives the node the files it lacks.
pub(super) async fn upload(context: &Context, session: &Session, files: &[LocalFile]) -> Result<(), CliError> {
    let mut missing = Vec::new();
    for file in files {
        if session.client.blob_len(&file.hash).await?.is_none() {
            missing.push(file);
        }
    }
    let total = missing.iter().fold(0_u64, |sum, file| sum.saturating_add(file.len));
    let bar = bar(context, total, "upload {bar:30} {bytes}/{total_bytes} {bytes_per_sec}");
    for file in missing {
        let sent = bar.clone();
        session.client.put_blob(&file.hash, file.len, &file.path, move |len| sent.inc(len)).await?;
    }
    bar.finish_and_clear();
    Ok(())
}

/// The stages of a job.
#[derive(Debug)]
pub(super) struct Stages<'a> {
    context: &'a Context,
    bar: ProgressBar,
    last: String,
}

impl<'a> Stages<'a> {
    pub(super) fn new(context: &'a Context, tasks: u32) -> Self {
        let template = if tasks > 1 { "{spinner} {msg} {bar:30} {elapsed}" } else { "{spinner} {msg} {elapsed}" };
        let bar = bar(context, tasks.into(), template);
        if context.printer.has_progress() {
            bar.enable_steady_tick(TICK);
        }
        Self { context, bar, last: String::new() }
    }

    /// What happens now. On a terminal the line is replaced; elsewhere it is printed where it says something new.
    pub(super) fn stage(&mut self, text: &str, is_milestone: bool) {
        if text == self.last {
            return;
        }
        text.clone_into(&mut self.last);
        if self.context.printer.has_progress() {
            self.bar.set_message(text.to_owned());
        } else if is_milestone {
            self.context.printer.talk(text);
        }
    }

    pub(super) fn done(&self, tasks: u32) {
        self.bar.set_position(tasks.into());
    }

    /// Prints something above the line.
    pub(super) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Drop for Stages<'_> {
    fn drop(&mut self) {
        self.clear();
    }
}
