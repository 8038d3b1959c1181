//! Hand-offs: waiters that they skip or refuse, and the number of expired holds that one step ends before them.

use crate::script::run_as;
use crate::support::{MS, World};
use dlock_core::key::Key;
use dlock_core::machine::Settings;
use dlock_core::regime::Gate;
use dlock_core::turn::Caller;
use dlock_wire::request::{Acquire, LockFamily, LockOp, Op, Release, SemAcquire, SemOp};

#[test]
fn a_step_ends_no_more_than_a_portion_of_the_expired_holds() {
    run_as(
        "DRW",
        "
          0  set portion 2
          0  c1  ACQUIRE k A READ PX 10 NOTIFY c => t1
          0  c1  ACQUIRE k B READ PX 10 NOTIFY c => t2
          0  c1  ACQUIRE k C READ PX 10 NOTIFY c => t3
          0  c1  ACQUIRE k D READ PX 10 NOTIFY c => t4
         20  c2  RENEW k Z READ => NOTHELD; c: expired 0 t1 1 A k; c: expired 0 t2 1 B k
        ",
    );
}

#[test]
fn a_semaphore_that_comes_by_rename_refuses_calls_that_are_too_wide_wherever_they_are() {
    run_as(
        "DSEM",
        "
          0  c1  INIT z 2                     => 1
          0  c1  ACQUIRE z Z COUNT 2          => p1
          1  c2  ACQUIRE s B BLOCK 0          => parked
          1  c3  ACQUIRE s C COUNT 3 BLOCK 0  => parked
        # C is not the first waiter, and B is not granted now.
          2  rename z s                       => c3 gets LIMIT
          3  c1  RELEASE s $p1                => 1; c2 gets p2
        ",
    );
}

/// The connection of the skipped waiters lets a grant expire unclaimed: it is unresponsive.
#[test]
fn a_hand_off_notes_its_position_behind_more_skipped_waiters_than_a_portion() {
    for (skipped, first_counted) in [(2, "S0"), (3, "L")] {
        let mut world = World::new(Settings::default(), 1_000_000 * MS);
        world.set_portion(2);
        let wait_for_permit = |world: &mut World, client, owner: &str, limit| {
            let acquire =
                Acquire { queue_ms: Some(60_000), ..Acquire::new(b"s", owner.as_bytes()) };
            let call = SemAcquire { acquire, count: 1, limit };
            let caller = Caller { client, db: 0, may_block: true };
            let op = Op::Sem(SemOp::Acquire(call));
            let _ = world.ask(caller, op);
        };
        wait_for_permit(&mut world, 1, "H", Some(1));
        for n in 0..skipped {
            wait_for_permit(&mut world, 2, &format!("S{n}"), None);
        }
        wait_for_permit(&mut world, 3, "L", None);
        for (client, owner) in [(1, b"H"), (2, b"A")] {
            let call = Acquire { queue_ms: Some(100), ..Acquire::new(b"k", owner) };
            let caller = Caller { client, db: 0, may_block: true };
            let _ = world.ask(caller, Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
        }
        let caller = Caller { client: 1, db: 0, may_block: true };
        let release = Release::new(b"k", b"H");
        let _ = world.ask(caller, Op::Lock(LockFamily::Lock, LockOp::Release(release)));
        world.at(1_000_200 * MS);
        let _ = world.tick(Gate::Open);
        let waits = world.machine.waits();
        let queue = waits.queue_of(Key { db: 0, name: b"s" }).expect("a queue");
        assert_eq!(waits.walk(queue).count(), skipped + 1);
        let activations = world.machine.connections().activations();
        let (_, first) = waits.walk_counting(queue, activations).next().expect("a waiter");
        assert_eq!(*first.owner, *first_counted.as_bytes(), "behind {skipped}");
        world.finish();
    }
}
