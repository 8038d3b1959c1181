//! One waiter per owner and key: calls that are replaced, and waiters that are kept.

use crate::script::run;

#[test]
fn an_owner_that_asks_again_for_the_same_keys_keeps_its_positions() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 50       => parked
          2  c3  MACQUIRE 2 k l B BLOCK 0        => parked
          3  c4  MACQUIRE 2 l k A BLOCK 0 LABEL new => parked; c2 gets REPLACED
          3  c4  WAITERS k                       => A 4 2 - [new]; B 3 1 - []
          3  c4  WAITERS l                       => A 4 2 - [new]; B 3 1 - []
         60  tick
         61  c1  RELEASE k X                     => 0; c4 gets t2 t3
         61  c4  INFO l                          => [A] t2 holds 1 lease 30000 ttl 30000 held 0 [new] bound 0 waiters 1
         62  c4  MRELEASE 2 k l A                => 2; c3 gets t4 t5
    ");
}

#[test]
fn kept_places_stay_first_though_others_wait_behind_them() {
    run("
          0  c1  ACQUIRE l X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c4  MACQUIRE 2 k l A BLOCK 0        => parked; c2 gets REPLACED
          4  c1  RELEASE l X                     => 0; c4 gets t2 t3
          5  c4  RELEASE k A                     => 0; c3 gets t4
    ");
    // The same for fewer keys: others get the keys that the owner does not ask for any more.
    run("
          0  c1  ACQUIRE l X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          2  c5  ACQUIRE m C BLOCK 0             => parked
          3  c4  MACQUIRE 2 k l A BLOCK 0        => parked; c2 gets REPLACED
          3  tick                                => c5 gets t2
          4  c1  RELEASE l X                     => 0; c4 gets t3 t4
    ");
    run("
          0  c1  ACQUIRE l X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          2  c5  ACQUIRE m C BLOCK 0             => parked
        # Of these it is the first already.
          3  c4  MACQUIRE 2 m k A BLOCK 0        => t2 t3; c2 gets REPLACED
          3  tick
          4  c4  RELEASE k A                     => 0; c3 gets t4
    ");
}

#[test]
fn a_call_for_other_keys_goes_to_the_end() {
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c1  ACQUIRE n X                     => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  MACQUIRE 2 k l B BLOCK 0        => parked
          3  c4  MACQUIRE 2 k n A BLOCK 0        => parked; c2 gets REPLACED
          3  tick
          3  c4  WAITERS k                       => B 3 1 - []; A 4 0 - []
          3  c4  WAITERS l                       => B 3 1 - []
          4  c1  RELEASE n X                     => 0
          5  c1  RELEASE k X                     => 0; c3 gets t3 t4
          6  c3  RELEASE k B                     => 0; c4 gets t5 t6
    ");
}

#[test]
fn single_places_and_calls_for_several_replace_each_other() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ACQUIRE k A BLOCK 0             => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
        # To the end: its place did not cover all keys.
          3  c4  MACQUIRE 2 k l A BLOCK 0        => parked; c2 gets REPLACED
          3  c4  WAITERS k                       => B 3 1 - []; A 4 0 - []
          4  c5  ACQUIRE k C BLOCK 0             => parked
        # For k alone: the place there stays, that at l goes.
          5  c6  ACQUIRE k A QUEUE 100           => null; c4 gets REPLACED
          5  c6  WAITERS k                       => B 3 3 - []; A 6 2 - []; C 5 1 - []
          5  c6  WAITERS l                       => nobody
          6  c1  RELEASE k X                     => 0; c3 gets t3
          7  c3  RELEASE k B                     => 0; dlock:notify:A: granted 0 t4 1 A k
          8  c6  RELEASE k A                     => 0; c5 gets t5
    ");
}

#[test]
fn a_queue_place_ends_with_a_call_for_several() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ACQUIRE k A QUEUE 500           => null
          2  c3  MACQUIRE 2 k l A BLOCK 50       => parked
          2  c3  WAITERS k                       => A 3 0 50 []
         53  tick                                => c3 gets null
         53  c3  WAITERS k                       => nobody
    ");
    // Without BLOCK it is left alone.
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ACQUIRE k A QUEUE 500           => null
          2  c3  MACQUIRE 2 k l A                => null
          2  c3  ANYACQUIRE 2 k l A              => null
          2  c3  WAITERS k                       => A 2 1 - []
          3  c1  RELEASE l X                     => 0
          4  c3  ANYACQUIRE 2 k l A              => l t3
          5  c3  WAITERS k                       => A 2 4 - []
          6  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t4 1 A k
    ");
}

#[test]
fn a_call_that_is_granted_replaces_the_one_that_waits() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE l B BLOCK 0             => parked
          3  c4  MACQUIRE 2 k n A BLOCK 0        => t2 t3; c2 gets REPLACED
          3  tick                                => c3 gets t4
          3  c4  WAITERS m                       => nobody
    ");
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 2 k m A BLOCK 0        => parked
          2  c3  ACQUIRE k A BLOCK 0             => t2; c2 gets REPLACED
          2  c3  WAITERS m                       => nobody
    ");
    // A call that does not wait overtakes no waiter, not even that of its own owner.
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 2 k m A BLOCK 0        => parked
          2  c3  ACQUIRE k A                     => null
          2  c3  MACQUIRE 1 k A                  => null
          2  c3  ANYACQUIRE 1 k A                => null
          3  c1  RELEASE m X                     => 0; c2 gets t2 t3
    ");
}

#[test]
fn anyacquire_is_replaced_and_replaces() {
    run("
          0  c1  MACQUIRE 3 k l m X              => t1 t2 t3
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c4  ANYACQUIRE 2 l k A BLOCK 0      => parked; c2 gets REPLACED
          3  c4  WAITERS k                       => A 4 2 - []; B 3 1 - []
        # All instead of any: to the end.
          4  c5  MACQUIRE 2 k l A BLOCK 0        => parked; c4 gets REPLACED
          4  c5  WAITERS k                       => B 3 2 - []; A 5 0 - []
          5  c6  ANYACQUIRE 3 k l m A BLOCK 0    => parked; c5 gets REPLACED
          6  c7  ACQUIRE m C BLOCK 0             => parked
          7  c1  RELEASE m X                     => 0; c6 gets m t4
          7  c1  WAITERS k                       => B 3 5 - []
    ");
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
        # For k alone: the place there stays.
          3  c4  ACQUIRE k A BLOCK 0             => parked; c2 gets REPLACED
          3  c4  WAITERS l                       => nobody
          4  c1  RELEASE k X                     => 0; c4 gets t3
    ");
}

#[test]
fn a_free_key_ends_blocked_calls_of_the_owner_for_the_others() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ACQUIRE k A BLOCK 0             => parked
          1  c3  ACQUIRE l A QUEUE 500           => null
        # It is one call: the earlier one that is blocked is answered, a place that is not stays.
          2  c4  ANYACQUIRE 3 k l m A BLOCK 0    => m t3; c2 gets REPLACED
    ");
}
