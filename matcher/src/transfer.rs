//! How long moving data may take before whoever waits for it gives up.

use souk_protocol::Millis;

/// The slowest rate at which inputs and outputs are expected to move, in bytes a millisecond: 256 kB a second.
const SLOWEST_FETCH: u64 = 256;

/// Time for `bytes` to be fetched, on top of `grace` for a connection that breaks and comes back.
pub(crate) fn allowance(grace: Millis, bytes: u64) -> Millis {
    grace.saturating_add(Millis(bytes.div_ceil(SLOWEST_FETCH)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_grows_with_the_bytes_and_never_wraps() {
        assert_eq!(allowance(Millis(60_000), 0), Millis(60_000));
        // A gigabyte at 256 kB a second: 65 minutes.
        assert_eq!(allowance(Millis(60_000), 1_000_000_000), Millis(60_000 + 3_906_250));
        assert_eq!(allowance(Millis(60_000), 1), Millis(60_001));
        assert_eq!(allowance(Millis::MAX, u64::MAX), Millis::MAX);
    }
}
