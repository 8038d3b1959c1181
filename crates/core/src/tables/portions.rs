//! How much work one step does, and one turn of the loop.

use crate::base::ids::WaiterSlot;
use alloc::vec::Vec;

/// The part of a large piece of work that an operation does at once; the tick does the rest.
pub(crate) const AT_ONCE: usize = 64;

/// Largest number of readers of a key that its first waiter lists. One call searches for a cycle through not many more.
pub(crate) const LISTED_AT_ONCE: usize = 512;

/// Largest number of waiters that one step serves, and of expired holds that it ends. The tick does the rest. Until
/// then the queue is marked dirty, and new calls wait behind it.
pub(crate) const WIDE_AT_ONCE: usize = 256;

/// Number of elements of a list (former waiters, memory to free, ended holds) that one piece of work is about.
pub(crate) const PART: usize = 16;

/// Number of ids that one piece of work passes in search of a queue.
pub(crate) const PASSED: usize = 4_096;

/// Number of effects after which an operation leaves the rest to the tick, and a tick to the next one. It bounds the
/// work of the server before it serves clients again.
pub(crate) const MOST_EFFECTS: usize = 128;

/// Number of waiters that came or left after which an operation leaves the rest to the tick, and a tick to the next: a
/// piece of work can be about all waiters of a key, or of a call for several keys, and have few effects.
pub(crate) const MOST_MOVES: u64 = 2_048;

/// Slots collected before each of them is processed.
pub(crate) type Slots = Vec<WaiterSlot>;

/// Delay before the machine asks a shut server again, in milliseconds.
pub const RETRY_MS: u64 = 20;
