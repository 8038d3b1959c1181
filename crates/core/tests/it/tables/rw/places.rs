//! QUEUE entries and their grants, each in its own mode.

use super::run;

#[test]
fn a_grant_is_taken_over_in_its_own_mode() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ QUEUE 100         => null
          2  c3  ACQUIRE k C READ QUEUE 100 PX 500  => null
          3  c1  RELEASE k A WRITE          => 0; dlock:notify:B: granted 0 t2 1 B k; dlock:notify:C: granted 0 t3 1 C k
          4  c2  ACQUIRE k B WRITE                  => null
          4  c2  INFO k                             => READ [-] [B t2 1 29999, C t3 1 499] waiters 0
          5  c2  ACQUIRE k B READ                   => t2
          5  c3  RENEW k C READ                     => t3
          5  c2  INFO k                             => READ [-] [B t2 1 30000, C t3 1 500] waiters 0
          6  c2  ACQUIRE k B READ                   => t2
          6  c2  INFO k                             => READ [-] [B t2 2 30000, C t3 1 499] waiters 0
        104  tick
        104  c2  POSITION k B                       => 0
    ");
}

#[test]
fn each_grant_lapses_on_its_own() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ QUEUE 50 PX 50    => null
          2  c3  ACQUIRE k C READ QUEUE 100 PX 100  => null
          2  c4  ACQUIRE k D READ QUEUE 100 PX 100  => null
          3  c5  ACQUIRE k E WRITE BLOCK 0          => parked
          4  c1  RELEASE k A WRITE => 0; dlock:notify:B: granted 0 t2 1 B k; dlock:notify:C: granted 0 t3 1 C k; dlock:notify:D: granted 0 t4 1 D k
         55  tick                                   => dlock:notify:B: expired 0 t2 1 B k
         60  c3  RELEASE k C READ                   => 0
        105  tick                                   => c5 gets t5; dlock:notify:D: expired 0 t4 1 D k
    ");
}

#[test]
fn a_hung_connection_is_passed_over_by_readers_and_writers() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          0  c1  ACQUIRE l A WRITE                  => t2
          1  c2  ACQUIRE l B READ QUEUE 50 PX 50    => null
          2  c2  ACQUIRE k B WRITE QUEUE 50 PX 50   => null
          3  c3  ACQUIRE k C READ BLOCK 0           => parked
          4  c1  RELEASE l A WRITE                  => 0; dlock:notify:B: granted 0 t3 1 B l
         # The writer in front counts no more: the reader behind it goes in.
         55  tick                                   => c3 gets t4; dlock:notify:B: expired 0 t3 1 B l
         56  c4  ACQUIRE k D READ                   => t5
         57  c4  POSITION k B                       => 1
         58  c2  RENEW l B READ                     => NOTHELD
         59  c5  ACQUIRE k E READ                   => null
         60  c1  RELEASE k A READ                   => 0
         61  c3  RELEASE k C READ                   => 0
         62  c4  RELEASE k D READ                   => 0; dlock:notify:B: granted 0 t6 1 B k
         63  c2  ACQUIRE k B WRITE                  => t6
    ");
}

#[test]
fn a_place_outlives_its_connection_by_queue_only() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ BLOCK 0           => parked
          2  c3  ACQUIRE k C READ QUEUE 100         => null
          3  c4  ACQUIRE k D WRITE BLOCK 0 QUEUE 50 => parked
         10  gone c2
         10  gone c3
         10  gone c4
         10  c1  WAITERS k                          => C 0 8 100 []; D 0 7 50 []
         61  tick
         61  c1  WAITERS k                          => C 0 59 49 []
         70  c1  RELEASE k A WRITE                  => 0
         70  c1  INFO k                             => FREE [-] [] waiters 1
         71  c5  ACQUIRE k C READ QUEUE 100         => t2
         72  gone c5
         72  c1  INFO k                             => READ [-] [C t2 1 29999] waiters 0
         73  c1  RELEASE k C READ                   => 0
    ");
}

#[test]
fn places_without_a_connection_are_passed_over_in_both_modes() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B WRITE QUEUE 1000       => null
          2  c3  ACQUIRE k C READ QUEUE 1000        => null
          3  c4  ACQUIRE k D READ BLOCK 0           => parked
          4  c5  ACQUIRE k E WRITE BLOCK 0          => parked
        # No reader waits for a writer that is gone.
         10  gone c2                                => c4 gets t3; dlock:notify:C: granted 0 t2 1 C k
         11  c6  ACQUIRE k F READ                   => null
         12  c3  RELEASE k C READ                   => 0
         13  c4  RELEASE k D READ                   => 0
         14  c1  RELEASE k A READ                   => 0; c5 gets t4
         15  c7  ACQUIRE k G READ QUEUE 1000        => null
         16  gone c7
         17  c5  RELEASE k E WRITE                  => 0
         18  c1  WAITERS k                          => B 0 17 992 []; G 0 3 998 []
         19  c6  ACQUIRE k F READ                   => t5
         20  c8  ACQUIRE k B WRITE BLOCK 0          => parked
         21  c9  ACQUIRE k H READ                   => null
         22  c6  RELEASE k F READ                   => 0; c8 gets t6
    ");
}

#[test]
fn an_upgrade_without_a_connection_refuses_no_other() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  ACQUIRE k B READ                   => t2
          1  c3  ACQUIRE k A WRITE QUEUE 1000       => null
          2  c2  ACQUIRE k B WRITE QUEUE 1000       => DEADLOCK
          3  gone c3
          4  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          5  c4  ACQUIRE k A WRITE BLOCK 0          => DEADLOCK
          6  c1  RELEASE k A READ                   => 0; c2 gets t3
          7  c2  RELEASE k B READ                   => 0
          8  c2  RELEASE k B WRITE                  => 0
          9  c1  WAITERS k                          => A 0 8 994 []
    ");
}

#[test]
fn block_with_queue_keeps_the_place_when_it_times_out() {
    run("
          0  c1  ACQUIRE k A READ                       => t1
          1  c2  ACQUIRE k B WRITE BLOCK 50 QUEUE 100   => parked
          2  c3  ACQUIRE k C READ BLOCK 0               => parked
         52  tick                                       => c2 gets null
         53  c1  WAITERS k                              => B 2 52 - []; C 3 51 - []
         54  c1  RELEASE k A READ                       => 0; dlock:notify:B: granted 0 t2 1 B k
         55  c2  ACQUIRE k B WRITE                      => t2
         56  c2  RELEASE k B WRITE                      => 0; c3 gets t3
    ");
}

#[test]
fn an_unclaimed_read_hold_keeps_writers_out_and_lets_readers_in() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ QUEUE 50 PX 50    => null
          2  c1  RELEASE k A WRITE                  => 0; dlock:notify:B: granted 0 t2 1 B k
          3  c3  ACQUIRE k C WRITE                  => null
          4  c4  ACQUIRE k D READ                   => t3
          5  c4  ACQUIRE k D WRITE BLOCK 0          => parked
        # It counts as reading, also for who asks to write.
          6  c2  ACQUIRE k B WRITE QUEUE 50 PX 50   => DEADLOCK
         53  tick                                   => c4 gets t4; dlock:notify:B: expired 0 t2 1 B k
    ");
}
