//! What the driver asks of the earlier core. `scripts/core-of` puts this in the place of `asked.rs`.

use crate::support::World;
pub use dlock_core::machine::Settings;
use dlock_core::machine::Counters;

pub fn known_requests(world: &World) -> usize {
    world.machine.known_requests(world.now())
}

pub fn counters(world: &World) -> &Counters {
    world.machine.counters()
}
