//! The log of notable events: a ring of the last entries.

use crate::base::time::Now;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::mem::take;
use core::time::Duration;
use dlock_wire::reply::{Kind, LOG_STRING_MAX, LogEntry, LogEvent, LogToken, Shape, Sink};

/// Number of the last entries among which a new one looks for one that it repeats.
const ALIKE: usize = 16;

/// The last notable events, oldest first. In memory only: neither saved nor replicated.
///
/// A full log writes a new entry into the memory of a removed one, so an event allocates only until every entry has
/// been used once.
#[derive(Debug, Default)]
pub struct EventLog {
    entries: VecDeque<LogEntry>,
    /// Number of entries since the start: the id of the last one.
    last_id: u64,
    /// The strings of the last entry that was removed.
    spare: [Vec<u8>; 4],
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

    /// A new entry, to be filled and then pushed.
    pub(crate) fn blank(&mut self, now: Now, event: LogEvent, kind: Kind) -> LogEntry {
        let [key, owner, label, text] = take(&mut self.spare).map(|mut string| {
            string.clear();
            string
        });
        let time = Duration::from_micros(now.wall_us);
        LogEntry {
            id: 0,
            time,
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
            count: 1,
            first: time,
        }
    }

    /// Adds an entry to a log of at most `most` entries, which is at least one. A repeat of one of the last entries
    /// takes its place.
    pub(crate) fn push(&mut self, most: usize, mut new: LogEntry) {
        let behind = self.newest().take(ALIKE).position(|old| is_repeat(old, &new));
        let old = match behind {
            Some(n) => self.entries.remove(self.entries.len() - 1 - n),
            None if self.entries.len() >= most => self.entries.pop_front(),
            None => None,
        };
        if let Some(old) = old {
            if behind.is_some() {
                (new.count, new.first) = (old.count + 1, old.first);
            }
            self.spare = [old.key, old.owner, old.label, old.text];
        }
        self.last_id += 1;
        new.id = self.last_id;
        self.entries.push_back(new);
        self.shorten(most);
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

/// Whether two entries are equal except for times, tokens and the length of the queue.
fn is_repeat(old: &LogEntry, new: &LogEntry) -> bool {
    (old.event, old.kind, old.db) == (new.event, new.kind, new.db)
        && (&old.owner, &old.key, &old.text) == (&new.owner, &new.key, &new.text)
        && old.label == new.label
}

/// Writes into a string of an entry, and leaves out what is beyond [`LOG_STRING_MAX`] bytes.
pub(crate) struct Cut<'a>(pub &'a mut Vec<u8>);

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
    use crate::base::time::Instant;

    fn now(wall_us: u64) -> Now {
        Now { mono: Instant(0), wall_us }
    }

    fn add(log: &mut EventLog, most: usize, wall_us: u64, key: &[u8]) {
        let mut entry = log.blank(now(wall_us), LogEvent::Expired, Kind::Lock);
        Cut(&mut entry.key).push(key);
        log.push(most, entry);
    }

    fn ids(log: &EventLog) -> Vec<u64> {
        log.newest().map(|entry| entry.id).collect()
    }

    #[test]
    fn the_ring_keeps_the_newest_and_never_repeats_an_id() {
        let mut log = EventLog::default();
        for n in 0..5 {
            add(&mut log, 3, 0, &[n]);
        }
        assert_eq!(ids(&log), [5, 4, 3]);
        add(&mut log, 1, 0, b"k");
        assert_eq!(ids(&log), [6], "a shorter log drops the oldest");
        log.reset();
        assert_eq!((log.len(), ids(&log)), (0, Vec::new()));
        add(&mut log, 3, 0, b"k");
        assert_eq!(ids(&log), [7], "RESET does not start the ids again");
    }

    #[test]
    fn an_entry_shows_nothing_of_the_one_whose_memory_it_uses() {
        let mut log = EventLog::default();
        let mut entry = log.blank(now(1_500), LogEvent::Expired, Kind::Fair);
        for string in [&mut entry.key, &mut entry.owner, &mut entry.label, &mut entry.text] {
            Cut(string).push(&[b'x'; 200]);
        }
        assert_eq!(entry.key.len(), LOG_STRING_MAX);
        let memory = entry.key.as_ptr();
        log.push(1, entry);
        add(&mut log, 1, 2_000, b"other");
        let mut entry = log.blank(now(2_500), LogEvent::Spent, Kind::Lock);
        Cut(&mut entry.key).push(b"k");
        assert_eq!((entry.key.as_slice(), entry.key.as_ptr()), (&b"k"[..], memory));
        assert_eq!([&entry.owner, &entry.label, &entry.text], [b""; 3]);
        assert_eq!((entry.time, entry.count), (Duration::from_micros(2_500), 1));
    }

    #[test]
    fn a_repeat_takes_the_place_of_the_entry_that_it_repeats() {
        let mut log = EventLog::default();
        add(&mut log, 3, 1_000, &[b'x'; 200]);
        add(&mut log, 3, 2_000, b"other");
        for n in 3..100 {
            add(&mut log, 3, n * 1_000, &[b'x'; 200]);
        }
        add(&mut log, 3, 100_000, b"third");
        let seen = log.newest().map(|one| (one.id, one.count, one.first.as_millis()));
        assert_eq!(seen.collect::<Vec<_>>(), [(100, 1, 100), (99, 98, 1), (2, 1, 2)]);
    }
}
