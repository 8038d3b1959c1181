//! Requests that are over: their late copies, what their RELEASE says, and requests that left no hold behind.

use crate::script::{run, run_as, run_as_here, run_both, run_both_here};
use std::fmt::Write as _;

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

#[test]
fn an_id_names_a_request_from_its_first_copy_to_its_release() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  ACQUIRE k A REQID a2          => t1
          2  c1  RELEASE k A REQID a1          => 1
        # While the hold lasts, and afterwards.
          3  c1  ACQUIRE k A REQID a1          => SPENT
          4  c1  ACQUIRE k A REQID a1 BLOCK 0  => SPENT
          5  c1  ACQUIRE k A REQID a2          => t1
          5  c1  INFO k  => [A] t1 holds 1 lease 30000 ttl 30000 held 5 [] bound 0 waiters 0
          6  c1  RELEASE k A REQID a2          => 0
          7  c1  RELEASE k A REQID a1          => 1
          8  c1  RELEASE k A REQID a2          => 0
          9  c1  ACQUIRE k A REQID a1          => SPENT
         10  c1  ACQUIRE k A REQID a2 QUEUE 9  => SPENT
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

#[test]
fn a_key_of_another_type_is_known_by_its_memory_first() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID a1          => 0
          2  c1  ACQUIRE k A REQID a2          => t2
          3  over k
          4  c1  RELEASE k A REQID a1          => 0
          5  c1  RELEASE k A REQID a2          => LOST deleted
          6  c1  ACQUIRE k A REQID a2          => SPENT
          7  c1  RELEASE k A REQID a3          => WRONGTYPE
          8  c1  RELEASE k A                   => WRONGTYPE
          9  c1  ACQUIRE k A REQID a3          => WRONGTYPE
    ",
    );
    run("
          0  c1  MACQUIRE 2 k l A REQID m      => t1 t2
          1  over k
          2  c1  MACQUIRE 2 k l A REQID m      => SPENT
          3  c1  MRELEASE 2 k l A REQID m      => LOST deleted
          4  c1  MRELEASE 2 k l A REQID n      => WRONGTYPE
          5  c1  MACQUIRE 2 k l A REQID o      => WRONGTYPE
          6  c1  INFO l                        => null
    ");
}

#[test]
fn an_id_that_a_hold_no_longer_lists_is_known_to_the_memory() {
    let mut script = String::new();
    for n in 0..12 {
        let _ = writeln!(script, "{n} c1 ACQUIRE k A REQID r{n} => t1");
    }
    for n in 0..10 {
        let _ = writeln!(script, "{} c1 RELEASE k A REQID r{n} => {}", 20 + n, 11 - n);
    }
    for n in 0..10 {
        let _ = writeln!(script, "40 c1 RELEASE k A REQID r{n} => {}", 11 - n);
        let _ = writeln!(script, "40 c1 ACQUIRE k A REQID r{n} => SPENT");
    }
    script += "
         41  failover
         42  c1  RELEASE k A REQID r0          => 11
         43  c1  RELEASE k A REQID r9          => 2
         44  c1  ACQUIRE k A REQID r0          => SPENT
         45  c1  INFO k => [A] t1 holds 2 lease 30000 ttl 29996 held 45 [] bound 0 waiters 0
    ";
    run_both_here(&script);
}

#[test]
fn a_sixty_fifth_id_meets_the_limit_and_changes_nothing() {
    let mut script = String::new();
    for n in 0..64 {
        let _ = writeln!(script, "0 c1 ACQUIRE k A REQID r{n} => t1");
    }
    script += "
          1  c1  ACQUIRE k A REQID more BIND 0 PX 90000 => LIMIT
          1  c1  INFO k  => [A] t1 holds 64 lease 30000 ttl 29999 held 1 [] bound 0 waiters 0
        # A copy is no new one, and neither is a call without an id.
          2  c1  ACQUIRE k A REQID r7          => t1
          3  c1  ACQUIRE k A                   => t1
          4  c1  RELEASE k A                   => 64
          5  c1  RELEASE k A REQID r7          => 63
          6  c1  ACQUIRE k A REQID more        => t1
          7  c1  ACQUIRE k A REQID again       => LIMIT
          8  c1  RELEASE k A ALL               => 0
          9  c1  ACQUIRE k A REQID again       => t2
         10  c1  RELEASE k A REQID r8          => LOST released
    ";
    run_both(&script);
}

