//! QUEUE: queue entries without a blocked call, their grants, and connections that let a grant expire.

use crate::script::{run, run_as, run_as_here, run_both, run_both_here};

#[test]
fn a_queue_place_gets_a_grant_that_lasts_its_lease() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          1  c2  WAITERS k                          => B 2 0 - []
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          2  c2  POSITION k B                       => 0
          2  c2  CHECK k $t2                        => 1
          3  c2  INFO k                             => [B] t2 holds 1 lease 1000 ttl 999 held 1 [] bound 0 waiters 0
         50  c2  ACQUIRE k B NOREENTRY PX 500       => t2
         50  c2  INFO k                             => [B] t2 holds 1 lease 1000 ttl 952 held 48 [] bound 0 waiters 0
         51  c2  ACQUIRE k B NOREENTRY              => REENTRY
         52  c2  RELEASE k B                        => 0
    ");
}

/// A client that saw the message counts on it as on a reply.
#[test]
fn only_the_request_of_a_place_takes_its_grant_over() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 REQID r      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B [r] k
        # Another one, or one without an id, enters again.
          3  c3  ACQUIRE k B NOREENTRY REQID s      => REENTRY
          4  c3  ACQUIRE k B NOREENTRY              => REENTRY
          5  c3  ACQUIRE k B REQID s                => t2
          6  c4  ACQUIRE k B                        => t2
          6  c4  INFO k                             => [B] t2 holds 3 lease 30000 ttl 30000 held 4 [] bound 0 waiters 0
          7  c2  ACQUIRE k B REQID r                => t2
          7  c4  INFO k                             => [B] t2 holds 3 lease 30000 ttl 30000 held 5 [] bound 0 waiters 0
          8  c2  RELEASE k B REQID r                => 2
          9  c3  RELEASE k B REQID s                => 1
         10  c4  RELEASE k B                        => 0
    ");
    // The place had no id: the call without one takes it over, once.
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          3  c2  ACQUIRE k B REQID s NOREENTRY      => REENTRY
          4  c2  ACQUIRE k B NOREENTRY              => t2
          5  c2  ACQUIRE k B NOREENTRY              => REENTRY
          6  c2  ACQUIRE k B REQID s                => t2
          7  c2  RELEASE k B                        => 1
          8  c2  RELEASE k B REQID s                => 0
    ",
    );
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          3  c2  ACQUIRE k B REQID s                => t2
          4  c2  ACQUIRE k B                        => t2
          4  c2  INFO k                             => [B] t2 holds 3 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
    ");
}

#[test]
fn a_renewal_reaches_a_grant_to_a_place_too() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         50  c3  RENEW k B                          => t2
         50  c2  INFO k                             => [B] t2 holds 1 lease 1000 ttl 1000 held 48 [] bound 0 waiters 0
         51  c2  ACQUIRE k B NOREENTRY              => REENTRY
    ");
}

#[test]
fn a_poll_with_the_same_id_counts_nothing() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 REQID r      => null
          2  c2  ACQUIRE k B QUEUE 100 REQID r      => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B [r] k
          4  c2  ACQUIRE k B QUEUE 100 REQID r      => t2
          5  c2  ACQUIRE k B QUEUE 100 REQID r      => t2
          5  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
        104  tick
        105  c2  RELEASE k B                        => 0
    ");
}

#[test]
fn a_plain_acquire_takes_the_grant_that_is_ready_and_leaves_the_place() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c3  ACQUIRE k B                        => null
          2  c3  WAITERS k                          => B 2 1 - []
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          4  c3  ACQUIRE k B                        => t2
    ",
    );
}

#[test]
fn neither_fence_nor_check_extends_a_grant_to_a_place_but_release_gives_back() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          3  c2  FENCE k B 1                        => t2
          4  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
          5  c2  RELEASE k B                        => 0
    ");
}

#[test]
fn a_grant_that_no_request_reached_expires_and_its_connection_is_passed_over() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          0  c1  ACQUIRE m A                        => t3
          1  c2  ACQUIRE k B QUEUE 100 PX 100       => null
          1  c2  ACQUIRE l B QUEUE 100 PX 100       => null
          1  c2  ACQUIRE m B QUEUE 100 PX 100       => null
          2  c3  ACQUIRE l C BLOCK 0                => parked
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t4 1 B k
        104  tick                                   => dlock:notify:B: expired 0 t4 1 B k
        # It costs one QUEUE: the other places are passed over, and keep their order.
        105  c1  RELEASE l A                        => 0; c3 gets t5
        105  c1  POSITION l B                       => 1
        106  c1  RELEASE m A                        => 0
        106  c1  INFO m                             => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
        107  c4  ACQUIRE m D PX 50                  => t6
        108  c2  INFO k                             => null
        # A command over the connection makes its places count again.
        109  c2  RENEW k B                          => NOTHELD
        110  c4  RELEASE m D                        => 0; dlock:notify:B: granted 0 t7 1 B m
        111  c2  ACQUIRE m B                        => t7
        112  c3  RELEASE l C                        => 0; dlock:notify:B: granted 0 t8 1 B l
        113  c2  RELEASE l B                        => 0
    ");
}

