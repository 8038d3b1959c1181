//! RESIZE: more permits, and fewer than are out.

use super::run;

#[test]
fn the_size_is_set_or_changed() {
    run("
          0  c1  INIT s 3                  => 1
          1  c1  RESIZE s 5                => 5
          2  c1  RESIZE s BY -2            => 3
          3  c1  RESIZE s BY 1             => 4
          4  c1  INFO s                    => capacity 4 available 4 leased 0 taken 0 waiters 0
          5  c1  RESIZE s BY -4            => LIMIT
          5  c1  RESIZE s BY -40           => LIMIT
          5  c1  RESIZE s BY 2147483644    => LIMIT
          6  c1  INFO s                    => capacity 4 available 4 leased 0 taken 0 waiters 0
          7  c1  RESIZE s BY 2147483643    => 2147483647
          8  c1  RESIZE s 1                => 1
    ");
}

#[test]
fn more_permits_serve_the_waiters() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B BLOCK 0       => parked
          2  c3  TAKE s BLOCK 0            => parked
          3  c4  ACQUIRE s D BLOCK 0       => parked
          4  c9  RESIZE s 3                => 0; c2 gets p2; c3 gets taken
          5  c9  RESIZE s BY 2             => 1; c4 gets p3
    ");
}

#[test]
fn fewer_permits_than_are_out_come_in_as_they_come_back() {
    run("
          0  c1  INIT s 5                  => 1
          0  c1  ACQUIRE s A COUNT 2 PX 100 => p1
          0  c1  ACQUIRE s A COUNT 2       => p2
          0  c1  TAKE s                    => taken
          1  c9  RESIZE s 2                => -3
          1  c9  INFO s                    => capacity 2 available -3 leased 4 taken 1 waiters 0
          2  c2  ACQUIRE s B COUNT 2 BLOCK 0 => parked
          2  c2  ACQUIRE s C COUNT 3       => LIMIT
          2  c2  TAKE s                    => null
          2  c2  DRAIN s                   => 0
          3  c1  GIVE s                    => -2
        101  tick
        101  c9  INFO s                    => capacity 2 available 0 leased 2 taken 0 waiters 1
        102  c1  RELEASE s $p2             => 0; c2 gets p3
        103  c9  RESIZE s 1                => -1
        104  c2  RENEW s $p3               => 1
        105  c2  RELEASE s $p3             => 1
    ");
}

#[test]
fn waiters_that_have_become_too_wide_get_limit() {
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A COUNT 2       => p1
          1  c2  ACQUIRE s B COUNT 4 BLOCK 0 => parked
          2  c3  TAKE s 3 BLOCK 0          => parked
          3  c4  ACQUIRE s D COUNT 2 BLOCK 0 => parked
          4  c5  ACQUIRE s E COUNT 3 BLOCK 0 => parked
        # What they wanted goes to those who demand less.
          5  c9  RESIZE s 3                => 1; c2 gets LIMIT
          6  c9  RESIZE s BY 1             => 2
          7  c9  RESIZE s 2                => 0; c3 gets LIMIT; c5 gets LIMIT
          8  c1  RELEASE s $p1             => 0; c4 gets p3
    ");
    run("
          0  c1  INIT s 4                  => 1
          0  c1  ACQUIRE s A               => p1
          1  c2  ACQUIRE s B COUNT 4 BLOCK 0 => parked
          2  c3  ACQUIRE s C BLOCK 0       => parked
          3  c9  RESIZE s 3                => 1; c2 gets LIMIT; c3 gets p3
    ");
}

#[test]
fn a_repeat_gets_its_permits_also_when_there_are_fewer_now() {
    run("
          0  c1  INIT s 9                   => 1
          0  c1  ACQUIRE s A COUNT 5 REQID r => p1
          0  c1  TAKE s 4 REQID t           => taken
          1  c2  ACQUIRE s B COUNT 4 QUEUE 100 => null
          2  c1  GIVE s 4                   => 0; dlock:notify:B: granted 0 p2 1 B s
          3  c1  RESIZE s 3                 => -6
          4  c1  ACQUIRE s A COUNT 5 REQID r => p1
          4  c1  TAKE s 4 REQID t           => taken
          4  c1  ACQUIRE s A COUNT 5 REQID q => LIMIT
        # A grant that no request has reached is had already, too.
          5  c2  ACQUIRE s B COUNT 4        => p2
    ");
}
