//! A node of the market: both roles and the books behind one `handle`.

use std::{fmt, sync::Arc};

use souk_protocol::{Control, LeaseFrame, Message, Millis, NodeId};

use crate::{
    books::Books,
    channel::Channel,
    context::{Context, Keys, Random, Waiting},
    event::{Event, Now, Output, Settings, Token},
    provider::Provider,
    record::Record,
    renter::Renter,
};

/// A record of the journal contradicts those before it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record does not follow from those before it: {0}")]
pub struct ReplayError(pub String);

/// The market's rules for one node.
pub struct Trader {
    settings: Settings,
    keys: Arc<dyn Keys>,
    random: Random,
    waiting: Waiting,
    /// What is owed to whom.
    pub books: Books,
    /// The jobs of this node.
    pub renter: Renter,
    /// The work of this node for others.
    pub provider: Provider,
}

impl fmt::Debug for Trader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trader").field("me", &self.keys.id().short()).finish_non_exhaustive()
    }
}

impl Trader {
    /// A node without a past. Replay the journal with [`apply`](Self::apply), then handle [`Event::Recovered`].
    #[must_use]
    pub fn new(settings: Settings, keys: Arc<dyn Keys>) -> Self {
        let random = Random::new(settings.seed);
        Self {
            books: Books::new(keys.id(), settings.params.credit),
            renter: Renter::keeping(settings.keep),
            provider: Provider::keeping(settings.keep),
            waiting: Waiting::default(),
            settings,
            keys,
            random,
        }
    }

    /// Replays one record of the journal.
    ///
    /// # Errors
    /// [`ReplayError`]: the journal is not one that this node wrote.
    pub fn apply(&mut self, record: &Record) -> Result<(), ReplayError> {
        self.books.apply(record, &*self.keys)?;
        self.renter.apply(record, &*self.keys)?;
        self.provider.apply(record, &*self.keys)
    }

    /// Handles one event.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Output> {
        let mut out = Vec::new();
        if let Event::Persisted(Token(token)) = event {
            return self.waiting.release(Token(token));
        }
        let mut cx = Context {
            now,
            settings: &self.settings,
            keys: &self.keys,
            random: &mut self.random,
            books: &mut self.books,
            waiting: &mut self.waiting,
            out: &mut out,
        };
        match event {
            Event::Persisted(_) => {}
            Event::Recovered => {
                self.provider.recovered(&mut cx);
                self.renter.recovered(&mut cx);
            }
            Event::Wake => {
                self.provider.wake(&mut cx);
                self.renter.wake(&mut cx);
            }
            Event::Message { from, message } => route(&mut self.renter, &mut self.provider, from, message, &mut cx),
            Event::PeerUp(peer) => {
                self.provider.peer_up(peer, &mut cx);
                self.renter.peer_up(peer, &mut cx);
            }
            Event::PeerDown(peer) => {
                self.provider.peer_down(peer, &mut cx);
                self.renter.peer_down(peer, &mut cx);
            }
            Event::SendFailed(peer) => {
                self.provider.send_failed(peer, &mut cx);
                self.renter.send_failed(peer, &mut cx);
            }
            Event::Rtt { peer, p95 } => self.renter.rtt(peer, p95),
            Event::Offer(offer) => self.renter.offer(offer, &mut cx),
            Event::Submit { job, spec } => self.renter.submit(job, spec, &mut cx),
            Event::Cancel { job } => self.renter.cancel(job, &mut cx),
            Event::Held { attempt } => self.renter.held(attempt, &mut cx),
            Event::NotHeld { attempt, reason } => self.renter.not_held(attempt, &reason, &mut cx),
            Event::Policy(policy) => self.provider.policy(*policy, &mut cx),
            Event::Running { attempt, state } => self.provider.running(attempt, state, &mut cx),
            Event::Ended { attempt, outcome } => self.provider.ended(attempt, outcome, &mut cx),
            Event::Samples { attempt, samples } => self.provider.samples(attempt, samples, &mut cx),
            Event::Drain => self.provider.drain(&mut cx),
            Event::Pause => self.provider.pause(true, &mut cx),
            Event::Resume => self.provider.pause(false, &mut cx),
            Event::Trust { peer, limit } => {
                let record = Record::Trust { peer, limit };
                cx.books.trust(peer, limit);
                cx.persist(record, Vec::new());
            }
            Event::Discharge(discharge) => {
                if cx.books.discharge(&discharge) {
                    cx.persist(Record::Discharge(discharge.into_signed()), Vec::new());
                }
            }
        }
        out
    }

    /// When [`Event::Wake`] is due, on the monotonic clock.
    #[must_use]
    pub fn wake_at(&self) -> Option<Millis> {
        [self.renter.wake_at(), self.provider.wake_at()].into_iter().flatten().min()
    }

    /// The node.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.keys.id()
    }

    /// What does not change while the node runs.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }
}

fn route(renter: &mut Renter, provider: &mut Provider, from: NodeId, message: Message, cx: &mut Context<'_>) {
    match message {
        Message::Announce(announcement) => match cx.verify(&announcement) {
            Ok(announcement) if announcement.renter == from => provider.announce(announcement, cx),
            Ok(_) => cx.blame(from, "an announcement of somebody else"),
            Err(error) => cx.blame(from, format_args!("announcement: {error}")),
        },
        Message::Bid(bid) => match cx.verify(&bid) {
            Ok(bid) if bid.provider == from && bid.renter == cx.me() => renter.bid(bid, cx),
            Ok(_) => cx.blame(from, "a bid of or for somebody else"),
            Err(error) => cx.blame(from, format_args!("bid: {error}")),
        },
        Message::Decline(decline) => renter.decline(from, decline, cx),
        Message::Award { award, work, files: _ } => match cx.verify(&award) {
            Ok(award) if award.renter == from && award.provider == cx.me() && award.network == cx.settings.network => {
                provider.award(award, work.into_vec(), cx);
            }
            Ok(_) => cx.blame(from, "an award of or for somebody else"),
            Err(error) => cx.blame(from, format_args!("award: {error}")),
        },
        Message::Lost(lost) => match cx.verify(&lost.tally) {
            Ok(tally) if tally.renter == from => provider.lost(&lost, &tally, cx),
            Ok(_) => cx.blame(from, "a tally of somebody else's auction"),
            Err(error) => cx.blame(from, format_args!("tally: {error}")),
        },
        Message::Lease(frame) => {
            if renter.knows(&frame.lease) {
                renter.frame(from, frame, cx);
            } else if provider.knows(&frame.lease) {
                provider.frame(from, frame, cx);
            } else {
                unknown_lease(renter, from, frame, cx);
            }
        }
    }
}

/// A frame of a lease nobody here knows. A provider that shows its documents may be taken up; all else is told so, once
/// and without state, so that two forgetful nodes cannot talk for ever.
fn unknown_lease(renter: &mut Renter, from: NodeId, frame: LeaseFrame, cx: &mut Context<'_>) {
    match frame.body {
        Control::Unknown => {}
        Control::Show { .. } => renter.shown(from, frame, cx),
        _ => {
            let answer = Channel::new(frame.lease, cx.settings.boot).say(Control::Unknown);
            cx.send_frame(from, answer);
        }
    }
}
