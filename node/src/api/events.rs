//! What happens to a job, as it happens: server-sent events, with logs if wanted.

use std::{collections::BTreeSet, convert::Infallible, sync::Arc};

use axum::{
    extract::{Path, Query},
    response::{
        Sse,
        sse::{Event as SseEvent, KeepAlive},
    },
};
use data_encoding::BASE64;
use futures::Stream;
use serde::Deserialize;
use souk_matcher::{AuctionReport, JobState, Notice};
use souk_protocol::{AttemptId, JobId, Party, RunState};
use tokio::sync::{broadcast::error::RecvError, mpsc};
use tokio_stream::wrappers::ReceiverStream;

use super::{App, State, error::ApiError, jobs::resolve};
use crate::{
    market::Stamped,
    store::{AttemptLogs, Spool},
    view::{Auction, BidView, Big, DeclineView, JobEvent, JobEventKind},
};

/// Events on their way to one reader. A reader that is slower than the job lags behind in the feed, not in memory here.
const AHEAD: usize = 256;
/// Bytes of a log in one event.
const LOG_CHUNK: u64 = 48 * 1024;

/// What to stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only events after this one.
    #[serde(default)]
    from: u64,
    /// 1: logs, too.
    #[serde(default)]
    logs: u8,
}

/// Streams events until the job's end state.
pub(super) async fn stream(
    axum::extract::State(state): App,
    Path(id): Path<String>,
    Query(wanted): Query<Wanted>,
) -> Result<Sse<impl Stream<Item = Result<SseEvent, Infallible>>>, ApiError> {
    let job = resolve(&state, &id).await?;
    let (events, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(
        Follow { state, job, events, logs: wanted.logs == 1, seq: wanted.from, followed: BTreeSet::new() }.run(),
    );
    Ok(Sse::new(ReceiverStream::new(receiver)).keep_alive(KeepAlive::default()))
}

/// One reader's place in the feed.
struct Follow {
    state: Arc<State>,
    job: JobId,
    events: mpsc::Sender<Result<SseEvent, Infallible>>,
    logs: bool,
    seq: u64,
    followed: BTreeSet<AttemptId>,
}

/// The reader went away, or the job has ended.
struct Over;

impl Follow {
    async fn run(mut self) {
        let stop = self.state.stop.clone();
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.follow() => {}
        }
    }

    async fn follow(&mut self) -> Result<(), Over> {
        // Logs end with their attempts, and the stream ends when both the job and its logs are over.
        let (log_events, mut logs) = mpsc::channel::<JobEvent>(AHEAD);
        let mut log_events = Some(log_events);
        let (past, mut live) = self.state.node.market().feed().after(self.seq);
        // A job of an earlier run of the node has no past here: its state is told as the first event.
        let (known, spec_cap) = self.snapshot().await?;
        if !past.iter().any(|stamped| is_state_of(stamped, &self.job)) {
            self.say(0, crate::clock::wall(), JobEventKind::State { state: known, because: Vec::new() }).await?;
            if known.is_final() {
                return Err(Over);
            }
        }
        for stamped in past {
            if self.tell(&stamped, &mut log_events, spec_cap).await? {
                log_events = None;
            }
        }
        loop {
            tokio::select! {
                biased;
                log = logs.recv() => match log {
                    Some(event) => self.send(&event).await?,
                    None => return Err(Over),
                },
                stamped = live.recv(), if log_events.is_some() => match stamped {
                    Ok(stamped) => {
                        if self.tell(&stamped, &mut log_events, spec_cap).await? {
                            log_events = None;
                        }
                    }
                    Err(RecvError::Lagged(missed)) => {
                        self.say(self.seq, crate::clock::wall(), JobEventKind::Gap { missed: Big(missed) }).await?;
                        if self.snapshot().await?.0.is_final() {
                            log_events = None;
                        }
                    }
                    Err(RecvError::Closed) => return Err(Over),
                },
            }
        }
    }

    async fn snapshot(&self) -> Result<(JobState, u64), Over> {
        let job = self.job;
        let look = move |trader: &souk_matcher::Trader| {
            trader.renter.job(&job).map(|job| (job.state(), job.spec().terms.stdout.0))
        };
        self.state.node.market().with(look).await.ok().flatten().ok_or(Over)
    }

    /// Tells one notice if it is about the job; true if it was the last.
    async fn tell(
        &mut self,
        stamped: &Stamped,
        logs: &mut Option<mpsc::Sender<JobEvent>>,
        cap: u64,
    ) -> Result<bool, Over> {
        let Some((job, what)) = job_event(&stamped.notice) else { return Ok(false) };
        if job != self.job {
            return Ok(false);
        }
        self.seq = stamped.seq;
        let last = matches!(&what, JobEventKind::State { state, .. } if state.is_final());
        self.say(stamped.seq, stamped.at, what).await?;
        if let (true, Some(logs), Notice::Attempt { attempt, .. }) = (self.logs, logs.as_ref(), &stamped.notice)
            && self.followed.insert(*attempt)
        {
            let (state, attempt, logs) = (Arc::clone(&self.state), *attempt, logs.clone());
            tokio::spawn(async move { follow_logs(&state, job, attempt, cap, logs).await });
        }
        Ok(last)
    }

    async fn say(&self, seq: u64, at: souk_protocol::Timestamp, what: JobEventKind) -> Result<(), Over> {
        self.send(&JobEvent { seq: Big(seq), at, job: self.job, what }).await
    }

    async fn send(&self, event: &JobEvent) -> Result<(), Over> {
        let text = serde_json::to_string(event).map_err(|_| Over)?;
        let event = SseEvent::default().id(event.seq.0.to_string()).data(text);
        self.events.send(Ok(event)).await.map_err(|_| Over)
    }
}

