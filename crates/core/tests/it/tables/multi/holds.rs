//! MRELEASE and MRENEW, and repeats of requests.

use crate::script::run;

#[test]
fn mrelease_gives_back_one_hold_of_each_key_and_passes_over_others() {
    run("
          0  c1  MACQUIRE 2 k l A                => t1 t2
          0  c1  ACQUIRE k A                     => t1
          0  c2  ACQUIRE m B                     => t3
          1  c3  ACQUIRE l C BLOCK 0             => parked
          2  c1  MRELEASE 4 k l m n A            => 2; c3 gets t4
          2  c1  POSITION k A                    => 0
          2  c1  POSITION m B                    => 0
          3  c1  MRELEASE 4 k l m n A            => 1
          4  c1  MRELEASE 4 k l m n A            => 0
          4  c1  INFO k                          => null
    ");
}

#[test]
fn mrenew_renews_all_or_none() {
    run("
          0  c1  MACQUIRE 2 k l A PX 100         => t1 t2
          0  c2  ACQUIRE m B                     => t3
         50  c1  MRENEW 2 k l A                  => 2
         50  c1  INFO k                          => [A] t1 holds 1 lease 100 ttl 100 held 50 [] bound 0 waiters 0
         60  c1  MRENEW 3 k m l A PX 500         => NOTHELD
         60  c1  MRENEW 3 k l n A PX 500         => NOTHELD
         60  c1  INFO k                          => [A] t1 holds 1 lease 100 ttl 90 held 60 [] bound 0 waiters 0
         60  c1  INFO l                          => [A] t2 holds 1 lease 100 ttl 90 held 60 [] bound 0 waiters 0
        # It extends only.
         70  c1  MRENEW 2 k l A PX 10            => 2
         81  tick
         81  c1  INFO k                          => [A] t1 holds 1 lease 100 ttl 69 held 81 [] bound 0 waiters 0
        151  tick
        151  c1  MRENEW 2 k l A                  => NOTHELD
    ");
}

#[test]
fn mrenew_reaches_a_grant_to_a_place() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A QUEUE 100 PX 700    => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t2 1 A k
          3  c2  MRENEW 1 k A                    => 1
          3  c2  INFO k                          => [A] t2 holds 1 lease 700 ttl 700 held 1 [] bound 0 waiters 0
    ");
}

#[test]
fn a_repeat_counts_nothing_key_by_key() {
    run("
          0  c1  MACQUIRE 2 k l A REQID r        => t1 t2
          1  c1  MACQUIRE 2 k l A REQID r        => t1 t2
          1  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 30000 held 1 [] bound 0 waiters 0
        # One key more: that one is new.
          2  c1  MACQUIRE 3 k l m A REQID r      => t1 t2 t3
          2  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
          3  c1  ACQUIRE k A REQID r             => t1
          4  c1  MACQUIRE 2 k l A REQID q        => t1 t2
          5  c1  MRELEASE 2 k l A REQID q        => 2
          6  c1  MRELEASE 2 k l A REQID q        => 2
          6  c1  INFO k                          => [A] t1 holds 1 lease 30000 ttl 29998 held 6 [] bound 0 waiters 0
          7  c1  MRELEASE 3 k l m A REQID r      => 3
          8  c1  MRELEASE 3 k l m A REQID r      => 3
    ");
}

#[test]
fn a_retry_of_a_wait_gets_its_grant() {
    run("
          0  c1  ACQUIRE k X                       => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0 REQID r  => parked
          2  c3  MACQUIRE 2 k l A BLOCK 0 REQID r  => parked; c2 gets null
          3  c1  RELEASE k X                       => 0; c3 gets t2 t3
          4  c4  MACQUIRE 2 k l A BLOCK 0 REQID r  => t2 t3
          5  c4  MRELEASE 2 k l A                  => 2
          6  c4  INFO k                            => null
    ");
}

#[test]
fn a_repeat_moves_the_ties() {
    run("
          0  c1  MACQUIRE 2 k l A BIND 0 REQID r => t1 t2
          1  c2  MACQUIRE 2 k l A BIND 0 REQID r => t1 t2
          2  gone c1
          2  c3  INFO k                          => [A] t1 holds 1 lease 30000 ttl 29999 held 2 [] bound 2 waiters 0
          3  gone c2
          3  c3  INFO k                          => null
          3  c3  INFO l                          => null
    ");
}

#[test]
fn macquire_takes_over_a_grant_to_a_place_without_an_id() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A QUEUE 100 PX 100    => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t2 1 A k
          3  c3  MACQUIRE 2 k l A PX 700         => t2 t3
          3  c3  INFO k                          => [A] t2 holds 1 lease 700 ttl 700 held 1 [] bound 0 waiters 0
    ");
    // A waiting call does so with its grant, not before.
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c2  ACQUIRE k A QUEUE 100 PX 100    => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t3 1 A k
          3  c3  MACQUIRE 2 k l A PX 700 BLOCK 0 => parked
          3  c3  INFO k                          => [A] t3 holds 1 lease 100 ttl 99 held 1 [] bound 0 waiters 1
         50  c1  RELEASE l X                     => 0; c3 gets t3 t4
         50  c3  INFO k                          => [A] t3 holds 1 lease 700 ttl 700 held 48 [] bound 0 waiters 0
    ");
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c2  ACQUIRE k A QUEUE 100 PX 100    => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t3 1 A k
          3  c3  MACQUIRE 2 k l A BLOCK 0        => parked
        103  tick                                => dlock:notify:A: expired 0 t3 1 A k
        104  c1  RELEASE l X                     => 0; c3 gets t4 t5
    ");
}

#[test]
fn macquire_enters_a_grant_to_a_place_of_another_request() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A QUEUE 100 REQID r   => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t2 1 A [r] k
          3  c3  MACQUIRE 2 k l A REQID m        => t2 t3
          4  c2  RELEASE k A REQID r             => 1
          5  c3  MRELEASE 2 k l A REQID m        => 2
    ");
}
