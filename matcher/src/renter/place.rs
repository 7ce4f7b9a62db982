//! Slots sought and filled: standing asks, auctions, awards, tasks to free slots.

use std::collections::BTreeMap;

use souk_protocol::{
    ACCEPT_WITHIN_MS, Announcement, Award, Basis, Bid, Control, Credits, Decline, DeclineCode, Hash, JobId, LeaseEnd,
    LeaseId, List, Local, Message, Millis, Mode, NodeId, Offer, Party, Rate, Tier, Verified, Work,
};

use super::{
    PATIENCE, Placing, Renter, STALLED,
    lease::{Lease, Phase},
    reason, work,
};
use crate::{
    auction::{self, Auction, Heard, Invitee, Table, count},
    context::Context,
    event::{AuctionReport, JobState, Notice, Output, Reason},
    filter::{self, Demand, Known, Miss},
    job::Job,
    pool,
    rank::{self, Candidate, Loss},
};

/// Awards sent at once for one job.
const MAX_AWARDS: usize = 16;
/// Bytes of first tasks that go with an award; the rest follows its acceptance. A message has room for 256 KiB.
const MAX_FIRST_WORK: usize = 200 * 1024;
/// First tasks that go with an award.
const MAX_FIRST_TASKS: usize = 64;
/// How long an award that nobody answered is remembered, so that a late acceptance is ended properly.
const VOID_FOR: Millis = Millis(60_000);
/// Bids and asks listed in a report.
const MAX_LISTED: usize = 32;

/// What a search for slots found.
#[derive(Debug, Default)]
pub(super) struct Found<'a> {
    /// Offers with a standing ask that will do.
    pub(super) good: Vec<(&'a Verified<Offer>, Rate)>,
    /// Offers that would do, had they room or gave more credit.
    pub(super) spare: Vec<(&'a Verified<Offer>, Rate)>,
    /// Offers whose providers may be asked to bid.
    pub(super) inviting: Vec<&'a Verified<Offer>>,
    pub(super) seen: u32,
    /// By code: offers that fail only this, and the nearest of them.
    near: BTreeMap<&'static str, (u64, Miss)>,
}

impl Found<'_> {
    /// The near misses, most frequent first.
    pub(super) fn reasons(&self) -> Vec<Reason> {
        let mut near: Vec<_> = self.near.values().collect();
        near.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        near.into_iter()
            .map(|(count, miss)| {
                let nearest = (!miss.nearest.is_empty()).then(|| miss.nearest.clone());
                reason(miss.code, format!("offers that fail only {}", miss.text), *count, nearest)
            })
            .collect()
    }

    fn only(&self, code: &str) -> bool {
        !self.near.is_empty() && self.near.keys().all(|known| *known == code)
    }
}

impl Renter {
    /// What this node knows of a provider.
    pub(super) fn known(&self, provider: &NodeId, books: &crate::books::Books) -> Known {
        let leases = self.live_leases.iter().filter_map(|id| self.leases.get(id));
        let at_risk = leases
            .filter(|lease| lease.provider() == *provider)
            .fold(Credits::ZERO, |sum, lease| sum.saturating_add(lease.at_risk()));
        Known {
            rtt: self.rtts.get(provider),
            reliability: self.records.reliability(provider),
            owed: books.balance(provider).owed_by_us().saturating_add(at_risk),
        }
    }

