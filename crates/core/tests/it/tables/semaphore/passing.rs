//! LIMIT: semaphores that are made on first use and removed when they are not needed any more.

use super::run;

#[test]
fn it_is_made_on_first_use_and_goes_with_its_last_permit() {
    run("
          0  c1  ACQUIRE s A LIMIT 2       => p1
          0  c1  INFO s                    => capacity 2 available 1 leased 1 taken 0 waiters 0
        # On one that is there LIMIT is ignored.
          1  c1  ACQUIRE s A LIMIT 9 COUNT 3 => LIMIT
          1  c1  ACQUIRE s A LIMIT 9       => p3
          2  c1  ACQUIRE s A LIMIT 9       => null
          3  c1  RELEASE s $p1             => 1
          4  c1  RELEASE s $p3             => 2
          4  c1  INFO s                    => null
          5  c1  RESIZE s 3                => ERR
          6  c1  ACQUIRE s A LIMIT 3 PX 50 => p5
         57  tick
         57  c1  INFO s                    => null
         58  c1  ACQUIRE s A LIMIT 3 COUNT 3 => p6
         59  c1  BREAK s $p6               => 1
         60  c1  INFO s                    => null
    ");
}

#[test]
fn limit_on_one_made_by_init_is_ignored() {
    run("
          0  c1  INIT s 2                  => 1
          1  c1  ACQUIRE s A LIMIT 1 COUNT 2 => p1
          2  c1  RELEASE s $p1             => 2
          2  c1  INFO s                    => capacity 2 available 2 leased 0 taken 0 waiters 0
    ");
}

#[test]
fn init_finds_it_and_leaves_it_as_it_is() {
    run("
          0  c1  ACQUIRE s A LIMIT 2       => p1
          1  c1  INIT s 5                  => 0
          2  c1  RESIZE s 5                => 4
          3  c1  RELEASE s $p1             => 5
          3  c1  INFO s                    => null
    ");
}

#[test]
fn it_stays_while_there_are_waiters_or_taken_permits() {
    run("
          0  c1  ACQUIRE s A LIMIT 2       => p1
          1  c2  ACQUIRE s B COUNT 2 BLOCK 0 => parked
          2  c1  RELEASE s $p1             => 0; c2 gets p2
          3  c3  TAKE s BLOCK 0            => parked
          4  c2  RELEASE s $p2             => 1; c3 gets taken
          5  c3  DRAIN s                   => 1
          6  c3  INFO s                    => capacity 2 available 0 leased 0 taken 2 waiters 0
          7  c3  GIVE s                    => 1
          8  c3  GIVE s                    => 2
          8  c3  INFO s                    => null
    ");
}

#[test]
fn it_is_removed_when_its_last_waiter_leaves() {
    // The waiter asks for more than there is. After a RESIZE that happens only with an unresponsive waiter, so this
    // test pauses the server.
    run("
          0  c1  ACQUIRE s A LIMIT 1 PX 50 => p1
          1  c2  ACQUIRE s B BLOCK 0       => parked
         60  tick shut
         61  gone c2
         62  tick
         62  c1  INFO s                    => null
    ");
    run("
          0  c1  ACQUIRE s A LIMIT 1 PX 50 => p1
          1  c2  ACQUIRE s B BLOCK 20      => parked
         30  tick                          => c2 gets null
         60  tick
         60  c1  INFO s                    => null
    ");
}

#[test]
fn earlier_waiters_are_served_before_the_call_that_makes_it() {
    run("
          0  c1  ACQUIRE s A BLOCK 0       => parked
          1  c2  ACQUIRE s B COUNT 4 BLOCK 0 => parked
          2  c3  TAKE s BLOCK 0            => parked
          3  c4  ACQUIRE s D LIMIT 3       => p3; c1 gets p1; c2 gets LIMIT; c3 gets taken
          4  c5  ACQUIRE s E LIMIT 3 BLOCK 0 => parked
    ");
    run("
          0  c1  ACQUIRE s A COUNT 2 BLOCK 0 => parked
          1  c4  ACQUIRE s D LIMIT 2 BLOCK 0 => parked; c1 gets p1
          2  c1  RELEASE s $p1             => 1; c4 gets p2
    ");
    run("
          0  c1  ACQUIRE s A COUNT 2 BLOCK 0 => parked
          1  c4  ACQUIRE s D LIMIT 2       => null; c1 gets p1
          1  c4  ACQUIRE s D LIMIT 2 COUNT 3 => LIMIT
    ");
}

#[test]
fn a_call_that_gets_nothing_makes_nothing() {
    run("
          0  c1  ACQUIRE s A LIMIT 2 COUNT 3 => LIMIT
          0  c1  INFO s                    => null
          1  c1  ACQUIRE s A LIMIT 2 COUNT 3 BLOCK 0 => LIMIT
          1  c1  INFO s                    => null
    ");
}

#[test]
fn one_that_exists_only_for_waiters_does_not_move_to_a_key_without_waiters() {
    let no_value = "4  c3  INFO s => capacity 0 available 0 leased 0 taken 0 waiters 1";
    for (happens, then) in [
        ("rename s x", "4  c3  INFO x => null"),
        ("swapdb 0 1", &format!("4  swapdb 0 1\n{no_value}")),
        ("slot-lost s", "4  c3  INFO s => null"),
    ] {
        run(&format!(
            "
          0  c1  ACQUIRE s A COUNT 3 LIMIT 4 => p1
          1  c2  ACQUIRE s B COUNT 3 LIMIT 4 QUEUE 5000 => null
          2  gone c2
          3  c1  RELEASE s $p1               => 4
          3  c3  INFO s                      => capacity 4 available 4 leased 0 taken 0 waiters 1
          4  {happens}
          4  tick
          {then}
    "
        ));
    }
}
