//! The port to the keys.

use crate::base::key::Key;
use crate::base::shares::User;
use crate::ports::lost::Lost;
use crate::value::resource::Resource;

/// The content of a key.
#[derive(Debug)]
pub enum Lookup<'a> {
    /// Nothing.
    Missing,
    /// A value of another type: `WRONGTYPE`.
    WrongType,
    /// One of ours.
    Here(&'a mut Resource),
    /// No value here, and the key may be on another node: its slot is moving away, or has moved. No value may be put
    /// under it.
    Elsewhere,
    /// Unknown: the key may not be touched now; see [`Reach`]. A caller must not ask for it.
    OutOfReach,
}

/// The keys that one operation may touch.
///
/// Inside a command, newer servers in cluster mode look up every key in the dictionary of the running command's slot. A
/// key of another slot then seems to be missing, and writing it makes a second key of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All keys.
    Everywhere,
    /// Only keys of the slot of the running command. Work on other keys waits for the tick.
    OneSlot,
}

/// The storage of resources: Redis keys in the server, a map in tests.
///
/// The machine keeps no resource between two operations. It looks it up by name each time, because any other command
/// may have removed, replaced or moved it.
pub trait Store {
    /// The keys that may be touched now.
    fn reach(&self) -> Reach;
    /// Whether `key` may be touched now.
    fn reaches(&self, key: Key<'_>) -> bool;
    /// The ACL user of the caller, for operations that count by user ([`crate::ops::counts_by_user`]).
    fn user(&self) -> User {
        User::UNKNOWN
    }
    /// The ACL user of the caller, for an id that is noted without a request. It may cost 0.2 µs.
    fn caller(&self) -> User {
        self.user()
    }
    /// Whether the caller may read `key`, so that an answer may name it.
    fn may_read(&self, _key: Key<'_>) -> bool {
        true
    }
    /// Whether another node serves the slot of `key`, and this one does not import it. A value that is here, left
    /// behind or early, is not in force: nothing of it ends, and nothing is granted.
    fn is_away(&mut self, _key: Key<'_>) -> bool {
        false
    }
    /// The content of `key`.
    fn get(&mut self, key: Key<'_>) -> Lookup<'_>;
    /// The value of `key`, if it is one of ours, for a look that changes nothing: in a server it neither removes a key
    /// whose time to live is over, nor asks whether the key is on another node. It works while nothing may be written.
    fn peek(&mut self, key: Key<'_>) -> Option<&Resource>;
    /// Opens `key`. If that removes a value, because its time to live is over, the operation gets here what the server
    /// would report to the machine only later.
    fn take_lost(&mut self, _key: Key<'_>) -> Option<Lost> {
        None
    }
    /// Whether a closed latch was removed from `key`, and the machine has not learnt of that yet.
    fn has_lost_latch(&mut self, _key: Key<'_>) -> bool {
        false
    }
    /// A record has made a latch under `key` since one was removed from it: the machine will not learn that the removed
    /// one was closed.
    fn forget_lost_latch(&mut self, _key: Key<'_>) {}
    /// Puts a new value under `key`, which must be missing.
    fn put(&mut self, key: Key<'_>, resource: Resource);
    /// Removes the value under `key`, which must exist.
    fn remove(&mut self, key: Key<'_>);
    /// Removes a time to live that a client set on `key` (`EXPIRE`).
    fn persist(&mut self, key: Key<'_>);
}
