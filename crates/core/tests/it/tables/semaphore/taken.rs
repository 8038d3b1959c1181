//! Permits without an owner: TAKE, GIVE, DRAIN, and repeats of their requests.

use super::run;
use crate::support::{MS, World};
use dlock_core::ports::turn::Caller;
use dlock_core::tables::settings::Settings;
use dlock_wire::request::{Give, Op, SemInit, SemOp, Take};

#[test]
fn taken_permits_have_no_lease_and_are_given_back() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  TAKE s                    => taken
          2  c1  TAKE s 2                  => taken
          3  c2  TAKE s 3                  => null
          3  c2  INFO s                    => capacity 5 available 2 leased 0 taken 3 waiters 0
          3  c2  PERMITS s
          4  c2  DRAIN s                   => 2
          5  c2  DRAIN s                   => 0
          6  c2  TAKE s                    => null
     900000  tick
     900000  c2  INFO s                    => capacity 5 available 0 leased 0 taken 5 waiters 0
     900001  c2  GIVE s                    => 1
     900002  c3  GIVE s 3                  => 4
     900003  c3  GIVE s 2                  => LIMIT
     900003  c3  GIVE s                    => 5
     900004  c3  GIVE s                    => LIMIT
    ");
}

#[test]
fn leased_permits_are_not_given_back_by_give() {
    run("
          0  c1  INIT s 2                  => 1
          1  c1  ACQUIRE s A               => p1
          2  c1  GIVE s                    => LIMIT
          3  c1  TAKE s                    => taken
          4  c1  GIVE s 2                  => LIMIT
          5  c1  RELEASE s $p1             => 1
          6  c1  GIVE s                    => 2
    ");
}

#[test]
fn take_waits_in_the_queue_and_overtakes_no_waiter() {
    run("
          0  c1  INIT s 2                  => 1
          0  c1  TAKE s 2                  => taken
          1  c2  TAKE s 2 BLOCK 0          => parked
          2  c3  TAKE s BLOCK 0            => parked
          3  c4  GIVE s                    => 1
          4  c4  TAKE s                    => null
          4  c4  DRAIN s                   => 0
          5  c4  GIVE s                    => 0; c2 gets taken
          6  c4  GIVE s 2                  => 1; c3 gets taken
          7  c4  DRAIN s                   => 1
    ");
}

#[test]
fn take_has_no_owner_and_no_place_of_its_own() {
    run("
          0  c1  INIT s 1                  => 1
          0  c1  TAKE s                    => taken
          0  c2  ACQUIRE s A BLOCK 100     => parked
          1  c3  TAKE s BLOCK 100          => parked
          2  c4  TAKE s BLOCK 100          => parked
          3  c1  WAITERS s                 => A 2 3 97 [];  3 2 98 [];  4 1 99 []
          3  c9  RELEASE s A ALL           => null; c2 gets null
          4  c1  GIVE s                    => 0; c3 gets taken
        103  tick                          => c4 gets null
    ");
}

#[test]
fn a_repeat_is_answered_as_before_and_counts_nothing() {
    run("
          0  c1  INIT s 5                  => 1
          1  c1  TAKE s 2 REQID a          => taken
          2  c2  TAKE s 2 REQID a          => taken
          2  c2  TAKE s 2 REQID a BLOCK 0  => taken
          3  c2  DRAIN s REQID b           => 3
          4  c3  DRAIN s REQID b           => 3
          5  c3  GIVE s 4 REQID c          => 4
          6  c3  GIVE s 4 REQID c          => 4
          7  c3  DRAIN s REQID d           => 4
          8  c3  DRAIN s REQID d           => 4
          9  c3  RESIZE s BY 2 REQID e     => 2
         10  c3  RESIZE s BY 2 REQID e     => 2
         11  c3  INFO s                    => capacity 7 available 2 leased 0 taken 5 waiters 0
        # Of what can be had, a repeat tells what it is now.
         12  c3  TAKE s                    => taken
         13  c3  GIVE s 4 REQID c          => 1
         14  c3  RESIZE s BY 2 REQID e     => 1
        # One that came to nothing counts for nothing.
         15  c3  TAKE s 2 REQID f          => null
         16  c3  GIVE s 2                  => 3
         17  c3  TAKE s 2 REQID f          => taken
         18  c3  TAKE s 2 REQID f          => taken
         19  c3  GIVE s 7 REQID g          => LIMIT
         20  c3  GIVE s 6 REQID g          => 7
    ");
}

#[test]
fn a_retry_of_a_waiting_take_takes_once() {
    run("
          0  c1  INIT s 3                  => 1
          0  c1  TAKE s 3                  => taken
          1  c2  TAKE s BLOCK 0 REQID r    => parked
          2  c3  TAKE s BLOCK 0 REQID r    => parked
          3  c4  ACQUIRE s A BLOCK 0       => parked
        # The retry costs nothing, so the one behind it is served, too.
          4  c1  GIVE s 2                  => 0; c2 gets taken; c3 gets taken; c4 gets p1
          5  c5  TAKE s REQID r            => taken
          6  c1  INFO s                    => capacity 3 available 0 leased 1 taken 2 waiters 0
    ");
    run("
          0  c1  INIT s 1                  => 1
          0  c1  TAKE s                    => taken
          1  c2  TAKE s BLOCK 0 REQID r    => parked
          2  gone c2
          3  c1  GIVE s                    => 1
          4  c3  TAKE s REQID r            => taken
          5  c1  INFO s                    => capacity 1 available 0 leased 0 taken 1 waiters 0
    ");
}

#[test]
fn a_take_that_waited_counts_as_one_grant() {
    let mut world = World::new(Settings::default(), 1_000_000 * MS);
    let mut asks = |client, op| {
        let caller = Caller { client, db: 0, may_block: true };
        let _ = world.call(caller, Op::Sem(op));
        let counters = &world.machine.tables().counters;
        (counters.grants_at_once, counters.grants_after_waiting)
    };
    let take = SemOp::Take(Take { key: b"s", n: 1, block_ms: Some(0), reqid: None });
    let give = SemOp::Give(Give { key: b"s", n: 1, reqid: None });
    assert_eq!(asks(1, SemOp::Init(SemInit { key: b"s", permits: 1 })), (0, 0));
    assert_eq!(asks(1, take), (1, 0));
    assert_eq!(asks(2, take), (1, 0));
    assert_eq!(asks(1, give), (1, 1));
}
