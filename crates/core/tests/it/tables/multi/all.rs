//! MACQUIRE: all keys or none, and when a waiting call gets them.

use crate::script::{run, run_here};

#[test]
fn all_keys_or_none() {
    run("
          0  c1  MACQUIRE 3 k l m A              => t1 t2 t3
          0  c1  INFO l                          => [A] t2 holds 1 lease 30000 ttl 30000 held 0 [] bound 0 waiters 0
          1  c2  MACQUIRE 2 n l B                => null
          1  c2  INFO n                          => null
          2  c1  RELEASE l A                     => 0
          3  c2  MACQUIRE 2 n l B PX 50 BIND 0 LABEL x NOTIFY ch => t4 t5
          3  c2  INFO n                          => [B] t4 holds 1 lease 50 ttl 50 held 0 [x] bound 2 waiters 0
          3  c2  INFO l                          => [B] t5 holds 1 lease 50 ttl 50 held 0 [x] bound 2 waiters 0
          4  c3  MACQUIRE 1 z C                  => t6
          5  gone c2                             => ch: disconnected 0 t4 1 B n; ch: disconnected 0 t5 1 B l
    ");
}

#[test]
fn it_waits_until_it_is_first_everywhere() {
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c2  ACQUIRE l Y                     => t2
          1  c3  MACQUIRE 3 k l m A BLOCK 0 PX 70 LABEL x => parked
          1  c3  WAITERS k                       => A 3 0 - [x]
          1  c3  WAITERS l                       => A 3 0 - [x]
          1  c3  WAITERS m                       => A 3 0 - [x]
          1  c3  POSITION m A                    => 1
        # It keeps free keys closed while it waits for busy ones.
          2  c4  ACQUIRE m B                     => null
          2  c4  ACQUIRE m B BLOCK 0             => parked
          3  c1  RELEASE k X                     => 0
          3  c5  ACQUIRE k C                     => null
          3  c5  INFO k                          => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1 reserved for A
          4  c2  RELEASE l Y                     => 0; c3 gets t3 t4 t5
          4  c3  INFO m                          => [A] t5 holds 1 lease 70 ttl 70 held 0 [x] bound 0 waiters 1
          5  c3  RELEASE m A                     => 0; c4 gets t6
          6  c3  MRELEASE 2 k l A                => 2
    ");
}

#[test]
fn calls_with_common_keys_are_served_in_order_of_arrival_whatever_the_order_of_their_keys() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  MACQUIRE 2 l k B BLOCK 0        => parked
          3  c4  MACQUIRE 2 m l C BLOCK 0        => parked
          4  c5  MACQUIRE 2 n m D BLOCK 0        => parked
          5  c1  RELEASE k X                     => 0; c2 gets t2 t3
          6  c2  RELEASE k A                     => 0
          7  c2  RELEASE l A                     => 0; c3 gets t4 t5
          8  c3  MRELEASE 2 k l B                => 2; c4 gets t6 t7
          9  c4  MRELEASE 2 l m C                => 2; c5 gets t8 t9
    ");
}

#[test]
fn a_smaller_call_overtakes_no_waiter() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ACQUIRE l B QUEUE 900           => null
          2  c4  MACQUIRE 1 l C BLOCK 0          => parked
          2  c5  ANYACQUIRE 2 l k D BLOCK 0      => parked
          2  c6  ANYACQUIRE 2 l n E              => n t2
          3  c1  RELEASE k X                     => 0; c2 gets t3 t4
          4  c2  RELEASE l A                     => 0; dlock:notify:B: granted 0 t5 1 B l
          5  c3  ACQUIRE l B                     => t5
          6  c3  RELEASE l B                     => 0; c4 gets t6
          7  c4  RELEASE l C                     => 0; c5 gets l t7
    ");
}

