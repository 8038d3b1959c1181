//! How long a caller is ready to wait.

use std::time::Duration;

use dlock_wire::names::BLOCK_MAX_MS;
use tokio::time::Instant;

use crate::clock::millis;

/// How long somebody is ready to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// Until then.
    Until(Instant),
    /// As long as it takes.
    Forever,
}

impl Patience {
    pub(crate) fn of(time: Duration) -> Self {
        // Further than tokio's clock reaches is for ever.
        Instant::now().checked_add(time).map_or(Self::Forever, Self::Until)
    }

    pub(crate) fn is_over(self) -> bool {
        match self {
            Self::None => true,
            Self::Until(end) => end <= Instant::now(),
            Self::Forever => false,
        }
    }

    /// When it ends, but not after `time` from now.
    pub(crate) fn end_within(self, time: Duration) -> Instant {
        let soon = Instant::now() + time;
        match self {
            Self::Until(end) => end.min(soon),
            Self::None | Self::Forever => soon,
        }
    }

    /// As an argument of BLOCK, cut to `most`.
    pub(crate) fn block_ms(self, most: Duration) -> u64 {
        match self {
            Self::None => 1,
            Self::Until(end) => {
                millis(end.saturating_duration_since(Instant::now()).min(most)).max(1)
            }
            Self::Forever => millis(most).clamp(1, BLOCK_MAX_MS),
        }
    }
}
