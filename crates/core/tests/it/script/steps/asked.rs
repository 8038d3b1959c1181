//! What the driver asks of this core. That of an earlier commit is asked by `asked_earlier.rs`.

use crate::support::World;
pub use dlock_core::settings::Settings;
use dlock_core::tables::Counters;

pub fn known_requests(world: &World) -> usize {
    world.machine.tables().known_requests(world.now())
}

pub fn counters(world: &World) -> &Counters {
    &world.machine.tables().counters
}
