//! A node of the market: both roles and the books behind one `handle`.

use std::{collections::VecDeque, fmt, sync::Arc};

use souk_protocol::{Control, JobSpec, LeaseFrame, Message, Millis, NodeId};

use crate::{
    books::Books,
    channel::Channel,
    context::{Context, Keys, Random, Waiting},
    event::{Event, Now, Output, Settings, Token},
    local,
    provider::Provider,
    record::Record,
    renter::{Plan, Renter},
};

/// Messages that a node may say to itself over one event. A few follow from each lease and attempt of it; more would be
/// two sides that answer each other for ever.
const MAX_OWN_WORDS: usize = 65_536;

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

    /// Handles one event. What this node says to itself is heard at once and never leaves here.
    pub fn handle(&mut self, event: Event, now: Now) -> Vec<Output> {
        let before = self.provider.capacity().free;
        let (mut own, mut out) = (VecDeque::new(), Vec::new());
        self.step(event, now, &mut own, &mut out);
        self.hear_itself(now, &mut own, &mut out);
        let after = self.provider.capacity().free;
        if after.cpu > before.cpu || after.memory > before.memory || after.disk > before.disk {
            let mut said = Vec::new();
            self.buys(now, &mut said, Renter::local_room);
            self.sort(said, &mut own, &mut out);
            self.hear_itself(now, &mut own, &mut out);
        }
        out
    }

    /// Lets this node answer itself until it has nothing more to say.
    fn hear_itself(&mut self, now: Now, own: &mut VecDeque<Message>, out: &mut Vec<Output>) {
        for _ in 0..MAX_OWN_WORDS {
            let Some(message) = own.pop_front() else { return };
            let from = self.id();
            self.step(Event::Message { from, message }, now, own, out);
        }
        // As if they had been lost on the way: what matters is repeated by its timer.
        own.clear();
    }

    fn step(&mut self, event: Event, now: Now, own: &mut VecDeque<Message>, out: &mut Vec<Output>) {
        let said = self.handle_one(event, now);
        self.sort(said, own, out);
    }

    /// Tells what is said to this node itself from all else.
    fn sort(&self, said: Vec<Output>, own: &mut VecDeque<Message>, out: &mut Vec<Output>) {
        let me = self.id();
        for output in said {
            match output {
                Output::Send { to, message } if to == me => own.push_back(message),
                output => out.push(output),
            }
        }
    }

    fn handle_one(&mut self, event: Event, now: Now) -> Vec<Output> {
        let mut said = Vec::new();
        let out = &mut said;
        match event {
            Event::Persisted(Token(token)) => return self.waiting.release(Token(token)),
            Event::Recovered => {
                self.sells(now, out, Provider::recovered);
                self.buys(now, out, Renter::recovered);
            }
            Event::Wake => {
                self.sells(now, out, Provider::wake);
                self.buys(now, out, Renter::wake);
            }
            Event::Message { from, message } => self.route(from, message, now, out),
            Event::PeerUp(peer) => {
                self.sells(now, out, |provider, cx| provider.peer_up(peer, cx));
                self.buys(now, out, |renter, cx| renter.peer_up(peer, cx));
            }
            Event::PeerDown(peer) => {
                self.sells(now, out, |provider, cx| provider.peer_down(peer, cx));
                self.buys(now, out, |renter, cx| renter.peer_down(peer, cx));
            }
            Event::SendFailed(peer) => {
                self.sells(now, out, |provider, cx| provider.send_failed(peer, cx));
                self.buys(now, out, |renter, cx| renter.send_failed(peer, cx));
            }
            Event::Rtt { peer, p95 } => self.renter.rtt(peer, p95),
            Event::Offer(offer) => self.buys(now, out, |renter, cx| renter.offer(offer, cx)),
            Event::Submit { job, spec } => self.buys(now, out, |renter, cx| renter.submit(job, spec, cx)),
            Event::Cancel { job } => self.buys(now, out, |renter, cx| renter.cancel(job, cx)),
            Event::Held { attempt } => self.buys(now, out, |renter, cx| renter.held(attempt, cx)),
            Event::NotHeld { attempt, reason } => {
                self.buys(now, out, |renter, cx| renter.not_held(attempt, &reason, cx));
            }
            Event::Policy(policy) => self.sells(now, out, |provider, cx| provider.policy(*policy, cx)),
            Event::Running { attempt, state } => {
                self.sells(now, out, |provider, cx| provider.running(attempt, state, cx));
            }
            Event::Ended { attempt, outcome } => {
                self.sells(now, out, |provider, cx| provider.ended(attempt, outcome, cx));
            }
            Event::Samples { attempt, samples } => {
                self.sells(now, out, |provider, cx| provider.samples(attempt, samples, cx));
            }
            Event::Drain => self.sells(now, out, Provider::drain),
            Event::Pause => self.sells(now, out, |provider, cx| provider.pause(true, cx)),
            Event::Resume => self.sells(now, out, |provider, cx| provider.pause(false, cx)),
            Event::Trust { peer, limit } => {
                let (_, mut cx) = self.seller(now, out);
                let record = Record::Trust { peer, limit };
                cx.books.trust(peer, limit);
                cx.persist(record, Vec::new());
            }
            Event::Discharge(discharge) => {
                let (_, mut cx) = self.seller(now, out);
                if cx.books.discharge(&discharge) {
                    cx.persist(Record::Discharge(discharge.into_signed()), Vec::new());
                }
            }
        }
        said
    }

    /// The renter and what it works with, this node's own desk among it.
    fn buyer<'a>(&'a mut self, now: Now, out: &'a mut Vec<Output>) -> (&'a mut Renter, Context<'a>) {
        let Self { settings, keys, random, waiting, books, renter, provider } = self;
        (renter, Context { now, settings, keys, random, books, waiting, local: Some(provider.desk()), out })
    }

    /// The provider and what it works with.
    fn seller<'a>(&'a mut self, now: Now, out: &'a mut Vec<Output>) -> (&'a mut Provider, Context<'a>) {
        let Self { settings, keys, random, waiting, books, renter: _, provider } = self;
        (provider, Context { now, settings, keys, random, books, waiting, local: None, out })
    }

    fn buys(&mut self, now: Now, out: &mut Vec<Output>, then: impl FnOnce(&mut Renter, &mut Context<'_>)) {
        let (renter, mut cx) = self.buyer(now, out);
        then(renter, &mut cx);
    }

    fn sells(&mut self, now: Now, out: &mut Vec<Output>, then: impl FnOnce(&mut Provider, &mut Context<'_>)) {
        let (provider, mut cx) = self.seller(now, out);
        then(provider, &mut cx);
    }

    /// What `spec` would find: this node's own capacity first where the job may run on it, then the live offers.
    #[must_use]
    pub fn plan(&self, spec: &JobSpec, now: Now) -> Plan {
        let local = local::planned(self.id(), self.provider.desk(), spec, now);
        self.renter.plan(spec, local, &self.books, &self.settings, now.wall)
    }

    fn route(&mut self, from: NodeId, message: Message, now: Now, out: &mut Vec<Output>) {
        let (me, network) = (self.id(), self.settings.network);
        let blame = |out: &mut Vec<Output>, fault: String| out.push(Output::Blame { peer: from, fault });
        match message {
            Message::Announce(announcement) => match announcement.verify(&*self.keys) {
                Ok(call) if call.renter == from => self.sells(now, out, |provider, cx| provider.announce(call, cx)),
                Ok(_) => blame(out, "an announcement of somebody else".to_owned()),
                Err(error) => blame(out, format!("announcement: {error}")),
            },
            Message::Bid(bid) => match bid.verify(&*self.keys) {
                Ok(bid) if bid.provider == from && bid.renter == me => {
                    self.buys(now, out, |renter, cx| renter.bid(bid, cx));
                }
                Ok(_) => blame(out, "a bid of or for somebody else".to_owned()),
                Err(error) => blame(out, format!("bid: {error}")),
            },
            Message::Decline(decline) => self.buys(now, out, |renter, cx| renter.decline(from, decline, cx)),
            Message::Award { award, work, files: _ } => match award.verify(&*self.keys) {
                Ok(award) if award.renter == from && award.provider == me && award.network == network => {
                    self.sells(now, out, |provider, cx| provider.award(award, work.into_vec(), cx));
                }
                Ok(_) => blame(out, "an award of or for somebody else".to_owned()),
                Err(error) => blame(out, format!("award: {error}")),
            },
            Message::Lost(lost) => match lost.tally.verify(&*self.keys) {
                Ok(tally) if tally.renter == from => {
                    self.sells(now, out, |provider, cx| provider.lost(&lost, &tally, cx));
                }
                Ok(_) => blame(out, "a tally of somebody else's auction".to_owned()),
                Err(error) => blame(out, format!("tally: {error}")),
            },
            Message::Lease(frame) => self.route_frame(from, frame, now, out),
        }
    }

    /// Gives a frame to the side of the lease that it is for. Of a lease with itself this node is both.
    fn route_frame(&mut self, from: NodeId, frame: LeaseFrame, now: Now, out: &mut Vec<Output>) {
        let own = from == self.id();
        let to_renter = if own { local::is_of_provider(&frame) } else { self.renter.knows(&frame.lease) };
        if to_renter && self.renter.knows(&frame.lease) {
            self.buys(now, out, |renter, cx| renter.frame(from, frame, cx));
        } else if !to_renter && self.provider.knows(&frame.lease) {
            self.sells(now, out, |provider, cx| provider.frame(from, frame, cx));
        } else {
            let boot = if own && !to_renter { local::boot(self.settings.boot) } else { self.settings.boot };
            self.buys(now, out, |renter, cx| unknown_lease(renter, from, frame, boot, cx));
        }
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

/// A frame of a lease nobody here knows. A provider that shows its documents may be taken up; all else is told so, once
/// and without state, so that two forgetful nodes cannot talk for ever.
fn unknown_lease(renter: &mut Renter, from: NodeId, frame: LeaseFrame, boot: u64, cx: &mut Context<'_>) {
    match frame.body {
        Control::Unknown => {}
        Control::Show { .. } => renter.shown(from, frame, cx),
        _ => {
            let answer = Channel::new(frame.lease, boot).say(Control::Unknown);
            cx.send_frame(from, answer);
        }
    }
}
