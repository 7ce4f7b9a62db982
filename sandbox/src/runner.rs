//! A runner as the node holds it: takes one task after another, and can be killed at any moment.

use std::{
    os::fd::OwnedFd,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, mpsc};

use crate::{
    compile::Compiled,
    error::SandboxError,
    limits::{Folders, Limits},
    measure::{Usage, measure},
    pool::Busy,
    process::{self, Death, Process, Silence},
    task::{End, Ended, InputFault, Output, Stream, Task},
    wire::{Done, Excess, Frame, Kind, Order, Outcome},
};

const RUNNING: &str = "running a task";
/// How often the attempt's folders are looked at while it runs.
const MEASURE_EVERY: Duration = Duration::from_millis(50);
/// A wall limit beyond this is no limit that anybody will see the end of.
const FOREVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A confined process that holds one module and a folder of its own. Dropping it kills and reaps it.
#[derive(Debug)]
pub struct Runner {
    process: Process,
    folders: Folders,
    module: Compiled,
    ceiling: Limits,
    stop: Arc<Stop>,
    state: State,
    /// Keeps the pool at rest until the first task is over.
    first: Option<Busy>,
}

/// A process confined to its folder that has not heard of a lease yet.
#[derive(Debug)]
pub(crate) struct Ready {
    // Before the folders: they are removed when it is dead.
    pub(crate) process: Process,
    pub(crate) folders: Folders,
}

/// Whether a runner can take a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// In a task: also after a run whose caller went away in the middle.
    Busy,
    Dead,
}

#[derive(Debug)]
struct Stop {
    process: Arc<OwnedFd>,
    killed: AtomicBool,
    asked: AtomicBool,
    wake: Notify,
}

/// Ends a runner's task from anywhere. Cheap to clone; outlives the runner without harm.
#[derive(Debug, Clone)]
pub struct KillHandle(Arc<Stop>);

impl KillHandle {
    /// Kills the runner now. Its run ends [`End::Killed`]; it takes no other task.
    pub fn kill(&self) {
        self.0.killed.store(true, Ordering::Release);
        process::kill(&self.0.process);
        self.0.wake.notify_one();
    }

    /// Lets the task go on for the stop grace of its limits, then kills it. WASI knows no signals, so a guest
    /// is not told; one that is nearly done gets the chance to finish.
    pub fn stop(&self) {
        self.0.asked.store(true, Ordering::Release);
        self.0.wake.notify_one();
    }
}

/// Why a run was cut short by this side.
#[derive(Debug, Clone, Copy)]
enum Cut {
    TimedOut,
    Stopped,
    Output(Usage),
}

/// What has come of a run so far.
#[derive(Debug, Default)]
struct Received {
    delivered: [u64; 2],
    excess: Option<Excess>,
    done: Option<Done>,
    nonsense: Option<String>,
    cut: Option<Cut>,
}

impl Runner {
    pub(crate) fn new(Ready { process, folders }: Ready, module: Compiled, ceiling: Limits, busy: Busy) -> Self {
        let stop = Stop {
            process: process.handle(),
            killed: AtomicBool::new(false),
            asked: AtomicBool::new(false),
            wake: Notify::new(),
        };
        Runner { process, folders, module, ceiling, stop: Arc::new(stop), state: State::Idle, first: Some(busy) }
    }

    /// The pid, for logs and measurements.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The module it holds.
    pub fn module(&self) -> &Compiled {
        &self.module
    }

    /// The folders it is confined to: they were made for it and go with the last clone.
    pub fn folders(&self) -> &Folders {
        &self.folders
    }

