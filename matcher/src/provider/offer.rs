//! What the network is told of this node: fresh offers, not too often.

use souk_protocol::{Capacity, List, Millis, OFFER_LIFE, Offer, PriceList};

use crate::{
    context::Context,
    desk::Desk,
    event::{Output, Policy},
};

/// Shortest time between two offers because of a changed free capacity.
const CHANGE_WAIT: Millis = Millis(2_000);

/// Shortest time between two offers because of a changed price.
const PRICE_WAIT: Millis = Millis(60_000);

/// When an offer was last made and what it said.
#[derive(Debug, Default)]
pub(super) struct Offers {
    sequence: u64,
    last: Option<(Millis, Capacity, Option<PriceList>)>,
}

impl Offers {
    /// When the next offer is due.
    pub(super) fn due(&self, desk: &Desk, draining: bool) -> Option<Millis> {
        if sells_nothing(desk) || draining {
            return None;
        }
        let Some((at, free, asks)) = self.last else { return Some(Millis::ZERO) };
        let wait = if free != desk.free() {
            CHANGE_WAIT
        } else if asks != desk.asks() {
            PRICE_WAIT
        } else {
            Millis(OFFER_LIFE.0 >> 1)
        };
        Some(at.saturating_add(wait))
    }

    /// Makes an offer if one is due.
    pub(super) fn refresh(&mut self, desk: &mut Desk, draining: bool, cx: &mut Context<'_>) {
        if self.due(desk, draining).is_some_and(|due| due <= cx.now.mono) {
            self.announce(desk, draining, cx);
        }
    }

    /// Makes an offer now. One that sells nothing replaces the one before; if there was none, nothing is said.
    pub(super) fn announce(&mut self, desk: &mut Desk, draining: bool, cx: &mut Context<'_>) {
        let nothing = sells_nothing(desk);
        if nothing && self.last.is_none() {
            return;
        }
        let free = if draining || nothing { Capacity::default() } else { desk.free() };
        // One that has stopped selling has no room that could come free: nobody is to wait for it.
        let sold = |policy: &Policy| if draining || nothing { Capacity::default() } else { policy.total };
        let asks = desk.asks();
        // The wall clock makes it rise over restarts, the count where the clock stands still.
        self.sequence = self.sequence.saturating_add(1).max(cx.now.wall.0);
        let life = cx.now.wall.saturating_add(OFFER_LIFE);
        // While it is open an offer ends with the owner's hours.
        let expires = if draining { life } else { life.min(desk.open_until().max(cx.now.wall)) };
        let Some(policy) = desk.policy() else { return };
        let offer = Offer {
            provider: cx.me(),
            network: cx.settings.network,
            sequence: self.sequence,
            issued: cx.now.wall,
            expires,
            name: policy.name.clone(),
            region: policy.region.clone(),
            total: sold(policy),
            free,
            gpus: List::default(),
            runtimes: first(&policy.runtimes),
            isolation: first(&policy.isolation),
            tiers: first(&policy.tiers),
            ask: asks.filter(|_| policy.standing && !draining),
            max_duration: policy.max_duration,
            notice: policy.notice,
            interruptions: desk.interruptions(),
            stranger_limit: policy.stranger_limit,
            strangers_limit: policy.strangers_limit,
            addresses: first(&policy.addresses),
        };
        let Some(signed) = cx.sign(&offer) else { return };
        if let Some(asks) = offer.ask {
            desk.remember_offer(signed.hash(), asks, expires, cx.now.wall);
        }
        self.last = (!nothing).then_some((cx.now.mono, free, asks));
        cx.out.push(Output::Offer(signed));
    }
}

/// Whether there is nothing to tell others of.
fn sells_nothing(desk: &Desk) -> bool {
    desk.total() == Capacity::default() || desk.policy().is_none_or(|policy| policy.own_only)
}

/// As many as an offer can name.
fn first<T: Clone, const N: usize>(items: &[T]) -> List<T, N> {
    List::try_from(items.iter().take(N).cloned().collect::<Vec<_>>()).unwrap_or_default()
}
