//! Permits that belong to nobody: TAKE, GIVE, DRAIN, and repeats of their requests.

use super::run;
use std::fmt::Write;

#[test]
fn taken_permits_have_no_lease_and_are_given_back() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  TAKE s                    => taken
          2  c1  TAKE s 2                  => taken
          3  c2  TAKE s 3                  => null
          3  c2  INFO s                    => capacity 5 available 2 leased 0 taken 3 waiters 0
          3  c2  PERMITS s
          4  c2  DRAIN s                   => 2
          5  c2  DRAIN s                   => 0
          6  c2  TAKE s                    => null
     900000  tick
     900000  c2  INFO s                    => capacity 5 available 0 leased 0 taken 5 waiters 0
     900001  c2  GIVE s                    => 1
     900002  c3  GIVE s 3                  => 4
     900003  c3  GIVE s 2                  => LIMIT
     900003  c3  GIVE s                    => 5
     900004  c3  GIVE s                    => LIMIT
    ");
}

#[test]
fn leased_permits_are_not_given_back_by_give() {
    run("
          0  c1  INIT s 2                  => 1
          1  c1  ACQUIRE s A               => p1
          2  c1  GIVE s                    => LIMIT
          3  c1  TAKE s                    => taken
          4  c1  GIVE s 2                  => LIMIT
          5  c1  RELEASE s $p1             => 1
          6  c1  GIVE s                    => 2
    ");
}

#[test]
fn take_waits_its_turn_and_overtakes_nobody() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  TAKE s 2                  => taken
          1  c2  TAKE s 2 BLOCK 0          => parked
          2  c3  TAKE s BLOCK 0            => parked
          3  c4  GIVE s                    => 1
          4  c4  TAKE s                    => null
          4  c4  DRAIN s                   => 0
          5  c4  GIVE s                    => 0; c2 gets taken
          6  c4  GIVE s 2                  => 1; c3 gets taken
          7  c4  DRAIN s                   => 1
    ");
}

#[test]
fn take_has_no_owner_and_no_place_of_its_own() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  TAKE s                    => taken
          0  c2  ACQUIRE s A BLOCK 100     => parked
          1  c3  TAKE s BLOCK 100          => parked
          2  c4  TAKE s BLOCK 100          => parked
          3  c1  WAITERS s                 => A 2 3 97 [];  3 2 98 [];  4 1 99 []
          3  c9  CANCEL s A                => 1; c2 gets null
          4  c1  GIVE s                    => 0; c3 gets taken
        103  tick                          => c4 gets null
    ");
}

#[test]
fn a_repeat_is_answered_as_before_and_counts_nothing() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  TAKE s 2 REQID a          => taken
          2  c2  TAKE s 2 REQID a          => taken
          2  c2  TAKE s 2 REQID a BLOCK 0  => taken
          3  c2  DRAIN s REQID b           => 3
          4  c3  DRAIN s REQID b           => 3
          5  c3  GIVE s 4 REQID c          => 4
          6  c3  GIVE s 4 REQID c          => 4
          7  c3  DRAIN s REQID d           => 4
          8  c3  DRAIN s REQID d           => 4
          9  c3  RESIZE s BY 2 REQID e     => 2
         10  c3  RESIZE s BY 2 REQID e     => 2
         11  c3  INFO s                    => capacity 7 available 2 leased 0 taken 5 waiters 0
        # Of what can be had, a repeat tells what it is now.
         12  c3  TAKE s                    => taken
         13  c3  GIVE s 4 REQID c          => 1
         14  c3  RESIZE s BY 2 REQID e     => 1
        # One that came to nothing counts for nothing.
         15  c3  TAKE s 2 REQID f          => null
         16  c3  GIVE s 2                  => 3
         17  c3  TAKE s 2 REQID f          => taken
         18  c3  TAKE s 2 REQID f          => taken
         19  c3  GIVE s 7 REQID g          => LIMIT
         20  c3  GIVE s 6 REQID g          => 7
    ");
}

#[test]
fn the_last_64_ids_are_remembered() {
    let mut script = String::from("0 c1 INIT s 1000 => 1\n");
    for n in 0..65 {
        writeln!(script, "0 c1 TAKE s REQID r{n} => taken").expect("text");
    }
    script += "
          1  c1  INFO s                    => capacity 1000 available 935 leased 0 taken 65 waiters 0
          2  c1  TAKE s REQID r1           => taken
          2  c1  TAKE s REQID r64          => taken
          3  c1  INFO s                    => capacity 1000 available 935 leased 0 taken 65 waiters 0
          4  c1  TAKE s REQID r0           => taken
          5  c1  INFO s                    => capacity 1000 available 934 leased 0 taken 66 waiters 0
        # That was new, so r1 is forgotten now; a replica and a restart forget the same.
          6  failover
          7  c1  TAKE s REQID r2           => taken
          8  c1  TAKE s REQID r1           => taken
          9  c1  INFO s                    => capacity 1000 available 933 leased 0 taken 67 waiters 0
         10  restart
         11  c1  TAKE s REQID r3           => taken
         12  c1  TAKE s REQID r0           => taken
         13  restart rdb
         14  c1  INFO s                    => capacity 1000 available 933 leased 0 taken 67 waiters 0
         15  c1  TAKE s REQID r2           => taken
         16  c1  INFO s                    => capacity 1000 available 932 leased 0 taken 68 waiters 0
    ";
    run(&script);
}

#[test]
fn a_take_that_waited_is_forgotten_after_64_other_ids_of_any_call() {
    let mut script = String::from(
        "
          0  c1  INIT s 2                  => 1
          0  c1  TAKE s 2 REQID all        => taken
          1  c2  TAKE s BLOCK 0 REQID r    => parked
          2  c1  GIVE s REQID one          => 0; c2 gets taken
          2  c1  RESIZE s 3 REQID three    => 1
          2  c1  ACQUIRE s A REQID a       => p1
          2  c1  RESIZE s 3                => 0
    ",
    );
    // GIVE came before the hand-off, so with RESIZE and the last one they are 62 more.
    for n in 0..31 {
        writeln!(script, "3 c1 GIVE s REQID g{n} => 1").expect("text");
        writeln!(script, "3 c1 DRAIN s REQID d{n} => 1").expect("text");
    }
    script += "
          4  c3  TAKE s REQID r            => taken
          5  c3  INFO s                    => capacity 3 available 0 leased 1 taken 2 waiters 0
          6  c1  DRAIN s REQID last        => 0
          7  c3  TAKE s REQID r            => null
    ";
    run(&script);
}

#[test]
fn a_retry_of_a_waiting_take_takes_once() {
    run("
          0  c1  INIT s 3                  => 1
          0  c1  TAKE s 3                  => taken
          1  c2  TAKE s BLOCK 0 REQID r    => parked
          2  c3  TAKE s BLOCK 0 REQID r    => parked
          3  c4  ACQUIRE s A BLOCK 0       => parked
        # The retry costs nothing, so the one behind it is served, too.
          4  c1  GIVE s 2                  => 0; c2 gets taken; c3 gets taken; c4 gets p1
          5  c5  TAKE s REQID r            => taken
          6  c1  INFO s                    => capacity 3 available 0 leased 1 taken 2 waiters 0
    ");
    run("
          0  c1  INIT s 1                  => 1
          0  c1  TAKE s                    => taken
          1  c2  TAKE s BLOCK 0 REQID r    => parked
          2  gone c2
          3  c1  GIVE s                    => 1
          4  c3  TAKE s REQID r            => taken
          5  c1  INFO s                    => capacity 1 available 0 leased 0 taken 1 waiters 0
    ");
}
