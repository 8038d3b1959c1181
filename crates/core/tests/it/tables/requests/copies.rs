//! Late copies of requests.

use crate::script::{run, run_as, run_both};

#[test]
fn a_late_release_does_not_touch_the_next_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  ACQUIRE k A REQID a2          => t1
          2  c1  RELEASE k A REQID a1          => 1
          3  c1  RELEASE k A REQID a2          => 0
        # Nobody holds it, another owner does, the same owner does.
          4  c2  RELEASE k A REQID a2          => 0
          4  c2  INFO k                        => null
          5  c2  ACQUIRE k B                   => t2
          6  c3  RELEASE k A REQID a2          => 0
          7  c2  RELEASE k B                   => 0
          8  c1  ACQUIRE k A REQID a3          => t3
          9  c3  RELEASE k A REQID a1          => 1
         10  c3  RELEASE k A REQID a2 TOKEN $t1 => 0
         11  c3  INFO k  => [A] t3 holds 1 lease 30000 ttl 29997 held 3 [] bound 0 waiters 0
         12  failover
         13  c3  RELEASE k A REQID a2          => 0
         13  c3  CHECK k $t3                   => 1
    ",
    );
}

#[test]
fn a_late_acquire_takes_and_waits_for_nothing() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID a1          => 0
          2  c2  ACQUIRE k A REQID a1          => SPENT
          2  c2  INFO k                        => null
          3  c2  ACQUIRE k B                   => t2
          4  c3  ACQUIRE k A REQID a1 BLOCK 0  => SPENT
          5  c3  ACQUIRE k A REQID a1 QUEUE 9  => SPENT
          5  c3  WAITERS k                    => nobody
        # Of another owner, or for another key, it is another request.
          6  c3  ACQUIRE l A REQID a1          => t3
          7  c2  ACQUIRE k B REQID a1          => t2
          8  failover
          9  c3  ACQUIRE k A REQID a1          => SPENT
    ",
    );
}

/// The first reply is the reply, even if more permits were out than there are.
#[test]
fn copies_of_a_release_of_permits_have_its_reply() {
    run_as(
        "DSEM",
        "
          0  c1  INIT s 5                        => 1
          1  c1  ACQUIRE s A COUNT 2 REQID r     => p1
          2  c1  ACQUIRE s A COUNT 3 REQID q     => p2
          3  c1  RESIZE s 1                      => -4
          4  c1  RELEASE s A REQID r             => -2
          5  c1  RELEASE s A REQID r             => -2
          6  c1  RELEASE s A REQID q             => 1
          7  c1  RELEASE s A REQID r             => -2
          8  failover
          9  c1  RELEASE s A REQID r             => -2
         10  c1  ACQUIRE s A COUNT 2 REQID r     => SPENT
    ",
    );
}

