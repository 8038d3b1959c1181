//! BREAK, RELEASE of a wait, UNBLOCK.

use super::run;

#[test]
fn break_ends_all_holds_or_those_of_one_owner() {
    run("
          0  c1  ACQUIRE k A READ NOTIFY ch         => t1
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B READ                   => t2
          2  c3  ACQUIRE k C READ NOTIFY ch         => t3
          3  c4  ACQUIRE k D WRITE BLOCK 0          => parked
          4  c9  BREAK k Z                          => 0
          4  c9  BREAK k A                          => 1; ch: broken 0 t1 1 A k
          5  c1  RELEASE k A READ                   => NOTHELD
          6  c9  BREAK k                            => 2; c4 gets t4; ch: broken 0 t3 1 C k
          7  c4  ACQUIRE k D READ                   => t5
          8  c1  ACQUIRE k A READ BLOCK 0           => parked
          9  c2  ACQUIRE k B READ BLOCK 0           => parked
        # Of one who writes and reads both.
         10  c9  BREAK k D                          => 2; c1 gets t6; c2 gets t7
    ");
}

#[test]
fn release_leaves_the_queue_or_gives_back() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k C READ QUEUE 50          => null
          3  c4  ACQUIRE k D WRITE QUEUE 50         => null
          4  c9  RELEASE k A WRITE                  => NOTHELD
          5  c9  RELEASE k B WRITE                  => null; c2 gets null; dlock:notify:C: granted 0 t2 1 C k
          6  c9  RELEASE k C READ                   => 0
          7  c9  RELEASE k C READ                   => NOTHELD
          8  c1  RELEASE k A READ                   => 0; dlock:notify:D: granted 0 t3 1 D k
          9  c5  ACQUIRE k E READ BLOCK 0           => parked
         10  c9  RELEASE k D WRITE                  => 0; c5 gets t4
    ");
}

#[test]
fn unblock_and_withdraw_open_the_way() {
    run("
          0  c1  ACQUIRE k A READ                   => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k C READ BLOCK 0           => parked
          3  withdraw c2
          4  tick                                   => c3 gets t2
          5  c2  ACQUIRE k B WRITE BLOCK 0 QUEUE 50 => parked
          6  c4  ACQUIRE k D READ BLOCK 0           => parked
         # With QUEUE the place stays, and keeps the reader out.
          7  c9  UNBLOCK 2                          => 1; c2 gets null
          8  c9  WAITERS k                          => B 2 3 - []; D 4 2 - []
    ");
}
