//! `souk store verify`: is what this node wrote still what it wrote?

use clap::{Args, Subcommand};

use super::{
    Context,
    error::{CliError, Exit},
    wallet::verified,
};
use crate::{
    store::{self, IndexVerdict, LockError, Report, StoreError, VerifyOptions},
    view::{Verification, VerifyFailure},
};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check journal, sign-once table and index while no node runs; changes nothing. Exit code 9 on damage.
    Verify(VerifyArgs),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct VerifyArgs {
    /// Read every stored file, too, and compare its hash.
    #[arg(long)]
    blobs: bool,
}

pub(crate) async fn run(context: &Context, command: StoreCommand) -> Result<Exit, CliError> {
    let StoreCommand::Verify(args) = command;
    let folder = context.home.data_dir().to_owned();
    if !folder.exists() {
        return Err(CliError::not_found(format!("there is no store: {} does not exist", folder.display()))
            .hint(format!("souk init{} makes a home", context.home.flag())));
    }
    let options = VerifyOptions { blobs: args.blobs };
    let checked = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || store::verify(&folder, options)
    });
    let report = match checked.await.map_err(CliError::internal)? {
        Ok(report) => report,
        Err(StoreError::Lock(error @ LockError::Locked { .. })) => return Err(CliError::unreachable(error)),
        Err(error) => {
            let failure = VerifyFailure {
                file: folder.display().to_string(),
                document: "store".to_owned(),
                reason: error.to_string(),
            };
            return verified(context, &Verification { ok: false, checked: 0, failures: vec![failure] }, "store");
        }
    };
    if report.torn.is_some() {
        context.printer.talk("the journal ends in an unfinished write, which is harmless: the next start cuts it");
    }
    verified(context, &found(&report), "store")
}

fn found(report: &Report) -> Verification {
    let mut failures = Vec::new();
    let mut fail = |file: String, document: &str, reason: String| {
        failures.push(VerifyFailure { file, document: document.to_owned(), reason });
    };
    if let Some(damage) = &report.damage {
        fail("journal".to_owned(), "record", damage.to_string());
    }
    for (position, key) in &report.contradictions {
        fail(
            "journal".to_owned(),
            "signature",
            format!("{position:?} signs something else under a key used before: {key:?}"),
        );
    }
    if let IndexVerdict::Ahead { at } = &report.index {
        fail("db".to_owned(), "index", format!("it has seen record {at}, which the journal has not: records are lost"));
    }
    if let Some(blobs) = &report.blobs {
        for path in &blobs.bad {
            fail(path.display().to_string(), "blob", "its content is not what its name says".to_owned());
        }
    }
    let blobs = report.blobs.as_ref().map_or(0, |blobs| blobs.checked);
    Verification { ok: report.is_ok(), checked: report.records.saturating_add(blobs), failures }
}
