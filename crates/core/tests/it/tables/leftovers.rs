//! Work that is left to the tick meets the next command first: ids are not reused too early, and commands do not see
//! what is over.

use crate::script::{run, run_as};
use crate::support::{MS, World};
use dlock_core::events::tick::Progress;
use dlock_core::key::Key;
use dlock_core::machine::Settings;
use dlock_core::regime::Gate;
use dlock_core::turn::Caller;
use dlock_wire::request::{Acquire, Mode, Op, RwAcquire, RwOp};

#[test]
fn an_answered_queue_keeps_its_number_until_the_tick_has_closed_it() {
    for leaves in ["c1  DLOCK.UNBLOCK 4         => 1; c4 gets 1", "gone c4"] {
        run_as(
            "DLATCH",
            &format!(
                "
          0  set portion 2
          0  c1  INIT l 1                => 1
          1  c2  AWAIT l BLOCK 0         => parked
          1  c3  AWAIT l BLOCK 0         => parked
          1  c4  AWAIT l BLOCK 0         => parked
          2  c1  COUNTDOWN l             => 0; c2 gets 1; c3 gets 1
          3  {leaves}
          3  c5  DLOCK.ACQUIRE k A       => t1
          3  c6  DLOCK.ACQUIRE k B BLOCK 0 => parked
          4  tick
          5  c5  DLOCK.RELEASE k A       => 0; c6 gets t2
        "
            ),
        );
    }
}

