//! Measures a running attempt once a second.

use std::time::Duration;

use souk_attest::{Chain, Reading};
use souk_matcher::Event;
use souk_protocol::{AttemptId, Bytes, Hash, List, MilliCpu, Millis, Sample};
use tokio::{
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{millis, wall},
    market::MarketHandle,
};

/// Interval of samples.
const EVERY: Duration = Duration::from_secs(1);
/// Samples gathered before they are signed together.
const BATCH: usize = 10;

/// Takes samples until it is finished or dropped.
#[derive(Debug)]
pub(crate) struct Sampler {
    stop: CancellationToken,
    task: JoinHandle<Option<Hash>>,
}

impl Sampler {
    /// Starts to sample the process `pid` on behalf of `attempt`.
    pub(crate) fn start(market: MarketHandle, attempt: AttemptId, pid: u32) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(sample(market, attempt, pid, stop.clone()));
        Self { stop, task }
    }

    /// Ends the chain; the hash of its last sample, if the run was long enough for one.
    pub(crate) async fn finish(self) -> Option<Hash> {
        self.stop.cancel();
        self.task.await.ok().flatten()
    }
}

async fn sample(market: MarketHandle, attempt: AttemptId, pid: u32, stop: CancellationToken) -> Option<Hash> {
    let mut chain = Chain::new(&attempt);
    let mut batch: Vec<Sample> = Vec::new();
    let mut ticks = interval_at(Instant::now() + EVERY, EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut process = Process::new(pid);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            _ = ticks.tick() => {}
        }
        // A process that is gone gives no sample; the attempt's end says why.
        let Some(reading) = process.read() else { continue };
        batch.push(chain.push(wall(), reading));
        if batch.len() >= BATCH {
            send(&market, attempt, &mut batch).await;
        }
    }
    send(&market, attempt, &mut batch).await;
    chain.head()
}

async fn send(market: &MarketHandle, attempt: AttemptId, batch: &mut Vec<Sample>) {
    let samples = std::mem::take(batch);
    if let Ok(samples) = List::try_from(samples)
        && !samples.is_empty()
    {
        // The node may be stopping.
        let _ = market.event(Event::Samples { attempt, samples }).await;
    }
}

/// A process as `/proc` shows it.
struct Process {
    pid: u32,
    first_cpu: Option<Millis>,
    last: Option<(Instant, Millis)>,
}

impl Process {
    fn new(pid: u32) -> Self {
        let first_cpu = cpu_time(pid);
        Self { pid, first_cpu, last: None }
    }

    fn read(&mut self) -> Option<Reading> {
        let total = cpu_time(self.pid)?;
        let cpu_time = total.saturating_sub(self.first_cpu.unwrap_or_default());
        let now = Instant::now();
        let cpu = self.last.and_then(|(then, before)| {
            let wall = millis(now.saturating_duration_since(then));
            cpu_time.saturating_sub(before).0.saturating_mul(1_000).checked_div(wall.0).map(MilliCpu)
        });
        self.last = Some((now, cpu_time));
        Some(Reading { cpu_time, cpu, memory: memory(self.pid), fuel: None, gpus: List::default() })
    }
}

/// Processor time of a process, user and system.
fn cpu_time(pid: u32) -> Option<Millis> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields behind it are numbers.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    user.saturating_add(system).saturating_mul(1_000).checked_div(per_second).map(Millis)
}

/// Resident memory of a process.
fn memory(pid: u32) -> Option<Bytes> {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let page = u64::try_from(rustix::param::page_size()).ok()?;
    pages.checked_mul(page).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_processor_and_memory() {
        let pid = std::process::id();
        let mut spin = 0u64;
        while cpu_time(pid).unwrap() < Millis(20) {
            spin = std::hint::black_box(spin.wrapping_add(1));
        }
        assert!(memory(pid).unwrap() > Bytes(1 << 20));
    }

    #[test]
    fn a_process_that_is_gone_gives_no_reading() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        assert_eq!(Process::new(pid).read(), None);
    }
}
