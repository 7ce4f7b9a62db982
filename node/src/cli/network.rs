//! `souk network`: the file that makes nodes one network.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, UdpSocket},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use souk_protocol::NetworkFile;

use super::{
    Context,
    error::{CliError, Exit},
    start,
};
use crate::{
    config::Config,
    home,
    identity::Identity,
    net::{self, InviteError},
    view::Network,
};

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Make a network with this node as bootstrap peer and governor, and write its file into this home.
    New(NewArgs),
    /// Join the network of a file, or of the node at an address, which gives its file.
    Join(JoinArgs),
    /// Show the network of this home.
    Show,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct NewArgs {
    /// Name: a-z, 0-9 and -, starting with a letter.
    #[arg(long)]
    name: String,
    /// Peers without a record may serve every tier (for demos and private networks).
    #[arg(long)]
    open: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JoinArgs {
    /// The network file that another node's `network new` has printed, or a node's address such as
    /// /ip4/192.0.2.7/udp/4477/quic-v1/p2p/12D3...; with the /p2p/ part no other node can answer.
    #[arg(value_name = "FILE|MULTIADDR")]
    source: String,
}

pub(crate) async fn run(context: &Context, command: NetworkCommand) -> Result<Exit, CliError> {
    match command {
        NetworkCommand::New(args) => new(context, args),
        NetworkCommand::Join(args) => join(context, &args).await,
        NetworkCommand::Show => show(context),
    }
}

fn new(context: &Context, args: NewArgs) -> Result<Exit, CliError> {
    let config = start::config(context)?;
    context.home.create()?;
    let (identity, _) = Identity::load_or_create(&context.home.key_file())?;
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).map_err(|error| CliError::internal(format!("no randomness: {error}")))?;
    let file = NetworkFile {
        name: args.name,
        nonce,
        open: args.open,
        bootstrap: bootstrap(&config, &net::peer_text(&identity.id())),
        keys: vec![format!("ed25519:{}", identity.id())],
        threshold: 1,
        params: souk_protocol::Params::default(),
    };
    let text = file.to_toml().map_err(CliError::internal)?;
    // The name is judged by the reader.
    let file = NetworkFile::parse(&text).map_err(CliError::usage)?;
    if config.listen.is_empty() {
        context.printer.warn("network.listen is empty, so nobody can join through this node");
    } else if file.bootstrap.is_empty() {
        return Err(hidden(&config));
    }
    write(context, &config, &file, &text)?;
    tell(context, &config, &file)
}

/// Where others reach this node: its external addresses, or those it listens on.
fn bootstrap(config: &Config, peer: &str) -> Vec<String> {
    if !config.external.is_empty() {
        return config.external.iter().map(|address| format!("{address}/p2p/{peer}")).collect();
    }
    let listen = config.listen.iter().filter(|listen| listen.port > 0);
    let dialled = listen.flat_map(|listen| {
        interfaces(listen.ip, config.is_lan()).into_iter().map(|ip| crate::config::Listen { ip, ..*listen })
    });
    dialled.map(|address| format!("{address}/p2p/{peer}")).collect()
}

/// A network that nobody could join: what this node listens on are addresses that its profile does not use.
fn hidden(config: &Config) -> CliError {
    let own: BTreeSet<IpAddr> = config.listen.iter().flat_map(|listen| interfaces(listen.ip, true)).collect();
    let own: Vec<String> = own.iter().map(ToString::to_string).collect();
    CliError::usage(format!(
        "nobody could join through this node: private addresses such as {} are used by node.profile = \"lan\" alone",
        own.join(", ")
    ))
    .hint(
        "for nodes on one machine or one LAN make each with souk init --profile lan (or set it in souk.toml); for others set \
         network.external to the address at which they reach this one",
    )
}

