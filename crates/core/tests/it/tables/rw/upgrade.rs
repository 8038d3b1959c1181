//! A reader that asks to write.

use super::{run, run_here};

#[test]
fn the_only_reader_may_write_at_once_in_front_of_all_waiters() {
    run("
          0  c1  ACQUIRE k A READ           => t1
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
          3  c1  ACQUIRE k A WRITE          => t2
          3  c1  INFO k                     => WRITE [A t2 1 30000] [A t1 1 29997] waiters 2
          4  c1  RELEASE k A READ           => 0
          5  c1  RELEASE k A WRITE          => 0; c2 gets t3
          6  c2  RELEASE k B WRITE          => 0; c3 gets t4
         # With BLOCK it need not wait either.
          7  c3  ACQUIRE k C WRITE BLOCK 50 => t5
    ");
}

#[test]
fn among_readers_it_waits_in_front_of_everyone() {
    run("
          0  c1  ACQUIRE k A READ PX 100    => t1
          0  c2  ACQUIRE k B READ           => t2
          1  c3  ACQUIRE k C WRITE BLOCK 0  => parked
          2  c4  ACQUIRE k D READ BLOCK 0   => parked
          3  c1  ACQUIRE k A WRITE          => null
          3  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          3  c5  WAITERS k                  => A 1 0 - []; C 3 2 - []; D 4 1 - []
         # A place wins over a hold.
          3  c5  POSITION k A               => 1
          4  c5  ACQUIRE k A READ PX 10     => t1
         # It keeps that place though its own read hold lapses.
        101  tick
        102  c5  WAITERS k                  => A 1 99 - []; C 3 101 - []; D 4 100 - []
        102  c5  INFO k                     => READ [-] [B t2 1 29898] waiters 3
        103  c2  RELEASE k B READ           => 0; c1 gets t3
        104  c1  RELEASE k A WRITE          => 0; c3 gets t4
        105  c3  RELEASE k C WRITE          => 0; c4 gets t5
    ");
}

#[test]
fn it_is_served_when_the_last_other_reader_is_gone_however_that_ended() {
    let ends = [
        "50 c2  RELEASE k B READ => 0;",
        "50 c9  BREAK k B => 1;",
        "50 gone c2 =>",
        "52 tick =>",
        "51 c2 RENEW k B READ => NOTHELD;",
    ];
    for end in ends {
        run(&format!(
            "
          0  c1  ACQUIRE k A READ                   => t1
          0  c2  ACQUIRE k B READ PX 51 BIND 0      => t2
          1  c1  ACQUIRE k A WRITE BLOCK 0          => parked
          {end} c1 gets t3
         52  c3  CHECK k $t3                        => 1
         52  c3  CHECK k $t1                        => 1
        "
        ));
    }
}

#[test]
fn a_second_upgrader_that_would_wait_is_refused_even_without_detection() {
    for detection in [0, 1] {
        run(&format!(
            "
          0  set deadlock-detection {detection}
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          1  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          2  c2  ACQUIRE k B WRITE BLOCK 0  => DEADLOCK
          2  c2  ACQUIRE k B WRITE QUEUE 50 => DEADLOCK
          2  c2  ACQUIRE k B WRITE          => null
        # Who does not read is no upgrader, and who asks again is no second one.
          3  c3  ACQUIRE k C WRITE BLOCK 0  => parked
          4  c4  ACQUIRE k A WRITE BLOCK 0  => parked; c1 gets REPLACED
          5  c5  WAITERS k                  => A 4 4 - []; C 3 2 - []
          6  c2  RELEASE k B READ           => 0; c4 gets t3
          7  c4  RELEASE k A WRITE          => 0
          8  c4  RELEASE k A READ           => 0; c3 gets t4
        "
        ));
    }
}

#[test]
fn an_upgrader_whose_read_hold_expired_blocks_no_other_upgrader() {
    run("
          0  c1  ACQUIRE k A READ PX 50     => t1
          0  c2  ACQUIRE k B READ           => t2
          0  c3  ACQUIRE k C READ           => t3
          1  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          2  c2  ACQUIRE k B WRITE BLOCK 0  => DEADLOCK
         51  tick
         52  c2  ACQUIRE k B WRITE BLOCK 0  => parked
         52  c4  WAITERS k                  => B 2 0 - []; A 1 51 - []
         53  c3  RELEASE k C READ           => 0; c2 gets t4
         54  c2  RELEASE k B WRITE          => 0
         55  c2  RELEASE k B READ           => 0; c1 gets t5
    ");
}

#[test]
fn an_upgrader_that_gave_its_read_hold_back_waits_behind_other_upgraders() {
    for detection in [0, 1] {
        run(&format!(
            "
          0  set deadlock-detection {detection}
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          0  c3  ACQUIRE k C READ           => t3
          1  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          2  c4  RELEASE k A READ           => 0
        # Behind it, it would wait forever: the other one waits for the read hold of this one.
          3  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          3  c4  WAITERS k                  => B 2 0 - []; A 1 2 - []
          4  c3  RELEASE k C READ           => 0; c2 gets t4
          5  c4  BREAK k                    => 2; c1 gets t5
        "
        ));
    }
    // The last reader need not wait at all.
    run("
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          1  c1  ACQUIRE k A WRITE BLOCK 0  => parked
          2  c4  RELEASE k A READ           => 0
          3  c2  ACQUIRE k B WRITE BLOCK 0  => t3
          4  c2  RELEASE k B WRITE          => 0
          5  c2  RELEASE k B READ           => 0; c1 gets t4
    ");
}

#[test]
fn a_late_alarm_refuses_no_call_for_an_upgrader_whose_read_hold_expired() {
    run_here(
        "
          0  c1  ACQUIRE k A READ PX 50     => t1
          0  c2  ACQUIRE k B READ           => t2
          0  c3  ACQUIRE k C READ           => t3
          1  c1  ACQUIRE k A WRITE BLOCK 0  => parked
         52  c2  ACQUIRE k B WRITE BLOCK 0  => parked
    ",
    );
    run_here(
        "
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          0  c3  ACQUIRE k C READ           => t3
          1  c1  ACQUIRE k A WRITE BLOCK 20 => parked
         # The first upgrader's wait is over, though no alarm has told it.
         22  c2  ACQUIRE k B WRITE BLOCK 50 => parked; c1 gets null
    ",
    );
    // In a quarantine the queue is not checked earlier.
    run_here(
        "
          0  set quarantine 100
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          1  failover
          2  c1  ACQUIRE k A WRITE BLOCK 20 => parked
         21  c2  ACQUIRE k B WRITE BLOCK 50 => DEADLOCK
         22  c2  ACQUIRE k B WRITE BLOCK 50 => parked
         23  tick                           => c1 gets null
    ",
    );
}

#[test]
fn an_upgrade_that_is_given_up_leaves_the_read_hold_alone() {
    for end in [
        "gone c1",
        "c9  RELEASE k A WRITE => null; c1 gets null",
        "c9  UNBLOCK 1 => 1; c1 gets null",
    ] {
        run(&format!(
            "
          0  c1  ACQUIRE k A READ           => t1
          0  c2  ACQUIRE k B READ           => t2
          1  c1  ACQUIRE k A WRITE BLOCK 50 => parked
          2  {end}
          3  c3  INFO k                     => READ [-] [A t1 1 29997, B t2 1 29997] waiters 0
         # Now the other one may.
          4  c2  ACQUIRE k B WRITE BLOCK 50 => parked
          5  c3  RELEASE k A READ           => 0; c2 gets t3
        "
        ));
    }
}

#[test]
fn an_upgrade_may_wait_in_a_queue_place() {
    run("
          0  c1  ACQUIRE k A READ            => t1
          0  c2  ACQUIRE k B READ            => t2
          1  c3  ACQUIRE k C WRITE BLOCK 0   => parked
          2  c1  ACQUIRE k A WRITE QUEUE 100 => null
          3  c2  ACQUIRE k B WRITE BLOCK 9   => DEADLOCK
          4  c2  RELEASE k B READ            => 0; dlock:notify:A: granted 0 t3 1 A k
          5  c4  INFO k                      => WRITE [A t3 1 29999] [A t1 1 29995] waiters 1
         # Only WRITE takes it over: READ is another hold.
          6  c1  ACQUIRE k A READ            => t1
          6  c4  INFO k                      => WRITE [A t3 1 29998] [A t1 2 30000] waiters 1
          7  c1  ACQUIRE k A WRITE           => t3
          7  c4  INFO k                      => WRITE [A t3 1 30000] [A t1 2 29999] waiters 1
          8  c1  RELEASE k A WRITE           => 0
          9  c1  RELEASE k A READ ALL        => 0; c3 gets t4
    ");
}

#[test]
fn a_writer_that_also_reads_and_lost_its_write_hold_is_an_upgrader() {
    run("
          0  c1  ACQUIRE k A WRITE PX 50    => t1
          0  c1  ACQUIRE k A READ           => t2
          1  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          2  c3  ACQUIRE k C READ BLOCK 0   => parked
         51  tick
         52  c1  ACQUIRE k A WRITE          => t3
         53  c1  RELEASE k A WRITE          => 0
         54  c1  RELEASE k A READ           => 0; c2 gets t4
    ");
}

#[test]
fn a_waiting_writer_that_has_come_to_read_asks_again_in_front() {
    run("
          0  c9  ACQUIRE k X WRITE          => t1
          1  c1  ACQUIRE k A WRITE QUEUE 50 => null
          2  c2  ACQUIRE k B WRITE BLOCK 0  => parked
          3  c1  ACQUIRE l A READ           => t2
          3  c3  ACQUIRE l C READ           => t3
         # B is first, and waits for those who read now; A is one of them.
          4  c4  ACQUIRE k D WRITE BLOCK 0  => parked
          5  c9  RELEASE k A WRITE          => null
          6  c1  ACQUIRE k A WRITE QUEUE 50 => null
          7  rename l k                     => 
          8  c5  WAITERS k                  => B 2 6 - []; D 4 4 - []; A 1 2 - []
          9  c1  ACQUIRE k A WRITE QUEUE 50 => null
          9  c5  WAITERS k                  => A 1 0 - []; B 2 7 - []; D 4 5 - []
         10  c3  ACQUIRE k C WRITE BLOCK 0  => DEADLOCK
         11  c3  RELEASE k C READ           => 0; dlock:notify:A: granted 0 t4 1 A k
    ");
}
