//! `souk node price`: what work costs now and why, and what would earn more.

use clap::Subcommand;
use souk_matcher::price::{Level, Record, suggest};
use souk_protocol::{Millis, Ppm};

use super::super::{
    Context,
    error::{CliError, Exit},
    session, start,
    table::Table,
};
use crate::{clock::wall, view::NodePrice};

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum PriceCommand {
    /// Show the price of the moment by component, and each factor in it.
    Show,
    /// Say what the node's own record of bids suggests; changes nothing.
    Suggest,
}

pub(crate) async fn run(context: &Context, command: PriceCommand) -> Result<Exit, CliError> {
    let price = match session::running(context).await? {
        Some(client) => client.get("/v1/node/price").await?,
        None => of_file(context)?,
    };
    if context.printer.is_structured() {
        context.printer.value(&price)?;
        return Ok(Exit::DONE);
    }
    match command {
        PriceCommand::Show => show(context, &price),
        PriceCommand::Suggest => suggested(context, &price),
    }
}

/// The price of a node that starts now, with nothing in use.
fn of_file(context: &Context) -> Result<NodePrice, CliError> {
    let config = start::config(context)?;
    let (now, idle, mut level) = (wall(), Ppm::ZERO, Level::default());
    level.follow(&config.pricing, idle, now, Millis::ZERO);
    let made_of = level.breakdown(&config.pricing, config.ask, config.floor, idle, now);
    let record = Record::default();
    let suggestion = suggest(&record, &config.pricing, config.ask, config.floor, idle);
    Ok(NodePrice::new(&config.pricing, config.floor.cpu, &made_of, &record, &suggestion, (now, false)))
}

fn show(context: &Context, price: &NodePrice) -> Result<Exit, CliError> {
    let printer = &context.printer;
    let mut table = Table::new(&["COMPONENT", ">PRICE", ">ASK", ">FLOOR", "BECAUSE"]);
    for part in &price.components {
        let because = match part.because.as_str() {
            "ask" => format!("ask x {}", price.factor),
            "power" => "the power of a core".to_owned(),
            _ => "the floor".to_owned(),
        };
        table.row([
            part.component.clone(),
            part.price.to_string(),
            part.ask.to_string(),
            part.floor.to_string(),
            because,
        ]);
    }
    printer.table(&table)?;
    let mut factors = Table::new(&["FACTOR", ">VALUE", "OF"]);
    factors.row(["peak".to_owned(), price.peak.clone(), "the hour, by pricing.peak".to_owned()]);
    let of = if price.strategy == "adaptive" {
        format!("0.7 + 0.6 x the share in use, {}", price.used)
    } else {
        "fixed prices do not follow the load".to_owned()
    };
    factors.row(["utilisation".to_owned(), price.utilisation.clone(), of]);
    let way = if price.factor == price.target {
        "both together".to_owned()
    } else {
        format!("on its way to {}, 5 % a minute", price.target)
    };
    factors.row(["now".to_owned(), price.factor.clone(), way]);
    printer.table(&factors)?;
    if let Some(power) = &price.power {
        let figure = if power.estimated { "an estimate; set pricing.power.per_core" } else { "pricing.power.per_core" };
        let kept = if power.never_below { "never sold for less" } else { "for information" };
        printer.line(format_args!(
            "power  {} a core at {} ({figure}): {}, {kept}",
            power.per_core, power.price, power.core
        ))?;
    }
    if !price.running {
        printer.talk("no node runs in this home: this is the price of one that starts now");
    }
    Ok(Exit::DONE)
}

fn suggested(context: &Context, price: &NodePrice) -> Result<Exit, CliError> {
    let (printer, record) = (&context.printer, &price.record);
    printer.line(format_args!("{}: {}", price.suggestion.verdict, price.suggestion.text))?;
    for change in &price.suggestion.changes {
        printer.line(format_args!("  {}  {} -> {}", change.field, change.from, change.to))?;
    }
    let best = record.best_refused.map_or_else(String::new, |best| format!(", the best of them {best} of it"));
    printer.talk(format_args!(
        "since the start: {} bids, {} won, {} lost; {} leases by the standing ask; {} requests under the floor{best}",
        record.bids, record.won, record.lost, record.asks, record.under_floor
    ));
    Ok(Exit::DONE)
}
