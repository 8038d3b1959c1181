//! What other commands do to our keys: DEL, SET over one, RENAME, FLUSHALL, SWAPDB, a slot that
//! moves away.
//!
//! The host tells of these in callbacks in which nothing may be written, and cannot tell some of
//! them apart. So the shell only notes them, and later asks the machine to look at what the key
//! holds by then.

use super::{AT_ONCE, Machine, Role, Slots};
use crate::effects::Effects;
use crate::hold::NO_CLIENT;
use crate::lease::{EntryId, NO_ENTRY};
use crate::resource::Resource;
use crate::slab::NIL;
use crate::store::{Key, Slot, Store};
use crate::time::Now;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use dlock_wire::reply::ErrorCode;

/// What a value was when the server unlinked it from its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    entry: EntryId,
    tied_to: u64,
    /// Channel, token and owner for the message `deleted`, if the hold sends messages.
    message: Option<(Vec<u8>, u64, Vec<u8>)>,
}

impl Lost {
    /// Notes what `resource` is, to be told to [`Machine::unlinked`] later.
    pub fn of(resource: &Resource) -> Self {
        let hold = resource.lock().hold();
        Self {
            entry: resource.entry,
            tied_to: hold.map_or(NO_CLIENT, crate::hold::Hold::tied_to),
            message: hold.and_then(|hold| Some((hold.channel()?, hold.token, hold.owner.to_vec()))),
        }
    }
}

