//! Which addresses may be dialled, remembered and told to others.
//!
//! Strangers tell us addresses. A node that dials whatever it is told scans its owner's private
//! network, or a third party's, for them; so everything that is not plainly a public TCP or QUIC
//! address is dropped, unless the node runs in LAN mode.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libp2p::{Multiaddr, PeerId, multiaddr::Protocol};

/// Addresses kept for each peer: identify and the hash table may tell many more.
pub(super) const MAX_ADDRESSES: usize = 8;
/// Longer addresses have no honest use.
const MAX_BYTES: usize = 512;

/// Why an address is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("longer than 512 bytes")]
    Long,
    #[error("relayed")]
    Relayed,
    #[error("port 0 cannot be dialled")]
    PortZero,
    #[error("{0} address outside LAN mode (set lan = true for a private network)")]
    Scope(&'static str),
    #[error("{0} address")]
    Never(&'static str),
    #[error("not /ip4, /ip6 or /dns followed by /tcp/PORT or /udp/PORT/quic-v1")]
    Shape,
}

/// Checks an address that a peer told us or a user wrote.
pub(super) fn check(address: &Multiaddr, lan: bool) -> Result<(), Refused> {
    if address.len() > MAX_BYTES {
        return Err(Refused::Long);
    }
    if address.iter().any(|part| matches!(part, Protocol::P2pCircuit)) {
        return Err(Refused::Relayed);
    }
    let mut parts = address.iter();
    match parts.next() {
        Some(Protocol::Ip4(ip)) => check_ip(IpAddr::V4(ip), lan)?,
        Some(Protocol::Ip6(ip)) => check_ip(IpAddr::V6(ip), lan)?,
        // What a name resolves to is checked again in the transport.
        Some(Protocol::Dns(_) | Protocol::Dns4(_) | Protocol::Dns6(_)) => {}
        _ => return Err(Refused::Shape),
    }
    let port = match (parts.next(), parts.next()) {
        (Some(Protocol::Tcp(port)), None | Some(Protocol::P2p(_))) => port,
        (Some(Protocol::Udp(port)), Some(Protocol::QuicV1)) => {
            if !matches!(parts.next(), None | Some(Protocol::P2p(_))) {
                return Err(Refused::Shape);
            }
            port
        }
        _ => return Err(Refused::Shape),
    };
    if parts.next().is_some() {
        return Err(Refused::Shape);
    }
    if port == 0 {
        return Err(Refused::PortZero);
    }
    Ok(())
}

/// Checks the host part only: what the transport sees after names are resolved.
pub(super) fn check_ip(ip: IpAddr, lan: bool) -> Result<(), Refused> {
    match ip {
        IpAddr::V4(ip) => check_v4(ip, lan),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(mapped) => check_v4(mapped, lan),
            None => check_v6(ip, lan),
        },
    }
}

fn scope(lan: bool, what: &'static str) -> Result<(), Refused> {
    if lan { Ok(()) } else { Err(Refused::Scope(what)) }
}

fn check_v4(ip: Ipv4Addr, lan: bool) -> Result<(), Refused> {
    let [a, b, c, _] = ip.octets();
    match (a, b, c) {
        (0, ..) => Err(Refused::Never("unspecified")),
        (224..=239, ..) => Err(Refused::Never("multicast")),
        (240..=255, ..) => Err(Refused::Never("reserved")),
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => Err(Refused::Never("documentation")),
        (127, ..) => scope(lan, "loopback"),
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => scope(lan, "private"),
        (169, 254, _) => scope(lan, "link-local"),
        (100, 64..=127, _) => scope(lan, "carrier NAT"),
        (198, 18..=19, _) => scope(lan, "benchmarking"),
        (192, 0, 0) => scope(lan, "protocol assignment"),
        _ => Ok(()),
    }
}

