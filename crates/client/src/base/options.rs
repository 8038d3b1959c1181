//! Options of an acquire, checked before it sends a request.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::names::{BIND_MAX_MS, LABEL_MAX, LEASE_MAX_MS, OWNER_MAX};

use crate::base::clock::{lease_for, millis};
use crate::base::error::Error;
use crate::base::replicas::Replicas;
use crate::base::settings::{Settings, Wait, check_max_hold, check_renewed, checked_ms};

/// A shorter time than renewals and margins need is over at once.
const BIND_MIN: Duration = Duration::from_millis(20);

/// The options that locks, semaphores and several locks share.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// None: that of the client.
    pub lease: Option<Duration>,
    /// The watchdog does not renew the hold.
    pub is_fixed: bool,
    /// How long `acquire` and `with` wait.
    pub timeout: Option<Duration>,
    /// How long the watchdog keeps the hold alive.
    pub max_hold: Option<Duration>,
    pub(crate) owner: Option<Arc<[u8]>>,
    /// A text for people.
    pub label: Option<Arc<[u8]>>,
    pub(crate) bind: Option<Duration>,
    pub(crate) no_reentry: bool,
    pub(crate) wait: Option<Wait>,
    pub(crate) replicas: Option<Replicas>,
}

impl Options {
    /// Whether all are in range.
    ///
    /// # Errors
    ///
    /// Of kind Invalid, naming the option.
    pub fn check(&self) -> Result<(), Error> {
        if let Some(lease) = self.lease {
            checked_ms("lease", lease)?;
            if !self.is_fixed {
                check_renewed(lease)?;
            }
        }
        check_max_hold(self.max_hold)?;
        if let Some(owner) = &self.owner
            && !(1..=OWNER_MAX).contains(&owner.len())
        {
            return Err(Error::invalid(format!("owner must be 1 to {OWNER_MAX} bytes")));
        }
        if self.label.as_ref().is_some_and(|label| label.len() > LABEL_MAX) {
            return Err(Error::invalid(format!("label must be at most {LABEL_MAX} bytes")));
        }
        if self.bind.is_some_and(|bind| bind < BIND_MIN || millis(bind) > BIND_MAX_MS) {
            return Err(Error::invalid("bind must be 20 ms to 365 days"));
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

    /// How long the watchdog keeps the hold alive. None: as long as its guard lives, or there is no watchdog.
    pub(crate) fn max_hold_within(&self, settings: &Settings) -> Option<Duration> {
        let max_hold = self.max_hold.or(settings.max_hold);
        max_hold.filter(|_| !self.is_fixed)
    }

    /// The lease to request.
    pub(crate) fn lease_within(&self, settings: &Settings) -> Duration {
        let lease = self.lease.unwrap_or(settings.lease);
        self.max_hold_within(settings).map_or(lease, |max_hold| lease_for(max_hold).min(lease))
    }

    /// The named owner, or a new one.
    pub(crate) fn owner(&self) -> Arc<[u8]> {
        self.owner.clone().unwrap_or_else(|| crate::base::random::name().into_bytes().into())
    }
}