fn is_state_of(stamped: &Stamped, id: &JobId) -> bool {
    matches!(&stamped.notice, Notice::Job { job, .. } if job == id)
}

/// Sends both logs of an attempt as they grow, until they are closed or the attempt is over.
async fn follow_logs(state: &State, job: JobId, attempt: AttemptId, cap: u64, events: mpsc::Sender<JobEvent>) {
    let (_, mut live) = state.node.market().feed().after(u64::MAX);
    let look = move |trader: &souk_matcher::Trader| {
        let task = usize::try_from(attempt.task).ok().and_then(|task| trader.renter.job(&job)?.tasks().get(task));
        task.is_some_and(|task| task.open().any(|open| open.id == attempt))
    };
    let Ok(open) = state.node.market().with(look).await else { return };
    let logs = state.node.logs();
    let logs = if open { logs.of(&attempt, cap).await } else { logs.ended(&attempt, cap).await };
    let Ok(AttemptLogs { stdout, stderr }) = logs else { return };
    if !open {
        drain(&stdout, "stdout", job, attempt, &events, &mut 0).await;
        drain(&stderr, "stderr", job, attempt, &events, &mut 0).await;
        return;
    }
    let over = async {
        loop {
            match live.recv().await {
                Ok(stamped) => {
                    let ended =
                        matches!(&stamped.notice, Notice::AttemptEnded { attempt: ended, .. } if *ended == attempt);
                    let job_over = matches!(&stamped.notice, Notice::Job { job: over, state, .. } if *over == job && state.is_final());
                    if ended || job_over {
                        return;
                    }
                }
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
        }
    };
    let mut sent = [0, 0];
    let [out, err] = &mut sent;
    tokio::select! {
        () = async {
            tokio::join!(
                follow_log(&stdout, "stdout", job, attempt, &events, out),
                follow_log(&stderr, "stderr", job, attempt, &events, err),
            );
        } => return,
        () = over => {}
    }
    // The attempt is over: what is there is all there will be.
    drain(&stdout, "stdout", job, attempt, &events, &mut sent[0]).await;
    drain(&stderr, "stderr", job, attempt, &events, &mut sent[1]).await;
}

async fn follow_log(
    spool: &Spool,
    stream: &str,
    job: JobId,
    attempt: AttemptId,
    events: &mpsc::Sender<JobEvent>,
    sent: &mut u64,
) {
    let mut watch = spool.watch();
    loop {
        if drain(spool, stream, job, attempt, events, sent).await.is_none() {
            return;
        }
        let from = *sent;
        let Ok(state) = watch.wait_for(|state| state.length > from || state.closed.is_some()).await else { return };
        if state.closed.is_some_and(|closed| closed.length <= from) {
            return;
        }
    }
}

/// Sends what is in the spool beyond `sent`; `None` if nobody listens any more.
async fn drain(
    spool: &Spool,
    stream: &str,
    job: JobId,
    attempt: AttemptId,
    events: &mpsc::Sender<JobEvent>,
    sent: &mut u64,
) -> Option<()> {
    while spool.state().length > *sent {
        let bytes = spool.read(*sent, LOG_CHUNK).await.ok().filter(|bytes| !bytes.is_empty())?;
        let what = JobEventKind::Log {
            index: attempt.task,
            attempt: attempt.number,
            stream: stream.to_owned(),
            offset: Big(*sent),
            data: BASE64.encode(&bytes),
        };
        // Log bytes have no place of their own in the order of events.
        events.send(JobEvent { seq: Big(0), at: crate::clock::wall(), job, what }).await.ok()?;
        *sent = sent.saturating_add(bytes.len() as u64);
    }
    Some(())
}

fn job_event(notice: &Notice) -> Option<(JobId, JobEventKind)> {
    Some(match notice {
        Notice::Job { job, state, because } => (*job, JobEventKind::State { state: *state, because: because.clone() }),
        Notice::Auction { job, report } => (*job, JobEventKind::Auction(auction(report))),
        Notice::Leased { side: Party::Renter, lease } => {
            let (provider, rate, slots) = (lease.peer, lease.rate, lease.slots);
            (lease.job, JobEventKind::Leased { lease: lease.lease, provider, rate, slots })
        }
        Notice::Attempt { job, attempt, provider } => {
            let (index, number) = (attempt.task, attempt.number);
            (*job, JobEventKind::Attempt { index, attempt: number, lease: attempt.lease, provider: *provider })
        }
        Notice::Progress { job, attempt, state } => {
            let (index, number) = (attempt.task, attempt.number);
            (*job, JobEventKind::Progress { index, attempt: number, state: run_state(*state).to_owned() })
        }
        Notice::AttemptEnded { job, attempt, end, exit_code, reason, billed } => {
            let what = JobEventKind::AttemptEnded {
                index: attempt.task,
                attempt: attempt.number,
                end: end.to_string(),
                exit_code: *exit_code,
                reason: (!reason.is_empty()).then(|| reason.clone()),
                billed: *billed,
            };
            (*job, what)
        }
        Notice::Task { job, index, state } => (*job, JobEventKind::Task { index: *index, state: *state }),
        Notice::Leased { .. }
        | Notice::LeaseEnded { .. }
        | Notice::Preempting { .. }
        | Notice::Receipt { .. }
        | Notice::Declined { .. }
        | Notice::ClockSkew { .. } => return None,
    })
}

/// The word for what an attempt does.
pub(crate) const fn run_state(state: RunState) -> &'static str {
    match state {
        RunState::Fetching => "fetching",
        RunState::Running => "running",
    }
}

fn auction(report: &AuctionReport) -> Auction {
    Auction {
        round: report.round,
        by_ask: report.by_ask,
        invited: report.invited,
        bids: report
            .bids
            .iter()
            .map(|(provider, rate, slots, won)| BidView { provider: *provider, rate: *rate, slots: *slots, won: *won })
            .collect(),
        declines: report
            .declines
            .iter()
            .map(|(provider, reason)| DeclineView { provider: *provider, reason: reason.clone() })
            .collect(),
        silent: report.silent,
        window_ms: report.window.0,
    }
}
