//! One attempt, from the order to its end.

use std::{sync::Arc, time::Duration};

use souk_matcher::{Event, Outcome};
use souk_protocol::{AttemptEnd, AttemptId, Bytes, Hash, LogEnd, Millis, NodeId, RunState, Text, Timestamp, Work};
use souk_sandbox::{
    AttemptName, CompileError, Compiled, End, Ended, Folders, KillHandle, Limits, ModuleSource, Runner, Task,
};
use tokio::sync::{mpsc, watch};

use super::{
    Room, Tools,
    layout::lay_out,
    logs::{self, spool_name},
    outputs,
};
use crate::{
    clock::wall,
    data::Source,
    store::{AttemptLogs, Durability, Pin},
    telemetry::Sampler,
};

/// Output pieces between the runner and the log writer. A full queue makes the guest wait for the disk.
const OUTPUTS: usize = 64;
/// Most output files and folders of an attempt.
const MAX_OUTPUT_FILES: u32 = 20_000;

/// How and when an attempt is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop {
    end: AttemptEnd,
    grace: Millis,
}

/// Stops an attempt from outside.
#[derive(Debug)]
pub(super) struct Stopper(watch::Sender<Option<Stop>>);

impl Stopper {
    pub(super) fn stop(&self, end: AttemptEnd, grace: Millis) {
        // The first reason stands.
        self.0.send_if_modified(|stop| {
            let first = stop.is_none();
            if first {
                *stop = Some(Stop { end, grace });
            }
            first
        });
    }

    pub(super) fn is_gone(&self) -> bool {
        self.0.is_closed()
    }
}

/// An attempt that has not run yet.
#[derive(Debug)]
pub(super) struct Attempt {
    tools: Tools,
    room: Arc<Room>,
    renter: NodeId,
    work: Work,
    stop: watch::Receiver<Option<Stop>>,
}

/// An end before the program ran, or a failure of this side.
#[derive(Debug)]
struct Failed {
    end: AttemptEnd,
    reason: String,
}

impl Failed {
    fn input(reason: impl ToString) -> Self {
        Self { end: AttemptEnd::InputFailed, reason: reason.to_string() }
    }

    fn ours(reason: impl ToString) -> Self {
        Self { end: AttemptEnd::ProviderFault, reason: reason.to_string() }
    }
}

impl From<CompileError> for Failed {
    fn from(error: CompileError) -> Self {
        match error {
            CompileError::Module(error) => Self::input(error),
            CompileError::Sandbox(error) => Self::ours(error),
        }
    }
}

/// Says that an attempt failed by this provider's fault before anything was set up for it.
pub(super) fn refuse(tools: &Tools, attempt: AttemptId, reason: &str) {
    let outcome = failed(Failed::ours(reason), wall());
    let market = tools.market.clone();
    tokio::spawn(async move {
        // The node may be stopping.
        let _ = market.event(Event::Ended { attempt, outcome }).await;
    });
}

fn failed(failed: Failed, at: Timestamp) -> Outcome {
    Outcome {
        end: failed.end,
        exit_code: None,
        reason: Text::clipped(&failed.reason),
        run: Millis(0),
        started: at,
        ended: at,
        stdout: LogEnd::empty(),
        stderr: LogEnd::empty(),
        manifest: Hash::of(&[]),
        manifest_len: 0,
        output: Bytes(0),
        files: 0,
        telemetry: None,
    }
}

/// Reports an attempt whose task panicked, so that no attempt is silently gone.
struct Guard {
    tools: Tools,
    attempt: AttemptId,
    armed: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.armed {
            refuse(&self.tools, self.attempt, "the provider stopped or failed");
        }
    }
}

impl Attempt {
    pub(super) fn new(tools: Tools, room: Arc<Room>, renter: NodeId, work: Work) -> (Self, Stopper) {
        let (sender, stop) = watch::channel(None);
        (Self { tools, room, renter, work, stop }, Stopper(sender))
    }

