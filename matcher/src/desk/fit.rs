//! Does it fit the machine and its owner's terms, and if not, by how much.

use souk_protocol::{Capacity, DeclineCode, Requirement};

use super::{Refusal, Wanted};
use crate::event::Policy;

/// Whether the owner's terms allow it.
pub(super) fn policy(policy: &Policy, wanted: &Wanted<'_>) -> Result<(), Refusal> {
    let need = wanted.requirement;
    if policy.deny.contains(&wanted.renter) {
        return Err(Refusal::new(DeclineCode::Denied, ""));
    }
    if !policy.runtimes.contains(&need.runtime) {
        return Err(Refusal::new(
            DeclineCode::Runtime,
            format!("runs {}, asked {}", list(&policy.runtimes), need.runtime),
        ));
    }
    if !policy.isolation.iter().any(|class| *class >= need.isolation) {
        let nearest = format!("has {}, asked {}", list(&policy.isolation), need.isolation);
        return Err(Refusal::new(DeclineCode::Isolation, nearest));
    }
    if !policy.tiers.contains(&wanted.terms.tier) {
        let nearest = format!("serves {}, asked {}", list(&policy.tiers), wanted.terms.tier);
        return Err(Refusal::new(DeclineCode::Tier, nearest));
    }
    if !need.regions.is_empty() && !need.regions.iter().any(|region| lies_in(&policy.region, region)) {
        let nearest = format!("in {}, asked {}", policy.region, list(&need.regions));
        return Err(Refusal::new(DeclineCode::Region, nearest));
    }
    if wanted.terms.timeout > policy.max_duration {
        let nearest = format!("at most {}, asked {}", policy.max_duration, wanted.terms.timeout);
        return Err(Refusal::new(DeclineCode::Duration, nearest));
    }
    if need.gpu.is_some() {
        return Err(Refusal::new(DeclineCode::TooLarge, "no GPUs are on sale"));
    }
    if need.cpu.is_zero() || need.memory.is_zero() {
        return Err(Refusal::new(DeclineCode::Terms, "a slot needs some of a core and some memory"));
    }
    Ok(())
}

/// Whether a slot fits the whole machine.
pub(super) fn size(total: &Capacity, need: &Requirement) -> Result<(), Refusal> {
    if total.slots(need) == 0 {
        return Err(Refusal::new(DeclineCode::TooLarge, nearest(total, total, need, 1)));
    }
    Ok(())
}

/// Which resource falls short first: `free 2 of 4 cores, asked 3`.
pub(super) fn nearest(total: &Capacity, free: &Capacity, need: &Requirement, slots: u32) -> String {
    let slots = u64::from(slots);
    let cpu = need.cpu.checked_mul(slots);
    if cpu.is_none_or(|cpu| cpu > free.cpu) {
        let asked = cpu.map_or_else(|| "more".to_owned(), |cpu| cpu.to_string());
        return format!("free {} of {} cores, asked {asked}", free.cpu, total.cpu);
    }
    for (what, free, total, each) in
        [("memory", free.memory, total.memory, need.memory), ("disk", free.disk, total.disk, need.disk)]
    {
        let sum = each.checked_mul(slots);
        if sum.is_none_or(|sum| sum > free) {
            let asked = sum.map_or_else(|| "more".to_owned(), |sum| sum.to_string());
            return format!("free {free} of {total} {what}, asked {asked}");
        }
    }
    format!("free {} slots, asked {slots}", free.slots(need))
}

/// Whether the place `here` is `region` or a part of it: `DE-BY` lies in `DE`.
fn lies_in(here: &str, region: &str) -> bool {
    here.strip_prefix(region).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

fn list<T: std::fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
