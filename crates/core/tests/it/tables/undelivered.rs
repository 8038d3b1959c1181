//! Grants that do not arrive.

use crate::script::{run, run_as, run_both};

#[test]
fn an_undelivered_grant_is_taken_back_and_handed_on() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C BLOCK 0           => parked
          3  c1  RELEASE k A                   => 0; c2 gets t2
          4  gone c2                           => c3 gets t3
          5  undelivered c3
          6  c1  INFO k                        => null
    ");
}

#[test]
fn an_undelivered_grant_that_was_entered_again_loses_one_count() {
    run_both("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  ACQUIRE k B                   => t2
          4  c3  ACQUIRE k B                   => t2
          5  gone c2
          6  c3  INFO k                        => [B] t2 holds 2 lease 30000 ttl 29998 held 4 [] bound 0 waiters 0
          7  c3  RELEASE k B                   => 1
          8  c3  RELEASE k B                   => 0
    ");
}

#[test]
fn an_undelivered_grant_is_recognised_after_a_fence_and_a_rename() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  ACQUIRE k B                   => t2
          4  c3  FENCE k B 1700000050999999    => t3
          5  gone c2
          6  c3  INFO k                        => [B] t3 holds 1 lease 30000 ttl 29997 held 4 [] bound 0 waiters 0
         10  c2  ACQUIRE k C BLOCK 0           => parked
         11  c3  RELEASE k B                   => 0; c2 gets t4
         12  rename k l
         13  gone c2
         14  c3  INFO l                        => null
         20  c1  ACQUIRE k A                   => t5
         21  c2  ACQUIRE k B BLOCK 0           => parked
         22  c1  RELEASE k A                   => 0; c2 gets t6
         23  swapdb 0 1
         24  gone c2
         25  db 1
         26  c1  INFO k                        => null
    ");
}

#[test]
fn an_undelivered_grant_whose_repeat_was_answered_stays_whole() {
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r   => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  ACQUIRE k B BLOCK 0 REQID r   => t2
          4  c3  ACQUIRE k B                   => t2
          5  gone c2
          6  c3  RELEASE k B                   => 1
          7  c3  RELEASE k B                   => 0
    ",
    );
}

#[test]
fn an_undelivered_grant_that_was_renewed_elsewhere_stays() {
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  RENEW k B                     => t2
          4  gone c2
          5  c3  CHECK k $t2                   => 1
    ",
    );
}

#[test]
fn of_an_undelivered_grant_with_queue_the_place_stays_without_a_connection() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                            => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100 LABEL b  => parked
          2  c3  ACQUIRE k C BLOCK 0                    => parked
          2  c4  ACQUIRE k D BLOCK 0                    => parked
          3  c1  RELEASE k A                            => 0; c2 gets t2
         10  gone c2                                    => c3 gets t3
         10  delivered c3
         10  c1  WAITERS k                              => B 0 9 100 [b]; D 4 8 - []
        # In front of those behind it, as before.
         20  c5  ACQUIRE k B QUEUE 100                  => null
         21  c3  RELEASE k C                            => 0; dlock:notify:B: granted 0 t4 1 B k
         22  c5  ACQUIRE k B                            => t4
         23  c5  RELEASE k B                            => 0; c4 gets t5
         24  delivered c4
         24  c4  RELEASE k D                            => 0
    ");
    run("
          0  held-back
          0  c1  ACQUIRE k A                            => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100 BIND 0   => parked
          2  c1  RELEASE k A                            => 0; c2 gets t2
         10  gone c2
         10  c1  INFO k                                 => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
        # The request was not carried out.
         11  c3  ACQUIRE k B BLOCK 0 QUEUE 100          => t3
         12  c3  RELEASE k B                            => 0
         20  c1  ACQUIRE k A                            => t4
         21  c2  ACQUIRE k B BLOCK 0 QUEUE 100          => parked
         22  c1  RELEASE k A                            => 0; c2 gets t5
         30  gone c2
        129  c1  POSITION k B                           => 1
        130  c1  POSITION k B                           => null
        131  tick
        131  c1  INFO k                                 => null
    ");
}

#[test]
fn an_undelivered_grant_leaves_no_place_if_its_owner_asked_again_or_it_was_moved() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                            => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100          => parked
          2  c1  RELEASE k A                            => 0; c2 gets t2
          3  rename k l
          4  c3  ACQUIRE k C                            => t3
          5  c4  ACQUIRE k B QUEUE 100                  => null
         10  gone c2
         10  c1  INFO l                                 => null
         10  c1  WAITERS k                              => B 4 5 - []
    ");
}

