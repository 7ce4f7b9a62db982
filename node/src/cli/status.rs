//! `souk status`.

use super::{
    Context,
    error::{CliError, Exit},
    session::Session,
    table::{ago, count},
};
use crate::view::Status;

pub(crate) async fn run(context: &Context) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let status: Status = session.client.get("/v1/status").await?;
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&status)?;
        return Ok(Exit::DONE);
    }
    if printer.is_name() {
        printer.line(status.node)?;
        return Ok(Exit::DONE);
    }
    printer.line(format_args!(
        "node       {} ({}), up {}, pid {}",
        status.node,
        status.name,
        ago(status.started),
        status.pid
    ))?;
    printer.line(format_args!("network    {} ({})", status.network, status.network_id.short()))?;
    printer.line(format_args!("reachable  {}", status.reachable))?;
    for address in &status.listen {
        printer.line(format_args!("listen     {address}"))?;
    }
    printer.line(format_args!(
        "peers      {}, {} known",
        count(status.peers, "peer"),
        count(status.offers, "offer")
    ))?;
    printer.line(format_args!("roles      {}", status.roles.join(", ")))?;
    printer.line(format_args!("leases     {} ({} provided)", status.leases, status.leases_provided))?;
    printer.line(format_args!("jobs       {}", status.jobs))?;
    if let Some(used) = &status.used {
        printer.line(format_args!("in use     {used}"))?;
    }
    printer.line(format_args!("balance    {}", status.balance.short()))?;
    for warning in &status.warnings {
        printer.line(format_args!("warning    {warning}"))?;
    }
    Ok(Exit::DONE)
}
