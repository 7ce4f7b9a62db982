//! The node file, `souk.toml`: the owner's settings, parsed whole and judged whole.
//!
//! A file is valid or it has errors, all of which are found at once, each with its field, line, value and remedy.
//! What a valid file asks for that this version can't do yet is listed as [`Missing`]: `souk config validate` warns of
//! it, and a node refuses to start where ignoring it would harm its owner. Nothing is ever ignored in silence.

mod availability;
mod listen;
mod missing;
mod policy;
mod pricing;
mod tree;

#[cfg(test)]
mod tests;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use souk_matcher::price::Pricing;
use souk_protocol::{BitsPerSecond, Bytes, MilliCpu, Millis, NodeId, Ppm, PriceList, Runtime, job_file::Problem};

use self::tree::Reader;
pub use self::{
    availability::Availability,
    listen::Listen,
    missing::Missing,
    policy::{Machine, policy},
    tree::{Origin, Setting},
};

/// Version of the file that this souk reads.
const VERSION: u32 = 1;
/// Most addresses to listen on, or to tell others.
const MAX_ADDRESSES: usize = 16;
/// Most peers on the deny list.
const MAX_DENIED: usize = 1_024;
/// Most patterns of images refused.
const MAX_PATTERNS: usize = 256;
/// Longest attempt that an owner can allow: thirty days.
const LONGEST: Millis = Millis::from_hours(30 * 24);
/// Fields that the environment may set: those that differ between two machines with one file.
const FROM_ENV: &[&str] = &["node.name", "node.role", "network.file", "offer.region", "api.listen"];

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant),+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word people write.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.word())
            }
        }
    };
}

choice! {
    /// What a node does on the market.
    Role {
        /// Sells only.
        Provider = "provider",
        /// Buys only.
        Renter = "renter",
        /// Both.
        Both = "both",
    }
}

impl Role {
    /// Whether the node sells.
    #[must_use]
    pub const fn sells(self) -> bool {
        matches!(self, Self::Provider | Self::Both)
    }

    /// Whether the node buys.
    #[must_use]
    pub const fn buys(self) -> bool {
        matches!(self, Self::Renter | Self::Both)
    }

    /// As a list of words.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let word = |is: bool, word: &str| is.then(|| word.to_owned());
        [word(self.buys(), "renter"), word(self.sells(), "provider")].into_iter().flatten().collect()
    }
}

choice! {
    /// Where a node stands.
    Profile {
        /// Behind a home router: public addresses only.
        Home = "home",
        /// On the internet: public addresses only.
        Server = "server",
        /// In a private network or on one machine: private and loopback addresses are used and told to others.
        Lan = "lan",
    }
}

/// The owner's settings, checked.
#[derive(Debug, Clone)]
pub struct Config {
    /// Name of the node, for people.
    pub name: String,
    /// What it does.
    pub role: Role,
    /// Where it stands.
    pub profile: Profile,
    /// The network file.
    pub network_file: PathBuf,
    /// Where it listens.
    pub listen: Vec<Listen>,
    /// Addresses under which others reach it, where they differ.
    pub external: Vec<String>,
    /// Upload limit.
    pub max_up: Option<BitsPerSecond>,
    /// Kept for the owner.
    pub reserve: Reserve,
    /// ISO code of the place; empty if the owner does not say.
    pub region: String,
    /// Never less than this.
    pub floor: PriceList,
    /// Accepted at once.
    pub ask: PriceList,
    /// How both move.
    pub pricing: Pricing,
    /// When work may run.
    pub availability: Availability,
    /// What strangers may run.
    pub runtimes: Vec<Runtime>,
    /// Longest attempt accepted.
    pub max_duration: Millis,
    /// Renters never worked for.
    pub deny: Vec<NodeId>,
    /// Address of the API; loopback.
    pub api: SocketAddr,
    /// What the file asks for and this version can't do yet.
    pub missing: Vec<Missing>,
    /// Every field with its value in force.
    pub settings: Vec<Setting>,
}

/// What is kept for the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserve {
    /// Cores.
    pub cpu: MilliCpu,
    /// Memory.
    pub memory: Bytes,
    /// Disk.
    pub disk: Bytes,
}

impl Config {
    /// Whether private and loopback addresses are used.
    #[must_use]
    pub fn is_lan(&self) -> bool {
        self.profile == Profile::Lan
    }

    /// The settings of a node without a file.
    ///
    /// # Errors
    /// If the environment sets something invalid.
    pub fn defaults(folder: &Path) -> Result<Self, Vec<Problem>> {
        Self::parse("version = 1\n", folder)
    }

    /// Judges the text of a node file. Relative paths start at `folder`, that of the file.
    ///
    /// # Errors
    /// All errors of the file at once, in the order of its lines.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, Vec<Problem>> {
        Self::parse_with(text, folder, &|name| std::env::var(name).ok())
    }

    fn parse_with(text: &str, folder: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Problem>> {
        let mut reader = Reader::parse(text)?;
        reader.overlay(FROM_ENV, variable);
        let r = &mut reader;
        version(r);
        let name = name(r);
        let role = or_default(r, "node.role", Role::Both, |r, path| r.word(path, Role::ALL));
        let profile = or_default(r, "node.profile", Profile::Home, |r, path| r.word(path, Profile::ALL));
        let network_file = or_default(r, "network.file", "network.toml".to_owned(), Reader::text);
        let listen = listen::read(r, "network.listen");
        let external = listen::read_external(r, "network.external");
        let max_up = r.parse_field("network.max_up");
        let reserve = reserve(r);
        let region = region(r);
        let (floor, ask) = pricing::read(r);
        let runtimes = runtimes(r);
        let max_duration = max_duration(r);
        let deny = deny(r);
        let api = api(r);
        // Judged like the rest, and then reported: nothing that is not built is half read.
        missing::read_rest(r);
        let availability = availability::read(r);
        let pricing = pricing::moves(r, availability.calendar.zone());
        let missing = missing::list(r, role);
        let settings = reader.finish()?;
        Ok(Self {
            name,
            role,
            profile,
            network_file: folder.join(network_file),
            listen,
            external,
            max_up,
            reserve,
            region,
            floor,
            ask,
            pricing,
            availability,
            runtimes,
            max_duration,
            deny,
            api,
            missing,
            settings,
        })
    }
}

