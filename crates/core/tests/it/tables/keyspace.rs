//! Commands of the server on keys of locks: DEL, SET, RENAME, MOVE, SWAPDB, FLUSHALL, EXPIRE.

use crate::script::{run, run_as_here, run_both, run_both_here};

#[test]
fn a_deleted_key_goes_to_the_first_waiter_with_a_message_to_the_holder() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch         => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  del k                             => c2 gets t2; ch: deleted 0 t1 1 A k
          4  c1  RELEASE k A                   => NOTHELD
          5  del k                             => dlock:notify:C: granted 0 t3 1 C k
          6  del k                             => dlock:notify:C: deleted 0 t3 1 C k
          7  del k
          8  c1  ACQUIRE k A BIND 0            => t4
          9  del k
         10  c2  ACQUIRE k B                   => t5
         11  gone c1
         11  c2  CHECK k $t5                   => 1
    ");
}

#[test]
fn a_key_of_another_type_is_refused_and_its_waiters_are_told() {
    run_both(
        "
          0  c1  ACQUIRE k A NOTIFY ch         => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  over k                            => c2 gets WRONGTYPE; ch: deleted 0 t1 1 A k
          4  c1  ACQUIRE k A                   => WRONGTYPE
          4  c1  ACQUIRE k A BLOCK 0           => WRONGTYPE
          4  c1  RELEASE k A                   => WRONGTYPE
          4  c1  RENEW k A                     => WRONGTYPE
          4  c1  FENCE k A 1                   => WRONGTYPE
          4  c1  BREAK k                       => WRONGTYPE
          4  c1  INFO k                        => WRONGTYPE
          4  c1  WAITERS k                     => WRONGTYPE
          4  c1  POSITION k A                  => WRONGTYPE
          4  c1  CHECK k 1                     => WRONGTYPE
          5  del k
          6  c1  ACQUIRE k A                   => t2
    ",
    );
}

#[test]
fn in_a_cluster_waiters_of_a_lost_key_are_sent_away() {
    run_both(
        "
          0  set cluster 1
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  del k                             => c2 gets MOVING
          3  c1  WAITERS k                     => nobody
          4  c1  ACQUIRE l A                   => t2
          5  c2  ACQUIRE l B BLOCK 0           => parked
          6  c3  ACQUIRE l C QUEUE 50          => null
          7  slot-lost l                       => c2 gets MOVING
          7  c1  WAITERS l                     => nobody
          8  c1  CHECK l $t2                   => 1
          9  c1  RELEASE l A                   => 0
    ",
    );
}

#[test]
fn rename_moves_the_hold_and_leaves_the_waiters() {
    run_both("
          0  c1  ACQUIRE k A PX 100 BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  rename k l                        => c2 gets t2
          3  c1  INFO l                        => [A] t1 holds 1 lease 100 ttl 97 held 3 [] bound 1 waiters 0
          4  c1  RENEW l A                     => t1
        105  tick                              => ch: expired 0 t1 1 A l
        106  c1  ACQUIRE l A BIND 10 NOTIFY ch => t3
        107  c3  ACQUIRE k C BLOCK 0           => parked
        108  rename l k
        109  c1  POSITION k A                  => 0
    ");
    // Over another lock: that hold is gone.
    run_both(
        "
          0  c1  ACQUIRE k A BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE l B NOTIFY ch         => t2
          2  c3  ACQUIRE l C BLOCK 0           => parked
          3  rename k l                        => ch: deleted 0 t2 1 B l
          4  c1  POSITION l A                  => 0
          4  c1  POSITION l C                  => 1
          5  gone c1
         16  tick                              => c3 gets t3; ch: disconnected 0 t1 1 A l
    ",
    );
}

#[test]
fn a_place_wins_over_a_hold_that_moved_to_its_key() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c1  ACQUIRE l B                   => t2
          2  c2  ACQUIRE l A BLOCK 0           => parked
          3  rename k l
          3  c1  POSITION l A                  => 1
          4  c1  ACQUIRE l A                   => t1
          5  c1  RELEASE l A ALL               => 0; c2 gets null
    ",
    );
}

#[test]
fn move_takes_the_hold_to_the_other_database() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100 NOTIFY ch  => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  move k 1                          => c2 gets t2
          3  db 1
          4  c1  POSITION k A                  => 0
        101  tick                              => ch: expired 1 t1 1 A k
    ",
    );
}

