//! Following a job: stages, logs to the byte, and what Ctrl-C means.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::StreamExt as _;
use souk_matcher::{JobState, TaskState};
use souk_protocol::{JobId, Millis};
use tokio::time::Instant;

use super::{
    end::tell_detached,
    passed,
    progress::Stages,
    text::{auction_text, event_text},
};
use crate::{
    cli::{Context, error::CliError, job, session::Session, signal::Signals},
    client::ClientError,
    view::{Job, JobEvent, JobEventKind},
};

/// Longest wait for a cancelled job to end before the command does.
const CANCEL: Duration = Duration::from_secs(15);
/// Breaks of the event stream in a row before it gives up.
const BREAKS: u32 = 10;
/// Longest line of a task that is kept whole for its prefix.
const MAX_LINE: usize = 64 * 1024;

/// A job that is being followed.
#[derive(Debug)]
pub(super) struct Follow<'a> {
    pub(super) context: &'a Context,
    pub(super) session: &'a Session,
    pub(super) job: JobId,
    pub(super) tasks: u32,
    /// Whether Ctrl-C cancels the job.
    pub(super) cancels: bool,
    pub(super) deadline: Option<(Instant, Millis)>,
}

impl Follow<'_> {
    /// Returns when the job is at its end.
    pub(super) async fn run(&self, signals: &mut Signals) -> Result<(), CliError> {
        let mut stages = Stages::new(self.context, self.tasks);
        let mut seen = Seen { logs: Logs::new(self.tasks), ..Seen::default() };
        let mut follow = std::pin::pin!(self.events(&mut stages, &mut seen));
        let why = tokio::select! {
            ended = &mut follow => return ended,
            signal = signals.next() => signal.error(),
            limit = passed(self.deadline) => CliError::Timeout { limit },
        };
        if !self.cancels {
            let job = self.job().await;
            if let Ok(job) = job.as_ref()
                && !job.state.is_final()
            {
                tell_detached(self.context, job);
            }
            return Err(why);
        }
        self.context.printer.talk(format_args!("\ncancelling job {}", self.job.short()));
        let cancel = async {
            let path = format!("/v1/jobs/{}/cancel", self.job);
            self.session.client.post::<Job>(&path, &()).await.map_err(CliError::from)
        };
        let cancelled = async {
            cancel.await?;
            tokio::time::timeout(CANCEL, &mut follow).await.unwrap_or(Ok(()))
        };
        tokio::select! {
            done = cancelled => done?,
            // Whoever asks twice does not want to wait.
            signal = signals.next() => return Err(signal.error()),
        }
        if let Ok(job) = self.job().await {
            let text = format!("job {} is {}, cost {}", self.job.short(), job.state.word(), job.cost.short());
            self.context.printer.talk(text);
        }
        Err(why)
    }

    async fn job(&self) -> Result<Job, ClientError> {
        self.session.client.get(&format!("/v1/jobs/{}", self.job)).await
    }

    /// Reads events until the job's end; a break is resumed by number and offset.
    async fn events(&self, stages: &mut Stages<'_>, seen: &mut Seen) -> Result<(), CliError> {
        stages.stage(&format!("job {} is submitted", self.job.short()), true);
        let wants_logs = !self.context.printer.is_structured();
        let mut breaks = 0;
        loop {
            let broken = match self.session.client.events(&self.job.to_string(), seen.seq, wants_logs).await {
                Err(error) => Some(error),
                Ok(mut events) => loop {
                    match events.next().await {
                        None => break None,
                        Some(Err(error)) => break Some(error),
                        Some(Ok(event)) => {
                            breaks = 0;
                            self.event(stages, seen, &event)?;
                        }
                    }
                },
            };
            match broken {
                // The stream ends after the end state and the last byte of the logs.
                None if seen.ended || self.job().await?.state.is_final() => {
                    stages.above(|| seen.logs.flush(self.context))?;
                    return Ok(());
                }
                None | Some(ClientError::Broken { .. } | ClientError::Refused { .. }) if breaks < BREAKS => {
                    breaks += 1;
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                None => return Err(CliError::unreachable("the node ends the event stream again and again")),
                Some(error) => return Err(error.into()),
            }
        }
    }

    fn event(&self, stages: &mut Stages<'_>, seen: &mut Seen, event: &JobEvent) -> Result<(), CliError> {
        seen.seq = seen.seq.max(event.seq.0);
        if self.context.printer.is_verbose() && !matches!(event.what, JobEventKind::Log { .. }) {
            stages.above(|| self.context.printer.talk(event_text(&event.what)));
        }
        match &event.what {
            JobEventKind::State { state, because } => {
                seen.ended = state.is_final();
                let because = because.first().map_or_else(String::new, |first| format!(": {}", job::reason(first)));
                match state {
                    JobState::Running => self.running(stages, seen),
                    // More slots are sought while tasks run: what runs says more.
                    JobState::Bidding | JobState::Placing | JobState::Verifying
                        if seen.started && because.is_empty() => {}
                    _ => stages.stage(&format!("{}{because}", state.word()), true),
                }
            }
            JobEventKind::Auction(auction) if !seen.started => {
                stages.stage(&format!("bidding {}", auction_text(auction)), true);
            }
            JobEventKind::Progress { state, .. } if state == "running" && !seen.started => self.running(stages, seen),
            JobEventKind::Task { index, state } => {
                match state {
                    TaskState::Done => seen.done.insert(*index),
                    TaskState::Failed => seen.failed.insert(*index),
                    _ => false,
                };
                self.running(stages, seen);
            }
            JobEventKind::AttemptEnded { end, .. } if end != "done" => {
                stages.above(|| self.context.printer.talk(event_text(&event.what)));
            }
            JobEventKind::Log { index, attempt, stream, offset, data } => {
                let key = (*index, *attempt, stream == "stderr");
                let bytes = data_encoding::BASE64
                    .decode(data.as_bytes())
                    .map_err(|error| CliError::internal(format!("a log chunk that is no base64: {error}")))?;
                stages.above(|| seen.logs.chunk(self.context, key, offset.0, &bytes))?;
            }
            _ => {}
        }
        Ok(())
    }

    fn running(&self, stages: &mut Stages<'_>, seen: &mut Seen) {
        let done = u32::try_from(seen.done.len()).unwrap_or(u32::MAX);
        let failed = match seen.failed.len() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        stages.done(done);
        stages.stage(&format!("running {done}/{}{failed}", self.tasks), !seen.started);
        seen.started = true;
    }
}

