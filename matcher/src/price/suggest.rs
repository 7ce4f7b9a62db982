//! What the owner's own record says about the owner's prices.

use souk_protocol::{Ppm, PriceList, Rate};

use super::{Factor, ONE, Pricing};

/// Answers that are needed before anything is suggested: with fewer, chance decides.
pub const MIN_ANSWERS: u64 = 20;
/// Below this share of bids won an idle machine is too dear; above [`EASY`] a busy one is too cheap.
const HARD: u64 = 300_000;
const EASY: u64 = 800_000;
/// A machine is idle below this share in use, busy above [`FULL`].
const SLACK: u64 = 500_000;
const FULL: u64 = 900_000;
/// How far an ask is moved by one suggestion.
const MOVE: u64 = 100_000;

/// What came of this node's prices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// Bids made.
    pub bids: u64,
    /// Bids that became leases.
    pub won: u64,
    /// Bids whose time ran out.
    pub lost: u64,
    /// Leases by the standing ask.
    pub asks: u64,
    /// Requests that paid at most less than the floor.
    pub under_floor: u64,
    /// The best of those: what it paid, of the floor.
    pub best_refused: Option<Ppm>,
}

/// Why nothing is suggested, or that something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enough {
    /// Too little has happened to go by.
    TooLittle {
        /// Answers there are.
        answers: u64,
    },
    /// The prices fit the demand.
    Fits,
    /// The ask is in the way of work.
    TooDear,
    /// More could be asked for.
    TooCheap,
    /// The floor is in the way of work.
    FloorTooHigh,
}

/// What the record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suggestion {
    /// What is wrong, if anything.
    pub enough: Enough,
    /// Share of answered bids that were won.
    pub won: Option<Ppm>,
    /// A better ask.
    pub ask: Option<PriceList>,
    /// A better floor; never under the power cost.
    pub floor: Option<PriceList>,
}

/// What would earn more, by the record and the share of the machine in use.
#[must_use]
pub fn suggest(record: &Record, pricing: &Pricing, ask: PriceList, floor: PriceList, used: Ppm) -> Suggestion {
    let answers = record.won.saturating_add(record.lost);
    let won = ratio(record.won, answers);
    let asked = answers.saturating_add(record.asks).saturating_add(record.under_floor);
    let nothing = |enough| Suggestion { enough, won, ask: None, floor: None };
    if asked < MIN_ANSWERS {
        return nothing(Enough::TooLittle { answers: asked });
    }
    let used = u64::from(used.0);
    let share_won = won.map(|won| u64::from(won.0));
    // Most requests would pay less than the floor, and the machine has room for them.
    if used < SLACK
        && record.under_floor > asked.saturating_sub(record.under_floor)
        && let Some(best) = record.best_refused
        && let Some(factor) = Factor::from_ppm(u64::from(best.0))
    {
        let lower = pricing.list(floor, PriceList { cpu: Rate::ZERO, memory_gb: Rate::ZERO }, factor);
        if lower.cpu < floor.cpu || lower.memory_gb < floor.memory_gb {
            return Suggestion { floor: Some(lower), ..nothing(Enough::FloorTooHigh) };
        }
    }
    if used < SLACK && answers >= MIN_ANSWERS && share_won.is_some_and(|won| won < HARD) {
        let lower = Factor::from_ppm(ONE.saturating_sub(MOVE)).unwrap_or(Factor::ONE);
        let ask_lower = pricing.list(ask, floor, lower);
        if ask_lower != ask {
            return Suggestion { ask: Some(ask_lower), ..nothing(Enough::TooDear) };
        }
        return nothing(Enough::FloorTooHigh);
    }
    if used > FULL && share_won.is_none_or(|won| won > EASY) {
        let higher = Factor::from_ppm(ONE.saturating_add(MOVE)).unwrap_or(Factor::ONE);
        return Suggestion { ask: Some(pricing.list(ask, floor, higher)), ..nothing(Enough::TooCheap) };
    }
    nothing(Enough::Fits)
}

fn ratio(part: u64, whole: u64) -> Option<Ppm> {
    let ppm = u128::from(part).saturating_mul(u128::from(ONE)).checked_div(u128::from(whole))?;
    u32::try_from(ppm).ok().map(Ppm)
}

impl Record {
    /// Notes a request whose cap lies under the floor of what it asks for.
    pub fn refuse(&mut self, cap: Rate, floor: Rate) {
        self.under_floor = self.under_floor.saturating_add(1);
        self.best_refused = self.best_refused.max(ratio(cap.0.min(floor.0), floor.0));
    }
}
