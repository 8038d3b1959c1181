//! The memory of requests that are over: which request ids were carried out, and with which answer.
//!
//! A late copy of such a request must do nothing. The memory keeps a fingerprint of 128 bits for each request and none
//! of its strings, so an id of any length costs some 48 bytes. To note, find or drop a request is O(1), and no
//! operation moves a whole table. Entries are in chunks, oldest first. The hash table grows and shrinks by one bucket
//! at a time (see [`crate::base::buckets`]). RELEASE calls for unknown requests have a table of their own.

use crate::base::buckets::{Buckets, Chain as _};
use crate::base::hash::HashKeys;
use crate::base::ids::{ALONE, HoldId};
use crate::base::key::Key;
use crate::base::kind::Kind;
use crate::base::shares::User;
use crate::base::time::{LeaseInstant, Millis};
use crate::value::hold::Hold;
use core::hash::Hasher;
use dlock_wire::request::Mode;
use log::{Entry, Log, RequestNumber};
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128, SipHasher13};
use unmatched::Unmatched;

mod log;
mod unmatched;

/// What a request was about: the family and, for a read-write lock, the mode. Ids of different scopes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// A re-entrant lock.
    Lock,
    /// A lock with a durable queue.
    Fair,
    /// A read-write lock, held in mode READ.
    Read,
    /// A read-write lock, held in mode WRITE.
    Write,
    /// A semaphore.
    Semaphore,
}

impl Scope {
    /// All scopes, in the order of their numbers in records.
    pub const ALL: [Self; 5] = [Self::Lock, Self::Fair, Self::Read, Self::Write, Self::Semaphore];

    /// The scope of requests for a hold of `kind` in `mode`. `None` for latches, which remember their requests
    /// themselves.
    pub fn of(kind: Kind, mode: Option<Mode>) -> Option<Self> {
        Some(match (kind, mode) {
            (Kind::Lock, _) => Self::Lock,
            (Kind::Fair, _) => Self::Fair,
            (Kind::Rw, Some(Mode::Read)) => Self::Read,
            (Kind::Rw, _) => Self::Write,
            (Kind::Semaphore, _) => Self::Semaphore,
            (Kind::Latch, _) => return None,
        })
    }

    /// The scope of the requests that the hold under `id` knows.
    pub fn of_hold(kind: Kind, id: HoldId) -> Option<Self> {
        Self::of(kind, Some(if id == ALONE { Mode::Write } else { Mode::Read }))
    }
}

/// The name of a request within a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestKey<'a> {
    /// What it was about.
    pub scope: Scope,
    /// The owner that asked; empty for TAKE, GIVE, DRAIN and RESIZE.
    pub owner: &'a [u8],
    /// REQID, 1 to 64 bytes.
    pub id: &'a [u8],
}

/// Under this name the memory knows that a latch was lost before it opened. Owners have names, so no request has this.
pub(crate) const LOST_LATCH: RequestKey<'static> =
    RequestKey { scope: Scope::Lock, owner: &[], id: b"latch" };

/// How a hold ended before the RELEASE of a request that it was given to. Records contain it: new variants come at the
/// end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// Its lease was over.
    Expired,
    /// An operator broke it.
    Broken,
    /// Its key was deleted, overwritten or evicted.
    Deleted,
    /// The connection that it was bound to closed.
    Disconnected,
    /// A RELEASE without the id of the request.
    Released,
}

/// What became of a request that is over. Records contain it: new variants come at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Use {
    /// ACQUIRE: its hold has ended, without its RELEASE.
    Lost(Loss),
    /// ACQUIRE: its RELEASE answered this.
    Released(u32),
    /// ACQUIRE: its RELEASE ended a place or a blocked call.
    Waited,
    /// ACQUIRE: its RELEASE came first, or the hold had another token.
    Unknown,
    /// TAKE took this number of permits.
    Taken(u32),
    /// GIVE returned this number.
    Given(u32),
    /// DRAIN took this number.
    Drained(u32),
    /// RESIZE to this size.
    ResizedTo(u32),
    /// RESIZE by this number.
    ResizedBy(i32),
}

/// Limits of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Time for which a request is remembered, in milliseconds; 0: no request is remembered.
    pub keep_ms: Millis,
    /// Largest number of requests that did something; 0: none. Of others, a sixteenth of it is remembered besides.
    pub most: usize,
}

/// The fingerprint of a request.
pub(crate) type Print = [u64; 2];

/// Number of entries that a new one removes at most, so that memory follows the limits without a tick.
const DROPS_PER_NOTE: usize = 2;

