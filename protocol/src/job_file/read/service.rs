//! `type` and `[service]`.

use super::{at_most, duration, duration_or_zero, optional, required, ruled};
use crate::grammar::{Count, Range};
use crate::job_file::sections::{JobKind, Readiness, Scaling, ScalingMetric, ServiceSection};
use crate::job_file::walk::{Field, Fields, Walk};
use crate::job_file::{limits, paths};
use crate::units::Millis;

/// `type` and, for a service, its section.
pub(in crate::job_file) fn kind(walk: &mut Walk, root: &mut Fields<'_>) -> JobKind {
    let word = optional(walk, root, "type", |walk, field| walk.choice(field, &["task", "service"])).unwrap_or("task");
    let section = root.take(walk, "service");
    match (word, section) {
        ("service", Some(field)) => {
            let stand_in =
                ServiceSection { port: 0, replicas: Range::exactly(Count(1)), scaling: None, readiness: None };
            JobKind::Service(service(walk, &field).unwrap_or(stand_in))
        }
        ("service", None) => {
            walk.error_at("service", "missing", "a service needs [service] with its port");
            JobKind::Task
        }
        (_, Some(field)) => {
            walk.error_hint(&field, "only a service has this section", "write type = \"service\"");
            JobKind::Task
        }
        (_, None) => JobKind::Task,
    }
}

fn service(walk: &mut Walk, field: &Field<'_>) -> Option<ServiceSection> {
    let mut fields = walk.fields(field)?;
    let port = required(walk, &mut fields, "port").and_then(|field| walk.whole(&field, 1..=65_535));
    let replicas: Option<Range<Count>> = optional(walk, &mut fields, "replicas", |walk, field| {
        let range: Range<Count> = walk.parse(field)?;
        let most = range.hi.unwrap_or(Count(u32::MAX));
        at_most(walk, field, most, Count(limits::SERVICE_REPLICAS)).map(|_| range)
    });
    let scaling = optional(walk, &mut fields, "scaling", |walk, field| {
        let mut fields = walk.fields(field)?;
        let metric = required(walk, &mut fields, "metric").and_then(|field| walk.choice(&field, ScalingMetric::ALL));
        let target = required(walk, &mut fields, "target").and_then(|field| walk.whole(&field, 1..=1_000_000));
        fields.finish(walk);
        Some(Scaling { metric: metric?, target: target? })
    });
    let readiness = optional(walk, &mut fields, "readiness", |walk, field| {
        let mut fields = walk.fields(field)?;
        let path = required(walk, &mut fields, "path").and_then(|field| {
            let text = ruled(walk, &field, paths::local)?;
            if !text.starts_with('/') {
                walk.error_hint(&field, "a path of a request starts with \"/\"", "e.g. \"/health\"");
                return None;
            }
            Some(text.to_owned())
        });
        let initial_delay = optional(walk, &mut fields, "initial_delay", duration_or_zero(limits::MAX_AWAY));
        let timeout = optional(walk, &mut fields, "timeout", duration(limits::MAX_LATENCY));
        fields.finish(walk);
        Some(Readiness {
            path: path?,
            initial_delay: initial_delay.unwrap_or(Millis::ZERO),
            timeout: timeout.unwrap_or(limits::DEFAULT_PROBE),
        })
    });
    fields.finish(walk);
    Some(ServiceSection {
        port: u16::try_from(port?).ok()?,
        replicas: replicas.unwrap_or(Range::exactly(Count(1))),
        scaling,
        readiness,
    })
}
