//! Time in the machine.
//!
//! There are two clocks. [`Instant`] is the server's monotonic clock, for waits (`BLOCK`). [`LeaseInstant`] is the same
//! clock without the periods in which the server refuses to change data (`CLIENT PAUSE`, `FAILOVER`). It is for leases
//! and graces: a pause delays their end by its length. They are two types, so that code cannot mix them up.

use core::ops::{Add, Sub};

/// Milliseconds in a lease, a wait or a grace.
pub type Millis = u64;

/// Microseconds in a millisecond.
const US: u64 = 1_000;

macro_rules! instant {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
        pub struct $name(pub u64);

        impl Add<Millis> for $name {
            type Output = Self;

            fn add(self, ms: Millis) -> Self {
                Self(self.0.saturating_add(ms.saturating_mul(US)))
            }
        }

        impl Sub for $name {
            /// Whole milliseconds, rounded up; 0 when `self` is not later.
            type Output = Millis;

            fn sub(self, earlier: Self) -> Millis {
                self.0.saturating_sub(earlier.0).div_ceil(US)
            }
        }
    };
}

instant! {
    /// Microseconds on the server's monotonic clock.
    Instant
}
instant! {
    /// Microseconds on the lease clock: the monotonic clock less all pauses.
    LeaseInstant
}

impl Instant {
    /// This instant, `ms` milliseconds earlier; the origin of the clock at the earliest.
    #[must_use]
    pub fn back(self, ms: Millis) -> Self {
        Self(self.0.saturating_sub(ms.saturating_mul(US)))
    }
}

/// The time of both clocks while one operation runs.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic clock, for all decisions about time.
    pub mono: Instant,
    /// Wall clock in microseconds since 1970, only for fencing tokens and the time of log entries.
    pub wall_us: u64,
}

/// The lease clock: stands still while the server is paused.
#[derive(Debug, Default)]
pub struct LeaseClock {
    paused_us: u64,
    last_running: Instant,
    paused: bool,
}

impl LeaseClock {
    /// Tells the clock whether the server is paused at `mono`. A pause counts from the last moment at which the server
    /// was seen running. So a lease can gain a little time, but never loses any.
    pub fn observe(&mut self, mono: Instant, paused: bool) {
        if self.paused || paused {
            self.paused_us += mono.0.saturating_sub(self.last_running.0);
        }
        self.paused = paused;
        self.last_running = self.last_running.max(mono);
    }

    /// The time of the lease clock at `mono`.
    pub fn at(&self, mono: Instant) -> LeaseInstant {
        let mono = if self.paused { self.last_running } else { mono };
        LeaseInstant(mono.0.saturating_sub(self.paused_us))
    }

    /// The monotonic time at which the lease clock reaches `lease` unless a pause begins.
    pub fn mono(&self, lease: LeaseInstant) -> Instant {
        Instant(lease.0.saturating_add(self.paused_us))
    }

    /// Whether the clock stands still.
    pub fn is_paused(&self) -> bool {
        self.paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_puts_the_lease_clock_off_by_its_length() {
        let mut clock = LeaseClock::default();
        clock.observe(Instant(1_000), false);
        assert_eq!(clock.at(Instant(1_500)), LeaseInstant(1_500));
        clock.observe(Instant(2_000), true);
        assert_eq!(clock.at(Instant(2_000)), LeaseInstant(1_000));
        assert_eq!(clock.at(Instant(9_000)), LeaseInstant(1_000));
        clock.observe(Instant(5_000), true);
        clock.observe(Instant(6_000), false);
        assert_eq!(clock.at(Instant(6_000)), LeaseInstant(1_000));
        assert_eq!(clock.at(Instant(6_500)), LeaseInstant(1_500));
        assert_eq!(clock.mono(LeaseInstant(1_500)), Instant(6_500));
    }

    #[test]
    fn differences_round_up_so_that_nothing_ends_early() {
        assert_eq!(Instant(1_001) - Instant(0), 2);
        assert_eq!(Instant(0) - Instant(5), 0);
    }
}