#[test]
fn a_key_that_is_found_missing_before_its_removal_is_told_loses_what_a_deletion_loses() {
    // The machine itself was the first to open the key, at the end of the lease.
    run_both(
        "
          0  c1  ACQUIRE k A PX 100 NOTIFY ch REQID r => t1
        100  del k unheard
        101  tick
        102  removals-heard                    => ch: deleted 0 t1 1 A [r] k
        103  c1  ACQUIRE k A REQID r           => SPENT
    ",
    );
    // Or when it became a primary.
    run_both(
        "
          0  c1  ACQUIRE k A PX 1000 NOTIFY ch REQID r => t1
          1  failover
          2  del k unheard
          3  tick
          4  removals-heard                    => ch: deleted 0 t1 1 A [r] k
          5  c1  ACQUIRE k A REQID r           => SPENT
    ",
    );
}

#[test]
fn a_replica_that_hears_of_swaps_after_later_grants_ends_all_leases() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100 NOTIFY ch  => t1
          0  c1  ACQUIRE other A PX 100        => t2
          0  swapdb 0 1 unheard
          1  c1  ACQUIRE k B PX 100 NOTIFY ch  => t3
          2  swapdb 1 0 unheard
          3  swapdb 0 1 unheard
          4  c1  ACQUIRE l C PX 100 NOTIFY ch  => t4
          5  swaps-heard
          6  failover
          7  c1  CHECK l $t4                   => 1
          8  db 1
          8  c1  CHECK k $t1                   => 1
        200  tick                              => ch: expired 0 t4 1 C l; ch: expired 0 t3 1 B k; ch: expired 1 t1 1 A k
    ",
    );
}

#[test]
fn a_replica_that_hears_of_a_flush_after_later_grants_ends_their_leases() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 900 BIND 0     => t1
          1  flushall unheard                  => dlock:notify: flushed 0
          1  c1  ACQUIRE k B PX 100 NOTIFY ch  => t2
          1  swapdb 0 1
          2  flushes-heard
          3  failover
          4  db 1
          4  c1  CHECK k $t2                   => 1
        200  tick                              => ch: expired 1 t2 1 B k
    ",
    );
}

#[test]
fn a_bound_hold_that_is_moved_to_another_database_outlives_a_flush_of_its_own() {
    run_both(
        "
          0  c1  ACQUIRE k A BIND 0            => t1
          0  c1  ACQUIRE l A BIND 0            => t2
          1  move k 1
          2  flushdb 0                         => dlock:notify: flushed 0
          3  db 1
          3  c2  ACQUIRE k B BLOCK 0           => parked
          4  gone c1                           => c2 gets t3
    ",
    );
}

#[test]
fn a_value_that_was_moved_between_two_swaps_is_not_lost() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 20 NOTIFY ch   => t1
          0  move k between swapdb 3 4
          1  tick
          1  db 4
          2  c1  RENEW k A PX 20               => t1
          2  c2  ACQUIRE k B BLOCK 0           => parked
         23  tick                              => c2 gets t2; ch: expired 4 t1 1 A k
    ",
    );
}

#[test]
fn swapdb_takes_the_holds_along_and_leaves_the_waiters() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100 BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  swapdb 0 1                        => c2 gets t2
          3  c2  CHECK k $t2                   => 1
          4  db 1
          5  c1  CHECK k $t1                   => 1
          6  c3  ACQUIRE k C BLOCK 0           => parked
          7  swapdb 1 0
          7  c3  POSITION k C                  => 1
          8  db 0
          9  gone c1
         20  tick                              => ch: disconnected 0 t1 1 A k
         21  db 1
         21  c2  RELEASE k B                   => 0; c3 gets t3
    ",
    );
}

#[test]
fn a_flush_sends_one_message_and_serves_the_waiters() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch BIND 9  => t1
          0  c1  ACQUIRE l A NOTIFY ch BIND 9  => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  db 1
          2  c1  ACQUIRE k A NOTIFY ch         => t3
          3  flushdb 0                         => c2 gets t4; dlock:notify: flushed 0
          4  c1  CHECK k $t3                   => 1
          5  flushdb 1                         => dlock:notify: flushed 1
          6  c1  INFO k                        => null
          7  db 0
          8  flushall                          => dlock:notify: flushed 0
          9  c1  ACQUIRE k A                   => t5
         10  c3  ACQUIRE k C QUEUE 50          => null
         11  flushall                          => dlock:notify: flushed 0; dlock:notify:C: granted 0 t6 1 C k
    ");
}

#[test]
fn a_time_to_live_on_the_key_goes_with_a_grant_to_a_new_owner() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  ttl k
          2  c1  ACQUIRE k A                   => t1
          3  c1  RENEW k A                     => t1
          4  ttls k
          5  c2  ACQUIRE k B BLOCK 0           => parked
          6  c1  RELEASE k A ALL               => 0; c2 gets t2
          7  ttls
    ",
    );
}

