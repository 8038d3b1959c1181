//! BIND: holds that are bound to a connection.

use crate::script::{run_as, run_both};

#[test]
fn bind_shortens_the_lease_when_the_connection_closes() {
    run_both("
          0  c1  ACQUIRE k A BIND 0                 => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          1  c2  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29999 held 1 [] bound 1 waiters 1
          2  gone c1                                => c2 gets t2
        # Shorter, but not at once.
          3  c1  ACQUIRE l A PX 1000 BIND 200 QUEUE 1 => t3
          4  gone c1
          4  c2  INFO l                             => [A] t3 holds 1 lease 1000 ttl 200 held 1 [] bound 0 waiters 0
        205  tick                                   => dlock:notify:A: disconnected 0 t3 1 A l
        # Never lengthened: then it is an expiry.
        300  c1  ACQUIRE l A PX 100 BIND 200 QUEUE 1 => t4
        301  gone c1
        301  c2  INFO l                             => [A] t4 holds 1 lease 100 ttl 99 held 1 [] bound 0 waiters 0
        401  tick                                   => dlock:notify:A: expired 0 t4 1 A l
    ");
}

#[test]
fn a_hold_without_bind_outlives_its_connection() {
    run_both("
          0  c1  ACQUIRE k A PX 100                 => t1
          1  gone c1
          2  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 98 held 2 [] bound 0 waiters 0
    ");
}

#[test]
fn a_repeat_moves_the_tie() {
    run_both("
          0  c1  ACQUIRE k A PX 100 BIND 50 REQID r => t1
          1  c2  ACQUIRE k A PX 100 BIND 50 REQID r => t1
          1  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 100 held 1 [] bound 2 waiters 0
          2  gone c1
          2  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 99 held 2 [] bound 2 waiters 0
        # A RELEASE moves nothing.
          3  c2  ACQUIRE k A PX 100 BIND 50 REQID s => t1
          4  c3  RELEASE k A REQID s                => 1
          4  c3  INFO k                             => [A] t1 holds 1 lease 100 ttl 99 held 4 [] bound 2 waiters 0
          5  c4  ACQUIRE k A PX 100 BIND 50 REQID r => t1
          5  c4  INFO k                             => [A] t1 holds 1 lease 100 ttl 100 held 5 [] bound 4 waiters 0
          6  s   ACQUIRE k A PX 100 REQID r         => t1
          6  c4  INFO k                             => [A] t1 holds 1 lease 100 ttl 100 held 6 [] bound 0 waiters 0
    ");
}

#[test]
fn the_binding_of_a_waiter_follows_the_grant_and_its_copy() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 BIND 0         => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          2  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 0 [] bound 2 waiters 0
          3  c3  ACQUIRE k C QUEUE 100 BIND 10      => null
          4  gone c2                                => dlock:notify:C: granted 0 t3 1 C k
          5  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 29999 held 1 [] bound 3 waiters 0
          6  c4  ACQUIRE k C BIND 10                => t3
          6  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 30000 held 2 [] bound 4 waiters 0
          7  gone c3
          8  gone c4
          8  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 10 held 4 [] bound 0 waiters 0
    ");
}

#[test]
fn a_bound_offer_is_bound_to_the_connection_that_asks_again() {
    run_as("DFAIR", "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 BIND 0       => null
          2  gone c2
          3  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t2 1 B k
          4  c3  RENEW k B BIND 0                   => t2
          4  c3  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 1 [] bound 3 waiters 0
          5  gone c3                                => dlock:notify:B: disconnected 0 t2 1 B k
    ");
}

#[test]
fn a_replica_knows_no_connections() {
    // It replays what happens to values from its time as a primary; their connections do not concern it.
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ PX 100 BIND 50    => t1
          1  failover
          3  swapdb 0 1 unheard
          3  db 1
          4  c2  ACQUIRE k B READ PX 900            => t2
          5  swaps-heard
          6  c1  RELEASE k A READ                   => 0
          6  c2  RELEASE k B READ                   => 0
          7  failover
          8  tick
    ",
    );
}
