//! The API: HTTP on loopback, for the command line and the dashboard. Nothing else reaches a node from outside the network.
//!
//! Every request needs the token of the home's token file, a loopback `Host` and no foreign `Origin`: a page in a
//! browser that resolves its own name to 127.0.0.1 gets nowhere.

mod blobs;
mod error;
mod events;
mod guard;
mod jobs;
mod logs;
mod market;
mod node;
mod openapi;
mod owner;
mod wallet;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    middleware,
    routing::{get, post, put},
    serve::ListenerExt as _,
};
use souk_protocol::Timestamp;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;

use crate::node::Node;

/// Largest JSON body: a spec with ten thousand tasks.
const MAX_BODY: usize = 8 * 1024 * 1024;
/// Time for open requests at shutdown.
const DRAIN: Duration = Duration::from_secs(2);

/// What the API knows beside the node.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Bearer token.
    pub token: String,
    /// The node's name, for people.
    pub name: String,
    /// `renter`, `provider`.
    pub roles: Vec<String>,
    /// Warnings of the start, shown in the status.
    pub warnings: Vec<String>,
    /// When the node started.
    pub started: Timestamp,
}

/// Shared by all handlers.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) node: Arc<Node>,
    pub(crate) config: ApiConfig,
    /// Ends streams at shutdown.
    pub(crate) stop: CancellationToken,
}

pub(crate) type App = axum::extract::State<Arc<State>>;

/// Serves until `stop`, then gives open requests a moment.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    node: Arc<Node>,
    config: ApiConfig,
    listener: TcpListener,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let address: SocketAddr = listener.local_addr()?;
    let state = Arc::new(State { node, config, stop: stop.clone() });
    let router = router(&state, address);
    let ended = stop.clone();
    // An answer is two small writes; Nagle would hold the second one back for 40 ms.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
    });
    let server = axum::serve(listener, router).with_graceful_shutdown(async move { ended.cancelled().await });
    tokio::select! {
        served = async { server.await } => served,
        () = async { stop.cancelled().await; tokio::time::sleep(DRAIN).await } => Ok(()),
    }
}

fn router(state: &Arc<State>, address: SocketAddr) -> Router {
    let routes = Router::new()
        .route("/v1/status", get(node::status))
        .route("/v1/jobs", get(jobs::list).post(jobs::submit))
        .route("/v1/jobs/{id}", get(jobs::get))
        .route("/v1/jobs/{id}/why", get(jobs::why))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/jobs/{id}/events", get(events::stream))
        .route("/v1/jobs/{id}/logs", get(logs::get))
        .route("/v1/jobs/{id}/outputs", get(jobs::outputs))
        .route("/v1/jobs/{id}/cost", get(jobs::cost))
        .route("/v1/jobs/{id}/receipts", get(jobs::receipts))
        .route("/v1/receipts/{lease}", get(jobs::receipt))
        .route("/v1/blobs/{hash}", put(blobs::put).get(blobs::get))
        .route("/v1/offers", get(market::offers))
        .route("/v1/plan", post(market::plan))
        .route("/v1/peers", get(node::peers))
        .route("/v1/peers/{id}", get(node::peer))
        .route("/v1/peers/{id}/ping", get(node::ping))
        .route("/v1/node/why", get(node::why))
        .route("/v1/node/price", get(owner::price))
        .route("/v1/node/earnings", get(owner::earnings))
        .route("/v1/leases", get(node::leases))
        .route("/v1/drain", post(node::drain))
        .route("/v1/pause", post(node::pause))
        .route("/v1/resume", post(node::resume))
        .route("/v1/network", get(node::network))
        .route("/v1/wallet", get(wallet::balance))
        .route("/v1/wallet/history", get(wallet::history))
        .route("/v1/wallet/verify", get(wallet::verify))
        .route("/v1/wallet/trust", post(wallet::trust))
        .route("/v1/wallet/discharge", post(wallet::discharge))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/metrics", get(node::metrics))
        .fallback(error::unknown_route)
        .method_not_allowed_fallback(error::wrong_method);
    let guard = guard::Guard::new(state.config.token.clone(), address);
    routes
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guard::check))
        .layer(CatchPanicLayer::custom(error::panicked))
        .with_state(Arc::clone(state))
}

/// A length as the views have it.
fn count(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