#[test]
fn keys_of_all_families_move_with_everything_in_them() {
    run("
          0  c1  DRW.ACQUIRE k A READ            => t1
          0  c1  DSEM.INIT s 3                   => 1
          0  c1  DSEM.ACQUIRE s A COUNT 2        => p1
          0  c1  DSEM.TAKE s                     => taken
          0  c1  DLATCH.INIT l 2                 => 1
          0  c1  DLATCH.COUNTDOWN l REQID x      => 1
          1  rename k m
          1  rename s u
          1  rename l n
          2  c2  DRW.RENEW m A READ              => t1
          2  c2  DSEM.RENEW u $p1                => 1
          2  c2  DSEM.INFO u                     => capacity 3 available 0 leased 2 taken 1 waiters 0
          2  c2  DLATCH.COUNTDOWN n REQID x      => 1
          3  move m 1
          3  move u 1
          3  move n 1
          3  db 1
          4  c2  DRW.RENEW m A READ              => t1
          4  c2  DSEM.RENEW u $p1                => 1
          4  c2  DSEM.INFO u                     => capacity 3 available 0 leased 2 taken 1 waiters 0
          4  c2  DLATCH.COUNTDOWN n REQID x      => 1
          5  swapdb 1 2
          5  db 2
          6  c2  DRW.RENEW m A READ              => t1
          6  c2  DSEM.RENEW u $p1                => 1
          6  c2  DSEM.INFO u                     => capacity 3 available 0 leased 2 taken 1 waiters 0
          6  c2  DLATCH.COUNTDOWN n REQID x      => 1
    ");
}

#[test]
fn the_requests_of_values_that_were_just_loaded_are_over_when_the_values_are_removed() {
    run_both_here(
        "
          0  c1  ACQUIRE k A REQID r                 => t1
          0  c1  ACQUIRE l B REQID r                 => t2
          0  c1  ACQUIRE m C REQID r                 => t3
          0  c1  ACQUIRE n D REQID r                 => t4
          1  restart rdb unindexed
          2  del k
          2  over l
          2  del l
        # Over a loaded value; that one is gone, and the moved one lives on.
          2  rename m n
          3  c1  ACQUIRE k A REQID r                 => SPENT
          3  c1  ACQUIRE l B REQID r                 => SPENT
          3  c1  ACQUIRE n D REQID r                 => SPENT
          3  c1  ACQUIRE n C REQID r                 => t3
          3  c1  ACQUIRE m C REQID r                 => t5
        ",
    );
}

#[test]
fn the_permits_of_a_semaphore_that_was_just_loaded_are_over_when_it_is_removed() {
    run_as_here(
        "DSEM",
        "
          0  c1  INIT s 9                            => 1
          0  c1  ACQUIRE s A REQID 1                 => p1
          0  c1  ACQUIRE s A REQID 2                 => p2
          0  c1  ACQUIRE s B REQID 3                 => p3
          1  restart rdb unindexed
          2  del s
          3  c1  ACQUIRE s A REQID 2                 => SPENT
          3  c1  ACQUIRE s B REQID 3 LIMIT 9         => SPENT
          3  tick
        ",
    );
}

#[test]
fn a_replica_that_hears_of_a_rename_late_remembers_no_request_that_is_not_over() {
    run_both_here(
        "
          0  c1  ACQUIRE k A REQID r                 => t1
          1  rename k l unheard
          2  c1  RENEW l A                           => t1
          3  renames-heard
          4  failover
          5  c1  ACQUIRE k A REQID r                 => t2
          5  c1  ACQUIRE l A REQID r                 => t1
        ",
    );
    run_both_here(
        "
          0  c1  ACQUIRE k A REQID r                 => t1
          1  rename k l unheard
          2  del l unheard
          3  renames-heard
          3  removals-heard
          4  c1  ACQUIRE l A REQID r                 => SPENT
          5  failover
          5  c1  ACQUIRE l A REQID r                 => SPENT
        ",
    );
}

#[test]
fn a_place_made_by_the_call_that_finds_the_time_to_live_over_stays() {
    run_as_here(
        "DFAIR",
        "
          0  c1  ACQUIRE k A REQID r                 => t1
          1  c2  ACQUIRE k B BLOCK 0                 => parked
          1  c3  ACQUIRE k C QUEUE 5000              => null
          2  del k unheard
        # As after a DEL: A and the place of C are gone, and B is served.
          2  c4  ACQUIRE k D QUEUE 5000              => null; c2 gets t2
          3  removals-heard
          4  c4  POSITION k D                        => 1
          4  c1  ACQUIRE k A REQID r                 => SPENT
          5  c2  RELEASE k B                         => 0; dlock:notify:D: granted 0 t3 1 D k
        ",
    );
    run_as_here(
        "DLATCH",
        "
          0  c1  INIT k 1                            => 1
          1  del k unheard
          1  c1  INIT k 2                            => 1
          1  c2  AWAIT k BLOCK 0                     => parked
          2  removals-heard
          3  c1  COUNTDOWN k                         => 1
          3  c1  COUNTDOWN k                         => 0; c2 gets 1
        ",
    );
}
