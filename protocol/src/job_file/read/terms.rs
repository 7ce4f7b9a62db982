//! `[market]`, `[sla]`, `[limits]`, `[retry]`: the terms on which a job runs.

use super::{at_most, duration, duration_or_zero, node_id, nonzero, optional, share};
use crate::grammar::{Count, GrammarError};
use crate::id::NodeId;
use crate::job_file::limits;
use crate::job_file::sections::{LimitsSection, MarketSection, RetrySection, SlaSection};
use crate::job_file::walk::{Field, Fields, Walk};
use crate::money::{Credits, Rate};
use crate::spec::RetryOn;
use crate::terms::{Local, Mode, Pay, Tier, Verify};
use crate::units::{Bytes, Millis, Ppm};

pub(in crate::job_file) fn market(walk: &mut Walk, root: &mut Fields<'_>) -> MarketSection {
    let mut fields = root.section(walk, "market");
    let tier = optional(walk, &mut fields, "tier", |walk, field| walk.choice(field, Tier::ALL)).unwrap_or(Tier::Bronze);
    let max_price = optional(walk, &mut fields, "max_price", |walk, field| {
        let rate: Rate = walk.parse(field)?;
        nonzero(walk, field, rate, rate.is_zero())
    });
    let budget = optional(walk, &mut fields, "budget", |walk, field| {
        let amount: Credits = walk.parse(field)?;
        nonzero(walk, field, amount, amount.is_zero())
    });
    let pay = optional(walk, &mut fields, "pay", |walk, field| walk.choice(field, Pay::ALL));
    let preemptible = optional(walk, &mut fields, "preemptible", |walk, field| {
        let preemptible = walk.boolean(field)?;
        if preemptible && tier == Tier::Gold {
            walk.error_hint(field, "gold is never preempted", "leave preemptible out, or use silver or bronze");
        }
        Some(preemptible)
    });
    let notice = optional(walk, &mut fields, "notice", duration_or_zero(limits::MAX_NOTICE));
    let mode = optional(walk, &mut fields, "mode", |walk, field| walk.choice(field, Mode::ALL));
    let local = optional(walk, &mut fields, "local", |walk, field| walk.choice(field, Local::ALL));
    let allow =
        optional(walk, &mut fields, "allow", |walk, field| Some(providers(walk, field, &[]))).unwrap_or_default();
    let deny =
        optional(walk, &mut fields, "deny", |walk, field| Some(providers(walk, field, &allow))).unwrap_or_default();
    fields.finish(walk);
    MarketSection {
        tier,
        max_price,
        budget,
        pay: pay.unwrap_or(Pay::Delivered),
        preemptible: preemptible.unwrap_or(tier == Tier::Bronze),
        notice: notice.unwrap_or(limits::DEFAULT_NOTICE),
        mode: mode.unwrap_or(Mode::Auto),
        local: local.unwrap_or(Local::First),
        allow,
        deny,
    }
}

fn providers(walk: &mut Walk, field: &Field<'_>, elsewhere: &[NodeId]) -> Vec<NodeId> {
    let mut list = Vec::new();
    for item in walk.list(field, limits::PROVIDERS) {
        let Some(id) = node_id(walk, &item) else { continue };
        if list.contains(&id) {
            walk.error_hint(&item, "named twice", "keep one");
        } else if elsewhere.contains(&id) {
            walk.error_hint(&item, "both allowed and denied", "keep one of the two");
        } else {
            list.push(id);
        }
    }
    list
}

