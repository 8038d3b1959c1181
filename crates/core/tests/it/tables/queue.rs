//! The queue: its order, waits that end, calls that cannot wait, and limits.

use crate::script::{run, run_both, run_both_here};

#[test]
fn waiters_are_served_in_order_of_arrival_and_one_is_woken() {
    run_both("
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 0     => parked
          2  c3  ACQUIRE k C BLOCK 9000  => parked
          3  c4  ACQUIRE k D BLOCK 0     => parked
          4  c1  ACQUIRE k E             => null
          5  c1  WAITERS k               => B 2 4 - []; C 3 3 8997 []; D 4 2 - []
          5  c1  WAITERS k COUNT 1       => B 2 4 - []
          5  c1  POSITION k A            => 0
          5  c1  POSITION k C            => 2
          5  c1  POSITION k E            => null
          6  c1  INFO k                  => [A] t1 holds 1 lease 30000 ttl 29994 held 6 [] bound 0 waiters 3
          7  c1  RELEASE k A             => 0; c2 gets t2
          8  c1  BREAK k                 => 1; c3 gets t3
          9  del k                       => c4 gets t4
         10  c1  WAITERS k               => nobody
    ");
}

#[test]
fn a_wait_ends_in_its_time_with_null() {
    run_both(
        "
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 50    => parked
          2  c3  ACQUIRE k C BLOCK 100   => parked
         50  tick
         52  tick                        => c2 gets null
         53  c2  POSITION k B            => null
         54  c1  WAITERS k               => C 3 52 48 []
        101  tick
        103  tick                        => c3 gets null
        104  c1  RELEASE k A             => 0
    ",
    );
}

#[test]
fn a_late_alarm_does_not_grant_a_waiter_that_timed_out() {
    run_both_here("
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 50    => parked
          2  c3  ACQUIRE k C BLOCK 500   => parked
         60  c1  WAITERS k               => C 3 58 442 []
         60  c1  POSITION k B            => null
         60  c1  POSITION k C            => 1
         60  c1  INFO k                  => [A] t1 holds 1 lease 30000 ttl 29940 held 60 [] bound 0 waiters 1
         60  c1  RELEASE k A             => 0; c2 gets null; c3 gets t2
    ");
}

#[test]
fn block_does_not_wait_where_the_server_cannot() {
    run_both(
        "
          0  c1  ACQUIRE k A             => t1
          1  m2  ACQUIRE k B BLOCK 50    => null
          2  s   ACQUIRE k B BLOCK 50    => null
          3  m2  ACQUIRE k B BLOCK 50 QUEUE 100 => null
          4  c2  POSITION k B            => 1
          5  c2  ACQUIRE k C BLOCK 50    => parked
          6  withdraw c2
          7  c2  POSITION k C            => null
          8  c2  ACQUIRE k C BLOCK 50 QUEUE 100 => parked
          9  withdraw c2
         10  c2  POSITION k C            => 2
         11  c1  RELEASE k A             => 0; dlock:notify:B: granted 0 t2 1 B k
    ",
    );
}

#[test]
fn a_retry_of_a_wait_gets_its_grant() {
    run_both(
        "
          0  c1  ACQUIRE k A                     => t1
          1  c2  ACQUIRE k B BLOCK 100 REQID r   => parked
          2  c3  ACQUIRE k B BLOCK 100 REQID r   => parked; c2 gets null
          3  c1  RELEASE k A                     => 0; c3 gets t2
          4  c3  ACQUIRE k B BLOCK 100 REQID r   => t2
          5  c3  RELEASE k B                     => 0
    ",
    );
}

/// A copy asks for the same, so its open call is over without an error; another request is an error.
#[test]
fn an_open_call_is_replaced_by_its_copy_and_by_another_request() {
    run_both(
        "
          0  c1  ACQUIRE k A                               => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r               => parked
          2  c3  ACQUIRE k B QUEUE 100 REQID r             => null; c2 gets null
          3  c3  ACQUIRE k B BLOCK 0 REQID r               => parked
          4  c4  ACQUIRE k B BLOCK 0 REQID s               => parked; c3 gets REPLACED
          5  c5  ACQUIRE k B BLOCK 0                       => parked; c4 gets REPLACED
          6  c6  ACQUIRE k B BLOCK 0                       => parked; c5 gets REPLACED
        # The request that was replaced has nothing any more.
          7  c4  RELEASE k B REQID s                       => UNKNOWN
          8  c1  RELEASE k A                               => 0; c6 gets t2
    ",
    );
}

#[test]
fn an_owner_that_asks_again_keeps_its_position_and_replaces_its_call() {
    run_both("
          0  c1  ACQUIRE k A                               => t1
          1  c2  ACQUIRE k B BLOCK 100 PX 10 LABEL old     => parked
          2  c3  ACQUIRE k C BLOCK 100                     => parked
          3  c4  ACQUIRE k B BLOCK 500 PX 20 LABEL new     => parked; c2 gets REPLACED
          4  c1  WAITERS k                                 => B 4 3 499 [new]; C 3 2 98 []
          5  c1  ACQUIRE k B QUEUE 50 LABEL newer          => null; c4 gets REPLACED
          6  c1  WAITERS k                                 => B 1 5 - [newer]; C 3 4 96 []
          7  c5  ACQUIRE k B QUEUE 60 PX 33                => null
          8  gone c1
          8  c5  WAITERS k                                 => B 5 7 - []; C 3 6 94 []
          9  c5  RELEASE k A                               => 0; dlock:notify:B: granted 0 t2 1 B k
         10  c5  INFO k                                    => [B] t2 holds 1 lease 60 ttl 59 held 1 [] bound 0 waiters 1
         # Without BLOCK or QUEUE a call leaves the place alone.
         11  c6  ACQUIRE k D BLOCK 1000                    => parked
         12  c1  ACQUIRE k D                               => null
         13  c1  POSITION k D                              => 2
    ");
}

#[test]
fn a_waiter_whose_connection_is_gone_leaves_at_once() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  gone c2
          3  c1  WAITERS k                          => C 3 1 - []
          4  c1  RELEASE k A                        => 0; c3 gets t2
          5  c3  RELEASE k C                        => 0
    ");
}

#[test]
fn waiters_are_limited_per_key_and_in_all() {
    run_both(
        "
          0  set max-waiters-per-key 2
          0  set max-waiters 3
          0  c1  ACQUIRE k A                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  c4  ACQUIRE k D BLOCK 0           => LIMIT
          3  c4  ACQUIRE k D QUEUE 50          => LIMIT
          3  c4  ACQUIRE k D                   => null
          4  c4  ACQUIRE k B BLOCK 0           => parked; c2 gets REPLACED
          5  c5  ACQUIRE l E BLOCK 0           => parked
          6  c6  ACQUIRE l F BLOCK 0           => LIMIT
          7  c9  RELEASE l E                   => null; c5 gets null
          8  c6  ACQUIRE l F BLOCK 0           => parked
    ",
    );
}
