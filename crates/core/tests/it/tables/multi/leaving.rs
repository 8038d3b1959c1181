//! Calls for several keys that end without a grant: their waiters leave all queues at once.

use crate::script::{run, run_here};

#[test]
fn a_wait_that_ends_leaves_all_queues() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 50     => parked
          2  c3  ACQUIRE k B BLOCK 500           => parked
          3  c4  ACQUIRE l C QUEUE 500           => null
         51  c4  POSITION k B                    => 1
         51  c4  WAITERS m                       => nobody
         52  tick                                => c2 gets null; c3 gets t2; dlock:notify:C: granted 0 t3 1 C l
    ");
}

#[test]
fn a_late_alarm_does_not_grant_it() {
    run_here(
        "
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 2 k m A BLOCK 50       => parked
          2  c3  ACQUIRE k B BLOCK 500           => parked
         60  c1  RELEASE m X                     => 0; c2 gets null
         60  tick                                => c3 gets t2
    ",
    );
    run_here(
        "
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 2 k m A BLOCK 50       => parked
         60  c3  ACQUIRE k B                     => t2; c2 gets null
    ",
    );
}

#[test]
fn a_connection_that_goes_leaves_all_queues() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c4  MACQUIRE 2 l n C BLOCK 0        => parked
          4  gone c2                             => c3 gets t2; c4 gets t3 t4
          5  c1  INFO m                          => [X] t1 holds 1 lease 30000 ttl 29995 held 5 [] bound 0 waiters 0
    ");
}

#[test]
fn release_at_any_key_ends_the_whole_call() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c9  RELEASE l A                     => null; c2 gets null
          3  tick                                => c3 gets t2
          4  c9  RELEASE m A                     => NOTHELD
          5  c2  ANYACQUIRE 2 k m A BLOCK 0      => parked
          6  c9  RELEASE m A                     => null; c2 gets null
          6  c9  WAITERS k                       => nobody
    ");
}

#[test]
fn unblock_ends_the_whole_call() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  c9  UNBLOCK 2                       => 1; c2 gets null; c3 gets t2
          4  c2  MACQUIRE 2 l m A BLOCK 0        => parked
          5  c9  UNBLOCK 2 ERROR                 => 1; c2 gets STOPPED
          6  c2  ANYACQUIRE 1 m A BLOCK 0        => parked
          7  c9  UNBLOCK 2 ERROR                 => 1; c2 gets STOPPED
          8  c9  WAITERS m                       => nobody
    ");
}

#[test]
fn the_server_may_end_the_call() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 2 k m A BLOCK 0        => parked
          2  c3  ACQUIRE k B BLOCK 0             => parked
          3  abandoned c2                        => c3 gets t2
          4  c2  MACQUIRE 2 l m A BLOCK 0        => parked
          5  c4  ACQUIRE l C BLOCK 0             => parked
          6  withdraw c2
          6  tick                                => c4 gets t3
    ");
}

#[test]
fn those_behind_it_at_several_keys_may_be_one_call() {
    run("
          0  c1  ACQUIRE m X                     => t1
          1  c2  MACQUIRE 3 k l m A BLOCK 0      => parked
          2  c3  MACQUIRE 2 l k B BLOCK 0        => parked
          3  gone c2                             => c3 gets t2 t3
    ");
}

#[test]
fn a_call_that_has_ended_takes_no_room() {
    run("
          0  set max-waiters 7
          0  c1  ACQUIRE z X                       => t1
          0  c1  ACQUIRE f X                       => t2
          1  c2  MACQUIRE 7 z a b c d e f A BLOCK 0 => parked
          1  c3  ACQUIRE f B BLOCK 0               => LIMIT
          2  c9  UNBLOCK 2                         => 1; c2 gets null
          2  set max-waiters-per-key 1
          2  c3  ACQUIRE f B BLOCK 0               => parked
          2  c4  ACQUIRE f C BLOCK 0               => LIMIT
    ");
}
