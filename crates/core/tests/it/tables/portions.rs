//! The tick does large work in portions: no waiter is forgotten, and new waiters stay behind the pending work.

use crate::script::{run, run_as};

#[test]
fn readers_are_granted_in_portions_and_a_newcomer_stands_behind_them() {
    run_as(
        "DRW",
        "
          0  set portion 2
          0  c1  ACQUIRE k A WRITE         => t1
          1  c2  ACQUIRE k B READ BLOCK 0  => parked
          1  c3  ACQUIRE k C READ BLOCK 0  => parked
          1  c4  ACQUIRE k D READ BLOCK 0  => parked
          1  c5  ACQUIRE k E READ BLOCK 0  => parked
          1  c6  ACQUIRE k F READ BLOCK 0  => parked
          1  c7  ACQUIRE k G WRITE BLOCK 0 => parked
          2  c1  RELEASE k A WRITE         => 0; c2 gets t2; c3 gets t3
        # Each call does a portion, and none overtakes.
          2  c8  ACQUIRE k H READ          => null; c4 gets t4; c5 gets t5
          2  tick                          => c6 gets t6
          3  c8  ACQUIRE k H READ          => null
        ",
    );
}

#[test]
fn a_step_ends_a_portion_of_the_expired_holds_and_those_that_its_call_is_about() {
    run_as(
        "DSEM",
        "
          0  set portion 2
          0  c1  INIT s 12                    => 1
          0  c1  ACQUIRE s A PX 10            => p1
          0  c1  ACQUIRE s A PX 10            => p2
          0  c1  ACQUIRE s A PX 10            => p3
          0  c1  ACQUIRE s A PX 10            => p4
          0  c1  ACQUIRE s A PX 10            => p5
          0  c1  ACQUIRE s A PX 10            => p6
          0  c1  ACQUIRE s A PX 10            => p7
          0  c1  ACQUIRE s A PX 10            => p8
          0  c1  ACQUIRE s A PX 10            => p9
          0  c1  ACQUIRE s A PX 10            => p10
          0  c1  ACQUIRE s A PX 10            => p11
          0  c1  ACQUIRE s E PX 10 REQID r    => p12
          0  c1  DRW.ACQUIRE k A READ PX 10 NOTIFY c => t1
          0  c1  DRW.ACQUIRE k B READ PX 10 NOTIFY c => t2
          0  c1  DRW.ACQUIRE k C READ PX 10 NOTIFY c => t3
          0  c1  DRW.ACQUIRE k D READ PX 10 NOTIFY c => t4
        # Each call ends the first two, and the one that it names.
         20  c1  RENEW s $p11                 => NOTHELD
         20  c1  RELEASE s $p10               => NOTHELD
         20  c1  BREAK s $p9                  => 0
         20  c1  ACQUIRE s E PX 10 REQID r    => SPENT
         20  c1  DRW.RENEW k D READ => NOTHELD; c: expired 0 t1 1 A k; c: expired 0 t2 1 B k; c: expired 0 t4 1 D k
        # That of C follows in the tick.
         20  tick                             => c: expired 0 t3 1 C k
        ",
    );
}

#[test]
fn a_place_gets_no_permit_however_many_grants_lapse_before_that_of_its_connection() {
    run_as(
        "DSEM",
        "
          0  set portion 2
          0  c1  INIT s 3                  => 1
          0  c1  ACQUIRE s Z COUNT 3       => p1
          1  c2  ACQUIRE s A QUEUE 100 PX 100     => null
          1  c3  ACQUIRE s B QUEUE 100 PX 100     => null
          1  c4  ACQUIRE s C QUEUE 100 PX 100     => null
          1  c4  ACQUIRE s D QUEUE 9000 PX 9000    => null
          1  c5  ACQUIRE s E BLOCK 0       => parked
          2  c1  RELEASE s $p1             => 1; dlock:notify:A: granted 0 p2 1 A s; dlock:notify:B: granted 0 p3 1 B s
          2  tick                          => dlock:notify:C: granted 0 p4 1 C s
        # That of C is not among those that end first; its connection is silent all the same.
        150  tick => c5 gets p6; dlock:notify:A: expired 0 p2 1 A s; dlock:notify:B: expired 0 p3 1 B s; dlock:notify:C: expired 0 p4 1 C s
        ",
    );
}