/// See the module documentation.
#[derive(Debug)]
pub struct SpentRequests {
    keys: HashKeys,
    log: Log,
    /// The entries that are remembered, by fingerprint.
    by_print: Buckets<RequestNumber>,
    /// RELEASE calls for unknown requests.
    unmatched: Unmatched,
}

/// Makes the fingerprints of one memory: those of another memory differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prints(HashKeys);

impl Prints {
    pub(crate) fn of(self, key: Key<'_>, request: RequestKey<'_>) -> Print {
        self.of_owner(key, request.scope, request.owner)(request.id)
    }

    /// The fingerprints of requests of one owner, by REQID.
    ///
    /// Saved, and sent to replicas: the same on every machine, and part of the version of the saved data.
    fn of_owner(self, key: Key<'_>, scope: Scope, owner: &[u8]) -> impl Fn(&[u8]) -> Print + use<> {
        let HashKeys(one, other) = self.0;
        let mut hasher = SipHasher13::new_with_keys(one, other);
        hasher.write(&key.db.to_le_bytes());
        hasher.write(&[scope as u8]);
        let add = |hasher: &mut SipHasher13, part: &[u8]| {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        };
        add(&mut hasher, key.name);
        add(&mut hasher, owner);
        move |id| {
            let mut hasher = hasher;
            add(&mut hasher, id);
            let hash = hasher.finish128();
            [hash.h1, hash.h2]
        }
    }

    /// The requests that are over when a hold of `key` ends, by fingerprint: see [`spent_of`].
    pub(crate) fn of_hold<'h>(
        self,
        key: Key<'_>,
        kind: Kind,
        id: HoldId,
        hold: &'h Hold,
        loss: Loss,
    ) -> impl Iterator<Item = (Print, Use)> + use<'h> {
        let print = Scope::of_hold(kind, id).map(|scope| self.of_owner(key, scope, &hold.owner));
        let requests = spent_of(kind, id, hold, loss);
        requests.filter_map(move |(request, what)| Some((print.as_ref()?(request.id), what)))
    }
}

impl SpentRequests {
    /// An empty memory. `keys` should be random: clients choose the ids.
    pub fn new(keys: HashKeys) -> Self {
        Self {
            keys,
            log: Log::default(),
            by_print: Buckets::default(),
            unmatched: Unmatched::default(),
        }
    }

