//! The ledger: what is owed to whom.

use axum::Json;
use souk_matcher::{Books, Event, HistoryKind, Trader};
use souk_protocol::{Ask, Balance, Credits, Discharge, MAX_MESSAGE, codec};
use tracing::debug;

use super::{App, error::ApiError};
use crate::view::{Account, PeerAmount, Verification, VerifyFailure, Wallet, WalletEntry};

/// `GET /v1/wallet`
pub(super) async fn balance(axum::extract::State(state): App) -> Result<Json<Wallet>, ApiError> {
    Ok(Json(state.node.market().with(wallet).await?))
}

fn wallet(trader: &Trader) -> Wallet {
    let books = &trader.books;
    let peers: Vec<Account> = books
        .peers()
        .map(|peer| {
            let (limit, _) = books.limit_of(&peer);
            let trusted = books.trusted(&peer).is_some();
            Account { peer, balance: books.balance(&peer), exposure: books.exposure(&peer), limit, trusted }
        })
        .collect();
    let owed = |sign: i64| {
        peers
            .iter()
            .map(|account| account.balance.0.saturating_mul(sign).max(0).unsigned_abs())
            .fold(0, u64::saturating_add)
    };
    let sum = peers.iter().map(|account| account.balance.0).fold(0, i64::saturating_add);
    Wallet {
        balance: Balance(sum),
        owed_to_us: Credits(owed(1)),
        owed_by_us: Credits(owed(-1)),
        strangers: books.totals().strangers,
        strangers_limit: books.limits().strangers,
        peers,
    }
}

/// `GET /v1/wallet/history`
pub(super) async fn history(axum::extract::State(state): App) -> Result<Json<Vec<WalletEntry>>, ApiError> {
    Ok(Json(state.node.market().with(|trader| entries(&trader.books)).await?))
}

fn entries(books: &Books) -> Vec<WalletEntry> {
    let kind = |kind| match kind {
        HistoryKind::Earned => "earned",
        HistoryKind::Spent => "spent",
        HistoryKind::DischargeGiven => "discharge-given",
        HistoryKind::DischargeGot => "discharge-received",
        HistoryKind::Unpaid => "unpaid",
    };
    books
        .history()
        .map(|entry| WalletEntry {
            at: entry.at,
            kind: kind(entry.kind).to_owned(),
            peer: entry.peer,
            lease: entry.lease,
            amount: entry.amount,
            remark: None,
        })
        .collect()
}

/// `GET /v1/wallet/verify`
pub(super) async fn verify(axum::extract::State(state): App) -> Result<Json<Verification>, ApiError> {
    let look = |trader: &Trader| (trader.books.leases().count(), trader.books.verify());
    let (checked, faults) = state.node.market().with(look).await?;
    let failures: Vec<VerifyFailure> = faults
        .into_iter()
        .map(|fault| {
            let (document, reason) = fault.split_once(": ").unwrap_or(("books", &fault));
            VerifyFailure { file: String::new(), document: document.to_owned(), reason: reason.to_owned() }
        })
        .collect();
    Ok(Json(Verification { ok: failures.is_empty(), checked: checked as u64, failures }))
}

/// `POST /v1/wallet/trust`
pub(super) async fn trust(
    axum::extract::State(state): App,
    Json(PeerAmount { peer, amount }): Json<PeerAmount>,
) -> Result<Json<Wallet>, ApiError> {
    state.node.market().event(Event::Trust { peer, limit: amount }).await?;
    Ok(Json(state.node.market().with(wallet).await?))
}

/// `POST /v1/wallet/discharge`: this node, the creditor, states that a debt was settled outside.
pub(super) async fn discharge(
    axum::extract::State(state): App,
    Json(PeerAmount { peer, amount }): Json<PeerAmount>,
) -> Result<Json<Wallet>, ApiError> {
    let owed = state.node.market().with(move |trader| trader.books.balance(&peer)).await?;
    let owed = Credits(owed.0.max(0).unsigned_abs());
    if amount > owed {
        return Err(ApiError::unprocessable(format_args!("{} owes {owed}, less than {amount}", peer.short()))
            .hint("souk wallet balance shows what each peer owes"));
    }
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(ApiError::internal)?;
    let document = Discharge { creditor: state.node.id(), debtor: peer, nonce, amount, at: crate::clock::wall() };
    let signed = state.node.sign(&document).map_err(ApiError::internal)?;
    state.node.market().event(Event::Discharge(signed.clone())).await?;
    // The debtor is told now if it can be reached; the creditor's books hold in any case.
    if let Ok(bytes) = codec::encode(&Ask::Discharge(signed.into_signed()), MAX_MESSAGE) {
        let net = state.node.net().clone();
        tokio::spawn(async move {
            if let Err(error) = net.request(peer, bytes, std::time::Duration::from_secs(15)).await {
                debug!(peer = %peer.short(), %error, "the debtor was not told of the discharge");
            }
        });
    }
    Ok(Json(state.node.market().with(wallet).await?))
}
