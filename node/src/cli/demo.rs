//! `souk demo`: a market on this machine, a real job from spec to receipts.

mod report;

use std::{collections::BTreeMap, time::Duration};

use clap::Args;
use futures::StreamExt as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use souk_matcher::{JobState, TaskState};
use souk_protocol::{Credits, JobId, Mode, NodeId, job_file};
use tokio::time::{Instant, sleep};

use self::report::{AuctionReport, Earned, Failover, JobReport, Receipts, Report, Timing};
use super::{
    Context,
    error::{CliError, Exit},
    table::Table,
};
use crate::{
    client::Client,
    demo::{DemoError, DemoJob, MAX_PROVIDERS, Town},
    outputs, submit,
    view::{Auction, Job, JobEventKind, ReceiptSummary, SubmitRequest, Submitted, TaskOutputs, Wallet},
};

/// Longest wait for the job.
const JOB: Duration = Duration::from_secs(300);
/// Longest wait for the last receipt after the job's end.
const RECEIPTS: Duration = Duration::from_secs(60);
/// How often receipts are looked for.
const STEP: Duration = Duration::from_millis(50);
/// Largest result file shown in the table.
const MAX_RESULT: usize = 64 * 1024;

#[derive(Debug, Clone, Args)]
pub(crate) struct DemoArgs {
    /// How many providers.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PROVIDERS)))]
    providers: u32,
    /// Which job: sweep or hello.
    #[arg(long, value_name = "NAME", default_value = "sweep")]
    job: String,
    /// Kill a provider with SIGKILL in mid-run.
    #[arg(long)]
    kill_one: bool,
    /// Leave the network running and say how to go on.
    #[arg(long)]
    keep: bool,
}

impl From<DemoError> for CliError {
    fn from(error: DemoError) -> Self {
        match error {
            DemoError::Client(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

pub(crate) async fn run(context: &Context, args: &DemoArgs) -> Result<Exit, CliError> {
    let Some(job) = DemoJob::find(&args.job) else {
        let names = DemoJob::ALL.iter().map(|job| job.name).collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(format!("--job {:?} is not one of {names}", args.job)));
    };
    if args.kill_one && args.providers < 2 {
        return Err(CliError::usage("--kill-one needs at least two providers, so that somebody is left"));
    }
    let printer = &context.printer;
    let program =
        std::env::current_exe().map_err(|error| CliError::internal(format!("cannot find this program: {error}")))?;
    printer.talk(format_args!("starting {} providers, a bootstrap node and a renter on loopback", args.providers));
    let mut town = Town::start(&program, args.providers).await?;
    let mut residents = Table::new(&["NAME", "NODE", ">PID", ">ASK"]);
    for node in town.residents() {
        let ask = node.ask.map_or_else(|| "-".to_owned(), |ask| format!("{} a core", ask.short()));
        residents.row([node.name.clone(), node.id.short(), node.pid().unwrap_or_default().to_string(), ask]);
    }
    printer.talk(residents.render(false));
    let shown = Show::new(context, &town);
    let report = shown.job(&mut town, &job, args).await;
    // Success or not, the town is closed in order.
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            town.stop().await;
            return Err(error);
        }
    };
    if args.keep {
        let renter = town.renter.folder.clone();
        let mut pids: Vec<String> = Vec::new();
        for node in town.residents() {
            pids.extend(node.pid().map(|pid| pid.to_string()));
        }
        let folder = town.keep();
        let home = renter.display();
        printer.talk(format_args!(
            "\nthe network goes on in {folder}\n  souk ps -a --home {home}\n  souk offers --home {home}\n  souk job receipts {} --home {home}\n  souk run -f {folder}/job/job.toml --home {home}\nend it: kill {pids} && rm -r {folder}",
            report.job.id.short(),
            folder = folder.display(),
            pids = pids.join(" "),
        ));
    } else {
        town.stop().await;
    }
    if printer.is_structured() {
        printer.value(&report)?;
    }
    if report.ok {
        Ok(Exit::DONE)
    } else {
        Err(CliError::Job {
            exit: 100,
            code: "job_failed",
            message: format!("the demo's job is {}", report.job.state.word()),
            hint: None,
            nearest: Vec::new(),
        })
    }
}

/// What is shown while the demo runs.
struct Show<'a> {
    context: &'a Context,
    names: BTreeMap<NodeId, String>,
}

/// What was seen of the job.
#[derive(Default)]
struct Seen {
    timing: Timing,
    auction: AuctionReport,
    auctioned: bool,
    killed: Option<NodeId>,
    done: u64,
}

