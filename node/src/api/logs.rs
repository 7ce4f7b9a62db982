//! Logs of a task, from any offset, live if wanted: as raw bytes, or in parts that say of which attempt they are and when
//! they arrived.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query},
    http::header,
    response::{IntoResponse as _, Response},
};
use data_encoding::BASE64;
use serde::Deserialize;
use souk_matcher::{Attempt, Notice, Task};
use souk_protocol::{AttemptId, JobId, Timestamp};
use tokio::sync::{
    broadcast::{Receiver, error::RecvError},
    mpsc,
};
use tokio_stream::wrappers::ReceiverStream;

use super::{App, State, error::ApiError, jobs::resolve};
use crate::{
    market::Stamped,
    store::Spool,
    view::{Big, LogPart},
};

/// Bytes read at once.
const CHUNK: u64 = 128 * 1024;
/// Chunks on their way to one reader.
const AHEAD: usize = 8;

/// Which log and how much of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    index: u32,
    /// This attempt and no other.
    attempt: Option<u32>,
    /// From this attempt on, at `offset` of its log; later ones from their first byte.
    from: Option<u32>,
    stream: Option<String>,
    #[serde(default)]
    offset: u64,
    /// Only lines whose first byte arrived then or later.
    since: Option<Timestamp>,
    #[serde(default)]
    follow: u8,
    /// 1: [`LogPart`]s, a line each.
    #[serde(default)]
    parts: u8,
}

