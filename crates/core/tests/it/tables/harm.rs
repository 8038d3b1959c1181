//! Very much work that nobody waits for harms no others: other databases cost nothing.

use crate::support::{MS, World};
use dlock_core::events::tick::Progress;
use dlock_core::machine::Settings;
use dlock_core::regime::Gate;
use dlock_core::turn::Caller;
use dlock_wire::request::{Acquire, LockFamily, LockOp, Op};

const MANY: u32 = 600;

/// One tick of 64 pieces of work.
fn tick(world: &mut World) -> Progress {
    let mut progress = Progress::Done;
    let _ = world.step(|machine, turn| progress = machine.tick(turn, Gate::Open, 64));
    progress
}

#[test]
fn a_flush_or_swap_of_empty_databases_leaves_no_work() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let crowd = Caller { client: 1, db: 0, may_block: true };
    for n in 0..MANY {
        let key = n.to_be_bytes();
        let call = Acquire { bind_ms: Some(0), ..Acquire::new(&key, b"a") };
        let _ = world.ask(crowd, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
    }
    while tick(&mut world) == Progress::More {}
    let _ = world.flush(Some(5));
    assert_eq!(tick(&mut world), Progress::Done, "a flush of an empty database");
    let _ = world.swap_databases(5, 6);
    assert_eq!(tick(&mut world), Progress::Done, "a swap of empty databases");
    let _ = world.flush(Some(0));
    while tick(&mut world) == Progress::More {}
    assert_eq!(world.machine.leases().len(), 0);
}
