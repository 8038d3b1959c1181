//! The queue: its order, also among wide and narrow requests; waits that end; limits.

use super::{run, run_here};

#[test]
fn waiters_are_served_in_order_of_arrival() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B BLOCK 0       => parked
          2  c3  ACQUIRE s C BLOCK 9000 LABEL x => parked
          3  c4  TAKE s BLOCK 0            => parked
          3  c1  ACQUIRE s E               => null
          5  c1  WAITERS s                 => B 2 4 - []; C 3 3 8997 [x];  4 2 - []
          5  c1  WAITERS s COUNT 1         => B 2 4 - []
          5  c1  POSITION s C              => 2
          5  c1  INFO s                    => capacity 1 available 0 leased 1 taken 0 waiters 3
          6  c1  RELEASE s $p1             => 0; c2 gets p2
          7  c1  BREAK s $p2               => 1; c3 gets p3
          8  c1  RELEASE s $p3             => 0; c4 gets taken
          9  c1  GIVE s                    => 1
    ");
}

#[test]
fn an_owner_of_permits_can_wait_for_more() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  ACQUIRE s A COUNT 2       => p1
          1  c2  ACQUIRE s A BLOCK 0       => parked
          1  c2  POSITION s A              => 1
          2  c1  RELEASE s $p1             => 1; c2 gets p2
          2  c2  POSITION s A              => 0
    ");
}

#[test]
fn a_wide_request_is_neither_overtaken_nor_starved() {
    run("
          0  c1  INIT s 3                  => 1
          0  c1  ACQUIRE s A               => p1
          0  c1  ACQUIRE s A               => p2
          1  c2  ACQUIRE s B COUNT 3 BLOCK 0 => parked
          2  c3  ACQUIRE s C BLOCK 0       => parked
        # One could be had, but not by those behind.
          3  c4  ACQUIRE s D               => null
          3  c4  TAKE s                    => null
          3  c4  DRAIN s                   => 0
          4  c1  RELEASE s $p1             => 2
          5  c1  RELEASE s $p2             => 0; c2 gets p3
          6  c2  RELEASE s $p3             => 2; c3 gets p4
    ");
}

#[test]
fn one_release_serves_all_that_fit() {
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A COUNT 4       => p1
          1  c2  ACQUIRE s B BLOCK 0       => parked
          2  c3  ACQUIRE s C COUNT 2 BLOCK 0 => parked
          3  c4  ACQUIRE s D COUNT 2 BLOCK 0 => parked
          4  c5  ACQUIRE s E BLOCK 0       => parked
          5  c1  RELEASE s $p1             => 1; c2 gets p2; c3 gets p3
          6  c2  RELEASE s $p2             => 0; c4 gets p4
          7  c3  RELEASE s $p3             => 1; c5 gets p5
    ");
}

#[test]
fn a_wait_ends_in_its_time_and_lets_those_behind_it_in() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 50 => parked
          2  c3  ACQUIRE s C BLOCK 500     => parked
         52  tick                          => c2 gets null; c3 gets p3
         53  c4  TAKE s BLOCK 20           => parked
         74  tick                          => c4 gets null
         75  c1  WAITERS s                 => nobody
    ");
}

#[test]
fn a_late_alarm_does_not_serve_a_waiter_that_timed_out() {
    run_here(
        "
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B BLOCK 50      => parked
          2  c3  TAKE s BLOCK 50           => parked
          3  c4  ACQUIRE s C BLOCK 500     => parked
         60  c1  POSITION s C              => 1
         60  c1  INFO s                    => capacity 1 available 0 leased 1 taken 0 waiters 1
         60  c1  RELEASE s $p1             => 0; c2 gets null; c3 gets null; c4 gets p3
    ",
    );
}

#[test]
fn a_waiter_that_leaves_lets_those_behind_it_in() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0 => parked
          2  c3  ACQUIRE s C BLOCK 0       => parked
          3  gone c2                       => c3 gets p3
          4  c4  TAKE s 2 BLOCK 0          => parked
          5  c5  ACQUIRE s E BLOCK 0       => parked
          6  c3  RELEASE s $p3             => 1
          7  gone c4                       => c5 gets p4
          8  c6  TAKE s 2 BLOCK 0          => parked
          9  c7  ACQUIRE s F BLOCK 0       => parked
         10  c5  RELEASE s $p4             => 1
         11  c9  UNBLOCK 6                 => 1; c6 gets null; c7 gets p5
    ");
}

#[test]
fn an_owner_that_asks_again_keeps_its_position_unless_it_asks_for_more() {
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A COUNT 4       => p1
          1  c2  ACQUIRE s B COUNT 3 BLOCK 100 => parked
          2  c3  ACQUIRE s C COUNT 2 BLOCK 0 => parked
          3  c4  ACQUIRE s B COUNT 2 BLOCK 0 LABEL new => parked; c2 gets REPLACED
          3  c4  WAITERS s                 => B 4 2 - [new]; C 3 1 - []
          4  c5  ACQUIRE s B COUNT 3 BLOCK 0 => parked; c4 gets REPLACED
          4  c5  WAITERS s                 => C 3 2 - []; B 5 0 - []
          5  c1  RELEASE s $p1             => 2; c3 gets p3
          6  c3  RELEASE s $p3             => 1; c5 gets p5
    ");
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A COUNT 3       => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0 => parked
          2  c3  ACQUIRE s C COUNT 1 BLOCK 0 => parked
        # The later call counts: it fits.
          3  c4  ACQUIRE s B COUNT 1 BLOCK 0 => p4; c2 gets REPLACED
          3  c4  WAITERS s                 => C 3 1 - []
    ");
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A COUNT 3       => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0 => parked
          2  c3  ACQUIRE s C COUNT 1 BLOCK 0 => parked
        # At the end of the queue B does not keep C from what fits.
          3  c4  ACQUIRE s B COUNT 3 BLOCK 0 => parked; c2 gets REPLACED; c3 gets p3
    ");
}

