//! Chooses pools for instances of a cover, one a line of JSON on stdin, and prints each as a line of JSON. Made for
//! `tests/pool_gap.py`, which compares it with an exact solver.
//!
//! ```json
//! {"items": [[cost, setup, price, slots, owner, block, region], ...],
//!  "wanted": 64, "owner": 4, "block": 8, "region": 32, "budget": null}
//! ```
#![expect(clippy::print_stdout, reason = "its result goes to stdout")]

use std::io::BufRead;

use serde::{Deserialize, Serialize};
use souk_matcher::{
    pool::{Caps, Domain, Domains, Goal, Item, cover},
    rank::Cost,
};
use souk_protocol::Credits;

/// An instance: costs in micro-credits.
#[derive(Debug, Deserialize)]
struct Instance {
    items: Vec<(u64, u64, u64, u32, u32, u32, u32)>,
    wanted: u32,
    owner: Option<u32>,
    block: Option<u32>,
    region: Option<u32>,
    budget: Option<u64>,
}

/// What was chosen.
#[derive(Debug, Serialize)]
struct Answer {
    shares: Vec<(usize, u32)>,
    slots: u32,
    cost: u64,
    price: u64,
    bound: Option<u64>,
    micros: u128,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for line in std::io::stdin().lock().lines() {
        let instance: Instance = serde_json::from_str(&line?)?;
        let items: Vec<_> = instance
            .items
            .iter()
            .map(|(cost, setup, price, slots, owner, block, region)| Item {
                cost: Cost::of(Credits(*cost)),
                setup: Cost::of(Credits(*setup)),
                price: Credits(*price),
                slots: *slots,
                domains: Domains {
                    owner: Domain::new(*owner),
                    block: Domain::new(*block),
                    region: Domain::new(*region),
                },
            })
            .collect();
        let caps = Caps { owner: instance.owner, block: instance.block, region: instance.region };
        let budget = instance.budget.map(Credits);
        let start = std::time::Instant::now();
        let found = cover(&items, &Goal { wanted: instance.wanted, most: usize::MAX, caps, budget });
        let answer = Answer {
            micros: start.elapsed().as_micros(),
            shares: found.shares,
            slots: found.slots,
            cost: found.cost.credits().0,
            price: found.price.0,
            bound: found.bound.map(|bound| bound.credits().0),
        };
        println!("{}", serde_json::to_string(&answer)?);
    }
    Ok(())
}
