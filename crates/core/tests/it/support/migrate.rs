//! Keys that move between the nodes of a cluster.

use super::server::decoded;
use super::{MS, Seen, World};
use dlock_core::base::ids::QueueId;
use dlock_core::base::key::Key;
use dlock_core::base::slab::SlabId;
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
            let done = machine.slot_lost(queues.clone(), |name| name == key.name, turn.fx);
            assert_eq!(done, queues.end, "there are few queues");
        });
        here.add(lost);
        self.finish_in_tick(&mut here);
        to.finish_in_tick(&mut there);
        Some([here, there])
    }
}
