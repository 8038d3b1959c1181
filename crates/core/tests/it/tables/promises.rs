//! An answered request is a promise: the hold lasts at least PX from then, and no later request shortens that.

use crate::script::{run, run_as, run_as_here, run_both, run_both_here};

#[test]
fn no_answered_request_shortens_a_lease() {
    run_both_here("
          0  c1  ACQUIRE k A PX 1000 REQID a   => t1
         10  c2  ACQUIRE k A PX 10 REQID b     => t1
         20  c1  RENEW k A PX 10               => t1
         30  c1  RENEW k A PX 10 TOKEN $t1     => t1
         30  c1  INFO k                        => [A] t1 holds 2 lease 1000 ttl 970 held 30 [] bound 0 waiters 0
        # A copy is answered, too.
        500  c1  ACQUIRE k A PX 1000 REQID a   => t1
        500  c1  INFO k                        => [A] t1 holds 2 lease 1000 ttl 1000 held 500 [] bound 0 waiters 0
        # A lease that ends later is the lease from then on, though it is shorter.
        900  c2  ACQUIRE k A PX 700 REQID b    => t1
        900  c1  INFO k                        => [A] t1 holds 2 lease 700 ttl 700 held 900 [] bound 0 waiters 0
        901  c1  RENEW k A                     => t1
        901  c1  INFO k                        => [A] t1 holds 2 lease 700 ttl 700 held 901 [] bound 0 waiters 0
    ");
    run("
          0  c1  MACQUIRE 2 k l A PX 1000      => t1 t2
         10  c1  MRENEW 2 k l A PX 10          => 2
         20  c1  MACQUIRE 2 k l A PX 10 REQID m => t1 t2
         30  c1  ANYACQUIRE 2 k l A PX 10      => k t1
         30  c1  INFO k                        => [A] t1 holds 3 lease 1000 ttl 970 held 30 [] bound 0 waiters 0
         30  c1  INFO l                        => [A] t2 holds 2 lease 1000 ttl 970 held 30 [] bound 0 waiters 0
    ");
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ PX 1000 REQID a  => t1
         10  c1  ACQUIRE k A READ PX 10            => t1
         20  c1  RENEW k A READ PX 10              => t1
         20  c1  INFO k                            => READ [-] [A t1 2 980] waiters 0
         30  c1  ACQUIRE k A READ PX 1000 REQID a  => t1
         30  c1  INFO k                            => READ [-] [A t1 2 1000] waiters 0
         40  c1  ACQUIRE k A WRITE PX 500          => t2
         50  c1  RENEW k A WRITE PX 10             => t2
         50  c1  INFO k                            => WRITE [A t2 1 490] [A t1 2 980] waiters 0
    ",
    );
    run_as(
        "DSEM",
        "
          0  c1  ACQUIRE s A PX 1000 LIMIT 2 REQID a => p1
         10  c1  RENEW s $p1 PX 10                 => 1
         20  c1  ACQUIRE s A PX 10 LIMIT 2 REQID a => p1
         20  c1  PERMITS s                         => p1 A 1 980
         30  c1  ACQUIRE s A PX 1000 LIMIT 2 REQID a => p1
         30  c1  PERMITS s                         => p1 A 1 1000
    ",
    );
}

#[test]
fn a_hold_lasts_as_long_as_the_latest_promise_of_a_request_that_was_released() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 100 REQID a    => t1
          1  c2  ACQUIRE k A PX 1000 REQID b   => t1
          2  c2  RELEASE k A REQID b           => 1
        101  tick
       1000  c1  CHECK k $t1                   => 1
       1002  tick
       1003  c1  RELEASE k A REQID a           => LOST expired
       1004  c2  RELEASE k A REQID b           => 1
    ",
    );
}

