//! What work costs now: the owner's ask, moved by the hour and by how busy the machine is.
//!
//! ```text
//! price of a component = max( floor, power cost, ask x factor )
//! fixed:    factor = peak of the hour
//! adaptive: factor follows peak x (0.7 + 0.6 u), by at most 5 % a minute; u is the share of the machine in use
//! ```
//!
//! `reference/market.md` 2.2: a price that moves slowly earns nearly all that the best one would, one that chases every
//! job makes all providers swing together. Work of an hour and more that reaches into a dearer hour pays for it: it
//! blocks what could be sold there. Integers only, rounded up, in millionths.

use std::fmt;

use souk_protocol::{MilliWatts, Millis, PowerPrice, Ppm, PriceList, Rate, Timestamp};

use crate::calendar::Calendar;

mod suggest;

pub use suggest::{Enough, MIN_ANSWERS, Record, Suggestion, suggest};

/// Most that the adaptive factor moves at a step, in millionths of what it was.
const STEP_PPM: u64 = 50_000;
/// Shortest time between two steps.
const STEP_EVERY: Millis = Millis(60_000);
/// Steps made up for after a time in which nobody asked: 5 % each, so the factor is wherever it wants to be.
const MAX_STEPS: u64 = 256;
/// Work this long pays for the hours it reaches into.
const LONG: Millis = Millis(3_600_000);
/// Hours ahead that count: a week has every peak in it.
const AHEAD: Millis = Millis(7 * 24 * 3_600_000);
/// The utilisation multiplier of an idle machine and what a busy one adds (`reference/market.md` 2.2).
const IDLE: u64 = 700_000;
const BUSY: u64 = 600_000;
const ONE: u64 = 1_000_000;
/// Largest factor: a thousandfold. Whoever wants more raises the ask.
const MAX_FACTOR: u64 = 1_000 * ONE;

/// What a core draws when it works, where the owner gives no figure: between some 3 W a core of a large server and
/// 15 W of a desktop. An estimate, and called so wherever it is shown.
pub const ESTIMATED_PER_CORE: MilliWatts = MilliWatts(10_000);

/// A multiplier in millionths, written "1.4".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Factor(u64);

impl Factor {
    /// As it is.
    pub const ONE: Self = Self(ONE);

    /// In millionths: above zero and at most a thousandfold.
    #[must_use]
    pub const fn from_ppm(ppm: u64) -> Option<Self> {
        if ppm == 0 || ppm > MAX_FACTOR { None } else { Some(Self(ppm)) }
    }

    /// In millionths.
    #[must_use]
    pub const fn ppm(self) -> u64 {
        self.0
    }

    /// Both after each other, rounded up and kept within bounds.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        let product = u128::from(self.0).saturating_mul(u128::from(other.0)).div_ceil(u128::from(ONE));
        Self(u64::try_from(product).unwrap_or(MAX_FACTOR).clamp(1, MAX_FACTOR))
    }

    /// A rate multiplied, rounded up; the largest one where it does not fit.
    #[must_use]
    pub fn of(self, rate: Rate) -> Rate {
        let product = u128::from(rate.0).saturating_mul(u128::from(self.0)).div_ceil(u128::from(ONE));
        Rate(u64::try_from(product).unwrap_or(u64::MAX))
    }

    /// As near to `target` as one step allows.
    fn step_to(self, target: Self) -> Self {
        // At least one millionth, so that no factor is stuck.
        let most = share(self.0, STEP_PPM).max(1);
        Self(target.0.clamp(self.0.saturating_sub(most), self.0.saturating_add(most)).max(1))
    }
}

/// `ppm` millionths of an amount, rounded down.
fn share(amount: u64, ppm: u64) -> u64 {
    let product = u128::from(amount).saturating_mul(u128::from(ppm));
    product.checked_div(u128::from(ONE)).and_then(|part| u64::try_from(part).ok()).unwrap_or(u64::MAX)
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / ONE, self.0 % ONE);
        let digits = format!("{rest:06}");
        let places = digits.trim_end_matches('0');
        if places.is_empty() { write!(f, "{whole}") } else { write!(f, "{whole}.{places}") }
    }
}

