//! States of the server: roles, restarts, quarantine, lock-delay, a pause, a shut gate.

use crate::script::{run, run_both, run_both_here};

#[test]
fn after_a_failover_a_bound_hold_has_a_grace_to_be_bound_again() {
    run_both("
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
        610  c2  INFO k                            => [A] t1 holds 1 lease 30000 ttl 30000 held 610 [] bound 2 waiters 0
        611  c2  RENEW m A                          => t3
        611  c2  INFO m                            => [A] t3 holds 1 lease 30000 ttl 30000 held 611 [] bound 0 waiters 0
        801  tick
        801  c2  INFO m                            => [A] t3 holds 1 lease 30000 ttl 29810 held 801 [] bound 0 waiters 0
        801  c2  INFO k                            => [A] t1 holds 1 lease 30000 ttl 29809 held 801 [] bound 2 waiters 0
    ");
}

#[test]
fn after_a_failover_holds_have_their_lease_in_full_and_waits_are_over() {
    run("
          0  c1  ACQUIRE k A PX 1000 REQID r LABEL x NOTIFY ch => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 100 PX 100       => null
        900  failover                               => c2 gets MOVING
        900  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1000 held 900 [x] bound 0 waiters 0
       1899  tick
       1899  c1  CHECK k $t1                        => 1
       1899  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1 held 1899 [x] bound 0 waiters 0
       1901  tick                                   => ch: expired 0 t1 1 A [r] k
       1902  c1  ACQUIRE k A                        => t2
    ");
}

#[test]
fn an_unclaimed_grant_survives_a_failover() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         50  failover
         51  tick
         51  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 999 held 49 [] bound 0 waiters 0
         52  c2  ACQUIRE k B NOREENTRY              => t2
         53  c2  ACQUIRE k B NOREENTRY              => REENTRY
         54  failover
         55  c2  ACQUIRE k B NOREENTRY              => REENTRY
    ");
}

#[test]
fn a_replica_ends_nothing_and_answers_readers() {
    run("
          0  c1  ACQUIRE k A PX 100 BIND 10    => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  failover                          => c2 gets MOVING
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
fn a_restart_keeps_holds_and_ends_nothing_early() {
    run_both("
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
fn a_restart_from_a_snapshot_gives_what_may_have_been_renewed_since() {
    for restart in ["restart", "restart rdb"] {
        run_both(&format!("
          0  set grace 200
          0  set lock-delay 300
          0  c1  ACQUIRE k A PX 1000                => t1
          0  c1  ACQUIRE l A BIND 50                => t2
          0  c1  ACQUIRE m A                        => t3
        400  c2  BREAK m                            => 1
        600  {restart}
        600  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1000 held 600 [] bound 0 waiters 0
        600  c1  INFO m                             => [] - holds 0 lease 0 ttl 300 held 0 [] bound 0 waiters 0
        601  tick
        601  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 999 held 601 [] bound 0 waiters 0
        601  c1  INFO l                             => [A] t2 holds 1 lease 30000 ttl 199 held 601 [] bound 0 waiters 0
        601  c1  INFO m                             => [] - holds 0 lease 0 ttl 299 held 0 [] bound 0 waiters 0
        # A second restart counts from there again.
        900  {restart}
       1899  c1  CHECK k $t1                        => 1
       1901  c1  CHECK k $t1                        => STALE
    "));
    }
}

#[test]
fn after_a_restart_from_a_snapshot_an_unclaimed_grant_may_have_been_claimed() {
    run_both("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000      => null
          2  c1  RELEASE k A                        => 0; dlock:notify:B: granted 0 t2 1 B k
         50  restart rdb
         51  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 999 held 49 [] bound 0 waiters 0
         52  c2  ACQUIRE k B NOREENTRY              => t2
         53  c2  ACQUIRE k B NOREENTRY              => REENTRY
    ");
}

#[test]
fn what_is_restored_has_what_was_left_of_it() {
    run_both("
          0  c1  ACQUIRE k A PX 1000                => t1
        600  restore k l
        600  c1  INFO l                             => [A] t1 holds 1 lease 1000 ttl 400 held 600 [] bound 0 waiters 0
       1001  tick
       1001  c1  INFO l                             => null
    ");
}

#[test]
fn in_quarantine_nothing_new_is_granted_and_what_is_held_works() {
    run_both("
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

/// A promoted server without enough replicas: until one comes over, that one can confirm what the old primary grants.
#[test]
fn leases_and_the_quarantine_of_a_new_primary_begin_with_its_first_write() {
    run_both("
          0  c1  ACQUIRE k A PX 100            => t1
          0  set quarantine 50
          1  failover
          2  tick shut
        500  tick shut
        500  c9  INFO k                        => [A] t1 holds 1 lease 100 ttl 99 held 500 [] bound 0 waiters 0
        600  c2  ACQUIRE l B                   => QUARANTINE
        601  tick
        620  tick shut
        649  c2  ACQUIRE l B                   => QUARANTINE
        650  c2  ACQUIRE l B                   => t2
        698  c2  ACQUIRE k B                   => null
        699  c2  ACQUIRE k B                   => t3
    ");
}

/// The replica may have confirmed grants of another primary, from which it comes.
#[test]
fn a_quarantine_begins_when_a_replica_comes() {
    run_both(
        "
          0  set quarantine 50
          0  c1  ACQUIRE k A PX 1000           => t1
        100  attach
        101  c2  ACQUIRE l B                   => QUARANTINE
        102  c2  ACQUIRE l B BLOCK 0           => parked
        103  c1  RENEW k A PX 1000             => t1
        120  attach
        150  tick
        169  tick
        170  tick                              => c2 gets t2
    ",
    );
}

#[test]
fn the_first_write_of_a_new_primary_does_not_shorten_a_quarantine() {
    run_both(
        "
          0  set quarantine 50
          1  failover
          2  tick shut
          3  set quarantine 500
          4  attach
          5  c2  ACQUIRE l B                   => QUARANTINE
          6  c2  ACQUIRE l B BLOCK 0           => parked
        503  tick
        504  tick                              => c2 gets t1
    ",
    );
}

#[test]
fn a_gate_that_shuts_later_delays_no_lease_of_a_new_primary() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100            => t1
          1  failover
          2  tick
         10  tick shut
         90  tick shut
        100  c2  ACQUIRE k B                   => null
        101  c2  ACQUIRE k B                   => t2
    ",
    );
}

#[test]
fn a_quarantine_that_is_over_is_over_before_the_alarm() {
    run_both(
        "
          0  set quarantine 100
          0  restart
          5  c2  ACQUIRE m B QUEUE 50          => null
        100  c1  ACQUIRE k A                   => t1
        100  c2  ACQUIRE m B                   => t2; dlock:notify:B: granted 0 t2 1 B m
    ",
    );
}

#[test]
fn lock_delay_closes_after_an_expiry_a_break_and_a_lost_connection() {
    run_both("
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
fn lock_delay_does_not_follow_a_release_a_deletion_or_an_undelivered_grant() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A                   => t1
          1  c1  RELEASE k A                   => 0
          1  c1  ACQUIRE k A                   => t2
          2  del k
          2  c1  ACQUIRE k A                   => t3
         19  c2  ACQUIRE k B BLOCK 0 BIND 0    => parked
         20  held-back
         20  c1  RELEASE k A                   => 0; c2 gets t4
         20  gone c2
         21  c1  ACQUIRE k A                   => t5
    ");
}

/// Its owner may have counted on the message.
#[test]
fn lock_delay_follows_a_grant_to_a_place_that_expired_or_was_broken() {
    run_both_here(
        "
          0  set lock-delay 100
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B QUEUE 10 PX 10    => null
          2  c1  RELEASE k A                   => 0; dlock:notify:B: granted 0 t2 1 B k
         13  tick                              => dlock:notify:B: expired 0 t2 1 B k
         14  c1  ACQUIRE k A                   => null
        112  c1  ACQUIRE k A                   => null
        113  tick
        114  c1  ACQUIRE k A                   => t3
        115  c2  ACQUIRE k B QUEUE 10 PX 10    => null
        116  c1  RELEASE k A                   => 0; dlock:notify:B: granted 0 t4 1 B k
        117  c9  BREAK k                       => 1; dlock:notify:B: broken 0 t4 1 B k
        118  c1  ACQUIRE k A                   => null
    ",
    );
}

#[test]
fn a_pause_puts_leases_and_graces_off_and_block_runs_on() {
    run_both("
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
    run_both("
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
