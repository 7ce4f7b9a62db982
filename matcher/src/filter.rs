//! Whether an offer or a bid will do: each hard constraint with its reason and how near it came.

use souk_protocol::{
    Announcement, Bid, Credits, GpuOffer, GpuRequest, Isolation, Market, Millis, NodeId, Offer, Params, Ppm, Rate,
    Requirement, Sla, Terms, Tier, Timestamp,
};

/// A constraint that is not met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// Machine-readable: `memory`, `price`, `no-credit`.
    pub code: &'static str,
    /// What is asked for, for people: `memory >= 8 GB`.
    pub text: String,
    /// What there is, for people: `largest 4 GB`. Empty where there is nothing to compare.
    pub nearest: String,
    /// How far off, in the constraint's own unit: the smallest of many misses is the nearest.
    pub distance: u64,
    /// Whether asking the provider may still be worth it: what is free, owed or measured changes, and it knows better.
    pub soft: bool,
}

impl Miss {
    fn hard(code: &'static str, text: impl Into<String>, nearest: impl Into<String>, distance: u64) -> Self {
        Self { code, text: text.into(), nearest: nearest.into(), distance, soft: false }
    }

    fn soft(code: &'static str, text: impl Into<String>, nearest: impl Into<String>, distance: u64) -> Self {
        Self { soft: true, ..Self::hard(code, text, nearest, distance) }
    }
}

/// What a job asks of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// What one slot must have.
    pub requirement: &'a Requirement,
    /// On which terms.
    pub terms: &'a Terms,
    /// Price and choice.
    pub market: &'a Market,
    /// Service level.
    pub sla: &'a Sla,
    /// The network's rules.
    pub params: &'a Params,
    /// Whether unrated peers may serve every tier.
    pub open: bool,
    /// What is left of the budget, if there is one.
    pub budget: Option<Credits>,
}

/// What this node knows of a provider by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Measured round trip, 95th percentile.
    pub rtt: Option<Millis>,
    /// Its reliability in this node's own experience, if there is enough of it.
    pub reliability: Option<Ppm>,
    /// What this node owes it and may come to owe it.
    pub owed: Credits,
}

/// Whether `have` keeps a job at least as far apart as `want`. Classes of different kinds do not replace each other.
#[must_use]
pub const fn isolates(have: Isolation, want: Isolation) -> bool {
    use Isolation::{C1, C2, G1, G2, V1, W0};
    match want {
        W0 => matches!(have, W0),
        C1 => matches!(have, C1 | C2 | V1),
        C2 => matches!(have, C2 | V1),
        V1 => matches!(have, V1),
        G1 => matches!(have, G1 | G2),
        G2 => matches!(have, G2),
    }
}

/// The rate at which `offer` stands for `requirement`, if it has a standing ask.
#[must_use]
pub fn ask(offer: &Offer, requirement: &Requirement) -> Option<Rate> {
    offer.ask.and_then(|prices| prices.rate(requirement))
}

/// Whether `offer` will do.
///
/// # Errors
/// The first constraint that is not met, hard ones first.
pub fn eligible(offer: &Offer, demand: &Demand<'_>, known: &Known, now: Timestamp) -> Result<(), Miss> {
    misses(offer, demand, known, now).into_iter().min_by_key(|miss| miss.soft).map_or(Ok(()), Err)
}

