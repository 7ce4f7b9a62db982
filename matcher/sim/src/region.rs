//! Where nodes are and how long messages take between them.

use souk_protocol::Ppm;

use crate::{random::Dice, time::Micros};

/// Regions of a network. One-way latency is log-normal around the median of the two regions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regions {
    /// Codes, for people.
    pub codes: Vec<String>,
    /// How many parts of the nodes are in each.
    pub shares: Vec<u64>,
    /// Median one-way latency from each to each.
    pub latency: Vec<Vec<Micros>>,
    /// The sigma of the distribution, in thousandths.
    pub spread: u32,
    /// Share of nodes that others cannot dial.
    pub nat: Ppm,
}

impl Regions {
    /// One region in which everybody can be dialled.
    #[must_use]
    pub fn single(latency: Micros) -> Self {
        Self {
            codes: vec!["one".to_owned()],
            shares: vec![1],
            latency: vec![vec![latency]],
            spread: 300,
            nat: Ppm::ZERO,
        }
    }

    /// The region of a node that has none of its own.
    #[must_use]
    pub(crate) fn throw(&self, dice: &mut Dice) -> usize {
        dice.weighted(&self.shares)
    }

    /// Median one-way latency.
    #[must_use]
    pub(crate) fn median(&self, from: usize, to: usize) -> Micros {
        self.latency.get(from).and_then(|row| row.get(to)).copied().unwrap_or(Micros::millis(50))
    }
}
