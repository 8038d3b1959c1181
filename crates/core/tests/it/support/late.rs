//! Events of which the machines of a [`World`] learn late.

use super::keys::own;
use super::{Seen, World};
use dlock_core::base::key::{Key, Swap};
use dlock_core::machine::{Fact, ServerEvent};

impl World {
    /// As [`World::unlink`], but the machines learn of it only in [`World::hear_of_removals`]. The server removes a key
    /// whose time to live is over when a command or the machine opens it, and reports it later.
    pub fn unlink_unheard(&mut self, key: Key<'_>) -> Seen {
        self.ledger.removed(key);
        self.share_prints();
        for keys in [&mut self.keys, &mut self.replica_keys] {
            let lost = keys.free(key);
            keys.unheard.extend(lost.map(|lost| (own(key), lost)));
        }
        Seen::default()
    }

    /// Tells the machines all removals that they have not learnt of.
    pub fn hear_of_removals(&mut self) -> Seen {
        let mut all = Seen::default();
        let after_events = self.after_events;
        for ((db, name), lost) in std::mem::take(&mut self.replica_keys.unheard) {
            self.on_replica(|machine, turn| {
                machine.event(turn, ServerEvent::Unlinked(Key { db, name: &name }, Some(lost)));
            });
        }
        for ((db, name), lost) in std::mem::take(&mut self.keys.unheard) {
            all = self.step(|machine, turn| {
                machine.event(turn, ServerEvent::Unlinked(Key { db, name: &name }, Some(lost)));
                after_events(machine, turn);
            });
        }
        self.check();
        all
    }

    /// RENAME, of which the replica's machine learns only in [`World::hear_of_renames`]: the server reports it later,
    /// and replays records before.
    pub fn rename_unheard(&mut self, from: Key<'_>, to: Key<'_>) -> Seen {
        self.ledger.moved(from, to);
        self.share_prints();
        let [_, gone] = self.replica_keys.rename(from, to);
        self.unheard_renames.extend(gone.map(|gone| (own(from), own(to), gone)));
        let [there, gone] = self.keys.rename(from, to);
        self.step(|machine, turn| {
            machine.event(turn, ServerEvent::Moved(to));
            machine.event(turn, ServerEvent::Unlinked(to, there));
            machine.event(turn, ServerEvent::Unlinked(from, gone));
        })
    }

    /// Tells the replica's machine all renames that it has not learnt of.
    pub fn hear_of_renames(&mut self) -> Seen {
        for (from, to, gone) in std::mem::take(&mut self.unheard_renames) {
            self.on_replica(|machine, turn| {
                machine.event(turn, ServerEvent::Moved(Key { db: to.0, name: &to.1 }));
                machine.event(
                    turn,
                    ServerEvent::Unlinked(Key { db: from.0, name: &from.1 }, Some(gone)),
                );
            });
        }
        self.check();
        Seen::default()
    }

    /// SWAPDB, whose notice the replica processes only in [`World::hear_of_databases`], after it has replayed records.
    pub fn swap_databases_unheard(&mut self, a: u32, b: u32) -> Seen {
        self.ledger.swapped(a, b);
        self.keys.swap(a, b);
        self.replica_keys.swap(a, b);
        self.unheard_databases.push(None);
        self.replica.learn(Fact::Swapped(Swap { a, b }));
        self.step(|machine, turn| {
            machine.learn(Fact::Swapped(Swap { a, b }));
            machine.event(turn, ServerEvent::Swapped);
        })
    }

    /// FLUSHDB or FLUSHALL (`None`), whose notice the replica processes only in [`World::hear_of_databases`].
    pub fn flush_unheard(&mut self, db: Option<u32>) -> Seen {
        self.ledger.flushed(db);
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.values.retain(|((number, _), _)| db.is_some_and(|db| db != *number));
        }
        let databases = self.replica.keys_flushed(db);
        self.unheard_databases.push(Some(databases));
        self.step(|machine, turn| {
            let databases = machine.keys_flushed(db);
            machine.event(turn, ServerEvent::Flushed { databases: &databases, announce: true });
        })
    }

    /// The replica's machine processes the notices of all such swaps and flushes.
    pub fn hear_of_databases(&mut self) -> Seen {
        for flushed in std::mem::take(&mut self.unheard_databases) {
            let event = match &flushed {
                Some(databases) => ServerEvent::Flushed { databases, announce: true },
                None => ServerEvent::Swapped,
            };
            self.on_replica(|machine, turn| {
                machine.event(turn, event);
            });
        }
        self.check_replica();
        Seen::default()
    }

    /// Checks that the replica remembers what the primary does, unless only one of them has learnt of a removal.
    pub(super) fn check_known_requests(&self) {
        if self.keys.unheard.len() == self.replica_keys.unheard.len() {
            let [here, there] = [&self.machine, &self.replica]
                .map(|machine| machine.tables().known_requests(self.now()));
            assert_eq!(here, there, "the replica remembers as many requests as the primary");
        }
    }
}
