//! QUEUE: queue entries without a blocked call, unclaimed grants, and messages.

use super::run;

#[test]
fn a_queue_place_gets_a_permit_that_lasts_its_lease() {
    run("
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A COUNT 3             => p1
          1  c2  ACQUIRE s B COUNT 2 QUEUE 100 PX 1000 => null
          1  c2  WAITERS s                       => B 2 0 - []
          2  c1  RELEASE s $p1                   => 1; dlock:notify:B: granted 0 p2 1 B s
          2  c2  POSITION s B                    => 0
          3  c2  PERMITS s                       => p2 B 2 999
        # Another COUNT is another request.
          4  c2  ACQUIRE s B                     => p3
          4  c2  PERMITS s                       => p2 B 2 998; p3 B 1 30000
         50  c3  ACQUIRE s B COUNT 2 PX 500      => p2
         50  c3  PERMITS s                       => p2 B 2 952; p3 B 1 29954
         51  c3  ACQUIRE s B COUNT 2             => null
         52  c3  RELEASE s $p2                   => 2
    ");
}

#[test]
fn a_renewal_reaches_a_grant_to_a_place_and_a_release_gives_it_back() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B QUEUE 100 PX 1000   => null
          1  c3  ACQUIRE s C QUEUE 100           => null
          2  c1  RELEASE s $p1              => 0; dlock:notify:B: granted 0 p2 1 B s; dlock:notify:C: granted 0 p3 1 C s
          3  c2  RENEW s $p2                     => 1
          3  c2  PERMITS s                       => p2 B 1 1000; p3 C 1 29999
          4  c2  ACQUIRE s B                     => null
          5  c3  RELEASE s $p3                   => 1
    ");
}

#[test]
fn a_poll_with_the_same_id_counts_nothing() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B QUEUE 100 REQID r   => null
          2  c2  ACQUIRE s B QUEUE 100 REQID r   => null
          3  c1  RELEASE s $p1                   => 0; dlock:notify:B: granted 0 p3 1 B [r] s
          4  c2  ACQUIRE s B QUEUE 100 REQID r   => p3
          5  c2  ACQUIRE s B QUEUE 100 REQID r   => p3
          5  c2  PERMITS s                       => p3 B 1 30000
        104  tick
        105  c2  RELEASE s $p3                   => 1
    ");
}

#[test]
fn a_permit_that_no_request_reached_expires_and_its_connection_is_passed_over() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  INIT t 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          0  c1  ACQUIRE t A                     => p2
          1  c2  ACQUIRE s B QUEUE 100 PX 100    => null
          1  c2  ACQUIRE t B QUEUE 1000 PX 1000  => null
          2  c3  ACQUIRE t C BLOCK 0             => parked
          3  c1  RELEASE s $p1                   => 0; dlock:notify:B: granted 0 p3 1 B s
        104  tick                                => dlock:notify:B: expired 0 p3 1 B s
        105  c1  RELEASE t $p2                   => 0; c3 gets p5
        105  c1  POSITION t B                    => 1
        106  c1  RELEASE t $p5                   => 1
        107  c4  ACQUIRE t D PX 50               => p6
        # Heard of again, its place counts.
        108  c2  RENEW s $p3                     => NOTHELD
        109  c4  RELEASE t $p6                   => 0; dlock:notify:B: granted 0 p4 1 B t
    ");
}

#[test]
fn a_hung_wide_place_does_not_hold_up_those_behind_it() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  INIT t 3                        => 1
          0  c1  ACQUIRE s A                     => p1
          0  c1  ACQUIRE t A COUNT 2             => p2
          1  c2  ACQUIRE s B QUEUE 100 PX 100    => null
          1  c2  ACQUIRE t B COUNT 2 QUEUE 1000 PX 1000  => null
          2  c3  ACQUIRE t C BLOCK 0             => parked
          3  c1  RELEASE s $p1                   => 0; dlock:notify:B: granted 0 p3 1 B s
        104  tick                                => c3 gets p5; dlock:notify:B: expired 0 p3 1 B s
    ");
}