fn check_v6(ip: Ipv6Addr, lan: bool) -> Result<(), Refused> {
    if ip.is_loopback() {
        return scope(lan, "loopback");
    }
    if ip.is_unspecified() {
        return Err(Refused::Never("unspecified"));
    }
    let [first, second, ..] = ip.segments();
    match first {
        0xff00..=0xffff => Err(Refused::Never("multicast")),
        0x2001 if second == 0x0db8 => Err(Refused::Never("documentation")),
        0xfc00..=0xfdff => scope(lan, "unique local"),
        0xfe80..=0xfebf => scope(lan, "link-local"),
        0xfec0..=0xfeff => scope(lan, "site-local"),
        // 6to4, Teredo and NAT64 carry an IPv4 address that this check would not see.
        0x2002 | 0x0064 => scope(lan, "translated"),
        0x2001 if second == 0 => scope(lan, "translated"),
        0x2000..=0x3fff => Ok(()),
        _ => Err(Refused::Never("reserved")),
    }
}

/// Parses and checks an address written by a user; returns it without its `/p2p` part, and that part.
pub(super) fn parse(text: &str, lan: bool) -> Result<(Multiaddr, Option<PeerId>), String> {
    let address: Multiaddr = text.parse().map_err(|error| format!("{error}"))?;
    check(&address, lan).map_err(|refused| refused.to_string())?;
    Ok(split(address))
}

/// Takes the `/p2p` part off the end.
pub(super) fn split(mut address: Multiaddr) -> (Multiaddr, Option<PeerId>) {
    match address.iter().last() {
        Some(Protocol::P2p(peer)) => {
            address.pop();
            (address, Some(peer))
        }
        _ => (address, None),
    }
}

/// Keeps the usable ones of the addresses a peer tells about itself, at most [`MAX_ADDRESSES`].
pub(super) fn keep(addresses: impl IntoIterator<Item = Multiaddr>, peer: &PeerId, lan: bool) -> Vec<Multiaddr> {
    let mut kept: Vec<Multiaddr> = Vec::new();
    for address in addresses {
        if check(&address, lan).is_err() {
            continue;
        }
        let (address, named) = split(address);
        if named.is_some_and(|named| named != *peer) || kept.contains(&address) {
            continue;
        }
        kept.push(address);
        if kept.len() == MAX_ADDRESSES {
            break;
        }
    }
    kept
}

/// Whether the address is one that the whole internet can reach.
pub(super) fn is_global(address: &Multiaddr) -> bool {
    match address.iter().next() {
        Some(Protocol::Ip4(ip)) => check_ip(IpAddr::V4(ip), false).is_ok(),
        Some(Protocol::Ip6(ip)) => check_ip(IpAddr::V6(ip), false).is_ok(),
        _ => false,
    }
}

/// Fails if another process listens on this TCP port. The transport itself shares ports, so two nodes
/// on one port would each get some of the connections, without any error.
pub(super) fn probe_port(address: &Multiaddr) -> std::io::Result<()> {
    let mut parts = address.iter();
    let ip = match parts.next() {
        Some(Protocol::Ip4(ip)) => IpAddr::V4(ip),
        Some(Protocol::Ip6(ip)) => IpAddr::V6(ip),
        _ => return Ok(()),
    };
    match parts.next() {
        Some(Protocol::Tcp(port)) if port != 0 => std::net::TcpListener::bind((ip, port)).map(drop),
        _ => Ok(()),
    }
}

