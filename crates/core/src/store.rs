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
    /// Nothing here, and the key may be on another node: its slot is moving away, or has moved. Nothing may be put under it.
    Elsewhere,
    /// Unknown: the key may not be touched now; see [`Reach`]. Asking for it is a bug of the caller.
    OutOfReach,
}

/// Which keys may be touched during one operation.
///
/// Inside a command, newer servers in cluster mode look every key up in the dictionary of the running command's slot. A
/// key of another slot then seems to be missing, and writing it makes a second key of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All keys.
    Everywhere,
    /// Only keys of the slot of the running command. What concerns other keys waits for the tick.
    OneSlot,
}

/// Where resources live: Redis keys in the server, a map in tests.
///
/// The machine keeps no resource between two operations; it asks for it by name each time, because
/// any other command may have removed, replaced or moved it.
pub trait Store {
    /// Which keys may be touched now.
    fn reach(&self) -> Reach;
    /// Whether `key` is one of those.
    fn reaches(&self, key: Key<'_>) -> bool;
    /// What is under `key`.
    fn get(&mut self, key: Key<'_>) -> Slot<'_>;
    /// Puts a new value under `key`, which is missing.
    fn put(&mut self, key: Key<'_>, resource: Resource);
    /// Removes the value under `key`, which is there.
    fn remove(&mut self, key: Key<'_>);
    /// Whether database `db` has no keys at all, of any type.
    fn is_empty(&mut self, db: u32) -> bool;
    /// Removes a time to live that a client set on `key` (`EXPIRE`).
    fn persist(&mut self, key: Key<'_>);
}
