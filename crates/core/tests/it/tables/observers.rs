//! The contract of AWAIT: observers of a hold.

use crate::script::{run, run_both, run_both_here, run_here};

#[test]
fn all_observers_are_answered_when_the_hold_ends() {
    run_both(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k                         => null
          1  c2  AWAIT k REASON                  => null
          2  c2  AWAIT k BLOCK 0                 => parked
          2  c3  AWAIT k BLOCK 0 REASON          => parked
          3  c4  ACQUIRE k B BLOCK 0             => parked
        # Observers take no place in the queue.
          4  c5  POSITION k B                    => 1
        # A re-entry and the release of it are the same hold.
          5  c1  ACQUIRE k A                     => t1
          5  c1  RELEASE k A                     => 1
          6  c1  RELEASE k A                     => 0; c2 gets 1; c3 gets released; c4 gets t2
        # The next AWAIT observes the next hold.
          7  c2  AWAIT k TOKEN $t1               => 1
          7  c2  AWAIT k TOKEN $t1 REASON        => released
          7  c2  AWAIT k TOKEN $t2 BLOCK 0 REASON => parked
          8  c4  RELEASE k B DONE                => 0; c2 gets done
          8  c2  AWAIT k TOKEN $t2 REASON        => done
          9  c2  AWAIT k BLOCK 0                 => 1
          9  c2  AWAIT k BLOCK 0 REASON          => free
          9  c2  AWAIT k TOKEN 77 BLOCK 0 REASON => unknown
    ",
    );
}

#[test]
fn each_end_has_its_reason() {
    run_both_here(
        "
          0  c1  ACQUIRE k A PX 50               => t1
          1  c2  AWAIT k BLOCK 0 REASON          => parked
         51  tick                                => c2 gets expired
         60  c1  ACQUIRE k A BIND 0              => t2
         61  c2  AWAIT k BLOCK 0 REASON          => parked
         62  gone c1                             => c2 gets disconnected
         70  c3  ACQUIRE k A                     => t3
         71  c2  AWAIT k BLOCK 0 REASON          => parked
         72  c9  BREAK k                         => 1; c2 gets broken
         80  c3  ACQUIRE k A                     => t4
         81  c2  AWAIT k BLOCK 0 REASON          => parked
         82  del k                               => c2 gets deleted
         90  c3  ACQUIRE k A                     => t5
         91  c4  ACQUIRE k B QUEUE 50 PX 50 NOTIFY x   => null
         92  c3  RELEASE k A                     => 0; x: granted 0 t6 1 B k
         93  c2  AWAIT k BLOCK 0 REASON          => parked
        143  tick                                => c2 gets unclaimed; x: expired 0 t6 1 B k
        150  c3  ACQUIRE k A                     => t7
        151  c4  ACQUIRE k B QUEUE 50 PX 50 NOTIFY x   => null
        152  c3  RELEASE k A                     => 0; x: granted 0 t8 1 B k
        153  c2  AWAIT k BLOCK 0 REASON          => parked
        154  c4  RELEASE k B                     => 0; c2 gets released
    ",
    );
}

#[test]
fn an_expired_hold_has_ended_before_anybody_notices() {
    run_both_here(
        "
          0  c1  ACQUIRE k A PX 50               => t1
         60  c2  AWAIT k BLOCK 0                 => 1
        # Its end is not processed, so nothing is remembered of it.
         60  c2  AWAIT k TOKEN $t1 REASON        => unknown
         61  tick
         61  c2  AWAIT k TOKEN $t1 REASON        => expired
    ",
    );
}

