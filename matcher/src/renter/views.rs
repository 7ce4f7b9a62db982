//! What users see: jobs, leases, offers, plans, receipts.

use souk_protocol::{
    Award, Billed, Credits, Hash, JobId, JobSpec, LeaseEnd, LeaseId, Millis, NodeId, Offer, Party, Ppm, Rate, Receipt,
    ReceiptFile, Tier, Timestamp, Verified,
};

use super::{
    Renter,
    lease::{Lease, Phase},
};
use crate::{
    books::Books,
    event::{LeaseView, Reason, Settings},
    filter::{self, Demand},
    job::Job,
    rank::{self, Candidate, Loss},
};

/// An offer that will do for a spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedOffer {
    /// Who.
    pub provider: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Price of a slot, if it has a standing ask.
    pub rate: Option<Rate>,
    /// The tier asked for.
    pub tier: Tier,
    /// Where it is.
    pub region: String,
    /// Measured round trip, if there is one.
    pub rtt: Option<Millis>,
    /// Its reliability in this node's experience, if there is enough.
    pub reliability: Option<Ppm>,
    /// Whether a slot was free when the offer was made.
    pub now: bool,
    /// Slots free when the offer was made.
    pub slots: u32,
}

/// What a job would find, and what it might cost. Nothing is spent by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Offers that will do, by effective cost.
    pub offers: Vec<PlannedOffer>,
    /// How many those are.
    pub matched: u32,
    /// Offers looked at.
    pub seen: u32,
    /// Cost if every task takes its whole timeout once at the cheapest ask.
    pub low: Option<Credits>,
    /// Cost if every task uses all its attempts for the whole timeout at the dearest of the asks needed.
    pub high: Option<Credits>,
    /// The budget, beyond which nothing is started.
    pub cap: Option<Credits>,
    /// Offers that fail a single constraint, by constraint.
    pub near_misses: Vec<Reason>,
}

/// How a lease of this node as renter stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenterLeaseState {
    /// The award is out.
    Awarded,
    /// It takes tasks.
    Open,
    /// The provider has been silent for longer than the network's `unknown_after`.
    Unknown,
    /// No new tasks.
    Ending,
    /// Closed by this side alone.
    Closed,
    /// Both signed the receipt.
    Settled,
}

/// The account of a lease on this side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseAccountView {
    /// Parties, slots, rate.
    pub lease: LeaseView,
    /// How it stands.
    pub state: RenterLeaseState,
    /// When it was accepted.
    pub opened: Option<Timestamp>,
    /// Why and by which side it was ended.
    pub ended: Option<(LeaseEnd, Party)>,
    /// Attempts under way.
    pub running: u32,
    /// Attempts that are owed for, in their order.
    pub billed: Vec<Billed>,
    /// Run time owed for.
    pub run: Millis,
    /// What is owed.
    pub total: Credits,
}

impl Renter {
    /// All jobs kept, by id.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }

    /// One job.
    #[must_use]
    pub fn job(&self, id: &JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// Live offers, one a provider.
    pub fn offers(&self, now: Timestamp) -> impl Iterator<Item = &Verified<Offer>> {
        self.offers.live(now)
    }

    /// Measured round trip to a peer, 95th percentile.
    #[must_use]
    pub fn rtt_of(&self, peer: &NodeId) -> Option<Millis> {
        self.rtts.get(peer)
    }

    /// A provider's reliability in this node's own experience, if there is enough of it.
    #[must_use]
    pub fn reliability(&self, provider: &NodeId) -> Option<Ppm> {
        self.records.reliability(provider)
    }

    /// Whether this peer holds a lease or an award of this job: it may fetch the job's data.
    #[must_use]
    pub fn serves(&self, job: &JobId, peer: &NodeId) -> bool {
        let leases = self.by_job.get(job).into_iter().flatten();
        leases.filter_map(|id| self.leases.get(id)).any(|lease| lease.provider() == *peer && lease.is_live())
    }

    /// One lease.
    #[must_use]
    pub fn lease(&self, id: &LeaseId) -> Option<LeaseAccountView> {
        self.leases.get(id).filter(|lease| !matches!(lease.phase, Phase::Void(_))).map(view)
    }

    /// All leases kept, and awards that are out.
    pub fn leases(&self) -> impl Iterator<Item = LeaseAccountView> + '_ {
        self.leases.values().filter(|lease| !matches!(lease.phase, Phase::Void(_))).map(view)
    }

    /// What was agreed on a lease.
    #[must_use]
    pub fn award(&self, id: &LeaseId) -> Option<&Award> {
        self.leases.get(id).map(|lease| &*lease.award)
    }

    /// The receipt of a lease, once both have signed it.
    #[must_use]
    pub fn receipt(&self, id: &LeaseId) -> Option<Receipt> {
        match &self.leases.get(id)?.phase {
            Phase::Closed { receipt: Some((draft, _)), .. } => draft.peek().ok(),
            _ => None,
        }
    }

    /// All documents of a lease whose receipt both sides signed, while they are kept.
    #[must_use]
    pub fn receipt_file(&self, id: &LeaseId) -> Option<ReceiptFile> {
        self.leases.get(id).and_then(Lease::receipt_file)
    }

