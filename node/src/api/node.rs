//! This node: status, peers, leases, figures.

use std::{fmt::Write as _, time::Duration};

use axum::{
    Json,
    extract::Path,
    http::header,
    response::{IntoResponse as _, Response},
};
use souk_matcher::{LeaseAccountView, LeaseState, RenterLeaseState, Trader};
use souk_protocol::{Balance, NodeId, Party};

use super::{App, State, count, error::ApiError};
use crate::{
    market::NodeGone,
    net::{Direction, PeerInfo, Reachable},
    view::{Draining, LeaseSummary, Network, NodeWhy, Peer, Ping, Status},
};

/// How long a round trip may take: more than to anywhere on earth and back, twice.
const PING_LIMIT: Duration = Duration::from_secs(5);

/// `GET /v1/status`
pub(super) async fn status(axum::extract::State(state): App) -> Result<Json<Status>, ApiError> {
    let net = state.node.net().status().await;
    let now = state.node.market().now();
    let facts = state.node.market().with(move |trader| facts(trader, now)).await?;
    let network = state.node.network();
    let reachable = net.as_ref().map_or(Reachable::Unknown, |net| net.reachable);
    let mut warnings = state.config.warnings.clone();
    warnings.extend(state.node.report().warnings.iter().map(ToString::to_string));
    if net.as_ref().is_some_and(|net| net.peers == 0) {
        warnings.push("no peer is connected: see `souk network show` for the bootstrap addresses".to_owned());
    }
    Ok(Json(Status {
        node: state.node.id(),
        name: state.config.name.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        network: network.name.clone(),
        network_id: network.id(),
        reachable: match reachable {
            Reachable::Public => "public",
            Reachable::Private => "private",
            _ => "unknown",
        }
        .to_owned(),
        listen: net.as_ref().map(|net| net.listen.clone()).unwrap_or_default(),
        peers: net.as_ref().map_or(0, |net| count(net.peers)),
        roles: state.config.roles.clone(),
        leases: facts.leases,
        leases_provided: facts.provided,
        jobs: facts.jobs,
        offers: facts.offers,
        used: facts.used,
        balance: facts.balance,
        warnings,
        started: state.config.started,
    }))
}

struct Facts {
    leases: u32,
    provided: u32,
    jobs: u32,
    offers: u32,
    used: Option<String>,
    balance: Balance,
}

/// Whether a lease of the renter's side is not over.
fn is_live(lease: &LeaseAccountView) -> bool {
    !matches!(lease.state, RenterLeaseState::Closed | RenterLeaseState::Settled)
}

fn facts(trader: &Trader, now: souk_matcher::Now) -> Facts {
    let provided = trader.provider.leases(now.mono, trader.settings().params.unknown_after).len();
    let rented = trader.renter.leases().filter(is_live).count();
    let capacity = trader.provider.capacity();
    let used = (!capacity.total.cpu.is_zero()).then(|| {
        format!(
            "{} of {} cores, {} of {}",
            capacity.used.cpu, capacity.total.cpu, capacity.used.memory, capacity.total.memory
        )
    });
    let balance: i64 = trader.books.peers().map(|peer| trader.books.balance(&peer).0).fold(0, i64::saturating_add);
    Facts {
        leases: count(provided.saturating_add(rented)),
        provided: count(provided),
        jobs: count(trader.renter.jobs().filter(|job| !job.state().is_final()).count()),
        offers: count(trader.renter.offers(now.wall).count()),
        used,
        balance: Balance(balance),
    }
}

/// `GET /v1/peers`
pub(super) async fn peers(axum::extract::State(state): App) -> Result<Json<Vec<Peer>>, ApiError> {
    let infos = state.node.net().peers().await;
    let mut peers = Vec::new();
    for info in infos {
        peers.push(peer_view(&state, info).await?);
    }
    Ok(Json(peers))
}

/// `GET /v1/peers/{id}`
pub(super) async fn peer(axum::extract::State(state): App, Path(id): Path<String>) -> Result<Json<Peer>, ApiError> {
    let info = the_peer(&state, &id).await?;
    Ok(Json(peer_view(&state, info).await?))
}

/// `GET /v1/peers/{id}/ping`
pub(super) async fn ping(axum::extract::State(state): App, Path(id): Path<String>) -> Result<Json<Ping>, ApiError> {
    let peer = the_peer(&state, &id).await?.id;
    match state.node.net().ping(peer, PING_LIMIT).await {
        Ok(took) => Ok(Json(Ping { peer, micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX) })),
        Err(error) => Err(ApiError::unreachable(format_args!("peer {}: {error}", peer.short()))),
    }
}

async fn the_peer(state: &State, id: &str) -> Result<PeerInfo, ApiError> {
    let infos = state.node.net().peers().await;
    let found: Vec<PeerInfo> = infos.into_iter().filter(|info| info.id.to_string().starts_with(id)).collect();
    match found.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(ApiError::missing(format_args!("no peer {id} is known")).hint("souk peers lists them")),
        several => Err(ApiError::conflict(format_args!("{id} could be any of {} peers", several.len()))
            .nearest(several.iter().map(|info| info.id.to_string()).collect())),
    }
}

