//! Tests over real loopback sockets.

use std::time::Duration;

use futures::AsyncWriteExt as _;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt as _},
    time::{Instant, timeout},
};

use super::{command::Kind, *};

const QUIC: &str = "/ip4/127.0.0.1/udp/0/quic-v1";
const TCP: &str = "/ip4/127.0.0.1/tcp/0";
/// Longest wait for anything in these tests.
const LIMIT: Duration = Duration::from_secs(30);

fn config(seed: u8) -> NetConfig {
    NetConfig {
        secret: [seed; 32],
        network: "0badcafe".to_owned(),
        listen: vec![QUIC.to_owned()],
        lan: true,
        topics: vec!["offer/test".to_owned()],
        limits: Limits { frames_per_second: 1_000_000, frames_burst: 1_000_000, ..Limits::default() },
        ..NetConfig::default()
    }
}

async fn start(config: NetConfig) -> (Net, NetEvents) {
    Net::start(config).await.unwrap()
}

async fn address(net: &Net) -> String {
    net.listen_addrs().await.remove(0)
}

async fn bounded<T>(what: &str, future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.unwrap_or_else(|_| panic!("{what}: not within {LIMIT:?}"))
}

/// The first event for which `pick` has a value; others are skipped.
async fn until<T>(what: &str, events: &mut NetEvents, mut pick: impl FnMut(NetEvent) -> Option<T>) -> T {
    bounded(what, async {
        loop {
            let event = events.recv().await.unwrap_or_else(|| panic!("{what}: the network ended"));
            if let Some(value) = pick(event) {
                return value;
            }
        }
    })
    .await
}

async fn next_frame(events: &mut NetEvents) -> (NodeId, Vec<u8>) {
    until("frame", events, |event| match event {
        NetEvent::Frame { peer, bytes } => Some((peer, bytes)),
        _ => None,
    })
    .await
}

async fn connected(events: &mut NetEvents, wanted: NodeId) {
    until("connection", events, |event| matches!(event, NetEvent::Connected { peer } if peer == wanted).then_some(()))
        .await;
}

/// Waits until the other side has ended a raw trade stream, which it first confirmed.
async fn ended(stream: &mut libp2p::Stream) {
    let mut bytes = Vec::new();
    let read = bounded("end of the stream", futures::AsyncReadExt::read_to_end(stream, &mut bytes)).await;
    assert!(read.is_err() || bytes == [trade::CONFIRM], "{read:?} {bytes:?}");
}

