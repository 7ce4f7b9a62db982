//! Addresses that an owner writes, as multiaddresses.

use std::{fmt, net::IpAddr};

use super::{MAX_ADDRESSES, tree::Reader};

/// Port of the network where the file names none.
const DEFAULT_PORT: u16 = 4477;

/// An address to listen on: `/ip4/0.0.0.0/udp/4477/quic-v1` or `/ip4/0.0.0.0/tcp/4477`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The interface.
    pub ip: IpAddr,
    /// The port; 0 takes any free one.
    pub port: u16,
    /// QUIC over UDP, or TCP.
    pub quic: bool,
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.ip.is_ipv4() { "ip4" } else { "ip6" };
        let Self { ip, port, quic } = self;
        if *quic { write!(f, "/{family}/{ip}/udp/{port}/quic-v1") } else { write!(f, "/{family}/{ip}/tcp/{port}") }
    }
}

impl Listen {
    /// QUIC and TCP on one port of an interface.
    #[must_use]
    pub const fn both(ip: IpAddr, port: u16) -> [Self; 2] {
        [Self { ip, port, quic: true }, Self { ip, port, quic: false }]
    }

    fn parse(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
        let (family, ip, rest) = match parts.as_slice() {
            [family, ip, rest @ ..] => (*family, ip.parse::<IpAddr>().ok()?, rest),
            _ => return None,
        };
        if ip.is_ipv4() != (family == "ip4") || !matches!(family, "ip4" | "ip6") {
            return None;
        }
        match rest {
            ["udp", port, "quic-v1"] => Some(Self { ip, port: port.parse().ok()?, quic: true }),
            ["tcp", port] => Some(Self { ip, port: port.parse().ok()?, quic: false }),
            _ => None,
        }
    }
}

const HINT: &str = "e.g. \"/ip4/0.0.0.0/udp/4477/quic-v1\" or \"/ip4/0.0.0.0/tcp/4477\"";

pub(super) fn read(r: &mut Reader, path: &str) -> Vec<Listen> {
    let given = r.has(path);
    let Some(texts) = r.texts(path, MAX_ADDRESSES) else {
        let default = Listen::both(IpAddr::from([0, 0, 0, 0]), DEFAULT_PORT);
        if !given {
            let shown: Vec<String> = default.iter().map(|address| format!("\"{address}\"")).collect();
            r.note_default(path, format!("[{}]", shown.join(", ")));
        }
        return default.to_vec();
    };
    let mut addresses = Vec::new();
    for text in texts {
        match Listen::parse(&text) {
            Some(address) if !addresses.contains(&address) => addresses.push(address),
            Some(_) => r.error(path, format!("{text:?} is given twice"), None),
            None => r.error(path, format!("{text:?} is no address to listen on"), Some(HINT)),
        }
    }
    addresses
}

/// Addresses under which others reach this node: names are allowed, port 0 and interfaces are not.
pub(super) fn read_external(r: &mut Reader, path: &str) -> Vec<String> {
    let texts = r.texts(path, MAX_ADDRESSES).unwrap_or_default();
    for text in &texts {
        let named = ["/dns4/", "/dns6/", "/dns/"].iter().find_map(|prefix| text.strip_prefix(prefix));
        // A name stands where an address would: judge the rest by putting one in its place.
        let judged = named
            .and_then(|rest| rest.split_once('/'))
            .filter(|(name, _)| !name.is_empty())
            .map_or_else(|| text.clone(), |(_, rest)| format!("/ip4/192.0.2.1/{rest}"));
        match Listen::parse(&judged) {
            Some(address) if address.port > 0 && !address.ip.is_unspecified() => {}
            _ => r.error(
                path,
                format!("{text:?} is no address that others can dial"),
                Some("e.g. \"/dns4/node.example.net/tcp/4477\""),
            ),
        }
    }
    texts
}
