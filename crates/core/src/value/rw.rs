//! The durable state of a read-write lock.

use crate::base::ids::{ALONE, HoldId};
use crate::value::hold::Hold;
use crate::value::holds::Holds;
use crate::value::lock::Lock;
use dlock_wire::request::Mode;

/// Many readers or one writer. (The writer may be a reader, too.)
#[derive(Debug)]
pub struct RwLock {
    /// The write side: a lock like any other.
    pub lock: Lock,
    /// The read holds, by token.
    pub readers: Holds,
}

impl RwLock {
    /// A lock without a holder.
    pub fn free() -> Self {
        Self { lock: Lock::Free, readers: Holds::default() }
    }

    /// The hold of `owner` in `mode`.
    pub fn find(&self, owner: &[u8], mode: Mode) -> Option<HoldId> {
        match mode {
            Mode::Write => self.lock.hold().filter(|hold| *hold.owner == *owner).map(|_| ALONE),
            Mode::Read => self.readers.of_owner(owner).next().map(|(id, _)| id),
        }
    }

    /// Whether `owner` can have a new hold in `mode`: no other owner is in its way, and it has none yet. (A waiter can
    /// get one by RENAME; then it waits until that one has ended.)
    pub fn admits(&self, owner: &[u8], mode: Mode) -> bool {
        let write_side = match &self.lock {
            Lock::Free => true,
            Lock::Closed { .. } => false,
            Lock::Held(hold) => *hold.owner == *owner && mode == Mode::Read,
        };
        let reads = || self.find(owner, Mode::Read).is_some();
        write_side
            && match (mode, self.readers.len()) {
                (_, 0) => true,
                (Mode::Read, _) => !reads(),
                (Mode::Write, 1) => reads(),
                (Mode::Write, _) => false,
            }
    }

    /// Whether a hold of another owner keeps `owner` from one in `mode`.
    pub fn is_held_against(&self, owner: &[u8], mode: Mode) -> bool {
        let is_other = |hold: &Hold| *hold.owner != *owner;
        let others_read = || self.readers.iter().any(|(_, hold)| is_other(hold));
        self.lock.hold().is_some_and(is_other) || (mode == Mode::Write && others_read())
    }

    /// All holds.
    pub fn holds(&self) -> impl Iterator<Item = (HoldId, &Hold)> {
        self.lock.hold().map(|hold| (ALONE, hold)).into_iter().chain(self.readers.iter())
    }
}
