//! Commands of the server on keys of read-write locks.

use super::run;

#[test]
fn a_deleted_key_goes_to_the_waiters_with_a_message_to_each_holder() {
    run("
          0  c1  ACQUIRE k A READ NOTIFY ch         => t1
          0  c2  ACQUIRE k B READ QUEUE 9           => t2
          1  c3  ACQUIRE k C WRITE BLOCK 0          => parked
          2  c4  ACQUIRE k D READ BLOCK 0           => parked
          3  c5  ACQUIRE k E READ QUEUE 50          => null
          4  del k                             => c3 gets t3; ch: deleted 0 t1 1 A k; dlock:notify:B: deleted 0 t2 1 B k
          5  del k                                  => c4 gets t4; dlock:notify:E: granted 0 t5 1 E k
          6  c1  RELEASE k A READ                   => NOTHELD
    ");
}

#[test]
fn a_key_of_another_type_rejects_the_waiters() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k C READ QUEUE 50          => null
          3  over k                                 => c2 gets WRONGTYPE
          4  c1  ACQUIRE k A READ                   => WRONGTYPE
          5  del k
          6  c1  ACQUIRE k A READ                   => t2
          7  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          8  c1  DLOCK.ACQUIRE l A                  => t3
          9  rename l k                             => c2 gets WRONGTYPE
    ");
}

#[test]
fn in_a_cluster_waiters_of_a_lost_key_are_sent_away() {
    run("
          0  set cluster 1
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k C READ QUEUE 50          => null
          3  del k                                  => c2 gets MOVING
          3  c1  WAITERS k                          => nobody
          4  c1  ACQUIRE l A READ                   => t2
          5  c2  ACQUIRE l B WRITE BLOCK 0          => parked
          6  slot-lost l                            => c2 gets MOVING
          7  c1  CHECK l $t2                        => 1
    ");
}

#[test]
fn rename_takes_all_holds_along_and_leaves_the_waiters() {
    run("
          0  c1  ACQUIRE k A READ PX 100 BIND 10 NOTIFY ch  => t1
          0  c2  ACQUIRE k B READ                           => t2
          1  c3  ACQUIRE k C WRITE BLOCK 0                  => parked
          2  c4  ACQUIRE k D READ BLOCK 0                   => parked
          3  rename k l                                     => c3 gets t3
          3  c1  INFO l                                     => READ [-] [A t1 1 97, B t2 1 29997] waiters 0
          4  gone c1
         15  tick                                           => ch: disconnected 0 t1 1 A l
         16  c2  RENEW l B READ                             => t2
         17  c3  RELEASE k C WRITE                          => 0; c4 gets t4
         18  move l 1
         18  db 1
         18  c2  INFO l                                     => READ [-] [B t2 1 29998] waiters 0
         19  c5  ACQUIRE l E WRITE BLOCK 0                  => parked
         20  swapdb 1 2                                     => c5 gets t5
         21  db 2
         21  c2  RELEASE l B READ                           => 0
    ");
}

#[test]
fn a_place_waits_for_a_hold_of_its_owner_that_moved_to_its_key() {
    // To read.
    run("
          0  c1  ACQUIRE k A READ PX 100            => t1
          0  c2  ACQUIRE l X WRITE                  => t2
          1  c1  ACQUIRE l A READ BLOCK 0           => parked
          2  c3  ACQUIRE l B READ BLOCK 0           => parked
          3  rename k l
          4  c2  POSITION l A                       => 1
          5  c2  ACQUIRE l A READ                   => t1
          6  c2  RELEASE l A READ ALL               => 0; c1 gets null; c3 gets t3
    ");
    // To write.
    run("
          0  c1  ACQUIRE k A WRITE PX 100           => t1
          0  c2  ACQUIRE l X WRITE                  => t2
          1  c1  ACQUIRE l A WRITE BLOCK 0          => parked
          2  c3  ACQUIRE l B READ BLOCK 0           => parked
          3  rename k l
          4  c2  CHECK l $t1                        => 1
          5  c2  RELEASE l A WRITE                  => 0; c1 gets t3
          6  c1  RELEASE l A WRITE                  => 0; c3 gets t4
    ");
}

#[test]
fn a_writer_whose_place_to_read_waits_may_read_at_once() {
    run("
          0  c1  ACQUIRE k A WRITE                  => t1
          0  c2  ACQUIRE l X WRITE                  => t2
          1  c3  ACQUIRE l B WRITE BLOCK 0          => parked
          2  c1  ACQUIRE l A READ BLOCK 0           => parked
          3  rename k l
          4  c4  ACQUIRE l A READ BLOCK 0           => t3; c1 gets REPLACED
          5  c4  WAITERS l                          => B 3 4 - []
    ");
}

#[test]
fn a_flush_serves_the_waiters() {
    run("
          0  c1  ACQUIRE k A READ NOTIFY ch         => t1
          0  c1  ACQUIRE k B READ                   => t2
          1  c2  ACQUIRE k C WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k D READ QUEUE 50          => null
          3  flushall                               => c2 gets t3; dlock:notify: flushed 0
          4  flushdb 0                              => dlock:notify: flushed 0; dlock:notify:D: granted 0 t4 1 D k
    ");
}

#[test]
fn a_restored_key_has_its_holds() {
    run("
          0  c1  ACQUIRE k A READ PX 1000 REQID r   => t1
          0  c2  ACQUIRE k B READ PX 500            => t2
         10  restore k l
         10  c1  INFO l                             => READ [-] [A t1 1 990, B t2 1 490] waiters 0
         11  c1  ACQUIRE l A READ REQID r PX 900    => t1
        501  tick
        501  c1  INFO l                             => READ [-] [A t1 1 499] waiters 0
    ");
}
