//! Permits that do not arrive.

use super::run;

#[test]
fn an_undelivered_permit_is_taken_back_and_handed_on() {
    run("
          0  held-back
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0     => parked
          2  c3  ACQUIRE s C BLOCK 0             => parked
          3  c4  TAKE s BLOCK 0                  => parked
          4  c1  RELEASE s $p1                   => 0; c2 gets p2
          5  gone c2                             => c3 gets p3; c4 gets taken
          6  undelivered c3
          7  c1  INFO s                          => capacity 2 available 1 leased 0 taken 1 waiters 0
          8  undelivered c4
          9  c1  INFO s                          => capacity 2 available 2 leased 0 taken 0 waiters 0
    ");
}

#[test]
fn an_undelivered_permit_that_was_renewed_stays() {
    run("
          0  held-back
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0     => parked
          2  c1  RELEASE s $p1                   => 0; c2 gets p2
          3  c3  RENEW s $p2                     => 1
          4  gone c2
          4  c3  PERMITS s                       => p2 B 2 29999
    ");
}

#[test]
fn an_undelivered_permit_whose_repeat_was_answered_stays() {
    run("
          0  held-back
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B BLOCK 0 REQID r     => parked
          2  c1  RELEASE s $p1                   => 0; c2 gets p2
          3  c3  ACQUIRE s B REQID r             => p2
          4  gone c2
          4  c3  PERMITS s                       => p2 B 1 29999
    ");
}

#[test]
fn an_undelivered_permit_that_has_ended_is_not_taken_back_twice() {
    run("
          0  held-back
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B PX 10 BLOCK 0       => parked
          2  c1  RELEASE s $p1                   => 0; c2 gets p2
         13  c3  ACQUIRE s C                     => p3
         14  gone c2
         14  c3  PERMITS s                       => p3 C 1 29999
    ");
}

#[test]
fn of_an_undelivered_permit_with_queue_the_place_stays_without_a_connection() {
    run("
          0  held-back
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0 QUEUE 100 => parked
          2  c3  ACQUIRE s C BLOCK 0             => parked
          3  c1  RELEASE s $p1                   => 0; c2 gets p2
         10  gone c2                             => c3 gets p3
         10  c1  WAITERS s                       => B 0 9 100 []
         11  delivered c3
         12  c4  ACQUIRE s B COUNT 2 QUEUE 100   => null
         13  c3  RELEASE s $p3                   => 0; dlock:notify:B: granted 0 p4 1 B s
    ");
}

#[test]
fn an_undelivered_take_was_not_carried_out() {
    run("
          0  held-back
          0  c1  INIT s 2                        => 1
          0  c1  TAKE s 2                        => taken
          1  c2  TAKE s 2 BLOCK 0 REQID r        => parked
          2  c1  GIVE s 2                        => 0; c2 gets taken
          3  gone c2
          3  c1  INFO s                          => capacity 2 available 2 leased 0 taken 0 waiters 0
        # So a retry of it counts.
          4  c3  TAKE s 2 REQID r                => taken
          5  c3  TAKE s 2 REQID r                => taken
          6  c1  INFO s                          => capacity 2 available 0 leased 0 taken 2 waiters 0
    ");
}

#[test]
fn an_undelivered_take_whose_repeat_was_answered_stays() {
    run("
          0  held-back
          0  c1  INIT s 1                        => 1
          0  c1  TAKE s                          => taken
          1  c2  TAKE s BLOCK 0 REQID r          => parked
          2  c1  GIVE s                          => 0; c2 gets taken
          3  c3  TAKE s REQID r                  => taken
          4  gone c2
          5  c1  INFO s                          => capacity 1 available 0 leased 0 taken 1 waiters 0
    ");
    // Also if the repeat waited behind it.
    run("
          0  held-back
          0  c1  INIT s 1                        => 1
          0  c1  TAKE s                          => taken
          1  c2  TAKE s BLOCK 0 REQID r          => parked
          2  c3  TAKE s BLOCK 0 REQID r          => parked
          3  c1  GIVE s                          => 0; c2 gets taken; c3 gets taken
          4  gone c2
          5  c1  INFO s                          => capacity 1 available 0 leased 0 taken 1 waiters 0
    ");
}

#[test]
fn an_undelivered_take_of_a_semaphore_that_is_gone_gives_nothing_back() {
    run("
          0  held-back
          0  c1  INIT s 1                        => 1
          0  c1  TAKE s                          => taken
          1  c2  TAKE s BLOCK 0                  => parked
          2  c1  GIVE s                          => 0; c2 gets taken
          3  del s
          4  c1  INIT s 1                        => 1
          5  c1  TAKE s                          => taken
          6  gone c2
          6  c1  INFO s                          => capacity 1 available 0 leased 0 taken 1 waiters 0
        # Another one moved over it, and one that moved along.
         10  c2  TAKE s BLOCK 0                  => parked
         11  c1  GIVE s                          => 0; c2 gets taken
         12  c1  INIT t 1                        => 1
         12  c1  TAKE t                          => taken
         13  rename t s
         14  gone c2
         14  c1  INFO s                          => capacity 1 available 0 leased 0 taken 1 waiters 0
         15  c2  TAKE s BLOCK 0                  => parked
         16  c1  GIVE s                          => 0; c2 gets taken
         17  c1  INIT t 1                        => 1
         18  rename s t
         19  gone c2
         19  c1  INFO t                          => capacity 1 available 1 leased 0 taken 0 waiters 0
         20  c1  TAKE t                          => taken
         21  c2  TAKE t BLOCK 0                  => parked
         22  c1  GIVE t                          => 0; c2 gets taken
         23  flushall                            => dlock:notify: flushed 0
         24  c1  INIT t 1                        => 1
         24  c1  TAKE t                          => taken
         25  gone c2
         26  c1  INFO t                          => capacity 1 available 0 leased 0 taken 1 waiters 0
    ");
}

#[test]
fn an_undelivered_grant_of_one_made_by_limit_takes_it_away() {
    run("
          0  held-back
          0  c1  ACQUIRE s A LIMIT 1             => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c1  RELEASE s $p1                   => 0; c2 gets p2
          3  gone c2
          3  c1  INFO s                          => null
    ");
}