    /// Looks through all live offers for those that meet `demand`.
    pub(super) fn search<'a>(
        &'a self,
        demand: &Demand<'_>,
        now: souk_protocol::Timestamp,
        books: &crate::books::Books,
    ) -> Found<'a> {
        let mut found = Found::default();
        if demand.market.local == Local::Only {
            return found; // the market is not asked at all
        }
        for offer in self.offers.live(now) {
            found.seen = found.seen.saturating_add(1);
            let misses = filter::misses(offer, demand, &self.known(&offer.provider, books), now);
            let rate = filter::ask(offer, demand.requirement);
            if misses.iter().all(|miss| miss.soft) {
                found.inviting.push(offer);
                match rate {
                    Some(rate) if misses.is_empty() => found.good.push((offer, rate)),
                    Some(rate) if misses.iter().all(|miss| miss.code != "latency") => found.spare.push((offer, rate)),
                    _ => {}
                }
            }
            if let [miss] = misses.as_slice() {
                let entry = found.near.entry(miss.code).or_insert_with(|| (0, miss.clone()));
                entry.0 = entry.0.saturating_add(1);
                if miss.distance < entry.1.distance {
                    entry.1 = miss.clone();
                }
            }
        }
        found
    }

    pub(super) fn demand<'a>(&self, job: &'a Job, promised: Credits, settings: &'a crate::event::Settings) -> Demand<'a> {
        let spec = job.spec();
        Demand {
            requirement: &spec.requirement,
            terms: &spec.terms,
            market: &spec.market,
            sla: &spec.sla,
            params: &settings.params,
            open: settings.open,
            budget: job.budget_left(promised),
        }
    }

    /// Whether this provider's offer would do for a job right now.
    pub(super) fn has_room_for(&self, id: &JobId, provider: &NodeId, cx: &Context<'_>) -> bool {
        let (Some(job), Some(offer)) = (self.jobs.get(id), self.offers.get(provider)) else { return false };
        let demand = self.demand(job, self.promised(id), cx.settings);
        let misses = filter::misses(offer, &demand, &self.known(provider, cx.books), cx.now.wall);
        misses.iter().all(|miss| miss.code == "no-ask")
    }

    /// Whether the next task of its job may go to this lease as far as budget and credit are concerned.
    pub(super) fn may_use(&self, id: &LeaseId, cx: &Context<'_>) -> bool {
        let Some(lease) = self.leases.get(id) else { return false };
        let Some(job) = self.jobs.get(&lease.job()) else { return false };
        let step = lease.step();
        if job.budget_left(self.promised(&lease.job())).is_some_and(|left| left < step) {
            return false;
        }
        if lease.trusted {
            return true;
        }
        let limit = self.offers.get(&lease.provider()).map(|offer| offer.stranger_limit.min(offer.strangers_limit));
        let owed = self.known(&lease.provider(), cx.books).owed;
        limit.is_none_or(|limit| owed.saturating_add(step) <= limit)
    }

    /// Attempts that hold a slot or will, on leases that are heard of.
    fn placed(&self, id: &JobId) -> u32 {
        let leases = self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id));
        let sum = leases.filter(|lease| !lease.unknown).fold(0usize, |sum, lease| {
            sum.saturating_add(lease.busy()).saturating_add(lease.promised.len())
        });
        count(sum)
    }

    /// The first queued task that this provider does not run already.
    fn next_task(&self, job: &Job, provider: &NodeId) -> Option<u32> {
        job.queue().find(|index| {
            job.task(*index).is_some_and(|task| task.open().all(|attempt| attempt.provider != *provider))
        })
    }

    /// Hands queued tasks to free slots, cheapest slots first.
    pub(super) fn assign(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let Some(job) = self.jobs.get(id) else { return };
        if job.first_queued().is_none() {
            return;
        }
        let most = job.spec().array.max_parallel.max(1);
        let mut placed = self.placed(id);
        let mut usable: Vec<_> = self
            .leases_of(id)
            .into_iter()
            .filter_map(|id| self.leases.get(&id).filter(|lease| lease.free() > 0).map(|lease| (lease.award.rate, id)))
            .collect();
        usable.sort();
        for (_, lease_id) in usable {
            while placed < most && self.leases.get(&lease_id).is_some_and(|lease| lease.free() > 0) {
                if !self.may_use(&lease_id, cx) || !self.hand_next(id, &lease_id, cx) {
                    break;
                }
                placed = placed.saturating_add(1);
            }
        }
    }

    /// Hands the next queued task to a lease. Whether there was one.
    fn hand_next(&mut self, id: &JobId, lease_id: &LeaseId, cx: &mut Context<'_>) -> bool {
        let (Some(job), Some(lease)) = (self.jobs.get(id), self.leases.get(lease_id)) else { return false };
        if !lease.channel.has_room() {
            return false;
        }
        let Some(task) = self.next_task(job, &lease.provider()) else { return false };
        let attempt = job.next_attempt(*lease_id, task);
        let body = match work::work(id, job.spec(), attempt) {
            Ok(body) => body,
            Err(error) => {
                self.unfit(id, task, &error, cx);
                return false;
            }
        };
        if !self.hand_out(id, attempt, Some(cx.now.mono), cx) {
            return false;
        }
        if let Some(lease) = self.leases.get_mut(lease_id) {
            lease.tell(Control::Task(body), cx);
        }
        true
    }

    /// A task of the spec can be run by nobody.
    fn unfit(&mut self, id: &JobId, task: u32, error: &work::WorkError, cx: &mut Context<'_>) {
        let because = vec![reason("spec", format!("task {task} cannot be handed out: {error}"), 1, None)];
        self.finish(id, JobState::Failed, because, cx);
    }

    /// Looks for slots, if the job wants more than it has.
    pub(super) fn seek(&mut self, id: &JobId, cx: &mut Context<'_>) {
        let wanted = self.wanted(id);
        let now = cx.now.mono;
        let Some(placing) = self.placing.get_mut(id) else { return };
        if wanted == 0 {
            placing.retry_at = None;
            return;
        }
        if placing.auction.is_some() || placing.retry_at.is_some_and(|at| at > now) {
            return;
        }
        if let Some(until) = placing.quiet_until.filter(|until| *until > now) {
            placing.retry_at = Some(until);
            return;
        }
        placing.retry_at = None;
        if placing.table.is_some() {
            return self.award_by_table(id, wanted, cx);
        }
        let Some(job) = self.jobs.get(id) else { return };
        let spec = job.spec();
        let by_ask = match spec.market.mode {
            Mode::Ask => true,
            Mode::Auto => spec.terms.tier != Tier::Gold,
            Mode::Auction => false,
        };
        let only_ask = spec.market.mode == Mode::Ask;
        if by_ask && self.award_by_ask(id, wanted, only_ask, cx) {
            return;
        }
        // With awards out, their answers come first.
        if !only_ask && !self.has_awards(id) {
            self.open_auction(id, wanted, cx);
        }
    }

    fn has_awards(&self, id: &JobId) -> bool {
        let leases = self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id));
        leases.into_iter().any(|lease| matches!(lease.phase, Phase::Awarded(_)))
    }

    /// Slots still to be found.
    fn wanted(&self, id: &JobId) -> u32 {
        let Some(job) = self.jobs.get(id) else { return 0 };
        let (mut held, mut running) = (0u32, 0usize);
        for lease in self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id)) {
            match lease.phase {
                Phase::Awarded(_) => held = held.saturating_add(lease.award.slots),
                Phase::Open if lease.is_usable() && !lease.is_full() => held = held.saturating_add(lease.award.slots),
                Phase::Open | Phase::Ending { .. } if !lease.unknown => held = held.saturating_add(count(lease.busy())),
                _ => continue,
            }
            running = running.saturating_add(lease.busy());
        }
        let open_tasks = count(job.queued().saturating_add(running));
        let wanted = pool::wanted(job.spec().array.max_parallel, open_tasks, held);
        wanted.min(count(job.queue().take(10_000).count()))
    }

    /// Takes standing asks, best first. Whether the search is over for now.
    fn award_by_ask(&mut self, id: &JobId, wanted: u32, only_ask: bool, cx: &mut Context<'_>) -> bool {
        let Some(job) = self.jobs.get(id) else { return true };
        let Some(placing) = self.placing.get(id) else { return true };
        let demand = self.demand(job, self.promised(id), cx.settings);
        let found = self.search(&demand, cx.now.wall, cx.books);
        let silent = self.silent();
        let fresh = |(offer, _): &&(&Verified<Offer>, Rate)| {
            let provider = &offer.provider;
            !placing.passes_over(provider, cx.now.mono)
                && !silent.contains(provider)
                && self.next_task(job, provider).is_some()
        };
        let mut chosen: Vec<_> = found.good.iter().filter(fresh).collect();
        let last_resort = chosen.is_empty() && only_ask;
        if last_resort {
            chosen = found.spare.iter().filter(fresh).collect(); // what is free or owed may have changed
        }
        let candidates: Vec<_> = chosen
            .iter()
            .map(|(offer, rate)| {
                let slots = if last_resort { 1 } else { self.slots_of(offer, *rate, job, cx) };
                self.candidate(offer, *rate, slots)
            })
            .collect();
        let root = rank::root(candidates.iter().map(|candidate| candidate.document));
        let terms = &job.spec().terms;
        let ranked = rank::rank(candidates, &root, terms.timeout, Loss::of(job.spec().sla.loss, terms.tier));
        let shares = pool::cover(&ranked, wanted, MAX_AWARDS);
        let nobody = found.good.is_empty() && found.spare.is_empty();
        let (hints, seen) = (found.reasons(), found.seen);
        let full = !found.good.is_empty() || found.spare.iter().any(|(offer, _)| is_full(offer, &demand));
        let broke = only_ask && nobody && found.only("budget");
        if shares.is_empty() {
            if only_ask {
                let summary = vec![reason("no-offers", format!("of {seen} offers none has a slot at this price"), u64::from(seen), None)];
                self.nothing(id, full, broke, [summary, hints].concat(), cx);
                return true;
            }
            if let Some(job) = self.jobs.get_mut(id) {
                job.hints = hints;
            }
            return false;
        }
        let listed: Vec<_> = ranked
            .iter()
            .enumerate()
            .take(MAX_LISTED)
            .map(|(index, candidate)| {
                let won = shares.iter().any(|share| share.index == index);
                (candidate.provider, candidate.rate, candidate.slots, won)
            })
            .collect();
        let report = AuctionReport {
            round: placing.round,
            by_ask: true,
            invited: count(ranked.len()),
            bids: listed,
            declines: Vec::new(),
            silent: 0,
            window: Millis::ZERO,
        };
        self.reported(id, report, cx);
        let mut sent = 0u32;
        for share in shares {
            if let Some(candidate) = ranked.get(share.index) {
                let basis = Basis::Ask { offer: candidate.document };
                let slots = self.send_award(id, candidate.provider, basis, candidate.rate, share.slots, cx);
                sent = sent.saturating_add(slots);
            }
        }
        if sent < wanted
            && let Some(placing) = self.placing.get_mut(id)
        {
            placing.wait(cx.now.mono); // the rest when somebody has room
        }
        true
    }

    /// Providers of which nothing is known at the moment.
    fn silent(&self) -> std::collections::BTreeSet<NodeId> {
        let leases = self.live_leases.iter().filter_map(|id| self.leases.get(id));
        leases.filter(|lease| lease.unknown).map(Lease::provider).collect()
    }

    /// Slots of an ask that capacity and credit allow at once.
    fn slots_of(&self, offer: &Verified<Offer>, rate: Rate, job: &Job, cx: &Context<'_>) -> u32 {
        let owed = self.known(&offer.provider, cx.books).owed;
        let credit = offer.stranger_limit.min(offer.strangers_limit).saturating_sub(owed);
        let steps = credit.0.checked_div(job.step(rate).0).unwrap_or(u64::MAX);
        let steps = u32::try_from(steps).unwrap_or(u32::MAX);
        offer.free.slots(&job.spec().requirement).min(steps)
    }

    fn candidate(&self, offer: &Verified<Offer>, rate: Rate, slots: u32) -> Candidate {
        Candidate {
            provider: offer.provider,
            document: offer.hash(),
            rate,
            slots,
            reliability: self.records.reliability(&offer.provider),
            rtt: self.rtts.get(&offer.provider),
        }
    }

    fn reported(&mut self, id: &JobId, report: AuctionReport, cx: &mut Context<'_>) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.report(report.clone());
            cx.notify(Notice::Auction { job: *id, report });
        }
    }

    /// Invites providers to bid.
    fn open_auction(&mut self, id: &JobId, wanted: u32, cx: &mut Context<'_>) {
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
                let candidate = self.candidate(offer, rate, 1);
                Invitee { newcomer: candidate.reliability.is_none(), candidate }
            })
            .collect();
        let (seen, hints) = (found.seen, found.reasons());
        let broke = found.inviting.is_empty() && found.only("budget");
        if invitees.is_empty() {
            let full = !found.inviting.is_empty(); // passed over for now
            let text = format!("of {seen} offers none will do");
            let summary = vec![reason("no-offers", text, u64::from(seen), None)];
            return self.nothing(id, full, broke, [summary, hints].concat(), cx);
        }
        let window = cx.settings.params.bid_window_max;
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
            issued: now.wall,
            closes: now.wall.saturating_add(window),
        };
        let Some(call) = cx.sign(&call) else { return };
        let chosen = auction::invites(invitees, &call.hash(), spec.terms.timeout, Loss::of(spec.sla.loss, spec.terms.tier));
        let invited: Vec<_> = chosen.iter().map(|provider| (*provider, self.rtts.get(provider))).collect();
        for provider in &chosen {
            cx.send(*provider, Message::Announce(call.signed().clone()));
        }
        self.auctions.insert(call.hash(), *id);
        if let Some(placing) = self.placing.get_mut(id) {
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
            placing.full |= is_about_room(decline.code);
            if matches!(decline.code, DeclineCode::ClockSkew | DeclineCode::Denied) {
                placing.avoid.insert(from, cx.now.mono.saturating_add(super::AVOID));
            }
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
        let Some(job) = self.jobs.get(id) else { return };
        let demand = self.demand(job, self.promised(id), cx.settings);
        let terms = &job.spec().terms;
        let mut unfit: BTreeMap<&'static str, (u64, Miss)> = BTreeMap::new();
        let fits = |bid: &Bid| {
            let known = self.known(&bid.provider, cx.books);
            match filter::bid(bid, &demand, &known, cx.now.wall) {
                Ok(()) => Some(Candidate {
                    provider: bid.provider,
                    document: Hash([0; 32]), // the table knows it
                    rate: bid.rate,
                    slots: bid.slots,
                    reliability: known.reliability,
                    rtt: known.rtt,
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
        let full = auction.declines().any(|(_, decline)| is_about_room(decline.code));
        let hints = why_no_bids(&auction, &unfit);
        self.reported(id, report, cx);
        if let Some(placing) = self.placing.get_mut(id) {
            placing.round = placing.round.saturating_add(1);
            placing.table = (!empty).then_some(table);
        }
        if empty {
            self.nothing(id, full, false, hints, cx);
        } else {
            if let Some(job) = self.jobs.get_mut(id) {
                job.hints = hints;
            }
            self.award_by_table(id, wanted, cx);
        }
        self.show_state(id, cx);
    }

    /// Awards to the next best of the table until the slots are covered or it is used up.
    fn award_by_table(&mut self, id: &JobId, wanted: u32, cx: &mut Context<'_>) {
        let mut left = wanted;
        while left > 0 {
            let Some(placing) = self.placing.get_mut(id) else { return };
            let Some(table) = placing.table.as_mut() else { return };
            let root = table.root();
            let Some(bid) = table.take() else {
                placing.table = None;
                placing.wait(cx.now.mono);
                return;
            };
            if bid.valid_until < cx.now.wall || placing.passes_over(&bid.provider, cx.now.mono) {
                continue;
            }
            if !self.jobs.get(id).is_some_and(|job| self.next_task(job, &bid.provider).is_some()) {
                continue;
            }
            let slots = bid.slots.min(left);
            let basis = Basis::Bid { bid: bid.hash(), table: root };
            left = left.saturating_sub(self.send_award(id, bid.provider, basis, bid.rate, slots, cx));
        }
    }

    /// Sends an award with the first tasks. How many slots it is for; none if there is no task or no budget for it.
    fn send_award(&mut self, id: &JobId, provider: NodeId, basis: Basis, rate: Rate, slots: u32, cx: &mut Context<'_>) -> u32 {
        let promised = self.promised(id);
        let Some(job) = self.jobs.get(id) else { return 0 };
        let spec = std::sync::Arc::clone(job.spec());
        let step = job.step(rate);
        let affordable = job.budget_left(promised).map_or(u64::MAX, |left| left.0.checked_div(step.0).unwrap_or(u64::MAX));
        let slots = slots.min(u32::try_from(affordable).unwrap_or(u32::MAX));
        let lease_id = cx.random_lease();
        let room = spec.array.max_parallel.max(1).saturating_sub(self.placed(id)).min(slots);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(MAX_FIRST_TASKS);
        let tasks: Vec<u32> = job
            .queue()
            .filter(|index| {
                job.task(*index).is_some_and(|task| task.open().all(|attempt| attempt.provider != provider))
            })
            .take(room)
            .collect();
        let (mut first, mut bytes): (Vec<Work>, usize) = (Vec::new(), 0);
        for task in tasks {
            match work::work(id, &spec, job.next_attempt(lease_id, task)) {
                Ok(work) => {
                    bytes = bytes.saturating_add(work::len(&work));
                    if bytes > MAX_FIRST_WORK && !first.is_empty() {
                        break;
                    }
                    first.push(work);
                }
                Err(error) => {
                    self.unfit(id, task, &error, cx);
                    return 0;
                }
            }
        }
        if first.is_empty() {
            return 0;
        }
        let award = Award {
            lease: lease_id,
            network: cx.settings.network,
            renter: cx.me(),
            provider,
            job: *id,
            basis,
            requirement: spec.requirement.clone(),
            terms: spec.terms,
            rate,
            slots,
            issued: cx.now.wall,
            accept_by: cx.now.wall.saturating_add(Millis(ACCEPT_WITHIN_MS)),
        };
        let attempts: Vec<_> = first.iter().map(|work| work.attempt).collect();
        let (Some(award), Ok(work)) = (cx.sign(&award), List::try_from(first)) else { return 0 };
        let until = cx.now.mono.saturating_add(Millis(ACCEPT_WITHIN_MS)).saturating_add(cx.settings.params.clock_skew);
        let mut lease = Lease::new(award, Phase::Awarded(until), cx.settings.boot, cx.now.mono);
        lease.patience = super::time::patience(cx.settings);
        let owed = self.known(&provider, cx.books).owed;
        lease.trusted = self.offers.get(&provider).is_some_and(|offer| {
            owed.saturating_add(step) > offer.stranger_limit.min(offer.strangers_limit)
        });
        cx.out.push(Output::Serve { lease: lease.view(), spec });
        let message = Message::Award { award: lease.award.signed().clone(), work, files: List::default() };
        cx.send(provider, message);
        if let Some(job) = self.jobs.get_mut(id) {
            for attempt in &attempts {
                job.promise(attempt.task);
            }
        }
        lease.promised = attempts;
        self.leases.insert(lease_id, lease);
        self.attend(lease_id, *id);
        slots
    }

    /// An award was declined: it is forgotten, its tasks wait again.
    fn drop_award(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let job = self.take_back(id, cx);
        self.leave(id);
        self.leases.remove(id);
        if let Some(job) = job {
            self.pump(&job, cx);
        }
    }

    /// An award was not answered: its tasks wait again; it is remembered for a while in case it was accepted after all.
    pub(super) fn void(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
        let job = self.take_back(id, cx);
        if let Some(lease) = self.leases.get_mut(id) {
            lease.phase = Phase::Void(cx.now.mono.saturating_add(VOID_FOR));
            let provider = lease.provider();
            if let Some(placing) = self.placing.get_mut(&lease.job()) {
                placing.refused.insert(provider);
            }
        }
        if let Some(job) = job
            && self.live.contains(&job)
        {
            self.pump(&job, cx);
        }
    }

    fn take_back(&mut self, id: &LeaseId, cx: &mut Context<'_>) -> Option<JobId> {
        let lease = self.leases.get_mut(id).filter(|lease| matches!(lease.phase, Phase::Awarded(_)))?;
        let (promised, job_id) = (std::mem::take(&mut lease.promised), lease.job());
        lease.phase = Phase::Void(cx.now.mono);
        if let Some(job) = self.jobs.get_mut(&job_id) {
            for attempt in promised {
                job.unpromise(attempt.task);
                job.requeue(attempt.task);
            }
        }
        // Whoever serves the job's data for it may stop.
        let (end, by) = (LeaseEnd::Expired, Party::Provider);
        cx.notify(Notice::LeaseEnded { side: Party::Renter, lease: *id, end, by });
        Some(job_id)
    }

    /// Nothing was found: waits, and gives the job up when nothing has matched for too long. `full`: somebody would do,
    /// had it room.
    fn nothing(&mut self, id: &JobId, full: bool, broke: bool, hints: Vec<Reason>, cx: &mut Context<'_>) {
        let now = cx.now.mono;
        let Some(job) = self.jobs.get_mut(id) else { return };
        job.hints = hints;
        if broke && job.has_started() && job.running() == 0 {
            let left = job.budget_left(Credits::ZERO).unwrap_or_default();
            let text = "the rest of the budget is not enough for another attempt".to_owned();
            let mut because = vec![reason("budget", text, 1, Some(format!("left {}", left.short())))];
            because.extend(job.hints.iter().cloned());
            return self.finish(id, JobState::Failed, because, cx);
        }
        let Some(placing) = self.placing.get_mut(id) else { return };
        if std::mem::take(&mut placing.full) || full {
            placing.nothing_since = None;
        } else {
            placing.nothing_since.get_or_insert(now);
        }
        placing.wait(now);
    }

    /// When a job is given up because nothing matches.
    pub(super) fn patience_ends(&self, id: &JobId) -> Option<Millis> {
        let (job, placing) = (self.jobs.get(id)?, self.placing.get(id)?);
        let since = placing.nothing_since?;
        if job.running() > 0 {
            return None; // it goes on with what it has
        }
        if job.has_started() {
            return Some(since.saturating_add(STALLED));
        }
        // Whoever says how long to try is taken at their word.
        placing.start_by.is_none().then(|| since.saturating_add(PATIENCE))
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

/// Whether a decline says that waiting may help.
const fn is_about_room(code: DeclineCode) -> bool {
    matches!(code, DeclineCode::NoCapacity | DeclineCode::Busy)
}

/// Whether all that keeps this offer from doing is that its slots are taken.
fn is_full(offer: &Offer, demand: &Demand<'_>) -> bool {
    offer.free.slots(demand.requirement) == 0
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

impl Placing {
    /// When the search needs attention.
    pub(super) fn due(&self) -> Option<Millis> {
        let auction = self.auction.as_ref().and_then(Auction::closes_at);
        [self.retry_at, auction, self.deadline].into_iter().flatten().min()
    }
}
