//! Slots sought: standing asks, awards, and what happens when nothing is found.

use souk_protocol::{
    ACCEPT_WITHIN_MS, Award, Basis, Credits, JobId, LeaseEnd, LeaseId, List, Message, Millis, Mode, NodeId, Offer,
    Party, Ppm, Rate, Terms, Tier, Timestamp, Verified, Work,
};

use super::{
    PATIENCE, Placing, Renter, STALLED,
    lease::{Lease, Phase},
    reason, work,
};
use crate::{
    auction::{Auction, count},
    context::Context,
    desk::may_stop,
    event::{AuctionReport, JobState, Notice, Output, Reason},
    filter::Demand,
    job::Job,
    pool::{self, Caps, Domains, Goal, Item},
    rank::{self, Candidate, Cost, Loss},
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
pub(super) const MAX_LISTED: usize = 32;

impl Renter {
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
        let raced = self.raced_until.is_some_and(|until| until > now);
        let (wanted, goes_on) = self.award_local(id, wanted, cx);
        if wanted == 0 || !goes_on {
            return;
        }
        if self.placing.get(id).is_some_and(|placing| placing.table.is_some()) {
            return self.award_by_table(id, wanted, cx);
        }
        let Some(job) = self.jobs.get(id) else { return };
        let spec = job.spec();
        let by_ask = match spec.market.mode {
            Mode::Ask => true,
            Mode::Auto => spec.terms.tier != Tier::Gold && !raced,
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

    pub(super) fn has_awards(&self, id: &JobId) -> bool {
        let leases = self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id));
        leases.into_iter().any(|lease| matches!(lease.phase, Phase::Awarded(_)))
    }

    /// Slots still to be found.
    pub(super) fn wanted(&self, id: &JobId) -> u32 {
        let Some(job) = self.jobs.get(id) else { return 0 };
        // Free slots of a provider that already runs all the tasks that wait are no use to them.
        let may_take =
            |lease: &Lease| lease.is_usable() && !lease.is_full() && self.next_task(job, &lease.provider()).is_some();
        let (mut held, mut running) = (0u32, 0usize);
        for lease in self.by_job.get(id).into_iter().flatten().filter_map(|id| self.leases.get(id)) {
            match lease.phase {
                Phase::Awarded(_) => held = held.saturating_add(lease.award.slots),
                Phase::Open if may_take(lease) => held = held.saturating_add(lease.award.slots),
                Phase::Open | Phase::Ending { .. } if !lease.unknown => held = held.saturating_add(count(lease.busy())),
                _ => continue,
            }
            running = running.saturating_add(lease.busy());
        }
        let open_tasks = count(job.queued().saturating_add(running));
        let wanted = pool::wanted(job.spec().array.max_parallel, open_tasks, held);
        wanted.min(count(job.waiting()))
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
        let second = |provider: &NodeId| placing.is_second_choice(provider, cx.now.mono);
        let mut chosen: Vec<_> = found.good.iter().filter(fresh).collect();
        if chosen.iter().any(|(offer, _)| !second(&offer.provider)) {
            chosen.retain(|(offer, _)| !second(&offer.provider));
        }
        let last_resort = chosen.is_empty() && only_ask;
        if last_resort {
            chosen = found.spare.iter().filter(fresh).collect(); // what is free or owed may have changed
        }
        let candidates: Vec<_> = chosen
            .iter()
            .map(|(offer, rate)| {
                let slots = if last_resort { 1 } else { self.slots_of(offer, *rate, job, cx) };
                self.candidate(offer, *rate, slots, &job.spec().terms)
            })
            .collect();
        // All renters see the same asks; each breaks ties in its own way.
        let root = rank::seeded(&rank::root(candidates.iter().map(|candidate| candidate.document)), id);
        let terms = &job.spec().terms;
        let loss = Loss::of(job.spec().sla.loss, terms.tier);
        let ranked = rank::rank(candidates, &root, terms.timeout, loss);
        let shares = pool_of(&ranked, wanted, job, demand.budget);
        let nobody = found.good.is_empty() && found.spare.is_empty();
        let (hints, seen) = (found.reasons(), found.seen);
        let hopeful = |offer: &Verified<Offer>| !placing.hopeless.contains(&offer.provider);
        let full = found.good.iter().any(|(offer, _)| hopeful(offer))
            || found.spare.iter().any(|(offer, _)| hopeful(offer) && is_full(offer, &demand));
        let broke = only_ask && nobody && found.over_budget > 0;
        if shares.is_empty() {
            if only_ask {
                let summary = vec![reason(
                    "no-offers",
                    format!("of {seen} offers none has a slot at this price"),
                    u64::from(seen),
                    None,
                )];
                self.nothing(id, full, broke, [summary, hints].concat(), cx);
                return true;
            }
            if let Some(job) = self.jobs.get_mut(id) {
                job.hints = hints;
            }
            return false;
        }
        // Others take slots there: what is left is better asked than guessed from an offer that is seconds old.
        let busy = |place: &usize| {
            let offer = ranked.get(*place).and_then(|candidate| self.offers.get(&candidate.provider));
            offer.is_some_and(|offer| is_busy(offer, &demand))
        };
        if !only_ask && shares.iter().any(|(place, _)| busy(place)) {
            return false;
        }
        let listed: Vec<_> = ranked
            .iter()
            .enumerate()
            .take(MAX_LISTED)
            .map(|(index, candidate)| {
                let won = shares.iter().any(|(place, _)| *place == index);
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
        for (place, slots) in shares {
            if let Some(candidate) = ranked.get(place) {
                let basis = Basis::Ask { offer: candidate.document };
                let at_once = (slots, cx.now.wall);
                let slots = self.send_award(id, candidate.provider, basis, candidate.rate, at_once, cx);
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
    pub(super) fn silent(&self) -> std::collections::BTreeSet<NodeId> {
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

    pub(super) fn candidate(&self, offer: &Verified<Offer>, rate: Rate, slots: u32, terms: &Terms) -> Candidate {
        Candidate {
            provider: offer.provider,
            document: offer.hash(),
            rate,
            slots,
            reliability: self.steadiness(&offer.provider, terms),
            rtt: self.rtts.get(&offer.provider),
        }
    }

    /// Reliability as the rank sees it: a provider that preempts often is less reliable for work that it may preempt.
    pub(super) fn steadiness(&self, provider: &NodeId, terms: &Terms) -> Option<Ppm> {
        let own = self.records.reliability(provider);
        let offer = self.offers.get(provider).filter(|_| may_stop(terms));
        offer.map_or(own, |offer| rank::uninterrupted(own, offer.interruptions, terms.timeout))
    }

    pub(super) fn reported(&mut self, id: &JobId, report: AuctionReport, cx: &mut Context<'_>) {
        if let Some(job) = self.jobs.get_mut(id) {
            job.report(report.clone());
            cx.notify(Notice::Auction { job: *id, report });
        }
    }

    /// Sends an award with the first tasks, unless its slots are ready later. How many slots it is for; none if there is
    /// no task or no budget for it.
    pub(super) fn send_award(
        &mut self,
        id: &JobId,
        provider: NodeId,
        basis: Basis,
        rate: Rate,
        (slots, start): (u32, Timestamp),
        cx: &mut Context<'_>,
    ) -> u32 {
        let promised = self.promised(id);
        let Some(job) = self.jobs.get(id) else { return 0 };
        let spec = std::sync::Arc::clone(job.spec());
        let step = job.step(rate);
        let affordable =
            job.budget_left(promised).map_or(u64::MAX, |left| left.0.checked_div(step.0).unwrap_or(u64::MAX));
        let slots = slots.min(u32::try_from(affordable).unwrap_or(u32::MAX));
        let lease_id = cx.random_lease();
        let room = spec.array.max_parallel.max(1).saturating_sub(self.placed(id)).min(slots);
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(MAX_FIRST_TASKS);
        let later = start > cx.now.wall;
        let room = if later { 0 } else { room };
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
        if first.is_empty() && !later || slots == 0 {
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
            start,
            issued: cx.now.wall,
            accept_by: cx.now.wall.saturating_add(Millis(ACCEPT_WITHIN_MS)),
        };
        let attempts: Vec<_> = first.iter().map(|work| work.attempt).collect();
        let (Some(award), Ok(work)) = (cx.sign(&award), List::try_from(first)) else { return 0 };
        let until = cx.now.mono.saturating_add(Millis(ACCEPT_WITHIN_MS)).saturating_add(cx.settings.params.clock_skew);
        let mut lease = Lease::new(award, Phase::Awarded(until), cx.settings.boot, cx.now.mono);
        lease.patience = super::time::patience(cx.settings);
        lease.count_down(cx.now);
        let owed = self.known(&provider, cx.books).owed;
        lease.trusted = self
            .offers
            .get(&provider)
            .is_some_and(|offer| owed.saturating_add(step) > offer.stranger_limit.min(offer.strangers_limit));
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
    pub(super) fn drop_award(&mut self, id: &LeaseId, cx: &mut Context<'_>) {
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
                placing.hopeless.insert(provider); // until it answers
                placing.retry_at = None; // the next best at once
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
    pub(super) fn nothing(&mut self, id: &JobId, full: bool, broke: bool, hints: Vec<Reason>, cx: &mut Context<'_>) {
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
}

/// The cheapest of these candidates, best first, that cover the slots wanted and that the budget can hold: the place of
/// each and its slots. Tasks of an array may share owners; a second attempt never goes to the same provider.
pub(super) fn pool_of(ranked: &[Candidate], wanted: u32, job: &Job, budget: Option<Credits>) -> Vec<(usize, u32)> {
    let spec = job.spec();
    let loss = Loss::of(spec.sla.loss, spec.terms.tier);
    let items: Vec<_> = ranked
        .iter()
        .map(|candidate| Item {
            cost: rank::cost(candidate, spec.terms.timeout, loss),
            setup: Cost::ZERO,
            price: job.step(candidate.rate),
            slots: candidate.slots,
            domains: Domains::default(),
        })
        .collect();
    pool::cover(&items, &Goal { wanted, most: MAX_AWARDS, caps: Caps::default(), budget }).shares
}

/// Whether more than a quarter of the slots of an offer were taken when it was made.
fn is_busy(offer: &Offer, demand: &Demand<'_>) -> bool {
    let [free, total] = [offer.free, offer.total].map(|capacity| u64::from(capacity.slots(demand.requirement)));
    free.saturating_mul(4) < total.saturating_mul(3)
}

/// Whether all that keeps this offer from doing is that its slots are taken.
fn is_full(offer: &Offer, demand: &Demand<'_>) -> bool {
    offer.free.slots(demand.requirement) == 0
}

impl Placing {
    /// When the search needs attention.
    pub(super) fn due(&self) -> Option<Millis> {
        let auction = self.auction.as_ref().and_then(Auction::closes_at);
        [self.retry_at, auction, self.deadline].into_iter().flatten().min()
    }
}