/// A field, or its default, which is noted for `config show`. A refused value stands in as the default: the error is
/// what counts.
fn or_default<T: std::fmt::Display + Clone>(
    r: &mut Reader,
    path: &str,
    default: T,
    read: impl FnOnce(&mut Reader, &str) -> Option<T>,
) -> T {
    let given = r.has(path);
    if let Some(value) = read(r, path) {
        return value;
    }
    if !given {
        r.note_default(path, format!("{:?}", default.to_string()));
    }
    default
}

fn version(r: &mut Reader) {
    match r.whole("version", 0..=u32::MAX) {
        Some(VERSION) => {}
        Some(_) => r.error("version", "this souk reads version 1", Some("update souk, or write version = 1")),
        None if r.has("version") => {}
        None => r.error("version", "the version of the file is missing", Some("write version = 1 on its first line")),
    }
}

fn name(r: &mut Reader) -> String {
    let default = "souk".to_owned();
    let name = or_default(r, "node.name", default.clone(), Reader::text);
    let is_plain = !name.is_empty() && name.len() <= 63 && name.trim() == name && !name.chars().any(char::is_control);
    if is_plain {
        return name;
    }
    r.error("node.name", "not a name", Some("1 to 63 bytes on one line, without spaces at its ends"));
    default
}

fn reserve(r: &mut Reader) -> Reserve {
    Reserve {
        cpu: or_zero(r, "offer.reserve.cpu"),
        memory: or_zero(r, "offer.reserve.memory"),
        disk: or_zero(r, "offer.reserve.disk"),
    }
}

/// A size above zero; absent means nothing.
fn or_zero<T>(r: &mut Reader, path: &str) -> T
where
    T: std::str::FromStr<Err = souk_protocol::GrammarError> + Default + Clone + std::fmt::Display,
{
    or_default(r, path, T::default(), Reader::parse_field)
}

fn region(r: &mut Reader) -> String {
    let Some(region) = r.text("offer.region") else {
        if !r.has("offer.region") {
            r.note_default("offer.region", "\"\"");
        }
        return String::new();
    };
    let is_code = (2..=16).contains(&region.len())
        && region.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && region.starts_with(|c: char| c.is_ascii_lowercase());
    if !is_code {
        r.error("offer.region", "not the code of a place", Some("lower-case ISO 3166, e.g. \"de\" or \"us-ca\""));
    }
    region
}

fn runtimes(r: &mut Reader) -> Vec<Runtime> {
    let path = "workloads.runtimes";
    let Some(words) = r.texts(path, Runtime::ALL.len()) else {
        if !r.has(path) {
            r.note_default(path, "[\"wasm\"]");
        }
        return vec![Runtime::Wasm];
    };
    let mut runtimes = Vec::new();
    for word in &words {
        match word.parse() {
            Ok(runtime) if !runtimes.contains(&runtime) => runtimes.push(runtime),
            Ok(_) => r.error(path, format!("{word:?} is given twice"), None),
            Err(error) => r.error(path, format!("{error}"), None),
        }
    }
    if words.is_empty() {
        r.error(path, "an empty list sells nothing", Some("for a node that does not sell write role = \"renter\""));
    }
    runtimes
}

fn max_duration(r: &mut Reader) -> Millis {
    let path = "workloads.max_duration";
    let longest = or_default(r, path, Millis::from_hours(12), Reader::parse_field);
    if longest.is_zero() || longest > LONGEST {
        r.error(path, format!("a duration above zero and up to {LONGEST} is expected"), None);
    }
    longest
}

fn deny(r: &mut Reader) -> Vec<NodeId> {
    let path = "workloads.deny";
    let words = r.texts(path, MAX_DENIED).unwrap_or_default();
    let mut denied = Vec::new();
    for word in words {
        match word.parse() {
            Ok(id) => denied.push(id),
            Err(error) => r.error(path, format!("{error}"), Some("souk peers lists them")),
        }
    }
    denied
}

fn api(r: &mut Reader) -> SocketAddr {
    let path = "api.listen";
    let default = SocketAddr::from(([127, 0, 0, 1], 4478));
    let Some(text) = r.text(path) else {
        if !r.has(path) {
            r.note_default(path, format!("\"{default}\""));
        }
        return default;
    };
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => address,
        Ok(_) => {
            let hint = "use 127.0.0.1 or [::1]; to reach it from elsewhere, tunnel: ssh -L 4478:127.0.0.1:4478 HOST";
            r.error(path, "the API is for this machine only", Some(hint));
            default
        }
        Err(_) => {
            r.error(path, "not an address with a port", Some("e.g. \"127.0.0.1:4478\""));
            default
        }
    }
}

/// A share, for fields that are only judged.
fn share(r: &mut Reader, path: &str) -> Option<Ppm> {
    r.parse_field(path)
}