#[test]
fn a_latch_opens_where_only_places_that_are_gone_are_left() {
    run("
          0  set portion 2
          0  c1  ACQUIRE z X                       => t1
          1  c2  MACQUIRE 7 z a b c d e f A BLOCK 0 => parked
          4  gone c2
          4  c6  DLATCH.INIT d 1                   => 1
          4  c6  DLATCH.COUNTDOWN d                => 0
          5  tick
    ");
}

#[test]
fn a_fair_lock_is_told_of_no_place_that_is_gone() {
    run("
          0  set portion 2
          0  c1  ACQUIRE z X                       => t1
          1  c2  MACQUIRE 7 z a b c d e f A BLOCK 0 => parked
          4  gone c2
          4  c6  DFAIR.RELEASE d D                 => NOTHELD
          5  c6  DFAIR.ACQUIRE e D                 => t2
    ");
    run("
          0  set portion 2
          0  c1  ACQUIRE z X                       => t1
          0  c5  DFAIR.ACQUIRE y Y                 => t2
          1  c2  MACQUIRE 7 z a b c d e f A BLOCK 0 => parked
          4  gone c2
          4  rename y d
          4  c6  DFAIR.RENEW d Y                   => t2
          5  c6  DFAIR.RELEASE d Y                 => 0
          6  tick
    ");
}

#[test]
fn a_queue_kept_for_many_readers_goes_with_them() {
    for mode in ["READ", "WRITE"] {
        run_as(
            "DRW",
            &format!(
                "
          0  set portion 4
          0  c1  ACQUIRE k A READ        => t1
          0  c2  ACQUIRE k B READ        => t2
          0  c3  ACQUIRE k C READ        => t3
          0  c4  ACQUIRE k D READ        => t4
          0  c4  ACQUIRE j D {mode}      => t5
          1  rename j k
          1  tick
          2  c4  RELEASE k D {mode}      => 0
        "
            ),
        );
    }
    run_as(
        "DRW",
        "
          0  set portion 4
          0  c1  ACQUIRE k A READ        => t1
          0  c2  ACQUIRE k B READ        => t2
          0  c3  ACQUIRE k C READ        => t3
          0  c4  ACQUIRE k D READ        => t4
          1  slot-lost k
          1  tick
          2  c5  ACQUIRE k E WRITE BLOCK 0 => parked
          2  slot-lost k                 => c5 gets MOVING
        ",
    );
}

#[test]
fn the_first_waiter_of_a_queue_may_be_gone() {
    run("
          0  set portion 2
          0  c1  ACQUIRE z X                       => t1
          0  c1  ACQUIRE e X                       => t2
          1  c2  MACQUIRE 7 z a b c d e f A BLOCK 0 => parked
          1  c3  ACQUIRE e B QUEUE 50              => null
          2  gone c3
          4  gone c2
    ");
}

#[test]
fn many_readers_of_a_moved_value_are_listed_in_portions_and_then_found_in_a_cycle() {
    run_as(
        "DRW",
        "
          0  set portion 2
          0  c1  ACQUIRE k A READ          => t1
          0  c1  ACQUIRE k B READ          => t2
          0  c1  ACQUIRE k C READ          => t3
          0  c1  ACQUIRE k D READ          => t4
          0  c1  ACQUIRE k E READ          => t5
          0  c2  ACQUIRE l H WRITE         => t6
          0  c3  DLOCK.ACQUIRE z W         => t7
          1  c3  ACQUIRE l W WRITE BLOCK 0 => parked
          2  rename k l
          2  c4  INFO l     => READ [-] [A t1 1 29998, B t2 1 29998, C t3 1 29998, D t4 1 29998, E t5 1 29998] waiters 1
          2  tick
          3  c1  DLOCK.ACQUIRE z E BLOCK 0 => DEADLOCK
          3  c1  DLOCK.ACQUIRE z A BLOCK 0 => DEADLOCK
          3  c5  BREAK l                   => 5; c3 gets t8
          4  c1  DLOCK.ACQUIRE z E BLOCK 0 => parked
        ",
    );
}

fn ask(world: &mut World, key: &[u8], owner: &[u8], mode: Mode, queue_ms: Option<u64>) {
    let acquire = Acquire { queue_ms, ..Acquire::new(key, owner) };
    let caller = Caller { client: 1, db: 0, may_block: true };
    let _ = world.ask(caller, Op::Rw(RwOp::Acquire(RwAcquire { acquire, mode })));
}

/// The key `k` has more readers than one step serves.
fn world_of_readers() -> World {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    world.set_portion(4);
    for n in 0..1_000_u32 {
        ask(&mut world, b"k", &n.to_be_bytes(), Mode::Read, None);
    }
    world
}

/// Renames `k`. Returns how many pieces of work that leaves.
fn pieces_of_a_rename(world: &mut World) -> u32 {
    let _ = world.tick(Gate::Open);
    let (from, to) = (Key { db: 0, name: b"k" }, Key { db: 0, name: b"l" });
    let _ = world.rename(from, to);
    let _ = world.step(|machine, turn| machine.adopt(turn, to));
    let (mut pieces, mut progress) = (0, Progress::More);
    while progress == Progress::More {
        let _ = world.step(|machine, turn| {
            progress = machine.tick(turn, Gate::Open, 1);
        });
        pieces += 1;
    }
    pieces
}

#[test]
fn the_first_look_at_a_value_with_very_many_readers_notes_some_of_them() {
    let mut world = world_of_readers();
    ask(&mut world, b"l", b"holder", Mode::Write, None);
    ask(&mut world, b"l", b"writer", Mode::Write, Some(5_000));
    // Four in each, after the pieces of the first step; thirty-two readers of the old name are forgotten in each.
    let pieces = pieces_of_a_rename(&mut world);
    assert!(pieces > 150, "{pieces} pieces of work");
    world.finish();
}

#[test]
fn very_many_readers_go_with_their_key_and_leave_no_work() {
    let mut world = world_of_readers();
    let pieces = pieces_of_a_rename(&mut world);
    assert!(pieces < 10, "{pieces} pieces of work");
    ask(&mut world, b"l", b"writer", Mode::Write, Some(5_000));
    world.finish();
}

#[test]
fn a_queue_that_has_ended_grants_nothing_and_blocks_no_waiter() {
    // The calls for several keys wait in a queue whose key has another type; they are not told yet.
    run("
          0  set portion 2
          0  c1  ACQUIRE k A                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c3  ACQUIRE k C BLOCK 0           => parked
          1  c4  MACQUIRE 2 k l D BLOCK 0      => parked
          1  c5  ACQUIRE k E BLOCK 9           => parked
          1  c6  ACQUIRE k F BLOCK 0 QUEUE 9   => parked
          1  c7  ACQUIRE k G BLOCK 0           => parked
          1  c8  ACQUIRE k H BLOCK 0           => parked
          2  over k                            => c2 gets WRONGTYPE; c3 gets WRONGTYPE
          2  del k
          2  c1  ACQUIRE k A                   => t3
          2  c1  POSITION k D                  => null
          2  c1  WAITERS k                     => nobody
          2  c1  RELEASE k A                   => 0
          2  c1  RELEASE l A                   => 0
          2  c9  ACQUIRE k H BLOCK 0           => t4
          3  c1  DLOCK.UNBLOCK 6               => 1; c6 gets WRONGTYPE
          3  gone c7
         11  tick                              => c5 gets WRONGTYPE; c4 gets WRONGTYPE; c8 gets WRONGTYPE
         12  c1  ACQUIRE l A                   => t5
    ");
}

#[test]
fn a_waiter_in_a_queue_that_has_ended_is_in_no_cycle() {
    run("
          0  set portion 2
          0  c1  ACQUIRE k A                   => t1
          0  c3  ACQUIRE l C                   => t2
          1  c4  ACQUIRE k D BLOCK 0           => parked
          1  c5  ACQUIRE k E BLOCK 0           => parked
          1  c3  ACQUIRE k C QUEUE 50          => null
          2  over k                            => c4 gets WRONGTYPE; c5 gets WRONGTYPE
          2  del k
          2  c1  ACQUIRE k A                   => t3
        # C waits for k no more.
          2  c1  ACQUIRE l A QUEUE 50          => null
          3  tick
    ");
}

#[test]
fn a_draining_flush_keeps_the_binding_of_a_key_that_was_made_and_swapped_since() {
    run("
          0  set portion 2
          0  c1  ACQUIRE a A BIND 0            => t1
          0  c1  ACQUIRE b A BIND 0            => t2
          0  c1  ACQUIRE d A BIND 0            => t3
          1  flushall                          => dlock:notify: flushed 0
          1  c1  ACQUIRE k A BIND 0            => t4
          2  swapdb 0 1
          2  swapdb 1 2
          3  tick
          4  gone c1
          5  db 2
          5  c2  ACQUIRE k B                   => t5
    ");
}

#[test]
fn waiters_that_an_exchange_has_not_reached_are_served_first() {
    run("
          0  set portion 2
          0  c1  ACQUIRE a A                   => t1
          0  c1  ACQUIRE b A                   => t2
          0  c1  ACQUIRE d A                   => t3
          0  c1  ACQUIRE k A                   => t4
          1  c2  ACQUIRE a B QUEUE 90          => null
          1  c2  ACQUIRE b B QUEUE 90          => null
          1  c2  ACQUIRE d B QUEUE 90          => null
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  swapdb 0 1                        => dlock:notify:B: granted 0 t5 1 B a; dlock:notify:B: granted 0 t6 1 B b
          2  c3  ACQUIRE k C                   => null; c2 gets t7
          2  tick                              => dlock:notify:B: granted 0 t8 1 B d
          3  c2  RELEASE k B                   => 0
          3  c3  ACQUIRE k C                   => t9
          4  db 1
          4  c1  RELEASE k A                   => 0
    ");
}

#[test]
fn a_flush_before_an_exchange_means_the_places_of_its_own_number() {
    run_as(
        "DFAIR",
        "
          0  set portion 2
          0  c1  ACQUIRE a A                   => t1
          0  c1  ACQUIRE b A                   => t2
          0  c1  ACQUIRE k A                   => t3
          0  db 1
          0  c1  ACQUIRE k X                   => t4
          0  db 0
          1  c2  ACQUIRE k B QUEUE 90          => null
          2  flushdb 0                         => dlock:notify: flushed 0
          2  swapdb 0 1
          3  tick
          4  c1  POSITION k B                  => null
          4  c1  POSITION k X                  => 0
    ",
    );
}

#[test]
fn a_replica_that_has_not_worked_off_an_exchange_knows_its_keys() {
    let before = "
          0  set portion 2
          0  c9  ACQUIRE a X                   => t1
          0  c9  ACQUIRE b X                   => t2
          0  c9  ACQUIRE c X                   => t3
          0  c9  ACQUIRE d X                   => t4
          0  c1  ACQUIRE k A REQID 1 BIND 0    => t5
          1  replica-slow
          1  swapdb 0 1 unheard
          1  c9  ACQUIRE e X                   => t6
          1  swaps-heard
          1  db 1
    ";
    // The requests of a removed hold are remembered.
    run(&format!(
        "{before}
          2  del k
          2  failover
          2  c1  ACQUIRE k A REQID 1           => SPENT
    "
    ));
    // A hold from before the promotion is bound to no connection, and has its lease from then.
    run(&format!(
        "{before}
         11  failover
         12  c2  ACQUIRE k B                   => null
         12  gone c1
         12  c2  INFO k                        => [A] t5 holds 1 lease 30000 ttl 4999 held 12 [] bound 0 waiters 0
    "
    ));
}

#[test]
fn a_replica_forgets_the_keys_that_are_flushed_after_an_exchange() {
    run("
          0  set portion 2
          0  c1  ACQUIRE l A                   => t1
          0  move l 1
          0  c1  ACQUIRE l A                   => t2
          1  replica-slow
          1  swapdb 0 1 unheard
          1  c1  ACQUIRE k A                   => t3
          1  swaps-heard
          1  flushdb 0                         => dlock:notify: flushed 0
    ");
}

#[test]
fn waiters_do_not_end_with_a_value_of_another_family() {
    // It came by a swap, and is removed before their queue was checked.
    for acquires in ["DFAIR.ACQUIRE o D", "DLATCH.INIT o 1"] {
        let shown = if acquires.contains("INIT") { "1" } else { "t6" };
        let shift = if shown == "1" { "t6 t7 t8 t9 t10" } else { "t7 t8 t9 t10 t11" };
        run(&format!(
            "
          0  set portion 2
          0  c1  MACQUIRE 5 k l m n o E BLOCK 0 => t1 t2 t3 t4 t5
          1  db 1
          1  c1  {acquires}                     => {shown}
          1  db 0
          2  c2  MACQUIRE 5 k l m n o A BLOCK 0 => parked
          3  swapdb 0 1
          3  del o
          4  tick                               => c2 gets {shift}
    "
        ));
    }
}

#[test]
fn a_call_that_ends_while_it_is_asked_again_leaves_no_places() {
    run("
          0  set portion 3
          0  set cluster 1
          0  c2  ACQUIRE k D BIND 0             => t1
          0  c3  ACQUIRE y D BIND 0             => t2
          0  db 1
          0  c4  MACQUIRE 4 k p q r E           => t3 t4 t5 t6
          0  c5  ACQUIRE p F QUEUE 90           => null
          0  c5  ACQUIRE q F QUEUE 90           => null
          0  c5  ACQUIRE r F QUEUE 90           => null
          0  db 0
          1  c8  MACQUIRE 5 k l m n o G BLOCK 0 => parked
        # This reaches the three queues in the other database.
          2  swapdb 0 1
        # The first key is not here: in a cluster, it may be on another node.
          2  c7  MACQUIRE 3 l k m G BLOCK 6     => parked; c8 gets MOVING
    ");
}

#[test]
fn a_call_for_several_keys_is_not_granted_after_one_of_its_queues_has_ended() {
    run("
          0  set portion 2
          0  c1  ACQUIRE k D                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c3  ACQUIRE k C BLOCK 0           => parked
        # It enters the first key once more.
          1  c4  MACQUIRE 2 k l D BLOCK 0      => parked
          2  slot-lost k                       => c2 gets MOVING; c3 gets MOVING
          2  c1  RELEASE l A                   => 0
          3  tick                              => c4 gets MOVING
          4  c1  ACQUIRE l A                   => t3
    ");
}
