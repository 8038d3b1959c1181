//! Commands of the server on semaphores: DEL, SET, RENAME, MOVE, SWAPDB, FLUSHALL, EXPIRE.

use super::run;

#[test]
fn waiters_of_a_deleted_semaphore_wait_on() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A NOTIFY ch           => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c3  ACQUIRE s C QUEUE 50            => null
          3  del s                               => ch: deleted 0 p1 1 A s
          4  c1  RELEASE s $p1                   => NOTHELD
          4  c1  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 2
          5  c1  INIT s 2                        => 1; c2 gets p2; dlock:notify:C: granted 0 p3 1 C s
          6  del s                               => dlock:notify:C: deleted 0 p3 1 C s
          7  del s
    ");
}

#[test]
fn the_first_waiter_with_limit_makes_it_again() {
    run("
          0  c1  INIT s 9                        => 1
          0  c1  ACQUIRE s A COUNT 9             => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c3  ACQUIRE s C COUNT 3 BLOCK 0     => parked
          3  c4  ACQUIRE s D LIMIT 2 BLOCK 0     => parked
          4  c5  ACQUIRE s E LIMIT 7 BLOCK 0     => parked
          5  del s                               => c2 gets p2; c3 gets LIMIT; c4 gets p4
          6  c1  INFO s                          => capacity 2 available 0 leased 2 taken 0 waiters 1
          7  c1  RELEASE s $p2                   => 0; c5 gets p5
          8  c1  RELEASE s $p4                   => 1
          9  c1  RELEASE s $p5                   => 2
          9  c1  INFO s                          => null
    ");
}

#[test]
fn a_place_without_a_connection_makes_no_semaphore() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B LIMIT 7 QUEUE 1000  => null
          2  c3  ACQUIRE s C LIMIT 2 BLOCK 0     => parked
          3  gone c2
          4  del s                               => c3 gets p3
          5  c1  INFO s                          => capacity 2 available 1 leased 1 taken 0 waiters 1
    ");
}

#[test]
fn in_a_cluster_waiters_of_a_lost_key_are_sent_away() {
    run("
          0  set cluster 1
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A                     => p1
          1  c2  ACQUIRE s B LIMIT 3 BLOCK 0     => parked
          2  c3  ACQUIRE s C QUEUE 50            => null
          2  c4  TAKE s BLOCK 0                  => parked
          3  del s                               => c2 gets MOVING; c4 gets MOVING
          3  c1  WAITERS s                       => nobody
          4  c1  INIT t 1                        => 1
          4  c1  TAKE t                          => taken
          5  c2  ACQUIRE t B BLOCK 0             => parked
          6  c3  ACQUIRE t C QUEUE 50            => null
          7  slot-lost t                         => c2 gets MOVING
          7  c1  WAITERS t                       => nobody
          8  c1  GIVE t                          => 1
        # Who waits for one that was never made may have to wait elsewhere, too.
          9  c2  ACQUIRE u B BLOCK 0             => parked
         10  slot-lost u                         => c2 gets MOVING
    ");
}

#[test]
fn a_key_of_another_type_is_refused_and_its_waiters_are_told() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A NOTIFY ch           => p1
          1  c2  ACQUIRE s B LIMIT 1 BLOCK 0     => parked
          2  c3  ACQUIRE s C QUEUE 50            => null
          2  c4  TAKE s BLOCK 0                  => parked
          3  over s                              => c2 gets WRONGTYPE; c4 gets WRONGTYPE; ch: deleted 0 p1 1 A s
          4  c1  ACQUIRE s A                     => WRONGTYPE
          5  del s
          6  c1  ACQUIRE s A                     => null
    ");
}

