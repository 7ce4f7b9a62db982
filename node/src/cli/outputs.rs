//! `souk job outputs` and `souk job receipts`: what a job leaves behind.

use std::path::PathBuf;

use clap::Args;
use souk_protocol::{Bytes, MAX_RECEIPT_FILE};

use super::{
    Context,
    error::{CliError, Exit},
    job::{receipt_table, segment},
    session::Session,
    table::Table,
};
use crate::{
    home,
    outputs::{self as home_outputs, OutputError, Written},
    view::{OutputKind, ReceiptSummary, TaskOutputs},
};

#[derive(Debug, Clone, Args)]
pub(crate) struct OutputsArgs {
    /// Id of the job, or its first characters.
    job: String,
    /// Only of this task.
    #[arg(long)]
    index: Option<u32>,
    /// Write them where the job file says.
    #[arg(long, conflicts_with = "into")]
    write: bool,
    /// Write them into this folder, each task into a folder of its index.
    #[arg(long, value_name = "DIR")]
    into: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ReceiptsArgs {
    /// Id of the job, or its first characters.
    job: String,
    /// Write the receipts both sides signed into this folder, as LEASE.receipt; souk attest verify checks them.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

pub(crate) async fn run(context: &Context, args: &OutputsArgs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    let mut outputs: Vec<TaskOutputs> =
        session.client.get(&format!("/v1/jobs/{}/outputs", segment(&args.job)?)).await?;
    if let Some(index) = args.index {
        outputs.retain(|outputs| outputs.index == index);
        if outputs.is_empty() {
            return Err(
                CliError::not_found(format!("task {index} has no outputs")).hint("souk job get shows its state")
            );
        }
    }
    if args.write || args.into.is_some() {
        let written = write(&session, &outputs, args.into.as_deref()).await?;
        told(context, &written)?;
        return Ok(Exit::DONE);
    }
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&outputs)?;
        return Ok(Exit::DONE);
    }
    let mut table = Table::new(&["TASK", "PATH", "KIND", ">SIZE", "+BLAKE3"]);
    for task in &outputs {
        for entry in &task.entries {
            let (kind, size, hash) = match &entry.what {
                OutputKind::File { hash, len, .. } => ("file".to_owned(), Bytes(len.0).short(), hash.to_string()),
                OutputKind::Folder => ("folder".to_owned(), String::new(), String::new()),
                OutputKind::Link { target } => (format!("link to {target}"), String::new(), String::new()),
                OutputKind::Skipped { reason } => (format!("left out: {reason}"), String::new(), String::new()),
            };
            if printer.is_name() {
                printer.line(super::table::clean(&entry.path))?;
            }
            table.row([task.index.to_string(), entry.path.clone(), kind, size, hash]);
        }
    }
    if outputs.is_empty() {
        printer.talk("no outputs yet");
    } else if !printer.is_name() {
        printer.table(&table)?;
    }
    Ok(Exit::DONE)
}

/// Writes outputs of all these tasks.
pub(crate) async fn write(
    session: &Session,
    outputs: &[TaskOutputs],
    into: Option<&std::path::Path>,
) -> Result<Written, CliError> {
    let mut all = Written::default();
    for task in outputs {
        let written = home_outputs::write(&session.client, task, into).await.map_err(output_error)?;
        all.files = all.files.saturating_add(written.files);
        all.bytes = all.bytes.saturating_add(written.bytes);
        all.skipped.extend(written.skipped.into_iter().map(|skipped| format!("task {}: {skipped}", task.index)));
        for folder in written.folders {
            if !all.folders.contains(&folder) {
                all.folders.push(folder);
            }
        }
    }
    Ok(all)
}

fn output_error(error: OutputError) -> CliError {
    match error {
        OutputError::Client(error) => error.into(),
        error @ OutputError::Io { .. } => {
            CliError::usage(error).hint("souk job outputs JOB --into DIR writes them elsewhere")
        }
        error @ OutputError::Manifest(_) => CliError::internal(error),
    }
}

/// Says what was written and what was not.
pub(crate) fn told(context: &Context, written: &Written) -> Result<(), CliError> {
    let printer = &context.printer;
    if printer.is_structured() {
        return printer.value(written);
    }
    say(context, written);
    Ok(())
}

/// The same as talk.
pub(crate) fn say(context: &Context, written: &Written) {
    for skipped in &written.skipped {
        context.printer.warn(format_args!("left out: {}", super::table::clean(skipped)));
    }
    let files = super::table::count(written.files, "file");
    let place = match written.folders.as_slice() {
        [] => return context.printer.talk("nothing to write: the job names no folder at home"),
        [only] => only.display().to_string(),
        [first, .., last] => format!("{} .. {}", first.display(), last.display()),
    };
    context.printer.talk(format_args!("outputs  {files}, {} in {place}", Bytes(written.bytes).short()));
}

pub(crate) async fn receipts(context: &Context, args: &ReceiptsArgs) -> Result<Exit, CliError> {
    let session = Session::daemon(context).await?;
    list_receipts(context, &session, &args.job, args.export.as_deref()).await
}

/// Lists a job's receipts and exports the complete ones.
pub(crate) async fn list_receipts(
    context: &Context,
    session: &Session,
    job: &str,
    export: Option<&std::path::Path>,
) -> Result<Exit, CliError> {
    let receipts: Vec<ReceiptSummary> = session.client.get(&format!("/v1/jobs/{}/receipts", segment(job)?)).await?;
    if let Some(folder) = export {
        std::fs::create_dir_all(folder)
            .map_err(|error| CliError::usage(format!("cannot make {}: {error}", folder.display())))?;
        for receipt in &receipts {
            if !receipt.complete {
                context.printer.warn(format_args!(
                    "lease {} has no receipt that both sides signed yet and is not exported",
                    receipt.lease.short()
                ));
                continue;
            }
            let bytes = session.client.bytes(&format!("/v1/receipts/{}", receipt.lease), MAX_RECEIPT_FILE + 8).await?;
            let path = folder.join(format!("{}.receipt", receipt.lease));
            home::replace(&path, &bytes)?;
            context.printer.talk(format_args!("wrote {}", path.display()));
        }
    }
    context.printer.list(&receipts, "no receipts yet", |receipt| receipt.lease.to_string(), receipt_table)?;
    Ok(Exit::DONE)
}
