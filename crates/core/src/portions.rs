//! How much work one step does, and one turn of the loop.

use crate::ids::WaiterSlot;
use alloc::vec::Vec;

/// The part of a large piece of work that an operation does at once; the tick does the rest.
pub(crate) const AT_ONCE: usize = 64;

/// Largest number of waiters that one step serves, and of expired holds that it ends. The tick does the rest. Until
/// then the queue is marked dirty, and new calls wait behind it.
pub(crate) const WIDE_AT_ONCE: usize = 256;

/// Number of effects after which an operation leaves the rest to the tick, and a tick to the next one. It bounds the
/// work of the server before it serves clients again.
pub(crate) const WEIGHT_AT_ONCE: usize = 128;

/// Slots collected before each of them is processed.
pub(crate) type Slots = Vec<WaiterSlot>;
