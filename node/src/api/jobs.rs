//! Jobs of this node.

use std::{collections::BTreeSet, sync::Arc};

use axum::{
    Json,
    body::Body,
    extract::{Path, Query, rejection::JsonRejection},
    http::header,
    response::{IntoResponse as _, Response},
};
use data_encoding::HEXLOWER_PERMISSIVE;
use serde::Deserialize;
use souk_matcher::{
    Attempt, AttemptState, Event, Job, JobState, LeaseAccountView, Notice, Reason, RenterLeaseState, Task, Trader,
};
use souk_protocol::{
    EntryKind, JobId, JobSpec, LeaseId, MAX_MANIFEST, MAX_RECEIPT_FILE, MAX_TASKS, Manifest, NodeId, Party,
    RECEIPT_MAGIC, Receipt, Timestamp, codec,
};
use tokio::sync::broadcast::error::RecvError;

use super::{App, State, count, error::ApiError};
use crate::{
    data::stored,
    market::NodeGone,
    view::{
        self, Big, Cost, JobLease, JobSummary, LeaseCost, OutputEntry, OutputFolder, OutputKind, ReceiptSummary,
        SubmitRequest, Submitted, TaskOutputs, Why,
    },
};

/// Shortest prefix of a job id that is looked up.
const MIN_PREFIX: usize = 4;

/// The job that `text`, an id or a unique prefix of one, means.
pub(super) async fn resolve(state: &State, text: &str) -> Result<JobId, ApiError> {
    if let Ok(id) = text.parse::<JobId>() {
        let known = state.node.market().with(move |trader| trader.renter.job(&id).is_some()).await?;
        return if known { Ok(id) } else { Err(no_job(text)) };
    }
    let prefix = text.to_ascii_lowercase();
    if prefix.len() < MIN_PREFIX {
        return Err(ApiError::bad(format_args!(
            "{text:?} is too short for a job id: give at least {MIN_PREFIX} characters"
        )));
    }
    let look = move |trader: &Trader| -> Vec<JobId> {
        trader.renter.jobs().map(Job::id).filter(|id| id.to_string().starts_with(&prefix)).collect()
    };
    let found = state.node.market().with(look).await?;
    match found.as_slice() {
        [one] => Ok(*one),
        [] => Err(no_job(text)),
        several => Err(ApiError::conflict(format_args!("{text} could be any of {} jobs", several.len()))
            .nearest(several.iter().take(8).map(ToString::to_string).collect())),
    }
}

fn no_job(text: &str) -> ApiError {
    ApiError::missing(format_args!("no job {text} here")).hint("souk ps -a lists the jobs of this node")
}

/// Which jobs to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// 1: ended ones, too.
    #[serde(default)]
    all: u8,
}

