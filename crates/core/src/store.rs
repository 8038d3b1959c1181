//! The port to the keys.

use crate::resource::Resource;

/// The name of a key: a database number and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    /// Database number; 0 in a cluster.
    pub db: u32,
    /// Name of the key.
    pub name: &'a [u8],
}

/// What a key holds.
#[derive(Debug)]
pub enum Slot<'a> {
    /// Nothing.
    Missing,
    /// A value of another type: `WRONGTYPE`.
    Foreign,
    /// One of ours.
    Here(&'a mut Resource),
}

/// Where resources live: Redis keys in the server, a map in tests.
///
/// The machine keeps no resource between two operations; it asks for it by name each time, because
/// any other command may have removed, replaced or moved it.
pub trait Store {
    /// What is under `key`.
    fn get(&mut self, key: Key<'_>) -> Slot<'_>;
    /// Puts a new value under `key`, which is missing.
    fn put(&mut self, key: Key<'_>, resource: Resource);
    /// Removes the value under `key`, which is there.
    fn remove(&mut self, key: Key<'_>);
    /// Whether database `db` has no keys at all, of any type.
    fn is_empty(&mut self, db: u32) -> bool;
    /// Takes away a time to live that somebody set on `key` (`EXPIRE`).
    fn persist(&mut self, key: Key<'_>);
}
