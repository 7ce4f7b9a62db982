//! `souk logs`: the log of a task, to the byte.

use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use souk_protocol::Millis;

use super::{
    Context,
    args::grammar,
    error::{CliError, Exit},
    job::segment,
    session::Session,
    signal::Signals,
};
use crate::{client::ClientError, view::Job};

/// Longest log of which `--tail` shows the end: the most a job file may keep of one.
const MAX_TAIL: usize = 1 << 30;

#[derive(Debug, Clone, Args)]
pub(crate) struct LogsArgs {
    /// Id of the job, or its first characters; JOB/INDEX for one task of an array.
    job: String,
    /// Follow: print as it grows, until the log is complete.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last lines.
    #[arg(long, value_name = "N", conflicts_with = "follow")]
    tail: Option<usize>,
    /// Not available yet: log lines carry no times.
    #[arg(long, value_name = "DUR", value_parser = grammar::<Millis>)]
    since: Option<Millis>,
    /// Not available yet: log lines carry no times.
    #[arg(short, long)]
    timestamps: bool,
    /// Index of the task.
    #[arg(long, value_name = "I")]
    index: Option<u32>,
    /// Number of the attempt [default: the last].
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Which of the two logs; both by default, each to its own stream here.
    #[arg(long, value_enum)]
    stream: Option<Stream>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    const fn word(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// `JOB` or `JOB/INDEX`.
fn target(args: &LogsArgs) -> Result<(&str, u32), CliError> {
    let (job, in_name) = match args.job.split_once('/') {
        None => (args.job.as_str(), None),
        Some((job, index)) => {
            let index = index.parse::<u32>().map_err(|_| {
                CliError::usage(format!("{:?}: after the slash the index of a task is expected", args.job))
            })?;
            (job, Some(index))
        }
    };
    match (in_name, args.index) {
        (Some(a), Some(b)) if a != b => {
            Err(CliError::usage(format!("task {a} by name and task {b} by --index: choose one")))
        }
        (a, b) => Ok((segment(job)?, a.or(b).unwrap_or(0))),
    }
}

pub(crate) async fn run(context: &Context, args: &LogsArgs) -> Result<Exit, CliError> {
    if args.since.is_some() || args.timestamps {
        return Err(CliError::usage("not available yet: --since and -t, log lines carry no times").hint("use --tail N"));
    }
    let (job, index) = target(args)?;
    let session = Session::daemon(context).await?;
    if args.follow {
        return follow(context, args, &session, job, index).await;
    }
    if context.printer.is_json() {
        return json(context, args, &session, job, index).await;
    }
    for stream in streams(args) {
        copy(context, args, &session, (job, index), stream).await?;
    }
    Ok(Exit::DONE)
}

fn streams(args: &LogsArgs) -> Vec<Stream> {
    args.stream.map_or_else(|| vec![Stream::Stdout, Stream::Stderr], |one| vec![one])
}

fn path(args: &LogsArgs, (job, index): (&str, u32), stream: Stream, offset: u64, follow: bool) -> String {
    let attempt = args.attempt.map_or_else(String::new, |number| format!("&attempt={number}"));
    let follow = if follow { "&follow=1" } else { "" };
    format!("/v1/jobs/{job}/logs?index={index}&stream={}&offset={offset}{attempt}{follow}", stream.word())
}

fn out(context: &Context, args: &LogsArgs, stream: Stream, bytes: &[u8]) -> Result<(), CliError> {
    // The log that was asked for by name is the result, whichever it is.
    if stream == Stream::Stdout || args.stream.is_some() {
        context.printer.bytes(bytes)
    } else {
        context.printer.err_bytes(bytes);
        Ok(())
    }
}

/// Prints what there is.
async fn copy(
    context: &Context,
    args: &LogsArgs,
    session: &Session,
    task: (&str, u32),
    stream: Stream,
) -> Result<(), CliError> {
    let path = path(args, task, stream, 0, false);
    if let Some(lines) = args.tail {
        let all = session.client.bytes(&path, MAX_TAIL).await?;
        return out(context, args, stream, tail(&all, lines));
    }
    let mut chunks = std::pin::pin!(session.client.stream(&path).await?);
    while let Some(chunk) = chunks.next().await {
        out(context, args, stream, &chunk?)?;
    }
    Ok(())
}

/// The last lines; an unfinished one counts.
fn tail(bytes: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return &[];
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let newlines = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    let start = newlines.map(|(at, _)| at.saturating_add(1)).nth(lines.saturating_sub(1)).unwrap_or(0);
    bytes.get(start..).unwrap_or(&[])
}

/// Both logs as one JSON value; bytes that are no text are base64.
async fn json(context: &Context, args: &LogsArgs, session: &Session, job: &str, index: u32) -> Result<Exit, CliError> {
    let mut shown = serde_json::Map::new();
    shown.insert("index".to_owned(), index.into());
    for stream in streams(args) {
        let bytes = session.client.bytes(&path(args, (job, index), stream, 0, false), MAX_TAIL).await?;
        let bytes = args.tail.map_or(bytes.as_slice(), |lines| tail(&bytes, lines));
        match std::str::from_utf8(bytes) {
            Ok(text) => shown.insert(stream.word().to_owned(), text.into()),
            Err(_) => shown.insert(format!("{}_base64", stream.word()), data_encoding::BASE64.encode(bytes).into()),
        };
    }
    context.printer.json(&shown)?;
    Ok(Exit::DONE)
}

/// Follows both logs until they are complete; a break is resumed by offset.
async fn follow(
    context: &Context,
    args: &LogsArgs,
    session: &Session,
    job: &str,
    index: u32,
) -> Result<Exit, CliError> {
    let mut signals = Signals::new().map_err(CliError::internal)?;
    let task = (job, index);
    let both = async {
        let streams = streams(args);
        let mut followed =
            streams.iter().map(|stream| follow_one(context, args, session, task, *stream)).collect::<Vec<_>>();
        match (followed.pop(), followed.pop()) {
            (Some(a), Some(b)) => tokio::try_join!(a, b).map(|_| ()),
            (Some(a), None) => a.await,
            _ => Ok(()),
        }
    };
    tokio::select! {
        done = both => done.map(|()| Exit::DONE),
        signal = signals.next() => {
            let job: Job = session.client.get(&format!("/v1/jobs/{job}")).await?;
            if !job.state.is_final() {
                super::run::tell_detached(context, &job);
            }
            Err(signal.error())
        }
    }
}

async fn follow_one(
    context: &Context,
    args: &LogsArgs,
    session: &Session,
    task: (&str, u32),
    stream: Stream,
) -> Result<(), CliError> {
    /// Breaks in a row without a byte before it gives up.
    const BREAKS: u32 = 5;
    let mut offset = 0_u64;
    let mut breaks = 0;
    loop {
        let broken = {
            let mut chunks = std::pin::pin!(session.client.stream(&path(args, task, stream, offset, true)).await?);
            loop {
                match chunks.next().await {
                    None => return Ok(()),
                    Some(Ok(chunk)) => {
                        offset = offset.saturating_add(chunk.len() as u64);
                        breaks = 0;
                        if context.printer.is_json() {
                            let line = serde_json::json!({
                                "index": task.1,
                                "stream": stream.word(),
                                "offset": (offset.saturating_sub(chunk.len() as u64)).to_string(),
                                "data": data_encoding::BASE64.encode(&chunk),
                            });
                            context.printer.json_line(&line)?;
                        } else {
                            out(context, args, stream, &chunk)?;
                        }
                    }
                    Some(Err(error)) => break error,
                }
            }
        };
        breaks += 1;
        if breaks > BREAKS || !matches!(broken, ClientError::Broken { .. } | ClientError::Refused { .. }) {
            return Err(broken.into());
        }
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_counts_lines_whether_the_last_is_finished_or_not() {
        assert_eq!(tail(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(tail(b"a\nb\nc", 2), b"b\nc");
        assert_eq!(tail(b"a\nb\n", 9), b"a\nb\n");
        assert_eq!(tail(b"a\n", 0), b"");
        assert_eq!(tail(b"", 3), b"");
        assert_eq!(tail(b"\n\n\n", 1), b"\n");
    }
}
