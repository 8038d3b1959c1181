//! The name of a key, and SWAPDB, which changes it.

/// The name of a key: a database number and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// Database number; 0 in a cluster, except with `cluster-databases` of Valkey 9.
    pub db: u32,
    /// Name of the key.
    pub name: &'a [u8],
}

/// Where a key with waiters is, in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// This node serves it.
    Here,
    /// Another node serves its slot, and its value is here.
    Away,
    /// Another node serves its slot.
    Gone,
}

/// SWAPDB: two databases exchange their keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swap {
    /// The number of one database.
    pub a: u32,
    /// The number of the other.
    pub b: u32,
}

impl Swap {
    /// The database to which the swap brings the keys of `db`.
    #[must_use]
    pub fn target_of(self, db: u32) -> u32 {
        match db {
            db if db == self.a => self.b,
            db if db == self.b => self.a,
            db => db,
        }
    }
}