#[test]
fn rename_moves_permits_with_their_leases_and_ties_and_leaves_waiters() {
    run("
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A PX 100 NOTIFY ch    => p1
          0  c1  ACQUIRE s A BIND 10 NOTIFY ch   => p2
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  rename s t
          2  c1  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 1
          2  c1  PERMITS t                       => p1 A 1 98; p2 A 1 29998
          3  c3  ACQUIRE t C BLOCK 0             => parked
          4  gone c1
         15  tick                                => c3 gets p4; ch: disconnected 0 p2 1 A t
        101  tick                                => ch: expired 0 p1 1 A t
        102  rename t s                          => c2 gets p3
        103  c3  RELEASE s $p4                   => 1
    ");
}

#[test]
fn rename_over_another_semaphore_ends_its_permits() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  INIT t 2                        => 1
          0  c1  ACQUIRE s A NOTIFY ch           => p1
          0  c1  ACQUIRE t B NOTIFY ch           => p2
          1  c3  ACQUIRE t C COUNT 2 BLOCK 0     => parked
          2  c4  ACQUIRE t D BLOCK 0             => parked
        # Who is too wide for the one that is there now learns it when its turn comes.
          3  rename s t                          => c3 gets LIMIT; ch: deleted 0 p2 1 B t
          3  c1  PERMITS t                       => p1 A 1 29997
          4  c1  RELEASE t $p1                   => 0; c4 gets p4
    ");
}

#[test]
fn move_and_swapdb_take_permits_along_and_leave_waiters_with_the_number() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A PX 100 NOTIFY ch    => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  move s 1
          3  c1  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 1
          4  db 1
          4  c1  PERMITS s                       => p1 A 1 96
          5  c3  ACQUIRE s C BLOCK 0             => parked
          6  swapdb 0 1
          6  c3  INFO s                          => capacity 0 available 0 leased 0 taken 0 waiters 1
        101  tick                                => c2 gets p2; ch: expired 0 p1 1 A s
        102  swapdb 1 0
        103  c2  RELEASE s $p2                   => 0; c3 gets p3
    ");
}

#[test]
fn a_flush_sends_one_message_and_waiters_wait_on() {
    run("
          0  c1  INIT s 1                        => 1
          0  c1  ACQUIRE s A NOTIFY ch BIND 0    => p1
          1  c2  ACQUIRE s B BLOCK 0             => parked
          2  c3  ACQUIRE s C LIMIT 1 BLOCK 0     => parked
          3  flushall                            => c2 gets p2; dlock:notify: flushed 0
          4  c2  RELEASE s $p2                   => 0; c3 gets p3
          5  c4  ACQUIRE t D BLOCK 0             => parked
          6  flushdb 0                           => dlock:notify: flushed 0
          7  gone c1
          8  c1  INIT t 1                        => 1; c4 gets p4
    ");
}

#[test]
fn a_time_to_live_on_the_key_goes_with_a_grant_to_a_new_owner() {
    run("
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A REQID r             => p1
          1  ttl s
          2  c1  ACQUIRE s A REQID r             => p1
          3  c1  RENEW s $p1                     => 1
          4  c1  RESIZE s 4                      => 3
          4  ttls s
          5  c1  ACQUIRE s A                     => p3
          6  ttls
          7  ttl s
          8  c1  TAKE s                          => taken
          9  ttls
         10  ttl s
         11  c1  GIVE s                          => 2
         12  ttls s
         13  c1  DRAIN s                         => 2
         14  ttls
    ");
}

#[test]
fn a_restored_semaphore_has_what_was_dumped() {
    run("
          0  c1  INIT s 4                        => 1
          0  c1  ACQUIRE s A COUNT 2 PX 1000 REQID r => p1
          0  c1  TAKE s REQID q                  => taken
        500  restore s t
        500  c1  INFO t                          => capacity 4 available 1 leased 2 taken 1 waiters 0
        500  c1  PERMITS t                       => p1 A 2 500
        501  c1  ACQUIRE t A COUNT 2 REQID r     => p1
        # TAKE has left nothing but its count: its id stays with the name it was for.
        502  c1  TAKE s REQID q                  => taken
        503  c1  INFO s                          => capacity 4 available 1 leased 2 taken 1 waiters 0
        504  c2  ACQUIRE t B COUNT 3 BLOCK 0     => parked
        505  c1  RELEASE t $p1                   => 0; c2 gets p3
    ");
}
