//! The one place that reads the time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use souk_matcher::Now;
use souk_protocol::{Millis, Timestamp};
use tokio::time::Instant;

/// The node's clocks: the wall clock, and a monotonic one that starts with the node.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Clock {
    /// The time, twice.
    #[must_use]
    pub fn now(&self) -> Now {
        Now { wall: wall(), mono: millis(self.origin.elapsed()) }
    }

    /// When the monotonic clock will show `at`.
    #[must_use]
    pub fn instant(&self, at: Millis) -> Instant {
        self.origin + Duration::from_millis(at.0)
    }
}

/// The wall clock. Before 1970 it is 1970.
#[must_use]
pub fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(millis(since).0)
}

/// Whole milliseconds of a duration.
#[must_use]
pub fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}
