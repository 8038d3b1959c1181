//! The queue: arrival order decides, and neighbouring readers enter together.

use super::{run, run_here};

#[test]
fn arrival_order_rules_and_readers_next_to_each_other_go_in_together() {
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
          3  c4  ACQUIRE k D READ BLOCK 0   => parked
          4  c5  ACQUIRE k E WRITE BLOCK 0  => parked
          5  c6  ACQUIRE k F READ BLOCK 0   => parked
        # Nobody passes a writer that waits, but who reads already may enter again.
          6  c7  ACQUIRE k G READ           => null
          6  c1  ACQUIRE k A READ           => t1
          6  c7  POSITION k F               => 5
          6  c7  WAITERS k COUNT 2          => B 2 5 - []; C 3 4 - []
          7  c1  RELEASE k A READ           => 1
          8  c1  RELEASE k A READ           => 0; c2 gets t2
          9  c2  RELEASE k B WRITE          => 0; c3 gets t3; c4 gets t4
          9  c7  ACQUIRE k G READ           => null
         10  c3  RELEASE k C READ           => 0
         11  c4  RELEASE k D READ           => 0; c5 gets t5
         12  c9  BREAK k                    => 1; c6 gets t6
    ");
}

#[test]
fn when_a_writer_leaves_the_queue_the_readers_behind_it_go_in() {
    for leave in [
        "tick => c2 gets null;",
        "gone c2 =>",
        "c9  UNBLOCK 2 ERROR => 1; c2 gets STOPPED;",
        "c9  RELEASE k B WRITE => null; c2 gets null;",
        "abandoned c2 =>",
    ] {
        run(&format!(
            "
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B WRITE BLOCK 50 => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
          3  c4  ACQUIRE k D READ BLOCK 0   => parked
          4  c5  ACQUIRE k E WRITE BLOCK 0  => parked
          5  c6  ACQUIRE k F READ BLOCK 0   => parked
         52  {leave} c3 gets t2; c4 gets t3
         53  c1  INFO k                     => READ [-] [A t1 1 29947, C t2 1 29999, D t3 1 29999] waiters 2
        "
        ));
    }
}

#[test]
fn neither_side_starves() {
    // Readers come and go, but the writer is next once the readers from before it are gone. Writers come, but no later
    // one overtakes a reader.
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
          3  c1  RELEASE k A READ           => 0; c2 gets t2
          4  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          5  c4  ACQUIRE k D WRITE BLOCK 0  => parked
          6  c2  RELEASE k B WRITE          => 0; c3 gets t3
          7  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          8  c5  ACQUIRE k E READ BLOCK 0   => parked
          9  c3  RELEASE k C READ           => 0; c1 gets t4
         10  c1  RELEASE k A WRITE          => 0; c4 gets t5
         11  c4  RELEASE k D WRITE          => 0; c2 gets t6
         12  c2  RELEASE k B WRITE          => 0; c5 gets t7
    ");
}

