//! What choosing among very many bids or asks needs of each, in columns: a scan reads little memory and compares numbers.

use souk_protocol::{Hash, Millis, NodeId, Ppm, Rate, Timestamp};

use super::domain::Domains;

/// What is not known of a provider, in a column of numbers.
const UNKNOWN: u32 = u32::MAX;

/// One bid or standing ask, with what this node knows of its provider. Nothing in it is verified yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Who.
    pub provider: NodeId,
    /// Hash of the bid or offer.
    pub document: Hash,
    /// Price of a slot.
    pub rate: Rate,
    /// Slots it has.
    pub slots: u32,
    /// When it ends.
    pub valid_until: Timestamp,
    /// Its reliability, if there is a record.
    pub reliability: Option<Ppm>,
    /// Measured round trip, if there is one.
    pub rtt: Option<Millis>,
    /// What it can do, a bit each; what the bits mean is the caller's choice.
    pub traits: u64,
    /// Whose, and where.
    pub domains: Domains,
}

/// What every chosen row must meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bar {
    /// The present.
    pub now: Timestamp,
    /// Highest price of a slot.
    pub max_rate: Rate,
    /// Least reliability; without it no record is needed.
    pub reliability: Option<Ppm>,
    /// Longest measured round trip; without it none needs to be measured.
    pub rtt: Option<Millis>,
    /// Bits that must all be set.
    pub traits: u64,
}

impl Bar {
    /// Whatever has a slot and is still valid.
    #[must_use]
    pub const fn open(now: Timestamp) -> Self {
        Self { now, max_rate: Rate::MAX, reliability: None, rtt: None, traits: 0 }
    }
}

/// Rows by column.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    pub(super) providers: Vec<NodeId>,
    documents: Vec<Hash>,
    pub(super) rates: Vec<u64>,
    slots: Vec<u32>,
    ends: Vec<u64>,
    reliability: Vec<u32>,
    rtts: Vec<u32>,
    traits: Vec<u64>,
    domains: Vec<Domains>,
}

impl Rows {
    /// No rows, with room for so many.
    #[must_use]
    pub fn with_capacity(rows: usize) -> Self {
        Self {
            providers: Vec::with_capacity(rows),
            documents: Vec::with_capacity(rows),
            rates: Vec::with_capacity(rows),
            slots: Vec::with_capacity(rows),
            ends: Vec::with_capacity(rows),
            reliability: Vec::with_capacity(rows),
            rtts: Vec::with_capacity(rows),
            traits: Vec::with_capacity(rows),
            domains: Vec::with_capacity(rows),
        }
    }

    /// Adds a row. Its place is the number of rows before it.
    pub fn push(&mut self, row: &Row) {
        self.providers.push(row.provider);
        self.documents.push(row.document);
        self.rates.push(row.rate.0);
        self.slots.push(row.slots);
        self.ends.push(row.valid_until.0);
        self.reliability.push(row.reliability.map_or(UNKNOWN, |share| share.0));
        // A round trip of weeks is as good as none.
        self.rtts.push(row.rtt.map_or(UNKNOWN, |rtt| u32::try_from(rtt.0).unwrap_or(UNKNOWN - 1)));
        self.traits.push(row.traits);
        self.domains.push(row.domains);
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.providers.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.providers.is_empty()
    }

    /// The row at a place.
    #[must_use]
    pub fn row(&self, place: usize) -> Option<Row> {
        Some(Row {
            provider: *self.providers.get(place)?,
            document: *self.documents.get(place)?,
            rate: Rate(*self.rates.get(place)?),
            slots: *self.slots.get(place)?,
            valid_until: Timestamp(*self.ends.get(place)?),
            reliability: share(*self.reliability.get(place)?),
            rtt: time(*self.rtts.get(place)?),
            traits: *self.traits.get(place)?,
            domains: *self.domains.get(place)?,
        })
    }

    /// The places of the rows that meet the bar, each with its rate, reliability and round trip.
    pub(super) fn passing<'a>(
        &'a self,
        bar: &'a Bar,
    ) -> impl Iterator<Item = (u32, Rate, Option<Ppm>, Option<Millis>)> + 'a {
        let least = bar.reliability.map_or(0, |share| share.0);
        let (needs_record, needs_rtt) = (bar.reliability.is_some(), bar.rtt.is_some());
        let longest = bar.rtt.map_or(u64::MAX, |rtt| rtt.0);
        let prices = self.rates.iter().zip(&self.slots).zip(&self.ends);
        let known = self.reliability.iter().zip(&self.rtts).zip(&self.traits);
        (0u32..).zip(prices.zip(known)).filter_map(move |(place, (((rate, slots), end), ((share, rtt), traits)))| {
            let passes = *rate <= bar.max_rate.0
                && *slots > 0
                && *end >= bar.now.0
                && traits & bar.traits == bar.traits
                && *share >= least // unknown is the highest number
                && (!needs_record || *share != UNKNOWN)
                && (!needs_rtt || (*rtt != UNKNOWN && u64::from(*rtt) <= longest));
            passes.then(|| (place, Rate(*rate), self::share(*share), time(*rtt)))
        })
    }
}

fn share(number: u32) -> Option<Ppm> {
    (number != UNKNOWN).then_some(Ppm(number))
}

fn time(number: u32) -> Option<Millis> {
    (number != UNKNOWN).then(|| Millis(u64::from(number)))
}