#[test]
fn another_value_under_the_key_is_another_hold() {
    run("
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0 REASON          => parked
          2  c3  ACQUIRE l B                     => t2
          3  rename l k                          => c2 gets deleted
          4  c2  AWAIT k BLOCK 0                 => parked
          5  over k                              => c2 gets 1
    ");
}

#[test]
fn an_observer_stays_with_the_name() {
    run_both(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0 REASON          => parked
          2  rename k l                          => c2 gets deleted
          3  c2  AWAIT l BLOCK 0 REASON          => parked
          4  flushall                            => c2 gets deleted; dlock:notify: flushed 0
    ",
    );
}

/// In a cluster, FLUSHALL is heard in the tick. The end of the next hold is not that of the one before.
#[test]
fn observers_of_a_hold_that_was_flushed_learn_nothing_of_the_next_one() {
    run_here(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0 REASON          => parked
          2  del k unheard
          3  c3  ACQUIRE k B                     => t2; c2 gets deleted
          3  c4  ACQUIRE l C                     => t3
          4  c3  FENCE k B $t3                   => t3
          5  c3  RELEASE k B DONE                => 0
          6  removals-heard
    ",
    );
}

#[test]
fn fence_keeps_the_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0 REASON          => parked
          2  c3  ACQUIRE l B                     => t2
          3  c1  FENCE k A $t2                   => t2
          4  c4  AWAIT k TOKEN $t1               => 1
          5  c4  AWAIT k TOKEN $t2 BLOCK 0       => parked
          6  c1  RELEASE k A                     => 0; c2 gets released; c4 gets 1
    ",
    );
}

#[test]
fn a_wait_ends_like_any_blocked_call() {
    run_both_here(
        "
          0  c1  ACQUIRE k A                     => t1
          1  m2  AWAIT k BLOCK 50                => null
          1  s   AWAIT k BLOCK 50                => null
          2  c2  AWAIT k BLOCK 50                => parked
          3  c3  AWAIT k BLOCK 0                 => parked
          3  c4  AWAIT k BLOCK 0                 => parked
          3  c5  AWAIT k BLOCK 0                 => parked
          4  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 29996 held 4 [] bound 0 waiters 0 observers 4
         53  tick                                => c2 gets null
         53  gone c3
         54  c9  DLOCK.UNBLOCK 4                 => 1; c4 gets null
         55  c9  DLOCK.UNBLOCK 5 ERROR           => 1; c5 gets STOPPED
         56  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 29944 held 56 [] bound 0 waiters 0
         57  c2  AWAIT k BLOCK 0                 => parked
         58  slot-lost k                         => c2 gets MOVING
         59  c2  AWAIT k BLOCK 0                 => parked
         60  failover                            => c2 gets MOVING
    ",
    );
}

#[test]
fn observers_count_towards_the_limits() {
    run_both(
        "
          0  set max-waiters-per-key 2
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0                 => parked
          1  c3  AWAIT k BLOCK 0                 => parked
          2  c4  AWAIT k BLOCK 0                 => LIMIT
        # They do not take the room of those who queue.
          3  c4  ACQUIRE k B BLOCK 0             => parked
          4  c1  RELEASE k A                     => 0; c2 gets 1; c3 gets 1; c4 gets t2
    ",
    );
}

#[test]
fn a_cluster_says_that_a_missing_key_may_have_moved() {
    run_here(
        "
          0  set cluster 1
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0                 => parked
          2  del k                               => c2 gets MOVING
    ",
    );
}

#[test]
fn a_replica_answers_what_it_knows() {
    run_both_here(
        "
          0  c1  ACQUIRE k A                     => t1
          1  r   AWAIT k BLOCK 0                 => null
          2  c1  RELEASE k A                     => 0
          3  r   AWAIT k BLOCK 0                 => 1
    ",
    );
}

#[test]
fn all_observers_are_answered_before_the_next_holder() {
    run_here(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  AWAIT k BLOCK 0                 => parked
          1  c4  AWAIT k BLOCK 0 REASON          => parked
          1  c7  ACQUIRE k B BLOCK 0             => parked
          2  c1  RELEASE k A                     => 0; c2 gets 1; c4 gets released; c7 gets t2
        # A later AWAIT observes the next hold.
          4  c6  AWAIT k BLOCK 0                 => parked
          6  c7  RELEASE k B                     => 0; c6 gets 1
    ",
    );
}

#[test]
fn info_names_the_multi_lock_that_keeps_a_free_key_closed() {
    run(
        "
          0  c1  ACQUIRE l A                     => t1
          1  c2  MACQUIRE 2 k l B BLOCK 0        => parked
          2  c3  INFO k                          => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1 reserved for B
          3  c3  INFO l                          => [A] t1 holds 1 lease 30000 ttl 29997 held 3 [] bound 0 waiters 1
          4  c1  RELEASE l A                     => 0; c2 gets t2 t3
    ",
    );
}
