//! Hand-offs: waiters that they skip or refuse.

use crate::script::run_as;

#[test]
fn a_semaphore_that_comes_by_rename_refuses_calls_that_are_too_wide_wherever_they_are() {
    run_as(
        "DSEM",
        "
          0  c1  INIT z 2                     => 1
          0  c1  ACQUIRE z Z COUNT 2          => p1
          1  c2  ACQUIRE s B BLOCK 0          => parked
          1  c3  ACQUIRE s C COUNT 3 BLOCK 0  => parked
        # C is not the first waiter, and B is not granted now.
          2  rename z s                       => c3 gets LIMIT
          3  c1  RELEASE s $p1                => 1; c2 gets p2
        ",
    );
}

/// Waiters that do not count stand in front of those that do, and between them.
#[test]
fn one_release_serves_all_that_it_admits_past_those_that_do_not_count() {
    run_as(
        "DSEM",
        "
          0  c1  INIT s 3                          => 1
          0  c1  ACQUIRE s A COUNT 3               => p1
          1  c2  ACQUIRE s B QUEUE 60000           => null
          1  c2  ACQUIRE s C QUEUE 60000           => null
          1  c3  ACQUIRE s D BLOCK 0               => parked
          1  c2  ACQUIRE s E QUEUE 60000           => null
          1  c4  ACQUIRE s F BLOCK 0               => parked
          1  c2  ACQUIRE s G QUEUE 60000           => null
          1  c6  ACQUIRE s H BLOCK 0               => parked
          2  gone c2
          3  c1  RELEASE s $p1                     => 0; c3 gets p4; c4 gets p6; c6 gets p8
          4  c6  POSITION s G                      => 4
        ",
    );
}
