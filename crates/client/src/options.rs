//! Options of an acquire, checked before it sends a request.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::names::{BIND_MAX_MS, LABEL_MAX, LEASE_MAX_MS, OWNER_MAX};

use crate::clock::millis;
use crate::error::Error;
use crate::settings::{Wait, lease_ms};

/// The options that locks, semaphores and several locks share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) lease: Option<Duration>,
    pub(crate) owner: Option<Arc<[u8]>>,
    pub(crate) label: Option<Arc<[u8]>>,
    pub(crate) bind: Option<Duration>,
    pub(crate) no_reentry: bool,
    pub(crate) wait: Option<Wait>,
    pub(crate) replicas: Option<Replicas>,
}

/// Replicas that must have a grant before it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) wanted: u32,
    pub(crate) timeout: Duration,
    /// On their disks (WAITAOF), not only in their memory (WAIT).
    pub(crate) on_disk: bool,
}

impl Options {
    /// Errors of kind Invalid, naming the option.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.lease.map_or(Ok(0), lease_ms)?;
        if let Some(owner) = &self.owner
            && !(1..=OWNER_MAX).contains(&owner.len())
        {
            return Err(Error::invalid(format!("owner must be 1 to {OWNER_MAX} bytes")));
        }
        if self.label.as_ref().is_some_and(|label| label.len() > LABEL_MAX) {
            return Err(Error::invalid(format!("label must be at most {LABEL_MAX} bytes")));
        }
        if self.bind.is_some_and(|bind| millis(bind) > BIND_MAX_MS) {
            return Err(Error::invalid("bind must be at most 365 days"));
        }
        if let Some(replicas) = self.replicas {
            if replicas.wanted == 0 {
                return Err(Error::invalid("replicas must be at least 1"));
            }
            if millis(replicas.timeout) > LEASE_MAX_MS {
                return Err(Error::invalid("timeout of replicas must be at most 365 days"));
            }
        }
        Ok(())
    }

    /// The named owner, or a new one.
    pub(crate) fn owner(&self) -> Arc<[u8]> {
        self.owner.clone().unwrap_or_else(|| crate::random::name().into_bytes().into())
    }
}

/// The builder methods of every handle that has a field `options`.
macro_rules! shared_options {
    () => {
        /// A lease of this length, 1 ms to 365 days. The client does not renew such a hold: it ends after that time
        /// unless it is released or renewed by hand. Without this, the lease is that of the client and a watchdog
        /// renews it.
        #[must_use]
        pub fn lease(mut self, lease: std::time::Duration) -> Self {
            self.options.lease = Some(lease);
            self
        }

        /// Acts for this owner, 1 to 256 bytes. Without this, each acquire has its own owner. Name one to hold a lock
        /// several times (re-entry); each guard releases one hold. An owner is one logical task: of two tasks that wait
        /// for the same key under one name, the later replaces the earlier.
        #[must_use]
        pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
            self.options.owner = Some(owner.as_ref().into());
            self
        }

        /// A text for people, 0 to 256 bytes, that INFO and WAITERS show.
        #[must_use]
        pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
            self.options.label = Some(label.as_ref().into());
            self
        }

        /// Binds the hold to the client's connection: when that is lost, the server shortens the lease to this time, 0
        /// to 365 days. Leave enough time to reconnect: the client then binds its holds again (except several locks
        /// together, which are bound once). The client notices a lost connection later than the server, and counts from
        /// the last request that it knows the server answered. On a quiet connection that is up to 6 s ago, and the
        /// client notices the loss a [`response_timeout`](crate::ClientBuilder::response_timeout) later: with shorter
        /// times, a hold may seem valid for that much too long.
        ///
        /// Guards of one named owner share its hold, so they are all bound as soon as one of them is.
        #[must_use]
        pub fn bind(mut self, rest: std::time::Duration) -> Self {
            self.options.bind = Some(rest);
            self
        }
    };
}
pub(crate) use shared_options;
