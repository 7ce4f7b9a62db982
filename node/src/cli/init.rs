//! `souk init`: a config file and a key. What is there already stays as it is.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
};

use clap::{Args, ValueEnum};
use serde::Serialize;
use souk_protocol::{Bytes, NodeId};

use super::{
    Context,
    error::{CliError, Exit},
};
use crate::{
    config::{Config, Listen, Machine, Profile, Role},
    home,
    identity::Identity,
};

/// Port of the network without `--port`.
const PORT: u16 = 4477;
/// Share of memory and of free disk that a new file keeps for the owner: an eighth.
const KEPT: u64 = 8;

#[derive(Debug, Clone, Args)]
pub(crate) struct InitArgs {
    /// What the node does on the market.
    #[arg(long, value_enum, default_value_t = RoleArg::Both)]
    role: RoleArg,
    /// Where it stands: behind a home router, on the internet, or in a private network (or on one machine), where
    /// private and loopback addresses are used.
    #[arg(long, value_enum, default_value_t = ProfileArg::Home)]
    profile: ProfileArg,
    /// Port of the network, QUIC and TCP; the API gets the next one [default: 4477, API 4478].
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=65_534))]
    port: Option<u16>,
    /// Name of the node, for people [default: the machine's name].
    #[arg(long)]
    name: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleArg {
    Renter,
    Provider,
    Both,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileArg {
    Home,
    Server,
    Lan,
}

#[derive(Serialize)]
struct Made {
    node: NodeId,
    created: Vec<PathBuf>,
    kept: Vec<PathBuf>,
    config: PathBuf,
    data: PathBuf,
    listen: Vec<String>,
    api: String,
}

pub(crate) fn run(context: &Context, args: &InitArgs) -> Result<Exit, CliError> {
    let home = &context.home;
    home.create()?;
    let machine = Machine::measure(home.data_dir());
    let text = config_text(args, machine);
    // What is written must be readable: a mistake in the template is found here, not at the next start.
    Config::parse(&text, home.config_dir())
        .map_err(|problems| CliError::Invalid { file: home.config_file().display().to_string(), problems })?;
    let mut created = Vec::new();
    let mut kept = Vec::new();
    let mut note = |is_new: bool, path: PathBuf| if is_new { created.push(path) } else { kept.push(path) };
    note(home::write_new(&home.config_file(), text.as_bytes())?, home.config_file());
    let (identity, is_new) = Identity::load_or_create(&home.key_file())?;
    note(is_new, home.key_file());
    let config = super::start::config(context)?;
    let made = Made {
        node: identity.id(),
        created,
        kept,
        config: home.config_file(),
        data: home.data_dir().to_owned(),
        listen: config.listen.iter().map(ToString::to_string).collect(),
        api: config.api.to_string(),
    };
    show(context, args, &made)?;
    Ok(Exit::DONE)
}

fn show(context: &Context, args: &InitArgs, made: &Made) -> Result<(), CliError> {
    let printer = &context.printer;
    if printer.is_structured() {
        return printer.value(made);
    }
    if printer.is_name() {
        return printer.line(made.node);
    }
    for path in &made.created {
        printer.line(format_args!("created  {}", path.display()))?;
    }
    for path in &made.kept {
        printer.line(format_args!("kept     {}", path.display()))?;
    }
    printer.line(format_args!("node     {}", made.node))?;
    printer.line(format_args!("listen   {}", made.listen.join(", ")))?;
    printer.line(format_args!("api      {}", made.api))?;
    if args.port.is_some() && made.kept.contains(&made.config) {
        printer.warn(format_args!("--port changes nothing: {} was there already", made.config.display()));
    }
    let flag = context.home.flag();
    printer.talk(format_args!(
        "next     souk network new{flag} --name lab, or souk network join{flag} FILE; then souk up{flag}"
    ));
    Ok(())
}

/// The name of this machine, if it can be the name of a node.
fn machine_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.')).take(63).collect();
    if name.is_empty() { "souk".to_owned() } else { name }
}

/// Whole gigabytes, so that a file for people has no odd numbers.
fn gigabytes(bytes: Bytes) -> String {
    const GB: u64 = 1_000_000_000;
    Bytes((bytes.0 / KEPT / GB).max(1).saturating_mul(GB)).to_string()
}

fn config_text(args: &InitArgs, machine: Machine) -> String {
    let (role, profile) = (args.role.role(), args.profile.profile());
    let port = args.port.unwrap_or(PORT);
    let listen = Listen::both(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port).map(|address| format!("\"{address}\""));
    let name = args.name.clone().unwrap_or_else(machine_name);
    let (memory, disk) = (gigabytes(machine.memory), gigabytes(machine.disk));
    let api = port.saturating_add(1);
    let (off, offer_note) = match role {
        Role::Renter => {
            ("# ", "# With this section jobs of this node run here first, free, and go to the market when it is full.")
        }
        Role::Provider => ("", "# What is sold."),
        Role::Both => {
            ("", "# What is sold. Jobs of this node run here first, free, and go to the market when it is full.")
        }
    };
    format!(
        r#"# The settings of this node. Unknown fields are errors; souk config validate checks the file.
version = 1

[node]
name    = {name:?}
role    = "{role}"                   # renter | provider | both
profile = "{profile}"                # home | server | lan (private and loopback addresses are used)

[network]
file   = "network.toml"              # written by souk network new and souk network join
listen = [{listen}]
# external = ["/dns4/node.example.net/tcp/{port}"]   # where others reach this node, if not where it listens

{offer_note}
{off}[offer]                              # all of the machine but the reserve
{off}reserve = {{ memory = "{memory}", disk = "{disk}" }}      # and cpu = "1": kept for the owner
# region = "de"                      # ISO 3166 code of the place

[pricing]                            # an hour, per core and per 10^9 bytes of memory
floor = {{ cpu = "0.005 CR/h", memory_gb = "0.001 CR/h" }}    # never less
ask   = {{ cpu = "0.008 CR/h", memory_gb = "0.0015 CR/h" }}   # work at this price is accepted at once

[workloads]
max_duration = "12h"                 # longest run of one task
# deny = []                          # node ids never worked for

[api]
listen = "127.0.0.1:{api}"           # API and metrics, for this machine only; the token is in the data folder
"#,
        listen = listen.join(", "),
    )
}

impl RoleArg {
    fn role(self) -> Role {
        match self {
            Self::Renter => Role::Renter,
            Self::Provider => Role::Provider,
            Self::Both => Role::Both,
        }
    }
}

impl ProfileArg {
    fn profile(self) -> Profile {
        match self {
            Self::Home => Profile::Home,
            Self::Server => Profile::Server,
            Self::Lan => Profile::Lan,
        }
    }
}
