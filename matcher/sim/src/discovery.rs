//! Who hears of whose offers: all of all, or each renter of a bounded sample.

use std::sync::Arc;

use souk_matcher::Event;
use souk_protocol::{Offer, Verified};

use crate::{
    network::{NodeIndex, Pair},
    random::Dice,
    scenario::{Discovery, Scenario},
    time::Micros,
    world::{Happening, World},
};

/// Share of gossiped offers that a node misses, in millionths; the exchange between nodes makes up for it.
const OFFERS_MISSED: u32 = 50_000;
/// How often a renter that has work to do follows other providers.
const REFRESH: Micros = Micros::millis(600_000);
/// The part of its sample that it exchanges then.
const REFRESHED: usize = 8;

/// The samples of all renters.
#[derive(Debug)]
pub(crate) struct Samples {
    first_provider: usize,
    nodes: usize,
    /// By provider: its newest offer.
    newest: Vec<Option<Arc<Verified<Offer>>>>,
    /// By provider: the renters that follow it.
    followers: Vec<Vec<NodeIndex>>,
    /// By renter.
    renters: Vec<Follower>,
}

#[derive(Debug, Default, Clone)]
struct Follower {
    /// Providers, and the newest offer that was heard of each.
    follows: Vec<(NodeIndex, u64)>,
    /// Jobs that are not over. A renter without any does not listen.
    live_jobs: usize,
    refreshed: Micros,
}

impl Samples {
    pub(crate) fn new(seed: u64, scenario: &Scenario) -> Option<Self> {
        let Discovery::Sample { known } = scenario.discovery else { return None };
        let first_provider = scenario.nodes.saturating_sub(scenario.providers);
        let mut samples = Self {
            first_provider,
            nodes: scenario.nodes,
            newest: vec![None; scenario.nodes],
            followers: vec![Vec::new(); scenario.nodes],
            renters: vec![Follower::default(); scenario.renters],
        };
        let mut dice = Dice::new(seed, "samples");
        for renter in 0..scenario.renters {
            let mut follows = if known >= scenario.providers {
                (first_provider..scenario.nodes).collect::<Vec<_>>()
            } else {
                (0..known).filter_map(|_| samples.throw(&mut dice)).collect()
            };
            follows.sort_unstable();
            follows.dedup();
            for provider in &follows {
                samples.follow(renter, *provider);
            }
        }
        Some(samples)
    }

    fn throw(&self, dice: &mut Dice) -> Option<NodeIndex> {
        let providers = self.nodes.saturating_sub(self.first_provider) as u64;
        usize::try_from(dice.below(providers)).ok().map(|number| self.first_provider + number)
    }

    fn follow(&mut self, renter: NodeIndex, provider: NodeIndex) {
        let (Some(follower), Some(followers)) = (self.renters.get_mut(renter), self.followers.get_mut(provider)) else {
            return;
        };
        if renter != provider && !followers.contains(&renter) {
            follower.follows.push((provider, 0));
            followers.push(renter);
        }
    }

    /// A renter exchanges a part of its sample.
    fn refresh(&mut self, renter: NodeIndex, now: Micros, dice: &mut Dice) {
        let Some(follower) = self.renters.get_mut(renter) else { return };
        if now.since(follower.refreshed) < REFRESH || follower.follows.len() >= self.nodes - self.first_provider {
            return;
        }
        follower.refreshed = now;
        let gone: Vec<_> = follower.follows.drain(..follower.follows.len() / REFRESHED).collect();
        for (provider, _) in &gone {
            if let Some(followers) = self.followers.get_mut(*provider) {
                followers.retain(|other| *other != renter);
            }
        }
        for _ in &gone {
            if let Some(provider) = self.throw(dice) {
                self.follow(renter, provider);
            }
        }
    }

    /// Renters with work that follow `provider`.
    fn listeners(&self, provider: NodeIndex) -> Vec<NodeIndex> {
        let listens = |renter: &&NodeIndex| self.renters.get(**renter).is_some_and(|renter| renter.live_jobs > 0);
        self.followers.get(provider).into_iter().flatten().filter(listens).copied().collect()
    }

