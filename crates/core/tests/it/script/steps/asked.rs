//! What the driver asks of this core. That of an earlier commit is asked by `asked_earlier.rs`.

use crate::support::World;
use dlock_core::tables::Counters;
pub use dlock_core::tables::settings::Settings;

pub fn known_requests(world: &World) -> usize {
    world.machine.tables().known_requests(world.now())
}

pub fn counters(world: &World) -> &Counters {
    &world.machine.tables().counters
}
