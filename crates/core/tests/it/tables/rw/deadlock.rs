//! Cycles of owners through read-write locks and others.

use super::{run, run_here};

#[test]
fn circles_go_through_locks_of_all_families() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  DLOCK.ACQUIRE l B                  => t2
          0  c3  DFAIR.ACQUIRE m C                  => t3
          1  c1  DLOCK.ACQUIRE l A BLOCK 0          => parked
          2  c2  DFAIR.ACQUIRE m B QUEUE 1000       => null
        # A waits for B, who waits for C: C must not wait for A, who reads. To read with it is no wait.
          3  c3  ACQUIRE k C WRITE BLOCK 0          => DEADLOCK
          3  c3  ACQUIRE k C WRITE                  => null
          4  c3  ACQUIRE k C READ BLOCK 0           => t4
          5  c3  ACQUIRE k C WRITE BLOCK 0          => DEADLOCK
          6  c3  DFAIR.RELEASE m C                  => 0; dlock:notify:B: granted 0 t5 1 B m
          7  c3  ACQUIRE k C WRITE BLOCK 0          => parked
    ");
}

#[test]
fn a_reader_waits_for_the_writer_in_front_of_it_and_so_for_the_readers() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          0  c3  DLOCK.ACQUIRE l C                  => t2
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          2  c1  DLOCK.ACQUIRE l A BLOCK 0          => parked
        # C would wait for B, who waits for A, who waits for C.
          3  c3  ACQUIRE k C READ BLOCK 0           => DEADLOCK
          4  c9  RELEASE k B WRITE                  => null; c2 gets null
          5  c3  ACQUIRE k C READ BLOCK 0           => t3
    ");
}

#[test]
fn a_waiter_for_a_writer_waits_for_the_waiters_in_front() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          0  c2  DLOCK.ACQUIRE l B                  => t2
          1  c2  ACQUIRE k B READ QUEUE 1000        => null
          2  c3  ACQUIRE k C READ QUEUE 1000        => null
          2  c3  DLOCK.ACQUIRE m C                  => t3
        # B waits for A; C stands behind B but goes in with it.
          3  c1  DLOCK.ACQUIRE l A BLOCK 0          => DEADLOCK
          4  c1  DLOCK.ACQUIRE m A BLOCK 0          => DEADLOCK
          5  c1  RELEASE k A WRITE          => 0; dlock:notify:B: granted 0 t4 1 B k; dlock:notify:C: granted 0 t5 1 C k
          6  c1  DLOCK.ACQUIRE m A BLOCK 0          => parked
    ");
}

#[test]
fn a_place_whose_owner_came_to_hold_by_rename_waits_for_those_in_front() {
    run("
          0  c1  ACQUIRE l A READ                   => t1
          0  c2  ACQUIRE l B READ                   => t2
          0  c9  ACQUIRE k X WRITE                  => t3
          1  c1  ACQUIRE k A READ BLOCK 0           => parked
          2  rename l k                             =>
        # B would wait in front of A for A's hold.
          3  c2  ACQUIRE k B WRITE BLOCK 0          => DEADLOCK
          3  c2  ACQUIRE k B WRITE QUEUE 1000       => DEADLOCK
        # Who asks again has it, and closes nothing.
          4  c3  ACQUIRE k A READ BLOCK 0           => t1
    ");
    run("
          0  c1  DLOCK.ACQUIRE l A                  => t1
          0  c1  DLOCK.ACQUIRE n A                  => t2
          0  c2  DLOCK.ACQUIRE m B                  => t3
          0  c9  DLOCK.ACQUIRE k X                  => t4
          1  c3  DLOCK.ACQUIRE k C QUEUE 1000       => null
          1  c3  DLOCK.ACQUIRE m C QUEUE 1000       => null
          2  c1  DLOCK.ACQUIRE k A QUEUE 1000 REQID w => null
          3  rename l k                             =>
        # A stands behind C, who waits for B.
          4  c2  DLOCK.ACQUIRE n B BLOCK 0          => DEADLOCK
          5  c9  DLOCK.RELEASE k A REQID w          => null
          6  c2  DLOCK.ACQUIRE n B BLOCK 0          => parked
    ");
}

#[test]
fn a_reader_whose_hold_has_lapsed_goes_to_the_end_though_no_alarm_has_rung() {
    run_here(
        "
          0  c1  ACQUIRE k A READ PX 50             => t1
          0  c2  ACQUIRE k B READ                   => t2
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
        # Not in front of B, who then would wait for A.
         52  c1  ACQUIRE k A WRITE BLOCK 0          => parked; c2 gets t3
         53  c2  RELEASE k B READ                   => 0
         54  c2  RELEASE k B WRITE                  => 0; c1 gets t4
    ",
    );
}

#[test]
fn in_an_existing_cycle_a_waiter_may_stay_but_none_may_join() {
    run("
          0  set deadlock-detection 0
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  ACQUIRE l B WRITE                  => t2
          1  c1  ACQUIRE l A WRITE QUEUE 1000       => null
          2  c2  ACQUIRE k B WRITE QUEUE 1000       => null
          3  set deadlock-detection 1
          4  c1  ACQUIRE l A WRITE QUEUE 1000       => null
        # In another mode it gives its place up and goes to the end.
          5  c1  ACQUIRE l A READ QUEUE 1000        => DEADLOCK
          5  c3  WAITERS l                          => A 1 4 - []
    ");
}

#[test]
fn detection_can_be_turned_off() {
    run("
          0  set deadlock-detection 0
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  ACQUIRE l B READ                   => t2
          1  c1  ACQUIRE l A WRITE BLOCK 50         => parked
          2  c2  ACQUIRE k B WRITE BLOCK 50         => parked
         52  tick                                   => c1 gets null
         53  tick                                   => c2 gets null
    ");
}
