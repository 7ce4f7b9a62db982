//! `[resources]`.

use super::runtime::ProgramKind;
use super::{optional, ruled};
use crate::gpu::GpuRequest;
use crate::grammar::Range;
use crate::job_file::sections::{DataPlacement, ResourcesSection};
use crate::job_file::tree::Node;
use crate::job_file::walk::{Field, Fields, Walk};
use crate::job_file::{limits, words};
use crate::terms::Isolation;
use crate::units::Bytes;

pub(in crate::job_file) fn resources(
    walk: &mut Walk,
    root: &mut Fields<'_>,
    program: Option<ProgramKind>,
) -> ResourcesSection {
    let mut fields = root.section(walk, "resources");
    let gpu = optional(walk, &mut fields, "gpu", |walk, field| Some(gpus(walk, field))).unwrap_or_default();
    let cpu = optional(walk, &mut fields, "cpu", |walk, field| {
        walk.parse_with(field, |text| Range::parse_from(text, limits::DEFAULT_CPU))
    });
    let memory = optional(walk, &mut fields, "memory", |walk, field| size(walk, field, limits::DEFAULT_MEMORY));
    let disk = optional(walk, &mut fields, "disk", |walk, field| size(walk, field, limits::DEFAULT_DISK));
    let region = optional(walk, &mut fields, "region", |walk, field| Some(regions(walk, field))).unwrap_or_default();
    let isolation = isolation(walk, &mut fields, program, !gpu.is_empty());
    let data = optional(walk, &mut fields, "data", |walk, field| walk.choice(field, DataPlacement::ALL));
    if program == Some(ProgramKind::Wasm) && !gpu.is_empty() {
        walk.error_at("resources.gpu", "a wasm module can't use a GPU", "use an image, or leave gpu out");
    }
    if program == Some(ProgramKind::Wasm)
        && let Some(asked) = memory.map(|memory| memory.lo).filter(|asked| *asked > limits::MAX_WASM_MEMORY)
    {
        let problem =
            format!("{asked} is more than a wasm module can have: at most 4 GiB ({} bytes)", limits::MAX_WASM_MEMORY.0);
        walk.error_at("resources.memory", problem, "ask for at most 4GiB, or use an image");
    }
    fields.finish(walk);
    ResourcesSection {
        gpu,
        cpu: cpu.unwrap_or(Range::at_least(limits::DEFAULT_CPU)),
        memory: memory.unwrap_or(Range::at_least(limits::DEFAULT_MEMORY)),
        disk: disk.unwrap_or(Range::at_least(limits::DEFAULT_DISK)),
        region,
        isolation,
        data: data.unwrap_or(DataPlacement::Any),
    }
}

fn size(walk: &mut Walk, field: &Field<'_>, lowest: Bytes) -> Option<Range<Bytes>> {
    walk.parse_with(field, |text| Range::parse_from(text, lowest))
}

fn gpus(walk: &mut Walk, field: &Field<'_>) -> Vec<GpuRequest> {
    if !matches!(field.tree.node, Node::List(_)) {
        return walk.parse(field).into_iter().collect();
    }
    let items = walk.list(field, limits::GPU_ALTERNATIVES);
    if items.is_empty() {
        walk.error_hint(field, "an empty list asks for nothing", "leave it out");
    }
    items.iter().filter_map(|item| walk.parse(item)).collect()
}

fn regions(walk: &mut Walk, field: &Field<'_>) -> Vec<String> {
    let items = match field.tree.node {
        Node::List(_) => walk.list(field, limits::REGIONS),
        _ => vec![field.clone()],
    };
    let mut regions: Vec<String> = Vec::new();
    for item in items {
        let Some(name) = ruled(walk, &item, words::region) else { continue };
        let name = name.to_ascii_lowercase();
        if regions.contains(&name) {
            walk.error_hint(&item, "named twice", "keep one");
        } else {
            regions.push(name);
        }
    }
    regions
}

fn isolation(walk: &mut Walk, fields: &mut Fields<'_>, program: Option<ProgramKind>, gpu: bool) -> Isolation {
    let is_wasm = program == Some(ProgramKind::Wasm);
    let default = match (is_wasm, gpu) {
        (true, _) => Isolation::W0,
        (false, false) => Isolation::C1,
        (false, true) => Isolation::G1,
    };
    let Some(field) = fields.take(walk, "isolation") else { return default };
    let Some(class) = walk.choice(&field, Isolation::ALL) else { return default };
    if is_wasm && class != Isolation::W0 {
        walk.error_hint(&field, "a wasm module runs in class W0", "leave isolation out");
    } else if program == Some(ProgramKind::Image) && class == Isolation::W0 {
        walk.error_hint(&field, "class W0 is for wasm modules", "C1, C2 or V1, with a GPU also G1 or G2");
    } else if matches!(class, Isolation::G1 | Isolation::G2) && !gpu {
        walk.error_hint(&field, format!("class {class} is for GPUs"), "add gpu, or use C1, C2 or V1");
    }
    class
}