/// It passes the place while that has no connection. The place was left behind once, also by the RELEASE.
#[test]
fn a_copy_that_does_not_wait_ends_the_place_of_its_request() {
    run("
          0  c1  ACQUIRE k X                            => t1
          1  c2  ACQUIRE k A QUEUE 9000 REQID a         => null
          2  gone c2
          3  c1  RELEASE k X                            => 0
          4  c3  ACQUIRE k A REQID a                    => t2
          4  c3  WAITERS k                              => nobody
          5  c9  BREAK k                                => 1
          6  c3  RELEASE k A REQID a                    => LOST broken
          6  c3  WAITERS k                              => nobody
          7  c4  ACQUIRE k A QUEUE 9000 REQID a         => SPENT
    ");
    // So does one that enters the hold of another request, which leaves the place alone.
    run("
          0  c1  ACQUIRE k X                            => t1
          1  c2  ACQUIRE k A QUEUE 9000 REQID a         => null
          2  gone c2
          3  c1  RELEASE k X                            => 0
          4  c3  ACQUIRE k A REQID b                    => t2
          4  c3  POSITION k A                           => 1
          5  c4  ACQUIRE k A QUEUE 9000 REQID a         => t2
          5  c4  WAITERS k                              => nobody
    ");
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k X WRITE                      => t1
          1  c2  ACQUIRE k A READ QUEUE 9000 REQID a    => null
          2  gone c2
          3  c1  RELEASE k X WRITE                      => 0
          4  c3  ACQUIRE k A WRITE REQID a              => t2
          4  c3  POSITION k A                           => 1
          5  c3  RELEASE k A WRITE REQID a              => 0
          6  c3  ACQUIRE k A READ REQID a               => t3
          6  c3  WAITERS k                              => nobody
    ",
    );
    run_as(
        "DSEM",
        "
          0  c1  INIT s 1                               => 1
          0  c1  ACQUIRE s X                            => p1
          1  c2  ACQUIRE s A QUEUE 9000 REQID a         => null
          2  gone c2
          3  c1  RELEASE s $p1                          => 1
          4  c3  ACQUIRE s A REQID b                    => p3
          4  c3  POSITION s A                           => 1
          5  c3  RELEASE s A REQID b                    => 1
          6  c3  ACQUIRE s A REQID a                    => p4
          6  c3  WAITERS s                              => nobody
          7  c3  RELEASE s $p4                          => 1
          8  c3  RELEASE s A REQID a                    => LOST released
          8  c3  WAITERS s                              => nobody
          9  c4  ACQUIRE s A QUEUE 9000 REQID a         => SPENT
    ",
    );
}

#[test]
fn a_grant_that_was_taken_back_is_not_over() {
    run("
          0  held-back
          0  c1  ACQUIRE k X                   => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0  => parked
          2  c1  RELEASE k X                   => 0; c2 gets t2
          3  gone c2
          4  c3  ACQUIRE k A REQID a1          => t3
          5  c3  RELEASE k A                   => 0
          6  c3  ACQUIRE k A REQID a1          => SPENT
    ");
}

#[test]
fn a_count_that_was_undone_counts_when_it_comes_again() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                        => t1
          0  c9  ACQUIRE l X                        => t2
          1  c2  MACQUIRE 2 k l A REQID m BLOCK 0   => parked
          2  c9  RELEASE l X                        => 0; c2 gets t1 t3
          3  gone c2
          4  c3  INFO k  => [A] t1 holds 1 lease 30000 ttl 29998 held 4 [] bound 0 waiters 0
          5  c3  MACQUIRE 2 k l A REQID m           => t1 t4
          6  c3  INFO k  => [A] t1 holds 2 lease 30000 ttl 29999 held 6 [] bound 0 waiters 0
    ");
}

#[test]
fn a_late_copy_closes_no_cycle() {
    run("
          0  c1  ACQUIRE k A REQID a               => t1
          0  c2  ACQUIRE l B                       => t2
          1  c1  RELEASE k A                       => 0
          2  c3  ACQUIRE k C                       => t3
          3  c3  ACQUIRE l C BLOCK 0               => parked
          4  c2  ACQUIRE k B REQID b BLOCK 0       => DEADLOCK
          5  c2  RELEASE k B REQID b               => UNKNOWN
          6  c2  ACQUIRE k B REQID b BLOCK 0       => SPENT
    ");
}

#[test]
fn a_release_that_found_nothing_does_not_find_the_next_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 50 REQID a1    => t1
        100  c2  RELEASE k A REQID r1          => UNKNOWN
        101  c2  ACQUIRE k A REQID a2          => t2
        102  c1  RELEASE k A REQID r1          => UNKNOWN
        103  failover
        104  c1  RELEASE k A REQID r1          => UNKNOWN
        105  c2  RELEASE k A REQID a2          => 0
    ",
    );
}

