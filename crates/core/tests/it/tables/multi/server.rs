//! States of the server: roles, restarts, quarantine, a pause, a shut gate.

use crate::script::run;

#[test]
fn a_failover_ends_the_wait_and_keeps_the_holds() {
    run("
          0  c1  ACQUIRE k X                     => t1
          0  c1  MACQUIRE 2 y z A REQID r PX 900 => t2 t3
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  c3  ANYACQUIRE 2 k l B BLOCK 0      => parked
        100  failover                            => c2 gets MOVING; c3 gets MOVING
        101  c1  MACQUIRE 2 y z A REQID r PX 900 => t2 t3
        101  c1  INFO y                          => [A] t2 holds 1 lease 900 ttl 900 held 101 [] bound 0 waiters 0
        102  c2  MACQUIRE 2 k l A                => null
        102  c2  MACQUIRE 2 m l A                => t4 t5
    ");
}

#[test]
fn a_restart_keeps_the_holds() {
    run("
          0  c1  MACQUIRE 2 k l A REQID r        => t1 t2
          1  restart
          2  c1  MACQUIRE 2 k l A REQID r        => t1 t2
          3  restart rdb
          4  c1  MRELEASE 2 k l A                => 2
    ");
}

#[test]
fn in_quarantine_it_waits_and_own_holds_work() {
    run("
          0  c1  MACQUIRE 2 k l A                => t1 t2
          0  c2  ACQUIRE m X                     => t3
          0  set quarantine 100
          1  failover
          2  c1  MACQUIRE 2 k l A                => t1 t2
          3  c1  MACQUIRE 2 k n A                => QUARANTINE
          3  c1  MACQUIRE 2 n m A                => null
          3  c1  ANYACQUIRE 2 n k A              => k t1
          3  c1  ANYACQUIRE 2 n z A              => QUARANTINE
          3  c1  ANYACQUIRE 2 n m A              => QUARANTINE
          4  c1  MRENEW 2 k l A                  => 2
          5  c3  MACQUIRE 2 k n A BLOCK 0        => parked
          6  c4  MACQUIRE 2 n z B BLOCK 50       => parked
          7  c5  ANYACQUIRE 2 z y C BLOCK 0      => parked
          8  c1  MRELEASE 2 k l A                => 2
         57  tick                                => c4 gets null
        102  tick                                => c3 gets t1 t4; c5 gets z t5
    ");
}

#[test]
fn a_pause_puts_leases_off_and_block_runs_on() {
    run("
          0  c1  MACQUIRE 2 k l X PX 100         => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 200      => parked
          2  c3  MACQUIRE 2 l k B BLOCK 0        => parked
         60  pause
        202  tick shut                           => c2 gets null
        260  resume
        261  tick
        299  c1  POSITION k X                    => 0
        301  tick                                => c3 gets t3 t4
    ");
}

#[test]
fn behind_a_shut_gate_nothing_is_handed_on() {
    run("
          0  c1  MACQUIRE 2 k l X PX 100         => t1 t2
          1  c2  MACQUIRE 2 k l A BLOCK 500      => parked
          2  c3  MACQUIRE 2 k m B BLOCK 50       => parked
        150  tick shut                           => c3 gets null
        150  c1  INFO k                          => [] - holds 0 lease 0 ttl 0 held 0 [] bound 0 waiters 1 reserved for A
        160  tick                                => c2 gets t3 t4
    ");
}

#[test]
fn a_replica_has_all_keys_or_none() {
    run("
          0  c1  ACQUIRE k X                     => t1
          1  c2  MACQUIRE 2 k l A BLOCK 0        => parked
          2  r   INFO l                          => null
          3  c1  RELEASE k X                     => 0; c2 gets t2 t3
          3  r   CHECK k $t2                     => 1
          3  r   CHECK l $t3                     => 1
    ");
}
