//! The verbs of operators: BREAK, RELEASE of a wait, UNBLOCK.

use super::{run, run_here};

#[test]
fn break_ends_one_permit_of_any_owner() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A NOTIFY ch           => p1
          0  c1  ACQUIRE s A                     => p2
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0     => parked
          2  c9  BREAK s $p1                     => 1; ch: broken 0 p1 1 A s
          3  c9  BREAK s $p1                     => 0
          4  c9  BREAK s $p2                     => 1; c2 gets p3
    ");
}

#[test]
fn a_broken_permit_is_not_followed_by_lock_delay() {
    run_here(
        "
          0  set lock-delay 100
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c9  BREAK s $p1                     => 1
          2  c1  ACQUIRE s A PX 10               => p2
         13  c1  ACQUIRE s A BIND 0              => p3
         14  gone c1
         15  c2  ACQUIRE s A                     => p4
    ",
    );
}

#[test]
fn release_leaves_the_queue_or_gives_back() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c3  ACQUIRE s C QUEUE 50            => null
          3  c4  ACQUIRE s D COUNT 2 QUEUE 50    => null
          4  c9  RELEASE s B ALL                 => null; c2 gets null
          5  c9  RELEASE s B ALL                 => NOTHELD
          6  c9  RELEASE s C ALL                 => null
          7  c9  RELEASE s A REQID r             => UNKNOWN
          8  c1  RELEASE s $p1                   => 0; dlock:notify:D: granted 0 p4 1 D s
          9  c5  ACQUIRE s E BLOCK 0             => parked
         10  c9  RELEASE s D ALL                 => 1; c5 gets p5
         11  c9  RELEASE s E REQID r             => UNKNOWN
    ");
}

#[test]
fn release_of_a_wide_request_lets_narrow_ones_in() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0     => parked
          2  c3  ACQUIRE s C BLOCK 0             => parked
          3  c9  RELEASE s B ALL                 => null; c2 gets null; c3 gets p3
    ");
}

#[test]
fn unblock_ends_a_blocked_call_with_null_or_an_error() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c3  TAKE s BLOCK 0                  => parked
          3  c4  ACQUIRE s D BLOCK 0 QUEUE 90    => parked
          4  c9  UNBLOCK 2                       => 1; c2 gets null
          5  c9  UNBLOCK 3 ERROR                 => 1; c3 gets STOPPED
          6  c9  UNBLOCK 4                       => 1; c4 gets null
          7  c9  UNBLOCK 4                       => 0
          8  c9  WAITERS s                       => D 4 5 - []
    ");
}
