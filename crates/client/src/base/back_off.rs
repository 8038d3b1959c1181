//! Pauses between attempts.

use std::time::Duration;

/// Pauses that double from `first` to `longest`. Each varies by half, so that clients that lost the same server come
/// back at different times.
pub(crate) struct BackOff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl BackOff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// The next pause is the first again.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }

    pub(crate) async fn pause(&mut self) {
        self.pause_within(Duration::MAX).await;
    }

    /// The same, but at most this long, before it varies.
    pub(crate) async fn pause_within(&mut self, longest: Duration) {
        let pause = self.next.min(longest).mul_f64(0.5 + crate::base::random::fraction());
        self.next = (self.next * 2).min(self.longest);
        tokio::time::sleep(pause).await;
    }
}