    /// Offers that a renter has not heard of, and now has.
    fn news(&mut self, renter: NodeIndex) -> Vec<Arc<Verified<Offer>>> {
        let newest = &self.newest;
        let Some(follower) = self.renters.get_mut(renter) else { return Vec::new() };
        let mut news = Vec::new();
        for (provider, heard) in &mut follower.follows {
            if let Some(offer) = newest.get(*provider).and_then(Option::as_ref)
                && offer.sequence > *heard
            {
                *heard = offer.sequence;
                news.push(Arc::clone(offer));
            }
        }
        news
    }

    /// One more or one fewer job of a renter. Whether it has just begun to listen.
    fn count(&mut self, renter: NodeIndex, more: bool) -> bool {
        let Some(follower) = self.renters.get_mut(renter) else { return false };
        let before = follower.live_jobs;
        follower.live_jobs = if more { before + 1 } else { before.saturating_sub(1) };
        more && before == 0
    }
}

impl World<'_> {
    /// A provider tells the network of its offer.
    pub(crate) fn offer(&mut self, from: NodeIndex, offer: Verified<Offer>) {
        let offer = Arc::new(offer);
        self.log(3, from, &offer.hash().0);
        let Some(samples) = &mut self.samples else { return self.gossip(from, offer) };
        if let Some(newest) = samples.newest.get_mut(from) {
            *newest = Some(Arc::clone(&offer));
        }
        for to in samples.listeners(from) {
            if self.network.passes(from, to) {
                let at = self.hops(from, to);
                self.push(at, Happening::Offer { to, offer: Arc::clone(&offer) });
            }
        }
    }

    fn gossip(&mut self, from: NodeIndex, offer: Arc<Verified<Offer>>) {
        self.learn_offer(from, Arc::clone(&offer));
        for to in 0..self.nodes.len() {
            if to != from && self.network.passes(from, to) && !self.dice.chance(OFFERS_MISSED) {
                let at = self.hops(from, to);
                self.push(at, Happening::Offer { to, offer: Arc::clone(&offer) });
            }
        }
    }

    /// A few hops of gossip.
    fn hops(&mut self, from: NodeIndex, to: NodeIndex) -> Micros {
        let distance = self.network.distance(Pair::of(from, to));
        self.now + self.dice.around(distance) + self.dice.around(distance)
    }

    pub(crate) fn learn_offer(&mut self, to: NodeIndex, offer: Arc<Verified<Offer>>) {
        let Some(node) = self.nodes.get_mut(to) else { return };
        let is_own = node.id == offer.provider;
        let Some(alive) = &mut node.alive else { return };
        if self.samples.is_none() {
            if alive.offers.get(&offer.provider).is_some_and(|known| known.sequence >= offer.sequence) {
                return;
            }
            alive.offers.insert(offer.provider, Arc::clone(&offer));
        }
        if !is_own {
            self.report.offers_heard += 1;
            self.tell_node(to, Event::Offer(Arc::unwrap_or_clone(offer)));
        }
    }

    /// A renter has one more job: if it is its first, it asks for the offers it has not heard of.
    pub(crate) fn listen(&mut self, renter: NodeIndex) {
        let (now, Some(samples)) = (self.now, &mut self.samples) else { return };
        if samples.count(renter, true) {
            samples.refresh(renter, now, &mut self.dice);
            for offer in samples.news(renter) {
                self.learn_offer(renter, offer);
            }
        }
    }

    /// A renter has one job fewer.
    pub(crate) fn stop_listening(&mut self, renter: NodeIndex) {
        if let Some(samples) = &mut self.samples {
            samples.count(renter, false);
        }
    }

    /// Anti-entropy: a node learns the offers that another knows.
    pub(crate) fn exchange_offers(&mut self, node: NodeIndex) {
        if let Some(samples) = &mut self.samples {
            for offer in samples.news(node) {
                self.learn_offer(node, offer);
            }
            return;
        }
        for _ in 0..2 {
            let other = usize::try_from(self.dice.below(self.nodes.len() as u64)).unwrap_or(0);
            if other == node || !self.network.passes(other, node) || !self.network.passes(node, other) {
                continue;
            }
            let known = self.nodes.get(other).and_then(|node| node.alive.as_ref());
            let offers: Vec<_> = known.map(|alive| alive.offers.values().cloned().collect()).unwrap_or_default();
            for offer in offers {
                self.learn_offer(node, offer);
            }
        }
    }
}