#[test]
fn after_a_flush_waiters_are_served_before_newcomers() {
    run("
          0  set portion 2
          0  c1  ACQUIRE a A         => t1
          0  c1  ACQUIRE b A BIND 0  => t2
          0  c1  ACQUIRE c A BIND 0  => t3
          0  c1  ACQUIRE d A         => t4
          1  c5  ACQUIRE b X QUEUE 9 => null
          1  c5  ACQUIRE c X QUEUE 9 => null
          1  c2  ACQUIRE d B BLOCK 0 => parked
          1  c3  ACQUIRE d C BLOCK 0 => parked
          2  flushall                => dlock:notify: flushed 0; dlock:notify:X: granted 0 t5 1 X b; dlock:notify:X: granted 0 t6 1 X c
          2  c4  ACQUIRE d D         => null; c2 gets t7
          2  c4  ACQUIRE a D         => t8
          3  gone c1
          3  tick
          4  c2  RELEASE d B         => 0; c3 gets t9
          4  c4  INFO a              => [D] t8 holds 1 lease 30000 ttl 29998 held 2 [] bound 0 waiters 0
    ");
}

#[test]
fn queue_entries_end_with_a_key_of_another_type() {
    run("
          0  c1  ACQUIRE k A              => t1
          0  c1  ACQUIRE l A              => t2
          1  c2  ACQUIRE k B QUEUE 60000  => null
          1  c3  ACQUIRE k C BLOCK 0      => parked
          1  c2  ACQUIRE k D QUEUE 60000  => null
          1  c4  MACQUIRE 2 l k E BLOCK 0 => parked
          1  c2  ACQUIRE k F QUEUE 60000  => null
          2  over k                       => c3 gets WRONGTYPE; c4 gets WRONGTYPE
          2  del k
          2  c5  WAITERS k                => nobody
          2  c5  POSITION k B             => null
          2  c5  ACQUIRE k G              => t3
          2  c2  ACQUIRE k B QUEUE 60000  => null
          3  c5  RELEASE k G              => 0; dlock:notify:B: granted 0 t4 1 B k
    ");
}

#[test]
fn in_a_cluster_queue_entries_end_with_a_lost_key() {
    run("
          0  set cluster 1
          0  c1  ACQUIRE k A              => t1
          1  c2  ACQUIRE k B QUEUE 60000  => null
          1  c3  ACQUIRE k C BLOCK 0      => parked
          1  c2  ACQUIRE k D QUEUE 60000  => null
          1  c2  ACQUIRE k F QUEUE 60000  => null
          2  del k                        => c3 gets MOVING
          2  gone c2
          2  c5  ACQUIRE k G              => t2
          2  c5  WAITERS k                => nobody
          3  failover
          3  tick
          4  c5  RELEASE k G              => 0
    ");
}

#[test]
fn places_of_a_connection_that_is_heard_again_count_at_once_and_are_served_in_portions() {
    run("
          0  set portion 2
          0  c1  ACQUIRE x X                => t1
          0  c2  ACQUIRE x A QUEUE 20 PX 20 => null
          0  c1  ACQUIRE a X                => t2
          0  c1  ACQUIRE b X                => t3
          0  c1  ACQUIRE c X                => t4
          0  c1  ACQUIRE d X                => t5
          1  c2  ACQUIRE a A QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE b A QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE c A QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE d A QUEUE 9000 PX 9000     => null
          2  c1  RELEASE x X                => 0; dlock:notify:A: granted 0 t6 1 A x
         30  tick                           => dlock:notify:A: expired 0 t6 1 A x
        # Its connection is silent, so these locks are free while it is.
         31  c1  MRELEASE 4 a b c d X       => 4
         32  c2  RELEASE x A                => NOTHELD; dlock:notify:A: granted 0 t7 1 A a; dlock:notify:A: granted 0 t8 1 A b
         32  c3  ACQUIRE d D                => null; dlock:notify:A: granted 0 t9 1 A d
         32  tick                           => dlock:notify:A: granted 0 t10 1 A c
    ");
}

#[test]
fn a_place_that_counts_again_is_found_however_many_were_passed_over() {
    run("
          0  c1  ACQUIRE x X                => t1
          0  c1  ACQUIRE k X                => t2
          1  c2  ACQUIRE x A QUEUE 20 PX 20 => null
          1  c2  ACQUIRE k A QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE k B QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE k C QUEUE 9000 PX 9000     => null
          1  c2  ACQUIRE k D QUEUE 9000 PX 9000     => null
          1  c3  ACQUIRE k E QUEUE 9000 PX 9000     => null
          2  c1  RELEASE x X                => 0; dlock:notify:A: granted 0 t3 1 A x
         30  tick                           => dlock:notify:A: expired 0 t3 1 A x
         31  c1  RELEASE k X                => 0; dlock:notify:E: granted 0 t4 1 E k
         32  c3  RELEASE k E                => 0
         33  c4  ACQUIRE k F                => t5
        # One of them asks on another connection, and is first again.
         34  c5  ACQUIRE k C BLOCK 0        => parked
         35  c4  RELEASE k F                => 0; c5 gets t6
         36  c5  RELEASE k C                => 0
         37  c4  ACQUIRE k F                => t7
        # The first of them goes, then the connection is heard again.
         38  c4  RELEASE k A                => null
         39  c2  POSITION k D               => 2
         39  c2  RELEASE k D                => null
         40  c4  RELEASE k F                => 0; dlock:notify:B: granted 0 t8 1 B k
    ");
}

#[test]
fn readers_close_cycles_until_they_release_or_their_key_goes() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ           => t1
          0  c1  ACQUIRE k B READ           => t2
          0  c1  ACQUIRE k C READ           => t3
          0  c1  DLOCK.ACQUIRE l W          => t4
        # W has l, and would wait for A; A waits for W.
          1  c2  ACQUIRE k W WRITE QUEUE 9000     => null
          1  c1  DLOCK.ACQUIRE l A BLOCK 0        => DEADLOCK
          2  c2  RELEASE k W WRITE                => null
          2  c1  DLOCK.ACQUIRE l A BLOCK 0        => parked
          3  c2  ACQUIRE k W WRITE BLOCK 0        => DEADLOCK
          4  c1  RELEASE k B READ                 => 0
          4  c1  RELEASE k C READ                 => 0
          5  c2  ACQUIRE k W WRITE BLOCK 0        => DEADLOCK
        # A key that goes takes its readers along.
          6  c3  ACQUIRE k B READ                 => t5
          6  c3  ACQUIRE k C READ                 => t6
          7  del k
          8  c2  ACQUIRE k W WRITE BLOCK 0        => t7
          9  c2  RELEASE k W WRITE                => 0
          9  c3  DLOCK.ACQUIRE k B                => t8
        ",
    );
}