#[test]
fn a_grant_that_another_request_reached_does_not_mark_its_connection() {
    run_both_here(
        "
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 100 PX 100 REQID r => null
          1  c2  ACQUIRE l B QUEUE 500 PX 500       => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B [r] k
          3  c3  ACQUIRE k B PX 50 REQID s          => t3
        103  tick                                   => dlock:notify:B: expired 0 t3 1 B [r] k
        104  c1  RELEASE l A                        => 0; dlock:notify:B: granted 0 t4 1 B l
        105  c3  RELEASE k B REQID s                => LOST expired
        105  c3  RELEASE k B REQID r                => LOST expired
    ",
    );
}

#[test]
fn a_roused_connection_is_handed_what_is_free() {
    run_both_here(
        "
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 100 PX 100       => null
          1  c2  ACQUIRE l B QUEUE 100 PX 100       => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
        104  c1  ACQUIRE k C                        => t4; dlock:notify:B: expired 0 t3 1 B k
        105  c1  RELEASE l A                        => 0
        106  c2  RELEASE k B                        => NOTHELD; dlock:notify:B: granted 0 t5 1 B l
        107  c2  ACQUIRE l B                        => t5
    ",
    );
}

#[test]
fn a_hung_owner_that_asks_from_elsewhere_leaves_no_place_behind() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 100 PX 100       => null
          1  c2  ACQUIRE l B QUEUE 100 PX 100       => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
        104  tick                                   => dlock:notify:B: expired 0 t3 1 B k
        105  c1  RELEASE l A                        => 0
        # One place per owner and key: asking again with BLOCK or QUEUE takes the old one over.
        106  c3  ACQUIRE l B QUEUE 100 PX 100       => t4
        106  c3  WAITERS l                          => nobody
        107  c3  RELEASE l B                        => 0
    ",
    );
}

#[test]
fn a_lapse_that_is_found_only_by_a_call_is_no_silence_after_it() {
    run_both("
          0  c9  ACQUIRE k X                        => t1
          0  c9  ACQUIRE l Y                        => t2
          1  c1  ACQUIRE k A QUEUE 100 PX 100       => null
          1  c1  ACQUIRE l B QUEUE 500 PX 500       => null
          1  c1  ACQUIRE l C QUEUE 500 PX 500       => null
          2  c9  RELEASE k X                        => 0; dlock:notify:A: granted 0 t3 1 A k
          2  c9  RELEASE l Y                        => 0; dlock:notify:B: granted 0 t4 1 B l
        103  tick                                   => dlock:notify:A: expired 0 t3 1 A k
        # The grant to B has lapsed, too, and no alarm has said so. Whatever key the call is for:
        503  c1  MRELEASE 1 m D             => 0; dlock:notify:B: expired 0 t4 1 B l; dlock:notify:C: granted 0 t5 1 C l
        504  c1  ACQUIRE l C                        => t5
    ");
}

#[test]
fn a_late_alarm_grants_nothing_behind_an_unresponsive_waiter_that_timed_out() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 10 PX 10         => null
          1  c2  ACQUIRE l B QUEUE 1000 PX 1000     => null
          2  c3  ACQUIRE l C BLOCK 50               => parked
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
         14  tick                                   => dlock:notify:B: expired 0 t3 1 B k
         60  c1  RELEASE l A                        => 0; c3 gets null
         61  c1  POSITION l B                       => 1
    ",
    );
}

#[test]
fn a_blocked_call_with_queue_whose_time_is_over_is_a_place_though_no_alarm_has_rung() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          0  c2  ACQUIRE l B                        => t2
          1  c2  ACQUIRE k B BLOCK 50 QUEUE 1000    => parked
          1  c3  ACQUIRE k C BLOCK 40               => parked
         52  c1  WAITERS k                          => B 2 51 - []
         52  c1  POSITION k B                       => 1
         52  c1  POSITION k C                       => null
         52  c1  ACQUIRE l A BLOCK 0                => DEADLOCK
         53  tick                                   => c3 gets null; c2 gets null
         53  c1  WAITERS k                          => B 2 52 - []
    ",
    );
}

