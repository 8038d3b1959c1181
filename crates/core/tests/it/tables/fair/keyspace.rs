//! Effects of the server's key commands on queue entries.

use super::run;

#[test]
fn places_without_a_blocked_call_end_with_the_key_and_blocked_calls_keep_their_order() {
    run("
          0  c1  ACQUIRE k A NOTIFY ch              => t1
          1  c2  ACQUIRE k B QUEUE 500              => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  c5  ACQUIRE k E BLOCK 0                => parked
          4  c6  ACQUIRE k F BLOCK 0 QUEUE 50       => parked
          5  gone c4
          6  del k                                  => c3 gets t2; ch: deleted 0 t1 1 A k
          6  c1  WAITERS k                          => E 5 2 - []; F 6 2 - []
          7  del k                                  => c5 gets t3
          8  del k                                  => c6 gets t4
          9  del k                                  => dlock:notify:F: deleted 0 t4 1 F k
         10  c1  INFO k                             => null
    ");
}

#[test]
fn a_key_of_another_type_ends_all_places() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  gone c4
          5  over k                                 => c2 gets WRONGTYPE
          6  del k
          6  c1  INFO k                             => null
          7  c3  ACQUIRE k C                        => t2
    ");
}

#[test]
fn a_flush_ends_places_and_serves_blocked_calls() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 500              => null
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  flushall                               => c3 gets t2; dlock:notify: flushed 0
          5  flushdb 0                              => c4 gets t3; dlock:notify: flushed 0
          6  c2  ACQUIRE k B QUEUE 500              => null
          7  flushdb 0                              => dlock:notify: flushed 0
          8  c1  INFO k                             => null
    ");
}

#[test]
fn in_a_cluster_waiters_of_a_lost_key_are_sent_away() {
    run("
          0  set cluster 1
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
          2  c4  ACQUIRE k D BLOCK 0                => parked
          2  gone c4
          3  del k                                  => c2 gets MOVING
          3  c1  WAITERS k                          => nobody
          4  c1  ACQUIRE l A                        => t2
          5  c2  ACQUIRE l B BLOCK 0                => parked
          6  c3  ACQUIRE l C QUEUE 50               => null
          7  slot-lost l                            => c2 gets MOVING
          7  c1  WAITERS l                          => nobody
          8  c1  CHECK l $t2                        => 1
          9  tick
          9  r   WAITERS l                          => nobody
    ");
}

#[test]
fn rename_takes_the_hold_along_and_leaves_every_place() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A PX 1000 NOTIFY ch      => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 500              => null
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  gone c4
          5  rename k l                             => c2 gets t2
          5  c1  WAITERS k                          => C 3 3 - []; D 0 2 99 []
          5  c1  WAITERS l                          => nobody
          5  tick
          5  r   WAITERS k                          => C 0 3 - []; D 0 2 - []
          5  r   WAITERS l                          => nobody
          5  c1  INFO l                             => [A] t1 holds 1 lease 1000 ttl 995 held 5 [] bound 0 waiters 0
          6  c2  RELEASE k B                        => 0; dlock:notify:C: granted 0 t3 1 C k
         # Over another one: that hold is gone, and with it who has no blocked call.
         10  c5  ACQUIRE l E BLOCK 0                => parked
         11  c3  ACQUIRE k C                        => t3
         12  c6  ACQUIRE k F QUEUE 500              => null
         13  c6  ACQUIRE l F QUEUE 500              => null
         14  rename l k                             => c5 gets t4; dlock:notify:C: deleted 0 t3 1 C k
         15  c1  WAITERS k                          => nobody
         15  c1  WAITERS l                          => F 6 2 - []
         15  c1  POSITION k A                       => 0
    ");
}

#[test]
fn a_key_with_nothing_but_places_leaves_them_when_it_moves() {
    run("
          0  c1  ACQUIRE k A                        => t1
          0  c1  ACQUIRE m A                        => t2
          1  c2  ACQUIRE k B QUEUE 100 PX 100       => null
          1  c2  ACQUIRE m B QUEUE 100 PX 100       => null
          2  c1  RELEASE m A                        => 0; dlock:notify:B: granted 0 t3 1 B m
        103  tick                                   => dlock:notify:B: expired 0 t3 1 B m
        104  c1  RELEASE k A                        => 0
        105  rename k l
        105  c1  INFO l                             => null
        105  c1  WAITERS k                          => B 2 104 - []
        106  move k 1
        106  c1  WAITERS k                          => B 2 105 - []
        107  c2  RENEW l B                          => NOTHELD; dlock:notify:B: granted 0 t4 1 B k
    ");
}

#[test]
fn move_and_swapdb_leave_places_with_the_database_they_were_asked_for_in() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A NOTIFY ch              => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 500              => null
          3  move k 1                               => c2 gets t2
          3  c1  WAITERS k                          => C 3 1 - []
          4  db 1
          4  c1  WAITERS k                          => nobody
          4  c1  POSITION k A                       => 0
          5  c4  ACQUIRE k D BLOCK 0                => parked
          6  c5  ACQUIRE k E BLOCK 0                => parked
          7  gone c5
         # k of 0 (B, then C) and k of 1 (A, then D and E) change places, without those who wait.
          8  swapdb 0 1
          8  c1  POSITION k B                       => 0
          8  c1  WAITERS k                          => D 4 3 - []; E 0 2 99 []
          8  tick
          8  r   WAITERS k                          => D 0 3 - []; E 0 2 - []
          9  db 0
          9  c1  POSITION k A                       => 0
          9  c1  WAITERS k                          => C 3 7 - []
         10  c1  RELEASE k A                        => 0; dlock:notify:C: granted 0 t3 1 C k
         11  db 1
         11  c2  RELEASE k B                        => 0; c4 gets t4
         # Swapped with nothing: those who wait are served.
         12  swapdb 1 2
         12  c1  POSITION k E                       => 0
    ");
}

