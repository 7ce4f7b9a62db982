//! What the owner of this machine asks: its price, what came in, why it does not sell.

use std::collections::BTreeMap;

use axum::{Json, extract::Query};
use serde::Deserialize;
use souk_matcher::{HourSum, Provider, Reason, Trader, calendar::Calendar, core_time};
use souk_protocol::{Credits, MilliCpu, Millis, Ppm, Timestamp};

use super::{App, error::ApiError};
use crate::view::{Day, Earnings, NodePrice};

/// Most days of earnings: those of which the hours are kept.
const MAX_DAYS: u32 = 31;
const DAY: Millis = Millis::from_hours(24);

/// Whether this node takes work now, and why not or what it did not take.
pub(super) fn why(provider: &Provider, now: Timestamp) -> (bool, Vec<Reason>) {
    let desk = provider.desk();
    let sells = !provider.capacity().total.cpu.is_zero();
    let mut because = provider.why();
    if let Some(policy) = desk.policy().filter(|_| desk.is_shut()) {
        let zone = policy.calendar.zone();
        let opens = policy.calendar.next_open(now).map(|next| format!("opens at {}", zone.show(next)));
        let text = format!("closed by the calendar: {}", policy.calendar.why(now));
        because.insert(0, Reason { code: "hours".to_owned(), text, count: 1, nearest: opens });
    }
    (sells && !provider.is_draining() && !provider.is_paused() && !desk.is_shut(), because)
}

/// `GET /v1/node/price`
pub(super) async fn price(axum::extract::State(state): App) -> Result<Json<NodePrice>, ApiError> {
    let now = state.node.market().now();
    let look = move |trader: &Trader| {
        let desk = trader.provider.desk();
        let (policy, made_of, suggestion) = (desk.policy()?, desk.breakdown(now)?, desk.suggestion()?);
        let view =
            NodePrice::new(&policy.pricing, policy.floor.cpu, &made_of, desk.record(), &suggestion, (now.wall, true));
        Some(view)
    };
    let price = state.node.market().with(look).await?;
    price.map(Json).ok_or_else(|| ApiError::missing("this node sells nothing").hint("its role is to buy only"))
}

#[derive(Debug, Deserialize)]
pub(super) struct Days {
    days: Option<u32>,
}

/// `GET /v1/node/earnings`
pub(super) async fn earnings(
    axum::extract::State(state): App,
    Query(query): Query<Days>,
) -> Result<Json<Earnings>, ApiError> {
    let days = query.days.unwrap_or(7).clamp(1, MAX_DAYS);
    let now = state.node.market().now().wall;
    let look = move |trader: &Trader| {
        let calendar = trader.provider.desk().policy().map(|policy| policy.calendar.clone()).unwrap_or_default();
        let hours: Vec<(Timestamp, HourSum)> = trader.books.takings().collect();
        (calendar, trader.provider.capacity().total.cpu, hours, trader.provider.why())
    };
    let (calendar, cores, hours, missed) = state.node.market().with(look).await?;
    let days = by_day(&calendar, cores, &hours, now, days);
    let earned = days.iter().fold(Credits::ZERO, |sum, day| sum.saturating_add(day.earned));
    Ok(Json(Earnings { timezone: calendar.zone().name().to_owned(), days, earned, missed }))
}

/// The last `count` local days up to now, those without anything included.
fn by_day(
    calendar: &Calendar,
    cores: MilliCpu,
    hours: &[(Timestamp, HourSum)],
    now: Timestamp,
    count: u32,
) -> Vec<Day> {
    let zone = calendar.zone();
    let from = Timestamp(now.0.saturating_sub(DAY.0.saturating_mul(u64::from(count.saturating_sub(1)))));
    let name = |at: Timestamp| zone.local(at, "%Y-%m-%d").unwrap_or_default();
    let mut days: BTreeMap<String, (HourSum, Millis)> = BTreeMap::new();
    let mut at = Timestamp(from.0.saturating_sub(DAY.0));
    let first = name(from);
    // Hour by hour: a day of the clock change has 23 or 25, and windows begin and end within hours.
    while at < now {
        let next = Timestamp((at.0 / 3_600_000).saturating_add(1).saturating_mul(3_600_000)).min(now);
        let open = calendar
            .spans(at, next)
            .iter()
            .fold(Millis::ZERO, |sum, span| sum.saturating_add(span.to.saturating_since(span.from)));
        let day = days.entry(name(at)).or_default();
        day.1 = day.1.saturating_add(open);
        at = next;
    }
    for (at, sum) in hours {
        if let Some((total, _)) = days.get_mut(&name(*at)) {
            total.earned = total.earned.saturating_add(sum.earned);
            total.billed = total.billed.saturating_add(sum.billed);
            total.unbilled = total.unbilled.saturating_add(sum.unbilled);
            total.busy = total.busy.saturating_add(sum.busy);
        }
    }
    let wanted = days.into_iter().filter(|(day, _)| *day >= first);
    wanted
        .map(|(day, (sum, open))| {
            let on_sale = u128::from(cores.0).saturating_mul(u128::from(open.0));
            let fill = sum.busy.saturating_mul(1_000_000).checked_div(on_sale);
            Day {
                day,
                earned: sum.earned,
                billed: sum.billed,
                unbilled: sum.unbilled,
                open,
                sold: core_time(sum.busy),
                fill: fill.map(|ppm| Ppm(u32::try_from(ppm).unwrap_or(u32::MAX).min(1_000_000))),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use souk_matcher::calendar::{Window, Zone};

    use super::*;

    #[test]
    fn days_are_local_and_their_fill_is_of_the_hours_on_sale() {
        let window = Window::new("mon-sun".parse().unwrap(), "22:00".parse().unwrap(), "02:00".parse().unwrap());
        let zone = Zone::named("Europe/Berlin").unwrap();
        let calendar = Calendar::new(zone, vec![window.unwrap()], Vec::new()).unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        // 23:00 of the second in Berlin, and 00:00 of the third.
        let sum = |earned, busy| HourSum { earned: Credits(earned), billed: 1, unbilled: 0, busy };
        let hours = [
            (at("2026-06-02T21:00:00Z"), sum(10, 2_000 * 3_600_000)),
            (at("2026-06-02T22:00:00Z"), sum(20, 4_000 * 3_600_000)),
        ];
        let days = by_day(&calendar, MilliCpu(4_000), &hours, at("2026-06-03T01:00:00Z"), 2);
        let found: Vec<_> =
            days.iter().map(|day| (day.day.as_str(), day.earned.0, day.open.0 / 3_600_000, day.fill)).collect();
        // The second had 00:00-02:00 and 22:00-24:00, the third 00:00-02:00 up to 03:00.
        assert_eq!(found, [("2026-06-02", 10, 4, Some(Ppm(125_000))), ("2026-06-03", 20, 2, Some(Ppm(500_000)))]);
        assert_eq!(days[1].sold, Millis::from_hours(4));
    }
}