/// `GET /v1/jobs`, newest first
pub(super) async fn list(
    axum::extract::State(state): App,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Vec<JobSummary>>, ApiError> {
    let look = move |trader: &Trader| {
        let jobs = trader.renter.jobs().filter(|job| wanted.all == 1 || !job.state().is_final());
        jobs.map(summary).collect::<Vec<_>>()
    };
    let mut jobs = state.node.market().with(look).await?;
    jobs.sort_by(|a, b| b.submitted.cmp(&a.submitted).then(a.id.cmp(&b.id)));
    Ok(Json(jobs))
}

fn summary(job: &Job) -> JobSummary {
    JobSummary {
        id: job.id(),
        name: job.spec().name.to_string(),
        state: job.state(),
        tasks: job.spec().task_count(),
        done: job.done(),
        failed: job.failed(),
        running: job.running(),
        cost: job.cost(),
        submitted: job.submitted(),
        ended: job.ended(),
    }
}

/// `POST /v1/jobs`: answered when the job is durable.
pub(super) async fn submit(
    axum::extract::State(state): App,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<Json<Submitted>, ApiError> {
    let Json(SubmitRequest { spec, nonce }) = request?;
    let nonce = HEXLOWER_PERMISSIVE
        .decode(nonce.as_bytes())
        .ok()
        .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
        .ok_or_else(|| ApiError::bad(format_args!("nonce {nonce:?} is not 32 hexadecimal digits")))?;
    check(&state, &spec)?;
    let hash = spec.hash().map_err(|error| ApiError::unprocessable(format_args!("spec: {error}")))?;
    let job = JobId::new(&state.node.id(), &hash, &nonce);
    // One nonce, two specs: the client mixed something up.
    if !state.node.claim_nonce(nonce, job) {
        return Err(
            ApiError::conflict("this nonce was used for another job").hint("choose a random nonce for each job")
        );
    }
    let market = state.node.market();
    let (_, mut live) = market.feed().after(u64::MAX);
    if market.with(move |trader| trader.renter.job(&job).is_some()).await? {
        return Ok(Json(Submitted { id: job }));
    }
    market.event(Event::Submit { job, spec: Arc::new(spec) }).await?;
    loop {
        match live.recv().await {
            Ok(stamped) => match &stamped.notice {
                Notice::Job { job: told, state, because } if *told == job => {
                    return match (state, because.first()) {
                        (JobState::Failed | JobState::Expired, Some(reason)) => {
                            Err(ApiError::unprocessable(&reason.text))
                        }
                        _ => Ok(Json(Submitted { id: job })),
                    };
                }
                _ => {}
            },
            // Many notices at once: the job may be among those that were missed.
            Err(RecvError::Lagged(_)) => {
                if market.with(move |trader| trader.renter.job(&job).is_some()).await? {
                    return Ok(Json(Submitted { id: job }));
                }
            }
            Err(RecvError::Closed) => return Err(NodeGone.into()),
        }
    }
}

/// What the trader takes for granted: the files are here, the sizes are bounded.
fn check(state: &State, spec: &JobSpec) -> Result<(), ApiError> {
    let count = spec.task_count();
    if count == 0 || count > MAX_TASKS {
        return Err(ApiError::unprocessable(format_args!("{count} tasks: expected 1 to {MAX_TASKS}")));
    }
    if spec.terms.timeout.is_zero() {
        return Err(ApiError::unprocessable("limits.timeout = 0: an attempt needs time to run"));
    }
    let files = spec.inputs.iter().flat_map(|input| input.sources.values().flatten()).map(|file| file.hash);
    let blobs = state.node.store().blobs();
    let missing: Vec<String> = files
        .chain([spec.module.hash])
        .filter(|hash| !blobs.has(&stored(hash)))
        .take(8)
        .map(|hash| hash.to_string())
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(ApiError::unprocessable("files of the job are not in the store")
            .hint("put each of them at /v1/blobs/{hash} first")
            .nearest(missing))
    }
}

/// `GET /v1/jobs/{id}`
pub(super) async fn get(axum::extract::State(state): App, Path(id): Path<String>) -> Result<Json<view::Job>, ApiError> {
    let job = resolve(&state, &id).await?;
    job_view(&state, job).await.map(Json)
}

async fn job_view(state: &State, id: JobId) -> Result<view::Job, ApiError> {
    let known = Known::of(state).await;
    let look = move |trader: &Trader| {
        let job = trader.renter.job(&id)?;
        let silent: Vec<LeaseId> = trader
            .renter
            .leases()
            .filter(|lease| lease.state == RenterLeaseState::Unknown)
            .map(|lease| lease.lease.lease)
            .collect();
        let tasks = job.tasks().iter().zip(&job.spec().array.tasks).zip(0u32..);
        Some(view::Job {
            id,
            name: job.spec().name.to_string(),
            state: job.state(),
            reason: job.because().first().map(|reason| match &reason.nearest {
                Some(nearest) => format!("{}: {nearest}", reason.text),
                None => reason.text.clone(),
            }),
            tasks: tasks
                .map(|((task, values), index)| view::Task {
                    index,
                    state: task.state(),
                    values: values.clone(),
                    attempts: task.attempts().iter().map(|attempt| attempt_view(attempt, &silent, &known)).collect(),
                })
                .collect(),
            cost: job.cost(),
            budget: job.spec().market.budget,
            leases: job.leases().iter().filter_map(|lease| trader.renter.lease(lease)).map(lease_view).collect(),
            submitted: job.submitted(),
            ended: job.ended(),
            labels: job.spec().labels.clone(),
        })
    };
    state.node.market().with(look).await?.ok_or_else(|| no_job(&id.to_string()))
}

/// What this node can know of others at the moment.
struct Known {
    /// Who is connected, this node itself among them.
    connected: BTreeSet<NodeId>,
    /// When the node started: what an attempt did before was told to an earlier run.
    started: Timestamp,
}

impl Known {
    async fn of(state: &State) -> Self {
        let peers = state.node.net().peers().await;
        let connected = peers.into_iter().filter(|peer| peer.connected).map(|peer| peer.id);
        Self { connected: connected.chain([state.node.id()]).collect(), started: state.config.started }
    }

    /// Whether what was heard last of an attempt says what it does now: a provider that cannot be heard may have done
    /// anything since, and one that was told to an earlier run of this node to fetch may run by now.
    fn says(&self, attempt: &Attempt) -> bool {
        let forgotten = attempt.state == AttemptState::Fetching && attempt.handed < self.started;
        self.connected.contains(&attempt.provider) && !forgotten
    }
}

fn attempt_view(attempt: &Attempt, silent: &[LeaseId], known: &Known) -> view::Attempt {
    let unknown = attempt.is_open() && (silent.contains(&attempt.id.lease) || !known.says(attempt));
    let state = match attempt.state {
        _ if unknown => "unknown".to_owned(),
        AttemptState::Fetching => "fetching".to_owned(),
        AttemptState::Running => "running".to_owned(),
        AttemptState::Collecting(_) => "collecting".to_owned(),
        AttemptState::Ended(end) => end.to_string(),
    };
    view::Attempt {
        provider: attempt.provider,
        lease: attempt.id.lease,
        attempt: attempt.id.number,
        replica: attempt.id.replica,
        state,
        exit_code: attempt.exit_code,
        started: attempt.started,
        ended: attempt.ended,
        run_ms: attempt.billed.map(|run| Big(run.0)),
        billed: attempt.billed.is_some(),
        reason: (!attempt.reason.is_empty()).then(|| attempt.reason.clone()),
    }
}

/// The word for how a lease stands.
pub(super) const fn lease_state(state: RenterLeaseState) -> &'static str {
    match state {
        RenterLeaseState::Awarded => "awarded",
        RenterLeaseState::Open => "open",
        RenterLeaseState::Unknown => "unknown",
        RenterLeaseState::Ending => "ending",
        RenterLeaseState::Closed => "closed",
        RenterLeaseState::Settled => "settled",
    }
}