#[test]
fn a_grant_to_a_place_lasts_px_or_queue_but_of_queue_only_claim_ms() {
    run_both_here("
          0  set claim 50
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 86400000 PX 5    => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
         10  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         11  c1  INFO k                             => [B] t2 holds 1 lease 50 ttl 49 held 1 [] bound 0 waiters 1
         61  tick                                   => c3 gets t3; dlock:notify:B: expired 0 t2 1 B k
    ");
    // QUEUE is the limit if it is less.
    run_both_here("
          0  set claim 50
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 20 PX 5          => null
         10  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         10  c1  INFO k                             => [B] t2 holds 1 lease 20 ttl 20 held 0 [] bound 0 waiters 0
    ");
    // The lease that was asked for is a promise, and neither of them shortens it.
    run_both_here("
          0  set claim 50
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 20 PX 300        => null
         10  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         10  c1  INFO k                             => [B] t2 holds 1 lease 300 ttl 300 held 0 [] bound 0 waiters 0
        309  tick
        311  tick                                   => dlock:notify:B: expired 0 t2 1 B k
    ");
    // After a failover, too.
    run_both_here("
          0  set claim 50
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 86400000 PX 5    => null
         10  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         20  failover
         21  c1  INFO k                             => [B] t2 holds 1 lease 50 ttl 49 held 11 [] bound 0 waiters 0
    ");
    // Without a connection: the remaining time of the queue entry, if that is less.
    run_as_here("DFAIR", "
          0  set claim 50
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 1000             => null
          1  c3  ACQUIRE k C QUEUE 1000             => null
         10  gone c2
         10  gone c3
         20  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t2 1 B k
         20  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 50 held 0 [] bound 0 waiters 1
        990  c1  RELEASE k B          => NOTHELD; dlock:notify:B: expired 0 t2 1 B k; dlock:notify:C: offered 0 t3 1 C k
        990  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 20 held 0 [] bound 0 waiters 0
    ");
}

#[test]
fn an_unclaimed_grant_outlives_its_connection() {
    // Its owner may have been told, and may count on it.
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 100       => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
          4  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          5  gone c2
          5  c1  INFO k                             => [B] t2 holds 1 lease 100 ttl 99 held 1 [] bound 0 waiters 1
        105  tick                                   => c3 gets t3; dlock:notify:B: expired 0 t2 1 B k
    ");
    // With BIND it lasts BIND, and ends with its connection.
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 100 BIND 10      => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
          4  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          5  gone c2
         16  tick                                   => c3 gets t3; dlock:notify:B: disconnected 0 t2 1 B k
    ");
}

#[test]
fn a_queue_place_outlives_its_connection_by_queue() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c3  ACQUIRE k C QUEUE 500              => null
         10  gone c2
         10  c1  WAITERS k                          => B 0 9 100 []; C 3 8 - []
         60  c1  WAITERS k                          => B 0 59 50 []; C 3 58 - []
        109  c1  POSITION k B                       => 1
        # What is due counts as ended before the alarm has rung.
        110  c1  POSITION k B                       => null
        110  c1  POSITION k C                       => 1
        110  c1  WAITERS k                          => C 3 108 - []
        111  tick
        112  c1  RELEASE k A                        => 0; dlock:notify:C: granted 0 t2 1 C k
    ",
    );
}

#[test]
fn an_owner_that_asks_again_in_that_time_keeps_its_position() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c3  ACQUIRE k C QUEUE 500              => null
         10  gone c2
        100  c4  ACQUIRE k B QUEUE 100              => null
        200  tick
        201  c4  WAITERS k                          => B 4 200 - []; C 3 199 - []
    ",
    );
}

#[test]
fn a_grant_to_a_fair_place_without_a_connection_lasts_what_the_place_has_left() {
    run_as("DFAIR", "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
         10  gone c2
         60  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t2 1 B k
         60  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 50 held 0 [] bound 0 waiters 0
         70  c3  ACQUIRE k B                        => t2
         70  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 10 [] bound 0 waiters 0
    ");
}

#[test]
fn a_place_without_a_connection_is_granted_nothing_until_its_owner_asks_again() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 1000             => null
          2  c3  ACQUIRE k C BLOCK 0 QUEUE 1000     => parked
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  c5  ACQUIRE k E QUEUE 1000             => null
         10  gone c2
         10  gone c3
         11  c1  RELEASE k A                        => 0; c4 gets t2
         12  c1  WAITERS k                          => B 0 11 998 []; C 0 10 998 []; E 5 8 - []
         12  c1  POSITION k E                       => 3
        # It has its old position; who asks without QUEUE or BLOCK leaves it alone.
         13  c6  ACQUIRE k C QUEUE 1000             => null
         14  c6  ACQUIRE k B                        => null
         15  c4  RELEASE k D                        => 0; dlock:notify:C: granted 0 t3 1 C k
         16  c6  ACQUIRE k C                        => t3
         17  c6  RELEASE k C                        => 0; dlock:notify:E: granted 0 t4 1 E k
         18  c5  RELEASE k E                        => 0
        # A free lock stays free for any owner that asks.
         19  c1  INFO k                             => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
         20  c1  ACQUIRE k A                        => t5
         21  c1  RELEASE k A                        => 0
         22  c7  ACQUIRE k B BLOCK 0 QUEUE 1000     => t6
         22  c1  POSITION k B                       => 0
         23  c7  RELEASE k B                        => 0
         24  c1  INFO k                             => null
    ");
}

#[test]
fn a_first_place_that_loses_its_connection_lets_those_behind_it_in() {
    run("
          0  set quarantine 50
          0  restart
          1  c2  ACQUIRE k B QUEUE 1000             => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
         10  gone c2
         51  tick                                   => c3 gets t1
         52  c1  WAITERS k                          => B 0 51 958 []
         53  c3  RELEASE k C                        => 0
         54  c1  POSITION k B                       => 1
       1010  c1  POSITION k B                       => null
       1011  tick
       1011  c1  INFO k                             => null
    ");
}

#[test]
fn places_without_a_connection_do_not_hold_up_calls_for_several_keys() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 1000             => null
          2  c3  DLOCK.MACQUIRE 2 k l C BLOCK 0     => parked
          3  c4  DLOCK.ANYACQUIRE 1 k D BLOCK 0     => parked
          4  gone c2
          5  c1  RELEASE k A                        => 0; c3 gets t2 t3
          6  c3  DLOCK.MRELEASE 2 k l C             => 2; c4 gets k t4
          7  c4  RELEASE k D                        => 0
          8  c5  DLOCK.ANYACQUIRE 1 k E             => k t5
          9  c5  RELEASE k E                        => 0
         10  c5  DLOCK.MACQUIRE 2 k l E             => t6 t7
    ");
}

#[test]
fn a_queue_entry_without_a_connection_blocks_no_waiter() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c2  ACQUIRE l B                        => t2
          1  c3  ACQUIRE k B QUEUE 1000             => null
          2  c4  ACQUIRE k C BLOCK 0                => parked
          3  gone c3
        # A waits for B, and B for nobody until it asks again.
          4  c1  ACQUIRE l A BLOCK 0                => parked
          5  c2  ACQUIRE k B BLOCK 0                => DEADLOCK
          6  c2  ACQUIRE k B QUEUE 1000             => DEADLOCK
          7  c2  RELEASE l B                        => 0; c1 gets t3
          8  c2  ACQUIRE k B QUEUE 1000             => null
          8  c1  WAITERS k                          => B 2 7 - []; C 4 6 - []
    ");
    // The waiters behind it wait for it again then.
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c4  ACQUIRE l C                        => t2
          1  c3  ACQUIRE k B QUEUE 1000             => null
          2  c4  ACQUIRE k C BLOCK 0                => parked
          3  gone c3
          4  c2  ACQUIRE l B BLOCK 0                => parked
          5  c5  ACQUIRE k B QUEUE 1000             => DEADLOCK
    ");
}

#[test]
fn block_with_queue_keeps_the_place_when_it_times_out() {
    run_both(
        "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 50 QUEUE 100     => parked
          2  c3  ACQUIRE k C BLOCK 500              => parked
         52  tick                                   => c2 gets null
         53  c1  WAITERS k                          => B 2 52 - []; C 3 51 449 []
         54  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         55  c2  ACQUIRE k B                        => t2
         56  c2  RELEASE k B                        => 0; c3 gets t3
    ",
    );
}

#[test]
fn block_with_queue_is_woken_by_its_grant_without_a_message() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 50 QUEUE 100 PX 70 => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          2  c1  INFO k                             => [B] t2 holds 1 lease 70 ttl 70 held 0 [] bound 0 waiters 0
          3  c2  ACQUIRE k B NOREENTRY              => REENTRY
         73  tick                                   => dlock:notify:B: expired 0 t2 1 B k
    ");
}