/// Every constraint that `offer` does not meet.
#[must_use]
pub fn misses(offer: &Offer, demand: &Demand<'_>, known: &Known, now: Timestamp) -> Vec<Miss> {
    let mut misses = Vec::new();
    let terms = demand.terms;
    if offer.expires <= now {
        let late = now.saturating_since(offer.expires);
        misses.push(Miss::hard("expired", "a live offer", format!("ended {late} ago"), late.0));
    }
    misses.extend(choice(&offer.provider, demand));
    if !offer.tiers.contains(&terms.tier) {
        let served = words(offer.tiers.iter());
        misses.push(Miss::hard("tier", format!("tier {}", terms.tier), format!("serves {served}"), 0));
    }
    let need = demand.requirement;
    if !offer.runtimes.contains(&need.runtime) {
        let runs = words(offer.runtimes.iter());
        misses.push(Miss::hard("runtime", format!("runtime {}", need.runtime), format!("runs {runs}"), 0));
    }
    if !offer.isolation.iter().any(|have| isolates(*have, need.isolation)) {
        let has = words(offer.isolation.iter());
        misses.push(Miss::hard("isolation", format!("isolation {}", need.isolation), format!("has {has}"), 0));
    }
    if !need.regions.is_empty() && !need.regions.iter().any(|region| region.eq_ignore_ascii_case(&offer.region)) {
        let wanted = words(need.regions.iter());
        misses.push(Miss::hard("region", format!("region {wanted}"), format!("in {}", offer.region), 0));
    }
    misses.extend(capacity(offer, need));
    if let Some(request) = &need.gpu
        && let Some(miss) = gpus(request, &offer.gpus)
    {
        misses.push(miss);
    }
    if offer.max_duration < terms.timeout {
        let over = terms.timeout.saturating_sub(offer.max_duration);
        let text = format!("attempts of up to {}", terms.timeout);
        misses.push(Miss::hard("duration", text, format!("longest {}", offer.max_duration), over.0));
    }
    if terms.preemptible && terms.tier != Tier::Gold && offer.notice < terms.notice {
        let short = terms.notice.saturating_sub(offer.notice);
        let text = format!("a notice of {} before preemption", terms.notice);
        misses.push(Miss::hard("notice", text, format!("longest {}", offer.notice), short.0));
    }
    match ask(offer, need) {
        Some(rate) => {
            misses.extend(money(rate, demand));
            misses.extend(credit(offer, rate, demand, known));
        }
        None => misses.push(Miss::soft("no-ask", "a standing ask", "only bids", 0)),
    }
    misses.extend(measured(&offer.provider, demand, known));
    misses
}

/// Whether `bid` will do. What does not depend on the bid was looked at before its provider was invited.
///
/// # Errors
/// The first constraint that is not met.
pub fn bid(bid: &Bid, demand: &Demand<'_>, known: &Known, now: Timestamp) -> Result<(), Miss> {
    let mut misses = choice(&bid.provider, demand);
    if bid.valid_until < now {
        let late = now.saturating_since(bid.valid_until);
        misses.push(Miss::hard("expired", "a valid bid", format!("ended {late} ago"), late.0));
    }
    if bid.slots == 0 {
        misses.push(Miss::hard("no-capacity", "at least one slot", "0 slots", 1));
    }
    if let Some(within) = demand.sla.start_within.filter(|within| bid.ready_in > *within) {
        let text = format!("a start within {within}");
        let late = bid.ready_in.saturating_sub(within);
        misses.push(Miss::hard("start-within", text, format!("ready in {}", bid.ready_in), late.0));
    }
    misses.extend(money(bid.rate, demand));
    misses.extend(measured(&bid.provider, demand, known));
    misses.into_iter().next().map_or(Ok(()), Err)
}

/// Whether `bid` was made before the call that it answers: a bid kept from another time, or a clock that is off by more
/// than the network allows.
#[must_use]
pub fn stale(bid: &Bid, call: &Announcement, skew: Millis) -> Option<Miss> {
    let early = call.issued.saturating_since(bid.issued);
    (early > skew).then(|| {
        let nearest = format!("made {early} before it");
        Miss::hard("stale", "a bid made after its announcement", nearest, early.saturating_sub(skew).0)
    })
}

