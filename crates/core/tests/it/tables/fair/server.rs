//! The queue survives failover and restart; pauses, quarantine and a shut gate.

use super::run;

#[test]
fn a_queue_survives_a_failover_with_a_grace_for_each_place() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A PX 1000                => t1
          1  c2  ACQUIRE k B BLOCK 0 LABEL b        => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  c5  ACQUIRE k E BLOCK 0                => parked
          5  gone c5
         50  failover                               => c2 gets MOVING; c4 gets MOVING
         50  c1  INFO k                             => [A] t1 holds 1 lease 1000 ttl 1000 held 50 [] bound 0 waiters 4
         50  c1  POSITION k D                       => 3
         51  tick
         51  c1  WAITERS k                          => B 0 50 100 [b]; C 0 49 50 []; D 0 48 100 []; E 0 47 100 []
         60  c4  ACQUIRE k D BLOCK 0                => parked
         70  c2  ACQUIRE k B BLOCK 0                => parked
        101  tick
        101  c1  WAITERS k                          => B 2 100 - []; D 4 98 - []; E 0 97 50 []
        120  c1  RELEASE k A                        => 0; c2 gets t2
        121  c2  RELEASE k B                        => 0; c4 gets t3
        122  c4  RELEASE k D                        => 0
        122  c1  POSITION k E                       => 0
        150  c5  ACQUIRE k E                        => t4
    ");
}

#[test]
fn a_failover_without_an_alarm_is_seen_by_the_next_call() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A PX 30                  => t1
          1  c2  ACQUIRE k B BLOCK 0 NOTIFY ch      => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
         10  failover                               => c2 gets MOVING; c3 gets MOVING
         20  c3  ACQUIRE k C BLOCK 0                => parked
         20  c3  WAITERS k                          => B 0 19 100 []; C 3 18 - []
         # The lease counts in full from the promotion.
         39  c3  CHECK k $t1                        => 1
         41  tick                                   => ch: offered 0 t2 1 B k
        121  tick                                   => c3 gets t3; ch: expired 0 t2 1 B k
    ");
}

#[test]
fn a_queue_survives_a_restart() {
    for restart in ["restart", "restart rdb"] {
        run(&format!(
            "
          0  set grace 100
          0  c1  ACQUIRE k A                                => t1
          1  c2  ACQUIRE k B BLOCK 0 PX 700 REQID r NOTIFY ch LABEL b BIND 60 => parked
          2  c3  ACQUIRE k C QUEUE 50                       => null
          3  c4  ACQUIRE k D BLOCK 0                        => parked
          4  gone c4
         50  {restart}
         50  tick
         51  c1  WAITERS k                          => B 0 50 99 [b]; C 0 49 49 []; D 0 48 99 []
         90  c4  ACQUIRE k D BLOCK 0                => parked
        101  tick
        110  c1  RELEASE k A                        => 0; ch: offered 0 t2 1 B [r] k
        110  c1  INFO k                             => [B] t2 holds 1 lease 700 ttl 40 held 0 [b] bound 0 waiters 1
        120  c2  ACQUIRE k B BLOCK 0 REQID r BIND 60 => t2
        120  c1  INFO k                            => [B] t2 holds 1 lease 30000 ttl 30000 held 10 [b] bound 2 waiters 1
        121  c2  ACQUIRE k B BLOCK 0 REQID r        => t2
        122  c2  RELEASE k B                        => 0; c4 gets t3
        "
        ));
    }
}

#[test]
fn an_unclaimed_grant_survives_with_its_grace_in_full() {
    for change in ["failover", "restart"] {
        run(&format!(
            "
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 PX 1000        => parked
          2  c3  ACQUIRE k C QUEUE 300              => null
         10  gone c2
         60  c1  RELEASE k A                        => 0
         80  {change}
         81  tick
         81  c1  POSITION k B                       => 0
         81  c1  WAITERS k                          => C 0 79 300 []
        179  c2  ACQUIRE k B NOREENTRY              => t2
        180  c2  ACQUIRE k B NOREENTRY              => REENTRY
        "
        ));
    }
}