fn lease_view(lease: LeaseAccountView) -> JobLease {
    JobLease {
        lease: lease.lease.lease,
        provider: lease.lease.peer,
        rate: lease.lease.rate,
        slots: lease.lease.slots,
        state: lease.ended.map_or_else(|| lease_state(lease.state).to_owned(), |(end, _)| end.to_string()),
        ended_by: lease.ended.map(|(_, by)| by.to_string()),
        total: lease.total,
        receipt: lease.state == RenterLeaseState::Settled,
    }
}

/// `GET /v1/jobs/{id}/why`
pub(super) async fn why(axum::extract::State(state): App, Path(id): Path<String>) -> Result<Json<Why>, ApiError> {
    let job = match resolve(&state, &id).await {
        Ok(job) => job,
        Err(error) => return bid_in_vain(&state, &id).await?.map(Json).ok_or(error),
    };
    let look = move |trader: &Trader| {
        let found = trader.renter.job(&job)?;
        Some(Why { id: job, state: found.state().word().to_owned(), because: found.why() })
    };
    state.node.market().with(look).await?.map(Json).ok_or_else(|| no_job(&id))
}

/// Why this node does not work on another's job: its bid did not win.
async fn bid_in_vain(state: &State, id: &str) -> Result<Option<Why>, NodeGone> {
    let prefix = id.to_ascii_lowercase();
    let look = move |trader: &Trader| {
        let mut found = trader.provider.outbids().filter(|(job, _)| job.to_string().starts_with(&prefix));
        let (job, outbid) = found.next().filter(|_| prefix.len() >= MIN_PREFIX)?;
        let because = Reason { code: "outbid".to_owned(), text: outbid.text(), count: 1, nearest: None };
        found.next().is_none().then(|| Why { id: *job, state: "lost".to_owned(), because: vec![because] })
    };
    state.node.market().with(look).await
}

