//! QUIC and TCP (noise, yamux) with names resolved, behind the address filter.

use std::{
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use libp2p::{
    Multiaddr, PeerId, Transport,
    core::{
        muxing::StreamMuxerBox,
        transport::{Boxed, DialOpts, ListenerId, TransportError, TransportEvent},
        upgrade::Version,
    },
    dns,
    identity::Keypair,
    multiaddr::Protocol,
    noise, quic, tcp, yamux,
};

use super::{NetError, address};

/// Substreams of one TCP connection, all protocols together.
const MAX_SUBSTREAMS: usize = 512;
/// Bytes a peer may have in flight on one QUIC stream; bounds memory per stream.
const QUIC_STREAM_WINDOW: u32 = 2 << 20;
/// Bytes a peer may have in flight on one QUIC connection.
const QUIC_CONNECTION_WINDOW: u32 = 8 << 20;

/// The transport of the whole node.
pub(super) fn build(pair: &Keypair, lan: bool) -> Result<Boxed<(PeerId, StreamMuxerBox)>, NetError> {
    // The filter sits inside name resolution, so that it sees what a name resolved to.
    match dns::tokio::Transport::system(numeric(pair, lan)?) {
        Ok(named) => Ok(named.boxed()),
        Err(error) => {
            tracing::warn!(%error, "names cannot be resolved; only numeric addresses work");
            Ok(numeric(pair, lan)?.boxed())
        }
    }
}

/// QUIC and TCP without name resolution.
fn numeric(pair: &Keypair, lan: bool) -> Result<Filtered, NetError> {
    let noise = noise::Config::new(pair).map_err(|error| NetError::Setup { what: "noise", why: error.to_string() })?;
    let mut yamux = yamux::Config::default();
    yamux.set_max_num_streams(MAX_SUBSTREAMS);
    let tcp = tcp::tokio::Transport::new(tcp::Config::default().nodelay(true))
        .upgrade(Version::V1Lazy)
        .authenticate(noise)
        .multiplex(yamux)
        .map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));

    let mut config = quic::Config::new(pair);
    config.max_stream_data = QUIC_STREAM_WINDOW;
    config.max_connection_data = QUIC_CONNECTION_WINDOW;
    let quic = quic::tokio::Transport::new(config).map(|(peer, muxer), _| (peer, StreamMuxerBox::new(muxer)));

    Ok(Filtered { inner: quic.or_transport(tcp).map(|either, _| either.into_inner()).boxed(), lan })
}

/// Refuses to dial hosts that [`address::check_ip`] refuses.
struct Filtered {
    inner: Boxed<(PeerId, StreamMuxerBox)>,
    lan: bool,
}

impl Transport for Filtered {
    type Output = (PeerId, StreamMuxerBox);
    type Error = std::io::Error;
    type ListenerUpgrade = <Boxed<Self::Output> as Transport>::ListenerUpgrade;
    type Dial = <Boxed<Self::Output> as Transport>::Dial;

    fn listen_on(&mut self, id: ListenerId, address: Multiaddr) -> Result<(), TransportError<Self::Error>> {
        self.inner.listen_on(id, address)
    }

    fn remove_listener(&mut self, id: ListenerId) -> bool {
        self.inner.remove_listener(id)
    }

    fn dial(&mut self, address: Multiaddr, opts: DialOpts) -> Result<Self::Dial, TransportError<Self::Error>> {
        let host = match address.iter().next() {
            Some(Protocol::Ip4(ip)) => IpAddr::V4(ip),
            Some(Protocol::Ip6(ip)) => IpAddr::V6(ip),
            _ => return Err(TransportError::MultiaddrNotSupported(address)),
        };
        if let Err(refused) = address::check_ip(host, self.lan) {
            tracing::debug!(%address, %refused, "not dialled");
            return Err(TransportError::MultiaddrNotSupported(address));
        }
        self.inner.dial(address, opts)
    }

    fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<TransportEvent<Self::ListenerUpgrade, Self::Error>> {
        Pin::new(&mut self.inner).poll(cx)
    }
}
