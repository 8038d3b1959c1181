//! What RELEASE of a request ends, and what it says; and RELEASE without an id.

use crate::script::{run, run_as, run_as_here, run_both};

/// The reasons tell a client whether the hold can have covered its work.
#[test]
fn release_says_how_the_hold_of_its_request_had_ended() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1 PX 50    => t1
         51  c1  RELEASE k A REQID a1          => LOST expired
         52  c1  ACQUIRE k A REQID a2          => t2
         53  c9  BREAK k                       => 1
         54  c1  RELEASE k A REQID a2 TOKEN $t2 => LOST broken
         55  c1  ACQUIRE k A REQID a3 BIND 0   => t3
         56  gone c1
         57  c2  RELEASE k A REQID a3          => LOST disconnected
         58  c2  ACQUIRE k A REQID a4          => t4
         59  del k
         60  c2  RELEASE k A REQID a4          => LOST deleted
         61  c2  ACQUIRE k A REQID a5          => t5
         62  c2  RELEASE k A                   => 0
         63  c2  RELEASE k A REQID a5          => LOST released
         64  c2  ACQUIRE k A REQID a6          => t6
         65  over k
         66  c2  RELEASE k A REQID a6          => LOST deleted
         67  del k
        # A loss that was told stays told, whatever the owner holds now, and after a failover.
         68  c2  ACQUIRE k A REQID a7          => t7
         69  c2  RELEASE k A REQID a1          => LOST expired
         70  c2  RELEASE k A REQID a2          => LOST broken
         71  failover
         72  c2  RELEASE k A REQID a3          => LOST disconnected
         73  c2  RELEASE k A REQID a4          => LOST deleted
         74  c2  RELEASE k A REQID a5          => LOST released
         75  c2  RELEASE k A REQID a6          => LOST deleted
         76  c2  ACQUIRE k A REQID a6          => SPENT
         77  c2  CHECK k $t7                   => 1
    ",
    );
}

#[test]
fn release_of_a_lost_hold_of_each_mode_and_of_permits_says_why() {
    run_as_here(
        "DRW",
        "
          0  c1  ACQUIRE k A READ REQID r PX 50  => t1
         51  c1  RELEASE k A READ REQID r        => LOST expired
         52  c1  ACQUIRE k A READ REQID s        => t2
         53  c9  BREAK k                         => 1
         54  c1  RELEASE k A READ REQID s        => LOST broken
        # The other mode knows nothing of it.
         55  c1  RELEASE k A WRITE REQID s       => UNKNOWN
         56  c1  ACQUIRE k A WRITE REQID t BIND 0 => t3
         57  gone c1
         58  c2  RELEASE k A WRITE REQID t       => LOST disconnected
         59  c2  ACQUIRE k A WRITE REQID u       => t4
         60  c2  ACQUIRE k A READ REQID u        => t5
         61  del k
         62  c2  RELEASE k A WRITE REQID u       => LOST deleted
         63  c2  RELEASE k A READ REQID u        => LOST deleted
         64  c2  ACQUIRE k A READ REQID v        => t6
         65  c2  RELEASE k A READ ALL            => 0
         66  c2  RELEASE k A READ REQID v        => LOST released
         67  c2  RELEASE k A READ REQID r        => LOST expired
    ",
    );
    run_as_here(
        "DSEM",
        "
          0  c1  INIT s 5                        => 1
          0  c1  ACQUIRE s A REQID r PX 50       => p1
         51  c1  RELEASE s A REQID r             => LOST expired
         52  c1  ACQUIRE s A REQID q             => p2
         53  c9  BREAK s $p2                     => 1
         54  c1  RELEASE s A REQID q             => LOST broken
         55  c1  ACQUIRE s A REQID t BIND 0      => p3
         56  gone c1
         57  c2  RELEASE s A REQID t             => LOST disconnected
         58  c2  ACQUIRE s A REQID u             => p4
         59  c2  RELEASE s $p4                   => 5
         60  c2  RELEASE s A REQID u             => LOST released
         61  c2  ACQUIRE s A REQID v             => p5
         62  c2  RELEASE s A ALL                 => 5
         63  c2  RELEASE s A REQID v             => LOST released
         64  c2  ACQUIRE s A REQID w             => p6
         65  del s
         66  c2  RELEASE s A REQID w             => LOST deleted
         67  c2  RELEASE s A REQID r             => LOST expired
    ",
    );
}

