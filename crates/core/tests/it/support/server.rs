//! What the server does to a [`World`]: keys deleted and moved, roles, restarts.

use super::keys::own;
use super::{Keys, Seen, World};
use dlock_core::effects::Effects;
use dlock_core::machine::{Lost, Machine};
use dlock_core::resource::Resource;
use dlock_core::store::Key;
use dlock_core::time::Now;

impl World {
    /// Gives `key` a time to live.
    pub fn expire_later(&mut self, key: Key<'_>) {
        self.keys.with_ttl.push(own(key));
        self.replica_keys.with_ttl.push(own(key));
    }

    /// DEL, UNLINK, EXPIRE running out, eviction; with `over`, SET of another type over it.
    pub fn unlink(&mut self, key: Key<'_>, over: bool) -> Seen {
        let lost = [self.keys.lost(key), self.replica_keys.lost(key)];
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.take(key);
            if over {
                keys.insert(key, None);
            }
        }
        let [here, there] = lost;
        self.on_replica(|machine, keys, now, fx| {
            machine.unlinked(keys, now, key, there.as_ref(), fx);
        });
        self.step(|machine, keys, now, fx| machine.unlinked(keys, now, key, here.as_ref(), fx))
    }

    /// RENAME, or MOVE when the databases differ.
    pub fn rename(&mut self, from: Key<'_>, to: Key<'_>) -> Seen {
        let mut lost = Vec::new();
        for keys in [&mut self.keys, &mut self.replica_keys] {
            lost.push((keys.lost(from), keys.lost(to)));
            if let Some(value) = keys.take(from) {
                keys.take(to);
                keys.insert(to, value);
            }
        }
        let told = |lost: (Option<Lost>, Option<Lost>)| {
            move |machine: &mut Machine, keys: &mut Keys, now: Now, fx: &mut Effects| {
                machine.moved(keys, to);
                machine.unlinked(keys, now, to, lost.1.as_ref(), fx);
                machine.unlinked(keys, now, from, lost.0.as_ref(), fx);
            }
        };
        let there = lost.pop().expect("two servers");
        let here = lost.pop().expect("two servers");
        self.on_replica(told(there));
        self.step(told(here))
    }

    /// SWAPDB.
    pub fn swap_databases(&mut self, a: u32, b: u32) -> Seen {
        self.keys.swap(a, b);
        self.replica_keys.swap(a, b);
        self.on_replica(|machine, keys, now, fx| machine.swapped(keys, now, (a, b), fx));
        self.step(|machine, keys, now, fx| machine.swapped(keys, now, (a, b), fx))
    }

    /// FLUSHDB, or FLUSHALL (`None`).
    pub fn flush(&mut self, db: Option<u32>) -> Seen {
        for keys in [&mut self.keys, &mut self.replica_keys] {
            keys.values.retain(|((number, _), _)| db.is_some_and(|db| db != *number));
        }
        self.on_replica(|machine, keys, now, fx| machine.flushed(keys, now, db, true, fx));
        self.step(|machine, keys, now, fx| machine.flushed(keys, now, db, true, fx))
    }

    /// The replica takes over, and the old primary follows it.
    pub fn fail_over(&mut self) -> Seen {
        let seen = self.step(|machine, _, _, fx| machine.demote(fx));
        self.exchange();
        self.sent.clear();
        let promoted = self.step(|machine, _, now, _| machine.promote(now));
        assert_eq!(promoted, Seen::default(), "a promotion alone does nothing outside");
        seen
    }

    /// Looks at the replica as if it were the primary, and back.
    pub fn exchange(&mut self) {
        std::mem::swap(&mut self.machine, &mut self.replica);
        std::mem::swap(&mut self.keys, &mut self.replica_keys);
    }

    /// The process is restarted: what was saved is loaded, nothing else is left.
    pub fn restart(&mut self) {
        let now = self.now();
        let lease = self.machine.lease_time(now.mono);
        let settings = self.machine.settings.clone();
        let values = std::mem::take(&mut self.keys.values);
        let mut fresh = World::new(settings, self.now_us);
        fresh.wall_us = self.wall_us;
        for (key, value) in values {
            let load = |value: &Resource| {
                let mut payload = Vec::new();
                dlock_core::record::encode(value, now.mono, lease, &mut payload);
                dlock_core::record::decode(&payload, now.mono).expect("what was saved loads")
            };
            let key = Key { db: key.0, name: &key.1 };
            for keys in [&mut fresh.keys, &mut fresh.replica_keys] {
                keys.insert(key, value.as_ref().map(load));
            }
            fresh.on_replica(|machine, keys, now, fx| machine.adopt(keys, now, key, fx));
            fresh.step(|machine, keys, now, fx| machine.adopt(keys, now, key, fx));
        }
        fresh.machine.loaded(now);
        fresh.machine.begin_quarantine(now.mono);
        *self = fresh;
    }

    fn on_replica(&mut self, run: impl FnOnce(&mut Machine, &mut Keys, Now, &mut Effects)) {
        let now = self.now();
        let mut fx = Effects::default();
        run(&mut self.replica, &mut self.replica_keys, now, &mut fx);
        assert!(fx.is_quiet(), "a replica does nothing by itself: {fx:?}");
        self.check_replica();
    }
}
