//! Grants that do not arrive.

use super::run;

#[test]
fn of_readers_let_in_together_each_grant_is_taken_back_on_its_own() {
    run("
          0  held-back
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ BLOCK 0           => parked
          2  c3  ACQUIRE k C READ BLOCK 0           => parked
          3  c4  ACQUIRE k D WRITE BLOCK 0          => parked
          4  c1  RELEASE k A WRITE                  => 0; c2 gets t2; c3 gets t3
          5  gone c2
          6  c1  INFO k                             => READ [-] [C t3 1 29998] waiters 1
          7  undelivered c3                         => c4 gets t4
          8  undelivered c4
          9  c1  INFO k                             => null
    ");
}

#[test]
fn a_grant_known_elsewhere_stays_and_an_unknown_count_is_undone() {
    run("
          0  held-back
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ BLOCK 0 REQID r   => parked
          2  c3  ACQUIRE k C READ BLOCK 0           => parked
          3  c1  RELEASE k A WRITE                  => 0; c2 gets t2; c3 gets t3
          4  c5  ACQUIRE k B READ BLOCK 0 REQID r   => t2
          4  c5  ACQUIRE k C READ                   => t3
          5  gone c2
          5  gone c3
          6  c1  INFO k                             => READ [-] [B t2 1 29998, C t3 1 29998] waiters 0
    ");
}

#[test]
fn an_upgrade_that_does_not_arrive_leaves_the_read_hold() {
    run("
          0  held-back
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  ACQUIRE k B READ                   => t2
          1  c1  ACQUIRE k A WRITE BLOCK 0          => parked
          2  c3  ACQUIRE k C READ BLOCK 0           => parked
          3  c2  RELEASE k B READ                   => 0; c1 gets t3
          4  gone c1                                => c3 gets t4
          5  c2  INFO k                             => READ [-] [A t1 1 29995, C t4 1 29999] waiters 0
    ");
}

#[test]
fn with_queue_the_place_stays_without_a_connection() {
    run("
          0  held-back
          0  c1  ACQUIRE k A WRITE                      => t1
          1  c2  ACQUIRE k B READ BLOCK 0 QUEUE 100     => parked
          2  c3  ACQUIRE k C WRITE BLOCK 0 QUEUE 100    => parked
          3  c4  ACQUIRE k D READ BLOCK 0               => parked
          4  c1  RELEASE k A WRITE                      => 0; c2 gets t2
         10  gone c2                                    => c3 gets t3
         11  gone c3                                    => c4 gets t4
         12  c1  WAITERS k                              => B 0 11 98 []; C 0 10 99 []
         13  delivered c4
         14  c5  ACQUIRE k C WRITE QUEUE 100            => null
         15  c6  ACQUIRE k B READ QUEUE 100             => t5
    ");
}