#[test]
fn release_of_one_request_leaves_the_other_requests_of_its_owner_alone() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c2  ACQUIRE k A REQID a2          => t1
          2  c3  ACQUIRE k A                   => t1
          3  c1  RELEASE k A REQID a1          => 2
          4  c1  RELEASE k A REQID a1          => 2
          5  c9  RELEASE k A REQID other       => UNKNOWN
          6  c9  INFO k  => [A] t1 holds 2 lease 30000 ttl 29996 held 6 [] bound 0 waiters 0
          7  c2  RELEASE k A REQID a2 TOKEN $t1 => 1
          8  c3  RELEASE k A                   => 0
        # The copies of a RELEASE have its reply, also when the hold is over.
          9  c1  RELEASE k A REQID a1          => 2
         10  c2  RELEASE k A REQID a2          => 1
    ",
    );
}

#[test]
fn release_ends_a_place_or_a_blocked_call_of_its_request() {
    run_both(
        "
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0    => parked
        # Another request of the owner has nothing here.
          2  c9  RELEASE k A REQID a0            => UNKNOWN
          3  c9  RELEASE k A REQID a1            => null; c2 gets null
          4  c9  RELEASE k A REQID a1            => null
          5  c2  ACQUIRE k A REQID a1 BLOCK 0    => SPENT
          6  c2  ACQUIRE k A REQID a2 QUEUE 99   => null
          7  c9  RELEASE k A REQID a2            => null
          8  c2  POSITION k A                    => null
          9  c1  RELEASE k X                     => 0
         10  failover
         11  c2  RELEASE k A REQID a2            => null
         12  c2  ACQUIRE k A REQID a2            => SPENT
    ",
    );
    run_as(
        "DSEM",
        "
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s X                     => p1
          1  c2  ACQUIRE s A REQID a1 BLOCK 0    => parked
          2  c3  ACQUIRE s B BLOCK 0             => parked
          3  c9  RELEASE s A REQID a1            => null; c2 gets null
          4  c9  RELEASE s A REQID a1            => null
          5  c1  RELEASE s $p1                   => 0; c3 gets p3
          6  c2  ACQUIRE s A REQID a1            => SPENT
    ",
    );
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k X WRITE                     => t1
          1  c2  ACQUIRE k A READ REQID a1 BLOCK 0     => parked
          2  c9  RELEASE k A WRITE REQID a1            => UNKNOWN
          3  c9  RELEASE k A READ REQID a1             => null; c2 gets null
          4  c9  ACQUIRE k A READ REQID a1             => SPENT
    ",
    );
}

/// Those behind it in the queue may go on.
#[test]
fn release_of_a_wait_lets_in_those_behind_it() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k X READ                      => t1
          1  c2  ACQUIRE k A WRITE REQID a1 BLOCK 0    => parked
          2  c3  ACQUIRE k B READ BLOCK 0              => parked
          3  c9  RELEASE k A WRITE REQID a1            => null; c2 gets null; c3 gets t2
    ",
    );
}

#[test]
fn release_ends_a_grant_that_no_request_has_reached() {
    run_both(
        "
          0  c1  ACQUIRE k B                         => t1
          1  c2  ACQUIRE k A QUEUE 5000 REQID r      => null
          2  c1  RELEASE k B                         => 0; dlock:notify:A: granted 0 t2 1 A [r] k
          3  c9  RELEASE k A REQID q                 => UNKNOWN
          4  c2  RELEASE k A REQID r                 => 0
          5  c2  RELEASE k A REQID r                 => 0
          6  c3  ACQUIRE k A QUEUE 5000 REQID r      => SPENT
    ",
    );
}

