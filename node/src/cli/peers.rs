//! `souk peers`: who is there, and what this node thinks of them.

use clap::{Args, Subcommand};

use super::{
    Context,
    error::{CliError, Exit},
    session::{Needs, Session},
    table::{Table, or_dash},
};
use crate::view::{Peer, Ping};

/// Most round trips of one `souk ping`.
const MAX_PINGS: u32 = 1_000;

#[derive(Debug, Clone, Args)]
pub(crate) struct PeersArgs {
    #[command(subcommand)]
    command: Option<PeersCommand>,
}

#[derive(Debug, Clone, Subcommand)]
enum PeersCommand {
    /// Explain one peer: connections, reliability, balance.
    Show {
        /// Its id, or the first characters of it.
        peer: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct PingArgs {
    /// Its id, or the first characters of it.
    peer: String,
    /// How many round trips, one after the other.
    #[arg(short, long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_PINGS)))]
    count: u32,
}

pub(crate) async fn run(context: &Context, args: PeersArgs) -> Result<Exit, CliError> {
    let session = Session::open(context, Needs::AnyNode).await?;
    let done = match args.command {
        None => list(context, &session).await,
        Some(PeersCommand::Show { peer }) => show(context, &session, &peer).await,
    };
    session.close().await;
    done
}

async fn list(context: &Context, session: &Session) -> Result<Exit, CliError> {
    let peers: Vec<Peer> = session.client.get("/v1/peers").await?;
    context.printer.list(
        &peers,
        "no peers",
        |peer| peer.peer.to_string(),
        |peers| {
            let mut table =
                Table::new(&["PEER", "NAME", "CONNECTED", ">RTT", "RELIABILITY", ">BALANCE", "+AGENT", "+ADDRESSES"]);
            for peer in peers {
                table.row([
                    peer.peer.short(),
                    or_dash(peer.name.clone()),
                    if peer.banned { "banned".to_owned() } else { yes(peer.connected).to_owned() },
                    peer.rtt_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms}ms")),
                    or_dash(peer.reliability.clone()),
                    peer.balance.short(),
                    peer.agent.clone(),
                    peer.addresses.join(" "),
                ]);
            }
            table
        },
    )?;
    Ok(Exit::DONE)
}

const fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

async fn show(context: &Context, session: &Session, id: &str) -> Result<Exit, CliError> {
    let peer: Peer = session.client.get(&format!("/v1/peers/{}", super::job::segment(id)?)).await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&peer)?;
        return Ok(Exit::DONE);
    }
    if printer.is_name() {
        printer.line(peer.peer)?;
        return Ok(Exit::DONE);
    }
    printer.line(format_args!("peer         {}", peer.peer))?;
    printer.line(format_args!("name         {}", or_dash(peer.name)))?;
    printer.line(format_args!("connected    {}", yes(peer.connected)))?;
    for connection in &peer.connections {
        printer.line(format_args!("connection   {connection}"))?;
    }
    for address in &peer.addresses {
        printer.line(format_args!("address      {address}"))?;
    }
    let ms = |ms: Option<u64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms}ms"));
    printer.line(format_args!("round trip   {} (95 % within {})", ms(peer.rtt_ms), ms(peer.rtt_p95_ms)))?;
    printer.line(format_args!("software     {}", super::table::clean(&peer.agent)))?;
    printer.line(format_args!("reliability  {}", or_dash(peer.reliability)))?;
    printer.line(format_args!("balance      {}", peer.balance))?;
    if let Some(limit) = peer.limit {
        printer.line(format_args!("trusted for  {limit}"))?;
    }
    if peer.strikes > 0 || peer.banned {
        printer.line(format_args!("strikes      {}{}", peer.strikes, if peer.banned { ", shut out" } else { "" }))?;
    }
    for reason in &peer.because {
        printer.line(format_args!("because      {}", super::job::reason(reason)))?;
    }
    Ok(Exit::DONE)
}

/// `souk ping`: round trips over the connection that trade uses, encryption and this node's own queues included.
pub(crate) async fn ping(context: &Context, args: &PingArgs) -> Result<Exit, CliError> {
    let session = Session::open(context, Needs::AnyNode).await?;
    let done = pings(context, &session, args).await;
    session.close().await;
    done
}

async fn pings(context: &Context, session: &Session, args: &PingArgs) -> Result<Exit, CliError> {
    let path = format!("/v1/peers/{}/ping", super::job::segment(&args.peer)?);
    let printer = &context.printer;
    let mut found = Vec::new();
    for _ in 0..args.count {
        let ping: Ping = session.client.get(&path).await?;
        if !printer.is_structured() && !printer.is_name() {
            printer.line(format_args!("{}  {} ms", ping.peer.short(), millis(ping.micros)))?;
        }
        found.push(ping);
    }
    if printer.is_structured() {
        printer.value(&found)?;
        return Ok(Exit::DONE);
    }
    let mut sorted: Vec<u64> = found.iter().map(|ping| ping.micros).collect();
    sorted.sort_unstable();
    if let (Some(first), Some(middle), Some(last)) = (sorted.first(), sorted.get(sorted.len() / 2), sorted.last()) {
        let (first, middle, last) = (millis(*first), millis(*middle), millis(*last));
        printer.line(format_args!("least {first} ms, median {middle} ms, most {last} ms"))?;
    }
    Ok(Exit::DONE)
}

/// Microseconds as milliseconds with three places.
fn millis(micros: u64) -> String {
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}
