//! The verbs of operators: BREAK, RELEASE of a wait, UNBLOCK.

use crate::script::{run_both, run_here};

#[test]
fn break_ends_the_hold_of_any_owner() {
    run_both(
        "
          0  c1  ACQUIRE k A NOTIFY ch        => t1
          1  c1  ACQUIRE k A                  => t1
          2  c9  BREAK k                      => 1; ch: broken 0 t1 1 A k
          3  c9  BREAK k                      => 0
          4  c1  ACQUIRE k A                  => t2
          5  c2  ACQUIRE k B QUEUE 50         => null
          6  c9  BREAK k                      => 1; dlock:notify:B: granted 0 t3 1 B k
          7  c9  BREAK k                      => 1; dlock:notify:B: broken 0 t3 1 B k
    ",
    );
}

#[test]
fn release_leaves_the_queue_or_gives_back() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C QUEUE 50          => null
          3  c4  ACQUIRE k D QUEUE 50          => null
          4  c9  RELEASE k B                   => null; c2 gets null
          5  c9  RELEASE k B                   => NOTHELD
          6  c9  RELEASE k C                   => null
          7  c9  RELEASE k A REQID r           => UNKNOWN
          8  c1  RELEASE k A                   => 0; dlock:notify:D: granted 0 t2 1 D k
          9  c5  ACQUIRE k E BLOCK 0           => parked
         10  c9  RELEASE k D                   => 0; c5 gets t3
         11  c9  RELEASE k E REQID r           => UNKNOWN
    ",
    );
}

#[test]
fn unblock_ends_a_blocked_call_with_null_or_an_error() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C BLOCK 0           => parked
          3  c4  ACQUIRE k D BLOCK 0 QUEUE 90  => parked
          4  c5  ACQUIRE k E QUEUE 90          => null
          5  c9  UNBLOCK 2                     => 1; c2 gets null
          6  c9  UNBLOCK 3 ERROR               => 1; c3 gets STOPPED
          7  c9  UNBLOCK 4                     => 1; c4 gets null
          8  c9  UNBLOCK 4                     => 0
          9  c9  UNBLOCK 5                     => 0
         10  c9  UNBLOCK 77                    => 0
         11  c9  WAITERS k                     => D 4 8 - []; E 5 7 - []
    ",
    );
}

#[test]
fn a_call_that_the_server_unblocked_leaves_the_queue() {
    run_both(
        "
          0  c1  ACQUIRE k A                   => t1
          1  c2  ACQUIRE k B BLOCK 0           => parked
          2  c3  ACQUIRE k C BLOCK 0 QUEUE 50  => parked
          3  abandoned c2
          4  abandoned c3
          5  c1  WAITERS k                     => C 3 3 - []
    ",
    );
}

#[test]
fn unblock_finds_no_call_of_a_connection_that_is_gone() {
    let held = (0..70).fold(String::new(), |rows, n| {
        rows + &format!("0  c2  ACQUIRE b{n} v BIND 60000     => t{}\n", n + 3)
    });
    // The connection of v is known for longer than its place: most of its holds are left to the tick.
    run_here(&format!(
        "
          0  c1  DFAIR.ACQUIRE busy A                => t1
          0  c1  ACQUIRE x A                         => t2
          {held}
          1  c2  DFAIR.ACQUIRE busy v BLOCK 0        => parked
          2  gone c2
          3  c9  UNBLOCK 2 ERROR                     => 0
          4  c9  DFAIR.RELEASE busy v                => null
        # This call has the number in the list of waiters that the place of v had.
          5  c3  ACQUIRE x B BLOCK 0                 => parked
          6  c9  UNBLOCK 2 ERROR                     => 0
          7  c1  RELEASE x A                         => 0; c3 gets t73
        "
    ));
    run_here(&format!(
        "
          0  c1  DFAIR.ACQUIRE busy A                => t1
          0  c1  ACQUIRE x A                         => t2
          {held}
          1  c2  DFAIR.ACQUIRE busy v BLOCK 0 QUEUE 1000 => parked
          2  gone c2
          3  c9  UNBLOCK 2                           => 0
          3  c9  DFAIR.WAITERS busy                  => v 0 2 999 []
       1003  tick
       1003  c9  DFAIR.WAITERS busy                  => nobody
        "
    ));
}
