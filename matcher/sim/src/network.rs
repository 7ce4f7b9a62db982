//! The network between the nodes: connections that are dialled, carry messages and break; cuts; loss.
//!
//! It only decides. The world puts what was decided into its queue.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::{
    random::Dice,
    region::Regions,
    scenario::{Faults, Latency},
    time::Micros,
};

/// Number of a node in a scenario.
pub(crate) type NodeIndex = usize;

/// Most messages that wait for a connection, as in the node; more are dropped and said to be so.
const MAX_HELD: usize = 1_024;
/// How often two nodes behind NAT find no direct way, in millionths: a third party carries all they say.
const RELAYED: u32 = 300_000;

/// Two nodes, the lower number first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair(NodeIndex, NodeIndex);

impl Pair {
    /// The pair of two nodes in any order.
    #[must_use]
    pub(crate) fn of(a: NodeIndex, b: NodeIndex) -> Self {
        Self(a.min(b), a.max(b))
    }

    /// Both ends.
    #[must_use]
    pub(crate) const fn ends(self) -> [NodeIndex; 2] {
        [self.0, self.1]
    }
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// It arrives, unless the connection breaks before; perhaps once more, even after a break.
    Arrives {
        /// When.
        at: Micros,
        /// On which connection.
        epoch: u64,
        /// When again.
        again: Option<Micros>,
    },
    /// Lost without a word.
    Lost,
    /// The first for this peer: a connection is dialled, the message waits. The dial is decided then.
    Dials {
        /// When.
        at: Micros,
        /// Which dial.
        epoch: u64,
    },
    /// It waits for a dial that is under way.
    Waits,
    /// Too many wait.
    Refused,
    /// Lost, and the connection will be found broken.
    Breaks {
        /// When.
        at: Micros,
        /// Which connection.
        epoch: u64,
    },
}

/// What became of a dial.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Dialled<M> {
    /// The connection is there, and these messages travel on it.
    Up(Vec<(NodeIndex, M)>),
    /// It is not, and these nodes' messages were dropped.
    Failed(Vec<NodeIndex>),
}

#[derive(Debug)]
enum Link<M> {
    Dialling { epoch: u64, held: Vec<(NodeIndex, M)> },
    Up(Up),
}

/// A connection.
#[derive(Debug)]
struct Up {
    epoch: u64,
    doomed: bool,
    swallowed: [bool; 2],
    last: [Micros; 2],
    /// Median one-way latency, that of the relay with it.
    distance: Micros,
}

/// Where the nodes are.
#[derive(Debug)]
enum Map {
    Scattered,
    Regions { regions: Arc<Regions>, places: Vec<Place> },
}

/// Where a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// Number of its region.
    pub(crate) region: usize,
    /// Whether others cannot dial it.
    pub(crate) behind_nat: bool,
}

/// A cut: nothing passes from the nodes on one side to the others, nor back unless it is one-way.
#[derive(Debug, Clone)]
pub(crate) struct Cut {
    /// Whether a node is on the cut-off side.
    pub(crate) inside: Vec<bool>,
    /// Whether messages into the cut-off side still arrive.
    pub(crate) one_way: bool,
}

/// Connections, cuts and the dice that decide on each message.
#[derive(Debug)]
pub(crate) struct Network<M> {
    faults: Faults,
    calm: bool,
    seed: u64,
    dice: Dice,
    map: Map,
    links: BTreeMap<Pair, Link<M>>,
    /// By node: whom it has a link with.
    peers: Vec<BTreeSet<NodeIndex>>,
    relayed: u64,
    connected: u64,
    cuts: BTreeMap<usize, Cut>,
    down: Vec<bool>,
    epochs: u64,
}

impl<M> Network<M> {
    /// A network of `nodes` nodes that are all there and not connected.
    #[must_use]
    pub(crate) fn new(seed: u64, nodes: usize, faults: Faults) -> Self {
        Self::with_map(seed, nodes, faults, Map::Scattered)
    }

    /// A network whose nodes are where the regions put them; `home` knows the region of some.
    #[must_use]
    pub(crate) fn of(
        seed: u64,
        nodes: usize,
        faults: Faults,
        latency: &Latency,
        home: impl Fn(NodeIndex) -> Option<usize>,
    ) -> Self {
        let Latency::Regions(regions) = latency else { return Self::new(seed, nodes, faults) };
        let mut dice = Dice::new(seed, "places");
        let place = |node| {
            let thrown = regions.throw(&mut dice);
            Place { region: home(node).unwrap_or(thrown), behind_nat: dice.chance(regions.nat.0) }
        };
        let places = (0..nodes).map(place).collect();
        Self::with_map(seed, nodes, faults, Map::Regions { regions: Arc::clone(regions), places })
    }

