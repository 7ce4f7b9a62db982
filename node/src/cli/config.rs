//! `souk config`: the node file, what is in force and where it comes from.

use clap::{Args, Subcommand};
use serde::Serialize;
use souk_protocol::job_file::Problem;

use super::{
    Context,
    error::{CliError, Exit},
    table::Table,
};
use crate::{
    config::{Config, Missing, Origin, Setting},
    home,
};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every field that is given and every default in force.
    Show(ShowArgs),
    /// Check the node file; all errors at once.
    Validate,
    /// Print the paths of the node file, the network file and the data folder.
    Path,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    /// Say where each value comes from: file with line, env, or default.
    #[arg(long)]
    origin: bool,
}

pub(crate) fn run(context: &Context, command: &ConfigCommand) -> Result<Exit, CliError> {
    match command {
        ConfigCommand::Show(args) => show(context, args),
        ConfigCommand::Validate => validate(context),
        ConfigCommand::Path => path(context),
    }
}

#[derive(Serialize)]
struct Shown<'a> {
    path: &'a str,
    value: &'a str,
    origin: String,
}

fn origin(context: &Context, setting: &Setting) -> String {
    match setting.origin {
        Origin::File(line) => format!("{}:{line}", context.home.config_file().display()),
        Origin::Env => format!("env SOUK_{}", setting.path.replace('.', "_").to_ascii_uppercase()),
        Origin::Default => "default".to_owned(),
    }
}

fn show(context: &Context, args: &ShowArgs) -> Result<Exit, CliError> {
    let config = super::start::config(context)?;
    let printer = &context.printer;
    if printer.is_structured() {
        let shown: Vec<Shown<'_>> = config
            .settings
            .iter()
            .map(|setting| Shown { path: &setting.path, value: &setting.value, origin: origin(context, setting) })
            .collect();
        printer.value(&shown)?;
        return Ok(Exit::DONE);
    }
    if args.origin {
        let mut table = Table::new(&["FIELD", "VALUE", "ORIGIN"]);
        for setting in &config.settings {
            table.row([setting.path.clone(), setting.value.clone(), origin(context, setting)]);
        }
        printer.table(&table)?;
    } else {
        for setting in &config.settings {
            printer.line(format_args!("{} = {}", setting.path, setting.value))?;
        }
    }
    Ok(Exit::DONE)
}

#[derive(Serialize)]
struct Judged {
    ok: bool,
    file: std::path::PathBuf,
    errors: Vec<Problem>,
    not_available: Vec<Missing>,
}

fn validate(context: &Context) -> Result<Exit, CliError> {
    let file = context.home.config_file();
    let text = home::read_text(&file, home::MAX_TEXT)?;
    let printer = &context.printer;
    let (errors, not_available) = match Config::parse(&text, context.home.config_dir()) {
        Ok(config) => (Vec::new(), config.missing),
        Err(problems) => (problems, Vec::new()),
    };
    let judged = Judged { ok: errors.is_empty(), file, errors, not_available };
    if printer.is_structured() {
        printer.value(&judged)?;
    }
    let name = judged.file.display().to_string();
    for missing in &judged.not_available {
        let line = missing.line.map_or_else(String::new, |line| format!(":{line}"));
        printer.warn(format_args!("{name}{line}: {missing}"));
    }
    if !judged.ok {
        return Err(CliError::Invalid { file: name, problems: judged.errors });
    }
    if !printer.is_structured() {
        printer.line(format_args!("{name} is valid"))?;
    }
    Ok(Exit::DONE)
}

#[derive(Serialize)]
struct Paths {
    config: std::path::PathBuf,
    network: std::path::PathBuf,
    data: std::path::PathBuf,
}

fn path(context: &Context) -> Result<Exit, CliError> {
    let home = &context.home;
    // A broken node file must not hide where it is.
    let network = super::start::config(context).map_or_else(|_| home.network_file(), |config| config.network_file);
    let paths = Paths { config: home.config_file(), network, data: home.data_dir().to_owned() };
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&paths)?;
    } else if printer.is_name() {
        printer.line(paths.config.display())?;
    } else {
        printer.line(format_args!("config   {}", paths.config.display()))?;
        printer.line(format_args!("network  {}", paths.network.display()))?;
        printer.line(format_args!("data     {}", paths.data.display()))?;
    }
    Ok(Exit::DONE)
}
