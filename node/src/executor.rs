//! The provider's hands: slots, inputs, runs, logs and outputs of attempts.
//!
//! One task takes the trader's orders and never waits for work; each attempt runs in a task of its own and ends with
//! [`Event::Ended`](souk_matcher::Event::Ended), whatever happens to it. A lease's runners are reused for its tasks only.

mod layout;
mod logs;
mod outputs;
mod run;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use souk_protocol::{
    AttemptEnd, AttemptId, EntryKind, Hash, LeaseId, MAX_MANIFEST, Manifest, Millis, TaskResult, codec,
};
use souk_sandbox::{Pool, Runner};
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error};

use crate::{
    data::{Fetcher, Rights, Source, stored},
    market::{MarketHandle, Order},
    net::Net,
    store::{Store, log_path},
};
pub(crate) use logs::spool_name;
use run::{Attempt, Stopper};

/// What the executor works with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// Runners and compiled modules.
    pub pool: Pool,
    /// Blobs and spools.
    pub store: Arc<Store>,
    /// To fetch inputs and send logs.
    pub net: Net,
    /// Where results go.
    pub market: MarketHandle,
    /// Who may fetch outputs.
    pub rights: Rights,
}

impl Tools {
    fn fetcher(&self) -> Fetcher {
        Fetcher { net: self.net.clone(), blobs: self.store.blobs().clone() }
    }
}

/// A lease's room: its idle runners, each with a folder of its own.
#[derive(Debug, Default)]
pub(crate) struct Room {
    // A lock and not a message: an attempt takes a runner at its start and puts it back at its end.
    idle: Mutex<Vec<Runner>>,
}

impl Room {
    fn take(&self, module: &[u8; 32]) -> Option<Runner> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = idle.iter().position(|runner| runner.is_idle() && runner.module().hash() == module)?;
        Some(idle.swap_remove(found))
    }

    fn put_back(&self, runner: Runner) {
        if runner.is_idle() {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(runner);
        }
    }
}

/// The executor's task.
#[derive(Debug)]
pub struct Executor {
    tools: Tools,
    rooms: BTreeMap<LeaseId, Arc<Room>>,
    running: BTreeMap<AttemptId, Stopper>,
    attempts: JoinSet<AttemptId>,
}

impl Executor {
    /// An executor without leases.
    #[must_use]
    pub fn new(tools: Tools) -> Self {
        Self { tools, rooms: BTreeMap::new(), running: BTreeMap::new(), attempts: JoinSet::new() }
    }

    /// Lets renters fetch again what results of an earlier run of this node promise.
    ///
    /// What is missing is skipped: the renter's fetch then fails and says so.
    pub async fn restore(&self, results: Vec<TaskResult>) {
        let blobs = self.tools.store.blobs();
        for result in results {
            let read = blobs.read(&stored(&result.manifest), MAX_MANIFEST as u64).await;
            let manifest =
                read.ok().and_then(|bytes| codec::decode::<Manifest>(&bytes, MAX_MANIFEST).ok()).unwrap_or_default();
            let outputs = manifest.entries.iter().filter_map(|entry| match entry.kind {
                EntryKind::File { hash, .. } => Some(hash),
                EntryKind::Folder | EntryKind::Link { .. } | EntryKind::Skipped { .. } => None,
            });
            let hashes: Vec<Hash> = outputs.chain([result.manifest]).collect();
            let pins: Vec<_> = hashes.iter().filter_map(|hash| blobs.pin(&stored(hash))).collect();
            let (dir, name) = (self.tools.store.spool_dir(), spool_name(&result.attempt));
            let logs = [(result.stdout.hash, "stdout"), (result.stderr.hash, "stderr")];
            let logs = logs.map(|(hash, stream)| (hash, Source::File(log_path(&dir, &name, stream))));
            let files = hashes.into_iter().map(|hash| (hash, Source::Blob)).chain(logs);
            self.tools.rights.grant(result.attempt.lease, result.renter, files, pins);
        }
    }

    /// Carries out orders until the node stops; then stops all attempts.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, stop: CancellationToken) {
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(ended) = self.attempts.join_next(), if !self.attempts.is_empty() => self.ended(ended),
                order = orders.recv() => match order {
                    Some(order) => self.carry_out(order),
                    None => break,
                },
            }
        }
        for stopper in self.running.values() {
            stopper.stop(AttemptEnd::Lost, Millis(0));
        }
        self.attempts.shutdown().await;
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::OpenLease(view) => {
                self.rooms.insert(view.lease, Arc::default());
            }
            Order::Run { renter, work } => {
                let attempt = work.attempt;
                if self.running.contains_key(&attempt) {
                    return; // an order is carried out once
                }
                let Some(room) = self.rooms.get(&attempt.lease).cloned() else {
                    error!(%attempt, "an attempt without a lease");
                    run::refuse(&self.tools, attempt, "the provider could not set up the lease");
                    return;
                };
                let (attempt_run, stopper) = Attempt::new(self.tools.clone(), room, renter, work);
                self.running.insert(attempt, stopper);
                self.attempts.spawn(attempt_run.run());
            }
            Order::Stop { attempt, end, grace } => {
                if let Some(stopper) = self.running.get(&attempt) {
                    stopper.stop(end, grace);
                }
            }
            Order::CloseLease(lease) => {
                // Attempts still winding down hold the room; its runners die when the last lets go.
                self.rooms.remove(&lease);
            }
            Order::Forget(lease) => {
                self.tools.rights.revoke(&lease);
                let (store, prefix) = (Arc::clone(&self.tools.store), logs::lease_prefix(&lease));
                tokio::spawn(async move { logs::remove(&store, &prefix).await });
            }
            Order::Serve { .. } | Order::Collect { .. } | Order::Abandon(_) | Order::Offer(_) => {
                debug!("an order for another room");
            }
        }
    }

    fn ended(&mut self, ended: Result<AttemptId, JoinError>) {
        match ended {
            Ok(attempt) => {
                self.running.remove(&attempt);
            }
            Err(error) => {
                // The guard of the attempt has reported it as a fault of this provider.
                error!(%error, "an attempt's task failed");
                self.running.retain(|_, stopper| !stopper.is_gone());
            }
        }
    }
}
