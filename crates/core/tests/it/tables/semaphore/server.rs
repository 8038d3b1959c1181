//! States of the server: roles, restarts, quarantine, a pause, a shut gate.

use super::run;

#[test]
fn after_a_failover_permits_have_their_lease_in_full_and_waits_are_over() {
    run("
          0  set grace 200
          0  c1  INIT s 6                        => 1
          0  c1  ACQUIRE s A PX 1000 REQID r NOTIFY ch => p1
          0  c1  ACQUIRE s A PX 5000 BIND 50     => p2
          0  c1  TAKE s 2 REQID q                => taken
          1  c2  ACQUIRE s B COUNT 3 BLOCK 0     => parked
          2  c3  TAKE s 3 BLOCK 0                => parked
          3  c4  ACQUIRE s D COUNT 3 QUEUE 100 PX 100   => null
        900  failover                            => c2 gets MOVING; c3 gets MOVING
        900  c1  INFO s                          => capacity 6 available 2 leased 2 taken 2 waiters 0
        900  c1  PERMITS s                       => p1 A 1 1000; p2 A 1 200
        901  c1  ACQUIRE s A REQID r PX 999      => p1
        901  c1  TAKE s 2 REQID q                => taken
       1101  tick
       1101  c1  PERMITS s                       => p1 A 1 799
       1901  tick                                => ch: expired 0 p1 1 A [r] s
       1902  c1  INFO s                          => capacity 6 available 4 leased 0 taken 2 waiters 0
    ");
}

#[test]
fn a_permit_bound_before_a_failover_can_be_bound_again() {
    run("
          0  set grace 200
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A BIND 50             => p1
          0  c1  ACQUIRE s A BIND 50             => p2
        100  failover
        110  c2  RENEW s $p1 BIND 50             => 1
        110  c2  RENEW s $p2                     => 1
        110  c2  PERMITS s                       => p1 A 1 30000; p2 A 1 30000
        301  tick
        301  c2  PERMITS s                       => p1 A 1 29809; p2 A 1 29809
        302  gone c2
        302  c3  PERMITS s                       => p1 A 1 50; p2 A 1 29808
    ");
}

#[test]
fn an_unclaimed_permit_survives_a_failover() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B QUEUE 100 PX 1000   => null
          2  c1  RELEASE s $p1                   => 0; dlock:notify:B: granted 0 p2 1 B s
         50  failover
         51  c1  PERMITS s                       => p2 B 1 999
         52  c2  ACQUIRE s B PX 700              => p2
         52  c1  PERMITS s                       => p2 B 1 998
    ");
}

#[test]
fn a_replica_ends_nothing_and_answers_readers() {
    run("
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A PX 100              => p1
          0  c1  TAKE s                          => taken
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0     => parked
         10  r   INFO s                          => capacity 3 available 1 leased 1 taken 1 waiters 0
         10  r   PERMITS s                       => p1 A 1 90
         10  r   POSITION s A                    => 0
         10  r   POSITION s B                    => null
         10  r   WAITERS s                       => nobody
        100  r   INFO s                          => capacity 3 available 2 leased 0 taken 1 waiters 0
        100  r   PERMITS s
        101  tick                                => c2 gets p2
        101  r   INFO s                          => capacity 3 available 0 leased 2 taken 1 waiters 0
        101  r   PERMITS s                       => p2 B 2 30000
    ");
}

#[test]
fn a_restart_keeps_permits_and_ends_none_early() {
    for restart in ["restart", "restart rdb"] {
        run(&format!("
          0  set grace 200
          0  c1  INIT s 9                        => 1
          0  c1  ACQUIRE s A COUNT 3 PX 1000 REQID r => p1
          0  c1  ACQUIRE s A BIND 50             => p2
          0  c1  TAKE s 2 REQID q                => taken
          0  c1  ACQUIRE t A LIMIT 1 PX 1000     => p3
        500  {restart}
        501  tick
        501  c1  INFO s                          => capacity 9 available 3 leased 4 taken 2 waiters 0
        501  c1  POSITION s A                    => 0
        502  c1  ACQUIRE s A COUNT 3 REQID r PX 998 => p1
        # A restart forgets what is over.
        503  c1  TAKE s 2 REQID q                => taken
        504  c1  GIVE s 4                        => 5
        800  tick
        800  c1  INFO s                          => capacity 9 available 6 leased 3 taken 0 waiters 0
        # Made by LIMIT, and still known to be.
        801  c1  BREAK t $p3                     => 1
        801  c1  INFO t                          => null
       1600  tick
       1600  c1  INFO s                          => capacity 9 available 9 leased 0 taken 0 waiters 0
        "));
    }
}

#[test]
fn in_quarantine_nothing_new_is_given_out_and_what_is_out_works() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A PX 1000 REQID r     => p1
          0  c1  TAKE s                          => taken
          0  set quarantine 100
          1  failover
          2  c1  ACQUIRE s A REQID r             => p1
          3  c1  RENEW s $p1 PX 500              => 1
        # All are out, so it is not only the quarantine.
          4  c2  ACQUIRE s B                     => null
          4  c2  TAKE s                          => null
          4  c2  DRAIN s                         => 0
          4  c2  ACQUIRE s B COUNT 3             => LIMIT
          5  c1  GIVE s                          => 1
          5  c2  ACQUIRE s B                     => QUARANTINE
          5  c2  ACQUIRE s B COUNT 2             => null
          5  c2  TAKE s                          => QUARANTINE
          5  c2  TAKE s 2                        => null
          5  c2  DRAIN s                         => QUARANTINE
          6  c1  RELEASE s $p1                   => 2
          7  c2  ACQUIRE s B                     => QUARANTINE
          7  c2  TAKE s                          => QUARANTINE
          8  c2  ACQUIRE s B BLOCK 0             => parked
          9  c3  TAKE s BLOCK 50                 => parked
         10  c4  INIT t 1                        => 1
         10  c4  ACQUIRE t D                     => QUARANTINE
         11  c4  ACQUIRE u D                     => null
         11  c4  TAKE u                          => null
         11  c4  ACQUIRE u D LIMIT 2             => QUARANTINE
         11  c4  INFO u                          => null
         12  c4  ACQUIRE u D LIMIT 2 BLOCK 0     => parked
         12  c4  INFO u                          => capacity 0 available 0 leased 0 taken 0 waiters 1
         60  tick                                => c3 gets null
        101  tick                                => c2 gets p8; c4 gets p12
    ");
}

#[test]
fn a_pause_puts_leases_off_and_block_runs_on() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A PX 100              => p1
          1  c2  ACQUIRE s B BLOCK 200           => parked
          1  c3  ACQUIRE s C QUEUE 100           => null
         60  pause
        160  tick shut
        160  c1  PERMITS s                       => p1 A 1 40
        202  tick shut                           => c2 gets null
        260  resume
        261  tick
        261  c1  PERMITS s                       => p1 A 1 39
        301  tick                                => dlock:notify:C: granted 0 p3 1 C s
    ");
}

#[test]
fn behind_a_shut_gate_nothing_is_handed_on() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2 PX 100      => p1
          1  c2  ACQUIRE s B BLOCK 500           => parked
          2  c3  TAKE s BLOCK 50                 => parked
        150  tick shut                           => c3 gets null
        150  c1  INFO s                          => capacity 2 available 2 leased 0 taken 0 waiters 1
        150  c1  PERMITS s
        160  tick                                => c2 gets p2
        161  c1  INFO s                          => capacity 2 available 1 leased 1 taken 0 waiters 0
    ");
}

#[test]
fn a_call_in_quarantine_does_not_make_the_semaphore_of_a_waiter() {
    run("
          0  set quarantine 50
          0  c1  INIT o 1                        => 1
          3  failover
          5  c2  ACQUIRE s A LIMIT 3 BLOCK 0     => parked
          6  c3  TAKE s 5                        => null
          6  c1  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 1
         60  tick                                => c2 gets p1
         60  c3  TAKE s 5                        => LIMIT
    ");
}
