//! FLUSHDB, FLUSHALL and SWAPDB.
//!
//! Each changes the index at its moment, in O(1): the entries and bindings of a flushed database are void as a whole,
//! because the database gets a new home ([`Leases::flush`]), and swapped databases exchange their homes. So an entry
//! always has the address of its value, whatever is replayed or made next. The tick frees the memory.
//!
//! Waiters stay with the number of their database. What these events mean to them is applied later, where keys can be
//! read: by a walk over the queues, and before an operation on a key to the queue of that key.
//!
//! [`Leases::flush`]: crate::lease::Leases::flush

use crate::effects::Message;
use crate::ids::QueueId;
use crate::key::{Key, Swap};
use crate::machine::Machine;
use crate::portions::Slots;
use crate::store::Lookup;
use crate::turn::Turn;
use alloc::vec::Vec;

impl Machine {
    /// The server has just removed all keys of one database (`None`: of all). Call this before anything else is done to
    /// the keys, and [`Machine::flushed`] with the result once keys can be read: it has the databases that had keys of
    /// ours, in ascending order.
    pub fn keys_flushed(&mut self, db: Option<u32>) -> Vec<u32> {
        self.forget_taken(|gone| db.is_none_or(|db| db == gone.db));
        self.waits.flushed(db);
        let homes = self.leases.flush(db);
        homes
            .into_iter()
            .map(|(number, home)| {
                self.connections.unbind_home(home);
                self.waits.forget_home(home);
                number
            })
            .collect()
    }

    /// The server has just swapped two databases. Call this before anything else is done to the keys, and
    /// [`Machine::swapped`] once keys can be read.
    pub fn keys_swapped(&mut self, swap: Swap) {
        if swap.a != swap.b {
            for db in [swap.a, swap.b] {
                self.waits.swapped(db, self.leases.home(db));
            }
            self.leases.swap_databases(swap);
            self.swap_in_flight(swap);
        }
    }

    /// [`Machine::keys_flushed`] found keys in these databases. With `announce`, one message `flushed db` replaces one
    /// message per hold.
    pub fn flushed(&mut self, turn: &mut Turn<'_>, databases: &[u32], announce: bool) {
        for number in databases.iter().filter(|_| announce && self.regime.is_primary()) {
            let channel = dlock_wire::names::FLUSH_CHANNEL.as_bytes().to_vec();
            let text = alloc::format!("flushed {number}").into_bytes();
            turn.fx.messages.push(Message { channel, is_sharded: false, text });
        }
        self.check_some_queues(turn);
    }

    /// [`Machine::keys_swapped`] was called: holds went with the data, waiters stay with the database number.
    pub fn swapped(&mut self, turn: &mut Turn<'_>) {
        self.check_some_queues(turn);
    }

    /// Checks the first queues of changed databases. The tick continues.
    fn check_some_queues(&mut self, turn: &mut Turn<'_>) {
        let begun = self.waits.moves();
        for _ in 0..self.wide_at_once {
            if self.has_done_enough(turn.fx, begun) || !self.check_next_queue(turn) {
                break;
            }
        }
        self.drain_dirty(turn);
    }

    /// Checks the next queue of a changed database; `false` if there is none.
    pub(crate) fn check_next_queue(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(next) = self.waits.next_unchecked() else { return false };
        if let Some(id) = next {
            self.check_queue(turn, id);
        }
        true
    }

    /// Before an operation on a key: checks its queue, if the walk has not come to it.
    pub(crate) fn check_queue_of(&mut self, turn: &mut Turn<'_>, key: Key<'_>) {
        if self.waits.has_unchecked()
            && let Some(id) = self.waits.queue_of(key)
        {
            self.check_queue(turn, id);
        }
    }

    /// Applies a flush, or a swap, to the waiters of a queue.
    fn check_queue(&mut self, turn: &mut Turn<'_>, id: QueueId) {
        let Some(queue) = self.waits.queue(id).filter(|queue| self.waits.is_unchecked(queue))
        else {
            return;
        };
        let (kind, db, name) = (queue.kind, queue.db, queue.name.clone());
        let (observes, matters) = (queue.observes, queue.matters_to_value());
        let is_flushed = !observes && self.waits.is_flushed(queue);
        let is_swapped = self.waits.former_homes(queue).next().is_some();
        if matters && self.regime.is_primary() {
            // A value that a swap took from these waiters has no queue entries now. It may exist only for them.
            let homes = self.waits.former_homes(queue);
            self.pending.revisit.extend(homes.map(|home| (home, name.to_vec())));
        }
        // With a new number it is checked: these changes do not concern its later waiters.
        self.waits.renew_serial(id);
        let key = Key { db, name: &name };
        if is_flushed {
            // Waiters without a connection end with the holds of their database.
            for slot in self.waits.absent_in(id).collect::<Slots>() {
                self.remove_waiter(slot);
            }
            // A value that is there was loaded since, unless a swap brought it: the same data may be back.
            let is_back = !is_swapped && matches!(turn.keys.get(key), Lookup::Here(_));
            if !is_back && self.regime.is_primary() {
                self.value_is_gone(kind, key, turn.fx);
            }
        }
        // Without those that ended, the queue may be another one now.
        if let Some(id) = if observes { Some(id) } else { self.waits.queue_of(key) } {
            self.inspect(turn, id);
        }
    }
}
