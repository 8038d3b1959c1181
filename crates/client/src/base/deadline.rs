//! How long a caller waits.

use std::time::Duration;

use dlock_wire::names::BLOCK_MAX_MS;
use tokio::time::Instant;

use crate::base::clock::millis;

/// When a caller stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// It does not wait.
    Now,
    /// It waits until then.
    At(Instant),
    /// It waits forever.
    Never,
}

impl Deadline {
    /// That long from now.
    pub fn after(time: Duration) -> Self {
        // Beyond the range of tokio's clock there is no deadline.
        Instant::now().checked_add(time).map_or(Self::Never, Self::At)
    }

    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::Now => true,
            Self::At(end) => end <= Instant::now(),
            Self::Never => false,
        }
    }

    /// This deadline, but not later than `time` from now.
    pub(crate) fn within(self, time: Duration) -> Instant {
        let soon = Instant::now() + time;
        match self {
            Self::At(end) => end.min(soon),
            Self::Now | Self::Never => soon,
        }
    }

    /// The rest as an argument of BLOCK, at most `longest`.
    pub(crate) fn block_ms(self, longest: Duration) -> u64 {
        match self {
            Self::Now => 1,
            Self::At(end) => {
                millis(end.saturating_duration_since(Instant::now()).min(longest)).max(1)
            }
            Self::Never => millis(longest).clamp(1, BLOCK_MAX_MS),
        }
    }
}