/// `quic`, `tcp` or `other`, for people.
pub(super) fn transport(address: &Multiaddr) -> &'static str {
    for part in address {
        match part {
            Protocol::QuicV1 => return "quic",
            Protocol::Tcp(_) => return "tcp",
            _ => {}
        }
    }
    "other"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_filter_table() {
        let peer = PeerId::random();
        let p2p = format!("/ip4/8.8.8.8/tcp/4101/p2p/{peer}");
        let relayed = format!("/ip4/8.8.8.8/tcp/4101/p2p/{peer}/p2p-circuit/p2p/{peer}");
        // (address, allowed on the internet, allowed in LAN mode)
        let table: [(&str, bool, bool); 36] = [
            ("/ip4/8.8.8.8/tcp/4101", true, true),
            ("/ip4/8.8.8.8/udp/4101/quic-v1", true, true),
            (&p2p, true, true),
            ("/ip6/2606:4700::1111/tcp/4101", true, true),
            ("/dns4/node.example.net/tcp/4101", true, true),
            ("/dns/node.example.net/udp/4101/quic-v1", true, true),
            ("/ip4/127.0.0.1/tcp/4101", false, true),
            ("/ip4/127.8.9.1/udp/4101/quic-v1", false, true),
            ("/ip4/10.1.2.3/tcp/4101", false, true),
            ("/ip4/172.16.0.1/tcp/4101", false, true),
            ("/ip4/172.32.0.1/tcp/4101", true, true),
            ("/ip4/192.168.1.1/tcp/4101", false, true),
            ("/ip4/169.254.169.254/tcp/80", false, true),
            ("/ip4/100.64.0.1/tcp/4101", false, true),
            ("/ip4/198.18.0.1/tcp/4101", false, true),
            ("/ip6/::1/tcp/4101", false, true),
            ("/ip6/fd00::1/tcp/4101", false, true),
            ("/ip6/fe80::1/tcp/4101", false, true),
            ("/ip6/::ffff:127.0.0.1/tcp/4101", false, true),
            ("/ip6/64:ff9b::7f00:1/tcp/4101", false, true),
            ("/ip6/2002:7f00:1::/tcp/4101", false, true),
            ("/ip4/0.0.0.0/tcp/4101", false, false),
            ("/ip4/224.0.0.251/udp/5353/quic-v1", false, false),
            ("/ip4/255.255.255.255/tcp/1", false, false),
            ("/ip4/192.0.2.7/tcp/4101", false, false),
            ("/ip4/203.0.113.7/tcp/4101", false, false),
            ("/ip6/2001:db8::1/tcp/4101", false, false),
            ("/ip6/ff02::1/udp/4101/quic-v1", false, false),
            ("/ip6/::/tcp/4101", false, false),
            ("/ip4/8.8.8.8/tcp/0", false, false),
            ("/ip4/8.8.8.8/udp/0/quic-v1", false, false),
            ("/ip4/8.8.8.8/udp/4101", false, false),
            ("/ip4/8.8.8.8", false, false),
            ("/ip4/8.8.8.8/tcp/4101/ws", false, false),
            (&relayed, false, false),
            ("/memory/7", false, false),
        ];
        for (text, internet, lan) in table {
            let address: Multiaddr = text.parse().unwrap();
            assert_eq!(check(&address, false).is_ok(), internet, "{text} on the internet");
            assert_eq!(check(&address, true).is_ok(), lan, "{text} in LAN mode");
        }
    }

    #[test]
    fn at_most_eight_addresses_of_a_peer_are_kept_and_foreign_or_repeated_ones_dropped() {
        let (peer, other) = (PeerId::random(), PeerId::random());
        let mut told: Vec<Multiaddr> = vec![
            format!("/ip4/8.8.8.8/tcp/1/p2p/{other}").parse().unwrap(),
            "/ip4/10.0.0.1/tcp/1".parse().unwrap(),
            format!("/ip4/8.8.8.8/tcp/1/p2p/{peer}").parse().unwrap(),
            "/ip4/8.8.8.8/tcp/1".parse().unwrap(),
        ];
        told.extend((2..10_000u16).map(|port| format!("/ip4/8.8.8.8/tcp/{port}").parse::<Multiaddr>().unwrap()));
        let kept = keep(told, &peer, false);
        assert_eq!(kept.len(), MAX_ADDRESSES);
        assert_eq!(kept[0].to_string(), "/ip4/8.8.8.8/tcp/1");
        assert_eq!(kept[7].to_string(), "/ip4/8.8.8.8/tcp/8");
    }

    #[test]
    fn an_overlong_address_is_refused() {
        let address: Multiaddr = format!("/dns4/{}/tcp/1", "a".repeat(600)).parse().unwrap();
        assert_eq!(check(&address, true), Err(Refused::Long));
    }
}
