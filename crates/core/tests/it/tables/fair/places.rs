//! Queue entries that outlive their connections by a grace.

use super::run;
use std::fmt::Write;

#[test]
fn a_place_outlives_its_connection_by_the_grace() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 LABEL b        => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
         10  gone c2
         10  c1  WAITERS k                          => B 0 9 100 [b]; C 3 8 - []
         60  c1  WAITERS k                          => B 0 59 50 [b]; C 3 58 - []
         60  c1  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29940 held 60 [] bound 0 waiters 2
        109  c1  POSITION k B                       => 1
        # What is due counts as ended before the alarm has rung.
        110  c1  POSITION k B                       => null
        110  c1  POSITION k C                       => 1
        110  c1  INFO k                            => [A] t1 holds 1 lease 30000 ttl 29890 held 110 [] bound 0 waiters 1
        111  tick
        112  c1  RELEASE k A                        => 0; c3 gets t2
    ");
}

#[test]
fn queue_counts_instead_of_the_grace_longer_or_shorter() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 50               => null
          1  c3  ACQUIRE k C BLOCK 0 QUEUE 300      => parked
          2  c4  ACQUIRE k D BLOCK 0                => parked
         10  gone c2
         10  gone c3
         10  gone c4
         10  c1  WAITERS k                          => B 0 9 50 []; C 0 9 300 []; D 0 8 100 []
         60  c1  WAITERS k                          => C 0 59 250 []; D 0 58 50 []
        111  tick
        111  c1  WAITERS k                          => C 0 110 199 []
        112  c1  RELEASE k A                        => 0; dlock:notify:C: offered 0 t2 1 C k
        112  c1  INFO k                             => [C] t2 holds 1 lease 30000 ttl 198 held 0 [] bound 0 waiters 0
    ");
}

#[test]
fn an_owner_that_asks_again_in_that_time_keeps_its_position() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
         10  gone c2
        109  c4  ACQUIRE k B BLOCK 500 LABEL new    => parked
        120  tick
        120  c1  WAITERS k                          => B 4 119 489 [new]; C 3 118 - []
        # The grace counts from the moment the connection was lost, each time.
        130  gone c4
        131  gone c3
        200  c5  ACQUIRE k B QUEUE 20               => null
        201  gone c5
        201  c1  WAITERS k                          => B 0 200 20 []; C 0 199 30 []
        # Too late: a new place at the end.
        222  tick
        222  c6  ACQUIRE k B BLOCK 0                => parked
        222  c1  WAITERS k                          => C 0 220 9 []; B 6 0 - []
    ");
}

#[test]
fn a_poll_without_block_or_queue_leaves_an_absent_place_alone() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 NOTIFY ch      => parked
         10  gone c2
         50  c4  ACQUIRE k B                        => null
         50  m4  ACQUIRE k B BLOCK 100              => null
         50  c1  WAITERS k                          => B 0 49 60 []
         60  c1  RELEASE k A                        => 0; ch: offered 0 t2 1 B k
         61  c4  ACQUIRE k B                        => t2
         61  c1  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 1 [] bound 0 waiters 0
    ");
}

#[test]
fn an_entry_without_a_connection_blocks_the_lock_for_the_rest_of_its_grace() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                                => t1
          1  c2  ACQUIRE k B BLOCK 0 PX 1000 NOTIFY ch      => parked
          2  c3  ACQUIRE k C BLOCK 0                        => parked
         10  gone c2
         60  c1  RELEASE k A                                => 0; ch: offered 0 t2 1 B k
         60  c1  INFO k                                  => [B] t2 holds 1 lease 1000 ttl 50 held 0 [] bound 0 waiters 1
         60  c1  POSITION k B                               => 0
        109  tick
        111  tick                                           => c3 gets t3; ch: expired 0 t2 1 B k
        112  c2  ACQUIRE k B                                => null
        # Claimed in time, it is a hold like any other.
        120  c4  ACQUIRE k D BLOCK 0 PX 1000 NOTIFY ch      => parked
        130  gone c4
        140  c3  RELEASE k C                                => 0; ch: offered 0 t4 1 D k
        200  c5  ACQUIRE k D NOREENTRY                      => t4
        201  c5  ACQUIRE k D NOREENTRY                      => REENTRY
        240  tick
        240  c5  RELEASE k D                                => 0
    ");
}

