//! Holds: acquire, re-enter, release, and repeats of a request.

use crate::script::run_both;

#[test]
fn a_free_lock_is_granted_and_released() {
    run_both(
        "
          0  c1  ACQUIRE k A           => t1
          1  c2  ACQUIRE k B           => null
          2  c2  RELEASE k B           => NOTHELD
          3  c1  CHECK k $t1           => 1
          4  c1  RELEASE k A           => 0
          5  c1  CHECK k $t1           => STALE
          6  c1  RELEASE k A           => NOTHELD
          7  c2  ACQUIRE k B           => t2
          8  c3  ACQUIRE l B           => t3
    ",
    );
}

#[test]
fn the_owner_enters_again_over_any_connection() {
    run_both("
          0  c1  ACQUIRE k A PX 100    => t1
          1  c2  ACQUIRE k A           => t1
          2  s   ACQUIRE k A           => t1
          2  c1  INFO k                => [A] t1 holds 3 lease 30000 ttl 30000 held 2 [] bound 0 waiters 0
          3  c1  ACQUIRE k A NOREENTRY => REENTRY
          3  c1  INFO k                => [A] t1 holds 3 lease 30000 ttl 29999 held 3 [] bound 0 waiters 0
          4  c3  RELEASE k A           => 2
          5  c1  RELEASE k A           => 1
          6  c1  RELEASE k A           => 0
          7  c1  ACQUIRE k A NOREENTRY => t2
          8  c1  ACQUIRE k A           => t2
          9  c1  RELEASE k A ALL       => 0
         10  c1  RELEASE k A ALL       => NOTHELD
    ");
}

#[test]
fn another_token_is_not_the_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A             => t1
          1  c1  RELEASE k A             => 0
          2  c1  ACQUIRE k A             => t2
          3  c1  RELEASE k A TOKEN $t1   => NOTHELD
          4  c1  RENEW k A TOKEN $t1     => NOTHELD
          5  c1  RELEASE k A ALL TOKEN $t1 => NOTHELD
          6  c1  ACQUIRE k A             => t2
          7  c1  RELEASE k A TOKEN $t2   => 1
          8  c1  RELEASE k A ALL TOKEN $t2 => 0
    ",
    );
}

#[test]
fn what_a_script_cannot_do_changes_nothing() {
    run_both("
          0  s   ACQUIRE k A BIND 0      => ERR
          1  s   ACQUIRE k A QUEUE 10    => ERR
          2  s   INFO k                  => null
          3  s   ACQUIRE k A             => t1
          4  s   RENEW k A BIND 0        => ERR
          5  s   INFO k                  => [A] t1 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
          6  m1  RENEW k A BIND 0        => t1
          7  gone c1
          8  s   INFO k                  => [A] t1 holds 1 lease 30000 ttl 29998 held 5 [] bound 0 waiters 0
    ");
}

#[test]
fn a_repeat_counts_nothing() {
    run_both("
          0  c1  ACQUIRE k A PX 100 REQID r1   => t1
          1  c1  ACQUIRE k A PX 900 REQID r1   => t1
          1  c1  INFO k                        => [A] t1 holds 1 lease 900 ttl 900 held 1 [] bound 0 waiters 0
          2  c1  ACQUIRE k A PX 900 REQID r1 NOREENTRY => t1
          3  c1  ACQUIRE k A PX 900 REQID r2   => t1
          4  c1  ACQUIRE k A PX 900 REQID r2   => t1
          5  c1  RELEASE k A REQID r2          => 1
          6  c1  RELEASE k A REQID r2          => 1
          7  c1  ACQUIRE k A REQID r1          => t1
          7  c1  INFO k                        => [A] t1 holds 1 lease 30000 ttl 30000 held 7 [] bound 0 waiters 0
          8  c1  RELEASE k A REQID r1          => 0
          9  c1  RELEASE k A REQID r1          => 0
         10  c1  ACQUIRE k A REQID r1          => SPENT
         11  c1  ACQUIRE k A REQID r5          => t2
    ");
}