/// Giving up comes before a copy of the ACQUIRE that was on its way.
#[test]
fn release_of_an_unknown_request_keeps_its_copies_out() {
    run_both(
        "
          0  c1  RELEASE k A REQID a1            => UNKNOWN
          1  c1  ACQUIRE k A REQID a1            => SPENT
          1  c1  INFO k                          => null
          2  c1  RELEASE k A REQID a1            => UNKNOWN
          3  c1  ACQUIRE k A REQID a2            => t1
          4  failover
          5  c1  ACQUIRE k A REQID a1            => SPENT
          6  c1  RELEASE k A REQID a1            => UNKNOWN
          7  c1  CHECK k $t1                     => 1
    ",
    );
    run("
          0  c1  RELEASE k A REQID m             => UNKNOWN
          1  c1  MACQUIRE 2 l k A REQID m BLOCK 0 => SPENT
          2  c1  ANYACQUIRE 2 l k A REQID m      => SPENT
          3  c1  INFO l                          => null
    ");
    run_as(
        "DSEM",
        "
          0  c1  INIT s 1                        => 1
          1  c1  RELEASE s A REQID a1            => UNKNOWN
          2  c1  ACQUIRE s A REQID a1            => SPENT
          3  c1  RELEASE s A REQID a1            => UNKNOWN
          4  c1  INFO s                          => capacity 1 available 1 leased 0 taken 0 waiters 0
    ",
    );
    run_as(
        "DRW",
        "
          0  c1  RELEASE k A READ REQID a1       => UNKNOWN
          1  c1  ACQUIRE k A READ REQID a1       => SPENT
          2  c1  ACQUIRE k A WRITE REQID a1      => t1
    ",
    );
}

#[test]
fn a_hold_with_another_token_is_not_that_of_the_request_but_its_count_ends() {
    run_both(
        "
          0  c1  ACQUIRE k X                     => t1
          1  c1  RELEASE k X                     => 0
          2  c1  ACQUIRE k A REQID a1            => t2
          3  c1  ACQUIRE k A REQID a2            => t2
          4  c1  RELEASE k A REQID a1 TOKEN $t1  => UNKNOWN
          4  c1  INFO k  => [A] t2 holds 1 lease 30000 ttl 29999 held 2 [] bound 0 waiters 0
          5  c1  RELEASE k A REQID a1 TOKEN $t1  => UNKNOWN
          6  c1  RELEASE k A REQID a1 TOKEN $t2  => UNKNOWN
          7  c1  ACQUIRE k A REQID a1            => SPENT
          8  c1  RELEASE k A REQID a2 TOKEN $t1  => UNKNOWN
          8  c1  INFO k                          => null
          9  c1  ACQUIRE k A REQID a2            => SPENT
    ",
    );
}

/// What people type works without any id.
#[test]
fn release_without_an_id_ends_a_count_without_an_id_before_the_youngest() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c1  ACQUIRE k A REQID a1          => t1
          2  c1  ACQUIRE k A REQID a2          => t1
          3  c1  RELEASE k A                   => 2
          4  c1  ACQUIRE k A REQID a1          => t1
          5  c1  ACQUIRE k A REQID a2          => t1
          6  c1  RELEASE k A                   => 1
          7  c1  ACQUIRE k A REQID a2          => SPENT
          8  c1  RELEASE k A REQID a2          => LOST released
          9  c1  ACQUIRE k A REQID a1          => t1
         10  c1  RELEASE k A REQID a1          => 0
         11  c1  RELEASE k A REQID a2          => LOST released
    ",
    );
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ REQID a1     => t1
          1  c1  ACQUIRE k A READ REQID a2     => t1
          2  c1  RELEASE k A READ              => 1
          3  c1  RELEASE k A READ REQID a2     => LOST released
          4  c1  RELEASE k A READ REQID a1     => 0
    ",
    );
}

#[test]
fn release_without_an_id_ends_the_wait_of_an_owner_that_holds_nothing() {
    run_both(
        "
          0  c1  ACQUIRE k X                     => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0    => parked
          2  c9  RELEASE k A TOKEN $t1           => NOTHELD
          3  c9  RELEASE k A                     => null; c2 gets null
          4  c9  RELEASE k A                     => NOTHELD
          5  c2  ACQUIRE k A REQID a1            => SPENT
          6  c2  ACQUIRE k A QUEUE 99            => null
          7  c9  RELEASE k A ALL                 => null
          8  c9  RELEASE k A ALL                 => NOTHELD
          9  c2  ACQUIRE k A QUEUE 99            => null
         10  c1  RELEASE k X                     => 0; dlock:notify:A: granted 0 t2 1 A k
         11  c9  RELEASE k A                     => 0
    ",
    );
}