    /// Runs it and reports its end to the market.
    pub(super) async fn run(mut self) -> AttemptId {
        let attempt = self.work.attempt;
        let mut guard = Guard { tools: self.tools.clone(), attempt, armed: true };
        let outcome = match self.execute().await {
            Ok(outcome) => outcome,
            Err(reason) => match *self.stop.borrow() {
                Some(stop) => failed(Failed { end: stop.end, reason: "stopped before it ran".to_owned() }, wall()),
                None => failed(reason, wall()),
            },
        };
        guard.armed = false;
        let _ = self.tools.market.event(Event::Ended { attempt, outcome }).await;
        attempt
    }

    async fn execute(&mut self) -> Result<Outcome, Failed> {
        let attempt = self.work.attempt;
        let name = AttemptName::new(spool_name(&attempt)).map_err(Failed::ours)?;
        let (compiled, inputs) = self.prepare().await?;
        #[cfg(feature = "ablation")]
        if crate::ablation::leaves_out(crate::ablation::Step::Sandbox) {
            return self.make_up(&name).await;
        }
        let task = self.task(&name);
        let logs = logs::open(&self.tools.store, &attempt, self.work.limits.stdout.0);
        let (runner, logs) = tokio::join!(self.runner(&compiled, &task, inputs), logs);
        let (mut runner, logs) = (runner?, logs.map_err(Failed::ours)?);
        let folders = runner.folders().clone();
        let started = wall();
        let _ = self.tools.market.event(Event::Running { attempt, state: RunState::Running }).await;
        let (ended, telemetry) = self.attend(&mut runner, &task, &logs).await?;
        self.room.put_back(runner);
        let finished = wall();
        self.conclude(folders, &name, &logs, &ended, (started, finished), telemetry).await
    }

    /// Module and inputs, here and usable.
    async fn prepare(&mut self) -> Result<(Compiled, Vec<(String, Pin)>), Failed> {
        let blobs = self.tools.store.blobs().clone();
        let here = |hash: &Hash| blobs.has(&crate::data::stored(hash));
        let all_here = here(&self.work.module) && self.work.inputs.iter().all(|input| here(&input.hash));
        if !all_here {
            let event = Event::Running { attempt: self.work.attempt, state: RunState::Fetching };
            let _ = self.tools.market.event(event).await;
        }
        let module = self.fetch(self.work.module, self.work.module_len, "module").await?;
        let mut inputs = Vec::new();
        for input in &self.work.inputs {
            let pin = self.fetch(input.hash, input.len, &input.target).await?;
            inputs.push((input.target.to_string(), pin));
        }
        let source = ModuleSource::Path(module.path());
        let compiling = self.tools.pool.compile(&source, &self.work.module.0, false);
        let compiled = tokio::select! {
            compiled = compiling => compiled?,
            _ = stopped(self.stop.clone()) => return Err(Failed::ours("stopped")),
        };
        compiled.check(&self.work.entry, &self.limits()).map_err(Failed::input)?;
        Ok((compiled, inputs))
    }

    async fn fetch(&self, hash: Hash, len: u64, what: &str) -> Result<Pin, Failed> {
        let fetcher = self.tools.fetcher();
        let fetching = fetcher.fetch(self.renter, self.work.attempt.lease, hash, len, Durability::Cached);
        tokio::select! {
            fetched = fetching => fetched.map_err(|error| Failed::input(format_args!("{what}: {error}"))),
            _ = stopped(self.stop.clone()) => Err(Failed::ours("stopped")),
        }
    }

    /// A runner with the attempt's folders and inputs laid out in its own.
    async fn runner(&self, compiled: &Compiled, task: &Task, inputs: Vec<(String, Pin)>) -> Result<Runner, Failed> {
        let runner = match self.room.take(compiled.hash()) {
            Some(runner) => runner,
            None => self.tools.pool.take(compiled, &self.limits()).await?,
        };
        let (folders, task) = (runner.folders().clone(), task.clone());
        blocking(move || {
            folders.prepare(&task).map_err(|error| error.to_string())?;
            lay_out(&folders.input(&task.attempt), &inputs)
        })
        .await?
        .map_err(Failed::input)?;
        Ok(runner)
    }

