//! What the schema has and this version can't do yet.

use souk_protocol::{Bytes, Celsius, MilliWatts, Ppm};

use super::{MAX_PATTERNS, Role, pricing, share, tree::Reader};

/// Most kinds of GPUs and of alerts.
const MAX_ITEMS: usize = 64;
const ALERTS: [&str; 7] = ["offline", "job-failed", "gpu-xid", "gpu-temp", "disk-low", "no-bids", "clock-skew"];

/// Something a node file asks for that this version can't do yet.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    /// The field.
    pub path: String,
    /// Its line.
    pub line: Option<u32>,
    /// For people: "not available yet: availability windows".
    pub text: String,
    /// Whether a node with it refuses to start: ignoring it would harm the owner.
    pub refused: bool,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.text)?;
        if self.refused { f.write_str(" (a node with it refuses to start; take it out)") } else { Ok(()) }
    }
}

/// Judges the fields that nothing uses yet.
pub(super) fn read_rest(r: &mut Reader) {
    offer(r);
    let _ = r.word("workloads.network", &["none", "allowlist", "open"]);
    let _ = r.texts("workloads.deny_images", MAX_PATTERNS);
    let _ = share(r, "workloads.min_reliability_of_renter");
    let _ = r.word("engine.kind", &["auto", "docker", "podman", "kubernetes", "none"]);
    let _ = r.text("engine.socket");
    let _ = r.text("engine.runtime");
    let _: Option<MilliWatts> = r.parse_field("limits.gpu_power");
    let _: Option<Celsius> = r.parse_field("limits.gpu_temp.throttle");
    let _: Option<Celsius> = r.parse_field("limits.gpu_temp.stop");
    let _: Option<Bytes> = r.parse_field("limits.disk_free");
    let _ = r.word("limits.on_battery", &["pause", "run"]);
    alerts(r);
}

fn offer(r: &mut Reader) {
    if r.is_list("offer.gpus") {
        let _ = r.texts("offer.gpus", MAX_ITEMS);
    } else {
        let _ = r.word("offer.gpus", &["all", "none"]);
    }
    if r.is_number("offer.slots") {
        let _ = r.whole("offer.slots", 1..=100_000);
    } else {
        let _ = r.word("offer.slots", &["auto"]);
    }
}

fn alerts(r: &mut Reader) {
    if let Some(url) = r.text("alerts.webhook")
        && !url.starts_with("https://")
    {
        r.error("alerts.webhook", "not an https address", Some("e.g. \"https://hooks.example/abc\""));
    }
    for text in r.texts("alerts.on", MAX_ITEMS).unwrap_or_default() {
        let (kind, after) = text.split_once('>').map_or((text.as_str(), None), |(kind, after)| (kind, Some(after)));
        if !ALERTS.contains(&kind) {
            r.error("alerts.on", format!("{text:?} is no alert"), Some(&format!("one of {}", ALERTS.join(", "))));
        } else if let Some(Err(error)) = after.map(str::parse::<souk_protocol::Millis>) {
            r.error("alerts.on", format!("{text:?}: {}", error.detail()), None);
        }
    }
}

/// What the file asks for and is not built, in the order of its sections.
pub(super) fn list(r: &mut Reader, role: Role) -> Vec<Missing> {
    let mut found = Vec::new();
    let mut add = |r: &Reader, path: &str, what: &str, refused: bool| {
        if r.has(path) {
            let text = format!("not available yet: {what}");
            found.push(Missing { path: path.to_owned(), line: r.line(path), text, refused });
        }
    };
    add(r, "network.max_up", "an upload limit", true);
    if !r.says("offer.gpus", "none") {
        add(r, "offer.gpus", "selling GPUs, only processors and memory are sold", false);
    }
    if !r.says("offer.slots", "auto") {
        add(r, "offer.slots", "a fixed number of slots", role.sells());
    }
    if pricing::has_gpus(r) {
        add(r, "pricing", "prices of GPUs, none are sold", false);
    }
    add(r, "availability.require_idle", "waiting for an idle machine", role.sells());
    if r.lists("workloads.runtimes", "oci") {
        add(r, "workloads.runtimes", "containers, only wasm is sold", false);
    }
    if !r.says("workloads.network", "none") {
        add(r, "workloads.network", "network access of tasks, none have it", false);
    }
    add(r, "workloads.deny_images", "containers, so no image runs anyway", false);
    let reliability = "workloads.min_reliability_of_renter";
    if !r.is_zero(reliability) {
        add(r, reliability, "judging renters by reliability", role.sells());
    }
    if !r.says("engine.kind", "none") {
        add(r, "engine.kind", "container engines", false);
    }
    add(r, "engine.socket", "container engines", false);
    add(r, "engine.runtime", "container engines", false);
    for (field, what) in [
        ("gpu_power", "a power limit of GPUs"),
        ("gpu_temp", "temperature limits of GPUs"),
        ("disk_free", "a limit on free disk"),
        ("on_battery", "pausing on battery"),
    ] {
        add(r, &format!("limits.{field}"), what, role.sells());
    }
    add(r, "alerts", "alerts", true);
    found
}

impl Reader {
    /// Whether a field is given with exactly this text.
    fn says(&self, path: &str, word: &str) -> bool {
        self.given(path).is_some_and(|value| *value == super::tree::Value::Text(word.to_owned()))
    }

    fn lists(&self, path: &str, word: &str) -> bool {
        let word = super::tree::Value::Text(word.to_owned());
        matches!(self.given(path), Some(super::tree::Value::List(items)) if items.contains(&word))
    }

    fn is_list(&self, path: &str) -> bool {
        matches!(self.given(path), Some(super::tree::Value::List(_)))
    }

    fn is_number(&self, path: &str) -> bool {
        matches!(self.given(path), Some(super::tree::Value::Number(_)))
    }

    /// Whether a share is given as nothing.
    fn is_zero(&self, path: &str) -> bool {
        match self.given(path) {
            Some(super::tree::Value::Text(text) | super::tree::Value::Number(text)) => text.parse() == Ok(Ppm::ZERO),
            _ => false,
        }
    }
}
