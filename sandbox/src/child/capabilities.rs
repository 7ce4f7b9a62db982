//! No capability survives: not in the own user namespace, where the child had all of them, and not as root.

use rustix::thread::{CapabilitySet, CapabilitySets};

use super::confine::{StepError, step};

/// Empties every capability set of this process.
pub(crate) fn drop_all() -> Result<(), StepError> {
    step("capabilities", rustix::thread::clear_ambient_capability_set())?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    // With no_new_privs set and exec not in the filter, the bounding set cannot give anything back.
    step("capabilities", rustix::thread::set_capabilities(None, none))
}
