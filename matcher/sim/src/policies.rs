//! Names of the policies that a scenario may compare.

/// All of them. `souk` is the market: the machines of `souk-matcher` themselves.
pub(crate) const POLICIES: [&str; 1] = ["souk"];
