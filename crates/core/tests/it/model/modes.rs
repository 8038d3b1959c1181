//! The holds of a key: one, or those of many readers.

use super::{Family, Hold, Lock, Model, Place};
use dlock_wire::request::Mode;

impl Model {
    pub(super) fn writer(&self, k: usize) -> Option<&Hold> {
        match &self.locks[k] {
            Lock::Held(hold) => Some(hold),
            _ => None,
        }
    }

    /// All holds of a key: that of the writer, then those of readers in the order of their tokens.
    pub(super) fn holds(&self, k: usize) -> impl Iterator<Item = &Hold> {
        self.writer(k).into_iter().chain(&self.readers[k])
    }

    pub(super) fn holds_mut(&mut self, k: usize) -> impl Iterator<Item = &mut Hold> {
        let writer = match &mut self.locks[k] {
            Lock::Held(hold) => Some(hold),
            _ => None,
        };
        writer.into_iter().chain(&mut self.readers[k])
    }

    pub(super) fn hold_of(&mut self, k: usize, owner: &str, mode: Mode) -> Option<&mut Hold> {
        match (mode, &mut self.locks[k]) {
            (Mode::Read, _) => self.readers[k].iter_mut().find(|hold| hold.owner == owner),
            (Mode::Write, Lock::Held(hold)) if hold.owner == owner => Some(hold),
            (Mode::Write, _) => None,
        }
    }

    pub(super) fn reads(&self, k: usize, owner: &str) -> bool {
        self.readers[k].iter().any(|hold| hold.owner == owner)
    }

    pub(super) fn writes(&self, k: usize, owner: &str) -> bool {
        self.writer(k).is_some_and(|hold| hold.owner == owner)
    }

    pub(super) fn put(&mut self, k: usize, mode: Mode, hold: Hold) {
        match mode {
            Mode::Read => self.readers[k].push(hold),
            Mode::Write => self.locks[k] = Lock::Held(hold),
        }
    }

    /// Removes a hold.
    pub(super) fn take(&mut self, k: usize, serial: u64) -> (Mode, Hold) {
        if let Some(at) = self.readers[k].iter().position(|hold| hold.serial == serial) {
            return (Mode::Read, self.readers[k].remove(at));
        }
        match std::mem::replace(&mut self.locks[k], Lock::Free) {
            Lock::Held(hold) if hold.serial == serial => (Mode::Write, hold),
            _ => panic!("no such hold"),
        }
    }

    /// The key of a hold.
    pub(super) fn where_is(&self, serial: u64) -> Option<usize> {
        (0..self.locks.len()).find(|&k| self.holds(k).any(|hold| hold.serial == serial))
    }

    /// Whether a hold of another owner keeps `owner` from having the key.
    pub(super) fn is_held_against(&self, k: usize, owner: &str, mode: Mode) -> bool {
        let is_other = |hold: &Hold| hold.owner != owner;
        self.writer(k).is_some_and(is_other)
            || (mode == Mode::Write && self.readers[k].iter().any(is_other))
    }

    /// Whether the key itself admits the owner.
    pub(super) fn admits(&self, k: usize, owner: &str, mode: Mode) -> bool {
        let has_it = match mode {
            Mode::Read => self.reads(k, owner),
            Mode::Write => self.writes(k, owner),
        };
        !matches!(self.locks[k], Lock::Closed { .. } | Lock::WrongType)
            && !has_it
            && !self.is_held_against(k, owner, mode)
    }

    /// A reader that asks to write, or a writer that asks to read, goes in front of all waiters.
    pub(super) fn goes_first(&self, k: usize, owner: &str, mode: Mode) -> bool {
        match mode {
            Mode::Read => self.writes(k, owner),
            Mode::Write => self.reads(k, owner),
        }
    }

    /// Time for which a waiter lasts without its connection, if it does at all.
    pub(super) fn outlives_by(&self, k: usize, place: &Place) -> Option<u64> {
        let grace = (self.families[k] == Family::Fair).then_some(self.settings.grace);
        place.queue.or(grace)
    }
}