#[test]
fn a_restored_key_has_its_places_each_with_a_grace() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A PX 1000                => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 500              => null
         10  restore k l
         10  c1  WAITERS l                          => B 0 9 100 []; C 0 8 500 []
         10  r   WAITERS l                          => B 0 9 - []; C 0 8 - []
         10  c1  INFO l                             => [A] t1 holds 1 lease 1000 ttl 990 held 10 [] bound 0 waiters 2
         20  c2  ACQUIRE l B QUEUE 700              => null
         30  c1  RELEASE l A                        => 0; dlock:notify:B: granted 0 t2 1 B l
    ");
}

#[test]
fn a_restored_key_joins_the_waiters_that_are_there() {
    run("
          0  set quarantine 50
          0  set grace 100
          0  c1  ACQUIRE k A PX 1000                => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  failover                               => c2 gets MOVING; c3 gets MOVING
          4  tick
         # Nobody has l, and in quarantine nobody gets it.
          5  c3  ACQUIRE l C BLOCK 0                => parked
          6  c4  ACQUIRE l D BLOCK 0                => parked
          7  restore k l
          7  c1  WAITERS l                          => C 3 2 - []; D 4 1 - []; B 0 6 146 []
          7  r   WAITERS l                          => C 0 2 - []; D 0 1 - []; B 0 6 - []
          8  c1  RELEASE l A                        => 0
         54  tick                                   => c3 gets t2
         55  c3  RELEASE l C                        => 0; c4 gets t3
    ");
}

#[test]
fn a_missing_key_that_is_waited_for_is_of_the_family_that_was_asked_for() {
    run("
          0  set quarantine 100
          0  failover
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  DLOCK.ACQUIRE k C BLOCK 0          => WRONGTYPE
          3  c3  DRW.ACQUIRE k C READ               => WRONGTYPE
          4  c3  DLOCK.INFO k                       => WRONGTYPE
          5  c3  DLOCK.ACQUIRE l C BLOCK 0          => parked
          6  c4  ACQUIRE l D QUEUE 100              => WRONGTYPE
          7  c4  RELEASE l C                        => WRONGTYPE
          8  c4  WAITERS l                          => WRONGTYPE
        101  tick                                   => c2 gets t1; c3 gets t2
        102  c3  ACQUIRE l C                        => WRONGTYPE
    ");
}

#[test]
fn a_lock_of_another_family_that_moves_here_sends_the_waiters_away() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 500              => null
          3  c1  DLOCK.ACQUIRE l A                  => t2
          4  c4  DLOCK.ACQUIRE l D BLOCK 0          => parked
          5  rename l k                             => c2 gets WRONGTYPE; c4 gets t3
          6  c1  DLOCK.WAITERS k                    => nobody
          7  c1  DLOCK.RELEASE k A                  => 0
          8  c1  ACQUIRE k A                        => t4
          9  c3  ACQUIRE k C QUEUE 500              => null
         10  rename k l                             => dlock:notify:C: granted 0 t5 1 C k
         11  c1  POSITION l A                       => 0
         12  c4  DLOCK.CHECK l $t3                  => WRONGTYPE
    ");
}

#[test]
fn it_sends_them_away_also_while_nothing_is_granted() {
    for (here, moved) in [("DLOCK", "DFAIR"), ("DFAIR", "DLOCK")] {
        run(&format!(
            "
          0  set quarantine 100
          0  c1  {moved}.ACQUIRE k A                => t1
          1  failover
          2  tick
          3  c2  {here}.ACQUIRE l B BLOCK 0         => parked
          3  c3  {here}.ACQUIRE l C QUEUE 500       => null
          4  rename k l                             => c2 gets WRONGTYPE
          4  c1  {moved}.WAITERS l                  => nobody
          4  tick
          4  r   {moved}.WAITERS l                  => nobody
          5  c4  {moved}.ACQUIRE l D QUEUE 100      => null
          5  c1  {moved}.WAITERS l                  => D 4 0 - []
        "
        ));
    }
}

#[test]
fn a_restored_lock_rejects_waiters_for_another_family() {
    for (here, restored) in [("DLOCK", "DFAIR"), ("DFAIR", "DRW"), ("DRW", "DLOCK")] {
        let mode = |family| if family == "DRW" { "WRITE" } else { "" };
        let (wait, hold) = (mode(here), mode(restored));
        run(&format!(
            "
          0  set quarantine 100
          0  c1  {restored}.ACQUIRE k A {hold}      => t1
          1  c4  {restored}.ACQUIRE k D {hold} QUEUE 900 => null
          2  failover
          2  tick
          3  c2  {here}.ACQUIRE l B {wait} BLOCK 0  => parked
          3  c3  {here}.ACQUIRE l C {wait} QUEUE 90 => null
          4  restore k l                            => c2 gets WRONGTYPE
          5  c4  {restored}.ACQUIRE l E {hold} QUEUE 100 => null
          5  c1  {here}.WAITERS l                   => WRONGTYPE
          6  c3  {here}.RELEASE l C {wait}          => WRONGTYPE
        "
        ));
    }
}

#[test]
fn places_come_and_go_right_after_their_lock_has_moved() {
    run("
          0  c1  ACQUIRE f A              => t1
          1  c2  ACQUIRE f B QUEUE 60000  => null
          1  c2  ACQUIRE f C QUEUE 60000  => null
          1  c2  ACQUIRE f D QUEUE 60000  => null
          1  c2  ACQUIRE f E QUEUE 60000  => null
          1  c2  ACQUIRE f F QUEUE 60000  => null
          1  c3  ACQUIRE f G BLOCK 0      => parked
          2  rename f g                   => dlock:notify:B: granted 0 t2 1 B f
          2  c2  RELEASE f D              => null
          2  c4  ACQUIRE f H QUEUE 60000  => null
          2  c2  ACQUIRE f B              => t2
          2  tick
          3  c1  RELEASE g A              => 0
          3  c2  RELEASE f B              => 0; dlock:notify:C: granted 0 t3 1 C f
          3  c2  RELEASE f C              => 0; dlock:notify:E: granted 0 t4 1 E f
          3  tick
        # What is saved has them all, in their order.
          4  restart
          5  c5  ACQUIRE f F BLOCK 0      => parked
          5  c6  WAITERS f                => F 5 4 - []; G 0 4 5000 []; H 0 3 60000 []
    ");
}

#[test]
fn a_deleted_key_keeps_blocked_calls_and_drops_queue_entries() {
    run("
          0  c1  ACQUIRE f A              => t1
          1  c2  ACQUIRE f B QUEUE 60000  => null
          1  c3  ACQUIRE f C BLOCK 0      => parked
          1  c2  ACQUIRE f D QUEUE 60000  => null
          1  c2  ACQUIRE f E QUEUE 60000  => null
          1  c4  ACQUIRE f F BLOCK 0      => parked
          1  c5  ACQUIRE f G BLOCK 500    => parked
          1  c2  ACQUIRE f H QUEUE 60000  => null
          2  del f                        => c3 gets t2
          2  c6  WAITERS f                => F 4 1 - []; G 5 1 499 []
          2  c6  POSITION f B             => null
          2  c6  POSITION f G             => 2
        # Its place is gone: it asks for the first time.
          2  c2  ACQUIRE f D QUEUE 60000  => null
          2  c6  POSITION f D             => 3
          2  gone c5
          2  tick
          3  c6  WAITERS f                => F 4 2 - []; G 0 2 4999 []; D 2 1 - []
          3  gone c2
          4  c3  RELEASE f C              => 0; c4 gets t3
          5  del f
    ");
}

#[test]
fn a_flush_drops_queue_entries_and_serves_blocked_calls() {
    run("
          0  c1  ACQUIRE f A              => t1
          1  c2  ACQUIRE f B QUEUE 60000  => null
          1  c3  ACQUIRE f C BLOCK 0      => parked
          1  c2  ACQUIRE f D QUEUE 60000  => null
          1  c4  ACQUIRE f E BLOCK 0      => parked
          2  flushall                     => c3 gets t2; dlock:notify: flushed 0
          2  c5  ACQUIRE f F              => null
          2  tick
          3  c3  RELEASE f C              => 0; c4 gets t3
          4  c4  RELEASE f E              => 0
    ");
}

#[test]
fn a_value_that_comes_back_is_not_taken_for_the_one_that_its_places_were_told_to() {
    run("
          0  c8  ACQUIRE l A QUEUE 5000   => t1
          0  move l 1
          0  c5  ACQUIRE k E              => t2
          1  c3  ACQUIRE k C QUEUE 5000   => null
          1  swapdb 0 1                   => dlock:notify:C: granted 0 t3 1 C k
          2  demote
          2  promote
          3  rename l k                   => dlock:notify:C: deleted 0 t3 1 C k
          4  c3  ACQUIRE k E BLOCK 0      => parked
          5  swapdb 0 1
          5  abandoned c3
          5  swapdb 0 1
          6  tick
          6  restart
          6  c6  WAITERS k                => C 0 5 - []
    ");
}
