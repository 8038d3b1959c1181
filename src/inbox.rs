//! Server events, noted by callbacks that may not act.
//!
//! Most of these callbacks run inside another client's command, where a write to a key would be replicated with that
//! command. Others run while the server is paused, where a write would abort it. So they push a notice and set the
//! alarm. The notices are processed after the loop's next sleep, or before the next dlock command, whichever comes
//! first. In a cluster a command processes only notices of its slot: while it runs, the server looks up all keys in
//! that slot's dictionary.

use dlock_core::divergence::Refused;
use dlock_core::events::keyspace::Lost;
use dlock_core::key::{Key, Swap};
use dlock_core::queues::waiter::WaiterId;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::ffi::{Alarm, CallId, MainCell, Value};

impl Notice {
    /// FLUSHDB, or FLUSHALL (`None`), at this moment.
    pub fn flushed(db: Option<u32>) -> Self {
        let missing = crate::shell::with(|shell| shell.machine.divergence().total());
        Self::Flushed { db, missing: missing.unwrap_or_default() }
    }

    /// Whether processing the notice may change a key.
    pub fn writes(&self) -> bool {
        match self {
            Self::ClientGone(_)
            | Self::Undelivered(_)
            | Self::Unlinked { .. }
            | Self::Flushed { .. }
            | Self::Swapped { .. }
            | Self::Moved { .. }
            | Self::Loaded { .. } => true,
            // For an active connection only its queues are checked, which respects the gate itself.
            Self::Heard(_)
            | Self::HandleGone(_)
            | Self::Forked
            | Self::Role { .. }
            | Self::Loading
            | Self::AsyncLoading(_) => false,
        }
    }
}

/// Progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// The load begins.
    Started,
    /// The load is complete.
    Ended,
    /// The load was aborted.
    Failed,
}

/// One event.
#[derive(Debug)]
pub enum Notice {
    /// A client disconnected.
    ClientGone(u64),
    /// A connection with skipped waiters sent a dlock command.
    Heard(u64),
    /// A blocked call lost its connection, or the server ended it.
    HandleGone(CallId),
    /// A grant could not be sent.
    Undelivered(WaiterId),
    /// A value of ours left its key.
    Unlinked {
        /// Database of the key.
        db: u32,
        /// Name of the key.
        name: Box<[u8]>,
        /// The removed value; `None` if it could not be read.
        lost: Option<Lost>,
    },
    /// RENAME or MOVE brought a value to this name, in some database: Valkey 9 reports a wrong one inside MULTI.
    Moved {
        /// Name of the key.
        name: Box<[u8]>,
    },
    /// A value was loaded under this key.
    Loaded {
        /// Database of the key.
        db: u32,
        /// Name of the key.
        name: Box<[u8]>,
        /// Whether the key was loaded into a data set that is not yet served.
        aside: bool,
        /// The waiters of the value.
        waiters: PendingWaiters,
    },
    /// FLUSHDB, or FLUSHALL.
    Flushed {
        /// The database; `None`: all.
        db: Option<u32>,
        /// What was missing from the data by then.
        missing: Refused,
    },
    /// SWAPDB.
    Swapped {
        /// The two databases.
        databases: Swap,
        /// Number of records replayed by then: [`replays`].
        replays: u64,
    },
    /// A child process saves the data set or rewrites the AOF.
    Forked,
    /// The server became a primary or a replica.
    Role {
        /// Whether it became a primary.
        primary: bool,
    },
    /// An RDB or AOF file, or a full synchronization, was or is being loaded.
    Loading,
    /// The same, into a data set that is not yet served.
    AsyncLoading(Load),
}

/// Waiters of values that RESTORE brought and that the machine has not seen yet.
static PENDING: AtomicUsize = AtomicUsize::new(0);

/// Waiters that count as pending while this exists.
#[derive(Debug)]
pub struct PendingWaiters(usize);

impl PendingWaiters {
    /// Counts `count` more waiters.
    pub fn new(count: usize) -> Self {
        PENDING.fetch_add(count, Relaxed);
        Self(count)
    }

    /// The number of pending waiters.
    pub fn count() -> usize {
        PENDING.load(Relaxed)
    }
}

impl Drop for PendingWaiters {
    fn drop(&mut self) {
        PENDING.fetch_sub(self.0, Relaxed);
    }
}

static INBOX: MainCell<VecDeque<Notice>> = MainCell::new(VecDeque::new());
static NEWS: AtomicBool = AtomicBool::new(false);

/// Connections with a pending `Heard` notice: one per connection is enough.
static HEARD: MainCell<BTreeSet<u64>> = MainCell::new(BTreeSet::new());

/// Counts replayed records. Replay goes on while notices wait, and notices are not about keys that it indexes later.
static REPLAYS: AtomicU64 = AtomicU64::new(0);

/// Counts a replayed record.
pub fn count_replay() {
    REPLAYS.fetch_add(1, Relaxed);
}

/// How many records have been replayed.
pub fn replays() -> u64 {
    REPLAYS.load(Relaxed)
}

/// Keys of a loaded data set that are not indexed yet. They can be many, so they are indexed a few at a time. The
/// machine also indexes any key that is used.
static LOADED: MainCell<VecDeque<(u32, Box<[u8]>)>> = MainCell::new(VecDeque::new());

