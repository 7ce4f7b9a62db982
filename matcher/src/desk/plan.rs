//! Where a lease finds its place in the schedule, and who makes room for it.

use souk_protocol::{Capacity, DeclineCode, LeaseId, Millis, Requirement, Terms, Tier};

use super::{Refusal, fit};
use crate::schedule::{self, OPEN_ENDED, Schedule};

/// Time for fetching and compiling that a gap must have room for, on top of what an attempt may run. An attempt that is
/// not running by then is sent back unstarted.
pub const FETCH_SLACK: Millis = Millis(10_000);
/// A preemptible attempt is worth starting if this part of its timeout fits before it must stop: timeouts are guesses,
/// one to five times too long (`reference/market.md` 2.4).
const WORTH: u64 = 4;

/// How long the slots of a lease must be there from the start of an attempt on: until it has ended by itself, or, if it
/// may be preempted, until it has done some work and been given its notice.
#[must_use]
pub fn reach(terms: &Terms) -> Millis {
    let whole = terms.timeout.saturating_add(terms.stop_grace).saturating_add(FETCH_SLACK);
    if !may_stop(terms) {
        return whole;
    }
    let part = Millis(terms.timeout.0.checked_div(WORTH).unwrap_or(0));
    whole.min(part.saturating_add(terms.notice).saturating_add(terms.stop_grace))
}

/// Whether what runs under these terms may be stopped after its notice. Gold never is.
#[must_use]
pub const fn may_stop(terms: &Terms) -> bool {
    terms.preemptible && !matches!(terms.tier, Tier::Gold)
}

/// Who wants room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// A lease of this tier.
    Tier(Tier),
    /// The owner of the machine: preempts like gold.
    Owner,
}

impl Claim {
    /// Whether a lease of tier `other` makes room for it.
    #[must_use]
    pub fn precedes(self, other: Tier) -> bool {
        match self {
            Self::Tier(tier) => other < tier,
            Self::Owner => other < Tier::Gold,
        }
    }
}

/// A lease as far as making room for another is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    /// Which.
    pub lease: LeaseId,
    /// How firm its promise is.
    pub tier: Tier,
    /// It can be gone by then without stopping what runs.
    pub quiet: Millis,
    /// It can be gone by then if it is given notice now; never, if it may not be stopped.
    pub noticed: Option<Millis>,
    /// What stopping it now would waste: rate times run time so far.
    pub lost: u128,
}

impl Standing {
    /// What it costs to have it gone by `at`, if that is possible.
    fn cost(&self, at: Millis) -> Option<u128> {
        if self.quiet <= at {
            return Some(0);
        }
        self.noticed.filter(|noticed| *noticed <= at).map(|_| self.lost)
    }

    /// The soonest it can be gone.
    fn soonest(&self) -> Millis {
        self.noticed.map_or(self.quiet, |noticed| noticed.min(self.quiet))
    }
}

/// What is planned with.
#[derive(Debug, Clone, Copy)]
pub struct Board<'a> {
    /// Everything on sale.
    pub total: &'a Capacity,
    /// Who holds what and when.
    pub schedule: &'a Schedule,
    /// The leases that could make room.
    pub standings: &'a [Standing],
}