#[test]
fn block_does_not_wait_where_the_server_cannot() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A               => p1
          1  m2  ACQUIRE s B BLOCK 50      => null
          2  s   TAKE s BLOCK 50           => null
          3  c2  ACQUIRE s C BLOCK 50      => parked
          4  withdraw c2
          5  c2  TAKE s BLOCK 50           => parked
          6  withdraw c2
          7  c1  WAITERS s                 => nobody
          8  c2  ACQUIRE s C BLOCK 50 QUEUE 100 => parked
          9  withdraw c2
         10  c1  WAITERS s                 => C 2 2 - []
         11  c3  ACQUIRE s D BLOCK 50      => parked
         12  abandoned c3
         13  c1  RELEASE s $p1             => 0; dlock:notify:C: granted 0 p4 1 C s
    ");
}

#[test]
fn waiters_are_limited_per_key_and_in_all() {
    run("
          0  set max-waiters-per-key 2
          0  set max-waiters 3
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B BLOCK 0       => parked
          2  c3  TAKE s BLOCK 0            => parked
          3  c4  ACQUIRE s D BLOCK 0       => LIMIT
          3  c4  ACQUIRE s D QUEUE 50      => LIMIT
          3  c4  TAKE s BLOCK 0            => LIMIT
          3  c4  TAKE s                    => null
          4  c4  ACQUIRE s B BLOCK 0       => parked; c2 gets REPLACED
          5  c5  DLATCH.INIT l 1           => 1
          5  c5  DLATCH.AWAIT l BLOCK 0    => parked
          6  c6  DLATCH.AWAIT l BLOCK 0    => LIMIT
          6  c6  ACQUIRE t E BLOCK 0       => LIMIT
    ");
}

#[test]
fn leases_are_limited_and_permits_without_a_lease_are_not() {
    run("
          0  set max-holds-per-key 2
          0  c1  INIT s 9                  => 1
          0  c1  ACQUIRE s A COUNT 2       => p1
          1  c2  ACQUIRE s B               => p2
          2  c3  ACQUIRE s C               => LIMIT
          2  c3  ACQUIRE s C BLOCK 0       => LIMIT
          2  c3  ACQUIRE s C QUEUE 50      => LIMIT
          3  c3  TAKE s 6                  => taken
          4  c1  RELEASE s $p1             => 2
          5  c3  ACQUIRE s C               => p6
    ");
}

#[test]
fn callers_of_a_missing_semaphore_wait_until_it_is_made() {
    run("
          0  c1  ACQUIRE s A BLOCK 0       => parked
          1  c2  TAKE s BLOCK 0            => parked
          2  c3  ACQUIRE s C COUNT 3 BLOCK 0 => parked
          3  c4  ACQUIRE s D QUEUE 100     => null
          4  c5  ACQUIRE s E COUNT 3 QUEUE 100 => null
          5  c6  INFO s                    => capacity 0 available 0 leased 0 taken 0 waiters 5
          5  c6  POSITION s D              => 4
        # Those who demand more than there are get LIMIT; a place just goes.
          6  c6  INIT s 2                  => 1; c3 gets LIMIT; c1 gets p1; c2 gets taken
          7  c6  WAITERS s                 => D 4 4 - []
          8  c6  GIVE s                    => 0; dlock:notify:D: granted 0 p3 1 D s
    ");
}

#[test]
fn a_missing_key_that_is_waited_for_has_the_type_of_its_waiters() {
    run("
          0  c1  ACQUIRE s A BLOCK 0       => parked
          1  c2  DLOCK.ACQUIRE s B         => WRONGTYPE
          1  c2  DLOCK.INFO s              => WRONGTYPE
          1  c2  DLATCH.INIT s 1           => WRONGTYPE
          1  c2  DLATCH.AWAIT s            => WRONGTYPE
          1  c2  DLOCK.MACQUIRE 2 k s B    => WRONGTYPE
          1  c2  DLOCK.ANYACQUIRE 2 k s B  => WRONGTYPE
          1  c2  DLOCK.MRELEASE 2 k s B    => WRONGTYPE
          1  c2  DLOCK.MRENEW 2 k s B      => WRONGTYPE
          1  c2  DLOCK.INFO k              => null
          2  gone c1
          3  c2  DLOCK.ACQUIRE s B         => t1
          4  c1  ACQUIRE s A               => WRONGTYPE
          4  c1  ACQUIRE s A LIMIT 2       => WRONGTYPE
          4  c1  INIT s 1                  => WRONGTYPE
          4  c1  RESIZE s 1                => WRONGTYPE
          4  c1  RELEASE s $p1             => WRONGTYPE
          4  c1  RENEW s $p1               => WRONGTYPE
          4  c1  BREAK s $p1               => WRONGTYPE
          4  c1  TAKE s                    => WRONGTYPE
          4  c1  GIVE s                    => WRONGTYPE
          4  c1  DRAIN s                   => WRONGTYPE
          4  c1  RELEASE s A ALL           => WRONGTYPE
          4  c1  INFO s                    => WRONGTYPE
          4  c1  PERMITS s                 => WRONGTYPE
          4  c1  WAITERS s                 => WRONGTYPE
          4  c1  POSITION s A              => WRONGTYPE
          5  c1  DLOCK.CHECK s $t1         => 1
    ");
}