    fn with_map(seed: u64, nodes: usize, faults: Faults, map: Map) -> Self {
        Self {
            faults,
            calm: false,
            seed,
            dice: Dice::new(seed, "network"),
            map,
            links: BTreeMap::new(),
            peers: vec![BTreeSet::new(); nodes],
            relayed: 0,
            connected: 0,
            cuts: BTreeMap::new(),
            down: vec![false; nodes],
            epochs: 0,
        }
    }

    /// From now on nothing is lost, repeated or reordered.
    pub(crate) fn calm(&mut self) {
        self.calm = true;
    }

    fn faults(&self) -> Faults {
        if self.calm { Faults::NONE } else { self.faults }
    }

    /// Whether a message could pass now.
    #[must_use]
    pub(crate) fn passes(&self, from: NodeIndex, to: NodeIndex) -> bool {
        let is_down = |node: NodeIndex| self.down.get(node).copied().unwrap_or(true);
        let blocked = |cut: &Cut| {
            let side = |node: NodeIndex| cut.inside.get(node).copied().unwrap_or(false);
            (side(from) && !side(to)) || (!cut.one_way && !side(from) && side(to))
        };
        !is_down(from) && !is_down(to) && !self.cuts.values().any(blocked)
    }

    fn connects(&self, pair: Pair) -> bool {
        self.passes(pair.0, pair.1) && self.passes(pair.1, pair.0)
    }

    /// Where a node is, if the network has places.
    #[must_use]
    pub(crate) fn place(&self, node: NodeIndex) -> Option<Place> {
        match &self.map {
            Map::Scattered => None,
            Map::Regions { places, .. } => places.get(node).copied(),
        }
    }

    /// Median of the time a message takes between two nodes if nobody carries it.
    #[must_use]
    pub(crate) fn distance(&self, pair: Pair) -> Micros {
        match &self.map {
            // Near or far for good.
            Map::Scattered => {
                let mut dice = Dice::new(self.seed, &format!("distance {} {}", pair.0, pair.1));
                if dice.chance(200_000) {
                    dice.span(Micros(200), Micros(2_000))
                } else {
                    dice.span(Micros(5_000), Micros(80_000))
                }
            }
            Map::Regions { regions, places } => {
                let region = |node: NodeIndex| places.get(node).map_or(0, |place| place.region);
                regions.median(region(pair.0), region(pair.1))
            }
        }
    }

    /// How long one message takes where the median is this.
    pub(crate) fn throw(&mut self, median: Micros) -> Micros {
        match &self.map {
            Map::Scattered => self.dice.around(median),
            Map::Regions { regions, .. } => Micros(self.dice.log_normal(median.0, regions.spread)),
        }
    }

    /// The median of a connection, or what it would be.
    #[must_use]
    pub(crate) fn way(&self, pair: Pair) -> Micros {
        match self.links.get(&pair) {
            Some(Link::Up(up)) => up.distance,
            _ => self.distance(pair),
        }
    }

    /// Connections made so far, and those of them that need a third party.
    #[must_use]
    pub(crate) const fn connections_made(&self) -> (u64, u64) {
        (self.connected, self.relayed)
    }

    /// Sends `message`, and says what becomes of it. It is given back where it travels now.
    pub(crate) fn send(&mut self, now: Micros, from: NodeIndex, to: NodeIndex, message: M) -> (Sent, Option<M>) {
        let pair = Pair::of(from, to);
        let passes = self.passes(from, to);
        match self.links.get_mut(&pair) {
            None => {
                let (at, epoch) = self.dial(now, pair, to);
                self.insert(pair, Link::Dialling { epoch, held: vec![(from, message)] });
                (Sent::Dials { at, epoch }, None)
            }
            Some(Link::Dialling { held, .. }) if held.len() >= MAX_HELD => (Sent::Refused, None),
            Some(Link::Dialling { held, .. }) => {
                held.push((from, message));
                (Sent::Waits, None)
            }
            Some(Link::Up(Up { epoch, doomed, swallowed, .. })) if !passes => {
                let side = usize::from(from != pair.0);
                if let Some(swallowed) = swallowed.get_mut(side) {
                    *swallowed = true;
                }
                if std::mem::replace(doomed, true) {
                    return (Sent::Lost, None);
                }
                let at = now + self.dice.span(Micros::millis(1_000), Micros::millis(10_000));
                (Sent::Breaks { at, epoch: *epoch }, None)
            }
            Some(Link::Up(_)) => (self.transmit(now, from, to), Some(message)),
        }
    }

