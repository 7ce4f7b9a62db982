//! What the schema has and this version can't do yet: judged by `job validate`, refused by `plan` and `run`.

use serde::Serialize;

use super::JobFile;
use super::sections::{DataPlacement, InputSource, JobKind, NetworkAccess, Program};
use crate::terms::{Isolation, Pay, Verify};

/// Something a job file asks for that this version can't do yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Feature {
    /// A short name: "gpu".
    pub name: &'static str,
    /// The field that asks for it.
    pub path: String,
    /// Its line.
    pub line: Option<u32>,
    /// For people: "not available yet: GPU jobs".
    pub text: String,
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// Everything in a job file that this version can't do yet, in the order of its sections.
pub fn not_available(file: &JobFile) -> Vec<Feature> {
    let mut features = Vec::new();
    let mut add = |asked: bool, name: &'static str, path: &str, what: &str| {
        if asked {
            let text = format!("not available yet: {what}");
            features.push(Feature { name, path: path.to_owned(), line: file.line_of(path), text });
        }
    };
    let runtime = &file.runtime;
    let is_image = matches!(runtime.program, Program::Image { .. });
    add(matches!(file.kind, JobKind::Service(_)), "service", "type", "services");
    add(is_image, "image", "runtime.image", "container images, only wasm modules run");
    add(!runtime.secrets.is_empty(), "secrets", "runtime.secrets", "secrets");
    add(runtime.network != NetworkAccess::None, "network", "runtime.network", "network access of tasks");
    add(!file.resources.gpu.is_empty(), "gpu", "resources.gpu", "GPU jobs");
    let class = file.resources.isolation;
    let asked_for_class = class != Isolation::W0 && file.lines.contains_key("resources.isolation");
    add(asked_for_class, "isolation", "resources.isolation", "isolation classes other than W0");
    add(
        file.resources.data == DataPlacement::Warm,
        "data",
        "resources.data",
        "choosing providers by the data they hold",
    );
    add(file.market.pay == Pay::Metered, "metered", "market.pay", "metered pay");
    add(file.sla.near.is_some(), "near", "sla.near", "latency to another peer");
    let reruns = matches!(file.sla.verify, Verify::Spot(_) | Verify::Replicate(_));
    add(reruns, "verify", "sla.verify", "spot checks and replicas");
    add(file.array.gang, "gang", "array.gang", "gangs");
    for (index, input) in file.inputs.iter().enumerate() {
        add(input.sealed, "sealed", &format!("inputs[{index}].sealed"), "sealed inputs");
        let path = format!("inputs[{index}].source");
        add(matches!(input.source, InputSource::Https { .. }), "https", &path, "downloads as inputs");
        add(matches!(input.source, InputSource::Job { .. }), "job-input", &path, "outputs of other jobs as inputs");
    }
    add(file.checkpoint.is_some(), "checkpoint", "checkpoint", "checkpoints");
    features
}
