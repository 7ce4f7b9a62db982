//! Which live offers a job may take.

use std::collections::BTreeMap;

use souk_protocol::{Credits, JobId, Local, NodeId, Offer, Rate, Timestamp, Verified};

use super::{Renter, reason};
use crate::{
    books::Books,
    context::Context,
    event::{Reason, Settings},
    filter::{self, Demand, Known, Miss},
    job::Job,
};

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
    /// Offers that would do or be asked, were it not for what is left of the budget.
    pub(super) over_budget: u32,
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
}

impl Renter {
    /// What this node knows of a provider.
    pub(super) fn known(&self, provider: &NodeId, books: &Books) -> Known {
        let leases = self.live_leases.iter().filter_map(|id| self.leases.get(id));
        let at_risk = leases
            .filter(|lease| lease.provider() == *provider)
            .fold(Credits::ZERO, |sum, lease| sum.saturating_add(lease.at_risk()));
        self.known_with(provider, Some(at_risk), books)
    }

    fn known_with(&self, provider: &NodeId, at_risk: Option<Credits>, books: &Books) -> Known {
        Known {
            rtt: self.rtts.get(provider),
            reliability: self.records.reliability(provider),
            owed: books.balance(provider).owed_by_us().saturating_add(at_risk.unwrap_or_default()),
        }
    }

    /// By provider: what attempts under way may come to.
    fn at_risk(&self) -> BTreeMap<NodeId, Credits> {
        let mut sums: BTreeMap<NodeId, Credits> = BTreeMap::new();
        for lease in self.live_leases.iter().filter_map(|id| self.leases.get(id)) {
            let sum = sums.entry(lease.provider()).or_default();
            *sum = sum.saturating_add(lease.at_risk());
        }
        sums
    }

    /// Looks through all live offers for those that meet `demand`.
    pub(super) fn search<'a>(&'a self, demand: &Demand<'_>, now: Timestamp, books: &Books) -> Found<'a> {
        let mut found = Found::default();
        if demand.market.local == Local::Only {
            return found; // the market is not asked at all
        }
        let at_risk = self.at_risk();
        for offer in self.offers.live(now) {
            found.seen = found.seen.saturating_add(1);
            let known = self.known_with(&offer.provider, at_risk.get(&offer.provider).copied(), books);
            let misses = filter::misses(offer, demand, &known, now);
            let rate = filter::ask(offer, demand.requirement);
            if misses.iter().all(|miss| miss.soft) {
                found.inviting.push(offer);
                match rate {
                    Some(rate) if misses.is_empty() => found.good.push((offer, rate)),
                    Some(rate) if misses.iter().all(|miss| miss.code != "latency") => found.spare.push((offer, rate)),
                    _ => {}
                }
            }
            let mut hard = misses.iter().filter(|miss| !miss.soft);
            if hard.next().is_some_and(|miss| miss.code == "budget") && hard.next().is_none() {
                found.over_budget = found.over_budget.saturating_add(1);
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

    pub(super) fn demand<'a>(&self, job: &'a Job, promised: Credits, settings: &'a Settings) -> Demand<'a> {
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
}