    /// What `spec` would find: `local` and the live offers.
    pub(crate) fn plan(
        &self,
        spec: &JobSpec,
        local: Option<PlannedOffer>,
        books: &Books,
        settings: &Settings,
        now: Timestamp,
    ) -> Plan {
        let demand = Demand {
            requirement: &spec.requirement,
            terms: &spec.terms,
            market: &spec.market,
            sla: &spec.sla,
            params: &settings.params,
            open: settings.open,
            budget: spec.market.budget,
        };
        let found = self.search(&demand, now, books);
        let loss = Loss::of(spec.sla.loss, spec.terms.tier);
        let fitting: Vec<_> = found
            .inviting
            .iter()
            .filter(|offer| {
                // What only its own answer can tell does not keep an offer out of a plan; what blocks it does.
                let misses = filter::misses(offer, &demand, &self.known(&offer.provider, books), now);
                misses.iter().all(|miss| matches!(miss.code, "no-ask" | "no-capacity" | "latency"))
            })
            .collect();
        let candidates: Vec<_> = fitting
            .iter()
            .map(|offer| Candidate {
                provider: offer.provider,
                document: offer.hash(),
                // Without an ask it comes last.
                rate: filter::ask(offer, &spec.requirement).unwrap_or(Rate::MAX),
                slots: offer.free.slots(&spec.requirement),
                reliability: self.steadiness(&offer.provider, &spec.terms),
                rtt: self.rtts.get(&offer.provider),
            })
            .collect();
        let root = rank::root(candidates.iter().map(|candidate| candidate.document));
        let ranked = rank::rank(candidates, &root, spec.terms.timeout, loss);
        let seen = found.seen.saturating_add(u32::from(local.is_some()));
        // This node itself comes first, whatever the rank: it is filled first.
        let market = ranked.iter().filter_map(|candidate| self.planned(candidate, spec));
        let offers: Vec<_> = local.into_iter().chain(market).collect();
        let (low, high) = estimate(spec, &offers);
        Plan {
            matched: crate::auction::count(offers.len()),
            seen,
            low,
            high,
            cap: spec.market.budget,
            near_misses: found.reasons(),
            offers,
        }
    }

    fn planned(&self, candidate: &Candidate, spec: &JobSpec) -> Option<PlannedOffer> {
        let offer = self.offers.get(&candidate.provider)?;
        Some(PlannedOffer {
            provider: offer.provider,
            name: offer.name.to_string(),
            rate: filter::ask(offer, &spec.requirement),
            tier: spec.terms.tier,
            region: offer.region.to_string(),
            rtt: candidate.rtt,
            reliability: candidate.reliability,
            now: candidate.slots > 0,
            slots: candidate.slots,
        })
    }

    /// A digest of everything that is durable: equal before and after a restart.
    #[must_use]
    pub fn digest(&self) -> Hash {
        let mut text = String::new();
        for job in self.jobs.values() {
            text.push_str(&format!(
                "{:?} {:?} {:?} {:?} {:?}\n",
                job.id(),
                job.state().is_final(),
                job.cost(),
                job.reserved(),
                job.leases()
            ));
            for (index, task) in job.tasks().iter().enumerate() {
                let outcome = if task.is_final() { format!("{:?}", task.state()) } else { "open".to_owned() };
                text.push_str(&format!("{index} {outcome}"));
                for attempt in task.attempts() {
                    let ended = if attempt.is_open() { "open".to_owned() } else { format!("{:?}", attempt.state) };
                    text.push_str(&format!(" {}:{ended}:{:?}:{:?}", attempt.id, attempt.verdict, attempt.billed));
                }
                text.push('\n');
            }
        }
        for (id, lease) in &self.leases {
            let state = match &lease.phase {
                Phase::Awarded(_) | Phase::Void(_) => continue,
                Phase::Open | Phase::Ending { .. } => "open".to_owned(),
                Phase::Closed { end, by, receipt } => format!("{end} {by} {}", receipt.is_some()),
            };
            let open: Vec<_> = lease.open.keys().collect();
            text.push_str(&format!("{id} {state} {} {:?} {open:?}\n", lease.account.total(), lease.account.billed()));
        }
        Hash::of(text.as_bytes())
    }
}

fn view(lease: &Lease) -> LeaseAccountView {
    let state = match &lease.phase {
        Phase::Awarded(_) | Phase::Void(_) => RenterLeaseState::Awarded,
        Phase::Open if lease.unknown => RenterLeaseState::Unknown,
        Phase::Open => RenterLeaseState::Open,
        Phase::Ending { .. } => RenterLeaseState::Ending,
        Phase::Closed { receipt: Some(_), .. } => RenterLeaseState::Settled,
        Phase::Closed { receipt: None, .. } => RenterLeaseState::Closed,
    };
    LeaseAccountView {
        lease: lease.view(),
        state,
        opened: lease.accepted.as_ref().map(|accepted| accepted.at),
        ended: lease.ended_by(),
        running: crate::auction::count(lease.open.len()),
        billed: lease.account.billed().to_vec(),
        run: lease.account.run(),
        total: lease.account.total(),
    }
}

/// The least and the most a job would cost at these offers, best first: the slots it runs on at once are the cheapest.
fn estimate(spec: &JobSpec, offers: &[PlannedOffer]) -> (Option<Credits>, Option<Credits>) {
    let tasks = u64::from(spec.task_count());
    let mut rates: Vec<(Rate, u32)> =
        offers.iter().filter_map(|offer| offer.rate.map(|rate| (rate, offer.slots.max(1)))).collect();
    rates.sort();
    let Some((cheapest, _)) = rates.first().copied() else { return (None, None) };
    let mut left = spec.array.max_parallel.max(1).min(spec.task_count());
    let mut dearest = cheapest;
    for (rate, slots) in rates {
        if left == 0 {
            break;
        }
        left = left.saturating_sub(slots);
        dearest = rate;
    }
    let all = |rate: Rate, times: u64| spec.step_cost(rate).and_then(|step| step.checked_mul(times));
    let attempts = tasks.saturating_mul(u64::from(spec.retry.attempts.max(1)));
    let cap = |cost: Option<Credits>| cost.map(|cost| spec.market.budget.map_or(cost, |budget| budget.min(cost)));
    (cap(all(cheapest, tasks)), cap(all(dearest, attempts)))
}