#[test]
fn graces_run_from_the_end_of_a_quarantine() {
    for change in ["failover => c2 gets MOVING", "restart", "restart rdb"] {
        run(&format!(
            "
          0  set grace 100
          0  set quarantine 200
          0  c1  ACQUIRE k A PX 1000                => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
         10  {change}
         11  tick
         11  c1  WAITERS k                          => B 0 10 299 []; C 0 9 249 []
         20  c1  RELEASE k A                        => 0
         21  c1  INFO k                             => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 2
         22  c4  ACQUIRE k D                        => QUARANTINE
         23  c2  ACQUIRE k B BLOCK 0                => parked
        211  tick                                   => c2 gets t2
        212  c2  RELEASE k B                        => 0; dlock:notify:C: offered 0 t3 1 C k
        261  tick                                   => dlock:notify:C: expired 0 t3 1 C k
        "
        ));
    }
}

#[test]
fn no_grace_runs_while_a_new_primary_takes_no_writes() {
    for change in ["failover => c2 gets MOVING", "restart"] {
        run(&format!(
            "
          0  set grace 100
          0  set quarantine 200
          0  c1  ACQUIRE k A PX 1000                => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
         10  {change}
         11  tick shut
        330  tick shut
        330  c1  POSITION k C                       => 2
        331  tick
        331  c1  WAITERS k                          => B 0 330 300 []; C 0 329 250 []
        "
        ));
    }
}

#[test]
fn a_place_lost_in_a_quarantine_has_its_grace_from_then_on() {
    run("
          0  set quarantine 100
          0  set grace 80
          0  failover
          1  tick
          2  c2  ACQUIRE k B BLOCK 0                => parked
          3  c3  ACQUIRE k C BLOCK 0                => parked
         50  gone c2
         50  c1  WAITERS k                          => B 0 48 80 []; C 3 47 - []
        101  tick
        101  c1  POSITION k B                       => 0
        131  tick                                   => c3 gets t1
    ");
}

#[test]
fn a_replica_shows_the_queue_that_it_would_serve() {
    run("
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0 LABEL b        => parked
          2  c3  ACQUIRE k C QUEUE 50               => null
          9  r   WAITERS k                          => B 0 8 - [b]; C 0 7 - []
          9  r   WAITERS k COUNT 1                  => B 0 8 - [b]
          9  r   POSITION k A                       => 0
          9  r   POSITION k C                       => 2
          9  r   POSITION k D                       => null
          9  r   INFO k                             => [A] t1 holds 1 lease 30000 ttl 29991 held 9 [] bound 0 waiters 2
         10  c2  UNBLOCK 2                          => 1; c2 gets null
         11  r   WAITERS k                          => C 0 9 - []
         12  c1  RELEASE k A                        => 0; dlock:notify:C: granted 0 t2 1 C k
         13  r   WAITERS k                          => nobody
         13  r   POSITION k C                       => 0
    ");
}

#[test]
fn a_pause_puts_graces_off_and_block_runs_on() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 150              => parked
         10  gone c2
         50  pause
        153  tick shut                              => c3 gets null
        250  tick shut
        250  c1  WAITERS k                          => B 0 249 60 []
        251  resume
        309  tick
        309  c1  POSITION k B                       => 1
        312  tick
        312  c1  POSITION k B                       => null
    ");
}

#[test]
fn behind_a_shut_gate_waits_end_and_are_written_off_later() {
    run("
          0  set grace 100
          0  c1  ACQUIRE k A PX 100                 => t1
          1  c2  ACQUIRE k B BLOCK 50               => parked
          2  c3  ACQUIRE k C BLOCK 0                => parked
          3  c4  ACQUIRE k D BLOCK 0                => parked
          4  gone c3
         52  tick shut                              => c2 gets null
         52  r   WAITERS k                          => B 0 51 - []; C 0 50 - []; D 0 49 - []
        110  tick shut
        110  c1  WAITERS k                          => D 4 107 - []
        111  tick                                   => c4 gets t2
        112  r   WAITERS k                          => nobody
    ");
}

#[test]
fn a_key_with_nothing_but_places_lasts_as_long_as_they_do() {
    run("
          0  set quarantine 100
          0  failover
          1  tick
          2  c2  ACQUIRE k B BLOCK 20               => parked
          3  r   WAITERS k                          => B 0 1 - []
         23  tick                                   => c2 gets null
        101  tick
        102  r   WAITERS k                          => nobody
        102  c2  ACQUIRE k B                        => t1
    ");
}
