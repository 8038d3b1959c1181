//! Late copies: requests whose hold has ended, requests that were cancelled, and requests that left no hold behind.

use crate::script::{run, run_as, run_both};

#[test]
fn a_late_release_does_not_touch_the_next_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  ACQUIRE k A REQID a2          => t1
          2  c1  RELEASE k A REQID r1          => 1
          3  c1  RELEASE k A REQID r2          => 0
        # Nobody holds it, another owner does, the same owner does.
          4  c2  RELEASE k A REQID r2          => 0
          4  c2  INFO k                        => null
          5  c2  ACQUIRE k B                   => t2
          6  c3  RELEASE k A REQID r2 ALL      => 0
          7  c2  RELEASE k B                   => 0
          8  c1  ACQUIRE k A REQID a3          => t3
          9  c3  RELEASE k A REQID r1          => 1
         10  c3  RELEASE k A REQID r2 TOKEN $t1 => 0
         11  c3  INFO k  => [A] t3 holds 1 lease 30000 ttl 29997 held 3 [] bound 0 waiters 0
         12  failover
         13  c3  RELEASE k A REQID r2          => 0
         13  c3  CHECK k $t3                   => 1
    ",
    );
}

#[test]
fn a_late_acquire_takes_and_waits_for_nothing() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID r1          => 0
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

#[test]
fn an_id_has_one_use() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID a1          => ERR
          2  c1  ACQUIRE k A REQID a2          => t1
          3  c1  RELEASE k A REQID r1          => 1
          4  c1  ACQUIRE k A REQID r1          => ERR
          5  c1  CANCEL k A REQID r1           => ERR
          5  c1  INFO k  => [A] t1 holds 1 lease 30000 ttl 29997 held 5 [] bound 0 waiters 0
          6  c1  RELEASE k A REQID r2          => 0
          7  c1  RELEASE k A REQID a1          => ERR
          8  c1  ACQUIRE k A REQID r1          => ERR
          9  c1  ACQUIRE k A REQID r2 BLOCK 0  => ERR
         10  c1  CANCEL k A REQID r2           => ERR
         10  c1  INFO k                        => null
    ",
    );
}

#[test]
fn whatever_ended_a_hold_its_requests_are_over() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1 PX 50    => t1
         51  tick
         52  c1  ACQUIRE k A REQID a1          => SPENT
         53  c1  ACQUIRE k A REQID a2          => t2
         54  c9  BREAK k                       => 1
         55  c1  ACQUIRE k A REQID a2          => SPENT
         56  c1  ACQUIRE k A REQID a3 BIND 0   => t3
         57  gone c1
         58  c2  ACQUIRE k A REQID a3          => SPENT
         59  c2  ACQUIRE k A REQID a4          => t4
         60  del k
         61  c2  ACQUIRE k A REQID a4          => SPENT
         62  c2  ACQUIRE k A REQID a5          => t5
         63  rename k l
         64  c2  ACQUIRE l A REQID a5          => t5
         65  c2  RELEASE l A                   => 0
         66  failover
         67  c2  ACQUIRE k A REQID a4          => SPENT
         68  c2  ACQUIRE k A REQID a3          => SPENT
         69  c2  ACQUIRE l A REQID a5          => SPENT
        # A flush forgets the holds, and nothing of what was over.
         70  c2  ACQUIRE k A REQID a6          => t6
         71  flushall                      => dlock:notify: flushed 0
         72  c2  ACQUIRE k A REQID a4          => SPENT
         73  c2  ACQUIRE k A REQID a6          => t7
    ",
    );
}

