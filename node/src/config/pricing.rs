//! `[pricing]`: what work costs.

use souk_matcher::{
    calendar::{Calendar, MAX_WINDOWS, Zone},
    price::{Factor, Peak, Power, Pricing, Strategy},
};
use souk_protocol::{GpuRequest, PriceList, Rate};

use super::{availability, tree::Reader};

/// Price of a core where the file names none, in micro-credits an hour.
const CPU: (Rate, Rate) = (Rate(5_000), Rate(8_000));
/// Price of 10^9 bytes of memory where the file names none, in micro-credits an hour.
const MEMORY: (Rate, Rate) = (Rate(1_000), Rate(1_500));

/// The floor and the ask. Prices of GPUs are judged; they are not sold yet.
pub(super) fn read(r: &mut Reader) -> (PriceList, PriceList) {
    let floor =
        PriceList { cpu: rate(r, "pricing.floor.cpu", CPU.0), memory_gb: rate(r, "pricing.floor.memory_gb", MEMORY.0) };
    // Without a word of the owner, an ask is the default or the floor, whatever is more.
    let ask = PriceList {
        cpu: rate(r, "pricing.ask.cpu", CPU.1.max(floor.cpu)),
        memory_gb: rate(r, "pricing.ask.memory_gb", MEMORY.1.max(floor.memory_gb)),
    };
    for (part, ask, floor) in [("cpu", ask.cpu, floor.cpu), ("memory_gb", ask.memory_gb, floor.memory_gb)] {
        if ask < floor {
            let problem = format!("the ask is below the floor of {floor}");
            r.error(&format!("pricing.ask.{part}"), problem, Some("raise the ask or lower the floor"));
        }
    }
    for table in ["pricing.floor", "pricing.ask"] {
        gpus(r, table);
    }
    (floor, ask)
}

/// How prices move: peaks in the owner's time zone, strategy and power.
pub(super) fn moves(r: &mut Reader, zone: &Zone) -> Pricing {
    let mut peaks = Vec::new();
    for index in 0..r.tables("pricing.peak", MAX_WINDOWS) {
        peaks.extend(peak(r, &format!("pricing.peak[{index}]"), zone));
    }
    let strategy = super::or_default(r, "pricing.strategy", Strategy::default(), |r, path| {
        r.word(path, &[Strategy::Fixed, Strategy::Adaptive])
    });
    Pricing { strategy, peaks, power: power(r) }
}

fn peak(r: &mut Reader, path: &str, zone: &Zone) -> Option<Peak> {
    let window = availability::window(r, path);
    let field = format!("{path}.factor");
    let factor = r.text(&field).map(|text| text.parse::<Factor>());
    match &factor {
        Some(Err(error)) => r.error(&field, error.to_string(), None),
        None if !r.has(&field) => r.error(path, "a peak needs its factor", Some("e.g. factor = \"1.4\"")),
        _ => {}
    }
    let when = Calendar::new(zone.clone(), vec![window?], Vec::new()).ok()?;
    Some(Peak { when, factor: factor?.ok()? })
}

fn power(r: &mut Reader) -> Option<Power> {
    let price = r.parse_field("pricing.power.price");
    let per_core = r.parse_field("pricing.power.per_core");
    let never_below = r.boolean("pricing.power.never_below").unwrap_or(false);
    if r.has("pricing.power") && !r.has("pricing.power.price") {
        r.error("pricing.power", "power needs its price", Some("e.g. power = { price = \"0.31 CR/kWh\" }"));
    }
    Some(Power { price: price?, per_core, never_below })
}

fn rate(r: &mut Reader, path: &str, default: Rate) -> Rate {
    let given = r.has(path);
    if let Some(rate) = r.parse_field(path) {
        return rate;
    }
    if !given {
        r.note_default(path, format!("\"{default}\""));
    }
    default
}

/// Whether the file prices anything but processors and memory.
pub(super) fn has_gpus(r: &mut Reader) -> bool {
    ["pricing.floor", "pricing.ask"].iter().any(|table| r.keys(table).iter().any(|(key, _)| is_gpu(key)))
}

fn is_gpu(key: &str) -> bool {
    !matches!(key, "cpu" | "memory_gb")
}

fn gpus(r: &mut Reader, table: &str) {
    for (key, path) in r.keys(table).into_iter().filter(|(key, _)| is_gpu(key)) {
        if let Err(error) = key.parse::<GpuRequest>() {
            r.error(&path, format!("neither cpu, memory_gb nor a GPU: {error}"), None);
        }
        let _: Option<Rate> = r.parse_field(&path);
    }
}