/// Starts a node on a port that its predecessor in this process may hold for a moment longer.
async fn start_again(config: NetConfig) -> (Net, NetEvents) {
    bounded("port free again", async {
        loop {
            match Net::start(config.clone()).await {
                Ok(started) => return started,
                Err(NetError::Listen { .. }) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

/// Keeps taking events, answering nothing.
fn drain(mut events: NetEvents) {
    tokio::spawn(async move { while events.recv().await.is_some() {} });
}

fn numbered(number: u32) -> Vec<u8> {
    let len = 4 + usize::try_from(number % 300).unwrap();
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.resize(len, 0xa5);
    bytes
}

/// Sends all frames, waiting when the queue is full.
async fn send_numbered(net: Net, to: NodeId, count: u32) {
    for number in 0..count {
        loop {
            match net.send(to, numbered(number)) {
                Ok(()) => break,
                Err(SendError::QueueFull) => tokio::time::sleep(Duration::from_millis(1)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

async fn receive_numbered(events: &mut NetEvents, from: NodeId, count: u32) {
    for number in 0..count {
        let (peer, bytes) = next_frame(events).await;
        assert_eq!(peer, from);
        assert_eq!(bytes, numbered(number), "frame {number}");
    }
}

async fn exchange_10_000_frames(listen: &str) {
    const COUNT: u32 = 10_000;
    let (a, mut a_events) = start(NetConfig { listen: vec![listen.to_owned()], ..config(1) }).await;
    let (b, mut b_events) = start(NetConfig { listen: vec![], ..config(2) }).await;
    assert_eq!(b.connect(address(&a).await).await, Ok(a.id()));
    connected(&mut a_events, b.id()).await;
    let senders =
        [tokio::spawn(send_numbered(b.clone(), a.id(), COUNT)), tokio::spawn(send_numbered(a.clone(), b.id(), COUNT))];
    let (a_id, b_id) = (a.id(), b.id());
    tokio::join!(receive_numbered(&mut a_events, b_id, COUNT), receive_numbered(&mut b_events, a_id, COUNT));
    for sender in senders {
        sender.await.unwrap();
    }
    let info = b.peers().await.remove(0);
    assert_eq!((info.id, info.connected, info.connections.len()), (a.id(), true, 1));
    assert_eq!(info.connections[0].direction, Direction::Outbound);
    assert_eq!(info.connections[0].transport, if listen == TCP { "tcp" } else { "quic" });
    bounded("queues empty", async {
        while a.0.outbox.queued_bytes() + b.0.outbox.queued_bytes() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_exchange_10_000_frames_in_order_over_quic() {
    exchange_10_000_frames(QUIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_exchange_10_000_frames_in_order_over_tcp() {
    exchange_10_000_frames(TCP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn round_trips_are_reported_soon_after_connecting() {
    let (a, mut a_events) = start(config(1)).await;
    let (b, mut b_events) = start(config(2)).await;
    b.connect(address(&a).await).await.unwrap();
    for events in [&mut a_events, &mut b_events] {
        // A ping at once and three echoes follow, without waiting 15 s for the next ping.
        for _ in 0..3 {
            let micros = until("round trip", events, |event| match event {
                NetEvent::Rtt { micros, .. } => Some(micros),
                _ => None,
            })
            .await;
            assert!(micros > 0 && micros < 5_000_000, "{micros}");
        }
    }
    let info = b.peers().await.remove(0);
    assert!(info.rtt_micros.is_some() && info.rtt_p95_micros >= info.rtt_micros.min(info.rtt_p95_micros));
    assert_eq!(info.agent, concat!("souk/", env!("CARGO_PKG_VERSION")));
    assert!(b.ping(a.id(), LIMIT).await.unwrap() < LIMIT);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_answered_refused_or_fail_and_say_whether_the_peer_may_have_acted() {
    let (a, mut a_events) = start(config(1)).await;
    let (b, b_events) = start(config(2)).await;
    drain(b_events);
    b.connect(address(&a).await).await.unwrap();
    let server = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Some(event) = a_events.recv().await {
            let NetEvent::Request { bytes, reply, .. } = event else { continue };
            match bytes.first() {
                Some(b'r') => reply.refuse("no, thank you"),
                Some(b'b') => reply.busy(),
                Some(b'd') => drop(reply),
                Some(b'l') => reply.send(vec![0; MAX_REQUEST + 1]),
                Some(b'k') => kept.push(reply),
                _ => reply.send(bytes.into_iter().rev().collect()),
            }
        }
    });
    let ask = async |bytes: &[u8]| b.request(a.id(), bytes.to_vec(), Duration::from_secs(10)).await;
    assert_eq!(ask(&[1, 2, 3]).await.unwrap(), [3, 2, 1]);
    assert_eq!(ask(&[]).await.unwrap(), Vec::<u8>::new());
    let long = vec![7; MAX_REQUEST];
    assert_eq!(ask(&long).await.unwrap(), long);
    assert_eq!(ask(b"r").await, Err(RequestError::Refused("no, thank you".to_owned())));
    assert_eq!(ask(b"b").await, Err(RequestError::Busy));
    assert_eq!(ask(b"d").await, Err(RequestError::Refused("not answered".to_owned())));
    assert_eq!(ask(b"l").await, Err(RequestError::Refused("the answer is too long".to_owned())));
    assert_eq!(ask(&[7; MAX_REQUEST + 1]).await, Err(RequestError::Length { len: MAX_REQUEST + 1 }));
    let late = b.request(a.id(), b"k".to_vec(), Duration::from_millis(200)).await.unwrap_err();
    assert!(matches!(late, RequestError::Timeout(_)) && late.may_have_acted(), "{late}");
    // Many at once find their own answers.
    let all = futures::future::join_all((0..50u8).map(|n| ask(vec![9, n].leak()))).await;
    for (n, answer) in (0..50u8).zip(all) {
        assert_eq!(answer.unwrap(), [n, 9]);
    }
    let nobody = b.request(NodeId([9; 32]), vec![1], LIMIT).await.unwrap_err();
    assert!(matches!(nobody, RequestError::Unreachable(_)) && !nobody.may_have_acted(), "{nobody}");
    let own = b.request(b.id(), vec![1], LIMIT).await.unwrap_err();
    assert!(matches!(own, RequestError::Unreachable(_)));
    // A lost connection leaves open whether the peer acted.
    let (lost, ()) = tokio::join!(ask(b"k"), async {
        b.ping(a.id(), LIMIT).await.unwrap();
        a.shutdown().await;
    });
    let lost = lost.unwrap_err();
    assert!(lost.may_have_acted(), "{lost}");
    server.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_too_long_or_empty_is_refused_here() {
    let (a, _events) = start(config(1)).await;
    let peer = NodeId([9; 32]);
    assert_eq!(a.send(peer, vec![0; MAX_FRAME + 1]), Err(SendError::Length { len: MAX_FRAME + 1 }));
    assert_eq!(a.send(peer, vec![]), Err(SendError::Length { len: 0 }));
    assert_eq!(a.send(a.id(), vec![1]), Err(SendError::Own));
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_frames_end_the_stream_then_the_peer_is_shut_out_and_others_are_unharmed() {
    let (a, mut a_events) = start(config(1)).await;
    let (b, mut b_events) = start(NetConfig { listen: vec![], ..config(2) }).await;
    let (c, c_events) = start(NetConfig { listen: vec![], ..config(3) }).await;
    drain(c_events);
    let at = address(&a).await;
    b.connect(at.clone()).await.unwrap();
    c.connect(at.clone()).await.unwrap();
    let too_long = u32::try_from(MAX_FRAME).unwrap() + 1;
    for (round, len) in [too_long, 0, u32::MAX].into_iter().enumerate() {
        let mut stream = b.open(a.id(), Kind::Trade).await.unwrap();
        // The other side may reset the stream before all is written.
        let _ = stream.write_all(&[&len.to_be_bytes()[..], &[0; 100]].concat()).await;
        let _ = stream.flush().await;
        ended(&mut stream).await;
        c.send(a.id(), numbered(u32::try_from(round).unwrap())).unwrap();
        assert_eq!(next_frame(&mut a_events).await, (c.id(), numbered(u32::try_from(round).unwrap())));
    }
    until("shut out", &mut b_events, |event| {
        matches!(event, NetEvent::Disconnected { peer } if peer == a.id()).then_some(())
    })
    .await;
    let about_b = a.peers().await.into_iter().find(|info| info.id == b.id()).unwrap();
    assert!(about_b.banned && !about_b.connected && about_b.strikes >= 50, "{about_b:?}");
    let counts = a.status().await.unwrap().counts;
    assert_eq!((counts.strikes, counts.bans), (3, 1));
    // Trying again does not help.
    assert!(b.connect(at).await.is_err());
    c.send(a.id(), b"still here".to_vec()).unwrap();
    assert_eq!(next_frame(&mut a_events).await.1, b"still here");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shut_out_peer_may_come_back_after_its_time() {
    let limits = Limits { ban_for: Duration::from_millis(500), ..Limits::default() };
    let (a, mut a_events) = start(NetConfig { limits, ..config(1) }).await;
    let (b, mut b_events) = start(config(2)).await;
    let at = address(&a).await;
    b.connect(at.clone()).await.unwrap();
    connected(&mut a_events, b.id()).await;
    a.strike(b.id(), 49);
    b.ping(a.id(), LIMIT).await.unwrap();
    a.strike(b.id(), 2);
    until("shut out", &mut b_events, |event| matches!(event, NetEvent::Disconnected { .. }).then_some(())).await;
    bounded("readmission", async { while b.connect(at.clone()).await.is_err() {} }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_begun_and_never_finished_times_out() {
    let limits = Limits { frame_timeout: Duration::from_millis(200), ..Limits::default() };
    let (a, mut a_events) = start(NetConfig { limits, ..config(1) }).await;
    let (b, b_events) = start(config(2)).await;
    drain(b_events);
    b.connect(address(&a).await).await.unwrap();
    let mut stream = b.open(a.id(), Kind::Trade).await.unwrap();
    stream.write_all(&[0, 0, 0, 2, 1, 1, 0, 0, 1, 0, 1, 2, 3]).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(next_frame(&mut a_events).await, (b.id(), vec![1, 1]));
    ended(&mut stream).await;
    bounded("strike", async {
        while a.status().await.unwrap().counts.strikes != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // An honest frame afterwards is fine.
    b.send(a.id(), vec![5]).unwrap();
    assert_eq!(next_frame(&mut a_events).await, (b.id(), vec![5]));
}

async fn frames_survive_a_restart(listen: &str) {
    let (a, mut a_events) = start(NetConfig { listen: vec![listen.to_owned()], ..config(1) }).await;
    let at = address(&a).await;
    let (fixed, _) = at.split_once("/p2p/").unwrap();
    let fixed = fixed.to_owned();
    let (b, mut b_events) = start(NetConfig { listen: vec![], bootstrap: vec![at.clone()], ..config(2) }).await;
    connected(&mut b_events, a.id()).await;
    b.send(a.id(), vec![1]).unwrap();
    assert_eq!(next_frame(&mut a_events).await.1, [1]);

    a.shutdown().await;
    assert!(a_events.recv().await.is_none_or(|event| !matches!(event, NetEvent::Frame { .. })));
    until("loss noticed", &mut b_events, |event| matches!(event, NetEvent::Disconnected { .. }).then_some(())).await;
    b.send(a.id(), vec![2]).unwrap();
    b.send(a.id(), vec![3]).unwrap();

    let (a, mut a_events) = start_again(NetConfig { listen: vec![fixed], ..config(1) }).await;
    // The bootstrap redial brings the connection back, and what was queued follows in order.
    connected(&mut b_events, a.id()).await;
    assert_eq!(next_frame(&mut a_events).await, (b.id(), vec![2]));
    assert_eq!(next_frame(&mut a_events).await, (b.id(), vec![3]));
    b.send(a.id(), vec![4]).unwrap();
    assert_eq!(next_frame(&mut a_events).await.1, [4]);
    a.send(b.id(), vec![5]).unwrap();
    assert_eq!(next_frame(&mut b_events).await.1, [5]);
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_flow_again_after_a_peer_restarts_on_its_port_over_quic() {
    frames_survive_a_restart(QUIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_flow_again_after_a_peer_restarts_on_its_port_over_tcp() {
    frames_survive_a_restart(TCP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_a_peers_earlier_process_are_closed_when_the_new_one_shows_up() {
    let (b, mut b_events) = start(config(2)).await;
    let at = address(&b).await;
    let (first, first_events) = start(NetConfig { listen: vec![], ..config(1) }).await;
    drain(first_events);
    first.connect(at.clone()).await.unwrap();
    connected(&mut b_events, first.id()).await;
    b.send(first.id(), vec![1]).unwrap();
    // A second process with the same key; the first one is silent from here on, as if killed.
    let (second, mut second_events) = start(NetConfig { listen: vec![], ..config(1) }).await;
    second.connect(at).await.unwrap();
    bounded("old connection closed", async {
        loop {
            let info = b.peers().await.remove(0);
            if info.connections.len() == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The writer moves to the new connection by itself.
    bounded("frames reach the new process", async {
        loop {
            b.send(second.id(), vec![2]).unwrap();
            let event = timeout(Duration::from_millis(100), second_events.recv()).await;
            if matches!(event, Ok(Some(NetEvent::Frame { .. }))) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_to_nobody_fail_after_the_reconnect_window() {
    let (a, mut a_events) = start(config(1)).await;
    let nobody = NodeId([9; 32]);
    for _ in 0..3 {
        a.send(nobody, vec![1]).unwrap();
    }
    let started = Instant::now();
    let dropped = until("failure", &mut a_events, |event| match event {
        NetEvent::SendFailed { peer, dropped, why: SendFailure::Unreachable(_) } => Some((peer, dropped)),
        _ => None,
    })
    .await;
    assert_eq!(dropped, (nobody, 3));
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(a.0.outbox.queued_bytes(), 0);
}

/// A hub and four nodes around it, without the hash table, so that all gossip passes the hub.
async fn star() -> (Net, NetEvents, Vec<(Net, NetEvents)>) {
    let (hub, mut hub_events) = start(config(1)).await;
    let at = address(&hub).await;
    let mut leaves = Vec::new();
    for seed in 2..=5 {
        let (net, events) = start(config(seed)).await;
        net.connect(at.clone()).await.unwrap();
        connected(&mut hub_events, net.id()).await;
        leaves.push((net, events));
    }
    // Only neighbours are forwarded to: wait until all are, or the slowest would miss the first message.
    bounded("gossip neighbours", async {
        while hub.status().await.unwrap().gossip_mesh < leaves.len() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    (hub, hub_events, leaves)
}

async fn next_gossip(events: &mut NetEvents) -> (NodeId, Vec<u8>, MessageToken) {
    until("gossip", events, |event| match event {
        NetEvent::Gossip { topic, source, bytes, token } => {
            assert_eq!(topic, "offer/test");
            Some((source, bytes, token))
        }
        _ => None,
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn gossip_reaches_five_nodes_and_a_rejected_message_is_not_forwarded() {
    let (hub, mut hub_events, mut leaves) = star().await;
    let author = leaves[0].0.clone();
    // Published at once: it waits for the first subscriber if none is known yet.
    author.publish("offer/test", b"bad".to_vec()).await.unwrap();
    let (source, bytes, token) = next_gossip(&mut hub_events).await;
    assert_eq!((source, bytes.as_slice()), (author.id(), &b"bad"[..]));
    hub.validate(token, Verdict::Reject);

    author.publish("offer/test", b"good".to_vec()).await.unwrap();
    let (_, bytes, token) = next_gossip(&mut hub_events).await;
    assert_eq!(bytes, b"good");
    hub.validate(token, Verdict::Accept);
    for (net, events) in &mut leaves[1..] {
        // The rejected message came first: it would have arrived first.
        let (source, bytes, token) = next_gossip(events).await;
        assert_eq!((source, bytes.as_slice()), (hub.id(), &b"good"[..]));
        net.validate(token, Verdict::Accept);
    }
    assert_eq!(author.publish("offer/test", b"good".to_vec()).await, Err(PublishError::Duplicate));
    assert_eq!(
        author.publish("offer/other", b"x".to_vec()).await,
        Err(PublishError::UnknownTopic("offer/other".to_owned()))
    );
    assert_eq!(
        author.publish("offer/test", vec![0; MAX_GOSSIP + 1]).await,
        Err(PublishError::Length { len: MAX_GOSSIP + 1 })
    );
    author.publish("offer/test", vec![7; MAX_GOSSIP]).await.unwrap();
    assert_eq!(next_gossip(&mut hub_events).await.1.len(), MAX_GOSSIP);
    let about = hub.peers().await.into_iter().find(|info| info.id == author.id()).unwrap();
    assert_eq!((about.strikes, about.banned), (10, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_different_networks_cannot_talk() {
    let (a, mut a_events) = start(config(1)).await;
    let (b, mut b_events) = start(NetConfig { network: "12345678".to_owned(), ..config(2) }).await;
    let result = bounded("refusal", b.connect(address(&a).await)).await;
    assert!(matches!(result, Err(ConnectError::ForeignNetwork | ConnectError::Unreachable { .. })), "{result:?}");
    let result = b.request(a.id(), vec![1], Duration::from_secs(5)).await.unwrap_err();
    assert!(!result.may_have_acted() || matches!(result, RequestError::Lost(_)), "{result:?}");
    b.send(a.id(), vec![1]).unwrap();
    until("failure", &mut b_events, |event| {
        assert!(!matches!(event, NetEvent::Connected { .. }));
        matches!(event, NetEvent::SendFailed { .. }).then_some(())
    })
    .await;
    // Nothing of it reached the node above.
    a.shutdown().await;
    while let Some(event) = bounded("end", a_events.recv()).await {
        assert!(matches!(event, NetEvent::ListenAddr { .. }), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_frames_is_slowed_and_does_not_hold_up_others() {
    let limits = Limits { frames_per_second: 100, frames_burst: 50, ..Limits::default() };
    let (a, mut a_events) = start(NetConfig { limits, ..config(1) }).await;
    let (b, b_events) = start(config(2)).await;
    let (c, c_events) = start(config(3)).await;
    drain(b_events);
    drain(c_events);
    let at = address(&a).await;
    b.connect(at.clone()).await.unwrap();
    c.connect(at).await.unwrap();
    let started = Instant::now();
    for number in 0..150 {
        b.send(a.id(), numbered(number)).unwrap();
    }
    assert_eq!(next_frame(&mut a_events).await.0, b.id());
    c.send(a.id(), vec![1]).unwrap();
    let mut from_b = 1;
    let mut at_c = None;
    while from_b < 150 {
        let (peer, bytes) = next_frame(&mut a_events).await;
        if peer == c.id() {
            at_c = Some(from_b);
        } else {
            assert_eq!(bytes, numbered(from_b));
            from_b += 1;
        }
    }
    assert!(at_c.is_some_and(|count| count < 150), "{at_c:?}");
    // 50 at once, 100 more at 100 a second.
    assert!(started.elapsed() >= Duration::from_millis(900), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_is_answered_busy() {
    let limits = Limits { requests_per_second: 1, requests_burst: 20, ..Limits::default() };
    let (a, mut a_events) = start(NetConfig { limits, ..config(1) }).await;
    let (b, b_events) = start(config(2)).await;
    drain(b_events);
    b.connect(address(&a).await).await.unwrap();
    tokio::spawn(async move {
        while let Some(event) = a_events.recv().await {
            if let NetEvent::Request { reply, .. } = event {
                reply.send(vec![]);
            }
        }
    });
    let asked = (0..60u8).map(|n| b.request(a.id(), vec![n], LIMIT));
    let answers = futures::future::join_all(asked).await;
    let busy = answers.iter().filter(|answer| **answer == Err(RequestError::Busy)).count();
    let fine = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(busy + fine, 60, "{answers:?}");
    // Early echoes take from the same budget; time refills a token or two.
    assert!((15..=25).contains(&fine), "{fine}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_does_not_take_events_is_not_waited_for() {
    let (a, a_events) = start(config(1)).await;
    let (b, b_events) = start(config(2)).await;
    let (c, c_events) = start(config(3)).await;
    drain(b_events);
    drain(c_events);
    let at = address(&a).await;
    b.connect(at.clone()).await.unwrap();
    c.connect(at).await.unwrap();
    // Nobody takes a's events. b floods until its own queue is full: back-pressure all the way.
    bounded("full queue", async {
        while b.send(a.id(), vec![7; 100_000]) != Err(SendError::QueueFull) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The network task of a still answers.
    assert!(a.status().await.is_some());
    c.ping(a.id(), LIMIT).await.unwrap();
    b.ping(a.id(), LIMIT).await.unwrap();
    drop(a_events);
}

async fn echo_64_mib(listen: &str) {
    const BLOCK: usize = 1 << 20;
    const BLOCKS: usize = 64;
    let (a, a_events) = start(NetConfig { listen: vec![listen.to_owned()], ..config(1) }).await;
    let (b, b_events) = start(NetConfig { listen: vec![], ..config(2) }).await;
    drain(a_events);
    drain(b_events);
    b.connect(address(&a).await).await.unwrap();
    let mut incoming = a.take_incoming(Protocol::Blob).unwrap();
    assert!(a.take_incoming(Protocol::Blob).is_none());
    let b_id = b.id();
    let server = tokio::spawn(async move {
        let stream = incoming.next().await.unwrap();
        assert_eq!(stream.peer(), b_id);
        let (mut from, mut to) = tokio::io::split(stream);
        let copied = tokio::io::copy(&mut from, &mut to).await.unwrap();
        to.shutdown().await.unwrap();
        copied
    });
    let (mut from, mut to) = tokio::io::split(b.open_stream(a.id(), Protocol::Blob).await.unwrap());
    let writer = tokio::spawn(async move {
        for number in 0..BLOCKS {
            to.write_all(&vec![u8::try_from(number).unwrap(); BLOCK]).await.unwrap();
        }
        to.shutdown().await.unwrap();
        to
    });
    let mut block = vec![0u8; BLOCK];
    bounded("echo", async {
        for number in 0..BLOCKS {
            from.read_exact(&mut block).await.unwrap();
            assert!(block.iter().all(|byte| usize::from(*byte) == number), "block {number}");
        }
        assert_eq!(from.read(&mut block).await.unwrap(), 0);
    })
    .await;
    writer.await.unwrap();
    assert_eq!(server.await.unwrap(), u64::try_from(BLOCK * BLOCKS).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_echoes_64_mib_over_quic() {
    echo_64_mib(QUIC).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_echoes_64_mib_over_tcp() {
    echo_64_mib(TCP).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_streams_opened_at_once_all_arrive() {
    let (a, a_events) = start(config(1)).await;
    let (b, b_events) = start(config(2)).await;
    drain(a_events);
    drain(b_events);
    b.connect(address(&a).await).await.unwrap();
    let mut incoming = a.take_incoming(Protocol::Log).unwrap();
    tokio::spawn(async move {
        while let Some(mut stream) = incoming.next().await {
            tokio::spawn(async move {
                let mut byte = [0u8; 1];
                stream.read_exact(&mut byte).await.unwrap();
                stream.write_all(&[byte[0].wrapping_add(100)]).await.unwrap();
                stream.shutdown().await.unwrap();
            });
        }
    });
    let all = (0..50u8).map(|number| {
        let (b, a) = (b.clone(), a.id());
        async move {
            let mut stream = b.open_stream(a, Protocol::Log).await.unwrap();
            stream.write_all(&[number]).await.unwrap();
            stream.flush().await.unwrap();
            let mut answer = [0u8; 1];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer[0], number + 100);
        }
    });
    bounded("fifty streams", futures::future::join_all(all)).await;
    assert_eq!(a.status().await.unwrap().counts.streams_dropped, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hash_table_finds_providers_and_routes_to_peers_never_dialled() {
    let (a, a_events) = start(NetConfig { server: true, ..config(1) }).await;
    drain(a_events);
    let at = address(&a).await;
    let (b, b_events) = start(NetConfig { server: true, bootstrap: vec![at.clone()], ..config(2) }).await;
    let (c, mut c_events) = start(NetConfig { server: true, bootstrap: vec![at], ..config(3) }).await;
    drain(b_events);
    connected(&mut c_events, a.id()).await;
    bounded("providers", async {
        c.provide(b"shard/eu".to_vec()).await.unwrap();
        while b.providers(b"shard/eu".to_vec()).await.unwrap() != [c.id()] {
            tokio::time::sleep(Duration::from_millis(50)).await;
            // The first announcement may have come before the routing tables were filled.
            c.provide(b"shard/eu".to_vec()).await.unwrap();
        }
    })
    .await;
    assert_eq!(b.providers(b"shard/us".to_vec()).await, Ok(vec![]));
    assert_eq!(b.provide(vec![0; 65]).await, Err(LookupError::Length { len: 65 }));
    b.send(c.id(), b"found you".to_vec()).unwrap();
    assert_eq!(next_frame(&mut c_events).await, (b.id(), b"found you".to_vec()));
    let status = b.status().await.unwrap();
    assert!(status.kad_server && status.kad_peers >= 1 && status.peers >= 1, "{status:?}");
    assert_eq!(status.reachable, Reachable::Private);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_ends_with_its_last_handle_and_calls_after_shutdown_fail() {
    let (a, mut a_events) = start(config(1)).await;
    let other = a.clone();
    drop(a);
    assert!(other.status().await.is_some());
    drop(other);
    bounded("end", async { while a_events.recv().await.is_some() {} }).await;

    let (a, mut a_events) = start(config(1)).await;
    a.shutdown().await;
    bounded("end", async { while a_events.recv().await.is_some() {} }).await;
    assert_eq!(a.status().await, None);
    assert_eq!(a.send(NodeId([9; 32]), vec![1]), Err(SendError::Stopped));
    assert_eq!(a.request(NodeId([9; 32]), vec![1], LIMIT).await, Err(RequestError::Stopped));
    assert_eq!(a.connect("/ip4/127.0.0.1/tcp/1".to_owned()).await, Err(ConnectError::Stopped));
    // A second time does nothing.
    bounded("second shutdown", a.shutdown()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unusable_settings_are_refused_with_field_value_and_remedy() {
    let text = async |config: NetConfig| Net::start(config).await.unwrap_err().to_string();
    for listen in [TCP, QUIC] {
        let (a, _events) = start(NetConfig { listen: vec![listen.to_owned()], ..config(1) }).await;
        let taken = address(&a).await;
        let taken = taken.split_once("/p2p/").unwrap().0.to_owned();
        let message = text(NetConfig { listen: vec![taken.clone()], ..config(2) }).await;
        assert_eq!(
            message,
            format!(
                "listen: cannot listen on {taken}: Address already in use (os error 98); \
                 choose another port or stop the process that holds it"
            )
        );
    }
    let message = text(NetConfig { lan: false, bootstrap: vec!["/ip4/10.0.0.1/tcp/1".to_owned()], ..config(2) }).await;
    assert_eq!(
        message,
        "bootstrap: address /ip4/10.0.0.1/tcp/1 cannot be used: private address outside LAN mode \
         (set lan = true for a private network)"
    );
    let message = text(NetConfig { network: "xyz".to_owned(), ..config(2) }).await;
    assert_eq!(message, "network: id xyz is not 8 hexadecimal digits");
}
