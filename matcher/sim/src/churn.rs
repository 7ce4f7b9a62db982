//! Nodes that leave and come back: home machines are switched off, lines fail.

use souk_protocol::Millis;

use crate::{random::Dice, time::Micros};

/// How nodes come and go. Times are exponential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Churn {
    /// Mean time a provider stays.
    pub stay: Millis,
    /// Mean time it is away.
    pub away: Millis,
}

impl Churn {
    /// When a provider leaves and for how long, until `end`, in order.
    pub(crate) fn absences(&self, dice: &mut Dice, end: Micros) -> Vec<(Micros, Micros)> {
        let mut out = Vec::new();
        let mut at = Micros(0);
        loop {
            at = at + dice.exponential(Micros::from(self.stay));
            if at >= end {
                return out;
            }
            let away = dice.exponential(Micros::from(self.away)).max(Micros::millis(1));
            out.push((at, away));
            at = at + away;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absences_are_as_frequent_and_as_long_as_asked_for() {
        let churn = Churn { stay: Millis::from_hours(8), away: Millis::from_hours(1) };
        let end = Micros::millis(9_000 * 3_600_000);
        let absences = churn.absences(&mut Dice::new(1, "churn"), end);
        let away: u64 = absences.iter().map(|(_, away)| away.0 / 60_000_000).sum();
        assert!((950..1_050).contains(&absences.len()), "{}", absences.len());
        assert!((54_000..66_000).contains(&away), "{away} minutes");
        assert!(absences.windows(2).all(|pair| pair[0].0 + pair[0].1 < pair[1].0));
    }
}
