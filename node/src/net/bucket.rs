//! A token bucket: how often something may happen, and how often at once.

use std::time::Duration;

use tokio::time::Instant;

/// Tokens refill steadily up to a burst; each event takes one.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    per_second: f64,
    burst: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(per_second: u32, burst: u32, now: Instant) -> Self {
        let burst = f64::from(burst.max(1));
        Self { per_second: f64::from(per_second.max(1)), burst, tokens: burst, at: now }
    }

    /// A full bucket that refills over a minute.
    pub(super) fn per_minute(count: u32, now: Instant) -> Self {
        let burst = f64::from(count.max(1));
        Self { per_second: burst / 60.0, burst, tokens: burst, at: now }
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * self.per_second).min(self.burst);
        self.at = now;
    }

    /// Takes a token, or says there is none.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return true;
        }
        false
    }

    /// Takes a token in any case and says how long to wait until it is covered.
    pub(super) fn take_later(&mut self, now: Instant) -> Option<Duration> {
        self.refill(now);
        self.tokens -= 1.0;
        if self.tokens >= 0.0 {
            return None;
        }
        Some(Duration::from_secs_f64(-self.tokens / self.per_second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_then_steady_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 5, start);
        assert_eq!((0..20).filter(|_| bucket.take(start)).count(), 5);
        let later = start + Duration::from_millis(300);
        assert_eq!((0..20).filter(|_| bucket.take(later)).count(), 3);
        let much_later = start + Duration::from_secs(3_600);
        assert_eq!((0..20).filter(|_| bucket.take(much_later)).count(), 5);
    }

    #[test]
    fn waiting_time_covers_the_debt() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10, 1, start);
        assert_eq!(bucket.take_later(start), None);
        assert_eq!(bucket.take_later(start), Some(Duration::from_millis(100)));
        assert_eq!(bucket.take_later(start + Duration::from_millis(100)), Some(Duration::from_millis(100)));
    }
}
