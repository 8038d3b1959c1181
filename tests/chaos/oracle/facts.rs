//! What is certain, and what is found.

use std::time::Instant;

use crate::{
    call::Mode,
    key::{Key, Owner},
};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The key it is about.
    pub key: Option<Key>,
    /// What was seen, and why it is wrong.
    pub text: String,
}

impl Violation {
    /// About a key.
    pub fn of(key: Key, text: String) -> Violation {
        Violation { key: Some(key), text }
    }

    /// About no key.
    pub fn new(text: String) -> Violation {
        Violation { key: None, text }
    }
}

/// A certain hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Hold {
    /// Whose.
    pub owner: Owner,
    /// What it excludes.
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
    /// For how many it stands.
    pub count: u64,
    /// The lease does not end before this.
    pub until: Instant,
    pub(super) owner: Owner,
}
