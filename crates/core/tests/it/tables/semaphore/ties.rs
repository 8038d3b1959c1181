//! BIND: permits that are bound to a connection.

use super::run;
use std::fmt::Write as _;

#[test]
fn bind_shortens_the_leases_of_permits_when_the_connection_closes() {
    run("
          0  c1  INIT s 4                        => 1
          0  c1  ACQUIRE s A BIND 0              => p1
          0  c1  ACQUIRE s A BIND 50 NOTIFY ch   => p2
          0  c1  ACQUIRE s A                     => p3
          0  c1  ACQUIRE s A PX 100 BIND 200 NOTIFY ch => p4
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  gone c1                             => c2 gets p5
          2  c2  PERMITS s                       => p2 A 1 50; p3 A 1 29998; p4 A 1 98; p5 B 1 30000
         53  tick                                => ch: disconnected 0 p2 1 A s
        # Never lengthened: then it is an expiry.
        101  tick                                => ch: expired 0 p4 1 A s
    ");
}

#[test]
fn renew_and_a_repeat_move_the_tie() {
    run("
          0  c1  INIT s 4                        => 1
          0  c1  ACQUIRE s A BIND 10             => p1
          0  c1  ACQUIRE s A BIND 10             => p2
          0  c1  ACQUIRE s A BIND 10 REQID r     => p3
          0  c1  ACQUIRE s A                     => p4
          1  c2  RENEW s $p1 BIND 20             => 1
          1  c2  RENEW s $p2                     => 1
          1  c2  ACQUIRE s A BIND 5 REQID r      => p3
          1  c2  RENEW s $p4 BIND 0              => 1
          2  gone c1
          2  c3  PERMITS s                       => p1 A 1 29999; p2 A 1 29999; p3 A 1 29999; p4 A 1 29999
          3  gone c2
          3  c3  PERMITS s                       => p1 A 1 20; p2 A 1 29998; p3 A 1 10; p4 A 1 29998
         30  tick
         30  c3  PERMITS s                       => p2 A 1 29971; p4 A 1 29971
    ");
}

#[test]
fn the_binding_of_a_waiter_follows_the_grant_and_its_copy() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B BLOCK 0 BIND 0      => parked
          2  c1  RELEASE s $p1                   => 0; c2 gets p2
          3  c3  ACQUIRE s C QUEUE 100 BIND 10   => null
          4  gone c2                             => dlock:notify:C: granted 0 p3 1 C s
          5  c4  ACQUIRE s C BIND 10             => p3
          6  gone c3
          6  c5  PERMITS s                       => p3 C 1 29999
          7  gone c4
          7  c5  PERMITS s                       => p3 C 1 10
    ");
}

#[test]
fn all_leases_of_many_bindings_of_one_connection_are_shortened() {
    let mut script = String::from("0 c1 INIT s 300 => 1\n0 c2 ACQUIRE s B => p1\n");
    for n in 2..=200 {
        let _ = writeln!(script, "0 c1 ACQUIRE s A BIND 0 => p{n}");
    }
    script += "
          1  gone c1
          2  tick
          2  c2  INFO s                          => capacity 300 available 299 leased 1 taken 0 waiters 0
          2  c2  PERMITS s                       => p1 B 1 29998
    ";
    run(&script);
}