/// What has been seen of a job.
#[derive(Debug, Default)]
struct Seen {
    seq: u64,
    /// Whether a task has run: stages before that are over.
    started: bool,
    ended: bool,
    done: BTreeSet<u32>,
    failed: BTreeSet<u32>,
    logs: Logs,
}

/// Task, attempt, and whether it is stderr.
type LogKey = (u32, u32, bool);

/// Logs on their way to stdout and stderr.
#[derive(Debug, Default)]
struct Logs {
    /// Arrays: each line starts with the index of its task.
    prefixed: bool,
    offsets: BTreeMap<LogKey, u64>,
    /// Unfinished lines.
    rest: BTreeMap<LogKey, Vec<u8>>,
}

impl Logs {
    fn new(tasks: u32) -> Self {
        Self { prefixed: tasks > 1, ..Self::default() }
    }

    /// Prints what is new of a chunk.
    fn chunk(&mut self, context: &Context, key: LogKey, offset: u64, bytes: &[u8]) -> Result<(), CliError> {
        let text = self.take(key, offset, bytes);
        print(context, key.2, &text)
    }

    /// What is to be printed for a chunk: nothing that was printed before.
    fn take(&mut self, key: LogKey, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let sent = self.offsets.entry(key).or_default();
        let skip = usize::try_from(sent.saturating_sub(offset)).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(skip..).filter(|new| !new.is_empty()) else { return Vec::new() };
        *sent = offset.saturating_add(bytes.len() as u64);
        if !self.prefixed {
            return new.to_vec();
        }
        let rest = self.rest.entry(key).or_default();
        rest.extend_from_slice(new);
        let whole = rest.iter().rposition(|byte| *byte == b'\n').map(|at| at.saturating_add(1));
        // A line without an end must not grow for ever.
        let whole = whole.or_else(|| (rest.len() > MAX_LINE).then_some(rest.len()));
        let lines: Vec<u8> = whole.map(|whole| rest.drain(..whole).collect()).unwrap_or_default();
        prefixed(key.0, &lines)
    }

    /// Prints unfinished last lines.
    fn flush(&mut self, context: &Context) -> Result<(), CliError> {
        for (key, rest) in std::mem::take(&mut self.rest) {
            print(context, key.2, &prefixed(key.0, &rest))?;
        }
        Ok(())
    }
}

fn prefixed(index: u32, lines: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines.len().saturating_add(16));
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        out.extend_from_slice(format!("[{index}] ").as_bytes());
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.push(b'\n');
        }
    }
    out
}

fn print(context: &Context, is_stderr: bool, bytes: &[u8]) -> Result<(), CliError> {
    if bytes.is_empty() {
        return Ok(());
    }
    if is_stderr {
        context.printer.err_bytes(bytes);
        return Ok(());
    }
    context.printer.bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_single_task_is_exact_whatever_is_sent_twice() {
        let mut logs = Logs::new(1);
        assert_eq!(logs.take((0, 1, false), 0, b"ab"), b"ab");
        assert_eq!(logs.take((0, 1, false), 0, b"abc\xff"), b"c\xff");
        assert_eq!(logs.take((0, 1, false), 1, b"bc"), b"");
        assert_eq!(logs.take((0, 1, true), 0, b"e"), b"e");
        assert_eq!(logs.take((0, 2, false), 0, b"ab"), b"ab");
    }

    #[test]
    fn lines_of_arrays_carry_the_index_and_are_never_mixed() {
        let mut logs = Logs::new(2);
        assert_eq!(logs.take((0, 1, false), 0, b"a\nb"), b"[0] a\n");
        assert_eq!(logs.take((1, 1, false), 0, b"x\n"), b"[1] x\n");
        assert_eq!(logs.take((0, 1, false), 3, b"c\n\n"), b"[0] bc\n[0] \n");
        assert_eq!(logs.take((0, 1, false), 6, b"end"), b"");
        assert_eq!(prefixed(0, &logs.rest[&(0, 1, false)]), b"[0] end\n");
    }
}
