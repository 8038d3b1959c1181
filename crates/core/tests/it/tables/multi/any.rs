//! ANYACQUIRE: one of several keys.

use crate::script::{run, run_here};

#[test]
fn it_takes_the_first_free_key_and_begins_elsewhere_each_time() {
    run_here(
        "
          0  c1  ANYACQUIRE 3 k l m A            => k t1
          1  c1  ANYACQUIRE 3 k l m B            => l t2
          2  c1  ANYACQUIRE 3 k l m C            => m t3
          3  c1  ANYACQUIRE 3 k l m D            => null
          4  c1  RELEASE k A                     => 0
        # The start is k again; then l, which is taken, and m.
          5  c1  ANYACQUIRE 3 k l m D            => k t4
    ",
    );
    run_here(
        "
          0  c1  ANYACQUIRE 3 k l m A            => k t1
          1  c1  RELEASE k A                     => 0
          2  c1  ANYACQUIRE 3 k l m A            => l t2
          3  c1  RELEASE l A                     => 0
          4  c1  ANYACQUIRE 3 k l m A            => m t3
          5  c1  RELEASE m A                     => 0
          6  c1  ANYACQUIRE 3 k l m A            => k t4
          7  c2  ANYACQUIRE 3 k l m B            => l t5
          8  c2  ANYACQUIRE 2 k l C              => null
          9  c2  ANYACQUIRE 3 k m l C            => m t6
    ",
    );
}

#[test]
fn a_key_that_the_owner_holds_is_entered_again() {
    run("
          0  c1  ACQUIRE l A PX 100 REQID r      => t1
          0  c1  ACQUIRE m A                     => t2
        # The first it holds, whatever is free.
          1  c1  ANYACQUIRE 3 k m l A            => m t2
          1  c1  INFO m                          => [A] t2 holds 2 lease 30000 ttl 30000 held 1 [] bound 0 waiters 0
        # But before that the one that has seen the request.
          2  c1  ANYACQUIRE 3 k m l A REQID r    => l t1
          2  c1  INFO l                          => [A] t1 holds 1 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
          3  c1  ANYACQUIRE 3 k m l A REQID q BLOCK 0 => m t2
          4  c1  ANYACQUIRE 3 l m k A REQID q    => m t2
          4  c1  INFO m                          => [A] t2 holds 3 lease 30000 ttl 30000 held 4 [] bound 0 waiters 0
    ");
}

#[test]
fn it_takes_over_a_grant_to_a_place_without_an_id() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A QUEUE 100 PX 100    => null
          2  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t2 1 A k
          3  c3  ANYACQUIRE 2 l k A PX 700       => k t2
          3  c3  INFO k                          => [A] t2 holds 1 lease 700 ttl 700 held 1 [] bound 0 waiters 0
    ");
}

#[test]
fn it_waits_for_the_first_key_that_is_freed_and_its_other_places_vanish() {
    run("
          0  c1  MACQUIRE 3 k l m X              => t1 t2 t3
          1  c2  ANYACQUIRE 3 k l m A BLOCK 500 PX 70 LABEL x BIND 0 NOTIFY ch => parked
          1  c2  WAITERS k                       => A 2 0 500 [x]
          1  c2  WAITERS m                       => A 2 0 500 [x]
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c1  RELEASE l X                     => 0; c2 gets l t4
          3  c2  INFO l                          => [A] t4 holds 1 lease 70 ttl 70 held 0 [x] bound 2 waiters 0
          3  c2  WAITERS k                       => B 3 1 - []
          3  c2  WAITERS m                       => nobody
          4  c1  RELEASE k X                     => 0; c3 gets t5
          5  gone c2                             => ch: disconnected 0 t4 1 A l
    ");
}

#[test]
fn several_of_them_wait_in_order_of_arrival() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  c3  ANYACQUIRE 2 l k B BLOCK 0      => parked
          3  c4  ACQUIRE l C BLOCK 0             => parked
          4  c1  RELEASE l X                     => 0; c2 gets l t3
          5  c2  RELEASE l A                     => 0; c3 gets l t4
          6  c1  RELEASE k X                     => 0
          7  c3  RELEASE l B                     => 0; c4 gets t5
    ");
}

#[test]
fn keys_that_end_together_give_it_one() {
    run_here(
        "
          0  c1  ACQUIRE k X PX 50               => t1
          0  c1  MACQUIRE 2 l m X PX 60          => t2 t3
          1  c2  ANYACQUIRE 3 m k l A BLOCK 0    => parked
          2  c3  MACQUIRE 2 l m B BLOCK 0        => parked
        # The alarm is late: the key that was free first.
         70  tick                                => c2 gets k t4; c3 gets t5 t6
    ",
    );
    run_here(
        "
          0  c1  MACQUIRE 2 k l X PX 50          => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
        # No alarm has rung: the first call to look at one of them does it.
         60  c3  ANYACQUIRE 2 l k B              => l t4; c2 gets k t3
    ",
    );
}

#[test]
fn it_leaves_when_its_time_is_over() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 50     => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
         52  tick                                => c2 gets null
         52  c3  POSITION k B                    => 1
         52  c3  WAITERS l                       => nobody
         60  c2  ANYACQUIRE 2 k l A BLOCK 50     => parked
        120  c1  RELEASE l X                     => 0; c2 gets null
        120  c1  INFO l                          => null
    ");
}

#[test]
fn one_key_is_enough() {
    run("
          0  c1  ANYACQUIRE 1 k A                => k t1
          1  c2  ANYACQUIRE 1 k B BLOCK 0        => parked
          2  c1  RELEASE k A                     => 0; c2 gets k t2
    ");
}

#[test]
fn keys_that_are_freed_together_go_to_one_call_each() {
    run("
          0  c1  MACQUIRE 3 k l m X              => t1 t2 t3
          1  c2  ANYACQUIRE 3 k l m A BLOCK 0    => parked
          2  c3  ANYACQUIRE 3 k l m B BLOCK 0    => parked
          3  c4  ANYACQUIRE 3 k l m C BLOCK 0    => parked
          4  c5  ANYACQUIRE 3 k l m D BLOCK 0    => parked
          5  c1  MRELEASE 3 k l m X              => 3; c2 gets k t4; c3 gets l t5; c4 gets m t6
          6  c9  WAITERS k                       => D 5 2 - []
    ");
}

#[test]
fn calls_for_any_key_and_for_all_share_the_queues() {
    run("
          0  c1  MACQUIRE 3 k l m X              => t1 t2 t3
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  c3  MACQUIRE 2 l k B BLOCK 0        => parked
          3  c4  ANYACQUIRE 3 k l m C BLOCK 0    => parked
          4  c1  RELEASE l X                     => 0; c2 gets l t4
        # B is first at k now, and reserves it.
          5  c1  RELEASE k X                     => 0
          6  c1  RELEASE m X                     => 0; c4 gets m t5
          7  c2  RELEASE l A                     => 0; c3 gets t6 t7
    ");
}