#[test]
fn a_promotion_gives_no_less_than_any_promise() {
    run_both_here("
          0  c1  ACQUIRE k A PX 2000 REQID a   => t1
        100  c1  ACQUIRE k A PX 500 REQID b    => t1
        200  c1  RENEW k A PX 10               => t1
        300  failover
        300  c1  INFO k                        => [A] t1 holds 2 lease 2000 ttl 2000 held 300 [] bound 0 waiters 0
        # A grant to a place lasts longer than PX, and RENEW inside that time asks for less.
        400  c1  ACQUIRE l X                   => t2
        401  c2  ACQUIRE l B QUEUE 600 PX 20   => null
        402  c1  RELEASE l X                   => 0; dlock:notify:B: granted 0 t3 1 B l
        403  c2  RENEW l B PX 30               => t3
        404  c2  INFO l                        => [B] t3 holds 1 lease 600 ttl 598 held 2 [] bound 0 waiters 0
        500  failover
        500  c2  INFO l                        => [B] t3 holds 1 lease 600 ttl 600 held 98 [] bound 0 waiters 0
    ");
}

/// It is a hint, and its owner gets the lock with the next copy.
#[test]
fn an_offer_lasts_as_long_as_its_place_and_the_next_copy_extends_it() {
    run_as_here("DFAIR", "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000 REQID r => null
         10  gone c2
         20  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t2 1 B [r] k
         20  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 90 held 0 [] bound 0 waiters 0
         30  c3  ACQUIRE k B QUEUE 100 PX 1000 REQID r => t2
         30  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 1000 held 10 [] bound 0 waiters 0
         31  c3  RELEASE k B REQID r                => 0
        # Another request enters it, and the offer counts.
         40  c1  ACQUIRE k A                        => t3
         41  c2  ACQUIRE k B QUEUE 100 PX 1000 REQID s => null
         42  gone c2
         50  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t4 1 B [s] k
         51  c3  ACQUIRE k B NOREENTRY REQID u      => REENTRY
         52  c3  ACQUIRE k B PX 500 REQID u         => t4
         52  c1  INFO k                             => [B] t4 holds 2 lease 500 ttl 500 held 2 [] bound 0 waiters 0
         53  c3  RELEASE k B REQID s                => 1
         54  c3  RELEASE k B REQID u                => 0
        # Nobody asks again: an ordinary expiry.
         60  c1  ACQUIRE k A                        => t5
         61  c2  ACQUIRE k B QUEUE 100 PX 1000 REQID v => null
         62  gone c2
         70  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t6 1 B [v] k
        163  tick                                   => dlock:notify:B: expired 0 t6 1 B [v] k
        164  c3  ACQUIRE k B REQID v                => SPENT
        165  c3  RELEASE k B REQID v                => LOST expired
    ");
}

/// Its owner may have asked again since.
#[test]
fn after_a_restart_from_a_snapshot_an_offer_has_the_lease_of_its_request() {
    run_as("DFAIR", "
          0  c1  ACQUIRE k A                        => t1
          1  c2  ACQUIRE k B QUEUE 100 PX 1000 REQID r => null
         10  gone c2
         20  c1  RELEASE k A                        => 0; dlock:notify:B: offered 0 t2 1 B [r] k
         50  restart rdb
         51  c1  INFO k                             => [B] t2 holds 1 lease 1000 ttl 999 held 31 [] bound 0 waiters 0
         52  c3  RENEW k B                          => t2
    ");
}

#[test]
fn a_grant_to_a_place_in_each_mode_is_taken_over_by_its_request_only() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A WRITE                  => t1
          1  c2  ACQUIRE k B READ QUEUE 100 REQID r => null
          2  c1  RELEASE k A WRITE                  => 0; dlock:notify:B: granted 0 t2 1 B [r] k
          4  c3  ACQUIRE k B READ                   => t2
          5  c3  ACQUIRE k B READ REQID s           => t2
          6  c2  ACQUIRE k B READ REQID r           => t2
          6  c2  INFO k                             => READ [-] [B t2 3 30000] waiters 0
          7  c2  RELEASE k B READ REQID r           => 2
    ",
    );
}

#[test]
fn a_grant_of_permits_to_a_place_is_taken_over_by_its_request_only() {
    run_as(
        "DSEM",
        "
          0  c1  INIT s 3                        => 1
          0  c1  ACQUIRE s A COUNT 3             => p1
          1  c2  ACQUIRE s B QUEUE 100 REQID r   => null
          2  c1  RELEASE s $p1                   => 2; dlock:notify:B: granted 0 p2 1 B [r] s
        # Other requests take other permits.
          3  c3  ACQUIRE s B                     => p3
          4  c3  ACQUIRE s B REQID q             => p4
          5  c3  ACQUIRE s B                     => null
          6  c2  ACQUIRE s B REQID r             => p2
          7  c3  RELEASE s B REQID q             => 1
          8  c2  RELEASE s B REQID r             => 2
          9  c3  RELEASE s B ALL                 => 3
    ",
    );
    // The place had no id: a call without one takes it over, one with an id does not.
    run_as(
        "DSEM",
        "
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B QUEUE 100           => null
          2  c1  RELEASE s $p1                   => 1; dlock:notify:B: granted 0 p2 1 B s
          3  c3  ACQUIRE s B REQID q             => p3
          4  c3  ACQUIRE s B                     => p2
          5  c3  ACQUIRE s B                     => null
          5  c3  PERMITS s                       => p2 B 1 29999; p3 B 1 29998
    ",
    );
}

#[test]
fn a_grant_of_permits_to_a_place_lasts_its_lease_and_its_end_is_an_expiry() {
    run_as("DSEM", "
          0  set claim 50
          0  c1  INIT s 2                        => 1
          0  c1  ACQUIRE s A COUNT 2             => p1
          1  c2  ACQUIRE s B QUEUE 100 PX 20 REQID r  => null
          1  c3  ACQUIRE s C QUEUE 100 PX 200    => null
          2  c1  RELEASE s $p1 => 0; dlock:notify:B: granted 0 p2 1 B [r] s; dlock:notify:C: granted 0 p3 1 C s
          2  c1  PERMITS s                       => p2 B 1 50; p3 C 1 200
         53  tick                                => dlock:notify:B: expired 0 p2 1 B [r] s
         54  c2  ACQUIRE s B REQID r             => SPENT
         55  c2  RELEASE s B REQID r             => LOST expired
    ");
}

#[test]
fn a_hold_is_bound_while_every_request_for_it_says_so() {
    run_both_here("
          0  c1  ACQUIRE k A BIND 50                => t1
        # The largest time, and the connection of the last.
          1  c2  ACQUIRE k A BIND 20                => t1
          2  c3  RENEW k A BIND 10                  => t1
          3  gone c1
          3  gone c2
          3  c9  INFO k                             => [A] t1 holds 2 lease 30000 ttl 29999 held 3 [] bound 3 waiters 0
          4  gone c3
          4  c9  INFO k                             => [A] t1 holds 2 lease 30000 ttl 50 held 4 [] bound 0 waiters 0
        # After a shortening a request gives its lease in full.
          5  c4  RENEW k A PX 1000 BIND 5           => t1
          5  c9  INFO k                             => [A] t1 holds 2 lease 1000 ttl 1000 held 5 [] bound 4 waiters 0
        # One without BIND unbinds it for good.
          6  c5  ACQUIRE k A PX 500                 => t1
          6  c9  INFO k                             => [A] t1 holds 3 lease 1000 ttl 999 held 6 [] bound 0 waiters 0
          7  c6  ACQUIRE k A PX 500 BIND 0          => t1
          8  c6  RENEW k A PX 500 BIND 0            => t1
          9  gone c4
          9  gone c6
          9  c9  INFO k                             => [A] t1 holds 4 lease 1000 ttl 996 held 9 [] bound 0 waiters 0
    ");
}

#[test]
fn a_renewal_or_a_script_without_bind_unbinds_a_hold() {
    run_both(
        "
          0  c1  ACQUIRE k A BIND 0                 => t1
          1  c2  RENEW k A TOKEN $t1                => t1
          2  gone c1
          2  c9  CHECK k $t1                        => 1
          3  c2  RELEASE k A                        => 0
          4  c3  ACQUIRE k A BIND 0 REQID r         => t2
          5  s   ACQUIRE k A REQID s                => t2
          6  gone c3
          6  c9  CHECK k $t2                        => 1
    ",
    );
    // BIND does not bind what was given without.
    run_both(
        "
          0  c1  ACQUIRE k A REQID r                => t1
          1  c1  ACQUIRE k A BIND 0 REQID s         => t1
          2  c1  ACQUIRE k A BIND 0 REQID r         => t1
          3  c1  RENEW k A BIND 0                   => t1
          4  gone c1
          4  c9  CHECK k $t1                        => 1
    ",
    );
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A READ BIND 0            => t1
          0  c1  ACQUIRE k B READ BIND 0            => t2
          1  c2  RENEW k A READ                     => t1
          2  gone c1
          2  c9  INFO k                             => READ [-] [A t1 1 29999] waiters 0
    ",
    );
}

#[test]
fn mrenew_binds_as_renew_does() {
    run("
          0  c1  MACQUIRE 2 k l A BIND 50           => t1 t2
          0  c1  ACQUIRE m A                        => t3
          1  s   MRENEW 2 k l A BIND 20             => ERR
          2  c2  MRENEW 3 k l m A BIND 20           => 3
          3  gone c1
          3  c9  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29999 held 3 [] bound 2 waiters 0
          4  gone c2
          4  c9  INFO l                             => [A] t2 holds 1 lease 30000 ttl 50 held 4 [] bound 0 waiters 0
          4  c9  INFO m                             => [A] t3 holds 1 lease 30000 ttl 29998 held 4 [] bound 0 waiters 0
          5  c3  MRENEW 2 k l A                     => 2
          6  gone c3
          6  c9  INFO k                             => [A] t1 holds 1 lease 30000 ttl 29999 held 6 [] bound 0 waiters 0
    ");
}

#[test]
fn a_renewal_without_bind_after_a_failover_gives_its_lease_in_full() {
    run_both("
          0  set grace 100
          0  c1  ACQUIRE k A PX 900 BIND 10         => t1
         50  failover
         51  tick
         60  c2  RENEW k A PX 900                   => t1
         61  gone c2
         61  c9  INFO k                             => [A] t1 holds 1 lease 900 ttl 899 held 61 [] bound 0 waiters 0
        959  c9  CHECK k $t1                        => 1
    ");
}

/// The messages of a hold are those of the request that it was given to first.
#[test]
fn a_re_entry_leaves_the_messages_of_a_hold_alone() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID a NOTIFY ch      => t1
          1  c1  ACQUIRE k A REQID b NOTIFY other   => t1
          2  c1  ACQUIRE k A REQID c                => t1
          3  c9  BREAK k                            => 1; ch: broken 0 t1 1 A [a] k
          4  c1  ACQUIRE k A REQID d                => t2
          5  c1  ACQUIRE k A REQID e NOTIFY other   => t2
          6  c9  BREAK k                            => 1
    ",
    );
}

#[test]
fn a_release_with_delay_keeps_the_lock_closed() {
    run_both_here("
          0  c1  ACQUIRE k A REQID a                => t1
          1  c2  ACQUIRE k B BLOCK 0                => parked
          2  c1  RELEASE k A REQID a DELAY 100      => 0
          3  c9  INFO k                             => [] - holds 0 lease 0 ttl 99 held 0 [] bound 0 waiters 1
          3  c3  ACQUIRE k C                        => null
        # The first copy's counts, and BREAK does not open it.
          4  c1  RELEASE k A REQID a DELAY 900      => 0
          5  c9  BREAK k                            => 0
        101  tick
        103  tick                                   => c2 gets t2
        # With counts left it is ignored.
        104  c2  ACQUIRE k B REQID b                => t2
        105  c2  RELEASE k B REQID b DELAY 100      => 1
        106  c2  RELEASE k B DELAY 100              => 0
        107  c1  ACQUIRE k A                        => null
        108  del k
        109  c1  ACQUIRE k A                        => t3
        110  c1  RELEASE k A ALL DELAY 100          => 0
        # A promotion restarts it.
        150  failover
        249  c1  ACQUIRE k A                        => null
        251  tick
        252  c1  ACQUIRE k A                        => t4
    ");
}

#[test]
fn delay_is_ignored_where_the_release_ends_no_hold() {
    run_both_here(
        "
          0  c1  ACQUIRE k A REQID a PX 10          => t1
         20  c1  RELEASE k A REQID a DELAY 100      => LOST expired
         21  c2  ACQUIRE k B                        => t2
         22  c1  ACQUIRE k A QUEUE 99 REQID c       => null
         23  c1  RELEASE k A REQID c DELAY 100      => null
         24  c2  RELEASE k B                        => 0
         25  c1  RELEASE k A REQID d DELAY 100      => UNKNOWN
         26  c1  RELEASE k A DELAY 100              => NOTHELD
         27  c1  ACQUIRE k C REQID e                => t3
         # A count with another token ends, and it was not this hold that DELAY was for.
         28  c1  RELEASE k C TOKEN 1 REQID e DELAY 100 => UNKNOWN
         29  c1  ACQUIRE k D                        => t4
    ",
    );
}

#[test]
fn delay_of_a_writer_keeps_readers_and_writers_out() {
    run_as(
        "DRW",
        "
          0  c1  ACQUIRE k A WRITE REQID a                 => t1
          1  c1  RELEASE k A READ REQID a DELAY 100        => ERR
          2  c2  ACQUIRE k B READ BLOCK 0                  => parked
          3  c1  RELEASE k A WRITE REQID a DELAY 100       => 0
          4  c3  ACQUIRE k C WRITE                         => null
          4  c3  ACQUIRE k C READ                          => null
        102  tick
        104  tick                                          => c2 gets t2
        # Other readers do not end with the writer that reads on.
        105  c2  ACQUIRE k B WRITE                         => t3
        106  c2  RELEASE k B WRITE DELAY 100               => 0
        107  c2  CHECK k $t2                               => 1
        108  c2  ACQUIRE k B WRITE                         => null
    ",
    );
}
