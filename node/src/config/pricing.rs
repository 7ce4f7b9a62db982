//! `[pricing]`: what work costs.

use souk_protocol::{GpuRequest, PriceList, Rate};

use super::tree::Reader;

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