/// Not a factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a factor: above 0, at most 1000, at most 6 places, such as \"1.4\"")]
pub struct FactorError;

impl std::str::FromStr for Factor {
    type Err = FactorError;

    fn from_str(text: &str) -> Result<Self, FactorError> {
        let (whole, places) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| (1..=6).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(whole) || !digits(places) {
            return Err(FactorError);
        }
        let number = |text: &str| text.parse::<u64>().map_err(|_| FactorError);
        let ppm = number(whole)?.saturating_mul(ONE).saturating_add(number(&format!("{places:0<6}"))?);
        Self::from_ppm(ppm).ok_or(FactorError)
    }
}

/// How a price comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Strategy {
    /// The ask and the peaks, as they are written.
    #[default]
    Fixed,
    /// Lower while the machine is idle, higher while it is busy.
    Adaptive,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fixed => "fixed",
            Self::Adaptive => "adaptive",
        })
    }
}

/// Hours with a price of their own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peak {
    /// When.
    pub when: Calendar,
    /// By how much.
    pub factor: Factor,
}

/// What electricity costs the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Power {
    /// By energy.
    pub price: PowerPrice,
    /// What a core draws when it works, by the owner's figure.
    pub per_core: Option<MilliWatts>,
    /// Whether a core is never sold for less than its power.
    pub never_below: bool,
}

impl Power {
    /// What a core draws when it works: the owner's figure or the estimate.
    #[must_use]
    pub fn draws(&self) -> MilliWatts {
        self.per_core.unwrap_or(ESTIMATED_PER_CORE)
    }

    /// Electricity of a working core, an hour, rounded up.
    #[must_use]
    pub fn core(&self) -> Rate {
        // milliwatts x micro-credits a kWh; a kilowatt is a million milliwatts.
        let product = u128::from(self.draws().0).saturating_mul(u128::from(self.price.0)).div_ceil(u128::from(ONE));
        Rate(u64::try_from(product).unwrap_or(u64::MAX))
    }
}

/// How the owner's prices move. The default is not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pricing {
    /// How.
    pub strategy: Strategy,
    /// Dearer and cheaper hours; where several hold, the dearest counts.
    pub peaks: Vec<Peak>,
    /// Electricity.
    pub power: Option<Power>,
}

/// What a price is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Breakdown {
    /// The owner's ask.
    pub ask: PriceList,
    /// Never less than this.
    pub floor: PriceList,
    /// Power of a core, if it is known.
    pub power: Option<Rate>,
    /// Of the hour.
    pub peak: Factor,
    /// The share of the machine in use.
    pub used: Ppm,
    /// Of the share in use; one with fixed prices.
    pub utilisation: Factor,
    /// Where the factor is going.
    pub target: Factor,
    /// Where it is.
    pub factor: Factor,
    /// What is asked for now.
    pub price: PriceList,
}

impl Pricing {
    /// The factor of the hour.
    #[must_use]
    pub fn peak_at(&self, at: Timestamp) -> Factor {
        let open = self.peaks.iter().filter(|peak| peak.when.is_open(at));
        open.map(|peak| peak.factor).max().unwrap_or(Factor::ONE)
    }

    /// The mean factor of the time from `at` on, weighted by time and rounded up; the first week of it.
    #[must_use]
    pub fn peak_over(&self, at: Timestamp, length: Millis) -> Factor {
        let end = at.saturating_add(length.min(AHEAD));
        let (mut from, mut sum) = (at, 0_u128);
        while from < end {
            let change = self.peaks.iter().filter_map(|peak| peak.when.next_change(from)).min();
            let to = change.map_or(end, |change| change.min(end));
            let part = u128::from(to.saturating_since(from).0);
            sum = sum.saturating_add(part.saturating_mul(u128::from(self.peak_at(from).0)));
            from = to;
        }
        let mean = match u128::from(end.saturating_since(at).0) {
            0 => return self.peak_at(at),
            length => sum.div_ceil(length),
        };
        Factor(u64::try_from(mean).unwrap_or(MAX_FACTOR).clamp(1, MAX_FACTOR))
    }