/// Notes a key of a loaded data set.
pub fn push_loaded(db: u32, name: &[u8]) {
    LOADED.try_with(|loaded| loaded.push_back((db, name.into())));
}

/// Up to `most` keys of a loaded data set.
pub fn take_loaded(most: usize) -> Vec<(u32, Box<[u8]>)> {
    LOADED
        .try_with(|loaded| {
            let taken = loaded.drain(..most.min(loaded.len())).collect();
            if loaded.is_empty() {
                *loaded = VecDeque::new();
            }
            taken
        })
        .unwrap_or_default()
}

/// Whether keys of a loaded data set are not indexed yet.
pub fn has_loaded() -> bool {
    LOADED.try_with(|loaded| !loaded.is_empty()).unwrap_or(false)
}

/// Adds a notice and wakes the loop.
pub fn push(notice: Notice) {
    if let Notice::ClientGone(client) = notice
        && !crate::shell::knows_client(client)
    {
        return;
    }
    if let Notice::Heard(client) = notice
        && HEARD.try_with(|heard| heard.insert(client)) == Some(false)
    {
        return;
    }
    let first = INBOX.try_with(|inbox| {
        let first = inbox.is_empty();
        match notice {
            Notice::Swapped { databases, .. } => push_swap(inbox, databases, notice),
            notice => inbox.push_back(notice),
        }
        NEWS.store(true, Relaxed);
        first
    });
    if first == Some(true) {
        Alarm::ring();
    }
}

/// How many of the last notices are searched for a value that is being freed: the server frees it directly after the
/// unlink event.
const LAST: usize = 32;

/// The server frees a large value: its unlink notice keeps what matters of it.
pub fn bring(value: Value) {
    INBOX.try_with(|inbox| {
        let notice = inbox.iter_mut().rev().take(LAST).find_map(|notice| match notice {
            Notice::Unlinked { lost: Some(lost), db, name } if lost.awaits(&value) => {
                Some((lost, Key { db: *db, name }))
            }
            _ => None,
        });
        if let Some((lost, key)) = notice {
            lost.bring(value, key);
        }
    });
}

/// SWAPDB: notices about a value follow the value to its new database, and are processed after the swap.
fn push_swap(inbox: &mut VecDeque<Notice>, databases: Swap, swapped: Notice) {
    let (mut placed, others): (VecDeque<_>, _) =
        std::mem::take(inbox).into_iter().partition(|notice| {
            matches!(notice, Notice::Moved { .. } | Notice::Loaded { aside: false, .. })
        });
    for notice in &mut placed {
        if let Notice::Loaded { db, .. } = notice {
            *db = databases.target_of(*db);
        }
    }
    LOADED.try_with(|loaded| {
        for (db, _) in loaded {
            *db = databases.target_of(*db);
        }
    });
    *inbox = others;
    inbox.push_back(swapped);
    inbox.append(&mut placed);
}

/// Whether there are no notices.
pub fn is_empty() -> bool {
    INBOX.try_with(|inbox| inbox.is_empty()).unwrap_or(true)
}

/// Whether there is a new notice since the last batch, one that has not been tried yet.
pub fn has_news() -> bool {
    NEWS.load(Relaxed)
}

/// Notices being processed. Deferred notices return to the inbox, in front of newer ones. So do unprocessed notices
/// after a panic.
pub struct Batch {
    next: VecDeque<Notice>,
    put_off: VecDeque<Notice>,
    is_for_tick: bool,
}

/// What a deferred notice waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// The server accepts writes again. There is no event for that, so the server is asked every few milliseconds.
    Gate,
    /// The tick, which follows immediately.
    Tick,
}

impl Batch {
    /// Takes all notices. Loaded values come last: the server loads the replacement of a value before it reports that
    /// the old one is gone.
    pub fn take() -> Self {
        NEWS.store(false, Relaxed);
        let notices = INBOX.try_with(std::mem::take).unwrap_or_default();
        let is_loaded = |notice: &Notice| matches!(notice, Notice::Loaded { aside: false, .. });
        let (mut loaded, mut next): (VecDeque<_>, VecDeque<_>) =
            notices.into_iter().partition(is_loaded);
        next.append(&mut loaded);
        Self { next, put_off: VecDeque::new(), is_for_tick: false }
    }

    /// The unprocessed notices.
    pub fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.next.iter()
    }

    /// Takes the oldest unprocessed notice.
    pub fn next(&mut self) -> Option<Notice> {
        let notice = self.next.pop_front()?;
        if let Notice::Heard(client) = notice {
            // From here on a new notice of this client counts.
            HEARD.try_with(|heard| heard.remove(&client));
        }
        Some(notice)
    }

    /// Defers a notice that cannot be processed now.
    pub fn put_off(&mut self, notice: Notice, wait: Wait) {
        self.is_for_tick |= wait == Wait::Tick;
        self.put_off.push_back(notice);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let mut notices = std::mem::take(&mut self.put_off);
        if self.is_for_tick || !self.next.is_empty() {
            NEWS.store(true, Relaxed);
        }
        notices.append(&mut self.next);
        if !notices.is_empty() {
            INBOX.try_with(|inbox| {
                notices.append(inbox);
                *inbox = notices;
            });
        }
    }
}