    /// Whether it can take another task.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle && !self.stop.killed.load(Ordering::Acquire)
    }

    /// What ends a task of this runner from elsewhere.
    pub fn kill_handle(&self) -> KillHandle {
        KillHandle(Arc::clone(&self.stop))
    }

    /// Kills the runner and waits until it is gone.
    pub async fn close(mut self) {
        self.stop.killed.store(true, Ordering::Release);
        self.process.die().await;
    }

    /// Runs one task. What the guest writes goes to `sink` in order, each byte up to the limits; a sink that is
    /// full makes the guest wait (its wall time runs on), one that is closed makes its output count only.
    ///
    /// The attempt's folders must exist ([`Folders::prepare`]). After any end but `Exited`, `Trapped`,
    /// `OutOfMemory` and `InputFailed` the runner is dead: see [`Runner::is_idle`].
    ///
    /// Not cancel safe: a runner whose run was dropped in the middle takes no other task; drop it.
    pub async fn run(&mut self, task: &Task, limits: &Limits, sink: mpsc::Sender<Output>) -> Ended {
        let order = match self.admit(task, limits) {
            Ok(order) => order,
            Err(end) => return ended(end),
        };
        self.state = State::Busy;
        self.stop.asked.store(false, Ordering::Release);
        let started = Instant::now();
        let received = match self.process.send(Kind::Order, &order, RUNNING).await {
            Ok(()) => self.receive(task, limits, started, &sink).await,
            Err(SandboxError::Child { reason, .. }) => Received { nonsense: Some(reason), ..Received::default() },
            Err(error) => Received { nonsense: Some(error.to_string()), ..Received::default() },
        };
        let took = started.elapsed();
        self.first = None;
        let mut ended = self.conclude(limits, received).await;
        if matches!(ended.end, End::Exited { .. } | End::Trapped { .. } | End::OutOfMemory { .. })
            && let Some(usage) = self.over(task, limits).await
        {
            ended.end = output_limit(usage, limits);
        }
        ended.run_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        ended.run_ms = (ended.run_us / 1_000).min(limits.wall_ms);
        ended
    }

    /// Judges a task before the runner hears of it.
    fn admit(&self, task: &Task, limits: &Limits) -> Result<Order, End> {
        let fault = |reason: String| End::RunnerFault { reason };
        let input = |reason: InputFault| End::InputFailed { reason };
        if self.stop.killed.load(Ordering::Acquire) {
            return Err(End::Killed);
        }
        if self.state != State::Idle {
            return Err(fault("the runner is gone; take another from the pool".to_owned()));
        }
        limits.check().map_err(|error| fault(error.to_string()))?;
        if let Some(field) = limits.exceeds(&self.ceiling) {
            return Err(fault(format!("{field} of the task differs from what the runner was taken for")));
        }
        task.check().map_err(|reason| input(InputFault::Task(reason)))?;
        self.module.check(&task.entry, limits).map_err(|error| input(error.into()))?;
        Ok(Order {
            entry: task.entry.clone(),
            argv: std::iter::once(&task.argv0).chain(&task.args).cloned().collect(),
            env: task.env.clone(),
            attempt: task.attempt.as_str().to_owned(),
            output: task.output,
            checkpoint: task.checkpoint,
            memory_bytes: limits.memory_bytes,
            stdout_bytes: limits.stdout_bytes,
            stderr_bytes: limits.stderr_bytes,
        })
    }

    /// Takes frames until the task is done or the runner has ended, and ends it when its time is up.
    async fn receive(
        &mut self,
        task: &Task,
        limits: &Limits,
        started: Instant,
        sink: &mpsc::Sender<Output>,
    ) -> Received {
        let mut received = Received::default();
        let mut pending: Option<Output> = None;
        let wall = Duration::from_millis(limits.wall_ms).min(FOREVER);
        let deadline = tokio::time::sleep_until((started + wall).into());
        tokio::pin!(deadline);
        let mut stopping = false;
        let mut look = tokio::time::interval_at(tokio::time::Instant::now() + MEASURE_EVERY, MEASURE_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let stop = Arc::clone(&self.stop);
        loop {
            let cutting = received.cut.is_none();
            tokio::select! {
                biased;
                () = stop.wake.notified(), if !stopping && cutting => {
                    if stop.asked.load(Ordering::Acquire) {
                        stopping = true;
                        let grace = Duration::from_millis(limits.stop_grace_ms).min(FOREVER);
                        let end = tokio::time::Instant::now() + grace;
                        if end < deadline.deadline() {
                            deadline.as_mut().reset(end);
                        } else {
                            // The wall limit comes first.
                            stopping = false;
                        }
                    }
                }
                () = &mut deadline, if cutting => {
                    received.cut = Some(if stopping { Cut::Stopped } else { Cut::TimedOut });
                    process::kill(&stop.process);
                }
                _ = look.tick(), if cutting && (task.output || task.checkpoint) => {
                    if let Some(usage) = self.over(task, limits).await {
                        received.cut = Some(Cut::Output(usage));
                        process::kill(&stop.process);
                    }
                }
                permit = sink.reserve(), if pending.is_some() => {
                    // A closed sink wants no more; the guest's output is counted all the same.
                    if let (Ok(permit), Some(output)) = (permit, pending.take()) {
                        permit.send(output);
                    } else {
                        pending = None;
                    }
                }
                frame = self.process.next(), if pending.is_none() => match frame {
                    Ok(frame) => match received.frame(frame, limits) {
                        Ok(Some(output)) => match sink.try_send(output) {
                            Err(mpsc::error::TrySendError::Full(output)) => pending = Some(output),
                            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => {}
                        },
                        Ok(None) if received.done.is_some() => return received,
                        Ok(None) => {}
                        Err(reason) => {
                            received.nonsense = Some(reason);
                            return received;
                        }
                    },
                    Err(Silence::Ended) => return received,
                    Err(Silence::Nonsense(reason)) => {
                        received.nonsense = Some(reason);
                        return received;
                    }
                },
            }
        }
    }

    /// What was received, as an end; a runner that is not to go on is reaped here.
    async fn conclude(&mut self, limits: &Limits, received: Received) -> Ended {
        let mut result = ended(End::Killed);
        let [stdout, stderr] = received.delivered;
        let excess = received.excess.unwrap_or(Excess { stdout_len: 0, stderr_len: 0 });
        result.stdout_len = stdout.max(excess.stdout_len);
        result.stderr_len = stderr.max(excess.stderr_len);
        if let Some(done) = received.done {
            result.stdout_len = result.stdout_len.max(done.stdout_len);
            result.stderr_len = result.stderr_len.max(done.stderr_len);
            result.fuel = done.fuel;
            result.memory_peak = done.memory_peak;
            result.memory_refused = done.memory_refused;
            result.end = match done.outcome {
                Outcome::Exited(code) => End::Exited { code },
                Outcome::Trapped(reason) => End::Trapped { reason },
                Outcome::OutOfMemory => End::OutOfMemory { limit: limits.memory_bytes },
                Outcome::Input(error) => End::InputFailed { reason: error.into() },
                Outcome::Fault(reason) => End::RunnerFault { reason },
            };
            // One that was cut short in the very moment it was done is dead none the less.
            self.state = if done.reusable && received.cut.is_none() { State::Idle } else { State::Dead };
            if self.state == State::Dead {
                self.process.die().await;
            }
        } else {
            self.state = State::Dead;
            let killed = self.stop.killed.load(Ordering::Acquire);
            result.end = match (received.cut, received.nonsense) {
                _ if killed => End::Killed,
                (Some(Cut::Stopped), _) => End::Killed,
                (Some(Cut::TimedOut), _) => End::TimedOut { limit_ms: limits.wall_ms },
                (Some(Cut::Output(usage)), _) => output_limit(usage, limits),
                (None, Some(reason)) => End::RunnerFault { reason: format!("the runner answered nonsense: {reason}") },
                (None, None) => match self.process.death().await {
                    // The kernel stops a file at the limit.
                    Death::Signal(libc::SIGXFSZ) => output_limit(Usage::default(), limits),
                    // The runner had no memory left for what the guest asked of it.
                    Death::Signal(libc::SIGABRT) => End::OutOfMemory { limit: limits.memory_bytes },
                    death => End::RunnerFault { reason: format!("the runner ended: {death}") },
                },
            };
            self.process.die().await;
        }
        result.stdout_truncated = result.stdout_len > stdout;
        result.stderr_truncated = result.stderr_len > stderr;
        result
    }

    /// What lies in the attempt's folders, if it is more than it may be.
    async fn over(&self, task: &Task, limits: &Limits) -> Option<Usage> {
        let mut folders: Vec<PathBuf> = Vec::with_capacity(2);
        if task.output {
            folders.push(self.folders.output(&task.attempt));
        }
        if task.checkpoint {
            folders.push(self.folders.checkpoint(&task.attempt));
        }
        let usage = measure(&folders, limits.output_bytes, limits.output_files).await;
        (usage.bytes > limits.output_bytes || usage.files > limits.output_files).then_some(usage)
    }
}

