//! States of the server: lock-delay, quarantine, roles, restarts, a pause, a shut gate.

use super::run;

#[test]
fn lock_delay_follows_write_holds_only() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A READ PX 50             => t1
          0  c2  ACQUIRE k B READ BIND 0            => t2
          0  c3  ACQUIRE k C READ                   => t3
         51  tick
         51  gone c2
         51  c9  BREAK k                            => 1
         51  c1  ACQUIRE k A WRITE                  => t4
         52  c9  BREAK k                            => 1
         53  c1  INFO k                             => FREE [-] [] waiters 0
         53  c1  ACQUIRE k A READ                   => null
         53  c2  ACQUIRE k B WRITE BLOCK 0          => parked
        151  tick
        153  tick                                   => c2 gets t5
        154  c2  RELEASE k B WRITE                  => 0
        155  c1  ACQUIRE k A WRITE PX 10            => t6
        156  c3  ACQUIRE k C READ BLOCK 0           => parked
        166  tick
        167  c1  ACQUIRE k A READ                   => null
        265  tick
        267  tick                                   => c3 gets t7
        268  c3  RELEASE k C READ                   => 0
        269  c1  ACQUIRE k A WRITE BIND 0           => t8
        270  gone c1
        271  c2  ACQUIRE k B READ                   => null
        371  tick
        372  c2  INFO k                             => null
    ");
}

#[test]
fn a_lock_closed_by_lock_delay_keeps_its_reader_and_admits_no_other() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A WRITE PX 50            => t1
          0  c1  ACQUIRE k A READ                   => t2
         51  tick
         52  c1  INFO k                             => READ [-] [A t2 1 29948] waiters 0
         52  c2  ACQUIRE k B READ                   => null
         52  c1  ACQUIRE k A READ                   => t2
         52  c1  ACQUIRE k A WRITE                  => null
         53  c2  ACQUIRE k B READ BLOCK 0           => parked
         54  c1  ACQUIRE k A WRITE BLOCK 0          => parked
        100  r   INFO k                             => READ [-] [A t2 2 29952] waiters 0
        152  tick                                   => c1 gets t3
        153  c1  RELEASE k A WRITE                  => 0; c2 gets t4
    ");
}