/// `POST /v1/jobs/{id}/cancel`
pub(super) async fn cancel(
    axum::extract::State(state): App,
    Path(id): Path<String>,
) -> Result<Json<view::Job>, ApiError> {
    let job = resolve(&state, &id).await?;
    state.node.market().event(Event::Cancel { job }).await?;
    job_view(&state, job).await.map(Json)
}

/// `GET /v1/jobs/{id}/outputs`
pub(super) async fn outputs(
    axum::extract::State(state): App,
    Path(id): Path<String>,
) -> Result<Json<Vec<TaskOutputs>>, ApiError> {
    let job = resolve(&state, &id).await?;
    let look = move |trader: &Trader| {
        let found = trader.renter.job(&job)?;
        let winners: Vec<(u32, Attempt)> =
            (0u32..).zip(found.tasks()).filter_map(|(index, task)| Some((index, task.winner()?.clone()))).collect();
        Some((Arc::clone(found.spec()), winners))
    };
    let (spec, winners) = state.node.market().with(look).await?.ok_or_else(|| no_job(&id))?;
    let mut outputs = Vec::new();
    for (index, attempt) in winners {
        let Some(result) = &attempt.result else { continue };
        let blob = state.node.store().blobs().read(&stored(&result.manifest), MAX_MANIFEST as u64).await;
        let bytes = blob.map_err(|error| ApiError::internal(format_args!("manifest of task {index}: {error}")))?;
        let manifest: Manifest = codec::decode(&bytes, MAX_MANIFEST).map_err(ApiError::internal)?;
        outputs.push(TaskOutputs {
            index,
            attempt: attempt.id.number,
            provider: attempt.provider,
            exit_code: attempt.exit_code,
            folders: folders(&spec, job, index)?,
            entries: manifest.entries.into_vec().into_iter().map(entry_view).collect(),
        });
    }
    Ok(Json(outputs))
}

fn folders(spec: &JobSpec, job: JobId, index: u32) -> Result<Vec<OutputFolder>, ApiError> {
    let none = std::collections::BTreeMap::new();
    let vars = usize::try_from(index).ok().and_then(|index| spec.array.tasks.get(index)).unwrap_or(&none);
    let id = job.short();
    spec.outputs
        .iter()
        .map(|output| {
            let to = souk_protocol::job_file::expand(&output.to, &id, index, vars).map_err(ApiError::internal)?;
            Ok(OutputFolder { path: output.path.clone(), to: (!to.is_empty()).then_some(to) })
        })
        .collect()
}

fn entry_view(entry: souk_protocol::Entry) -> OutputEntry {
    let what = match entry.kind {
        EntryKind::File { hash, len, executable } => OutputKind::File { hash, len: Big(len), executable },
        EntryKind::Folder => OutputKind::Folder,
        EntryKind::Link { target } => OutputKind::Link { target: target.to_string() },
        EntryKind::Skipped { reason } => OutputKind::Skipped { reason: reason.to_string() },
    };
    OutputEntry { path: entry.path.to_string(), what }
}

