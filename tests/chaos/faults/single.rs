//! Faults of one server: restarts.

use dlock_testing::Dice;

use crate::{crowd::Crowd, oracle::Violation, world::World};

/// A restart: with the AOF no acknowledged call is lost, with an RDB file none from before the file.
pub fn strike(world: &mut World, crowd: &mut Crowd, dice: &mut Dice) -> Result<(), Violation> {
    if world.has_aof {
        let words: Option<&[&str]> = if dice.one_in(2) { Some(&[]) } else { None };
        return super::restart(world, crowd, 0, words);
    }
    if dice.one_in(2) {
        return super::restart(world, crowd, 0, Some(&["SAVE"]));
    }
    // Nothing is granted in a pause, so there is no acknowledged grant between the snapshot and the end.
    super::pause_writes(&world.servers[0]);
    world.servers[0].cmd(&["SAVE"]);
    super::all_doomed(crowd);
    let server = &mut world.servers[0];
    server.kill9();
    server.start_again();
    crowd.pump()
}
