//! The contract of DLATCH.

use std::fmt::Write;

fn run(script: &str) {
    crate::script::run_as("DLATCH", script);
}

fn run_here(script: &str) {
    crate::script::run_as_here("DLATCH", script);
}

#[test]
fn it_opens_at_0_and_answers_all_waiters() {
    run("
          0  c1  INIT l 3                        => 1
          0  c1  INIT l 9                        => 0
          0  c1  INFO l                          => 3/3 ttl - waiters 0
          1  c2  AWAIT l                         => null
          2  c2  AWAIT l BLOCK 0                 => parked
          3  c3  AWAIT l BLOCK 500               => parked
          4  c1  COUNTDOWN l                     => 2
          4  c1  INFO l                          => 2/3 ttl - waiters 2
          5  c4  COUNTDOWN l 2                   => 0; c2 gets 1; c3 gets 1
          5  c1  INFO l                          => null
          5  c1  WAITERS l                       => nobody
        # Open, or never closed: the same.
          6  c2  AWAIT l                         => 1
          6  c2  AWAIT l BLOCK 0                 => 1
          7  c2  COUNTDOWN l                     => 0
          8  c1  INIT l 1                        => 1
          9  c1  COUNTDOWN l 5                   => 0
    ");
}

#[test]
fn a_wait_ends_in_its_time() {
    run("
          0  c1  INIT l 1                        => 1
          1  c2  AWAIT l BLOCK 50                => parked
          2  c3  AWAIT l BLOCK 500               => parked
         52  tick                                => c2 gets null
         53  gone c3
         53  c1  INFO l                          => 1/1 ttl - waiters 0
         54  c2  AWAIT l BLOCK 50                => parked
        # No alarm has rung: that it is open is true all the same.
        110  c1  INFO l                          => 1/1 ttl - waiters 0
        110  c1  COUNTDOWN l                     => 0; c2 gets 1
    ");
}

#[test]
fn its_time_may_end_before_it_opens() {
    run("
          0  c1  INIT l 2 PX 100                 => 1
          1  c2  AWAIT l BLOCK 0                 => parked
          2  c3  AWAIT l BLOCK 0                 => parked
         50  c1  COUNTDOWN l                     => 1
         50  c1  INFO l                          => 1/2 ttl 50 waiters 2
         99  tick
        100  c1  INFO l                          => null
        100  c1  AWAIT l                         => BROKEN
        101  tick                                => c2 gets BROKEN; c3 gets BROKEN
        102  c1  COUNTDOWN l                     => 0
        103  c1  INIT l 1 EX 1                   => 1
        103  c1  INFO l                          => 1/1 ttl 1000 waiters 0
        104  c2  AWAIT l BLOCK 0                 => parked
        # Without the alarm the next call finds what is due.
       1104  c1  COUNTDOWN l                     => 0; c2 gets BROKEN
       1105  c1  INIT l 3 PX 50                  => 1
       1160  c1  INIT l 1                        => 1
       1160  c1  INFO l                          => 1/1 ttl - waiters 0
    ");
}

#[test]
fn every_request_id_is_remembered_until_it_opens() {
    let mut script = String::from("0 c1 INIT l 300 => 1\n");
    for n in 1..=200 {
        writeln!(script, "0 c1 COUNTDOWN l REQID r{n} => {}", 300 - n).expect("text");
    }
    script += "
          1  c2  COUNTDOWN l REQID r1            => 100
          2  c2  COUNTDOWN l 7 REQID r77         => 100
          3  failover
          4  c2  COUNTDOWN l REQID r2            => 100
          5  restart
          6  c2  COUNTDOWN l REQID r3            => 100
          7  restart rdb
          8  c2  COUNTDOWN l REQID r200          => 100
          9  c2  COUNTDOWN l 99 REQID q          => 1
         10  c2  COUNTDOWN l 99 REQID q          => 1
         11  c2  COUNTDOWN l REQID p             => 0
        # A repeat finds it open, and a new one has seen nothing.
         12  c2  COUNTDOWN l REQID p             => 0
         13  c2  INIT l 2                        => 1
         14  c2  COUNTDOWN l REQID r1            => 1
    ";
    run(&script);
}

#[test]
fn await_waits_only_where_the_server_can() {
    run("
          0  c1  INIT l 1                        => 1
          1  m2  AWAIT l BLOCK 50                => null
          2  s   AWAIT l BLOCK 50                => null
          3  c2  AWAIT l BLOCK 50                => parked
          4  withdraw c2
          4  c1  INFO l                          => 1/1 ttl - waiters 0
          5  c2  AWAIT l BLOCK 50                => parked
          6  abandoned c2
          6  c1  INFO l                          => 1/1 ttl - waiters 0
          7  c2  AWAIT l BLOCK 0                 => parked
          8  c9  UNBLOCK 2                       => 1; c2 gets null
          9  c2  AWAIT l BLOCK 0                 => parked
         10  c9  UNBLOCK 2 ERROR                 => 1; c2 gets STOPPED
    ");
}

#[test]
fn on_a_replica_it_shows_what_is_known_and_does_not_wait() {
    run("
          0  c1  INIT l 2 PX 100                 => 1
          1  c2  AWAIT l BLOCK 0                 => parked
         10  r   INFO l                          => 2/2 ttl 90 waiters 0
         10  r   AWAIT l BLOCK 50                => null
         10  r   WAITERS l                       => nobody
         11  c1  COUNTDOWN l                     => 1
         12  r   INFO l                          => 1/2 ttl 88 waiters 0
        100  r   INFO l                          => null
        100  r   AWAIT l                         => BROKEN
        101  tick                                => c2 gets BROKEN
    ");
}

#[test]
fn waiters_are_limited() {
    run("
          0  set max-waiters-per-key 2
          0  c1  INIT l 1                        => 1
          1  c2  AWAIT l BLOCK 0                 => parked
          2  c3  AWAIT l BLOCK 0                 => parked
          3  c4  AWAIT l BLOCK 0                 => LIMIT
          3  c4  AWAIT l                         => null
          4  c1  COUNTDOWN l                     => 0; c2 gets 1; c3 gets 1
    ");
}

#[test]
fn if_it_is_deleted_waiters_get_broken() {
    run("
          0  c1  INIT l 1                        => 1
          1  c2  AWAIT l BLOCK 0                 => parked
          2  del l                               => c2 gets BROKEN
          3  c1  INIT l 1                        => 1
          4  c2  AWAIT l BLOCK 0                 => parked
          5  flushall                            => c2 gets BROKEN; dlock:notify: flushed 0
          6  c1  INIT l 1                        => 1
          7  c2  AWAIT l BLOCK 0                 => parked
          8  over l                              => c2 gets BROKEN
          9  c2  AWAIT l                         => WRONGTYPE
          9  c2  AWAIT l BLOCK 0                 => WRONGTYPE
          9  c2  COUNTDOWN l                     => WRONGTYPE
          9  c2  INIT l 1                        => WRONGTYPE
          9  c2  INFO l                          => WRONGTYPE
          9  c2  WAITERS l                       => WRONGTYPE
         10  del l
        # Also where it may have moved: its absence would look as if it had opened.
         11  set cluster 1
         12  c1  INIT l 1                        => 1
         13  c2  AWAIT l BLOCK 0                 => parked
         14  del l                               => c2 gets BROKEN
         15  c1  INIT l 1                        => 1
         16  c2  AWAIT l BLOCK 0                 => parked
         17  slot-lost l                         => c2 gets MOVING
    ");
}

/// A client that lost its connection, or asks from time to time, would take its absence for its opening.
#[test]
fn after_its_loss_it_is_broken_for_those_who_ask_later() {
    run("
          0  set request-memory-ms 100
          0  c1  INIT l 1                        => 1
          1  del l
          2  c2  AWAIT l                         => BROKEN
          2  c2  AWAIT l BLOCK 0                 => BROKEN
          2  c2  COUNTDOWN l                     => 0
          2  c2  INFO l                          => null
          3  failover
          4  c2  AWAIT l                         => BROKEN
        # Until it is closed again, or for as long as requests are remembered.
          5  c1  INIT l 1                        => 1
          6  c1  COUNTDOWN l                     => 0
          7  c2  AWAIT l                         => 1
          8  c1  INIT l 1 PX 10                  => 1
         20  tick
         21  c2  AWAIT l                         => BROKEN
         22  failover
         23  c2  AWAIT l                         => BROKEN
        200  tick
        200  c2  AWAIT l                         => 1
        201  c1  INIT l 1                        => 1
        # After a flush no latch is known, and one that was never closed is open.
        202  flushall                            => dlock:notify: flushed 0
        203  c2  AWAIT l                         => 1
        204  c2  AWAIT m                         => 1
    ");
}

#[test]
fn it_moves_with_its_time_and_leaves_waiters() {
    run("
          0  c1  INIT l 2 PX 100                 => 1
          0  c1  COUNTDOWN l REQID r             => 1
          1  c2  AWAIT l BLOCK 0                 => parked
          2  rename l m                          => c2 gets BROKEN
          3  c1  INFO m                          => 1/2 ttl 97 waiters 0
          4  c2  AWAIT m BLOCK 0                 => parked
          5  c1  COUNTDOWN m REQID r             => 1
          6  move m 1                            => c2 gets BROKEN
          7  db 1
          8  c2  AWAIT m BLOCK 0                 => parked
          9  swapdb 0 1                          => c2 gets BROKEN
         10  db 0
         10  c1  INFO m                          => 1/2 ttl 90 waiters 0
         11  c2  AWAIT m BLOCK 0                 => parked
        101  tick                                => c2 gets BROKEN
    ");
    // Over another latch.
    run("
          0  c1  INIT l 2                        => 1
          0  c1  INIT m 1                        => 1
          1  c2  AWAIT m BLOCK 0                 => parked
          2  rename l m                          => c2 gets BROKEN
          3  c2  AWAIT m BLOCK 0                 => parked
          4  c1  COUNTDOWN m 2                   => 0; c2 gets 1
    ");
}

#[test]
fn a_failover_gives_its_time_in_full_and_ends_waits() {
    run("
          0  c1  INIT l 3 PX 1000                => 1
          0  c1  INIT m 3                        => 1
          1  c1  COUNTDOWN l REQID r             => 2
          2  c2  AWAIT l BLOCK 0                 => parked
        900  failover                            => c2 gets MOVING
        900  c1  INFO l                          => 2/3 ttl 1000 waiters 0
        901  c1  COUNTDOWN l REQID r             => 2
        902  c2  AWAIT l BLOCK 0                 => parked
       1899  tick
       1901  tick                                => c2 gets BROKEN
       1902  c1  INFO m                          => 3/3 ttl - waiters 0
    ");
}

#[test]
fn a_restart_never_ends_it_early() {
    for restart in ["restart", "restart rdb"] {
        run(&format!(
            "
          0  c1  INIT l 3 PX 1000                => 1
          1  c1  COUNTDOWN l                     => 2
        500  {restart}
        501  tick
        999  tick
        999  c1  AWAIT l                         => null
       1501  tick
       1501  c1  AWAIT l                         => BROKEN
        "
        ));
    }
}

#[test]
fn a_quarantine_does_not_concern_it() {
    run("
          0  set quarantine 100
          0  c1  INIT l 1                        => 1
          1  failover
          2  c2  AWAIT l BLOCK 0                 => parked
          3  c1  COUNTDOWN l                     => 0; c2 gets 1
          4  c1  INIT l 1                        => 1
    ");
}

#[test]
fn a_pause_puts_its_time_off_and_block_runs_on() {
    run("
          0  c1  INIT l 1 PX 100                 => 1
          1  c2  AWAIT l BLOCK 200               => parked
          1  c3  AWAIT l BLOCK 0                 => parked
         60  pause
        160  tick shut
        160  c1  INFO l                          => 1/1 ttl 40 waiters 2
        202  tick shut                           => c2 gets null
        260  resume
        261  tick
        301  tick                                => c3 gets BROKEN
    ");
}

#[test]
fn behind_a_shut_gate_it_is_not_removed() {
    run("
          0  c1  INIT l 1 PX 100                 => 1
          1  c2  AWAIT l BLOCK 0                 => parked
        150  tick shut
        150  c1  INFO l                          => null
        160  tick                                => c2 gets BROKEN
    ");
}

#[test]
fn keyspace_events_tell_what_happened() {
    run("
          0  events
          0  c1  INIT l 2 PX 50                  => 1
          1  c2  AWAIT l BLOCK 0                 => parked +wait
          2  c1  COUNTDOWN l REQID r             => 1 +release
          3  c1  COUNTDOWN l REQID r             => 1
         52  tick                                => c2 gets BROKEN +expire
         53  c1  INIT l 1                        => 1
         54  c1  COUNTDOWN l                     => 0 +release
    ");
}

#[test]
fn a_restored_latch_has_what_was_dumped() {
    run("
          0  c1  INIT l 3 PX 1000                => 1
          0  c1  COUNTDOWN l REQID r             => 2
        500  restore l m
        500  c1  INFO m                          => 2/3 ttl 500 waiters 0
        501  c1  COUNTDOWN m REQID r             => 2
       1501  tick
       1501  c1  INFO m                          => null
    ");
}

#[test]
fn it_keeps_the_time_to_live_of_its_key() {
    run("
          0  c1  INIT l 2                        => 1
          1  ttl l
          2  c1  COUNTDOWN l                     => 1
          2  ttls l
          3  c1  COUNTDOWN l                     => 0
          3  ttls
    ");
}

#[test]
fn a_replica_that_hears_late_of_a_removal_does_not_take_the_next_latch_for_the_lost_one() {
    run_here(
        "
          0  c1  INIT k 1                            => 1
          1  del k unheard
          1  c1  INIT k 1                            => 1
          1  c1  COUNTDOWN k                         => 0
          2  c2  AWAIT k                             => 1
          2  removals-heard
          4  failover
          5  c2  AWAIT k                             => 1
        ",
    );
}

#[test]
fn the_await_that_finds_the_time_to_live_over_gets_broken() {
    run_here(
        "
          0  c1  INIT k 1                            => 1
          1  del k unheard
          1  c2  AWAIT k                             => BROKEN
          1  removals-heard
          2  c2  AWAIT k                             => BROKEN
        ",
    );
}
