//! Output to others: messages, keyspace events, labels, and the replies of reading commands.

use crate::script::run_both;

#[test]
fn only_queue_and_notify_make_messages() {
    run_both(
        "
          0  c1  ACQUIRE k A PX 10                       => t1
         11  tick
         12  c1  ACQUIRE k A PX 10 QUEUE 5               => t2
         23  tick                                        => dlock:notify:A: expired 0 t2 1 A k
         24  c1  ACQUIRE k A PX 10 QUEUE 5 NOTIFY ch     => t3
         35  tick                                        => ch: expired 0 t3 1 A k
         36  c1  ACQUIRE k A NOTIFY ch                   => t4
         37  c1  RELEASE k A                             => 0
         38  c1  ACQUIRE k A                             => t5
         39  c2  ACQUIRE k B BLOCK 0 NOTIFY ch PX 10     => parked
         40  c1  RELEASE k A                             => 0; c2 gets t6
         51  tick                                        => ch: expired 0 t6 1 B k
         # The key is the rest of the message, and the owner is counted in bytes.
         60  c1  ACQUIRE ключ ämä NOTIFY ch              => t7
         61  c9  BREAK ключ                              => 1; ch: broken 0 t7 5 ämä ключ
    ",
    );
}

#[test]
fn keyspace_events_tell_what_happened() {
    run_both("
          0  events
          0  c1  ACQUIRE k A PX 50             => t1 +acquire
          1  c1  ACQUIRE k A PX 50             => t1 +acquire
          2  c1  RENEW k A                     => t1
          3  c1  RELEASE k A                   => 1 +release
          4  c2  ACQUIRE k B BLOCK 0           => parked +wait
          5  c3  ACQUIRE k C QUEUE 9 PX 9      => null +wait
          6  c4  ACQUIRE k D                   => null
         53  tick                              => c2 gets t2 +expire +acquire
         54  c9  BREAK k                       => 1; dlock:notify:C: granted 0 t3 1 C k +break +acquire
         64  tick                              => dlock:notify:C: expired 0 t3 1 C k +expire
         65  c1  ACQUIRE k A                   => t4 +acquire
         66  c1  RELEASE k A                   => 0 +release
    ");
}

#[test]
fn labels_are_shown_and_change_nothing() {
    run_both("
          0  c1  ACQUIRE k A LABEL one         => t1
          0  c1  INFO k                        => [A] t1 holds 1 lease 30000 ttl 30000 held 0 [one] bound 0 waiters 0
          1  c1  ACQUIRE k A                   => t1
          1  c1  INFO k                        => [A] t1 holds 2 lease 30000 ttl 30000 held 1 [one] bound 0 waiters 0
          2  c1  ACQUIRE k A LABEL two         => t1
          2  c1  INFO k                        => [A] t1 holds 3 lease 30000 ttl 30000 held 2 [two] bound 0 waiters 0
          3  c2  ACQUIRE k B BLOCK 0 LABEL b   => parked
          3  c2  WAITERS k                     => B 2 0 - [b]
          4  c1  RELEASE k A ALL               => 0; c2 gets t2
          4  c1  INFO k                        => [B] t2 holds 1 lease 30000 ttl 30000 held 0 [b] bound 0 waiters 0
    ");
}

#[test]
fn readers_change_nothing_and_find_nothing() {
    run_both(
        "
          0  c1  INFO k                        => null
          0  c1  WAITERS k                     => nobody
          0  c1  POSITION k A                  => null
          0  c1  CHECK k 1                     => STALE
          0  c1  BREAK k                       => 0
          0  c1  RELEASE k A REQID r           => UNKNOWN
    ",
    );
}

#[test]
fn messages_carry_the_request_that_asked_for_them() {
    run_both(
        "
          0  c1  ACQUIRE k A REQID r1 NOTIFY ch     => t1
        # However many ids the hold has seen since.
          1  c1  ACQUIRE k A REQID r2               => t1
          1  c1  ACQUIRE k A REQID r3               => t1
          1  c1  ACQUIRE k A REQID r4               => t1
          1  c1  ACQUIRE k A REQID r5               => t1
          1  c1  ACQUIRE k A REQID r6               => t1
          1  c1  ACQUIRE k A REQID r7               => t1
          1  c1  ACQUIRE k A REQID r8               => t1
          1  c1  ACQUIRE k A REQID r9               => t1
          1  c1  ACQUIRE k A REQID r10              => t1
          2  restart
          2  c1  BREAK k                            => 1; ch: broken 0 t1 1 A [r1] k
        # A later call leaves them alone, also if nobody has asked for any.
          3  c1  ACQUIRE k A REQID q1               => t2
          3  c1  ACQUIRE k A REQID q2 NOTIFY ch PX 50 => t2
          4  c1  ACQUIRE k A NOTIFY ch2             => t2
          5  del k
    ",
    );
}

#[test]
fn a_place_that_another_request_takes_over_is_told_so() {
    run_both(
        "
          0  c1  ACQUIRE k A                                => t1
          1  c2  ACQUIRE k B QUEUE 100 NOTIFY c REQID r     => null
          2  c3  ACQUIRE k B QUEUE 100 NOTIFY c REQID r     => null
          3  c2  ACQUIRE k B QUEUE 100 NOTIFY d REQID s     => null; c: replaced 0 - 1 B [r] k
          4  c3  ACQUIRE k B BLOCK 100                      => parked; d: replaced 0 - 1 B [s] k
          # Without BLOCK or QUEUE a call leaves the place alone.
          5  c2  ACQUIRE k B                                => null
          6  c1  RELEASE k A                                => 0; c3 gets t2
          7  c3  RELEASE k B                                => 0
    ",
    );
}

#[test]
fn messages_of_snotify_are_sharded() {
    run_both("
          0  c1  ACQUIRE k A SNOTIFY ch REQID r     => t1
          1  c2  ACQUIRE k B QUEUE 100 SNOTIFY ch   => null
          2  restart
          2  c2  ACQUIRE k B QUEUE 100 SNOTIFY ch   => null
          3  c1  BREAK k                         => 1; sharded ch: broken 0 t1 1 A [r] k; sharded ch: granted 0 t2 1 B k
        # A later call leaves them alone.
          4  c2  ACQUIRE k B NOTIFY other           => t2
          5  del k                                  => sharded ch: deleted 0 t2 1 B k
    ");
}
