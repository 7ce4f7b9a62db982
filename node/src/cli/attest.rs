//! `souk attest`: receipts, shown and verified. Verifying needs the files alone: no node, no network.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use souk_attest::verify_receipt;

use super::{
    Context,
    error::{CliError, Exit},
    outputs::list_receipts,
    session::Session,
    wallet::verified,
};
use crate::{
    home,
    view::{Verification, VerifyFailure},
};

/// Largest receipt file with its magic.
const MAX_FILE: u64 = souk_protocol::MAX_RECEIPT_FILE as u64 + 8;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum AttestCommand {
    /// List the receipts of a job, or export them.
    Show(ShowArgs),
    /// Check exported receipts offline; exit code 9 with file and reason if one fails.
    Verify(VerifyArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// Id of the job, or its first characters.
    job: String,
    /// Write the receipts both sides signed into this folder, as LEASE.receipt.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    /// Receipt files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

pub(crate) async fn run(context: &Context, command: AttestCommand) -> Result<Exit, CliError> {
    match command {
        AttestCommand::Show(args) => {
            let session = Session::daemon(context).await?;
            list_receipts(context, &session, &args.job, args.export.as_deref()).await
        }
        AttestCommand::Verify(args) => verify(context, &args),
    }
}

fn verify(context: &Context, args: &VerifyArgs) -> Result<Exit, CliError> {
    let mut found = Verification { ok: true, checked: 0, failures: Vec::new() };
    for path in &args.files {
        let file = path.display().to_string();
        let bytes = match home::read_bytes(path, MAX_FILE) {
            Err(error) if error.is_missing() => return Err(CliError::not_found(error)),
            bytes => bytes?,
        };
        found.checked = found.checked.saturating_add(1);
        match verify_receipt(&bytes) {
            Ok(seen) => {
                let receipt = seen.receipt();
                context.printer.talk(format_args!(
                    "{file}: lease {} of {} with {}: {}, {}",
                    receipt.lease.short(),
                    receipt.renter.short(),
                    receipt.provider.short(),
                    super::table::count(receipt.billed.len() as u64, "attempt"),
                    receipt.total
                ));
            }
            Err(failure) => {
                found.ok = false;
                found.failures.push(VerifyFailure { file, document: failure.document, reason: failure.reason });
            }
        }
    }
    verified(context, &found, "receipts")
}
