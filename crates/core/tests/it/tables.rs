//! What DLOCK promises, row by row.

use crate::script::run;

#[test]
fn a_free_lock_is_granted_and_released() {
    run("
          0  c1  ACQUIRE k A           => t1
          1  c2  ACQUIRE k B           => null
          2  c2  RELEASE k B           => NOTHELD
          3  c1  CHECK k $t1           => 1
          4  c1  RELEASE k A           => 0
          5  c1  CHECK k $t1           => STALE
          6  c1  RELEASE k A           => NOTHELD
          7  c2  ACQUIRE k B           => t2
          8  c3  ACQUIRE l B           => t3
    ");
}

#[test]
fn the_owner_enters_again_over_any_connection() {
    run("
          0  c1  ACQUIRE k A PX 100    => t1
          1  c2  ACQUIRE k A           => t1
          2  s   ACQUIRE k A           => t1
          2  c1  INFO k                => [A] t1 holds 3 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
          3  c1  ACQUIRE k A NOREENTRY => REENTRY
          3  c1  INFO k                => [A] t1 holds 3 lease 30000 ttl 29999 held 3 [] bound 0 waiters 0
          4  c3  RELEASE k A           => 2
          5  c1  RELEASE k A           => 1
          6  c1  RELEASE k A           => 0
          7  c1  ACQUIRE k A NOREENTRY => t2
          8  c1  ACQUIRE k A           => t2
          9  c1  RELEASE k A ALL       => 0
         10  c1  RELEASE k A ALL       => NOTHELD
    ");
}

#[test]
fn a_lease_is_only_extended_by_a_reentry() {
    run("
          0  c1  ACQUIRE k A PX 1000   => t1
          1  c1  ACQUIRE k A PX 500    => t1
          1  c1  INFO k                => [A] t1 holds 2 lease 1000 ttl 999 held 1 [] bound 0 waiters 0
        600  c1  ACQUIRE k A PX 500    => t1
        600  c1  INFO k                => [A] t1 holds 3 lease 500 ttl 500 held 600 [] bound 0 waiters 0
       1099  c2  ACQUIRE k B           => null
       1101  c2  ACQUIRE k B           => t2
    ");
}

#[test]
fn a_lease_ends_in_its_time_and_never_before() {
    run("
          0  c1  ACQUIRE k A PX 100          => t1
          1  c2  ACQUIRE k B BLOCK 0         => parked
         99  tick
         99  c1  CHECK k $t1                 => 1
        100  c1  CHECK k $t1                 => STALE
        100  c1  POSITION k A                => null
        101  tick                            => c2 gets t2
        102  c1  RENEW k A                   => NOTHELD
        103  c2  RELEASE k B TOKEN $t2       => 0
        # Without the alarm the next call finds what is due.
        200  c1  ACQUIRE k A PX 100          => t3
        201  c2  ACQUIRE k B BLOCK 0         => parked
        300  c1  RENEW k A                   => NOTHELD; c2 gets t4
    ");
}

#[test]
fn without_a_lease_the_setting_counts() {
    run("
          0  c1  ACQUIRE k A           => t1
          0  c1  INFO k                => [A] t1 holds 1 lease 30000 ttl 30000 held 0 [] bound 0 waiters 0
          1  set default-lease 70
          1  c1  ACQUIRE l A           => t2
          1  c1  INFO l                => [A] t2 holds 1 lease 70 ttl 70 held 0 [] bound 0 waiters 0
    ");
}

#[test]
fn a_renewal_sets_the_end_anew_sooner_or_later() {
    run("
          0  c1  ACQUIRE k A PX 100    => t1
         50  c1  RENEW k A             => t1
         50  c1  INFO k                => [A] t1 holds 1 lease 100 ttl 100 held 50 [] bound 0 waiters 0
         60  c1  RENEW k A PX 1000     => t1
         60  c1  INFO k                => [A] t1 holds 1 lease 1000 ttl 1000 held 60 [] bound 0 waiters 0
         61  c1  RENEW k A PX 10       => t1
         70  c1  CHECK k $t1           => 1
         71  c1  CHECK k $t1           => STALE
         72  c1  RENEW k A             => NOTHELD
         73  c2  ACQUIRE k B           => t2
         74  c1  RENEW k A             => NOTHELD
         75  c2  RENEW k B TOKEN $t1   => NOTHELD
         75  c2  INFO k                => [B] t2 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
         76  c2  RENEW k B TOKEN $t2   => t2
    ");
}

#[test]
fn another_token_is_not_the_hold() {
    run("
          0  c1  ACQUIRE k A             => t1
          1  c1  RELEASE k A             => 0
          2  c1  ACQUIRE k A             => t2
          3  c1  RELEASE k A TOKEN $t1   => NOTHELD
          4  c1  RENEW k A TOKEN $t1     => NOTHELD
          5  c1  RELEASE k A ALL TOKEN $t1 => NOTHELD
          6  c1  ACQUIRE k A             => t2
          7  c1  RELEASE k A TOKEN $t2   => 1
          8  c1  RELEASE k A ALL TOKEN $t2 => 0
    ");
}

#[test]
fn waiters_are_served_in_order_of_arrival_and_one_is_woken() {
    run("
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 0     => parked
          2  c3  ACQUIRE k C BLOCK 9000  => parked
          3  c4  ACQUIRE k D BLOCK 0     => parked
          4  c1  ACQUIRE k E             => null
          5  c1  WAITERS k               => B 2 4 - []; C 3 3 8997 []; D 4 2 - []
          5  c1  WAITERS k COUNT 1       => B 2 4 - []
          5  c1  POSITION k A            => 0
          5  c1  POSITION k C            => 2
          5  c1  POSITION k E            => null
          6  c1  INFO k                  => [A] t1 holds 1 lease 30000 ttl 29994 held 6 [] bound 0 waiters 3
          7  c1  RELEASE k A             => 0; c2 gets t2
          8  c1  BREAK k                 => 1; c3 gets t3
          9  del k                       => c4 gets t4
         10  c1  WAITERS k               => nobody
    ");
}

#[test]
fn a_wait_ends_in_its_time_with_null() {
    run("
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 50    => parked
          2  c3  ACQUIRE k C BLOCK 100   => parked
         50  tick
         52  tick                        => c2 gets null
         53  c2  POSITION k B            => null
         54  c1  WAITERS k               => C 3 52 48 []
        101  tick
        103  tick                        => c3 gets null
        104  c1  RELEASE k A             => 0
    ");
}

#[test]
fn who_waits_too_long_is_not_granted_by_a_late_alarm() {
    run("
          0  c1  ACQUIRE k A             => t1
          1  c2  ACQUIRE k B BLOCK 50    => parked
          2  c3  ACQUIRE k C BLOCK 500   => parked
         60  c1  WAITERS k               => C 3 58 442 []
         60  c1  POSITION k B            => null
         60  c1  POSITION k C            => 1
         60  c1  INFO k                  => [A] t1 holds 1 lease 30000 ttl 29940 held 60 [] bound 0 waiters 1
         60  c1  RELEASE k A             => 0; c2 gets null; c3 gets t2
    ");
}

#[test]
fn block_does_not_wait_where_the_server_cannot() {
    run("
          0  c1  ACQUIRE k A             => t1
          1  m2  ACQUIRE k B BLOCK 50    => null
          2  s   ACQUIRE k B BLOCK 50    => null
          3  m2  ACQUIRE k B BLOCK 50 QUEUE 100 => null
          4  c2  POSITION k B            => 1
          5  c2  ACQUIRE k C BLOCK 50    => parked
          6  withdraw c2
          7  c2  POSITION k C            => null
          8  c2  ACQUIRE k C BLOCK 50 QUEUE 100 => parked
          9  withdraw c2
         10  c2  POSITION k C            => 2
         11  c1  RELEASE k A             => 0; dlock:notify:B: granted 0 t2 1 B k
    ");
}

#[test]
fn what_a_script_cannot_do_changes_nothing() {
    run("
          0  s   ACQUIRE k A BIND 0      => ERR
          1  s   ACQUIRE k A QUEUE 10    => ERR
          2  s   INFO k                  => null
          3  s   ACQUIRE k A             => t1
          4  s   RENEW k A BIND 0        => ERR
          5  s   INFO k                  => [A] t1 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
          6  m1  RENEW k A BIND 0        => t1
          7  gone c1
          8  s   INFO k                  => null
    ");
}

#[test]
fn a_repeat_counts_nothing() {
    run("
          0  c1  ACQUIRE k A PX 100 REQID r1   => t1
          1  c1  ACQUIRE k A PX 900 REQID r1   => t1
          1  c1  INFO k                        => [A] t1 holds 1 lease 100 ttl 99 held 1 [] bound 0 waiters 0
          2  c1  ACQUIRE k A PX 900 REQID r1 NOREENTRY => t1
          3  c1  ACQUIRE k A PX 900 REQID r2   => t1
          4  c1  ACQUIRE k A PX 900 REQID r2   => t1
          5  c1  RELEASE k A REQID r3          => 1
          6  c1  RELEASE k A REQID r3          => 1
          7  c1  ACQUIRE k A REQID r1          => t1
          7  c1  INFO k                        => [A] t1 holds 1 lease 900 ttl 896 held 7 [] bound 0 waiters 0
          8  c1  RELEASE k A REQID r4          => 0
          9  c1  RELEASE k A REQID r4          => NOTHELD
         # A new hold has seen nothing yet.
         10  c1  ACQUIRE k A REQID r1          => t2
    ");
}

#[test]
fn a_hold_remembers_its_last_eight_ids() {
    run("
          0  c1  ACQUIRE k A REQID r1   => t1
          1  c1  ACQUIRE k A REQID r2   => t1
          2  c1  ACQUIRE k A REQID r3   => t1
          3  c1  ACQUIRE k A REQID r4   => t1
          4  c1  ACQUIRE k A REQID r5   => t1
          5  c1  ACQUIRE k A REQID r6   => t1
          6  c1  ACQUIRE k A REQID r7   => t1
          7  c1  ACQUIRE k A REQID r8   => t1
          8  c1  ACQUIRE k A REQID r1   => t1
          9  c1  RELEASE k A REQID r9   => 7
         10  c1  ACQUIRE k A REQID r2   => t1
         11  c1  RELEASE k A REQID r2   => 7
         12  c1  ACQUIRE k A REQID r1   => t1
         13  c1  RELEASE k A            => 7
    ");
}

#[test]
fn a_retry_of_a_wait_gets_its_grant() {
    run("
          0  c1  ACQUIRE k A                     => t1
          1  c2  ACQUIRE k B BLOCK 100 REQID r   => parked
          2  c3  ACQUIRE k B BLOCK 100 REQID r   => parked; c2 gets REPLACED
          3  c1  RELEASE k A                     => 0; c3 gets t2
          4  c3  ACQUIRE k B BLOCK 100 REQID r   => t2
          5  c3  RELEASE k B                     => 0
    ");
}

#[test]
fn who_asks_again_keeps_the_place_and_the_earlier_call_is_replaced() {
    run("
          0  c1  ACQUIRE k A                               => t1
          1  c2  ACQUIRE k B BLOCK 100 PX 10 LABEL old     => parked
          2  c3  ACQUIRE k C BLOCK 100                     => parked
          3  c4  ACQUIRE k B BLOCK 500 PX 20 LABEL new     => parked; c2 gets REPLACED
          4  c1  WAITERS k                                 => B 4 3 499 [new]; C 3 2 98 []
          5  c1  ACQUIRE k B QUEUE 50 LABEL newer          => null; c4 gets REPLACED
          6  c1  WAITERS k                                 => B 1 5 - [newer]; C 3 4 96 []
          7  c5  ACQUIRE k B QUEUE 60 PX 33                => null
          8  gone c1
          8  c5  WAITERS k                                 => B 5 7 - []; C 3 6 94 []
          9  c5  RELEASE k A                               => 0; dlock:notify:B: granted 0 t2 1 B k
         10  c5  INFO k                                    => [B] t2 holds 1 lease 33 ttl 59 held 1 [] bound 0 waiters 1
         # Without BLOCK or QUEUE a call leaves the place alone.
         11  c6  ACQUIRE k D BLOCK 1000                    => parked
         12  c1  ACQUIRE k D                               => null
         13  c1  POSITION k D                              => 2
    ");
}

#[test]
fn a_queue_place_gets_a_grant_that_must_be_claimed() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          1  c2  WAITERS k                          => B 2 0 - []
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          2  c2  POSITION k B                       => 0
          2  c2  CHECK k $t2                        => 1
          3  c2  INFO k                             => [B] t2 holds 1 lease 1000 ttl 99 held 1 [] bound 0 waiters 0
         50  c2  ACQUIRE k B NOREENTRY PX 500       => t2
         50  c2  INFO k                             => [B] t2 holds 1 lease 500 ttl 500 held 48 [] bound 0 waiters 0
         51  c2  ACQUIRE k B NOREENTRY              => REENTRY
         52  c2  RELEASE k B                        => 0
    ");
}

#[test]
fn a_renewal_claims_too() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         50  c3  RENEW k B                          => t2
         50  c2  INFO k                             => [B] t2 holds 1 lease 1000 ttl 1000 held 48 [] bound 0 waiters 0
         51  c2  ACQUIRE k B NOREENTRY              => REENTRY
    ");
}

#[test]
fn a_poll_with_the_same_id_claims_and_counts_nothing() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 REQID r      => null
          2  c2  ACQUIRE k B QUEUE 100 REQID r      => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          4  c2  ACQUIRE k B QUEUE 100 REQID r      => t2
          5  c2  ACQUIRE k B QUEUE 100 REQID r      => t2
          5  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 29999 held 2 [] bound 0 waiters 0
        104  tick
        105  c2  RELEASE k B                        => 0
    ");
}

#[test]
fn a_plain_acquire_takes_the_grant_that_is_ready_and_leaves_the_place() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c3  ACQUIRE k B                        => null
          2  c3  WAITERS k                          => B 2 1 - []
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          4  c3  ACQUIRE k B                        => t2
    ");
}

#[test]
fn neither_fence_nor_check_claims_but_release_gives_back() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          3  c2  FENCE k B 1                        => t2
          4  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 98 held 2 [] bound 0 waiters 0
          5  c2  RELEASE k B                        => 0
    ");
}

#[test]
fn a_grant_lapses_unclaimed_and_a_hung_connection_is_passed_over() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          0  c1  ACQUIRE m A                        => t3
          1  c2  ACQUIRE k B QUEUE 100              => null
          1  c2  ACQUIRE l B QUEUE 100              => null
          1  c2  ACQUIRE m B QUEUE 100              => null
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
fn a_roused_connection_is_handed_what_is_free() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 100              => null
          1  c2  ACQUIRE l B QUEUE 100              => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
        104  c1  ACQUIRE k C                        => t4; dlock:notify:B: expired 0 t3 1 B k
        105  c1  RELEASE l A                        => 0
        106  c2  RELEASE k B                        => NOTHELD; dlock:notify:B: granted 0 t5 1 B l
        107  c2  ACQUIRE l B                        => t5
    ");
}

#[test]
fn a_hung_owner_that_asks_from_elsewhere_leaves_no_place_behind() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 100              => null
          1  c2  ACQUIRE l B QUEUE 100              => null
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
        104  tick                                   => dlock:notify:B: expired 0 t3 1 B k
        105  c1  RELEASE l A                        => 0
        # One place per owner and key: asking again with BLOCK or QUEUE takes the old one over.
        106  c3  ACQUIRE l B QUEUE 100              => t4
        106  c3  WAITERS l                          => nobody
        107  c3  RELEASE l B                        => 0
    ");
}

#[test]
fn a_late_alarm_grants_nobody_behind_a_hung_place_whose_wait_is_over() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE l A                        => t2
          1  c2  ACQUIRE k B QUEUE 10               => null
          1  c2  ACQUIRE l B QUEUE 1000             => null
          2  c3  ACQUIRE l C BLOCK 50               => parked
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t3 1 B k
         14  tick                                   => dlock:notify:B: expired 0 t3 1 B k
         60  c1  RELEASE l A                        => 0; c3 gets null
         61  c1  POSITION l B                       => 1
    ");
}

#[test]
fn a_queue_place_outlives_its_connection_by_queue() {
    run("
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
    ");
}

#[test]
fn who_asks_again_in_that_time_has_the_old_place() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100              => null
          2  c3  ACQUIRE k C QUEUE 500              => null
         10  gone c2
        100  c4  ACQUIRE k B QUEUE 100              => null
        200  tick
        201  c4  WAITERS k                          => B 4 200 - []; C 3 199 - []
    ");
}

#[test]
fn a_grant_to_an_absent_place_lasts_what_the_place_has_left() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
         10  gone c2
         60  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         60  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 50 held 0 [] bound 0 waiters 0
         70  c3  ACQUIRE k B                        => t2
         70  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 10 [] bound 0 waiters 0
    ");
}

#[test]
fn block_with_queue_keeps_the_place_when_it_times_out() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 50 QUEUE 100     => parked
          2  c3  ACQUIRE k C BLOCK 500              => parked
         52  tick                                   => c2 gets null
         53  c1  WAITERS k                          => B 2 52 - []; C 3 51 449 []
         54  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         55  c2  ACQUIRE k B                        => t2
         56  c2  RELEASE k B                        => 0; c3 gets t3
    ");
}

#[test]
fn block_with_queue_is_woken_by_its_grant_without_a_message() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 50 QUEUE 100 PX 70 => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          2  c1  INFO k                             => [B] t2 holds 1 lease 70 ttl 70 held 0 [] bound 0 waiters 0
          3  c2  ACQUIRE k B NOREENTRY              => REENTRY
         73  tick                                   => dlock:notify:B: expired 0 t2 1 B k
    ");
}

#[test]
fn a_waiter_whose_connection_is_gone_leaves_at_once() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  gone c2
          3  c1  WAITERS k                          => C 3 1 - []
          4  c1  RELEASE k A                        => 0; c3 gets t2
          5  c3  RELEASE k C                        => 0
    ");
}

#[test]
fn bind_cuts_the_lease_when_the_connection_goes() {
    run("
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
    run("
          0  c1  ACQUIRE k A PX 100                 => t1
          1  gone c1
          2  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 98 held 2 [] bound 0 waiters 0
    ");
}

#[test]
fn only_bind_moves_the_tie_of_a_hold_that_is_claimed() {
    run("
          0  c1  ACQUIRE k A BIND 50                => t1
          1  c2  ACQUIRE k A                        => t1
          2  c2  RENEW k A                          => t1
          2  c2  INFO k                             => [A] t1 holds 2 lease 30000 ttl 30000 held 2 [] bound 1 waiters 0
          3  c2  ACQUIRE k A BIND 60                => t1
          3  c2  INFO k                             => [A] t1 holds 3 lease 30000 ttl 30000 held 3 [] bound 2 waiters 0
          4  gone c1
          4  c2  INFO k                             => [A] t1 holds 3 lease 30000 ttl 29999 held 4 [] bound 2 waiters 0
          5  c3  RENEW k A BIND 70                  => t1
          6  gone c2
          6  c3  INFO k                             => [A] t1 holds 3 lease 30000 ttl 29999 held 6 [] bound 3 waiters 0
          7  gone c3
          7  c4  INFO k                             => [A] t1 holds 3 lease 30000 ttl 70 held 7 [] bound 0 waiters 0
        # A renewal after the cut sets the end anew.
          8  c4  RENEW k A PX 100                   => t1
         78  tick
         78  c4  INFO k                             => [A] t1 holds 3 lease 100 ttl 30 held 78 [] bound 0 waiters 0
    ");
}

#[test]
fn a_repeat_moves_the_tie() {
    run("
          0  c1  ACQUIRE k A PX 100 BIND 50 REQID r => t1
          1  c2  ACQUIRE k A PX 100 BIND 50 REQID r => t1
          1  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 99 held 1 [] bound 2 waiters 0
          2  gone c1
          2  c2  INFO k                             => [A] t1 holds 1 lease 100 ttl 98 held 2 [] bound 2 waiters 0
          3  c2  ACQUIRE k A                        => t1
          4  c2  RELEASE k A REQID s                => 1
          5  c3  RELEASE k A REQID s                => 1
          5  c3  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29998 held 5 [] bound 3 waiters 0
          6  c4  ACQUIRE k A REQID r                => t1
          6  c4  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29997 held 6 [] bound 4 waiters 0
          7  s   ACQUIRE k A REQID r                => t1
          7  c4  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29996 held 7 [] bound 4 waiters 0
    ");
}

#[test]
fn the_tie_of_a_place_follows_the_grant_and_the_claim() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 BIND 0         => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          2  c2  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 0 [] bound 2 waiters 0
          3  c3  ACQUIRE k C QUEUE 100 BIND 10      => null
          4  gone c2                                => dlock:notify:C: granted 0 t3 1 C k
          5  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 99 held 1 [] bound 3 waiters 0
          6  c4  ACQUIRE k C                        => t3
          6  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 30000 held 2 [] bound 4 waiters 0
          7  gone c3
          8  gone c4
          8  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 10 held 4 [] bound 0 waiters 0
    ");
}

#[test]
fn a_tied_place_that_was_absent_is_tied_to_who_claims_it() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 BIND 0       => null
          2  gone c2
          3  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
          4  c3  RENEW k B                          => t2
          4  c3  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 1 [] bound 3 waiters 0
          5  gone c3                                => dlock:notify:B: disconnected 0 t2 1 B k
    ");
}

#[test]
fn after_a_failover_a_tied_hold_has_a_grace_to_be_tied_anew() {
    run("
          0  set grace 200
          0  c1  ACQUIRE k A BIND 50                => t1
          0  c1  ACQUIRE l A BIND 500               => t2
          0  c1  ACQUIRE m A BIND 50                => t3
          0  c1  ACQUIRE n A PX 1000                => t4
          0  c1  ACQUIRE o A PX 100 BIND 50         => t5
        500  c1  RENEW o A                          => NOTHELD
        501  c1  ACQUIRE o A PX 100 BIND 50         => t6
        600  failover
        600  c1  INFO k                             => [A] t1 holds 1 lease 30000 ttl 200 held 600 [] bound 0 waiters 0
        601  tick
        601  c1  INFO k                             => [A] t1 holds 1 lease 30000 ttl 199 held 601 [] bound 0 waiters 0
        601  c1  INFO l                             => [A] t2 holds 1 lease 30000 ttl 499 held 601 [] bound 0 waiters 0
        601  c1  INFO n                             => [A] t4 holds 1 lease 1000 ttl 999 held 601 [] bound 0 waiters 0
        601  c1  INFO o                             => [A] t6 holds 1 lease 100 ttl 99 held 100 [] bound 0 waiters 0
        # Renewed with BIND in that time, or without.
        610  c2  RENEW k A BIND 50                  => t1
        610  c2  INFO k                             => [A] t1 holds 1 lease 30000 ttl 30000 held 610 [] bound 2 waiters 0
        611  c2  RENEW m A                          => t3
        611  c2  INFO m                             => [A] t3 holds 1 lease 30000 ttl 189 held 611 [] bound 0 waiters 0
        801  tick
        801  c2  INFO m                             => null
        801  c2  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29809 held 801 [] bound 2 waiters 0
    ");
}

#[test]
fn after_a_failover_holds_have_their_lease_in_full_and_waits_are_over() {
    run("
          0  c1  ACQUIRE k A PX 1000 REQID r LABEL x NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 100              => null
        900  failover                               => c2 gets UNBLOCKED
        900  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1000 held 900 [x] bound 0 waiters 0
       1899  tick
       1899  c1  CHECK k $t1                        => 1
       1899  c1  ACQUIRE k A PX 1000 REQID r        => t1
       1899  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1 held 1899 [x] bound 0 waiters 0
       1901  tick                                   => ch: expired 0 t1 1 A k
       1902  c1  ACQUIRE k A                        => t2
    ");
}

#[test]
fn an_unclaimed_grant_survives_a_failover() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         50  failover
         51  tick
         51  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 99 held 49 [] bound 0 waiters 0
         52  c2  ACQUIRE k B NOREENTRY              => t2
         53  c2  ACQUIRE k B NOREENTRY              => REENTRY
         54  failover
         55  c2  ACQUIRE k B NOREENTRY              => REENTRY
    ");
}

#[test]
fn a_restart_keeps_holds_and_ends_nothing_early() {
    run("
          0  set grace 200
          0  set lock-delay 300
          0  c1  ACQUIRE k A PX 1000                => t1
          0  c1  ACQUIRE k A PX 1000 REQID r        => t1
          0  c1  ACQUIRE l A BIND 50                => t2
          0  c1  ACQUIRE m A                        => t3
          1  c2  BREAK m                            => 1
        500  restart
        501  tick
        501  c1  INFO k                             => [A] t1 holds 2 lease 1000 ttl 999 held 501 [] bound 0 waiters 0
        501  c1  INFO l                             => [A] t2 holds 1 lease 30000 ttl 199 held 501 [] bound 0 waiters 0
        502  c1  ACQUIRE k A REQID r                => t1
        502  c1  ACQUIRE n A                        => t4
    ");
}

#[test]
fn tokens_grow_whatever_the_wall_clock_does() {
    run("
          0  c1  ACQUIRE k A           => t1
          1  wall -86400
          2  c1  RELEASE k A           => 0
          2  c1  ACQUIRE k A           => t2
          3  wall 86400
          4  c1  RELEASE k A           => 0
          4  c1  ACQUIRE k A           => t3
          5  wall -86400
          5  failover
          6  c1  ACQUIRE l A           => t4
          7  restart
          8  c1  ACQUIRE m A           => t5
    ");
}

#[test]
fn no_step_of_the_wall_clock_ends_a_lease_or_a_wait() {
    run("
          0  c1  ACQUIRE k A PX 1000     => t1
          1  c2  ACQUIRE k B BLOCK 500   => parked
          2  wall 86400
          2  tick
          3  wall -864000
          3  tick
        502  tick                        => c2 gets null
       1001  tick
       1002  c1  INFO k                  => null
    ");
}

#[test]
fn fence_raises_the_token_within_its_limits() {
    run("
          0  c1  ACQUIRE k A                           => t1
          1  c1  FENCE k A 1                           => t1
          2  c1  FENCE k B 1                           => NOTHELD
          3  c1  FENCE l A 1                           => NOTHELD
          # The wall clock stands at 1700000000 s + 50 s; 30 days are 2592000 s.
          4  c1  FENCE k A 1702592050004001            => ERR
          4  c1  CHECK k $t1                           => 1
          4  c1  FENCE k A 1702592050004000            => t2
          5  c1  CHECK k $t1                           => STALE
          5  c1  CHECK k $t2                           => 1
          6  c1  RELEASE k A TOKEN $t1                 => NOTHELD
          # What was given once can be given again, however far ahead it is.
          7  wall -86400
          7  c1  FENCE k A 1702592050004000            => t2
          8  c1  FENCE k A 1702592050004001            => ERR
          9  c1  ACQUIRE l A                           => t3
         10  c1  FENCE k A 1702592050004001            => t3
         11  c1  RELEASE k A TOKEN $t3                 => 0
    ");
}

#[test]
fn used_up_tokens_grant_nothing() {
    run("
          0  wall 7305599254
          0  c1  ACQUIRE k A                           => t1
          1  c1  FENCE k A 9007199254740991            => t2
          2  c2  ACQUIRE l B                           => ERR
          3  c2  ACQUIRE l B QUEUE 100                 => ERR
          4  c2  ACQUIRE k B BLOCK 0                   => parked
          5  c3  ACQUIRE k C QUEUE 100                 => null
          6  c1  ACQUIRE k A                           => t2
          7  c1  RELEASE k A ALL                       => 0; c2 gets ERR
          8  c1  INFO k                                => null
          9  c1  ACQUIRE k A                           => ERR
    ");
}

#[test]
fn break_ends_a_hold_whoever_has_it() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch        => t1
          1  c1  ACQUIRE k A                  => t1
          2  c9  BREAK k                      => 1; ch: broken 0 t1 1 A k
          3  c9  BREAK k                      => 0
          4  c1  ACQUIRE k A                  => t2
          5  c2  ACQUIRE k B QUEUE 50         => null
          6  c9  BREAK k                      => 1; dlock:notify:B: granted 0 t3 1 B k
          7  c9  BREAK k                      => 1; dlock:notify:B: broken 0 t3 1 B k
    ");
}

#[test]
fn lock_delay_closes_after_an_expiry_a_break_and_a_lost_connection() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A PX 50             => t1
         10  c2  ACQUIRE k B BLOCK 0           => parked
         51  tick
         52  c1  INFO k                        => [] - holds 0 lease 0 ttl 99 held 0 [] bound 0 waiters 1
         52  c1  ACQUIRE k A                   => null
        150  tick
        152  tick                              => c2 gets t2
        153  c9  BREAK k                       => 1
        154  c1  ACQUIRE k A                   => null
        252  c1  ACQUIRE k A                   => null
        253  c1  ACQUIRE k A BIND 0            => t3
        254  gone c1
        255  c1  ACQUIRE k A                   => null
        255  c1  POSITION k A                  => null
        255  c9  BREAK k                       => 0
        354  c1  ACQUIRE k A PX 1000 BIND 50   => t4
        355  gone c1
        406  tick
        407  c1  ACQUIRE k A                   => null
        507  tick
        508  c1  INFO k                        => null
    ");
}

#[test]
fn lock_delay_does_not_follow_a_release_a_deletion_or_an_unclaimed_grant() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A                   => t1
          1  c1  RELEASE k A                   => 0
          1  c1  ACQUIRE k A                   => t2
          2  del k
          2  c1  ACQUIRE k A                   => t3
          3  c2  ACQUIRE k B QUEUE 10          => null
          4  c1  RELEASE k A                   => 0; dlock:notify:B: granted 0 t4 1 B k
         15  tick                              => dlock:notify:B: expired 0 t4 1 B k
         15  c1  ACQUIRE k A                   => t5
         16  c2  ACQUIRE k B QUEUE 10          => null
         17  c1  RELEASE k A                   => 0; dlock:notify:B: granted 0 t6 1 B k
         18  c9  BREAK k                       => 1; dlock:notify:B: broken 0 t6 1 B k
         18  c1  ACQUIRE k A                   => t7
         19  c2  ACQUIRE k B BLOCK 0 BIND 0    => parked
         20  held-back
         20  c1  RELEASE k A                   => 0; c2 gets t8
         20  gone c2
         21  c1  ACQUIRE k A                   => t9
    ");
}

#[test]
fn in_quarantine_nothing_new_is_granted_and_what_is_held_works() {
    run("
          0  c1  ACQUIRE k A PX 1000           => t1
          0  c1  ACQUIRE l A PX 30             => t2
          0  set quarantine 100
          1  failover
          2  c1  ACQUIRE k A                   => t1
          3  c1  RENEW k A PX 200              => t1
          4  c1  FENCE k A 1                   => t1
          5  c2  ACQUIRE m B                   => QUARANTINE
          6  c2  ACQUIRE m B BLOCK 10          => parked
          7  c3  ACQUIRE m C QUEUE 50          => null
          8  c3  ACQUIRE l C BLOCK 0           => parked
         17  tick                              => c2 gets null
         18  c2  ACQUIRE k B                   => null
         19  c1  RELEASE k A                   => 1
         20  c1  RELEASE k A                   => 0
         21  c1  ACQUIRE k A                   => QUARANTINE
         40  tick
         41  c1  INFO l                        => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
        100  tick
        100  c2  ACQUIRE m B BLOCK 0           => parked
        101  tick                              => c3 gets t4; dlock:notify:C: granted 0 t3 1 C m
        102  c1  ACQUIRE k A                   => t5
        103  c3  RELEASE m C                   => 0; c2 gets t6
    ");
}

#[test]
fn a_quarantine_that_is_over_is_over_before_the_alarm() {
    run("
          0  set quarantine 100
          0  restart
          5  c2  ACQUIRE m B QUEUE 50          => null
        100  c1  ACQUIRE k A                   => t1
        100  c2  ACQUIRE m B                   => t2; dlock:notify:B: granted 0 t2 1 B m
    ");
}

#[test]
fn cancel_leaves_the_queue_or_gives_back() {
    run("
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  c4  ACQUIRE k D QUEUE 50          => null
          4  c9  CANCEL k B                    => 1; c2 gets null
          5  c9  CANCEL k B                    => 0
          6  c9  CANCEL k C                    => 1
          7  c9  CANCEL k A                    => 0
          8  c1  RELEASE k A                   => 0; dlock:notify:D: granted 0 t2 1 D k
          9  c5  ACQUIRE k E BLOCK 0           => parked
         10  c9  CANCEL k D                    => 1; c5 gets t3
         11  c9  CANCEL k E                    => 0
    ");
}

#[test]
fn unblock_ends_a_blocked_call_with_null_or_an_error() {
    run("
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C BLOCK 0           => parked
          3  c4  ACQUIRE k D BLOCK 0 QUEUE 90  => parked
          4  c5  ACQUIRE k E QUEUE 90          => null
          5  c9  UNBLOCK 2                     => 1; c2 gets null
          6  c9  UNBLOCK 3 ERROR               => 1; c3 gets UNBLOCKED
          7  c9  UNBLOCK 4                     => 1; c4 gets null
          8  c9  UNBLOCK 4                     => 0
          9  c9  UNBLOCK 5                     => 0
         10  c9  UNBLOCK 77                    => 0
         11  c9  WAITERS k                     => D 4 8 - []; E 5 7 - []
    ");
}

#[test]
fn a_call_that_the_server_unblocked_leaves_the_queue() {
    run("
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C BLOCK 0 QUEUE 50  => parked
          3  abandoned c2
          4  abandoned c3
          5  c1  WAITERS k                     => C 3 3 - []
    ");
}

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
    run("
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
    run("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r   => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  ACQUIRE k B BLOCK 0 REQID r   => t2
          4  c3  ACQUIRE k B                   => t2
          5  gone c2
          6  c3  RELEASE k B                   => 1
          7  c3  RELEASE k B                   => 0
    ");
}

#[test]
fn an_undelivered_grant_that_was_renewed_elsewhere_stays() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c1  RELEASE k A                   => 0; c2 gets t2
          3  c3  RENEW k B                     => t2
          4  gone c2
          5  c3  CHECK k $t2                   => 1
    ");
}

#[test]
fn an_undelivered_grant_with_queue_waits_to_be_claimed() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                            => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 100          => parked
          2  c1  RELEASE k A                            => 0; c2 gets t2
         10  gone c2                                    => dlock:notify:B: granted 0 t2 1 B k
         10  c3  INFO k                                 => [B] t2 holds 1 lease 30000 ttl 100 held 8 [] bound 0 waiters 0
         20  c3  ACQUIRE k B NOREENTRY                  => t2
         21  c3  RELEASE k B                            => 0
         # Nobody was there to be tied to, so nothing cuts it.
         30  c1  ACQUIRE k A                            => t3
         31  c2  ACQUIRE k B BLOCK 0 QUEUE 100 BIND 0   => parked
         32  c1  RELEASE k A                            => 0; c2 gets t4
         40  gone c2                                    => dlock:notify:B: granted 0 t4 1 B k
         40  c3  INFO k                                 => [B] t4 holds 1 lease 30000 ttl 100 held 8 [] bound 0 waiters 0
        141  tick                                       => dlock:notify:B: expired 0 t4 1 B k
    ");
}

#[test]
fn a_pause_puts_leases_and_graces_off_and_block_runs_on() {
    run("
          0  c1  ACQUIRE k A PX 100            => t1
          0  c1  ACQUIRE l A PX 1000           => t2
          1  c2  ACQUIRE k B BLOCK 200         => parked
          1  c4  ACQUIRE l B QUEUE 100         => null
          1  c3  ACQUIRE l C QUEUE 100         => null
         50  gone c3
         60  pause
        160  tick shut
        160  c1  INFO k                        => [A] t1 holds 1 lease 100 ttl 40 held 160 [] bound 0 waiters 1
        160  c1  POSITION l C                  => 2
        202  tick shut                         => c2 gets null
        260  resume
        261  tick
        261  c1  CHECK k $t1                   => 1
        261  c1  POSITION l C                  => 2
        299  c1  CHECK k $t1                   => 1
        300  c1  CHECK k $t1                   => STALE
        301  tick
        349  c1  POSITION l C                  => 2
        351  tick
        351  c1  POSITION l C                  => null
       1201  tick                              => dlock:notify:B: granted 0 t3 1 B l
    ");
}

#[test]
fn behind_a_shut_gate_nothing_is_handed_on() {
    run("
          0  c1  ACQUIRE k A PX 100            => t1
          1  c2  ACQUIRE k B BLOCK 500         => parked
          2  c3  ACQUIRE k C BLOCK 50          => parked
          3  c4  ACQUIRE k D QUEUE 50          => null
          4  gone c4
        150  tick shut                         => c3 gets null
        150  c1  INFO k                        => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1
        150  c1  WAITERS k                     => B 2 149 351 []
        150  c1  POSITION k D                  => null
        160  tick                              => c2 gets t2
        161  c1  INFO k                        => [B] t2 holds 1 lease 30000 ttl 29999 held 1 [] bound 0 waiters 0
    ");
}

#[test]
fn a_deleted_key_goes_to_the_first_waiter_with_a_message_to_the_holder() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch         => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  del k                             => c2 gets t2; ch: deleted 0 t1 1 A k
          4  c1  RELEASE k A                   => NOTHELD
          5  del k                             => dlock:notify:C: granted 0 t3 1 C k
          6  del k                             => dlock:notify:C: deleted 0 t3 1 C k
          7  del k
          8  c1  ACQUIRE k A BIND 0            => t4
          9  del k
         10  c2  ACQUIRE k B                   => t5
         11  gone c1
         11  c2  CHECK k $t5                   => 1
    ");
}

#[test]
fn a_key_of_another_type_is_refused_and_its_waiters_are_told() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch         => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  over k                            => c2 gets WRONGTYPE; ch: deleted 0 t1 1 A k
          4  c1  ACQUIRE k A                   => WRONGTYPE
          4  c1  ACQUIRE k A BLOCK 0           => WRONGTYPE
          4  c1  RELEASE k A                   => WRONGTYPE
          4  c1  RENEW k A                     => WRONGTYPE
          4  c1  FENCE k A 1                   => WRONGTYPE
          4  c1  BREAK k                       => WRONGTYPE
          4  c1  CANCEL k A                    => WRONGTYPE
          4  c1  INFO k                        => WRONGTYPE
          4  c1  WAITERS k                     => WRONGTYPE
          4  c1  POSITION k A                  => WRONGTYPE
          4  c1  CHECK k 1                     => WRONGTYPE
          5  del k
          6  c1  ACQUIRE k A                   => t2
    ");
}

#[test]
fn in_a_cluster_waiters_of_a_lost_key_are_sent_away() {
    run("
          0  set cluster 1
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  del k                             => c2 gets UNBLOCKED
          3  c1  WAITERS k                     => nobody
          4  c1  ACQUIRE l A                   => t2
          5  c2  ACQUIRE l B BLOCK 0           => parked
          6  c3  ACQUIRE l C QUEUE 50          => null
          7  slot-lost l                       => c2 gets UNBLOCKED
          7  c1  WAITERS l                     => nobody
          8  c1  CHECK l $t2                   => 1
          9  c1  RELEASE l A                   => 0
    ");
}

#[test]
fn rename_moves_the_hold_and_leaves_the_waiters() {
    run("
          0  c1  ACQUIRE k A PX 100 BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  rename k l                        => c2 gets t2
          3  c1  INFO l                        => [A] t1 holds 1 lease 100 ttl 97 held 3 [] bound 1 waiters 0
          4  c1  RENEW l A                     => t1
        105  tick                              => ch: expired 0 t1 1 A l
        106  c1  ACQUIRE l A BIND 10 NOTIFY ch => t3
        107  c3  ACQUIRE k C BLOCK 0           => parked
        108  rename l k
        109  c1  POSITION k A                  => 0
    ");
    // Over another lock: that hold is gone.
    run("
          0  c1  ACQUIRE k A BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE l B NOTIFY ch         => t2
          2  c3  ACQUIRE l C BLOCK 0           => parked
          3  rename k l                        => ch: deleted 0 t2 1 B l
          4  c1  POSITION l A                  => 0
          4  c1  POSITION l C                  => 1
          5  gone c1
         16  tick                              => c3 gets t3; ch: disconnected 0 t1 1 A l
    ");
}

#[test]
fn a_place_wins_over_a_hold_that_moved_to_its_key() {
    run("
          0  c1  ACQUIRE k A                   => t1
          1  c1  ACQUIRE l B                   => t2
          2  c2  ACQUIRE l A BLOCK 0           => parked
          3  rename k l
          3  c1  POSITION l A                  => 1
          4  c1  ACQUIRE l A                   => t1
          5  c1  RELEASE l A ALL               => 0; c2 gets t3
    ");
}

#[test]
fn move_takes_the_hold_to_the_other_database() {
    run("
          0  c1  ACQUIRE k A PX 100 NOTIFY ch  => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  move k 1                          => c2 gets t2
          3  db 1
          4  c1  POSITION k A                  => 0
        101  tick                              => ch: expired 1 t1 1 A k
    ");
}

#[test]
fn swapdb_takes_the_holds_along_and_leaves_the_waiters() {
    run("
          0  c1  ACQUIRE k A PX 100 BIND 10 NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  swapdb 0 1                        => c2 gets t2
          3  c2  CHECK k $t2                   => 1
          4  db 1
          5  c1  CHECK k $t1                   => 1
          6  c3  ACQUIRE k C BLOCK 0           => parked
          7  swapdb 1 0
          7  c3  POSITION k C                  => 1
          8  db 0
          9  gone c1
         20  tick                              => ch: disconnected 0 t1 1 A k
         21  db 1
         21  c2  RELEASE k B                   => 0; c3 gets t3
    ");
}

#[test]
fn a_flush_sends_one_message_and_serves_who_waits() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch BIND 9  => t1
          0  c1  ACQUIRE l A NOTIFY ch BIND 9  => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  db 1
          2  c1  ACQUIRE k A NOTIFY ch         => t3
          3  flushdb 0                         => c2 gets t4; dlock:notify: flushed 0
          4  c1  CHECK k $t3                   => 1
          5  flushdb 1                         => dlock:notify: flushed 1
          6  c1  INFO k                        => null
          7  db 0
          8  flushall                          => dlock:notify: flushed 0
          9  c1  ACQUIRE k A                   => t5
         10  c3  ACQUIRE k C QUEUE 50          => null
         11  flushall                          => dlock:notify: flushed 0; dlock:notify:C: granted 0 t6 1 C k
    ");
}

#[test]
fn a_time_to_live_on_the_key_goes_with_a_grant_to_a_new_owner() {
    run("
          0  c1  ACQUIRE k A                   => t1
          1  ttl k
          2  c1  ACQUIRE k A                   => t1
          3  c1  RENEW k A                     => t1
          4  ttls k
          5  c2  ACQUIRE k B BLOCK 0           => parked
          6  c1  RELEASE k A ALL               => 0; c2 gets t2
          7  ttls
    ");
}

#[test]
fn a_replica_ends_nothing_and_answers_readers() {
    run("
          0  c1  ACQUIRE k A PX 100 BIND 10    => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  failover                          => c2 gets UNBLOCKED
          3  tick
          4  failover
          5  tick
          6  c1  INFO k                        => [A] t1 holds 1 lease 100 ttl 98 held 6 [] bound 0 waiters 0
        # A replica shows what its primary told it, and what is due as ended.
         10  c1  RENEW k A BIND 10             => t1
         10  c2  ACQUIRE k B BLOCK 0           => parked
         60  r   INFO k                        => [A] t1 holds 1 lease 100 ttl 50 held 60 [] bound 0 waiters 0
         60  r   CHECK k $t1                   => 1
         60  r   POSITION k A                  => 0
         60  r   POSITION k B                  => null
         60  r   WAITERS k                     => nobody
        110  r   INFO k                        => null
        110  r   CHECK k $t1                   => STALE
        110  r   POSITION k A                  => null
        111  tick                              => c2 gets t2
        111  r   CHECK k $t2                   => 1
    ");
}

#[test]
fn waiters_are_limited_per_key_and_in_all() {
    run("
          0  set max-waiters-per-key 2
          0  set max-waiters 3
          0  c1  ACQUIRE k A                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  c4  ACQUIRE k D BLOCK 0           => LIMIT
          3  c4  ACQUIRE k D QUEUE 50          => LIMIT
          3  c4  ACQUIRE k D                   => null
          4  c4  ACQUIRE k B BLOCK 0           => parked; c2 gets REPLACED
          5  c5  ACQUIRE l E BLOCK 0           => parked
          6  c6  ACQUIRE l F BLOCK 0           => LIMIT
          7  c9  CANCEL l E                    => 1; c5 gets null
          8  c6  ACQUIRE l F BLOCK 0           => parked
    ");
}

#[test]
fn only_queue_and_notify_make_messages() {
    run("
          0  c1  ACQUIRE k A PX 10                       => t1
         11  tick
         12  c1  ACQUIRE k A PX 10 QUEUE 5               => t2
         23  tick                                        => dlock:notify:A: expired 0 t2 1 A k
         24  c1  ACQUIRE k A PX 10 QUEUE 5 NOTIFY ch     => t3
         35  tick                                        => ch: expired 0 t3 1 A k
         36  c1  ACQUIRE k A NOTIFY ch                   => t4
         37  c1  RELEASE k A                             => 0
         38  c1  ACQUIRE k A                             => t5
         39  c2  ACQUIRE k B BLOCK 0 NOTIFY ch PX 10     => parked
         40  c1  RELEASE k A                             => 0; c2 gets t6
         51  tick                                        => ch: expired 0 t6 1 B k
         # The key is the rest of the message, and the owner is counted in bytes.
         60  c1  ACQUIRE ключ ämä NOTIFY ch              => t7
         61  c9  BREAK ключ                              => 1; ch: broken 0 t7 5 ämä ключ
    ");
}

#[test]
fn labels_are_shown_and_change_nothing() {
    run("
          0  c1  ACQUIRE k A LABEL one         => t1
          0  c1  INFO k                        => [A] t1 holds 1 lease 30000 ttl 30000 held 0 [one] bound 0 waiters 0
          1  c1  ACQUIRE k A                   => t1
          1  c1  INFO k                        => [A] t1 holds 2 lease 30000 ttl 30000 held 1 [one] bound 0 waiters 0
          2  c1  ACQUIRE k A LABEL two         => t1
          2  c1  INFO k                        => [A] t1 holds 3 lease 30000 ttl 30000 held 2 [two] bound 0 waiters 0
          3  c2  ACQUIRE k B BLOCK 0 LABEL b   => parked
          3  c2  WAITERS k                     => B 2 0 - [b]
          4  c1  RELEASE k A ALL               => 0; c2 gets t2
          4  c1  INFO k                        => [B] t2 holds 1 lease 30000 ttl 30000 held 0 [b] bound 0 waiters 0
    ");
}

#[test]
fn keyspace_events_tell_what_happened() {
    run("
          0  events
          0  c1  ACQUIRE k A PX 50             => t1 +acquire
          1  c1  ACQUIRE k A PX 50             => t1 +acquire
          2  c1  RENEW k A                     => t1
          3  c1  RELEASE k A                   => 1 +release
          4  c2  ACQUIRE k B BLOCK 0           => parked +wait
          5  c3  ACQUIRE k C QUEUE 9           => null +wait
          6  c4  ACQUIRE k D                   => null
         53  tick                              => c2 gets t2 +expire +acquire
         54  c9  BREAK k                       => 1; dlock:notify:C: granted 0 t3 1 C k +break +acquire
         64  tick                              => dlock:notify:C: expired 0 t3 1 C k +expire
         65  c1  ACQUIRE k A                   => t4 +acquire
         66  c1  RELEASE k A                   => 0 +release
    ");
}

#[test]
fn readers_change_nothing_and_find_nothing() {
    run("
          0  c1  INFO k                        => null
          0  c1  WAITERS k                     => nobody
          0  c1  POSITION k A                  => null
          0  c1  CHECK k 1                     => STALE
          0  c1  BREAK k                       => 0
          0  c1  CANCEL k A                    => 0
    ");
}
