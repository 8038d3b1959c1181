//! How a client behaves.

use std::time::Duration;

use dlock_wire::names::LEASE_MAX_MS;

use crate::base::clock::millis;
use crate::base::error::Error;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// How to wait for a lock that another owner holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Wait {
    /// Wait in the server's queue over the shared connection; a message reports the grant. Any number of tasks wait on
    /// one connection. The message may get lost (a broken connection, a proxy): the client repeats its request after
    /// each reconnect and at least every half [`ClientBuilder::queue`](crate::ClientBuilder::queue). The client
    /// believes a grant only with the id of its own request.
    ///
    /// In a cluster the client subscribes to one channel at every node, and the bus sends a message to all of them. The
    /// client repeats its request at once when a connection is replaced, at most 2 s after the slot of the lock has
    /// moved, and within 3 s and a [`response_timeout`](crate::ClientBuilder::response_timeout) after a node has died
    /// without closing its connections, plus the time in which the cluster replaces it.
    #[default]
    Queue,
    /// Block a dedicated connection for each waiting task. For servers behind proxies that do not pass messages on. At
    /// most [`ClientBuilder::dedicated_connections`](crate::ClientBuilder::dedicated_connections) block one at a time;
    /// the others ask once a second.
    Blocking,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) wait: Wait,
    pub(crate) lease: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) queue: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) connect_retry_for: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) retry_for: Duration,
    pub(crate) dedicated_connections: usize,
    /// How many replicas must have each grant and each renewal before it counts.
    pub(crate) replicas: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            wait: Wait::default(),
            lease: Duration::from_secs(30),
            max_hold: None,
            queue: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            connect_retry_for: Duration::ZERO,
            response_timeout: Duration::from_secs(3),
            retry_for: Duration::from_secs(10),
            dedicated_connections: 32,
            replicas: None,
        }
    }
}

impl Settings {
    pub(crate) fn check(&self) -> Result<(), Error> {
        check_renewed(self.lease)?;
        check_max_hold(self.max_hold)?;
        if !(Duration::from_millis(100)..=DAY).contains(&self.queue) {
            return Err(Error::invalid("queue must be 100 ms to 1 day"));
        }
        for (name, time) in [
            ("connect_timeout", self.connect_timeout),
            ("response_timeout", self.response_timeout),
            ("retry_for", self.retry_for),
        ] {
            checked_ms(name, time)?;
        }
        if self.connect_retry_for > 365 * DAY {
            return Err(Error::invalid("connect_retry_for must be at most 365 days"));
        }
        if self.replicas == Some(0) {
            return Err(Error::invalid("replicas must be at least 1"));
        }
        if self.dedicated_connections == 0 {
            return Err(Error::invalid("dedicated_connections must be at least 1"));
        }
        Ok(())
    }
}

/// The time in milliseconds, or an error of kind Invalid that names the option.
pub(crate) fn checked_ms(name: &str, time: Duration) -> Result<u64, Error> {
    let most = Duration::from_millis(LEASE_MAX_MS);
    if !(Duration::from_millis(1)..=most).contains(&time) {
        return Err(Error::invalid(format!("{name} must be 1 ms to 365 days")));
    }
    Ok(millis(time))
}

/// An error of kind Invalid for a lease out of range that the watchdog renews.
pub(crate) fn check_renewed(lease: Duration) -> Result<(), Error> {
    checked_ms("lease", lease)?;
    if lease < Duration::from_millis(30) {
        return Err(Error::invalid("lease must be at least 30 ms to be renewed in time"));
    }
    Ok(())
}

/// An error of kind Invalid for a `max_hold` out of range.
pub(crate) fn check_max_hold(time: Option<Duration>) -> Result<(), Error> {
    time.map_or(Ok(()), |time| checked_ms("max_hold", time).map(drop))
}