impl<'a> Show<'a> {
    fn new(context: &'a Context, town: &Town) -> Self {
        let names = town.providers.iter().map(|provider| (provider.id, provider.name.clone())).collect();
        Self { context, names }
    }

    fn name(&self, id: &NodeId) -> String {
        self.names.get(id).cloned().unwrap_or_else(|| id.short())
    }

    async fn job(&self, town: &mut Town, job: &DemoJob, args: &DemoArgs) -> Result<Report, CliError> {
        let printer = &self.context.printer;
        let folder = town.folder().map(|folder| folder.join("job")).unwrap_or_default();
        job.write(&folder).map_err(|error| CliError::internal(format!("cannot write the job: {error}")))?;
        let parsed = job_file::parse(job.file.as_bytes(), job_file::Format::Toml)
            .map_err(|_| CliError::internal("the demo's job file is invalid"))?;
        let mut resolved = submit::resolve(&parsed.file, &folder, &BTreeMap::new()).map_err(CliError::internal)?;
        // Bids are worth seeing; left to itself the job would take the cheapest standing asks.
        resolved.spec.market.mode = Mode::Auction;
        let client = town.renter.client.clone();
        for file in &resolved.files {
            client.put_blob(&file.hash, file.len, &file.path, |_| {}).await?;
        }
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(CliError::internal)?;
        let request = SubmitRequest { spec: resolved.spec, nonce: data_encoding::HEXLOWER.encode(&nonce) };
        let Submitted { id } = client.post("/v1/jobs", &request).await?;
        let submitted = Instant::now();
        printer.talk(format_args!("\njob {} {}: {}", id.short(), job.name, job.about));
        let mut seen = Seen::default();
        let followed =
            tokio::time::timeout(JOB, self.follow(town, &client, id, submitted, args.kill_one, &mut seen)).await;
        followed
            .unwrap_or_else(|_| Err(CliError::internal(format!("the job is not over after {} s", JOB.as_secs()))))?;
        seen.timing.total = elapsed(submitted);
        let done: Job = client.get(&format!("/v1/jobs/{id}")).await?;
        let outputs: Vec<TaskOutputs> = client.get(&format!("/v1/jobs/{id}/outputs")).await?;
        self.results(&client, &done, &outputs).await?;
        let receipts = self.receipts(&client, id, &done, seen.killed).await?;
        let providers = self.earned(town, seen.killed).await?;
        let kept = if args.keep { Some(bring(&client, &outputs).await?) } else { None };
        self.report(town, done, seen, receipts, providers, kept)
    }

