//! Work that is left to the tick meets the next command first: ids are not reused too early, and commands do not see
//! what is over.

use crate::script::{run, run_as};

#[test]
fn readers_of_a_moved_value_are_found_in_a_cycle() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ          => t1
          0  c1  ACQUIRE k B READ          => t2
          0  c1  ACQUIRE k C READ          => t3
          0  c1  ACQUIRE k D READ          => t4
          0  c1  ACQUIRE k E READ          => t5
          0  c2  ACQUIRE l H WRITE         => t6
          0  c3  DLOCK.ACQUIRE z W         => t7
          1  c3  ACQUIRE l W WRITE BLOCK 0 => parked
          2  rename k l
          2  c4  INFO l     => READ [-] [A t1 1 29998, B t2 1 29998, C t3 1 29998, D t4 1 29998, E t5 1 29998] waiters 1
          2  tick
          3  c1  DLOCK.ACQUIRE z E BLOCK 0 => DEADLOCK
          3  c1  DLOCK.ACQUIRE z A BLOCK 0 => DEADLOCK
          3  c5  BREAK l                   => 5; c3 gets t8
          4  c1  DLOCK.ACQUIRE z E BLOCK 0 => parked
        ",
    );
}

/// Each flush looks at two queues, and continues the walk of those before it.
#[test]
fn flushes_of_another_database_keep_no_queue_from_its_check() {
    run("
          0  set portion 2
          0  c1  MACQUIRE 6 a b c d e f A      => t1 t2 t3 t4 t5 t6
          0  c2  ACQUIRE a B BLOCK 0           => parked
          0  c3  ACQUIRE b B BLOCK 0           => parked
          0  c4  ACQUIRE c B BLOCK 0           => parked
          0  c5  ACQUIRE d B BLOCK 0           => parked
          0  c6  ACQUIRE e B BLOCK 0           => parked
          0  c7  ACQUIRE f B BLOCK 0           => parked
          0  c9  ACQUIRE a C QUEUE 9000       => null
          0  c9  ACQUIRE b C QUEUE 9000       => null
          0  c9  ACQUIRE c C QUEUE 9000       => null
          0  c9  ACQUIRE d C QUEUE 9000       => null
          0  c9  ACQUIRE e C QUEUE 9000       => null
          0  c9  ACQUIRE f C QUEUE 9000       => null
          0  db 5
          0  c8  DSEM.ACQUIRE s X BLOCK 0      => parked
          1  swapdb 0 1                        => c2 gets t7; c3 gets t8
          1  flushdb 5                         => c4 gets t9; c5 gets t10
          1  flushdb 5                         => c6 gets t11; c7 gets t12
    ");
}

#[test]
fn flushed_places_do_not_stay_for_a_value_that_a_swap_brings() {
    run_as(
        "DFAIR",
        "
          0  set portion 2
          0  c1  ACQUIRE x A                   => t1
          0  c2  ACQUIRE x B QUEUE 60000       => null
          0  c1  ACQUIRE y A                   => t2
          0  c2  ACQUIRE y B QUEUE 60000       => null
          0  c1  ACQUIRE z A                   => t3
          0  c2  ACQUIRE z B QUEUE 60000       => null
          0  c1  ACQUIRE k A                   => t4
          0  c2  ACQUIRE k B QUEUE 60000       => null
          0  db 1
          0  c3  ACQUIRE k C                   => t5
          0  db 0
        # This does not come to the queue of k.
          1  flushdb 0                         => dlock:notify: flushed 0
          1  swapdb 0 1
          2  c4  POSITION k B                  => null
          2  c4  POSITION k C                  => 0
        ",
    );
}

#[test]
fn a_queue_whose_key_has_another_type_ends_for_all_its_waiters() {
    run("
          0  c1  ACQUIRE k A                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
          1  c4  MACQUIRE 2 k l D BLOCK 0      => parked
          1  c6  ACQUIRE k F BLOCK 0 QUEUE 9   => parked
          2  over k                            => c2 gets WRONGTYPE; c4 gets WRONGTYPE; c6 gets WRONGTYPE
          2  del k
          2  c1  ACQUIRE k A                   => t3
          2  c1  POSITION k D                  => null
          2  c1  WAITERS k                     => nobody
          2  c1  RELEASE k A                   => 0
          2  c9  ACQUIRE k H BLOCK 0           => t4
    ");
}

#[test]
fn a_replica_that_has_not_worked_off_an_exchange_knows_its_keys() {
    let before = "
          0  c9  ACQUIRE a X                   => t1
          0  c9  ACQUIRE b X                   => t2
          0  c9  ACQUIRE c X                   => t3
          0  c9  ACQUIRE d X                   => t4
          0  c1  ACQUIRE k A REQID 1 BIND 0    => t5
          1  replica-slow
          1  swapdb 0 1 unheard
          1  c9  ACQUIRE e X                   => t6
          1  swaps-heard
          1  db 1
    ";
    // The requests of a removed hold are remembered.
    run(&format!(
        "{before}
          2  del k
          2  failover
          2  c1  ACQUIRE k A REQID 1           => SPENT
    "
    ));
    // A hold from before the promotion is bound to no connection, and has its lease from then.
    run(&format!(
        "{before}
         11  failover
         12  c2  ACQUIRE k B                   => null
         12  gone c1
         12  c2  INFO k                        => [A] t5 holds 1 lease 30000 ttl 4999 held 12 [] bound 0 waiters 0
    "
    ));
}

#[test]
fn a_replica_forgets_the_keys_that_are_flushed_after_an_exchange() {
    run("
          0  c1  ACQUIRE l A                   => t1
          0  move l 1
          0  c1  ACQUIRE l A                   => t2
          1  replica-slow
          1  swapdb 0 1 unheard
          1  c1  ACQUIRE k A                   => t3
          1  swaps-heard
          1  flushdb 0                         => dlock:notify: flushed 0
    ");
}

#[test]
fn waiters_do_not_end_with_a_value_of_another_family() {
    // It came by a swap, and is removed before their queue was checked.
    for acquires in ["DFAIR.ACQUIRE o D", "DLATCH.INIT o 1"] {
        let shown = if acquires.contains("INIT") { "1" } else { "t6" };
        let shift = if shown == "1" { "t6 t7 t8 t9 t10" } else { "t7 t8 t9 t10 t11" };
        run(&format!(
            "
          0  set portion 2
          0  c1  MACQUIRE 5 k l m n o E BLOCK 0 => t1 t2 t3 t4 t5
          1  db 1
          1  c1  {acquires}                     => {shown}
          1  db 0
          2  c2  MACQUIRE 5 k l m n o A BLOCK 0 => parked
          3  swapdb 0 1
          3  del o
          4  tick                               => c2 gets {shift}
    "
        ));
    }
}

#[test]
fn a_call_that_ends_while_it_is_asked_again_leaves_no_places() {
    run("
          0  set portion 3
          0  set cluster 1
          0  c2  ACQUIRE k D BIND 0             => t1
          0  c3  ACQUIRE y D BIND 0             => t2
          0  db 1
          0  c4  MACQUIRE 4 k p q r E           => t3 t4 t5 t6
          0  c5  ACQUIRE p F QUEUE 90           => null
          0  c5  ACQUIRE q F QUEUE 90           => null
          0  c5  ACQUIRE r F QUEUE 90           => null
          0  db 0
          1  c8  MACQUIRE 5 k l m n o G BLOCK 0 => parked
        # This reaches the three queues in the other database.
          2  swapdb 0 1
        # The first key is not here: in a cluster, it may be on another node.
          2  c7  MACQUIRE 3 l k m G BLOCK 6     => parked; c8 gets MOVING
    ");
}

#[test]
fn a_call_for_several_keys_ends_with_one_of_its_queues() {
    run("
          0  c1  ACQUIRE k D                   => t1
          0  c1  ACQUIRE l A                   => t2
          1  c2  ACQUIRE k B BLOCK 0           => parked
        # It enters the first key once more.
          1  c4  MACQUIRE 2 k l D BLOCK 0      => parked
          2  slot-lost k                       => c2 gets MOVING; c4 gets MOVING
          2  c1  RELEASE l A                   => 0
          3  tick
          4  c1  ACQUIRE l A                   => t3
    ");
}
