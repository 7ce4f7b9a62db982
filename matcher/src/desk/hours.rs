//! The owner's hours and what they cost: whether the desk is open now, until when, and the price of the moment.
//!
//! New work is started inside of the windows only. What happens at their end is the owner's choice:
//!
//! - `finish`: work that started inside ends by itself; nothing new is started.
//! - `checkpoint`, `stop`: work is taken only if it can be gone by the end: an attempt that may not be preempted if its
//!   whole timeout fits, one that may be if some of it and its notice do. So a promise is never broken for the hour; what
//!   still runs is told in time and stopped, unbilled.

use souk_protocol::{Capacity, DeclineCode, Millis, Ppm, PriceList, Rate, Requirement, Terms, Timestamp};

use super::{Desk, Refusal, plan::reach};
use crate::{
    calendar::{AtWindowEnd, Calendar, NEVER, Span},
    event::{Now, Policy},
    price::{Breakdown, Factor, Level, Record, Suggestion, suggest},
    schedule::OPEN_ENDED,
};

/// The wall clock is compared with the calendar at least so often: it may jump, the monotonic one does not.
const LOOK_EVERY: Millis = Millis(60_000);
/// What is known of the calendar is looked up again after so long: its horizon has moved.
const KNOWN_FOR: Millis = Millis(24 * 3_600_000);
/// The price is worked out anew at most so often.
const PRICE_EVERY: Millis = Millis(1_000);

/// What is known of the present hour.
#[derive(Debug, Default)]
pub(super) struct Hours {
    shut: bool,
    /// What is known holds while the wall clock lies in here.
    known: Option<Span>,
    /// The end of the joined span; the moment itself while it is shut.
    ends: Timestamp,
    due: Option<Millis>,
    /// The wall clock when it was last looked at.
    seen: Timestamp,
    priced: Option<Millis>,
    level: Level,
    record: Record,
}

impl Hours {
    /// The owner's terms have changed.
    pub(super) fn forget(&mut self) {
        (self.known, self.priced) = (None, None);
    }

    /// The time of a bid has run out.
    pub(super) fn run_out(&mut self) {
        self.record.lost = self.record.lost.saturating_add(1);
    }

    pub(super) fn bid(&mut self) {
        self.record.bids = self.record.bids.saturating_add(1);
    }
}

impl Desk {
    /// Takes note of the time: the hour and its price. Whether the desk has opened or closed since it last did.
    pub fn look(&mut self, now: Now) -> bool {
        let used = self.utilisation();
        let (hours, Some(policy)) = (&mut self.hours, &self.policy) else { return false };
        let was_shut = hours.shut;
        hours.seen = now.wall;
        if !hours.known.is_some_and(|span| span.has(now.wall)) {
            let until = policy.calendar.open_until(now.wall);
            let change = until.or_else(|| policy.calendar.next_open(now.wall)).unwrap_or(NEVER);
            let to = change.min(now.wall.saturating_add(KNOWN_FOR));
            hours.known = Some(Span { from: now.wall, to });
            (hours.shut, hours.ends) = (until.is_none(), until.unwrap_or(now.wall));
        }
        if hours.priced.is_none_or(|at| now.mono.saturating_sub(at) >= PRICE_EVERY) {
            hours.level.follow(&policy.pricing, used, now.wall, now.mono);
            hours.priced = Some(now.mono);
        }
        let left = hours.known.map_or(LOOK_EVERY, |span| span.to.saturating_since(now.wall));
        let has_hours = !policy.calendar.is_always_open() || !policy.pricing.peaks.is_empty();
        let look = has_hours.then(|| now.mono.saturating_add(left.min(LOOK_EVERY)));
        hours.due = [look, hours.level.due()].into_iter().flatten().min();
        was_shut != hours.shut
    }

    /// Whether the owner's hours are over.
    #[must_use]
    pub const fn is_shut(&self) -> bool {
        self.hours.shut
    }

    /// When the desk has to look at the clock again, on the monotonic one.
    #[must_use]
    pub const fn look_at(&self) -> Option<Millis> {
        self.hours.due
    }

    /// Until when new work may be started; [`NEVER`] without an end.
    #[must_use]
    pub const fn open_until(&self) -> Timestamp {
        if self.hours.known.is_some() { self.hours.ends } else { NEVER }
    }

    /// Whether the desk is open.
    ///
    /// # Errors
    /// When it opens.
    pub(crate) fn is_open(&self, now: Now) -> Result<(), Refusal> {
        match &self.policy {
            Some(policy) if self.hours.shut => Err(opens(&policy.calendar, now.wall)),
            _ => Ok(()),
        }
    }