    fn insert(&mut self, pair: Pair, link: Link<M>) {
        for (node, other) in [(pair.0, pair.1), (pair.1, pair.0)] {
            if let Some(peers) = self.peers.get_mut(node) {
                peers.insert(other);
            }
        }
        self.links.insert(pair, link);
    }

    fn remove(&mut self, pair: Pair) -> Option<Link<M>> {
        for (node, other) in [(pair.0, pair.1), (pair.1, pair.0)] {
            if let Some(peers) = self.peers.get_mut(node) {
                peers.remove(&other);
            }
        }
        self.links.remove(&pair)
    }

    fn dial(&mut self, now: Micros, pair: Pair, to: NodeIndex) -> (Micros, u64) {
        self.epochs += 1;
        let at = if self.connects(pair) {
            let distance = self.distance(pair);
            // Who cannot be dialled is asked, by way of a relay, to dial itself.
            let trips = if self.place(to).is_some_and(|place| place.behind_nat) { 7 } else { 3 };
            (0..trips).fold(now, |at, _| at + self.throw(distance))
        } else {
            now + self.dice.span(Micros::millis(500), Micros::millis(5_000))
        };
        (at, self.epochs)
    }

    fn connect(&mut self, epoch: u64, pair: Pair) -> Link<M> {
        let mut distance = self.distance(pair);
        let hidden = |node| self.place(node).is_some_and(|place| place.behind_nat);
        let both_hidden = hidden(pair.0) && hidden(pair.1);
        self.connected += 1;
        if both_hidden && self.dice.chance(RELAYED) {
            self.relayed += 1;
            distance = distance + distance;
        }
        Link::Up(Up { epoch, doomed: false, swallowed: [false; 2], last: [Micros(0); 2], distance })
    }

    /// What becomes of a message on a connection that is there.
    pub(crate) fn transmit(&mut self, now: Micros, from: NodeIndex, to: NodeIndex) -> Sent {
        let faults = self.faults();
        if self.dice.chance(faults.loss) {
            return Sent::Lost;
        }
        let pair = Pair::of(from, to);
        let way = self.way(pair);
        let mut at = now + self.throw(way);
        let overtakes = self.dice.chance(faults.reordered);
        let again = self.dice.chance(faults.duplicated).then(|| {
            let late = if self.dice.chance(100_000) { 30_000 } else { 300 };
            at + self.dice.span(Micros(0), Micros::millis(late))
        });
        let Some(Link::Up(Up { epoch, last, .. })) = self.links.get_mut(&pair) else {
            return Sent::Lost;
        };
        if let Some(last) = last.get_mut(usize::from(from != pair.0)) {
            if !overtakes {
                at = at.max(*last);
            }
            *last = at.max(*last);
        }
        Sent::Arrives { at, epoch: *epoch, again }
    }

    /// A dial ends; none if it was another one.
    pub(crate) fn dialled(&mut self, pair: Pair, epoch: u64) -> Option<Dialled<M>> {
        match self.links.get(&pair) {
            Some(Link::Dialling { epoch: current, .. }) if *current == epoch => {}
            _ => return None,
        }
        let Some(Link::Dialling { held, .. }) = self.remove(pair) else { return None };
        if self.connects(pair) {
            let up = self.connect(epoch, pair);
            self.insert(pair, up);
            return Some(Dialled::Up(held));
        }
        let mut senders: Vec<_> = held.into_iter().map(|(from, _)| from).collect();
        senders.sort_unstable();
        senders.dedup();
        Some(Dialled::Failed(senders))
    }