impl Machine {
    /// A value was unlinked from `key`: deleted, evicted, overwritten, or moved elsewhere (tell
    /// [`Machine::moved`] first, so that this can see it).
    pub fn unlinked<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        key: Key<'_>,
        lost: Option<&Lost>,
        fx: &mut Effects,
    ) {
        if let Some(lost) = lost
            && !matches!(store.get(key), Slot::Here(resource) if resource.entry == lost.entry)
            && self.leases.of_key(lost.entry, key).is_some()
        {
            self.leases.leave(lost.entry);
            self.connections.untie(lost.tied_to, lost.entry);
            if let Some((channel, token, owner)) = &lost.message
                && self.role == Role::Primary
            {
                fx.message(channel.clone(), "deleted", key, *token, owner);
            }
        }
        self.look_at_queue(store, now, key, fx);
    }

    /// The value that is now under `key` came there by RENAME or MOVE: leases and ties follow it.
    pub fn moved<S: Store>(&mut self, store: &mut S, key: Key<'_>) {
        if let Slot::Here(resource) = store.get(key)
            && let Some(entry) = self.leases.get(resource.entry)
        {
            if let Some(hold) = resource.lock().hold() {
                let (db, name) = (entry.db, entry.name.to_vec());
                self.readdress(Key { db, name: &name }, key, hold.token);
            }
            self.leases.rename(resource.entry, key);
        }
    }

    /// Two databases were exchanged: holds go with the data, waiters stay with the number.
    pub fn swapped<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        (a, b): (u32, u32),
        fx: &mut Effects,
    ) {
        self.leases.swap_databases(a, b);
        self.swap_in_flight(a, b);
        self.look_at_queues(store, now, fx, |db| db == a || db == b);
    }

    /// All keys of one database (`None`: of all) were removed. One message `flushed db` takes the
    /// place of one per hold, if `announce` asks for it. A key that is there all the same lives on.
    pub fn flushed<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        db: Option<u32>,
        announce: bool,
        fx: &mut Effects,
    ) {
        let mut databases: BTreeMap<u32, bool> = BTreeMap::new();
        for id in 0..self.leases.bound() {
            let Some(entry) = self.leases.get(id) else { continue };
            if db.is_some_and(|db| db != entry.db) {
                continue;
            }
            let number = entry.db;
            let is_empty = *databases.entry(number).or_insert_with(|| store.is_empty(number));
            if !is_empty {
                let name: Vec<u8> = entry.name.to_vec();
                let key = Key { db: number, name: &name };
                if matches!(store.get(key), Slot::Here(resource) if resource.entry == id) {
                    continue;
                }
            }
            self.leases.leave(id);
        }
        let databases = databases.into_keys();
        self.forget_lost_ties();
        if announce && self.role == Role::Primary {
            for db in databases {
                let channel = dlock_wire::names::FLUSH_CHANNEL.as_bytes().to_vec();
                let text = alloc::format!("flushed {db}").into_bytes();
                fx.messages.push(crate::effects::Message { channel, text });
            }
        }
        self.look_at_queues(store, now, fx, |number| db.is_none_or(|db| db == number));
    }

    /// Ties to entries that are gone.
    fn forget_lost_ties(&mut self) {
        let lost: Vec<(u64, EntryId)> = self
            .connections
            .iter()
            .flat_map(|(client, connection)| connection.ties.iter().map(move |&tie| (client, tie)))
            .filter(|&(_, entry)| self.leases.get(entry).is_none())
            .collect();
        for (client, entry) in lost {
            self.connections.untie(client, entry);
        }
    }

    fn look_at_queues<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
        wanted: impl Fn(u32) -> bool,
    ) {
        let found: Slots =
            self.waits.queues().filter(|(_, queue)| wanted(queue.db)).map(|(id, _)| id).collect();
        for id in found {
            self.look_at(store, id, fx);
        }
        self.work_off_stalled(store, now, fx);
    }

    /// Whoever waits for `key` gets it if it is free now; an error if it is of another type now,
    /// or gone in a cluster, where it may have moved to another node.
    fn look_at_queue<S: Store>(&mut self, store: &mut S, now: Now, key: Key<'_>, fx: &mut Effects) {
        if let Some(queue) = self.waits.queue_of(key) {
            self.look_at(store, queue, fx);
            self.work_off_stalled(store, now, fx);
        }
    }

    fn look_at<S: Store>(&mut self, store: &mut S, id: u32, fx: &mut Effects) {
        let Some(queue) = self.waits.queue(id) else { return };
        if self.settings.cluster && matches!(store.get(queue.key()), Slot::Missing) {
            self.dismiss_queue(id, ErrorCode::Unblocked, GONE, fx);
        } else {
            self.waits.stall(id);
        }
    }

    /// This node no longer serves the slot of these keys: their waiters must ask elsewhere.
    pub fn slot_lost(&mut self, mut lost: impl FnMut(&[u8]) -> bool, fx: &mut Effects) {
        let queues: Slots =
            self.waits.queues().filter(|(_, queue)| lost(&queue.name)).map(|(id, _)| id).collect();
        for queue in queues {
            self.dismiss_queue(queue, ErrorCode::Unblocked, GONE, fx);
        }
    }

    /// Ends all waits of a queue: blocked calls get the error, places just go.
    pub(super) fn dismiss_queue(
        &mut self,
        queue: u32,
        code: ErrorCode,
        text: &str,
        fx: &mut Effects,
    ) {
        for slot in self.waiters_of(queue) {
            self.dismiss(slot, code, text, fx);
        }
    }

    /// Hands on in the queues that were noted, as far as the server takes writes: the first few, and
    /// the rest in the tick.
    pub(super) fn work_off_stalled<S: Store>(&mut self, store: &mut S, now: Now, fx: &mut Effects) {
        if self.shut || self.role == Role::Replica || self.quarantine_left(now.mono) > 0 {
            return;
        }
        for _ in 0..AT_ONCE {
            if !self.work_off_one(store, now, fx) {
                break;
            }
        }
    }

    /// Hands on in one queue that was noted; `false` when there was none.
    pub(super) fn work_off_one<S: Store>(
        &mut self,
        store: &mut S,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        let Some(id) = self.waits.next_stalled() else { return false };
        let Some(queue) = self.waits.queue(id) else { return true };
        let (db, name) = (queue.db, queue.name.to_vec());
        let key = Key { db, name: &name };
        let looked = self.on_key(store, key, now, fx, |machine, step, resource| {
            machine.hand_on(step, resource);
        });
        if looked.is_err() {
            let text = "Operation against a key holding the wrong kind of value";
            for slot in self.waiters_of(id) {
                let Some(waiter) = self.forget_place(slot) else { continue };
                if let crate::queue::Presence::Parked { .. } = waiter.presence {
                    let outcome = crate::effects::Outcome::fault(ErrorCode::WrongType, text);
                    fx.wake(waiter.id, outcome);
                }
            }
        }
        true
    }
}

const GONE: &str = "the key was removed or moved to another node; ask again";

const _: () = assert!(NO_ENTRY == NIL);