#[test]
fn keys_that_the_owner_holds_are_entered_again() {
    run("
          0  c1  ACQUIRE k A PX 100              => t1
          1  c1  MACQUIRE 2 k l A PX 500         => t1 t2
          1  c1  INFO k                          => [A] t1 holds 2 lease 500 ttl 500 held 1 [] bound 0 waiters 0
          2  c1  MACQUIRE 2 l k A PX 10          => t2 t1
          2  c1  INFO k                          => [A] t1 holds 3 lease 500 ttl 499 held 2 [] bound 0 waiters 0
          3  c2  ACQUIRE m B                     => t3
          4  c3  MACQUIRE 2 k m A BLOCK 0        => parked
        # Until it is granted, its own key is held as before.
          4  c1  INFO k                          => [A] t1 holds 3 lease 500 ttl 497 held 4 [] bound 0 waiters 1
          5  c1  RENEW k A PX 1000               => t1
          6  c2  RELEASE m B                     => 0; c3 gets t1 t4
          6  c1  INFO k                          => [A] t1 holds 4 lease 30000 ttl 30000 held 6 [] bound 0 waiters 0
    ");
}

#[test]
fn a_key_that_the_owner_lets_go_while_it_waits_must_come_to_it_again() {
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c2  ACQUIRE l X                     => t2
          1  c3  ACQUIRE k B QUEUE 900           => null
          2  c4  MACQUIRE 2 k l A BLOCK 0        => parked
        # B came first.
          3  c1  RELEASE k A                     => 0; dlock:notify:B: granted 0 t3 1 B k
          4  c2  RELEASE l X                     => 0
          5  c3  RELEASE k B                     => 0; c4 gets t4 t5
    ");
    run("
          0  c1  ACQUIRE k A PX 50               => t1
          0  c2  ACQUIRE l X                     => t2
          1  c4  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
        # A is first there without holding it any more.
         51  tick
         51  c3  POSITION k B                    => 2
         52  c2  RELEASE l X                     => 0; c4 gets t3 t4
         53  c4  BREAK k                         => 1; c3 gets t5
    ");
}

#[test]
fn expiry_a_break_and_a_deletion_during_the_wait_hand_the_key_to_it() {
    run_here(
        "
          0  c1  ACQUIRE k X PX 50               => t1
          0  c1  ACQUIRE l X                     => t2
          0  c1  ACQUIRE m X                     => t3
          0  c1  ACQUIRE n X BIND 0              => t4
          1  c2  MACQUIRE 4 k l m n A BLOCK 0    => parked
          2  c9  BREAK l                         => 1
          3  del m
          4  gone c1
         51  tick                                => c2 gets t5 t6 t7 t8
    ",
    );
    // A call on one of the keys replaces a late alarm.
    run_here(
        "
          0  c1  MACQUIRE 2 k l X PX 50          => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
         60  c3  ACQUIRE k B                     => null
         60  c3  ACQUIRE l B                     => null; c2 gets t3 t4
    ",
    );
}

#[test]
fn a_message_is_sent_for_each_key_of_its_own() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0 NOTIFY ch PX 50 => parked
          2  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  c9  BREAK k                         => 1; ch: broken 0 t2 1 A k
         53  tick                                => ch: expired 0 t3 1 A l
        # Without NOTIFY there is none.
         54  c1  ACQUIRE k X                     => t4
         55  c2  MACQUIRE 2 k l A BLOCK 0 PX 50  => parked
         56  c1  RELEASE k X                     => 0; c2 gets t5 t6
        107  tick
    ");
}

#[test]
fn keyspace_events_tell_what_happened() {
    run("
          0  events
          0  c1  MACQUIRE 2 k l A                => t1 t2 +acquire +acquire
          1  c2  MACQUIRE 2 k m B BLOCK 0        => parked +wait +wait
          2  c1  MRELEASE 3 k l z A              => 2; c2 gets t3 t4 +release +acquire +acquire +release
    ");
}

#[test]
fn block_does_not_wait_where_the_server_cannot() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  m2  MACQUIRE 2 k l A BLOCK 0        => null
          1  s   MACQUIRE 2 k l A BLOCK 0        => null
          1  m2  ANYACQUIRE 1 k A BLOCK 0        => null
          1  s   ANYACQUIRE 1 k A BLOCK 0        => null
          2  s   MACQUIRE 2 m l A BIND 0         => ERR
          2  s   ANYACQUIRE 2 m l A BIND 0       => ERR
          2  c1  INFO m                          => null
          3  s   MACQUIRE 2 m l A                => t2 t3
          4  m2  MACQUIRE 2 m l A BIND 0         => t2 t3
          5  c2  MACQUIRE 2 k n A BLOCK 0        => parked
          6  withdraw c2
          6  c1  INFO n                          => null
          7  c2  MACQUIRE 2 k n A BLOCK 0        => parked
          8  abandoned c2
          8  c1  INFO n                          => null
    ");
}

#[test]
fn the_keys_of_an_acquiring_call_are_limited() {
    run("
          0  set max-keys-per-call 2
          0  c1  MACQUIRE 3 k l m A              => LIMIT
          1  c1  ANYACQUIRE 3 k l m A BLOCK 0    => LIMIT
          2  c1  MACQUIRE 2 k l A                => t1 t2
          3  c1  ACQUIRE m A                     => t3
          4  c1  MRENEW 3 k l m A PX 50          => 3
          5  c1  MRELEASE 3 k l m A              => 3
    ");
}

/// So that one call does not take a second, and its ids do not fill the memory of requests.
#[test]
fn the_keys_of_a_call_for_held_locks_are_limited() {
    let names: Vec<String> = (0..4_097).map(|n| format!("k{n}")).collect();
    let (all, most) = (names.join(" "), names[1..].join(" "));
    run(&format!(
        "
          0  set max-keys-per-call 2
          0  c1  ACQUIRE k0 A                    => t1
          1  c1  MRELEASE 4097 {all} A           => LIMIT
          1  c1  MRELEASE 4097 {all} A REQID r   => LIMIT
          1  c1  MRENEW 4097 {all} A             => LIMIT
          2  c1  MRELEASE 4096 {most} A          => 0
          2  set max-keys-per-call 4097
          2  c1  MRELEASE 4097 {all} A           => 1
    "
    ));
}

#[test]
fn waiters_are_limited_place_by_place() {
    run("
          0  set max-waiters 5
          0  set max-waiters-per-key 2
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  MACQUIRE 3 k l m B BLOCK 0      => LIMIT
          2  c3  INFO m                          => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1 reserved for A
          3  c3  MACQUIRE 2 k l B BLOCK 0        => parked
          4  c4  ANYACQUIRE 1 k C BLOCK 0        => LIMIT
        # Who asks again needs no more room, and who is refused keeps what it has.
          5  c5  MACQUIRE 3 k l m A BLOCK 0      => parked; c2 gets REPLACED
          6  c5  UNBLOCK 3                       => 1; c3 gets null
          7  set max-waiters-per-key 1
          8  c3  ANYACQUIRE 2 n k C BLOCK 0      => n t2
          8  c3  ANYACQUIRE 2 l k C BLOCK 0      => LIMIT
          9  c6  MACQUIRE 2 m z A BLOCK 0        => t3 t4; c5 gets REPLACED
         10  c1  RELEASE k X                     => 0
    ");
}

#[test]
fn used_up_tokens_grant_nothing() {
    run("
          0  wall 7307199184
          0  c1  ACQUIRE k A                     => t1
          1  c1  FENCE k A 9007199254740989      => t2
          2  c1  MACQUIRE 4 k l m n A            => ERR
          2  c1  INFO l                          => null
        # Two are left, and k needs none.
          3  c2  ACQUIRE l X                     => t3
          4  c3  MACQUIRE 2 k l A BLOCK 0        => parked
          5  c2  RELEASE l X                     => 0; c3 gets t2 t4
          6  c2  MACQUIRE 1 z A                  => ERR
          6  c2  ANYACQUIRE 1 z A                => ERR
          7  c2  ANYACQUIRE 2 z k A              => k t2
          8  c2  MACQUIRE 2 k l A                => t2 t4
          9  c4  MACQUIRE 2 l z B BLOCK 0        => parked
         10  c5  ANYACQUIRE 1 l C BLOCK 0        => parked
         11  c2  RELEASE l A ALL                 => 0; c4 gets ERR
         11  tick                                => c5 gets ERR
         11  c2  INFO l                          => null
    ");
}

#[test]
fn a_call_for_several_keys_needs_as_many_tokens() {
    run("
          0  wall 7307199184
          0  c1  ACQUIRE k A                     => t1
          1  c1  FENCE k A 9007199254740990      => t2
          2  c2  MACQUIRE 2 l m B                => ERR
          3  c2  MACQUIRE 2 k m B BLOCK 0        => parked
          4  c3  ACQUIRE m C BLOCK 0             => parked
          5  c1  RELEASE k A ALL                 => 0; c2 gets ERR
          6  tick                                => c3 gets t3
    ");
}

#[test]
fn a_lock_delay_keeps_it_waiting() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k X PX 50               => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
         51  tick
         52  c3  MACQUIRE 2 k z B                => null
        150  tick
        152  tick                                => c2 gets t2 t3
    ");
}

#[test]
fn a_hung_place_is_passed_over() {
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c2  ACQUIRE k B QUEUE 50 PX 50      => null
          1  c2  ACQUIRE l B QUEUE 900 PX 900    => null
          2  c3  MACQUIRE 2 l m A BLOCK 0        => parked
          3  c1  RELEASE k X                     => 0; dlock:notify:B: granted 0 t3 1 B k
         54  tick                                => dlock:notify:B: expired 0 t3 1 B k
         55  c1  RELEASE l X                     => 0; c3 gets t4 t5
        # And it is first again when its turn comes back.
         56  c4  MACQUIRE 2 l n C BLOCK 0        => parked
         57  c2  RELEASE z B                     => NOTHELD
         58  c3  RELEASE l A                     => 0; dlock:notify:B: granted 0 t6 1 B l
         59  c2  RELEASE l B                     => 0; c4 gets t7 t8
    ");
}