impl Received {
    /// Takes up one frame; output is returned to be passed on.
    fn frame(&mut self, frame: Frame, limits: &Limits) -> Result<Option<Output>, String> {
        let (index, stream, limit) = match frame.kind {
            Kind::Stdout => (0, Stream::Stdout, limits.stdout_bytes),
            Kind::Stderr => (1, Stream::Stderr, limits.stderr_bytes),
            Kind::Excess => {
                self.excess = Some(frame.message().map_err(|error| error.to_string())?);
                return Ok(None);
            }
            Kind::Done => {
                self.done = Some(frame.message().map_err(|error| error.to_string())?);
                return Ok(None);
            }
            Kind::Fault => return Err(frame.text()),
            kind => return Err(format!("{kind:?} in the middle of a task")),
        };
        // The runner cuts at the limit; one that does not is no runner of ours any more.
        let Some(delivered) = self.delivered.get_mut(index) else {
            return Ok(None);
        };
        *delivered = delivered.saturating_add(frame.body.len() as u64);
        if *delivered > limit {
            return Err(format!("more than {limit} bytes of {stream:?}"));
        }
        Ok((!frame.body.is_empty()).then_some(Output { stream, bytes: frame.body }))
    }
}

fn output_limit(usage: Usage, limits: &Limits) -> End {
    End::OutputLimit {
        bytes: usage.bytes,
        files: usage.files,
        limit_bytes: limits.output_bytes,
        limit_files: limits.output_files,
    }
}

fn ended(end: End) -> Ended {
    Ended {
        end,
        run_ms: 0,
        run_us: 0,
        fuel: None,
        stdout_len: 0,
        stderr_len: 0,
        stdout_truncated: false,
        stderr_truncated: false,
        memory_peak: 0,
        memory_refused: false,
    }
}