impl Board<'_> {
    /// Which leases have to be gone by `from`, so that `amount` fits from then on for good: those that lose the least
    /// work for the capacity they free. None, if it fits anyway.
    ///
    /// # Errors
    /// If it does not fit even then.
    pub fn make_room(&self, amount: &Capacity, from: Millis, claim: Claim) -> Result<Vec<LeaseId>, DeclineCode> {
        let mut plan = self.schedule.clone();
        let fits = |plan: &Schedule| plan.fits_until(self.total, amount, from) == Some(OPEN_ENDED);
        if fits(&plan) {
            return Ok(Vec::new());
        }
        let mut victims: Vec<_> = self
            .standings
            .iter()
            .filter(|standing| claim.precedes(standing.tier))
            .filter_map(|standing| {
                let hold = self.schedule.get(&standing.lease).filter(|hold| hold.until > from && hold.from <= from)?;
                Some((standing.cost(from)?, share(&hold.amount, amount), standing))
            })
            .collect();
        // By lost work over freed capacity, compared without dividing; then the lower tier.
        victims.sort_by(|(lost_a, freed_a, a), (lost_b, freed_b, b)| {
            let (a_times, b_times) = (lost_a.saturating_mul(*freed_b), lost_b.saturating_mul(*freed_a));
            a_times.cmp(&b_times).then(a.tier.cmp(&b.tier)).then(b.lease.cmp(&a.lease))
        });
        let mut cut = Vec::new();
        for (_, _, standing) in &victims {
            plan.end_by(&standing.lease, from);
            cut.push(standing.lease);
            if fits(&plan) {
                break;
            }
        }
        if !fits(&plan) {
            return Err(DeclineCode::NoCapacity);
        }
        // The dearest first: whoever turns out not to be in the way stays.
        let mut needed = Vec::new();
        for lease in cut.iter().rev() {
            plan.open_end(lease);
            if let Some(hold) = self.schedule.get(lease) {
                plan.end_by(lease, hold.until);
            }
            if !fits(&plan) {
                plan.end_by(lease, from);
                needed.push(*lease);
            }
        }
        needed.reverse();
        Ok(needed)
    }

    /// The soonest moment in `[now, by]` from which `amount` fits if others make room, and from which on it does.
    #[must_use]
    pub fn soonest(&self, amount: &Capacity, now: Millis, by: Millis, claim: Claim) -> Option<Millis> {
        let leaving = self.standings.iter().filter(|standing| claim.precedes(standing.tier)).map(Standing::soonest);
        let ending = self.schedule.holds().map(|(_, hold)| hold.until);
        let mut moments: Vec<_> =
            leaving.chain(ending).map(|at| at.max(now)).filter(|at| *at <= by).chain([now]).collect();
        moments.sort_unstable();
        moments.dedup();
        // The later, the more room: whoever can be gone by a moment can be gone by a later one.
        let at = moments.partition_point(|from| self.make_room(amount, *from, claim).is_err());
        moments.get(at).copied()
    }

    /// How many slots of `need`, at most `wanted`, fit from `from` on if others make room.
    #[must_use]
    pub fn slots(&self, need: &Requirement, wanted: u32, from: Millis, claim: Claim) -> u32 {
        let (mut fit, mut over) = (0, wanted.min(self.total.slots(need)).saturating_add(1));
        while over.saturating_sub(fit) > 1 {
            let half = fit.midpoint(over);
            let fits = schedule::times(need, half).is_some_and(|amount| self.make_room(&amount, from, claim).is_ok());
            if fits { fit = half } else { over = half }
        }
        fit
    }

    /// How many slots of `need` are free at once for as long as `terms` need them.
    #[must_use]
    pub fn free_slots(&self, need: &Requirement, terms: &Terms, now: Millis) -> u32 {
        self.schedule.free(self.total, now, now.saturating_add(reach(terms))).slots(need)
    }

    /// Until when `amount` may be held from now on.
    ///
    /// # Errors
    /// If it is not free for as long as `terms` need it.
    pub fn gap(&self, amount: &Capacity, terms: &Terms, now: Millis) -> Result<Millis, DeclineCode> {
        let until = self.schedule.fits_until(self.total, amount, now).ok_or(DeclineCode::NoCapacity)?;
        let enough = until.saturating_sub(now) >= reach(terms);
        if enough { Ok(until) } else { Err(DeclineCode::NoCapacity) }
    }
}

/// How much of `amount` a hold gives back, in thousandths of the resource of which it gives back the least.
fn share(held: &Capacity, amount: &Capacity) -> u128 {
    let part = |held: u64, amount: u64| match amount {
        0 => 1_000,
        _ => u128::from(held).saturating_mul(1_000).checked_div(u128::from(amount)).unwrap_or(1_000).min(1_000),
    };
    let cpu = part(held.cpu.0, amount.cpu.0);
    cpu.min(part(held.memory.0, amount.memory.0)).min(part(held.disk.0, amount.disk.0)).max(1)
}

/// Why there is no room, with what is free at `at`.
pub(super) fn no_room(board: &Board<'_>, at: Millis, need: &Requirement, slots: u32) -> Refusal {
    let free = board.schedule.free(board.total, at, at.saturating_add(Millis(1)));
    if free.slots(need) >= slots.max(1) {
        let until = board.schedule.next_begin(at).unwrap_or(OPEN_ENDED).saturating_sub(at);
        let nearest = format!("free for {until}, then reserved");
        return Refusal::new(DeclineCode::NoCapacity, nearest);
    }
    Refusal::new(DeclineCode::NoCapacity, fit::nearest(board.total, &free, need, slots.max(1)))
}