/// A client that repeats a RELEASE has to know: was the hold lost before, or did an earlier copy release it?
#[test]
fn a_copy_of_a_release_says_whether_the_first_found_the_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 50 REQID a1    => t1
         60  tick
         61  c1  RELEASE k A TOKEN $t1 REQID a1 => LOST expired
         62  c1  RELEASE k A TOKEN $t1 REQID a1 => LOST expired
         63  c1  ACQUIRE k A REQID a2          => t2
         64  c9  BREAK k                       => 1
         65  c1  RELEASE k A TOKEN $t2 REQID a2 => LOST broken
         66  c2  ACQUIRE k B REQID b           => t3
         67  c1  RELEASE k A TOKEN $t2 REQID a2 => LOST broken
         68  c2  RELEASE k B TOKEN $t3 REQID b => 0
         69  c2  RELEASE k B TOKEN $t3 REQID b => 0
        # A server that has forgotten says so.
         70  restart
         71  tick
         72  c2  RELEASE k B REQID b           => UNKNOWN
         73  c2  RELEASE k B REQID b           => UNKNOWN
    ",
    );
}

/// The lease of a grant ends before the server learns that it could not be delivered: a retry is not a late copy.
#[test]
fn a_grant_that_ended_on_its_way_was_not_carried_out() {
    run("
          0  held-back
          0  c1  ACQUIRE k A                              => t1
          1  c2  ACQUIRE k B PX 50 REQID r1 BLOCK 0       => parked
          2  c1  RELEASE k A                              => 0; c2 gets t2
        100  gone c2
        101  c3  ACQUIRE k B PX 50 REQID r1 BLOCK 0       => t3
    ");
}

#[test]
fn a_late_release_leaves_newer_requests_alone() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID r           => t1
          1  c1  RELEASE k A REQID r           => 0
          2  c2  ACQUIRE k B                   => t2
          3  c1  ACQUIRE k A REQID r3 BLOCK 0  => parked
          4  c3  RELEASE k A REQID r           => 0
          5  c2  RELEASE k B                   => 0; c1 gets t3
    ",
    );
}

#[test]
fn permits_of_another_number_are_another_request() {
    run("
          0  c1  DSEM.INIT s 9                       => 1
          0  c1  DSEM.ACQUIRE s A COUNT 2 REQID x    => p1
          1  c1  DSEM.ACQUIRE s A COUNT 5 REQID x    => ERR
          2  c1  DSEM.ACQUIRE s A COUNT 2 REQID x    => p1
    ");
}

#[test]
fn a_refused_call_leaves_the_place_or_the_hold_of_its_owner_alone() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 1000 REQID a1              => t1
          1  c2  ACQUIRE k A PX 9000 NOREENTRY REQID a2    => REENTRY
          1  c1  INFO k  => [A] t1 holds 1 lease 1000 ttl 999 held 1 [] bound 0 waiters 0
        # It had nothing, so it may ask again.
          2  c2  ACQUIRE k A PX 500 REQID a2               => t1
    ",
    );
    run("
          0  c1  ACQUIRE k A                               => t1
          0  c2  ACQUIRE l B                               => t2
          1  c3  ACQUIRE k B QUEUE 100 REQID b1            => null
          2  c1  ACQUIRE l A BLOCK 0 REQID a1              => DEADLOCK
          3  c1  POSITION k B                              => 1
          4  c1  MACQUIRE 2 l k A BLOCK 0                  => DEADLOCK
          5  c1  INFO k  => [A] t1 holds 1 lease 30000 ttl 29995 held 5 [] bound 0 waiters 1
          6  set max-waiters-per-key 1
          7  c4  ACQUIRE k B BLOCK 0 REQID b2              => parked; dlock:notify:B: replaced 0 - 1 B [b1] k
          8  c5  ACQUIRE k C BLOCK 0                       => LIMIT
          9  c1  RELEASE k A                               => 0; c4 gets t3
    ");
    run_as(
        "DSEM",
        "
          0  c1  INIT s 3                                  => 1
          0  c1  ACQUIRE s X COUNT 3                       => p1
          1  c2  ACQUIRE s A QUEUE 100 REQID a1            => null
          2  c2  ACQUIRE s A COUNT 4 QUEUE 100 REQID a2    => LIMIT
          3  c2  POSITION s A                              => 1
          4  c2  RELEASE s A REQID a1                      => null
    ",
    );
}