#[test]
fn requests_are_known_as_long_as_the_settings_say() {
    run_both(
        "
          0  set request-memory-ms 100
          0  c1  ACQUIRE k A REQID a1          => t1
         10  c1  RELEASE k A REQID r1          => 0
        109  c1  ACQUIRE k A REQID a1          => SPENT
        110  c1  RELEASE k A REQID r0          => NOTHELD
        110  c1  ACQUIRE k A REQID a1          => t2
        111  c1  RELEASE k A REQID r1          => 0
        # A pause does not count.
        120  pause
        900  resume
        901  c1  ACQUIRE k A REQID a1          => SPENT
       1000  set request-memory-max 2
       1000  c1  ACQUIRE k A REQID a2          => t3
       1001  c1  RELEASE k A REQID r2          => 0
       1002  c1  ACQUIRE k A REQID a2          => SPENT
       1003  c1  RELEASE k A REQID r2          => 0
       1004  c1  ACQUIRE k A REQID a3          => t4
       1005  c1  RELEASE k A                   => 0
       1006  c1  ACQUIRE k A REQID a3          => SPENT
       1007  c1  RELEASE k A REQID r2          => 0
       1008  c1  ACQUIRE k A REQID a2          => t5
       1009  set request-memory-ms 0
       1009  c1  RELEASE k A                   => 0
       1010  c1  ACQUIRE k A REQID a2          => t6
    ",
    );
}

#[test]
fn what_is_over_outlives_a_failover_and_not_a_restart() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID r1          => 0
          2  c1  CANCEL l A REQID a2           => 0
          3  failover
          4  c1  ACQUIRE k A REQID a1          => SPENT
          5  c1  ACQUIRE l A REQID a2          => SPENT
          6  failover
          7  c1  RELEASE k A REQID r1          => 0
          8  restart
          9  tick
         10  c1  RELEASE k A REQID r1          => NOTHELD
         11  c1  ACQUIRE k A REQID a1          => t2
    ",
    );
}

#[test]
fn a_cancelled_request_is_over_also_if_it_has_not_come_yet() {
    run_both(
        "
        # It waits, it was granted and not claimed, it has not come.
          0  c1  ACQUIRE k X                   => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0  => parked
          2  c9  CANCEL k A REQID a1           => 1; c2 gets null
          3  c2  ACQUIRE k A REQID a1 BLOCK 0  => SPENT
          4  c2  ACQUIRE k A REQID a2 QUEUE 99 => null
          5  c1  RELEASE k X                   => 0; dlock:notify:A: granted 0 t2 1 A [a2] k
          6  c9  CANCEL k A REQID a2           => 1
          7  c2  ACQUIRE k A REQID a2          => SPENT
          8  c9  CANCEL k A REQID a3           => 0
          9  c2  ACQUIRE k A REQID a3          => SPENT
          9  c2  INFO k                        => null
        # A copy of the CANCEL leaves later requests alone.
         10  c1  ACQUIRE k X                   => t3
         11  c2  ACQUIRE k A REQID a4 BLOCK 0  => parked
         12  c9  CANCEL k A REQID a1           => 1
         13  c9  CANCEL k A REQID a3           => 0
         14  c1  RELEASE k X                   => 0; c2 gets t4
        # A hold that was claimed is not touched, nor its requests while it lasts.
         15  c9  CANCEL k A REQID a4           => 0
         16  c2  ACQUIRE k A REQID a4          => t4
         17  c2  RELEASE k A                   => 0
         18  c2  ACQUIRE k A REQID a4          => SPENT
        # Without an id nothing is remembered.
         19  c1  ACQUIRE k X                   => t5
         20  c2  ACQUIRE k A REQID a5 QUEUE 99 => null
         21  c9  CANCEL k A                    => 1
         22  c2  ACQUIRE k A REQID a5 QUEUE 99 => null
         23  c1  RELEASE k X                   => 0; dlock:notify:A: granted 0 t6 1 A [a5] k
         24  c9  CANCEL k A                    => 1
         25  c2  ACQUIRE k A REQID a5          => t7
    ",
    );
}

