//! What fails or is controlled together: an owner, an address block, a region.

use std::{collections::BTreeMap, net::IpAddr};

use souk_protocol::NodeId;

/// The number of an owner, a block or a region; equal numbers of a kind are the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain(u32);

impl Domain {
    /// Unknown: shared with nobody and never capped.
    pub const NONE: Self = Self(u32::MAX);

    /// The domain of this number; the highest is [`Self::NONE`].
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Its number, if it is known.
    #[must_use]
    pub const fn number(self) -> Option<u32> {
        if self.0 == u32::MAX { None } else { Some(self.0) }
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self::NONE
    }
}

/// The domains of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Domains {
    /// Whose it is.
    pub owner: Domain,
    /// Where in the network.
    pub block: Domain,
    /// Where in the world.
    pub region: Domain,
}

impl Domains {
    /// All three, in the order of [`Caps::all`].
    #[must_use]
    pub const fn all(&self) -> [Domain; 3] {
        [self.owner, self.block, self.region]
    }
}

/// Most slots of one domain in a pool; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// Of an owner.
    pub owner: Option<u32>,
    /// Of an address block.
    pub block: Option<u32>,
    /// Of a region.
    pub region: Option<u32>,
}

impl Caps {
    /// Pools of replicas: nobody holds two of them.
    pub const APART: Self = Self { owner: Some(1), block: Some(1), region: None };

    /// All three, in the order of [`Domains::all`].
    #[must_use]
    pub const fn all(&self) -> [Option<u32>; 3] {
        [self.owner, self.block, self.region]
    }
}

/// The part of an address that is given out as a whole: a /24 or a /48. Whoever has one has all its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Block {
    /// The first three bytes.
    V4([u8; 3]),
    /// The first six bytes.
    V6([u8; 6]),
}

impl Block {
    /// The block of a public address. On a private network an address says nothing about who fails together.
    #[must_use]
    pub fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                let shared = a == 100 && (64..128).contains(&b); // carrier-grade NAT
                let private = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified();
                (!private && !shared).then_some(Self::V4([a, b, c]))
            }
            IpAddr::V6(v6) => {
                if let Some(v4) = v6.to_ipv4_mapped() {
                    return Self::of(IpAddr::V4(v4));
                }
                let [a, b, c, d, e, f, ..] = v6.octets();
                let private = v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local();
                let local = private || v6.is_unicast_link_local();
                (!local).then_some(Self::V6([a, b, c, d, e, f]))
            }
        }
    }

    /// The block of the first public address in an offer's list (`/ip4/203.0.113.7/udp/4001/quic-v1`).
    #[must_use]
    pub fn of_addresses<'a>(addresses: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        addresses.into_iter().find_map(|address| {
            let mut parts = address.split('/').skip(1);
            let (kind, host) = (parts.next()?, parts.next()?);
            matches!(kind, "ip4" | "ip6").then(|| host.parse().ok().and_then(Self::of)).flatten()
        })
    }
}

/// Gives numbers to owners, blocks and regions.
#[derive(Debug, Clone, Default)]
pub struct Numbers {
    owners: BTreeMap<NodeId, u32>,
    blocks: BTreeMap<Block, u32>,
    regions: BTreeMap<String, u32>,
}

impl Numbers {
    /// The numbers of what is known of a provider. Region names are compared without case; an empty one is unknown.
    pub fn number(&mut self, owner: NodeId, block: Option<Block>, region: &str) -> Domains {
        let region = region.to_ascii_uppercase();
        Domains {
            owner: number(&mut self.owners, owner),
            block: block.map_or(Domain::NONE, |block| number(&mut self.blocks, block)),
            region: if region.is_empty() { Domain::NONE } else { number(&mut self.regions, region) },
        }
    }
}

fn number<K: Ord>(known: &mut BTreeMap<K, u32>, key: K) -> Domain {
    let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
    Domain(*known.entry(key).or_insert(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_what_is_given_out_as_a_whole() {
        let of = |text: &str| Block::of(text.parse().unwrap());
        assert_eq!(of("203.0.113.7"), Some(Block::V4([203, 0, 113])));
        assert_eq!(of("::ffff:203.0.113.9"), Some(Block::V4([203, 0, 113])));
        assert_eq!(of("2001:db8:1:2::1"), Some(Block::V6([0x20, 1, 0x0d, 0xb8, 0, 1])));
        for local in ["127.0.0.1", "10.1.2.3", "192.168.1.1", "169.254.1.1", "100.64.0.1", "::1", "fe80::1", "fd00::1"]
        {
            assert_eq!(of(local), None, "{local}");
        }
    }

    #[test]
    fn the_first_public_address_of_an_offer_counts() {
        let addresses = ["/ip4/127.0.0.1/tcp/1", "/dns4/example.org/tcp/1", "/ip4/198.51.100.4/udp/4001/quic-v1"];
        assert_eq!(Block::of_addresses(addresses), Some(Block::V4([198, 51, 100])));
        assert_eq!(Block::of_addresses(["/ip4", "nonsense", ""]), None);
    }

    #[test]
    fn the_same_gets_the_same_number() {
        let mut numbers = Numbers::default();
        let (a, b) = (NodeId([1; 32]), NodeId([2; 32]));
        let first = numbers.number(a, Some(Block::V4([1, 2, 3])), "de");
        assert_eq!(numbers.number(a, Some(Block::V4([1, 2, 3])), "DE"), first);
        let other = numbers.number(b, None, "");
        assert_eq!(other.all(), [Domain::new(1), Domain::NONE, Domain::NONE]);
    }
}