fn words<T: std::fmt::Display>(items: impl Iterator<Item = T>) -> String {
    let words: Vec<_> = items.map(|item| item.to_string()).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn choice(provider: &NodeId, demand: &Demand<'_>) -> Vec<Miss> {
    let mut misses = Vec::new();
    if demand.market.deny.contains(provider) {
        misses.push(Miss::hard("denied", "not on the deny list", "denied", 0));
    }
    if !demand.market.allow.is_empty() && !demand.market.allow.contains(provider) {
        misses.push(Miss::hard("not-allowed", "on the allow list", "not allowed", 0));
    }
    misses
}

fn capacity(offer: &Offer, need: &Requirement) -> Vec<Miss> {
    let mut misses = Vec::new();
    let (total, free) = (&offer.total, &offer.free);
    if total.cpu < need.cpu {
        let (text, nearest) = (format!("cpu >= {}", need.cpu), format!("largest {}", total.cpu));
        misses.push(Miss::hard("cpu", text, nearest, need.cpu.0.saturating_sub(total.cpu.0)));
    }
    for (code, wanted, have) in [("memory", need.memory, total.memory), ("disk", need.disk, total.disk)] {
        if have < wanted {
            let (text, nearest) = (format!("{code} >= {}", wanted.short()), format!("largest {}", have.short()));
            misses.push(Miss::hard(code, text, nearest, wanted.0.saturating_sub(have.0)));
        }
    }
    if misses.is_empty() && free.slots(need) == 0 {
        let nearest = format!("free {} cores, {}, {} disk", free.cpu, free.memory.short(), free.disk.short());
        misses.push(Miss::soft("no-capacity", "a free slot", nearest, 1));
    }
    misses
}

fn gpus(request: &GpuRequest, offered: &[GpuOffer]) -> Option<Miss> {
    let wanted = request.count.lo.0;
    let most = offered.iter().filter(|kind| request.matches(&kind.gpu)).map(|kind| u32::from(kind.count)).max();
    let most = most.unwrap_or(0);
    (most < wanted).then(|| {
        let distance = u64::from(wanted.saturating_sub(most));
        Miss::hard("gpu", request.describe(), format!("most {most}"), distance)
    })
}

fn money(rate: Rate, demand: &Demand<'_>) -> Vec<Miss> {
    let mut misses = Vec::new();
    if let Some(cap) = demand.market.max_rate
        && rate > cap
    {
        let over = rate.saturating_sub(cap);
        misses.push(Miss::hard("price", format!("at most {}", cap.short()), rate.short(), over.0));
    }
    let step = rate.charge(demand.terms.timeout).unwrap_or(Credits::MAX);
    if let Some(left) = demand.budget
        && step > left
    {
        let text = format!("a whole attempt of {} within the budget", demand.terms.timeout);
        let nearest = format!("it may cost {}, left {}", step.short(), left.short());
        misses.push(Miss::hard("budget", text, nearest, step.saturating_sub(left).0));
    }
    misses
}

fn credit(offer: &Offer, rate: Rate, demand: &Demand<'_>, known: &Known) -> Option<Miss> {
    let step = rate.charge(demand.terms.timeout).unwrap_or(Credits::MAX);
    let would = known.owed.saturating_add(step);
    let (limit, whose) = if offer.strangers_limit < offer.stranger_limit {
        (offer.strangers_limit, "all strangers")
    } else {
        (offer.stranger_limit, "a stranger")
    };
    (would > limit).then(|| {
        let text = format!("credit for {} (one attempt: the rate times the timeout)", would.short());
        Miss::soft("no-credit", text, format!("{whose} may owe {}", limit.short()), would.saturating_sub(limit).0)
    })
}

fn measured(provider: &NodeId, demand: &Demand<'_>, known: &Known) -> Vec<Miss> {
    let mut misses = Vec::new();
    if let Some(most) = demand.sla.latency {
        let text = format!("round trip of at most {most}");
        match known.rtt {
            Some(rtt) if rtt > most => {
                misses.push(Miss::hard("latency", text, format!("measured {rtt}"), rtt.saturating_sub(most).0));
            }
            Some(_) => {}
            None => misses.push(Miss::soft("latency", text, "not measured yet", u64::MAX)),
        }
    }
    // Peers without a record pass the bronze floor; for more, somebody has to vouch for them.
    let vouched = demand.open || demand.terms.tier == Tier::Bronze || demand.market.allow.contains(provider);
    match (demand.sla.reliability, known.reliability) {
        (Some(least), Some(has)) if has < least => {
            let distance = u64::from(least.0.saturating_sub(has.0));
            misses.push(Miss::hard(
                "reliability",
                format!("reliability >= {least}"),
                format!("it has {has}"),
                distance,
            ));
        }
        (Some(least), None) if !demand.open && !demand.market.allow.contains(provider) => {
            let text = format!("reliability >= {least}");
            misses.push(Miss::hard("reliability", text, "no record yet", u64::MAX));
        }
        (None, None) if !vouched => {
            let text = format!("a record of reliability for tier {}", demand.terms.tier);
            misses.push(Miss::hard("unrated", text, "no record yet", 0));
        }
        _ => {}
    }
    misses
}

#[cfg(test)]
mod tests;
