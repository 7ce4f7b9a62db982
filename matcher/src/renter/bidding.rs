//! Auctions of a job: invitations, bids and declines, the table, its awards.

use std::collections::{BTreeMap, BTreeSet};

use souk_protocol::{
    Announcement, Basis, Bid, Decline, DeclineCode, Hash, JobId, List, Lost, Message, Millis, NodeId, Rate, Tally,
    Verified,
};

use super::{
    Renter,
    lease::{Lease, Phase},
    place::MAX_LISTED,
    reason,
};
use crate::{
    auction::{self, Auction, Heard, Invitee, Loser, Table, count},
    context::Context,
    event::Reason,
    filter::{self, Demand, Miss},
    rank::{Candidate, Loss, UNKNOWN_RTT},
};

impl Renter {
    /// Invites providers to bid.
    pub(super) fn open_auction(&mut self, id: &JobId, wanted: u32, cx: &mut Context<'_>) {
        let (Some(job), Some(placing)) = (self.jobs.get(id), self.placing.get(id)) else { return };
        let spec = std::sync::Arc::clone(job.spec());
        let demand = self.demand(job, self.promised(id), cx.settings);
        let found = self.search(&demand, cx.now.wall, cx.books);
        let now = cx.now;
        let silent = self.silent();
        let known: Vec<_> = found
            .inviting
            .iter()
            .filter(|offer| !placing.avoid.contains_key(&offer.provider) && !silent.contains(&offer.provider))
            .filter(|offer| self.next_task(job, &offer.provider).is_some())
            .collect();
        // One that only bids is taken to ask what the others ask.
        let typical = found.inviting.iter().filter_map(|offer| filter::ask(offer, &spec.requirement)).min();
        let invitees: Vec<_> = known
            .iter()
            .map(|offer| {
                let rate = filter::ask(offer, &spec.requirement).or(typical).unwrap_or(Rate::ZERO);
                let candidate = self.candidate(offer, rate, 1, &spec.terms);
                let newcomer = self.records.reliability(&offer.provider).is_none();
                let full = offer.free.slots(&spec.requirement) == 0;
                Invitee { newcomer, candidate, full }
            })
            .collect();
        let (seen, hints) = (found.seen, found.reasons());
        let broke = found.inviting.is_empty() && found.over_budget > 0;
        if invitees.is_empty() {
            // Passed over for now.
            let full = found.inviting.iter().any(|offer| !placing.hopeless.contains(&offer.provider));
            let text = format!("of {seen} offers none will do");
            let summary = vec![reason("no-offers", text, u64::from(seen), None)];
            return self.nothing(id, full, broke, [summary, hints].concat(), cx);
        }
        let window = cx.settings.params.bid_window_max;
        let start_at = spec.sla.start_at.filter(|at| super::reserves(&spec) && *at > now.wall);
        let start_within = match start_at {
            Some(_) => spec.sla.start_within,
            None => placing.start_by.filter(|_| !job.has_started()).map(|by| by.saturating_sub(now.mono)),
        };
        let call = Announcement {
            renter: cx.me(),
            network: cx.settings.network,
            job: *id,
            round: placing.round,
            requirement: spec.requirement.clone(),
            terms: spec.terms,
            slots: wanted,
            tasks: spec.task_count(),
            data: spec.data_len(),
            max_rate: spec.market.max_rate,
            start_at,
            start_within,
            issued: now.wall,
            closes: now.wall.saturating_add(window),
        };
        let Some(call) = cx.sign(&call) else { return };
        let loss = Loss::of(spec.sla.loss, spec.terms.tier);
        let most = usize::from(cx.settings.params.invites);
        let chosen = auction::invites(invitees, most, &call.hash(), spec.terms.timeout, loss);
        let invited: Vec<_> = chosen.iter().map(|provider| (*provider, self.rtts.get(provider))).collect();
        for provider in &chosen {
            cx.send(*provider, Message::Announce(call.signed().clone()));
        }
        self.auctions.insert(call.hash(), *id);
        if let Some(placing) = self.placing.get_mut(id) {
            placing.start_at = start_at;
            placing.auction = Some(Auction::open(call, invited, now.mono, window));
        }
    }

    pub(crate) fn bid(&mut self, bid: Verified<Bid>, cx: &mut Context<'_>) {
        let Some(id) = self.auctions.get(&bid.announcement).copied() else { return }; // late: the round is closed
        let provider = bid.provider;
        let Some(auction) = self.placing.get_mut(&id).and_then(|placing| placing.auction.as_mut()) else { return };
        match auction.bid(bid) {
            Heard::Counted | Heard::Ignored => {}
            Heard::Contradicts => cx.blame(provider, "two different bids on one announcement"),
            Heard::Uninvited => cx.blame(provider, "a bid without an invitation"),
        }
        self.close_auction(&id, cx);
    }