#[test]
fn requests_are_known_as_long_as_the_settings_say() {
    run_both(
        "
          0  set request-memory-ms 100
          0  c1  ACQUIRE k A REQID a1          => t1
         10  c1  RELEASE k A REQID a1          => 0
        109  c1  ACQUIRE k A REQID a1          => SPENT
        110  c1  RELEASE k A REQID a0          => UNKNOWN
        110  c1  ACQUIRE k A REQID a1          => t2
        111  c1  RELEASE k A REQID a1          => 0
        # A pause does not count.
        120  pause
        900  resume
        901  c1  ACQUIRE k A REQID a1          => SPENT
       1000  set request-memory-max 2
       1000  c1  ACQUIRE k A REQID a2          => t3
       1001  c1  RELEASE k A REQID a2          => 0
       1002  c1  ACQUIRE k A REQID a2          => SPENT
       1003  c1  RELEASE k A REQID a2          => 0
       1004  c1  ACQUIRE k A REQID a3          => t4
       1005  c1  RELEASE k A                   => 0
       1006  c1  ACQUIRE k A REQID a3          => SPENT
       1007  c1  ACQUIRE k A REQID a4          => t5
       1008  c1  RELEASE k A REQID a4          => 0
       1009  c1  ACQUIRE k A REQID a2          => t6
       1010  set request-memory-ms 0
       1010  c1  RELEASE k A                   => 0
       1011  c1  ACQUIRE k A REQID a2          => t7
    ",
    );
}

#[test]
fn what_is_over_outlives_a_failover_and_not_a_restart() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a1          => t1
          1  c1  RELEASE k A REQID a1          => 0
          2  c1  RELEASE l A REQID a2          => UNKNOWN
          3  failover
          4  c1  ACQUIRE k A REQID a1          => SPENT
          5  c1  ACQUIRE l A REQID a2          => SPENT
          6  failover
          7  c1  RELEASE k A REQID a1          => 0
          8  restart
          9  tick
         10  c1  RELEASE l A REQID a2          => UNKNOWN
         11  c1  ACQUIRE k A REQID a1          => t2
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

/// It is an ordinary expiry: the owner may have counted on the message.
#[test]
fn a_grant_to_a_place_whose_lease_ended_is_over() {
    run_both(
        "
          7  c1  ACQUIRE k X                         => t1
          8  c3  ACQUIRE k B REQID b1 PX 20 QUEUE 50 => null
          9  c1  RELEASE k X                         => 0; dlock:notify:B: granted 0 t2 1 B [b1] k
         60  tick                                    => dlock:notify:B: expired 0 t2 1 B [b1] k
         61  c3  ACQUIRE k B REQID b1 QUEUE 50       => SPENT
         62  c3  RELEASE k B REQID b1                => LOST expired
         63  failover
         64  c3  RELEASE k B REQID b1                => LOST expired
    ",
    );
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
          2  c1  RELEASE k A WRITE REQID r     => 0
          3  c1  ACQUIRE k A WRITE REQID r     => SPENT
          4  c1  ACQUIRE k A READ REQID r      => t2
          5  c1  RELEASE k A READ REQID r      => 0
          6  c2  ACQUIRE k A READ              => t3
          7  c2  RELEASE k A READ REQID r      => 0
          8  c2  RELEASE k A WRITE REQID r     => 0
          9  c2  ACQUIRE k A READ REQID r      => SPENT
         10  c2  INFO k                        => READ [-] [A t3 1 29996] waiters 0
         11  failover
         12  c3  ACQUIRE k A WRITE REQID r     => SPENT
         13  c3  RELEASE k A READ REQID r      => 0
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
