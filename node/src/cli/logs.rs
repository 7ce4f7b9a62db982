//! `souk logs`: the log of a task, to the byte.

mod follow;
mod lines;

use clap::{Args, ValueEnum};
use futures::StreamExt as _;
use souk_protocol::Millis;

use self::lines::{Stamper, Text};
use super::{
    Context,
    args::grammar,
    error::{CliError, Exit},
    job::segment,
    session::Session,
};
use crate::{clock, view::LogPart};

/// Longest log of which `--tail` shows the end: the most a job file may keep of one.
const MAX_TAIL: usize = 1 << 30;

#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Times are those at which bytes arrived at this node. The program may have written them earlier: by the \
    time on the way, or by as long as the two nodes did not hear of each other. They are kept with the log, \
    for long logs in coarser steps."
)]
pub(crate) struct LogsArgs {
    /// Id of the job, or its first characters; JOB/INDEX for one task of an array.
    job: String,
    /// Follow: print as it grows, until the log is complete. If the node goes away, wait for it and go on.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last lines; with -f those and what follows.
    #[arg(long, value_name = "N")]
    tail: Option<usize>,
    /// Only lines that began to arrive at this node within this time, e.g. 10m.
    #[arg(long, value_name = "DUR", value_parser = grammar::<Millis>)]
    since: Option<Millis>,
    /// Begin each line with the time at which it began to arrive at this node.
    #[arg(short, long)]
    timestamps: bool,
    /// Index of the task.
    #[arg(long, value_name = "I")]
    index: Option<u32>,
    /// Number of the attempt [default: the one that counts, else the latest; with -f later ones, too].
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
    /// Which of the two logs; both by default, each to its own stream here.
    #[arg(long, value_enum)]
    stream: Option<Stream>,
    /// With -f: how long to wait for a node that is away.
    #[arg(long, value_name = "DUR", value_parser = grammar::<Millis>, default_value = "60s", requires = "follow")]
    wait: Millis,
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

/// Which log is wanted, and from where on.
#[derive(Debug, Clone)]
struct Wanted<'a> {
    job: &'a str,
    index: u32,
    stream: Stream,
    attempt: Option<u32>,
    since: Option<souk_protocol::Timestamp>,
}

impl Wanted<'_> {
    /// The path of what there is.
    fn path(&self) -> String {
        let attempt = self.attempt.map_or_else(String::new, |number| format!("&attempt={number}"));
        let since = self.since.map_or_else(String::new, |since| format!("&since={since}"));
        format!("/v1/jobs/{}/logs?index={}&stream={}{attempt}{since}", self.job, self.index, self.stream.word())
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
    let (job, index) = target(args)?;
    let session = Session::daemon(context).await?;
    // Fixed now: what is wanted does not move on while the log is read.
    let since = args.since.map(|since| souk_protocol::Timestamp(clock::wall().0.saturating_sub(since.0)));
    let streams = args.stream.map_or_else(|| vec![Stream::Stdout, Stream::Stderr], |one| vec![one]);
    let wanted = streams.into_iter().map(|stream| Wanted { job, index, stream, attempt: args.attempt, since });
    if args.follow {
        return follow::run(context, args, session, wanted.collect()).await;
    }
    if context.printer.is_structured() {
        return json(context, args, &session, index, wanted).await;
    }
    for wanted in wanted {
        if args.timestamps || args.tail.is_some() {
            let text = whole(&session, &wanted).await?.tail(args.tail);
            let stamper = args.timestamps.then(Stamper::default);
            let bytes = stamper.map_or_else(|| text.bytes().to_vec(), |mut stamper| stamper.text(&text));
            out(context, args, wanted.stream, &bytes)?;
        } else {
            let mut chunks = std::pin::pin!(session.client.stream(&wanted.path()).await?);
            while let Some(chunk) = chunks.next().await {
                out(context, args, wanted.stream, &chunk?)?;
            }
        }
    }
    Ok(Exit::DONE)
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

/// What there is of a log, with its times.
async fn whole(session: &Session, wanted: &Wanted<'_>) -> Result<Text, CliError> {
    let mut parts = session.client.parts(&format!("{}&parts=1", wanted.path())).await?;
    let mut text = Text::default();
    while let Some(part) = parts.next().await {
        let part = part?;
        text.push(&part, &decoded(&part)?);
        if text.bytes().len() > MAX_TAIL {
            return Err(CliError::internal(format!("a log of more than {MAX_TAIL} bytes")));
        }
    }
    Ok(text)
}

fn decoded(part: &LogPart) -> Result<Vec<u8>, CliError> {
    data_encoding::BASE64
        .decode(part.data.as_bytes())
        .map_err(|error| CliError::internal(format!("a part of a log that is no base64: {error}")))
}

/// Both logs as one JSON value; bytes that are no text are base64. With -t each line's offset and time stand beside them.
async fn json(
    context: &Context,
    args: &LogsArgs,
    session: &Session,
    index: u32,
    wanted: impl Iterator<Item = Wanted<'_>>,
) -> Result<Exit, CliError> {
    let mut shown = serde_json::Map::new();
    shown.insert("index".to_owned(), index.into());
    for wanted in wanted {
        let text = whole(session, &wanted).await?.tail(args.tail);
        let stream = wanted.stream.word();
        match std::str::from_utf8(text.bytes()) {
            Ok(text) => shown.insert(stream.to_owned(), text.into()),
            Err(_) => shown.insert(format!("{stream}_base64"), data_encoding::BASE64.encode(text.bytes()).into()),
        };
        if args.timestamps {
            shown.insert(format!("{stream}_lines"), text.lines().map(|line| serde_json::json!(line)).collect());
        }
    }
    context.printer.value(&shown)?;
    Ok(Exit::DONE)
}
