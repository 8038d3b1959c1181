//! A server that could not read a record of its primary, or of its file, grants nothing.

use crate::script::{run, run_as, run_both};

#[test]
fn a_diverged_server_grants_nothing_after_a_failover_and_keeps_what_it_knows() {
    run_both("
          0  c1  ACQUIRE k A PX 1000 REQID r        => t1
          0  c1  ACQUIRE l B PX 1000                => t2
          1  unread replica
          1  c1  ACQUIRE m A                        => t3
          2  failover
          2  diverged 1
        # Neither a new grant, nor a re-entry, nor a repeated answer: the hold may have ended in what was not read.
          3  c2  ACQUIRE n C                        => DIVERGED
          3  c2  ACQUIRE n C BLOCK 100              => DIVERGED
          3  c2  ACQUIRE k C QUEUE 100              => DIVERGED
          3  c1  ACQUIRE k A                        => DIVERGED
          3  c1  ACQUIRE k A REQID r                => DIVERGED
        # Known holds are kept, given back and shown.
          4  c1  RENEW k A                          => t1
          4  c1  FENCE k A 1                        => t1
          4  c1  CHECK k $t1                        => 1
          4  c1  RELEASE l B                        => 0
          4  c1  RELEASE k C                        => NOTHELD
          4  c1  BREAK m                            => 1
          5  c2  ACQUIRE l C                        => DIVERGED
        # A lease ends, and the lock is nobody's.
       1200  tick
       1200  c1  INFO k                             => null
       1200  c2  ACQUIRE k C                        => DIVERGED
       1201  c2  DLOCK.TRUST                        => 1
       1201  diverged 0
       1201  c2  DLOCK.TRUST                        => 0
       1202  c2  ACQUIRE k C                        => t4
    ");
}

#[test]
fn no_family_and_no_call_for_several_keys_is_granted() {
    run("
          0  c1  DSEM.INIT s 2                      => 1
          0  c1  DLATCH.INIT closed 1               => 1
          0  unread
          1  c1  DRW.ACQUIRE r A READ               => DIVERGED
          1  c1  DRW.ACQUIRE r A WRITE BLOCK 5      => DIVERGED
          1  c1  DSEM.ACQUIRE s A                   => DIVERGED
          1  c1  DSEM.ACQUIRE new A LIMIT 3         => DIVERGED
          1  c1  DSEM.TAKE s 1                      => DIVERGED
          1  c1  DSEM.DRAIN s                       => DIVERGED
          1  c1  DLOCK.MACQUIRE 2 k l A             => DIVERGED
          1  c1  DLOCK.ANYACQUIRE 2 k l A BLOCK 5   => DIVERGED
        # A latch that is missing here may be closed.
          1  c1  DLATCH.AWAIT missing BLOCK 5       => DIVERGED
          1  c1  DLATCH.AWAIT closed                => null
          1  c1  DLATCH.COUNTDOWN closed            => 0
        # Neither can be mistaken for a grant.
          1  c1  DSEM.RESIZE s 3                    => 3
    ");
}

#[test]
fn waiters_of_a_diverged_server_wait_until_it_is_trusted() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100                 => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c3  ACQUIRE k C BLOCK 50               => parked
          3  unread
          4  c1  RELEASE k A                        => 0
          5  tick
         53  tick                                   => c3 gets null
         60  c1  DLOCK.TRUST                        => 1
         60  tick                                   => c2 gets t2
    ",
    );
    run("
          0  c1  DLOCK.ACQUIRE k A                  => t1
          1  c2  DLOCK.MACQUIRE 2 k l B BLOCK 0     => parked
          3  unread
          4  c1  DLOCK.RELEASE k A                  => 0
          5  tick
          6  c1  DLOCK.TRUST                        => 1
          6  tick                                   => c2 gets t2 t3
    ");
}

#[test]
fn a_flush_of_everything_ends_it_and_a_flush_of_one_database_does_not() {
    run_both(
        "
          0  unread
          1  flushdb 0
          1  c1  ACQUIRE k A                        => DIVERGED
          2  flushall
          2  diverged 0
          2  c1  ACQUIRE k A                        => t1
          3  failover
          3  c1  RENEW k A                          => t1
          3  c1  ACQUIRE l A                        => t2
    ",
    );
}

#[test]
fn a_restart_does_not_end_it() {
    for restart in ["restart", "restart rdb"] {
        run_both(&format!(
            "
          0  c1  ACQUIRE k A                        => t1
          0  unread
          0  unread
          1  {restart}
          1  diverged 2
          2  c1  ACQUIRE l B                        => DIVERGED
          2  c1  RENEW k A                          => t1
          3  c1  DLOCK.TRUST                        => 2
          4  {restart}
          4  diverged 0
          5  c1  ACQUIRE l B                        => t2
        "
        ));
    }
}

#[test]
fn the_primary_cannot_vouch_for_what_its_replica_missed() {
    run("
          0  c1  DLOCK.ACQUIRE k A                  => t1
          0  unread
          1  c1  DLOCK.TRUST                        => 1
          1  c1  DLOCK.ACQUIRE l A                  => t2
          2  failover
          2  diverged 1
          2  c1  DLOCK.ACQUIRE m A                  => DIVERGED
    ");
}

#[test]
fn a_raised_level_is_recorded_before_anything_needs_it_and_never_goes_back() {
    run_as(
        "DLOCK",
        "
          0  level 1
          0  c1  ACQUIRE k A                        => t1
          1  set record-level 2
          1  level 1
          1  tick
          1  level 2
          2  c1  ACQUIRE l B                        => t2
          3  set record-level 1
          3  tick
          3  level 2
          4  failover
          4  level 2
          5  restart
          5  level 2
          6  restart rdb
          6  level 2
          7  c1  RENEW k A                          => t1
    ",
    );
    // A replica knows it from the record alone, and its own setting counts when it decides.
    run("
          0  set record-level 2
          0  tick
          0  set record-level 1
          1  failover
          1  level 2
    ");
}
