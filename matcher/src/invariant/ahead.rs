//! What holds for promises of capacity that are not due yet.

use souk_protocol::Millis;

use crate::{provider::Provider, schedule::within};

/// No reservation is ever delayed by what is sold before it: at each moment ahead all that is promised fits the machine,
/// and whatever runs ends by itself, or may be stopped with its notice, before somebody else's slots begin.
///
/// Before the owner's terms are known nothing is on sale and nothing is judged.
///
/// # Errors
/// Which promise cannot be kept.
pub fn no_reservation_delayed(provider: &Provider, now: Millis) -> Result<(), String> {
    let desk = provider.desk();
    let (total, schedule) = (desk.total(), desk.schedule());
    if desk.policy().is_none() || !provider.is_planned() {
        return Ok(());
    }
    let ahead = schedule.holds().filter(|(_, hold)| hold.from > now);
    for (lease, hold) in ahead {
        let used = schedule.used_at(hold.from);
        if !within(&used, &total) {
            return Err(format!("when lease {} begins, {used:?} are promised of {total:?}", lease.short()));
        }
    }
    match provider.outstays(now) {
        Some((lease, until)) => {
            Err(format!("lease {} has to be gone at {} ms and will not be", lease.short(), until.0))
        }
        None => Ok(()),
    }
}