    /// Whether work on these terms may start at `from`.
    ///
    /// # Errors
    /// When the node opens, or how much time is left before it closes.
    pub(crate) fn fits_hours(&self, terms: &Terms, from: Timestamp) -> Result<(), Refusal> {
        let Some(policy) = self.policy.as_ref().filter(|policy| !policy.calendar.is_always_open()) else {
            return Ok(());
        };
        let is_now = self.hours.known.is_some_and(|span| span.has(from)) && !self.hours.shut;
        let until = if is_now { Some(self.hours.ends) } else { policy.calendar.open_until(from) };
        let Some(end) = until else { return Err(opens(&policy.calendar, from)) };
        let (room, need) = (end.saturating_since(from), reach(terms));
        if end == NEVER || policy.at_window_end == AtWindowEnd::Finish || need <= room {
            return Ok(());
        }
        let nearest = format!("at most {room} more until {}, asked {need}", policy.calendar.zone().show(end));
        Err(Refusal::new(DeclineCode::Duration, nearest))
    }

    /// When leases have to be gone for the owner, on the monotonic clock. Nobody has to, if work may finish.
    pub(crate) fn leave_by(&self, now: Now) -> Millis {
        let stays = self.policy.as_ref().is_none_or(|policy| policy.at_window_end == AtWindowEnd::Finish);
        if stays || self.hours.shut || self.open_until() == NEVER {
            return OPEN_ENDED;
        }
        now.mono.saturating_add(self.hours.ends.saturating_since(now.wall))
    }

    /// Whether work ends by itself when the hours are over.
    pub(crate) fn lets_finish(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.at_window_end == AtWindowEnd::Finish)
    }

    /// The larger share in use of processors and memory.
    #[must_use]
    pub fn utilisation(&self) -> Ppm {
        let share = |used: u64, total: u64| {
            let ppm = u128::from(used.min(total)).saturating_mul(1_000_000).checked_div(u128::from(total));
            ppm.and_then(|ppm| u32::try_from(ppm).ok()).unwrap_or(0)
        };
        let Capacity { cpu, memory, .. } = self.used();
        let total = self.total();
        Ppm(share(cpu.0, total.cpu.0).max(share(memory.0, total.memory.0)))
    }

    /// The prices it accepts at once: the ask of the moment, nowhere under the floor.
    #[must_use]
    pub fn asks(&self) -> Option<PriceList> {
        self.policy.as_ref().map(|policy| list(policy, self.hours.level.factor()))
    }

    /// The prices for work that may last `length`.
    pub(super) fn asks_for(&self, length: Millis) -> Option<PriceList> {
        let at = self.hours.seen;
        self.policy.as_ref().map(|policy| list(policy, self.hours.level.factor_for(&policy.pricing, at, length)))
    }

    /// Never less than this.
    #[must_use]
    pub fn floor(&self) -> Option<PriceList> {
        self.policy.as_ref().map(|policy| policy.pricing.floor(policy.floor))
    }

    /// What the price of the moment is made of.
    #[must_use]
    pub fn breakdown(&self, now: Now) -> Option<Breakdown> {
        let policy = self.policy.as_ref()?;
        let used = self.utilisation();
        Some(self.hours.level.breakdown(&policy.pricing, policy.ask, policy.floor, used, now.wall))
    }

    /// What came of the prices since the node started.
    #[must_use]
    pub const fn record(&self) -> &Record {
        &self.hours.record
    }

    /// What would earn more, by that record.
    #[must_use]
    pub fn suggestion(&self) -> Option<Suggestion> {
        let policy = self.policy.as_ref()?;
        Some(suggest(&self.hours.record, &policy.pricing, policy.ask, policy.floor, self.utilisation()))
    }

    /// Notes that somebody would have paid less than the floor.
    pub(crate) fn refuse_cap(&mut self, need: &Requirement, cap: Rate) {
        if let Some(floor) = self.floor().and_then(|floor| floor.rate(need)) {
            self.hours.record.refuse(cap, floor);
        }
    }

    /// An award rests on a bid of this node.
    pub(crate) fn won(&mut self) {
        self.hours.record.won = self.hours.record.won.saturating_add(1);
    }

    /// An award rests on a standing ask of this node.
    pub(crate) fn ask_taken(&mut self) {
        self.hours.record.asks = self.hours.record.asks.saturating_add(1);
    }
}

fn list(policy: &Policy, factor: Factor) -> PriceList {
    policy.pricing.list(policy.ask, policy.floor, factor)
}

fn opens(calendar: &Calendar, at: Timestamp) -> Refusal {
    let nearest = calendar
        .next_open(at)
        .map_or_else(|| "not open within a year".to_owned(), |next| format!("opens at {}", calendar.zone().show(next)));
    Refusal::new(DeclineCode::Closed, nearest)
}
