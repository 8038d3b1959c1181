//! Commands of the server on keys for which a call for several keys waits.

use crate::script::run;

#[test]
fn a_deleted_key_is_free_for_it() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  del k
          3  del l                               => c2 gets t3 t4
    ");
    // Also if the owner held the key.
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c3  ACQUIRE k B BLOCK 0             => parked
          2  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          3  del k                               => c3 gets t3
          4  c1  RELEASE l X                     => 0
          5  c3  RELEASE k B                     => 0; c2 gets t4 t5
    ");
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  del k
          2  c3  ACQUIRE k B                     => null
          3  c1  RELEASE l X                     => 0; c2 gets t3 t4
    ");
}

#[test]
fn a_flush_frees_all_keys() {
    run("
          0  c1  MACQUIRE 3 k l m X              => t1 t2 t3
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ANYACQUIRE 2 l m B BLOCK 0      => parked
          3  flushall                            => c2 gets t4 t5; c3 gets m t6; dlock:notify: flushed 0
    ");
}

#[test]
fn a_key_of_another_type_ends_the_call() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE l B BLOCK 0             => parked
          3  over k                              => c2 gets WRONGTYPE; c3 gets t2
          4  c2  MACQUIRE 2 m k A                => WRONGTYPE
          4  c2  MACQUIRE 2 m k A BLOCK 0        => WRONGTYPE
          4  c2  ANYACQUIRE 2 m k A              => WRONGTYPE
          4  c2  MRELEASE 2 m k A                => WRONGTYPE
          4  c2  MRENEW 2 m k A                  => WRONGTYPE
          4  c2  INFO m                          => null
          5  c3  MACQUIRE 2 m l B                => t3 t2
          6  c3  MRELEASE 3 m l k B              => WRONGTYPE
          6  c3  POSITION l B                    => 0
          7  del k
    ");
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  ANYACQUIRE 2 k l A BLOCK 0      => parked
          2  over k                              => c2 gets WRONGTYPE
          2  c1  WAITERS l                       => nobody
          3  del k
    ");
}

#[test]
fn in_a_cluster_a_lost_key_ends_the_call() {
    run("
          0  set cluster 1
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  del k                               => c2 gets MOVING
          2  c1  WAITERS l                       => nobody
          3  c2  MACQUIRE 2 m l A BLOCK 0        => parked
          4  c3  ACQUIRE m B BLOCK 0             => parked
          5  slot-lost l                         => c2 gets MOVING
          5  tick                                => c3 gets t3
    ");
}

#[test]
fn rename_moves_the_hold_and_leaves_the_waiters() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  rename k z
          3  c1  RELEASE l X                     => 0; c2 gets t3 t4
    ");
    // A hold of the owner that is removed does not count any more.
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c3  ACQUIRE k B BLOCK 0             => parked
          2  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          3  rename k z                          => c3 gets t3
          4  c1  RELEASE l X                     => 0
          4  c1  INFO l                          => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1 reserved for A
          5  c3  RELEASE k B                     => 0; c2 gets t4 t5
    ");
    // A hold that comes there blocks others.
    run("
          0  c1  ACQUIRE l X                     => t1
          0  c1  ACQUIRE z Y                     => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  rename z k
          3  c1  RELEASE l X                     => 0
          4  c1  RELEASE k Y                     => 0; c2 gets t3 t4
    ");
}

#[test]
fn swapdb_takes_holds_along_and_leaves_the_waiters() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  swapdb 0 1                          => c2 gets t3 t4
          3  c2  MRELEASE 2 k l A                => 2
          4  db 1
          4  c1  MRELEASE 2 k l X                => 2
    ");
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c1  ACQUIRE l X                     => t2
          1  c3  ACQUIRE k B BLOCK 0             => parked
          2  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          3  swapdb 0 1                          => c3 gets t3
          4  c3  RELEASE k B                     => 0; c2 gets t4 t5
    ");
}

#[test]
fn a_time_to_live_goes_with_a_grant_to_a_new_owner() {
    run("
          0  c1  MACQUIRE 2 k l X                => t1 t2
          1  ttl k
          1  ttl l
          2  c1  MACQUIRE 2 k l X                => t1 t2
          3  c1  MRENEW 2 k l X                  => 2
          3  ttls k l
          4  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          5  c1  RELEASE k X ALL                 => 0
          6  c1  RELEASE l X ALL                 => 0; c2 gets t3 t4
          6  ttls
    ");
}
