//! What is wanted and what there is, in GPU shares: the common ground of every policy.

use std::fmt;

use souk_protocol::{Credits, Millis, Rate, Tier};

use crate::random::{Dice, MILLION};

/// Longest run in a study. A few rows of the traces run for weeks: on a fleet of tens of GPUs such a one would hold a
/// machine for the whole study, whatever the policy.
pub(super) const LONGEST: Millis = Millis(10 * 3_600_000);
/// Shortest run in a study, as in the synthetic model.
pub(super) const SHORTEST: Millis = Millis(30_000);
/// How many times too long people say that their jobs take, each as likely as any other.
pub(super) const ESTIMATES: [u64; 4] = [1, 1, 2, 5];

/// The worth of a job whose renter pays whatever is asked.
pub const ANYTHING: Rate = Rate(u64::MAX);

/// A share of GPUs in thousandths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct MilliGpu(pub u64);

impl MilliGpu {
    /// One whole GPU.
    pub const ONE: Self = Self(1_000);

    /// What this share costs for so long at a rate for one GPU, rounded up.
    #[must_use]
    pub fn charge(self, rate: Rate, run: Millis) -> Credits {
        let micro = u128::from(rate.0) * u128::from(self.0) * u128::from(run.0);
        Credits(u64::try_from(micro.div_ceil(1_000 * 3_600_000)).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for MilliGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} GPU", self.0 / 1_000, self.0 % 1_000)
    }
}

/// One job of one task that somebody wants run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// When it is submitted, from the start of the study.
    pub at: Millis,
    /// On which terms.
    pub tier: Tier,
    /// What it needs, on one machine.
    pub gpu: MilliGpu,
    /// How long it runs. Nobody knows before.
    pub run: Millis,
    /// How long it may run: what its owner says.
    pub limit: Millis,
    /// Most it pays for a GPU hour; [`ANYTHING`] without a limit.
    pub worth: Rate,
    /// How long it waits for its start. `None`: for ever.
    pub patience: Option<Millis>,
}

impl Request {
    /// GPU share times run time, in thousandths of a GPU times milliseconds.
    #[must_use]
    pub fn work(&self) -> u128 {
        u128::from(self.gpu.0) * u128::from(self.run.0)
    }
}

/// Rows of a trace that were not used, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// No arrival, start or end.
    pub without_times: usize,
    /// No GPU asked for.
    pub without_gpu: usize,
    /// Before the last 30 days, where there is a row every few hours.
    pub early: usize,
    /// More GPUs than any machine of the fleet has.
    pub too_wide: usize,
    /// Used, but cut to the longest run.
    pub cut: usize,
}

/// All jobs of a study, in the order of their arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Where it comes from and what was done to it, for the reader of the report.
    pub source: String,
    /// The jobs.
    pub requests: Vec<Request>,
    /// What of the source is not among them.
    pub left_out: LeftOut,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Model of its GPUs, for people.
    pub model: String,
    /// All its GPUs.
    pub gpu: MilliGpu,
    /// Below this rate for a GPU hour its owner does not sell.
    pub floor: Rate,
    /// What its owner asks for: the floor and a margin.
    pub ask: Rate,
}

/// All machines of a study.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Where it comes from.
    pub source: String,
    /// The machines.
    pub machines: Vec<Machine>,
}

/// What a GPU hour costs its owner and is worth to renters: an assumption of the model, printed with each report.
/// Costs and values are even between two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Values {
    /// Floors of providers.
    pub floor: (Rate, Rate),
    /// What providers ask for above their floors, in percent of them.
    pub margin: (u64, u64),
    /// Most that gold renters pay.
    pub gold: (Rate, Rate),
    /// Most that silver renters pay.
    pub silver: (Rate, Rate),
    /// Most that bronze renters pay.
    pub bronze: (Rate, Rate),
}

impl Default for Values {
    /// In thousandths of a credit for a GPU hour. Bronze work is worth less than half of gold work, as the discounts
    /// of spot markets suggest; even the least of it is above the cheapest machine.
    fn default() -> Self {
        let milli = |low: u64, high: u64| (Rate(low * 1_000), Rate(high * 1_000));
        Self {
            floor: milli(200, 500),
            margin: (20, 60),
            gold: milli(900, 2_500),
            silver: milli(600, 1_600),
            bronze: milli(300, 900),
        }
    }
}

