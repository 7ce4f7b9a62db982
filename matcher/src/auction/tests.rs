use proptest::prelude::*;
use souk_protocol::{DeclineCode, Key, Signed, Signer, Text};

use super::*;

/// As many as the network invites by default.
const MOST: usize = 16;
use crate::testing::announcement;

fn key(n: u8) -> Key {
    Key::from_seed(&[n; 32])
}

fn auction(invited: &[(u8, Option<u64>)]) -> Auction {
    let call = Signed::sign(&announcement(&key(1)), &key(1)).unwrap();
    let invited = invited.iter().map(|(n, rtt)| (key(*n).id(), rtt.map(Millis)));
    Auction::open(call, invited, Millis(1_000), Millis(30_000))
}

fn bid(auction: &Auction, n: u8, rate: u64) -> Verified<Bid> {
    let call = auction.call();
    let bid = Bid {
        announcement: call.hash(),
        renter: call.renter,
        provider: key(n).id(),
        rate: Rate(rate),
        slots: 1,
        ready_in: Millis::ZERO,
        issued: call.issued,
        valid_until: call.closes,
    };
    Signed::sign(&bid, &key(n)).unwrap()
}

fn decline() -> Decline {
    Decline { subject: Hash([0; 32]), code: DeclineCode::NoCapacity, nearest: Text::default() }
}

#[test]
fn it_closes_when_all_have_answered_or_had_their_time() {
    let mut open = auction(&[(2, Some(30)), (3, None), (4, Some(90_000))]);
    assert_eq!(open.closes_at(), Some(Millis(31_000))); // never longer than the window
    open.unreachable(&key(4).id());
    assert_eq!(open.closes_at(), Some(Millis(1_270)));
    assert!(!open.is_over(Millis(1_269)) && open.is_over(Millis(1_270)));
    open.decline(&key(3).id(), decline());
    assert_eq!(open.closes_at(), Some(Millis(1_050)));
    assert_eq!(open.bid(bid(&open, 2, 7)), Heard::Counted);
    assert!(open.is_over(Millis(1_001)));
    assert_eq!((open.silent(), open.bids().count(), open.declines().count()), (1, 1, 1));
}

#[test]
fn the_first_bid_of_a_provider_stands() {
    let mut open = auction(&[(2, None), (3, None)]);
    assert_eq!(open.bid(bid(&open, 2, 7)), Heard::Counted);
    assert_eq!(open.bid(bid(&open, 2, 7)), Heard::Ignored);
    assert_eq!(open.bid(bid(&open, 2, 6)), Heard::Contradicts);
    assert_eq!(open.bid(bid(&open, 9, 1)), Heard::Uninvited);
    open.decline(&key(2).id(), decline());
    assert_eq!(open.bids().map(|bid| bid.rate).collect::<Vec<_>>(), [Rate(7)]);
}

fn table(auction: &Auction) -> Table {
    let fits = |bid: &Bid| {
        let (provider, rate, slots) = (bid.provider, bid.rate, bid.slots);
        (rate < Rate(100)).then_some(Candidate {
            provider,
            document: Hash([0; 32]),
            rate,
            slots,
            reliability: None,
            rtt: None,
        })
    };
    Table::of(auction, fits, Millis(1_000), Loss::Tenths(5))
}

#[test]
fn the_root_covers_all_bids_and_the_table_those_that_will_do() {
    let mut open = auction(&[(2, None), (3, None), (4, None)]);
    for (n, rate) in [(2, 9), (3, 500), (4, 3)] {
        open.bid(bid(&open, n, rate));
    }
    let mut table = table(&open);
    assert_eq!(table.root(), rank::root(open.bids().map(Verified::hash)));
    assert_eq!(table.take().map(|bid| bid.rate), Some(Rate(3)));
    assert!(!table.is_used_up());
    assert_eq!(table.take().map(|bid| bid.rate), Some(Rate(9)));
    assert_eq!(table.take(), None);
    assert!(table.is_used_up());
}

fn invitee(n: u8, rate: u64, newcomer: bool) -> Invitee {
    let candidate = Candidate {
        provider: NodeId([n; 32]),
        document: Hash([n; 32]),
        rate: Rate(rate),
        slots: 1,
        reliability: None,
        rtt: None,
    };
    Invitee { candidate, newcomer, full: false }
}

#[test]
fn whoever_has_no_room_is_asked_only_where_places_are_left() {
    let full = (0..12).map(|n| Invitee { full: true, ..invitee(n, 1, false) });
    let free = (100..112).map(|n| invitee(n, 9, false));
    let chosen = invites(full.chain(free).collect(), MOST, &Hash([1; 32]), Millis(1_000), Loss::Tenths(5));
    assert_eq!(chosen.len(), MOST);
    assert_eq!(chosen.iter().filter(|id| id.0[0] >= 100).count(), 12);
}

#[test]
fn newcomers_get_a_share_of_the_invitations() {
    let known = (0..40).map(|n| invitee(n, 10, false));
    let dear = (100..140).map(|n| invitee(n, 1_000, true));
    let chosen = invites(known.chain(dear).collect(), MOST, &Hash([1; 32]), Millis(1_000), Loss::Tenths(5));
    assert_eq!(chosen.len(), MOST);
    assert_eq!(chosen.iter().filter(|id| id.0[0] >= 100).count(), NEWCOMERS);
}

proptest! {
    #[test]
    fn invitations_are_distinct_bounded_and_independent_of_the_order(
        rates in proptest::collection::vec((1u64..9, any::<bool>()), 0..60),
    ) {
        let all: Vec<_> = (0u8..).zip(&rates).map(|(n, (rate, new))| invitee(n, *rate, *new)).collect();
        let mut reversed = all.clone();
        reversed.reverse();
        let (count, seed) = (all.len(), Hash([4; 32]));
        let chosen = invites(all, MOST, &seed, Millis(1_000), Loss::Tenths(5));
        prop_assert_eq!(chosen.len(), count.min(MOST));
        let distinct: std::collections::BTreeSet<_> = chosen.iter().collect();
        prop_assert_eq!(distinct.len(), chosen.len());
        prop_assert_eq!(chosen, invites(reversed, MOST, &seed, Millis(1_000), Loss::Tenths(5)));
    }

    #[test]
    fn the_winner_does_not_depend_on_the_order_of_arrival(rates in proptest::collection::vec(1u64..5, 1..6)) {
        let ids: Vec<(u8, Option<u64>)> = (2u8..).zip(&rates).map(|(n, _)| (n, None)).collect();
        let winners = [false, true].map(|reverse| {
            let mut open = auction(&ids);
            let mut bids: Vec<_> = ids.iter().zip(&rates).map(|((n, _), rate)| bid(&open, *n, *rate)).collect();
            if reverse {
                bids.reverse();
            }
            for bid in bids {
                open.bid(bid);
            }
            let mut table = table(&open);
            (table.root(), table.take().map(|bid| bid.hash()))
        });
        prop_assert_eq!(winners[0], winners[1]);
    }
}