/// `GET /v1/jobs/{id}/cost`
pub(super) async fn cost(axum::extract::State(state): App, Path(id): Path<String>) -> Result<Json<Cost>, ApiError> {
    let job = resolve(&state, &id).await?;
    let look = move |trader: &Trader| {
        let found = trader.renter.job(&job)?;
        let leases = found.leases().iter().filter_map(|lease| trader.renter.lease(lease));
        Some(Cost {
            job,
            total: found.cost(),
            reserved: found.reserved(),
            budget: found.spec().market.budget,
            leases: leases
                .map(|lease| LeaseCost {
                    lease: lease.lease.lease,
                    provider: lease.lease.peer,
                    rate: lease.lease.rate,
                    run_ms: Big(lease.run.0),
                    billed: count(lease.billed.len()),
                    unbilled: unbilled(found, &lease),
                    total: lease.total,
                })
                .collect(),
        })
    };
    state.node.market().with(look).await?.map(Json).ok_or_else(|| no_job(&id))
}

/// `GET /v1/jobs/{id}/receipts`: of every lease that was accepted, with or without a receipt so far
pub(super) async fn receipts(
    axum::extract::State(state): App,
    Path(id): Path<String>,
) -> Result<Json<Vec<ReceiptSummary>>, ApiError> {
    let job = resolve(&state, &id).await?;
    let me = state.node.id();
    let look = move |trader: &Trader| {
        let found = trader.renter.job(&job)?;
        let leases = found.leases().iter().filter_map(|lease| trader.renter.lease(lease));
        // What a node did for itself proves nothing to anybody.
        let leases = leases.filter(|lease| lease.lease.peer != me);
        let row = |lease| receipt_view(me, found, &lease, trader.renter.receipt(&lease.lease.lease).as_ref());
        Some(leases.filter_map(row).collect::<Vec<_>>())
    };
    state.node.market().with(look).await?.map(Json).ok_or_else(|| no_job(&id))
}

/// Attempts of a job that a lease was given and that nothing is owed for.
fn unbilled(job: &Job, lease: &LeaseAccountView) -> u32 {
    let attempts = job.tasks().iter().flat_map(Task::attempts);
    let given = attempts.filter(|attempt| attempt.id.lease == lease.lease.lease).count();
    count(given.saturating_sub(lease.billed.len()))
}

/// A lease as its receipt has it; what the own books say, while there is none. Nothing of a lease that was not accepted.
fn receipt_view(me: NodeId, job: &Job, lease: &LeaseAccountView, receipt: Option<&Receipt>) -> Option<ReceiptSummary> {
    let billed = receipt.map_or(lease.billed.len(), |receipt| receipt.billed.len());
    let ended = receipt.map(|receipt| (receipt.end, receipt.ended_by)).or(lease.ended);
    Some(ReceiptSummary {
        lease: lease.lease.lease,
        side: Party::Renter.to_string(),
        renter: me,
        provider: lease.lease.peer,
        end: ended.map(|(end, _)| end.to_string()),
        ended_by: ended.map(|(_, by)| by.to_string()),
        rate: lease.lease.rate,
        billed: count(billed),
        unbilled: receipt.map_or_else(|| unbilled(job, lease), |receipt| receipt.unbilled),
        run_ms: Big(receipt.map_or(lease.run, |receipt| receipt.run).0),
        total: receipt.map_or(lease.total, |receipt| receipt.total),
        opened: lease.opened?,
        closed: receipt.map(|receipt| receipt.closed),
        complete: receipt.is_some(),
    })
}

/// `GET /v1/receipts/{lease}`: the file that can be checked offline, of either side
pub(super) async fn receipt(axum::extract::State(state): App, Path(lease): Path<String>) -> Result<Response, ApiError> {
    let lease: LeaseId = lease.parse().map_err(ApiError::bad)?;
    let look =
        move |trader: &Trader| trader.renter.receipt_file(&lease).or_else(|| trader.provider.receipt_file(&lease));
    let file = state.node.market().with(look).await?;
    let file = file.ok_or_else(|| {
        ApiError::missing(format_args!("no complete receipt of lease {lease} here"))
            .hint("a receipt is complete when both sides have signed; souk job receipts JOB lists them")
    })?;
    let mut bytes = RECEIPT_MAGIC.to_vec();
    bytes.extend(codec::encode(&file, MAX_RECEIPT_FILE).map_err(ApiError::internal)?);
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Body::from(bytes)).into_response())
}