#[test]
fn all_ends_every_hold_and_the_wait_of_the_owner_and_goes_with_no_id() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1            => t1
          1  c1  ACQUIRE k A REQID a2            => t1
          2  c1  RELEASE k A ALL REQID a1        => ERR
          3  c1  CHECK k $t1                     => 1
          4  c1  RELEASE k A ALL TOKEN $t1       => 0
          5  c1  RELEASE k A REQID a1            => LOST released
          6  c1  RELEASE k A REQID a2            => LOST released
    ",
    );
    // A call for several keys waits at one that its owner holds.
    run("
          0  c1  ACQUIRE k A                     => t1
          0  c9  ACQUIRE l X                     => t2
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c1  RELEASE k A ALL                 => 0; c2 gets null
          3  c9  RELEASE l X                     => 0
    ");
    // Of a read-write lock, those of the mode.
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ                => t1
          0  c1  ACQUIRE k B READ                => t2
          1  c2  ACQUIRE k A WRITE BLOCK 0       => parked
          2  c1  RELEASE k A READ ALL REQID r    => ERR
          3  c1  RELEASE k A WRITE ALL           => null; c2 gets null
          4  c1  RELEASE k A READ ALL            => 0
          5  c1  RELEASE k A READ ALL            => NOTHELD
    ",
    );
    run_as(
        "DSEM",
        "
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          0  c1  ACQUIRE s A                     => p2
          1  c2  ACQUIRE s A BLOCK 0             => parked
          2  c1  RELEASE s A ALL REQID r         => ERR
          3  c1  RELEASE s $p1 ALL               => ERR
          4  c1  RELEASE s A                     => ERR
          5  c1  RELEASE s A ALL                 => 3; c2 gets null
          6  c1  RELEASE s A ALL                 => NOTHELD
          7  c1  TAKE s 3                        => taken
          8  c2  ACQUIRE s A BLOCK 0             => parked
          9  c1  RELEASE s A ALL                 => null; c2 gets null
    ",
    );
}

#[test]
fn a_released_request_is_over_also_if_it_has_not_come_yet() {
    run_both(
        "
        # It waits, it was granted by a message, it has not come.
          0  c1  ACQUIRE k X                   => t1
          1  c2  ACQUIRE k A REQID a1 BLOCK 0  => parked
          2  c9  RELEASE k A REQID a1          => null; c2 gets null
          3  c2  ACQUIRE k A REQID a1 BLOCK 0  => SPENT
          4  c2  ACQUIRE k A REQID a2 QUEUE 99 => null
          5  c1  RELEASE k X                   => 0; dlock:notify:A: granted 0 t2 1 A [a2] k
          6  c9  RELEASE k A REQID a2          => 0
          7  c2  ACQUIRE k A REQID a2          => SPENT
          8  c9  RELEASE k A REQID a3          => UNKNOWN
          9  c2  ACQUIRE k A REQID a3          => SPENT
          9  c2  INFO k                        => null
        # A copy of the RELEASE leaves later requests alone.
         10  c1  ACQUIRE k X                   => t3
         11  c2  ACQUIRE k A REQID a4 BLOCK 0  => parked
         12  c9  RELEASE k A REQID a1          => null
         13  c9  RELEASE k A REQID a3          => UNKNOWN
         14  c1  RELEASE k X                   => 0; c2 gets t4
        # Nor does it touch their hold.
         15  c9  RELEASE k A REQID a2          => 0
         16  c2  ACQUIRE k A REQID a4          => t4
         17  c2  RELEASE k A                   => 0
         18  c2  ACQUIRE k A REQID a4          => SPENT
        # Without an id it is over, too.
         19  c1  ACQUIRE k X                   => t5
         20  c2  ACQUIRE k A REQID a5 QUEUE 99 => null
         21  c9  RELEASE k A                   => null
         22  c2  ACQUIRE k A REQID a5 QUEUE 99 => SPENT
         23  c2  ACQUIRE k A REQID a6 QUEUE 99 => null
         24  c1  RELEASE k X                   => 0; dlock:notify:A: granted 0 t6 1 A [a6] k
         25  c9  RELEASE k A                   => 0
         26  c2  ACQUIRE k A REQID a6          => SPENT
    ",
    );
}
