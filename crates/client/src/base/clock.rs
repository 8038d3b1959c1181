//! The clock that leases are measured with on this side: it runs on while the machine is suspended.
//!
//! A laptop that slept for an hour must not wake up believing in a lease of thirty seconds. On Linux this is
//! `CLOCK_BOOTTIME`; elsewhere it is [`std::time::Instant`].

use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;

/// A moment of this clock, in nanoseconds from a beginning that only this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than any other.
    pub const NEVER: Self = Self(u64::MAX);

    /// This moment.
    pub fn now() -> Self {
        Self(tokio_nanos().unwrap_or_else(boot_nanos))
    }

    /// That long after this moment; at most [`Moment::NEVER`].
    #[must_use]
    pub fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(whole(time)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[cfg(test)]
    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }
}

/// Returns at `moment` or a little later.
///
/// Sleeps by tokio's clock, which stands still during a suspend, in slices: so short after the machine wakes up it is
/// noticed that the moment has passed.
pub async fn sleep_until(moment: Moment) {
    if moment == Moment::NEVER {
        std::future::pending::<()>().await;
    }
    // With one clock there is no need for slices.
    let slice = if JOINT.get().is_some() { Duration::MAX } else { Duration::from_millis(250) };
    loop {
        let rest = moment.since(Moment::now());
        if rest.is_zero() {
            return;
        }
        tokio::time::sleep(rest.min(slice)).await;
    }
}

/// What `told` resolves to, or what `look` finds: it looks at each poll. A timer fires only when its driver is polled,
/// which may be many steps of a task later, above all after the process was stopped.
pub async fn by_the_clock<T>(look: impl Fn() -> Option<T>, told: impl Future<Output = T>) -> T {
    let mut told = std::pin::pin!(told);
    std::future::poll_fn(|context| match look() {
        Some(found) => Poll::Ready(found),
        None => told.as_mut().poll(context),
    })
    .await
}

/// Whole milliseconds, rounded up: a wait of half a millisecond must not become 0, which is "forever" for BLOCK.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// A margin for clocks that run at different rates: 1 % and 2 ms less than the lease, as in the Redlock algorithm of
/// the Redis documentation.
pub(crate) fn certain(lease: Duration) -> Duration {
    lease.saturating_sub(lease / 100 + Duration::from_millis(2))
}

/// A lease that is certain for `rest`: with the margin for clocks added again.
pub(crate) fn lease_for(rest: Duration) -> Duration {
    rest + rest / 64 + Duration::from_millis(3)
}

#[cfg(target_os = "linux")]
fn boot_nanos() -> u64 {
    use rustix::time::{ClockId, clock_gettime};

    let time = clock_gettime(ClockId::Boottime);
    // Neither part is negative since the machine was started.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

#[cfg(not(target_os = "linux"))]
fn boot_nanos() -> u64 {
    use std::time::Instant;

    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    whole(BEGINNING.get_or_init(Instant::now).elapsed())
}

/// A moment of tokio's clock and of the other one. Later moments count from it, so that none is before an earlier one.
static JOINT: OnceLock<(tokio::time::Instant, u64)> = OnceLock::new();

/// From now on, this is tokio's clock: a test can step it. All clients of the process follow.
pub fn follow_tokio() {
    JOINT.get_or_init(|| (tokio::time::Instant::now(), boot_nanos()));
}

fn tokio_nanos() -> Option<u64> {
    let (joint, nanos) = *JOINT.get()?;
    let now = tokio::time::Instant::now();
    // Before: by the clock of another runtime, which was paused earlier. One of the two is zero.
    let (after, before) = (now.duration_since(joint), joint.duration_since(now));
    Some(nanos.saturating_add(whole(after)).saturating_sub(whole(before)))
}

fn whole(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleeping_ends_at_its_moment() {
        for ms in [0, 15, 300] {
            let moment = Moment::now().after(Duration::from_millis(ms));
            sleep_until(moment).await;
            assert!(Moment::now() >= moment);
        }
    }
}