    pub(crate) fn decline(&mut self, from: NodeId, decline: Decline, cx: &mut Context<'_>) {
        if let Some(id) = self.auctions.get(&decline.subject).copied() {
            if let Some(auction) = self.placing.get_mut(&id).and_then(|placing| placing.auction.as_mut()) {
                auction.decline(&from, decline);
            }
            return self.close_auction(&id, cx);
        }
        let award = self.live_leases.iter().filter_map(|id| self.leases.get(id)).find(|lease| {
            lease.provider() == from
                && matches!(lease.phase, Phase::Awarded(_))
                && lease.award_hash() == decline.subject
        });
        let Some((lease, id)) = award.map(|lease| (lease.id(), lease.job())) else { return };
        if let Some(placing) = self.placing.get_mut(&id) {
            placing.refused.insert(from);
            placing.retry_at = None; // the next best at once
            placing.full |= is_about_room(decline.code);
            if matches!(decline.code, DeclineCode::ClockSkew | DeclineCode::Denied) {
                placing.avoid.insert(from, cx.now.mono.saturating_add(super::AVOID));
            }
            // An offer that is unknown there will be followed by another.
            if !is_about_room(decline.code) && decline.code != DeclineCode::Unknown {
                placing.hopeless.insert(from);
            }
        }
        if is_about_room(decline.code) {
            self.raced_until = Some(cx.now.mono.saturating_add(super::RACED));
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            let nearest = (!decline.nearest.is_empty()).then(|| decline.nearest.to_string());
            job.hint(reason(decline.code.word(), format!("awards declined: {}", decline.code), 1, nearest));
        }
        self.drop_award(&lease, cx);
    }

    /// Closes an auction once everybody has answered or had the time to.
    pub(super) fn close_auction(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let Some(placing) = self.placing.get_mut(id) else { return };
        if !placing.auction.as_ref().is_some_and(|auction| auction.is_over(cx.now.mono)) {
            return;
        }
        let Some(auction) = placing.auction.take() else { return };
        self.auctions.remove(&auction.call().hash());
        let (Some(job), Some(placing)) = (self.jobs.get(id), self.placing.get(id)) else { return };
        let demand = self.demand(job, self.promised(id), cx.settings);
        let terms = &job.spec().terms;
        let mut unfit: BTreeMap<&'static str, (u64, Miss)> = BTreeMap::new();
        let now = cx.now;
        let judge = |bid: &Bid| {
            if let Some(stale) = filter::stale(bid, auction.call(), cx.settings.params.clock_skew) {
                return Err(stale);
            }
            let known = self.known(&bid.provider, cx.books);
            filter::bid(bid, &demand, &known, now.wall).map(|()| known)
        };
        let second = |provider: &NodeId| placing.is_second_choice(provider, now.mono);
        let others = auction.bids().any(|bid| !second(&bid.provider) && judge(bid).is_ok());
        let fits = |bid: &Bid| {
            if others && second(&bid.provider) {
                return None;
            }
            match judge(bid) {
                Ok(known) => Some(Candidate {
                    provider: bid.provider,
                    document: Hash([0; 32]), // the table knows it
                    rate: bid.rate,
                    slots: bid.slots,
                    reliability: self.steadiness(&bid.provider, terms),
                    rtt: ready(known.rtt, bid.ready_in),
                }),
                Err(miss) => {
                    let entry = unfit.entry(miss.code).or_insert_with(|| (0, miss.clone()));
                    entry.0 = entry.0.saturating_add(1);
                    if miss.distance < entry.1.distance {
                        entry.1 = miss;
                    }
                    None
                }
            }
        };
        let table = Table::of(&auction, fits, terms.timeout, Loss::of(job.spec().sla.loss, terms.tier));
        let wanted = self.wanted(id);
        let mut left = wanted;
        let listed = table.bids().take(MAX_LISTED).map(|bid| {
            let won = left > 0;
            left = left.saturating_sub(bid.slots);
            (bid.provider, bid.rate, bid.slots, won)
        });
        let report = auction.report(listed.collect(), cx.now.mono);
        let empty = table.is_used_up();
        let (root, losers) = (table.root(), table.losers(&auction, wanted));
        let full = auction.declines().any(|(_, decline)| is_about_room(decline.code));
        // Whoever bid too early, too late or for no slot may do better next time.
        let passing = unfit.keys().any(|code| matches!(*code, "expired" | "stale" | "no-capacity"));
        let broke = unfit.contains_key("budget") && !passing && !self.may_bid_less(&auction, &demand, cx);
        let hints = why_no_bids(&auction, &unfit);
        self.reported(id, report, cx);
        if let Some(placing) = self.placing.get_mut(id) {
            placing.round = placing.round.saturating_add(1);
            placing.table = (!empty).then_some(table);
        }
        if empty {
            self.nothing(id, full, broke, hints, cx);
        } else {
            if let Some(job) = self.jobs.get_mut(id) {
                job.hints = hints;
            }
            self.award_by_table(id, wanted, cx);
        }
        tell_losers(&auction, root, &losers, cx);
        self.show_state(id, cx);
    }