/// The log. With `follow=1` it ends when the task is over and its log complete, whatever attempts that takes.
pub(super) async fn get(
    axum::extract::State(state): App,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, ApiError> {
    let job = resolve(&state, &id).await?;
    let stderr = match wanted.stream.as_deref() {
        None | Some("stdout") => false,
        Some("stderr") => true,
        Some(other) => return Err(ApiError::bad(format_args!("stream {other:?} is neither stdout nor stderr"))),
    };
    let (chunks, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(AHEAD);
    let (_, live) = state.node.market().feed().after(u64::MAX);
    let reader = Reader {
        job,
        index: wanted.index,
        only: wanted.attempt,
        stderr,
        since: wanted.since,
        follow: wanted.follow == 1,
        parts: wanted.parts == 1,
        chunks,
        live,
        state,
    };
    let place = Place { number: wanted.attempt.or(wanted.from), offset: wanted.offset, skips: false };
    let first = reader.find(place.number).await?;
    if wanted.index >= first.tasks {
        let last = first.tasks.saturating_sub(1);
        return Err(ApiError::missing(format_args!("job has no task {}, its last is {last}", wanted.index)));
    }
    if let (Some(found), false) = (&first.found, reader.follow) {
        let length = reader.spool(found).await.map_err(ApiError::internal)?.state().length;
        if place.offset > length {
            return Err(ApiError::range(format_args!("offset {} is beyond the log's {length} bytes", place.offset)));
        }
    }
    let kind = if reader.parts { "application/x-ndjson" } else { "application/octet-stream" };
    tokio::spawn(reader.run(place));
    Ok(([(header::CONTENT_TYPE, kind)], Body::from_stream(ReceiverStream::new(receiver))).into_response())
}

/// The attempt whose log is read.
#[derive(Debug, Clone, Copy)]
struct Found {
    attempt: AttemptId,
    cap: u64,
    /// Nothing more will come of it.
    ended: bool,
    /// Another one counts by now.
    superseded: bool,
}

/// What there is to read.
#[derive(Debug, Clone, Copy)]
struct Look {
    found: Option<Found>,
    tasks: u32,
    /// No further attempt will come.
    over: bool,
}

/// How far a reader is.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// In the log of this attempt; the one that counts, or the latest, if none is given.
    number: Option<u32>,
    offset: u64,
    /// Up to the next line.
    skips: bool,
}

/// Nobody listens any more, or the node stops.
struct Gone;

/// Reads a log for somebody.
struct Reader {
    state: Arc<State>,
    job: JobId,
    index: u32,
    only: Option<u32>,
    stderr: bool,
    since: Option<Timestamp>,
    follow: bool,
    parts: bool,
    chunks: mpsc::Sender<Result<Bytes, std::io::Error>>,
    live: Receiver<Arc<Stamped>>,
}

impl Reader {
    async fn run(mut self, place: Place) {
        let (stop, chunks) = (self.state.stop.clone(), self.chunks.clone());
        let stopped = tokio::select! {
            () = stop.cancelled() => true,
            done = self.read(place) => done.is_err(),
        };
        if stopped {
            // A body that just ended would look complete. A reader that is gone has no use for it.
            let _ = chunks.try_send(Err(std::io::Error::other("the node is stopping")));
        }
    }

    async fn read(&mut self, mut place: Place) -> Result<(), Gone> {
        let mut entered = None;
        loop {
            let Look { found, over, .. } = self.find(place.number).await.map_err(|_| Gone)?;
            let Some(found) = found else {
                if !self.follow || over {
                    return self.end(place).await;
                }
                self.turn().await?;
                continue;
            };
            place.number = Some(found.attempt.number);
            let spool = self.spool(&found).await.map_err(|_| Gone)?;
            let mut grown = spool.watch();
            if entered != Some(found.attempt) {
                entered = Some(found.attempt);
                self.skip_old(&spool, &mut place).await.map_err(|_| Gone)?;
            }
            self.drain(&spool, &mut place).await?;
            let complete = spool.state().closed.is_some_and(|closed| closed.length <= place.offset);
            if (found.ended || complete) && found.superseded && self.only.is_none() {
                place = Place { number: None, offset: 0, skips: false };
                continue;
            }
            if !self.follow || (found.ended && over) || (self.only.is_some() && (found.ended || complete)) {
                return self.end(place).await;
            }
            let chunks = self.chunks.clone();
            tokio::select! {
                more = grown.wait_for(|state| state.length > place.offset), if !complete && !found.ended => {
                    more.map_err(|_| Gone)?;
                }
                turn = self.turn() => turn?,
                () = chunks.closed() => return Err(Gone),
            }
        }
    }

    async fn find(&self, number: Option<u32>) -> Result<Look, ApiError> {
        let (job, index, only) = (self.job, self.index, self.only);
        let look = move |trader: &souk_matcher::Trader| {
            let job = trader.renter.job(&job)?;
            let task = usize::try_from(index).ok().and_then(|index| job.tasks().get(index));
            let over = job.state().is_final() || task.is_some_and(|task| task.state().is_final());
            // The attempt whose result counts, else the latest.
            let counts = task.and_then(|task| task.winner().or_else(|| task.attempts().last()));
            let wanted = |number| task.map(Task::attempts)?.iter().find(|attempt| attempt.id.number == number);
            let attempt: Option<&Attempt> = match (only, number) {
                (Some(only), _) => wanted(only),
                (None, Some(number)) => wanted(number).or(counts),
                (None, None) => counts,
            };
            let found = attempt.map(|attempt| Found {
                attempt: attempt.id,
                cap: job.spec().terms.stdout.0,
                ended: job.state().is_final() || !attempt.is_open(),
                superseded: counts
                    .is_some_and(|counts| counts.id != attempt.id && (!attempt.is_open() || counts.verdict.is_some())),
            });
            Some(Look { found, tasks: job.spec().task_count(), over })
        };
        self.state.node.market().with(look).await?.ok_or_else(|| ApiError::missing("no such job"))
    }

    async fn spool(&self, found: &Found) -> Result<Spool, crate::store::SpoolError> {
        let logs = self.state.node.logs();
        let (attempt, cap) = (&found.attempt, found.cap);
        let logs = if found.ended { logs.ended(attempt, cap).await } else { logs.of(attempt, cap).await }?;
        Ok(if self.stderr { logs.stderr } else { logs.stdout })
    }

    /// Goes to the first line that is young enough.
    async fn skip_old(&self, spool: &Spool, place: &mut Place) -> Result<(), crate::store::SpoolError> {
        let Some(since) = self.since else { return Ok(()) };
        let start = spool.offset_since(since);
        if start <= place.offset {
            return Ok(());
        }
        place.offset = start;
        place.skips = spool.read(start.saturating_sub(1), 1).await?.first() != Some(&b'\n');
        Ok(())
    }

    /// Sends what is there.
    async fn drain(&self, spool: &Spool, place: &mut Place) -> Result<(), Gone> {
        while spool.state().length > place.offset {
            let mut start = place.offset;
            let bytes = spool.read(start, CHUNK).await.map_err(|_| Gone)?;
            if bytes.is_empty() {
                return Err(Gone); // the file is shorter than it was
            }
            place.offset = start.saturating_add(bytes.len() as u64);
            let mut rest = bytes.as_slice();
            if place.skips {
                let line = rest.iter().position(|byte| *byte == b'\n').map(|at| at.saturating_add(1));
                place.skips = line.is_none();
                rest = line.and_then(|line| rest.get(line..)).unwrap_or_default();
                start = place.offset.saturating_sub(rest.len() as u64);
            }
            if rest.is_empty() {
                continue;
            }
            if self.parts {
                self.send_parts(spool, place.number, start, rest).await?;
            } else {
                self.send(Bytes::copy_from_slice(rest)).await?;
            }
        }
        Ok(())
    }

    /// Sends bytes in parts that arrived at one time.
    async fn send_parts(&self, spool: &Spool, number: Option<u32>, mut offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        let mut rest = bytes;
        let mut lines = Vec::new();
        while !rest.is_empty() {
            let (at, next) = spool.arrived(offset);
            let span = next.map_or(rest.len(), |next| {
                usize::try_from(next.saturating_sub(offset)).unwrap_or(usize::MAX).min(rest.len())
            });
            let (part, after) = rest.split_at_checked(span).unwrap_or((rest, &[]));
            let attempt = number.unwrap_or_default();
            let part = LogPart { attempt, offset: Big(offset), at, data: BASE64.encode(part), end: false };
            line(&part, &mut lines)?;
            offset = offset.saturating_add(span as u64);
            rest = after;
        }
        self.send(lines.into()).await
    }

    async fn end(&self, place: Place) -> Result<(), Gone> {
        if !self.parts {
            return Ok(());
        }
        let attempt = place.number.unwrap_or_default();
        let mut lines = Vec::new();
        line(&LogPart { attempt, offset: Big(place.offset), at: None, data: String::new(), end: true }, &mut lines)?;
        self.send(lines.into()).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        self.chunks.send(Ok(bytes)).await.map_err(|_| Gone)
    }

    /// Waits until something happens to the job.
    async fn turn(&mut self) -> Result<(), Gone> {
        loop {
            match self.live.recv().await {
                Ok(stamped) => match &stamped.notice {
                    Notice::Attempt { job, .. }
                    | Notice::AttemptEnded { job, .. }
                    | Notice::Task { job, .. }
                    | Notice::Job { job, .. }
                        if *job == self.job =>
                    {
                        return Ok(());
                    }
                    _ => {}
                },
                Err(RecvError::Lagged(_)) => return Ok(()),
                Err(RecvError::Closed) => return Err(Gone),
            }
        }
    }
}

fn line(part: &LogPart, into: &mut Vec<u8>) -> Result<(), Gone> {
    serde_json::to_writer(&mut *into, part).map_err(|_| Gone)?;
    into.push(b'\n');
    Ok(())
}