    /// Follows the job to its end; kills a provider in mid-run if asked to.
    async fn follow(
        &self,
        town: &mut Town,
        client: &Client,
        id: JobId,
        submitted: Instant,
        kill_one: bool,
        seen: &mut Seen,
    ) -> Result<(), CliError> {
        let job: Job = client.get(&format!("/v1/jobs/{id}")).await?;
        let bar = self.bar(job.tasks.len() as u64);
        let mut events = client.events(&id.to_string(), 0, true).await?;
        while let Some(event) = events.next().await {
            match event?.what {
                JobEventKind::Auction(auction) => {
                    seen.timing.submit_to_bids.get_or_insert(elapsed(submitted));
                    if !seen.auctioned && !auction.bids.is_empty() {
                        seen.auctioned = true;
                        seen.auction = AuctionReport::of(&auction);
                        bar.suspend(|| self.context.printer.talk(self.bids(&auction)));
                    }
                }
                JobEventKind::Leased { .. } => {
                    seen.timing.submit_to_award.get_or_insert(elapsed(submitted));
                }
                JobEventKind::Log { .. } => {
                    seen.timing.submit_to_first_output.get_or_insert(elapsed(submitted));
                }
                JobEventKind::Progress { state, .. } => bar.set_message(state),
                JobEventKind::AttemptEnded { index, attempt, end, reason, .. } if end != "done" => {
                    let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                    bar.suspend(|| {
                        self.context.printer.talk(format_args!("task {index} attempt {attempt} {end}{reason}"));
                    });
                }
                JobEventKind::Task { state: TaskState::Done, .. } => {
                    seen.done = seen.done.saturating_add(1);
                    bar.set_position(seen.done);
                    if kill_one && seen.killed.is_none() {
                        seen.killed = self.kill(town, client, id, &bar).await?;
                    }
                }
                JobEventKind::State { state, .. } if state.is_final() => break,
                _ => {}
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Kills a provider that has work of the job under way.
    async fn kill(
        &self,
        town: &mut Town,
        client: &Client,
        id: JobId,
        bar: &ProgressBar,
    ) -> Result<Option<NodeId>, CliError> {
        let job: Job = client.get(&format!("/v1/jobs/{id}")).await?;
        let busy = job
            .tasks
            .iter()
            .flat_map(|task| &task.attempts)
            .find(|attempt| matches!(attempt.state.as_str(), "running" | "fetching"));
        let Some(provider) = busy.map(|attempt| attempt.provider) else { return Ok(None) };
        let Some(resident) = town.providers.iter_mut().find(|resident| resident.id == provider) else {
            return Ok(None);
        };
        resident.kill().await?;
        bar.suspend(|| {
            self.context.printer.talk(format_args!(
                "killed {} in mid-run with SIGKILL; the renter waits until its silence is long enough to start its tasks elsewhere",
                resident.name
            ));
        });
        Ok(Some(provider))
    }

    fn bar(&self, tasks: u64) -> ProgressBar {
        let template = "{spinner} tasks {pos}/{len} {bar:30} {elapsed} {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let visible = self.context.printer.has_progress();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(tasks), target).with_style(style);
        if visible {
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        bar
    }

    fn bids(&self, auction: &Auction) -> String {
        let mut table = Table::new(&["PROVIDER", "NODE", ">BID", ">SLOTS", "AWARD"]);
        for bid in &auction.bids {
            let award = if bid.won { "won" } else { "-" };
            table.row([
                self.name(&bid.provider),
                bid.provider.short(),
                bid.rate.short(),
                bid.slots.to_string(),
                award.to_owned(),
            ]);
        }
        for decline in &auction.declines {
            table.row([
                self.name(&decline.provider),
                decline.provider.short(),
                "-".to_owned(),
                "-".to_owned(),
                decline.reason.clone(),
            ]);
        }
        format!(
            "{}\n{} invited, {} bids in {} ms",
            table.render(false),
            auction.invited,
            auction.bids.len(),
            auction.window_ms
        )
    }

    /// The result table: parameters, who ran it, how long, and the figures of each task's `result.json`.
    async fn results(&self, client: &Client, job: &Job, outputs: &[TaskOutputs]) -> Result<(), CliError> {
        let mut table = Table::new(&["TASK", "PARAMETERS", "PROVIDER", ">ATTEMPT", ">RUN", "STATE", "RESULT"]);
        for task in &job.tasks {
            let parameters: Vec<String> = task.values.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let winner = task.attempts.iter().rev().find(|attempt| attempt.state == "done");
            let found = outputs.iter().find(|outputs| outputs.index == task.index);
            let figures = match found {
                Some(outputs) => figures(client, outputs).await?,
                None => String::new(),
            };
            table.row([
                task.index.to_string(),
                parameters.join(" "),
                winner.map(|attempt| self.name(&attempt.provider)).unwrap_or_default(),
                task.attempts.len().to_string(),
                winner.and_then(|attempt| attempt.run_ms).map(|run| format!("{} ms", run.0)).unwrap_or_default(),
                super::job::task_state(task.state).to_owned(),
                figures,
            ]);
        }
        self.context.printer.talk(format_args!("\n{}", table.render(false)));
        Ok(())
    }

    /// Waits for the receipts and checks each offline.
    async fn receipts(
        &self,
        client: &Client,
        id: JobId,
        job: &Job,
        killed: Option<NodeId>,
    ) -> Result<Receipts, CliError> {
        // A dead provider signs nothing: its lease is closed one-sided, long after this demo.
        let expected = job.leases.iter().filter(|lease| Some(lease.provider) != killed).count();
        let started = Instant::now();
        let receipts = loop {
            let mut receipts: Vec<ReceiptSummary> = client.get(&format!("/v1/jobs/{id}/receipts")).await?;
            receipts.retain(|receipt| receipt.complete);
            if receipts.len() >= expected || started.elapsed() > RECEIPTS {
                break receipts;
            }
            sleep(STEP).await;
        };
        let mut verified = 0;
        for receipt in &receipts {
            let path = format!("/v1/receipts/{}", receipt.lease);
            let bytes = client.bytes(&path, souk_protocol::MAX_RECEIPT_FILE.saturating_add(8)).await?;
            match souk_attest::verify_receipt(&bytes) {
                Ok(checked) if checked.receipt().total == receipt.total => verified += 1,
                Ok(_) => self.context.printer.warn(format_args!("receipt {} says another sum", receipt.lease.short())),
                Err(error) => self.context.printer.warn(format_args!("receipt {}: {error}", receipt.lease.short())),
            }
        }
        self.context.printer.talk(format_args!(
            "\n{verified} of {} receipts verified, signed by both sides, checked from their bytes alone",
            receipts.len().max(expected)
        ));
        Ok(Receipts { total: receipts.len().max(expected), verified })
    }

    async fn earned(&self, town: &Town, killed: Option<NodeId>) -> Result<Vec<Earned>, CliError> {
        let mut table = Table::new(&["PROVIDER", "NODE", ">EARNED"]);
        let mut all = Vec::new();
        for provider in &town.providers {
            if Some(provider.id) == killed {
                table.row([provider.name.clone(), provider.id.short(), "killed".to_owned()]);
                continue;
            }
            let wallet: Wallet = provider.client.get("/v1/wallet").await?;
            table.row([provider.name.clone(), provider.id.short(), wallet.owed_to_us.to_string()]);
            all.push(Earned { provider: provider.id, name: provider.name.clone(), earned: wallet.owed_to_us });
        }
        self.context.printer.talk(table.render(false));
        Ok(all)
    }

    fn report(
        &self,
        town: &mut Town,
        job: Job,
        seen: Seen,
        receipts: Receipts,
        providers: Vec<Earned>,
        outputs: Option<String>,
    ) -> Result<Report, CliError> {
        let succeeded = job.tasks.iter().filter(|task| task.state == TaskState::Done).count();
        // Paid once: of each done task exactly one attempt that is done and billed, and the leases sum up to the cost.
        let paid_once =
            job.tasks.iter().filter(|task| task.state == TaskState::Done).all(|task| {
                task.attempts.iter().filter(|attempt| attempt.state == "done" && attempt.billed).count() == 1
            });
        let sum = job.leases.iter().try_fold(Credits(0), |sum, lease| sum.checked_add(lease.total));
        let agrees = sum == Some(job.cost);
        if !paid_once || !agrees {
            self.context.printer.warn("the books do not agree with the tasks");
        }
        let attempts = job.tasks.iter().map(|task| task.attempts.len()).sum();
        let failover = seen.killed.map(|killed| {
            let went = |task: &&crate::view::Task| {
                task.attempts.iter().any(|attempt| attempt.provider == killed && attempt.state != "done")
            };
            Failover { killed, reassigned: job.tasks.iter().filter(went).count() }
        });
        let timing = seen.timing;
        let ms = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value} ms"));
        self.context.printer.talk(format_args!(
            "\n{succeeded} of {} tasks done in {attempts} attempts, cost {}\nsubmit to bids {}, to lease {}, to first output {}, in all {} ms",
            job.tasks.len(),
            job.cost,
            ms(timing.submit_to_bids),
            ms(timing.submit_to_award),
            ms(timing.submit_to_first_output),
            timing.total,
        ));
        let ok = job.state == JobState::Succeeded && paid_once && agrees && receipts.total == receipts.verified;
        Ok(Report {
            ok,
            nodes: u32::try_from(town.residents().count()).unwrap_or(u32::MAX),
            job: JobReport {
                id: job.id,
                name: job.name,
                state: job.state,
                tasks: job.tasks.len(),
                succeeded,
                attempts,
            },
            auction: seen.auction,
            timing_ms: timing,
            cost: job.cost,
            receipts,
            failover,
            outputs,
            providers,
        })
    }
}

fn elapsed(since: Instant) -> u64 {
    crate::clock::millis(since.elapsed()).0
}

/// Numbers of a task's `result.json`, in short.
async fn figures(client: &Client, outputs: &TaskOutputs) -> Result<String, CliError> {
    let found = outputs.entries.iter().find_map(|entry| match &entry.what {
        crate::view::OutputKind::File { hash, .. } if entry.path.ends_with("/result.json") => Some(hash),
        _ => None,
    });
    let Some(hash) = found else { return Ok(format!("{} outputs", outputs.entries.len())) };
    let bytes = client.bytes(&format!("/v1/blobs/{hash}"), MAX_RESULT).await?;
    let value: serde_json::Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let figures =
        ["accuracy", "loss"].iter().filter_map(|name| value.get(name).map(|figure| format!("{name} {figure}")));
    Ok(figures.collect::<Vec<_>>().join(" "))
}

/// Writes the outputs where the job file says, below the demo's folder.
async fn bring(client: &Client, all: &[TaskOutputs]) -> Result<String, CliError> {
    let mut folder = String::new();
    for task in all {
        let written = outputs::write(client, task, None).await.map_err(CliError::internal)?;
        if let Some(parent) = written.folders.first().and_then(|folder| folder.parent()) {
            folder = parent.display().to_string();
        }
    }
    Ok(folder)
}