#[test]
fn lock_delay_does_not_follow_a_release_a_deletion_or_an_undelivered_grant() {
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c1  RELEASE k A WRITE                  => 0
         14  c1  ACQUIRE k A WRITE                  => t2
         15  del k
         15  c1  ACQUIRE k A WRITE                  => t3
         20  held-back
         20  c2  ACQUIRE k B WRITE BLOCK 0 BIND 0   => parked
         21  c1  RELEASE k A WRITE                  => 0; c2 gets t4
         21  gone c2
         22  c1  ACQUIRE k A WRITE                  => t5
    ");
    // It follows a grant to a place: its owner may have counted on the message.
    run("
          0  set lock-delay 100
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B WRITE QUEUE 10 PX 10   => null
          2  c1  RELEASE k A WRITE                  => 0; dlock:notify:B: granted 0 t2 1 B k
         13  tick                                   => dlock:notify:B: expired 0 t2 1 B k
         14  c1  ACQUIRE k A WRITE                  => null
    ");
}

#[test]
fn in_quarantine_nothing_new_is_granted_and_what_is_held_works() {
    run("
          0  set quarantine 100
          0  c1  ACQUIRE k A READ                   => t1
          0  c1  ACQUIRE l A WRITE                  => t2
          0  c2  ACQUIRE l B READ BLOCK 0           => parked
          1  failover                               => c2 gets MOVING
          2  c1  ACQUIRE k A READ                   => t1
          2  c1  RENEW l A WRITE                    => t2
        # Only the quarantine is in the way of another reader, of an upgrade, of a downgrade.
          3  c2  ACQUIRE k B READ                   => QUARANTINE
          3  c1  ACQUIRE k A WRITE                  => QUARANTINE
          3  c1  ACQUIRE l A READ                   => QUARANTINE
          3  c2  ACQUIRE m B WRITE                  => QUARANTINE
          3  c2  ACQUIRE k B WRITE                  => null
          3  c2  ACQUIRE l B READ                   => null
          4  c2  ACQUIRE k B READ BLOCK 0           => parked
          5  c3  ACQUIRE k C READ QUEUE 50          => null
          6  c1  RELEASE l A WRITE                  => 0
          7  c1  ACQUIRE k A WRITE BLOCK 0          => parked
          7  c4  WAITERS k                          => A 1 0 - []; B 2 3 - []; C 3 2 - []
        101  tick                                   => c1 gets t3
        102  c1  RELEASE k A WRITE                  => 0; c2 gets t4; dlock:notify:C: granted 0 t5 1 C k
    ");
}

#[test]
fn after_a_failover_every_hold_has_its_lease_in_full() {
    for change in ["failover => c4 gets MOVING", "restart"] {
        run(&format!(
            "
          0  set grace 200
          0  c1  ACQUIRE k A READ PX 1000 REQID r   => t1
          0  c2  ACQUIRE k B READ PX 2000 BIND 50   => t2
          0  c1  ACQUIRE l A WRITE PX 1000          => t3
          0  c1  ACQUIRE l A READ PX 500            => t4
          1  c4  ACQUIRE k D WRITE BLOCK 0          => parked
          2  c3  ACQUIRE l C READ QUEUE 90 PX 90    => null
          3  c1  RELEASE l A WRITE                  => 0; dlock:notify:C: granted 0 t5 1 C l
        400  c1  RENEW k A READ                     => t1
        450  {change}
        450  tick                                   => dlock:notify:C: expired 0 t5 1 C l
        450  c1  INFO k                             => READ [-] [A t1 1 1000, B t2 1 200] waiters 0
        450  c1  INFO l                             => READ [-] [A t4 1 500] waiters 0
        451  c1  ACQUIRE k A READ REQID r PX 1000   => t1
        460  c2  RENEW k B READ BIND 50             => t2
        460  c1  INFO k                             => READ [-] [A t1 1 991, B t2 1 2000] waiters 0
        461  gone c2
        461  c1  INFO k                             => READ [-] [A t1 1 990, B t2 1 50] waiters 0
        "
        )
        .replace("450  tick                                   => dlock", "450  tick\n# dlock")
        .replace(
            "400  c1  RENEW",
            "100  tick => dlock:notify:C: expired 0 t5 1 C l\n 400  c1  RENEW",
        ));
    }
}

#[test]
fn an_unclaimed_read_grant_survives_a_failover() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ QUEUE 100 PX 900  => null
          2  c1  RELEASE k A WRITE                  => 0; dlock:notify:B: granted 0 t2 1 B k
         50  failover
         51  tick
         51  c1  INFO k                             => READ [-] [B t2 1 899] waiters 0
         52  c2  ACQUIRE k B READ PX 900            => t2
         53  c2  INFO k                             => READ [-] [B t2 1 899] waiters 0
    ");
}

#[test]
fn a_replica_ends_nothing_and_answers_readers() {
    run("
          0  c1  ACQUIRE k A READ PX 100            => t1
          0  c2  ACQUIRE k B READ PX 200            => t2
          1  c3  ACQUIRE k C WRITE BLOCK 0          => parked
         60  r   INFO k                             => READ [-] [A t1 1 40, B t2 1 140] waiters 0
         60  r   CHECK k $t1                        => 1
         60  r   POSITION k B                       => 0
         60  r   POSITION k C                       => null
        100  r   INFO k                             => READ [-] [B t2 1 100] waiters 0
        100  r   CHECK k $t1                        => STALE
        100  r   POSITION k A                       => null
        201  r   INFO k                             => null
        201  tick                                   => c3 gets t3
        201  r   INFO k                             => WRITE [C t3 1 30000] [] waiters 0
    ");
}

#[test]
fn a_pause_puts_leases_off_and_block_runs_on() {
    run("
          0  c1  ACQUIRE k A READ PX 100            => t1
          0  c2  ACQUIRE k B READ PX 150            => t2
          1  c3  ACQUIRE k C WRITE BLOCK 100        => parked
          1  c4  ACQUIRE k D WRITE BLOCK 0          => parked
         50  pause
        102  tick shut                              => c3 gets null
        250  tick shut
        250  c1  INFO k                             => READ [-] [A t1 1 50, B t2 1 100] waiters 1
        250  resume
        301  tick
        301  c1  INFO k                             => READ [-] [B t2 1 49] waiters 1
        351  tick                                   => c4 gets t3
    ");
}

#[test]
fn behind_a_shut_gate_nothing_is_handed_on() {
    run("
          0  c1  ACQUIRE k A READ PX 50             => t1
          1  c2  ACQUIRE k B WRITE BLOCK 20         => parked
          2  c3  ACQUIRE k C READ BLOCK 0           => parked
         22  tick shut                              => c2 gets null
         60  tick shut
         60  c1  INFO k                             => FREE [-] [] waiters 1
         61  tick                                   => c3 gets t2
    ");
}
