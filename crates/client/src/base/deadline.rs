//! How long a caller waits.

use std::time::Duration;

use crate::base::clock::Moment;

/// When a caller stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// It does not wait.
    Now,
    /// It waits until then.
    At(Moment),
    /// It waits forever.
    Never,
}

impl Deadline {
    /// That long from now.
    pub fn after(time: Duration) -> Self {
        match Moment::now().after(time) {
            // Beyond the range of the clock.
            Moment::NEVER => Self::Never,
            end => Self::At(end),
        }
    }

    /// When that is.
    pub(crate) fn end(self) -> Moment {
        match self {
            Self::Now => Moment::now(),
            Self::At(end) => end,
            Self::Never => Moment::NEVER,
        }
    }

    pub(crate) fn is_over(self) -> bool {
        self.end() <= Moment::now()
    }

    /// How much time is left, but not more than `time`.
    pub(crate) fn within(self, time: Duration) -> Duration {
        match self {
            Self::At(end) => end.since(Moment::now()).min(time),
            Self::Now | Self::Never => time,
        }
    }
}
