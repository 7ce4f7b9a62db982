//! What is on offer, and what a job would find.

use axum::{
    Json,
    extract::{Query, rejection::JsonRejection},
};
use serde::Deserialize;
use souk_matcher::{Plan, Reason, Trader};
use souk_protocol::{Bytes, Credits, GpuRequest, JobSpec, MilliCpu, Millis, Offer, Ppm, Rate};

use super::{App, count, error::ApiError};
use crate::view::{self, Estimate, NearMiss, OfferView, Offers, PlanRequest};

/// Offers shown if nothing else is asked for.
const SHOWN: usize = 200;

/// Which offers to show.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    gpu: Option<String>,
    region: Option<String>,
    sort: Option<String>,
    max: Option<usize>,
}

/// `GET /v1/offers`
pub(super) async fn offers(
    axum::extract::State(state): App,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Offers>, ApiError> {
    let gpu: Option<GpuRequest> = wanted
        .gpu
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| ApiError::bad(format_args!("gpu: {error}")))?;
    let sort = wanted.sort.unwrap_or_else(|| "price".to_owned());
    if !matches!(sort.as_str(), "price" | "reliability" | "latency") {
        return Err(ApiError::bad(format_args!("sort {sort:?} is unknown: expected price, reliability or latency")));
    }
    let now = state.node.market().now().wall;
    let look = move |trader: &Trader| {
        let rows = trader.renter.offers(now).map(|offer| {
            let rtt = trader.renter.rtt_of(&offer.provider);
            (Offer::clone(offer), rtt, trader.renter.reliability(&offer.provider))
        });
        rows.collect::<Vec<_>>()
    };
    let rows = state.node.market().with(look).await?;
    let seen = rows.len();
    let mut rows: Vec<_> = rows
        .into_iter()
        // Whoever has closed says so with an offer of nothing.
        .filter(|(offer, ..)| !offer.total.cpu.is_zero())
        .filter(|(offer, ..)| wanted.region.as_deref().is_none_or(|region| *offer.region == *region))
        .filter(|(offer, ..)| gpu.as_ref().is_none_or(|gpu| offer.gpus.iter().any(|have| gpu.matches(&have.gpu))))
        .collect();
    rows.sort_by_key(|(offer, rtt, reliability)| {
        let price = unit_rate(offer).map_or(u64::MAX, |rate| rate.0);
        let first = match sort.as_str() {
            "latency" => rtt.map_or(u64::MAX, |rtt| rtt.0),
            "reliability" => u64::from(u32::MAX.saturating_sub(reliability.map_or(0, |share| share.0))),
            _ => price,
        };
        (first, price, offer.provider)
    });
    let matched = rows.len();
    rows.truncate(wanted.max.unwrap_or(SHOWN));
    Ok(Json(Offers {
        request: None,
        offers: rows.into_iter().map(|(offer, rtt, reliability)| offer_view(&offer, rtt, reliability)).collect(),
        matched: count(matched),
        seen: count(seen),
        estimate: None,
        near_misses: Vec::new(),
    }))
}

/// The ask for a core and 10^9 bytes of memory.
fn unit_rate(offer: &Offer) -> Option<Rate> {
    let ask = offer.ask?;
    ask.cpu.checked_add(ask.memory_gb)
}

fn share(reliability: Ppm) -> String {
    let thousandths = reliability.0.saturating_add(500) / 1_000;
    format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000)
}

fn offer_view(offer: &Offer, rtt: Option<Millis>, reliability: Option<Ppm>) -> OfferView {
    let gpus: Vec<String> = offer.gpus.iter().map(|gpu| format!("{}x {}", gpu.count, gpu.gpu)).collect();
    let free = offer.free.cpu >= MilliCpu(1);
    OfferView {
        provider: offer.provider,
        name: offer.name.to_string(),
        gpu: (!gpus.is_empty()).then(|| gpus.join(", ")),
        region: offer.region.to_string(),
        tier: offer.tiers.iter().max().map(ToString::to_string).unwrap_or_default(),
        rate: unit_rate(offer),
        reliability: reliability.map(share),
        rtt_ms: rtt.map(|rtt| rtt.0),
        start: if free { "now" } else { "when free" }.to_owned(),
        data_held: None,
        slots: u32::try_from(offer.free.cpu.0 / 1_000).unwrap_or(u32::MAX),
        cpu: offer.total.cpu.to_string(),
        memory: offer.total.memory.short(),
        expires: Some(offer.expires),
        local: false,
    }
}

/// `POST /v1/plan`
pub(super) async fn plan(
    axum::extract::State(state): App,
    request: Result<Json<PlanRequest>, JsonRejection>,
) -> Result<Json<view::Plan>, ApiError> {
    let Json(PlanRequest { spec }) = request?;
    let request = describe(&spec);
    let now = state.node.market().now();
    let look = move |trader: &Trader| {
        let plan = trader.plan(&spec, now);
        let offers: std::collections::BTreeMap<_, _> =
            trader.renter.offers(now.wall).map(|offer| (offer.provider, (offer.total, offer.expires))).collect();
        (plan, offers)
    };
    let (plan, offers) = state.node.market().with(look).await?;
    let me = state.node.id();
    let Plan { offers: planned, matched, seen, low, high, cap, near_misses } = plan;
    let rows = planned.into_iter().take(SHOWN).map(|offer| {
        let known = offers.get(&offer.provider);
        OfferView {
            provider: offer.provider,
            name: offer.name,
            gpu: None,
            region: offer.region,
            tier: offer.tier.to_string(),
            rate: offer.rate,
            reliability: offer.reliability.map(share),
            rtt_ms: offer.rtt.map(|rtt| rtt.0),
            start: if offer.now { "now" } else { "when free" }.to_owned(),
            data_held: None,
            slots: offer.slots,
            cpu: known.map(|(total, _)| total.cpu.to_string()).unwrap_or_default(),
            memory: known.map(|(total, _)| total.memory.short()).unwrap_or_default(),
            expires: known.map(|(_, expires)| *expires),
            local: offer.provider == me,
        }
    });
    let estimate = low.zip(high).map(|(low, high): (Credits, Credits)| Estimate { low, high, cap });
    Ok(Json(view::Plan {
        request: Some(request),
        offers: rows.collect(),
        matched,
        seen,
        estimate,
        near_misses: near_misses.into_iter().map(near_miss).collect(),
    }))
}

fn near_miss(reason: Reason) -> NearMiss {
    NearMiss { reason: reason.text, count: u32::try_from(reason.count).unwrap_or(u32::MAX), nearest: reason.nearest }
}

/// The request as it was resolved, in words.
fn describe(spec: &JobSpec) -> String {
    let need = &spec.requirement;
    let tasks = spec.task_count();
    let mut words = vec![format!("{} CPU", need.cpu), memory(need.memory), spec.terms.tier.to_string()];
    if !need.regions.is_empty() {
        words.push(need.regions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or "));
    }
    words.push(match tasks {
        1 => "1 task".to_owned(),
        tasks => format!("{tasks} tasks ({} at once)", spec.array.max_parallel.min(tasks)),
    });
    words.join(", ")
}

fn memory(bytes: Bytes) -> String {
    format!("{} memory", bytes.short())
}
