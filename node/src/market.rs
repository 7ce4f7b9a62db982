//! The task that owns the [`Trader`]: it feeds it events and carries out what it says.
//!
//! States: running until the journal fails or the node shuts down. Talks to the journal (records in, positions out),
//! the network (frames), the [`executor`](crate::executor) and the [`collector`](crate::collector) through [`Hands`],
//! and to everybody who wants to know through [`Feed`].

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt as _, future::BoxFuture, stream::FuturesOrdered};
use souk_matcher::{Event, LeaseView, Notice, Now, Output, Record, Token, Trader};
use souk_protocol::{
    AttemptEnd, AttemptId, JobSpec, LeaseId, Message, Millis, NodeId, Offer, TaskResult, Timestamp, Verified, Work,
};
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::{
    clock::Clock,
    net::{Net, SendError},
    store::{Entry, Journal, JournalError},
};

/// Events that may wait for the trader. It handles one in microseconds, so a full queue means that the disk stands
/// still; senders then wait, which is back-pressure on the network and the executor.
const QUEUE: usize = 4_096;
/// Notices kept for those who come late. The oldest are dropped.
const HISTORY: usize = 65_536;
/// Notices a slow reader may lag behind before it must catch up from the history.
const LAG: usize = 4_096;
/// Kind of a journal entry that holds a [`Record`].
pub const RECORD_KIND: u16 = 1;

/// The node has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the node is stopping")]
pub struct NodeGone;

/// A notice with its place in the order and its time.
#[derive(Debug, Clone)]
pub struct Stamped {
    /// Rises by one, from 1 with each start of the node.
    pub seq: u64,
    /// When, by this node's clock.
    pub at: Timestamp,
    /// What.
    pub notice: Notice,
}

/// What happened, for those who follow it and for those who come late.
#[derive(Debug, Clone)]
pub struct Feed(Arc<FeedInner>);

#[derive(Debug)]
struct FeedInner {
    live: broadcast::Sender<Arc<Stamped>>,
    // A lock and not a message: readers want the past and the subscription at one moment.
    past: Mutex<VecDeque<Arc<Stamped>>>,
}

impl Feed {
    fn new() -> Self {
        Self(Arc::new(FeedInner { live: broadcast::Sender::new(LAG), past: Mutex::new(VecDeque::new()) }))
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<Arc<Stamped>>> {
        self.0.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, at: Timestamp, notice: Notice) {
        let mut past = self.past();
        let seq = past.back().map_or(1, |last| last.seq.saturating_add(1));
        let stamped = Arc::new(Stamped { seq, at, notice });
        if past.len() >= HISTORY {
            past.pop_front();
        }
        past.push_back(Arc::clone(&stamped));
        // No listener is the normal case.
        let _ = self.0.live.send(stamped);
    }

    /// Everything after `seq` that is still known, and all that follows.
    #[must_use]
    pub fn after(&self, seq: u64) -> (Vec<Arc<Stamped>>, broadcast::Receiver<Arc<Stamped>>) {
        let past = self.past();
        let receiver = self.0.live.subscribe();
        (past.iter().filter(|stamped| stamped.seq > seq).cloned().collect(), receiver)
    }
}

#[expect(clippy::large_enum_variant, reason = "nearly all commands are events, and each is handled at once")]
enum Command {
    Event(Event),
    With(Box<dyn FnOnce(&Trader) + Send>),
}

/// Handle on the market task; clones share it.
#[derive(Clone)]
pub struct MarketHandle {
    commands: mpsc::Sender<Command>,
    feed: Feed,
    clock: Clock,
}

impl std::fmt::Debug for MarketHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarketHandle").finish_non_exhaustive()
    }
}

impl MarketHandle {
    /// Gives the trader an event. Waits while its queue is full.
    ///
    /// # Errors
    /// [`NodeGone`].
    pub async fn event(&self, event: Event) -> Result<(), NodeGone> {
        self.commands.send(Command::Event(event)).await.map_err(|_| NodeGone)
    }

    /// Looks at the trader between two events.
    ///
    /// # Errors
    /// [`NodeGone`].
    pub async fn with<R: Send + 'static>(
        &self,
        look: impl FnOnce(&Trader) -> R + Send + 'static,
    ) -> Result<R, NodeGone> {
        let (reply, answer) = oneshot::channel();
        let look = Box::new(move |trader: &Trader| {
            // A caller that went away is normal.
            let _ = reply.send(look(trader));
        });
        self.commands.send(Command::With(look)).await.map_err(|_| NodeGone)?;
        answer.await.map_err(|_| NodeGone)
    }

    /// What happened and what happens.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The node's time.
    #[must_use]
    pub fn now(&self) -> Now {
        self.clock.now()
    }
}

/// What the trader wants of the rest of the node. Never waits: each room has its own bounded queue.
#[derive(Debug)]
pub enum Order {
    /// Executor: get slots ready.
    OpenLease(LeaseView),
    /// Executor: fetch and run.
    Run {
        /// For whom.
        renter: NodeId,
        /// What.
        work: Work,
    },
    /// Executor: stop an attempt.
    Stop {
        /// Which.
        attempt: AttemptId,
        /// Why.
        end: AttemptEnd,
        /// Time to stop by itself.
        grace: Millis,
    },
    /// Executor: free the slots of a lease.
    CloseLease(LeaseId),
    /// Executor and collector: drop what is kept of a lease.
    Forget(LeaseId),
    /// Collector: this peer may fetch the job's data, and sends logs.
    Serve {
        /// The lease.
        lease: LeaseView,
        /// Whose data.
        spec: Arc<JobSpec>,
    },
    /// Collector: get what a result promises.
    Collect {
        /// From whom.
        provider: NodeId,
        /// What.
        result: Verified<TaskResult>,
    },
    /// Collector: no more.
    Abandon(AttemptId),
    /// Offers: tell the network.
    Offer(Verified<Offer>),
}

