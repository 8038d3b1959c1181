//! DUMP and RESTORE, and keys that move between the nodes of a cluster.

use super::server::{decoded, encoded};
use super::{MS, Seen, World};
use dlock_core::base::ids::QueueId;
use dlock_core::base::key::{Key, Place};
use dlock_core::base::slab::SlabId;
use dlock_core::machine::{Machine, ServerEvent};
use dlock_core::ports::store::{Lookup, Store};
use dlock_core::ports::{lost::Lost, turn::Turn};
use dlock_core::tables::settings::Settings;

/// How much later the monotonic clock of another node is, and how much earlier its wall clock.
const CLOCKS_DIFFER_US: u64 = 7 * 3_600_000 * MS;

impl World {
    /// Another node: its clocks show other times, and its permits have other ids.
    pub fn other_node(&self, settings: Settings) -> World {
        let mut other = World::new(settings, self.now_us + CLOCKS_DIFFER_US);
        other.wall_us = self.wall_us - CLOCKS_DIFFER_US - 2_000 * MS;
        other.is_cluster = self.is_cluster;
        other.permits = self.permits + (1 << 64);
        other
    }

    /// The permit id of the last call.
    pub fn last_permit(&self) -> u128 {
        self.permits
    }

    /// DUMP of one key, and RESTORE of that under another one (REPLACE).
    pub fn restore(&mut self, from: Key<'_>, to: Key<'_>) -> Seen {
        let payload = self.dump(from).expect("something to dump");
        self.restore_dump(&payload, to)
    }

    /// DUMP.
    fn dump(&mut self, key: Key<'_>) -> Option<Vec<u8>> {
        let now = self.now();
        let lease = self.machine.tables().regime.lease(now.mono);
        let Lookup::Here(resource) = self.keys.get(key) else { return None };
        Some(encoded(resource, now, lease, self.machine.tables().level))
    }

    /// RESTORE REPLACE of a dump.
    fn restore_dump(&mut self, payload: &[u8], to: Key<'_>) -> Seen {
        self.ledger.removed(to);
        self.share_prints();
        let now = self.now();
        let [here, there] = [&mut self.keys, &mut self.replica_keys].map(|keys| {
            let lost = keys.free(to);
            keys.insert(to, Some(decoded(payload, now)));
            lost
        });
        let after_events = self.after_events;
        let told = |lost: Option<Lost>| {
            move |machine: &mut Machine, turn: &mut Turn<'_>| {
                machine.event(turn, ServerEvent::Unlinked(to, lost));
                machine.event(turn, ServerEvent::Adopted(to));
                after_events(machine, turn);
            }
        };
        self.on_replica(told(there));
        self.step(told(here))
    }

    /// A key moves to another node, with its promises: MIGRATE, and then this node sees that it has lost the slot.
    /// `None` if the other node refuses the value: then nothing has changed. What both nodes did, this one first.
    pub fn migrate(&mut self, key: Key<'_>, to: &mut World) -> Option<[Seen; 2]> {
        let dump = self.dump(key);
        let mut there = Seen::default();
        if let Some(payload) = &dump {
            let (now, value) = (to.now(), decoded(payload, to.now()));
            to.machine.tables().admit(&value, 0, now.wall_us).ok()?;
            there = to.restore_dump(payload, key);
        }
        self.start_ledger();
        to.start_ledger();
        self.ledger.migrated(key, &mut to.ledger);
        to.check_ledger();
        let mut here = if dump.is_some() { self.unlink(key, false) } else { Seen::default() };
        let lost = self.step(|machine, turn| {
            let queues = QueueId::FIRST..machine.tables().waits.queue_bound();
            let done = machine.slot_lost(
                queues.clone(),
                |one| if one == key { Place::Gone } else { Place::Here },
                turn.fx,
            );
            assert_eq!(done, queues.end, "there are few queues");
        });
        here.add(lost);
        self.finish_in_tick(&mut here);
        to.finish_in_tick(&mut there);
        Some([here, there])
    }
}
