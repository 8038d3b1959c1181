//! Permits with an owner and a lease: acquire, release, renew, and repeats of a request.

use super::run;
use std::fmt::Write;

#[test]
fn a_semaphore_is_made_once_and_gives_its_permits_out() {
    run("
          0  c1  INIT s 2                  => 1
          1  c1  INIT s 5                  => 0
          1  c1  INFO s                    => capacity 2 available 2 leased 0 taken 0 waiters 0
          2  c1  ACQUIRE s A               => p1
        # The same owner gets another one.
          3  c2  ACQUIRE s A PX 100        => p2
          4  c3  ACQUIRE s B               => null
          4  c3  INFO s                    => capacity 2 available 0 leased 2 taken 0 waiters 0
          4  c3  PERMITS s                 => p1 A 1 29998; p2 A 1 99
          4  c3  POSITION s A              => 0
          4  c3  POSITION s B              => null
          5  c1  RELEASE s $p1             => 1
          6  c1  RELEASE s $p1             => NOTHELD
          7  c3  ACQUIRE s B               => p4
          8  c2  RELEASE s $p2             => 1
          9  c3  RELEASE s $p4             => 2
         10  c3  INFO s                    => capacity 2 available 2 leased 0 taken 0 waiters 0
         10  c3  PERMITS s
    ");
}

#[test]
fn a_copy_of_a_release_says_whether_the_first_found_the_permit() {
    run("
          0  c1  ACQUIRE s A LIMIT 3 REQID r1 => p1
          1  c1  ACQUIRE s A LIMIT 3 REQID r2 => p2
          2  c1  RELEASE s A REQID r1      => 2
          3  c1  RELEASE s A REQID r1      => 2
          4  c1  RELEASE s A REQID r2      => 3
        # The semaphore is gone with its last permit.
          5  c2  RELEASE s A REQID r2      => 3
          5  c2  INFO s                    => null
          6  c1  ACQUIRE s A LIMIT 3 REQID r3 => p3
          7  c9  BREAK s $p3               => 1
          8  c1  RELEASE s A REQID r3      => LOST broken
          9  c1  RELEASE s A REQID r3      => LOST broken
         10  failover
         11  c1  RELEASE s A REQID r1      => 2
         12  c1  RELEASE s A REQID r3      => LOST broken
         13  restart
         14  tick
         15  c1  RELEASE s A REQID r1      => UNKNOWN
    ");
}

#[test]
fn a_missing_key_has_no_permits() {
    run("
          0  c1  ACQUIRE s A               => null
          0  c1  TAKE s                    => null
          0  c1  RELEASE s $p1             => NOTHELD
          0  c1  RENEW s $p1               => NOTHELD
          0  c1  BREAK s $p1               => 0
          0  c1  RELEASE s A ALL           => NOTHELD
          0  c1  GIVE s                    => ERR
          0  c1  DRAIN s                   => ERR
          0  c1  RESIZE s 3                => ERR
          0  c1  RESIZE s BY 3             => ERR
          0  c1  INFO s                    => null
          0  c1  PERMITS s
          0  c1  WAITERS s                 => nobody
          0  c1  POSITION s A              => null
    ");
}

#[test]
fn several_permits_go_out_and_come_back_as_one() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  ACQUIRE s A COUNT 3       => p1
          2  c2  ACQUIRE s B COUNT 3       => null
          2  c2  ACQUIRE s B COUNT 2       => p3
          3  c2  INFO s                    => capacity 5 available 0 leased 5 taken 0 waiters 0
          3  c2  PERMITS s                 => p1 A 3 29998; p3 B 2 29999
          4  c1  RELEASE s $p1             => 3
          5  c2  RELEASE s $p3             => 5
    ");
}

#[test]
fn more_than_there_are_can_never_be_had() {
    run("
          0  c1  INIT s 2                  => 1
          1  c1  ACQUIRE s A COUNT 3       => LIMIT
          1  c1  ACQUIRE s A COUNT 3 BLOCK 0 => LIMIT
          1  c1  ACQUIRE s A COUNT 3 QUEUE 9 => LIMIT
          1  c1  TAKE s 3                  => LIMIT
          1  c1  TAKE s 3 BLOCK 0          => LIMIT
          2  c1  ACQUIRE t A COUNT 3 LIMIT 2 => LIMIT
          2  c1  INFO t                    => null
        # Of one that is not made, more may be asked for.
          3  c1  ACQUIRE t A COUNT 3       => null
          4  c1  WAITERS s                 => nobody
    ");
}

#[test]
fn a_permit_ends_with_its_lease_and_returns_by_itself() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A PX 100        => p1
          1  c2  ACQUIRE s B BLOCK 0 PX 50 => parked
         99  tick
         99  c1  PERMITS s                 => p1 A 1 1
        # What is due counts as ended before the alarm rings.
        100  c1  PERMITS s
        100  c1  INFO s                    => capacity 1 available 1 leased 0 taken 0 waiters 1
        100  c1  POSITION s A              => null
        101  tick                          => c2 gets p2
        102  c1  RELEASE s $p1             => NOTHELD
        103  c1  RENEW s $p1               => NOTHELD
        # Without the alarm the next call finds what is due.
        160  c1  ACQUIRE s A               => p3
        161  c1  RELEASE s $p2             => NOTHELD
    ");
}

#[test]
fn a_renewal_extends_one_permit_and_never_shortens_it() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  ACQUIRE s A PX 100        => p1
          0  c1  ACQUIRE s A PX 100        => p2
         50  c2  RENEW s $p1               => 1
         50  c2  PERMITS s                 => p1 A 1 100; p2 A 1 50
         60  c2  RENEW s $p1 PX 1000       => 1
         61  c2  RENEW s $p2 PX 10         => 1
         61  c2  PERMITS s                 => p1 A 1 999; p2 A 1 39
        101  tick
        101  c2  PERMITS s                 => p1 A 1 959
        102  c2  RENEW s $p2               => NOTHELD
        103  c2  RELEASE s $p1             => 2
        104  c2  RENEW s $p1               => NOTHELD
    ");
}

#[test]
fn without_a_lease_the_setting_counts() {
    run("
          0  set default-lease 70
          0  c1  ACQUIRE s A LIMIT 2       => p1
          0  c1  PERMITS s                 => p1 A 1 70
    ");
}

#[test]
fn a_repeat_gets_the_same_permit_and_counts_nothing() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  ACQUIRE s A REQID r PX 100 => p1
          2  c2  ACQUIRE s A REQID r PX 900 => p1
          2  c2  ACQUIRE s A REQID r BLOCK 0 => p1
          2  c2  INFO s                    => capacity 5 available 4 leased 1 taken 0 waiters 0
          2  c2  PERMITS s                 => p1 A 1 30000
        # Another request, or another owner: another permit.
          3  c2  ACQUIRE s A REQID q       => p4
          4  c2  ACQUIRE s B REQID r       => p5
          5  c1  ACQUIRE s A               => p6
          6  c1  ACQUIRE s A REQID q       => p4
          7  c1  ACQUIRE s A REQID r       => p1
        # Once it is back, the same id is that of a late copy.
          8  c1  RELEASE s $p1             => 2
          9  c1  ACQUIRE s A REQID r       => SPENT
         10  c1  INFO s                    => capacity 5 available 2 leased 3 taken 0 waiters 0
    ");
}

#[test]
fn a_repeat_gets_its_permit_also_when_all_are_out() {
    run("
          0  c1  INIT s 1                  => 1
          1  c1  ACQUIRE s A REQID r       => p1
          2  c2  ACQUIRE s B BLOCK 0       => parked
          3  c3  ACQUIRE s A REQID r       => p1
          3  c3  ACQUIRE s A REQID r COUNT 2 => ERR
          4  c3  RELEASE s $p1             => 0; c2 gets p2
    ");
}

#[test]
fn a_retry_of_a_wait_gets_its_permit() {
    run("
          0  c1  INIT s 1                      => 1
          0  c1  ACQUIRE s A                   => p1
          1  c2  ACQUIRE s B BLOCK 0 REQID r   => parked
          2  c3  ACQUIRE s B BLOCK 0 REQID r   => parked; c2 gets null
          3  c1  RELEASE s $p1                 => 0; c3 gets p3
          4  c4  ACQUIRE s B BLOCK 0 REQID r   => p3
          5  c4  RELEASE s $p3                 => 1
    ");
}

#[test]
fn many_permits_end_each_in_its_time() {
    let mut script = String::from("0 c1 INIT s 200 => 1\n");
    for n in 1..=200 {
        writeln!(script, "0 c1 ACQUIRE s A PX {} => p{n}", 1_000 - n).expect("text");
    }
    script += "899 c1 INFO s => capacity 200 available 100 leased 100 taken 0 waiters 0\n";
    script += "950 tick\n";
    script += "950 c1 RELEASE s $p50 => NOTHELD\n";
    script += "950 c1 RELEASE s $p49 => 152\n";
    run(&script);
}

#[test]
fn what_a_script_cannot_do_changes_nothing() {
    run("
          0  s   INIT s 1                  => 1
          0  s   ACQUIRE s A BIND 0        => ERR
          1  s   ACQUIRE s A QUEUE 10      => ERR
          2  s   INFO s                    => capacity 1 available 1 leased 0 taken 0 waiters 0
          3  s   ACQUIRE s A BLOCK 50      => p3
          4  s   RENEW s $p3 BIND 0        => ERR
          5  m1  RENEW s $p3 BIND 0        => 1
          6  gone c1
          6  s   PERMITS s  => p3 A 1 29999
    ");
}

#[test]
fn keyspace_events_tell_what_happened() {
    run("
          0  events
          0  c1  INIT s 2                  => 1
          1  c1  ACQUIRE s A PX 10         => p1 +acquire
          2  c1  TAKE s                    => taken +acquire
          3  c2  ACQUIRE s B BLOCK 0       => parked +wait
          4  c3  TAKE s BLOCK 0            => parked +wait
          5  c1  GIVE s                    => 0; c2 gets p2 +release +acquire
         12  tick                          => c3 gets taken +expire +acquire
         13  c1  BREAK s $p2               => 1 +break
         14  c1  DRAIN s                   => 1 +acquire
         15  c1  GIVE s 2                  => 2 +release
    ");
}
