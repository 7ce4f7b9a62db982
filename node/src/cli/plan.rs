//! `souk plan` and `souk offers`: what is on the market, before any money is spent.

use clap::{Args, ValueEnum};
use souk_protocol::GpuRequest;

use super::{
    Context,
    args::grammar,
    error::{CliError, Exit},
    run::{JobArgs, Prepared},
    session::{Needs, Session},
    table::{Table, or_dash},
};
use crate::view::{Offers, Plan, PlanRequest};

#[derive(Debug, Clone, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    job: JobArgs,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct OffersArgs {
    /// Only offers with this GPU, e.g. A100:80GB.
    #[arg(long, value_parser = grammar::<GpuRequest>)]
    gpu: Option<GpuRequest>,
    /// Only offers in this place, an ISO code.
    #[arg(long)]
    region: Option<String>,
    /// Order.
    #[arg(long, value_enum, default_value_t = Sort::Price)]
    sort: Sort,
    /// Most offers shown.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    Price,
    Reliability,
    Latency,
}

impl Sort {
    const fn word(self) -> &'static str {
        match self {
            Self::Price => "price",
            Self::Reliability => "reliability",
            Self::Latency => "latency",
        }
    }
}

pub(crate) async fn plan(context: &Context, args: PlanArgs) -> Result<Exit, CliError> {
    let prepared = Prepared::read(context, &args.job)?;
    let session = Session::open(context, Needs::AnyNode).await?;
    let done = async {
        let resolved = prepared.resolve(&session).await?;
        let plan: Plan = session.client.post("/v1/plan", &PlanRequest { spec: resolved.spec }).await?;
        show(context, &plan, "effective cost")?;
        if plan.matched == 0 {
            return Err(no_offers(&plan));
        }
        Ok(Exit::DONE)
    }
    .await;
    session.close().await;
    done
}

/// Nobody offers what is wanted, with what comes closest.
fn no_offers(plan: &Plan) -> CliError {
    let nearest = plan.near_misses.iter().map(near_miss).collect();
    CliError::NoOffers { message: format!("none of {} offers matches", plan.seen), nearest }
}

fn near_miss(miss: &crate::view::NearMiss) -> String {
    let nearest = miss.nearest.as_ref().map_or_else(String::new, |nearest| format!(" ({nearest})"));
    let fail = if miss.count == 1 { "offer fails" } else { "offers fail" };
    super::table::clean(&format!("{} {fail} only {}{nearest}", miss.count, miss.reason))
}

pub(crate) async fn offers(context: &Context, args: &OffersArgs) -> Result<Exit, CliError> {
    let mut query = form(&[("sort", args.sort.word()), ("max", &args.max.to_string())]);
    if let Some(gpu) = &args.gpu {
        query.push_str(&form(&[("&gpu", &gpu.to_string())]));
    }
    if let Some(region) = &args.region {
        query.push_str(&form(&[("&region", region)]));
    }
    let session = Session::open(context, Needs::AnyNode).await?;
    let found = session.client.get::<Offers>(&format!("/v1/offers?{query}")).await;
    session.close().await;
    show(context, &found?, args.sort.word())?;
    Ok(Exit::DONE)
}

/// Query parameters with percent encoding.
fn form(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| {
        text.bytes().fold(String::new(), |mut out, byte| {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                out.push(char::from(byte));
            } else {
                out.push_str(&format!("%{byte:02X}"));
            }
            out
        })
    };
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

fn show(context: &Context, plan: &Plan, sorted_by: &str) -> Result<(), CliError> {
    let printer = &context.printer;
    if printer.is_structured() {
        return printer.value(plan);
    }
    if printer.is_name() {
        return plan.offers.iter().try_for_each(|offer| printer.line(offer.provider));
    }
    if let Some(request) = &plan.request {
        printer.line(format_args!("request   {request}"))?;
    }
    let heads = [
        ">#",
        "PROVIDER",
        "+NAME",
        "GPU",
        "WHERE",
        "TIER",
        ">CR/h",
        "RELIABILITY",
        ">RTT",
        "START",
        "DATA",
        "+SLOTS",
        "+CPU",
        "+MEMORY",
        "+EXPIRES",
    ];
    let mut table = Table::new(&heads);
    for (number, offer) in plan.offers.iter().enumerate() {
        let rate = offer.rate.map(|rate| rate.to_string().trim_end_matches(" CR/h").to_owned());
        table.row([
            number.saturating_add(1).to_string(),
            if offer.local { "this node".to_owned() } else { offer.provider.short() },
            offer.name.clone(),
            or_dash(offer.gpu.clone()),
            if offer.region.is_empty() { "-".to_owned() } else { offer.region.clone() },
            offer.tier.clone(),
            or_dash(rate),
            or_dash(offer.reliability.clone()),
            offer.rtt_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms}ms")),
            offer.start.clone(),
            or_dash(offer.data_held.as_ref().map(|held| format!("{held} held"))),
            offer.slots.to_string(),
            offer.cpu.clone(),
            offer.memory.clone(),
            or_dash(offer.expires),
        ]);
    }
    if !plan.offers.is_empty() {
        printer.table(&table)?;
    }
    let shown = match plan.offers.len() as u64 {
        all if all >= u64::from(plan.matched) => String::new(),
        some => format!(", {some} shown"),
    };
    printer.line(format_args!("{} of {} offers match, sorted by {sorted_by}{shown}", plan.matched, plan.seen))?;
    if let Some(estimate) = &plan.estimate {
        let cap = estimate.cap.map_or_else(|| "without a limit".to_owned(), |cap| format!("at most {}", cap.short()));
        printer.line(format_args!("estimate  {} to {}, {cap}", estimate.low.short(), estimate.high.short()))?;
    }
    for miss in &plan.near_misses {
        printer.line(format_args!("near miss {}", near_miss(miss)))?;
    }
    Ok(())
}