    fn limits(&self) -> Limits {
        let limits = &self.work.limits;
        Limits {
            memory_bytes: limits.memory.0.min(souk_sandbox::MAX_MEMORY_BYTES),
            stdout_bytes: limits.stdout.0,
            stderr_bytes: limits.stdout.0,
            output_bytes: limits.disk.0,
            output_files: MAX_OUTPUT_FILES,
            wall_ms: limits.timeout.0,
            stop_grace_ms: limits.stop_grace.0,
            deterministic: false,
        }
    }

    /// What a run costs without its process: a line of output out of nowhere.
    #[cfg(feature = "ablation")]
    async fn make_up(&mut self, name: &AttemptName) -> Result<Outcome, Failed> {
        use souk_sandbox::{Output, Stream};

        let attempt = self.work.attempt;
        let folders = Folders::create(std::env::temp_dir().join(spool_name(&attempt))).map_err(Failed::ours)?;
        folders.prepare(&self.task(name)).map_err(Failed::ours)?;
        let logs = logs::open(&self.tools.store, &attempt, self.work.limits.stdout.0).await.map_err(Failed::ours)?;
        let started = wall();
        let _ = self.tools.market.event(Event::Running { attempt, state: RunState::Running }).await;
        let (sink, outputs) = mpsc::channel(OUTPUTS);
        let (pieces, queue) = logs::pieces();
        let writer = tokio::spawn(logs::write(logs.clone(), outputs, pieces));
        tokio::spawn(logs::send(self.tools.net.clone(), self.renter, attempt, logs.clone(), queue));
        let line = b"made up\n";
        let _ = sink.send(Output { stream: Stream::Stdout, bytes: line.as_slice().into() }).await;
        drop(sink);
        let _ = writer.await;
        let ended = Ended {
            end: End::Exited { code: 0 },
            run_ms: 1,
            run_us: 1_000,
            fuel: None,
            stdout_len: line.len() as u64,
            stderr_len: 0,
            stdout_truncated: false,
            stderr_truncated: false,
            memory_peak: 0,
            memory_refused: false,
        };
        self.conclude(folders, name, &logs, &ended, (started, wall()), None).await
    }

    /// Runs the program with its logs, samples and the stop signal attended to.
    async fn attend(
        &mut self,
        runner: &mut Runner,
        task: &Task,
        logs: &AttemptLogs,
    ) -> Result<(Ended, Option<Hash>), Failed> {
        let attempt = self.work.attempt;
        let (sink, outputs) = mpsc::channel(OUTPUTS);
        let (pieces, queue) = logs::pieces();
        let writer = tokio::spawn(logs::write(logs.clone(), outputs, pieces));
        let sender = logs::send(self.tools.net.clone(), self.renter, attempt, logs.clone(), queue);
        tokio::spawn(sender);
        let sampler = Sampler::start(self.tools.market.clone(), attempt, runner.pid());
        let killer = tokio::spawn(kill_on_stop(self.stop.clone(), runner.kill_handle()));
        let ended = runner.run(task, &self.limits(), sink).await;
        killer.abort();
        let telemetry = sampler.finish().await;
        match writer.await {
            Ok(Ok(())) => Ok((ended, telemetry)),
            Ok(Err(error)) => Err(Failed::ours(error)),
            Err(error) => Err(Failed::ours(error)),
        }
    }

    fn task(&self, name: &AttemptName) -> Task {
        let work = &self.work;
        let mut task = Task::new(name.clone());
        task.entry = work.entry.to_string();
        task.argv0 = work.argv0.to_string();
        task.args = work.args.iter().map(ToString::to_string).collect();
        task.env = work.env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let souk = [
            ("SOUK_JOB", work.job.to_string()),
            ("SOUK_TASK", work.attempt.task.to_string()),
            ("SOUK_TASK_COUNT", work.count.to_string()),
            ("SOUK_ATTEMPT", work.attempt.number.to_string()),
        ];
        task.env.extend(souk.map(|(name, value)| (name.to_owned(), value)));
        task
    }