#[test]
fn an_owner_that_asks_again_in_the_same_mode_keeps_its_position_and_else_goes_to_the_end() {
    run("
          0  c1  ACQUIRE k A WRITE          => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C WRITE BLOCK 0  => parked
          3  c4  ACQUIRE k B WRITE BLOCK 90 => parked; c2 gets REPLACED
          3  c1  WAITERS k                  => B 4 2 90 []; C 3 1 - []
          4  c5  ACQUIRE k B READ QUEUE 80  => null; c4 gets REPLACED
          4  c1  WAITERS k                  => C 3 2 - []; B 5 0 - []
          5  c6  ACQUIRE k B READ BLOCK 0   => parked
          5  c1  WAITERS k                  => C 3 3 - []; B 6 1 - []
         # Without BLOCK or QUEUE the place is left alone, whatever the mode.
          6  c5  ACQUIRE k B WRITE          => null
          6  c5  ACQUIRE k B READ           => null
          6  c1  WAITERS k                  => C 3 4 - []; B 6 2 - []
          7  c1  RELEASE k A WRITE          => 0; c3 gets t2
          8  c3  RELEASE k C WRITE          => 0; c6 gets t3
    ");
}

#[test]
fn a_writer_that_asks_to_read_instead_lets_the_readers_behind_it_in() {
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
          3  c4  ACQUIRE k B READ BLOCK 0   => t3; c2 gets REPLACED; c3 gets t2
    ");
}

#[test]
fn a_retry_of_a_wait_gets_its_grant() {
    run("
          0  c1  ACQUIRE k A WRITE                     => t1
          1  c2  ACQUIRE k B READ BLOCK 100 REQID r    => parked
          2  c3  ACQUIRE k B READ BLOCK 100 REQID r    => parked; c2 gets null
          3  c1  RELEASE k A WRITE                     => 0; c3 gets t2
          4  c3  ACQUIRE k B READ BLOCK 100 REQID r    => t2
          5  c3  RELEASE k B READ                      => 0
    ");
}

#[test]
fn waits_end_in_their_time_and_a_late_alarm_grants_nothing() {
    run_here(
        "
          0  c1  ACQUIRE k A WRITE          => t1
          1  c2  ACQUIRE k B READ BLOCK 50  => parked
          2  c3  ACQUIRE k C READ BLOCK 500 => parked
          3  c4  ACQUIRE k D READ BLOCK 60  => parked
          4  m5  ACQUIRE k E READ BLOCK 60  => null
          4  s   ACQUIRE k E READ BLOCK 60  => null
         55  c1  RELEASE k A WRITE          => 0; c2 gets null; c3 gets t2; c4 gets t3
    ",
    );
}

#[test]
fn waiters_are_limited() {
    run("
          0  set max-waiters-per-key 2
          0  c1  ACQUIRE k A WRITE          => t1
          1  c2  ACQUIRE k B READ BLOCK 0   => parked
          2  c3  ACQUIRE k C READ QUEUE 50  => null
          3  c4  ACQUIRE k D READ BLOCK 0   => LIMIT
          3  c4  ACQUIRE k D READ           => null
         # In another mode it is the same place.
          4  c4  ACQUIRE k B WRITE BLOCK 0  => parked; c2 gets REPLACED
    ");
}

#[test]
fn readers_are_limited_and_waiting_ones_are_granted_together() {
    run("
          0  set max-holds-per-key 2
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B READ           => t2
          2  c3  ACQUIRE k C READ           => LIMIT
          2  c3  ACQUIRE k C READ BLOCK 0   => LIMIT
          2  c3  ACQUIRE k C READ QUEUE 50  => LIMIT
          3  c1  ACQUIRE k A READ           => t1
          3  c1  RENEW k A READ PX 50       => t1
          4  c1  RELEASE k A READ           => 1
          5  c3  ACQUIRE k C WRITE BLOCK 0  => parked
          6  c4  ACQUIRE k D READ BLOCK 0   => LIMIT
          7  c1  RELEASE k A READ           => 0
          8  c4  ACQUIRE k D READ BLOCK 0   => parked
          8  c5  ACQUIRE k E READ BLOCK 0   => parked
          8  c6  ACQUIRE k F READ QUEUE 50  => null
          9  c2  RELEASE k B READ           => 0; c3 gets t3
         10  c3  RELEASE k C WRITE          => 0; c4 gets t4; c5 gets t5; dlock:notify:F: granted 0 t6 1 F k
         # The owner of a place takes its grant over, whatever the limit is.
         11  c6  ACQUIRE k F READ QUEUE 50  => t6
         11  c7  ACQUIRE k G READ           => LIMIT
         12  c4  RELEASE k D READ           => 0
         12  c4  ACQUIRE k D READ           => LIMIT
         # A place for another mode, or without a call that waits, is no way around the limit.
         13  c4  ACQUIRE k D WRITE QUEUE 50 => null
         13  c4  ACQUIRE k D READ QUEUE 50  => LIMIT
         13  c4  ACQUIRE k D READ           => LIMIT
    ");
}

#[test]
fn a_time_to_live_on_the_key_goes_with_a_grant_to_a_new_owner() {
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  ttl k
          2  c1  ACQUIRE k A READ           => t1
          3  c1  RENEW k A READ             => t1
          4  ttls k
          5  c2  ACQUIRE k B READ           => t2
          6  ttls
    ");
}