    /// A connection breaks. Answers whose messages were swallowed by it; `None` if it is not there any more.
    pub(crate) fn broken(&mut self, pair: Pair, epoch: u64) -> Option<Vec<NodeIndex>> {
        match self.links.get(&pair) {
            Some(Link::Up(Up { epoch: current, .. })) if *current == epoch => {}
            _ => return None,
        }
        let Some(Link::Up(Up { swallowed, .. })) = self.remove(pair) else { return None };
        Some(pair.ends().into_iter().zip(swallowed).filter(|(_, lost)| *lost).map(|(node, _)| node).collect())
    }

    /// The connection of a pair, if it is there.
    #[must_use]
    pub(crate) fn epoch(&self, pair: Pair) -> Option<u64> {
        match self.links.get(&pair) {
            Some(Link::Up(Up { epoch, .. })) => Some(*epoch),
            _ => None,
        }
    }

    /// A node is gone. What it wanted to say is forgotten; answers its connections, which the others will find broken.
    pub(crate) fn crash(&mut self, node: NodeIndex) -> Vec<(Pair, u64)> {
        self.set_down(node, true);
        for pair in self.pairs(node) {
            if let Some(Link::Dialling { held, .. }) = self.links.get_mut(&pair) {
                held.retain(|(from, _)| *from != node);
            }
        }
        self.connections(node)
    }

    /// A node is back. Answers the connections it does not know any more.
    pub(crate) fn restart(&mut self, node: NodeIndex) -> Vec<(Pair, u64)> {
        self.set_down(node, false);
        self.connections(node)
    }

    fn set_down(&mut self, node: NodeIndex, is_down: bool) {
        if let Some(down) = self.down.get_mut(node) {
            *down = is_down;
        }
    }

    fn pairs(&self, node: NodeIndex) -> Vec<Pair> {
        self.peers.get(node).into_iter().flatten().map(|peer| Pair::of(node, *peer)).collect()
    }

    fn connections(&self, node: NodeIndex) -> Vec<(Pair, u64)> {
        self.pairs(node).into_iter().filter_map(|pair| self.epoch(pair).map(|epoch| (pair, epoch))).collect()
    }

    /// All connections.
    #[must_use]
    pub(crate) fn all(&self) -> Vec<(Pair, u64)> {
        self.links.keys().filter_map(|pair| self.epoch(*pair).map(|epoch| (*pair, epoch))).collect()
    }

    /// A cut begins.
    pub(crate) fn cut(&mut self, number: usize, cut: Cut) {
        self.cuts.insert(number, cut);
    }

