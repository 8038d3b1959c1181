//! Divergence: a server that could not read what its primary or its file said does not know who holds what.
//!
//! Such a server never grants (`Regime::may_grant`), also after a promotion or a
//! restart, until its data is replaced as a whole, emptied, or compared by an operator.

use crate::record::DecodeError;
use alloc::format;
use alloc::string::String;

/// Records and values that a server could not read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// Those of a later level than this module reads.
    pub later: u64,
    /// Those that are damaged, impossible, or about a key of another type.
    pub damaged: u64,
    /// The largest level that one of them needs; 0 if none is of a later level.
    pub level: u8,
}

impl Refused {
    /// The number of all of them; 0 if everything could be read.
    pub fn total(self) -> u64 {
        self.later.saturating_add(self.damaged)
    }

    fn count(&mut self, why: DecodeError) {
        match why {
            DecodeError::LaterLevel(level) => {
                self.later = self.later.saturating_add(1);
                self.level = self.level.max(level);
            }
            DecodeError::Damaged | DecodeError::Impossible => {
                self.damaged = self.damaged.saturating_add(1);
            }
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            later: self.later.saturating_add(other.later),
            damaged: self.damaged.saturating_add(other.damaged),
            level: self.level.max(other.level),
        }
    }

    /// Those that came since `earlier`.
    fn since(self, earlier: Self) -> Self {
        let later = self.later.saturating_sub(earlier.later);
        Self {
            later,
            damaged: self.damaged.saturating_sub(earlier.damaged),
            level: if later > 0 { self.level } else { 0 },
        }
    }
}

/// What is missing from the data of this server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Divergence {
    /// What the primary could not read, as it said with a full synchronization. The primary's operator can forgive it.
    pub inherited: Refused,
    /// What this server could not read, or another replica between it and the primary.
    pub own: Refused,
}

impl Divergence {
    /// Everything that is missing.
    pub fn total(self) -> Refused {
        self.inherited.plus(self.own)
    }

    /// Whether anything is missing.
    pub fn is_any(self) -> bool {
        self.total().total() > 0
    }

    /// One more record or value could not be read.
    pub(crate) fn refuse(&mut self, why: DecodeError) {
        self.own.count(why);
    }

    /// All keys were removed when `known` was missing: what was missing by then no longer matters. Returns whether that
    /// changes anything.
    pub(crate) fn forgive(&mut self, known: Refused) -> bool {
        let had_any = self.is_any() && known.total() > 0;
        if had_any {
            *self = Self { inherited: Refused::default(), own: self.total().since(known) };
        }
        had_any
    }

    /// As a server says it to those that synchronize with it: what a primary lacks, they inherit.
    pub(crate) fn as_sent(self, is_primary: bool) -> Self {
        if is_primary { Self { inherited: self.total(), own: Refused::default() } } else { self }
    }

    /// What the server's own file says.
    pub(crate) fn add_own(&mut self, more: Refused) {
        self.own = self.own.plus(more);
    }

    /// The text of the `DIVERGED` error.
    pub(crate) fn text(self) -> String {
        let Refused { later, damaged, level } = self.total();
        let level = if later > 0 { format!(", up to level {level}") } else { String::new() };
        format!(
            "this server refused records of its primary or its file (of a later level: {later}{level}; damaged: \
            {damaged}). It does not know who holds what, so it grants nothing. Synchronize it in full with a server \
            that read them, or compare its locks and call DLOCK.TRUST"
        )
    }
}
