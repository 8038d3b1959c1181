//! Leases: their start, their end, and what moves the end.

use crate::script::{run_both, run_both_here};

#[test]
fn a_lease_is_only_extended_by_a_reentry() {
    run_both_here("
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
    run_both(
        "
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
    ",
    );
}

#[test]
fn without_a_lease_the_setting_counts() {
    run_both("
          0  c1  ACQUIRE k A           => t1
          0  c1  INFO k                => [A] t1 holds 1 lease 30000 ttl 30000 held 0 [] bound 0 waiters 0
          1  set default-lease 70
          1  c1  ACQUIRE l A           => t2
          1  c1  INFO l                => [A] t2 holds 1 lease 70 ttl 70 held 0 [] bound 0 waiters 0
    ");
}

#[test]
fn a_renewal_extends_a_lease_and_never_shortens_it() {
    run_both_here("
          0  c1  ACQUIRE k A PX 100    => t1
         50  c1  RENEW k A             => t1
         50  c1  INFO k                => [A] t1 holds 1 lease 100 ttl 100 held 50 [] bound 0 waiters 0
         60  c1  RENEW k A PX 1000     => t1
         60  c1  INFO k                => [A] t1 holds 1 lease 1000 ttl 1000 held 60 [] bound 0 waiters 0
         61  c1  RENEW k A PX 10       => t1
         61  c1  INFO k                => [A] t1 holds 1 lease 1000 ttl 999 held 61 [] bound 0 waiters 0
       1059  c1  CHECK k $t1           => 1
       1060  c1  CHECK k $t1           => STALE
       1061  c1  RENEW k A             => NOTHELD
       1062  c2  ACQUIRE k B           => t2
       1063  c1  RENEW k A             => NOTHELD
       1064  c2  RENEW k B TOKEN $t1   => NOTHELD
       1064  c2  INFO k                => [B] t2 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
       1065  c2  RENEW k B TOKEN $t2   => t2
    ");
}

#[test]
fn no_step_of_the_wall_clock_ends_a_lease_or_a_wait() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 1000     => t1
          1  c2  ACQUIRE k B BLOCK 500   => parked
          2  wall 86400
          2  tick
          3  wall -864000
          3  tick
        502  tick                        => c2 gets null
       1001  tick
       1002  c1  INFO k                  => null
    ",
    );
}