    /// A cut ends.
    pub(crate) fn heal(&mut self, number: usize) {
        self.cuts.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Micros = Micros(0);

    fn connected(faults: Faults) -> (Network<u32>, u64) {
        let mut network = Network::new(1, 3, faults);
        let (Sent::Dials { epoch, .. }, None) = network.send(T, 0, 1, 7) else { panic!("the first message dials") };
        assert_eq!(network.send(T, 1, 0, 8), (Sent::Waits, None));
        assert_eq!(network.dialled(Pair::of(0, 1), epoch), Some(Dialled::Up(vec![(0, 7), (1, 8)])));
        (network, epoch)
    }

    #[test]
    fn the_first_message_dials_and_waits() {
        let (network, epoch) = connected(Faults::NONE);
        assert_eq!(network.epoch(Pair::of(1, 0)), Some(epoch));
        assert_eq!(network.epoch(Pair::of(0, 2)), None);
    }

    #[test]
    fn without_faults_messages_keep_their_order() {
        let (mut network, _) = connected(Faults::NONE);
        let mut last = T;
        for n in 0..200 {
            let (Sent::Arrives { at, again: None, .. }, Some(_)) = network.send(Micros(n), 0, 1, 1) else {
                panic!("lost without a fault")
            };
            assert!(at >= last);
            last = at;
        }
    }

    #[test]
    fn loss_repetition_and_overtaking_happen_as_often_as_asked_for_until_it_is_calm() {
        let faults = Faults { loss: 100_000, duplicated: 100_000, reordered: 500_000, ..Faults::NONE };
        let (mut network, _) = connected(faults);
        let count = |network: &mut Network<u32>| {
            let (mut lost, mut again, mut overtaken, mut last) = (0, 0, 0, T);
            for n in 0..10_000 {
                match network.send(Micros(n * 10), 0, 1, 1).0 {
                    Sent::Lost => lost += 1,
                    Sent::Arrives { at, again: second, .. } => {
                        again += u32::from(second.is_some());
                        overtaken += u32::from(at < last);
                        last = at;
                    }
                    other => panic!("{other:?}"),
                }
            }
            (lost, again, overtaken)
        };
        let (lost, again, overtaken) = count(&mut network);
        assert!(
            (800..1_200).contains(&lost) && (700..1_100).contains(&again) && overtaken > 500,
            "{lost} {again} {overtaken}"
        );
        network.calm();
        let (lost, again, _) = count(&mut network);
        assert_eq!((lost, again), (0, 0));
    }

    #[test]
    fn a_one_way_cut_lets_messages_in_but_not_out_and_nobody_dials_through_it() {
        let (mut network, epoch) = connected(Faults::NONE);
        network.cut(0, Cut { inside: vec![true, false, false], one_way: true });
        assert!(!network.passes(0, 1));
        assert!(network.passes(1, 0));
        let (Sent::Breaks { epoch: broken, .. }, None) = network.send(T, 0, 1, 1) else { panic!("it passed") };
        assert_eq!(broken, epoch);
        assert_eq!(network.send(T, 0, 1, 1), (Sent::Lost, None));
        assert_eq!(network.broken(Pair::of(0, 1), epoch), Some(vec![0]));
        assert_eq!(network.broken(Pair::of(0, 1), epoch), None);
        let (Sent::Dials { epoch, .. }, None) = network.send(T, 1, 0, 1) else { panic!("no dial") };
        assert_eq!(network.dialled(Pair::of(0, 1), epoch), Some(Dialled::Failed(vec![1])));
        network.heal(0);
        assert!(network.passes(0, 1));
    }

    #[test]
    fn a_crashed_node_says_nothing_and_its_peers_find_out() {
        let (mut network, epoch) = connected(Faults::NONE);
        let (Sent::Dials { epoch: dial, .. }, None) = network.send(T, 0, 2, 5) else { panic!("no dial") };
        assert_eq!(network.send(T, 2, 0, 6), (Sent::Waits, None));
        assert_eq!(network.crash(0), [(Pair::of(0, 1), epoch)]);
        assert_eq!(network.dialled(Pair::of(0, 2), dial), Some(Dialled::Failed(vec![2])));
        assert_eq!(network.restart(0), [(Pair::of(0, 1), epoch)]);
        assert!(network.passes(0, 1));
    }

    fn regional(nat: u32) -> Network<u32> {
        let millis = Micros::millis;
        let regions = Regions {
            codes: vec!["eu".to_owned(), "us".to_owned()],
            shares: vec![1, 1],
            latency: vec![vec![millis(10), millis(50)], vec![millis(50), millis(20)]],
            spread: 400,
            nat: souk_protocol::Ppm(nat),
        };
        let home = |node| [Some(0), Some(0), Some(1)].get(node).copied().flatten();
        Network::of(1, 3, Faults::NONE, &Latency::Regions(Arc::new(regions)), home)
    }

    #[test]
    fn messages_take_as_long_as_the_regions_of_their_ends_are_apart() {
        let mut network = regional(0);
        let medians = [(0, 1, 10), (0, 2, 50)].map(|(a, b, ms)| {
            assert_eq!(network.distance(Pair::of(a, b)), Micros::millis(ms));
            let mut times: Vec<_> = (0..2_001).map(|_| network.throw(Micros::millis(ms)).0 / 1_000).collect();
            times.sort_unstable();
            times[1_000]
        });
        assert!((9..=10).contains(&medians[0]) && (47..=52).contains(&medians[1]), "{medians:?}");
    }

    #[test]
    fn nodes_behind_nat_are_reached_later_and_some_of_them_only_by_a_relay() {
        let dial = |network: &mut Network<u32>| match network.send(T, 0, 1, 1).0 {
            Sent::Dials { at, .. } => at,
            other => panic!("{other:?}"),
        };
        let (open, hidden) = (dial(&mut regional(0)), dial(&mut regional(1_000_000)));
        assert!(hidden.0 > 3 * open.0 / 2, "{open} {hidden}");
        let mut network = regional(1_000_000);
        for _ in 0..1_000 {
            let Link::Up(up) = network.connect(1, Pair::of(0, 1)) else { panic!("not up") };
            assert!([10, 20].map(Micros::millis).contains(&up.distance));
        }
        let (made, relayed) = network.connections_made();
        assert!(made == 1_000 && (250..350).contains(&relayed), "{relayed}");
    }
}