#[test]
fn an_undelivered_grant_of_a_fair_lock_with_queue_is_an_offer() {
    run_as("DFAIR", "
          0  held-back
          0  c1  ACQUIRE k A                            => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100          => parked
          2  c1  RELEASE k A                            => 0; c2 gets t2
         10  gone c2                                    => dlock:notify:B: offered 0 t2 1 B k
         10  c3  INFO k                                => [B] t2 holds 1 lease 30000 ttl 100 held 8 [] bound 0 waiters 0
         20  c3  ACQUIRE k B NOREENTRY                  => t2
         21  c3  RELEASE k B                            => 0
         # Nobody was there to be tied to, so nothing cuts it.
         30  c1  ACQUIRE k A                            => t3
         31  c2  ACQUIRE k B BLOCK 0 QUEUE 100 BIND 0   => parked
         32  c1  RELEASE k A                            => 0; c2 gets t4
         40  gone c2                                    => dlock:notify:B: offered 0 t4 1 B k
         40  c3  INFO k                                => [B] t4 holds 1 lease 30000 ttl 100 held 8 [] bound 0 waiters 0
        141  tick                                       => dlock:notify:B: expired 0 t4 1 B k
    ");
}

#[test]
fn of_an_undelivered_grant_that_was_released_nothing_stays() {
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                              => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100 REQID r    => parked
          2  c1  RELEASE k A                              => 0; c2 gets t2
          3  c3  RELEASE k B REQID r                      => 0
          4  c3  CHECK k $t2                              => STALE
          5  gone c2
          6  c3  INFO k                                   => null
          6  c3  ACQUIRE k B QUEUE 100 REQID r            => SPENT
          7  c1  ACQUIRE k A                              => t3
          8  c2  ACQUIRE k B BLOCK 0 QUEUE 100            => parked
          9  c1  RELEASE k A                              => 0; c2 gets t4
         10  c3  RELEASE k B                              => 0
         11  gone c2
         12  c3  INFO k                                   => null
    ",
    );
}

#[test]
fn an_undelivered_grant_of_another_request_than_the_released_one_stays() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                              => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100 REQID r    => parked
          2  c1  RELEASE k A                              => 0; c2 gets t2
          3  c3  RELEASE k B REQID other                  => UNKNOWN
          5  gone c2
          6  c3  INFO k                                   => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
    ");
}

#[test]
fn what_a_lost_connection_could_not_get_is_not_for_its_other_places() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                       => t1
          1  c2  ACQUIRE k C QUEUE 100             => null
          2  c2  ACQUIRE k B QUEUE 100             => null
          3  c2  ACQUIRE k C BLOCK 0               => parked
          4  c1  RELEASE k A                       => 0; c2 gets t2
          5  gone c2
          6  c3  INFO k                            => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
          7  c3  ACQUIRE k D                       => t3
    ");
}

#[test]
fn an_undelivered_grant_is_taken_back_by_its_id() {
    // Its RELEASE came first: what is left belongs to another request.
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r        => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          3  c3  ACQUIRE k B REQID s                => t2
          4  c3  RELEASE k B REQID r                => 1
          5  gone c2
          5  c3  CHECK k $t2                        => 1
          6  c3  RELEASE k B REQID s                => 0
          7  c3  RELEASE k B REQID r                => 1
    ",
    );
    // It did not: the other request stays.
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r        => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          3  c3  ACQUIRE k B REQID s                => t2
          4  gone c2
          5  c3  RELEASE k B REQID r                => UNKNOWN
          6  c3  RELEASE k B REQID s                => 0
    ",
    );
    run("
          0  held-back
          0  c1  ACQUIRE l X                        => t1
          0  c2  ACQUIRE k A REQID r                => t2
          1  c3  MACQUIRE 2 k l A BLOCK 0 REQID m   => parked
          2  c1  RELEASE l X                        => 0; c3 gets t2 t3
          3  c4  MRELEASE 2 k l A REQID m           => 2
          4  gone c3
          5  c2  CHECK k $t2                        => 1
          6  c2  RELEASE k A REQID r                => 0
    ");
    // Without an id: its count went by a RELEASE without one.
    run("
          0  held-back
          0  c1  ACQUIRE l X                        => t1
          0  c2  ACQUIRE k A REQID r                => t2
          1  c3  MACQUIRE 2 k l A BLOCK 0           => parked
          2  c1  RELEASE l X                        => 0; c3 gets t2 t3
          3  c4  RELEASE k A                        => 1
          4  gone c3
          5  c2  CHECK k $t2                        => 1
          6  c2  RELEASE k A REQID r                => 0
    ");
}

#[test]
fn of_an_undelivered_grant_that_was_released_no_place_stays() {
    run_both(
        "
          0  held-back
          0  c1  ACQUIRE k A                              => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100 REQID r    => parked
          2  c1  RELEASE k A                              => 0; c2 gets t2
          3  c3  RELEASE k B REQID r                      => 0
          4  c1  ACQUIRE k C                              => t3
          5  gone c2
          5  c1  WAITERS k                                => nobody
          6  c3  RELEASE k B REQID r                      => 0
          7  c3  ACQUIRE k B QUEUE 100 REQID r            => SPENT
    ",
    );
    run_as(
        "DSEM",
        "
          0  held-back
          0  c1  INIT s 1                                 => 1
          0  c1  ACQUIRE s A                              => p1
          1  c2  ACQUIRE s B BLOCK 0 REQID r              => parked
          2  c1  RELEASE s $p1                            => 0; c2 gets p2
          3  c3  RELEASE s B REQID r                      => 1
          4  c3  ACQUIRE s C                              => p3
          5  gone c2
          6  c3  RELEASE s B REQID r                      => 1
          6  c3  PERMITS s                                => p3 C 1 29998
    ",
    );
}

/// A key moves to another node of a cluster and back: what was answered there is not known here.
#[test]
fn a_grant_whose_hold_was_elsewhere_is_not_taken_back() {
    run_both("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B REQID r BLOCK 0   => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  restore k l
          4  del k
          5  c3  RENEW l B                     => t2
          6  restore l k
          7  del l
          8  undelivered c2
          9  c3  INFO k                        => [B] t2 holds 1 lease 30000 ttl 29996 held 7 [] bound 0 waiters 0
         10  c3  RELEASE k B REQID r           => 0
    ");
}