    /// Keeps what is left behind, and says how it ended.
    async fn conclude(
        &self,
        folders: Folders,
        name: &AttemptName,
        logs: &AttemptLogs,
        ended: &Ended,
        (started, finished): (Timestamp, Timestamp),
        telemetry: Option<Hash>,
    ) -> Result<Outcome, Failed> {
        let (folder, blobs) = (folders.output(name), self.tools.store.blobs().clone());
        let kept = blocking(move || outputs::keep(&folder, &blobs));
        let closed = logs::close(logs, (ended.stdout_len, ended.stderr_len));
        let (kept, closed) = tokio::join!(kept, closed);
        let kept = kept?.map_err(Failed::ours)?;
        let (stdout, stderr) = closed.map_err(Failed::ours)?;
        let files = kept.hashes.iter().map(|hash| (*hash, Source::Blob)).chain([
            (stdout.hash, Source::File(logs.stdout.path().to_owned())),
            (stderr.hash, Source::File(logs.stderr.path().to_owned())),
        ]);
        self.tools.rights.grant(self.work.attempt.lease, self.renter, files, kept.pins);
        let name = name.clone();
        // Cleaning up may take its time; the result does not wait for it.
        tokio::task::spawn_blocking(move || {
            for folder in [folders.input(&name), folders.output(&name), folders.checkpoint(&name)] {
                let _ = std::fs::remove_dir_all(folder);
            }
        });
        let (end, exit_code, reason) = self.judge(&ended.end);
        Ok(Outcome {
            end,
            exit_code,
            reason: Text::clipped(&reason),
            // A started millisecond counts: a program that ran at all is owed for.
            run: Millis(ended.run_us.div_ceil(1_000).min(self.work.limits.timeout.0)),
            started,
            ended: finished,
            stdout,
            stderr,
            manifest: kept.manifest,
            manifest_len: kept.manifest_len,
            output: kept.bytes,
            files: kept.files,
            telemetry,
        })
    }

    /// The market's word for the sandbox's end.
    fn judge(&self, end: &End) -> (AttemptEnd, Option<u32>, String) {
        match end {
            End::Exited { code: 0 } => (AttemptEnd::Done, Some(0), String::new()),
            End::Exited { code } => (AttemptEnd::Failed, Some(*code), format!("exit code {code}")),
            End::Trapped { reason } => (AttemptEnd::Failed, None, format!("trap: {reason}")),
            End::TimedOut { .. } => {
                (AttemptEnd::TimedOut, None, format!("ran longer than limits.timeout = {}", self.work.limits.timeout))
            }
            End::OutOfMemory { .. } => {
                let memory = self.work.limits.memory;
                (AttemptEnd::OutOfMemory, None, format!("needed more than resources.memory = {memory}"))
            }
            End::OutputLimit { .. } => {
                let disk = self.work.limits.disk;
                (AttemptEnd::Failed, None, format!("wrote more outputs than resources.disk = {disk} allows"))
            }
            End::Killed => {
                let stop = *self.stop.borrow();
                stop.map_or((AttemptEnd::ProviderFault, None, "killed on the provider".to_owned()), |stop| {
                    (stop.end, None, "stopped".to_owned())
                })
            }
            End::InputFailed { reason } => (AttemptEnd::InputFailed, None, reason.to_string()),
            End::RunnerFault { reason } => (AttemptEnd::ProviderFault, None, reason.clone()),
        }
    }
}

/// Resolves when the attempt is to stop.
async fn stopped(mut stop: watch::Receiver<Option<Stop>>) -> Option<Stop> {
    let told = stop.wait_for(Option::is_some).await.ok().and_then(|stop| *stop);
    match told {
        Some(stop) => Some(stop),
        // Nobody can stop it any more.
        None => std::future::pending().await,
    }
}

async fn kill_on_stop(stop: watch::Receiver<Option<Stop>>, handle: KillHandle) {
    if let Some(stop) = stopped(stop).await {
        // A wasm program hears no signal: the grace lets one that is nearly done finish. Who cancels does not want that.
        if stop.end != AttemptEnd::Cancelled {
            tokio::time::sleep(Duration::from_millis(stop.grace.0)).await;
        }
        handle.kill();
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Failed> {
    tokio::task::spawn_blocking(work).await.map_err(Failed::ours)
}
