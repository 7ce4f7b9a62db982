//! `souk key show`: who this node is.

use clap::Subcommand;
use serde::Serialize;
use souk_protocol::NodeId;

use super::{
    Context,
    error::{CliError, Exit},
};
use crate::{identity::Identity, net};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum KeyCommand {
    /// Show the public key, in the two forms in use. The secret is never shown.
    Show,
}

#[derive(Serialize)]
struct Shown {
    node: NodeId,
    peer: String,
    file: std::path::PathBuf,
}

pub(crate) fn run(context: &Context, command: &KeyCommand) -> Result<Exit, CliError> {
    let KeyCommand::Show = command;
    let file = context.home.key_file();
    let identity = Identity::load(&file)?;
    let shown = Shown { node: identity.id(), peer: net::peer_text(&identity.id()), file };
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&shown)?;
    } else if printer.is_name() {
        printer.line(shown.node)?;
    } else {
        printer.line(format_args!("node  {}", shown.node))?;
        printer.line(format_args!("peer  {}", shown.peer))?;
        printer.line(format_args!("file  {}", shown.file.display()))?;
    }
    Ok(Exit::DONE)
}