#[test]
fn a_place_outlives_its_connection_by_queue_and_is_granted_nothing() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B QUEUE 100 PX 1000   => null
         10  gone c2
         10  c1  WAITERS s                       => B 0 9 100 []
         60  c1  RELEASE s $p1                   => 1
         61  c3  ACQUIRE s C                     => p3
         70  c3  ACQUIRE s B QUEUE 100           => null
         71  c3  RELEASE s $p3                   => 0; dlock:notify:B: granted 0 p4 1 B s
         72  c3  ACQUIRE s B                     => p4
         80  c4  ACQUIRE s C QUEUE 30            => null
         81  gone c4
        111  c1  POSITION s C                    => null
        112  tick
        113  c3  RELEASE s $p4                   => 1
    ");
}

#[test]
fn a_wide_place_without_a_connection_does_not_hold_up_those_behind_it() {
    run("
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B COUNT 3 QUEUE 100   => null
          2  c3  ACQUIRE s C BLOCK 0             => parked
          3  c4  TAKE s BLOCK 0                  => parked
          4  gone c2                             => c3 gets p3
          5  c1  RELEASE s $p1                   => 1; c4 gets taken
          6  c3  RELEASE s $p3                   => 2
          7  c5  ACQUIRE s B COUNT 3 QUEUE 100   => null
          8  c6  ACQUIRE s D                     => null
          9  c4  GIVE s                          => 0; dlock:notify:B: granted 0 p4 1 B s
    ");
}

#[test]
fn a_place_without_a_connection_makes_no_semaphore() {
    run("
          0  c1  ACQUIRE s A LIMIT 1             => p1
          1  c2  ACQUIRE s B LIMIT 1 QUEUE 1000  => null
          2  c3  ACQUIRE s C BLOCK 0             => parked
          3  gone c2
          4  del s
          5  c1  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 2
        # It was not back when the semaphore was made.
          6  c4  ACQUIRE s B LIMIT 1 QUEUE 1000  => null; c3 gets p3
          7  c3  RELEASE s $p3                   => 0; dlock:notify:B: granted 0 p4 1 B s
    ");
}

#[test]
fn block_with_queue_keeps_the_place_when_it_times_out() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B BLOCK 50 QUEUE 100  => parked
          2  c3  ACQUIRE s C BLOCK 500           => parked
         52  tick                                => c2 gets null
         53  c1  WAITERS s                       => B 2 52 - []; C 3 51 449 []
         54  c1  RELEASE s $p1                   => 0; dlock:notify:B: granted 0 p2 1 B s
         55  c2  ACQUIRE s B                     => p2
         56  c2  RELEASE s $p2                   => 0; c3 gets p3
    ");
}

#[test]
fn a_wide_place_may_become_too_wide() {
    run("
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B COUNT 3 QUEUE 100   => null
          2  c3  ACQUIRE s C COUNT 3 BLOCK 0 QUEUE 100 => parked
          3  c4  ACQUIRE s D COUNT 2 BLOCK 0     => parked
          4  c5  RESIZE s 2                      => 0; c3 gets LIMIT
          4  c5  WAITERS s                       => D 4 1 - []
          5  c1  RELEASE s $p1                   => 0; c4 gets p4
    ");
}

#[test]
fn messages_carry_the_permit_id() {
    run("
          0  c1  INIT s 9                        => 1
          0  c1  ACQUIRE s A PX 10 NOTIFY ch     => p1
          0  c1  ACQUIRE s A PX 20 QUEUE 5       => p2
          0  c1  ACQUIRE s A PX 30               => p3
          0  c1  ACQUIRE s A BIND 0 NOTIFY ch    => p4
          0  c1  ACQUIRE s A NOTIFY ch           => p5
         11  tick                                => ch: expired 0 p1 1 A s
         21  tick                                => dlock:notify:A: expired 0 p2 1 A s
         31  tick
         32  gone c1                             => ch: disconnected 0 p4 1 A s
         33  c2  ACQUIRE s B NOTIFY ch COUNT 2   => p6
         34  c9  BREAK s $p6                     => 1; ch: broken 0 p6 1 B s
         35  c2  ACQUIRE s B COUNT 2             => p7
         36  del s                               => ch: deleted 0 p5 1 A s
    ");
}