#[test]
fn a_grant_that_its_owner_never_heard_of_is_not_over() {
    run("
        # Taken back, because its connection was gone.
          0  held-back
          0  c1  ACQUIRE k X                   => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0  => parked
          2  c1  RELEASE k X                   => 0; c2 gets t2
          3  gone c2
          4  c3  ACQUIRE k A REQID a1          => t3
          5  c3  RELEASE k A                   => 0
          6  c3  ACQUIRE k A REQID a1          => SPENT
        # Lapsed before it was claimed.
          7  c1  ACQUIRE k X                   => t4
          8  c3  ACQUIRE k B REQID b1 QUEUE 50 => null
          9  c1  RELEASE k X                   => 0; dlock:notify:B: granted 0 t5 1 B [b1] k
         60  tick                              => dlock:notify:B: expired 0 t5 1 B [b1] k
         61  c3  ACQUIRE k B REQID b1 QUEUE 50 => t6
         62  c3  RELEASE k B                   => 0
         63  c3  ACQUIRE k B REQID b1 QUEUE 50 => SPENT
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
fn each_mode_of_a_read_write_lock_has_its_own_requests() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A WRITE REQID r     => t1
          1  c1  ACQUIRE k A READ REQID r      => t2
          2  c1  RELEASE k A WRITE REQID s     => 0
          3  c1  ACQUIRE k A WRITE REQID r     => SPENT
          4  c1  ACQUIRE k A READ REQID r      => t2
          5  c1  RELEASE k A READ REQID s      => 0
          6  c2  ACQUIRE k A READ              => t3
          7  c2  RELEASE k A READ REQID s      => 0
          8  c2  RELEASE k A WRITE REQID s     => 0
          9  c2  ACQUIRE k A READ REQID r      => SPENT
         10  c2  RELEASE k A READ REQID r      => ERR
         10  c2  INFO k                        => READ [-] [A t3 1 29996] waiters 0
        # CANCEL does not say which mode: it is over for both.
         11  c2  CANCEL k B REQID q            => 0
         12  c3  ACQUIRE k B READ REQID q      => SPENT
         13  c3  ACQUIRE k B WRITE REQID q     => SPENT
         14  failover
         15  c3  ACQUIRE k A WRITE REQID r     => SPENT
         16  c3  RELEASE k A READ REQID s      => 0
    ",
    );
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
          5  c2  CANCEL k B REQID b                => 0
          6  c2  ACQUIRE k B REQID b BLOCK 0       => SPENT
    ");
}

#[test]
fn a_release_that_found_nothing_does_not_find_the_next_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 50 REQID a1    => t1
        100  c2  RELEASE k A REQID r1          => NOTHELD
        101  c2  ACQUIRE k A REQID a2          => t2
        102  c1  RELEASE k A REQID r1          => SPENT
        103  failover
        104  c1  RELEASE k A REQID r1          => SPENT
        105  c2  RELEASE k A REQID r2          => 0
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
         61  c1  RELEASE k A TOKEN $t1 REQID r1 => NOTHELD
         62  c1  RELEASE k A TOKEN $t1 REQID r1 => SPENT
         63  c1  ACQUIRE k A REQID a2          => t2
         64  c9  BREAK k                       => 1
         65  c1  RELEASE k A TOKEN $t2 REQID r2 => NOTHELD
         66  c2  ACQUIRE k B                   => t3
         67  c1  RELEASE k A TOKEN $t2 REQID r2 => SPENT
         68  c2  RELEASE k B TOKEN $t3 REQID r3 => 0
         69  c2  RELEASE k B TOKEN $t3 REQID r3 => 0
        # A server that has forgotten knows no more than that nothing is held.
         70  restart
         71  tick
         72  c2  RELEASE k B TOKEN $t3 REQID r3 => NOTHELD
         73  c2  RELEASE k B TOKEN $t3 REQID r3 => SPENT
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
fn a_late_cancel_leaves_newer_requests_alone() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID r           => t1
          1  c1  CANCEL k A REQID r            => 0
          2  c1  RELEASE k A REQID q           => 0
          3  c2  ACQUIRE k B                   => t2
          4  c1  ACQUIRE k A REQID r3 BLOCK 0  => parked
          5  c3  CANCEL k A REQID r            => 0
          6  c2  RELEASE k B                   => 0; c1 gets t3
    ",
    );
}

#[test]
fn a_grant_that_its_owner_gave_up_unclaimed_is_over() {
    run_both(
        "
          0  c1  ACQUIRE k B                         => t1
          1  c2  ACQUIRE k A QUEUE 5000 REQID r      => null
          2  c1  RELEASE k B                         => 0; dlock:notify:A: granted 0 t2 1 A [r] k
          3  c2  RELEASE k A REQID q                 => 0
          4  c3  ACQUIRE k A QUEUE 5000 REQID r      => SPENT
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
