//! The log of notable events: a ring of the last entries.

use crate::time::Now;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use dlock_wire::reply::{Kind, LOG_STRING_MAX, LogEntry, LogEvent, LogToken, Shape, Sink};

/// The last notable events, oldest first. In memory only: neither saved nor replicated.
///
/// A full log writes a new entry into the memory of the oldest one, so an event allocates only until every entry has
/// been used once.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: VecDeque<LogEntry>,
    /// Number of entries since the start: the id of the last one.
    last_id: u64,
}

impl EventLog {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries, newest first.
    pub fn newest(&self) -> impl ExactSizeIterator<Item = &LogEntry> {
        self.entries.iter().rev()
    }

    /// Removes all entries. Their ids are not used again. O(n).
    pub fn reset(&mut self) {
        self.entries = VecDeque::new();
    }

    /// Removes the oldest entries beyond `most`.
    pub fn shorten(&mut self, most: usize) {
        let excess = self.entries.len().saturating_sub(most);
        if excess > 0 {
            self.entries.drain(..excess);
            self.entries.shrink_to_fit();
        }
    }

    /// Writes the newest entries as the reply to `DLOCK.LOG GET`; `None`: all of them.
    pub fn write(&self, count: Option<u64>, to: &mut impl Sink) {
        let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
        let count = self.entries.len().min(most);
        to.array(count);
        self.newest().take(count).for_each(|entry| entry.write(to));
    }

    /// Adds an entry to a log of at most `most` entries, which is at least one. Its strings are empty.
    pub(super) fn add(
        &mut self,
        most: usize,
        now: Now,
        event: LogEvent,
        kind: Kind,
    ) -> &mut LogEntry {
        self.shorten(most);
        let is_full = self.entries.len() >= most;
        let old = if is_full { self.entries.pop_front() } else { None };
        let strings = old.map(|old| [old.key, old.owner, old.label, old.text]);
        let [key, owner, label, text] = strings.unwrap_or_default().map(|mut string| {
            string.clear();
            string
        });
        self.last_id += 1;
        self.entries.push_back(LogEntry {
            id: self.last_id,
            time: Duration::from_micros(now.wall_us),
            event,
            kind,
            db: 0,
            key,
            owner,
            label,
            token: LogToken::None,
            held: Duration::ZERO,
            waited: Duration::ZERO,
            waiters: 0,
            text,
        });
        let last = self.entries.len().saturating_sub(1);
        &mut self.entries[last]
    }

    /// What does not hold, for the invariants of the machine.
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        let ids = || self.entries.iter().map(|entry| entry.id);
        if !ids().is_sorted_by(|one, next| one < next) || ids().any(|id| id > self.last_id) {
            return Some("ids of log entries rise");
        }
        let strings = |entry: &LogEntry| {
            [entry.key.len(), entry.owner.len(), entry.label.len(), entry.text.len()]
        };
        let is_cut = |entry| strings(entry).into_iter().all(|len| len <= LOG_STRING_MAX);
        (!self.entries.iter().all(is_cut)).then_some("strings of log entries are cut")
    }
}

/// Writes into a string of an entry, and leaves out what is beyond [`LOG_STRING_MAX`] bytes.
pub(super) struct Cut<'a>(pub &'a mut Vec<u8>);

impl Cut<'_> {
    pub fn push(&mut self, bytes: &[u8]) {
        let room = LOG_STRING_MAX.saturating_sub(self.0.len());
        self.0.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}

impl fmt::Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn now(wall_us: u64) -> Now {
        Now { mono: Instant(0), wall_us }
    }

    fn ids(log: &EventLog) -> Vec<u64> {
        log.newest().map(|entry| entry.id).collect()
    }

    #[test]
    fn the_ring_keeps_the_newest_and_never_repeats_an_id() {
        let mut log = EventLog::default();
        for _ in 0..5 {
            log.add(3, now(0), LogEvent::Broken, Kind::Lock);
        }
        assert_eq!(ids(&log), [5, 4, 3]);
        log.add(1, now(0), LogEvent::Broken, Kind::Lock);
        assert_eq!(ids(&log), [6], "a shorter log drops the oldest");
        log.reset();
        assert_eq!((log.len(), ids(&log)), (0, Vec::new()));
        log.add(3, now(0), LogEvent::Broken, Kind::Lock);
        assert_eq!(ids(&log), [7], "RESET does not start the ids again");
    }

    #[test]
    fn an_entry_shows_nothing_of_the_one_whose_memory_it_uses() {
        let mut log = EventLog::default();
        let entry = log.add(1, now(1_500), LogEvent::Expired, Kind::Fair);
        for string in [&mut entry.key, &mut entry.owner, &mut entry.label, &mut entry.text] {
            Cut(string).push(&[b'x'; 200]);
        }
        assert_eq!(entry.key.len(), LOG_STRING_MAX);
        let memory = entry.key.as_ptr();
        let entry = log.add(1, now(2_500), LogEvent::Spent, Kind::Lock);
        Cut(&mut entry.key).push(b"k");
        assert_eq!((entry.key.as_slice(), entry.key.as_ptr()), (&b"k"[..], memory));
        assert_eq!([&entry.owner, &entry.label, &entry.text], [b""; 3]);
        assert_eq!(entry.time, Duration::from_micros(2_500));
    }
}