async fn peer_view(state: &State, info: PeerInfo) -> Result<Peer, NodeGone> {
    let peer: NodeId = info.id;
    let now = state.node.market().now();
    let look = move |trader: &Trader| {
        let name =
            trader.renter.offers(now.wall).find(|offer| offer.provider == peer).map(|offer| offer.name.to_string());
        (name, trader.books.balance(&peer), trader.books.trusted(&peer))
    };
    let (name, balance, limit) = state.node.market().with(look).await?;
    let ms = |micros: u64| micros.div_ceil(1_000);
    Ok(Peer {
        peer,
        name,
        connected: info.connected,
        agent: info.agent,
        addresses: info.addresses,
        connections: info
            .connections
            .iter()
            .map(|c| {
                let direction = if matches!(c.direction, Direction::Inbound) { "in" } else { "out" };
                format!("{} {direction} {}", c.transport, c.address)
            })
            .collect(),
        rtt_ms: info.rtt_micros.map(ms),
        rtt_p95_ms: info.rtt_p95_micros.map(ms),
        reliability: None,
        balance,
        limit,
        strikes: info.strikes,
        banned: info.banned,
        because: Vec::new(),
    })
}

/// `GET /v1/node/why`
pub(super) async fn why(axum::extract::State(state): App) -> Result<Json<NodeWhy>, ApiError> {
    let now = state.node.market().now();
    let look = move |trader: &Trader| super::owner::why(&trader.provider, now.wall);
    let (selling, because) = state.node.market().with(look).await?;
    Ok(Json(NodeWhy { node: state.node.id(), selling, because }))
}

/// `GET /v1/leases`
pub(super) async fn leases(axum::extract::State(state): App) -> Result<Json<Vec<LeaseSummary>>, ApiError> {
    let now = state.node.market().now();
    let look = move |trader: &Trader| {
        let unknown_after = trader.settings().params.unknown_after;
        let provided = trader.provider.leases(now.mono, unknown_after).into_iter().map(|lease| LeaseSummary {
            lease: lease.lease.lease,
            side: Party::Provider.to_string(),
            peer: lease.lease.peer,
            job: lease.lease.job,
            slots: lease.lease.slots,
            rate: lease.lease.rate,
            state: match lease.state {
                LeaseState::Open => "open",
                LeaseState::Waiting => "waiting",
                LeaseState::Unknown => "unknown",
                LeaseState::Ending(_) | LeaseState::Drafted(_) => "ending",
                LeaseState::Lapsed => "lapsed",
            }
            .to_owned(),
            total: lease.total,
        });
        let rented = trader.renter.leases().filter(is_live).map(|lease| LeaseSummary {
            lease: lease.lease.lease,
            side: Party::Renter.to_string(),
            peer: lease.lease.peer,
            job: lease.lease.job,
            slots: lease.lease.slots,
            rate: lease.lease.rate,
            state: super::jobs::lease_state(lease.state).to_owned(),
            total: lease.total,
        });
        provided.chain(rented).collect::<Vec<_>>()
    };
    Ok(Json(state.node.market().with(look).await?))
}

/// `POST /v1/drain`
pub(super) async fn drain(axum::extract::State(state): App) -> Result<Json<Draining>, ApiError> {
    told(&state, souk_matcher::Event::Drain).await
}

/// `POST /v1/pause`
pub(super) async fn pause(axum::extract::State(state): App) -> Result<Json<Draining>, ApiError> {
    told(&state, souk_matcher::Event::Pause).await
}

/// `POST /v1/resume`
pub(super) async fn resume(axum::extract::State(state): App) -> Result<Json<Draining>, ApiError> {
    told(&state, souk_matcher::Event::Resume).await
}

/// Tells the market what its owner wants; the leases that there are then.
async fn told(state: &State, event: souk_matcher::Event) -> Result<Json<Draining>, ApiError> {
    state.node.market().event(event).await?;
    let now = state.node.market().now();
    let look = move |trader: &Trader| trader.provider.leases(now.mono, trader.settings().params.unknown_after).len();
    Ok(Json(Draining { leases: count(state.node.market().with(look).await?) }))
}

/// `GET /v1/network`
pub(super) async fn network(axum::extract::State(state): App) -> Json<Network> {
    std::future::ready(Json(Network::from(state.node.network()))).await
}

/// `GET /metrics`
pub(super) async fn metrics(axum::extract::State(state): App) -> Result<Response, ApiError> {
    let now = state.node.market().now();
    let facts = state.node.market().with(move |trader| (facts(trader, now), trader.books.totals())).await?;
    let (facts, totals) = facts;
    let net = state.node.net().status().await;
    let (blobs, blob_bytes) = state.node.store().blobs().usage();
    let mut text = String::new();
    let mut gauge = |name: &str, help: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}");
    };
    gauge("souk_jobs", "Jobs of this node that are not at their end.", facts.jobs.to_string());
    gauge("souk_leases", "Open leases, both sides.", facts.leases.to_string());
    gauge("souk_offers", "Live offers known.", facts.offers.to_string());
    gauge("souk_peers", "Connected peers.", net.as_ref().map_or(0, |net| net.peers).to_string());
    gauge("souk_earned_credits", "Vouchered to this node, ever.", decimal(totals.earned));
    gauge("souk_spent_credits", "Vouchered by this node, ever.", decimal(totals.spent));
    gauge("souk_claimed_credits", "Delivered and not vouchered.", decimal(totals.claimed));
    gauge("souk_strangers_credits", "What all strangers together may cost.", decimal(totals.strangers));
    gauge("souk_blobs", "Files held.", blobs.to_string());
    gauge("souk_blob_bytes", "Bytes of the files held.", blob_bytes.to_string());
    if let Some(net) = net {
        gauge(
            "souk_net_events_dropped",
            "Network events dropped since the start.",
            net.counts.events_dropped.to_string(),
        );
        gauge("souk_net_strikes", "Strikes against peers since the start.", net.counts.strikes.to_string());
        gauge("souk_net_bans", "Peers shut out since the start.", net.counts.bans.to_string());
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}

/// Credits without their unit.
fn decimal(credits: souk_protocol::Credits) -> String {
    credits.to_string().trim_end_matches(" CR").to_owned()
}