    /// Number of remembered requests, including overdue ones that are not dropped yet.
    pub fn len(&self) -> usize {
        self.by_print.len() + self.unmatched.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of requests still known at `now`. O(n): for tests.
    pub fn known(&self, now: LeaseInstant, limits: Limits) -> usize {
        self.entries(now, limits).count()
    }

    /// What the request did, if it is known at `now`.
    pub fn find(
        &self,
        key: Key<'_>,
        request: RequestKey<'_>,
        now: LeaseInstant,
        limits: Limits,
    ) -> Option<Use> {
        if self.is_empty() {
            return None;
        }
        let print = self.print(key, request);
        let (what, at) = match self.number_of(print).and_then(|number| self.log.get(number)) {
            Some(entry) => (entry.what, entry.at),
            None => self.unmatched.get(print).map(|entry| (Some(entry.what), entry.at))?,
        };
        what.filter(|_| at + limits.keep_ms > now)
    }

    /// Notes at `now` what a request did, and replaces an earlier note about it.
    pub fn note(
        &mut self,
        key: Key<'_>,
        request: RequestKey<'_>,
        what: Use,
        now: LeaseInstant,
        limits: Limits,
    ) {
        self.put(User::UNKNOWN, self.print(key, request), what, now, limits);
    }

    /// [`SpentRequests::note`] by fingerprint, of a request of `user`. `now` must not be before that of the last entry.
    pub(crate) fn put(
        &mut self,
        user: User,
        print: Print,
        what: Use,
        now: LeaseInstant,
        limits: Limits,
    ) {
        self.take_out(print);
        self.drop_overdue(now, limits, DROPS_PER_NOTE);
        if limits.most == 0 || limits.keep_ms == 0 {
            return;
        }
        if Unmatched::takes(what) {
            return self.unmatched.put(print, what, now, user, limits);
        }
        if self.log.slots() >= limits.most {
            self.drop_oldest();
        }
        if self.log.next_number() == RequestNumber::NONE {
            self.log.append(Entry {
                print: [0; 2],
                at: now,
                next: RequestNumber::NONE,
                what: None,
            });
        }
        let number = self.log.next_number();
        self.log.append(Entry { print, at: now, next: RequestNumber::NONE, what: Some(what) });
        self.by_print.insert(&mut self.log, print[0], number);
    }

    /// Forgets a request: it was rolled back.
    pub fn forget(&mut self, key: Key<'_>, request: RequestKey<'_>) {
        if !self.is_empty() {
            self.take_out(self.print(key, request));
        }
    }

    fn take_out(&mut self, print: Print) {
        if let Some(number) = self.number_of(print) {
            self.unlink(number);
        }
        self.unmatched.forget(print);
    }

    /// The keys of the fingerprints. Fingerprints mean nothing without them.
    pub(crate) fn keys(&self) -> HashKeys {
        self.keys
    }

    /// The fingerprints that this memory keeps.
    pub fn prints(&self) -> Prints {
        Prints(self.keys)
    }

    /// All requests that are still known at `now`, oldest first: fingerprint, age in milliseconds
    /// rounded down, and what it did.
    pub(crate) fn entries(
        &self,
        now: LeaseInstant,
        limits: Limits,
    ) -> impl Iterator<Item = (Print, Millis, Use)> {
        let log = self.log.chunks.iter().flatten().skip(self.log.dropped);
        let log = log.filter_map(|entry| Some((entry.at, entry.print, entry.what?)));
        let unmatched = self.unmatched.entries().map(|entry| (entry.at, entry.print, entry.what));
        let (mut log, mut unmatched) = (log.peekable(), unmatched.peekable());
        let entries = core::iter::from_fn(move || match (log.peek(), unmatched.peek()) {
            (Some((one, ..)), Some((other, ..))) if one > other => unmatched.next(),
            (None, _) => unmatched.next(),
            (Some(_), _) => log.next(),
        });
        let known = entries.filter(move |(at, ..)| *at + limits.keep_ms > now);
        known.map(move |(at, print, what)| (print, now.0.saturating_sub(at.0) / 1_000, what))
    }

    /// Drops up to `most` entries that are overdue at `now` or exceed the limit. Returns whether there were any.
    pub fn drop_overdue(&mut self, now: LeaseInstant, limits: Limits, most: usize) -> bool {
        let mut worked = false;
        for _ in 0..most {
            let is_one_over = self.log.oldest().is_some_and(|oldest| {
                let is_over = oldest.what.is_none() || oldest.at + limits.keep_ms <= now;
                is_over || self.log.slots() > limits.most
            });
            if is_one_over {
                self.drop_oldest();
            }
            if !self.unmatched.drop_one(now, limits) && !is_one_over {
                break;
            }
            worked = true;
        }
        worked
    }

    /// Time at which the oldest entry is overdue; `None` if there is none.
    pub fn next_end(&self, limits: Limits) -> Option<LeaseInstant> {
        let in_log = self.log.oldest().map(|oldest| oldest.at + limits.keep_ms);
        in_log.into_iter().chain(self.unmatched.next_end(limits)).min()
    }

    pub(crate) fn print(&self, key: Key<'_>, request: RequestKey<'_>) -> Print {
        self.prints().of(key, request)
    }

    fn drop_oldest(&mut self) {
        if self.log.slots() == 0 {
            return;
        }
        // The first chunk is not empty, and its entries have the numbers from `base` on.
        #[allow(clippy::cast_possible_truncation)]
        let number = RequestNumber::new(self.log.base.wrapping_add(self.log.dropped as u32));
        if self.log.get(number).is_some_and(|entry| entry.what.is_some()) {
            self.unlink(number);
        }
        self.log.drop_first();
    }

    /// Removes an entry from the table; its slot in the log stays until the older ones are gone.
    fn unlink(&mut self, number: RequestNumber) {
        let Some(entry) = self.log.get_mut(number) else { return };
        entry.what = None;
        let hash = entry.print[0];
        self.by_print.remove(&mut self.log, hash, number);
    }

    fn number_of(&self, print: Print) -> Option<RequestNumber> {
        let is_it = |number| self.log.get(number).is_some_and(|entry| entry.print == print);
        self.by_print.find(print[0], is_it, |number| self.log.next(number))
    }
}

/// The requests of a hold, which are over when it ends in this way.
pub(crate) fn spent_of(
    kind: Kind,
    id: HoldId,
    hold: &Hold,
    loss: Loss,
) -> impl Iterator<Item = (RequestKey<'_>, Use)> {
    let scope = Scope::of_hold(kind, id);
    hold.request_ids().filter_map(move |id| {
        Some((RequestKey { scope: scope?, owner: &hold.owner, id }, Use::Lost(loss)))
    })
}

#[cfg(test)]
mod tests;
