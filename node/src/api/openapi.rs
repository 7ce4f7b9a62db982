//! The API described for machines.

use axum::Json;
use serde_json::{Value, json};

/// Method, path, summary, answer.
const ROUTES: &[(&str, &str, &str, &str)] = &[
    ("get", "/v1/status", "this node", "Status"),
    ("get", "/v1/jobs", "jobs; all=1 for ended ones, too", "[JobSummary]"),
    ("post", "/v1/jobs", "submit a job; durable when answered; a repeated nonce is the same job", "Submitted"),
    ("get", "/v1/jobs/{id}", "a job with its tasks and attempts", "Job"),
    ("get", "/v1/jobs/{id}/why", "why it is where it is", "Why"),
    ("post", "/v1/jobs/{id}/cancel", "cancel it", "Job"),
    ("get", "/v1/jobs/{id}/events", "server-sent events until its end; from=SEQ, logs=1", "JobEvent"),
    (
        "get",
        "/v1/jobs/{id}/logs",
        "a log as bytes, with parts=1 as lines of LogPart; index, attempt or from, stream, offset, since, follow=1",
        "bytes",
    ),
    ("get", "/v1/jobs/{id}/outputs", "manifests of the results that count", "[TaskOutputs]"),
    ("get", "/v1/jobs/{id}/cost", "what it costs, by lease", "Cost"),
    ("get", "/v1/jobs/{id}/receipts", "its receipts", "[ReceiptSummary]"),
    ("get", "/v1/receipts/{lease}", "a receipt file, verifiable offline", "bytes"),
    ("put", "/v1/blobs/{hash}", "store a file under its BLAKE3", "nothing"),
    ("get", "/v1/blobs/{hash}", "a file", "bytes"),
    ("get", "/v1/offers", "live offers; gpu, region, sort, max", "Offers"),
    ("post", "/v1/plan", "what a job would find and cost; spends nothing", "Plan"),
    ("get", "/v1/peers", "peers", "[Peer]"),
    ("get", "/v1/peers/{id}", "a peer", "Peer"),
    ("get", "/v1/peers/{id}/ping", "one round trip to a peer", "Ping"),
    ("get", "/v1/node/why", "why this node does not bid", "NodeWhy"),
    ("get", "/v1/node/price", "the price of the moment, what it is made of, what the record suggests", "NodePrice"),
    ("get", "/v1/node/earnings", "what came in by local day; days=7", "Earnings"),
    ("get", "/v1/leases", "leases that are not closed", "[LeaseSummary]"),
    ("post", "/v1/drain", "stop selling", "Draining"),
    ("post", "/v1/pause", "the owner takes the machine", "Draining"),
    ("post", "/v1/resume", "sell again", "Draining"),
    ("get", "/v1/network", "the network file in force", "Network"),
    ("get", "/v1/wallet", "what is owed to whom", "Wallet"),
    ("get", "/v1/wallet/history", "how it came to be", "[WalletEntry]"),
    ("get", "/v1/wallet/verify", "check the books", "Verification"),
    ("post", "/v1/wallet/trust", "set a peer's limit", "Wallet"),
    ("post", "/v1/wallet/discharge", "a debt was settled outside", "Wallet"),
    ("get", "/v1/openapi.json", "this document", "object"),
    ("get", "/metrics", "figures for Prometheus", "text"),
];

/// `GET /v1/openapi.json`
pub(super) async fn document() -> Json<Value> {
    std::future::ready(Json(describe())).await
}

fn describe() -> Value {
    let mut paths = serde_json::Map::new();
    for (method, path, summary, answer) in ROUTES {
        let parameters: Vec<Value> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
            .collect();
        let operation = json!({
            "summary": summary,
            "parameters": parameters,
            "responses": {
                "200": {"description": answer},
                "default": {"description": "{\"error\":{\"code\",\"exit\",\"message\",\"hint\",\"nearest\"}}"},
            },
        });
        let entry = paths.entry((*path).to_owned()).or_insert_with(|| json!({}));
        if let Some(entry) = entry.as_object_mut() {
            entry.insert((*method).to_owned(), operation);
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "souk", "version": env!("CARGO_PKG_VERSION"), "description": "a node's API on loopback"},
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
        "paths": paths,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_router_is_described_and_none_beside() {
        let router = include_str!("../api.rs");
        let routed: Vec<&str> =
            router.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next()).collect();
        let described = describe();
        let described: Vec<&String> = described["paths"].as_object().unwrap().keys().collect();
        assert_eq!(routed.len(), described.len());
        for path in routed {
            assert!(described.iter().any(|known| *known == path), "{path}");
        }
    }
}