/// What can be dialled to reach a listener, as far as the profile uses it: "every interface" is no address. On a LAN other
/// homes of this machine come over loopback.
fn interfaces(listen: IpAddr, lan: bool) -> Vec<IpAddr> {
    let mut found = if listen.is_unspecified() { vec![own_address(listen)] } else { vec![listen] };
    if lan && listen.is_unspecified() {
        found.push(match listen {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    found.dedup();
    found.retain(|ip| net::is_usable(*ip, lan));
    found
}

/// The address of the interface that leads out of this machine; loopback if none does.
fn own_address(family: IpAddr) -> IpAddr {
    // A connected UDP socket only looks up the route: nothing is sent.
    let (any, out): (IpAddr, IpAddr) = match family {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        IpAddr::V6(_) => {
            (std::net::Ipv6Addr::UNSPECIFIED.into(), std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into())
        }
    };
    let found = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((out, 9))?;
        socket.local_addr()
    });
    match (found, family) {
        (Ok(address), _) => address.ip(),
        (Err(_), IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
        (Err(_), IpAddr::V6(_)) => std::net::Ipv6Addr::LOCALHOST.into(),
    }
}

async fn join(context: &Context, args: &JoinArgs) -> Result<Exit, CliError> {
    let config = start::config(context)?;
    // No path of a file that is worth a name starts like an address.
    let by_address = ["/ip4/", "/ip6/", "/dns/", "/dns4/", "/dns6/"].iter().any(|head| args.source.starts_with(head));
    let text = if by_address {
        fetch(context, &args.source, config.is_lan()).await?
    } else {
        home::read_text(Path::new(&args.source), home::MAX_TEXT)
            .map_err(|error| if error.is_missing() { CliError::not_found(error) } else { error.into() })?
    };
    let file = NetworkFile::parse(&text).map_err(|error| CliError::usage(format!("{}: {error}", args.source)))?;
    context.home.create()?;
    write(context, &config, &file, &text)?;
    tell(context, &config, &file)
}

/// The network file of the node at an address.
async fn fetch(context: &Context, address: &str, lan: bool) -> Result<String, CliError> {
    let (peer, bytes) = net::fetch_network(address, lan).await.map_err(|error| match error {
        InviteError::Address { .. } => {
            let hint = if lan { "" } else { "; private addresses need profile = \"lan\" in souk.toml" };
            CliError::usage(error).hint(format!("souk status on that node shows its addresses{hint}"))
        }
        InviteError::Unreachable { .. } => {
            CliError::unreachable(error).hint("is it up, and can it be reached from here?")
        }
        InviteError::Refused { .. } => CliError::unreachable(error).hint("join by a file instead"),
        InviteError::Setup(_) => CliError::internal(error),
    })?;
    if bytes.len() as u64 > home::MAX_TEXT {
        return Err(CliError::usage(format!(
            "{address}: a network file of {} bytes, at most {} are read",
            bytes.len(),
            home::MAX_TEXT
        )));
    }
    context.printer.talk(format_args!("node {peer} answers"));
    if !address.contains("/p2p/") {
        context
            .printer
            .warn("the address names no /p2p/ key, so anybody there could have answered: compare the id below");
    }
    String::from_utf8(bytes).map_err(|_| CliError::usage(format!("{address}: its network file is no text")))
}

/// Writes the file where the node file says. The same network again is renewed; another one is never overwritten: its
/// debts and leases would be lost from sight.
fn write(context: &Context, config: &Config, file: &NetworkFile, text: &str) -> Result<(), CliError> {
    let path: &PathBuf = &config.network_file;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .map_err(|error| CliError::internal(format!("cannot make {}: {error}", folder.display())))?;
    }
    if home::write_new(path, text.as_bytes())? {
        return Ok(());
    }
    let there = home::read_text(path, home::MAX_TEXT)?;
    match NetworkFile::parse(&there) {
        Ok(old) if old.id() == file.id() => Ok(home::replace(path, text.as_bytes())?),
        Ok(old) => {
            let message = format!("this home belongs to the network {:?} already ({})", old.name, path.display());
            Err(CliError::usage(message).hint("use another home with --home, or move that file away"))
        }
        Err(error) => {
            let message = format!("{} is there and no network file: {error}", path.display());
            Err(CliError::usage(message)
                .hint(format!("move it away; souk config path{} shows where it is", context.home.flag())))
        }
    }
}

fn tell(context: &Context, config: &Config, file: &NetworkFile) -> Result<Exit, CliError> {
    let printer = &context.printer;
    let view = Network::from(file);
    if printer.is_structured() {
        printer.value(&view)?;
    } else if printer.is_name() {
        printer.line(view.id)?;
    } else {
        printer.line(format_args!("network    {} ({})", view.name, view.id))?;
        printer.line(format_args!("file       {}", config.network_file.display()))?;
        for address in &view.bootstrap {
            printer.line(format_args!("bootstrap  {address}"))?;
        }
        let flag = context.home.flag();
        printer.talk(format_args!(
            "next       souk up{flag}; give the file to others, who join with souk network join FILE"
        ));
    }
    if !config.is_lan() && view.bootstrap.iter().any(|address| is_private(address)) {
        printer.warn("a bootstrap address is private: nodes need profile = \"lan\" in souk.toml to use it");
    }
    Ok(Exit::DONE)
}

/// Whether an address is one of a private network or of this machine.
fn is_private(address: &str) -> bool {
    let ip = address.split('/').nth(2).and_then(|text| text.parse::<IpAddr>().ok());
    match ip {
        Some(IpAddr::V4(ip)) => ip.is_private() || ip.is_loopback() || ip.is_link_local(),
        Some(IpAddr::V6(ip)) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        None => false,
    }
}

fn show(context: &Context) -> Result<Exit, CliError> {
    let config = start::config(context)?;
    let view = Network::from(&start::network(context, &config)?);
    let printer = &context.printer;
    if printer.is_structured() {
        printer.value(&view)?;
    } else if printer.is_name() {
        printer.line(view.id)?;
    } else {
        printer.line(format_args!("name        {}", view.name))?;
        printer.line(format_args!("id          {}", view.id))?;
        printer.line(format_args!("open        {}", view.open))?;
        for address in &view.bootstrap {
            printer.line(format_args!("bootstrap   {address}"))?;
        }
        printer.line(format_args!("governance  {} of {}", view.threshold, view.keys.join(", ")))?;
        for (name, value) in &view.params {
            printer.line(format_args!("{name:<18}{value}"))?;
        }
    }
    Ok(Exit::DONE)
}
