//! Logs of a task as raw bytes, from any offset, live if wanted.

use axum::{
    body::{Body, Bytes},
    extract::{Path, Query},
    http::header,
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use souk_matcher::Notice;
use souk_protocol::{AttemptId, JobId};
use tokio::sync::{broadcast::error::RecvError, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::{App, State, error::ApiError, jobs::resolve};
use crate::store::Spool;

/// Bytes read at once.
const CHUNK: u64 = 128 * 1024;

/// Which log and how much of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[serde(default)]
    index: u32,
    attempt: Option<u32>,
    stream: Option<String>,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: u8,
}

/// The log. With `follow=1` it ends when the log is complete.
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
    let (chunks, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(8);
    let (index, number) = (wanted.index, wanted.attempt);
    let follow = wanted.follow == 1;
    let first = find(&state, job, index, number).await?;
    if let Found::None { tasks } = first
        && index >= tasks
    {
        return Err(ApiError::missing(format_args!(
            "job has no task {index}, its last is {}",
            tasks.saturating_sub(1)
        )));
    }
    if let (Found::None { .. }, false) = (&first, follow) {
        return Ok(bytes(Body::empty()));
    }
    if let Found::Attempt { attempt, cap, over } = &first {
        let length = spool(&state, attempt, *cap, *over, stderr).await?.state().length;
        if wanted.offset > length && !follow {
            return Err(ApiError::range(format_args!("offset {} is beyond the log's {length} bytes", wanted.offset)));
        }
    }
    let stop = state.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = send(&state, job, (index, number), stderr, wanted.offset, follow, &chunks) => {}
        }
    });
    Ok(bytes(Body::from_stream(ReceiverStream::new(receiver))))
}

fn bytes(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/octet-stream")], body).into_response()
}

/// The attempt whose log is wanted.
#[derive(Debug, Clone, Copy)]
enum Found {
    Attempt {
        attempt: AttemptId,
        cap: u64,
        /// Nothing more will come.
        over: bool,
    },
    None {
        tasks: u32,
    },
}

async fn find(state: &State, job: JobId, index: u32, number: Option<u32>) -> Result<Found, ApiError> {
    let look = move |trader: &souk_matcher::Trader| {
        let job = trader.renter.job(&job)?;
        let cap = job.spec().terms.stdout.0;
        let over = job.state().is_final();
        let task = usize::try_from(index).ok().and_then(|index| job.tasks().get(index));
        let attempts = task.map(souk_matcher::Task::attempts).unwrap_or_default();
        // Without a number: the attempt whose result counts, else the latest.
        let found = match number {
            Some(number) => attempts.iter().find(|attempt| attempt.id.number == number),
            None => task.and_then(souk_matcher::Task::winner).or_else(|| attempts.last()),
        };
        Some(match found {
            Some(attempt) => Found::Attempt { attempt: attempt.id, cap, over: over || !attempt.is_open() },
            None => Found::None { tasks: job.spec().task_count() },
        })
    };
    state.node.market().with(look).await?.ok_or_else(|| ApiError::missing("no such job"))
}

async fn spool(state: &State, attempt: &AttemptId, cap: u64, over: bool, stderr: bool) -> Result<Spool, ApiError> {
    let logs = state.node.logs();
    let logs = if over { logs.ended(attempt, cap).await } else { logs.of(attempt, cap).await };
    let logs = logs.map_err(ApiError::internal)?;
    Ok(if stderr { logs.stderr } else { logs.stdout })
}

async fn send(
    state: &State,
    job: JobId,
    (index, number): (u32, Option<u32>),
    stderr: bool,
    mut offset: u64,
    follow: bool,
    chunks: &mpsc::Sender<Result<Bytes, std::io::Error>>,
) {
    let (_, mut live) = state.node.market().feed().after(u64::MAX);
    loop {
        let Ok(found) = find(state, job, index, number).await else { return };
        if let Found::Attempt { attempt, cap, over } = found {
            let Ok(spool) = spool(state, &attempt, cap, over, stderr).await else { return };
            let mut watch = spool.watch();
            while spool.state().length > offset {
                let Ok(bytes) = spool.read(offset, CHUNK).await else { return };
                offset = offset.saturating_add(bytes.len() as u64);
                if bytes.is_empty() || chunks.send(Ok(bytes.into())).await.is_err() {
                    return;
                }
            }
            let complete = spool.state().closed.is_some_and(|closed| closed.length <= offset);
            if !follow || complete || over {
                return;
            }
            tokio::select! {
                grown = watch.wait_for(|state| state.length > offset || state.closed.is_some()) => {
                    if grown.is_err() { return }
                }
                turn = turn(&mut live, job) => if turn.is_none() { return },
                () = chunks.closed() => return,
            }
        } else {
            tokio::select! {
                turn = turn(&mut live, job) => if turn.is_none() { return },
                () = chunks.closed() => return,
            }
        }
    }
}

/// Waits for the next notice about an attempt or the end of the job.
async fn turn(
    live: &mut tokio::sync::broadcast::Receiver<std::sync::Arc<crate::market::Stamped>>,
    id: JobId,
) -> Option<()> {
    loop {
        match live.recv().await {
            Ok(stamped) => match &stamped.notice {
                Notice::Attempt { job, .. } | Notice::AttemptEnded { job, .. } | Notice::Job { job, .. }
                    if *job == id =>
                {
                    return Some(());
                }
                _ => {}
            },
            Err(RecvError::Lagged(_)) => return Some(()),
            Err(RecvError::Closed) => return None,
        }
    }
}
