//! `souk wallet`: what is owed, by whom to whom.

use clap::{Args, Subcommand};
use souk_protocol::{Balance, Credits};

use super::{
    Context,
    args::grammar,
    error::{CliError, Exit},
    session::Session,
    table::{Table, or_dash},
};
use crate::view::{Peer, PeerAmount, Verification, Wallet, WalletEntry};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum WalletCommand {
    /// Show the balance with each peer, exposure and limits.
    Balance,
    /// Show what was earned, spent, trusted and discharged.
    History,
    /// Check that the books are sound; exit code 9 if not.
    Verify,
    /// Let a peer owe up to an amount, in place of the limit for strangers.
    Trust(PeerAmountArgs),
    /// State that a peer has paid an amount outside; it cannot be taken back.
    Discharge(PeerAmountArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PeerAmountArgs {
    /// Its id, or the first characters of it.
    peer: String,
    /// How much, e.g. "5 CR".
    #[arg(value_parser = grammar::<Credits>)]
    amount: Credits,
}

pub(crate) async fn run(context: &Context, command: WalletCommand) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    match command {
        WalletCommand::Balance => balance(context, &session).await,
        WalletCommand::History => history(context, &session).await,
        WalletCommand::Verify => {
            let found: Verification = session.client.get("/v1/wallet/verify").await?;
            verified(context, &found, "wallet")
        }
        WalletCommand::Trust(args) => {
            let body = PeerAmount { peer: peer(&session, &args.peer).await?, amount: args.amount };
            let wallet: Wallet = session.client.post("/v1/wallet/trust", &body).await?;
            tell(context, &wallet, &format!("{} may owe up to {}", body.peer.short(), body.amount))
        }
        WalletCommand::Discharge(args) => {
            let body = PeerAmount { peer: peer(&session, &args.peer).await?, amount: args.amount };
            let question = format!("State for good that {} has paid {}?", body.peer.short(), body.amount);
            context.printer.confirm(&question).await?;
            let wallet: Wallet = session.client.post("/v1/wallet/discharge", &body).await?;
            let account = wallet.peers.iter().find(|account| account.peer == body.peer);
            let balance = account.map_or(Balance::ZERO, |account| account.balance);
            tell(context, &wallet, &format!("balance with {} is now {balance}", body.peer.short()))
        }
    }
}

/// A whole id as it is; a part of one by asking the node.
async fn peer(session: &Session, text: &str) -> Result<souk_protocol::NodeId, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let peer: Peer = session.client.get(&format!("/v1/peers/{}", super::job::segment(text)?)).await?;
    Ok(peer.peer)
}

fn tell(context: &Context, wallet: &Wallet, text: &str) -> Result<Exit, CliError> {
    if context.printer.is_structured() {
        context.printer.value(wallet)?;
    } else {
        context.printer.line(text)?;
    }
    Ok(Exit::DONE)
}

async fn balance(context: &Context, session: &Session) -> Result<Exit, CliError> {
    let wallet: Wallet = session.client.get("/v1/wallet").await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&wallet)?;
        return Ok(Exit::DONE);
    }
    if printer.is_name() {
        printer.line(wallet.balance)?;
        return Ok(Exit::DONE);
    }
    printer.line(format_args!("balance      {}", wallet.balance))?;
    printer.line(format_args!("owed to us   {}", wallet.owed_to_us))?;
    printer.line(format_args!("owed by us   {}", wallet.owed_by_us))?;
    printer.line(format_args!("strangers    {} of {}", wallet.strangers, wallet.strangers_limit))?;
    if !wallet.peers.is_empty() {
        let mut table = Table::new(&["PEER", ">BALANCE", ">EXPOSURE", ">LIMIT", "TRUSTED"]);
        for account in &wallet.peers {
            let trusted = if account.trusted { "yes" } else { "no" };
            table.row([
                account.peer.short(),
                account.balance.to_string(),
                account.exposure.to_string(),
                account.limit.to_string(),
                trusted.to_owned(),
            ]);
        }
        printer.line("")?;
        printer.table(&table)?;
    }
    Ok(Exit::DONE)
}

async fn history(context: &Context, session: &Session) -> Result<Exit, CliError> {
    let entries: Vec<WalletEntry> = session.client.get("/v1/wallet/history").await?;
    let id = |entry: &WalletEntry| or_dash(entry.lease);
    context.printer.list(&entries, "nothing yet", id, |entries| {
        let mut table = Table::new(&["AT", "KIND", "PEER", "LEASE", ">AMOUNT", "REMARK"]);
        for entry in entries {
            table.row([
                entry.at.to_string(),
                entry.kind.clone(),
                entry.peer.short(),
                or_dash(entry.lease.map(|lease| lease.short())),
                entry.amount.to_string(),
                entry.remark.clone().unwrap_or_default(),
            ]);
        }
        table
    })?;
    Ok(Exit::DONE)
}

/// Shows what a check has found: exit code 9 if something failed.
pub(crate) fn verified(context: &Context, found: &Verification, what: &str) -> Result<Exit, CliError> {
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(found)?;
    } else if found.ok {
        printer.line(format_args!("{what}: {} checked, all sound", found.checked))?;
    }
    if found.ok {
        return Ok(Exit::DONE);
    }
    let nearest = found.failures.iter().map(|failure| {
        let place = if failure.file.is_empty() { String::new() } else { format!("{}: ", failure.file) };
        format!("{place}{}: {}", failure.document, failure.reason)
    });
    let failed = super::table::count(found.failures.len() as u64, "failure");
    let message = format!("{what}: {failed} among {} checked", found.checked);
    Err(CliError::Unverified { message, nearest: nearest.collect() })
}