#[test]
fn a_place_without_queue_and_notify_sends_no_messages() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
         10  gone c2
         20  c1  RELEASE k A                        => 0
         20  c1  POSITION k B                       => 0
         50  c3  RENEW k B                          => t2
         51  c3  RELEASE k B                        => 0
         60  c1  ACQUIRE k A                        => t3
         61  c2  ACQUIRE k B BLOCK 0                => parked
         62  gone c2
         63  c1  RELEASE k A                        => 0
         63  c9  RELEASE k B                        => 0
         64  c1  INFO k                             => null
    ");
}

#[test]
fn many_dead_waiters_cost_one_grace() {
    let mut script = "
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
    "
    .to_owned();
    for n in 10..310 {
        let _ = writeln!(script, "1 c{n} ACQUIRE k W{n} BLOCK 0 => parked");
    }
    script.push_str("1 c2 ACQUIRE k B BLOCK 0 => parked\n");
    for n in 10..310 {
        // In turn, so that the first to close are the last in the queue.
        let _ = writeln!(script, "{} gone c{n}", 10 + (310 - n) / 10);
    }
    script = in_order_of_time(&script);
    script.push_str(
        "
         50  c1  RELEASE k A                        => 0
         50  c9  POSITION k B                       => 300
        139  tick
        141  tick                                   => c2 gets t2
        ",
    );
    // The unclaimed tokens were never shown, so t2 is the first one seen after t1.
    run(&script);
}

fn in_order_of_time(script: &str) -> String {
    let mut rows: Vec<&str> = script.lines().filter(|row| !row.trim().is_empty()).collect();
    rows.sort_by_key(|row| row.split_whitespace().next().and_then(|at| at.parse::<u64>().ok()));
    rows.join("\n") + "\n"
}

#[test]
fn a_waiter_without_queue_leaves_when_it_timed_out_or_was_unblocked() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 50               => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  c5  ACQUIRE k E BLOCK 60 QUEUE 100     => parked
          5  c6  ACQUIRE k F BLOCK 0                => parked
          6  c7  ACQUIRE k G BLOCK 0                => parked
         52  tick                                   => c2 gets null
         53  c9  UNBLOCK 3                          => 1; c3 gets null
         54  c9  UNBLOCK 4 ERROR                    => 1; c4 gets STOPPED
         55  abandoned c6
         56  withdraw c7
         57  c9  WAITERS k                          => E 5 53 7 []
         66  tick                                   => c5 gets null
         67  c9  WAITERS k                          => E 5 63 - []
         68  c9  RELEASE k E                        => null
         69  c9  WAITERS k                          => nobody
    ");
}

#[test]
fn a_retry_after_a_lost_connection_gets_the_grant_once() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                                => t1
          1  c2  ACQUIRE k B BLOCK 0 REQID r BIND 0         => parked
         10  gone c2
         20  c1  RELEASE k A                                => 0
         30  c3  ACQUIRE k B BLOCK 0 REQID r BIND 0         => t2
         31  c3  ACQUIRE k B BLOCK 0 REQID r BIND 0         => t2
         31  c3  INFO k                             => [B] t2 holds 1 lease 30000 ttl 30000 held 11 [] bound 3 waiters 0
         32  gone c3
         32  c1  INFO k                                     => null
    ");
}

#[test]
fn absent_places_count_as_waits_and_as_waiters() {
    run("
          0  set grace 100
          0  set max-waiters-per-key 2
          0  c1  ACQUIRE k A                        => t1
          0  c2  ACQUIRE l B                        => t2
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  gone c2
          3  gone c3
          4  c4  ACQUIRE k D BLOCK 0                => LIMIT
          5  c1  ACQUIRE l A BLOCK 50               => DEADLOCK
          5  c1  ACQUIRE l A                        => null
        104  tick
        104  c4  ACQUIRE k D BLOCK 0                => parked
        104  c1  ACQUIRE l A BLOCK 50               => parked
    ");
}
