//! Grants that do not arrive: the queue entry has its grace.

use super::run;

#[test]
fn an_undelivered_grant_is_an_offer_for_the_grace() {
    run("
          0  set grace 100
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 PX 1000        => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c1  RELEASE k A                        => 0; c2 gets t2
         10  gone c2
         11  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 99 held 8 [] bound 0 waiters 1
         50  c4  ACQUIRE k B NOREENTRY              => t2
         51  c4  ACQUIRE k B NOREENTRY              => REENTRY
         52  c4  RELEASE k B                        => 0; c3 gets t3
        # Or it lapses. The connection may live: only this answer could not be sent.
         60  undelivered c3
         60  c1  INFO k                             => [C] t3 holds 1 lease 30000 ttl 100 held 8 [] bound 0 waiters 0
         61  c5  ACQUIRE k E BLOCK 0                => parked
        161  tick                                   => c5 gets t4
    ");
}

#[test]
fn with_queue_it_stays_for_queue_and_tells_of_it() {
    run("
          0  set grace 100
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 QUEUE 40       => parked
          3  c1  RELEASE k A                        => 0; c2 gets t2
         10  gone c2                                => dlock:notify:B: offered 0 t2 1 B k
         10  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 40 held 7 [] bound 0 waiters 0
         51  tick                                   => dlock:notify:B: expired 0 t2 1 B k
    ");
}

#[test]
fn a_grant_that_the_owner_was_answered_for_elsewhere_stays_whole() {
    run("
          0  set grace 100
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r        => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          3  c3  ACQUIRE k B REQID r                => t2
          4  gone c2
          5  c3  INFO k                             => [B] t2 holds 1 lease 30000 ttl 29998 held 3 [] bound 0 waiters 0
          6  c3  RELEASE k B                        => 0
         # A re-entry elsewhere: only the undelivered count is undone.
         10  c1  ACQUIRE k A                        => t3
         11  c2  ACQUIRE k B BLOCK 0                => parked
         12  c1  RELEASE k A                        => 0; c2 gets t4
         13  c3  ACQUIRE k B                        => t4
         14  gone c2
         15  c3  RELEASE k B                        => 0
    ");
}

#[test]
fn an_unclaimed_grant_is_recognised_where_it_went() {
    run("
          0  set grace 100
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c1  RELEASE k A                        => 0; c2 gets t2
          3  c3  FENCE k B 1700000050999999         => t3
          4  rename k l
         # Known from FENCE, so it is no news to its owner.
          5  gone c2
          5  c1  INFO l                             => [B] t3 holds 1 lease 30000 ttl 29997 held 3 [] bound 0 waiters 0
         10  c1  ACQUIRE k A                        => t4
         11  c2  ACQUIRE k B BLOCK 0                => parked
         12  c1  RELEASE k A                        => 0; c2 gets t5
         13  move k 1
         20  gone c2
         20  db 1
         21  c1  INFO k                             => [B] t5 holds 1 lease 30000 ttl 99 held 9 [] bound 0 waiters 0
    ");
}

#[test]
fn lock_delay_follows_an_offer_that_expired() {
    run("
          0  set grace 100
          0  set lock-delay 1000
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 BIND 0         => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c1  RELEASE k A                        => 0; c2 gets t2
         10  gone c2
         10  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 100 held 7 [] bound 0 waiters 1
        111  tick
        112  c9  BREAK k                            => 0
        113  c1  INFO k                             => [] - holds 0 lease 0 ttl 998 held 0 [] bound 0 waiters 1
       1111  tick
       1112  tick                                   => c3 gets t3
    ");
}
