use souk_protocol::{Bytes, Capacity, List, MilliCpu, PriceList, Runtime, Text};

use super::*;
use crate::testing::{job_spec, offer};

const NOW: Timestamp = Timestamp(crate::testing::WALL);

struct Case {
    offer: Offer,
    spec: souk_protocol::JobSpec,
    known: Known,
    open: bool,
    budget: Option<Credits>,
}

impl Case {
    fn new() -> Self {
        Self { offer: offer(), spec: job_spec(), known: Known::default(), open: false, budget: None }
    }

    fn misses(&self) -> Vec<Miss> {
        let params = Params::default();
        let demand = Demand {
            requirement: &self.spec.requirement,
            terms: &self.spec.terms,
            market: &self.spec.market,
            sla: &self.spec.sla,
            params: &params,
            open: self.open,
            budget: self.budget,
        };
        let first = eligible(&self.offer, &demand, &self.known, NOW);
        let misses = misses(&self.offer, &demand, &self.known, NOW);
        assert_eq!(first.is_ok(), misses.is_empty());
        misses
    }

    /// The only miss after a change: code, text, nearest, soft.
    fn only(change: impl FnOnce(&mut Self)) -> (&'static str, String, String, bool) {
        let mut case = Self::new();
        change(&mut case);
        let [miss] = <[Miss; 1]>::try_from(case.misses()).unwrap_or_else(|misses| panic!("{misses:?}"));
        (miss.code, miss.text, miss.nearest, miss.soft)
    }
}

fn miss(code: &'static str, text: &str, nearest: &str, soft: bool) -> (&'static str, String, String, bool) {
    (code, text.to_owned(), nearest.to_owned(), soft)
}

#[test]
fn an_offer_that_meets_everything_misses_nothing() {
    assert_eq!(Case::new().misses(), []);
}

#[test]
fn each_constraint_says_what_is_asked_and_how_near_the_offer_came() {
    assert_eq!(
        Case::only(|c| c.offer.expires = Timestamp(NOW.0 - 5_000)),
        miss("expired", "a live offer", "ended 5s ago", false)
    );
    assert_eq!(Case::only(|c| c.offer.tiers = List::default()), miss("tier", "tier bronze", "serves nothing", false));
    assert_eq!(
        Case::only(|c| c.offer.runtimes = List::try_from(vec![Runtime::Oci]).unwrap()),
        miss("runtime", "runtime wasm", "runs oci", false)
    );
    assert_eq!(
        Case::only(|c| c.offer.isolation = List::try_from(vec![Isolation::C1]).unwrap()),
        miss("isolation", "isolation W0", "has C1", false)
    );
    assert_eq!(
        Case::only(
            |c| c.spec.requirement.regions = List::try_from(vec![Text::clipped("fr"), Text::clipped("se")]).unwrap()
        ),
        miss("region", "region fr, se", "in DE", false)
    );
    assert_eq!(
        Case::only(|c| c.spec.requirement.memory = Bytes(16_000_000_000)),
        miss("memory", "memory >= 16 GB", "largest 8 GB", false)
    );
    assert_eq!(Case::only(|c| c.spec.requirement.cpu = MilliCpu(8_000)), miss("cpu", "cpu >= 8", "largest 4", false));
    assert_eq!(
        Case::only(|c| c.spec.requirement.disk = Bytes(500_000_000_000)),
        miss("disk", "disk >= 500 GB", "largest 100 GB", false)
    );
    assert_eq!(
        Case::only(|c| c.offer.free = Capacity { cpu: MilliCpu(500), ..c.offer.free }),
        miss("no-capacity", "a free slot", "free 0.5 cores, 8 GB, 100 GB disk", true)
    );
    assert_eq!(
        Case::only(|c| c.spec.market.max_rate = Some(Rate(250_000))),
        miss("price", "at most 0.25 CR/h", "0.30 CR/h", false)
    );
    assert_eq!(
        Case::only(|c| c.budget = Some(Credits(4_999))),
        miss("budget", "a whole attempt of 1m within the budget", "it may cost 0.0050 CR, left 0.0050 CR", false)
    );
    assert_eq!(
        Case::only(|c| c.offer.max_duration = Millis(30_000)),
        miss("duration", "attempts of up to 1m", "longest 30s", false)
    );
    assert_eq!(
        Case::only(|c| c.offer.stranger_limit = Credits(4_999)),
        miss(
            "no-credit",
            "credit for 0.0050 CR (one attempt: the rate times the timeout)",
            "a stranger may owe 0.0050 CR",
            true
        )
    );
    assert_eq!(Case::only(|c| c.offer.ask = None), miss("no-ask", "a standing ask", "only bids", true));
    assert_eq!(
        Case::only(|c| c.spec.market.deny = vec![c.offer.provider]),
        miss("denied", "not on the deny list", "denied", false)
    );
    assert_eq!(
        Case::only(|c| c.spec.market.allow = vec![NodeId([0; 32])]),
        miss("not-allowed", "on the allow list", "not allowed", false)
    );
}

