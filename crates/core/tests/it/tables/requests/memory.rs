//! Which requests are over, and for how long that is known.

use crate::script::{run, run_as, run_both, run_both_here};
use std::fmt::Write as _;

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
