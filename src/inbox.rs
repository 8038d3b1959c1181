//! Server events, noted by callbacks that may not act.
//!
//! Most of these callbacks run inside another client's command, where a write to a key would be replicated with that
//! command. Others run while the server is paused, where a write would abort it. So they push a notice and set the
//! alarm. The notices are processed after the loop's next sleep, or before the next dlock command, whichever comes
//! first. In a cluster a command processes only notices of its slot: while it runs, the server looks up all keys in
//! that slot's dictionary.

mod lost;

use dlock_core::base::ids::WaiterId;
use dlock_core::base::key::Swap;
use dlock_core::machine::Fact;
use dlock_core::ports::lost::Lost;
use dlock_core::record::divergence::Refused;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::ffi::{self, Alarm, CallId, MainCell};
use crate::shell;
use crate::slot::slot;

pub use lost::{
    Address, evict, follow, forget_lost_latch, has_lost_latch, last_unlinked_in, take_lost,
    with_lost,
};

impl Notice {
    /// FLUSHDB, or FLUSHALL (`None`), at this moment.
    pub fn flushed(db: Option<u32>) -> Self {
        let at_once = shell::with(|shell| {
            (shell.machine.tables().regime.divergence.total(), shell.machine.keys_flushed(db))
        });
        let (missing, databases) = at_once.unwrap_or_default();
        Self::Flushed { is_all: db.is_none(), databases, missing }
    }

    /// SWAPDB, at this moment. Earlier notices about a value follow it to its new database.
    pub fn swapped(databases: Swap) -> Self {
        let _ = shell::with(|shell| shell.machine.learn(Fact::Swapped(databases)));
        INBOX.try_with(|inbox| inbox.readdress(databases));
        LOADED.try_with(|loaded| {
            for (db, _) in loaded {
                *db = databases.target_of(*db);
            }
        });
        Self::Swapped
    }

    /// The key that the notice is about.
    fn name(&self) -> Option<&[u8]> {
        match self {
            Self::Unlinked { name, .. }
            | Self::Moved { name, .. }
            | Self::Loaded { name, aside: false, .. } => Some(name),
            _ => None,
        }
    }

    /// Whether only the AOF and replicas are told something.
    pub fn is_for_files(&self) -> bool {
        matches!(self, Self::Forked | Self::Forgiven)
    }

    /// Whether processing the notice may change a key.
    pub fn writes(&self) -> bool {
        match self {
            Self::ClientGone(_)
            | Self::Undelivered(_)
            | Self::Unlinked { .. }
            | Self::Flushed { .. }
            | Self::Swapped
            | Self::Moved { .. }
            | Self::Loaded { .. } => true,
            // For an active connection only its queues are checked, which respects the gate itself.
            Self::Heard(_)
            | Self::HandleGone(_)
            | Self::Forked
            | Self::Forgiven
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
        lost: Option<Box<Lost>>,
        /// The address of that value at the time, to recognise it where it is now.
        at: Option<Address>,
    },
    /// RENAME or MOVE brought a value to this key.
    Moved {
        /// Database of the key.
        db: u32,
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
        /// All databases.
        is_all: bool,
        /// The databases that had keys of ours.
        databases: Vec<u32>,
        /// What was missing from the data by then.
        missing: Refused,
    },
    /// SWAPDB.
    Swapped,
    /// A child process saves the data set or rewrites the AOF.
    Forked,
    /// What is missing from the data has changed, and the AOF and replicas do not know that.
    Forgiven,
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

/// A notice with its number: they are processed in the order of their numbers.
type Numbered = (u64, Notice);

/// The notices.
#[derive(Debug)]
struct Inbox {
    /// Number of the next notice.
    next: u64,
    /// Those that have not been tried yet, oldest first.
    new: VecDeque<Numbered>,
    /// Those that wait, by the slot of their key; `None`: outside of a cluster, and those without a key. So a command
    /// looks only at those of its own slot.
    waiting: BTreeMap<Option<u16>, Vec<Numbered>>,
    /// Those that wait for the gate. Once it is open, every batch takes all of them.
    at_gate: Vec<Numbered>,
    /// The last notice about the removal of each closed latch, by key; until no notice is left.
    lost_latches: BTreeMap<(u32, Box<[u8]>), u64>,
}

static INBOX: MainCell<Inbox> = MainCell::new(Inbox {
    next: 0,
    new: VecDeque::new(),
    waiting: BTreeMap::new(),
    at_gate: Vec::new(),
    lost_latches: BTreeMap::new(),
});
static NEWS: AtomicBool = AtomicBool::new(false);

impl Inbox {
    fn is_empty(&self) -> bool {
        self.new.is_empty() && self.waiting.is_empty() && self.at_gate.is_empty()
    }

    fn push(&mut self, notice: Notice) {
        self.next += 1;
        if let Notice::Unlinked { db, name, lost: Some(lost), .. } = &notice
            && lost.is_lost_latch()
        {
            self.lost_latches.insert((*db, name.clone()), self.next);
        }
        self.new.push_back((self.next, notice));
    }

    /// All notices, except for those that a batch has taken.
    fn iter(&self) -> impl Iterator<Item = &Notice> {
        let waiting = self.waiting.values().flatten().chain(&self.at_gate);
        waiting.chain(&self.new).map(|(_, notice)| notice)
    }

    /// The values of these databases are in the other one now.
    fn readdress(&mut self, databases: Swap) {
        let waiting = self.waiting.values_mut().flatten().chain(&mut self.at_gate);
        for (_, notice) in waiting.chain(&mut self.new) {
            match notice {
                Notice::Moved { db, .. } | Notice::Loaded { db, aside: false, .. } => {
                    *db = databases.target_of(*db);
                }
                Notice::Unlinked { lost: Some(lost), .. } => lost.swap(databases),
                _ => {}
            }
        }
    }

    /// Takes the new notices, and those that wait as `of` says; oldest first.
    fn take(&mut self, of: Of) -> VecDeque<Numbered> {
        let mut waiting: Vec<Numbered> = match of {
            Of::All => std::mem::take(&mut self.waiting).into_values().flatten().collect(),
            Of::Slot(slot) => self.waiting.remove(&Some(slot)).unwrap_or_default(),
            Of::News => Vec::new(),
        };
        if of == Of::News {
            // They need no gate, only the end of a pause.
            let without_key = self.waiting.get_mut(&None).into_iter();
            for kept in without_key.chain([&mut self.at_gate]) {
                waiting.extend(kept.extract_if(.., |(_, notice)| notice.is_for_files()));
            }
            self.waiting.retain(|_, kept| !kept.is_empty());
        } else {
            waiting.append(&mut self.at_gate);
        }
        if waiting.is_empty() {
            return std::mem::take(&mut self.new);
        }
        let mut taken = waiting;
        taken.extend(std::mem::take(&mut self.new));
        taken.sort_by_key(|(number, _)| *number);
        taken.into()
    }
}

/// The waiting notices that a batch takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// All.
    All,
    /// In a command of a cluster: those of its slot, and those that waited for the gate.
    Slot(u16),
    /// None: they cannot be processed now.
    News,
}

/// Connections with a pending `Heard` notice: one per connection is enough.
static HEARD: MainCell<BTreeSet<u64>> = MainCell::new(BTreeSet::new());

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
        && !shell::knows_client(client)
    {
        return;
    }
    if let Notice::Heard(client) = notice
        && HEARD.try_with(|heard| heard.insert(client)) == Some(false)
    {
        return;
    }
    let first = INBOX.try_with(|inbox| {
        if let (Notice::Swapped, Some((_, Notice::Swapped))) = (&notice, inbox.new.back()) {
            // One is enough: each looks at all queues that were not checked since.
            return false;
        }
        let first = inbox.is_empty();
        inbox.push(notice);
        NEWS.store(true, Relaxed);
        first
    });
    if first == Some(true) {
        Alarm::ring();
    }
}