pub(in crate::job_file) fn sla(walk: &mut Walk, root: &mut Fields<'_>) -> SlaSection {
    let mut fields = root.section(walk, "sla");
    let moment = |walk: &mut Walk, field: &Field<'_>| walk.parse(field);
    let start_within = optional(walk, &mut fields, "start_within", duration(limits::MAX_WAIT));
    let start_at = optional(walk, &mut fields, "start_at", moment);
    let deadline = optional(walk, &mut fields, "deadline", moment);
    let reliability = optional(walk, &mut fields, "reliability", share);
    let latency = optional(walk, &mut fields, "latency", duration(limits::MAX_LATENCY));
    let near = optional(walk, &mut fields, "near", node_id);
    let loss = optional(walk, &mut fields, "loss", |walk, field| walk.parse(field));
    let offline = optional(walk, &mut fields, "offline", duration_or_zero(limits::MAX_AWAY));
    let retention = optional(walk, &mut fields, "retention", duration(limits::MAX_AWAY));
    let verify = optional(walk, &mut fields, "verify", |walk, field| walk.parse_with(field, verification));
    let p95_latency = optional(walk, &mut fields, "p95_latency", duration(limits::MAX_LATENCY));
    let uptime = optional(walk, &mut fields, "uptime", share);
    fields.finish(walk);
    SlaSection {
        start_within,
        start_at,
        deadline,
        reliability,
        latency,
        near,
        loss,
        offline: offline.unwrap_or(Millis::ZERO),
        retention: retention.unwrap_or(limits::DEFAULT_RETENTION),
        verify: verify.unwrap_or(Verify::Telemetry),
        p95_latency,
        uptime,
    }
}

/// `none`, `telemetry`, `spot:SHARE`, `replicate:N`.
fn verification(text: &str) -> Result<Verify, GrammarError> {
    let unknown =
        |problem: &str| GrammarError::new(text, 0, problem).with_hint("one of none, telemetry, spot:0.1, replicate:2");
    match text.split_once(':') {
        None if text == "none" => Ok(Verify::None),
        None if text == "telemetry" => Ok(Verify::Telemetry),
        Some(("spot", share)) => {
            let share: Ppm = share.parse().map_err(|error: GrammarError| error.within(text, 5))?;
            if share == Ppm::ZERO { Err(unknown("a share of zero checks nothing")) } else { Ok(Verify::Spot(share)) }
        }
        Some(("replicate", number)) => {
            let Count(number) = number.parse().map_err(|error: GrammarError| error.within(text, 10))?;
            let number = u16::try_from(number).ok().filter(|number| (2..=limits::REPLICAS).contains(number));
            number.map(Verify::Replicate).ok_or_else(|| unknown("replicas go from 2 to 16"))
        }
        _ => Err(unknown("unknown word")),
    }
}

pub(in crate::job_file) fn attempt_limits(walk: &mut Walk, root: &mut Fields<'_>) -> LimitsSection {
    let mut fields = root.section(walk, "limits");
    let timeout = optional(walk, &mut fields, "timeout", duration(limits::MAX_TIMEOUT));
    let stop_grace = optional(walk, &mut fields, "stop_grace", duration_or_zero(limits::MAX_STOP_GRACE));
    let stdout = optional(walk, &mut fields, "stdout", |walk, field| {
        let size: Bytes = walk.parse(field)?;
        if size.is_zero() {
            walk.error_hint(field, "zero means nothing here", "leave the field out for 64MB");
            return None;
        }
        at_most(walk, field, size, limits::MAX_STDOUT)
    });
    fields.finish(walk);
    LimitsSection {
        timeout: timeout.unwrap_or(limits::DEFAULT_TIMEOUT),
        stop_grace: stop_grace.unwrap_or(limits::DEFAULT_STOP_GRACE),
        stdout: stdout.unwrap_or(limits::DEFAULT_STDOUT),
    }
}

pub(in crate::job_file) fn retry(walk: &mut Walk, root: &mut Fields<'_>) -> RetrySection {
    let mut fields = root.section(walk, "retry");
    let attempts = optional(walk, &mut fields, "attempts", |walk, field| walk.whole(field, 1..=limits::ATTEMPTS));
    let on = optional(walk, &mut fields, "on", |walk, field| {
        let mut ends = Vec::new();
        for item in walk.list(field, RetryOn::ALL.len()) {
            let Some(end) = walk.choice(&item, RetryOn::ALL) else { continue };
            if ends.contains(&end) {
                walk.error_hint(&item, "named twice", "keep one");
            } else {
                ends.push(end);
            }
        }
        Some(ends)
    });
    fields.finish(walk);
    RetrySection {
        attempts: attempts.unwrap_or(limits::DEFAULT_ATTEMPTS),
        on: on.unwrap_or_else(|| limits::DEFAULT_RETRY_ON.to_vec()),
    }
}