/// Where orders go.
#[derive(Debug, Clone)]
pub struct Hands {
    /// To the executor.
    pub executor: mpsc::Sender<Order>,
    /// To the collector.
    pub collector: mpsc::Sender<Order>,
    /// To the offers.
    pub offers: mpsc::Sender<Order>,
}

/// The receiving end of a [`MarketHandle`], before the task starts: lets the rooms be built in a circle.
pub struct MarketInbox(mpsc::Receiver<Command>);

impl std::fmt::Debug for MarketInbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MarketInbox").finish_non_exhaustive()
    }
}

/// A handle and its inbox.
#[must_use]
pub fn channel(clock: Clock) -> (MarketHandle, MarketInbox) {
    let (commands, inbox) = mpsc::channel(QUEUE);
    (MarketHandle { commands, feed: Feed::new(), clock }, MarketInbox(inbox))
}

/// The market task.
#[derive(Debug)]
pub struct Market {
    /// The rules.
    pub trader: Trader,
    /// Where records go.
    pub journal: Journal,
    /// The network.
    pub net: Net,
    /// The other rooms.
    pub hands: Hands,
    /// For the notices and the time.
    pub handle: MarketHandle,
    /// Ends the task.
    pub stop: CancellationToken,
}

type Syncing = FuturesOrdered<BoxFuture<'static, Result<Token, JournalError>>>;

impl Market {
    /// Runs until the node stops.
    ///
    /// # Errors
    /// [`JournalError`]: nothing can be promised any more; the node must stop.
    pub async fn run(mut self, inbox: MarketInbox) -> Result<(), JournalError> {
        let mut commands = inbox.0;
        let mut syncing = Syncing::new();
        self.handle(Event::Recovered, &mut syncing).await?;
        loop {
            let wake = self.trader.wake_at().map(|at| self.handle.clock.instant(at));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(()),
                Some(durable) = syncing.next(), if !syncing.is_empty() => {
                    self.handle(Event::Persisted(durable?), &mut syncing).await?;
                }
                command = commands.recv() => match command {
                    Some(Command::Event(event)) => self.handle(event, &mut syncing).await?,
                    Some(Command::With(look)) => look(&self.trader),
                    None => return Ok(()),
                },
                () = sleep_until(wake.unwrap_or_else(far)), if wake.is_some() => {
                    self.handle(Event::Wake, &mut syncing).await?;
                }
            }
        }
    }

    async fn handle(&mut self, event: Event, syncing: &mut Syncing) -> Result<(), JournalError> {
        let now = self.handle.clock.now();
        for output in self.trader.handle(event, now) {
            match output {
                Output::Persist { record, token } => {
                    let pending = self.journal.queue(vec![entry(&record, &self.trader.id())?]).await?;
                    syncing.push_back(Box::pin(async move { pending.all().await.map(|_| token) }));
                }
                Output::Send { to, message } => self.send(to, &message),
                Output::Blame { peer, fault } => warn!(peer = %peer.short(), %fault, "peer at fault"),
                Output::Notify(notice) => self.handle.feed.push(now.wall, notice),
                Output::Offer(offer) => order(&self.hands.offers, Order::Offer(offer)).await,
                Output::OpenLease(lease) => order(&self.hands.executor, Order::OpenLease(lease)).await,
                Output::Run { renter, work } => order(&self.hands.executor, Order::Run { renter, work }).await,
                Output::Stop { attempt, end, grace } => {
                    order(&self.hands.executor, Order::Stop { attempt, end, grace }).await;
                }
                Output::CloseLease { lease } => order(&self.hands.executor, Order::CloseLease(lease)).await,
                Output::Forget { lease } => {
                    order(&self.hands.executor, Order::Forget(lease)).await;
                    order(&self.hands.collector, Order::Forget(lease)).await;
                }
                Output::Serve { lease, spec } => order(&self.hands.collector, Order::Serve { lease, spec }).await,
                Output::Collect { provider, result } => {
                    order(&self.hands.collector, Order::Collect { provider, result }).await;
                }
                Output::Abandon { attempt } => order(&self.hands.collector, Order::Abandon(attempt)).await,
            }
        }
        Ok(())
    }

    fn send(&self, to: NodeId, message: &Message) {
        let frame = match message.encode() {
            Ok(frame) => frame,
            Err(error) => {
                error!(%error, "a message of ours does not fit the wire");
                return;
            }
        };
        // What is lost here is repeated by the trader.
        if let Err(error) = self.net.send(to, frame) {
            debug!(peer = %to.short(), %error, "not sent");
            self.failed(to, &error);
        }
    }

    fn failed(&self, to: NodeId, _: &SendError) {
        // Into the own queue without waiting: a full one drops it, and the trader's timers do the rest.
        let _ = self.handle.commands.try_send(Command::Event(Event::SendFailed(to)));
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

async fn order(room: &mpsc::Sender<Order>, order: Order) {
    // A room that is gone is shutting down with the node.
    let _ = room.send(order).await;
}

/// The journal entry of a record, with what it signs once.
///
/// # Errors
/// [`JournalError::TooLarge`].
pub fn entry(record: &Record, me: &NodeId) -> Result<Entry, JournalError> {
    let payload = record.encode().map_err(|_| JournalError::TooLarge {
        what: "record",
        length: souk_protocol::MAX_SPEC,
        limit: souk_protocol::MAX_SPEC,
    })?;
    let mut entry = Entry::new(RECORD_KIND, payload);
    for once in record.once(me) {
        entry = entry.once(once.kind, once.key, once.digest.0);
    }
    Ok(entry)
}
