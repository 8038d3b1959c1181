//! The durable half of a primitive: the value of its key.

use crate::hold::Hold;
use crate::lease::{EntryId, NO_ENTRY};
use crate::time::{LeaseInstant, Millis};

/// The value of a key: plain owned data, because Redis may free it on another thread.
#[derive(Debug)]
pub struct Resource {
    /// Its entry in the lease index, or [`NO_ENTRY`] while it is not entered.
    pub entry: EntryId,
    /// What it is.
    pub body: Body,
}

/// The kinds of primitives. Closed on purpose: kinds differ in what they admit, and share
/// queueing, expiry, tokens, re-entry and hand-off.
#[derive(Debug)]
pub enum Body {
    /// A re-entrant lock.
    Lock(Lock),
}

/// The durable state of a re-entrant lock.
#[derive(Debug)]
pub enum Lock {
    /// Nobody holds it. A key in this state is about to be removed.
    Free,
    /// Closed by lock-delay.
    Closed {
        /// When it opens; see [`Hold::deadline`] for a resource that is not entered.
        until: LeaseInstant,
        /// How long it was closed for.
        delay_ms: Millis,
    },
    /// Somebody holds it.
    Held(Hold),
}

impl Resource {
    /// A lock that nobody holds.
    pub fn free_lock() -> Self {
        Self { entry: NO_ENTRY, body: Body::Lock(Lock::Free) }
    }

    /// Whether nothing is left that would have to be kept under a key.
    pub fn is_free(&self) -> bool {
        matches!(self.body, Body::Lock(Lock::Free))
    }

    /// Whether somebody holds it.
    pub fn is_held(&self) -> bool {
        matches!(self.body, Body::Lock(Lock::Held(_)))
    }

    /// When something about it will end by itself.
    pub fn next_deadline(&self) -> Option<LeaseInstant> {
        match &self.body {
            Body::Lock(Lock::Free) => None,
            Body::Lock(Lock::Closed { until, .. }) => Some(*until),
            Body::Lock(Lock::Held(hold)) => Some(hold.deadline),
        }
    }

    /// The lock in it.
    pub fn lock(&self) -> &Lock {
        let Body::Lock(lock) = &self.body;
        lock
    }

    /// The lock in it, to change it.
    pub fn lock_mut(&mut self) -> &mut Lock {
        let Body::Lock(lock) = &mut self.body;
        lock
    }

    /// Bytes of memory it takes, itself included.
    pub fn memory(&self) -> usize {
        size_of::<Self>()
            + match self.lock() {
                Lock::Held(hold) => hold.heap_size(),
                Lock::Free | Lock::Closed { .. } => 0,
            }
    }
}

impl Lock {
    /// The hold in force, if any.
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Free | Self::Closed { .. } => None,
        }
    }

    /// The hold in force, to change it.
    pub fn hold_mut(&mut self) -> Option<&mut Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Free | Self::Closed { .. } => None,
        }
    }

    /// The hold of `owner`, if it is the holder.
    pub fn held_by(&mut self, owner: &[u8]) -> Option<&mut Hold> {
        self.hold_mut().filter(|hold| *hold.owner == *owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_as_small_as_the_memory_account_assumes() {
        assert_eq!(size_of::<Resource>(), 96);
    }
}
