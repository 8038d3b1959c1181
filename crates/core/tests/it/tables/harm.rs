//! Work that no call waits for does not delay a due hand-over, and other databases cost nothing.

use crate::support::{MS, Seen, World};
use dlock_core::base::key::Key;
use dlock_core::events::tick::Progress;
use dlock_core::machine::ServerEvent;
use dlock_core::ports::turn::Caller;
use dlock_core::tables::regime::Gate;
use dlock_core::tables::settings::Settings;
use dlock_wire::request::{
    Acquire, AwaitEnd, Channel, LockFamily, LockOp, Op, SemAcquire, SemInit, SemOp,
};

const MANY: u32 = 600;

/// The owner of the many holds, and those of the others.
const CROWD: u64 = 1;
const HOLDER: u64 = 2;
const WAITER: u64 = 3;

fn caller(client: u64) -> Caller {
    Caller { client, db: 0, may_block: true }
}

fn acquire(world: &mut World, client: u64, call: Acquire<'_>) {
    let _ = world.ask(caller(client), Op::Lock(LockFamily::Lock, LockOp::Acquire(call)));
}

/// A lock whose lease ends after `px` milliseconds, and a call that waits for it.
fn awaited(world: &mut World, key: &[u8], px: u64) {
    acquire(world, HOLDER, Acquire { lease_ms: Some(px), ..Acquire::new(key, b"holder") });
    acquire(world, WAITER, Acquire { queue_ms: Some(60_000), ..Acquire::new(key, b"waiter") });
}

fn world() -> World {
    World::new(Settings::default(), 1_000_000 * MS)
}

/// One tick of 64 pieces of work.
fn tick(world: &mut World) -> (Seen, Progress) {
    let mut progress = Progress::Done;
    let seen = world.step(|machine, turn| progress = machine.tick(turn, Gate::Open, 64));
    (seen, progress)
}

/// The lock `k`, whose lease is over, is handed over by the first tick, although other work is left.
fn assert_hands_over_first(world: &mut World) {
    let granted = world.machine.tables().counters.grants_after_waiting;
    let (_, progress) = tick(world);
    assert_eq!(progress, Progress::More, "there is other work");
    assert_eq!(world.machine.tables().counters.grants_after_waiting, granted + 1);
}

#[test]
fn leases_that_nobody_waits_for_do_not_delay_a_hand_over() {
    let mut world = world();
    for n in 0..MANY {
        let key = n.to_be_bytes();
        acquire(&mut world, CROWD, Acquire { lease_ms: Some(100), ..Acquire::new(&key, b"a") });
    }
    awaited(&mut world, b"k", 150);
    world.at(1_000_200 * MS);
    assert_hands_over_first(&mut world);
}

#[test]
fn the_holds_of_a_dead_connection_do_not_delay_a_hand_over() {
    let mut world = world();
    for n in 0..MANY {
        let key = n.to_be_bytes();
        acquire(&mut world, CROWD, Acquire { bind_ms: Some(0), ..Acquire::new(&key, b"a") });
    }
    awaited(&mut world, b"k", 150);
    world.at(1_000_200 * MS);
    let _ = world.step(|machine, turn| {
        machine.event(turn, ServerEvent::ClientGone(CROWD));
    });
    assert_hands_over_first(&mut world);
}

#[test]
fn the_messages_of_a_removed_semaphore_do_not_delay_a_hand_over() {
    let mut world = world();
    world.set_portion(64);
    let _ = world.ask(caller(CROWD), Op::Sem(SemOp::Init(SemInit { key: b"s", permits: MANY })));
    for n in 0..MANY {
        let owner = n.to_be_bytes();
        let notify = Some(Channel::Plain(b"c"));
        let acquire = Acquire { bind_ms: Some(0), notify, ..Acquire::new(b"s", &owner) };
        let call = SemAcquire { acquire, count: 1, limit: None };
        let _ = world.ask(caller(CROWD), Op::Sem(SemOp::Acquire(call)));
    }
    awaited(&mut world, b"k", 150);
    let _ = world.unlink(Key { db: 0, name: b"s" }, false);
    world.at(1_000_200 * MS);
    assert_hands_over_first(&mut world);
}

#[test]
fn hand_overs_come_in_the_order_of_their_deadlines() {
    let mut world = world();
    for (key, px) in [(b"c", 190), (b"a", 110), (b"d", 195), (b"b", 150)] {
        awaited(&mut world, key, px);
    }
    world.at(1_000_200 * MS);
    let (seen, _) = tick(&mut world);
    let mut granted: Vec<_> = seen.recorded.iter().map(|(_, key)| key.clone()).collect();
    granted.dedup();
    assert_eq!(granted, [b"a", b"b", b"c", b"d"]);
}

#[test]
fn a_flush_or_swap_of_empty_databases_leaves_no_work() {
    let mut world = world();
    for n in 0..MANY {
        let key = n.to_be_bytes();
        acquire(&mut world, CROWD, Acquire { bind_ms: Some(0), ..Acquire::new(&key, b"a") });
    }
    while tick(&mut world).1 == Progress::More {}
    let _ = world.flush(Some(5));
    assert_eq!(tick(&mut world).1, Progress::Done, "a flush of an empty database");
    let _ = world.swap_databases(5, 6);
    assert_eq!(tick(&mut world).1, Progress::Done, "a swap of empty databases");
    let _ = world.flush(Some(0));
    while tick(&mut world).1 == Progress::More {}
    assert_eq!(world.machine.tables().leases.len(), 0);
}

/// Calls that may be made by a user who may only read: waits of a millisecond.
#[test]
fn waits_that_end_together_do_not_delay_a_hand_over() {
    let mut world = world();
    awaited(&mut world, b"k", 150);
    acquire(&mut world, HOLDER, Acquire { lease_ms: Some(60_000), ..Acquire::new(b"held", b"h") });
    for n in 0..u64::from(MANY) {
        let wait = AwaitEnd { block_ms: Some(100), ..AwaitEnd::new(b"held") };
        let _ = world.ask(caller(1_000 + n), Op::Lock(LockFamily::Lock, LockOp::Await(wait)));
    }
    world.at(1_000_200 * MS);
    assert_hands_over_first(&mut world);
}

#[test]
fn graces_that_end_together_do_not_delay_a_hand_over() {
    let mut world = world();
    acquire(&mut world, HOLDER, Acquire { lease_ms: Some(60_000), ..Acquire::new(b"held", b"h") });
    for n in 0..MANY {
        let owner = n.to_be_bytes();
        let call = Acquire { queue_ms: Some(100), ..Acquire::new(b"held", &owner) };
        acquire(&mut world, CROWD, call);
    }
    let _ = world.gone(CROWD);
    while tick(&mut world).1 == Progress::More {}
    awaited(&mut world, b"k", 150);
    world.at(1_000_200 * MS);
    assert_hands_over_first(&mut world);
}

#[test]
fn the_holds_of_a_former_primary_do_not_delay_a_hand_over() {
    let mut world = world();
    for n in 0..MANY {
        let key = n.to_be_bytes();
        acquire(&mut world, CROWD, Acquire { lease_ms: Some(60_000), ..Acquire::new(&key, b"a") });
    }
    let _ = world.fail_over();
    awaited(&mut world, b"k", 150);
    world.at(1_000_200 * MS);
    assert_hands_over_first(&mut world);
}