    /// Whether there is somebody whose price may fit the budget and who has not said otherwise: not asked in this round,
    /// silent, or without room for now.
    fn may_bid_less(&self, auction: &Auction, demand: &Demand<'_>, cx: &Context<'_>) -> bool {
        let bids = auction.bids().map(|bid| bid.provider);
        let declined = auction.declines().filter(|(_, decline)| !is_about_room(decline.code));
        let said: BTreeSet<NodeId> = bids.chain(declined.map(|(provider, _)| *provider)).collect();
        let found = self.search(demand, cx.now.wall, cx.books);
        found.inviting.iter().any(|offer| !said.contains(&offer.provider))
    }

    /// Awards to the next best of the table until the slots are covered or it is used up.
    pub(super) fn award_by_table(&mut self, id: &JobId, wanted: u32, cx: &mut Context<'_>) {
        let mut left = wanted;
        while left > 0 {
            let Some(placing) = self.placing.get_mut(id) else { return };
            let Some(table) = placing.table.as_mut() else { return };
            let (root, start_at) = (table.root(), placing.start_at);
            let Some(bid) = table.take() else {
                placing.table = None;
                placing.wait(cx.now.mono);
                return;
            };
            if bid.valid_until < cx.now.wall || placing.passes_over(&bid.provider, cx.now.mono) {
                continue;
            }
            if self.jobs.get(id).is_none_or(|job| self.next_task(job, &bid.provider).is_none()) {
                continue;
            }
            let slots = bid.slots.min(left);
            let start = start_at.unwrap_or(cx.now.wall.saturating_add(bid.ready_in));
            let basis = Basis::Bid { bid: bid.hash(), table: root };
            left = left.saturating_sub(self.send_award(id, bid.provider, basis, bid.rate, (slots, start), cx));
        }
    }

    pub(crate) fn send_failed(&mut self, peer: NodeId, cx: &mut Context<'_>) {
        let awards: Vec<_> = self
            .live_leases
            .iter()
            .filter_map(|id| self.leases.get(id))
            .filter(|lease| lease.provider() == peer && matches!(lease.phase, Phase::Awarded(_)))
            .map(Lease::id)
            .collect();
        for id in awards {
            self.void(&id, cx);
        }
        let auctions: Vec<_> = self.auctions.values().copied().collect();
        for id in auctions {
            if let Some(auction) = self.placing.get_mut(&id).and_then(|placing| placing.auction.as_mut()) {
                auction.unreachable(&peer);
            }
            self.close_auction(&id, cx);
        }
    }
}

/// Tells those that did not win how far off they were, with the proof that they were counted. One signature commits to
/// the whole table, whoever asks.
fn tell_losers(auction: &Auction, root: Hash, losers: &[Loser], cx: &mut Context<'_>) {
    if losers.is_empty() {
        return;
    }
    let tally = Tally {
        announcement: auction.call().hash(),
        renter: cx.me(),
        table: root,
        bids: count(auction.bids().count()),
        at: cx.now.wall,
    };
    let Some(tally) = cx.sign(&tally) else { return };
    for loser in losers {
        let Ok(path) = List::try_from(loser.path.clone()) else { continue };
        let lost = Lost {
            tally: tally.signed().clone(),
            bid: loser.bid,
            index: count(loser.index),
            path,
            rank: loser.rank,
            over: loser.over,
        };
        cx.send(loser.provider, Message::Lost(lost));
    }
}

/// The round trip as the rank sees it: slots that are not ready idle for as long.
fn ready(rtt: Option<Millis>, ready_in: Millis) -> Option<Millis> {
    if ready_in.is_zero() { rtt } else { Some(rtt.unwrap_or(UNKNOWN_RTT).saturating_add(ready_in)) }
}

/// Whether a decline says that waiting may help.
const fn is_about_room(code: DeclineCode) -> bool {
    matches!(code, DeclineCode::NoCapacity | DeclineCode::Busy)
}

/// Why an auction gave no bid that will do.
fn why_no_bids(auction: &Auction, unfit: &BTreeMap<&'static str, (u64, Miss)>) -> Vec<Reason> {
    let (invited, silent) = (auction.invited(), auction.silent());
    let text = format!("of {invited} invited providers none made a bid that will do; {silent} did not answer");
    let mut reasons = vec![reason("no-bids", text, u64::from(count(invited)), None)];
    let mut declines: BTreeMap<DeclineCode, (u64, String)> = BTreeMap::new();
    for (_, decline) in auction.declines() {
        let entry = declines.entry(decline.code).or_insert_with(|| (0, decline.nearest.to_string()));
        entry.0 = entry.0.saturating_add(1);
    }
    for (code, (count, nearest)) in declines {
        let nearest = (!nearest.is_empty()).then_some(nearest);
        reasons.push(reason(code.word(), format!("providers declined: {code}"), count, nearest));
    }
    for (count, miss) in unfit.values() {
        let nearest = (!miss.nearest.is_empty()).then(|| miss.nearest.clone());
        reasons.push(reason(miss.code, format!("bids that fail {}", miss.text), *count, nearest));
    }
    reasons
}
