//! A demotion leaves its answers to the tick: the events that former waiters can meet until then.

use crate::script::{run, run_as, run_both};

#[test]
fn calls_that_wait_when_the_server_becomes_a_replica_are_answered_once() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c3  ACQUIRE k C BLOCK 0           => parked
          1  c4  ACQUIRE k D BLOCK 0 QUEUE 50  => parked
          1  c5  ACQUIRE k E BLOCK 5           => parked
          1  c6  ACQUIRE k F BLOCK 0           => parked
          1  c7  ACQUIRE k G BLOCK 0           => parked
          2  demote
        # A connection goes, the server ends a call, and so does an operator.
          2  gone c2
          2  abandoned c3
          2  c9  DLOCK.UNBLOCK 4               => 1; c4 gets null
          2  c9  DLOCK.UNBLOCK 4               => 0
          2  c9  DLOCK.UNBLOCK 7 ERROR         => 1; c7 gets STOPPED
          9  tick                              => c5 gets MOVING; c6 gets MOVING
          9  c9  DLOCK.UNBLOCK 6               => 0
         10  promote
         10  c1  RELEASE k A                   => 0
    ",
    );
}

#[test]
fn waiters_from_before_a_demotion_get_nothing_after_the_next_promotion() {
    run("
          0  set grace 1
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c3  ACQUIRE k C QUEUE 5           => null
          2  demote
          2  promote
        # The same owner asks again: this is no earlier call of the same epoch.
          3  c4  ACQUIRE k B BLOCK 0           => parked
          3  c1  POSITION k B                  => 1
          3  gone c2
          4  c1  RELEASE k A                   => 0; c4 gets t2
          5  tick
          6  c4  RELEASE k B                   => 0
          6  c1  ACQUIRE k A                   => t3
    ");
    // The queue entries of a fair lock are part of its key.
    run_as(
        "DFAIR",
        "
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c3  ACQUIRE k C QUEUE 50          => null
          2  demote
          2  promote
          3  c4  ACQUIRE k B BLOCK 0           => parked
          4  c1  RELEASE k A                   => 0; c4 gets t2
          5  tick                              => c2 gets MOVING
          6  c4  RELEASE k B                   => 0; dlock:notify:C: offered 0 t3 1 C k
    ",
    );
}

#[test]
fn a_call_for_several_keys_is_sent_away_once() {
    run("
          0  c1  ACQUIRE k A                   => t1
          0  c1  ACQUIRE m A                   => t2
          1  c2  MACQUIRE 3 k l m B BLOCK 0    => parked
          1  c3  ANYACQUIRE 2 k m C BLOCK 0    => parked
          2  demote
          2  promote
          3  c4  MACQUIRE 3 k l m B BLOCK 0    => parked
          3  c1  RELEASE k A                   => 0
          3  c1  RELEASE m A                   => 0; c4 gets t3 t4 t5
          4  tick                              => c2 gets MOVING; c3 gets MOVING
          5  c4  MRELEASE 3 k l m B            => 3
    ");
}