impl Values {
    /// What a job of this tier is worth for a GPU hour.
    pub(super) fn worth(&self, dice: &mut Dice, tier: Tier) -> Rate {
        let (low, high) = match tier {
            Tier::Gold => self.gold,
            Tier::Silver => self.silver,
            Tier::Bronze => self.bronze,
        };
        Rate(dice.between(low.0, high.0))
    }
}

impl Demand {
    /// Time between the first arrival and the last.
    #[must_use]
    pub fn span(&self) -> Millis {
        let ends = self.requests.first().zip(self.requests.last());
        ends.map_or(Millis(0), |(first, last)| Millis(last.at.0.saturating_sub(first.at.0)))
    }

    /// All work, in thousandths of a GPU times milliseconds.
    #[must_use]
    pub fn work(&self) -> u128 {
        self.requests.iter().map(Request::work).sum()
    }

    /// Offered GPU time over capacity in the span of the arrivals, in millionths.
    #[must_use]
    pub fn load(&self, fleet: &Fleet) -> u64 {
        let room = u128::from(fleet.gpu().0) * u128::from(self.span().0);
        let load = (self.work() * u128::from(MILLION)).checked_div(room).unwrap_or(0);
        u64::try_from(load).unwrap_or(u64::MAX)
    }

    /// So many jobs in a row, from a place that depends on the seed, the first of them at zero.
    #[must_use]
    pub fn window(&self, seed: u64, count: usize) -> Self {
        let places = self.requests.len().saturating_sub(count) + 1;
        let from = usize::try_from(Dice::new(seed, "window").below(places as u64)).unwrap_or(0);
        let requests: Vec<_> = self.requests.iter().skip(from).take(count).cloned().collect();
        Self { requests, ..self.clone() }.starting_at_zero()
    }

    /// Each arrival up to twice the mean gap later: another run of the same days.
    #[must_use]
    pub fn jittered(&self, seed: u64) -> Self {
        let mut dice = Dice::new(seed, "jitter");
        let most = 2 * self.span().0.checked_div(self.requests.len() as u64).unwrap_or(0);
        let mut moved = self.clone();
        for request in &mut moved.requests {
            request.at.0 += dice.below(most + 1);
        }
        moved.starting_at_zero()
    }

    /// Arrivals pressed together or drawn apart until the load on `fleet` is so many millionths. Jobs that no machine of
    /// it holds are left out before. Run times stay.
    #[must_use]
    pub fn scaled(&self, fleet: &Fleet, load: u64) -> Self {
        let widest = fleet.machines.iter().map(|machine| machine.gpu).max().unwrap_or_default();
        let mut scaled = self.clone();
        scaled.requests.retain(|request| request.gpu <= widest);
        scaled.left_out.too_wide += self.requests.len() - scaled.requests.len();
        let mut scaled = scaled.starting_at_zero();
        let (span, capacity) = (u128::from(scaled.span().0), u128::from(fleet.gpu().0) * u128::from(load));
        let wanted = (scaled.work() * u128::from(MILLION)).checked_div(capacity).unwrap_or(span);
        for request in &mut scaled.requests {
            let at = (u128::from(request.at.0) * wanted).checked_div(span).unwrap_or(0);
            request.at = Millis(u64::try_from(at).unwrap_or(u64::MAX));
        }
        scaled
    }

    /// In order, the first at zero.
    fn starting_at_zero(mut self) -> Self {
        self.requests.sort_by_key(|request| request.at);
        let first = self.requests.first().map_or(0, |request| request.at.0);
        for request in &mut self.requests {
            request.at.0 -= first;
        }
        self
    }
}

impl Fleet {
    /// All GPUs.
    #[must_use]
    pub fn gpu(&self) -> MilliGpu {
        MilliGpu(self.machines.iter().map(|machine| machine.gpu.0).sum())
    }

