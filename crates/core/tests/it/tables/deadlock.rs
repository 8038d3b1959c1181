//! Deadlock detection, where a few rows say more than a random run.

use crate::script::{run, run_here};

#[test]
fn waits_for_any_key_and_for_permits_do_not_count() {
    run("
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE l B                         => t2
          0  c2  DSEM.ACQUIRE s B LIMIT 1            => p1
          1  c3  ANYACQUIRE 2 l m A                  => m t3
          1  c3  RELEASE m A                         => 0
          2  c3  ANYACQUIRE 1 l A BLOCK 0            => parked
          3  c4  DSEM.ACQUIRE s A BLOCK 0            => parked
          4  c5  ACQUIRE k B BLOCK 0                 => parked
        # Nor do they close one.
          5  c9  RELEASE l A                         => null; c3 gets null
          6  c3  ANYACQUIRE 1 l A BLOCK 0            => parked
        # A wait for it alone does.
          7  c6  ACQUIRE l A BLOCK 0                 => DEADLOCK
          7  c6  MACQUIRE 2 l m A BLOCK 0            => DEADLOCK
          7  c6  ACQUIRE l A QUEUE 50                => DEADLOCK
          7  c6  ACQUIRE l A                         => null
          7  m6  ACQUIRE l A BLOCK 0                 => null
          8  c1  RELEASE k A                         => 0; c5 gets t4
    ");
}

#[test]
fn a_call_for_all_keys_waits_at_each_and_closes_free_ones() {
    run("
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE l B                         => t2
          1  c3  MACQUIRE 3 m k n B BLOCK 0          => parked
          2  c4  ACQUIRE l A BLOCK 0                 => DEADLOCK
        # B is the first waiter of m, though it is free, and waits for A.
          3  c4  ACQUIRE m A BLOCK 0                 => DEADLOCK
          3  c4  MACQUIRE 2 x n A BLOCK 0            => DEADLOCK
          4  c5  MACQUIRE 2 n x C BLOCK 0            => parked
          5  c1  RELEASE k A                         => 0; c3 gets t3 t4 t5
    ");
}

#[test]
fn a_key_that_is_held_already_is_no_reason_to_wait() {
    run("
          0  c1  ACQUIRE k A                         => t1
          0  c1  ACQUIRE z A                         => t2
          0  c1  ACQUIRE l C                         => t3
          0  c1  ACQUIRE y D                         => t4
          1  c2  ACQUIRE k B QUEUE 1000              => null
          1  c2  ACQUIRE y B QUEUE 1000              => null
        # A stands behind B at k, but holds it.
          2  c3  MACQUIRE 2 k l A BLOCK 0            => parked
          3  c4  ACQUIRE z D BLOCK 0                 => parked
    ");
}

#[test]
fn a_place_that_the_call_gives_up_does_not_count() {
    run("
          0  c1  DRW.ACQUIRE k H WRITE               => t1
          0  c1  ACQUIRE m H                         => t2
          1  c2  DRW.ACQUIRE k A READ QUEUE 1000     => null
          2  c3  DRW.ACQUIRE k B WRITE QUEUE 1000    => null
          3  c3  ACQUIRE m B QUEUE 1000              => null
        # A goes to the end, where it waits for B, who does not wait for it then.
          4  c5  DRW.ACQUIRE k A WRITE QUEUE 1000    => null
    ");
    run("
          0  c1  ACQUIRE k H                         => t1
          0  c1  ACQUIRE m H                         => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0            => parked
          2  c3  MACQUIRE 2 k m B BLOCK 0            => parked
        # Another set of keys: A goes behind B.
          3  c4  MACQUIRE 2 k n A BLOCK 0            => parked; c2 gets REPLACED
    ");
    run("
          0  c1  ACQUIRE k H                         => t1
          0  c1  ACQUIRE m H                         => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0            => parked
          2  c3  ACQUIRE k B BLOCK 0                 => parked
          3  c4  ACQUIRE m B QUEUE 1000              => null
        # For k alone: the place in front of B stays.
          4  c5  ACQUIRE k A BLOCK 0                 => parked; c2 gets REPLACED
    ");
}

#[test]
fn a_reader_does_not_wait_for_other_readers() {
    run("
          0  c1  DRW.ACQUIRE k H READ                => t1
          0  c4  ACQUIRE m A                         => t2
          1  c4  DRW.ACQUIRE k A WRITE QUEUE 1000    => null
          2  c3  DRW.ACQUIRE k B READ QUEUE 1000     => null
          3  c3  ACQUIRE m B QUEUE 1000              => null
        # A does not demand to write any more: both read at once.
          4  c4  DRW.ACQUIRE k A READ QUEUE 1000     => t4; dlock:notify:B: granted 0 t3 1 B k
    ");
}

#[test]
fn a_place_that_goes_to_the_end_waits_for_those_it_was_in_front_of() {
    run("
          0  c1  ACQUIRE k H                         => t1
          0  c1  ACQUIRE z A                         => t2
          1  c2  ACQUIRE k A QUEUE 1000              => null
          2  c3  ACQUIRE k B QUEUE 1000              => null
          3  c3  ACQUIRE z B QUEUE 1000              => null
          4  c5  MACQUIRE 2 k m A BLOCK 0            => DEADLOCK
          5  c5  WAITERS k                           => A 2 4 - []; B 3 3 - []
    ");
}

#[test]
fn a_place_for_any_key_counts_once_its_owner_wants_this_one() {
    run("
          0  c1  ACQUIRE k H                         => t1
          0  c1  ACQUIRE l B                         => t2
          1  c2  ANYACQUIRE 2 k x A                  => x t3
          1  c2  RELEASE x A                         => 0
          1  c1  ACQUIRE x H                         => t4
          2  c2  ANYACQUIRE 2 k x A BLOCK 0          => parked
          3  c3  ACQUIRE k B BLOCK 0                 => parked
          4  c4  ACQUIRE l A BLOCK 0                 => parked
        # A waits for B, who would wait for A from now on.
          5  c5  ACQUIRE k A BLOCK 0                 => DEADLOCK
          6  c3  RELEASE l B                         => 0; c4 gets t5
          7  c5  ACQUIRE k A BLOCK 0                 => parked; c2 gets REPLACED
    ");
}

#[test]
fn a_hold_to_read_is_seen_though_its_owner_waits_for_the_first_time() {
    run("
          0  c1  DRW.ACQUIRE k C READ                => t1
          0  c2  ACQUIRE l W                         => t2
          1  c2  DRW.ACQUIRE k W WRITE BLOCK 0       => parked
          2  c1  ACQUIRE l C BLOCK 0                 => DEADLOCK
    ");
}

#[test]
fn ended_waits_and_expired_leases_close_no_cycle() {
    run("
          0  c1  ACQUIRE k A PX 50                   => t1
          0  c2  ACQUIRE l B                         => t2
          1  c3  MACQUIRE 2 l m A BLOCK 30           => parked
        # The wait of A is over at 31, its lease at 50; no alarm has rung.
         40  c4  ACQUIRE k B BLOCK 0                 => parked
         41  tick                                    => c3 gets null
         42  c3  MACQUIRE 2 l m A BLOCK 0            => DEADLOCK
         60  c3  MACQUIRE 2 l m A BLOCK 0            => parked; c4 gets t3
         62  c2  RELEASE l B                         => 0; c3 gets t4 t5
    ");
}

#[test]
fn a_lease_that_ends_at_this_moment_closes_no_cycle() {
    run_here(
        "
          0  c1  ACQUIRE k A PX 50                   => t1
          0  c2  ACQUIRE l B                         => t2
          1  c4  ACQUIRE k B BLOCK 0                 => parked
         49  c3  ACQUIRE l A BLOCK 0                 => DEADLOCK
        # No alarm has rung: the call ends what is due before it searches.
         51  c3  ACQUIRE l A BLOCK 0                 => parked; c4 gets t3
    ",
    );
    run_here(
        "
          0  c1  DRW.ACQUIRE k A READ PX 50          => t1
          0  c2  DRW.ACQUIRE k B READ                => t2
          1  c2  DRW.ACQUIRE k B WRITE BLOCK 0       => parked
        # Not in front of B, who then would wait for A.
         51  c1  DRW.ACQUIRE k A WRITE BLOCK 0       => parked; c2 gets t3
    ",
    );
}

#[test]
fn a_queue_that_has_emptied_unnoticed_hides_no_holder() {
    run("
          0  c1  DFAIR.ACQUIRE k A                   => t1
          0  c2  ACQUIRE l B                         => t2
          1  c3  DFAIR.ACQUIRE k C BLOCK 30          => parked
          2  c4  ACQUIRE l A BLOCK 0                 => parked
         40  tick shut                               => c3 gets null
         41  c2  DFAIR.ACQUIRE k B BLOCK 0           => DEADLOCK
    ");
}

#[test]
fn an_upgrade_makes_those_wait_in_front_of_whom_it_goes() {
    run("
          0  c9  DRW.ACQUIRE k H WRITE               => t1
          0  c9  ACQUIRE j H                         => t2
          0  c1  ACQUIRE m X                         => t3
          1  c1  DRW.ACQUIRE k X READ QUEUE 50 PX 50 => null
          1  c1  ACQUIRE j X QUEUE 50 PX 50          => null
          2  c9  RELEASE j H                         => 0; dlock:notify:X: granted 0 t4 1 X j
         60  tick                                    => dlock:notify:X: expired 0 t4 1 X j
        # X is passed over, and waits for nobody at k.
         61  c9  DRW.RELEASE k H WRITE               => 0
         61  c2  DRW.ACQUIRE k R READ                => t5
         61  c3  DRW.ACQUIRE k Z READ                => t6
         62  c2  ACQUIRE m R QUEUE 1000 PX 1000      => null
        # It would for R, who waits for it at m.
         63  c4  DRW.ACQUIRE k R WRITE BLOCK 0       => DEADLOCK
    ");
}

#[test]
fn a_hold_that_came_by_rename_leaves_its_owner_behind_the_waiters_in_front() {
    run("
          0  c1  ACQUIRE k H                         => t1
          0  c1  ACQUIRE j A                         => t2
          0  c1  ACQUIRE x A                         => t3
          1  c2  ACQUIRE k B QUEUE 60000             => null
          1  c3  ACQUIRE k A QUEUE 60000             => null
          2  rename j k
        # A holds k and is queued for it behind B.
          3  c2  ACQUIRE x B QUEUE 60000             => DEADLOCK
    ");
}

/// A holds x, and waits for B only in queues that have ended or that its connection has left.
fn after_the_queue_of_a_has_ended(rows: &str) {
    run(&format!(
        "
          0  c1  DFAIR.ACQUIRE j Z                   => t1
          0  c1  DFAIR.ACQUIRE k Z                   => t2
          0  c1  ACQUIRE m Z                         => t3
          0  c3  ACQUIRE x A                         => t4
          1  c2  ACQUIRE m B QUEUE 60000             => null
          1  c9  ACQUIRE m A QUEUE 60000             => null
          1  c2  DFAIR.ACQUIRE j B QUEUE 60000       => null
          1  c4  DFAIR.ACQUIRE k B BLOCK 0           => parked
          1  c3  DFAIR.ACQUIRE k C QUEUE 60000       => null
          1  c3  DFAIR.ACQUIRE k D QUEUE 60000       => null
          1  c3  DFAIR.ACQUIRE k A QUEUE 60000       => null
          2  gone c9
        {rows}
        "
    ));
}

#[test]
fn queue_entries_that_were_dropped_with_their_key_close_no_cycle() {
    // The call of B keeps its position at k; the entry of A behind it is not removed yet.
    after_the_queue_of_a_has_ended(
        "
          3  rename j k                              => dlock:notify:B: granted 0 t5 1 B j
          3  c1  DFAIR.WAITERS k                     => B 4 2 - []
          3  c2  ACQUIRE x B QUEUE 60000             => null
    ",
    );
}

#[test]
fn queue_entries_that_were_answered_close_no_cycle() {
    // The entry of B at the new k is older than that of A at the former one, which is not removed yet.
    after_the_queue_of_a_has_ended(
        "
          3  over k                                  => c4 gets WRONGTYPE
          3  del k
          3  restore j k
          3  c1  DFAIR.WAITERS k                     => B 0 2 60000 []
          3  c2  ACQUIRE x B QUEUE 60000             => null
    ",
    );
}

#[test]
fn a_call_for_a_key_of_another_type_does_not_wait_and_closes_no_cycle() {
    run("
          0  c1  ACQUIRE l A                         => t1
          0  c2  ACQUIRE k H                         => t2
          1  c3  ACQUIRE k B QUEUE 60000             => null
          1  c4  MACQUIRE 2 l m B BLOCK 0            => parked
        # B waits for A, and is in the queues of k and of m, which is free.
          2  c1  DFAIR.ACQUIRE k A BLOCK 0           => WRONGTYPE
          2  c1  DFAIR.ACQUIRE m A BLOCK 0           => WRONGTYPE
          2  c1  DRW.ACQUIRE k A READ BLOCK 0        => WRONGTYPE
          2  c1  DRW.ACQUIRE m A WRITE QUEUE 60000   => WRONGTYPE
    ");
}

#[test]
fn an_upgrade_that_is_first_already_closes_no_new_cycle() {
    run("
          0  set deadlock-detection 0
          0  c1  DRW.ACQUIRE k A READ                => t1
          0  c2  DRW.ACQUIRE k B READ                => t2
          0  c1  ACQUIRE m A                         => t3
          1  c1  DRW.ACQUIRE k A WRITE QUEUE 60000   => null
          1  c2  ACQUIRE m B QUEUE 60000             => null
        # The cycle is there. A does not close it by asking again.
          2  set deadlock-detection 1
          2  c3  DRW.ACQUIRE k A WRITE BLOCK 0       => parked
    ");
}

#[test]
fn a_new_waiter_of_an_owner_in_a_cycle_closes_no_new_cycle() {
    run("
          0  set deadlock-detection 0
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE l B                         => t2
          0  c3  ACQUIRE q H                         => t3
          1  c1  ACQUIRE l A QUEUE 60000             => null
          1  c2  ACQUIRE k B QUEUE 60000             => null
        # A wait for any of several keys does not count, but B is in the queue that A joins.
          1  c4  ANYACQUIRE 1 q B BLOCK 0            => parked
          2  set deadlock-detection 1
          2  c1  ACQUIRE q A QUEUE 60000             => null
    ");
}

#[test]
fn a_lease_that_ends_at_this_moment_is_no_hold_of_a_key_that_the_call_names() {
    run_here(
        "
          0  c1  ACQUIRE k B PX 50                   => t1
          0  c2  ACQUIRE l A                         => t2
          1  c1  ACQUIRE l B BLOCK 0                 => parked
         50  c2  ACQUIRE k A BLOCK 0                 => t3
    ",
    );
    run_here(
        "
          0  c1  ACQUIRE k A PX 50                   => t1
          0  c1  ACQUIRE l A                         => t2
          1  c2  ACQUIRE k B QUEUE 60000             => null
          1  c2  ACQUIRE l B QUEUE 60000             => null
        # A has lost k, and would wait behind B, which waits for A at l.
         50  c1  ACQUIRE k A BLOCK 0                 => DEADLOCK
    ",
    );
}

#[test]
fn a_reader_in_the_way_makes_a_writer_wait_for_skipped_waiters_in_front_too() {
    run_here(
        "
          0  c1  DRW.ACQUIRE q R READ                => t1
          0  c1  ACQUIRE k H                         => t2
          0  c1  ACQUIRE m H                         => t3
          0  c1  ACQUIRE z H                         => t4
          0  c3  ACQUIRE y Y                         => t5
        # X waits on a connection that lets a grant expire: it is skipped at q.
          0  c9  ACQUIRE m W QUEUE 50 PX 50          => null
          0  c9  DRW.ACQUIRE q X WRITE QUEUE 60000 PX 60000   => null
          1  c1  RELEASE m H                         => 0; dlock:notify:W: granted 0 t6 1 W m
         60  tick                                    => dlock:notify:W: expired 0 t6 1 W m
         61  c2  ACQUIRE y X QUEUE 60000 PX 60000    => null
         61  c4  DRW.ACQUIRE q C WRITE QUEUE 60000 PX 60000   => null
         61  c5  ANYACQUIRE 2 k z C BLOCK 0          => parked
         61  c3  ACQUIRE k Y QUEUE 60000 PX 60000    => null
        # C waits for X at q, X for Y at y, and from now on Y for C at k.
         62  c6  ACQUIRE k C BLOCK 0                 => DEADLOCK
    ",
    );
}

#[test]
fn while_a_flush_is_worked_off_its_holders_close_no_cycle_and_others_do() {
    run("
          0  set portion 2
          0  c1  ACQUIRE a A                         => t1
          0  c1  ACQUIRE b A BIND 0                  => t2
          0  c1  ACQUIRE c A BIND 0                  => t3
          0  c1  ACQUIRE d A                         => t4
          1  c5  ACQUIRE b X QUEUE 60000             => null
          1  c5  ACQUIRE c X QUEUE 60000             => null
          1  c2  ACQUIRE d B BLOCK 0                 => parked
          2  flushall                                => dlock:notify: flushed 0; dlock:notify:X: granted 0 t5 1 X b; dlock:notify:X: granted 0 t6 1 X c
          2  c3  ACQUIRE l B                         => t7
        # No step has reached the queue of d: it still lists A, for which B no longer waits.
          2  c4  ACQUIRE l A BLOCK 0                 => parked
          3  c6  ACQUIRE k C                         => t8
          3  c7  ACQUIRE m D                         => t9
          4  c6  ACQUIRE m C BLOCK 0                 => parked
          4  c7  ACQUIRE k D BLOCK 0                 => DEADLOCK
    ");
}

#[test]
fn the_holder_of_a_value_whose_time_to_live_is_over_closes_no_cycle() {
    run_here(
        "
          0  c1  ACQUIRE k A                         => t1
          0  c2  ACQUIRE m M                         => t2
          0  c3  ACQUIRE l C                         => t3
          1  c4  MACQUIRE 2 k m W BLOCK 0            => parked
          1  c5  ACQUIRE l A BLOCK 0                 => parked
          2  del k unheard
          2  c6  ACQUIRE k C BLOCK 0                 => parked
          2  removals-heard
        ",
    );
}