/// Whether there are no notices.
pub fn is_empty() -> bool {
    INBOX.try_with(|inbox| inbox.is_empty()).unwrap_or(true)
}

/// Whether there is a new notice since the last batch, one that has not been tried yet.
pub fn has_news() -> bool {
    NEWS.load(Relaxed)
}

/// Whether a flush waits for its turn.
pub fn awaits_flush() -> bool {
    let is_flush = |(_, notice): &Numbered| matches!(notice, Notice::Flushed { .. });
    INBOX
        .try_with(|inbox| {
            inbox.waiting.get(&None).into_iter().flatten().chain(&inbox.at_gate).any(is_flush)
        })
        .unwrap_or(false)
}

/// Notices being processed. Deferred notices return to the inbox, where they wait. So do unprocessed notices after a
/// panic.
pub struct Batch {
    next: VecDeque<Numbered>,
    put_off: Vec<Numbered>,
    at_gate: Vec<Numbered>,
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
    /// Takes the new notices, and waiting ones. Loaded values come last: the server loads the replacement of a value
    /// before it reports that the old one is gone.
    ///
    /// In a command (`is_command`), what waits for the tick goes on waiting for it.
    pub fn take(of: Of, is_command: bool) -> Self {
        let is_for_tick = NEWS.swap(false, Relaxed) && is_command;
        let notices = INBOX.try_with(|inbox| inbox.take(of)).unwrap_or_default();
        let is_loaded =
            |(_, notice): &Numbered| matches!(notice, Notice::Loaded { aside: false, .. });
        let (mut loaded, mut next): (VecDeque<_>, VecDeque<_>) =
            notices.into_iter().partition(is_loaded);
        next.append(&mut loaded);
        Self { next, put_off: Vec::new(), at_gate: Vec::new(), is_for_tick }
    }

    /// The unprocessed notices.
    pub fn iter(&self) -> impl Iterator<Item = &Notice> {
        self.next.iter().map(|(_, notice)| notice)
    }

    /// Takes the oldest unprocessed notice.
    pub fn next(&mut self) -> Option<Numbered> {
        let (number, notice) = self.next.pop_front()?;
        if let Notice::Heard(client) = notice {
            // From here on a new notice of this client counts.
            HEARD.try_with(|heard| heard.remove(&client));
        }
        Some((number, notice))
    }

    /// Defers a notice that cannot be processed now.
    pub fn put_off(&mut self, notice: Numbered, wait: Wait) {
        match wait {
            Wait::Gate => self.at_gate.push(notice),
            Wait::Tick => {
                self.is_for_tick = true;
                self.put_off.push(notice);
            }
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if self.is_for_tick || !self.next.is_empty() {
            NEWS.store(true, Relaxed);
        }
        let is_cluster = ffi::is_cluster();
        INBOX.try_with(|inbox| {
            inbox.at_gate.append(&mut self.at_gate);
            for (number, notice) in self.put_off.drain(..).chain(self.next.drain(..)) {
                let slot = notice.name().filter(|_| is_cluster).map(slot);
                inbox.waiting.entry(slot).or_default().push((number, notice));
            }
            if inbox.is_empty() {
                inbox.lost_latches = BTreeMap::new();
            }
        });
    }
}
