//! What the owner of a machine asks: the price of the moment and what came in.

use serde::{Deserialize, Serialize};
use souk_matcher::{
    Reason,
    price::{Breakdown, Enough, Pricing, Record, Suggestion},
};
use souk_protocol::{Credits, MilliWatts, Millis, PowerPrice, Ppm, Rate, Timestamp};

/// The price of the moment: `node price show`, `node price suggest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePrice {
    /// When.
    pub at: Timestamp,
    /// Whether a node runs; if not, this is the price of one that starts now.
    pub running: bool,
    /// `fixed` or `adaptive`.
    pub strategy: String,
    /// By component, each for a whole unit.
    pub components: Vec<ComponentPrice>,
    /// Factor of the hour.
    pub peak: String,
    /// Share of the machine in use.
    pub used: Ppm,
    /// Factor of that share.
    pub utilisation: String,
    /// Both together: where the factor goes, by at most 5 % a minute.
    pub target: String,
    /// Where it is.
    pub factor: String,
    /// Electricity, if its price is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub power: Option<PowerCost>,
    /// What came of the prices since the node started.
    pub record: PriceRecord,
    /// What would earn more.
    pub suggestion: PriceSuggestion,
}

/// The price of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentPrice {
    /// `cpu` (a core) or `memory_gb` (10^9 bytes).
    pub component: String,
    /// Asked for now.
    pub price: Rate,
    /// The owner's ask.
    pub ask: Rate,
    /// Never less than this.
    pub floor: Rate,
    /// What the price is: `ask` times the factor, the `floor`, or the `power` cost.
    pub because: String,
}

/// What electricity costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCost {
    /// By energy.
    pub price: PowerPrice,
    /// What a working core draws.
    pub per_core: MilliWatts,
    /// Whether that is a general estimate, not the owner's figure.
    pub estimated: bool,
    /// Of a working core, an hour.
    pub core: Rate,
    /// Whether a core is never sold for less.
    pub never_below: bool,
}

/// What came of the prices since the node started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceRecord {
    /// Bids made.
    pub bids: u64,
    /// Bids that became leases.
    pub won: u64,
    /// Bids that did not.
    pub lost: u64,
    /// Leases by the standing ask.
    pub asks: u64,
    /// Requests that would pay less than the floor.
    pub under_floor: u64,
    /// What the best of those would pay, of the floor.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub best_refused: Option<Ppm>,
}

/// What the record suggests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PriceSuggestion {
    /// `too-little-data`, `keep`, `lower-ask`, `raise-ask`, `lower-floor`.
    pub verdict: String,
    /// Why.
    pub text: String,
    /// Fields of the node file to change; none to keep.
    pub changes: Vec<ProposedPrice>,
}

/// A field of the node file that could be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedPrice {
    /// Which, `pricing.ask.cpu`.
    pub field: String,
    /// As it is.
    pub from: Rate,
    /// As it could be.
    pub to: Rate,
}

/// What came in: `node earnings`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Earnings {
    /// Whose days these are.
    pub timezone: String,
    /// Oldest first; hours are counted to the day in which they begin.
    pub days: Vec<Day>,
    /// All of it.
    pub earned: Credits,
    /// Work that was not taken since the node started, most frequent first.
    pub missed: Vec<Reason>,
}

/// What came in on a local day.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Day {
    /// Which, `2026-12-24`.
    pub day: String,
    /// Vouchered to this node.
    pub earned: Credits,
    /// Attempts that are owed for.
    pub billed: u32,
    /// Attempts that came to nothing: preempted, lost.
    pub unbilled: u32,
    /// Time the node was open by its calendar, up to now.
    pub open: Millis,
    /// Processor time sold, in core time.
    pub sold: Millis,
    /// Of the processor time that was on sale, by today's capacity; none for a day on which it was closed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub fill: Option<Ppm>,
}

impl NodePrice {
    /// Of what the desk says.
    #[must_use]
    pub fn new(
        pricing: &Pricing,
        owner_floor: Rate,
        made_of: &Breakdown,
        record: &Record,
        suggestion: &Suggestion,
        (at, running): (Timestamp, bool),
    ) -> Self {
        let component = |component: &str, price: Rate, ask: Rate, floor: Rate, bound: &str| ComponentPrice {
            component: component.to_owned(),
            price,
            ask,
            floor,
            because: if price > floor { "ask" } else { bound }.to_owned(),
        };
        let bound = if made_of.floor.cpu > owner_floor { "power" } else { "floor" };
        let (price, ask, floor) = (made_of.price, made_of.ask, made_of.floor);
        Self {
            at,
            running,
            strategy: pricing.strategy.to_string(),
            components: vec![
                component("cpu", price.cpu, ask.cpu, floor.cpu, bound),
                component("memory_gb", price.memory_gb, ask.memory_gb, floor.memory_gb, "floor"),
            ],
            peak: made_of.peak.to_string(),
            used: made_of.used,
            utilisation: made_of.utilisation.to_string(),
            target: made_of.target.to_string(),
            factor: made_of.factor.to_string(),
            power: pricing.power.map(|power| PowerCost {
                price: power.price,
                per_core: power.draws(),
                estimated: power.per_core.is_none(),
                core: power.core(),
                never_below: power.never_below,
            }),
            record: PriceRecord {
                bids: record.bids,
                won: record.won,
                lost: record.lost,
                asks: record.asks,
                under_floor: record.under_floor,
                best_refused: record.best_refused,
            },
            suggestion: PriceSuggestion::new(suggestion, made_of, owner_floor),
        }
    }
}

impl PriceSuggestion {
    fn new(suggestion: &Suggestion, made_of: &Breakdown, owner_floor: Rate) -> Self {
        let won = suggestion.won.map_or_else(String::new, |won| format!("{won} of the answered bids were won"));
        let (verdict, text) = match suggestion.enough {
            Enough::TooLittle { answers } => (
                "too-little-data",
                format!("{answers} answers since the start, {} are needed", souk_matcher::price::MIN_ANSWERS),
            ),
            Enough::Fits => ("keep", "the prices fit the demand".to_owned()),
            Enough::TooDear => ("lower-ask", format!("the machine is idle and only {won}")),
            Enough::TooCheap if won.is_empty() => ("raise-ask", "the machine is full".to_owned()),
            Enough::TooCheap => ("raise-ask", format!("the machine is full and {won}")),
            Enough::FloorTooHigh => {
                ("lower-floor", "the machine is idle and most requests would pay less than the floor".to_owned())
            }
        };
        let mut changes = Vec::new();
        let mut change = |field: &str, from: Rate, to: Option<Rate>| {
            if let Some(to) = to.filter(|to| *to != from) {
                changes.push(ProposedPrice { field: format!("pricing.{field}"), from, to });
            }
        };
        let (ask, floor) = (suggestion.ask, suggestion.floor);
        change("ask.cpu", made_of.ask.cpu, ask.map(|ask| ask.cpu));
        change("ask.memory_gb", made_of.ask.memory_gb, ask.map(|ask| ask.memory_gb));
        change("floor.cpu", owner_floor, floor.map(|floor| floor.cpu));
        change("floor.memory_gb", made_of.floor.memory_gb, floor.map(|floor| floor.memory_gb));
        Self { verdict: verdict.to_owned(), text, changes }
    }
}