    /// A small fleet with the mix of `nodes`: of all GPUs, counted through by machine size, each n-th is looked at, and its
    /// machine taken, until there are about `gpus`. Floors are drawn from the seed.
    #[must_use]
    pub fn sampled(seed: u64, source: &str, nodes: &[(String, u64)], gpus: u64, values: &Values) -> Self {
        let mut sorted: Vec<_> = nodes.iter().filter(|(_, count)| *count > 0).collect();
        sorted.sort_by(|(a, n), (b, m)| (m, b).cmp(&(n, a)));
        let all: u64 = sorted.iter().map(|(_, count)| count).sum();
        let mut dice = Dice::new(seed, "fleet");
        let mut machines: Vec<Machine> = Vec::new();
        let (mut have, mut passed) = (0, 0);
        for (model, count) in sorted {
            passed += count;
            // So many GPUs of the small fleet stand for those passed so far.
            while have + count / 2 < (passed * gpus).checked_div(all).unwrap_or(0) && have + count <= gpus {
                have += count;
                let floor = Rate(dice.between(values.floor.0.0, values.floor.1.0));
                let margin = dice.between(values.margin.0, values.margin.1);
                let ask = Rate(floor.0 + floor.0 * margin / 100);
                machines.push(Machine { model: model.clone(), gpu: MilliGpu(count * MilliGpu::ONE.0), floor, ask });
            }
        }
        Self { source: source.to_owned(), machines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(at: u64, gpu: u64, run: u64) -> Request {
        Request {
            at: Millis(at),
            tier: Tier::Bronze,
            gpu: MilliGpu(gpu),
            run: Millis(run),
            limit: Millis(run),
            worth: Rate(1),
            patience: None,
        }
    }

    fn fleet(gpus: &[u64]) -> Fleet {
        let machine =
            |gpus: &u64| Machine { model: "T4".to_owned(), gpu: MilliGpu(gpus * 1_000), floor: Rate(1), ask: Rate(1) };
        Fleet { source: "test".to_owned(), machines: gpus.iter().map(machine).collect() }
    }

    fn demand(requests: Vec<Request>) -> Demand {
        Demand { source: "test".to_owned(), requests, left_out: LeftOut::default() }
    }

    #[test]
    fn a_share_is_charged_by_its_part_of_a_gpu_and_rounded_up() {
        assert_eq!(MilliGpu(500).charge(Rate(1_000_000), Millis(3_600_000)), Credits(500_000));
        assert_eq!(MilliGpu(8_000).charge(Rate(400_000), Millis(1_800_000)), Credits(1_600_000));
        assert_eq!(MilliGpu(1).charge(Rate(1), Millis(1)), Credits(1));
    }

    #[test]
    fn scaling_changes_arrivals_until_the_load_is_as_asked_and_leaves_out_what_fits_nowhere() {
        let wide = request(50, 3_000, 1);
        let all = demand(vec![request(0, 1_000, 4_000), wide, request(100, 500, 4_000), request(400, 2_000, 1_000)]);
        // 4,000 + 2,000 + 2,000 GPU milliseconds on two GPUs.
        let scaled = all.scaled(&fleet(&[2]), 500_000);
        assert_eq!(scaled.requests.iter().map(|request| request.at.0).collect::<Vec<_>>(), [0, 2_000, 8_000]);
        assert_eq!((scaled.load(&fleet(&[2])), scaled.left_out.too_wide), (500_000, 1));
    }

    #[test]
    fn a_window_starts_at_zero_and_lies_elsewhere_with_another_seed() {
        let all = demand((0..100).map(|n| request(n * n, 1_000, n)).collect());
        let window = all.window(1, 10);
        assert_eq!((window.requests.len(), window.requests[0].at), (10, Millis(0)));
        assert_eq!(window, all.window(1, 10));
        assert!((2..9).any(|seed| all.window(seed, 10) != window));
        assert_eq!(all.window(5, 1_000).requests.len(), 100);
    }

    #[test]
    fn jitter_keeps_all_jobs_in_order_of_arrival() {
        let all = demand((0..100).map(|n| request(n * 10, 1_000, n + 1)).collect());
        let moved = all.jittered(3);
        assert_ne!(moved, all);
        assert_eq!(moved.work(), all.work());
        assert!(moved.requests.is_sorted_by_key(|request| request.at));
        assert_eq!(moved.requests[0].at, Millis(0));
    }

    #[test]
    fn a_small_fleet_has_the_mix_of_the_large_one() {
        let mut nodes = vec![("G2".to_owned(), 8); 55];
        nodes.extend(vec![("T4".to_owned(), 2); 40]);
        nodes.push(("none".to_owned(), 0));
        let fleet = Fleet::sampled(1, "test", &nodes, 64, &Values::default());
        assert_eq!(fleet.gpu(), MilliGpu(64_000));
        let sizes = |gpus: u64| fleet.machines.iter().filter(|machine| machine.gpu.0 == gpus * 1_000).count();
        assert_eq!((sizes(8), sizes(2)), (7, 4));
        assert!(fleet.machines.iter().all(|machine| (200_000..=500_000).contains(&machine.floor.0)));
    }
}