    /// The factor of the share in use.
    #[must_use]
    pub fn utilisation(&self, used: Ppm) -> Factor {
        match self.strategy {
            Strategy::Fixed => Factor::ONE,
            Strategy::Adaptive => Factor(IDLE.saturating_add(share(BUSY, u64::from(used.0).min(ONE)))),
        }
    }

    /// Never less than this: the floor, and the power of a core if the owner says so.
    #[must_use]
    pub fn floor(&self, floor: PriceList) -> PriceList {
        let power = self.power.filter(|power| power.never_below).map_or(Rate::ZERO, |power| power.core());
        PriceList { cpu: floor.cpu.max(power), ..floor }
    }

    /// The prices at a factor, nowhere under the floor.
    #[must_use]
    pub fn list(&self, ask: PriceList, floor: PriceList, factor: Factor) -> PriceList {
        let floor = self.floor(floor);
        PriceList { cpu: factor.of(ask.cpu).max(floor.cpu), memory_gb: factor.of(ask.memory_gb).max(floor.memory_gb) }
    }
}

/// A factor that follows a target slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Slow(Option<Factor>);

impl Slow {
    fn now(self) -> Factor {
        self.0.unwrap_or(Factor::ONE)
    }

    /// The first target is taken as it is.
    fn follow(&mut self, target: Factor, steps: u64) {
        let mut factor = self.0.unwrap_or(target);
        for _ in 0..steps.min(MAX_STEPS) {
            if factor == target {
                break;
            }
            factor = factor.step_to(target);
        }
        self.0 = Some(factor);
    }
}

/// Where the price stands. Follows its target when it is told the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    whole: Slow,
    utilisation: Slow,
    /// When the last step was made, on the monotonic clock.
    stepped: Option<Millis>,
    target: Option<Factor>,
}

impl Level {
    /// Takes as many steps as the time since the last one allows. The first call starts at the target.
    pub fn follow(&mut self, pricing: &Pricing, used: Ppm, at: Timestamp, now: Millis) {
        let (peak, utilisation) = (pricing.peak_at(at), pricing.utilisation(used));
        let target = peak.times(utilisation);
        self.target = Some(target);
        if pricing.strategy == Strategy::Fixed {
            *self = Self { whole: Slow(Some(target)), utilisation: Slow(Some(utilisation)), stepped: None, ..*self };
            return;
        }
        let steps = match self.stepped {
            None => 1,
            Some(last) => now.saturating_sub(last).0.checked_div(STEP_EVERY.0).unwrap_or(0),
        };
        if steps > 0 {
            self.whole.follow(target, steps);
            self.utilisation.follow(utilisation, steps);
            self.stepped = Some(now);
        }
    }

    /// The factor of the ask now.
    #[must_use]
    pub fn factor(&self) -> Factor {
        self.whole.now()
    }

    /// The factor for work that may last `length`: that of now, or of the dearer hours a long job reaches into.
    #[must_use]
    pub fn factor_for(&self, pricing: &Pricing, at: Timestamp, length: Millis) -> Factor {
        if length < LONG || pricing.peaks.is_empty() {
            return self.factor();
        }
        self.factor().max(pricing.peak_over(at, length).times(self.utilisation.now()))
    }

    /// When the next step is due, if there is a way to go.
    #[must_use]
    pub fn due(&self) -> Option<Millis> {
        let moving = self.target.is_some_and(|target| target != self.factor());
        self.stepped.filter(|_| moving).map(|last| last.saturating_add(STEP_EVERY))
    }

    /// What the price is made of.
    #[must_use]
    pub fn breakdown(
        &self,
        pricing: &Pricing,
        ask: PriceList,
        floor: PriceList,
        used: Ppm,
        at: Timestamp,
    ) -> Breakdown {
        let (peak, utilisation) = (pricing.peak_at(at), pricing.utilisation(used));
        Breakdown {
            ask,
            floor: pricing.floor(floor),
            power: pricing.power.map(|power| power.core()),
            peak,
            used,
            utilisation,
            target: peak.times(utilisation),
            factor: self.factor(),
            price: pricing.list(ask, floor, self.factor()),
        }
    }
}

#[cfg(test)]
mod tests;
