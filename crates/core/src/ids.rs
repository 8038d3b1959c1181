//! Ids that rooms share.

use crate::slab::NIL;

/// The entry of a resource in the [lease index](crate::lease::Leases).
pub type KeyId = u32;

/// "No entry": a resource that was just made or loaded.
pub const NO_KEY: KeyId = NIL;

/// Which hold of a key: the token of a reader, the id of a permit, [`ALONE`] for the one holder of
/// a lock and for the writer.
pub type HoldId = u128;

/// The hold of a lock, or the write hold of a read-write lock.
pub const ALONE: HoldId = 0;
