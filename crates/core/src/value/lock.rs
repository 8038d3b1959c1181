//! The durable state of a lock for one holder.

use crate::base::time::{LeaseInstant, Millis};
use crate::value::hold::Hold;

/// The durable state of a lock for one holder.
#[derive(Debug)]
pub enum Lock {
    /// No owner holds it. A key in this state is about to be removed.
    Free,
    /// Closed by lock-delay.
    Closed {
        /// When it opens; see [`Hold::deadline`] for a resource without an entry.
        until: LeaseInstant,
        /// Length of the lock-delay, in milliseconds.
        delay_ms: Millis,
    },
    /// An owner holds it.
    Held(Hold),
}

impl Lock {
    /// The hold in force, if any.
    pub fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Free | Self::Closed { .. } => None,
        }
    }

    /// The hold in force, mutable.
    pub fn hold_mut(&mut self) -> Option<&mut Hold> {
        match self {
            Self::Held(hold) => Some(hold),
            Self::Free | Self::Closed { .. } => None,
        }
    }
}
