//! Late copies of requests for several keys.

use crate::script::run;
use std::fmt::Write as _;

#[test]
fn calls_for_several_keys_are_over_at_each_of_them() {
    run("
          0  c1  MACQUIRE 2 k l A REQID m          => t1 t2
          1  c1  RELEASE k A REQID m               => 0
        # One of its holds has ended, the other is there: nothing is granted.
          2  c1  MACQUIRE 2 k l A REQID m          => SPENT
          3  c1  MACQUIRE 2 k l A REQID m BLOCK 0  => SPENT
          4  c1  INFO k                            => null
          5  c1  RELEASE l A                       => 0
          6  c1  ANYACQUIRE 2 k l A REQID n        => k t3
          7  c1  RELEASE k A                       => 0
          8  c1  ANYACQUIRE 2 k l A REQID n        => SPENT
          9  c1  ANYACQUIRE 2 l k A REQID n BLOCK 0 => SPENT
         10  c1  ACQUIRE k A REQID n               => SPENT
         11  c1  ACQUIRE l A REQID n               => t4
        # What is held answers before what is over.
         12  c1  ANYACQUIRE 2 k l A REQID n        => l t4
         13  failover
         14  c1  MACQUIRE 2 k l A REQID m          => SPENT
    ");
}

#[test]
fn a_late_mrelease_touches_nothing() {
    run("
          0  c1  MACQUIRE 3 k l m A REQID r        => t1 t2 t3
          1  c1  MRELEASE 3 k l m A REQID r        => 3
          2  c1  MACQUIRE 3 k l m A REQID s        => t4 t5 t6
          3  c2  MRELEASE 3 k l m A REQID r        => 3
          4  c2  MRELEASE 1 l A REQID r            => 1
          5  c2  RELEASE l A REQID r               => 0
          6  failover
          7  c2  MRELEASE 3 m l k A REQID r        => 3
          8  c2  MRENEW 3 k l m A                  => 3
          9  c2  MRELEASE 3 k l m A REQID s        => 3
    ");
}

#[test]
fn mrelease_works_on_every_key_and_tells_the_worst() {
    run("
          0  c1  MACQUIRE 4 k l m n A REQID r PX 50 => t1 t2 t3 t4
          1  c1  MRENEW 2 l m A PX 1000            => 2
          2  c1  RENEW n A PX 1000                 => t4
          3  c9  BREAK l                           => 1
         60  tick
        # One was lost by its lease, one to an operator, one never was there.
         61  c1  MRELEASE 5 k l m n x A REQID r    => LOST broken
         61  c1  MRENEW 1 m A                      => NOTHELD
         61  c1  MRENEW 1 n A                      => NOTHELD
        # A loss that was told stays told.
         62  c1  MRELEASE 5 k l m n x A REQID r    => LOST broken
         63  c1  MRELEASE 3 k m x A REQID r        => LOST expired
         64  c1  MRELEASE 2 m x A REQID r          => UNKNOWN
         65  c1  MRELEASE 2 m n A REQID r          => 2
         66  failover
         67  c1  MRELEASE 5 x k l m n A REQID r    => LOST broken
         68  c1  MACQUIRE 5 k l m n x A REQID r    => SPENT
         69  c1  ACQUIRE x A REQID r               => SPENT
    ");
    // Other reasons than an end by lease come first, in any order of keys.
    run("
          0  c1  MACQUIRE 2 k l A REQID r PX 50    => t1 t2
          1  del l
         60  tick
         61  c1  MRELEASE 2 k l A REQID r          => LOST deleted
         62  c1  MRELEASE 2 l k A REQID r          => LOST deleted
    ");
}

#[test]
fn mrelease_of_a_call_that_waits_ends_the_wait() {
    run("
          0  c1  ACQUIRE k X                       => t1
          1  c2  MACQUIRE 2 k l A REQID m BLOCK 0  => parked
          2  c9  MRELEASE 2 k l A REQID m          => null; c2 gets null
          3  c9  MRELEASE 2 l k A REQID m          => null
          4  c2  MACQUIRE 2 k l A REQID m BLOCK 0  => SPENT
          5  c2  ACQUIRE l A REQID m               => SPENT
        # A key more, of which it knows nothing.
          6  c2  MACQUIRE 2 k l A REQID n BLOCK 0  => parked
          7  c9  MRELEASE 3 k l x A REQID n        => UNKNOWN; c2 gets null
          8  c1  RELEASE k X                       => 0
    ");
}

#[test]
fn release_at_one_key_ends_the_wait_of_a_call_for_several() {
    run("
          0  c1  ACQUIRE k X                       => t1
          1  c2  MACQUIRE 2 k l A REQID m BLOCK 0  => parked
          2  c3  ACQUIRE l B BLOCK 0               => parked
          3  c9  RELEASE k A REQID m               => null; c2 gets null
          3  tick                                  => c3 gets t2
          4  c2  MACQUIRE 2 l k A REQID m BLOCK 0  => SPENT
          5  c9  MRELEASE 2 k l A REQID m          => UNKNOWN
    ");
    run("
          0  c1  MACQUIRE 2 k l X                  => t1 t2
          1  c2  ANYACQUIRE 2 k l A REQID m BLOCK 0 => parked
          2  c9  RELEASE l A REQID m               => null; c2 gets null
          3  c2  ANYACQUIRE 2 k l A REQID m BLOCK 0 => SPENT
          4  c2  ANYACQUIRE 2 k l A REQID n BLOCK 0 => parked
          5  c9  MRELEASE 2 k l A REQID n          => null; c2 gets null
          6  c1  MRELEASE 2 k l X                  => 2
    ");
}

#[test]
fn of_an_anyacquire_the_granted_key_is_released() {
    run("
          0  c1  ANYACQUIRE 2 k l A REQID m        => k t1
          1  c1  RELEASE k A REQID m               => 0
          2  c1  RELEASE k A REQID m               => 0
          3  c1  ANYACQUIRE 2 k l A REQID m        => SPENT
    ");
}

#[test]
fn a_key_without_room_for_an_id_refuses_the_whole_call() {
    let mut full = String::new();
    for n in 0..64 {
        let _ = writeln!(full, "0 c1 ACQUIRE k A REQID r{n} => t1");
    }
    let script = format!(
        "{full}
          1  c9  ACQUIRE m X                       => t2
          2  c2  MACQUIRE 2 l k A REQID m          => LIMIT
          2  c2  MACQUIRE 3 l m k A REQID m BLOCK 0 => LIMIT
          2  c2  INFO l                            => null
          2  c2  WAITERS m                         => nobody
        # One of the others is as good; of none, it would wait for its own owner.
          3  c2  ANYACQUIRE 2 k l A REQID n        => l t3
          4  c2  ANYACQUIRE 2 k m A REQID o BLOCK 0 => LIMIT
        # A copy is not new, and neither is a call without an id.
          5  c2  MACQUIRE 2 k l A REQID r3         => t1 t3
          6  c2  MACQUIRE 2 k l A                  => t1 t3
    "
    );
    run(&script);
    // The room was there when it began to wait.
    let script = format!(
        "{full}
          1  c1  RELEASE k A REQID r0              => 63
          2  c9  ACQUIRE m X                       => t2
          3  c2  MACQUIRE 2 k m A REQID m BLOCK 0  => parked
          4  c1  ACQUIRE k A REQID more            => t1
          5  c9  RELEASE m X                       => 0; c2 gets LIMIT
          6  c9  WAITERS k                         => nobody
          7  c9  INFO m                            => null
    "
    );
    run(&script);
}