#[test]
fn latency_is_measured_and_never_claimed() {
    let unmeasured = Case::only(|c| c.spec.sla.latency = Some(Millis(50)));
    assert_eq!(unmeasured, miss("latency", "round trip of at most 50ms", "not measured yet", true));
    let far = Case::only(|c| {
        c.spec.sla.latency = Some(Millis(50));
        c.known.rtt = Some(Millis(51));
    });
    assert_eq!(far, miss("latency", "round trip of at most 50ms", "measured 51ms", false));
    let mut near = Case::new();
    near.spec.sla.latency = Some(Millis(50));
    near.known.rtt = Some(Millis(50));
    assert_eq!(near.misses(), []);
}

#[test]
fn more_than_bronze_needs_a_record_or_somebody_who_vouches() {
    let silver = |c: &mut Case| {
        c.spec.terms.tier = Tier::Silver;
        c.offer.tiers = List::try_from(vec![Tier::Silver]).unwrap();
    };
    assert_eq!(Case::only(silver).0, "unrated");
    for vouch in [
        (|c: &mut Case| c.open = true) as fn(&mut Case),
        |c| c.spec.market.allow = vec![c.offer.provider],
        |c| c.known.reliability = Some(Ppm(1)),
    ] {
        let mut case = Case::new();
        silver(&mut case);
        vouch(&mut case);
        assert_eq!(case.misses(), []);
    }
    let short = Case::only(|c| {
        c.spec.sla.reliability = Some(Ppm(950_000));
        c.known.reliability = Some(Ppm(949_999));
    });
    assert_eq!(short.0, "reliability");
}

#[test]
fn hard_misses_come_before_soft_ones() {
    let mut case = Case::new();
    case.offer.free = Capacity::default();
    case.offer.tiers = List::default();
    let params = Params::default();
    let demand = Demand {
        requirement: &case.spec.requirement,
        terms: &case.spec.terms,
        market: &case.spec.market,
        sla: &case.spec.sla,
        params: &params,
        open: false,
        budget: None,
    };
    assert_eq!(eligible(&case.offer, &demand, &case.known, NOW).unwrap_err().code, "tier");
}

#[test]
fn isolation_classes_replace_only_weaker_ones_of_their_kind() {
    let stronger: Vec<_> =
        Isolation::ALL.iter().filter(|have| isolates(**have, Isolation::C1)).map(|c| c.word()).collect();
    assert_eq!(stronger, ["C1", "C2", "V1"]);
    assert!(!isolates(Isolation::C1, Isolation::W0) && !isolates(Isolation::W0, Isolation::C1));
    assert!(isolates(Isolation::G2, Isolation::G1) && !isolates(Isolation::G1, Isolation::G2));
}

#[test]
fn prices_are_exact() {
    // Case M8: 0.002 and 0.008 CR an hour, exact to the micro-credit, no floats anywhere.
    let mut case = Case::new();
    case.offer.ask = Some(PriceList { cpu: Rate(2_000), memory_gb: Rate(8_000) });
    let rate = ask(&case.offer, &case.spec.requirement).unwrap();
    assert_eq!(rate, Rate(10_000));
    assert_eq!(rate.charge(Millis(44_095)), Some(Credits(123)));
    assert_eq!(rate.to_string(), "0.010000 CR/h");
}
