//! Certain facts, and violations.

use std::time::Instant;

use crate::{
    call::Mode,
    key::{Key, Owner},
};

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The key it is about.
    pub key: Option<Key>,
    /// The observation, and why it is wrong.
    pub text: String,
}

impl Violation {
    /// A violation about a key.
    pub fn of(key: Key, text: String) -> Violation {
        Violation { key: Some(key), text }
    }

    /// A violation without a key.
    pub fn new(text: String) -> Violation {
        Violation { key: None, text }
    }
}

/// A certain hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// The owner.
    pub owner: Owner,
    /// The mode.
    pub mode: Mode,
    /// Its token.
    pub token: i64,
    /// The lease does not end before this.
    pub until: Instant,
}

/// A certain permit.
#[derive(Debug, Clone, PartialEq)]
pub struct Permit {
    /// Its id.
    pub id: String,
    /// Number of permits.
    pub count: u64,
    /// The lease does not end before this.
    pub until: Instant,
    pub(super) owner: Owner,
}
