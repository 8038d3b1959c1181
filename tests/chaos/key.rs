//! The keys and owners of a run: few, so that calls conflict.

use std::fmt;

/// A family of commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// DLOCK.
    Lock,
    /// DFAIR.
    Fair,
    /// DRW.
    Rw,
    /// DSEM.
    Sem,
    /// DLATCH.
    Latch,
}

impl Family {
    /// The prefix of its commands, without the dot.
    pub fn name(self) -> &'static str {
        match self {
            Family::Lock => "DLOCK",
            Family::Fair => "DFAIR",
            Family::Rw => "DRW",
            Family::Sem => "DSEM",
            Family::Latch => "DLATCH",
        }
    }

    /// A command of it.
    pub fn command(self, verb: &str) -> String {
        format!("{}.{verb}", self.name())
    }

    /// Number of its keys per hash tag.
    fn keys(self) -> u8 {
        match self {
            Family::Lock => 4,
            Family::Latch => 1,
            _ => 2,
        }
    }

    /// All families.
    pub const ALL: [Family; 5] =
        [Family::Lock, Family::Fair, Family::Rw, Family::Sem, Family::Latch];
}

/// A key in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Number of its database.
    pub db: u8,
    /// The hash tag; keys of one tag share a cluster slot.
    pub tag: u8,
    /// The family that uses it, unless a RENAME stored another value there.
    pub family: Family,
    /// Number of the key within family and tag.
    pub no: u8,
}

impl Key {
    /// Its name.
    pub fn name(self) -> String {
        format!("{{t{}}}{}{}", self.tag, self.family.name().to_lowercase(), self.no)
    }

    /// Whether this burst leaves it to its holders: without DEL, BREAK, RENAME and similar.
    pub fn is_calm(self, burst: u64) -> bool {
        (u64::from(self.no) + u64::from(self.tag) + burst).is_multiple_of(2)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (db {})", self.name(), self.db)
    }
}

/// All keys of these databases and tags.
pub fn all(dbs: u8, tags: u8) -> Vec<Key> {
    let mut keys = Vec::new();
    for db in 0..dbs {
        for tag in 0..tags {
            for family in Family::ALL {
                keys.extend((0..family.keys()).map(|no| Key { db, tag, family, no }));
            }
        }
    }
    keys
}

/// An owner: the connection that usually acts for it, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(pub u16, pub u8);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}.{}", self.0, self.1)
    }
}
